//! Forwarding of packets from the source RAN node of a handover to its target.
//!
//! With a direct path the source sends to the target itself. Otherwise, and always from one system
//! to the other, it sends through the UPF (indirect forwarding, TS 23.502 4.9.1.3 and 4.11.1.2, TS
//! 23.401 5.5.1.2.2): the UPF allocates a tunnel end for the source, and relays its packets and the
//! End Marker to the tunnel end of the target. The rules are removed some time after the UE has
//! arrived, and when the handover ends otherwise. If there is no tunnel end, the handover continues
//! without forwarding.
//!
//! From the preparation of a handover to EPS on, the UPF accepts uplink packets without QoS flow in
//! the tunnel of the session: the eNB sends them before the UPF has the rules of EPS.
//!
//! Uplink packets, which the source has received out of order, are forwarded within one system, if
//! the target has a tunnel end for them. From one system to the other the UE sends them again.

use super::context::{
    Forwarding, ForwardingEnds, ForwardingRequest, ForwardingRules, ForwardingStep, N4State, SmContext, Stage,
};
use super::interface::Output;
use super::{messages, n4};
use crate::Env;
use vireo_types::{Dialect, Duration};

/// Time after the UE's arrival in which the source may forward packets.
const FORWARDING_TIME: Duration = Duration::from_secs(5);

/// Handles that the source requires a handover. Packets are not forwarded during a relocation.
pub(super) fn require(sm: &mut SmContext, is_direct: bool) {
    if sm.is_relocating() {
        return end(sm);
    }
    let before = sm.handover.forwarding.take();
    let (installed, request) = before.map_or((None, None), |before| (before.installed, before.request));
    let step = ForwardingStep::Required { is_direct };
    sm.handover.forwarding = Some(Box::new(Forwarding { step, installed, request, deadline: None }));
}

/// Handles the tunnel ends of the target for forwarded packets. `direct` is the data of the command
/// for a direct path.
pub(super) fn prepare(sm: &mut SmContext, dialect: Dialect, mut to: ForwardingEnds, direct: Vec<u8>) {
    // From one system to the other, downlink packets alone are forwarded (TS 23.502 4.11.1.2).
    to.uplink = to.uplink.filter(|_| dialect == sm.dialect);
    let Some(forwarding) = &mut sm.handover.forwarding else { return };
    forwarding.step = match &forwarding.step {
        ForwardingStep::Required { is_direct: true } => ForwardingStep::Ready(direct),
        ForwardingStep::Required { is_direct: false } if !to.is_empty() => ForwardingStep::Preparing { to, dialect },
        _ => ForwardingStep::Ended,
    };
}

/// Ends the forwarding: the rules are removed.
pub(super) fn end(sm: &mut SmContext) {
    if let Some(forwarding) = &mut sm.handover.forwarding {
        (forwarding.step, forwarding.deadline) = (ForwardingStep::Ended, None);
    }
}

/// Handles that the UE has arrived: the source forwards what is in transit to it.
pub(super) fn on_arrival(sm: &mut SmContext, env: &Env<'_>) {
    if let Some(forwarding) = &mut sm.handover.forwarding {
        match forwarding.installed {
            Some(_) => forwarding.deadline = Some(env.now + FORWARDING_TIME),
            None => forwarding.step = ForwardingStep::Ended,
        }
    }
}

/// Handles the deadline, if it has expired.
pub(super) fn on_deadline(sm: &mut SmContext, env: &Env<'_>) {
    if sm.handover.forwarding.as_ref().and_then(|forwarding| forwarding.deadline).is_some_and(|at| at <= env.now) {
        end(sm);
    }
}

/// Handles the UPF's answer to a request about the rules: the allocated tunnel ends, or `None` if
/// the UPF refuses or is silent. Returns false if no such request is outstanding.
pub(super) fn on_upf_answer(sm: &mut SmContext, accepted: Option<ForwardingEnds>) -> bool {
    let source = sm.dialect;
    let Some(forwarding) = &mut sm.handover.forwarding else { return false };
    let Some(request) = forwarding.request.take() else { return false };
    forwarding.installed = match (request, accepted) {
        (ForwardingRequest::Create(rules), Some(_)) => Some(rules),
        // A refused request changes nothing.
        (ForwardingRequest::Create(_), None) => forwarding.installed,
        (ForwardingRequest::Remove, _) => None,
    };
    if let (ForwardingRequest::Create(_), ForwardingStep::Preparing { .. }) = (request, &forwarding.step) {
        forwarding.step = match accepted.filter(|ends| !ends.is_empty()) {
            Some(ends) => ForwardingStep::Ready(messages::command_with_forwarding(source, ends)),
            None => ForwardingStep::Ended,
        };
    }
    true
}

/// Sends the UPF what it must change, once no request is outstanding.
pub(super) fn proceed(sm: &mut SmContext, env: &Env<'_>, out: &mut Vec<Output>) {
    if sm.handover.forwarding.is_none() {
        return;
    }
    if matches!(sm.stage, Stage::Releasing { .. } | Stage::Ended) || sm.pfcp.up_seid == 0 {
        // The rules end with the session.
        sm.handover.forwarding = None;
        return;
    }
    let Some(forwarding) = sm.handover.forwarding.as_deref_mut().filter(|f| f.request.is_none()) else { return };
    match forwarding.step {
        ForwardingStep::Ended if forwarding.installed.is_none() => sm.handover.forwarding = None,
        ForwardingStep::Preparing { to, dialect } if sm.n4 == N4State::Synced => {
            let (downlink, uplink) = (to.downlink.is_some(), to.uplink.is_some());
            let rules = ForwardingRules { target: dialect, downlink, uplink };
            forwarding.request = Some(ForwardingRequest::Create(rules));
            let before = forwarding.installed;
            send(sm, n4::forwarding_request(sm, (to, dialect), before, env.config), out);
        }
        ForwardingStep::Ended if sm.n4 == N4State::Synced => {
            forwarding.request = Some(ForwardingRequest::Remove);
            let before = forwarding.installed;
            send(sm, n4::forwarding_removal(sm, before, env.config), out);
        }
        _ => {}
    }
}

fn send(sm: &mut SmContext, request: Output, out: &mut Vec<Output>) {
    sm.n4 = N4State::Updating { stale: false };
    out.push(request);
}

impl SmContext {
    /// Returns true if packets can be forwarded in the handover that the source requires.
    pub fn can_forward(&self) -> bool {
        self.handover.forwarding.is_some()
    }

    /// Returns true if the UPF has yet to allocate the tunnel for forwarded packets.
    pub fn awaits_forwarding(&self) -> bool {
        let step = self.handover.forwarding.as_ref().map(|forwarding| &forwarding.step);
        self.handover.target.is_some() && matches!(step, Some(ForwardingStep::Preparing { .. }))
    }
}

/// Returns the data for the command to the source, a [`super::N2Sm::HandoverCommand`]; `None` if
/// the target has not taken the session over.
pub fn handover_command(sm: &SmContext) -> Option<Vec<u8>> {
    sm.handover.target?;
    Some(match sm.handover.forwarding.as_ref().map(|forwarding| &forwarding.step) {
        Some(ForwardingStep::Ready(command)) => command.clone(),
        _ => messages::command_without_forwarding(sm.dialect),
    })
}
