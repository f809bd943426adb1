//! Registration (TS 24.501 5.5.1, TS 23.502 4.2.2.2), attach and tracking area updating.
//!
//! Initial, mobility and periodic registration, with a SUCI, an IMSI or a GUTI. [`eps`] has what
//! differs in EPS (TS 24.301 5.5.1, 5.5.3).

pub mod eps;
pub mod nr;
mod slices;
mod state;

pub use slices::Slices;
pub use state::{AttachContent, Registering, Request, RequestIdentity, RequestKind};

use crate::amf::access;
use crate::amf::context::{Ciot, Procedure, Registration, Retry};
use crate::amf::n2::Cause;
use crate::amf::procedures::common::security_setup::{self, Progress, SecuritySetup};
use crate::amf::procedures::common::{
    areas, context_setup, emm, end_of_registration, guti, moves, network_information, smf_requests, user_plane,
};
use crate::config::SliceProfile;
use crate::smf::{Input, RanState, SmContext};
use crate::step::{Effect, Kind, Note, StepContext};
use crate::subscription::{SubscriberIdentity, Subscription};
use smallvec::SmallVec;
use state::Stage;
use vireo_types::{Dialect, Instant, Tai, Tmsi, limits};
use vireo_wire::nas::GmmCause;
use vireo_wire::ngap::{CauseNas, CauseRadioNetwork};

/// Result of a step of registration: the procedure in progress, or `None` after its end.
pub type Next = Option<Registering>;

/// Handles REGISTRATION REQUEST or TRACKING AREA UPDATE REQUEST. `verified` is true if it verified
/// under the UE's security context.
pub fn begin(ctx: &mut StepContext<'_, '_>, request: Request, verified: bool) -> Next {
    start(ctx, request, verified, None)
}

/// Handles ATTACH REQUEST.
pub fn begin_attach(ctx: &mut StepContext<'_, '_>, request: Request, attach: AttachContent) -> Next {
    start(ctx, request, attach.hash.is_none(), Some(attach))
}

fn start(ctx: &mut StepContext<'_, '_>, request: Request, verified: bool, attach: Option<AttachContent>) -> Next {
    ctx.note(Note::Started(request.kind.counted()));
    let started = ctx.received_at();
    if let Some(cause) = unserved_cause(ctx, &request) {
        return reject(ctx, request.kind.counted(), cause);
    }
    if ctx.ue.connection.is_some_and(|c| !crate::amf::context::is_served(ctx.env.config, c.tai)) {
        return reject(ctx, request.kind.counted(), GmmCause::TrackingAreaNotAllowed);
    }
    let is_due = verified && security_setup::is_due(ctx) && ctx.ue.session_dialect() == ctx.ue.dialect();
    if verified && ctx.ue.identity.supi.is_some() && ctx.ue.subscription.is_some() && !is_due {
        if ctx.ue.session_dialect() != ctx.ue.dialect() {
            return map(ctx, request, started);
        }
        if let Some(capability) = request.capability {
            ctx.ue.security_capability = capability.or_5g_of(ctx.ue.security_capability);
        }
        return accept(ctx, request, started, attach.map(|attach| attach.esm));
    }
    let update = request.kind.is_update();
    if update && !verified && request.identity == RequestIdentity::Guti {
        // TS 24.501 5.5.1.3.5, TS 24.301 5.5.3.2.5: the context under this GUTI is lost, or the UE
        // has lost its keys. An Identity Request would not help UEs that cipher their response
        // under the keys that are lost here.
        return reject(ctx, request.kind.counted(), GmmCause::UeIdentityCannotBeDerivedByTheNetwork);
    }
    // A security context cannot be set up without UE security capability (8.2.6.7).
    let Some(capability) = request.capability.or(is_due.then_some(ctx.ue.security_capability)) else {
        return reject(ctx, request.kind.counted(), GmmCause::InvalidMandatoryInformation);
    };
    let identity = match &request.identity {
        // The UE is known by the keys that it has.
        _ if is_due => security_setup::known_identity(ctx.ue),
        RequestIdentity::Suci(octets) => Some(SubscriberIdentity::Suci(octets.clone())),
        RequestIdentity::Imsi(imsi) => Some(SubscriberIdentity::Imsi(*imsi)),
        RequestIdentity::Guti | RequestIdentity::MappedGuti | RequestIdentity::Imei | RequestIdentity::Other => None,
    };
    let progress = SecuritySetup::start(ctx, identity, request.key_set(), capability);
    on_security_progress(ctx, request, started, (progress, attach))
}

