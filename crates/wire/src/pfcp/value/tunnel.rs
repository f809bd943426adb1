use super::node::put_addresses;
use crate::pfcp::Error;
use crate::pfcp::ie::{Element, Reader};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use vireo_types::Teid;

/// F-TEID (TS 29.244 8.2.3): one end of a GTP-U tunnel, or a request that the UPF allocate one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FTeid {
    /// An allocated tunnel end, with at least one address.
    Allocated { teid: Teid, ipv4: Option<Ipv4Addr>, ipv6: Option<Ipv6Addr> },
    /// The UPF must allocate the tunnel end (CH).
    Choose {
        /// True to request an IPv4 address.
        ipv4: bool,
        /// True to request an IPv6 address.
        ipv6: bool,
        /// CHOOSE ID: all PDRs of the request with the same value get the same F-TEID.
        id: Option<u8>,
    },
}

impl FTeid {
    /// Creates a tunnel end with one address.
    pub fn new(teid: Teid, address: IpAddr) -> Self {
        match address {
            IpAddr::V4(ipv4) => FTeid::Allocated { teid, ipv4: Some(ipv4), ipv6: None },
            IpAddr::V6(ipv6) => FTeid::Allocated { teid, ipv4: None, ipv6: Some(ipv6) },
        }
    }

    /// Returns the TEID, if allocated.
    pub const fn teid(&self) -> Option<Teid> {
        match self {
            FTeid::Allocated { teid, .. } => Some(*teid),
            FTeid::Choose { .. } => None,
        }
    }

    /// Returns an address, IPv4 before IPv6, if allocated.
    pub fn address(&self) -> Option<IpAddr> {
        match *self {
            FTeid::Allocated { ipv4, ipv6, .. } => ipv4.map(IpAddr::V4).or(ipv6.map(IpAddr::V6)),
            FTeid::Choose { .. } => None,
        }
    }
}

impl Element for FTeid {
    const ID: u16 = 21;

    fn decode(octets: &[u8]) -> Result<Self, Error> {
        let mut r = Reader::new(Self::ID, octets);
        let flags = r.u8()?;
        let (v4, v6, ch, chid) = (flags & 0x01 != 0, flags & 0x02 != 0, flags & 0x04 != 0, flags & 0x08 != 0);
        if !v4 && !v6 {
            return Err(Error::incorrect(Self::ID));
        }
        if ch {
            return Ok(FTeid::Choose { ipv4: v4, ipv6: v6, id: r.when(chid, Reader::u8)? });
        }
        let teid = Teid(r.u32()?);
        let ipv4 = r.when(v4, Reader::ipv4)?;
        let ipv6 = r.when(v6, Reader::ipv6)?;
        Ok(FTeid::Allocated { teid, ipv4, ipv6 })
    }

    fn encode(&self, out: &mut Vec<u8>) {
        match *self {
            FTeid::Allocated { teid, ipv4, ipv6 } => {
                out.push(u8::from(ipv4.is_some()) | u8::from(ipv6.is_some()) << 1);
                out.extend_from_slice(&teid.0.to_be_bytes());
                put_addresses(out, ipv4, ipv6);
            }
            FTeid::Choose { ipv4, ipv6, id } => {
                out.push(u8::from(ipv4) | u8::from(ipv6) << 1 | 0x04 | u8::from(id.is_some()) << 3);
                out.extend(id);
            }
        }
    }
}

/// UE IP Address (TS 29.244 8.2.62).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct UeIpAddress {
    pub ipv4: Option<Ipv4Addr>,
    /// IPv6 address, or the prefix with its low bits zero.
    pub ipv6: Option<Ipv6Addr>,
    /// S/D: the address is the destination of the packets (downlink), else their source.
    pub destination: bool,
    /// Number of bits by which a delegated prefix is shorter than 64 (IPv6D).
    pub delegation_bits: Option<u8>,
    /// Length of the prefix if it is not 64 (IP6PL).
    pub prefix_length: Option<u8>,
    /// The UPF must choose the IPv4 address (CHV4).
    pub choose_ipv4: bool,
    /// The UPF must choose the IPv6 prefix (CHV6).
    pub choose_ipv6: bool,
}

impl UeIpAddress {
    /// Returns the address as the source of uplink packets.
    pub fn source(ipv4: Option<Ipv4Addr>, ipv6: Option<Ipv6Addr>) -> Self {
        UeIpAddress { ipv4, ipv6, ..UeIpAddress::default() }
    }

    /// Returns the address as the destination of downlink packets.
    pub fn destination(ipv4: Option<Ipv4Addr>, ipv6: Option<Ipv6Addr>) -> Self {
        UeIpAddress { destination: true, ..Self::source(ipv4, ipv6) }
    }
}

impl Element for UeIpAddress {
    const ID: u16 = 93;

    fn decode(octets: &[u8]) -> Result<Self, Error> {
        let mut r = Reader::new(Self::ID, octets);
        let flags = r.u8()?;
        let bit = |n: u8| flags & (1 << n) != 0;
        Ok(UeIpAddress {
            ipv4: r.when(bit(1), Reader::ipv4)?,
            ipv6: r.when(bit(0), Reader::ipv6)?,
            destination: bit(2),
            delegation_bits: r.when(bit(3), Reader::u8)?,
            prefix_length: r.when(bit(6), Reader::u8)?,
            choose_ipv4: bit(4),
            choose_ipv6: bit(5),
        })
    }

