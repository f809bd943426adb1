//! The state region: the contexts of a host's UEs, what leads to them and what waits for them, in memory that worker
//! processes share (DESIGN decisions 3 and 4).
//!
//! Everything is a 64-bit word with a number, so that it is the same wherever a process maps it. What one process writes
//! becomes true by one compare-and-swap; killed at any instruction it leaves the old or the new, and what it held is
//! found again by [`Region::bury`] and [`Region::reclaim`]. It knows nothing of what a context or a packet means.
//!
//! The host does not trust what its workers write: they decode what strangers send. Whatever words the region has, no function
//! of it panics, waits for ever or touches memory outside of the region. What no worker writes by right is a *fault*
//! ([`Region::faults`]): it is passed over, or taken out ([`Worker::evict`]), and its UE is lost. What faults leave behind
//! ([`Region::restore`]) is put right when workers are replaced. Workers that write what they like can forge contexts of UEs that are
//! well-formed: that is not noticed.

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
mod index;
mod layout;
mod mailbox;
#[allow(unsafe_code)]
mod mem;
mod number_table;
mod pool;
mod reclaim;
mod ring;
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
pub use slots::{CommitRecord, Committed, Slot, Snapshot, next_version};
pub use spsc::{Receiver, Sender};
pub(crate) use worker::SingleWorker;
pub use worker::{DeadWorker, JoinError, ReapError, Worker};

use layout::Layout;
#[cfg(not(loom))]
use layout::{
    H_BOARD, H_BULLETIN_BYTES, H_BULLETINS, H_BYTES, H_CELLS, H_LARGE, H_MAGIC, H_PACKETS, H_READY, H_RINGS, H_TABLES,
    H_UES, H_VERSION, H_WORKERS, MAGIC, VERSION,
};
use mem::{Mem, Ordering};
use std::io;
#[cfg(not(loom))]
use std::os::fd::OwnedFd;
use std::sync::Arc;

/// Number tables that a region has at most.
pub const TABLES: usize = 64;

/// The sizes of a region, fixed when it is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RegionConfig {
    /// UEs at most.
    pub ues: u32,
    /// Workers at most, numbered from 0: 1 to 250.
    pub workers: u8,
    /// Octets in all. Pages that are not used cost no memory, unless they are huge pages that were set aside.
    pub bytes: usize,
    /// Packets in the pool.
    pub packets: u32,
    /// Packets in the pool that hold 64 KiB.
    pub large_packets: u32,
    /// Rings.
    pub rings: u16,
    /// Items that a ring holds, those in flight included: a power of two.
    pub ring_cells: u32,
    /// Words of the board.
    pub board: u32,
    /// Bulletins.
    pub bulletins: u8,
    /// Octets that a bulletin holds at most.
    pub bulletin_bytes: u32,
    /// Numbers of each number table, at most 2^24; 0 = there is no such table.
    pub tables: [u32; TABLES],
}

impl RegionConfig {
    /// Sizes with 4,096 packets of 2 KiB and 64 of 64 KiB; two rings of 1,024 items for each worker; a board of 16,384
    /// words, four bulletins of 1 MiB, and no number tables.
    pub fn new(ues: u32, workers: u8, bytes: usize) -> Self {
        RegionConfig {
            ues,
            workers,
            bytes,
            packets: 4096,
            large_packets: 64,
            rings: u16::from(workers) * 2,
            ring_cells: 1024,
            board: 16384,
            bulletins: 4,
            bulletin_bytes: 1 << 20,
            tables: [0; TABLES],
        }
    }

