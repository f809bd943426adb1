//! EMM messages of detach (TS 24.301 5.5.2).

use crate::step::StepContext;
use vireo_wire::nas_eps::*;

/// Sends DETACH ACCEPT (8.2.10).
pub(super) fn send_accept(ctx: &mut StepContext<'_, '_>) {
    ctx.send_emm(NasDetachAccept::new());
}

/// Sends DETACH REQUEST (8.2.11.2).
pub(super) fn send_request(ctx: &mut StepContext<'_, '_>, reregister: bool, cause: Option<u8>) {
    let kind = if reregister { NetworkDetachKind::ReattachRequired } else { NetworkDetachKind::ReattachNotRequired };
    let mut message = NasDetachRequestUeTerminated::new(NasDetachType::from_network_detach_kind(kind));
    if let Some(cause) = cause {
        message = message.with_emm_cause(NasEmmCause::new(cause));
    }
    ctx.send_emm(message);
}
