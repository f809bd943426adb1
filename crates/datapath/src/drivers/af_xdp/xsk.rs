//! AF_XDP sockets.
//!
//! The network driver, or the kernel on its behalf, fills and sends frames in a common memory
//! (UMEM). Rings transfer descriptors of these frames.

use crate::sys::check;
use std::io;
use std::mem::{size_of, zeroed};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, Ordering};

/// Number of entries in each ring.
pub(crate) const ENTRIES: u32 = 2048;

/// A memory mapping of this process.
#[derive(Debug)]
struct Mapping {
    start: NonNull<u8>,
    octets: usize,
}

// SAFETY: a mapping may be used from any thread.
unsafe impl Send for Mapping {}

impl Mapping {
    fn new(octets: usize, flags: i32, fd: RawFd, offset: libc::off_t) -> io::Result<Self> {
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: the kernel chooses the place; the result is checked and has no other owner.
        let start =
            unsafe { libc::mmap(std::ptr::null_mut(), octets, protection, flags | libc::MAP_POPULATE, fd, offset) };
        match NonNull::new(start.cast::<u8>()) {
            Some(begin) if start != libc::MAP_FAILED => Ok(Mapping { start: begin, octets }),
            _ => Err(io::Error::last_os_error()),
        }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: it is our mapping, of this length. The call cannot fail, and a failure would have
        // no remedy.
        let _ = unsafe { libc::munmap(self.start.as_ptr().cast(), self.octets) };
    }
}

/// Frame memory of one worker: chunks with a power of two as their size.
#[derive(Debug)]
pub(crate) struct Umem {
    memory: Mapping,
    chunk: usize,
    /// True if the memory lies in huge pages.
    pub(crate) huge: bool,
}

const HUGE_PAGE: usize = 2 << 20;

impl Umem {
    /// Allocates memory of at least `chunks` chunks of `chunk` bytes.
    pub(crate) fn new(chunks: usize, chunk: usize) -> io::Result<Self> {
        let octets = (chunks * chunk).next_multiple_of(HUGE_PAGE);
        let private = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        // If the machine has no reserved huge pages, ordinary pages suffice.
        if let Ok(memory) = Mapping::new(octets, private | libc::MAP_HUGETLB, -1, 0) {
            return Ok(Umem { memory, chunk, huge: true });
        }
        Ok(Umem { memory: Mapping::new(octets, private, -1, 0)?, chunk, huge: false })
    }

    /// Returns the start of each chunk.
    pub(crate) fn chunks(&self) -> impl Iterator<Item = u64> {
        (0..self.memory.octets as u64).step_by(self.chunk)
    }

    /// Returns the start of the chunk that contains an address.
    #[inline]
    pub(crate) fn chunk_of(&self, address: u64) -> u64 {
        address & !(self.chunk as u64 - 1)
    }

    /// Returns a chunk that is in no ring and not in use by the kernel. The caller has taken it
    /// from a ring.
    #[inline]
    pub(crate) fn chunk(&mut self, start: u64) -> &mut [u8] {
        let start = (start as usize).min(self.memory.octets - self.chunk);
        // SAFETY: it lies in the mapping, which is as long as we are, and a chunk in no ring has no
        // other user.
        unsafe { std::slice::from_raw_parts_mut(self.memory.start.as_ptr().add(start), self.chunk) }
    }
}

/// One end of a ring of `T`.
#[derive(Debug)]
struct Ring<T> {
    _memory: Mapping,
    producer: NonNull<AtomicU32>,
    consumer: NonNull<AtomicU32>,
    flags: NonNull<AtomicU32>,
    entries: NonNull<T>,
    /// Own position, which may be ahead of the published one.
    own: u32,
}

// SAFETY: the mapping is ours and the words in it are atomics; entries are used by one end at a
// time.
unsafe impl<T> Send for Ring<T> {}

