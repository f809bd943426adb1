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

/// UEs in the middle of a procedure whose contexts a worker keeps decoded; what is not kept is read from the region.
const KEPT: usize = 4096;

/// A context as it was committed, decoded.
#[derive(Debug)]
struct Kept {
    slot: Slot,
    record: Snapshot,
    ue: UeContext,
    parts: Parts,
}

/// A worker's contexts, one of them loaded.
#[derive(Debug, Default)]
pub(super) struct Contexts {
    /// Only of a stateful worker.
    private: Option<FxHashMap<Slot, (UeContext, u64)>>,
    /// By slot; valid only as long as the region has the same record.
    kept: Vec<Option<Box<Kept>>>,
    snapshot: Snapshot,
    parts: Option<Parts>,
    ue: Option<UeContext>,
    fresh: bool,
    buffer: Vec<u8>,
}

impl Contexts {
    pub(super) fn new(stateful: bool) -> Self {
        let kept = std::iter::repeat_with(|| None).take(KEPT).collect();
        Contexts { private: stateful.then(FxHashMap::default), kept, ..Contexts::default() }
    }

    /// Loads what there is of a UE.
    pub(super) fn load(&mut self, region: &Region, slot: Slot) -> Found {
        (self.ue, self.parts, self.fresh) = (None, None, false);
        if let Some(private) = &mut self.private {
            return match private.remove(&slot) {
                Some((ue, consumed)) => {
                    self.ue = Some(ue);
                    Found::Context { consumed, unsent: None }
                }
                None => Found::Nothing,
            };
        }
        if let Some(kept) = self.kept[slot.number() as usize % KEPT].take_if(|kept| kept.slot == slot)
            && region.is_current(slot, &kept.record)
        {
            let Kept { record, ue, parts, .. } = *kept;
            let consumed = record.consumed;
            self.snapshot = record;
            (self.ue, self.parts) = (Some(ue), Some(parts));
            // This worker committed it and handed it over.
            return Found::Context { consumed, unsent: None };
        }
        if !region.read(slot, &mut self.snapshot) {
            return Found::Nothing;
        }
        let (consumed, unsent) = (self.snapshot.consumed, self.snapshot.buffer().filter(|_| !self.snapshot.sent));
        if self.snapshot.context.is_empty() {
            return Found::Tombstone { consumed, unsent };
        }
        match context::decode(&self.snapshot.context) {
            Ok(ue) => self.ue = Some(ue),
            Err(error) => tracing::error!(%error, "a stored context does not decode: its UE is left alone"),
        }
        Found::Context { consumed, unsent }
    }

    /// The context that is loaded.
    pub(super) fn current(&self) -> Option<&UeContext> {
        self.ue.as_ref()
    }

    /// Makes a context where there is none.
    pub(super) fn fresh(&mut self, region: &Region, slot: Slot, found: Found) -> Option<()> {
        if matches!(found, Found::Nothing) {
            self.ue = Some(UeContext::new(region.ltmsi_of(slot)?));
            self.fresh = true;
        }
        Some(())
    }

    pub(super) fn take(&mut self) -> Option<UeContext> {
        // What the perpetual part was, before the step changes it.
        if let (Some(ue), None, None) = (&self.ue, &self.parts, &self.private) {
            let parts = if self.fresh { Parts::new(ue) } else { Parts::of(ue, &self.snapshot.context) };
            self.parts = parts.ok();
        }
        self.ue.take()
    }

    pub(super) fn is_fresh(&self) -> bool {
        self.fresh
    }

    /// A step over the UE has gone wrong: what a stateful worker had of it is gone.
    pub(super) fn forget(&mut self, slot: Slot) {
        if let Some(private) = &mut self.private {
            private.remove(&slot);
        }
    }

    /// Makes what a step did true: from now on it happened. A UE in the middle of a procedure is kept at hand.
    pub(super) fn commit(
        &mut self,
        worker: &mut Worker,
        slot: Slot,
        ue: UeContext,
        forgets: bool,
        (consumed, deadline, pin): (u64, Option<Instant>, u64),
        outbox: &[u8],
    ) -> Result<Done, CommitError> {
        if let Some(private) = &mut self.private {
            let packet = worker.packet(OUTBOX | u64::from(slot.number()), outbox).ok_or(CommitError::Full)?;
            if !forgets {
                private.insert(slot, (ue, consumed));
            }
            return Ok(Done::Private(packet));
        }
        self.buffer.clear();
        let mut parts = self.parts.take();
        if !forgets {
            let encoded = match &mut parts {
                Some(parts) => parts.encode(&ue, &mut self.buffer).map(|_| ()),
                None => context::encode_after(&ue, &self.snapshot.context, &mut self.buffer),
            };
            encoded.map_err(|_| CommitError::TooLarge(self.buffer.len()))?;
        }
        let record = Record { consumed, deadline, pin, context: &self.buffer, outbox };
        let committed = worker.commit(slot, &self.snapshot, &record)?;
        if let Some(parts) = parts.filter(|_| !forgets && pin != 0) {
            let record = committed.seen(consumed);
            self.kept[slot.number() as usize % KEPT] = Some(Box::new(Kept { slot, record, ue, parts }));
        }
        Ok(Done::Committed(committed.buffer))
    }
}
