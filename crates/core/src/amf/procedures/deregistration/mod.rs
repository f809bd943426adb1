//! Deregistration by the UE and the network (TS 24.501 5.5.2, TS 23.502 4.2.2.3), and detach (TS
//! 24.301 5.5.2).

mod eps;
pub mod nr;
mod state;

pub use state::Deregistering;

use crate::amf::context::Retry;
use crate::amf::n2::Cause;
use crate::amf::procedures::common::end_of_registration;
use crate::step::{Effect, Kind, Note, StepContext};
use vireo_types::Dialect;
use vireo_wire::ngap::CauseNas;

/// Handles DEREGISTRATION REQUEST of the UE. A UE that switches off gets no response (TS 24.501
/// 5.5.2.2.2).
pub fn by_ue(ctx: &mut StepContext<'_, '_>, switch_off: bool) {
    ctx.note(Note::Started(Kind::Deregistration));
    let started = ctx.received_at();
    if !switch_off {
        send_accept(ctx);
    }
    end_of_registration::end(ctx);
    ctx.release(Cause::nas(CauseNas::deregister));
    ctx.note(Note::Succeeded(Kind::Deregistration, started));
}

fn send_accept(ctx: &mut StepContext<'_, '_>) {
    match ctx.ue.dialect() {
        Dialect::Nr => nr::send_accept(ctx),
        Dialect::Eps => eps::send_accept(ctx),
    }
}

fn send_request(ctx: &mut StepContext<'_, '_>, reregister: bool, cause: Option<u8>) {
    match ctx.ue.dialect() {
        Dialect::Nr => nr::send_request(ctx, reregister, cause),
        Dialect::Eps => eps::send_request(ctx, reregister, cause),
    }
}

/// Handles DEREGISTRATION REQUEST without protection during a procedure. It gets a response,
/// because the UE may have aborted its registration. The procedure continues, because the sender
/// may not be the UE.
pub fn on_unprotected_request(ctx: &mut StepContext<'_, '_>, switch_off: bool) {
    ctx.note(Note::fault("nas-unproved-deregistration"));
    if !switch_off {
        send_accept(ctx);
    }
}

/// Handles an IMSI detach: the UE stays attached for EPS services (TS 24.301 5.5.2.2.3). Handles a
/// deregistration from non-3GPP access, too: that by 3GPP access stays (TS 24.501 5.5.2.2.3).
pub fn from_other_services(ctx: &mut StepContext<'_, '_>, switch_off: bool) {
    if !switch_off {
        send_accept(ctx);
    }
    if ctx.ue.connection.is_some_and(|connection| connection.ran.is_none()) {
        ctx.release(Cause::nas(CauseNas::normal_release));
    }
}

/// Deregisters the UE by the network, with a cause of its dialect. A connected UE is sent the
/// request; an idle one is deregistered at once.
pub fn by_network(ctx: &mut StepContext<'_, '_>, reregister: bool, cause: Option<u8>) -> Option<Deregistering> {
    ctx.note(Note::Started(Kind::Deregistration));
    let started = ctx.received_at();
    if ctx.ue.connection.is_none() {
        end_of_registration::end(ctx);
        ctx.note(Note::Succeeded(Kind::Deregistration, started));
        return None;
    }
    send_request(ctx, reregister, cause);
    let retry = Retry::start(ctx.now(), ctx.env.config.timers.t3522);
    Some(Deregistering { retry, started, reregister, cause })
}

/// Handles DEREGISTRATION ACCEPT of the UE.
pub fn on_accept(ctx: &mut StepContext<'_, '_>, deregistering: Deregistering) {
    end_of_registration::end(ctx);
    ctx.release(Cause::nas(CauseNas::deregister));
    ctx.note(Note::Succeeded(Kind::Deregistration, deregistering.started));
}

/// Handles the expiry of the deadline (TS 24.501 5.5.2.3.5 a).
pub fn on_deadline(ctx: &mut StepContext<'_, '_>, mut deregistering: Deregistering) -> Option<Deregistering> {
    let timers = ctx.env.config.timers;
    if deregistering.retry.deadline > ctx.now() {
        return Some(deregistering);
    }
    match deregistering.retry.next(ctx.now(), timers.t3522, timers.retransmissions) {
        Some(reregister) => {
            deregistering.retry = reregister;
            send_request(ctx, deregistering.reregister, deregistering.cause);
            Some(deregistering)
        }
        None => {
            on_accept(ctx, deregistering);
            None
        }
    }
}

/// Ends this context without informing the UE, because another context became the subscriber's. It
/// is deleted once its sessions are released.
pub fn supersede(ctx: &mut StepContext<'_, '_>) {
    end_of_registration::end(ctx);
    ctx.ue.security = None;
    for tmsi in [ctx.ue.identity.tmsi.take(), ctx.ue.identity.old_tmsi.take()].into_iter().flatten() {
        ctx.effect(Effect::FreeTmsi(tmsi));
    }
    ctx.release(Cause::nas(CauseNas::normal_release));
}
