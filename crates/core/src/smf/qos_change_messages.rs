//! Messages of a change of the QoS of a session ([`super::qos_change`]) to UE, RAN and UPF.

use super::context::{ModificationCommand, N4State, RanState, RanTerms, SmContext, Stage, TermsChange, UpfUpdate};
use super::interface::Output;
use super::{messages, n4, qos_change};
use crate::Env;

/// Sends the command to the connected UE, and the parameters to a RAN node that has the session.
pub(super) fn send(sm: &mut SmContext, env: &Env<'_>, out: &mut Vec<Output>) {
    if !qos_change::awaits_connection(sm) {
        return;
    }
    let Some(command) = messages::modification_command(sm, env.config) else { return };
    out.push(command);
    if sm.ran == RanState::Up && !sm.is_over_nas() {
        out.extend(messages::ran_modify_request(sm));
    }
    let deadline = env.now + messages::modification_timer(sm, env);
    qos_change::set_command(sm, ModificationCommand::Sent { repeats: 0, deadline, stale: false });
}

/// Handles the expiry of T3591 (TS 24.501 6.3.2.5 a) or T3486 (TS 24.301 6.4.3.6 a): sends the
/// command again. After the last retransmission the session keeps the new terms without the UE.
pub(super) fn on_deadline(sm: &mut SmContext, env: &Env<'_>, out: &mut Vec<Output>) {
    let Some(TermsChange { command: ModificationCommand::Sent { repeats, deadline, stale }, .. }) = sm.terms.change
    else {
        return;
    };
    if deadline > env.now {
        return;
    }
    if repeats >= env.config.timers.retransmissions {
        qos_change::on_reject(sm, 0, out);
        return;
    }
    out.extend(messages::modification_command(sm, env.config));
    let deadline = env.now + messages::modification_timer(sm, env);
    qos_change::set_command(sm, ModificationCommand::Sent { repeats: repeats + 1, deadline, stale });
}

/// Sends the UPF the new rate once no other request is outstanding, and ends a change that all
/// have.
pub(super) fn proceed(sm: &mut SmContext, out: &mut Vec<Output>) {
    let Some(change) = sm.terms.change else { return };
    if sm.stage != Stage::Established {
        sm.terms.change = None;
        return;
    }
    if change.upf == UpfUpdate::Due && sm.n4 == N4State::Synced && !sm.is_relocating() {
        sm.n4 = N4State::Updating { stale: false };
        out.push(n4::rate_request(sm));
        if let Some(change) = &mut sm.terms.change {
            change.upf = UpfUpdate::Outstanding { stale: false };
        }
        return;
    }
    match (change.upf, change.command) {
        (UpfUpdate::Done, ModificationCommand::Done) => {
            sm.terms.change = None;
            out.push(match change.ran {
                RanTerms::Refused => Output::NotModified(qos_change::REFUSED_BY_RAN.as_u8()),
                RanTerms::Applied(_) | RanTerms::Unknown => Output::Modified(change.since),
            });
        }
        (UpfUpdate::Done, ModificationCommand::Failed) => sm.terms.change = None,
        _ => {}
    }
}
