//! Word offsets of all parts of a region.
//!
//! The layout depends only on the configured sizes, so every process computes the same one.

use super::{RegionConfig, RegionError, TABLES};

/// Maximum number of packets of a pool.
pub(super) const MOST_PACKETS: u32 = 1 << 20;

/// "VIREOreg" as a number.
pub(super) const MAGIC: u64 = u64::from_be_bytes(*b"VIREOreg");
/// Layout version. It grows with every change of the meaning of words: processes of different
/// layout versions do not share a region.
pub(super) const VERSION: u64 = 4;
/// Layout version of regions with large records ([`RegionConfig::large_records`]).
pub(super) const LARGE_VERSION: u64 = 6;

/// Size of the header in words. The constants below are the word numbers in it.
pub(super) const HEADER: usize = 128;
pub(super) const H_MAGIC: usize = 0;
pub(super) const H_VERSION: usize = 1;
pub(super) const H_UES: usize = 2;
pub(super) const H_WORKERS: usize = 3;
pub(super) const H_BYTES: usize = 4;
pub(super) const H_PACKETS: usize = 5;
pub(super) const H_RINGS: usize = 6;
pub(super) const H_CELLS: usize = 7;
pub(super) const H_READY: usize = 8;
pub(super) const H_BOARD: usize = 9;
pub(super) const H_PUBLISHED: usize = 10;
pub(super) const H_PUBLISHED_BYTES: usize = 11;
pub(super) const H_LARGE: usize = 12;
/// Number of guest slots; 0 in regions made before there were any.
pub(super) const H_GUESTS: usize = 13;
/// 1 + the number of the worker that uses the region exclusively; 0 = the region is shared.
pub(super) const H_SOLE: usize = 16;
/// Number of slots in use, with or without a commit record. The word has a cache line of its own.
pub(super) const H_USED: usize = 24;
/// Sizes of the number tables, one word each.
pub(super) const H_TABLES: usize = 32;

/// Words of one worker's entry.
pub(super) const WORKER: usize = 8;
/// Words of a UE slot: one cache line that every event needs, and one that few events need.
pub(super) const SLOT: usize = 16;
/// Cells of an index line, which is one cache line.
pub(super) const LINE: usize = 8;
/// Words of a ring before its cells: head, tail and bell each have a cache line of their own.
pub(super) const RING: usize = 24;
/// Words of a published value before its two copies: the version, and the length of each copy.
pub(super) const PUBLISHED_HEADER: usize = 8;
/// Words of a number table before its numbers: the search cursor, and the count of numbers in use.
pub(super) const NUMBERS: usize = 16;
/// Words of a packet, and of its header.
pub(super) const PACKET: usize = if cfg!(loom) { 8 } else { 256 };
pub(super) const PACKET_HEADER: usize = 8;
/// Words of a large packet, which holds 80 KiB.
pub(super) const LARGE_PACKET: usize = if cfg!(loom) { 16 } else { PACKET_HEADER + 10_240 };
/// Words of a buffer's header.
pub(super) const BUFFER_HEADER: usize = 7;
/// Buffers begin at multiples of this many words. Buffer numbers count these units.
pub(super) const UNIT: usize = 4;
/// Buffer sizes in words: 256 bytes to 256 KiB.
///
/// The steps are small around the size of contexts with a session, so that smaller contexts save
/// memory. Sizes above 64 KiB are for UEs with a large radio capability: a commit record has it
/// once more if its effects send it.
#[cfg(not(loom))]
pub(super) const CLASSES: [usize; 19] =
    [32, 36, 40, 44, 48, 56, 64, 96, 128, 192, 256, 384, 512, 1024, 2048, 4096, 8192, 16_384, 32_768];
#[cfg(loom)]
pub(super) const CLASSES: [usize; 1] = [16];

/// Heap chunks of a region.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Chunks {
    /// Words of a chunk: the largest buffer, a power of two.
    pub(super) words: usize,
    /// Words of its metadata: size class and owner, then one bit for each of its buffers.
    pub(super) meta: usize,
    /// Number of size classes.
    pub(super) classes: usize,
}

impl Chunks {
    /// Chunks of 64 KiB.
    pub(super) const SMALL: Chunks = match cfg!(loom) {
        true => Chunks { words: 64, meta: 8, classes: 1 },
        false => Chunks { words: 8192, meta: 8, classes: 17 },
    };
    /// Chunks of 256 KiB.
    const LARGE: Chunks = Chunks { words: 32_768, meta: 24, classes: 19 };

