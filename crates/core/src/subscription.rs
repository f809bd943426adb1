//! Subscriber data and the requests to the subscriber service.
//!
//! Types are named after the services of TS 29.503. Responses arrive as events.

mod areas;
mod slice_id;
mod terms;
mod vectors;

use serde::de::{Error, SeqAccess, Visitor};
use serde::ser::SerializeTuple;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::net::{Ipv4Addr, Ipv6Addr};
use std::num::NonZeroU16;
use vireo_types::{Dialect, Dnn, Network, PduSessionType, Plmn, Snssai, Supi, Tac};
use zeroize::Zeroize;

pub use areas::{AreaRestrictions, FORBIDDEN_AREAS, SERVICE_AREA, ServiceArea};
pub use terms::{FRAMED_ROUTES, UpProtection, UpSecurity};
pub(crate) use terms::{FurtherTerms, mark_further, read_further};
pub use vectors::{AuthenticationMethod, AuthenticationMethodError, AuthenticationVector, TransformedVector};

/// Nudm_UEAuthentication_Get: requests one authentication vector and, if needed, the de-concealment
/// of the SUCI.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AuthenticationRequest {
    pub identity: SubscriberIdentity,
    /// Serving network to which the keys are bound.
    pub serving_network: Plmn,
    /// The UE's AUTS after a synchronisation failure.
    pub resync: Option<Resync>,
}

/// Identity that the UE sent.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum SubscriberIdentity {
    /// SUPI known from an earlier registration.
    Supi(Supi),
    /// SUCI: the contents of the 5GS mobile identity IE (TS 24.501 9.11.3.4), as received.
    Suci(#[serde(with = "crate::octets")] Vec<u8>),
    /// IMSI of a UE of EPS: the request is for an EPS authentication vector (TS 33.401 6.1.2).
    Imsi(Supi),
}

impl SubscriberIdentity {
    /// Returns the dialect whose authentication vector is requested.
    pub fn dialect(&self) -> Dialect {
        match self {
            SubscriberIdentity::Supi(_) | SubscriberIdentity::Suci(_) => Dialect::Nr,
            SubscriberIdentity::Imsi(_) => Dialect::Eps,
        }
    }
}

/// AUTS with the RAND of the challenge that it answers (TS 33.102 6.3.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Resync {
    pub rand: [u8; 16],
    pub auts: [u8; 14],
}

/// 5G home environment authentication vector with the subscription (TS 33.501 6.1.3.2), or EPS
/// authentication vector (TS 33.401 6.1.2). `Debug` prints no key. Keys are overwritten on drop.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AuthenticationInfo {
    /// De-concealed if the request had a SUCI.
    pub supi: Supi,
    pub rand: [u8; 16],
    pub autn: [u8; 16],
    /// XRES*. In EPS the first [`AuthenticationInfo::RES_OCTETS`] octets are XRES.
    pub xres_star: [u8; 16],
    /// KSEAF. In EPS it is KASME.
    pub kseaf: [u8; 32],
    pub subscription: Subscription,
}

impl AuthenticationInfo {
    /// Octets of RES and XRES by Milenage (TS 35.206 5.1).
    pub const RES_OCTETS: usize = 8;
}

impl Drop for AuthenticationInfo {
    fn drop(&mut self) {
        self.kseaf.zeroize();
        self.xres_star.zeroize();
    }
}

impl std::fmt::Debug for AuthenticationInfo {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("AuthenticationInfo").field("supi", &self.supi).finish_non_exhaustive()
    }
}

/// Reason why the subscriber service returned no authentication vector.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
pub enum AuthenticationError {
    #[error("the subscriber is not known")]
    UnknownSubscriber,
    /// De-concealment of the SUCI failed: wrong home network key, wrong MAC, or not a SUCI.
    #[error("the SUCI does not de-conceal")]
    BadSuci,
    #[error("the AUTS does not verify")]
    BadAuts,
    /// The database did not respond, or the queue to it is full.
    #[error("the subscriber database does not answer")]
    Unavailable,
    /// No home network key with the key identifier and scheme of the SUCI is configured.
    #[error("the SUCI names a home network key that is not configured")]
    UnknownHomeKey,
}

