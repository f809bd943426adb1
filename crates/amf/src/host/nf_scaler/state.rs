//! State of the NF scaler.

use crate::host::pools::PoolId;
use crate::worker::region_layout::HOST;
use rustc_hash::FxHashMap;
use std::time::Duration;
use vireo_store::region::{DeadWorker, Slot};
use vireo_types::Instant;

/// Interval of the scaling decisions.
pub(super) const SCALING_INTERVAL: vireo_types::Duration = vireo_types::Duration::from_millis(100);
/// State of the NF scaler.
#[derive(Debug)]
pub(in crate::host) struct NfScaler {
    pub(super) checked_at: Instant,
    pub(super) controlled: Instant,
    /// Worker numbers in use.
    numbers: [bool; 256],
    /// By pool: consecutive decisions with violations.
    pub(super) late_decisions: FxHashMap<PoolId, u32>,
    /// By pool: consecutive decisions without a queue.
    pub(super) quiet_decisions: FxHashMap<PoolId, u32>,
    pub(super) weights: FxHashMap<u8, f64>,
    /// Worker that is being switched off.
    pub(super) stopping: Option<u8>,
    /// UEs of dead workers without an available NF, with the numbers of the dead workers.
    pub(in crate::host) orphans: Vec<(Slot, u8)>,
    /// Dead workers that still have such UEs.
    pub(in crate::host) dead: Vec<DeadWorker>,
    /// UEs whose steps crashed workers: last consumed input, and number of crashes at it.
    pub(in crate::host) suspects: FxHashMap<Slot, (u64, u8)>,
    /// NFs whose worker did not start; retried.
    pub(in crate::host) failed: Vec<(PoolId, bool)>,
    /// True if the next decision is due soon, because there was work.
    pub(super) worked: bool,
}

impl NfScaler {
    pub(in crate::host) fn new() -> Self {
        let mut numbers = [false; 256];
        numbers[usize::from(HOST)] = true;
        NfScaler {
            checked_at: Instant::default(),
            controlled: Instant::default(),
            numbers,
            late_decisions: FxHashMap::default(),
            quiet_decisions: FxHashMap::default(),
            weights: FxHashMap::default(),
            stopping: None,
            orphans: Vec::new(),
            dead: Vec::new(),
            suspects: FxHashMap::default(),
            failed: Vec::new(),
            worked: false,
        }
    }

    /// Allocates a worker number.
    pub(in crate::host) fn number(&mut self, workers: u8) -> Option<u8> {
        let free = (1..workers).find(|number| !self.numbers[usize::from(*number)])?;
        self.numbers[usize::from(free)] = true;
        Some(free)
    }

    /// Frees a worker number.
    pub(in crate::host) fn free_number(&mut self, number: u8) {
        self.numbers[usize::from(number)] = false;
        self.weights.remove(&number);
    }

    /// Returns the maximum time that the host may sleep until the next decision.
    pub(in crate::host) fn next(&self, now: Instant) -> Duration {
        let idle = Duration::from_millis(500);
        if self.worked {
            Duration::from(SCALING_INTERVAL).saturating_sub(now.since(self.controlled).into()).min(idle)
        } else {
            idle
        }
    }
}
