//! Forbidden and service areas of a UE (TS 23.501 5.3.4.1.1, TS 24.501 5.3.5).
//!
//! They do not restrict a UE that is registered for emergency services alone (TS 23.501 5.16.4.1),
//! nor an emergency session.

use crate::amf::context::{RanContext, UeContext};
use crate::amf::n2::{Cause, tac_octets};
use crate::config::CoreConfig;
use crate::smf::{RanState, SmContext};
use crate::step::StepContext;
use crate::subscription::{AreaRestrictions, ServiceArea};
use vireo_types::{Dialect, Plmn, Tai};
use vireo_wire::nas::{GmmCause, NasServiceAreaList};
use vireo_wire::ngap::CauseNas;

/// Returns the tracking area of the UE: that of its connection, else the first one of its
/// registration area, whose tracking areas have the same restriction.
pub fn location(ue: &UeContext) -> Option<Tai> {
    ue.connection.map(|connection| connection.tai).or_else(|| ue.reachability.area.first().copied())
}

/// Returns the cause of the reject in a forbidden area (TS 24.501 A.2): #15 if the UE can find
/// another tracking area of this network, else #12.
pub fn forbidden(areas: &AreaRestrictions, config: &CoreConfig, tai: Tai) -> Option<GmmCause> {
    let has_another = config.tacs.iter().any(|tac| !areas.is_forbidden(*tac));
    areas.is_forbidden(tai.tac).then_some(match has_another {
        true => GmmCause::NoSuitableCellsInTrackingArea,
        false => GmmCause::TrackingAreaNotAllowed,
    })
}

/// Returns the cause of the reject if the UE is in a forbidden area.
pub fn forbidden_area_cause(ue: &UeContext, config: &CoreConfig) -> Option<GmmCause> {
    forbidden(ue.areas()?, config, location(ue)?)
}

/// Returns true if a tracking area is not forbidden, and as allowed as that of the UE.
pub fn is_alike(areas: &AreaRestrictions, here: Tai, tai: Tai) -> bool {
    !areas.is_forbidden(tai.tac) && areas.is_restricted(here.tac) == areas.is_restricted(tai.tac)
}

/// Returns true if the UE is in a non-allowed area. EPS has none.
pub fn is_in_non_allowed_area(ue: &UeContext) -> bool {
    let here = location(ue).filter(|_| ue.dialect() == Dialect::Nr);
    here.zip(ue.areas()).is_some_and(|(tai, areas)| areas.is_restricted(tai.tac))
}

/// Returns those of these sessions, one bit each, whose user plane the UE may have where it is: in
/// a non-allowed area that of emergency services alone.
pub fn permitted_sessions(ctx: &StepContext<'_, '_>, sessions: u16) -> u16 {
    if !is_in_non_allowed_area(ctx.ue) {
        return sessions;
    }
    let emergency = ctx.ue.sessions.iter().filter(|session| is_emergency(ctx.env.config, session));
    sessions & emergency.fold(0, |bits, session| bits | 1 << session.id())
}

fn is_emergency(config: &CoreConfig, session: &SmContext) -> bool {
    config.is_emergency(&session.terms.dnn)
}

/// Releases the connection of a UE in a non-allowed area that has user plane there: it was in
/// another area before, or the area has become a non-allowed one. A UE that waits for a procedure
/// keeps it meanwhile.
pub fn end_user_plane(ctx: &mut StepContext<'_, '_>) {
    let is_set_up = ctx.ue.connection.is_some_and(|connection| connection.ran == RanContext::SetUp);
    let is_busy = ctx.ue.procedure.is_some() || ctx.ue.handover.is_some() || ctx.ue.pending.is_due();
    if !is_set_up || is_busy || !is_in_non_allowed_area(ctx.ue) {
        return;
    }
    let is_up = |session: &&SmContext| session.is_live() && session.ran != RanState::Idle;
    let is_served = ctx.ue.sessions.iter().filter(is_up).any(|session| is_emergency(ctx.env.config, session));
    let has_up = ctx.ue.sessions.iter().any(|session| is_up(&session))
        || ctx.ue.remote_sessions.sessions.iter().any(|session| session.up);
    if has_up && !is_served {
        ctx.release(Cause::nas(CauseNas::normal_release));
    }
}

/// Encodes the service area of a UE for a PLMN (TS 24.501 9.11.3.49); without restriction, all
/// tracking areas are allowed.
pub fn service_area_list(service: Option<&ServiceArea>, plmn: Plmn) -> NasServiceAreaList {
    const NON_ALLOWED: u8 = 0x80;
    const ALL_ALLOWED: u8 = 3 << 5;
    let tacs = service.map(ServiceArea::tacs).unwrap_or_default();
    let last = tacs.len().saturating_sub(1) as u8;
    let head = match service {
        None => ALL_ALLOWED,
        Some(ServiceArea::Allowed(_)) => last,
        Some(ServiceArea::NotAllowed(_)) => NON_ALLOWED | last,
    };
    let mut octets = vec![head];
    octets.extend_from_slice(&plmn.nas());
    octets.extend(tacs.iter().flat_map(|tac| tac_octets(*tac)));
    NasServiceAreaList::new(octets)
}
