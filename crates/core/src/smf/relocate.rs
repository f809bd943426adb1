//! Relocation of a PDU session to another UPF with the same addresses.
//!
//! It follows TS 23.502 4.3.5.3 without a change of the address; TS 23.501 5.8.2.9 specifies the
//! order of packets.
//!
//! 1. The target gets the session, as the source has it, with its own tunnel end. It buffers
//!    downlink packets, which N6 routes to it from here on.
//! 2. The RAN receives the target's tunnel end (PDU Session Resource Modify), and the source sends
//!    an End Marker. The source continues to forward packets in transit, uplink and downlink.
//! 3. The source has sent the End Marker: the target forwards its buffered packets and all later
//!    ones.
//! 4. The RAN sends to the target, and no packets are in transit: the source deletes the session.
//!
//! The session is at the target from step 2 on. Everything else continues independently: the
//! session may become idle, be handed over, or be released. This Rust module handles only the
//! source, or a target that is not reached.

use super::context::{
    N4State, PfcpSession, RanState, Relocation, RelocationStep, SessionHandover, SmContext, Stage, Tunnel,
};
use super::interface::Output;
use super::n4::{self, Answer};
use super::{charging, n2, release, user_plane};
use crate::Env;
use std::net::SocketAddr;
use vireo_types::{Duration, Instant, Seid};
use vireo_wire::nas::GsmCause;

/// Time after the last change in which the source still receives packets that RAN and N6 have sent
/// before it.
const MAX_TRANSIT_TIME: Duration = Duration::from_millis(200);

/// Quota that remains at the source for packets in transit, in octets: a few gigabits per second
/// for that time.
const SOURCE_QUOTA_OCTETS: u64 = 64 << 20;

/// Starts the relocation to another UPF, with this SEID at the SMF.
pub(super) fn begin(sm: &mut SmContext, to: SocketAddr, cp_seid: Seid, env: &Env<'_>, out: &mut Vec<Output>) {
    let ready = sm.stage == Stage::Established && sm.n4 == N4State::Synced && sm.relocation.is_none();
    if !ready
        || sm.handover != SessionHandover::default()
        || !is_settled(sm)
        || to == sm.pfcp.upf
        || cp_seid == sm.pfcp.cp_seid
    {
        return out.push(Output::NotRelocated);
    }
    let step = RelocationStep::QueryingUsage;
    let pfcp = PfcpSession { upf: to, cp_seid, up_seid: 0, over_nas: sm.pfcp.over_nas };
    let relocation = Relocation { pfcp, step, deadline: None, since: env.now };
    sm.relocation = Some(Box::new(relocation));
    match charging::quota_remaining(sm, env.config) {
        Some(_) => charging::send_request(sm, n4::charging_request(sm, None), out),
        None => prepare(sm, 0, env, out),
    }
}

/// Returns true if RAN and UPF agree on whether there is a user plane.
fn is_settled(sm: &SmContext) -> bool {
    match sm.ran {
        RanState::Idle => sm.downlink.is_none(),
        RanState::Up => sm.downlink.is_some(),
        RanState::AwaitingUpf | RanState::SettingUp | RanState::Releasing { .. } => false,
    }
}

/// Requests the session at the target; `kept` octets of its quota remain at the source.
fn prepare(sm: &mut SmContext, kept: u64, env: &Env<'_>, out: &mut Vec<Output>) {
    let Some(relocation) = sm.relocation.as_deref_mut() else { return };
    relocation.step = RelocationStep::Preparing;
    let relocation = *relocation;
    out.push(n4::establishment_request(&at_other_upf(sm, &relocation), env.config, kept));
}

/// Handles the usage report of the source: divides the remaining quota, at most half of it for the
/// source.
pub(super) fn on_usage_report(sm: &mut SmContext, env: &Env<'_>, out: &mut Vec<Output>) {
    let left = charging::quota_remaining(sm, env.config).unwrap_or(0);
    let Some(relocation) = sm.relocation.as_deref_mut() else { return };
    match relocation.step {
        RelocationStep::QueryingUsage => {
            let kept = SOURCE_QUOTA_OCTETS.min(left / 2);
            relocation.step = RelocationStep::SplittingQuota(kept);
            charging::send_request(sm, n4::charging_request(sm, Some(kept)), out);
        }
        RelocationStep::SplittingQuota(kept) => prepare(sm, kept, env, out),
        _ => {}
    }
}

