//! AF_PACKET receive ring (TPACKET_V3): blocks of frames that the kernel fills and releases in
//! turn.

use super::link::Link;
use crate::engine::worker_slot::RingPosition;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, Ordering};

/// Size of a block in bytes. The smallest frame takes about 200 of them, including the room for
/// headers.
const BLOCK: usize = 128 << 10;
/// Number of blocks of a ring: 8 MiB.
const BLOCKS: usize = 64;
/// Time in ms after which the kernel releases a block that is not full. 1 is the minimum.
const HAND_OVER: u32 = 1;

// linux/if_packet.h: `struct tpacket_block_desc`.
const STATUS: usize = 8;
const PACKETS: usize = 12;
const FIRST: usize = 16;
const SEQUENCE: usize = 24;
// linux/if_packet.h: `struct tpacket3_hdr`.
const NEXT: usize = 0;
const CAPTURED: usize = 12;
const LENGTH: usize = 16;
const FRAME_STATUS: usize = 20;
const MAC: usize = 24;
const FRAME_HEADER: usize = 48;

/// A frame in a block.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Span {
    /// Start of the memory of this frame. `start..end` is the frame in it.
    pub(crate) room: usize,
    pub(crate) start: usize,
    pub(crate) end: usize,
    /// True if the transport checksum was left to hardware.
    pub(crate) lacks_checksum: bool,
}

/// Distribution of an interface's frames to the workers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FanoutMode {
    Hash,
    Queue,
    /// The program of [`Ring::set_program`]. Before it is set, the first ring gets all frames.
    Program,
}

/// Fanout group of the rings of one interface.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Group {
    pub(crate) by: FanoutMode,
    /// Group number. 0 = create a group, whose number is returned.
    pub(crate) id: u16,
}

/// Receive ring of one interface.
#[derive(Debug)]
pub(crate) struct Ring {
    link: Link,
    start: NonNull<u8>,
    current: usize,
    /// Stored read position, from which a process that takes over continues.
    mark: Option<RingPosition>,
    /// Frames of the current block that a previous process has read.
    skip: u32,
}

// SAFETY: only the ring uses the mapping, and any one thread at a time may do so.
unsafe impl Send for Ring {}

impl Ring {
    /// Opens a ring that receives nothing yet, with `room` octets before each frame.
    pub(crate) fn open(room: usize) -> io::Result<Self> {
        let link = Link::open()?;
        link.set(libc::PACKET_VERSION, &(libc::tpacket_versions::TPACKET_V3 as libc::c_int))?;
        link.set(libc::PACKET_RESERVE, &(room as libc::c_uint))?;
        link.set(libc::PACKET_IGNORE_OUTGOING, &(1 as libc::c_int))?;
        let request = libc::tpacket_req3 {
            tp_block_size: BLOCK as u32,
            tp_block_nr: BLOCKS as u32,
            // Frames have variable lengths: this is only the minimum.
            tp_frame_size: 2048,
            tp_frame_nr: (BLOCK / 2048 * BLOCKS) as u32,
            tp_retire_blk_tov: HAND_OVER,
            tp_sizeof_priv: 0,
            tp_feature_req_word: 0,
        };
        link.set(libc::PACKET_RX_RING, &request)?;
        Ring::over(link)
    }

    /// Maps a ring that another process has opened, and continues at the stored position.
    pub(crate) fn take_over(link: Link, mark: RingPosition) -> io::Result<Self> {
        let mut ring = Ring::over(link)?;
        let Position { block, returning, consumed, sequence } = Position::from_word(mark.get());
        ring.current = block as usize % BLOCKS;
        ring.mark = Some(mark);
        // The kernel may have refilled the block since.
        let same = ring.status().load(Ordering::Acquire) & libc::TP_STATUS_USER != 0 && ring.sequence() == sequence;
        match (returning, same) {
            (true, true) => ring.release(),
            (true, false) => ring.advance(),
            (false, true) => ring.skip = consumed,
            (false, false) => {}
        }
        Ok(ring)
    }

