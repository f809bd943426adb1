//! Primary authentication of a registered UE, which the network initiates (TS 24.501 5.4.1.1, TS
//! 33.501 6.1.1.2; EPS: TS 24.301 5.4.2.1).
//!
//! It is due when the record of the subscriber has changed, or when the keys have reached a limit
//! of [`KeyLifetime`](crate::config::KeyLifetime). A service request of the UE waits for it; a
//! connected UE is authenticated on its connection. A registration, attach or update has an
//! authentication of its own.
//!
//! The UE keeps its keys if it does not answer, and if it rejects the command to take the new ones
//! into use (5.4.1.3.7, 5.4.2.5).

mod state;

pub use state::Authenticating;

use crate::amf::n2::Cause;
use crate::amf::procedures::common::end_of_registration;
use crate::amf::procedures::common::security_setup::{Progress, SecuritySetup, known_identity};
use crate::amf::procedures::common::service::RequestedService;
use crate::step::{Kind, Note, StepContext};
use vireo_wire::nas::GmmCause;
use vireo_wire::ngap::CauseNas;

/// Result of a step of the authentication.
#[derive(Debug)]
pub enum Next {
    Waiting(Box<Authenticating>),
    /// The UE is served: with the new keys, or with those that it has if there is no vector.
    Served(Option<RequestedService>),
    /// The UE is to be deregistered with this cause.
    Barred(GmmCause),
    /// The UE is not served on this connection.
    Ended,
}

/// Starts the authentication of a registered UE, before a service request or on a connection.
pub fn begin(ctx: &mut StepContext<'_, '_>, service: Option<RequestedService>) -> Next {
    let (Some(identity), Some(security)) = (known_identity(ctx.ue), &ctx.ue.security) else {
        return Next::Served(service);
    };
    let ngksi = security.key_set.identifier();
    ctx.note(Note::Started(Kind::Authentication));
    let capability = ctx.ue.security_capability;
    let progress = SecuritySetup::start(ctx, Some(identity), ngksi, capability);
    let started = ctx.received_at();
    continue_with(ctx, progress, |securing| Authenticating { securing, started, service })
}

/// Runs a step of the security sub-procedure.
pub fn secure(
    ctx: &mut StepContext<'_, '_>,
    authenticating: Authenticating,
    step: impl FnOnce(SecuritySetup, &mut StepContext<'_, '_>) -> Progress,
) -> Next {
    let Authenticating { securing, started, service } = authenticating;
    let progress = step(securing, ctx);
    if matches!(progress, Progress::Secured(_)) {
        ctx.note(Note::Succeeded(Kind::Authentication, started));
        return Next::Served(service);
    }
    // Without a vector, the UE is served under the keys that it has.
    if progress == Progress::Rejected(GmmCause::Congestion) {
        ctx.note(Note::Failed(Kind::Authentication, 0));
        return Next::Served(service);
    }
    continue_with(ctx, progress, |securing| Authenticating { securing, started, service })
}

fn continue_with(
    ctx: &mut StepContext<'_, '_>,
    progress: Progress,
    waiting: impl FnOnce(SecuritySetup) -> Authenticating,
) -> Next {
    match progress {
        Progress::Waiting(securing) => Next::Waiting(Box::new(waiting(securing))),
        Progress::Rejected(cause) => {
            ctx.note(Note::Failed(Kind::Authentication, cause.as_u8()));
            Next::Barred(cause)
        }
        Progress::Refused => {
            ctx.note(Note::NotAuthenticated(Kind::Authentication));
            end_of_registration::end(ctx);
            ctx.ue.security = None;
            ctx.release(Cause::nas(CauseNas::authentication_failure));
            Next::Ended
        }
        Progress::Abandoned | Progress::Secured(_) => {
            ctx.note(Note::Failed(Kind::Authentication, 0));
            ctx.release(Cause::nas(CauseNas::unspecified));
            Next::Ended
        }
    }
}

/// Handles the loss of the connection, or a request of the UE that replaces the procedure. The UE
/// keeps its keys.
pub fn abort(ctx: &mut StepContext<'_, '_>) {
    ctx.note(Note::Failed(Kind::Authentication, 0));
}