/// Returns the session in the form for messages to the other UPF.
fn at_other_upf(sm: &SmContext, relocation: &Relocation) -> SmContext {
    SmContext { pfcp: relocation.pfcp, relocation: None, ..sm.clone() }
}

/// Handles a PFCP message of the other UPF.
pub(super) fn on_message(sm: &mut SmContext, octets: &[u8], env: &Env<'_>, out: &mut Vec<Output>) {
    let Some(mut relocation) = sm.relocation.take() else { return };
    let answer = n4::decode_for(octets, relocation.pfcp.cp_seid);
    if answer.is_some() {
        let spent = sm.usage.spent;
        charging::add(sm, octets, env, out);
        // The source's quota was for packets in transit, whether it sufficed or not: the target has
        // the rest.
        sm.usage.spent = spent;
    }
    let left = match (answer, relocation.step) {
        (Some(Answer::Established(Ok(up))), RelocationStep::Preparing) => {
            relocation.pfcp.up_seid = up.seid;
            match up.tunnel {
                Some(tunnel) => relocation.step = RelocationStep::Prepared(tunnel),
                None => delete_other(sm, &mut relocation, false, out),
            }
            true
        }
        (Some(Answer::Established(Err(_))), RelocationStep::Preparing) => false,
        (Some(Answer::Modified(_)), RelocationStep::Ending { .. }) => {
            on_end_marker(sm, &mut relocation, env, out);
            true
        }
        (Some(Answer::Deleted), RelocationStep::Deleting { done }) => {
            report_result(done, &relocation, out);
            return;
        }
        (Some(Answer::Report(report)), _) => {
            out.push(n4::report_response(&at_other_upf(sm, &relocation), report.sequence));
            if let (true, RelocationStep::Draining { waits, .. }) = (report.downlink_data, &mut relocation.step) {
                *waits = true;
                if sm.ran == RanState::Idle {
                    out.push(Output::DownlinkData);
                }
            }
            true
        }
        // Late, or an answer to another request than the outstanding one.
        _ => true,
    };
    match left {
        true => sm.relocation = Some(relocation),
        false => out.push(Output::NotRelocated),
    }
}

/// Handles that the other UPF did not answer, or has lost the session.
pub(super) fn on_target_timeout(sm: &mut SmContext, env: &Env<'_>, out: &mut Vec<Output>) {
    let Some(mut relocation) = sm.relocation.take() else { return };
    match relocation.step {
        // If the session is established late, the N4 endpoint deletes it.
        RelocationStep::Preparing | RelocationStep::Prepared(_) => out.push(Output::NotRelocated),
        RelocationStep::Ending { .. } => {
            on_end_marker(sm, &mut relocation, env, out);
            sm.relocation = Some(relocation);
        }
        RelocationStep::QueryingUsage | RelocationStep::SplittingQuota(_) | RelocationStep::Draining { .. } => {
            sm.relocation = Some(relocation)
        }
        RelocationStep::Deleting { done } => report_result(done, &relocation, out),
    }
}

/// Handles a restart of the other UPF: there is no session to delete there.
pub(super) fn on_target_lost(sm: &mut SmContext, env: &Env<'_>, out: &mut Vec<Output>) {
    on_target_timeout(sm, env, out);
    if let Some(relocation) = &mut sm.relocation {
        relocation.pfcp.up_seid = 0;
    }
}

/// Handles that the session's UPF has lost it: the state at the other UPF is useless.
pub(super) fn on_source_lost(sm: &mut SmContext, out: &mut Vec<Output>) {
    if let Some(mut relocation) = sm.relocation.take() {
        match relocation.step {
            // A session that is being established there must be known before it can be deleted.
            RelocationStep::Deleting { .. } | RelocationStep::Preparing => {}
            _ => delete_other(sm, &mut relocation, false, out),
        }
        sm.relocation = Some(relocation);
    }
}