    /// Maps the ring of a socket that has one.
    fn over(link: Link) -> io::Result<Self> {
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        let flags = libc::MAP_SHARED | libc::MAP_POPULATE;
        // SAFETY: the kernel chooses the place; the result is checked and has no other owner.
        let start =
            unsafe { libc::mmap(std::ptr::null_mut(), BLOCK * BLOCKS, protection, flags, link.as_fd().as_raw_fd(), 0) };
        match NonNull::new(start.cast::<u8>()) {
            Some(begin) if start != libc::MAP_FAILED => {
                Ok(Ring { link, start: begin, current: 0, mark: None, skip: 0 })
            }
            _ => Err(io::Error::last_os_error()),
        }
    }

    /// Starts receiving from an interface, alone or in a group. Returns the group.
    pub(crate) fn bind(&self, interface: u32, group: Option<Group>) -> io::Result<Option<Group>> {
        self.link.bind(interface, libc::ETH_P_ALL as u16)?;
        let Some(Group { by, mut id }) = group else { return Ok(None) };
        let mode = match by {
            FanoutMode::Hash => libc::PACKET_FANOUT_HASH,
            FanoutMode::Queue => libc::PACKET_FANOUT_QM,
            FanoutMode::Program => libc::PACKET_FANOUT_EBPF,
        };
        let mut flags = mode | libc::PACKET_FANOUT_FLAG_IGNORE_OUTGOING;
        if id == 0 {
            flags |= libc::PACKET_FANOUT_FLAG_UNIQUEID;
        }
        self.link.set(libc::PACKET_FANOUT, &(flags << 16 | u32::from(id)))?;
        let mut joined: libc::c_int = 0;
        self.link.get(libc::SOL_PACKET, libc::PACKET_FANOUT, &mut joined)?;
        if id == 0 {
            id = joined as u16;
        }
        Ok(Some(Group { by, id }))
    }

    /// Sets the program that selects the ring of a frame by its position in the order of binding.
    pub(crate) fn set_program(&self, program: BorrowedFd<'_>) -> io::Result<()> {
        self.link.set(libc::PACKET_FANOUT_DATA, &program.as_raw_fd())
    }

    /// Returns the socket, for polling and errors.
    pub(crate) fn link(&self) -> &Link {
        &self.link
    }

    fn status(&self) -> &AtomicU32 {
        // SAFETY: blocks are in the mapping, which lives as long as the ring, and aligned; both
        // sides use the word as one.
        unsafe { &*self.start.as_ptr().add(self.current * BLOCK + STATUS).cast::<AtomicU32>() }
    }

