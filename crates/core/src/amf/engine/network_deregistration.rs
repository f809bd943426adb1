//! Start of a deregistration by the network.

use crate::amf::context::Procedure;
use crate::amf::procedures::{common, deregistration};
use crate::step::StepContext;
use vireo_wire::nas::GmmCause;

/// Starts a deregistration with a cause of 5GMM, which a UE of EPS gets as that of EMM.
pub(super) fn begin_with(ctx: &mut StepContext<'_, '_>, reregister: bool, cause: Option<GmmCause>) {
    let cause = cause.map(|cause| common::emm::cause_value(ctx.ue.dialect(), cause));
    let procedure = deregistration::by_network(ctx, reregister, cause);
    ctx.ue.procedure = procedure.map(Procedure::Deregistration);
}
