//! Layout of the region: rings, shared words, published values and number tables.
//!
//! Host and workers compute the layout from the same few sizes.

use std::sync::atomic::Ordering;
use vireo_core::config::CoreConfig;
use vireo_core::placement::host::MAX_SERVED_UES;
use vireo_ops::metrics::{StateOperation, Transaction};
use vireo_store::region::{Bell, Region, RegionConfig, Ring, Slot, TABLES};
use vireo_types::Bucket;

/// Number of slots for UEs of other hosts that this host serves: twice as many as it serves at a
/// time, since a slot is used again only after some time.
pub(crate) const GUESTS: u32 = 2 * MAX_SERVED_UES as u32;

/// The host thread's number among the workers of the region.
pub(crate) const HOST: u8 = 0;

/// Published value: configuration of the workers.
pub(crate) const BULLETIN_CONFIG: u8 = 0;
/// Published value: RAN nodes with a completed NG Setup.
pub(crate) const BULLETIN_RAN: u8 = 1;

/// Shared word: offset from the monotonic clock to Unix time, in microseconds.
pub(crate) const BOARD_CLOCK: u32 = 0;
/// Shared word: not 0 if workers are to exit when their queues are empty.
pub(crate) const BOARD_STOP: u32 = 1;
/// Shared word: upper bound (exclusive) of all slots ever used.
pub(crate) const BOARD_SLOTS: u32 = 2;
/// Shared word: time in microseconds of the clock until which workers serve UEs one by one.
pub(crate) const BOARD_ALONE: u32 = 3;
/// Shared words: slot + 1 of each UE whose oldest event has repeatedly crashed workers; 0 = free.
const BOARD_POISON: u32 = 4;
/// Maximum number of such UEs.
const MAX_POISONED_UES: u32 = 8;

/// Shared words: next LTMSI number of each slice.
const BOARD_LTMSI: u32 = 16;
/// Maximum number of slices, including slice 0.
pub(crate) const OWNERS: usize = 256;
/// Shared words: one bit per bucket, set if another host owns it.
const BOARD_OTHERS: u32 = BOARD_LTMSI + OWNERS as u32;
/// Shared words: counters of the operations on the database of contexts.
const BOARD_STATE: u32 = BOARD_OTHERS + Bucket::COUNT as u32 / u64::BITS;
/// Shared words of the NFs.
const BOARD_NF: u32 = BOARD_STATE + (Transaction::ALL.len() * StateOperation::ALL.len()) as u32 * 2;

/// Words per NF: one cache line.
const NF_WORDS: u32 = 8;
/// Share of the NF's core (an `f64`), written by the host.
pub(crate) const NF_SHARE: u32 = 0;
/// Nanoseconds that the NF has worked.
pub(crate) const NF_BUSY: u32 = 1;
/// Number of events processed.
pub(crate) const NF_EVENTS: u32 = 2;
/// Number of procedures that ended there.
pub(crate) const NF_PROCEDURES: u32 = 3;

/// Only of a worker's first NF: not 0 while the worker has UEs in progress. [`serving`] a UE: only
/// that UE's event is in progress.
pub(crate) const NF_SERVING: u32 = 4;
/// Value of [`NF_SERVING`] between events of a batch.
pub(crate) const SERVING: u64 = 1;
/// Queueing time of the last event since its arrival at this host, in microseconds; 0 if the queue
/// is empty.
pub(crate) const NF_WAITED: u32 = 5;

/// Rings of a worker besides those of its NFs: committed records, and returned packets.
const OWN_RINGS: u16 = 2;

/// The sizes that determine the layout.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RegionLayout {
    /// Maximum number of NFs per worker.
    pub(crate) nfs: u8,
}

impl RegionLayout {
    fn rings_each(self) -> u16 {
        u16::from(self.nfs) + OWN_RINGS
    }

    /// Returns the numbers of rings and shared words for this number of workers including the host.
    pub(crate) fn sizes(self, workers: u8) -> (u16, u32) {
        let board = BOARD_NF + u32::from(workers) * u32::from(self.nfs) * NF_WORDS;
        (u16::from(workers) * self.rings_each(), board)
    }

    fn ring(self, region: &Region, number: u16) -> Ring {
        region.ring(number).expect("the region was made with rings for all its workers")
    }

    /// Returns the number of a worker's ring of committed buffers. It has one producer and one
    /// consumer, as the next one.
    pub(crate) fn commit_ring(self, worker: u8) -> u16 {
        u16::from(worker) * self.rings_each()
    }

    /// Returns the number of the ring of packets that a worker returns to the host.
    pub(crate) fn return_ring(self, worker: u8) -> u16 {
        self.commit_ring(worker) + 1
    }

