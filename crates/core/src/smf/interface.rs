//! Input and output of a session step, as the AMF and the N4 endpoint exchange them with the SMF.

use super::context::{ForwardingEnds, Tunnel};
use crate::subscription::DnnSubscription;
use serde::{Deserialize, Serialize};
use std::net::SocketAddr;
use vireo_types::{Dialect, Dnn, Instant, Ltmsi, Seid, SessionAddress, SessionIndex, Snssai, Supi};

/// NGAP transfer IE of an N2 container (TS 38.413 9.3.4). A session of EPS has E-RAB parameters in
/// its place (`smf/erab.rs`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum N2Sm {
    /// PDU Session Resource Setup Request Transfer (to the RAN).
    SetupRequest,
    /// PDU Session Resource Setup Response Transfer.
    SetupResponse,
    /// PDU Session Resource Setup Unsuccessful Transfer.
    SetupUnsuccessful,
    /// PDU Session Resource Release Command Transfer (to the RAN).
    ReleaseCommand,
    /// PDU Session Resource Release Response Transfer.
    ReleaseResponse,
    /// Path Switch Request Transfer.
    PathSwitchRequest,
    /// Path Switch Request Setup Failed Transfer.
    PathSwitchSetupFailed,
    /// Handover Required Transfer. Its answer, the Handover Request Transfer, is a
    /// [`N2Sm::SetupRequest`].
    HandoverRequired,
    /// Handover Request Acknowledge Transfer.
    HandoverRequestAcknowledge,
    /// Handover Command Transfer (to the RAN).
    HandoverCommand,
    /// PDU Session Resource Modify Request Transfer (to the RAN).
    ModifyRequest,
    /// PDU Session Resource Modify Response Transfer.
    ModifyResponse,
    /// PDU Session Resource Modify Unsuccessful Transfer.
    ModifyUnsuccessful,
    /// Path Switch Request Acknowledge Transfer (to the RAN).
    PathSwitchAcknowledge,
    /// Path Switch Request Unsuccessful Transfer (to the RAN).
    PathSwitchUnsuccessful,
    /// Handover Preparation Unsuccessful Transfer (to the RAN).
    HandoverPreparationUnsuccessful,
    /// Handover Resource Allocation Unsuccessful Transfer.
    HandoverAllocationUnsuccessful,
    /// PDU Session Resource Notify Transfer.
    Notify,
    /// PDU Session Resource Notify Released Transfer.
    NotifyReleased,
    /// PDU Session Resource Modify Indication Transfer.
    ModifyIndication,
    /// PDU Session Resource Modify Confirm Transfer (to the RAN).
    ModifyConfirm,
}

/// Nsmf_PDUSession_CreateSMContext: data of the AMF part when a UE requests a new session.
#[derive(Debug)]
pub struct Create<'a> {
    pub supi: Supi,
    /// LTMSI of the UE; part of the SEID.
    pub ltmsi: Ltmsi,
    /// Index in the UE's context that no other session of the UE has; part of the SEID.
    pub index: SessionIndex,
    /// PDU session identity, 1 to 15; 0 if a UE of EPS assigns none.
    pub psi: u8,
    /// Dialect of the UE.
    pub dialect: Dialect,
    /// The 5GSM message of the payload container, or the ESM message, as received.
    pub n1: &'a [u8],
    pub snssai: Snssai,
    pub dnn: &'a Dnn,
    /// Subscription data of the UE for this data network.
    pub subscription: &'a DnnSubscription,
}

