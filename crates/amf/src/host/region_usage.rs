//! Fill level of the state region, by a scan on a thread other than the host's.

use crate::worker::region_layout;
use std::sync::atomic::Ordering;
use vireo_ops::metrics::{Metrics, StateFunction, StateOperation, Transaction, Usage};
use vireo_store::region::{Region, TABLES};

/// Reader of the region's fill level.
#[derive(Debug)]
pub struct RegionUsage(Region);

impl RegionUsage {
    pub(super) fn new(region: Region) -> Self {
        RegionUsage(region)
    }

    /// Updates the metrics of the region. The values do not belong to one moment while UEs are
    /// served.
    pub fn read(&self, metrics: &Metrics) {
        let region = &self.0;
        // Memory that no UE ever used is not touched.
        let ever = region.shared_word(region_layout::BOARD_SLOTS).load(Ordering::Relaxed) as u32;
        let (slots, busy) = region.slots_used(ever);
        let (buffers, octets) = region.heap_use();
        let numbers = (0..TABLES as u8).filter_map(|table| region.numbers(table));
        metrics.usage(Usage::Slots, slots);
        metrics.usage(Usage::Busy, busy);
        metrics.usage(Usage::Packets, region.packets_used());
        metrics.usage(Usage::Buffers, buffers);
        metrics.usage(Usage::HeapBytes, octets);
        metrics.usage(Usage::RecordBytes, region.record_bytes(ever));
        metrics.usage(Usage::Addresses, numbers.map(|table| table.used() as usize).sum());
        self.count(metrics);
    }

    /// Returns the used and all numbers of each number table: for data network n, the IPv4 pool is
    /// table 2n and the IPv6 pool table 2n + 1.
    pub fn numbers(&self) -> Vec<Option<(u32, u32)>> {
        (0..TABLES as u8).map(|table| self.0.numbers(table).map(|table| (table.used(), table.size()))).collect()
    }

    /// Updates the metrics of the workers' database operations, which cost nothing to read.
    pub fn count(&self, metrics: &Metrics) {
        let region = &self.0;
        for (transaction, operation) in
            Transaction::ALL.iter().flat_map(|t| StateOperation::ALL.iter().map(move |o| (*t, *o)))
        {
            let words = region_layout::state_words(transaction, operation);
            let [count, micros] = words.map(|word| region.shared_word(word).load(Ordering::Relaxed));
            metrics.state_operations(StateFunction::Amf, transaction, operation, (count, micros));
        }
    }
}
