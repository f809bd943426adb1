//! CONFIGURATION UPDATE COMMAND (TS 24.501 8.2.19).

use super::Updating;
use crate::amf::access;
use crate::amf::context::UeContext;
use crate::amf::n2::UeInformation;
use crate::amf::procedures::common::{areas, configured_nssai, gmm};
use crate::step::StepContext;
use vireo_types::Dialect;
use vireo_wire::nas::{NasConfigurationUpdateCommand, NasConfigurationUpdateIndication, NasNetworkSlicingIndication};

/// Sends what is to be updated. A 5G-GUTI comes with the tracking areas in which it is valid.
pub(super) fn send(ctx: &mut StepContext<'_, '_>, updating: &Updating) {
    let indication = NasConfigurationUpdateIndication::from_flags(true, false);
    let mut command = NasConfigurationUpdateCommand::new().with_configuration_update_indication(indication);
    if let Some(tmsi) = ctx.ue.identity.tmsi.filter(|_| updating.guti) {
        command = command.with_fg_guti(gmm::mobile_identity(UeContext::guti(ctx.env.config, tmsi)));
    }
    if updating.guti || updating.areas {
        command.tai_list = gmm::tai_list(&ctx.ue.reachability.area);
    }
    if updating.allowed {
        command.allowed_nssai = gmm::nssai(&ctx.ue.allowed);
        command.configured_nssai = gmm::nssai(&configured_nssai::current(ctx));
        command.network_slicing_indication = Some(NasNetworkSlicingIndication::from_flags(true, false));
    }
    let Some(connection) = ctx.ue.connection.filter(|_| updating.areas || updating.allowed) else {
        return ctx.send_nas(command.into());
    };
    let mut information = UeInformation::default();
    if updating.areas {
        let plmn = connection.tai.plmn;
        let service = ctx.ue.areas().and_then(|areas| areas.service.as_ref());
        command.service_area_list = Some(areas::service_area_list(service, plmn));
        information = UeInformation::replacing(ctx.ue, ctx.env.config, (Dialect::Nr, plmn));
    }
    // A RAN node without a UE context gets it with that.
    let has_context = updating.allowed && !connection.ran.is_none();
    let allowed = if has_context { ctx.ue.allowed.clone() } else { Default::default() };
    if let Some(nas) = ctx.nas(command.into()) {
        ctx.send(|c| access::downlink_nas_with_information(c, nas, &information, &allowed));
    }
}
