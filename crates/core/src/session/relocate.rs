//! A session goes from one UPF to another (TS 23.502 4.3.5.3 without a change of the address; TS 23.501 5.8.2.9 for the
//! order of packets), and keeps its addresses:
//!
//! 1. The target gets the session, as the source has it, with a tunnel end of its own. It keeps downlink packets, which
//!    N6 brings to it from now on.
//! 2. The RAN is told the target's tunnel end (PDU Session Resource Modify), and the source to end the path (End Marker).
//!    It goes on with what is on its way through it, uplink and downlink.
//! 3. The source has ended the path: the target forwards what it has kept and what comes.
//! 4. The RAN sends to the target, and nothing is on its way any more: the source lets the session go.
//!
//! The session is the target's from step 2 on, and everything else that happens to it goes on as ever: it may become idle,
//! be handed over, or end. Only the source, or a target that is not reached, is dealt with here.

use super::context::{N4State, RanState, SmContext, Stage, Tunnel};
use super::n4::{self, Answer};
use super::{Output, charging, n2, release, user_plane};
use crate::Env;
use serde::{Deserialize, Serialize};
use std::net::SocketAddr;
use vireo_types::{Duration, Instant, Seid};
use vireo_wire::nas::GsmCause;

/// How long after the last change the source still gets packets: those that the RAN and N6 have sent before it.
const ON_THE_WAY: Duration = Duration::from_millis(200);

/// How much of a quota the source keeps for what is on its way through it, in octets: a few gigabits per second for as long.
const KEPT: u64 = 64 << 20;

/// A session that goes from one UPF to another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Relocation {
    /// The UPF that is not [`SmContext::upf`]: first the target, then the source.
    pub upf: SocketAddr,
    /// The control plane's SEID for the session there.
    pub cp_seid: Seid,
    /// That UPF's SEID for it; 0 until it has answered.
    pub up_seid: u64,
    /// How far it is.
    pub step: Step,
    /// When the source has nothing on its way any more, or the RAN should have answered.
    pub deadline: Option<Instant>,
    /// When it was asked for.
    pub since: Instant,
}

