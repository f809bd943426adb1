//! UEs of other hosts in guest slots of the region.

use crate::host::deferred_event::DeferredEvent;
use crate::host::path_switch::GuessLimit;
use crate::worker::region_layout;
use rustc_hash::FxHashMap;
use std::collections::VecDeque;
use vireo_core::amf::context::Versions;
use vireo_store::region::Slot;
use vireo_types::{AssocId, Instant, Ltmsi};

/// UE of another host in a guest slot.
#[derive(Debug)]
pub(super) struct Guest {
    pub(super) slot: Slot,
    /// Versions of the context in the slot, if that is a committed one.
    pub(super) versions: Option<Versions>,
    /// Versions of the context in the slot, if it is proposed.
    pub(super) proposed: Option<Versions>,
    /// Versions of the context in the slot before the step in progress.
    pub(super) before: Versions,
    /// Input in progress; 0 = none.
    pub(super) input: u64,
    /// RAN node for which the slot has an association.
    pub(super) node: Option<AssocId>,
    pub(super) used: Instant,
}

/// Report of a UPF about a UE of this host, one of whose procedures another host serves. It waits
/// for the end of the procedure: the result of its step would void the next proposal.
#[derive(Debug)]
pub(super) struct WaitingReport {
    pub(super) deadline: Instant,
    pub(super) event: DeferredEvent,
}

/// UEs of other hosts in the region, and reports that wait for serving hosts.
#[derive(Debug)]
pub(in crate::host) struct Guests {
    pub(super) ues: FxHashMap<Ltmsi, Guest>,
    /// Guests by the input in progress.
    pub(super) inputs: FxHashMap<u64, Ltmsi>,
    /// Guest slots that are free.
    pub(super) free: Vec<u32>,
    pub(super) swept: Instant,
    /// The first one first.
    pub(super) reports: VecDeque<WaitingReport>,
    /// Peers whose path switches the owners decide about.
    pub(in crate::host) path_switches: GuessLimit,
    /// Peers whose SERVICE REQUESTs of EPS the owners decide about.
    pub(in crate::host) short_macs: GuessLimit,
}

impl Default for Guests {
    fn default() -> Self {
        let free = (0..region_layout::GUESTS).rev().collect();
        Guests {
            ues: FxHashMap::default(),
            inputs: FxHashMap::default(),
            free,
            swept: Instant::default(),
            reports: VecDeque::new(),
            path_switches: GuessLimit::default(),
            short_macs: GuessLimit::default(),
        }
    }
}

impl Guests {
    /// Returns true if a report about a UE waits.
    pub(in crate::host) fn has_report(&self, slot: Slot) -> bool {
        self.reports.iter().any(|report| report.event.slot == slot)
    }

    /// Returns the time at which a report has waited long enough.
    pub(in crate::host) fn due(&self) -> Option<Instant> {
        self.reports.front().map(|report| report.deadline)
    }

    /// Ends the input in progress of a guest.
    pub(super) fn end(&mut self, ltmsi: Ltmsi) {
        if let Some(guest) = self.ues.get_mut(&ltmsi) {
            self.inputs.remove(&std::mem::take(&mut guest.input));
        }
    }

    /// Handles the answer to the proposal of a guest's step.
    pub(super) fn on_answer(&mut self, ltmsi: Ltmsi, is_committed: bool) {
        if let Some(guest) = self.ues.get_mut(&ltmsi) {
            guest.versions = guest.proposed.take().filter(|_| is_committed);
        }
    }

    /// Forgets which contexts are committed: another owner may have committed others with the same
    /// versions.
    pub(in crate::host) fn on_map(&mut self) {
        self.ues.values_mut().for_each(|guest| (guest.versions, guest.proposed) = (None, None));
    }
}
