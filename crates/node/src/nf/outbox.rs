//! What a committed step leaves for the host to do: its effects, what is counted, and what changed in the directory.

use serde::{Deserialize, Serialize};
use vireo_core::context::UeContext;
use vireo_core::turn::{Effect, Note};
use vireo_types::{AssocId, Instant, Ltmsi, RanUeNgapId, Seid};

/// What of a context is counted and looked up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Summary {
    pub(crate) registered: bool,
    /// The NG connection.
    pub(crate) connection: Option<(AssocId, RanUeNgapId)>,
    /// The association of the target of a handover.
    pub(crate) target: Option<AssocId>,
    /// The target's number for the UE, once it has one.
    pub(crate) target_id: Option<RanUeNgapId>,
    pub(crate) sessions: u8,
    pub(crate) known: bool,
}

impl Summary {
    pub(crate) fn of(ue: &UeContext) -> Self {
        let target = ue.handover.as_ref().and_then(|h| h.target());
        Summary {
            registered: ue.is_registered(),
            connection: ue.connection.map(|c| (c.assoc, c.ran_id)),
            target: target.map(|m| m.assoc),
            target_id: target.and_then(|m| m.ran_id),
            sessions: ue.sessions.iter().filter(|s| s.is_live()).count() as u8,
            known: ue.identity.supi.is_some(),
        }
    }

    /// The associations that the UE has a connection on, or is about to.
    pub(crate) fn associations(&self) -> [Option<AssocId>; 2] {
        [self.connection.map(|(assoc, _)| assoc), self.target]
    }
}

/// The outbox of a record.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Outbox {
    /// When the step was.
    pub(crate) at: Instant,
    /// The UE's own number after the step.
    pub(crate) ltmsi: Ltmsi,
    /// What PFCP requests of the step are known by: the same when it runs again (DESIGN decision 4).
    pub(crate) key: u64,
    /// The balancer's number of the input that the step carried out, 0 if it was none of that.
    pub(crate) input: u64,
    /// When something is due for the UE.
    pub(crate) deadline: Option<Instant>,
    /// What there was before, and what there is.
    pub(crate) before: Option<Summary>,
    pub(crate) after: Option<Summary>,
    /// Numbers that lead to the UE and that nothing refers to any more.
    pub(crate) settled: Vec<Ltmsi>,
    /// The sessions of the PFCP effects, in their order.
    pub(crate) seids: Vec<Option<Seid>>,
    pub(crate) effects: Vec<Effect>,
    pub(crate) notes: Vec<Note>,
}

impl Outbox {
    /// Whether the context goes with it.
    pub(crate) fn forgets(&self) -> bool {
        self.after.is_none()
    }

    /// Its octets, appended. `None` is a fault of this build: a step whose effects would be lost must not be committed.
    pub(crate) fn encode(&self, to: Vec<u8>) -> Option<Vec<u8>> {
        postcard::to_extend(self, to).ok()
    }

    pub(crate) fn decode(octets: &[u8]) -> Option<Self> {
        postcard::from_bytes(octets).ok()
    }
}