/// Returns the cause of the reject for a kind of registration or attach that is not served.
fn unserved_cause(ctx: &StepContext<'_, '_>, request: &Request) -> Option<GmmCause> {
    let is_unserved = match request.kind {
        // Only authenticated UEs are served (TS 23.501 5.16.4.1, TS 23.401 4.3.12.1).
        RequestKind::Emergency => {
            let is_offered = ctx.env.config.emergency(ctx.ue.dialect()).is_some();
            !is_offered || request.identity == RequestIdentity::Imei
        }
        kind => kind == RequestKind::Unserved,
    };
    is_unserved.then_some(match request.identity {
        // A.1: emergency registration or attach with the IMEI. The value is that of "IMEI not
        // accepted".
        RequestIdentity::Imei => GmmCause::PeiNotAccepted,
        // #7 would make the UE consider its SIM invalid for other services, too.
        _ => GmmCause::ProtocolErrorUnspecified,
    })
}

/// Reads the complete request that the UE has repeated under its new keys, and that replaces the
/// first one (TS 24.501 4.4.6, TS 24.301 5.4.3.4).
fn repeated_request(ctx: &mut StepContext<'_, '_>, octets: &[u8]) -> Option<(Request, Option<Vec<u8>>)> {
    match ctx.ue.dialect() {
        Dialect::Nr => {
            let (message, mut request) = nr::read_container(octets)?;
            nr::reconcile_bearers(ctx.ue, &message, &mut request);
            nr::set_paging(ctx, &message);
            Some((request, None))
        }
        Dialect::Eps => {
            let message = eps::read_container(octets)?;
            ctx.note(Note::fault("attach-request-altered"));
            eps::set_attach_paging(ctx, &message);
            let (request, esm) = eps::read_attach(&message);
            Some((request, Some(esm)))
        }
    }
}

/// Maps the keys of a UE from EPS. What its request says beside the message under the keys of EPS
/// is not verified, and changes nothing before the UE repeats it.
fn map(ctx: &mut StepContext<'_, '_>, request: Request, started: Instant) -> Next {
    if let Some(cause) = moves::not_allowed(ctx.ue, Dialect::Nr) {
        return reject(ctx, request.kind.counted(), cause);
    }
    let Some(capability) = request.capability else {
        return reject(ctx, request.kind.counted(), GmmCause::InvalidMandatoryInformation);
    };
    let progress = SecuritySetup::map(ctx, request.key_set(), capability);
    on_security_progress(ctx, request, started, (progress, None))
}

/// Returns true if a request repeats that of the registration in progress, which then continues. An
/// accept that was sent is sent again, and its timer restarts without counting a retransmission (TS
/// 24.501 5.5.1.2.8 d, e; TS 24.301 5.5.1.2.7 d, e). IEs that the core does not read do not count.
pub fn repeats(ctx: &mut StepContext<'_, '_>, request: &Request, esm: &[u8]) -> bool {
    let is_same = |p: &mut Procedure| matches!(p, Procedure::Registration(r) if r.has_request(request, esm));
    let Some(Procedure::Registration(mut registering)) = ctx.ue.procedure.take_if(is_same) else { return false };
    if let Stage::Accepted { retry, .. } | Stage::AttachAccepted { retry, .. } = &mut registering.stage {
        retry.deadline = ctx.env.now + ctx.env.config.timers.t3550;
        if let Some(nas) = repeated_accept(ctx, &registering) {
            ctx.send_encoded_nas(nas);
        }
    }
    ctx.ue.procedure = Some(Procedure::Registration(registering));
    true
}