/// Access and mobility subscription and session management subscription (Nudm_SDM_Get), as far as
/// Vireo uses them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Subscription {
    /// Subscribed S-NSSAIs with their data networks, the default S-NSSAI first.
    pub slices: Vec<SliceSubscription>,
    /// UE-AMBR, over all sessions of the UE.
    pub ambr: Ambr,
    /// The only dialect that the subscriber may use; `None` = both (core network type restriction,
    /// TS 23.501 5.3.4.1.1).
    pub only: Option<Dialect>,
    /// True if the subscriber may not use NR as secondary RAT (Access-Restriction-Data, TS 29.272
    /// 7.3.31).
    pub restricts_dcnr: bool,
    /// True if the operator has suspended the subscriber: it gets no service, and keeps its record.
    pub suspended: bool,
    /// Index to RAT/Frequency Selection Priority, 1 to 256 (TS 23.501 5.3.4.3, TS 36.300 annex I).
    pub rfsp: Option<NonZeroU16>,
    /// Restrictions by tracking area.
    pub areas: AreaRestrictions,
}

/// Bits of an uplink rate that a UE-AMBR does not have. In binary forms they are the restriction to
/// one dialect, which few subscribers have.
const ONLY_SHIFT: u32 = 62;
/// Bit of a downlink rate that a UE-AMBR does not have. In binary forms it is the restriction of NR
/// as secondary RAT.
const RESTRICTS_DCNR: u64 = 1 << 63;
/// Bit of a downlink rate that a UE-AMBR does not have. In binary forms it marks a suspended
/// subscriber. Release 0.2.0 takes it for a high rate.
const SUSPENDED: u64 = 1 << 62;
/// Bits of a downlink rate that a UE-AMBR does not have. In binary forms they are the RFSP Index.
/// Release 0.2.0 takes it for a high rate.
const RFSP_SHIFT: u32 = 52;
const RFSP: u64 = 0x1ff << RFSP_SHIFT;

impl Subscription {
    /// Returns the UE-AMBR, marked with the restrictions.
    pub(crate) fn marked_ambr(&self) -> Ambr {
        let mark = match self.only {
            None => 0,
            Some(Dialect::Nr) => 1,
            Some(Dialect::Eps) => 2,
        };
        Ambr {
            uplink_bps: self.ambr.uplink_bps & !(3 << ONLY_SHIFT) | mark << ONLY_SHIFT,
            downlink_bps: self.ambr.downlink_bps & !(RESTRICTS_DCNR | SUSPENDED | RFSP)
                | u64::from(self.restricts_dcnr) << 63
                | u64::from(self.suspended) << 62
                | u64::from(self.rfsp.map_or(0, NonZeroU16::get)) << RFSP_SHIFT & RFSP,
        }
    }

    /// Returns the subscription of a marked UE-AMBR.
    pub(crate) fn from_marked(slices: Vec<SliceSubscription>, marked: Ambr) -> Self {
        let only = match marked.uplink_bps >> ONLY_SHIFT {
            1 => Some(Dialect::Nr),
            2 => Some(Dialect::Eps),
            _ => None,
        };
        let [restricts_dcnr, suspended] = [RESTRICTS_DCNR, SUSPENDED].map(|bit| marked.downlink_bps & bit != 0);
        let ambr = Ambr {
            uplink_bps: marked.uplink_bps & !(3 << ONLY_SHIFT),
            downlink_bps: marked.downlink_bps & !(RESTRICTS_DCNR | SUSPENDED | RFSP),
        };
        let rfsp = NonZeroU16::new(((marked.downlink_bps & RFSP) >> RFSP_SHIFT) as u16);
        Subscription { slices, ambr, only, restricts_dcnr, suspended, rfsp, areas: AreaRestrictions::default() }
    }
}

/// Name of a dialect in records that an operator reads.
#[derive(Clone, Copy, Serialize, Deserialize)]
enum DialectName {
    #[serde(rename = "4g")]
    Eps,
    #[serde(rename = "5g")]
    Nr,
}

/// Form of a subscription in records that an operator reads.
#[derive(Serialize, Deserialize)]
#[serde(rename = "Subscription")]
struct ReadableSubscription<S> {
    slices: S,
    ambr: Ambr,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    only: Option<DialectName>,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    restricts_dcnr: bool,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    suspended: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    rfsp: Option<NonZeroU16>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    forbidden_areas: Vec<Tac>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    service_area: Option<ServiceArea>,
}