/// Handles that the source has sent the End Marker: the target may send.
fn on_end_marker(sm: &mut SmContext, relocation: &mut Relocation, env: &Env<'_>, out: &mut Vec<Output>) {
    let RelocationStep::Ending { to, ran, waits } = relocation.step else { return };
    relocation.step = RelocationStep::Draining { ran, waits: false };
    relocation.deadline = Some(env.now + MAX_TRANSIT_TIME);
    if sm.downlink.is_some() || sm.stage != Stage::Established {
        return;
    }
    match sm.ran {
        RanState::Up => user_plane::forward_to(sm, Some(to), out),
        // The UE became idle meanwhile.
        RanState::Idle if waits => out.push(Output::DownlinkData),
        _ => {}
    }
}

/// Records that the target has a downlink packet, which it reports only once.
pub(super) fn on_downlink_data(sm: &mut SmContext) {
    if let Some(Relocation { step: RelocationStep::Ending { waits, .. }, .. }) = sm.relocation.as_deref_mut() {
        *waits = true;
    }
}

/// Returns true if an answer of the RAN to a modification is outstanding.
pub(super) fn awaits_ran(sm: &mut SmContext) -> bool {
    sm.relocation.as_mut().and_then(|relocation| relocation.step.ran()).is_some_and(|ran| *ran)
}

/// Handles the RAN's answer to the modification.
pub(super) fn on_ran_answer(sm: &mut SmContext, env: &Env<'_>) {
    if let Some(relocation) = &mut sm.relocation
        && let Some(ran) = relocation.step.ran()
        && std::mem::take(ran)
    {
        relocation.deadline = Some(env.now + MAX_TRANSIT_TIME);
    }
}

/// Handles that the RAN does not send to the target: the UE must request the session again, and
/// gets it there.
pub(super) fn on_ran_refusal(sm: &mut SmContext, env: &Env<'_>, out: &mut Vec<Output>) {
    if matches!(sm.stage, Stage::Accepted { .. } | Stage::Activating { .. } | Stage::Established) {
        release::start(sm, release::NO_PTI, GsmCause::ReactivationRequested.as_u8(), env, out);
    }
}

/// Modifies the RAN node to which the UE has moved during a relocation, if it still sends to the
/// source UPF: only the previous RAN node was modified.
pub(super) fn redirect_target(sm: &mut SmContext, to: Tunnel, out: &mut Vec<Output>) {
    let uplink = sm.uplink;
    let Some(ran) = sm.relocation.as_mut().and_then(|relocation| relocation.step.ran()) else { return };
    let modify = uplink.and_then(|uplink| n2::modify_request(uplink, to));
    *ran = modify.is_some();
    out.extend(modify);
}

impl SmContext {
    /// Returns the UPF tunnel end for the answer to a path switch, if the RAN node may not have
    /// received it from the previous one. It counts as sent.
    pub fn take_unconfirmed_uplink(&mut self, now: Instant) -> Option<Tunnel> {
        let relocation = self.relocation.as_deref_mut()?;
        let ran = relocation.step.ran()?;
        *ran = false;
        if matches!(relocation.step, RelocationStep::Draining { .. }) {
            relocation.deadline = Some(now + MAX_TRANSIT_TIME);
        }
        self.uplink
    }
}

/// Handles the deadline, if it has expired.
pub(super) fn on_deadline(sm: &mut SmContext, env: &Env<'_>, out: &mut Vec<Output>) {
    let Some(mut relocation) = sm.relocation.take_if(|r| r.deadline.is_some_and(|at| at <= env.now)) else { return };
    relocation.deadline = None;
    match relocation.step {
        RelocationStep::Draining { ran: true, .. } => {
            // Wait until the normal response time of the RAN is over.
            let by = relocation.since + env.config.timers.ran_response;
            match by > env.now && sm.ran != RanState::Idle {
                true => relocation.deadline = Some(by),
                false => {
                    sm.relocation = Some(relocation);
                    on_ran_refusal(sm, env, out);
                    return;
                }
            }
        }
        // The session is deleted at the source once its buffered packets are delivered.
        RelocationStep::Draining { waits: true, .. } => {}
        RelocationStep::Draining { .. } => delete_other(sm, &mut relocation, true, out),
        _ => {}
    }
    sm.relocation = Some(relocation);
}

