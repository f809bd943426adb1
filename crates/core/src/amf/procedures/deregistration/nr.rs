//! NAS messages of deregistration.

use crate::step::StepContext;
use vireo_wire::nas::*;

/// Sends DEREGISTRATION ACCEPT (8.2.13).
pub fn send_accept(ctx: &mut StepContext<'_, '_>) {
    ctx.send_nas(NasDeregistrationAcceptUeOriginating::new().into());
}

/// Sends DEREGISTRATION REQUEST (8.2.14) for 3GPP access.
pub fn send_request(ctx: &mut StepContext<'_, '_>, reregister: bool, cause: Option<u8>) {
    let kind = NasDeRegistrationType::new(0)
        .with_access_type(AccessTypeValue::ThreeGppAccess)
        .with_re_registration_required(reregister);
    let mut message = NasDeregistrationRequestUeTerminated::new(kind);
    if let Some(cause) = cause {
        message = message.with_fgmm_cause(NasFGmmCause::new(cause));
    }
    ctx.send_nas(message.into());
}
