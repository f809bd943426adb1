//! UE-triggered service request (TS 24.501 5.6.1, TS 23.502 4.2.3.2; EPS: TS 24.301 5.6.1).
//!
//! The UE changes from idle to connected, and the user plane of sessions with data is activated.

pub mod eps;
pub mod nr;
mod state;

pub use super::common::service::RequestedService as Request;
pub use state::ServiceRequestPending;

use crate::amf::context::{PendingServiceAccept, Procedure, UeContext};
use crate::amf::n2::{Cause, SessionSetup};
use crate::amf::procedures::common::{areas, context_setup, emm, end_of_registration, smf_requests, user_plane};
use crate::step::{Kind, Note, StepContext};
use vireo_types::{Dialect, Instant};
use vireo_wire::nas::GmmCause;
use vireo_wire::nas_eps::EmmCause;
use vireo_wire::ngap::CauseNas;

/// Handles a verified SERVICE REQUEST of a registered UE.
pub fn begin(ctx: &mut StepContext<'_, '_>, request: Request) -> Option<ServiceRequestPending> {
    ctx.note(Note::Started(Kind::ServiceRequest));
    let started = ctx.received_at();
    let (is_eps, has_bearer) = (ctx.ue.dialect() == Dialect::Eps, eps::has_bearer(ctx.ue, request));
    if is_eps && (ctx.ue.ciot().control_plane || ctx.ue.ciot().without_pdn && !has_bearer) {
        accept_over_nas(ctx, request, started);
        return None;
    }
    if is_eps && !has_bearer {
        let cause = eps::send_cause(ctx, EmmCause::NoEpsBearerContextActivated);
        ctx.note(Note::Failed(Kind::ServiceRequest, cause));
        ctx.release(Cause::nas(CauseNas::normal_release));
        end_of_registration::end(ctx);
        return None;
    }
    ctx.ue.reachability.expires = None;
    context_setup::begin(ctx);
    if let Some(status) = request.session_status {
        user_plane::drop_unknown(ctx, status);
    }
    // Sessions for which the UE was paged are activated with those that it requests (TS 23.502
    // 4.2.3.2 step 4).
    let wanted = request.uplink_data | std::mem::take(&mut ctx.ue.pending.sessions);
    let wanted = areas::permitted_sessions(ctx, wanted);
    let sessions = user_plane::activate(ctx, |psi| wanted >> psi & 1 == 1);
    let deadline = ctx.now() + ctx.env.config.timers.ran_response;
    let serving = ServiceRequestPending { started, deadline };
    match smf_requests::activate(ctx, wanted) {
        0 => {
            accept(ctx, request, sessions);
            in_progress(ctx, serving)
        }
        waiting => {
            ctx.ue.remote_sessions.pending_accept = Some(PendingServiceAccept { request, waiting, items: Vec::new() });
            Some(serving)
        }
    }
}

/// Ends a service request on a connection that had a UE context before: the set-up of sessions
/// there has answers of its own (TS 24.501 5.6.1.1, of a UE in 5GMM-CONNECTED mode).
fn in_progress(ctx: &mut StepContext<'_, '_>, serving: ServiceRequestPending) -> Option<ServiceRequestPending> {
    if ctx.ue.connection.is_none_or(|connection| !connection.ran.is_set_up()) {
        return Some(serving);
    }
    on_context_setup(ctx, serving);
    None
}

/// Returns true if the answer to this request waits for separate SMFs.
pub fn is_waiting(ue: &UeContext, request: Request) -> bool {
    ue.remote_sessions.pending_accept.as_ref().is_some_and(|accepting| accepting.request == request)
}

/// Accepts a service request of a UE that is served by NAS messages alone, with SERVICE ACCEPT (TS
/// 24.301 5.6.1.4.2). Other UEs learn the end of the procedure from the set-up of their bearers.
fn accept_over_nas(ctx: &mut StepContext<'_, '_>, request: Request, started: Instant) {
    ctx.ue.reachability.expires = None;
    context_setup::begin(ctx);
    if let Some(status) = request.session_status {
        user_plane::drop_unknown(ctx, status);
    }
    let wanted = request.uplink_data | std::mem::take(&mut ctx.ue.pending.sessions);
    let nas = eps::accept(ctx, request.session_status.is_some());
    context_setup::set_up(ctx, nas, Vec::new());
    let sessions = user_plane::activate(ctx, |ebi| wanted >> ebi & 1 == 1);
    context_setup::set_up(ctx, None, sessions);
    ctx.note(Note::Succeeded(Kind::ServiceRequest, started));
}

