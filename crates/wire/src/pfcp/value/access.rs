use super::text::Octets;
use crate::pfcp::Error;
use crate::pfcp::ie::{Element, Reader};
use std::net::IpAddr;

/// SDF Filter (TS 29.244 8.2.5): selects packets of a session.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct SdfFilter {
    /// Flow Description: an IPFilterRule (RFC 6733 4.3.1) as restricted by TS 29.212 5.4.2.
    pub flow_description: Option<Octets>,
    /// ToS or Traffic Class in the first octet, its mask in the second.
    pub traffic_class: Option<u16>,
    /// Security Parameter Index of IPsec.
    pub spi: Option<u32>,
    /// IPv6 flow label, 20 bits.
    pub flow_label: Option<u32>,
    /// SDF Filter ID, by which later filters may refer to one that serves both directions.
    pub id: Option<u32>,
}

impl SdfFilter {
    /// Creates the filter of a flow description.
    pub fn new(flow_description: &str) -> Self {
        SdfFilter { flow_description: Some(flow_description.into()), ..Self::default() }
    }
}

impl Element for SdfFilter {
    const ID: u16 = 23;

    fn decode(octets: &[u8]) -> Result<Self, Error> {
        let mut r = Reader::new(Self::ID, octets);
        let [flags, _spare] = r.array()?;
        let bit = |n: u8| flags & (1 << n) != 0;
        let flow_description = r.when(bit(0), |r| {
            let length = r.u16()?;
            r.take(length.into()).map(Octets::from)
        })?;
        Ok(SdfFilter {
            flow_description,
            traffic_class: r.when(bit(1), Reader::u16)?,
            spi: r.when(bit(2), Reader::u32)?,
            flow_label: r.when(bit(3), |r| r.array().map(|[a, b, c]| u32::from_be_bytes([0, a & 0x0f, b, c])))?,
            id: r.when(bit(4), Reader::u32)?,
        })
    }

    /// Encodes the filter. A flow description above 65,535 octets makes the message too long (see
    /// [`crate::pfcp::Builder::finish`]).
    fn encode(&self, out: &mut Vec<u8>) {
        let bits = [
            self.flow_description.is_some(),
            self.traffic_class.is_some(),
            self.spi.is_some(),
            self.flow_label.is_some(),
            self.id.is_some(),
        ];
        let flags = bits.into_iter().enumerate().fold(0, |flags, (n, set)| flags | u8::from(set) << n);
        out.extend_from_slice(&[flags, 0]);
        if let Some(text) = &self.flow_description {
            out.extend_from_slice(&(text.len() as u16).to_be_bytes());
            out.extend_from_slice(text);
        }
        out.extend(self.traffic_class.iter().flat_map(|n| n.to_be_bytes()));
        out.extend(self.spi.iter().flat_map(|n| n.to_be_bytes()));
        out.extend(self.flow_label.iter().flat_map(|n| (n & 0x0f_ffff).to_be_bytes().into_iter().skip(1)));
        out.extend(self.id.iter().flat_map(|n| n.to_be_bytes()));
    }
}

/// Gate Status (TS 29.244 8.2.7): permits packets for each direction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct GateStatus {
    /// If true, uplink packets are dropped.
    pub uplink_closed: bool,
    /// If true, downlink packets are dropped.
    pub downlink_closed: bool,
}

impl GateStatus {
    /// Both directions are permitted.
    pub const OPEN: Self = GateStatus { uplink_closed: false, downlink_closed: false };
}

impl Element for GateStatus {
    const ID: u16 = 25;

    /// Decodes the gates. Values that a later release may define count as closed.
    fn decode(octets: &[u8]) -> Result<Self, Error> {
        let gates = Reader::new(Self::ID, octets).u8()?;
        Ok(GateStatus { uplink_closed: gates >> 2 & 0x03 != 0, downlink_closed: gates & 0x03 != 0 })
    }

    fn encode(&self, out: &mut Vec<u8>) {
        out.push(u8::from(self.uplink_closed) << 2 | u8::from(self.downlink_closed));
    }
}

