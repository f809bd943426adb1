//! State of the sub-procedure: what was sent last, and the response that is awaited.

use super::eap::EapChallenge;
use crate::amf::context::{NasSecurity, Retry, UeSecurityCapability};
use crate::subscription::AuthenticationInfo;
use serde::{Deserialize, Serialize};
use vireo_types::Instant;

/// State of the sub-procedure.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SecuritySetup {
    /// ngKSI that the UE uses; the new ngKSI differs from it (TS 24.501 5.4.1.3.2).
    pub(super) ue_ngksi: u8,
    /// UE security capability of the initial message, used for algorithm selection and replayed to
    /// the UE.
    pub(super) capability: UeSecurityCapability,
    /// True if the UE sent its SUCI in this run: another Identity Request would not help.
    pub(super) identified: bool,
    /// Synchronisation failures and ngKSI clashes in this run.
    pub(super) repeats: u8,
    pub(super) stage: SecurityStage,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) enum SecurityStage {
    /// Identity Request sent (T3570).
    Identity(Retry),
    /// Vector requested from the subscriber service.
    Vector { deadline: Instant },
    /// Authentication Request sent (T3560).
    Challenge { info: Box<AuthenticationInfo>, ngksi: u8, retry: Retry },
    /// Security Mode Command sent (T3560).
    SecurityMode { pending: Box<NasSecurity>, retry: Retry },
    /// Authentication Request with EAP-Request/AKA'-Challenge sent (T3560).
    EapChallenge { challenge: Box<EapChallenge>, ngksi: u8, retry: Retry },
    /// As [`SecurityStage::Vector`], after a synchronisation failure of EAP-AKA'. The ngKSI stays
    /// during a conversation (TS 33.501 6.1.3.1 step 4).
    EapVector { deadline: Instant, ngksi: u8, identifier: u8 },
    /// As [`SecurityStage::SecurityMode`], with EAP-Success under this identifier.
    EapSecurityMode { pending: Box<NasSecurity>, identifier: u8, retry: Retry },
}

impl SecurityStage {
    /// Returns the identifier of the EAP conversation in progress.
    pub(super) fn eap_identifier(&self) -> Option<u8> {
        match self {
            SecurityStage::EapChallenge { challenge, .. } => Some(challenge.identifier),
            SecurityStage::EapVector { identifier, .. } | SecurityStage::EapSecurityMode { identifier, .. } => {
                Some(*identifier)
            }
            _ => None,
        }
    }
}

/// Response that the network waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AwaitedResponse {
    Nothing,
    /// SUCI, requested by an Identity Request.
    Identity,
    /// Response to an Authentication Request.
    Challenge,
    /// Response to a Security Mode Command.
    SecurityMode,
}

impl SecuritySetup {
    /// Returns the time of the next timer expiry.
    pub fn deadline(&self) -> Instant {
        match &self.stage {
            SecurityStage::Identity(retry)
            | SecurityStage::Challenge { retry, .. }
            | SecurityStage::EapChallenge { retry, .. }
            | SecurityStage::SecurityMode { retry, .. }
            | SecurityStage::EapSecurityMode { retry, .. } => retry.deadline,
            SecurityStage::Vector { deadline } | SecurityStage::EapVector { deadline, .. } => *deadline,
        }
    }

    /// Returns the response that the network waits for.
    pub fn awaited(&self) -> AwaitedResponse {
        match &self.stage {
            SecurityStage::Identity(_) => AwaitedResponse::Identity,
            SecurityStage::Vector { .. } | SecurityStage::EapVector { .. } => AwaitedResponse::Nothing,
            SecurityStage::Challenge { .. } | SecurityStage::EapChallenge { .. } => AwaitedResponse::Challenge,
            SecurityStage::SecurityMode { .. } | SecurityStage::EapSecurityMode { .. } => AwaitedResponse::SecurityMode,
        }
    }

    /// Returns the security context of a message with header type *new context*.
    pub fn pending(&mut self) -> Option<&mut NasSecurity> {
        match &mut self.stage {
            SecurityStage::SecurityMode { pending, .. } | SecurityStage::EapSecurityMode { pending, .. } => {
                Some(pending)
            }
            _ => None,
        }
    }
}
