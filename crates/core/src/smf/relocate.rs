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

use super::context::{N4State, RanState, SmContext, Stage, Tunnel};
use super::n4::{self, Answer};
use super::{Output, charging, n2, release, user_plane};
use crate::Env;
use serde::{Deserialize, Serialize};
use std::net::SocketAddr;
use vireo_types::{Duration, Instant, Seid};
use vireo_wire::nas::GsmCause;

/// Time after the last change in which the source still receives packets that RAN and N6 have sent
/// before it.
const ON_THE_WAY: Duration = Duration::from_millis(200);

/// Quota that remains at the source for packets in transit, in octets: a few gigabits per second
/// for that time.
const KEPT: u64 = 64 << 20;

/// Relocation of a session from one UPF to another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Relocation {
    /// UPF that is not [`SmContext::upf`]: first the target, then the source.
    pub upf: SocketAddr,
    /// SEID at the SMF for the session at that UPF.
    pub cp_seid: Seid,
    /// SEID at that UPF; 0 until it has answered.
    pub up_seid: u64,
    pub step: Step,
    /// End of the time for packets in transit, or of the wait for the RAN's answer.
    pub deadline: Option<Instant>,
    /// Time of the request.
    pub since: Instant,
}

/// Step of a relocation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Step {
    /// The source is asked for the carried volume, because the quota must be divided.
    QueryingUsage,
    /// The source is limited to this part of the quota, in octets.
    SplittingQuota(u64),
    /// The target is asked to establish the session.
    Preparing,
    /// The target has established it with this tunnel end; the source must answer another request
    /// first.
    Prepared(Tunnel),
    /// The session is at the target. The source is asked to send the End Marker to the RAN.
    Ending {
        /// RAN end of the tunnel.
        to: Tunnel,
        /// True if an answer of the RAN is outstanding.
        ran: bool,
        /// True if the target has buffered a downlink packet.
        waits: bool,
    },
    /// Packets in transit pass through the source.
    Draining {
        /// True if an answer of the RAN is outstanding.
        ran: bool,
        /// True if the source buffers downlink packets for an idle UE.
        waits: bool,
    },
    /// A session deletion is outstanding at the UPF that the session has left.
    Deleting {
        /// True if the session has moved: the deletion completes the relocation. Else the
        /// relocation failed.
        done: bool,
    },
}

impl Step {
    fn ran(&mut self) -> Option<&mut bool> {
        match self {
            Step::Ending { ran, .. } | Step::Draining { ran, .. } => Some(ran),
            _ => None,
        }
    }
}

/// Starts the relocation to another UPF, with this SEID at the SMF.
pub(super) fn begin(sm: &mut SmContext, to: SocketAddr, cp_seid: Seid, env: &Env<'_>, out: &mut Vec<Output>) {
    let ready =
        sm.stage == Stage::Established && sm.n4 == N4State::Synced && sm.relocation.is_none() && sm.target.is_none();
    if !ready || !is_settled(sm) || to == sm.upf || cp_seid == sm.cp_seid {
        return out.push(Output::NotRelocated);
    }
    let step = Step::QueryingUsage;
    let relocation = Relocation { upf: to, cp_seid, up_seid: 0, step, deadline: None, since: env.now };
    sm.relocation = Some(Box::new(relocation));
    match charging::quota_remaining(sm, env.config) {
        Some(_) => charging::ask(sm, n4::charging_request(sm, None), out),
        None => prepare(sm, 0, env, out),
    }
}

/// Returns true if RAN and UPF agree on whether there is a user plane.
fn is_settled(sm: &SmContext) -> bool {
    match sm.ran {
        RanState::Idle => sm.downlink.is_none(),
        RanState::Up => sm.downlink.is_some(),
        RanState::Wanted | RanState::Asked | RanState::Releasing { .. } => false,
    }
}

