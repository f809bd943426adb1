//! What the home network knows of a subscriber, and the questions asked of it. The names are TS 29.503's services;
//! the answers arrive as events.

use serde::{Deserialize, Serialize};
use vireo_types::{Dnn, PduSessionType, Plmn, Snssai, Supi};
use zeroize::Zeroize;

/// Nudm_UEAuthentication_Get: a request for one authentication vector, de-concealing the SUCI if need be.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AuthenticationRequest {
    /// Who.
    pub identity: SubscriberIdentity,
    /// The serving network, which the keys are bound to.
    pub serving_network: Plmn,
    /// After a synchronisation failure: what the UE answered.
    pub resync: Option<Resync>,
}

/// How the UE named itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum SubscriberIdentity {
    /// By its SUPI, known from an earlier registration.
    Supi(Supi),
    /// By a SUCI: the contents of the 5GS mobile identity IE (TS 24.501 9.11.3.4), as received.
    Suci(#[serde(with = "crate::context::octets")] Vec<u8>),
}

/// AUTS and the RAND it answers (TS 33.102 6.3.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Resync {
    /// The RAND of the challenge.
    pub rand: [u8; 16],
    /// The UE's AUTS.
    pub auts: [u8; 14],
}

/// A 5G home environment authentication vector with the subscriber's data (TS 33.501 6.1.3.2). `Debug` shows no key;
/// keys are overwritten when it is dropped.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AuthenticationInfo {
    /// Who it is, de-concealed.
    pub supi: Supi,
    /// RAND.
    pub rand: [u8; 16],
    /// AUTN.
    pub autn: [u8; 16],
    /// XRES*.
    pub xres_star: [u8; 16],
    /// KSEAF.
    pub kseaf: [u8; 32],
    /// What the subscriber may do.
    pub subscription: Subscription,
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

/// Why there is no vector.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
pub enum AuthenticationError {
    /// No such subscriber.
    #[error("the subscriber is not known")]
    UnknownSubscriber,
    /// The SUCI does not de-conceal: another home network key, bad MAC, or no SUCI at all.
    #[error("the SUCI does not de-conceal")]
    BadSuci,
    /// The AUTS does not verify.
    #[error("the AUTS does not verify")]
    BadAuts,
    /// The database did not answer, or the queue to it is full.
    #[error("the subscriber database does not answer")]
    Unavailable,
    /// No home network key has the identifier and the scheme of the SUCI.
    #[error("the SUCI names a home network key that is not configured")]
    UnknownHomeKey,
}

/// Access and mobility plus session management subscription (Nudm_SDM_Get), as far as Vireo acts on it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Subscription {
    /// Subscribed S-NSSAIs with the data networks of each, the default slice first.
    pub slices: Vec<SliceSubscription>,
    /// UE aggregate maximum bit rate.
    pub ambr: Ambr,
}

/// One subscribed S-NSSAI.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SliceSubscription {
    /// The slice.
    pub snssai: Snssai,
    /// A default S-NSSAI: used when the UE requests none.
    #[serde(default)]
    pub default: bool,
    /// Data networks of the slice, the default one first.
    pub dnns: Vec<DnnSubscription>,
}

/// One subscribed data network.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DnnSubscription {
    /// Its name.
    pub dnn: Dnn,
    /// Session types allowed, the default one first.
    pub types: Vec<PduSessionType>,
    /// Session aggregate maximum bit rate.
    pub ambr: Ambr,
    /// 5QI of the default QoS flow (TS 23.501 5.7.4), a non-GBR one.
    pub five_qi: u8,
    /// ARP priority of the default QoS flow, 1 (highest) to 15.
    pub arp_priority: u8,
}

/// Bit rates in bit/s.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ambr {
    /// From the UE.
    pub uplink_bps: u64,
    /// To the UE.
    pub downlink_bps: u64,
}

impl Default for Ambr {
    /// 1 Gbit/s each way.
    fn default() -> Self {
        Ambr { uplink_bps: 1_000_000_000, downlink_bps: 1_000_000_000 }
    }
}

impl Default for DnnSubscription {
    /// `internet` with IPv4, IPv6 or both, 5QI 9, ARP 8.
    fn default() -> Self {
        DnnSubscription {
            dnn: "internet".parse().expect("a literal DNN"),
            types: vec![PduSessionType::Ipv4, PduSessionType::Ipv6, PduSessionType::Ipv4v6],
            ambr: Ambr::default(),
            five_qi: 9,
            arp_priority: 8,
        }
    }
}

impl Default for SliceSubscription {
    /// SST 1, the default slice, with `internet`.
    fn default() -> Self {
        SliceSubscription { snssai: Snssai { sst: 1, sd: None }, default: true, dnns: vec![DnnSubscription::default()] }
    }
}
