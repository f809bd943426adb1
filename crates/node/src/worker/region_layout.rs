//! Where host and workers find each other in the region: rings, the board's words, bulletins and number tables. Both
//! sides compute it from the same few sizes.

use crate::metrics::{StateOperation, Transaction};
use std::sync::atomic::Ordering;
use vireo_core::config::{CoreConfig, DnnConfig};
use vireo_core::pools::Range;
use vireo_store::region::{Bell, Region, RegionConfig, Ring, Slot, TABLES};
use vireo_types::Bucket;

/// The host thread's number among the workers of the region.
pub(crate) const HOST: u8 = 0;

/// The bulletin of what workers are told at their start.
pub(crate) const BULLETIN_CONFIG: u8 = 0;
/// The bulletin of the RAN nodes that have NG set up.
pub(crate) const BULLETIN_RAN: u8 = 1;

/// The board's word that says how far the epoch is from the monotonic clock, in microseconds.
pub(crate) const BOARD_CLOCK: u32 = 0;
/// Not 0: workers end when their queues are empty.
pub(crate) const BOARD_STOP: u32 = 1;
/// One more than the highest slot that was ever used.
pub(crate) const BOARD_SLOTS: u32 = 2;
/// Until when (in microseconds of the clock) workers serve UEs one by one.
pub(crate) const BOARD_ALONE: u32 = 3;
/// UEs whose oldest event has killed worker after worker: one more than the slot of each, 0 = free.
const BOARD_POISON: u32 = 4;
/// Such UEs at a time.
const POISONED: u32 = 8;

/// The next LTMSI number of each owner of buckets.
const BOARD_LTMSI: u32 = 16;
/// Owners of buckets: slice 0 and the slices.
pub(crate) const OWNERS: usize = 256;
/// Of each bucket a bit, which is set if it is another host's.
const BOARD_OTHERS: u32 = BOARD_LTMSI + OWNERS as u32;
/// What workers have asked a database of contexts.
const BOARD_STATE: u32 = BOARD_OTHERS + Bucket::COUNT as u32 / u64::BITS;
/// What is known of each NF.
const BOARD_NF: u32 = BOARD_STATE + (Transaction::ALL.len() * StateOperation::ALL.len()) as u32 * 2;

/// Words of an NF on the board: a cache line.
const NF_WORDS: u32 = 8;
/// Its part of its core (an `f64`), written by the host.
pub(crate) const NF_SHARE: u32 = 0;
/// Nanoseconds that it has worked.
pub(crate) const NF_BUSY: u32 = 1;
/// Events that it has carried out.
pub(crate) const NF_EVENTS: u32 = 2;
/// Procedures that came to their end there.
pub(crate) const NF_PROCEDURES: u32 = 3;

/// Of a worker's first NF: not 0 while the worker has taken something and is not done with it. [`serving`] a UE: that one's event
/// alone is being carried out.
pub(crate) const NF_SERVING: u32 = 4;
/// What [`NF_SERVING`] is between events.
pub(crate) const SERVING: u64 = 1;
/// How long the event that it looked at last had waited since it came to this host, in microseconds; 0 if no other waits.
pub(crate) const NF_WAITED: u32 = 5;

/// Rings of a worker beside those of its NFs: committed records, and packets that it gives back.
const OWN_RINGS: u16 = 2;

/// The sizes that everything follows from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RegionLayout {
    /// NFs of a worker at most.
    pub(crate) nfs: u8,
}

impl RegionLayout {
    fn rings_each(self) -> u16 {
        u16::from(self.nfs) + OWN_RINGS
    }

    /// A region's rings and board for so many workers, the host among them.
    pub(crate) fn sizes(self, workers: u8) -> (u16, u32) {
        let board = BOARD_NF + u32::from(workers) * u32::from(self.nfs) * NF_WORDS;
        (u16::from(workers) * self.rings_each(), board)
    }

    fn ring(self, region: &Region, number: u16) -> Ring {
        region.ring(number).expect("the region was made with rings for all its workers")
    }

    /// The number of the ring of what a worker has committed: buffers. It has one producer and one consumer, as the next.
    pub(crate) fn committed(self, worker: u8) -> u16 {
        u16::from(worker) * self.rings_each()
    }

    /// The number of the ring of packets that a worker gives back to the host.
    pub(crate) fn returned(self, worker: u8) -> u16 {
        self.committed(worker) + 1
    }

