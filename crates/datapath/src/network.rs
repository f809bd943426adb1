//! IP networks, and the address pools of UEs.

use serde::{Deserialize, Serialize};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// A network: the first bits of an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Network {
    /// Any address of the network.
    pub address: IpAddr,
    /// Prefix length in bits.
    pub length: u8,
}

impl Network {
    /// Returns true if the address lies in the network.
    #[inline]
    pub fn contains(&self, address: IpAddr) -> bool {
        let (differ, length) = match (self.address, address) {
            (IpAddr::V4(a), IpAddr::V4(b)) => (u128::from(a.to_bits() ^ b.to_bits()) << 96, self.length.min(32)),
            (IpAddr::V6(a), IpAddr::V6(b)) => (a.to_bits() ^ b.to_bits(), self.length.min(128)),
            _ => return false,
        };
        differ.leading_zeros() >= u32::from(length)
    }
}

/// UE addresses of one data network, and the link parameters that its router advertises.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Pool {
    /// IPv4 network and prefix length.
    pub ipv4: Option<(Ipv4Addr, u8)>,
    /// IPv6 network and prefix length, at most 64. Each UE has a /64 of it.
    pub ipv6: Option<(Ipv6Addr, u8)>,
    /// Link MTU in octets.
    pub mtu: u16,
    /// DNS servers. Router advertisements carry the IPv6 ones.
    pub dns: Vec<IpAddr>,
    /// If true, the UEs of the pool exchange no packets with UEs of any pool.
    pub isolated: bool,
}

impl Pool {
    /// Returns true if the address lies in the pool.
    #[inline]
    pub fn contains(&self, address: IpAddr) -> bool {
        match (address, self.ipv4, self.ipv6) {
            (IpAddr::V4(address), Some((base, length)), _) => {
                (address.to_bits() ^ base.to_bits()).leading_zeros() >= u32::from(length)
            }
            (IpAddr::V6(address), _, Some((base, length))) => {
                (address.to_bits() ^ base.to_bits()).leading_zeros() >= u32::from(length)
            }
            _ => false,
        }
    }
}

/// Returns the first IPv4 and the first IPv6 address.
pub(crate) fn by_family(addresses: &[IpAddr]) -> [Option<IpAddr>; 2] {
    [false, true].map(|v6| addresses.iter().copied().find(|address| address.is_ipv6() == v6))
}
