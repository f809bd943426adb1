//! GUTI REALLOCATION COMMAND (TS 24.301 8.2.16).

use super::Updating;
use crate::amf::access;
use crate::amf::n2::UeInformation;
use crate::amf::procedures::common::emm;
use crate::step::StepContext;
use vireo_types::Dialect;
use vireo_wire::nas_eps::NasGutiReallocationCommand;

/// Sends the present GUTI, with the tracking areas in which it is valid. After a change of areas,
/// the eNB gets the restrictions with it: no other message has them.
pub(super) fn send(ctx: &mut StepContext<'_, '_>, updating: &Updating) {
    let Some(guti) = ctx.ue.identity.gutis_of_eps(ctx.env.config).next() else { return };
    let mut command = NasGutiReallocationCommand::new(emm::guti(guti));
    if let Some(list) = emm::tai_list(&ctx.ue.reachability.area) {
        command = command.with_tai_list(list);
    }
    let Some(plmn) = ctx.ue.connection.map(|connection| connection.tai.plmn).filter(|_| updating.areas) else {
        return ctx.send_emm(command);
    };
    let information = UeInformation::replacing(ctx.ue, ctx.env.config, (Dialect::Eps, plmn));
    if let Some(nas) = ctx.emm(command).and_then(|plain| ctx.protect(plain)) {
        ctx.send(|c| access::downlink_nas_with_information(c, nas, &information, &[]));
    }
}
