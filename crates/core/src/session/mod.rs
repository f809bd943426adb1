//! The SMF's decisions: one PDU session as plain data and a pure step over it.
//!
//! The operations are TS 29.502's (Create, Update, Release SM Context) and the outputs are its N1N2 message transfer,
//! so that the same functions serve the unified core and the service-based chain. The SMF part knows nothing of NGAP
//! connections or NAS security: it takes and gives 5GSM messages (N1), NGAP transfers (N2) and PFCP messages (N4).

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

/// Which NGAP transfer IE an N2 container is (TS 38.413 9.3.4).
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
    /// Handover Required Transfer. Its answer, the Handover Request Transfer, is a [`N2Sm::SetupRequest`].
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

/// Nsmf_PDUSession_CreateSMContext: what the AMF part knows when a UE asks for a new session.
#[derive(Debug)]
pub struct Create<'a> {
    /// The UE.
    pub supi: Supi,
    /// The UE's number, for the SEID.
    pub ltmsi: Ltmsi,
    /// A position of the UE's context that no other session has, for the SEID.
    pub index: SessionIndex,
    /// PDU session identity, 1 to 15.
    pub psi: u8,
    /// The 5GSM message of the payload container, as received.
    pub n1: &'a [u8],
    /// The slice chosen.
    pub snssai: Snssai,
    /// The data network chosen.
    pub dnn: &'a Dnn,
    /// What the subscriber may do there.
    pub subscription: &'a DnnSubscription,
}

/// What happens to a session that is there (Nsmf_PDUSession_UpdateSMContext, ReleaseSMContext, N4 and time).
#[derive(Debug)]
pub enum Input<'a> {
    /// A 5GSM message of the UE.
    N1(&'a [u8]),
    /// An NGAP transfer of the RAN.
    N2(N2Sm, &'a [u8]),
    /// The UE comes back (service request): set the tunnel to the RAN up again.
    Activate,
    /// The AN is released: buffer downlink packets.
    Deactivate,
    /// The UE has arrived at the RAN node that it was handed over to (TS 23.502 4.9.1.3.3).
    HandoverComplete,
    /// The handover will not take place.
    HandoverCancelled,
    /// The UE answers to paging: what it was not told, it is told now.
    Reachable,
    /// The UE does not answer to paging (TS 23.502 4.2.3.3 step 5): the packets that wait for it are dropped, so that
    /// the next one is reported again, and a release that it was to be told is over without it.
    Unreachable,
    /// The network ends the session towards the UE, by a PDU Session Release Command with this 5GSM cause.
    Release(u8),
    /// The session ends without telling the UE (deregistration, TS 24.501 5.5.2): only the UPF is told.
    ReleaseLocally,
    /// A PFCP message for this session: a response to what was sent, or a report of the UPF.
    Pfcp(&'a [u8]),
    /// The UPF did not answer what was sent, after all repetitions.
    PfcpTimeout,
    /// The UPF has restarted or its path is given up: it knows the session no more, and what was outstanding towards
    /// it is void (neither an answer nor a timeout follows).
    UpfLost,
    /// The operator wants the session at another UPF, with its addresses, under this SEID of ours.
    Relocate(SocketAddr, Seid),
    /// A PFCP message of the UPF that the session goes to or comes from ([`Relocation`]).
    PfcpFromTarget(&'a [u8]),
    /// That UPF did not answer.
    TargetPfcpTimeout,
    /// That UPF has restarted.
    TargetUpfLost,
    /// The deadline passed.
    Deadline,
}

/// What a session step wants done, after it is committed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Output {
    /// A 5GSM message for the UE.
    N1(Vec<u8>),
    /// An NGAP transfer for the RAN; travels with the N1 of the same step if there is one.
    N2(N2Sm, Vec<u8>),
    /// A PFCP request or response; the sequence number of a request is filled in by the N4 endpoint.
    Pfcp { upf: SocketAddr, message: Vec<u8> },
    /// These addresses go back to the pool.
    FreeAddress(Box<Dnn>, SessionAddress),
    /// A session that the UE asked for could not be had, or has ended: forget it.
    Released,
    /// The UE's new session is usable: the UPF forwards to the RAN. For counters and latency.
    Established,
    /// The user plane of a session that the UE had is back (service request): the UPF forwards to the RAN.
    Activated,
    /// The UPF holds a downlink packet for a UE without user plane: page it, or activate if it is connected.
    DownlinkData,
    /// The session has carried so many octets of user packets, which were not told before.
    UsageReported {
        /// From the UE.
        uplink: u64,
        /// To the UE.
        downlink: u64,
    },
    /// The session is at the UPF that it was wanted at, which was asked for then.
    Relocated(Instant),
    /// The session stays at the UPF that it is at.
    NotRelocated,
}

/// Nsmf_PDUSession_CreateSMContext: the first step of a session. Without a context there is none, and the outputs
/// are the answer to the UE, if it gets one; with one, the UPF is asked first and the UE waits.
pub fn create(request: &Create<'_>, env: &mut Env<'_>) -> (Option<SmContext>, Vec<Output>) {
    establish::create(request, env)
}

/// Whether a PFCP message says that the UPF does not establish a new session because the address is another session's.
pub fn address_is_taken(sm: &SmContext, message: &[u8]) -> bool {
    let waits = sm.n4 == N4State::Establishing && matches!(sm.stage, Stage::Requested { .. });
    waits && n4::address_is_taken(message, sm.cp_seid)
}

/// Asks the UPF for a new session once more, with this address.
pub fn establish_with(sm: &mut SmContext, address: SessionAddress, config: &CoreConfig) -> Output {
    sm.address = address;
    n4::establishment_request(sm, config, 0)
}

/// One step of a session. After [`Output::Released`] the context is to be forgotten.
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

/// When the session wants [`Input::Deadline`].
pub fn deadline(sm: &SmContext) -> Option<Instant> {
    let relocation = sm.relocation.as_ref().and_then(|relocation| relocation.deadline);
    sm.deadline.into_iter().chain(relocation).min()
}

fn deadline_passed(sm: &mut SmContext, env: &Env<'_>, out: &mut Vec<Output>) {
    relocate::deadline_passed(sm, env, out);
    match &sm.stage {
        // Set again meanwhile, or cleared.
        _ if sm.deadline.is_none_or(|at| at > env.now) => {}
        Stage::Releasing { .. } => release::t3592_expired(sm, env, out),
        _ => user_plane::ran_silent(sm, env, out),
    }
}

/// The session's SEID in the control plane.
pub fn seid(ltmsi: Ltmsi, index: SessionIndex, generation: u32) -> Seid {
    Seid::new(ltmsi, index, generation)
}