/// Runs a step of the security sub-procedure.
pub fn secure(
    ctx: &mut StepContext<'_, '_>,
    registering: Registering,
    step: impl FnOnce(SecuritySetup, &mut StepContext<'_, '_>) -> Progress,
) -> Next {
    let Registering { request, started, stage } = registering;
    let (securing, attach) = match stage {
        Stage::Securing(securing) => (securing, None),
        Stage::SecuringAttach { securing, esm } => (securing, Some(AttachContent { esm, hash: None })),
        Stage::SecuringUnverified { securing, esm, hash } => (securing, Some(AttachContent { esm, hash: Some(hash) })),
        secured => {
            ctx.on_unexpected_message();
            return Some(Registering { request, started, stage: secured });
        }
    };
    ctx.request_hash = attach.as_ref().and_then(|attach| attach.hash);
    let progress = step(securing, ctx);
    on_security_progress(ctx, request, started, (progress, attach))
}

fn on_security_progress(
    ctx: &mut StepContext<'_, '_>,
    request: Request,
    started: Instant,
    (progress, attach): (Progress, Option<AttachContent>),
) -> Next {
    match progress {
        Progress::Waiting(securing) => Some(Registering { request, started, stage: Stage::securing(securing, attach) }),
        Progress::Secured(container) => {
            let repeated = container.and_then(|octets| repeated_request(ctx, &octets));
            let (request, esm) = repeated.unwrap_or((request, attach.map(|attach| attach.esm)));
            match unserved_cause(ctx, &request) {
                Some(cause) => reject(ctx, request.kind.counted(), cause),
                None => accept(ctx, request, started, esm),
            }
        }
        Progress::Rejected(cause) => reject(ctx, request.kind.counted(), cause),
        Progress::Refused => {
            ctx.note(Note::NotAuthenticated(request.kind.counted()));
            if ctx.ue.is_registered() {
                end_of_registration::end(ctx);
                ctx.ue.security = None;
            }
            ctx.release(Cause::nas(CauseNas::authentication_failure));
            None
        }
        Progress::Abandoned => {
            ctx.note(Note::Failed(request.kind.counted(), 0));
            ctx.release(Cause::nas(CauseNas::unspecified));
            None
        }
    }
}

/// Returns the slices for the response to a request.
fn select_slices(ctx: &StepContext<'_, '_>, request: &Request) -> Slices {
    if is_emergency(ctx, request) {
        return slices::emergency(ctx);
    }
    let none = Subscription::default();
    slices::select(ctx, ctx.ue.subscription.as_deref().unwrap_or(&none), request)
}

/// Returns true if the UE of 5G registers for emergency services alone, or has done so before an
/// update.
fn is_emergency(ctx: &StepContext<'_, '_>, request: &Request) -> bool {
    let was = ctx.ue.registration == Registration::Emergency && request.kind.is_update();
    ctx.ue.dialect() == Dialect::Nr && (was || request.kind == RequestKind::Emergency)
}

/// Sets allowed NSSAI and LTMSI, and ends the sessions that the UE does not have. The error is the
/// cause of the reject.
fn prepare(ctx: &mut StepContext<'_, '_>, request: &Request) -> Result<(), GmmCause> {
    let allowed = select_slices(ctx, request).allowed;
    let home = allowed.first().copied().ok_or(GmmCause::NoNetworkSlicesAvailable)?;
    ctx.ue.allowed = allowed.into();
    if let Some(security) = &mut ctx.ue.security {
        security.derives_keys = ctx.env.config.profile(home) == SliceProfile::Iot;
    }
    // A session in a slice that is no longer allowed ends (TS 23.501 5.15.5.2.2).
    let allowed = if ctx.ue.dialect() == Dialect::Nr { slices::allowed_sessions(ctx) } else { u16::MAX };
    let status = request.session_status.unwrap_or(u16::MAX) & allowed;
    if status != u16::MAX {
        user_plane::drop_unknown(ctx, status);
    }
    if request.kind.is_initial() {
        // 5.5.1.2.4: an initial registration releases all sessions.
        user_plane::step_all(ctx, || Input::LostByUe);
        ctx.ue.delete_radio_capability();
    }
    accept_ciot(ctx);
    // The UE moves to a bucket of its home slice once that is known. The NG connection keeps its
    // AMF-UE-NGAP-ID.
    if let Some(ltmsi) = ctx.env.ids.rekey(ctx.ue.ltmsi, home) {
        ctx.ue.ltmsi = ltmsi;
    }
    Ok(())
}

