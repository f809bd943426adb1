//! Generic UE configuration update (TS 24.501 5.4.4, TS 23.502 4.2.4.2) and GUTI reallocation (TS
//! 24.301 5.4.1), both acknowledged.
//!
//! A UE that has answered a page gets another GUTI (TS 33.501 6.12.3). A UE of 5G also gets
//! allowed and configured NSSAI after a change of its subscribed slices, and a service area that
//! has changed. After a change of areas, a UE of either dialect gets its tracking areas, and its
//! RAN node the mobility restrictions.

mod eps;
mod nr;
mod state;

pub use state::Updating;

use crate::amf::context::{PendingWork, Retry};
use crate::amf::procedures::common::guti;
use crate::step::{Kind, Note, StepContext};
use vireo_types::Dialect;

/// Sends the command to a connected UE: with a new GUTI, the allowed NSSAI, and the areas.
/// Returns `None` if none of them is pending.
pub fn begin(ctx: &mut StepContext<'_, '_>, pending: PendingWork) -> Option<Updating> {
    // A UE of EPS that requests service does not say which of two GUTIs it has: it gets the later
    // one again, and both stay valid until it confirms.
    let guti = pending.reallocate && (ctx.ue.identity.old_tmsi.is_some() || guti::assign(ctx));
    let (allowed, areas) = (pending.allowed && ctx.ue.dialect() == Dialect::Nr, pending.areas);
    if !guti && !allowed && !areas {
        return None;
    }
    ctx.note(Note::Started(Kind::ConfigurationUpdate));
    let retry = Retry::start(ctx.now(), ctx.env.config.timers.t3550);
    let updating = Updating { retry, started: ctx.now(), guti, allowed, areas };
    send(ctx, &updating);
    Some(updating)
}

fn send(ctx: &mut StepContext<'_, '_>, updating: &Updating) {
    match ctx.ue.dialect() {
        Dialect::Nr => nr::send(ctx, updating),
        Dialect::Eps => eps::send(ctx, updating),
    }
}

/// Handles CONFIGURATION UPDATE COMPLETE or GUTI REALLOCATION COMPLETE: the old GUTI is void.
pub fn complete(ctx: &mut StepContext<'_, '_>, updating: Updating) {
    if updating.guti {
        guti::confirm(ctx);
    }
    ctx.note(Note::Succeeded(Kind::ConfigurationUpdate, updating.started));
}

/// Handles the end of the connection, or of the wait for the UE: both GUTIs stay valid (TS 24.501
/// 5.4.4.6 a, TS 24.301 5.4.1.6 a). Allowed NSSAI and service area are sent again on the next
/// connection.
pub fn abort(ctx: &mut StepContext<'_, '_>, updating: Updating) {
    let is_registered = ctx.ue.is_registered();
    ctx.ue.pending.allowed |= updating.allowed && is_registered;
    ctx.ue.pending.areas |= updating.areas && is_registered;
    ctx.note(Note::Failed(Kind::ConfigurationUpdate, 0));
}

/// Handles the expiry of the deadline (T3555, T3450).
pub fn on_deadline(ctx: &mut StepContext<'_, '_>, updating: Updating) -> Option<Updating> {
    let timers = ctx.env.config.timers;
    if updating.retry.deadline > ctx.now() {
        return Some(updating);
    }
    match updating.retry.next(ctx.now(), timers.t3550, timers.retransmissions) {
        Some(retry) => {
            send(ctx, &updating);
            Some(Updating { retry, ..updating })
        }
        None => {
            ctx.note(Note::Failed(Kind::ConfigurationUpdate, 0));
            None
        }
    }
}
