//! State of a registration: the request and the response that is awaited.

use crate::amf::context::{Retry, UeSecurityCapability};
use crate::amf::procedures::common::security_setup::{Awaited, SecuritySetup};
use crate::step::Kind;
use serde::{Deserialize, Serialize};
use vireo_types::{Instant, Snssai};

/// Contents of REGISTRATION REQUEST.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Request {
    pub kind: RequestKind,
    /// True if the UE has a follow-on request pending.
    pub follow_on: bool,
    /// ngKSI of the UE; 7 = no key.
    pub ngksi: u8,
    pub identity: RequestIdentity,
    pub capability: Option<UeSecurityCapability>,
    pub requested: Vec<Snssai>,
    /// Sessions with uplink data, one bit each.
    pub uplink_data: u16,
    /// Sessions that the UE has, one bit each; `None` if the IE is absent.
    pub session_status: Option<u16>,
}

/// 5GS registration type (TS 24.501 9.11.3.7).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum RequestKind {
    Initial,
    Mobility,
    Periodic,
    /// Emergency registration, and types that are not served.
    Unserved,
}

impl RequestKind {
    /// Returns the kind under which the registration is counted.
    pub const fn counted(self) -> Kind {
        match self {
            RequestKind::Initial | RequestKind::Unserved => Kind::Registration,
            RequestKind::Mobility | RequestKind::Periodic => Kind::Mobility,
        }
    }
}

/// Identity in REGISTRATION REQUEST.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum RequestIdentity {
    /// SUCI: the octets of the mobile identity.
    Suci(Vec<u8>),
    Guti,
    /// Identity that names no subscriber.
    Other,
    /// 5G-GUTI that a UE from EPS has mapped from its 4G-GUTI (TS 24.501 5.5.1.3.2).
    MappedGuti,
}

/// Registration in progress, with its request.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Registering {
    pub(super) request: Request,
    pub(super) started: Instant,
    pub(super) stage: Stage,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) enum Stage {
    /// Identification, authentication and security mode control.
    Securing(SecuritySetup),
    /// Registration Accept sent (T3550).
    Accepted {
        retry: Retry,
        /// Sessions whose user plane was activated with it, one bit each.
        back: u16,
    },
}

impl Registering {
    /// Returns the registration type.
    pub fn kind(&self) -> RequestKind {
        self.request.kind
    }

    /// Returns the time of the next timer expiry.
    pub fn deadline(&self) -> Option<Instant> {
        match &self.stage {
            Stage::Securing(securing) => Some(securing.deadline()),
            Stage::Accepted { retry, .. } => Some(retry.deadline),
        }
    }

    /// Returns the response that the network waits for.
    pub fn awaited(&self) -> Awaited {
        match &self.stage {
            Stage::Securing(securing) => securing.awaited(),
            Stage::Accepted { .. } => Awaited::Nothing,
        }
    }

    /// Returns the security sub-procedure while it is in progress.
    pub fn securing(&mut self) -> Option<&mut SecuritySetup> {
        match &mut self.stage {
            Stage::Securing(securing) => Some(securing),
            Stage::Accepted { .. } => None,
        }
    }
}