    /// The rings of a worker.
    pub(crate) fn rings(self, worker: u8) -> std::ops::Range<u16> {
        self.committed(worker)..self.committed(worker) + self.rings_each()
    }

    /// The ring of UEs that an NF is to work for.
    pub(crate) fn queue(self, region: &Region, worker: u8, nf: u8) -> Ring {
        self.ring(region, u16::from(worker) * self.rings_each() + OWN_RINGS + u16::from(nf))
    }

    /// What wakes a worker (0: the host).
    pub(crate) fn bell(self, region: &Region, worker: u8) -> Bell {
        self.ring(region, self.committed(worker)).bell()
    }

    /// A word of an NF on the board.
    pub(crate) fn nf_word(self, worker: u8, nf: u8, word: u32) -> u32 {
        BOARD_NF + (u32::from(worker) * u32::from(self.nfs) + u32::from(nf)) * NF_WORDS + word
    }
}

/// What [`NF_SERVING`] is while an event of this UE is carried out.
pub(crate) fn serving(slot: Slot) -> u64 {
    u64::from(slot.number()) + 1 + SERVING
}

/// The words of the UEs whose oldest event is to be passed over.
pub(crate) fn poison_words() -> std::ops::Range<u32> {
    BOARD_POISON..BOARD_POISON + POISONED
}

/// The words of an operation of a database of contexts, in a kind of transaction: how many there were, and their microseconds.
pub(crate) fn state_words(transaction: Transaction, operation: StateOperation) -> [u32; 2] {
    let at = BOARD_STATE + (transaction as usize * StateOperation::ALL.len() + operation as usize) as u32 * 2;
    [at, at + 1]
}

/// The word of the next LTMSI number of an owner.
pub(crate) fn ltmsi_word(owner: usize) -> u32 {
    BOARD_LTMSI + owner.min(OWNERS - 1) as u32
}

/// Whether UEs get numbers of a bucket here.
pub(crate) fn is_own(region: &Region, bucket: Bucket) -> bool {
    let (word, bit) = (u32::from(bucket.get()) / u64::BITS, u32::from(bucket.get()) % u64::BITS);
    region.shared_word(BOARD_OTHERS + word).load(Ordering::Relaxed) >> bit & 1 == 0
}

/// Says of which buckets UEs get numbers here.
pub(crate) fn set_own(region: &Region, is_own: impl Fn(Bucket) -> bool) {
    for word in 0..u32::from(Bucket::COUNT) / u64::BITS {
        let bits = (0..u64::BITS).filter(|bit| !is_own(Bucket::new((word * u64::BITS + bit) as u16)));
        let others = bits.fold(0, |others, bit| others | 1_u64 << bit);
        region.shared_word(BOARD_OTHERS + word).store(others, Ordering::Relaxed);
    }
}

/// The number tables of the UE addresses: two for each data network, IPv4 and IPv6, empty where it has no pool.
pub(crate) fn address_tables(config: &CoreConfig) -> [u32; TABLES] {
    let sizes = config.dnns.iter().flat_map(|dnn| ranges(dnn).map(|range| range.map_or(0, |r| r.size())));
    let mut tables = [0; TABLES];
    tables.iter_mut().zip(sizes).for_each(|(table, size)| *table = size);
    tables
}

/// The ranges of a data network's pools.
pub(crate) fn ranges(dnn: &DnnConfig) -> [Option<Range>; 2] {
    [dnn.ipv4_pool.map(|(a, length)| Range::ipv4(a, length)), dnn.ipv6_pool.map(|(a, length)| Range::ipv6(a, length))]
}

/// The sizes of a region for a host.
pub(crate) fn region_config(
    plan: RegionLayout,
    state: &crate::config::StateConfig,
    workers: u8,
    config: &CoreConfig,
) -> RegionConfig {
    let (rings, board) = plan.sizes(workers);
    // 4,096 UEs may wait for an NF, fewer for each of very many.
    let ring_cells = (32_768 / u32::from(plan.nfs.max(1))).next_power_of_two().clamp(512, 4096);
    let tables = address_tables(config);
    // What does not grow with the UEs; pages that are not used cost nothing.
    let fixed =
        usize::from(rings) * ring_cells as usize * 8 + board as usize * 8 + tables.iter().sum::<u32>() as usize * 8;
    RegionConfig {
        packets: state.packets,
        rings,
        ring_cells,
        board,
        tables,
        ..RegionConfig::new(state.ues, workers, state.bytes + fixed)
    }
}