/// Accepts the CIoT EPS optimisations that the UE has requested. 5GS has others.
fn accept_ciot(ctx: &mut StepContext<'_, '_>) {
    let has_sessions = ctx.ue.sessions.iter().any(SmContext::is_live);
    let (dialect, config) = (ctx.ue.dialect(), ctx.env.config.ciot);
    let ciot = &mut ctx.ue.reachability.paging.ciot;
    match dialect {
        Dialect::Nr => *ciot = Ciot::default(),
        Dialect::Eps => ciot.accept(config, has_sessions),
    }
    let over_nas = ctx.ue.ciot().control_plane;
    ctx.ue.sessions.iter_mut().for_each(|session| session.pfcp.over_nas = over_nas);
}

/// Registers the UE under a new GUTI. The error is the cause of the reject.
fn enrol(ctx: &mut StepContext<'_, '_>, registration: Registration) -> Result<(), GmmCause> {
    if !guti::assign(ctx) {
        return Err(GmmCause::Congestion);
    }
    // A RAN node that has a UE context learns restrictions afterwards.
    ctx.ue.pending.areas &= ctx.ue.connection.is_some_and(|connection| !connection.ran.is_none());
    ctx.ue.registration = registration;
    ctx.ue.reachability.expires = None;
    ctx.ue.reachability.area = area(ctx);
    Ok(())
}

fn accept(ctx: &mut StepContext<'_, '_>, request: Request, started: Instant, esm: Option<Vec<u8>>) -> Next {
    let registration = if is_emergency(ctx, &request) { Registration::Emergency } else { Registration::Registered };
    let barred = moves::not_allowed(ctx.ue, ctx.ue.dialect()).or_else(|| forbidden(ctx));
    // A subscription restricts no emergency service (TS 23.501 5.16.4.1).
    if let Some(cause) = barred.filter(|_| registration != Registration::Emergency) {
        if cause == GmmCause::TrackingAreaNotAllowed && ctx.ue.is_registered() {
            // The UE deletes its 5G-GUTI (TS 24.501 5.5.1.3.5).
            end_of_registration::end(ctx);
        }
        return reject(ctx, request.kind.counted(), cause);
    }
    if ctx.ue.dialect() == Dialect::Eps {
        return eps::accept(ctx, request, started, esm);
    }
    let slices = select_slices(ctx, &request);
    match prepare(ctx, &request).and_then(|()| enrol(ctx, registration)) {
        Ok(()) => {}
        Err(GmmCause::NoNetworkSlicesAvailable) => return reject_slices(ctx, request.kind.counted(), &slices),
        Err(cause) => return reject(ctx, request.kind.counted(), cause),
    }
    context_setup::begin(ctx);
    // Sessions for which an idle UE was paged are activated with those that it requests (TS 23.502
    // 4.2.2.2.2 step 17).
    let wanted = request.uplink_data | std::mem::take(&mut ctx.ue.pending.sessions);
    let wanted = areas::permitted_sessions(ctx, wanted);
    let sessions = user_plane::activate(ctx, |psi| wanted >> psi & 1 == 1);
    // Separate SMFs have not responded yet; their N2 content follows.
    let activated = smf_requests::activate(ctx, wanted);
    let back = sessions.iter().fold(activated | user_plane::active(ctx.ue), |bits, s| bits | 1 << s.psi);
    let nas = nr::accept(ctx, &request, &slices, back);
    context_setup::set_up(ctx, nas, sessions);
    let retry = Retry::start(ctx.now(), ctx.env.config.timers.t3550);
    Some(Registering { request, started, stage: Stage::Accepted { retry, back } })
}