impl<T: Copy> Ring<T> {
    fn map(fd: RawFd, offsets: &libc::xdp_ring_offset, page: libc::off_t) -> io::Result<Self> {
        let octets = offsets.desc as usize + ENTRIES as usize * size_of::<T>();
        let memory = Mapping::new(octets, libc::MAP_SHARED, fd, page)?;
        let at = |offset: u64| {
            // SAFETY: the kernel states that its words lie there, inside the mapping.
            unsafe { memory.start.add(offset as usize) }
        };
        let (producer, consumer, flags) = (at(offsets.producer), at(offsets.consumer), at(offsets.flags));
        let entries = at(offsets.desc);
        Ok(Ring {
            producer: producer.cast(),
            consumer: consumer.cast(),
            flags: flags.cast(),
            entries: entries.cast(),
            _memory: memory,
            own: 0,
        })
    }

    fn word(&self, which: NonNull<AtomicU32>) -> &AtomicU32 {
        // SAFETY: it lies in the mapping, aligned, and both ends use it as an atomic.
        unsafe { which.as_ref() }
    }

    /// Returns the number of entries that the other end has written and this end has not taken.
    #[inline]
    fn filled(&self) -> u32 {
        self.word(self.producer).load(Ordering::Acquire).wrapping_sub(self.own).min(ENTRIES)
    }

    /// Returns the number of free entries.
    #[inline]
    fn room(&self) -> u32 {
        ENTRIES.saturating_sub(self.own.wrapping_sub(self.word(self.consumer).load(Ordering::Acquire)))
    }

    #[inline]
    fn entry(&self, number: u32) -> *mut T {
        // SAFETY: the number is reduced to the length of the ring.
        unsafe { self.entries.as_ptr().add((number & (ENTRIES - 1)) as usize) }
    }

    /// Takes an entry. The ring must not be empty.
    #[inline]
    fn take(&mut self) -> T {
        // SAFETY: it is in the ring; the other end does not touch it until this end publishes that
        // it was taken.
        let value = unsafe { self.entry(self.own).read() };
        self.own = self.own.wrapping_add(1);
        value
    }

    /// Writes an entry. The ring must not be full.
    #[inline]
    fn put(&mut self, value: T) {
        // SAFETY: there is room for it in the ring; the other end does not touch it until this end
        // publishes it.
        unsafe { self.entry(self.own).write(value) };
        self.own = self.own.wrapping_add(1);
    }

    fn publish_consumer(&self) {
        self.word(self.consumer).store(self.own, Ordering::Release);
    }

    fn publish_producer(&self) {
        self.word(self.producer).store(self.own, Ordering::Release);
    }

    fn wants_wakeup(&self) -> bool {
        self.word(self.flags).load(Ordering::Relaxed) & libc::XDP_RING_NEED_WAKEUP != 0
    }
}

/// A frame in the UMEM.
pub(crate) type Descriptor = libc::xdp_desc;

/// A socket on one queue of one interface.
#[derive(Debug)]
pub(crate) struct Xsk {
    fd: OwnedFd,
    received: Ring<Descriptor>,
    to_send: Ring<Descriptor>,
    to_fill: Ring<u64>,
    sent: Ring<u64>,
    /// Chunks to be freed when the kernel has taken their frames. Used where completions are
    /// unreliable.
    in_flight: Option<std::collections::VecDeque<u64>>,
}

/// Parameters of binding a socket.
#[derive(Clone, Copy, Debug)]
pub(crate) struct QueueBinding {
    pub(crate) interface: u32,
    pub(crate) queue: u32,
    /// Forces copy mode, regardless of the network driver.
    pub(crate) copy: bool,
    /// True if the interface passes sent frames directly to another part of the kernel. That
    /// overwrites the data of completions. Frames were copied, so their chunks are free as soon as
    /// the kernel takes them.
    pub(crate) virtual_link: bool,
}

