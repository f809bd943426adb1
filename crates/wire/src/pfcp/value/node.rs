use super::text::{NAME, Octets, labels, labels_are};
use crate::pfcp::Error;
use crate::pfcp::ie::{Element, Reader};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use vireo_types::{Duration, Snssai, Supi};

/// Node ID (TS 29.244 8.2.38).
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum NodeId {
    Ipv4(Ipv4Addr),
    Ipv6(Ipv6Addr),
    /// A domain name, encoded as labels.
    Fqdn(Octets),
}

impl NodeId {
    /// Creates the Node ID of a domain name. Returns `None` if a label is empty or too long.
    pub fn fqdn(name: &str) -> Option<Self> {
        labels(name).map(NodeId::Fqdn)
    }

    /// Returns true if it is this domain name.
    pub fn is_fqdn(&self, name: &str) -> bool {
        matches!(self, NodeId::Fqdn(octets) if labels_are(octets, name))
    }

    /// Returns the address, or `None` for a domain name.
    pub fn address(&self) -> Option<IpAddr> {
        match self {
            NodeId::Ipv4(address) => Some((*address).into()),
            NodeId::Ipv6(address) => Some((*address).into()),
            NodeId::Fqdn(_) => None,
        }
    }
}

impl From<IpAddr> for NodeId {
    fn from(address: IpAddr) -> Self {
        match address {
            IpAddr::V4(address) => NodeId::Ipv4(address),
            IpAddr::V6(address) => NodeId::Ipv6(address),
        }
    }
}

impl Element for NodeId {
    const ID: u16 = 60;

    fn decode(octets: &[u8]) -> Result<Self, Error> {
        let mut r = Reader::new(Self::ID, octets);
        match r.u8()? & 0x0f {
            0 => r.ipv4().map(NodeId::Ipv4),
            1 => r.ipv6().map(NodeId::Ipv6),
            2 if r.rest().len() <= NAME => Ok(NodeId::Fqdn(r.rest().into())),
            _ => Err(Error::incorrect(Self::ID)),
        }
    }

    fn encode(&self, out: &mut Vec<u8>) {
        match self {
            NodeId::Ipv4(address) => {
                out.push(0);
                out.extend_from_slice(&address.octets());
            }
            NodeId::Ipv6(address) => {
                out.push(1);
                out.extend_from_slice(&address.octets());
            }
            NodeId::Fqdn(name) => {
                out.push(2);
                out.extend_from_slice(name);
            }
        }
    }
}

/// F-SEID (TS 29.244 8.2.37): a SEID and the addresses of the node that assigned it, at least one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FSeid {
    pub seid: u64,
    pub ipv4: Option<Ipv4Addr>,
    pub ipv6: Option<Ipv6Addr>,
}

impl FSeid {
    /// Creates the F-SEID with one address.
    pub fn new(seid: u64, address: IpAddr) -> Self {
        match address {
            IpAddr::V4(ipv4) => FSeid { seid, ipv4: Some(ipv4), ipv6: None },
            IpAddr::V6(ipv6) => FSeid { seid, ipv4: None, ipv6: Some(ipv6) },
        }
    }
}

impl Element for FSeid {
    const ID: u16 = 57;

    fn decode(octets: &[u8]) -> Result<Self, Error> {
        let mut r = Reader::new(Self::ID, octets);
        let flags = r.u8()?;
        if flags & 0x03 == 0 {
            return Err(Error::incorrect(Self::ID));
        }
        let seid = r.u64()?;
        let ipv4 = r.when(flags & 0x02 != 0, Reader::ipv4)?;
        let ipv6 = r.when(flags & 0x01 != 0, Reader::ipv6)?;
        Ok(FSeid { seid, ipv4, ipv6 })
    }

    fn encode(&self, out: &mut Vec<u8>) {
        out.push(u8::from(self.ipv4.is_some()) << 1 | u8::from(self.ipv6.is_some()));
        out.extend_from_slice(&self.seid.to_be_bytes());
        put_addresses(out, self.ipv4, self.ipv6);
    }
}

pub(super) fn put_addresses(out: &mut Vec<u8>, ipv4: Option<Ipv4Addr>, ipv6: Option<Ipv6Addr>) {
    if let Some(ipv4) = ipv4 {
        out.extend_from_slice(&ipv4.octets());
    }
    if let Some(ipv6) = ipv6 {
        out.extend_from_slice(&ipv6.octets());
    }
}