/// Returns the cause of the reject if the subscriber may not be where the UE is.
fn forbidden(ctx: &StepContext<'_, '_>) -> Option<GmmCause> {
    let (subscription, connection) = (ctx.ue.subscription.as_ref()?, ctx.ue.connection?);
    areas::forbidden(&subscription.areas, ctx.env.config, connection.tai)
}

/// Returns the registration area: all tracking areas of the network in the UE's PLMN, the UE's own
/// first, which have the same restriction.
fn area(ctx: &StepContext<'_, '_>) -> SmallVec<[Tai; 4]> {
    let config = ctx.env.config;
    let here = ctx.ue.connection.map(|c| c.tai);
    let plmn = here.map_or(config.plmns[0], |tai| tai.plmn);
    let all = config.tacs.iter().map(|tac| Tai { plmn, tac: *tac });
    let exists = |tai: &Tai| ctx.ue.dialect() == Dialect::Nr || tai.tac.eps().is_some();
    let is_nr = ctx.ue.dialect() == Dialect::Nr;
    let is_alike = |tai: Tai| match here.zip(ctx.ue.areas()) {
        Some((here, areas)) if is_nr => areas::is_alike(areas, here, tai),
        Some((_, areas)) => !areas.is_forbidden(tai.tac),
        None => true,
    };
    let others = all.filter(|tai| Some(*tai) != here && exists(tai) && (!is_nr || slices::supports(ctx, *tai)));
    let others = others.filter(|tai| is_alike(*tai));
    here.into_iter().chain(others).take(limits::TAIS_PER_LIST).collect()
}

/// Returns the PLMNs that are equivalent to that of the UE's cell, encoded for an accept (TS 24.501
/// 9.11.3.45, TS 24.301 9.9.2.8); `None` if there are none. The RAN node gets the same list.
fn equivalent_plmns(ctx: &StepContext<'_, '_>) -> Option<Vec<u8>> {
    let serving = ctx.ue.connection?.tai.plmn;
    let octets: Vec<u8> = ctx.env.config.equivalent_plmns(serving).flat_map(|plmn| plmn.nas()).collect();
    (!octets.is_empty()).then_some(octets)
}

/// Releases the connection after an update without a follow-on request (5.5.1.3.4, TS 23.502
/// 4.2.2.2.2), or an attach without PDN connection.
fn release_if_done(ctx: &mut StepContext<'_, '_>, request: &Request) {
    let ends = request.kind.is_update() || ctx.ue.dialect() == Dialect::Eps;
    let idle = ctx.ue.sessions.iter().all(|s| s.ran == RanState::Idle) && !ctx.ue.pending.is_due();
    let idle =
        idle && ctx.ue.remote_sessions.sessions.iter().all(|s| !s.up) && ctx.ue.remote_sessions.deferred.is_empty();
    if ends && !request.follow_on && idle {
        ctx.release(Cause::nas(CauseNas::normal_release));
    }
}

/// Handles REGISTRATION COMPLETE.
pub fn complete(ctx: &mut StepContext<'_, '_>, registering: Registering) -> Next {
    match registering.stage {
        Stage::Accepted { .. } | Stage::AttachAccepted { .. } => {
            ctx.note(Note::Succeeded(registering.request.kind.counted(), registering.started));
            confirm_guti(ctx);
            if registering.request.kind != RequestKind::Periodic {
                network_information::send(ctx);
            }
            release_if_done(ctx, &registering.request);
            None
        }
        _ => {
            ctx.send_status_98();
            Some(registering)
        }
    }
}

/// Handles that a verified message names the UE by a GUTI. A UE that uses its new GUTI has accepted
/// it, even if its complete message was lost (TS 24.501 5.4.4.6, TS 24.301 5.4.1.6).
pub fn on_guti_used(ctx: &mut StepContext<'_, '_>, tmsi: Tmsi) {
    if ctx.ue.identity.tmsi == Some(tmsi) {
        guti::confirm(ctx);
    }
}