/// Continues the relocation as far as possible after a step.
pub(super) fn proceed(sm: &mut SmContext, env: &Env<'_>, out: &mut Vec<Output>) {
    let Some(mut relocation) = sm.relocation.take() else { return };
    let ends = matches!(sm.stage, Stage::Releasing { .. } | Stage::Ended);
    match &mut relocation.step {
        RelocationStep::Deleting { .. } | RelocationStep::Preparing => {}
        RelocationStep::QueryingUsage
        | RelocationStep::SplittingQuota(_)
        | RelocationStep::Prepared(_)
        | RelocationStep::Ending { .. }
        | RelocationStep::Draining { .. }
            if ends =>
        {
            let done = matches!(relocation.step, RelocationStep::Ending { .. } | RelocationStep::Draining { .. });
            delete_other(sm, &mut relocation, done, out);
        }
        RelocationStep::QueryingUsage | RelocationStep::SplittingQuota(_) => {}
        // A RAN node that is receiving the source's tunnel end must have it before it can get
        // another.
        RelocationStep::Prepared(_) if sm.n4 != N4State::Synced || sm.handover.target.is_some() || !is_settled(sm) => {}
        RelocationStep::Prepared(tunnel) => {
            let tunnel = *tunnel;
            switch(sm, &mut relocation, tunnel, env, out);
        }
        // No packets are sent through a RAN node that the UE has left.
        RelocationStep::Ending { ran, .. } => *ran &= sm.ran != RanState::Idle,
        RelocationStep::Draining { ran, waits } => {
            *ran &= sm.ran != RanState::Idle;
            if let (true, Some(_)) = (*waits, sm.downlink) {
                *waits = false;
                relocation.deadline = Some(env.now + MAX_TRANSIT_TIME);
                let there = SmContext { downlink: sm.downlink, end_marker: false, ..at_other_upf(sm, &relocation) };
                out.push(n4::modification_request(&there));
            }
        }
    }
    // Without a session to delete, the relocation is over.
    let over = relocation.pfcp.up_seid == 0 && matches!(relocation.step, RelocationStep::Deleting { .. });
    match (over, relocation.step) {
        (true, RelocationStep::Deleting { done }) => report_result(done, &relocation, out),
        _ => sm.relocation = Some(relocation),
    }
}

/// Switches the session to the target.
fn switch(sm: &mut SmContext, relocation: &mut Relocation, tunnel: Tunnel, env: &Env<'_>, out: &mut Vec<Output>) {
    let modify = sm.downlink.filter(|_| sm.ran == RanState::Up).and_then(|to| n2::modify_request(tunnel, to));
    std::mem::swap(&mut sm.pfcp, &mut relocation.pfcp);
    sm.uplink = Some(tunnel);
    // Whether the source has used up its quota does not concern the target.
    sm.usage.spent = false;
    let ran = modify.is_some();
    out.extend(modify);
    match sm.downlink.take() {
        Some(to) => {
            relocation.step = RelocationStep::Ending { to, ran, waits: false };
            let there = SmContext { downlink: Some(to), end_marker: true, ..at_other_upf(sm, relocation) };
            out.push(n4::modification_request(&there));
        }
        None => {
            relocation.step = RelocationStep::Draining { ran, waits: false };
            relocation.deadline = Some(env.now + MAX_TRANSIT_TIME);
        }
    }
}

/// Deletes the session at the other UPF.
fn delete_other(sm: &SmContext, relocation: &mut Relocation, done: bool, out: &mut Vec<Output>) {
    relocation.step = RelocationStep::Deleting { done };
    relocation.deadline = None;
    if relocation.pfcp.up_seid != 0 {
        out.push(n4::deletion_request(&at_other_upf(sm, relocation)));
    }
}

fn report_result(done: bool, relocation: &Relocation, out: &mut Vec<Output>) {
    out.push(match done {
        true => Output::Relocated(relocation.since),
        false => Output::NotRelocated,
    });
}

/// Returns true if the session's UPF waits for the End Marker through the other one before it
/// forwards.
pub(super) fn is_ending(sm: &SmContext) -> bool {
    matches!(sm.relocation.as_deref(), Some(Relocation { step: RelocationStep::Ending { .. }, .. }))
}

/// Handles a step that may have ended the relocation: ends a session that was released meanwhile.
pub(super) fn finish(sm: &SmContext, was_elsewhere: bool, out: &mut Vec<Output>) {
    if was_elsewhere && !sm.is_relocating() {
        release::finish(sm, out);
    }
}
