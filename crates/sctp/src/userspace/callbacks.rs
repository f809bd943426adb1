//! Callbacks of the library: packets to send and events to report.
//!
//! A callback only copies into a buffer of the calling thread. The thread collects the buffer after
//! the call has returned.

use super::ffi;
use std::cell::RefCell;
use std::ffi::{c_int, c_void};

/// Socket and endpoint of an event; the library returns it with each event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Tag {
    pub(super) endpoint: u8,
    pub(super) socket: u32,
}

impl Tag {
    pub(super) fn to_ptr(self) -> *mut c_void {
        std::ptr::without_provenance_mut((u64::from(self.socket) << 8 | u64::from(self.endpoint)) as usize)
    }

    fn from_ptr(ptr: *mut c_void) -> Self {
        let bits = ptr.addr() as u64;
        Self { endpoint: bits as u8, socket: (bits >> 8) as u32 }
    }
}

/// Kind and contents of an event. The bytes of a message are in [`Events::bytes`].
#[derive(Clone, Copy, Debug)]
pub(super) enum EventKind {
    Message {
        stream: u16,
        ppid: u32,
        start: usize,
        end: usize,
    },
    /// A sent message that the peer has not acknowledged.
    Unacknowledged {
        stream: u16,
        ppid: u32,
        start: usize,
        end: usize,
    },
    /// The first part of a message larger than [`crate::MAX_MESSAGE`].
    TooLong,
    Change {
        state: u16,
        outbound_streams: u16,
        /// True if the peer sent an ABORT chunk.
        aborted: bool,
        /// Virtual port of the peer.
        port: u16,
    },
}

#[derive(Clone, Copy, Debug)]
pub(super) struct LibraryEvent {
    pub(super) tag: Tag,
    pub(super) assoc: u32,
    pub(super) kind: EventKind,
}

/// Events in order, with the bytes of their messages.
#[derive(Debug, Default)]
pub(super) struct Events {
    pub(super) list: Vec<LibraryEvent>,
    pub(super) bytes: Vec<u8>,
}

impl Events {
    pub(super) fn clear(&mut self) {
        self.list.clear();
        self.bytes.clear();
        // A burst must not occupy its memory permanently.
        self.bytes.shrink_to(1 << 20);
    }

    /// Appends an event of another list.
    pub(super) fn copy(&mut self, mut event: LibraryEvent, bytes: &[u8]) {
        if let EventKind::Message { start, end, .. } | EventKind::Unacknowledged { start, end, .. } = &mut event.kind {
            let from = self.bytes.len();
            self.bytes.extend_from_slice(bytes.get(*start..*end).unwrap_or_default());
            (*start, *end) = (from, self.bytes.len());
        }
        self.list.push(event);
    }
}

/// Output of the library calls of a thread since the last collection.
#[derive(Debug, Default)]
pub(super) struct LibraryOutput {
    /// Packets in order: the number of the endpoint, and the range in `bytes`.
    pub(super) packets: Vec<(u8, std::ops::Range<usize>)>,
    pub(super) bytes: Vec<u8>,
    pub(super) events: Events,
}

impl LibraryOutput {
    pub(super) fn clear(&mut self) {
        self.packets.clear();
        self.bytes.clear();
        self.bytes.shrink_to(1 << 20);
        self.events.clear();
    }
}

/// Returns the address of an endpoint, and of all its peers, in the library.
pub(super) fn address(endpoint: u8) -> *mut c_void {
    std::ptr::without_provenance_mut(usize::from(endpoint))
}

thread_local! {
    static PRODUCED: RefCell<LibraryOutput> = RefCell::default();
}

/// Runs `take` on the output of this thread's calls.
pub(super) fn with_produced<R>(take: impl FnOnce(&mut LibraryOutput) -> R) -> R {
    PRODUCED.with_borrow_mut(take)
}

/// Collects a packet to send; the library calls it.
pub(super) extern "C" fn output(addr: *mut c_void, buffer: *mut c_void, length: usize, _tos: u8, _df: u8) -> c_int {
    if buffer.is_null() {
        return 0;
    }
    // SAFETY: the library passes a buffer of `length` readable bytes that lives until this function
    // returns.
    let packet = unsafe { std::slice::from_raw_parts(buffer.cast::<u8>(), length) };
    PRODUCED.with(|produced| {
        if let Ok(mut produced) = produced.try_borrow_mut() {
            let start = produced.bytes.len();
            produced.bytes.extend_from_slice(packet);
            let end = produced.bytes.len();
            produced.packets.push((addr.addr() as u8, start..end));
        }
    });
    0
}

