//! What a committed step leaves for the host to do: its effects, what is counted, and what changed in the directory.

use serde::{Deserialize, Serialize};
use std::borrow::Cow;
use vireo_core::context::UeContext;
use vireo_core::postcard_writer;
use vireo_core::step::{Effect, Note};
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
            sessions: (ue.sessions.iter().filter(|s| s.is_live()).count()
                + ue.chain.sessions.iter().filter(|s| s.is_live()).count()) as u8,
            known: ue.identity.supi.is_some(),
        }
    }

    /// The associations that the UE has a connection on, or is about to.
    pub(crate) fn associations(&self) -> [Option<AssocId>; 2] {
        [self.connection.map(|(assoc, _)| assoc), self.target]
    }
}

/// The outbox of a record.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Outbox {
    /// When the step was.
    pub(crate) at: Instant,
    /// The UE's own number after the step.
    pub(crate) ltmsi: Ltmsi,
    /// What PFCP requests of the step are known by: the same when it runs again (DESIGN decision 4). See [`key`].
    pub(crate) key: u64,
    /// The balancer's number of the input that the step carried out, 0 if it was none of that.
    pub(crate) input: u64,
    /// When something is due for the UE, where no record says so.
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

/// What a UE's step is known by; the lowest 4 bits are for its effects.
pub(crate) fn key(ltmsi: Ltmsi, step: u32) -> u64 {
    u64::from(ltmsi.get()) << 36 | u64::from(step) << 4
}

/// The UE that something of that [`key`] is of.
pub(crate) fn asker(key: u64) -> Ltmsi {
    Ltmsi::from_raw((key >> 36) as u32)
}

/// What is stored of an outbox: it stays in the record of a UE that rests, and most of it follows from the rest or is as it
/// was.
#[derive(Serialize, Deserialize)]
struct EncodedOutbox<'a> {
    at: Instant,
    ltmsi: Ltmsi,
    /// Of [`key`].
    step: u32,
    input: u64,
    /// The deadline, from `at` on.
    due: Option<i64>,
    summaries: Summaries,
    settled: Cow<'a, [Ltmsi]>,
    seids: Cow<'a, [Option<Seid>]>,
    effects: Cow<'a, [Effect]>,
    notes: Cow<'a, [Note]>,
}

#[derive(Serialize, Deserialize)]
enum Summaries {
    /// After as before.
    Same(Summary),
    Changed(Option<Summary>, Option<Summary>),
}

impl Outbox {
    /// Whether the context goes with it.
    pub(crate) fn forgets(&self) -> bool {
        self.after.is_none()
    }

    /// As of when its step has made the context its subscriber's, if it has.
    pub(crate) fn claims(&self) -> Option<Instant> {
        self.effects.iter().filter_map(|effect| effect.claims_subscriber(self.at)).map(|(_, at)| at).max()
    }

    /// What one of its effects is known by.
    pub(crate) fn key_of(&self, effect: usize) -> u64 {
        self.key | effect as u64 & 0xf
    }

    /// Its octets, appended. `None` is a fault of this build: a step whose effects would be lost must not be committed.
    pub(crate) fn encode(&self, mut to: Vec<u8>) -> Option<Vec<u8>> {
        let step = (self.key >> 4) as u32;
        let same = self.before.filter(|before| Some(*before) == self.after);
        let stored = EncodedOutbox {
            at: self.at,
            ltmsi: self.ltmsi,
            step,
            input: self.input,
            due: self.deadline.map(|deadline| deadline.0.wrapping_sub(self.at.0).cast_signed()),
            summaries: same.map_or(Summaries::Changed(self.before, self.after), Summaries::Same),
            settled: Cow::Borrowed(&self.settled),
            seids: Cow::Borrowed(&self.seids),
            effects: Cow::Borrowed(&self.effects),
            notes: Cow::Borrowed(&self.notes),
        };
        (self.key == key(self.ltmsi, step)).then_some(())?;
        postcard_writer::to_vec(&stored, &mut to).ok()?;
        Some(to)
    }

    pub(crate) fn decode(octets: &[u8]) -> Option<Self> {
        let stored: EncodedOutbox<'_> = postcard::from_bytes(octets).ok()?;
        let (before, after) = match stored.summaries {
            Summaries::Same(summary) => (Some(summary), Some(summary)),
            Summaries::Changed(before, after) => (before, after),
        };
        Some(Outbox {
            at: stored.at,
            ltmsi: stored.ltmsi,
            key: key(stored.ltmsi, stored.step),
            input: stored.input,
            deadline: stored.due.map(|due| Instant(stored.at.0.wrapping_add_signed(due))),
            before,
            after,
            settled: stored.settled.into_owned(),
            seids: stored.seids.into_owned(),
            effects: stored.effects.into_owned(),
            notes: stored.notes.into_owned(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_outbox_comes_back_and_one_that_changes_little_is_small() {
        let summary = Summary { registered: true, sessions: 1, known: true, ..Summary::default() };
        let ltmsi = Ltmsi::from_raw(0x0abc_1234);
        let mut outbox = Outbox {
            at: Instant(1_795_000_000_000_000),
            ltmsi,
            key: key(ltmsi, 77),
            input: 1_000_000,
            deadline: Some(Instant(1_795_003_480_000_000)),
            before: Some(summary),
            after: Some(summary),
            settled: vec![],
            seids: vec![],
            effects: vec![],
            notes: vec![],
        };
        let octets = outbox.encode(Vec::new()).unwrap();
        assert!(octets.len() <= 36, "{} octets", octets.len());
        assert_eq!(Outbox::decode(&octets), Some(outbox.clone()));
        // A deadline that has passed, a context that goes, and all that may be wanted.
        (outbox.deadline, outbox.after, outbox.key) = (Some(Instant(5)), None, key(ltmsi, u32::MAX));
        (outbox.settled, outbox.seids) = (vec![Ltmsi::from_raw(1)], vec![None, Some(Seid(u64::MAX))]);
        (outbox.effects, outbox.notes) = (vec![Effect::Forget], vec![Note::fault("x")]);
        let octets = outbox.encode(Vec::new()).unwrap();
        assert_eq!(Outbox::decode(&octets), Some(outbox.clone()));
        assert!(Outbox::decode(&octets[..octets.len() - 1]).is_none());
        outbox.key += 1;
        assert_eq!(outbox.encode(Vec::new()), None, "a name that would be another one later");
    }
}
