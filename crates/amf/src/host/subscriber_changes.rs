//! Changed subscriber records, which act on the UEs of this host.
//!
//! The subscriber service of each host reads the changes of the database. The host with the UE of a
//! changed subscriber reads the record and delivers it to the UE, as one more event of that UE. The
//! rate is bounded, so that a large import delays no other event. Each change is delivered twice: a
//! UE that was registering, or was at another host, has it from the second time on.

use super::state::Host;
use super::subscriber_change_queue::{Change, Examination, INTERVAL, REPEAT_DELAY};
use vireo_core::amf::context;
use vireo_core::amf::engine::Event;
use vireo_core::schedule::kind::NfKind;
use vireo_core::subscription::{AuthenticationError, Subscription};
use vireo_store::region::{Key, Slot, Snapshot};
use vireo_types::{Instant, Supi};

/// UEs that are served in one interval: 1,000 a second.
const MAX_UES_PER_INTERVAL: usize = 10;
/// Changes that are examined per interval. Most are of subscribers without a UE here.
const MAX_CHANGES_PER_INTERVAL: usize = 1024;

impl Host {
    /// Has the UEs of an earlier core examined: records may have changed while there was no core.
    pub(super) fn examine_stored_ues(&mut self) {
        if self.ues.slots > 0 {
            self.events.changes.examine(true);
        }
    }

    /// Handles changes of the database of subscribers.
    pub(super) fn on_subscribers_changed(&mut self, changes: Option<Vec<Supi>>) {
        let now = self.current.arrived;
        self.events.changes.add(changes, now);
    }

    /// Reads the records of changed subscribers that have a UE here, a few per call.
    pub(super) fn serve_subscriber_changes(&mut self, now: Instant) {
        if self.events.changes.due().is_none_or(|due| due > now) {
            return;
        }
        self.events.changes.next = now + INTERVAL;
        let changes = &mut self.events.changes;
        while let Some((_, supi)) = changes.recent.pop_front_if(|(at, _)| *at <= now) {
            changes.waiting.push_back(Change { supi, is_repeated: true });
        }
        let mut served = 0;
        for _ in 0..MAX_CHANGES_PER_INTERVAL {
            let Some(change) = self.events.changes.waiting.front().copied() else { break };
            if self.ues.region.lookup(Key::Supi, change.supi.as_u64()).is_some() {
                if served == MAX_UES_PER_INTERVAL || self.udm.read(change.supi, change.is_repeated).is_err() {
                    return;
                }
                served += 1;
            }
            self.events.changes.waiting.pop_front();
        }
        self.examine_ues(MAX_UES_PER_INTERVAL.saturating_sub(served));
    }

    /// Reads the records of the subscribers of these UEs, for an examination of all.
    fn examine_ues(&mut self, count: usize) {
        let Some(Examination { slot, is_repeated }) = self.events.changes.examination else { return };
        let Ok(count) = u32::try_from(count) else { return };
        let slots: Vec<Slot> = self.ues.region.slots_from(slot, count).map(|(slot, _)| slot).collect();
        let mut record = Snapshot::default();
        for slot in slots {
            self.ues.region.read(slot, &mut record);
            let supi = context::decode(&record.context).ok().and_then(|ue| ue.identity.supi);
            if supi.is_some_and(|supi| self.udm.read(supi, is_repeated).is_err()) {
                return;
            }
        }
        let next = slot.saturating_add(count);
        self.events.changes.examination = (next < self.ues.slots).then_some(Examination { slot: next, is_repeated });
    }

    /// Delivers the present record of a changed subscriber to its UE. Without an answer of the
    /// database, it is read again.
    pub(super) fn on_subscriber_record(
        &mut self,
        supi: Supi,
        is_repeated: bool,
        subscription: Result<Option<Subscription>, AuthenticationError>,
    ) {
        let Ok(subscription) = subscription else {
            let now = self.current.arrived;
            return self.events.changes.recent.push_back((now + REPEAT_DELAY, supi));
        };
        if let Some(slot) = self.ues.region.lookup(Key::Supi, supi.as_u64()) {
            self.deliver(slot, &Event::SubscriberChanged { subscription, is_repeated }.into(), NfKind::StateManagement);
        }
    }
}
