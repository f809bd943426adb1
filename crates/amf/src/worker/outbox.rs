//! Outbox of a committed step: effects, notes, and changes of the directory.

use serde::{Deserialize, Serialize};
use std::borrow::Cow;
use vireo_core::amf::context::UeContext;
use vireo_core::postcard_writer;
use vireo_core::step::{Effect, KEYED_EFFECTS, Note, effect_key, idempotency_key, step_of_key};
use vireo_types::{AssocId, Instant, Ltmsi, RanUeNgapId, Seid};

/// Fields of a context that the host counts and indexes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Summary {
    pub(crate) registered: bool,
    /// Association and RAN UE NGAP ID of the NG connection.
    pub(crate) connection: Option<(AssocId, RanUeNgapId)>,
    /// Association of the target of a handover.
    pub(crate) target: Option<AssocId>,
    /// The target's RAN UE NGAP ID, once assigned.
    pub(crate) target_id: Option<RanUeNgapId>,
    pub(crate) sessions: u8,
    pub(crate) known: bool,
}

impl Summary {
    pub(crate) fn new(ue: &UeContext) -> Self {
        let target = ue.handover.as_ref().and_then(|h| h.target());
        Summary {
            registered: ue.is_registered(),
            connection: ue.connection.map(|c| (c.assoc, c.ran_id)),
            target: target.map(|m| m.assoc),
            target_id: target.and_then(|m| m.ran_id),
            sessions: (ue.sessions.iter().filter(|s| s.is_live()).count()
                + ue.remote_sessions.sessions.iter().filter(|s| s.is_live()).count()) as u8,
            known: ue.identity.supi.is_some(),
        }
    }

    /// Returns the associations on which the UE has a connection, or will have one after a
    /// handover.
    pub(crate) fn associations(&self) -> [Option<AssocId>; 2] {
        [self.connection.map(|(assoc, _)| assoc), self.target]
    }
}

/// The outbox of a commit record.
#[derive(Clone, Debug, PartialEq)]
#[cfg_attr(test, derive(Default))]
pub(crate) struct Outbox {
    /// Time of the step.
    pub(crate) at: Instant,
    /// LTMSI of the UE after the step.
    pub(crate) ltmsi: Ltmsi,
    /// Idempotency key of the step's effects, the same when it runs again
    /// ([`idempotency_key`]).
    pub(crate) key: u64,
    /// Balancer's number of the input that the step completes; 0 = none.
    pub(crate) input: u64,
    /// Deadline of the UE, if no commit record stores it.
    pub(crate) deadline: Option<Instant>,
    /// Summary before and after the step.
    pub(crate) before: Option<Summary>,
    pub(crate) after: Option<Summary>,
    /// Aliases of the UE that no connection or session uses after the step.
    pub(crate) settled: Vec<Ltmsi>,
    /// SEIDs of the PFCP effects, in their order.
    pub(crate) seids: Vec<Option<Seid>>,
    pub(crate) effects: Vec<Effect>,
    pub(crate) notes: Vec<Note>,
}

/// Stored form of an outbox. It stays in the record of a UE at rest, so it omits what follows from
/// other fields or is unchanged.
#[derive(Serialize, Deserialize)]
struct EncodedOutbox<'a> {
    at: Instant,
    ltmsi: Ltmsi,
    /// Step number of [`idempotency_key`].
    step: u32,
    input: u64,
    /// Deadline relative to `at`, in microseconds.
    due: Option<i64>,
    summaries: Summaries,
    settled: Cow<'a, [Ltmsi]>,
    seids: Cow<'a, [Option<Seid>]>,
    effects: Cow<'a, [Effect]>,
    notes: Cow<'a, [Note]>,
}

#[derive(Serialize, Deserialize)]
enum Summaries {
    /// Equal before and after the step.
    Same(Summary),
    Changed(Option<Summary>, Option<Summary>),
}

impl Outbox {
    /// Returns the balancer's input by which the step has connected the UE, if it has.
    pub(crate) fn connecting_input(&self) -> Option<u64> {
        let [before, after] = [self.before, self.after].map(|summary| summary.and_then(|of| of.connection));
        Some(self.input).filter(|input| *input != 0 && after.is_some() && before != after)
    }