/// Confirms the new 5G-GUTI: releases the old one and supersedes another context of the subscriber.
fn confirm_guti(ctx: &mut StepContext<'_, '_>) {
    guti::confirm(ctx);
    if let Some(supi) = ctx.ue.identity.supi {
        ctx.effect(Effect::BindSupi(supi));
    }
}

/// Handles the expiry of the deadline.
pub fn on_deadline(ctx: &mut StepContext<'_, '_>, mut registering: Registering) -> Next {
    let timers = ctx.env.config.timers;
    let retry = match &mut registering.stage {
        Stage::Securing(_) | Stage::SecuringAttach { .. } | Stage::SecuringUnverified { .. } => {
            return secure(ctx, registering, |s, ctx| s.on_deadline(ctx));
        }
        Stage::AwaitingBearer { .. } => return Some(registering),
        Stage::EsmInformation { esm, retry } => {
            let waiting = (std::mem::take(esm), *retry);
            return eps::on_information_deadline(ctx, registering.request, registering.started, waiting);
        }
        Stage::Accepted { retry, .. } | Stage::AttachAccepted { retry, .. } => retry,
    };
    if retry.deadline > ctx.now() {
        return Some(registering);
    }
    match retry.next(ctx.now(), timers.t3550, timers.retransmissions) {
        Some(again) => {
            *retry = again;
            if let Some(nas) = repeated_accept(ctx, &registering) {
                ctx.send_encoded_nas(nas);
            }
            Some(registering)
        }
        None if matches!(registering.stage, Stage::AttachAccepted { .. }) => {
            ctx.note(Note::Failed(registering.request.kind.counted(), 0));
            eps::abandon(ctx);
            None
        }
        None => {
            // 5.5.1.2.8 c: the UE counts as registered, and both 5G-GUTIs stay valid.
            ctx.note(Note::Failed(registering.request.kind.counted(), 0));
            end_without_complete(ctx, &registering);
            None
        }
    }
}

/// Encodes the accept of the registration once more, protected.
fn repeated_accept(ctx: &mut StepContext<'_, '_>, registering: &Registering) -> Option<Vec<u8>> {
    let request = &registering.request;
    match (&registering.stage, ctx.ue.dialect()) {
        (Stage::AttachAccepted { esm, .. }, _) => eps::attach_accept(ctx, request, esm.clone()),
        (Stage::Accepted { .. }, Dialect::Eps) => eps::update_accept(ctx, request),
        (Stage::Accepted { back, .. }, Dialect::Nr) => {
            let slices = select_slices(ctx, request);
            nr::accept(ctx, request, &slices, *back)
        }
        _ => None,
    }
}

/// Handles the loss of the NG connection (5.5.1.2.8 b): an accepted registration stays accepted.
pub fn on_connection_lost(ctx: &mut StepContext<'_, '_>, registering: &Registering) -> Next {
    ctx.note(Note::Failed(registering.request.kind.counted(), 0));
    if matches!(registering.stage, Stage::Accepted { .. } | Stage::AttachAccepted { .. }) {
        end_without_complete(ctx, registering);
    } else {
        drop_unregistered_keys(ctx);
    }
    None
}

/// Ends an accepted registration without REGISTRATION COMPLETE. The UE may have the accept, so that
/// the context becomes the subscriber's. This does not apply if the UE has since completed another
/// registration on another connection (5.5.1.2.8 d: the earlier one is then aborted).
fn end_without_complete(ctx: &mut StepContext<'_, '_>, registering: &Registering) {
    if let Some(supi) = ctx.ue.identity.supi {
        ctx.effect(Effect::BindSupiSince(supi, registering.started));
    }
}

