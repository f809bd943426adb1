//! Inputs of the balancer, and the events that it routes to hosts.

use crate::amf::n2::{Route, ShallowView};
use crate::placement::ConnectionId;
use crate::placement::balance::HostId;
use crate::placement::cluster::ClusterMap;
use crate::placement::message::{ToBalancer, ToHost};
use serde::{Deserialize, Serialize};
use std::net::SocketAddr;
use vireo_types::{AssocId, Bucket, Ltmsi, Seid};

/// NGAP procedure codes (TS 38.413 9.4.7) of initiating messages whose content hosts store.
const NG_SETUP: [u8; 2] = [0, 21];
const RAN_CONFIGURATION_UPDATE: [u8; 2] = [0, 35];

/// Event that the balancer machine handles.
#[derive(Clone, Debug)]
pub enum Input<'a> {
    /// A peer has connected.
    Connected(ConnectionId),
    /// Data of a peer has arrived that is not a whole message yet.
    DataReceived(ConnectionId),
    /// Message of a peer.
    Message { connection: ConnectionId, message: ToBalancer<'a> },
    /// A connection has ended.
    Disconnected(ConnectionId),
    /// Map of the controller.
    Map(Box<ClusterMap>),
    /// Event of the RAN or a UPF for the hosts.
    Event(HostInput),
    /// Connections may have room again.
    Room,
    /// A heartbeat interval has passed, and everything that arrived in it was handled.
    Tick {
        /// True if the controller and its machine have been silent for the failure timeout.
        controller_silent: bool,
    },
    /// All messages of a host before this barrier are executed.
    BarrierReached { host: HostId, number: u64 },
    /// All NGAP PDUs that the machine has passed on so far were sent.
    NgapSent,
    /// An NGAP PDU that does not concern a UE is about to be sent to a RAN node.
    NodeMessage { assoc: AssocId, pdu: &'a [u8] },
    /// An association is about to be aborted.
    Abort(AssocId),
    /// Another balancer takes over N4.
    N4Deactivated,
}

/// Event of the RAN or a UPF on its way to a host.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum HostInput {
    /// An association was established.
    Up { assoc: AssocId, peer: SocketAddr },
    /// An association has ended or restarted.
    Down {
        assoc: AssocId,
        /// True if the association is up again at once.
        restarted: bool,
    },
    /// The peer of an association has answered a heartbeat.
    Alive { assoc: AssocId },
    /// NGAP message of a RAN node.
    Ngap {
        assoc: AssocId,
        /// Routing information; `None` for an invalid message.
        view: Option<ShallowView>,
        /// Bucket by which the first message of a UE was routed; `None` until then.
        bucket: Option<Bucket>,
        /// NGAP PDU as received.
        #[serde(with = "serde_bytes")]
        pdu: Vec<u8>,
    },
    /// PFCP message for a session.
    Pfcp {
        upf: SocketAddr,
        seid: Seid,
        /// True if the message is a request.
        request: bool,
        /// PFCP message as received.
        #[serde(with = "serde_bytes")]
        message: Vec<u8>,
    },
    /// A PFCP request got no answer.
    PfcpTimeout { seid: Seid },
    /// A PFCP association was set up or released.
    Upf {
        upf: SocketAddr,
        /// True if the association is set up.
        up: bool,
    },
    /// A UPF has lost its sessions.
    UpfLost { upf: SocketAddr },
    /// A message about a UE that its RAN node has not acknowledged before the association ended.
    Undelivered {
        assoc: AssocId,
        ue: Ltmsi,
        /// NGAP PDU that was not acknowledged.
        #[serde(with = "serde_bytes")]
        pdu: Vec<u8>,
    },
}

impl HostInput {
    /// Returns the message to a host. `answers` is true for the host that answers a message to all
    /// hosts.
    pub fn message(&self, number: u64, answers: bool) -> ToHost<'_> {
        match self {
            HostInput::Up { assoc, peer } => ToHost::Up { assoc: *assoc, peer: *peer },
            HostInput::Down { assoc, restarted } => ToHost::Down { assoc: *assoc, restarted: *restarted },
            HostInput::Alive { assoc } => ToHost::Alive { assoc: *assoc },
            HostInput::Ngap { assoc, view, bucket, pdu } => {
                ToHost::Ngap { number, assoc: *assoc, answers, bucket: *bucket, view: *view, pdu }
            }
            HostInput::Pfcp { upf, seid, request, message } => {
                ToHost::Pfcp { number, upf: *upf, seid: *seid, request: *request, message }
            }
            HostInput::PfcpTimeout { seid } => ToHost::PfcpTimeout { number, seid: *seid },
            HostInput::Upf { upf, up } => ToHost::Upf { upf: *upf, up: *up },
            HostInput::UpfLost { upf } => ToHost::UpfLost { upf: *upf },
            HostInput::Undelivered { assoc, ue, pdu } => ToHost::Undelivered { assoc: *assoc, ue: *ue, pdu },
        }
    }

    /// Returns true for an NG Setup Request.
    pub(super) fn is_ng_setup(&self) -> bool {
        let HostInput::Ngap { view: Some(ShallowView { route: Route::Node, .. }), pdu, .. } = self else {
            return false;
        };
        pdu.starts_with(&NG_SETUP)
    }

    /// Returns true for a RAN Configuration Update.
    pub(super) fn is_configuration_update(&self) -> bool {
        matches!(self, HostInput::Ngap { pdu, .. } if pdu.starts_with(&RAN_CONFIGURATION_UPDATE))
    }
}
