//! Where everything lies in a region, in words. It follows from the sizes alone, so that every process computes the same.

use super::{RegionConfig, RegionError, TABLES};

/// "VIREOreg" as a number.
pub(super) const MAGIC: u64 = u64::from_be_bytes(*b"VIREOreg");
/// Grows with every change of what the words mean: processes of different layouts do not share a region.
pub(super) const VERSION: u64 = 4;

/// Words of the header, and which is which.
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
pub(super) const H_BULLETINS: usize = 10;
pub(super) const H_BULLETIN_BYTES: usize = 11;
pub(super) const H_LARGE: usize = 12;
/// 1 + the worker that has the whole region for itself; 0 = it is shared.
pub(super) const H_SOLE: usize = 16;
/// Slots that are a UE's, with a record or without, in a cache line of its own.
pub(super) const H_USED: usize = 24;
/// The sizes of the number tables, a word each.
pub(super) const H_TABLES: usize = 32;

/// Words of a worker's record.
pub(super) const WORKER: usize = 8;
/// Words of a UE slot: a cache line that every event needs, and one that few do.
pub(super) const SLOT: usize = 16;
/// Cells of an index's line: one cache line.
pub(super) const LINE: usize = 8;
/// Words of a ring before its cells: head, tail and wake-up each have a cache line of their own.
pub(super) const RING: usize = 24;
/// Words of a bulletin before its two copies: its version, and the length of each copy.
pub(super) const BULLETIN: usize = 8;
/// Words of a number table before its numbers: where the search goes on, and how many are used.
pub(super) const NUMBERS: usize = 16;
/// Words of a packet, and how many of them are its header.
pub(super) const PACKET: usize = if cfg!(loom) { 8 } else { 256 };
pub(super) const PACKET_HEADER: usize = 8;
/// Words of a large packet: room for 64 KiB.
pub(super) const LARGE_PACKET: usize = if cfg!(loom) { 16 } else { PACKET_HEADER + 8192 };
/// Words of a chunk's record: what it holds, and a bit for each of its buffers.
pub(super) const CHUNK_META: usize = 8;
/// Words of a chunk of the heap.
pub(super) const CHUNK: usize = if cfg!(loom) { 64 } else { 8192 };
/// Words of a buffer's header.
pub(super) const BUFFER_HEADER: usize = 7;
/// Buffers begin at multiples of this many words: what a buffer's number counts.
pub(super) const UNIT: usize = 4;
/// The sizes of buffers, in words: 256 octets to 64 KiB. They are close to each other where contexts with a session are, so
/// that what these have less is memory less.
#[cfg(not(loom))]
pub(super) const CLASSES: [usize; 17] =
    [32, 36, 40, 44, 48, 56, 64, 96, 128, 192, 256, 384, 512, 1024, 2048, 4096, 8192];
#[cfg(loom)]
pub(super) const CLASSES: [usize; 1] = [16];

/// The indexes of a region.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Key {
    /// An LTMSI: its 28 bits.
    Ltmsi = 0,
    /// A 5G-TMSI: its 32 bits.
    Tmsi = 1,
    /// A SUPI.
    Supi = 2,
    /// An association (upper 32 bits) and its RAN-UE-NGAP-ID (lower 32 bits).
    Ran = 3,
}

/// Where the parts of a region begin.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Layout {
    pub(super) slots: usize,
    pub(super) slot_count: usize,
    pub(super) workers: usize,
    /// Of each index: where it begins and its lines (a power of two).
    pub(super) indexes: [(usize, usize); 4],
    pub(super) rings: usize,
    pub(super) packets: usize,
    pub(super) large_packets: usize,
    pub(super) board: usize,
    pub(super) bulletins: usize,
    /// Of each number table: where it begins.
    pub(super) tables: [usize; TABLES],
    pub(super) chunks: usize,
    pub(super) chunk_count: usize,
    pub(super) heap: usize,
}

impl Layout {
    /// The layout for `config` in `words`.
    pub(super) fn new(config: &RegionConfig, words: usize) -> Result<Self, RegionError> {
        config.check()?;
        let mut at = HEADER;
        let mut take = |count: usize| take(&mut at, count);
        let workers = take(usize::from(config.workers) * WORKER);
        // An eighth more than UEs: slots that are not free again yet, and UEs that are never turned away.
        let slot_count = config.ues as usize + (config.ues as usize / 8).max(2);
        let slots = take(slot_count * SLOT);
        let indexes = [Key::Ltmsi, Key::Tmsi, Key::Supi, Key::Ran].map(|key| {
            // Half full at most; a UE may have two 5G-TMSIs at a time.
            let keys = if key == Key::Tmsi { slot_count * 2 } else { slot_count };
            let lines = (keys * 2).div_ceil(LINE).next_power_of_two().max(2);
            (take(lines * LINE), lines)
        });
        let rings = take(usize::from(config.rings) * (RING + config.ring_cells as usize));
        let packets = take(config.packets as usize * PACKET);
        let large_packets = take(config.large_packets as usize * LARGE_PACKET);
        let board = take(config.board as usize);
        let bulletins = take(usize::from(config.bulletins) * bulletin_words(config));
        // Two numbers' owners share a word.
        let tables = config.tables.map(|size| if size == 0 { 0 } else { take(NUMBERS + (size as usize).div_ceil(2)) });
        let page = if cfg!(loom) { LINE } else { 512 };
        let left = words.saturating_sub(at + page);
        let chunk_count = left / (CHUNK + CHUNK_META);
        let chunks = self::take(&mut at, chunk_count * CHUNK_META);
        let heap = at.next_multiple_of(page);
        let least = usize::from(config.workers) + 1;
        if chunk_count < least {
            let needed = at + page + least * (CHUNK + CHUNK_META);
            return Err(RegionError::TooSmall { needed: needed * super::mem::WORD, given: words * super::mem::WORD });
        }
        if chunk_count * (CHUNK / UNIT) >= u32::MAX as usize {
            return Err(RegionError::Config("a region has at most 128 GiB of buffers"));
        }
        Ok(Layout {
            slots,
            slot_count,
            workers,
            indexes,
            rings,
            packets,
            large_packets,
            board,
            bulletins,
            tables,
            chunks,
            chunk_count,
            heap,
        })
    }
}

/// Words of a bulletin: its header and two copies, each in whole cache lines.
pub(super) fn bulletin_words(config: &RegionConfig) -> usize {
    BULLETIN + 2 * (config.bulletin_bytes as usize).div_ceil(super::mem::WORD).next_multiple_of(LINE)
}

/// So many words from here on, in whole cache lines.
fn take(at: &mut usize, count: usize) -> usize {
    let start = *at;
    *at += count.next_multiple_of(LINE);
    start
}
