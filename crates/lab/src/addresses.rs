//! Addresses and interfaces of the lab's namespaces.

use std::net::{Ipv4Addr, Ipv6Addr};
use std::path::Path;

/// Address of the core towards the RAN: N2 and N3.
pub const CORE: Ipv4Addr = Ipv4Addr::new(192, 168, 127, 1);
/// Address of the RAN.
pub const RAN: Ipv4Addr = Ipv4Addr::new(192, 168, 127, 2);
/// Address of the core towards the data network: N6.
pub(crate) const CORE_N6: Ipv4Addr = Ipv4Addr::new(192, 168, 128, 1);
/// Host in the data network. Its kernel answers ICMP echo; the lab answers UDP echo on port 7.
pub(crate) const DN: Ipv4Addr = Ipv4Addr::new(192, 168, 128, 2);
/// IPv6 address of the host in the data network.
pub(crate) const DN_V6: Ipv6Addr = Ipv6Addr::new(0xfd00, 6, 0, 0, 0, 0, 0, 2);
pub(crate) const CORE_N6_V6: Ipv6Addr = Ipv6Addr::new(0xfd00, 6, 0, 0, 0, 0, 0, 1);

/// Interface of the core towards the RAN.
pub const N2: &str = "n2";
/// Interface of the core towards the data network.
pub const N6: &str = "n6";
pub(crate) const RAN_INTERFACE: &str = "ran0";
pub(crate) const DN_INTERFACE: &str = "dn0";
/// UDP echo port (RFC 862).
pub(crate) const ECHO_PORT: u16 = 7;

/// Returns true if this kernel supports IPv6.
pub(crate) fn has_ipv6() -> bool {
    Path::new("/proc/sys/net/ipv6").exists()
}