    pub(super) const fn from_config(config: &RegionConfig) -> Self {
        if config.large_records && !cfg!(loom) { Chunks::LARGE } else { Chunks::SMALL }
    }

    /// Returns the maximum size of a commit record in bytes.
    pub(super) const fn largest_record(self) -> usize {
        (CLASSES[self.classes - 1] - BUFFER_HEADER) * super::mem::WORD
    }
}

/// Identifiers that a region has an index for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Key {
    /// An LTMSI (28 bits).
    Ltmsi = 0,
    /// A 5G-TMSI (32 bits).
    Tmsi = 1,
    Supi = 2,
    /// An association (upper 32 bits) and its RAN UE NGAP ID (lower 32 bits).
    Ran = 3,
}

/// Offsets, in words, of the parts of a region.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Layout {
    pub(super) slots: usize,
    /// Number of slots for own UEs. Those of guests follow.
    pub(super) own_slots: usize,
    pub(super) slot_count: usize,
    pub(super) workers: usize,
    /// Offset and number of lines (a power of two) of each index.
    pub(super) indexes: [(usize, usize); 4],
    pub(super) rings: usize,
    pub(super) packets: usize,
    pub(super) large_packets: usize,
    pub(super) board: usize,
    pub(super) published_values: usize,
    /// Offset of each number table; 0 if the region has no such table.
    pub(super) tables: [usize; TABLES],
    pub(super) chunks: usize,
    pub(super) chunk_count: usize,
    pub(super) chunk: Chunks,
    pub(super) heap: usize,
}

impl Layout {
    /// Computes the layout of `config` in a region of `words` words.
    pub(super) fn new(config: &RegionConfig, words: usize) -> Result<Self, RegionError> {
        config.check()?;
        let mut at = HEADER;
        let mut take = |count: usize| take(&mut at, count);
        let workers = take(usize::from(config.workers) * WORKER);
        // One eighth more slots than UEs: for slots that are not free again yet, and for UEs that
        // the host must not reject.
        let own_slots = config.ues as usize + (config.ues as usize / 8).max(2);
        let slot_count = own_slots + config.guests as usize;
        let slots = take(slot_count * SLOT);
        let indexes = [Key::Ltmsi, Key::Tmsi, Key::Supi, Key::Ran].map(|key| {
            // At most half full; a UE may have two 5G-TMSIs at a time.
            let keys = if key == Key::Tmsi { own_slots * 2 } else { own_slots };
            let lines = (keys * 2).div_ceil(LINE).next_power_of_two().max(2);
            (take(lines * LINE), lines)
        });
        let rings = take(usize::from(config.rings) * (RING + config.ring_cells as usize));
        let packets = take(config.packets as usize * PACKET);
        let large_packets = take(config.large_packets as usize * LARGE_PACKET);
        let board = take(config.board as usize);
        let published_values = take(usize::from(config.published_values) * published_words(config));
        // The owners of two numbers share a word.
        let tables = config.tables.map(|size| if size == 0 { 0 } else { take(NUMBERS + (size as usize).div_ceil(2)) });
        let page = if cfg!(loom) { LINE } else { 512 };
        let left = words.saturating_sub(at + page);
        let chunk = Chunks::from_config(config);
        let chunk_count = left / (chunk.words + chunk.meta);
        let chunks = self::take(&mut at, chunk_count * chunk.meta);
        let heap = at.next_multiple_of(page);
        let least = usize::from(config.workers) + 1;
        if chunk_count < least {
            let needed = at + page + least * (chunk.words + chunk.meta);
            return Err(RegionError::TooSmall {
                needed: needed * super::mem::WORD,
                configured: words * super::mem::WORD,
            });
        }
        if chunk_count * (chunk.words / UNIT) >= u32::MAX as usize {
            return Err(RegionError::Config("a region has at most 128 GiB of buffers"));
        }
        Ok(Layout {
            slots,
            own_slots,
            slot_count,
            workers,
            indexes,
            rings,
            packets,
            large_packets,
            board,
            published_values,
            tables,
            chunks,
            chunk_count,
            chunk,
            heap,
        })
    }
}

/// Returns the words of a published value: its header and two copies, each in whole cache lines.
pub(super) fn published_words(config: &RegionConfig) -> usize {
    PUBLISHED_HEADER + 2 * (config.published_value_bytes as usize).div_ceil(super::mem::WORD).next_multiple_of(LINE)
}

/// Reserves `count` words at `at`, in whole cache lines, and returns their offset.
fn take(at: &mut usize, count: usize) -> usize {
    let start = *at;
    *at += count.next_multiple_of(LINE);
    start
}