impl Xsk {
    /// Opens a socket with its rings and binds it. `first` is a socket with the same memory.
    pub(crate) fn open(umem: &Umem, room: usize, place: QueueBinding, first: Option<&Xsk>) -> io::Result<Self> {
        let kind = libc::SOCK_RAW | libc::SOCK_CLOEXEC;
        // SAFETY: no pointers; the result is checked and has no other owner.
        let fd = unsafe { OwnedFd::from_raw_fd(check(libc::socket(libc::AF_XDP, kind, 0))? as i32) };
        let raw = fd.as_raw_fd();
        if first.is_none() {
            // SAFETY: plain data for which zeros are valid.
            let mut memory: libc::xdp_umem_reg = unsafe { zeroed() };
            memory.addr = umem.memory.start.as_ptr() as u64;
            memory.len = umem.memory.octets as u64;
            memory.chunk_size = umem.chunk as u32;
            memory.headroom = room as u32;
            set(raw, libc::XDP_UMEM_REG, &memory)?;
        }
        for ring in [libc::XDP_UMEM_FILL_RING, libc::XDP_UMEM_COMPLETION_RING, libc::XDP_RX_RING, libc::XDP_TX_RING] {
            set(raw, ring, &ENTRIES)?;
        }
        // SAFETY: plain data for which zeros are valid.
        let mut offsets: libc::xdp_mmap_offsets = unsafe { zeroed() };
        get(raw, libc::XDP_MMAP_OFFSETS, &mut offsets)?;
        let received = Ring::map(raw, &offsets.rx, libc::XDP_PGOFF_RX_RING as libc::off_t)?;
        let to_send = Ring::map(raw, &offsets.tx, libc::XDP_PGOFF_TX_RING as libc::off_t)?;
        let to_fill = Ring::map(raw, &offsets.fr, libc::XDP_UMEM_PGOFF_FILL_RING as libc::off_t)?;
        let sent = Ring::map(raw, &offsets.cr, libc::XDP_UMEM_PGOFF_COMPLETION_RING as libc::off_t)?;
        // SAFETY: plain data for which zeros are valid.
        let mut address: libc::sockaddr_xdp = unsafe { zeroed() };
        address.sxdp_family = libc::AF_XDP as u16;
        (address.sxdp_ifindex, address.sxdp_queue_id) = (place.interface, place.queue);
        match first {
            Some(first) => {
                address.sxdp_flags = libc::XDP_SHARED_UMEM;
                address.sxdp_shared_umem_fd = first.fd.as_raw_fd() as u32;
            }
            None if place.copy => address.sxdp_flags = libc::XDP_USE_NEED_WAKEUP | libc::XDP_COPY,
            None => address.sxdp_flags = libc::XDP_USE_NEED_WAKEUP,
        }
        let length = size_of::<libc::sockaddr_xdp>() as libc::socklen_t;
        // SAFETY: the address has that length.
        check(unsafe { libc::bind(raw, (&raw const address).cast(), length) })?;
        let mut socket = Xsk { fd, received, to_send, to_fill, sent, in_flight: None };
        if place.virtual_link && !socket.zero_copy() {
            socket.in_flight = Some(std::collections::VecDeque::with_capacity(ENTRIES as usize));
        }
        Ok(socket)
    }

    /// Returns true if the network driver itself uses the memory.
    pub(crate) fn zero_copy(&self) -> bool {
        // SAFETY: plain data for which zeros are valid.
        let mut options: libc::xdp_options = unsafe { zeroed() };
        let asked = get(self.fd.as_raw_fd(), libc::XDP_OPTIONS, &mut options);
        asked.is_ok() && options.flags & libc::XDP_OPTIONS_ZEROCOPY != 0
    }

    /// Takes received frames, at most `frames.len()`. Returns their number.
    #[inline]
    pub(crate) fn receive(&mut self, frames: &mut [Descriptor]) -> usize {
        let count = (self.received.filled() as usize).min(frames.len());
        for frame in &mut frames[..count] {
            *frame = self.received.take();
        }
        if count > 0 {
            self.received.publish_consumer();
        }
        count
    }

