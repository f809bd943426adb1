//! Output that a change of the tables releases.

use crate::engine::access::held_datagrams::HeldDatagram;
use std::net::{IpAddr, SocketAddr};

/// Output that a change of the tables releases.
#[derive(Debug, Default)]
pub struct Released {
    /// Datagrams for N3. They must be sent before the next packet is classified.
    pub datagrams: Vec<(SocketAddr, Vec<u8>)>,
    /// Number of buffered packets that are dropped.
    pub dropped: u64,
    /// A tunnel ends: packets classified before the change must be sent before the datagrams.
    pub(crate) last: bool,
    /// Source addresses of the datagrams on N3, one of each family. `None` = the first address.
    pub sources: [Option<IpAddr>; 2],
    /// Held datagrams from N3 that must be classified before the next packet.
    pub(crate) uplinks: Vec<HeldDatagram>,
}

impl Released {
    /// Takes the held datagrams that must be classified next.
    pub(crate) fn take_uplinks(&mut self) -> Vec<HeldDatagram> {
        std::mem::take(&mut self.uplinks)
    }
}
