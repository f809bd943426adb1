//! Slow-path output through the sockets.

use super::sockets::send;
use crate::engine::event::{Event, EventSink};
use crate::engine::pipeline::SlowPath;
use crate::sys::udp::Socket;
use std::net::SocketAddr;

/// Slow-path output of a worker.
pub(crate) struct WorkerSlowPath<'a> {
    /// Socket that received the datagram to be answered.
    pub(crate) own: Option<&'a Socket>,
    pub(crate) sockets: &'a [Socket],
    pub(crate) events: &'a EventSink,
}

impl SlowPath for WorkerSlowPath<'_> {
    fn answer(&mut self, to: SocketAddr, datagram: &[u8]) -> bool {
        // The answer leaves from the address that received the request (TS 29.281 4.4.3.1).
        match self.own.filter(|own| own.local.is_ipv4() == to.is_ipv4()) {
            Some(own) => own.send_to(to, datagram).is_ok(),
            None => send(self.sockets, [None; 2], to, datagram),
        }
    }

    fn event(&mut self, event: Event) -> bool {
        (self.events)(event)
    }
}
