//! Changes of a subscriber's record while its UE is registered (TS 23.502 4.5.1, TS 23.401
//! 5.3.9.2).
//!
//! The record is the state that the UE's sessions are to have. It is compared with what they have,
//! so that an event that arrives twice, or late, changes nothing more.

use super::{change_ambr, deregister};
use crate::amf::access;
use crate::amf::context::{RanContext, Registration};
use crate::amf::procedures::common::{areas, configured_nssai, moves, user_plane};
use crate::smf::{self, Input, SmContext};
use crate::step::{Kind, Note, StepContext};
use crate::subscription::{AreaRestrictions, Subscription};
use std::num::NonZeroU16;
use std::sync::Arc;
use vireo_types::{Dialect, Snssai, Tai};
use vireo_wire::nas::{GmmCause, GsmCause};

/// Returns the cause with which the UE of a subscriber that gets no service is deregistered: that
/// of a registration (TS 24.501 5.5.2.3.2, TS 24.301 5.5.2.3.2).
pub(super) fn cause(ctx: &StepContext<'_, '_>) -> Option<GmmCause> {
    let ue = &ctx.ue;
    match ue.subscription {
        None => Some(GmmCause::IllegalUe),
        Some(_) => {
            moves::not_allowed(ue, ue.session_dialect()).or_else(|| areas::forbidden_area_cause(ue, ctx.env.config))
        }
    }
}

/// Applies the present record of the UE's subscriber; `None` if it was removed. A UE that is being
/// registered gets the event once more.
pub(super) fn apply_change(ctx: &mut StepContext<'_, '_>, subscription: Option<Subscription>, is_repeated: bool) {
    if !ctx.ue.is_registered() {
        return;
    }
    ctx.ue.pending.authenticate |= !is_repeated;
    let (before, rfsp) = (ctx.ue.ambr(), ctx.ue.rfsp());
    let configured = configured_nssai::current(ctx);
    let areas = ctx.ue.subscription.as_ref().map(|subscription| subscription.areas.clone()).unwrap_or_default();
    if ctx.ue.subscription.as_deref() != subscription.as_ref() {
        ctx.ue.subscription = subscription.map(Arc::new);
    }
    // An emergency registration needs no subscription (TS 23.501 5.16.4.1).
    if ctx.ue.registration == Registration::Emergency {
        return;
    }
    if cause(ctx).is_some() {
        // An idle UE may have come to another tracking area, in which it may register again.
        let may_be_elsewhere = ctx.ue.connection.is_none() && moves::not_allowed(ctx.ue, ctx.ue.dialect()).is_none();
        return deregister(ctx, may_be_elsewhere && ctx.ue.subscription.is_some(), None);
    }
    let Some(subscription) = ctx.ue.subscription.clone() else { return };
    if !keep_slices(ctx, &subscription) {
        return deregister(ctx, true, None);
    }
    ctx.ue.pending.allowed |= ctx.ue.dialect() == Dialect::Nr && configured_nssai::current(ctx) != configured;
    if loses_last_bearer(ctx, &subscription) {
        return deregister(ctx, true, None);
    }
    for at in (0..ctx.ue.sessions.len()).rev() {
        change_session(ctx, at, &subscription);
    }
    change_rfsp(ctx, rfsp);
    let in_dialect = |areas: &AreaRestrictions| match ctx.ue.dialect() {
        Dialect::Nr => areas.clone(),
        Dialect::Eps => areas.clone().in_eps(),
    };
    if in_dialect(&subscription.areas) != in_dialect(&areas) {
        change_areas(ctx, &subscription.areas);
    }
    let has_command = |session: &SmContext| smf::awaits_connection(session);
    // E-RAB MODIFY REQUEST has the UE-AMBR, too.
    if ctx.ue.dialect() == Dialect::Nr || !ctx.ue.sessions.iter().any(has_command) {
        change_ambr(ctx, before);
    }
}

/// Sends the RAN node an RFSP Index that has changed. A node that had one keeps it until the next
/// context of the UE, if the subscriber has none any more.
///
/// A node that is setting the context up, or to which the UE moves, gets it with a later message.
fn change_rfsp(ctx: &mut StepContext<'_, '_>, before: Option<NonZeroU16>) {
    let (Some(rfsp), Some(connection)) = (ctx.ue.rfsp().filter(|rfsp| Some(*rfsp) != before), ctx.ue.connection) else {
        return;
    };
    match connection.ran {
        RanContext::SetUp if !ctx.ue.is_in_handover() => ctx.send(|c| access::rfsp_modification_request(c, rfsp)),
        RanContext::SetUp | RanContext::SettingUp { .. } | RanContext::Rekeying { .. }
            if ctx.ue.dialect() == Dialect::Nr =>
        {
            ctx.ue.pending.areas = true;
        }
        _ => {}
    }
}