/// How far a relocation is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Step {
    /// The source is to say what the session has carried, whose quota has to be divided.
    QueryingUsage,
    /// The source is to carry this much of the quota at most.
    SplittingQuota(u64),
    /// The target is to set the session up.
    Preparing,
    /// It has, with this tunnel end; the source has to answer something else first.
    Prepared(Tunnel),
    /// The session is the target's. The source is to end the path to the RAN.
    Ending {
        /// The RAN's tunnel end.
        to: Tunnel,
        /// The RAN has to be heard of.
        ran: bool,
        /// The target has a downlink packet.
        waits: bool,
    },
    /// What is on its way through the source passes it.
    Draining {
        /// The RAN has to be heard of.
        ran: bool,
        /// The source keeps downlink packets for an idle UE.
        waits: bool,
    },
    /// A session deletion is outstanding at the UPF that has lost the session.
    Deleting {
        /// Whether the session has gone over: its end ends the relocation, else there was none.
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

/// The session is wanted at another UPF, under this SEID of ours.
pub(super) fn begin(sm: &mut SmContext, to: SocketAddr, cp_seid: Seid, env: &Env<'_>, out: &mut Vec<Output>) {
    let ready =
        sm.stage == Stage::Established && sm.n4 == N4State::Told && sm.relocation.is_none() && sm.target.is_none();
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

/// Whether RAN and UPF agree on whether there is a user plane.
fn is_settled(sm: &SmContext) -> bool {
    match sm.ran {
        RanState::Idle => sm.downlink.is_none(),
        RanState::Up => sm.downlink.is_some(),
        RanState::Wanted | RanState::Asked | RanState::Releasing { .. } => false,
    }
}

/// Has the target set the session up; `kept` octets of its quota stay at the source.
fn prepare(sm: &mut SmContext, kept: u64, env: &Env<'_>, out: &mut Vec<Output>) {
    let Some(relocation) = sm.relocation.as_deref_mut() else { return };
    relocation.step = Step::Preparing;
    let relocation = *relocation;
    out.push(n4::establishment_request(&at(sm, &relocation), env.config, kept));
}

/// The source has said what the session has carried: what is left of its quota is divided, half of it at the most for the
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

/// The session as that UPF is told of it.
fn at(sm: &SmContext, relocation: &Relocation) -> SmContext {
    let Relocation { upf, cp_seid, up_seid, .. } = *relocation;
    SmContext { upf, cp_seid, up_seid, relocation: None, ..sm.clone() }
}

/// A PFCP message of the other UPF.
pub(super) fn received(sm: &mut SmContext, octets: &[u8], env: &Env<'_>, out: &mut Vec<Output>) {
    let Some(mut relocation) = sm.relocation.take() else { return };
    let answer = n4::decode_for(octets, relocation.cp_seid);
    if answer.is_some() {
        let spent = sm.usage.spent;
        charging::add(sm, octets, env, out);
        // What the source had was for what was on its way, and has been enough or not: the rest is the target's.
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
        // Late, or of another request than the outstanding one.
        _ => true,
    };
    match left {
        true => sm.relocation = Some(relocation),
        false => out.push(Output::NotRelocated),
    }
}

/// The other UPF did not answer, or has lost the session.
pub(super) fn on_target_timeout(sm: &mut SmContext, env: &Env<'_>, out: &mut Vec<Output>) {
    let Some(mut relocation) = sm.relocation.take() else { return };
    match relocation.step {
        // The N4 endpoint ends a session that comes into being late.
        Step::Preparing | Step::Prepared(_) => out.push(Output::NotRelocated),
        Step::Ending { .. } => {
            ended(sm, &mut relocation, env, out);
            sm.relocation = Some(relocation);
        }
        Step::QueryingUsage | Step::SplittingQuota(_) | Step::Draining { .. } => sm.relocation = Some(relocation),
        Step::Deleting { done } => gone(done, &relocation, out),
    }
}

/// The other UPF has restarted: there is nothing of the session to be let go.
pub(super) fn lost(sm: &mut SmContext, env: &Env<'_>, out: &mut Vec<Output>) {
    on_target_timeout(sm, env, out);
    if let Some(relocation) = &mut sm.relocation {
        relocation.up_seid = 0;
    }
}

/// The UPF that the session is at has lost it: whatever the other one has of it is of no use.
pub(super) fn on_source_lost(sm: &mut SmContext, out: &mut Vec<Output>) {
    if let Some(mut relocation) = sm.relocation.take() {
        match relocation.step {
            // One that comes into being there has to be known of, to be let go.
            Step::Deleting { .. } | Step::Preparing => {}
            _ => let_go(sm, &mut relocation, false, out),
        }
        sm.relocation = Some(relocation);
    }
}

/// The source has ended the path: the target may send.
fn ended(sm: &mut SmContext, relocation: &mut Relocation, env: &Env<'_>, out: &mut Vec<Output>) {
    let Step::Ending { to, ran, waits } = relocation.step else { return };
    relocation.step = Step::Draining { ran, waits: false };
    relocation.deadline = Some(env.now + ON_THE_WAY);
    if sm.downlink.is_some() || sm.stage != Stage::Established {
        return;
    }
    match sm.ran {
        RanState::Up => user_plane::forward_to(sm, Some(to), out),
        // It became idle meanwhile.
        RanState::Idle if waits => out.push(Output::DownlinkData),
        _ => {}
    }
}

/// The target has a downlink packet, and tells it only once.
pub(super) fn noticed(sm: &mut SmContext) {
    if let Some(Relocation { step: Step::Ending { waits, .. }, .. }) = sm.relocation.as_deref_mut() {
        *waits = true;
    }
}

/// The RAN has answered to the modification.
pub(super) fn ran_modified(sm: &mut SmContext, env: &Env<'_>) {
    if let Some(relocation) = &mut sm.relocation
        && let Some(ran) = relocation.step.ran()
        && std::mem::take(ran)
    {
        relocation.deadline = Some(env.now + ON_THE_WAY);
    }
}

/// The RAN does not send to the target: the UE shall ask for the session again, and gets it there.
pub(super) fn ran_refused(sm: &mut SmContext, env: &Env<'_>, out: &mut Vec<Output>) {
    let asked = sm.relocation.as_mut().and_then(|relocation| relocation.step.ran()).is_some_and(|ran| *ran);
    if asked && matches!(sm.stage, Stage::Accepted { .. } | Stage::Established) {
        release::start(sm, release::NO_PTI, GsmCause::ReactivationRequested.as_u8(), env, out);
    }
}

/// The UE has come to a RAN node that sends to the source: the node before was told, or was going to be.
pub(super) fn handed_over(sm: &mut SmContext, to: Tunnel, out: &mut Vec<Output>) {
    let uplink = sm.uplink;
    let Some(ran) = sm.relocation.as_mut().and_then(|relocation| relocation.step.ran()) else { return };
    let modify = uplink.and_then(|uplink| n2::modify_request(uplink, to));
    *ran = modify.is_some();
    out.extend(modify);
}

impl SmContext {
    /// The UPF's tunnel end that the RAN is to be told with the answer to a path switch, if it may not have heard of it
    /// from the RAN node before. It counts as told.
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

/// The deadline has passed, if it has.
pub(super) fn deadline_passed(sm: &mut SmContext, env: &Env<'_>, out: &mut Vec<Output>) {
    let Some(mut relocation) = sm.relocation.take_if(|r| r.deadline.is_some_and(|at| at <= env.now)) else { return };
    relocation.deadline = None;
    match relocation.step {
        Step::Draining { ran: true, .. } => {
            // First the usual time for the RAN's answer, then no longer.
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
        // It is let go when its packets are.
        Step::Draining { waits: true, .. } => {}
        Step::Draining { .. } => let_go(sm, &mut relocation, true, out),
        _ => {}
    }
    sm.relocation = Some(relocation);
}

/// What can be gone on with after a step.
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
        // A RAN node that is being told the source's tunnel end has to have it before it can get another.
        Step::Prepared(_) if sm.n4 != N4State::Told || sm.target.is_some() || !is_settled(sm) => {}
        Step::Prepared(tunnel) => {
            let tunnel = *tunnel;
            switch(sm, &mut relocation, tunnel, env, out);
        }
        // Nobody sends through a RAN node that the UE has left.
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
    // One that has nothing to let go is over.
    let over = relocation.up_seid == 0 && matches!(relocation.step, Step::Deleting { .. });
    match (over, relocation.step) {
        (true, Step::Deleting { done }) => gone(done, &relocation, out),
        _ => sm.relocation = Some(relocation),
    }
}

/// The target has the session from now on.
fn switch(sm: &mut SmContext, relocation: &mut Relocation, tunnel: Tunnel, env: &Env<'_>, out: &mut Vec<Output>) {
    let modify = sm.downlink.filter(|_| sm.ran == RanState::Up).and_then(|to| n2::modify_request(tunnel, to));
    std::mem::swap(&mut sm.upf, &mut relocation.upf);
    std::mem::swap(&mut sm.cp_seid, &mut relocation.cp_seid);
    std::mem::swap(&mut sm.up_seid, &mut relocation.up_seid);
    sm.uplink = Some(tunnel);
    // Whether the source has used up what it had is nothing to the target.
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

/// The other UPF loses the session.
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

/// Whether the session is still known to a UPF that it is not at.
pub(super) fn is_elsewhere(sm: &SmContext) -> bool {
    sm.relocation.is_some()
}

/// Whether the UPF that it is at waits for the end of the path through the other one before it forwards.
pub(super) fn is_ending(sm: &SmContext) -> bool {
    matches!(sm.relocation.as_deref(), Some(Relocation { step: Step::Ending { .. }, .. }))
}

/// After a step that may have ended the relocation: a session that has ended meanwhile is over.
pub(super) fn finish(sm: &SmContext, was_elsewhere: bool, out: &mut Vec<Output>) {
    if was_elsewhere && !is_elsewhere(sm) {
        release::finish(sm, out);
    }
}
