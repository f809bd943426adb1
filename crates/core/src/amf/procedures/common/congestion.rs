//! Rejection of UEs because of congestion (TS 24.501 5.3.9).
//!
//! It selects the back-off time and drops pending work.

use crate::amf::procedures::common::user_plane;
use crate::back_off;
use crate::smf::Input;
use crate::step::StepContext;
use vireo_wire::nas::NasGprsTimer2;

/// Returns T3346 for one UE: a random one of the encodable values between half and one and a half
/// times the configured value.
pub fn back_off(ctx: &mut StepContext<'_, '_>) -> Option<NasGprsTimer2> {
    let random = u32::from_be_bytes(ctx.env.random());
    NasGprsTimer2::from_seconds(back_off::seconds(ctx.env.config.timers.t3346.as_secs(), random)).ok()
}

/// Drops the pending work of a UE that is rejected for congestion, as if it had not responded to
/// paging. A pending deregistration is kept.
pub fn drop_pending_work(ctx: &mut StepContext<'_, '_>) {
    if ctx.ue.pending.sessions == 0 && !ctx.ue.pending.signalling {
        return;
    }
    user_plane::step_all(ctx, || Input::Unreachable);
    (ctx.ue.pending.sessions, ctx.ue.pending.signalling) = (0, false);
}