/// Sends SERVICE ACCEPT to the UE and the sessions to the RAN.
fn accept(ctx: &mut StepContext<'_, '_>, request: Request, sessions: Vec<SessionSetup>) {
    let back = sessions.iter().fold(user_plane::active(ctx.ue), |bits, s| bits | 1 << s.psi);
    let nas = match ctx.ue.dialect() {
        Dialect::Nr => nr::accept(ctx, request, back),
        Dialect::Eps => None,
    };
    context_setup::set_up(ctx, nas, sessions);
}

/// Handles the SMF's response for a session to be activated, with the transfer for the RAN if it is
/// (TS 23.502 4.2.3.2 step 11). The UE gets its response after the last SMF. Returns true if the
/// response was awaited.
pub fn on_smf_answer(ctx: &mut StepContext<'_, '_>, psi: u8, transfer: Option<Vec<u8>>) -> bool {
    let Some(accepting) = &mut ctx.ue.remote_sessions.pending_accept else { return false };
    if accepting.waiting >> psi & 1 == 0 {
        return false;
    }
    accepting.waiting &= !(1 << psi);
    accepting.items.extend(transfer.map(|transfer| (psi, transfer)));
    accept_after_smfs(ctx);
    true
}

/// Sends the service accept that waited for separate SMFs. It is not sent while the UE moves from
/// one RAN node to another, because the UE does not listen to the old one then.
pub fn accept_after_smfs(ctx: &mut StepContext<'_, '_>) {
    if ctx.ue.is_between_nodes() {
        return;
    }
    if let Some(PendingServiceAccept { request, items, .. }) =
        ctx.ue.remote_sessions.pending_accept.take_if(|accepting| accepting.waiting == 0)
    {
        let setup = |(psi, transfer)| {
            let snssai = ctx.ue.remote_sessions.by_psi(psi)?.snssai;
            Some(SessionSetup { psi, snssai, nas: None, transfer })
        };
        let sessions = items.into_iter().filter_map(setup).collect();
        accept(ctx, request, sessions);
        if let Some(Procedure::ServiceRequest(serving)) = ctx.ue.procedure {
            ctx.ue.procedure = in_progress(ctx, serving).map(Procedure::ServiceRequest);
        }
    }
}

/// Handles the set-up of the UE context in the RAN: the service request succeeds.
pub fn on_context_setup(ctx: &mut StepContext<'_, '_>, serving: ServiceRequestPending) {
    ctx.note(Note::Succeeded(Kind::ServiceRequest, serving.started));
}

/// Handles a failed set-up or the loss of the connection.
pub fn on_setup_failure(ctx: &mut StepContext<'_, '_>) {
    ctx.ue.remote_sessions.pending_accept = None;
    ctx.note(Note::Failed(Kind::ServiceRequest, 0));
}

/// Rejects a service request of EPS for a service that is not implemented. The UE stays registered,
/// and connected if the eNB has its context.
pub fn reject_service(ctx: &mut StepContext<'_, '_>, cause: EmmCause) {
    ctx.note(Note::Started(Kind::ServiceRequest));
    let cause = eps::send_cause(ctx, cause);
    ctx.note(Note::Failed(Kind::ServiceRequest, cause));
    if ctx.ue.connection.is_some_and(|connection| connection.ran.is_none()) {
        ctx.release(Cause::nas(CauseNas::normal_release));
    }
}

/// Rejects a service request in a forbidden area (5.6.1.5). With #12, the UE deletes its GUTI.
pub fn reject_in_forbidden_area(ctx: &mut StepContext<'_, '_>, cause: GmmCause) {
    if cause == GmmCause::TrackingAreaNotAllowed {
        end_of_registration::end(ctx);
    }
    reject(ctx, cause);
}

/// Rejects a service request. The cause determines the reaction of the UE (5.6.1.5).
pub fn reject(ctx: &mut StepContext<'_, '_>, cause: GmmCause) {
    note_rejection(ctx, cause);
    match ctx.ue.dialect() {
        Dialect::Nr => nr::send_reject(ctx, cause),
        Dialect::Eps => eps::send_reject(ctx, cause),
    }
    ctx.release(Cause::nas(CauseNas::normal_release));
}

/// Rejects the data of a UE over NAS because of congestion. Its other requests are not concerned
/// (TS 23.401, Control Plane data specific NAS level congestion control).
pub fn reject_data(ctx: &mut StepContext<'_, '_>) {
    note_rejection(ctx, GmmCause::Congestion);
    eps::send_data_reject(ctx);
    ctx.release(Cause::nas(CauseNas::normal_release));
}

fn note_rejection(ctx: &mut StepContext<'_, '_>, cause: GmmCause) {
    ctx.note(Note::Started(Kind::ServiceRequest));
    ctx.note(Note::Failed(Kind::ServiceRequest, emm::cause_value(ctx.ue.dialect(), cause)));
}
