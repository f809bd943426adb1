//! Events of RAN nodes and UPFs, on their way from a balancer to a host.

use crate::amf::n2::{Route, ShallowView};
use serde::{Deserialize, Serialize};
use std::net::SocketAddr;
use vireo_types::{AssocId, Bucket, Dialect, Duration, Ltmsi, Seid};

/// Procedure codes of initiating messages whose content hosts store: NG Setup and S1 Setup (TS
/// 38.413 9.4.7, TS 36.413 9.3.6).
const fn setup(dialect: Dialect) -> [u8; 2] {
    match dialect {
        Dialect::Nr => [0, 21],
        Dialect::Eps => [0, 17],
    }
}

/// RAN Configuration Update and eNB Configuration Update.
const fn configuration_update(dialect: Dialect) -> [u8; 2] {
    match dialect {
        Dialect::Nr => [0, 35],
        Dialect::Eps => [0, 29],
    }
}

/// Event of a RAN node or UPF. A balancer queues it for the host in its process, or sends it to a
/// host of its cluster, without conversion.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum PeerEvent {
    /// An association was established.
    Up {
        assoc: AssocId,
        /// Address of the RAN node.
        peer: SocketAddr,
    },
    /// An association has ended, or its peer has restarted it. All state of the association is
    /// void.
    Down {
        assoc: AssocId,
        /// True if the association is up again at once.
        restarted: bool,
    },
    /// The peer of an association has answered a heartbeat that a host requested.
    Alive { assoc: AssocId },
    /// NGAP or S1AP message of a RAN node, in the protocol of the association.
    Ngap {
        assoc: AssocId,
        /// Routing information; `None` for an invalid message.
        view: Option<ShallowView>,
        #[serde(with = "serde_bytes")]
        pdu: Vec<u8>,
    },
    /// PFCP message for a session.
    Pfcp {
        upf: SocketAddr,
        seid: Seid,
        /// True if the message is a request and requires a response.
        request: bool,
        /// PFCP message as received.
        #[serde(with = "serde_bytes")]
        message: Vec<u8>,
    },
    /// A PFCP request for a session received no response.
    PfcpTimeout { seid: Seid },
    /// A PFCP association was set up or released.
    Upf {
        upf: SocketAddr,
        /// True if the association is set up.
        up: bool,
    },
    /// A UPF has lost its sessions.
    UpfLost { upf: SocketAddr },
    /// An association has ended, and its RAN node has not acknowledged a message about a UE.
    Undelivered {
        assoc: AssocId,
        ue: Ltmsi,
        /// NGAP PDU that was not acknowledged.
        #[serde(with = "serde_bytes")]
        pdu: Vec<u8>,
    },
}

impl PeerEvent {
    /// Returns true for an NG Setup Request or S1 Setup Request.
    pub(crate) fn is_ng_setup(&self) -> bool {
        let PeerEvent::Ngap { assoc, view: Some(ShallowView { route: Route::Node, .. }), pdu } = self else {
            return false;
        };
        pdu.starts_with(&setup(assoc.dialect()))
    }

    /// Returns true for a RAN Configuration Update or eNB Configuration Update.
    pub(crate) fn is_configuration_update(&self) -> bool {
        matches!(self, PeerEvent::Ngap { assoc, pdu, .. } if pdu.starts_with(&configuration_update(assoc.dialect())))
    }
}

/// Time within which an input is done at a serving host. The balancer then gives it to the owner,
/// with all later ones of its procedure.
pub const SERVING_TIMEOUT: Duration = Duration::from_millis(50);

/// Role of the host that receives an input.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Receiver {
    /// The owner of the UE, or a host that receives events about no UE.
    #[default]
    Owner,
    /// A replica that serves the procedure in the owner's place: it runs the step on its copy of
    /// the UE, and the owner commits it.
    ServingHost,
    /// The owner, after a serving host had the input and did not complete it in time. That host may
    /// still propose its result.
    OwnerAfterServingHost,
}

/// Event with the routing decision of its balancer. The epoch of the decision is that of the last
/// map on the connection.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Envelope {
    /// Number of the input in the cluster, which also identifies the balancer
    /// ([`BalancerId::from_input`](crate::placement::balance::BalancerId::from_input)); 0 = none. A
    /// redelivered input is dropped if it was executed.
    pub number: u64,
    /// True if this host answers a message that does not concern a UE: every host receives these,
    /// one answers.
    pub answers: bool,
    /// For the first message of an unknown UE, the bucket by which the balancer selected this host.
    /// The UE gets an LTMSI of a bucket with the same hosts, so that a redelivered message finds
    /// it.
    pub bucket: Option<Bucket>,
    pub receiver: Receiver,
    pub event: PeerEvent,
}

impl Envelope {
    /// Creates the envelope of an event without a number, for a host that answers.
    pub fn new(event: PeerEvent) -> Self {
        Envelope { number: 0, answers: true, bucket: None, receiver: Receiver::Owner, event }
    }

    /// Returns the number by which the host acknowledges the event; 0 if it does not.
    pub fn acknowledged_number(&self) -> u64 {
        match self.event {
            PeerEvent::Ngap { .. } | PeerEvent::Pfcp { .. } | PeerEvent::PfcpTimeout { .. } => self.number,
            _ => 0,
        }
    }
}
