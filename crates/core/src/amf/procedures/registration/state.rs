//! State of a registration: the request and the response that is awaited.

use crate::amf::context::{Retry, UeSecurityCapability};
use crate::amf::procedures::common::security_setup::{AwaitedResponse, SecuritySetup};
use crate::step::Kind;
use serde::{Deserialize, Serialize};
use vireo_types::{Instant, Snssai, Supi};

/// Contents of REGISTRATION REQUEST.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Request {
    pub kind: RequestKind,
    /// True if the UE has a follow-on request pending.
    pub follow_on: bool,
    /// ngKSI of the UE, and marks of the request: see [`Request::key_set`] and [`Request::has`].
    /// The marks are in the unused bits of the octet, so that stored contexts keep their layout.
    pub ngksi: u8,
    pub identity: RequestIdentity,
    pub capability: Option<UeSecurityCapability>,
    pub requested: Vec<Snssai>,
    /// Sessions with uplink data, one bit each.
    pub uplink_data: u16,
    /// Sessions that the UE has, one bit each; `None` if the IE is absent.
    pub session_status: Option<u16>,
}

impl Request {
    /// Mark: the requested NSSAI was created from the default configured NSSAI (TS 24.501
    /// 9.11.3.36).
    pub const DEFAULT_NSSAI: u8 = 0x08;
    /// Mark: the UE supports the extended rejected NSSAI (ER-NSSAI, TS 24.501 9.11.3.1).
    pub const EXTENDED_REJECTED: u8 = 0x10;

    /// Returns the ngKSI of the UE; 7 = no key.
    pub fn key_set(&self) -> u8 {
        self.ngksi & 7
    }

    /// Returns true if the request has a mark.
    pub fn has(&self, mark: u8) -> bool {
        self.ngksi & mark != 0
    }
}

/// 5GS registration type (TS 24.501 9.11.3.7).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum RequestKind {
    Initial,
    Mobility,
    Periodic,
    /// Types that are not served.
    Unserved,
    /// Combined attach for EPS and other services (TS 24.301 5.5.1.3).
    Combined,
    /// Combined tracking area and location area updating (TS 24.301 5.5.3.3).
    CombinedUpdate,
    /// Emergency attach (TS 24.301 5.5.1.2), or emergency registration of 5G.
    Emergency,
}

impl RequestKind {
    /// Returns the kind under which the registration is counted.
    pub const fn counted(self) -> Kind {
        match self {
            RequestKind::Initial | RequestKind::Unserved | RequestKind::Combined | RequestKind::Emergency => {
                Kind::Registration
            }
            RequestKind::Mobility | RequestKind::Periodic | RequestKind::CombinedUpdate => Kind::Mobility,
        }
    }

    /// Returns true for an initial registration or attach, which ends all sessions.
    pub const fn is_initial(self) -> bool {
        matches!(self, RequestKind::Initial | RequestKind::Combined | RequestKind::Emergency)
    }

