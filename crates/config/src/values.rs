//! Values of the configuration file.

use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::str::FromStr;

/// Duration: `"54m"`, `"6s"`, `"1h 30m"`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct DurationText(pub(crate) vireo_types::Duration);

impl<'de> Deserialize<'de> for DurationText {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        let text = String::deserialize(d)?;
        let span = humantime::parse_duration(&text);
        span.map(|s| DurationText(s.into())).map_err(|_| {
            Error::custom(format!("{text:?} is no span of time: write a number and its unit, as in \"6s\" or \"54m\""))
        })
    }
}

impl Serialize for DurationText {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        s.collect_str(&humantime::format_duration(self.0.into()))
    }
}

/// Number, or `"auto"` for a value that suits the machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CountOrAuto {
    Auto,
    Fixed(usize),
}

impl CountOrAuto {
    pub(crate) fn or(self, auto: usize) -> usize {
        match self {
            CountOrAuto::Auto => auto,
            CountOrAuto::Fixed(n) => n,
        }
    }
}

impl<'de> Deserialize<'de> for CountOrAuto {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(untagged)]
        enum Form {
            Number(usize),
            Text(String),
        }
        let wrong = || Error::custom("a number above 0 or \"auto\" is allowed");
        match Form::deserialize(d).map_err(|_| wrong())? {
            Form::Number(n) if n > 0 => Ok(CountOrAuto::Fixed(n)),
            Form::Text(t) if t == "auto" => Ok(CountOrAuto::Auto),
            Form::Number(_) | Form::Text(_) => Err(wrong()),
        }
    }
}

impl Serialize for CountOrAuto {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        match self {
            CountOrAuto::Auto => s.serialize_str("auto"),
            CountOrAuto::Fixed(n) => s.serialize_u64(*n as u64),
        }
    }
}

/// The text of a key is not a value of its type, or names nothing on this machine.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum ValueError {
    #[error("\"auto\" finds no default route on this machine: write the address that the peers reach")]
    NoDefaultRoute,
    #[error("{0:?} is no IP address, and not \"auto\"")]
    LocalAddress(String),
    #[error("{0:?} is no address with a port, as in \"127.0.0.1:9090\", and not \"off\"")]
    Listen(String),
    #[error("{text:?} is no network with a prefix length, as in {example:?}")]
    Prefix { text: String, example: &'static str },
    #[error("{0:?} has bits after its prefix: write the network's first address")]
    HostBits(String),
}

/// Address of this machine: an explicit one, or `"auto"` for the source address of the default
/// route.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LocalAddress {
    Auto,
    Fixed(IpAddr),
}

impl LocalAddress {
    /// Resolves the address.
    pub(crate) fn resolve(self) -> Result<IpAddr, ValueError> {
        match self {
            LocalAddress::Fixed(address) => Ok(address),
            LocalAddress::Auto => default_route().ok_or(ValueError::NoDefaultRoute),
        }
    }
}

/// Returns the kernel's source address towards the internet. Connecting a UDP socket sends nothing.
/// The destination is a documentation address (RFC 5737).
fn default_route() -> Option<IpAddr> {
    let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)).ok()?;
    socket.connect((Ipv4Addr::new(192, 0, 2, 1), 9)).ok()?;
    socket.local_addr().ok().map(|a| a.ip()).filter(|a| !a.is_unspecified())
}

impl FromStr for LocalAddress {
    type Err = ValueError;

    fn from_str(s: &str) -> Result<Self, ValueError> {
        match s {
            "auto" => Ok(LocalAddress::Auto),
            _ => s.parse().map(LocalAddress::Fixed).map_err(|_| ValueError::LocalAddress(s.to_owned())),
        }
    }
}

impl fmt::Display for LocalAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            LocalAddress::Auto => f.write_str("auto"),
            LocalAddress::Fixed(address) => address.fmt(f),
        }
    }
}

/// Listen address, or `"off"`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Listen(pub(crate) Option<SocketAddr>);

