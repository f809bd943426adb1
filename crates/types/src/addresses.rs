//! IP networks, for configured lists of peers.

use serde::{Deserialize, Serialize};
use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

/// All addresses with one prefix; a single address is a network of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Network {
    address: IpAddr,
    /// Bits of the prefix: at most 32 (IPv4) or 128 (IPv6). All later bits of `address` are 0.
    length: u8,
}

impl Network {
    /// Returns the address and the length of the prefix.
    pub fn prefix(self) -> (IpAddr, u8) {
        (self.address, self.length)
    }

    /// Returns the network of one address.
    pub const fn host(address: IpAddr) -> Self {
        let length = if address.is_ipv4() { 32 } else { 128 };
        Network { address, length }
    }

    /// Returns the network of an address and a length in bits, at most 32 (IPv4) or 128 (IPv6).
    pub const fn new(address: IpAddr, length: u8) -> Self {
        Network { address, length }
    }

    /// Returns true for a network of IPv4.
    pub const fn is_ipv4(&self) -> bool {
        self.address.is_ipv4()
    }

    /// Returns the number of bits of the prefix.
    pub const fn length(&self) -> u8 {
        self.length
    }

    /// Returns true if the address has the network's prefix. An IPv4-mapped IPv6 address counts as
    /// IPv4.
    pub fn contains(&self, address: IpAddr) -> bool {
        let differs = match (self.address, address.to_canonical()) {
            (IpAddr::V4(own), IpAddr::V4(other)) => u128::from(own.to_bits() ^ other.to_bits()) << 96,
            (IpAddr::V6(own), IpAddr::V6(other)) => own.to_bits() ^ other.to_bits(),
            _ => return false,
        };
        differs.leading_zeros() >= u32::from(self.length)
    }
}

/// The text is not a network.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NetworkError {
    /// The text is neither an address nor an address with the length of a prefix.
    #[error("{0:?} is no address or network; write 192.0.2.1, 192.0.2.0/24 or 2001:db8::/32")]
    Syntax(String),
    /// The address has a bit set that is not in the prefix.
    #[error("{0:?} has bits behind its prefix; clear them or use a longer prefix")]
    HostBits(String),
}

impl FromStr for Network {
    type Err = NetworkError;

    fn from_str(text: &str) -> Result<Self, NetworkError> {
        let wrong = || NetworkError::Syntax(text.to_owned());
        let Some((address, length)) = text.split_once('/') else {
            return text.parse().map(Network::host).map_err(|_| wrong());
        };
        let address: IpAddr = address.parse().map_err(|_| wrong())?;
        let longest = Network::host(address).length;
        let length = length.parse().ok().filter(|length| *length <= longest).ok_or_else(wrong)?;
        let (bits, unused) = match address {
            IpAddr::V4(address) => (u128::from(address.to_bits()), 32 - u32::from(length)),
            IpAddr::V6(address) => (address.to_bits(), 128 - u32::from(length)),
        };
        match bits == 0 || bits.trailing_zeros() >= unused {
            true => Ok(Network { address, length }),
            false => Err(NetworkError::HostBits(text.to_owned())),
        }
    }
}

impl TryFrom<String> for Network {
    type Error = NetworkError;

    fn try_from(text: String) -> Result<Self, NetworkError> {
        text.parse()
    }
}

impl From<Network> for String {
    fn from(network: Network) -> Self {
        network.to_string()
    }
}

impl fmt::Display for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.length == Network::host(self.address).length {
            true => self.address.fmt(f),
            false => write!(f, "{}/{}", self.address, self.length),
        }
    }
}

/// Returns true if an address is local to the machine or in a network not routed on the internet.
///
/// These are loopback, RFC 1918, RFC 4193 and link-local addresses.
pub fn is_inside(address: IpAddr) -> bool {
    match address.to_canonical() {
        IpAddr::V4(address) => address.is_loopback() || address.is_private() || address.is_link_local(),
        IpAddr::V6(address) => address.is_loopback() || address.is_unique_local() || address.is_unicast_link_local(),
    }
}

/// Returns true if a node on another link can have the address. "This network", link-local,
/// multicast, reserved and broadcast addresses belong to none (RFC 6890), and IPv4-mapped ones are
/// not sent (RFC 4291 2.5.5.2). Loopback addresses count: a node may be on the same machine.
pub fn is_unicast(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(v4) => !matches!(v4.octets(), [0 | 224.., ..]) && !v4.is_link_local(),
        IpAddr::V6(v6) => {
            let is_local = v6.is_unicast_link_local() || v6.is_unspecified();
            !is_local && !v6.is_multicast() && v6.to_ipv4_mapped().is_none()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn network_contains_addresses_with_its_prefix() {
        let network = |text: &str| text.parse::<Network>().expect("a network");
        let address = |text: &str| text.parse::<IpAddr>().expect("an address");
        for (of, inside, outside) in [
            ("192.0.2.1", "192.0.2.1", "192.0.2.2"),
            ("192.0.2.0/24", "::ffff:192.0.2.77", "192.0.3.0"),
            ("0.0.0.0/0", "203.0.113.1", "2001:db8::1"),
            ("2001:db8::/32", "2001:db8:ffff::1", "2001:db9::1"),
            ("0.0.0.0/0", "10.0.0.1", "::10.0.0.1"),
            ("::/0", "::1", "10.0.0.1"),
        ] {
            assert!(network(of).contains(address(inside)), "{of}: {inside}");
            assert!(!network(of).contains(address(outside)), "{of}: {outside}");
            assert_eq!(network(of).to_string(), of);
        }
        for wrong in ["", "smf", "192.0.2.1/24", "192.0.2.0/33", "2001:db8::/129", "192.0.2.0/", "::1/64"] {
            assert!(wrong.parse::<Network>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn private_addresses_are_inside() {
        for (text, inside) in [("127.0.0.8", true), ("10.1.2.3", true), ("fd00::1", true), ("192.0.2.1", false)] {
            assert_eq!(is_inside(text.parse().expect("an address")), inside, "{text}");
        }
    }

    #[test]
    fn addresses_of_no_node_are_not_unicast() {
        for text in ["192.0.2.1", "127.0.0.8", "223.255.255.255", "2001:db8::1", "fd00::1", "::1"] {
            assert!(is_unicast(text.parse().expect("an address")), "{text}");
        }
        let none = ["0.0.0.0", "0.1.2.3", "169.254.169.254", "224.0.0.1", "240.0.0.1", "255.255.255.255"];
        for text in none.into_iter().chain(["::", "fe80::1", "ff05::2", "::ffff:192.0.2.1", "::ffff:127.0.0.1"]) {
            assert!(!is_unicast(text.parse().expect("an address")), "{text}");
        }
    }
}
