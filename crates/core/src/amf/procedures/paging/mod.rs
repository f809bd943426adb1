//! Paging (TS 23.502 4.2.3.3, TS 24.501 5.6.2; EPS: TS 24.301 5.6.2).
//!
//! An idle UE is first paged by the RAN node of its last connection, and then in its whole
//! registration area. Paging ends with a service request or registration of the UE, or after the
//! last expiry of T3513. The purpose of paging is in the context
//! ([`crate::amf::context::PendingWork`]), and the engine executes it once the UE is connected.

mod eps;
mod hyperframe;
pub mod nr;
mod state;

pub use state::Paging;

use crate::amf::context::{Retry, UeContext};
use crate::amf::procedures::common::{areas, user_plane};
use crate::amf::s1;
use crate::smf::{Input, SmContext};
use crate::step::{Effect, Kind, Note, StepContext};
use vireo_types::{AssocId, Dialect, Instant, Tmsi};

/// Number of repeats of a page that waits for the paging time window of the UE.
const NOT_SENT_YET: u8 = u8::MAX;

/// Pages the UE. Returns `None` if it cannot be paged; it is then handled as unreachable.
pub fn begin(ctx: &mut StepContext<'_, '_>) -> Option<Paging> {
    ctx.note(Note::Started(Kind::Paging));
    let pending = ctx.ue.pending;
    // No packet of a UE in a non-allowed area needs a page (TS 23.502 4.2.3.3).
    let is_for_packets = !pending.signalling && pending.deregister.is_none();
    let is_restricted = is_for_packets && areas::permitted_sessions(ctx, pending.sessions) == 0;
    let Some(tmsi) = ctx.ue.identity.tmsi.filter(|_| !ctx.ue.reachability.unreachable && !is_restricted) else {
        on_no_response(ctx);
        return None;
    };
    let window = next_window(ctx, tmsi);
    if window > ctx.now() {
        return Some(Paging { retry: Retry { deadline: window, repeats: NOT_SENT_YET }, started: window });
    }
    page(ctx, 1);
    let retry = Retry::start(ctx.now(), ctx.env.config.timers.t3513);
    Some(Paging { retry, started: ctx.received_at() })
}

/// Returns the time from which a UE can be paged: the next paging time window of extended DRX (TS
/// 24.301 5.3.12, TS 24.501 5.3.16).
fn next_window(ctx: &StepContext<'_, '_>, tmsi: Tmsi) -> Instant {
    let reachability = ctx.ue.reachability_for_page(ctx.env.config);
    match (reachability.paging.extended_drx, ctx.env.config.paging.power_saving.extended_drx) {
        (Some(drx), Some(epoch)) => hyperframe::next_page(epoch, tmsi, drx, ctx.now()),
        _ => ctx.now(),
    }
}

/// Sends one page in every cell of the registration area, and the first one to the RAN node of the
/// last connection and those that it has recommended, if further pages may follow. A UE that did
/// not complete the change of its 5G-GUTI may listen to either 5G-TMSI (TS 24.501 5.5.1.2.8 c).
fn page(ctx: &mut StepContext<'_, '_>, attempt: u8) {
    let (ue, env) = (&ctx.ue, &ctx.env);
    let reachability = ue.reachability_for_page(env.config);
    let (dialect, area) = (ue.dialect(), &reachability.area);
    let priority = priority(ue, env.config.paging.priority_levels);
    let intended = env.config.timers.retransmissions.saturating_add(1);
    let attempts = (attempt, intended);
    let (pdus, recommended): (Vec<Vec<u8>>, Vec<AssocId>) = match dialect {
        Dialect::Nr => {
            let information = nr::recommended(&reachability);
            let page = nr::Page { priority, attempts, recommended: information.as_ref() };
            let tmsis = [ue.identity.tmsi, ue.identity.old_tmsi].into_iter().flatten();
            let pdus = tmsis.map(|tmsi| nr::paging(env.config.guami(), tmsi, &reachability, page)).collect();
            (pdus, information.iter().flat_map(|information| nr::nodes(information, env.ran)).collect())
        }
        Dialect::Eps => {
            let information = eps::recommended(&reachability);
            let page = s1::Page { priority, attempts, recommended: information.as_ref() };
            let gutis = ue.identity.gutis_of_eps(env.config);
            let pdus = gutis.map(|guti| eps::paging(guti, ue.identity.supi, &reachability, page)).collect();
            (pdus, information.iter().flat_map(|information| eps::nodes(information, env.ran)).collect())
        }
    };
    let mut nodes = env.ran.serving(area);
    nodes.retain(|assoc| assoc.dialect() == dialect);
    if attempt == 1 && intended > 1 && env.config.paging.last_node_first {
        let mut first: Vec<_> = reachability.last_node.into_iter().chain(recommended).collect();
        first.sort_unstable_by_key(|assoc| assoc.0);
        first.dedup();
        first.retain(|assoc| nodes.contains(assoc));
        nodes = if first.is_empty() { nodes } else { first };
    }
    for assoc in nodes {
        for pdu in &pdus {
            ctx.out.effects.push(Effect::Ngap { assoc, pdu: pdu.clone() });
        }
    }
}

/// Returns the Paging Priority, 1 to 8: the ARP priority level of the sessions with packets for the
/// UE, as far as the configuration gives it a paging priority (TS 23.502 4.2.3.3, TS 23.401
/// 5.3.4.3).
fn priority(ue: &UeContext, levels: u8) -> Option<u8> {
    let has_packets = |session: &&SmContext| session.is_live() && ue.pending.sessions >> session.id() & 1 == 1;
    let level = ue.sessions.iter().filter(has_packets).map(|session| session.terms.arp_priority).min();
    level.filter(|level| (1..=levels.min(8)).contains(level))
}

/// Handles the response of the UE.
pub fn on_response(ctx: &mut StepContext<'_, '_>, paging: Paging) {
    ctx.note(Note::Succeeded(Kind::Paging, paging.started));
}

/// Handles the expiry of the deadline. Returns `None` if the UE did not respond to the last page.
pub fn on_deadline(ctx: &mut StepContext<'_, '_>, paging: Paging) -> Option<Paging> {
    let timers = ctx.env.config.timers;
    if paging.retry.deadline > ctx.now() {
        return Some(paging);
    }
    let next = match paging.retry.repeats {
        NOT_SENT_YET => Some(Retry::start(ctx.now(), timers.t3513)),
        _ => paging.retry.next(ctx.now(), timers.t3513, timers.retransmissions),
    };
    match next {
        Some(retry) => {
            page(ctx, retry.repeats + 1);
            Some(Paging { retry, ..paging })
        }
        None => {
            on_no_response(ctx);
            None
        }
    }
}

/// Notifies the sessions and drops the pending work. A pending deregistration is kept, and the
/// engine executes it without the UE.
fn on_no_response(ctx: &mut StepContext<'_, '_>) {
    ctx.note(Note::Failed(Kind::Paging, 0));
    user_plane::step_all(ctx, || Input::Unreachable);
    let wanted = &mut ctx.ue.pending;
    (wanted.sessions, wanted.signalling) = (0, false);
}
