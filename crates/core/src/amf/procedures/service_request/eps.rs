//! Service request of EPS (TS 24.301 5.6.1). The set-up of the bearers at the eNB is its accept.

use crate::amf::context::UeContext;
use crate::amf::procedures::common::congestion::back_off;
use crate::amf::procedures::common::emm;
use crate::amf::procedures::common::user_plane::{bitmap, bitmap_octets, status};
use crate::step::StepContext;
use vireo_wire::nas::GmmCause;
use vireo_wire::nas_eps::*;

use super::Request;

/// Returns the request: SERVICE REQUEST has no contents, and activates all bearers.
pub const fn request() -> Request {
    Request { uplink_data: u16::MAX, session_status: None }
}

/// Reads EXTENDED SERVICE REQUEST for packet services (8.2.15).
pub fn read_extended(message: &NasExtendedServiceRequest) -> Request {
    let session_status = message.eps_bearer_context_status.as_ref().map(|s| bitmap(&s.value));
    Request { uplink_data: u16::MAX, session_status }
}

/// Returns true if UE and network have a bearer that is not being released. Without one the UE is
/// rejected with #40 (5.6.1.5), unless it may be without PDN connection.
pub fn has_bearer(ue: &UeContext, request: Request) -> bool {
    let status = request.session_status.unwrap_or(u16::MAX);
    ue.sessions.iter().any(|session| session.is_established() && status >> session.id() & 1 == 1)
}

/// Reads CONTROL PLANE SERVICE REQUEST (8.2.33). It activates all bearers, unless the UE ends the
/// connection with the packet in the message.
pub fn read_control_plane(message: &NasControlPlaneServiceRequest, ends: bool) -> Request {
    Request {
        uplink_data: if ends { 0 } else { u16::MAX },
        session_status: message.eps_bearer_context_status.as_ref().map(|s| bitmap(&s.value)),
    }
}

/// Encodes SERVICE ACCEPT (8.2.34), protected, with the bearer status if the UE has sent its own.
pub fn accept(ctx: &mut StepContext<'_, '_>, with_status: bool) -> Option<Vec<u8>> {
    let mut message = NasServiceAccept::new();
    if with_status {
        message = message.with_eps_bearer_context_status(NasEpsBearerContextStatus::new(bitmap_octets(status(ctx.ue))));
    }
    let plain = ctx.emm(message)?;
    ctx.protect(plain)
}

/// Sends SERVICE REJECT (8.2.24) with a cause that only EPS has. Returns its value.
pub fn send_cause(ctx: &mut StepContext<'_, '_>, cause: EmmCause) -> u8 {
    ctx.send_emm(NasServiceReject::new(NasEmmCause::from_cause(cause)));
    cause.as_u8()
}

/// Sends SERVICE REJECT (8.2.24) to a UE that may not send data over NAS for a time: T3448 runs
/// (5.6.1.5).
pub fn send_data_reject(ctx: &mut StepContext<'_, '_>) {
    let mut message = NasServiceReject::new(NasEmmCause::from_cause(emm::cause(GmmCause::Congestion)));
    message.t3448_value = back_off(ctx).map(|timer| NasGprsTimer2::new(timer.value.to_vec()));
    ctx.send_emm(message);
}

/// Sends SERVICE REJECT (8.2.24).
pub fn send_reject(ctx: &mut StepContext<'_, '_>, cause: GmmCause) {
    let mut message = NasServiceReject::new(NasEmmCause::from_cause(emm::cause(cause)));
    if cause == GmmCause::Congestion
        && let Some(timer) = back_off(ctx)
    {
        message = message.with_t3346_value(NasGprsTimer2::new(timer.value.to_vec()));
    }
    ctx.send_emm(message);
}
