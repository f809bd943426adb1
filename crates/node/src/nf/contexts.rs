//! Where a worker has the contexts of its UEs: in the region (the design), or in its own memory (a stateful core, which
//! loses them with the process: what the design is compared with).

use rustc_hash::FxHashMap;
use vireo_core::context::{self, Parts, UeContext};
use vireo_store::CommitError;
use vireo_store::region::{Buffer, Packet, Record, Region, Slot, Snapshot, Worker};
use vireo_types::Instant;

/// The mark of a packet that is an outbox, in its sequence number beside the slot's.
pub(crate) const OUTBOX: u64 = 1 << 63;

/// What there is of a UE.
#[derive(Clone, Copy, Debug)]
pub(super) enum Found {
    /// Nothing yet.
    Nothing,
    /// Its context.
    Context {
        /// The last input carried out.
        consumed: u64,
        /// The record whose effects have not left.
        unsent: Option<Buffer>,
    },
    /// Its context has gone; the host is about to take the slot back.
    Tombstone {
        /// The last input carried out.
        consumed: u64,
        /// The record whose effects have not left.
        unsent: Option<Buffer>,
    },
}

/// A commit.
#[derive(Clone, Copy, Debug)]
pub(super) enum Done {
    /// The record, for the egress.
    Committed(Buffer),
    /// A packet with the outbox.
    Private(Packet),
}

/// UEs whose contexts a worker keeps decoded; what is not kept is read from the region.
const KEPT: usize = 1024;

/// A UE's context in a worker's hands. It stays where it is while it is worked on, kept and found again.
#[derive(Debug)]
pub(super) struct Hand {
    slot: Slot,
    pub(super) ue: UeContext,
    /// Whether there was none.
    pub(super) fresh: bool,
    /// What the next record is made from.
    parts: Option<Parts>,
    /// What was committed last, if that was done here.
    record: Option<Snapshot>,
    /// The last input carried out.
    consumed: u64,
}

impl Hand {
    fn new(slot: Slot, ue: UeContext, fresh: bool, consumed: u64) -> Box<Self> {
        Box::new(Hand { slot, ue, fresh, parts: None, record: None, consumed })
    }
}

/// A worker's contexts, one of them loaded.
#[derive(Debug, Default)]
pub(super) struct Contexts {
    /// Only of a stateful worker.
    private: Option<FxHashMap<Slot, Box<Hand>>>,
    /// By slot; valid only as long as the region has the same record.
    kept: Vec<Option<Box<Hand>>>,
    loaded: Option<Box<Hand>>,
    /// What was read from the region last.
    snapshot: Snapshot,
    buffer: Vec<u8>,
}

impl Contexts {
    pub(super) fn new(stateful: bool) -> Self {
        let kept = std::iter::repeat_with(|| None).take(KEPT).collect();
        Contexts { private: stateful.then(FxHashMap::default), kept, ..Contexts::default() }
    }

    /// Loads what there is of a UE.
    pub(super) fn load(&mut self, region: &Region, slot: Slot) -> Found {
        if let Some(hand) = self.loaded.take() {
            // Nothing was done with it.
            self.keep(hand);
        }
        let here = match &mut self.private {
            Some(private) => private.remove(&slot),
            None => self.kept[place(slot)]
                .take_if(|hand| hand.slot == slot)
                .filter(|hand| hand.record.as_ref().is_some_and(|record| region.is_current(slot, record))),
        };
        if let Some(hand) = here {
            // This worker committed it and handed it over.
            let found = Found::Context { consumed: hand.consumed, unsent: None };
            self.loaded = Some(hand);
            return found;
        }
        if self.private.is_some() || !region.read(slot, &mut self.snapshot) {
            return Found::Nothing;
        }
        let (consumed, unsent) = (self.snapshot.consumed, self.snapshot.buffer().filter(|_| !self.snapshot.sent));
        if self.snapshot.context.is_empty() {
            return Found::Tombstone { consumed, unsent };
        }
        match context::decode(&self.snapshot.context) {
            Ok(ue) => self.loaded = Some(Hand::new(slot, ue, false, consumed)),
            Err(error) => tracing::error!(%error, "a stored context does not decode: its UE is left alone"),
        }
        Found::Context { consumed, unsent }
    }

    /// The context that is loaded.
    pub(super) fn current(&self) -> Option<&UeContext> {
        self.loaded.as_ref().map(|hand| &hand.ue)
    }

    /// Makes a context where there is none.
    pub(super) fn fresh(&mut self, region: &Region, slot: Slot, found: Found) -> Option<()> {
        if matches!(found, Found::Nothing) {
            self.loaded = Some(Hand::new(slot, UeContext::new(region.ltmsi_of(slot)?), true, 0));
        }
        Some(())
    }

    /// Takes the context that is loaded, for a step over it. One that does not come back by [`Contexts::commit`] is as it
    /// was stored; a stateful worker has lost it.
    pub(super) fn take(&mut self) -> Option<Box<Hand>> {
        let mut hand = self.loaded.take()?;
        // What the perpetual part was, before the step changes it.
        if hand.parts.is_none() && self.private.is_none() {
            let parts = if hand.fresh { Parts::new(&hand.ue) } else { Parts::of(&hand.ue, &self.snapshot.context) };
            hand.parts = parts.ok();
        }
        Some(hand)
    }

    /// Makes what a step did true: from now on it happened. The UE is kept at hand.
    pub(super) fn commit(
        &mut self,
        worker: &mut Worker,
        mut hand: Box<Hand>,
        forgets: bool,
        (consumed, deadline, pin): (u64, Option<Instant>, u64),
        outbox: &[u8],
    ) -> Result<Done, CommitError> {
        if self.private.is_some() {
            let slot = u64::from(hand.slot.number());
            let packet = worker.packet(OUTBOX | slot, outbox).ok_or(CommitError::Full)?;
            if !forgets {
                (hand.fresh, hand.consumed) = (false, consumed);
                self.keep(hand);
            }
            return Ok(Done::Private(packet));
        }
        self.buffer.clear();
        let before = hand.record.as_ref().unwrap_or(&self.snapshot);
        if !forgets {
            let encoded = match &mut hand.parts {
                Some(parts) => parts.encode(&hand.ue, &mut self.buffer).map(|_| ()),
                None => context::encode_after(&hand.ue, &before.context, &mut self.buffer),
            };
            encoded.map_err(|_| CommitError::TooLarge(self.buffer.len()))?;
        }
        let record = Record { consumed, deadline, pin, context: &self.buffer, outbox };
        let committed = worker.commit(hand.slot, before, &record)?;
        if !forgets && hand.parts.is_some() {
            hand.record = Some(committed.seen(consumed));
            (hand.fresh, hand.consumed) = (false, consumed);
            self.keep(hand);
        }
        Ok(Done::Committed(committed.buffer))
    }

    fn keep(&mut self, hand: Box<Hand>) {
        if hand.fresh {
            return;
        }
        let slot = hand.slot;
        match &mut self.private {
            Some(private) => drop(private.insert(slot, hand)),
            None if hand.record.is_some() => self.kept[place(slot)] = Some(hand),
            None => {}
        }
    }
}

fn place(slot: Slot) -> usize {
    slot.number() as usize % KEPT
}