/// CP PFCP Entity IP Address (TS 29.244 8.2.135), with at least one address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct CpPfcpEntityIpAddress {
    pub ipv4: Option<Ipv4Addr>,
    pub ipv6: Option<Ipv6Addr>,
}

impl From<IpAddr> for CpPfcpEntityIpAddress {
    fn from(address: IpAddr) -> Self {
        match address {
            IpAddr::V4(ipv4) => CpPfcpEntityIpAddress { ipv4: Some(ipv4), ipv6: None },
            IpAddr::V6(ipv6) => CpPfcpEntityIpAddress { ipv4: None, ipv6: Some(ipv6) },
        }
    }
}

impl Element for CpPfcpEntityIpAddress {
    const ID: u16 = 185;

    fn decode(octets: &[u8]) -> Result<Self, Error> {
        let mut r = Reader::new(Self::ID, octets);
        let flags = r.u8()?;
        if flags & 0x03 == 0 {
            return Err(Error::incorrect(Self::ID));
        }
        let ipv4 = r.when(flags & 0x02 != 0, Reader::ipv4)?;
        let ipv6 = r.when(flags & 0x01 != 0, Reader::ipv6)?;
        Ok(CpPfcpEntityIpAddress { ipv4, ipv6 })
    }

    fn encode(&self, out: &mut Vec<u8>) {
        out.push(u8::from(self.ipv4.is_some()) << 1 | u8::from(self.ipv6.is_some()));
        put_addresses(out, self.ipv4, self.ipv6);
    }
}

/// Defines durations in the encoding of PFCP timers: a unit (3 bits) and a count of it (5 bits).
macro_rules! timers {
    ($($(#[$m:meta])* $name:ident = $id:literal;)*) => {$(
        $(#[$m])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub struct $name(pub u8);

        impl $name {
            /// Returns the duration; `None` = infinite.
            pub const fn span(self) -> Option<Duration> {
                let unit = match self.0 >> 5 {
                    0 => 2,
                    2 => 600,
                    3 => 3_600,
                    4 => 36_000,
                    7 => return None,
                    _ => 60,
                };
                Some(Duration::from_secs(unit * (self.0 & 0x1f) as u64))
            }

            /// Returns the shortest duration of at least `span`; infinite above 310 hours.
            pub fn at_least(span: Duration) -> Self {
                let seconds = span.0.div_ceil(1_000_000);
                let units = [(0, 2), (1, 60), (2, 600), (3, 3_600), (4, 36_000)];
                let fit = units.into_iter().find(|(_, unit)| seconds.div_ceil(*unit) <= 0x1f);
                $name(fit.map_or(7 << 5, |(code, unit)| code << 5 | seconds.div_ceil(unit) as u8))
            }
        }

        impl Element for $name {
            const ID: u16 = $id;

            fn decode(octets: &[u8]) -> Result<Self, Error> {
                Reader::new($id, octets).u8().map($name)
            }

            fn encode(&self, out: &mut Vec<u8>) {
                out.push(self.0);
            }
        }
    )*};
}

timers! {
    /// Graceful Release Period (TS 29.244 8.2.78).
    GracefulReleasePeriod = 112;
    /// DL Buffering Duration (TS 29.244 8.2.29).
    DlBufferingDuration = 47;
}

/// S-NSSAI (TS 29.244 8.2.176): SST and SD; the SD 0xFFFFFF means none (TS 23.003 28.4.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct SliceId(pub Snssai);

const NO_SD: u32 = 0xff_ffff;

impl Element for SliceId {
    const ID: u16 = 257;

    fn decode(octets: &[u8]) -> Result<Self, Error> {
        let [sst, a, b, c] = Reader::new(Self::ID, octets).array()?;
        let sd = u32::from_be_bytes([0, a, b, c]);
        Ok(SliceId(Snssai { sst, sd: (sd != NO_SD).then_some(sd) }))
    }

    fn encode(&self, out: &mut Vec<u8>) {
        let [_, a, b, c] = self.0.sd.unwrap_or(NO_SD).to_be_bytes();
        out.extend_from_slice(&[self.0.sst, a, b, c]);
    }
}

/// User ID (TS 29.244 8.2.101): identities of the subscriber that a UPF may know. The digits of
/// IMSI, IMEI and MSISDN are in the swapped nibbles of TS 29.274. Identities of later releases are
/// skipped.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct UserId {
    pub imsi: Option<Octets>,
    pub imei: Option<Octets>,
    pub msisdn: Option<Octets>,
    /// Network Access Identifier (NAI).
    pub nai: Option<Octets>,
}

impl UserId {
    /// Creates the User ID of a SUPI that contains an IMSI.
    pub fn imsi(supi: Supi) -> Self {
        let digits = supi.reveal();
        let digit = |n: usize| digits.as_bytes().get(n).map_or(0x0f, |d| d - b'0');
        let octets: Vec<u8> = (0..digits.len()).step_by(2).map(|n| digit(n + 1) << 4 | digit(n)).collect();
        UserId { imsi: Some(octets[..].into()), ..UserId::default() }
    }

    fn fields(&self) -> [&Option<Octets>; 4] {
        [&self.imsi, &self.imei, &self.msisdn, &self.nai]
    }
}

impl Element for UserId {
    const ID: u16 = 141;

    fn decode(octets: &[u8]) -> Result<Self, Error> {
        let mut r = Reader::new(Self::ID, octets);
        let flags = r.u8()?;
        let mut field = |bit: u8| {
            r.when(flags & bit != 0, |r| {
                let length = r.u8()?;
                r.take(length.into()).map(Octets::from)
            })
        };
        Ok(UserId { imsi: field(1)?, imei: field(2)?, msisdn: field(4)?, nai: field(8)? })
    }

    /// Omits identities longer than 255 octets, which are invalid.
    fn encode(&self, out: &mut Vec<u8>) {
        let at = out.len();
        out.push(0);
        for (bit, field) in self.fields().into_iter().enumerate() {
            let Some(field) = field else { continue };
            let Ok(length) = u8::try_from(field.len()) else { continue };
            out[at] |= 1 << bit;
            out.push(length);
            out.extend_from_slice(field);
        }
    }
}

/// Failed Rule ID (TS 29.244 8.2.80): the rule that could not be created or changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FailedRuleId {
    Pdr(u16),
    Far(u32),
    Qer(u32),
    Urr(u32),
    Bar(u8),
}