    /// Returns the next block, if the kernel has released it.
    pub(crate) fn block(&mut self) -> Option<Block<'_>> {
        if self.status().load(Ordering::Acquire) & libc::TP_STATUS_USER == 0 {
            return None;
        }
        let skip = std::mem::take(&mut self.skip);
        let octets = self.octets();
        let (count, first) = (u32_at(octets, PACKETS), u32_at(octets, FIRST) as usize);
        let consumed = skip.min(count);
        let next = (0..consumed).fold(first, |at, _| at + u32_at(octets, at + NEXT) as usize);
        Some(Block { ring: self, consumed, remaining: count - consumed, next })
    }

    /// Returns the lower half of the block's sequence number, which differs each time that the
    /// kernel fills it.
    fn sequence(&mut self) -> u32 {
        let octets = self.octets();
        octets.get(SEQUENCE..).and_then(|rest| rest.first_chunk()).map_or(0, |rest| u64::from_ne_bytes(*rest) as u32)
    }

    fn note(&mut self, returning: bool, consumed: u32) {
        if self.mark.is_some() {
            let (block, sequence) = (self.current as u8, self.sequence());
            self.mark(Position { block, returning, consumed, sequence });
        }
    }

    fn mark(&self, position: Position) {
        if let Some(mark) = &self.mark {
            mark.set(position.word());
        }
    }

    /// Returns the current block to the kernel.
    fn release(&mut self) {
        self.note(true, 0);
        self.status().store(libc::TP_STATUS_KERNEL, Ordering::Release);
        self.advance();
    }

    fn advance(&mut self) {
        self.current = (self.current + 1) % BLOCKS;
        // The kernel assigns no block the number 0.
        self.mark(Position { block: self.current as u8, returning: false, consumed: 0, sequence: 0 });
    }

    fn octets(&mut self) -> &mut [u8] {
        // SAFETY: the block lies in the mapping and is ours until its status changes: only `block`
        // calls this while it is, and lends the result for as long as the ring is borrowed. The
        // kernel does not touch it.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr().add(self.current * BLOCK), BLOCK) }
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        // SAFETY: it is our mapping, of this length. The call cannot fail, and a failure would have
        // no remedy.
        let _ = unsafe { libc::munmap(self.start.as_ptr().cast(), BLOCK * BLOCKS) };
    }
}

/// Read position of a ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Position {
    block: u8,
    /// True if all of the block is read and it is being returned to the kernel.
    returning: bool,
    /// Number of frames consumed of the block.
    consumed: u32,
    /// Lower half of the block's sequence number.
    sequence: u32,
}

impl Position {
    fn word(self) -> u64 {
        let consumed = u64::from(self.consumed.min(0xffff));
        u64::from(self.sequence) << 32 | consumed << 16 | u64::from(self.returning) << 8 | u64::from(self.block)
    }

    fn from_word(word: u64) -> Self {
        let (sequence, consumed) = ((word >> 32) as u32, (word >> 16) as u32 & 0xffff);
        Position { block: word as u8, returning: word >> 8 & 1 == 1, consumed, sequence }
    }
}

fn u32_at(octets: &[u8], at: usize) -> u32 {
    octets.get(at..).and_then(|octets| octets.first_chunk()).map_or(0, |octets| u32::from_ne_bytes(*octets))
}

/// A block that is ours until it is dropped.
#[derive(Debug)]
pub(crate) struct Block<'r> {
    ring: &'r mut Ring,
    /// Frames found so far.
    consumed: u32,
    /// Frames not yet found.
    remaining: u32,
    next: usize,
}

impl Block<'_> {
    /// Finds the next frames of the block, at most `spans.len()`. Returns their number.
    pub(crate) fn next(&mut self, spans: &mut [Span]) -> usize {
        let octets = self.ring.octets();
        let mut found = 0;
        while found < spans.len() && self.remaining > 0 {
            let at = self.next;
            self.remaining -= 1;
            self.consumed += 1;
            self.next += u32_at(octets, at + NEXT) as usize;
            let word = |offset| u32_at(octets, at + offset);
            let start = at + (word(MAC) & 0xffff) as usize;
            let end = start + word(CAPTURED) as usize;
            // Longer than a block: truncated, and not to be forwarded.
            if word(CAPTURED) != word(LENGTH) || end > BLOCK || start < at + FRAME_HEADER {
                continue;
            }
            let lacks_checksum = word(FRAME_STATUS) & libc::TP_STATUS_CSUMNOTREADY != 0;
            spans[found] = Span { room: at + FRAME_HEADER, start, end, lacks_checksum };
            found += 1;
        }
        // Stored before the frames are processed, so that a process that takes over does not
        // process them again.
        self.ring.note(false, self.consumed);
        found
    }

    /// Returns the block's memory, which the spans refer to.
    pub(crate) fn octets(&mut self) -> &mut [u8] {
        self.ring.octets()
    }
}

impl Drop for Block<'_> {
    fn drop(&mut self) {
        self.ring.release();
    }
}
