//! Changes of a session that the RAN starts: notification of QoS flows, and another tunnel end (TS
//! 23.502 4.3.3.2, TS 38.413 8.2.4 and 8.2.5).

use super::context::SmContext;
use super::interface::Output;
use super::{handover, n2, release, user_plane};
use crate::Env;
use vireo_types::Instant;
use vireo_wire::nas::GsmCause;

/// Handles a PDU Session Resource Notify Transfer. The default QoS flow has the lifetime of its
/// session (TS 23.501 5.7.2.7): a session without it is released, also at the RAN.
pub(super) fn on_notify(sm: &mut SmContext, octets: &[u8], env: &Env<'_>, out: &mut Vec<Output>) {
    let Some(notification) = n2::notification(octets) else { return };
    let n2::Notification { fulfilled, not_fulfilled, releases_default } = notification;
    if fulfilled | not_fulfilled != 0 {
        out.push(Output::QosFlowsNotified { fulfilled, not_fulfilled });
    }
    if releases_default {
        release::start(sm, release::NO_PTI, GsmCause::InsufficientResources.as_u8(), env, out);
    }
}

/// Returns true if the tunnel end of a PDU Session Resource Modify Indication Transfer can be taken
/// over. The session otherwise stays as it is.
pub fn can_modify(sm: &SmContext, octets: &[u8]) -> bool {
    handover::can_switch(sm) && n2::modify_indication(sm, octets).is_some()
}

/// Handles a PDU Session Resource Modify Indication Transfer: has the UPF send to the new tunnel
/// end, and an End Marker to the earlier one.
pub(super) fn modify(sm: &mut SmContext, octets: &[u8], env: &Env<'_>, out: &mut Vec<Output>) {
    if let Some(tunnel) = n2::modify_indication(sm, octets).filter(|_| handover::can_switch(sm)) {
        sm.since = env.now;
        user_plane::forward_to(sm, Some(tunnel), out);
    }
}

/// Returns the PDU Session Resource Modify Confirm Transfer once the UPF has been updated; `None`
/// if the session has no user plane any more.
pub fn modify_confirm(sm: &mut SmContext, now: Instant) -> Option<Vec<u8>> {
    let uplink = sm.is_up().then(|| sm.take_unconfirmed_uplink(now).or(sm.uplink))?;
    uplink.map(n2::modify_confirm)
}
