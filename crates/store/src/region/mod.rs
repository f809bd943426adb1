//! The state region: UE contexts, indexes and queues of a host in shared memory.
//!
//! The host and its worker processes map the same memory. It holds the contexts of the host's UEs,
//! the indexes that find them and the events that wait for them.
//!
//! Everything is a 64-bit word with a number, so that the mapping address does not matter. A
//! process commits each change by one compare-and-swap. A process that is killed at any instruction
//! leaves the old or the new state. [`Region::declare_dead`] and [`Region::reclaim`] recover
//! everything that it held. The region does not interpret contexts and packets.
//!
//! The host does not trust its workers, which decode input of peers. Whatever the words of the
//! region contain, no function panics, blocks forever or accesses memory outside of the region. A
//! state that no correct worker writes is a *fault* ([`Region::faults`]). The region skips the
//! faulty item or removes it ([`Worker::evict`]); the UE is lost. [`Region::restore`] repairs the
//! words that a replaced worker needs. The region does not detect well-formed contexts that a
//! compromised worker forges.

#[cfg(not(loom))]
mod bell;
#[cfg(all(test, not(loom)))]
mod crash_points;
#[cfg(all(test, not(loom)))]
mod crash_tests;
#[cfg(all(test, not(loom)))]
mod faults;
#[cfg(not(loom))]
mod file;
mod heap;
mod identity;
#[cfg(not(loom))]
#[allow(unsafe_code)]
mod in_place;
mod index;
mod layout;
mod mailbox;
#[allow(unsafe_code)]
mod mem;
mod number_table;
mod pool;
mod reclaim;
mod ring;
mod search;
mod shared_words;
mod slots;
mod spsc;
mod vacancy;
mod worker;

#[cfg(not(loom))]
pub use bell::Bell;
pub use heap::{Buffer, LARGEST as LARGEST_RECORD};
pub use identity::InsertError;
pub use layout::Key;
pub use mailbox::{MailboxFull, Posted};
pub use mem::AtomicU64;
pub use number_table::NumberTable;
pub use pool::{LARGE_PACKET_OCTETS, PACKET_OCTETS, Packet};
pub use reclaim::Reclaim;
pub use ring::{InFlightItem, Ring, RingFull};
pub use shared_words::PublishError;
#[cfg(not(loom))]
pub(crate) use slots::ContextLocation;
pub use slots::{CommitRecord, Committed, Slot, Snapshot, next_version};
pub use spsc::{Receiver, Sender};
pub(crate) use worker::SingleWorker;
pub use worker::{DeadWorker, JoinError, ReapError, Worker};

use layout::Layout;
#[cfg(not(loom))]
use layout::{
    H_BOARD, H_BYTES, H_CELLS, H_GUESTS, H_LARGE, H_MAGIC, H_PACKETS, H_PUBLISHED, H_PUBLISHED_BYTES, H_READY, H_RINGS,
    H_TABLES, H_UES, H_VERSION, H_WORKERS, LARGE_VERSION, MAGIC, VERSION,
};
use mem::{Mem, Ordering};
use std::io;
#[cfg(not(loom))]
use std::os::fd::OwnedFd;
use std::sync::Arc;

/// Maximum number of number tables of a region.
pub const TABLES: usize = 64;

/// Sizes of a region, fixed when it is created.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RegionConfig {
    /// Maximum number of UEs, 1 to 2^28.
    pub ues: u32,
    /// Number of slots at the end for UEs of other hosts, at most 2^16. No index leads to them.
    pub guests: u32,
    /// Maximum number of workers, 1 to 250. They are numbered from 0.
    pub workers: u8,
    /// Total size in bytes. Unused pages cost no memory, except for reserved huge pages.
    pub bytes: usize,
    /// Packets of 2 KiB in the pool. Both sizes together are at most 2^20.
    pub packets: u32,
    /// Packets of 80 KiB in the pool.
    pub large_packets: u32,
    pub rings: u16,
    /// Items that a ring holds, including items in flight: a power of two.
    pub ring_cells: u32,
    /// Number of shared words.
    pub board: u32,
    /// Number of published values.
    pub published_values: u8,
    /// Maximum size of a published value in bytes.
    pub published_value_bytes: u32,
    /// Numbers of each number table, at most 2^24; 0 = the table does not exist.
    pub tables: [u32; TABLES],
    /// True if a commit record has up to 256 KiB instead of 64 KiB. Such a region has a layout
    /// version of its own.
    pub large_records: bool,
}

impl RegionConfig {
    /// Returns the default sizes for `ues` UEs and `workers` workers in `bytes` bytes.
    ///
    /// The defaults are:
    ///
    /// - 4,096 packets of 2 KiB and 64 of 80 KiB
    /// - two rings of 1,024 items for each worker
    /// - 16,384 shared words
    /// - four published values of 1 MiB
    /// - no number tables
    /// - commit records of at most 64 KiB
    pub fn new(ues: u32, workers: u8, bytes: usize) -> Self {
        RegionConfig {
            ues,
            guests: 0,
            workers,
            bytes,
            packets: 4096,
            large_packets: 64,
            rings: u16::from(workers) * 2,
            ring_cells: 1024,
            board: 16384,
            published_values: 4,
            published_value_bytes: 1 << 20,
            tables: [0; TABLES],
            large_records: false,
        }
    }

