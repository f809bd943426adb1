//! Slices of a UE: allowed, rejected and configured NSSAI (TS 23.501 5.15.4, 5.15.5.2.1).
//!
//! An S-NSSAI is allowed if it is requested, subscribed and served, and the RAN node of the UE
//! supports it in the tracking area. The registration area has tracking areas that support the
//! allowed NSSAI (TS 23.501 5.15.3).

use super::{Request, RequestIdentity};
use crate::amf::procedures::common::configured_nssai;
use crate::smf::SmContext;
use crate::step::StepContext;
use crate::subscription::Subscription;
use vireo_types::{Dialect, Snssai, Tai, limits};
use vireo_wire::nas::RejectedNssaiCause;

/// Slices for the response to a registration request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Slices {
    /// Empty if the UE is to be rejected.
    pub allowed: Vec<Snssai>,
    /// Requested S-NSSAIs that are not allowed, with the extent.
    pub rejected: Vec<(Snssai, RejectedNssaiCause)>,
    /// Configured NSSAI, if the UE needs it.
    pub configured: Vec<Snssai>,
    /// True if the UE gets the rejected ones as extended rejected NSSAI.
    pub is_extended: bool,
}

/// Returns the slices of a UE with this subscription.
pub(super) fn select(ctx: &StepContext<'_, '_>, subscription: &Subscription, request: &Request) -> Slices {
    let config = ctx.env.config;
    // eNBs have no slices.
    let node = ctx.ue.connection.filter(|c| c.assoc.dialect() == Dialect::Nr);
    let here = node.and_then(|c| ctx.env.ran.slices(c.assoc, c.tai));
    let is_here = |snssai: &Snssai| here.as_ref().is_none_or(|here| here.contains(snssai));
    let is_subscribed = |snssai: Snssai| subscription.slice(snssai).is_some();
    let mut slices = Slices { is_extended: request.has(Request::EXTENDED_REJECTED), ..Slices::default() };
    for snssai in &request.requested {
        if !config.serves_slice(*snssai) || !is_subscribed(*snssai) {
            slices.rejected.push((*snssai, RejectedNssaiCause::NotAvailableInPlmnOrSnpn));
        } else if !is_here(snssai) {
            slices.rejected.push((*snssai, RejectedNssaiCause::NotAvailableInRegistrationArea));
        } else {
            slices.allowed.push(*snssai);
        }
    }
    // An update without requested NSSAI leaves the allowed NSSAI unchanged (TS 24.501 5.5.1.3.4),
    // as far as the new tracking area supports it.
    let is_unchanged = !request.kind.is_initial() && request.requested.is_empty();
    if is_unchanged {
        slices.allowed = ctx.ue.allowed.iter().copied().filter(is_here).collect();
    }
    let usable = |snssai: &Snssai| config.serves_slice(*snssai) && is_here(snssai);
    if slices.allowed.is_empty() {
        let defaults = subscription.slices.iter().filter(|slice| slice.default).map(|slice| slice.snssai);
        slices.allowed = defaults.filter(usable).collect();
    }
    if request.identity == RequestIdentity::MappedGuti && request.kind.is_update() {
        // TS 24.501 5.5.1.3.4: also those of PDN connections that the UE has in EPS.
        let moved = ctx.ue.sessions.iter().filter(|session| session.is_live()).map(|session| session.terms.snssai);
        for snssai in moved.filter(|snssai| usable(snssai) && is_subscribed(*snssai)) {
            if !slices.allowed.contains(&snssai) {
                slices.allowed.push(snssai);
            }
        }
    }
    slices.allowed.truncate(limits::ALLOWED_SNSSAIS);
    // TS 24.501 5.5.1.2.4, 5.5.1.3.4: the UE has requested none, one that is not valid, or those of
    // the default configured NSSAI.
    let is_wrong = |(_, cause): &(Snssai, RejectedNssaiCause)| *cause == RejectedNssaiCause::NotAvailableInPlmnOrSnpn;
    let has_none = request.kind.is_initial() && request.requested.is_empty();
    if has_none || request.has(Request::DEFAULT_NSSAI) || slices.rejected.iter().any(is_wrong) {
        slices.configured = configured_nssai::select(config, subscription);
    }
    slices
}

/// Returns the slice of emergency services, which the UE does not request (TS 23.501 5.16.4.1): the
/// first one with their data network that the RAN node of the UE supports.
pub(super) fn emergency(ctx: &StepContext<'_, '_>) -> Slices {
    let config = ctx.env.config;
    let here = ctx.ue.connection.and_then(|c| ctx.env.ran.slices(c.assoc, c.tai));
    let is_here = |snssai: &Snssai| here.as_ref().is_none_or(|here| here.contains(snssai));
    let has_network =
        |snssai: &Snssai| config.emergency(Dialect::Nr).is_some_and(|dnn| config.dnn(dnn, *snssai).is_some());
    let all = config.slices.iter().map(|slice| slice.snssai);
    Slices { allowed: all.filter(|s| is_here(s) && has_network(s)).take(1).collect(), ..Slices::default() }
}

/// Returns true if the tracking area has all slices of the allowed NSSAI.
pub(super) fn supports(ctx: &StepContext<'_, '_>, tai: Tai) -> bool {
    !ctx.env.ran.misses(tai, &ctx.ue.allowed)
}

/// Returns the sessions whose slices are allowed, and those of emergency services, one bit each.
pub(super) fn allowed_sessions(ctx: &StepContext<'_, '_>) -> u16 {
    let is_allowed = |snssai: &Snssai| ctx.ue.allowed.contains(snssai);
    let stays = |s: &&SmContext| is_allowed(&s.terms.snssai) || ctx.env.config.is_emergency(&s.terms.dnn);
    let here = ctx.ue.sessions.iter().filter(stays).map(SmContext::id);
    let remote = ctx.ue.remote_sessions.sessions.iter().filter(|s| is_allowed(&s.snssai)).map(|s| s.psi);
    here.chain(remote).fold(0, |bits, psi| bits | 1 << psi)
}