/// Rejects the registration with a cause and releases the connection.
pub fn reject(ctx: &mut StepContext<'_, '_>, counted: Kind, cause: GmmCause) -> Next {
    send_reject(ctx, counted, cause);
    let value = emm::cause_value(ctx.ue.dialect(), cause);
    ctx.note(Note::Failed(counted, value));
    if let Some(reason) = reason(cause) {
        ctx.note_refusal(counted, value, reason);
    }
    ctx.release(Cause::nas(CauseNas::normal_release));
    drop_unregistered_keys(ctx);
    None
}

/// Returns the reason for the log. `None` for causes that have a line of their own, or that concern
/// no device in particular.
fn reason(cause: GmmCause) -> Option<&'static str> {
    Some(match cause {
        GmmCause::IllegalUe | GmmCause::UeIdentityCannotBeDerivedByTheNetwork | GmmCause::Congestion => return None,
        GmmCause::UeSecurityCapabilitiesMismatch => "no algorithm of the UE is allowed by core.security",
        GmmCause::TrackingAreaNotAllowed => "tracking area is not in core.tacs, or forbidden to the subscriber",
        GmmCause::NoSuitableCellsInTrackingArea => "tracking area is forbidden to the subscriber, or the system",
        GmmCause::N1ModeNotAllowed => "subscriber is restricted to 4G",
        GmmCause::FiveGsServicesNotAllowed => "subscriber is suspended",
        GmmCause::ProtocolErrorUnspecified => "registration or attach type is not served, or its session failed",
        GmmCause::InvalidMandatoryInformation => "request without security capability or identity",
        _ => "see the cause",
    })
}

fn send_reject(ctx: &mut StepContext<'_, '_>, counted: Kind, cause: GmmCause) {
    match ctx.ue.dialect() {
        Dialect::Nr => nr::send_reject(ctx, cause, &Slices::default()),
        Dialect::Eps => eps::send_reject(ctx, counted, cause),
    }
}

/// Rejects a request without processing it, because of overload (5.5.1.2.5, 5.5.1.3.5: #22).
pub fn reject_overloaded(ctx: &mut StepContext<'_, '_>, counted: Kind) {
    ctx.note(Note::Started(counted));
    reject(ctx, counted, GmmCause::Congestion);
}

/// Ends the registration of an unauthenticated UE (5.5.1.2.5: #22) and its connection. The RAN is
/// commanded to release it, and its response is not awaited.
pub fn evict(ctx: &mut StepContext<'_, '_>, registering: Option<&Registering>) {
    if let Some(registering) = registering {
        send_reject(ctx, registering.request.kind.counted(), GmmCause::Congestion);
        ctx.note(Note::Failed(registering.request.kind.counted(), GmmCause::Congestion.as_u8()));
    }
    if !ctx.is_being_released() {
        ctx.send(|c| access::context_release_command(c, Cause::nas(CauseNas::normal_release)));
    }
    ctx.ue.connection = None;
    drop_unregistered_keys(ctx);
}

fn reject_slices(ctx: &mut StepContext<'_, '_>, counted: Kind, slices: &Slices) -> Next {
    nr::send_reject(ctx, GmmCause::NoNetworkSlicesAvailable, slices);
    let cause = GmmCause::NoNetworkSlicesAvailable.as_u8();
    ctx.note(Note::Failed(counted, cause));
    let requested: Vec<String> = slices.rejected.iter().map(|(snssai, _)| snssai.to_string()).collect();
    ctx.note_refusal(counted, cause, format!("no slice is subscribed and served; requested: {}", requested.join(" ")));
    ctx.release(Cause::nas(CauseNas::normal_release));
    drop_unregistered_keys(ctx);
    None
}

/// Deletes the keys of a UE that was rejected and has never been registered.
fn drop_unregistered_keys(ctx: &mut StepContext<'_, '_>) {
    if ctx.ue.registration == Registration::Deregistered && ctx.ue.identity.tmsi.is_none() {
        ctx.ue.security = None;
    }
}

/// Returns the cause of a release that the network initiates.
pub fn network_release() -> Cause {
    Cause::radioNetwork(CauseRadioNetwork::release_due_to_5gc_generated_reason)
}