/// Requests the session at the target; `kept` octets of its quota remain at the source.
fn prepare(sm: &mut SmContext, kept: u64, env: &Env<'_>, out: &mut Vec<Output>) {
    let Some(relocation) = sm.relocation.as_deref_mut() else { return };
    relocation.step = Step::Preparing;
    let relocation = *relocation;
    out.push(n4::establishment_request(&at(sm, &relocation), env.config, kept));
}

/// Handles the usage report of the source: divides the remaining quota, at most half of it for the
/// source.
pub(super) fn reported(sm: &mut SmContext, env: &Env<'_>, out: &mut Vec<Output>) {
    let left = charging::quota_remaining(sm, env.config).unwrap_or(0);
    let Some(relocation) = sm.relocation.as_deref_mut() else { return };
    match relocation.step {
        Step::QueryingUsage => {
            let kept = KEPT.min(left / 2);
            relocation.step = Step::SplittingQuota(kept);
            charging::ask(sm, n4::charging_request(sm, Some(kept)), out);
        }
        Step::SplittingQuota(kept) => prepare(sm, kept, env, out),
        _ => {}
    }
}

/// Returns the session in the form for messages to the other UPF.
fn at(sm: &SmContext, relocation: &Relocation) -> SmContext {
    let Relocation { upf, cp_seid, up_seid, .. } = *relocation;
    SmContext { upf, cp_seid, up_seid, relocation: None, ..sm.clone() }
}