    /// Returns true if the step removes the context.
    pub(crate) fn forgets(&self) -> bool {
        self.after.is_none()
    }

    /// Returns the time of the subscriber's claim by this step, if it made one.
    pub(crate) fn claims(&self) -> Option<Instant> {
        self.effects.iter().filter_map(|effect| effect.claims_subscriber(self.at)).map(|(_, at)| at).max()
    }

    /// Returns the idempotency key of an effect.
    pub(crate) fn key_of(&self, effect: usize) -> u64 {
        effect_key(self.key, effect)
    }

    /// Appends the encoding. `None` is a bug of this build: a step whose effects would be lost must
    /// not be committed.
    pub(crate) fn encode(&self, mut to: Vec<u8>) -> Option<Vec<u8>> {
        let step = step_of_key(self.key);
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
        // Only a message to a RAN node may be repeated, so only such an effect needs no key.
        let mut without_key = self.effects.iter().skip(KEYED_EFFECTS);
        let has_keys = without_key.all(|effect| matches!(effect, Effect::Ngap { .. }));
        (self.key == idempotency_key(self.ltmsi, step) && has_keys).then_some(())?;
        postcard_writer::to_vec(&stored, &mut to).ok()?;
        Some(to)
    }

    /// Returns the LTMSI of an encoded outbox without decoding the rest.
    pub(crate) fn stored_ltmsi(octets: &[u8]) -> Option<Ltmsi> {
        let ((_, ltmsi), _): ((Instant, Ltmsi), _) = postcard::take_from_bytes(octets).ok()?;
        Some(ltmsi)
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
            key: idempotency_key(stored.ltmsi, stored.step),
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
    use std::collections::HashSet;

    #[test]
    fn outbox_roundtrip_is_exact_and_small() {
        let summary = Summary { registered: true, sessions: 1, known: true, ..Summary::default() };
        let ltmsi = Ltmsi::from_raw(0x0abc_1234);
        let mut outbox = Outbox {
            at: Instant(1_795_000_000_000_000),
            ltmsi,
            key: idempotency_key(ltmsi, 77),
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
        assert_eq!((Outbox::stored_ltmsi(&octets), Outbox::stored_ltmsi(&[])), (Some(ltmsi), None));
        // An expired deadline, a removed context, and extreme values.
        (outbox.deadline, outbox.after, outbox.key) = (Some(Instant(5)), None, idempotency_key(ltmsi, u32::MAX));
        (outbox.settled, outbox.seids) = (vec![Ltmsi::from_raw(1)], vec![None, Some(Seid(u64::MAX))]);
        (outbox.effects, outbox.notes) = (vec![Effect::DeleteContext], vec![Note::fault("x")]);
        let octets = outbox.encode(Vec::new()).unwrap();
        assert_eq!(Outbox::decode(&octets), Some(outbox.clone()));
        assert!(Outbox::decode(&octets[..octets.len() - 1]).is_none());
        outbox.key += 1;
        assert_eq!(outbox.encode(Vec::new()), None, "a name that would be another one later");
    }

    #[test]
    fn effects_of_step_have_different_keys() {
        let ltmsi = Ltmsi::from_raw(0x0fff_ffff);
        let key = idempotency_key(ltmsi, 1 << 27);
        let page = Effect::Ngap { assoc: AssocId(1), pdu: vec![0] };
        let effects = vec![page.clone(); KEYED_EFFECTS];
        let mut outbox = Outbox { ltmsi, key, effects, ..Outbox::default() };
        let keys: HashSet<u64> = (0..KEYED_EFFECTS).map(|effect| outbox.key_of(effect)).collect();
        assert_eq!(keys.len(), KEYED_EFFECTS);
        assert!(keys.iter().all(|key| step_of_key(*key) == 1 << 27 && *key >> 36 == 0x0fff_ffff));
        outbox.effects.push(page);
        let octets = outbox.encode(Vec::new()).expect("a page may be repeated");
        assert_eq!(Outbox::decode(&octets).map(|outbox| outbox.key_of(KEYED_EFFECTS)), Some(0));
        outbox.effects.push(Effect::DeleteContext);
        assert_eq!(outbox.encode(Vec::new()), None, "an effect without a key may be repeated");
    }
}
