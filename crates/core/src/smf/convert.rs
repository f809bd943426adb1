//! Move of a session to the other dialect (TS 23.502 4.11.1).
//!
//! The session keeps its addresses, its UPF and its tunnel end there. Packets on N3 have a PDU
//! Session Container, those on S1-U do not (TS 29.281 5.2.1): the UPF gets other rules.

use super::context::{N4State, SmContext};
use super::interface::Output;
use super::{forwarding, n4, qos_change};
use crate::Env;
use vireo_types::Dialect;

/// Handles that the UE has moved, by a handover if a target is prepared.
pub(super) fn convert(sm: &mut SmContext, to: Dialect, env: &Env<'_>, out: &mut Vec<Output>) {
    if sm.dialect == to {
        return;
    }
    sm.dialect = to;
    qos_change::interrupt(sm);
    if let Some(tunnel) = sm.handover.target.take() {
        sm.since = env.now;
        forwarding::on_arrival(sm, env);
        sm.end_marker = sm.downlink.is_some();
        sm.downlink = Some(tunnel);
    }
    sm.n4 = match sm.n4 {
        N4State::Synced => return send(sm, env, out),
        N4State::Updating { .. } | N4State::Establishing => N4State::Converting,
        // The UE is back before the UPF was told that it left.
        N4State::Converting => outstanding(sm),
        ended @ (N4State::Deleting | N4State::Deleted) => ended,
    };
}

/// Returns the state towards the UPF as far as it concerns the outstanding request.
pub(super) fn outstanding(sm: &SmContext) -> N4State {
    match sm.n4 {
        N4State::Converting if sm.pfcp.up_seid == 0 => N4State::Establishing,
        N4State::Converting => N4State::Updating { stale: true },
        other => other,
    }
}

/// Converts the session once the request that was outstanding is answered.
pub(super) fn proceed(sm: &mut SmContext, before: N4State, env: &Env<'_>, out: &mut Vec<Output>) {
    match (before, sm.n4) {
        (_, N4State::Synced) => send(sm, env, out),
        (N4State::Establishing, N4State::Establishing) | (N4State::Updating { .. }, N4State::Updating { .. }) => {
            sm.n4 = N4State::Converting;
        }
        // It is being deleted, or established again in the dialect.
        _ => {}
    }
}

/// Sends the UPF the rules of the dialect, and the value of `downlink`.
fn send(sm: &mut SmContext, env: &Env<'_>, out: &mut Vec<Output>) {
    let Some(request) = n4::conversion_request(sm, env.config) else { return };
    sm.n4 = N4State::Updating { stale: false };
    sm.end_marker = false;
    out.push(request);
}