    /// Returns the rings of a worker.
    pub(crate) fn rings(self, worker: u8) -> std::ops::Range<u16> {
        self.commit_ring(worker)..self.commit_ring(worker) + self.rings_each()
    }

    /// Returns the queue of an NF, with its UEs.
    pub(crate) fn queue(self, region: &Region, worker: u8, nf: u8) -> Ring {
        self.ring(region, u16::from(worker) * self.rings_each() + OWN_RINGS + u16::from(nf))
    }

    /// Returns the bell of a worker (0: the host).
    pub(crate) fn bell(self, region: &Region, worker: u8) -> Bell {
        self.ring(region, self.commit_ring(worker)).bell()
    }

    /// Returns the number of a shared word of an NF.
    pub(crate) fn nf_word(self, worker: u8, nf: u8, word: u32) -> u32 {
        BOARD_NF + (u32::from(worker) * u32::from(self.nfs) + u32::from(nf)) * NF_WORDS + word
    }
}

/// Returns the value of [`NF_SERVING`] during an event of this UE.
pub(crate) fn serving(slot: Slot) -> u64 {
    u64::from(slot.number()) + 1 + SERVING
}

/// Returns the words of UEs whose oldest event must be skipped.
pub(crate) fn poison_words() -> std::ops::Range<u32> {
    BOARD_POISON..BOARD_POISON + MAX_POISONED_UES
}

/// Returns the words of a database operation in a kind of transaction: count and microseconds.
pub(crate) fn state_words(transaction: Transaction, operation: StateOperation) -> [u32; 2] {
    let at = BOARD_STATE + (transaction as usize * StateOperation::ALL.len() + operation as usize) as u32 * 2;
    [at, at + 1]
}

/// Returns the word of a slice's next LTMSI number.
pub(crate) fn ltmsi_word(owner: usize) -> u32 {
    BOARD_LTMSI + owner.min(OWNERS - 1) as u32
}

/// Returns true if this host allocates LTMSIs in the bucket.
pub(crate) fn is_own(region: &Region, bucket: Bucket) -> bool {
    let (word, bit) = (u32::from(bucket.get()) / u64::BITS, u32::from(bucket.get()) % u64::BITS);
    region.shared_word(BOARD_OTHERS + word).load(Ordering::Relaxed) >> bit & 1 == 0
}

/// Publishes the buckets in which this host allocates LTMSIs.
pub(crate) fn set_own(region: &Region, is_own: impl Fn(Bucket) -> bool) {
    for word in 0..u32::from(Bucket::COUNT) / u64::BITS {
        let bits = (0..u64::BITS).filter(|bit| !is_own(Bucket::new((word * u64::BITS + bit) as u16)));
        let others = bits.fold(0, |others, bit| others | 1_u64 << bit);
        region.shared_word(BOARD_OTHERS + word).store(others, Ordering::Relaxed);
    }
}

/// Returns the sizes of the address tables: IPv4 and IPv6 of each data network, 0 without a pool.
pub(crate) fn address_tables(config: &CoreConfig) -> [u32; TABLES] {
    let sizes = config.dnns.iter().flat_map(|dnn| dnn.address_ranges().map(|range| range.map_or(0, |r| r.size())));
    let mut tables = [0; TABLES];
    tables.iter_mut().zip(sizes).for_each(|(table, size)| *table = size);
    tables
}

/// Returns the NF pin of a commit record: 1 + NF id; 0 = none.
pub(crate) fn nf_pin(worker: u8, nf: u8) -> u64 {
    1 + (u64::from(worker) << 8 | u64::from(nf))
}

/// Pin of a procedure whose last step another host has run: it has no NF here.
pub(crate) const UNPINNED: u64 = 1 << 16;

/// Returns the configuration of a host's region.
pub(crate) fn region_config(
    plan: RegionLayout,
    state: &vireo_ops::config::StateConfig,
    workers: u8,
    config: &CoreConfig,
) -> RegionConfig {
    let (rings, board) = plan.sizes(workers);
    // 4,096 UEs may wait for an NF; fewer if a worker has very many NFs.
    let ring_cells = (32_768 / u32::from(plan.nfs.max(1))).next_power_of_two().clamp(512, 4096);
    let tables = address_tables(config);
    // Memory independent of the number of UEs. Unused pages cost nothing.
    let fixed =
        usize::from(rings) * ring_cells as usize * 8 + board as usize * 8 + tables.iter().sum::<u32>() as usize * 8;
    RegionConfig {
        packets: state.packets,
        rings,
        ring_cells,
        board,
        guests: GUESTS,
        tables,
        large_records: true,
        ..RegionConfig::new(state.ues, workers, state.bytes + fixed)
    }
}