/// Binary form of a subscribed S-NSSAI.
#[derive(Serialize, Deserialize)]
struct BinarySlice {
    snssai: Snssai,
    default: bool,
    dnns: Vec<BinaryNetwork>,
}

/// Binary form of a data network, without what [`FurtherTerms`] has.
#[derive(Serialize, Deserialize)]
struct BinaryNetwork {
    dnn: Dnn,
    types: Vec<PduSessionType>,
    ambr: Ambr,
    five_qi: u8,
    /// With the mark of the UP security policy.
    arp_priority: u8,
}

impl BinarySlice {
    fn from_slice(slice: &SliceSubscription) -> Self {
        let network = |dnn: &DnnSubscription| BinaryNetwork {
            dnn: dnn.dnn.clone(),
            types: dnn.types.clone(),
            ambr: dnn.ambr,
            five_qi: dnn.five_qi,
            arp_priority: UpSecurity::encode(dnn.up_security, dnn.arp_priority),
        };
        BinarySlice { snssai: slice.snssai, default: slice.default, dnns: slice.dnns.iter().map(network).collect() }
    }

    fn slice(self) -> SliceSubscription {
        let network = |BinaryNetwork { dnn, types, ambr, five_qi, arp_priority }| {
            let (arp_priority, up_security) = UpSecurity::decode(arp_priority);
            DnnSubscription { dnn, types, ambr, five_qi, arp_priority, up_security, ..DnnSubscription::default() }
        };
        let dnns = self.dnns.into_iter().map(network).collect();
        SliceSubscription { snssai: self.snssai, default: self.default, dnns }
    }
}

/// Reads the binary form of a subscription: slices, marked UE-AMBR and, if that has the mark,
/// [`FurtherTerms`]. Release 0.2.0 does not read the last.
struct BinaryVisitor;

impl<'de> Visitor<'de> for BinaryVisitor {
    type Value = Subscription;

    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("a subscription")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Subscription, A::Error> {
        let missing = || A::Error::custom("a subscription is cut short");
        let slices: Vec<BinarySlice> = seq.next_element()?.ok_or_else(missing)?;
        let (ambr, further) = read_further(seq.next_element()?.ok_or_else(missing)?);
        let slices = slices.into_iter().map(BinarySlice::slice).collect();
        let mut subscription = Subscription::from_marked(slices, ambr);
        if further {
            subscription.set_further(seq.next_element()?.ok_or_else(missing)?);
        }
        Ok(subscription)
    }
}

impl Serialize for Subscription {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        if !s.is_human_readable() {
            let terms = self.further();
            let further = !terms.is_empty();
            let mut binary = s.serialize_tuple(2 + usize::from(further))?;
            binary.serialize_element(&self.slices.iter().map(BinarySlice::from_slice).collect::<Vec<_>>())?;
            binary.serialize_element(&mark_further(self.marked_ambr(), further))?;
            if further {
                binary.serialize_element(&terms)?;
            }
            return binary.end();
        }
        let only = self.only.map(|only| match only {
            Dialect::Nr => DialectName::Nr,
            Dialect::Eps => DialectName::Eps,
        });
        let Subscription { restricts_dcnr, suspended, rfsp, .. } = *self;
        let (slices, ambr) = (&self.slices, self.ambr);
        let AreaRestrictions { forbidden: forbidden_areas, service: service_area } = self.areas.clone();
        let readable =
            ReadableSubscription { slices, ambr, only, restricts_dcnr, suspended, rfsp, forbidden_areas, service_area };
        readable.serialize(s)
    }
}

impl<'de> Deserialize<'de> for Subscription {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        if !d.is_human_readable() {
            return d.deserialize_tuple(3, BinaryVisitor);
        }
        let readable = ReadableSubscription::deserialize(d)?;
        let ReadableSubscription { slices, ambr, only, restricts_dcnr, suspended, rfsp, .. } = readable;
        let areas = AreaRestrictions { forbidden: readable.forbidden_areas, service: readable.service_area };
        let only = only.map(|only| match only {
            DialectName::Nr => Dialect::Nr,
            DialectName::Eps => Dialect::Eps,
        });
        if rfsp.is_some_and(|index| index.get() > 256) {
            return Err(D::Error::custom("rfsp: 1 to 256 is allowed"));
        }
        Ok(Subscription { slices, ambr, only, restricts_dcnr, suspended, rfsp, areas })
    }
}