    /// Supplies free chunks to the kernel for receiving, as many as fit.
    pub(crate) fn fill(&mut self, free: &mut Vec<u64>) {
        let room = self.to_fill.room() as usize;
        let count = room.min(free.len());
        if count == 0 {
            return;
        }
        for chunk in free.drain(free.len() - count..) {
            self.to_fill.put(chunk);
        }
        self.to_fill.publish_producer();
        if self.to_fill.wants_wakeup() {
            // SAFETY: no memory is passed; packets that cannot be received at once are received
            // later.
            let _ = unsafe {
                let nothing = std::ptr::null_mut();
                libc::recvfrom(self.fd.as_raw_fd(), nothing, 0, libc::MSG_DONTWAIT, nothing.cast(), nothing.cast())
            };
        }
    }

    /// Queues a frame to be sent. Returns false if the ring is full.
    #[inline]
    pub(crate) fn queue(&mut self, frame: Descriptor) -> bool {
        if self.to_send.room() == 0 {
            return false;
        }
        self.to_send.put(frame);
        if let Some(in_flight) = &mut self.in_flight {
            in_flight.push_back(frame.addr);
        }
        true
    }

    /// Makes the kernel send the queued frames.
    pub(crate) fn send(&mut self) {
        self.to_send.publish_producer();
        // The kernel copies 32 frames in one call. The loop ends when the interface accepts none.
        for _ in 0..ENTRIES / 32 {
            if self.to_send.room() == ENTRIES || !self.to_send.wants_wakeup() {
                return;
            }
            // SAFETY: no memory is passed.
            let result = unsafe {
                libc::sendto(self.fd.as_raw_fd(), std::ptr::null(), 0, libc::MSG_DONTWAIT, std::ptr::null(), 0)
            };
            let more = result < 0 && io::Error::last_os_error().raw_os_error() == Some(libc::EAGAIN);
            if !more {
                return;
            }
        }
    }

    /// Reclaims the chunks of sent frames.
    pub(crate) fn reclaim(&mut self, umem: &Umem, free: &mut Vec<u64>) {
        match &mut self.in_flight {
            Some(in_flight) => {
                let waiting = ENTRIES - self.to_send.room();
                while in_flight.len() > waiting as usize {
                    if let Some(address) = in_flight.pop_front() {
                        free.push(umem.chunk_of(address));
                    }
                }
                // The kernel reserves a completion for each frame that it takes, so all of these
                // count as read.
                self.sent.own = self.to_send.own.wrapping_sub(waiting);
                self.sent.publish_consumer();
            }
            None => {
                let count = self.sent.filled();
                for _ in 0..count {
                    let address = self.sent.take();
                    free.push(umem.chunk_of(address));
                }
                if count > 0 {
                    self.sent.publish_consumer();
                }
            }
        }
    }

    /// Returns true if chunks of queued frames were not yet reclaimed.
    pub(crate) fn is_sending(&self) -> bool {
        match &self.in_flight {
            Some(in_flight) => !in_flight.is_empty(),
            None => self.sent.own != self.to_send.own,
        }
    }
}

impl AsFd for Xsk {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

fn set<T>(fd: RawFd, option: i32, value: &T) -> io::Result<()> {
    let length = size_of::<T>() as libc::socklen_t;
    // SAFETY: `value` is readable for its length, which is that of the option's value.
    check(unsafe { libc::setsockopt(fd, libc::SOL_XDP, option, std::ptr::from_ref(value).cast(), length) })?;
    Ok(())
}

fn get<T>(fd: RawFd, option: i32, value: &mut T) -> io::Result<()> {
    let mut length = size_of::<T>() as libc::socklen_t;
    // SAFETY: `value` is writable for its length.
    check(unsafe { libc::getsockopt(fd, libc::SOL_XDP, option, std::ptr::from_mut(value).cast(), &mut length) })?;
    Ok(())
}