    fn check(&self) -> Result<(), RegionError> {
        match () {
            () if self.ues == 0 || self.ues > 1 << 28 => Err(RegionError::Config("UEs are 1 to 2^28")),
            () if self.workers == 0 || self.workers > 250 => Err(RegionError::Config("workers are 1 to 250")),
            () if self.packets > pool::MOST || self.large_packets > pool::MOST - self.packets => {
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

/// Why there is no region.
#[derive(Debug, thiserror::Error)]
pub enum RegionError {
    /// The system refuses the memory.
    #[error("the state region cannot be mapped; see whether the machine has the memory, or make state.bytes smaller")]
    Io(#[from] io::Error),
    /// The sizes do not fit together.
    #[error("the sizes of a state region are wrong: {0}")]
    Config(&'static str),
    /// There is no room for what was asked for.
    #[error("a state region for so many UEs needs at least {needed} octets, and has {given}; give it more")]
    TooSmall {
        /// What it needs.
        needed: usize,
        /// What it was given.
        given: usize,
    },
    /// The descriptor is not that of a region.
    #[error("the descriptor is not that of a state region")]
    NotARegion,
    /// It was made by another release.
    #[error("the state region has layout {0}, and this release speaks another; run one release on a host")]
    Layout(u64),
    /// Another process has it.
    #[error("another process has the state region")]
    Taken,
    /// It would be written to a disk.
    #[error("a state region is in memory, and this file system is not: choose one that is, such as /dev/shm")]
    NotInMemory,
    /// Its file system is too small.
    #[error("the state region has {needed} octets, and its file system {free} free; give that more room")]
    NoRoom {
        /// What it has.
        needed: u64,
        /// What there is.
        free: u64,
    },
}

/// A region, mapped into this process. Clones share the mapping.
#[derive(Clone, Debug)]
pub struct Region {
    mem: Arc<Mem>,
    lay: Arc<Layout>,
    config: RegionConfig,
    /// It is a file that has no memory yet where nothing was written: that is asked for before it is touched.
    sparse: bool,
}

#[cfg(not(loom))]
impl Region {
    /// Makes a region.
    ///
    /// # Errors
    ///
    /// When the sizes do not fit together or the system refuses the memory.
    pub fn create(config: RegionConfig) -> Result<Self, RegionError> {
        config.check()?;
        // The layout of the sizes asked for, before any memory is: a region too small must not be half made.
        Layout::new(&config, config.bytes / mem::WORD)?;
        Self::begin(Mem::create(config.bytes)?, config)
    }

    /// A region in memory that is all zero.
    fn begin(mem: Mem, config: RegionConfig) -> Result<Self, RegionError> {
        let lay = Layout::new(&config, config.bytes / mem::WORD)?;
        let region = Region { mem: Arc::new(mem), lay: Arc::new(lay), config, sparse: false };
        region.write_header(&region.config);
        Ok(region)
    }

    /// Maps the region behind a descriptor that this process inherited or received.
    ///
    /// # Errors
    ///
    /// When it is none, or one of another layout.
    pub fn attach(fd: OwnedFd) -> Result<Self, RegionError> {
        let mem = Mem::map(fd, false)?;
        let get = |number: usize| mem.word(number).load(Ordering::Acquire);
        if get(H_MAGIC) != MAGIC || get(H_READY) != 1 {
            return Err(RegionError::NotARegion);
        }
        if get(H_VERSION) != VERSION {
            return Err(RegionError::Layout(get(H_VERSION)));
        }
        fn small<T: TryFrom<u64>>(value: u64) -> Result<T, RegionError> {
            T::try_from(value).map_err(|_| RegionError::NotARegion)
        }
        let mut tables = [0; TABLES];
        for (number, size) in tables.iter_mut().enumerate() {
            *size = small(get(H_TABLES + number))?;
        }
        let config = RegionConfig {
            ues: small(get(H_UES))?,
            workers: small(get(H_WORKERS))?,
            bytes: small(get(H_BYTES))?,
            packets: small(get(H_PACKETS))?,
            rings: small(get(H_RINGS))?,
            ring_cells: small(get(H_CELLS))?,
            large_packets: small(get(H_LARGE))?,
            board: small(get(H_BOARD))?,
            bulletins: small(get(H_BULLETINS))?,
            bulletin_bytes: small(get(H_BULLETIN_BYTES))?,
            tables,
        };
        if config.bytes / mem::WORD > mem.words() {
            return Err(RegionError::NotARegion);
        }
        let lay = Layout::new(&config, config.bytes / mem::WORD)?;
        Ok(Region { mem: Arc::new(mem), lay: Arc::new(lay), config, sparse: false })
    }

    /// A descriptor of the region that a process started from here inherits; close it once they are started.
    ///
    /// # Errors
    ///
    /// When this process has no descriptor left.
    pub fn share(&self) -> io::Result<OwnedFd> {
        mem::inheritable(self.mem.fd())
    }

    /// Whether it lies in huge pages that were set aside for it.
    pub fn is_huge(&self) -> bool {
        self.mem.is_huge()
    }
}

impl Region {
    /// Its sizes.
    pub fn config(&self) -> &RegionConfig {
        &self.config
    }

    /// Octets that the fixed parts take for each UE: its slot and its places in the indexes.
    pub fn fixed_bytes_per_ue(&self) -> usize {
        let indexes: usize = self.lay.indexes.iter().map(|(_, lines)| lines * layout::LINE).sum();
        (self.lay.slot_count * layout::SLOT + indexes) * mem::WORD / self.config.ues as usize
    }

    #[inline]
    fn word(&self, number: usize) -> &AtomicU64 {
        self.mem.word(number)
    }
}

#[cfg(not(loom))]
impl Region {
    /// How often this process has found in the region what no worker writes: places that there are none of, lists without an
    /// end, lengths that do not fit.
    #[inline]
    pub fn faults(&self) -> u64 {
        self.mem.faults()
    }

    /// Puts right what a worker of this number has to find when it joins, as nobody is there under it: the sizes at the beginning
    /// of the region, the worker's own record, and these rings, which are emptied.
    pub fn restore(&self, worker: u8, rings: std::ops::Range<u16>) {
        self.write_header(&self.config);
        self.word(layout::H_SOLE).store(0, Ordering::Relaxed);
        if worker < self.config.workers {
            self.dismiss(worker);
        }
        for ring in rings.filter_map(|number| self.ring(number)) {
            ring.clear();
        }
    }

    fn write_header(&self, config: &RegionConfig) {
        let put = |number: usize, value: u64| self.word(number).store(value, Ordering::Relaxed);
        put(H_MAGIC, MAGIC);
        put(H_VERSION, VERSION);
        put(H_UES, u64::from(config.ues));
        put(H_WORKERS, u64::from(config.workers));
        put(H_BYTES, config.bytes as u64);
        put(H_PACKETS, u64::from(config.packets));
        put(H_RINGS, u64::from(config.rings));
        put(H_CELLS, u64::from(config.ring_cells));
        put(H_LARGE, u64::from(config.large_packets));
        put(H_BOARD, u64::from(config.board));
        put(H_BULLETINS, u64::from(config.bulletins));
        put(H_BULLETIN_BYTES, u64::from(config.bulletin_bytes));
        for (number, size) in config.tables.iter().enumerate() {
            put(H_TABLES + number, u64::from(*size));
        }
        self.word(H_READY).store(1, Ordering::Release);
    }
}

/// A region of a model.
#[cfg(loom)]
impl Region {
    /// A region in loom's memory: `config.bytes` is its size.
    pub fn model(config: RegionConfig) -> Result<Self, RegionError> {
        let lay = Layout::new(&config, config.bytes / mem::WORD)?;
        Ok(Region { mem: Arc::new(Mem::model(config.bytes / mem::WORD)), lay: Arc::new(lay), config, sparse: false })
    }

    /// A model has all of its memory.
    fn reserve_chunk(&self, _chunk: usize) -> bool {
        true
    }

    /// A worker of a model has ended as if it were killed.
    pub fn declare_dead(&self, number: u8) -> DeadWorker {
        DeadWorker { number }
    }

    /// Buffers in the chunks of a worker that no slot refers to.
    pub fn buffers_unused_by(&self, number: u8) -> usize {
        let current: Vec<u32> = self.slots().map(|slot| halves(self.current(slot.0)).1).collect();
        self.owned_by(number).filter(|buffer| !current.contains(buffer)).count()
    }
}

/// The upper and the lower half of a word.
const fn halves(word: u64) -> (u32, u32) {
    ((word >> 32) as u32, word as u32)
}

/// A word of two halves.
const fn joined(upper: u32, lower: u32) -> u64 {
    (upper as u64) << 32 | lower as u64
}
