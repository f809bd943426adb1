//! End of a registration or attach, common to the procedures that end one.

use super::user_plane;
use crate::amf::context::Registration;
use crate::smf::Input;
use crate::step::StepContext;
use vireo_types::Duration;

/// Time for which the security context and the GUTI of a deregistered UE are kept.
const DEREGISTERED_RETENTION: Duration = Duration::from_secs(600);

/// Ends the registration: the UPF releases the sessions; keys and GUTI are kept for 600 s.
pub fn end(ctx: &mut StepContext<'_, '_>) {
    user_plane::step_all(ctx, || Input::ReleaseLocally);
    ctx.ue.registration = Registration::Deregistered;
    ctx.ue.allowed.clear();
    ctx.ue.reachability.expires = Some(ctx.now() + DEREGISTERED_RETENTION);
}