    fn encode(&self, out: &mut Vec<u8>) {
        let bits = [
            self.ipv6.is_some(),
            self.ipv4.is_some(),
            self.destination,
            self.delegation_bits.is_some(),
            self.choose_ipv4,
            self.choose_ipv6,
            self.prefix_length.is_some(),
        ];
        out.push(bits.into_iter().enumerate().fold(0, |flags, (n, set)| flags | u8::from(set) << n));
        put_addresses(out, self.ipv4, self.ipv6);
        out.extend(self.delegation_bits);
        out.extend(self.prefix_length);
    }
}

/// Outer Header Removal (TS 29.244 8.2.64).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct OuterHeaderRemoval {
    /// Outer Header Removal Description (TS 29.244 8.2.64).
    pub description: u8,
    /// GTP-U Extension Header Deletion: bit 1 = the PDU Session Container.
    pub extension_deletion: Option<u8>,
}

impl OuterHeaderRemoval {
    /// GTP-U/UDP/IPv4.
    pub const GTPU_IPV4: Self = OuterHeaderRemoval { description: 0, extension_deletion: None };
    /// GTP-U/UDP/IPv6.
    pub const GTPU_IPV6: Self = OuterHeaderRemoval { description: 1, extension_deletion: None };
    /// GTP-U/UDP over IPv4 or IPv6.
    pub const GTPU: Self = OuterHeaderRemoval { description: 6, extension_deletion: None };

    /// GTP-U Extension Header Deletion of the PDU Session Container.
    pub const PDU_SESSION_CONTAINER: u8 = 1;

    /// Returns true if it removes a GTP-U header.
    pub const fn is_gtpu(&self) -> bool {
        matches!(self.description, 0 | 1 | 6)
    }
}

impl Element for OuterHeaderRemoval {
    const ID: u16 = 95;

    fn decode(octets: &[u8]) -> Result<Self, Error> {
        let mut r = Reader::new(Self::ID, octets);
        let description = r.u8()?;
        Ok(OuterHeaderRemoval { description, extension_deletion: r.rest().first().copied() })
    }

    fn encode(&self, out: &mut Vec<u8>) {
        out.push(self.description);
        out.extend(self.extension_deletion);
    }
}

/// Outer Header Creation (TS 29.244 8.2.56). The fields determine the header, over the given
/// addresses: GTP-U with a TEID, else UDP with a port, else IP.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct OuterHeaderCreation {
    /// TEID at the peer.
    pub teid: Option<Teid>,
    /// IPv4 address of the peer.
    pub ipv4: Option<Ipv4Addr>,
    /// IPv6 address of the peer.
    pub ipv6: Option<Ipv6Addr>,
    /// UDP port of the peer, for UDP without GTP-U.
    pub port: Option<u16>,
    /// C-TAG (PCP, DEI and VID of TS 29.244 8.2.94).
    pub c_tag: Option<[u8; 3]>,
    /// S-TAG, encoded like the C-TAG.
    pub s_tag: Option<[u8; 3]>,
    /// Octet 6 of the description: bit 1 = N19, bit 2 = N6.
    pub indications: u8,
}

impl OuterHeaderCreation {
    /// Creates a GTP-U header towards one peer.
    pub fn gtpu(teid: Teid, peer: IpAddr) -> Self {
        let (ipv4, ipv6) = match peer {
            IpAddr::V4(address) => (Some(address), None),
            IpAddr::V6(address) => (None, Some(address)),
        };
        OuterHeaderCreation { teid: Some(teid), ipv4, ipv6, ..Self::default() }
    }

    /// Returns the peer's address, IPv4 before IPv6.
    pub fn peer(&self) -> Option<IpAddr> {
        self.ipv4.map(IpAddr::V4).or(self.ipv6.map(IpAddr::V6))
    }
}

impl Element for OuterHeaderCreation {
    const ID: u16 = 84;

    fn decode(octets: &[u8]) -> Result<Self, Error> {
        let mut r = Reader::new(Self::ID, octets);
        let [kinds, indications] = r.array()?;
        let (gtpu, udp, ip) = (kinds & 0x03, kinds >> 2 & 0x03, kinds >> 4 & 0x03);
        if [gtpu, udp, ip].into_iter().filter(|kind| *kind != 0).count() > 1 {
            return Err(Error::incorrect(Self::ID));
        }
        let families = gtpu | udp | ip;
        Ok(OuterHeaderCreation {
            teid: r.when(gtpu != 0, |r| r.u32().map(Teid))?,
            ipv4: r.when(families & 1 != 0, Reader::ipv4)?,
            ipv6: r.when(families & 2 != 0, Reader::ipv6)?,
            port: r.when(udp != 0, Reader::u16)?,
            c_tag: r.when(kinds & 0x40 != 0, Reader::array)?,
            s_tag: r.when(kinds & 0x80 != 0, Reader::array)?,
            indications,
        })
    }

    fn encode(&self, out: &mut Vec<u8>) {
        let families = u8::from(self.ipv4.is_some()) | u8::from(self.ipv6.is_some()) << 1;
        let shift = match (self.teid, self.port) {
            (Some(_), _) => 0,
            (None, Some(_)) => 2,
            (None, None) => 4,
        };
        let tags = u8::from(self.c_tag.is_some()) << 6 | u8::from(self.s_tag.is_some()) << 7;
        out.extend_from_slice(&[families << shift | tags, self.indications]);
        if families != 0 {
            out.extend(self.teid.iter().flat_map(|teid| teid.0.to_be_bytes()));
        }
        put_addresses(out, self.ipv4, self.ipv6);
        if families != 0 && self.teid.is_none() {
            out.extend(self.port.iter().flat_map(|port| port.to_be_bytes()));
        }
        out.extend(self.c_tag.iter().flatten());
        out.extend(self.s_tag.iter().flatten());
    }
}
