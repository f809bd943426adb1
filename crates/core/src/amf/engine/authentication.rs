//! Authentication of a UE: messages and events of the procedure that runs it.

use super::{network_deregistration, termination};
use crate::amf::context::{Procedure, RanContext};
use crate::amf::n2::Cause;
use crate::amf::procedures::authentication::{self, Authenticating, Next};
use crate::amf::procedures::common::areas;
use crate::amf::procedures::common::security_setup::{self, Progress, SecuritySetup};
use crate::amf::procedures::common::service::RequestedService;
use crate::amf::procedures::{configuration_update, registration, service_request};
use crate::step::{Note, StepContext};
use crate::subscription::{AuthenticationError, AuthenticationVector};
use vireo_types::Dialect;
use vireo_wire::ngap::CauseRadioNetwork;

/// Runs a step of the security sub-procedure of the procedure in progress. Its messages count as
/// unexpected if there is none.
pub(super) fn secure(
    ctx: &mut StepContext<'_, '_>,
    step: impl FnOnce(SecuritySetup, &mut StepContext<'_, '_>) -> Progress,
) {
    match ctx.ue.procedure.take() {
        Some(Procedure::Registration(registering)) => {
            ctx.ue.procedure = registration::secure(ctx, *registering, step).map(Procedure::registration);
        }
        Some(Procedure::Authentication(authenticating)) => {
            let next = authentication::secure(ctx, *authenticating, step);
            proceed(ctx, next);
        }
        other => {
            ctx.ue.procedure = other;
            ctx.on_unexpected_message();
        }
    }
}

/// Handles the response of the subscriber service. It is ignored if the procedure has ended.
pub(super) fn on_vector(ctx: &mut StepContext<'_, '_>, answer: Result<AuthenticationVector, AuthenticationError>) {
    if ctx.ue.procedure.as_mut().and_then(Procedure::securing).is_some() {
        secure(ctx, |s, ctx| s.on_vector(ctx, answer));
    }
}

pub(super) fn on_deadline(ctx: &mut StepContext<'_, '_>, authenticating: Authenticating) {
    let next = authentication::secure(ctx, authenticating, |s, ctx| s.on_deadline(ctx));
    proceed(ctx, next);
}

/// Serves a request of a registered UE, which is authenticated first if that is due. The repeat of
/// a request that is not answered yet changes nothing (TS 24.501 5.6.1.8 c). A UE that is to be
/// deregistered is not authenticated before.
pub(super) fn serve(ctx: &mut StepContext<'_, '_>, request: RequestedService) {
    let waits = match &ctx.ue.procedure {
        Some(Procedure::Authentication(authenticating)) => authenticating.serves(request),
        Some(Procedure::ServiceRequest(_)) => service_request::is_waiting(ctx.ue, request),
        _ => false,
    };
    if waits {
        return ctx.note(Note::fault("nas-request-repeated"));
    }
    end_procedure(ctx);
    if let Some(cause) = areas::forbidden_area_cause(ctx.ue, ctx.env.config)
        && ctx.ue.pending.deregister.is_none()
    {
        return service_request::reject_in_forbidden_area(ctx, cause);
    }
    let is_initial = ctx.ue.connection.is_some_and(|connection| connection.ran.is_none());
    let is_due = is_initial && ctx.ue.pending.deregister.is_none() && security_setup::is_due(ctx);
    let next = match is_due {
        true => authentication::begin(ctx, Some(request)),
        false => Next::Served(Some(request)),
    };
    proceed(ctx, next);
}

/// Ends the procedure in progress, which a request of the UE replaces (TS 24.501 5.4.2.7 c,
/// 5.4.4.6, 5.5.1.2.8, 5.6.1.8).
pub(super) fn end_procedure(ctx: &mut StepContext<'_, '_>) {
    match ctx.ue.procedure.take() {
        Some(Procedure::ConfigurationUpdate(updating)) => configuration_update::abort(ctx, updating),
        Some(Procedure::Authentication(_)) => authentication::abort(ctx),
        _ => {}
    }
}

/// Authenticates a connected UE whose keys have reached a limit, after a message of the UE.
pub(super) fn renew_keys(ctx: &mut StepContext<'_, '_>) {
    let is_set_up = ctx.ue.connection.is_some_and(|connection| connection.ran == RanContext::SetUp);
    let is_free = ctx.ue.procedure.is_none() && ctx.ue.handover.is_none();
    if is_set_up && is_free && ctx.ue.is_registered() && security_setup::are_keys_used_up(ctx) {
        let next = authentication::begin(ctx, None);
        proceed(ctx, next);
    }
}

/// Handles UE CONTEXT MODIFICATION RESPONSE: the RAN node has taken a renewed key into use.
pub(super) fn on_key_renewed(ctx: &mut StepContext<'_, '_>) {
    if let Some(connection) = &mut ctx.ue.connection
        && connection.ran.is_rekeying()
    {
        connection.ran = RanContext::SetUp;
    }
}

/// Handles UE CONTEXT MODIFICATION FAILURE. A RAN node that has not taken a renewed key into use
/// loses the UE. While it hands the UE over by Xn or X2, the path switch is awaited, with which the
/// target gets the key, until the deadline of the response.
pub(super) fn on_modification_failure(ctx: &mut StepContext<'_, '_>, cause: &Cause) {
    ctx.note(Note::fault("context-modification-failure"));
    let Some(RanContext::Rekeying { former, .. }) = ctx.ue.connection.map(|connection| connection.ran) else { return };
    let is_handed_over = matches!(cause, Cause::radioNetwork(CauseRadioNetwork::xn_handover_triggered));
    let can_switch = former.is_some() || ctx.ue.dialect() == Dialect::Nr;
    if !is_handed_over || !can_switch {
        termination::abort_procedure(ctx);
        ctx.release(registration::network_release());
    }
}

fn proceed(ctx: &mut StepContext<'_, '_>, next: Next) {
    match next {
        Next::Waiting(authenticating) => ctx.ue.procedure = Some(Procedure::Authentication(authenticating)),
        Next::Served(Some(request)) => {
            let serving = service_request::begin(ctx, request);
            ctx.ue.procedure = serving.map(Procedure::ServiceRequest);
        }
        Next::Barred(cause) => network_deregistration::begin_with(ctx, false, Some(cause)),
        Next::Served(None) | Next::Ended => {}
    }
}
