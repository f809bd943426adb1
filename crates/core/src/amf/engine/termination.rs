//! Procedures and registrations that the network ends.

use crate::amf::context::Procedure;
use crate::amf::procedures::{self, configuration_update, deregistration, registration, service_request};
use crate::smf::SmContext;
use crate::step::StepContext;
use vireo_types::Dialect;

/// Ends the procedure in progress after the loss of its connection or its purpose.
pub(super) fn abort_procedure(ctx: &mut StepContext<'_, '_>) {
    match ctx.ue.procedure.take() {
        Some(Procedure::Registration(registering)) => {
            registration::on_connection_lost(ctx, &registering);
        }
        Some(Procedure::ServiceRequest(_)) => service_request::on_setup_failure(ctx),
        Some(Procedure::Deregistration(deregistering)) => deregistration::on_accept(ctx, deregistering),
        Some(Procedure::ConfigurationUpdate(updating)) => configuration_update::abort(ctx, updating),
        Some(Procedure::Authentication(_)) => procedures::authentication::abort(ctx),
        // Paging has no connection to lose.
        Some(paging @ Procedure::Paging(_)) => ctx.ue.procedure = Some(paging),
        None => {}
    }
}

/// Detaches a UE of EPS that has no bearer any more, and has it attach again (TS 23.401 5.4.4.1,
/// 5.5.1.1.2 step 6).
pub(super) fn detach_without_bearer(ctx: &mut StepContext<'_, '_>) {
    let needs_one = ctx.ue.dialect() == Dialect::Eps && !ctx.ue.ciot().without_pdn;
    let has_none = needs_one && !ctx.ue.sessions.iter().any(SmContext::remains);
    if has_none && ctx.ue.is_registered() && ctx.ue.procedure.is_none() {
        let procedure = deregistration::by_network(ctx, true, None);
        ctx.ue.procedure = procedure.map(Procedure::Deregistration);
    }
}
