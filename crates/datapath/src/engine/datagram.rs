//! A datagram from N3 with its addresses.

use std::net::{IpAddr, SocketAddr};

/// A datagram that was received at one of our N3 addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Datagram<'a> {
    pub(crate) from: SocketAddr,
    /// Our address that received the datagram.
    pub(crate) local: IpAddr,
    pub(crate) octets: &'a [u8],
}
