//! State of a change of the QoS of a session by the network (TS 24.501 6.3.2, TS 23.502 4.3.3.2;
//! EPS: TS 24.301 6.4.3, TS 23.401 5.4.2.2).
//!
//! The UPF applies the new rate at once. A connected UE gets PDU SESSION MODIFICATION COMMAND or
//! MODIFY EPS BEARER CONTEXT REQUEST, and its RAN node the new parameters in the same message. An
//! idle UE is not paged: it gets the command on its next connection, and the RAN node the
//! parameters with the set-up of the user plane. [`super::qos_change_messages`] sends.
//!
//! If the RAN node refuses, the session returns to its former terms, and so does the UPF.

use super::context::{ModificationCommand, QosTerms, RanState, RanTerms, SmContext, Stage, TermsChange, UpfUpdate};
use super::interface::Output;
use super::n4;
use super::terms::SessionTerms;
use crate::Env;
use crate::subscription::{DnnSubscription, is_gbr};
use vireo_wire::nas::GsmCause;

/// Cause of a change that the RAN node has refused.
pub(super) const REFUSED_BY_RAN: GsmCause = GsmCause::InsufficientResources;

impl SessionTerms {
    fn qos(&self) -> QosTerms {
        QosTerms { ambr: self.ambr, five_qi: self.five_qi, arp_priority: self.arp_priority }
    }

    fn set_qos(&mut self, QosTerms { ambr, five_qi, arp_priority }: QosTerms) {
        (self.ambr, self.five_qi, self.arp_priority) = (ambr, five_qi, arp_priority);
    }
}

/// Takes the terms of the subscription over, if they are others. A session that is not established
/// keeps those of its accept.
pub(super) fn change(sm: &mut SmContext, subscribed: &DnnSubscription, env: &Env<'_>) {
    let DnnSubscription { ambr, five_qi, arp_priority, .. } = *subscribed;
    let former = sm.terms.qos();
    // A default flow stays non-GBR.
    let five_qi = if is_gbr(five_qi) { former.five_qi } else { five_qi };
    let qos = QosTerms { ambr, five_qi, arp_priority };
    if sm.stage != Stage::Established || former == qos {
        return;
    }
    let before = sm.terms.change;
    let upf = apply(sm, qos, env);
    // The answer to a command in progress has the same PTI as that to another one: the next command
    // waits for it.
    let command = match before.map(|before| before.command) {
        Some(ModificationCommand::Sent { repeats, deadline, .. }) => {
            ModificationCommand::Sent { repeats, deadline, stale: true }
        }
        _ => ModificationCommand::Due,
    };
    let since = before.map_or(env.now, |before| before.since);
    let ran = match before.map(|before| before.ran) {
        Some(ran @ (RanTerms::Applied(_) | RanTerms::Unknown)) => ran,
        Some(RanTerms::Refused) | None => RanTerms::Applied(former),
    };
    sm.terms.change = Some(TermsChange { upf, command, since, ran });
}

/// Sets the terms. Returns what the UPF gets of them.
fn apply(sm: &mut SmContext, qos: QosTerms, env: &Env<'_>) -> UpfUpdate {
    let is_rate_new = sm.terms.ambr != qos.ambr;
    sm.terms.set_qos(qos);
    match (is_rate_new && n4::has_rate(sm, env.config), sm.terms.change.map(|before| before.upf)) {
        (true, Some(UpfUpdate::Outstanding { .. })) => UpfUpdate::Outstanding { stale: true },
        (true, _) => UpfUpdate::Due,
        (false, before) => before.unwrap_or(UpfUpdate::Done),
    }
}

/// Handles that the RAN node applies the terms that it was sent.
pub(super) fn accepted_by_ran(sm: &mut SmContext) {
    let qos = sm.terms.qos();
    if let Some(change) = &mut sm.terms.change
        && change.ran != RanTerms::Refused
    {
        let is_stale = matches!(change.command, ModificationCommand::Sent { stale: true, .. });
        change.ran = if is_stale { RanTerms::Unknown } else { RanTerms::Applied(qos) };
    }
}

