//! Output of a step for counters and logs.

use serde::{Deserialize, Serialize};
use std::borrow::Cow;
use vireo_types::{Instant, Supi};

/// Kind of procedure, for counters and latencies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Kind {
    /// Initial registration, from the request to Registration Complete.
    Registration,
    /// PDU session establishment, from the request until the user plane is set up.
    Session,
    SessionRelease,
    /// Activation of the user plane of an existing session, from the service request until the UPF
    /// forwards again.
    Activation,
    /// Service request, from the request to the response of the RAN node.
    ServiceRequest,
    Deregistration,
    Release,
    /// Xn handover, from Path Switch Request to its response.
    PathSwitch,
    /// N2 handover, from Handover Required to Handover Notify.
    Handover,
    /// Paging, from the first page to the response of the UE.
    Paging,
    /// Mobility or periodic registration update, from the request to Registration Complete.
    Mobility,
    /// Relocation of a PDU session to another UPF, from the order to the end of the PFCP session at
    /// the old UPF.
    Relocation,
    /// Change of the QoS of a session by the network, until UPF and UE have confirmed it.
    Modification,
    /// Update of the configuration of a UE by the network, from CONFIGURATION UPDATE COMMAND or
    /// GUTI REALLOCATION COMMAND to its completion.
    ConfigurationUpdate,
    /// Authentication of a registered UE, from the request for a vector to SECURITY MODE COMPLETE.
    Authentication,
}

/// Output of a step for counters and logs. It has no effect on state.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Note {
    /// A procedure of this kind started.
    Started(Kind),
    /// The procedure that began at this time succeeded.
    Succeeded(Kind, Instant),
    /// The procedure failed with this 5GMM or 5GSM cause; 0 for none.
    Failed(Kind, u8),
    /// A UPF reported the volume of a session.
    UsageReported {
        /// Octets from the UE.
        uplink: u64,
        /// Octets to the UE.
        downlink: u64,
    },
    /// A message was faulty or not valid in this state. The word labels a counter.
    Fault(Cow<'static, str>),
    /// The procedure failed because the UE did not prove its identity: Authentication Failure or
    /// wrong RES*. A wrong K or OPc in the USIM or in the subscriber record has the same result.
    NotAuthenticated(Kind),
    /// The network refused a request of a device. For the log alone.
    Refused(Box<RefusedRequest>),
    /// An eNB reported the volume that its secondary RAT has carried. The UPF has counted the same
    /// packets.
    SecondaryRatUsage {
        /// Octets from the UE.
        uplink: u64,
        /// Octets to the UE.
        downlink: u64,
    },
    /// The RAN has notified that it can or cannot fulfil the rates of QoS flows any more: numbers
    /// of flows.
    QosFlowsNotified { fulfilled: u8, not_fulfilled: u8 },
}

/// Request that the network refused.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RefusedRequest {
    /// `None` while the subscriber is not known.
    pub supi: Option<Supi>,
    pub procedure: Kind,
    /// 5GMM, 5GSM, EMM or ESM cause, or 0.
    pub cause: u8,
    /// What was wrong, such as "MAC failure" or "data network ims".
    pub reason: Cow<'static, str>,
}

impl Note {
    /// Returns a [`Note::Fault`] with this counter label.
    pub const fn fault(word: &'static str) -> Self {
        Note::Fault(Cow::Borrowed(word))
    }
}