macro_rules! rates {
    ($($(#[$m:meta])* $name:ident = $id:literal;)*) => {$(
        $(#[$m])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
        pub struct $name {
            /// Uplink, in kbit/s, 40 bits.
            pub uplink_kbps: u64,
            /// Downlink, in kbit/s, 40 bits.
            pub downlink_kbps: u64,
        }

        impl Element for $name {
            const ID: u16 = $id;

            fn decode(octets: &[u8]) -> Result<Self, Error> {
                let mut r = Reader::new($id, octets);
                Ok($name { uplink_kbps: r.u40()?, downlink_kbps: r.u40()? })
            }

            /// Encodes both rates. A rate above 40 bits is encoded as the maximum.
            fn encode(&self, out: &mut Vec<u8>) {
                for rate in [self.uplink_kbps, self.downlink_kbps] {
                    out.extend_from_slice(&rate.min((1 << 40) - 1).to_be_bytes()[3..]);
                }
            }
        }
    )*};
}

rates! {
    /// MBR (TS 29.244 8.2.8): maximum bit rate.
    Mbr = 26;
    /// GBR (TS 29.244 8.2.9): guaranteed bit rate.
    Gbr = 27;
}

/// Forwarding Policy (TS 29.244 8.2.23): the name of a policy in the configuration of the UPF.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct ForwardingPolicy(pub Octets);

impl Element for ForwardingPolicy {
    const ID: u16 = 41;

    fn decode(octets: &[u8]) -> Result<Self, Error> {
        let mut r = Reader::new(Self::ID, octets);
        let length = r.u8()?;
        r.take(length.into()).map(|name| ForwardingPolicy(name.into()))
    }

    /// Encodes the name, truncated to 255 octets.
    fn encode(&self, out: &mut Vec<u8>) {
        let length = self.0.len().min(usize::from(u8::MAX));
        out.push(length as u8);
        out.extend_from_slice(&self.0[..length]);
    }
}

/// Downlink Data Service Information (TS 29.244 8.2.27): properties of the first buffered packet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct DownlinkDataServiceInformation {
    /// Paging Policy Indication: the DSCP of the packet, 6 bits.
    pub paging_policy: Option<u8>,
    /// QFI of the packet, 6 bits.
    pub qfi: Option<u8>,
}

impl Element for DownlinkDataServiceInformation {
    const ID: u16 = 45;

    fn decode(octets: &[u8]) -> Result<Self, Error> {
        let mut r = Reader::new(Self::ID, octets);
        let flags = r.u8()?;
        let paging_policy = r.when(flags & 1 != 0, |r| r.u8().map(|n| n & 0x3f))?;
        let qfi = r.when(flags & 2 != 0, |r| r.u8().map(|n| n & 0x3f))?;
        Ok(DownlinkDataServiceInformation { paging_policy, qfi })
    }

    fn encode(&self, out: &mut Vec<u8>) {
        out.push(u8::from(self.paging_policy.is_some()) | u8::from(self.qfi.is_some()) << 1);
        out.extend(self.paging_policy.map(|n| n & 0x3f));
        out.extend(self.qfi.map(|n| n & 0x3f));
    }
}

/// DL Buffering Suggested Packet Count (TS 29.244 8.2.30), encoded in one or two octets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct DlBufferingSuggestedPacketCount(pub u16);

impl Element for DlBufferingSuggestedPacketCount {
    const ID: u16 = 48;

    fn decode(octets: &[u8]) -> Result<Self, Error> {
        match *octets {
            [] => Err(Error::length(Self::ID)),
            [count] => Ok(DlBufferingSuggestedPacketCount(count.into())),
            [high, low, ..] => Ok(DlBufferingSuggestedPacketCount(u16::from_be_bytes([high, low]))),
        }
    }

    fn encode(&self, out: &mut Vec<u8>) {
        match u8::try_from(self.0) {
            Ok(count) => out.push(count),
            Err(_) => out.extend_from_slice(&self.0.to_be_bytes()),
        }
    }
}

/// Remote GTP-U Peer (TS 29.244 8.2.70). The optional interface and network instance are skipped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RemoteGtpuPeer(pub IpAddr);

impl Element for RemoteGtpuPeer {
    const ID: u16 = 103;

    fn decode(octets: &[u8]) -> Result<Self, Error> {
        let mut r = Reader::new(Self::ID, octets);
        match r.u8()? & 0x03 {
            0 => Err(Error::incorrect(Self::ID)),
            1 => r.ipv6().map(|a| RemoteGtpuPeer(a.into())),
            _ => r.ipv4().map(|a| RemoteGtpuPeer(a.into())),
        }
    }

    fn encode(&self, out: &mut Vec<u8>) {
        match self.0 {
            IpAddr::V4(address) => {
                out.push(2);
                out.extend_from_slice(&address.octets());
            }
            IpAddr::V6(address) => {
                out.push(1);
                out.extend_from_slice(&address.octets());
            }
        }
    }
}
