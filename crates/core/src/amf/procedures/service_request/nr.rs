//! NAS messages of the service request.

use super::Request;
use crate::amf::procedures::common::congestion::back_off;
use crate::amf::procedures::common::gmm;
use crate::amf::procedures::common::user_plane::{bitmap, bitmap_octets, status};
use crate::step::StepContext;
use vireo_wire::nas::*;

/// Reads SERVICE REQUEST.
pub fn read(message: &NasServiceRequest) -> Request {
    Request {
        uplink_data: message.uplink_data_status.as_ref().map_or(0, |s| bitmap(&s.value)),
        session_status: message.pdu_session_status.as_ref().map(|s| bitmap(&s.value)),
    }
}

/// Returns true if the UE may request the service in a non-allowed area: the answer to a page, and
/// emergency services (TS 24.501 5.3.5.2). Priority services are not implemented.
pub fn is_permitted_in_non_allowed_area(message: &NasServiceRequest) -> bool {
    use ServiceType::{EmergencyServices, EmergencyServicesFallback, MobileTerminatedServices};
    let service = message.service_type.service_type();
    matches!(service, Some(MobileTerminatedServices | EmergencyServices | EmergencyServicesFallback))
}

/// Encodes SERVICE ACCEPT (8.2.17), protected. `back` has the sessions whose user plane is
/// activated, one bit each.
pub fn accept(ctx: &mut StepContext<'_, '_>, request: Request, back: u16) -> Option<Vec<u8>> {
    let mut message = NasServiceAccept::new();
    if request.session_status.is_some() {
        message = message.with_pdu_session_status(NasPduSessionStatus::new(bitmap_octets(status(ctx.ue))));
    }
    if request.uplink_data != 0 {
        // A bit is set for a session whose user plane was requested and is not activated
        // (9.11.3.42).
        let failed = request.uplink_data & !back;
        message =
            message.with_pdu_session_reactivation_result(NasPduSessionReactivationResult::new(bitmap_octets(failed)));
        message.pdu_session_reactivation_result_error_cause = gmm::restricted_sessions(ctx, failed);
    }
    ctx.nas(message.into())
}

/// Sends SERVICE REJECT (8.2.18).
pub fn send_reject(ctx: &mut StepContext<'_, '_>, cause: GmmCause) {
    let mut message = NasServiceReject::new(NasFGmmCause::from_cause(cause));
    if cause == GmmCause::Congestion
        && let Some(timer) = back_off(ctx)
    {
        message = message.with_t3346_value(timer);
    }
    ctx.send_nas(message.into());
}
