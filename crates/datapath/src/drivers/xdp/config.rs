//! Configuration of the XDP driver.

use crate::drivers::module::Module;
use std::net::IpAddr;

/// Attachment mode of the program.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum XdpMode {
    /// In the network driver, before the kernel allocates a socket buffer for the received frame.
    #[default]
    Native,
    /// In the kernel's stack, for network drivers without XDP. Slower; for tests and unusual
    /// hardware.
    Generic,
}

/// Configuration of the XDP driver.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct XdpConfig {
    /// Ethernet interfaces on N3 and N6. Packets leave only through these, by the kernel's routes.
    /// Packets routed elsewhere go through the sockets driver.
    pub interfaces: Vec<String>,
    /// Attachment mode of the program.
    pub mode: XdpMode,
    /// Next hops of uplink packets, at most one of each family. They replace the routes of the
    /// destinations, also those to framed routes of other UEs. Destinations in the pools and N3
    /// addresses of this user plane are excepted. Without a next hop, the routes are queried for
    /// every packet.
    pub next_hops: Vec<IpAddr>,
    /// Modules with separate interfaces, N3 addresses and next hops. Empty = no division.
    pub modules: Vec<Module>,
    /// If true, the network cards distribute packets to their queues by address ranges.
    pub nic_filters: bool,
}