/// Applies other areas to a UE that is in no forbidden area. Its registration area becomes that of
/// the tracking areas with the same restriction, which the UE gets with its service area. An idle
/// UE of 5G is paged: one that takes itself to be in a non-allowed area would stay silent. EPS has
/// no such areas.
fn change_areas(ctx: &mut StepContext<'_, '_>, areas: &AreaRestrictions) {
    let here = areas::location(ctx.ue);
    let is_nr = ctx.ue.dialect() == Dialect::Nr;
    let stays = |tai: &Tai| match here {
        Some(here) if is_nr => *tai == here || areas::is_alike(areas, here, *tai),
        _ => !areas.is_forbidden(tai.tac),
    };
    ctx.ue.reachability.area.retain(|tai| stays(tai));
    ctx.ue.pending.areas = true;
    ctx.ue.pending.signalling |= is_nr && ctx.ue.connection.is_none();
}

/// Removes the slices from the allowed NSSAI that are not subscribed any more. Returns false if the
/// UE must register again: its home slice is among them.
fn keep_slices(ctx: &mut StepContext<'_, '_>, subscription: &Subscription) -> bool {
    let is_subscribed = |snssai: &Snssai| subscription.slice(*snssai).is_some();
    if !ctx.ue.allowed.first().is_some_and(is_subscribed) {
        return false;
    }
    ctx.ue.allowed.retain(|snssai| is_subscribed(snssai));
    true
}

/// Returns true if the data networks of all sessions are withdrawn from a UE of EPS that may not be
/// without one. It attaches again (TS 23.401 5.4.4.1).
fn loses_last_bearer(ctx: &StepContext<'_, '_>, subscription: &Subscription) -> bool {
    let needs_one = ctx.ue.dialect() == Dialect::Eps && !ctx.ue.ciot().without_pdn;
    let mut live = ctx.ue.sessions.iter().filter(|session| session.remains()).peekable();
    let is_withdrawn = |session: &SmContext| {
        let is_emergency = ctx.env.config.is_emergency(&session.terms.dnn);
        !is_emergency && subscription.data_network(session.terms.snssai, &session.terms.dnn).is_none()
    };
    needs_one && live.peek().is_some() && live.all(is_withdrawn)
}

/// Releases a session whose data network is not subscribed any more, or has it take over the
/// subscribed terms. An emergency PDN connection needs no subscription.
fn change_session(ctx: &mut StepContext<'_, '_>, at: usize, subscription: &Subscription) {
    let session = &ctx.ue.sessions[at];
    if !session.remains() || ctx.env.config.is_emergency(&session.terms.dnn) {
        return;
    }
    let changes = session.terms.change.is_some();
    match subscription.data_network(session.terms.snssai, &session.terms.dnn) {
        None => user_plane::step(ctx, at, Input::Release(GsmCause::RegularDeactivation.as_u8())),
        Some(network) => {
            user_plane::step(ctx, at, Input::ChangeTerms(network));
            if !changes && ctx.ue.sessions.get(at).is_some_and(|session| session.terms.change.is_some()) {
                ctx.note(Note::Started(Kind::Modification));
            }
        }
    }
}

/// Sends the UE the commands of its sessions that wait for it, once it is connected and no
/// procedure is in progress.
pub(super) fn send_commands(ctx: &mut StepContext<'_, '_>) {
    if !ctx.ue.sessions.iter().any(smf::awaits_connection) {
        return;
    }
    let is_set_up = ctx.ue.connection.is_some_and(|connection| connection.ran == RanContext::SetUp);
    let is_busy = ctx.ue.procedure.is_some() || ctx.ue.is_in_handover() || ctx.ue.is_between_nodes();
    if !(is_set_up || ctx.ue.is_served_by_nas()) || is_busy || !ctx.ue.is_registered() {
        return;
    }
    for at in (0..ctx.ue.sessions.len()).rev() {
        user_plane::step(ctx, at, Input::Connected);
    }
}