impl Subscription {
    /// Returns the subscription to a slice, if there is one.
    pub fn slice(&self, snssai: Snssai) -> Option<&SliceSubscription> {
        self.slices.iter().find(|slice| slice.snssai == snssai)
    }

    /// Returns the subscription to a data network of a slice, if there is one.
    pub fn data_network(&self, snssai: Snssai, dnn: &Dnn) -> Option<&DnnSubscription> {
        self.slice(snssai)?.dnns.iter().find(|network| network.dnn == *dnn)
    }
}

/// One subscribed S-NSSAI with its data networks.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SliceSubscription {
    #[serde(deserialize_with = "slice_id::read")]
    pub snssai: Snssai,
    /// True for a default S-NSSAI, which applies if the UE requests none.
    #[serde(default)]
    pub default: bool,
    /// Subscribed data networks of the slice, the default one first.
    pub dnns: Vec<DnnSubscription>,
}

/// One subscribed data network.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DnnSubscription {
    pub dnn: Dnn,
    /// Allowed PDU session types, the default one first.
    pub types: Vec<PduSessionType>,
    /// Session-AMBR, over all non-GBR QoS flows of the session.
    pub ambr: Ambr,
    /// 5QI of the default QoS flow (TS 23.501 5.7.4), not one of [`is_gbr`].
    pub five_qi: u8,
    /// ARP priority level of the default QoS flow, 1 (highest) to 15.
    pub arp_priority: u8,
    /// UP security policy; `None` = that of the data network.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub up_security: Option<UpSecurity>,
    /// IPv4 address of each session, in the static pool of the data network.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub static_ipv4: Option<Ipv4Addr>,
    /// IPv6 prefix of 64 bits of each session, in the static pool of the data network.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub static_ipv6_prefix: Option<Ipv6Addr>,
    /// Networks behind the UE (TS 23.501 5.6.14), at most [`FRAMED_ROUTES`].
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub framed_routes: Vec<Network>,
}

/// Returns true for a standardised 5QI or QCI of a GBR flow, also a delay-critical one (TS 23.501
/// table 5.7.4-1, TS 23.203 table 6.1.7-A). A default flow is non-GBR (TS 23.501 5.7.2.7, TS 23.401
/// 4.7.2.1): its messages have no guaranteed bit rates, without which a RAN node refuses a GBR flow
/// (TS 38.413 9.3.1.12, TS 36.413 9.2.1.15).
pub fn is_gbr(five_qi: u8) -> bool {
    matches!(five_qi, 1..=4 | 65..=67 | 71..=76 | 82..=90)
}

impl DnnSubscription {
    /// Returns true if the subscriber has a static address or framed routes in the data network.
    pub fn has_addressing(&self) -> bool {
        self.static_ipv4.is_some() || self.static_ipv6_prefix.is_some() || !self.framed_routes.is_empty()
    }
}

/// Aggregate maximum bit rates in bit/s.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ambr {
    pub uplink_bps: u64,
    pub downlink_bps: u64,
}

impl Default for Ambr {
    /// Returns 1 Gbit/s in both directions.
    fn default() -> Self {
        Ambr { uplink_bps: 1_000_000_000, downlink_bps: 1_000_000_000 }
    }
}

impl Default for DnnSubscription {
    /// Returns `internet` with IPv4, IPv6 and IPv4v6, 5QI 9 and ARP priority level 8.
    fn default() -> Self {
        DnnSubscription {
            dnn: "internet".parse().expect("a literal DNN"),
            types: vec![PduSessionType::Ipv4, PduSessionType::Ipv6, PduSessionType::Ipv4v6],
            ambr: Ambr::default(),
            five_qi: 9,
            arp_priority: 8,
            up_security: None,
            static_ipv4: None,
            static_ipv6_prefix: None,
            framed_routes: Vec::new(),
        }
    }
}

impl Default for SliceSubscription {
    /// Returns SST 1 as the default S-NSSAI, with `internet`.
    fn default() -> Self {
        SliceSubscription { snssai: Snssai { sst: 1, sd: None }, default: true, dnns: vec![DnnSubscription::default()] }
    }
}
