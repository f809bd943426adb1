//! Sockets and associations of one endpoint, and handling of kernel notifications.

use super::ffi;
use super::socket::Socket;
use crate::assocs::{AssociationMap, FastMap, stream};
use crate::config::Config;
use crate::endpoint::{Event, MAX_MESSAGE, SendError};
use crate::hot_restart::{self, AssociationTable};
use std::io;
use std::net::SocketAddr;
use std::time::{Duration, Instant};
use vireo_types::AssocId;

/// The socket with the endpoint's own port. Other sockets have one association each.
pub(super) const MAIN: u32 = 0;
/// Payload bytes of a DATA chunk that fills its packet, to estimate bytes from chunks.
const CHUNK: usize = 1400;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    Connecting(Instant),
    Up,
    Closing,
}

#[derive(Debug)]
pub(super) struct Association {
    socket: u32,
    raw: i32,
    outbound_streams: u16,
    phase: Phase,
    /// Bytes outstanding at the last kernel query, plus bytes sent since.
    queued: usize,
    /// Received parts of an incomplete message.
    partial: Vec<u8>,
}

#[derive(Debug)]
pub(super) struct Associations {
    pub(super) sockets: FastMap<u32, Socket>,
    assocs: AssociationMap<Association>,
    /// Associations that must report [`Event::Writable`].
    blocked: Vec<AssocId>,
    /// Associations with an open probe, and the number of packets received before it.
    probed: Vec<(AssocId, u64)>,
    /// Associations that this side ended, with the reason.
    ended: Vec<(AssocId, &'static str)>,
    pub(super) config: Config,
}

fn key(socket: u32, raw: i32) -> u64 {
    (u64::from(socket) << 32) | u64::from(raw.cast_unsigned())
}

impl Associations {
    pub(super) fn new(config: &Config) -> Self {
        Self {
            sockets: FastMap::default(),
            assocs: AssociationMap::default(),
            blocked: Vec::new(),
            probed: Vec::new(),
            ended: Vec::new(),
            config: config.clone(),
        }
    }

    /// Returns the state that another process needs to continue the associations of the main
    /// socket.
    pub(super) fn table(&self) -> AssociationTable {
        let known = |(id, assoc): (AssocId, &Association)| hot_restart::Association {
            id,
            raw: assoc.raw,
            outbound_streams: assoc.outbound_streams,
            closing: assoc.phase == Phase::Closing,
            queued: assoc.queued as u64,
            blocked: self.blocked.contains(&id),
            partial: assoc.partial.clone(),
        };
        let associations = self.assocs.iter().map(known).collect();
        AssociationTable { associations, ended: self.ended.iter().map(|(id, _)| *id).collect() }
    }

    /// Restores the associations of another process.
    pub(super) fn adopt(&mut self, known: AssociationTable) {
        for old in known.associations {
            let phase = if old.closing { Phase::Closing } else { Phase::Up };
            let queued = usize::try_from(old.queued).unwrap_or(usize::MAX);
            let (outbound_streams, partial) = (old.outbound_streams, old.partial);
            let assoc = Association { socket: MAIN, raw: old.raw, outbound_streams, phase, queued, partial };
            self.assocs.restore(old.id, key(MAIN, old.raw), assoc);
            self.blocked.extend(old.blocked.then_some(old.id));
        }
        self.ended.extend(known.ended.into_iter().map(|id| (id, "ended while another process had it")));
    }

    pub(super) fn is_full(&self) -> bool {
        self.assocs.len() >= self.config.max_associations
    }

    pub(super) fn has_ended(&self) -> bool {
        !self.ended.is_empty()
    }

    /// Returns true if some associations must be checked periodically.
    pub(super) fn has_watched(&self) -> bool {
        !self.blocked.is_empty() || !self.probed.is_empty()
    }