    /// Returns true for an update of a registered UE.
    pub const fn is_update(self) -> bool {
        matches!(self, RequestKind::Mobility | RequestKind::Periodic | RequestKind::CombinedUpdate)
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
    /// IMSI in ATTACH REQUEST.
    Imsi(Supi),
    /// IMEI in ATTACH REQUEST.
    Imei,
}

/// Contents of ATTACH REQUEST that are needed until the UE is secured.
#[derive(Clone, Debug, PartialEq)]
pub struct AttachContent {
    /// ESM message container (TS 24.301 9.9.3.15).
    pub esm: Vec<u8>,
    /// HASHMME of a request that did not verify under keys of the UE.
    pub hash: Option<[u8; 8]>,
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
    /// As [`Stage::Securing`], in an attach with this ESM message.
    SecuringAttach { securing: SecuritySetup, esm: Vec<u8> },
    /// ESM Information Request sent (T3489), in an attach with this ESM message.
    EsmInformation { esm: Vec<u8>, retry: Retry },
    /// The session part sets the default bearer up.
    AwaitingBearer {
        /// ESM message of the UE.
        esm: Vec<u8>,
        /// True if the session part has it.
        is_requested: bool,
    },
    /// Attach Accept sent (T3450).
    AttachAccepted {
        retry: Retry,
        /// ESM message of the UE.
        requested: Vec<u8>,
        /// ESM message of the accept.
        esm: Vec<u8>,
    },
    /// As [`Stage::SecuringAttach`], of a request that did not verify under keys of the UE.
    SecuringUnverified {
        securing: SecuritySetup,
        esm: Vec<u8>,
        /// HASHMME of the request.
        hash: [u8; 8],
    },
}

impl Stage {
    /// Returns the stage of a registration, or of an attach with this content, whose UE is being
    /// secured.
    pub(super) fn securing(securing: SecuritySetup, attach: Option<AttachContent>) -> Self {
        match attach {
            None => Stage::Securing(securing),
            Some(AttachContent { esm, hash: None }) => Stage::SecuringAttach { securing, esm },
            Some(AttachContent { esm, hash: Some(hash) }) => Stage::SecuringUnverified { securing, esm, hash },
        }
    }
}

impl Registering {
    /// Returns the registration type.
    pub fn kind(&self) -> RequestKind {
        self.request.kind
    }

    /// Returns the time of the next timer expiry.
    pub fn deadline(&self) -> Option<Instant> {
        match &self.stage {
            Stage::Securing(securing)
            | Stage::SecuringAttach { securing, .. }
            | Stage::SecuringUnverified { securing, .. } => Some(securing.deadline()),
            Stage::Accepted { retry, .. }
            | Stage::EsmInformation { retry, .. }
            | Stage::AttachAccepted { retry, .. } => Some(retry.deadline),
            // The session part has deadlines of its own.
            Stage::AwaitingBearer { .. } => None,
        }
    }

    /// Returns the response that the network waits for.
    pub fn awaited(&self) -> AwaitedResponse {
        match &self.stage {
            Stage::Securing(securing)
            | Stage::SecuringAttach { securing, .. }
            | Stage::SecuringUnverified { securing, .. } => securing.awaited(),
            _ => AwaitedResponse::Nothing,
        }
    }

    /// Returns the security sub-procedure while it is in progress.
    pub fn securing(&mut self) -> Option<&mut SecuritySetup> {
        match &mut self.stage {
            Stage::Securing(securing)
            | Stage::SecuringAttach { securing, .. }
            | Stage::SecuringUnverified { securing, .. } => Some(securing),
            _ => None,
        }
    }

    /// Returns true while the security sub-procedure is in progress.
    pub fn is_securing(&self) -> bool {
        matches!(self.stage, Stage::Securing(_) | Stage::SecuringAttach { .. } | Stage::SecuringUnverified { .. })
    }

    /// Returns true if the registration was requested by this request, with this ESM message of an
    /// attach.
    pub(super) fn has_request(&self, request: &Request, message: &[u8]) -> bool {
        let own = match &self.stage {
            Stage::Securing(_) | Stage::Accepted { .. } => &[][..],
            Stage::SecuringAttach { esm, .. }
            | Stage::SecuringUnverified { esm, .. }
            | Stage::EsmInformation { esm, .. }
            | Stage::AwaitingBearer { esm, .. }
            | Stage::AttachAccepted { requested: esm, .. } => esm,
        };
        self.request == *request && own == message
    }

    /// Returns true if Attach Accept was sent.
    pub(super) fn is_accepted_attach(&self) -> bool {
        matches!(self.stage, Stage::AttachAccepted { .. })
    }

    /// Returns true if an attach waits for the session part.
    pub fn awaits_bearer(&self) -> bool {
        matches!(self.stage, Stage::AwaitingBearer { .. })
    }

    /// Takes the ESM message of an attach that the session part does not have yet.
    pub fn take_bearer_request(&mut self) -> Option<Vec<u8>> {
        match &mut self.stage {
            Stage::AwaitingBearer { esm, is_requested } if !*is_requested => {
                *is_requested = true;
                Some(esm.clone())
            }
            _ => None,
        }
    }
}