impl Element for FailedRuleId {
    const ID: u16 = 114;

    fn decode(octets: &[u8]) -> Result<Self, Error> {
        let mut r = Reader::new(Self::ID, octets);
        match r.u8()? & 0x1f {
            0 => r.u16().map(FailedRuleId::Pdr),
            1 => r.u32().map(FailedRuleId::Far),
            2 => r.u32().map(FailedRuleId::Qer),
            3 => r.u32().map(FailedRuleId::Urr),
            4 => r.u8().map(FailedRuleId::Bar),
            _ => Err(Error::incorrect(Self::ID)),
        }
    }

    fn encode(&self, out: &mut Vec<u8>) {
        let (kind, id) = match *self {
            FailedRuleId::Pdr(id) => {
                out.push(0);
                out.extend_from_slice(&id.to_be_bytes());
                return;
            }
            FailedRuleId::Bar(id) => {
                out.extend_from_slice(&[4, id]);
                return;
            }
            FailedRuleId::Far(id) => (1, id),
            FailedRuleId::Qer(id) => (2, id),
            FailedRuleId::Urr(id) => (3, id),
        };
        out.push(kind);
        out.extend_from_slice(&id.to_be_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn encoded_timer_is_never_shorter() {
        for (seconds, octet) in
            [(0, 0), (1, 1), (62, 31), (63, 1 << 5 | 2), (3_600, 2 << 5 | 6), (1_116_000, 4 << 5 | 31)]
        {
            let timer = GracefulReleasePeriod::at_least(Duration::from_secs(seconds));
            assert_eq!(timer.0, octet, "{seconds} s");
            assert!(timer.span() >= Some(Duration::from_secs(seconds)));
        }
        assert_eq!(GracefulReleasePeriod::at_least(Duration::from_secs(1_116_001)).span(), None);
    }

    #[test]
    fn names_are_labels() {
        let id = NodeId::fqdn("upf1.example.org").expect("good labels");
        let mut out = Vec::new();
        id.encode(&mut out);
        assert_eq!(out, b"\x02\x04upf1\x07example\x03org");
        assert!(id.is_fqdn("UPF1.example.org") && !id.is_fqdn("upf2.example.org"));
    }
}