impl FromStr for Listen {
    type Err = ValueError;

    fn from_str(s: &str) -> Result<Self, ValueError> {
        if s == "off" {
            return Ok(Listen(None));
        }
        s.parse().map(|a| Listen(Some(a))).map_err(|_| ValueError::Listen(s.to_owned()))
    }
}

impl fmt::Display for Listen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            None => f.write_str("off"),
            Some(address) => address.fmt(f),
        }
    }
}

/// Network with its prefix length, host bits zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Prefix<A>(pub(crate) A, pub(crate) u8);

/// Requirements of [`Prefix`] on an address.
pub(crate) trait Address: FromStr + fmt::Display + Copy {
    const BITS: u8;
    const EXAMPLE: &'static str;
    fn host_bits(self, prefix: u8) -> u128;
}

impl Address for Ipv4Addr {
    const BITS: u8 = 32;
    const EXAMPLE: &'static str = "10.45.0.0/16";

    fn host_bits(self, prefix: u8) -> u128 {
        u128::from(u32::from(self).checked_shl(prefix.into()).unwrap_or(0))
    }
}

impl Address for Ipv6Addr {
    const BITS: u8 = 128;
    const EXAMPLE: &'static str = "fd45:45::/48";

    fn host_bits(self, prefix: u8) -> u128 {
        u128::from(self).checked_shl(prefix.into()).unwrap_or(0)
    }
}

impl<A: Address> FromStr for Prefix<A> {
    type Err = ValueError;

    fn from_str(s: &str) -> Result<Self, ValueError> {
        let parsed = s.split_once('/').and_then(|(a, p)| Some((a.parse::<A>().ok()?, p.parse::<u8>().ok()?)));
        let (address, prefix) = parsed
            .filter(|(_, prefix)| *prefix <= A::BITS)
            .ok_or_else(|| ValueError::Prefix { text: s.to_owned(), example: A::EXAMPLE })?;
        if address.host_bits(prefix) != 0 {
            return Err(ValueError::HostBits(s.to_owned()));
        }
        Ok(Prefix(address, prefix))
    }
}

impl<A: Address> fmt::Display for Prefix<A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.0, self.1)
    }
}

/// Serialises and deserialises as the text of `FromStr` and `Display`.
macro_rules! as_text {
    ($($type:ty),+) => {$(
        impl<'de> Deserialize<'de> for $type {
            fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
                String::deserialize(d)?.parse().map_err(Error::custom)
            }
        }

        impl Serialize for $type {
            fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
                s.collect_str(self)
            }
        }
    )+};
}

as_text!(LocalAddress, Listen, Prefix<Ipv4Addr>, Prefix<Ipv6Addr>);

/// Secret value, excluded from output.
#[derive(Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(transparent)]
pub(crate) struct Secret(pub(crate) String);

impl Serialize for Secret {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        s.serialize_str("(not shown)")
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("(not shown)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn networks_have_no_host_bits() {
        assert_eq!("10.45.0.0/16".parse(), Ok(Prefix(Ipv4Addr::new(10, 45, 0, 0), 16)));
        assert_eq!("10.45.0.1/32".parse(), Ok(Prefix(Ipv4Addr::new(10, 45, 0, 1), 32)));
        assert!("fd45:45::/48".parse::<Prefix<Ipv6Addr>>().is_ok());
        for bad in ["10.45.0.0", "10.45.0.0/33", "10.45.0.1/16", "x/8", "fd45::/16"] {
            assert!(bad.parse::<Prefix<Ipv4Addr>>().is_err(), "{bad}");
        }
        assert!("fd45:45::1/48".parse::<Prefix<Ipv6Addr>>().is_err());
    }

    #[test]
    fn secret_is_never_shown() {
        let secret = Secret("c53c".into());
        assert!(!format!("{secret:?}").contains("c53c"));
        assert!(!serde_json::to_string(&secret).expect("a text").contains("c53c"));
    }
}