/// Handles that the RAN node does not apply the terms that it was sent (TS 23.502 4.3.3.2 step 8):
/// the session returns to those that the RAN node applies. Returns true if these are unknown: the
/// session must then be released.
pub(super) fn refused_by_ran(sm: &mut SmContext, env: &Env<'_>, out: &mut Vec<Output>) -> bool {
    let Some(change) = sm.terms.change else { return false };
    let ModificationCommand::Sent { repeats, stale, .. } = change.command else { return false };
    if stale {
        // The later terms are another request to the RAN node.
        set_command(sm, ModificationCommand::Due);
        return false;
    }
    let former = match change.ran {
        RanTerms::Applied(former) => former,
        RanTerms::Unknown => {
            out.push(Output::NotModified(REFUSED_BY_RAN.as_u8()));
            return true;
        }
        RanTerms::Refused => return false,
    };
    let upf = apply(sm, former, env);
    // The RAN node does not deliver a command whose session it has not modified. A retransmission
    // has another message, which it has delivered.
    let (command, ran) = match repeats {
        0 => (ModificationCommand::Failed, RanTerms::Applied(former)),
        _ => (ModificationCommand::Due, RanTerms::Refused),
    };
    if command == ModificationCommand::Failed {
        out.push(Output::NotModified(REFUSED_BY_RAN.as_u8()));
    }
    sm.terms.change = Some(TermsChange { upf, command, ran, since: change.since });
    false
}

/// Returns true if a command of the session waits for a connected UE, whose RAN node is neither
/// setting up the session nor releasing it.
pub fn awaits_connection(sm: &SmContext) -> bool {
    let is_due = sm.terms.change.is_some_and(|change| change.command == ModificationCommand::Due);
    is_due && sm.is_established() && matches!(sm.ran, RanState::Idle | RanState::Up) && !sm.is_relocating()
}

pub(super) fn set_command(sm: &mut SmContext, command: ModificationCommand) {
    if let Some(change) = &mut sm.terms.change {
        change.command = command;
    }
}

/// Returns true if a command is sent and not answered.
pub(super) fn is_sent(sm: &SmContext) -> bool {
    sm.terms.change.is_some_and(|change| matches!(change.command, ModificationCommand::Sent { .. }))
}

/// Handles that the UE has applied the command. Returns false if there is none.
pub(super) fn on_complete(sm: &mut SmContext) -> bool {
    let Some(TermsChange { command: ModificationCommand::Sent { stale, .. }, .. }) = sm.terms.change else {
        return false;
    };
    // The next command follows at the end of the step.
    set_command(sm, if stale { ModificationCommand::Due } else { ModificationCommand::Done });
    true
}

/// Handles that the UE does not apply the command: it keeps its earlier parameters, and RAN and UPF
/// apply the new ones. Returns false if there is no command.
pub(super) fn on_reject(sm: &mut SmContext, cause: u8, out: &mut Vec<Output>) -> bool {
    if !is_sent(sm) {
        return false;
    }
    set_command(sm, ModificationCommand::Failed);
    out.push(Output::NotModified(cause));
    true
}

/// Handles that the UE has become idle, or has moved to the other dialect: the command is sent
/// again on its next connection.
pub(super) fn interrupt(sm: &mut SmContext) {
    if is_sent(sm) {
        set_command(sm, ModificationCommand::Due);
    }
}

/// Handles an answer of the UPF. Returns true if it answers the new rate.
pub(super) fn on_upf_answer(sm: &mut SmContext) -> bool {
    let Some(TermsChange { upf, .. }) = &mut sm.terms.change else { return false };
    let UpfUpdate::Outstanding { stale } = *upf else { return false };
    *upf = if stale { UpfUpdate::Due } else { UpfUpdate::Done };
    true
}

/// Handles that the UPF gets the session again, with the present rate.
pub(super) fn on_upf_loss(sm: &mut SmContext) {
    if let Some(change) = &mut sm.terms.change {
        change.upf = UpfUpdate::Done;
    }
}