    fn check(&self) -> Result<(), RegionError> {
        match () {
            () if self.ues == 0 || self.ues > 1 << 28 => Err(RegionError::Config("UEs are 1 to 2^28")),
            () if self.guests > 1 << 16 => Err(RegionError::Config("guests are at most 2^16")),
            () if self.workers == 0 || self.workers > 250 => Err(RegionError::Config("workers are 1 to 250")),
            () if self.packets > layout::MOST_PACKETS || self.large_packets > layout::MOST_PACKETS - self.packets => {
                Err(RegionError::Config("packets are at most 2^20"))
            }
            () if self.tables.iter().any(|size| *size > 1 << 24) => {
                Err(RegionError::Config("a number table has at most 2^24 numbers"))
            }
            () if !self.ring_cells.is_power_of_two() || self.ring_cells < 2 => {
                Err(RegionError::Config("a ring's items are a power of two, at least 2"))
            }
            () => Ok(()),
        }
    }
}

/// Reason that a region cannot be created or opened.
#[derive(Debug, thiserror::Error)]
pub enum RegionError {
    /// The operating system refused the memory.
    #[error("the state region cannot be mapped; see whether the machine has the memory, or make state.bytes smaller")]
    Io(#[from] io::Error),
    /// The sizes are inconsistent or out of range.
    #[error("the sizes of a state region are wrong: {0}")]
    Config(&'static str),
    /// The configured size is too small for the number of UEs.
    #[error("a state region for so many UEs needs at least {needed} octets, and has {configured}; give it more")]
    TooSmall {
        /// Smallest sufficient size in bytes.
        needed: usize,
        /// Configured size in bytes.
        configured: usize,
    },
    /// The descriptor does not refer to a region.
    #[error("the descriptor is not that of a state region")]
    NotARegion,
    /// The region has the layout version of another release.
    #[error("the state region has layout {0}, and this release speaks another; run one release on a host")]
    Layout(u64),
    /// Another process has locked the file of the region.
    #[error("another process has the state region")]
    Locked,
    /// The file system is on a disk, not in memory.
    #[error("a state region is in memory, and this file system is not: choose one that is, such as /dev/shm")]
    NotInMemory,
    /// The file system has not enough free space.
    #[error("the state region has {needed} octets, and its file system {free} free; give that more room")]
    NoRoom {
        /// Size of the region in bytes.
        needed: u64,
        /// Free bytes of the file system.
        free: u64,
    },
}

/// A region, mapped into this process. Clones share the mapping.
#[derive(Clone, Debug)]
pub struct Region {
    mem: Arc<Mem>,
    lay: Arc<Layout>,
    config: RegionConfig,
    /// True for a file whose unwritten parts have no memory yet. Memory is reserved before it is
    /// touched.
    sparse: bool,
}

#[cfg(not(loom))]
impl Region {
    /// Creates a region.
    ///
    /// # Errors
    ///
    /// Returns an error if the sizes are inconsistent or the operating system refuses the memory.
    pub fn create(config: RegionConfig) -> Result<Self, RegionError> {
        config.check()?;
        // Checks the layout before memory is allocated: a region that is too small must not be half
        // created.
        Layout::new(&config, config.bytes / mem::WORD)?;
        Self::begin(Mem::create(config.bytes)?, config)
    }

    /// Initialises a region in memory that is all zero.
    fn begin(mem: Mem, config: RegionConfig) -> Result<Self, RegionError> {
        let lay = Layout::new(&config, config.bytes / mem::WORD)?;
        let region = Region { mem: Arc::new(mem), lay: Arc::new(lay), config, sparse: false };
        region.write_header(&region.config);
        Ok(region)
    }

    /// Maps the region of a descriptor that this process inherited or received.
    ///
    /// # Errors
    ///
    /// Returns an error if the descriptor is not that of a region, or the region has another layout
    /// version.
    pub fn attach(fd: OwnedFd) -> Result<Self, RegionError> {
        let mem = Mem::map(fd, false)?;
        let get = |number: usize| mem.word(number).load(Ordering::Acquire);
        if get(H_MAGIC) != MAGIC || get(H_READY) != 1 {
            return Err(RegionError::NotARegion);
        }
        let large_records = match get(H_VERSION) {
            VERSION => false,
            LARGE_VERSION => true,
            other => return Err(RegionError::Layout(other)),
        };
        fn small<T: TryFrom<u64>>(value: u64) -> Result<T, RegionError> {
            T::try_from(value).map_err(|_| RegionError::NotARegion)
        }
        let mut tables = [0; TABLES];
        for (number, size) in tables.iter_mut().enumerate() {
            *size = small(get(H_TABLES + number))?;
        }
        let config = RegionConfig {
            ues: small(get(H_UES))?,
            guests: small(get(H_GUESTS))?,
            workers: small(get(H_WORKERS))?,
            bytes: small(get(H_BYTES))?,
            packets: small(get(H_PACKETS))?,
            rings: small(get(H_RINGS))?,
            ring_cells: small(get(H_CELLS))?,
            large_packets: small(get(H_LARGE))?,
            board: small(get(H_BOARD))?,
            published_values: small(get(H_PUBLISHED))?,
            published_value_bytes: small(get(H_PUBLISHED_BYTES))?,
            tables,
            large_records,
        };
        if config.bytes / mem::WORD > mem.words() {
            return Err(RegionError::NotARegion);
        }
        let lay = Layout::new(&config, config.bytes / mem::WORD)?;
        Ok(Region { mem: Arc::new(mem), lay: Arc::new(lay), config, sparse: false })
    }

    /// Returns a descriptor of the region that child processes inherit.
    ///
    /// The caller closes it when the child processes have started.
    ///
    /// # Errors
    ///
    /// Returns an error if this process has no free descriptor.
    pub fn share(&self) -> io::Result<OwnedFd> {
        mem::inheritable(self.mem.fd())
    }

    /// Returns true if the region is in huge pages that were reserved for it.
    pub fn is_huge(&self) -> bool {
        self.mem.is_huge()
    }
}

impl Region {
    /// Returns the sizes of the region.
    pub fn config(&self) -> &RegionConfig {
        &self.config
    }

    /// Returns the bytes that the fixed parts need for each UE: its slot and its index entries.
    pub fn fixed_bytes_per_ue(&self) -> usize {
        let indexes: usize = self.lay.indexes.iter().map(|(_, lines)| lines * layout::LINE).sum();
        (self.lay.own_slots * layout::SLOT + indexes) * mem::WORD / self.config.ues as usize
    }

    #[inline]
    fn word(&self, number: usize) -> &AtomicU64 {
        self.mem.word(number)
    }
}

#[cfg(not(loom))]
impl Region {
    /// Returns how many faults this process has found in the region.
    ///
    /// A fault is a state that no correct worker writes: numbers out of range, lists without an
    /// end, or lengths that do not fit.
    #[inline]
    pub fn faults(&self) -> u64 {
        self.mem.faults()
    }

    /// Repairs the words that a new worker with number `worker` needs to join.
    ///
    /// These are the header of the region, the worker's entry, and `rings`, which are emptied. No
    /// process may use this worker number meanwhile.
    pub fn restore(&self, worker: u8, rings: std::ops::Range<u16>) {
        self.write_header(&self.config);
        self.word(layout::H_SOLE).store(0, Ordering::Relaxed);
        if worker < self.config.workers {
            self.remove_worker(worker);
        }
        for ring in rings.filter_map(|number| self.ring(number)) {
            ring.clear();
        }
    }

    fn write_header(&self, config: &RegionConfig) {
        let put = |number: usize, value: u64| self.word(number).store(value, Ordering::Relaxed);
        put(H_MAGIC, MAGIC);
        put(H_VERSION, if config.large_records { LARGE_VERSION } else { VERSION });
        put(H_UES, u64::from(config.ues));
        put(H_GUESTS, u64::from(config.guests));
        put(H_WORKERS, u64::from(config.workers));
        put(H_BYTES, config.bytes as u64);
        put(H_PACKETS, u64::from(config.packets));
        put(H_RINGS, u64::from(config.rings));
        put(H_CELLS, u64::from(config.ring_cells));
        put(H_LARGE, u64::from(config.large_packets));
        put(H_BOARD, u64::from(config.board));
        put(H_PUBLISHED, u64::from(config.published_values));
        put(H_PUBLISHED_BYTES, u64::from(config.published_value_bytes));
        for (number, size) in config.tables.iter().enumerate() {
            put(H_TABLES + number, u64::from(*size));
        }
        self.word(H_READY).store(1, Ordering::Release);
    }
}

/// A region of a loom model.
#[cfg(loom)]
impl Region {
    /// Creates a region in loom's memory; `config.bytes` is its size in bytes.
    pub fn model(config: RegionConfig) -> Result<Self, RegionError> {
        let lay = Layout::new(&config, config.bytes / mem::WORD)?;
        Ok(Region { mem: Arc::new(Mem::model(config.bytes / mem::WORD)), lay: Arc::new(lay), config, sparse: false })
    }

    /// Returns true: a model has all of its memory.
    fn reserve_chunk(&self, _chunk: usize) -> bool {
        true
    }

    /// Returns how many buffers in the chunks of a worker no slot refers to.
    pub fn buffers_unused_by(&self, number: u8) -> usize {
        let current: Vec<u32> = self.slots().map(|slot| halves(self.current(slot.0)).1).collect();
        self.owned_by(number).filter(|buffer| !current.contains(buffer)).count()
    }
}

/// Returns the upper and the lower half of a word.
const fn halves(word: u64) -> (u32, u32) {
    ((word >> 32) as u32, word as u32)
}

/// Returns the word of two halves.
const fn joined(upper: u32, lower: u32) -> u64 {
    (upper as u64) << 32 | lower as u64
}
