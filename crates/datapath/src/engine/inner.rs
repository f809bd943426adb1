//! User packets, as far as a UPF reads them: version, lengths, header checksum and addresses.

use crate::engine::frame_layout;
use crate::engine::index::AddressKey;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// A valid IPv4 or IPv6 packet without trailing octets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Inner<'a> {
    V4 { source: u32, destination: u32, packet: &'a [u8] },
    V6 { source: u128, destination: u128, packet: &'a [u8] },
}

impl<'a> Inner<'a> {
    /// Returns the packet without trailing octets.
    #[inline]
    pub(crate) fn packet(&self) -> &'a [u8] {
        match *self {
            Inner::V4 { packet, .. } | Inner::V6 { packet, .. } => packet,
        }
    }

    pub(crate) fn source(&self) -> IpAddr {
        match *self {
            Inner::V4 { source, .. } => Ipv4Addr::from_bits(source).into(),
            Inner::V6 { source, .. } => Ipv6Addr::from_bits(source).into(),
        }
    }

    pub(crate) fn destination(&self) -> IpAddr {
        match *self {
            Inner::V4 { destination, .. } => Ipv4Addr::from_bits(destination).into(),
            Inner::V6 { destination, .. } => Ipv6Addr::from_bits(destination).into(),
        }
    }

    /// Checks the header. Returns `None` if the packet is not valid for its IP version.
    #[inline]
    pub(crate) fn read(data: &'a [u8]) -> Option<Self> {
        match data.first()? >> 4 {
            4 => {
                let header: &[u8; 20] = data.first_chunk()?;
                let header_octets = usize::from(header[0] & 0xf) * 4;
                let total = usize::from(u16::from_be_bytes([header[2], header[3]]));
                if header_octets < 20 || total < header_octets {
                    return None;
                }
                let packet = data.get(..total)?;
                // A header without options has a constant length, and its sum needs no loop.
                let is_intact = match header_octets {
                    20 => frame_layout::is_intact(header),
                    _ => frame_layout::is_intact(&packet[..header_octets]),
                };
                if !is_intact {
                    return None;
                }
                Some(Inner::V4 { source: u32_at(header, 12), destination: u32_at(header, 16), packet })
            }
            6 => {
                let header: &[u8; 40] = data.first_chunk()?;
                // A jumbogram (payload length 0) does not fit a tunnel: it reads as a packet
                // without payload.
                let packet = data.get(..40 + usize::from(u16::from_be_bytes([header[4], header[5]])))?;
                Some(Inner::V6 { source: u128_at(header, 8), destination: u128_at(header, 24), packet })
            }
            _ => None,
        }
    }
}

/// Returns the lookup key of a packet's destination without checking the packet.
#[inline]
pub(crate) fn destination(packet: &[u8]) -> Option<AddressKey> {
    match packet.first()? >> 4 {
        4 => packet.get(16..)?.first_chunk().map(|octets| AddressKey::V4(u32::from_be_bytes(*octets))),
        6 => packet.get(24..)?.first_chunk().map(|octets| AddressKey::V6(u64::from_be_bytes(*octets))),
        _ => None,
    }
}

#[inline]
fn u32_at(header: &[u8], at: usize) -> u32 {
    header[at..].first_chunk().map_or(0, |octets| u32::from_be_bytes(*octets))
}

#[inline]
fn u128_at(header: &[u8], at: usize) -> u128 {
    header[at..].first_chunk().map_or(0, |octets| u128::from_be_bytes(*octets))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn checksum_covers_options() {
        let mut packet = [0x46, 0, 0, 24, 0, 0, 0, 0, 64, 17, 0x64, 0xd2, 10, 0, 0, 1, 10, 0, 0, 2, 1, 1, 0, 0];
        assert!(Inner::read(&packet).is_some());
        packet[20] = 2;
        assert_eq!(Inner::read(&packet), None);
    }

    #[test]
    fn lengths_are_checked_and_what_follows_is_cut() {
        let mut v4 = vec![0x45, 0, 0, 21, 0, 0, 0, 0, 64, 17, 0x66, 0xd6, 10, 0, 0, 1, 10, 0, 0, 2, 0xaa, 0xbb];
        let expected = Inner::V4 { source: 0x0a00_0001, destination: 0x0a00_0002, packet: &v4[..21] };
        assert_eq!(Inner::read(&v4), Some(expected));
        for length in 0..21 {
            assert_eq!(Inner::read(&v4[..length]), None, "{length}");
        }
        for bit in 0..160 {
            let mut wrong = v4.clone();
            wrong[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(Inner::read(&wrong), None, "a wrong bit {bit}");
        }
        v4[0] = 0x44;
        assert_eq!(Inner::read(&v4), None, "a header of 16 octets");
        v4[0] = 0x46;
        assert_eq!(Inner::read(&v4), None, "a header longer than the packet");

        let mut v6 = [0; 44];
        v6[0] = 0x60;
        v6[5] = 4;
        v6[23] = 1;
        v6[39] = 2;
        assert_eq!(Inner::read(&v6), Some(Inner::V6 { source: 1, destination: 2, packet: &v6 }));
        assert_eq!(Inner::read(&v6[..43]), None);
        v6[0] = 0x50;
        assert_eq!(Inner::read(&v6), None);
    }
}