/// Input of an existing session (Nsmf_PDUSession_UpdateSMContext, ReleaseSMContext, N4 and time).
#[derive(Debug)]
pub enum Input<'a> {
    /// 5GSM or ESM message of the UE.
    N1(&'a [u8]),
    /// NGAP transfer of the RAN.
    N2(N2Sm, &'a [u8]),
    /// The UE requests its user plane (service request): set the tunnel to the RAN up again.
    Activate,
    /// The AN is released: buffer downlink packets.
    Deactivate,
    /// The UE has arrived at the target RAN node of a handover (TS 23.502 4.9.1.3.3).
    HandoverComplete,
    /// The handover was cancelled.
    HandoverCancelled,
    /// The UE responds to paging: send what it has not received.
    Reachable,
    /// The UE does not respond to paging (TS 23.502 4.2.3.3 step 5). The buffered packets are
    /// dropped, so that the UPF reports the next one. A release that the UE has not received ends
    /// without it.
    Unreachable,
    /// The network releases the session by a command with this 5GSM or ESM cause.
    Release(u8),
    /// The session is released without a message to the UE (deregistration, TS 24.501 5.5.2); only
    /// the UPF is informed.
    ReleaseLocally,
    /// The UE does not have the session: it is released without a message to the UE, at UPF and RAN
    /// (TS 23.502 4.3.4.2).
    LostByUe,
    /// PFCP message for this session: a response, or a report of the UPF.
    Pfcp(&'a [u8]),
    /// The UPF did not answer a request after all retransmissions.
    PfcpTimeout,
    /// The UPF has restarted or its path failed: it has lost the session. Outstanding requests are
    /// void: neither an answer nor a timeout follows.
    UpfLost,
    /// The operator requests relocation to another UPF. The session keeps its addresses and gets
    /// this SEID at the SMF.
    Relocate(SocketAddr, Seid),
    /// PFCP message of the target or source UPF of a [`Relocation`].
    PfcpFromTarget(&'a [u8]),
    /// The other UPF of a relocation did not answer.
    TargetPfcpTimeout,
    /// The other UPF of a relocation has restarted.
    TargetUpfLost,
    /// The deadline of the session has expired.
    Deadline,
    /// The UE has moved to this dialect (TS 23.502 4.11.1). The session has no user plane at the
    /// RAN, or one at the target of a handover.
    Convert(Dialect),
    /// The source requests a handover to a RAN node of this dialect by this
    /// [`N2Sm::HandoverRequired`]. The answer is the data for the target, a
    /// [`N2Sm::SetupRequest`] of that dialect. As [`N2Sm::HandoverRequired`], with forwarding
    /// through the UPF.
    MoveRequired(Dialect, &'a [u8]),
    /// The target of that handover, of this dialect, is ready. The data for the command to the
    /// source is that of [`super::handover_command`].
    MovePrepared(Dialect, &'a [u8]),
    /// The handover continues without forwarding of packets through the UPF.
    NoForwarding,
    /// The subscription to the data network has changed.
    ChangeTerms(&'a DnnSubscription),
    /// The UE is connected: send a command that waits for it.
    Connected,
}

/// Effect of a session step, executed after its commit.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Output {
    /// 5GSM or ESM message to the UE.
    N1(Vec<u8>),
    /// NGAP transfer to the RAN; sent with the N1 message of the same step if there is one.
    N2(N2Sm, Vec<u8>),
    /// PFCP request or response; the N4 endpoint fills in the sequence number of a request.
    Pfcp { upf: SocketAddr, message: Vec<u8> },
    /// The addresses return to the address pool.
    FreeAddress(Box<Dnn>, SessionAddress),
    /// A requested session was refused, or a session has ended: the context must be deleted.
    Released,
    /// The new session is usable: the UPF forwards to the RAN. For counters and latency.
    Established,
    /// The user plane of an existing session is active again (service request): the UPF forwards to
    /// the RAN.
    Activated,
    /// The UPF buffers a downlink packet for a UE without user plane: page the UE, or activate if
    /// it is connected.
    DownlinkData,
    /// The session has carried so many octets of user packets since the last such output.
    UsageReported {
        /// Octets from the UE.
        uplink: u64,
        /// Octets to the UE.
        downlink: u64,
    },
    /// The session is at the target UPF; contains the time of the request.
    Relocated(Instant),
    /// The relocation failed: the session stays at its UPF.
    NotRelocated,
    /// EPS: the eNB must release the UE, because a bearer whose E-RAB is released ends at the UE.
    ReleaseConnection,
    /// The RAN can or cannot fulfil the rates of QoS flows any more: numbers of flows.
    QosFlowsNotified { fulfilled: u8, not_fulfilled: u8 },
    /// UPF and UE have the changed terms; contains the time at which the change began.
    Modified(Instant),
    /// The UE has rejected the changed terms with this cause, or has not answered (0).
    NotModified(u8),
}

/// Acknowledgement of a session by the target of a handover.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Acknowledgement {
    /// End of the tunnel of the session.
    pub(super) tunnel: Tunnel,
    /// Ends of the tunnels for forwarded packets that the target takes.
    pub(super) forwarding: ForwardingEnds,
    /// Data for the command to a source of the same dialect that forwards directly.
    pub(super) command: Vec<u8>,
}