/// Collects a message or notification; the library calls it. The callee must free `data`.
pub(super) extern "C" fn receive(
    _sock: *mut ffi::socket,
    addr: ffi::sctp_sockstore,
    data: *mut c_void,
    length: usize,
    info: ffi::sctp_rcvinfo,
    flags: c_int,
    ulp_info: *mut c_void,
) -> c_int {
    if data.is_null() {
        return 1;
    }
    // SAFETY: the library passes a buffer of `length` readable bytes, allocated by `malloc`, that
    // this function owns.
    let bytes = unsafe { std::slice::from_raw_parts(data.cast::<u8>(), length) };
    // SAFETY: sockets of this driver are AF_CONN, so this is the member that was written.
    let peer = unsafe { addr.sconn };
    PRODUCED.with(|produced| {
        if let Ok(mut produced) = produced.try_borrow_mut() {
            let tag = Tag::from_ptr(ulp_info);
            if flags & ffi::MSG_NOTIFICATION != 0 {
                let LibraryOutput { events, .. } = &mut *produced;
                let happening = notification(tag, bytes, peer).or_else(|| failed(events, tag, bytes));
                events.list.extend(happening);
            } else {
                message(&mut produced.events, tag, bytes, &info, flags);
            }
        }
    });
    // SAFETY: `data` came from `malloc`, and nothing refers to it any more.
    unsafe { libc::free(data) };
    1
}

fn message(events: &mut Events, tag: Tag, bytes: &[u8], info: &ffi::sctp_rcvinfo, flags: c_int) {
    let kind = if flags & libc::MSG_EOR == 0 {
        EventKind::TooLong
    } else {
        let start = events.bytes.len();
        events.bytes.extend_from_slice(bytes);
        EventKind::Message { stream: info.sid, ppid: u32::from_be(info.ppid), start, end: events.bytes.len() }
    };
    events.list.push(LibraryEvent { tag, assoc: info.assoc_id, kind });
}

/// Decodes a failed message that is complete. Parts of a message are dropped.
fn failed(events: &mut Events, tag: Tag, bytes: &[u8]) -> Option<LibraryEvent> {
    let (head, data) = bytes.split_at_checked(size_of::<ffi::sctp_send_failed_event>())?;
    if u16::from_ne_bytes([head[0], head[1]]) != ffi::SCTP_SEND_FAILED_EVENT {
        return None;
    }
    // SAFETY: there are enough bytes, and every bit pattern is a value of this plain structure.
    let failed = unsafe { head.as_ptr().cast::<ffi::sctp_send_failed_event>().read_unaligned() };
    if failed.info.flags & ffi::SCTP_DATA_NOT_FRAG != ffi::SCTP_DATA_NOT_FRAG || data.is_empty() {
        return None;
    }
    let start = events.bytes.len();
    events.bytes.extend_from_slice(data);
    let (stream, ppid, end) = (failed.info.sid, u32::from_be(failed.info.ppid), events.bytes.len());
    Some(LibraryEvent { tag, assoc: failed.assoc_id, kind: EventKind::Unacknowledged { stream, ppid, start, end } })
}

fn notification(tag: Tag, bytes: &[u8], peer: ffi::sockaddr_conn) -> Option<LibraryEvent> {
    let size = size_of::<ffi::sctp_assoc_change>();
    if bytes.len() < size || u16::from_ne_bytes([bytes[0], bytes[1]]) != ffi::SCTP_ASSOC_CHANGE {
        return None;
    }
    // SAFETY: there are enough bytes, and every bit pattern is a value of this plain structure.
    let change = unsafe { bytes.as_ptr().cast::<ffi::sctp_assoc_change>().read_unaligned() };
    let kind = EventKind::Change {
        state: change.state,
        outbound_streams: change.outbound_streams,
        aborted: bytes.len() > size,
        port: u16::from_be(peer.port),
    };
    Some(LibraryEvent { tag, assoc: change.assoc_id, kind })
}