/// Handles a PFCP message of the other UPF.
pub(super) fn received(sm: &mut SmContext, octets: &[u8], env: &Env<'_>, out: &mut Vec<Output>) {
    let Some(mut relocation) = sm.relocation.take() else { return };
    let answer = n4::decode_for(octets, relocation.cp_seid);
    if answer.is_some() {
        let spent = sm.usage.spent;
        charging::add(sm, octets, env, out);
        // The source's quota was for packets in transit, whether it sufficed or not: the target has
        // the rest.
        sm.usage.spent = spent;
    }
    let left = match (answer, relocation.step) {
        (Some(Answer::Established(Ok(up))), Step::Preparing) => {
            relocation.up_seid = up.seid;
            match up.tunnel {
                Some(tunnel) => relocation.step = Step::Prepared(tunnel),
                None => let_go(sm, &mut relocation, false, out),
            }
            true
        }
        (Some(Answer::Established(Err(_))), Step::Preparing) => false,
        (Some(Answer::Modified(_)), Step::Ending { .. }) => {
            ended(sm, &mut relocation, env, out);
            true
        }
        (Some(Answer::Deleted), Step::Deleting { done }) => {
            gone(done, &relocation, out);
            return;
        }
        (Some(Answer::Report(report)), _) => {
            out.push(n4::report_response(&at(sm, &relocation), report.sequence));
            if let (true, Step::Draining { waits, .. }) = (report.downlink_data, &mut relocation.step) {
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
        Step::Preparing | Step::Prepared(_) => out.push(Output::NotRelocated),
        Step::Ending { .. } => {
            ended(sm, &mut relocation, env, out);
            sm.relocation = Some(relocation);
        }
        Step::QueryingUsage | Step::SplittingQuota(_) | Step::Draining { .. } => sm.relocation = Some(relocation),
        Step::Deleting { done } => gone(done, &relocation, out),
    }
}

/// Handles a restart of the other UPF: there is no session to delete there.
pub(super) fn lost(sm: &mut SmContext, env: &Env<'_>, out: &mut Vec<Output>) {
    on_target_timeout(sm, env, out);
    if let Some(relocation) = &mut sm.relocation {
        relocation.up_seid = 0;
    }
}

/// Handles that the session's UPF has lost it: the state at the other UPF is useless.
pub(super) fn on_source_lost(sm: &mut SmContext, out: &mut Vec<Output>) {
    if let Some(mut relocation) = sm.relocation.take() {
        match relocation.step {
            // A session that is being established there must be known before it can be deleted.
            Step::Deleting { .. } | Step::Preparing => {}
            _ => let_go(sm, &mut relocation, false, out),
        }
        sm.relocation = Some(relocation);
    }
}

/// Handles that the source has sent the End Marker: the target may send.
fn ended(sm: &mut SmContext, relocation: &mut Relocation, env: &Env<'_>, out: &mut Vec<Output>) {
    let Step::Ending { to, ran, waits } = relocation.step else { return };
    relocation.step = Step::Draining { ran, waits: false };
    relocation.deadline = Some(env.now + ON_THE_WAY);
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
pub(super) fn noticed(sm: &mut SmContext) {
    if let Some(Relocation { step: Step::Ending { waits, .. }, .. }) = sm.relocation.as_deref_mut() {
        *waits = true;
    }
}

/// Handles the RAN's answer to the modification.
pub(super) fn ran_modified(sm: &mut SmContext, env: &Env<'_>) {
    if let Some(relocation) = &mut sm.relocation
        && let Some(ran) = relocation.step.ran()
        && std::mem::take(ran)
    {
        relocation.deadline = Some(env.now + ON_THE_WAY);
    }
}

/// Handles that the RAN does not send to the target: the UE must request the session again, and
/// gets it there.
pub(super) fn ran_refused(sm: &mut SmContext, env: &Env<'_>, out: &mut Vec<Output>) {
    let asked = sm.relocation.as_mut().and_then(|relocation| relocation.step.ran()).is_some_and(|ran| *ran);
    if asked && matches!(sm.stage, Stage::Accepted { .. } | Stage::Established) {
        release::start(sm, release::NO_PTI, GsmCause::ReactivationRequested.as_u8(), env, out);
    }
}

/// Handles that the UE has moved to a RAN node that sends to the source: the previous RAN node was
/// modified instead.
pub(super) fn handed_over(sm: &mut SmContext, to: Tunnel, out: &mut Vec<Output>) {
    let uplink = sm.uplink;
    let Some(ran) = sm.relocation.as_mut().and_then(|relocation| relocation.step.ran()) else { return };
    let modify = uplink.and_then(|uplink| n2::modify_request(uplink, to));
    *ran = modify.is_some();
    out.extend(modify);
}

impl SmContext {
    /// Returns the UPF tunnel end for the answer to a path switch, if the RAN node may not have
    /// received it from the previous one. It counts as sent.
    pub fn take_untold_uplink(&mut self, now: Instant) -> Option<Tunnel> {
        let relocation = self.relocation.as_deref_mut()?;
        let ran = relocation.step.ran()?;
        *ran = false;
        if matches!(relocation.step, Step::Draining { .. }) {
            relocation.deadline = Some(now + ON_THE_WAY);
        }
        self.uplink
    }
}

/// Handles the deadline, if it has expired.
pub(super) fn deadline_passed(sm: &mut SmContext, env: &Env<'_>, out: &mut Vec<Output>) {
    let Some(mut relocation) = sm.relocation.take_if(|r| r.deadline.is_some_and(|at| at <= env.now)) else { return };
    relocation.deadline = None;
    match relocation.step {
        Step::Draining { ran: true, .. } => {
            // Wait until the normal response time of the RAN is over.
            let by = relocation.since + env.config.timers.ran_response;
            match by > env.now && sm.ran != RanState::Idle {
                true => relocation.deadline = Some(by),
                false => {
                    sm.relocation = Some(relocation);
                    ran_refused(sm, env, out);
                    return;
                }
            }
        }
        // The session is deleted at the source once its buffered packets are delivered.
        Step::Draining { waits: true, .. } => {}
        Step::Draining { .. } => let_go(sm, &mut relocation, true, out),
        _ => {}
    }
    sm.relocation = Some(relocation);
}

/// Continues the relocation as far as possible after a step.
pub(super) fn proceed(sm: &mut SmContext, env: &Env<'_>, out: &mut Vec<Output>) {
    let Some(mut relocation) = sm.relocation.take() else { return };
    let ends = matches!(sm.stage, Stage::Releasing { .. } | Stage::Ended);
    match &mut relocation.step {
        Step::Deleting { .. } | Step::Preparing => {}
        Step::QueryingUsage
        | Step::SplittingQuota(_)
        | Step::Prepared(_)
        | Step::Ending { .. }
        | Step::Draining { .. }
            if ends =>
        {
            let done = matches!(relocation.step, Step::Ending { .. } | Step::Draining { .. });
            let_go(sm, &mut relocation, done, out);
        }
        Step::QueryingUsage | Step::SplittingQuota(_) => {}
        // A RAN node that is receiving the source's tunnel end must have it before it can get
        // another.
        Step::Prepared(_) if sm.n4 != N4State::Synced || sm.target.is_some() || !is_settled(sm) => {}
        Step::Prepared(tunnel) => {
            let tunnel = *tunnel;
            switch(sm, &mut relocation, tunnel, env, out);
        }
        // No packets are sent through a RAN node that the UE has left.
        Step::Ending { ran, .. } => *ran &= sm.ran != RanState::Idle,
        Step::Draining { ran, waits } => {
            *ran &= sm.ran != RanState::Idle;
            if let (true, Some(_)) = (*waits, sm.downlink) {
                *waits = false;
                relocation.deadline = Some(env.now + ON_THE_WAY);
                let there = SmContext { downlink: sm.downlink, end_marker: false, ..at(sm, &relocation) };
                out.push(n4::modification_request(&there));
            }
        }
    }
    // Without a session to delete, the relocation is over.
    let over = relocation.up_seid == 0 && matches!(relocation.step, Step::Deleting { .. });
    match (over, relocation.step) {
        (true, Step::Deleting { done }) => gone(done, &relocation, out),
        _ => sm.relocation = Some(relocation),
    }
}

/// Switches the session to the target.
fn switch(sm: &mut SmContext, relocation: &mut Relocation, tunnel: Tunnel, env: &Env<'_>, out: &mut Vec<Output>) {
    let modify = sm.downlink.filter(|_| sm.ran == RanState::Up).and_then(|to| n2::modify_request(tunnel, to));
    std::mem::swap(&mut sm.upf, &mut relocation.upf);
    std::mem::swap(&mut sm.cp_seid, &mut relocation.cp_seid);
    std::mem::swap(&mut sm.up_seid, &mut relocation.up_seid);
    sm.uplink = Some(tunnel);
    // Whether the source has used up its quota does not concern the target.
    sm.usage.spent = false;
    let ran = modify.is_some();
    out.extend(modify);
    match sm.downlink.take() {
        Some(to) => {
            relocation.step = Step::Ending { to, ran, waits: false };
            let there = SmContext { downlink: Some(to), end_marker: true, ..at(sm, relocation) };
            out.push(n4::modification_request(&there));
        }
        None => {
            relocation.step = Step::Draining { ran, waits: false };
            relocation.deadline = Some(env.now + ON_THE_WAY);
        }
    }
}

/// Deletes the session at the other UPF.
fn let_go(sm: &SmContext, relocation: &mut Relocation, done: bool, out: &mut Vec<Output>) {
    relocation.step = Step::Deleting { done };
    relocation.deadline = None;
    if relocation.up_seid != 0 {
        out.push(n4::deletion_request(&at(sm, relocation)));
    }
}

fn gone(done: bool, relocation: &Relocation, out: &mut Vec<Output>) {
    out.push(match done {
        true => Output::Relocated(relocation.since),
        false => Output::NotRelocated,
    });
}

/// Returns true if the session exists at a second UPF.
pub(super) fn is_elsewhere(sm: &SmContext) -> bool {
    sm.relocation.is_some()
}

/// Returns true if the session's UPF waits for the End Marker through the other one before it
/// forwards.
pub(super) fn is_ending(sm: &SmContext) -> bool {
    matches!(sm.relocation.as_deref(), Some(Relocation { step: Step::Ending { .. }, .. }))
}

/// Handles a step that may have ended the relocation: ends a session that was released meanwhile.
pub(super) fn finish(sm: &SmContext, was_elsewhere: bool, out: &mut Vec<Output>) {
    if was_elsewhere && !is_elsewhere(sm) {
        release::finish(sm, out);
    }
}