    /// Reports the associations that this side ended.
    pub(super) fn report_ended(&mut self, sink: &mut dyn FnMut(Event<'_>)) -> usize {
        let count = self.ended.len();
        for (assoc, reason) in self.ended.drain(..) {
            sink(Event::Down { assoc, reason });
        }
        count
    }

    pub(super) fn send(&mut self, id: AssocId, wanted: u16, ppid: u32, data: &[u8]) -> Result<(), SendError> {
        let Some(assoc) = self.assocs.get_mut(id).filter(|assoc| assoc.phase == Phase::Up) else {
            return Err(SendError::NoAssociation);
        };
        let Some(socket) = self.sockets.get(&assoc.socket) else { return Err(SendError::NoAssociation) };
        if assoc.queued + data.len() > self.config.send_buffer as usize {
            let Some(chunks) = socket.outstanding(assoc.raw) else { return Err(SendError::NoAssociation) };
            assoc.queued = assoc.queued.min(chunks * CHUNK);
            if assoc.queued + data.len() > self.config.send_buffer as usize {
                return Err(self.block(id));
            }
        }
        let flags = if self.config.sack_immediately { ffi::SCTP_SACK_IMMEDIATELY } else { 0 };
        let sid = stream(wanted, assoc.outbound_streams);
        let info = ffi::SndInfo { sid, flags, ppid: ppid.to_be(), context: 0, assoc_id: assoc.raw };
        match socket.send(info, data) {
            Ok(()) => {
                assoc.queued += data.len();
                Ok(())
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Err(self.block(id)),
            Err(error) => match error.raw_os_error() {
                Some(libc::EINVAL | libc::EPIPE | libc::ENOTCONN | libc::ESHUTDOWN | libc::ECONNRESET) => {
                    Err(SendError::NoAssociation)
                }
                _ => Err(error.into()),
            },
        }
    }

    pub(super) fn shutdown(&mut self, id: AssocId) {
        let Some(assoc) = self.assocs.get_mut(id) else { return };
        assoc.phase = Phase::Closing;
        let (socket, raw) = (assoc.socket, assoc.raw);
        self.end_raw(socket, raw, ffi::SCTP_EOF);
    }

    /// Handles a message or a part of one. Returns true if it produced an event.
    pub(super) fn message(
        &mut self,
        number: u32,
        info: &ffi::RcvInfo,
        data: &[u8],
        whole: bool,
        sink: &mut dyn FnMut(Event<'_>),
    ) -> bool {
        let Some(id) = self.assocs.id(key(number, info.assoc_id)) else { return false };
        let Some(assoc) = self.assocs.get_mut(id) else { return false };
        if assoc.partial.len() + data.len() > MAX_MESSAGE || (!whole && data.len() == MAX_MESSAGE) {
            self.end(id, "the peer sent a message that is too long");
            return false;
        }
        let (stream, ppid) = (info.sid, u32::from_be(info.ppid));
        if whole && assoc.partial.is_empty() {
            sink(Event::Message { assoc: id, stream, ppid, data });
            return true;
        }
        assoc.partial.extend_from_slice(data);
        if whole {
            sink(Event::Message { assoc: id, stream, ppid, data: &assoc.partial });
            assoc.partial = Vec::new();
        }
        whole
    }

    /// Handles a notification. Returns true if it produced an event.
    pub(super) fn on_notification(
        &mut self,
        number: u32,
        data: &[u8],
        from: Option<SocketAddr>,
        sink: &mut dyn FnMut(Event<'_>),
    ) -> bool {
        let Some(change) = ffi::AssocChange::read(data) else { return false };
        let known = self.assocs.id(key(number, change.assoc_id));
        match (change.state, known) {
            (ffi::SCTP_COMM_UP, known) => {
                let outbound_streams = change.outbound_streams;
                let full = known.is_none() && self.is_full();
                let Some(peer) = from.filter(|_| !full) else {
                    tracing::warn!(limit = self.config.max_associations, "an SCTP association is refused");
                    self.end_raw(number, change.assoc_id, ffi::SCTP_ABORT);
                    return false;
                };
                let assoc = known.unwrap_or_else(|| self.insert(number, change.assoc_id, Phase::Up));
                if let Some(state) = self.assocs.get_mut(assoc) {
                    state.outbound_streams = outbound_streams;
                    if matches!(state.phase, Phase::Connecting(_)) {
                        state.phase = Phase::Up;
                    }
                }
                sink(Event::Up { assoc, peer, outbound_streams });
            }
            (ffi::SCTP_RESTART, Some(assoc)) => {
                if let Some(state) = self.assocs.get_mut(assoc) {
                    state.outbound_streams = change.outbound_streams;
                    state.queued = 0;
                    state.partial = Vec::new();
                }
                sink(Event::Restarted { assoc });
            }
            (ffi::SCTP_COMM_LOST | ffi::SCTP_SHUTDOWN_COMP | ffi::SCTP_CANT_STR_ASSOC, Some(assoc)) => {
                let state = self.assocs.get(assoc).map(|assoc| assoc.phase);
                let aborted = data.len() > size_of::<ffi::AssocChange>();
                let reason = reason(change.state, aborted, state, self.config.rto_initial);
                self.remove(assoc);
                sink(Event::Down { assoc, reason });
            }
            _ => return false,
        }
        true
    }

    pub(super) fn insert(&mut self, socket: u32, raw: i32, phase: Phase) -> AssocId {
        let outbound_streams = self.config.outbound_streams;
        let assoc = Association { socket, raw, outbound_streams, phase, queued: 0, partial: Vec::new() };
        self.assocs.insert(key(socket, raw), assoc)
    }

    /// Removes an association, and its socket if it has one of its own.
    fn remove(&mut self, id: AssocId) {
        if let Some(assoc) = self.assocs.remove(id) {
            self.blocked.retain(|blocked| *blocked != id);
            self.probed.retain(|(probed, _)| *probed != id);
            if assoc.socket != MAIN {
                self.sockets.remove(&assoc.socket);
            }
        }
    }

    fn end_raw(&self, number: u32, raw: i32, flags: u16) {
        if let Some(socket) = self.sockets.get(&number) {
            let info = ffi::SndInfo { sid: 0, flags, ppid: 0, context: 0, assoc_id: raw };
            // It fails only when the association is already ending, which an event reports.
            let _ = socket.send(info, &[]);
        }
    }

    /// Aborts an association.
    pub(super) fn end(&mut self, id: AssocId, reason: &'static str) {
        let Some(assoc) = self.assocs.get(id) else { return };
        self.end_raw(assoc.socket, assoc.raw, ffi::SCTP_ABORT);
        self.remove(id);
        self.ended.push((id, reason));
    }

    /// Reports the associations that accept messages again.
    pub(super) fn unblock(&mut self, sink: &mut dyn FnMut(Event<'_>)) -> usize {
        let (mut count, low) = (0, self.config.send_buffer as usize / 2);
        let (assocs, sockets) = (&mut self.assocs, &self.sockets);
        self.blocked.retain(|id| {
            let Some(assoc) = assocs.get_mut(*id) else { return false };
            let Some(socket) = sockets.get(&assoc.socket) else { return false };
            let Some(chunks) = socket.outstanding(assoc.raw) else { return false };
            assoc.queued = assoc.queued.min(chunks * CHUNK);
            let free = assoc.queued <= low && socket.is_writable();
            if free {
                count += 1;
                sink(Event::Writable { assoc: *id });
            }
            !free
        });
        count
    }

    /// Sends a heartbeat. The kernel does not report the answer, but counts received packets.
    pub(super) fn probe(&mut self, id: AssocId) {
        let Some(assoc) = self.assocs.get(id).filter(|assoc| assoc.phase == Phase::Up) else { return };
        let Some(socket) = self.sockets.get(&assoc.socket) else { return };
        if let Some(packets) = socket.packets(assoc.raw)
            && socket.heartbeat(assoc.raw).is_ok()
            && !self.probed.iter().any(|(probed, _)| *probed == id)
        {
            self.probed.push((id, packets));
        }
    }

    /// Reports the peers that have answered a probe.
    pub(super) fn report_alive(&mut self, sink: &mut dyn FnMut(Event<'_>)) -> usize {
        let (mut count, assocs, sockets) = (0, &self.assocs, &self.sockets);
        self.probed.retain(|(id, before)| {
            let Some(assoc) = assocs.get(*id) else { return false };
            let packets = sockets.get(&assoc.socket).and_then(|socket| socket.packets(assoc.raw));
            let alive = packets.is_some_and(|packets| packets > *before);
            if alive {
                count += 1;
                sink(Event::Alive { assoc: *id });
            }
            !alive && packets.is_some()
        });
        count
    }

    fn block(&mut self, id: AssocId) -> SendError {
        if !self.blocked.contains(&id) {
            self.blocked.push(id);
        }
        SendError::Full
    }
}

impl ffi::AssocChange {
    fn read(data: &[u8]) -> Option<Self> {
        let [a, b, ..] = *data.first_chunk::<{ size_of::<Self>() }>()?;
        if u16::from_ne_bytes([a, b]) != ffi::SCTP_ASSOC_CHANGE {
            return None;
        }
        // SAFETY: there are enough bytes, and every bit pattern is a value of this plain structure.
        Some(unsafe { data.as_ptr().cast::<Self>().read_unaligned() })
    }
}

/// Returns the reason that an association ended.
///
/// The kernel does not report whether a connect was refused or not answered. A refusal arrives
/// before the first retransmission of INIT.
fn reason(state: u16, aborted: bool, phase: Option<Phase>, rto_initial: Duration) -> &'static str {
    match (state, phase) {
        (ffi::SCTP_SHUTDOWN_COMP, _) => "shut down",
        (ffi::SCTP_CANT_STR_ASSOC, Some(Phase::Connecting(start))) if start.elapsed() < rto_initial => {
            "refused by the peer"
        }
        (ffi::SCTP_CANT_STR_ASSOC, _) => "no answer from the peer",
        _ if aborted => "aborted by the peer",
        _ => "the peer stopped answering",
    }
}
