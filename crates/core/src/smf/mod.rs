//! SMF part of the core: one PDU session as plain data and a pure step over it.
//!
//! The operations are those of TS 29.502 (Create, Update, Release SM Context), and the outputs
//! correspond to N1N2 transfers. The same functions thus serve the unified core and SBA mode. The
//! SMF part does not handle NGAP connections or NAS security. It receives and sends 5GSM messages
//! (N1), NGAP transfers (N2) and PFCP messages (N4). A session of EPS ([`SmContext::dialect`]) has
//! ESM messages and E-RAB parameters instead.

mod apn_ambr;
mod charging;
mod context;
mod control_plane;
mod convert;
mod erab;
mod esm;
mod establish;
mod forwarding;
mod handover;
mod interface;
mod messages;
mod n1;
mod n1_dispatch;
mod n2;
mod n4;
mod options;
mod qos_change;
mod qos_change_messages;
mod ran_changes;
mod release;
mod relocate;
mod session_request;
mod terms;
#[cfg(test)]
pub(crate) mod tests;
mod up_security;
mod upf;
mod user_plane;

pub use context::{
    Forwarding, ForwardingEnds, ForwardingRequest, ForwardingRules, ForwardingStep, ModificationCommand, N4State,
    PfcpSession, QosTerms, RanState, RanTerms, Relocation, RelocationStep, SessionHandover, SessionState,
    SessionStatus, SmContext, Stage, TermsChange, Tunnel, UpfUpdate, Usage, deadline, ebi, seid,
};
pub use control_plane::{DOWNLINK_FAULT, downlink_packet};
pub use erab::{ErabAdmission, ErabForwarding, ErabQos, ErabRequest, ErabTunnel, erab_to_move};
pub use esm::offered_by_attach;
pub(crate) use esm::{check_header, is_requested_by, session_identity, unanswered_request};
pub use forwarding::handover_command;
pub use handover::path_switch_answer;
pub use interface::{Create, Input, N2Sm, Output};
#[cfg(test)]
pub(crate) use messages::command_with_forwarding;
#[cfg(test)]
pub(crate) use n2::modify_confirm as modify_confirm_transfer;
pub use n2::{HandoverRefusal, modify_refusal, refusal, release_command_transfer};
pub use qos_change::awaits_connection;
pub use ran_changes::{can_modify, modify_confirm};
pub use terms::SessionTerms;

use crate::Env;
use crate::config::CoreConfig;
use vireo_types::{Dialect, SessionAddress};

/// Executes Nsmf_PDUSession_CreateSMContext, the first step of a session. Returns no context if the
/// request is refused; the outputs are then the answer to the UE, if any. With a context, the
/// outputs are the request to the UPF, and the UE waits.
pub fn create(request: &Create<'_>, env: &mut Env<'_>) -> (Option<SmContext>, Vec<Output>) {
    establish::create(request, env)
}

/// Returns the cause of a PDU SESSION ESTABLISHMENT REJECT.
pub(crate) fn reject_cause(output: &Output) -> Option<u8> {
    match output {
        Output::N1(octets) => match octets[..] {
            [0x2e, _, _, 0xc3, cause, ..] => Some(cause),
            _ => None,
        },
        _ => None,
    }
}

/// Returns true if a 5GSM message repeats the request for a session that is not established yet: it
/// has the same PTI.
pub(crate) fn repeats_request(sm: &SmContext, n1: &[u8]) -> bool {
    match (&sm.stage, n1) {
        (Stage::Requested { pti, .. } | Stage::Accepted { pti }, [_, _, repeated, ..]) => pti == repeated,
        _ => false,
    }
}

/// Returns true if the RAN has resources of the session, or releases them.
pub fn is_at_ran(sm: &SmContext) -> bool {
    use context::RanState::{Releasing, SettingUp, Up};
    matches!(sm.ran, SettingUp | Up | Releasing { .. }) && !sm.is_over_nas()
}

/// Lets a new session wait until the RAN has released another one with its ID.
pub fn wait_for_ran(sm: &mut SmContext, env: &Env<'_>) {
    sm.ran = context::RanState::Releasing { then_setup: true };
    sm.deadline = Some(env.now + env.config.timers.ran_response);
}

/// Returns true if a PFCP message rejects a new session because another session has its address.
pub fn address_is_taken(sm: &SmContext, message: &[u8]) -> bool {
    let waits = sm.n4 == N4State::Establishing && matches!(sm.stage, Stage::Requested { .. });
    waits && n4::address_is_taken(message, sm.pfcp.cp_seid)
}

/// Returns a new establishment request to the UPF, with another address.
pub fn establish_with(sm: &mut SmContext, address: SessionAddress, config: &CoreConfig) -> Output {
    sm.address = address;
    n4::establishment_request(sm, config, 0)
}

