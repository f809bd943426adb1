//! SMF part of the core: one PDU session as plain data and a pure step over it.
//!
//! The operations are those of TS 29.502 (Create, Update, Release SM Context), and the outputs
//! correspond to N1N2 transfers. The same functions thus serve the unified core and SBA mode. The
//! SMF part does not handle NGAP connections or NAS security. It receives and sends 5GSM messages
//! (N1), NGAP transfers (N2) and PFCP messages (N4).

mod charging;
mod context;
mod establish;
mod handover;
mod n1;
mod n2;
mod n4;
mod options;
mod release;
mod relocate;
mod signalling;
#[cfg(test)]
pub(crate) mod tests;
mod upf;
mod user_plane;

pub use charging::Usage;
pub use context::{N4State, RanState, SessionState, SessionStatus, SmContext, Stage, Tunnel};
pub use handover::switched;
pub use n2::{HandoverRefusal, path_switch_acknowledge, refusal};
pub use relocate::{Relocation, Step};

use crate::Env;
use crate::config::CoreConfig;
use crate::subscription::DnnSubscription;
use serde::{Deserialize, Serialize};
use std::net::SocketAddr;
use vireo_types::{Dnn, Instant, Ltmsi, Seid, SessionAddress, SessionIndex, Snssai, Supi};

/// NGAP transfer IE of an N2 container (TS 38.413 9.3.4).
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
}

/// Nsmf_PDUSession_CreateSMContext: data of the AMF part when a UE requests a new session.
#[derive(Debug)]
pub struct Create<'a> {
    pub supi: Supi,
    /// LTMSI of the UE; part of the SEID.
    pub ltmsi: Ltmsi,
    /// Index in the UE's context that no other session of the UE has; part of the SEID.
    pub index: SessionIndex,
    /// PDU session identity, 1 to 15.
    pub psi: u8,
    /// The 5GSM message of the payload container, as received.
    pub n1: &'a [u8],
    pub snssai: Snssai,
    pub dnn: &'a Dnn,
    /// Subscription data of the UE for this data network.
    pub subscription: &'a DnnSubscription,
}

/// Input of an existing session (Nsmf_PDUSession_UpdateSMContext, ReleaseSMContext, N4 and time).
#[derive(Debug)]
pub enum Input<'a> {
    /// 5GSM message of the UE.
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
    /// The network releases the session by a PDU Session Release Command with this 5GSM cause.
    Release(u8),
    /// The session is released without a message to the UE (deregistration, TS 24.501 5.5.2); only
    /// the UPF is informed.
    ReleaseLocally,
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
}

/// Effect of a session step, executed after its commit.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Output {
    /// 5GSM message to the UE.
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
}

/// Executes Nsmf_PDUSession_CreateSMContext, the first step of a session. Returns no context if the
/// request is refused; the outputs are then the answer to the UE, if any. With a context, the
/// outputs are the request to the UPF, and the UE waits.
pub fn create(request: &Create<'_>, env: &mut Env<'_>) -> (Option<SmContext>, Vec<Output>) {
    establish::create(request, env)
}

/// Returns true if a PFCP message rejects a new session because another session has its address.
pub fn address_is_taken(sm: &SmContext, message: &[u8]) -> bool {
    let waits = sm.n4 == N4State::Establishing && matches!(sm.stage, Stage::Requested { .. });
    waits && n4::address_is_taken(message, sm.cp_seid)
}

/// Returns a new establishment request to the UPF, with another address.
pub fn establish_with(sm: &mut SmContext, address: SessionAddress, config: &CoreConfig) -> Output {
    sm.address = address;
    n4::establishment_request(sm, config, 0)
}

/// Executes one step of a session. After [`Output::Released`] the caller must delete the context.
pub fn step(sm: &mut SmContext, input: Input<'_>, env: &Env<'_>) -> Vec<Output> {
    let mut out = Vec::new();
    let was_elsewhere = relocate::is_elsewhere(sm);
    if sm.stage == Stage::Ended && sm.n4 == N4State::Deleted && !was_elsewhere {
        return out;
    }
    match input {
        Input::N1(octets) => signalling::received(sm, octets, env, &mut out),
        Input::N2(N2Sm::PathSwitchRequest, octets) => handover::switch(sm, octets, env, &mut out),
        Input::N2(N2Sm::PathSwitchSetupFailed, _) => handover::lost(sm, env, &mut out),
        Input::N2(N2Sm::HandoverRequired, _) => handover::required(sm, &mut out),
        Input::N2(N2Sm::HandoverRequestAcknowledge, octets) => handover::prepared(sm, octets, &mut out),
        Input::HandoverComplete => handover::complete(sm, env, &mut out),
        Input::N2(N2Sm::HandoverAllocationUnsuccessful, _) | Input::HandoverCancelled => {
            user_plane::handover_cancelled(sm, env, &mut out);
        }
        Input::N2(kind, octets) => user_plane::ran_answered(sm, kind, octets, env, &mut out),
        Input::Activate => user_plane::activate(sm, env, &mut out),
        Input::Deactivate => user_plane::deactivate(sm, &mut out),
        Input::Reachable => release::resend_release_command(sm, &mut out),
        Input::Unreachable => user_plane::unreachable(sm, &mut out),
        Input::Release(cause) => release::start(sm, release::NO_PTI, cause, env, &mut out),
        Input::ReleaseLocally => release::end(sm, &mut out),
        Input::Pfcp(octets) => upf::received(sm, octets, env, &mut out),
        Input::PfcpTimeout => upf::silent(sm, env, &mut out),
        Input::UpfLost => {
            relocate::on_source_lost(sm, &mut out);
            user_plane::upf_lost(sm, env, &mut out);
        }
        Input::Relocate(upf, seid) => relocate::begin(sm, upf, seid, env, &mut out),
        Input::PfcpFromTarget(octets) => relocate::received(sm, octets, env, &mut out),
        Input::TargetPfcpTimeout => relocate::on_target_timeout(sm, env, &mut out),
        Input::TargetUpfLost => relocate::lost(sm, env, &mut out),
        Input::Deadline => deadline_passed(sm, env, &mut out),
    }
    if was_elsewhere {
        relocate::proceed(sm, env, &mut out);
        relocate::finish(sm, was_elsewhere, &mut out);
    }
    charging::proceed(sm, env, &mut out);
    out
}

/// Returns the time at which the session expects [`Input::Deadline`].
pub fn deadline(sm: &SmContext) -> Option<Instant> {
    let relocation = sm.relocation.as_ref().and_then(|relocation| relocation.deadline);
    sm.deadline.into_iter().chain(relocation).min()
}

fn deadline_passed(sm: &mut SmContext, env: &Env<'_>, out: &mut Vec<Output>) {
    relocate::deadline_passed(sm, env, out);
    match &sm.stage {
        // The deadline was changed or cleared meanwhile.
        _ if sm.deadline.is_none_or(|at| at > env.now) => {}
        Stage::Releasing { .. } => release::t3592_expired(sm, env, out),
        _ => user_plane::ran_silent(sm, env, out),
    }
}

/// Returns the session's SEID at the SMF.
pub fn seid(ltmsi: Ltmsi, index: SessionIndex, generation: u32) -> Seid {
    Seid::new(ltmsi, index, generation)
}
