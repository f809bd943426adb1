//! Output of the frame drivers to the kernel.

use crate::drivers::udp::send;
use crate::engine::event::{Event, EventSink};
use crate::engine::pipeline::SlowPath;
use crate::sys::tun::Tun;
use crate::sys::udp::Socket;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

/// Output for packets that leave through no interface of the driver.
pub(crate) trait KernelPath: SlowPath {
    /// Lets the kernel route a packet. Returns false if that failed.
    fn route(&mut self, packet: &[u8]) -> bool;
}

/// Output to the kernel by the TUN device and the UDP sockets.
pub(crate) struct Kernel {
    pub(crate) sockets: Arc<[Socket]>,
    /// N3 addresses of the worker, one of each family.
    pub(crate) own: [Option<IpAddr>; 2],
    pub(crate) tun: Tun,
    pub(crate) events: EventSink,
}

impl SlowPath for Kernel {
    fn answer(&mut self, to: SocketAddr, datagram: &[u8]) -> bool {
        send(&self.sockets, self.own, to, datagram)
    }

    fn event(&mut self, event: Event) -> bool {
        (self.events)(event)
    }
}

impl KernelPath for Kernel {
    fn route(&mut self, packet: &[u8]) -> bool {
        self.tun.write(packet).is_ok()
    }
}
