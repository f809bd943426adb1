//! Batches of UEs from an NF's queue, for contexts in a database.
//!
//! The records are read in one operation, the events are processed one after the other, and the
//! results are stored in one operation. Each UE has its own commit, after which its effects are
//! sent. A worker that dies in between leaves each UE as if it were alone.

use super::contexts::PendingCommit;
use super::{EventOutcome, MAX_CONSECUTIVE_EVENTS, NfWorker, log_failed_event, region_layout};
use crate::worker::event_message::{EventMessage, ReceivedEvent};
use std::time::Instant;
use vireo_ops::metrics::Transaction;
use vireo_store::region::{Packet, Slot};

/// Maximum number of UEs in a batch.
const GROUP: usize = 32;

/// An event whose result is not stored yet.
struct BatchEntry {
    slot: Slot,
    packet: Packet,
    transaction: Transaction,
    ended: bool,
}

impl NfWorker {
    /// Processes the events of the UEs in an NF's queue. Returns the numbers of events and of ended
    /// procedures.
    pub(super) fn serve_batch(&mut self, nf: usize) -> (u64, u64) {
        let queue = &self.queues[nf];
        let taken: Vec<_> = std::iter::from_fn(|| queue.take(&self.worker)).take(GROUP).collect();
        let slots: Vec<Slot> = taken.iter().filter_map(|taken| self.region.slot_at(taken.item as u32)).collect();
        let mut open: Vec<(Slot, Packet)> =
            slots.into_iter().filter_map(|slot| Some((slot, self.first(slot)?))).collect();
        let (mut events, mut procedures, mut rounds) = (0, 0, 0);
        while !open.is_empty() {
            events += open.len() as u64;
            procedures += self.carry_out_all(nf, &open);
            open = open.iter().filter_map(|(slot, _)| Some((*slot, self.worker.finish(*slot)?))).collect();
            rounds += 1;
            if rounds % MAX_CONSECUTIVE_EVENTS == 0 {
                self.bump_heartbeat(Instant::now());
                let queue = &self.queues[nf];
                open.retain(|(slot, _)| queue.push(slot.number().into()).is_err());
            }
        }
        for taken in taken {
            self.queues[nf].acknowledge(&self.worker, taken);
        }
        (events, procedures)
    }

    /// Processes one event of each of these UEs. Returns the number of ended procedures.
    fn carry_out_all(&mut self, nf: usize, open: &[(Slot, Packet)]) -> u64 {
        if let [(slot, packet)] = open {
            return self.retry_single(nf, *slot, *packet);
        }
        self.contexts.prefetch(&self.region, open.iter().map(|(slot, _)| *slot));
        let (mut waiting, mut commits, mut again, mut procedures) = (Vec::new(), Vec::new(), Vec::new(), 0);
        for (slot, packet) in open {
            self.bump_heartbeat(Instant::now());
            self.publish_serving(region_layout::serving(*slot));
            match self.begin_of(nf, *slot, *packet) {
                Some((EventOutcome::Ended(ended), _)) => procedures += u64::from(ended),
                // Contexts in a database have no replicas that could serve.
                Some((EventOutcome::LeftToOwner, _)) => {}
                Some((EventOutcome::Waits { pending, ended }, transaction)) => {
                    commits.push(*pending);
                    waiting.push(BatchEntry { slot: *slot, packet: *packet, transaction, ended });
                }
                None => again.push((*slot, *packet)),
            }
        }
        self.publish_serving(region_layout::SERVING);
        procedures += self.store_all(nf, waiting, commits);
        // The other results do not wait for these events.
        procedures + again.into_iter().map(|(slot, packet)| self.retry_single(nf, slot, packet)).sum::<u64>()
    }

    /// Commits results. Returns the number of ended procedures.
    fn store_all(&mut self, nf: usize, waiting: Vec<BatchEntry>, commits: Vec<PendingCommit>) -> u64 {
        if commits.is_empty() {
            return 0;
        }
        self.bump_heartbeat(Instant::now());
        let Some(done) = self.store(commits) else {
            // The failed result is unknown.
            return waiting.into_iter().map(|waiting| self.retry_single(nf, waiting.slot, waiting.packet)).sum();
        };
        self.count_operations(|place| waiting[place].transaction);
        let mut procedures = 0;
        for (BatchEntry { slot, packet, ended, .. }, done) in waiting.into_iter().zip(done) {
            procedures += match done {
                Ok(done) => {
                    self.database_down = None;
                    self.pass_effects(slot, done);
                    u64::from(ended)
                }
                Err(error) if error.is_retryable() => self.retry_single(nf, slot, packet),
                Err(error) => u64::from(log_failed_event(&error)),
            };
        }
        procedures
    }

    /// Processes an event alone, with retries while the database is down. Returns the number of
    /// ended procedures.
    fn retry_single(&mut self, nf: usize, slot: Slot, packet: Packet) -> u64 {
        self.publish_serving(region_layout::serving(slot));
        let ended = self.event(nf, slot, packet);
        self.publish_serving(region_layout::SERVING);
        u64::from(ended)
    }

    /// Starts an event; `None`: it must be processed alone.
    fn begin_of(&mut self, nf: usize, slot: Slot, packet: Packet) -> Option<(EventOutcome, Transaction)> {
        let mut octets = std::mem::take(&mut self.packet);
        octets.clear();
        let begun = self.region.read_packet(packet, &mut octets).and_then(|sequence| {
            let ReceivedEvent { arrived, input, event } = EventMessage::decode(&octets)?;
            let transaction = event.transaction();
            let begun = self.begin((nf, slot), (sequence, input), (arrived, event), &octets);
            self.count_operations(|_| transaction);
            match begun {
                Ok(begun) => Some((begun, transaction)),
                Err(error) if error.is_retryable() => None,
                Err(error) => Some((EventOutcome::Ended(log_failed_event(&error)), transaction)),
            }
        });
        self.packet = octets;
        begun
    }
}