/// Executes one step of a session. After [`Output::Released`] the caller must delete the context.
pub fn step(sm: &mut SmContext, input: Input<'_>, env: &Env<'_>) -> Vec<Output> {
    let mut out = Vec::new();
    let was_elsewhere = sm.is_relocating();
    if sm.stage == Stage::Ended && sm.n4 == N4State::Deleted && !was_elsewhere {
        return out;
    }
    match input {
        Input::N1(octets) => match sm.dialect {
            Dialect::Nr => n1_dispatch::on_message(sm, octets, env, &mut out),
            Dialect::Eps => esm::on_message(sm, octets, env, &mut out),
        },
        Input::N2(N2Sm::PathSwitchRequest, octets) => handover::switch(sm, octets, env, &mut out),
        Input::N2(N2Sm::PathSwitchSetupFailed, _) => handover::on_refused(sm, env, &mut out),
        Input::N2(N2Sm::NotifyReleased, _) => handover::on_refused(sm, env, &mut out),
        Input::N2(N2Sm::Notify, octets) => ran_changes::on_notify(sm, octets, env, &mut out),
        Input::N2(N2Sm::ModifyIndication, octets) => ran_changes::modify(sm, octets, env, &mut out),
        Input::N2(N2Sm::HandoverRequired, _) => handover::on_required(sm, &mut out),
        Input::N2(N2Sm::HandoverRequestAcknowledge, octets) => handover::on_prepared(sm, octets, &mut out),
        Input::MoveRequired(to, octets) => handover::on_move_required(sm, to, octets, &mut out),
        Input::MovePrepared(to, octets) => handover::on_move_prepared(sm, to, octets),
        Input::NoForwarding => forwarding::end(sm),
        Input::HandoverComplete => handover::complete(sm, env, &mut out),
        Input::N2(N2Sm::HandoverAllocationUnsuccessful, _) | Input::HandoverCancelled => {
            user_plane::on_handover_cancel(sm, env, &mut out);
        }
        Input::N2(kind, octets) => user_plane::on_ran_answer(sm, kind, octets, env, &mut out),
        Input::Activate => user_plane::activate(sm, env, &mut out),
        Input::Deactivate => user_plane::deactivate(sm, &mut out),
        Input::Reachable => release::resend_release_command(sm, &mut out),
        Input::Unreachable => user_plane::unreachable(sm, &mut out),
        Input::Release(cause) => release::start(sm, release::NO_PTI, cause, env, &mut out),
        Input::ReleaseLocally => release::end(sm, &mut out),
        Input::LostByUe => release::end_at_ran(sm, &mut out),
        Input::Pfcp(octets) => upf::on_message(sm, octets, env, &mut out),
        Input::PfcpTimeout => upf::on_timeout(sm, env, &mut out),
        Input::UpfLost => {
            relocate::on_source_lost(sm, &mut out);
            user_plane::on_upf_loss(sm, env, &mut out);
        }
        Input::Relocate(upf, seid) => relocate::begin(sm, upf, seid, env, &mut out),
        Input::PfcpFromTarget(octets) => relocate::on_message(sm, octets, env, &mut out),
        Input::TargetPfcpTimeout => relocate::on_target_timeout(sm, env, &mut out),
        Input::TargetUpfLost => relocate::on_target_lost(sm, env, &mut out),
        Input::Deadline => on_deadline(sm, env, &mut out),
        Input::Convert(dialect) => convert::convert(sm, dialect, env, &mut out),
        Input::ChangeTerms(subscribed) => qos_change::change(sm, subscribed, env),
        Input::Connected => qos_change_messages::send(sm, env, &mut out),
    }
    if was_elsewhere {
        relocate::proceed(sm, env, &mut out);
        relocate::finish(sm, was_elsewhere, &mut out);
    }
    forwarding::proceed(sm, env, &mut out);
    charging::proceed(sm, env, &mut out);
    qos_change_messages::proceed(sm, &mut out);
    out
}

fn on_deadline(sm: &mut SmContext, env: &Env<'_>, out: &mut Vec<Output>) {
    relocate::on_deadline(sm, env, out);
    forwarding::on_deadline(sm, env);
    qos_change_messages::on_deadline(sm, env, out);
    match &sm.stage {
        // The deadline was changed or cleared meanwhile.
        _ if sm.deadline.is_none_or(|at| at > env.now) => {}
        Stage::Releasing { .. } => release::on_t3592_expiry(sm, env, out),
        Stage::Activating { .. } => esm::on_t3485_expiry(sm, env, out),
        _ => user_plane::on_ran_timeout(sm, env, out),
    }
}
