//! GUTI REALLOCATION COMMAND (TS 24.301 8.2.16).

use crate::amf::procedures::common::emm;
use crate::step::StepContext;
use vireo_wire::nas_eps::NasGutiReallocationCommand;

/// Sends the present GUTI, with the tracking areas in which it is valid.
pub(super) fn send(ctx: &mut StepContext<'_, '_>) {
    let Some(guti) = ctx.ue.identity.gutis_of_eps(ctx.env.config).next() else { return };
    let mut command = NasGutiReallocationCommand::new(emm::guti(guti));
    if let Some(list) = emm::tai_list(&ctx.ue.reachability.area) {
        command = command.with_tai_list(list);
    }
    ctx.send_emm(command);
}
