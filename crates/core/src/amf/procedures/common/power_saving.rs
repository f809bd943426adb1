//! Power saving that a UE requests (TS 24.301 5.3.11, 5.3.12; TS 24.501 5.3.6).
//!
//! A UE requests it with each attach, registration and update; what it does not request ends.

use crate::amf::context::{ExtendedDrx, PowerSaving};
use crate::gprs_timer::{TIMER_3, at_most};
use crate::step::StepContext;
use vireo_types::Duration;

/// Power saving in a request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PowerSavingRequest {
    /// T3324 in seconds: power saving mode is requested.
    pub active_s: Option<u64>,
    /// T3412 extended value in seconds.
    pub periodic_s: Option<u64>,
    pub extended_drx: Option<ExtendedDrx>,
}

/// Grants what the configuration permits. `units` are those of T3324 in the accept.
pub fn grant(ctx: &mut StepContext<'_, '_>, request: PowerSavingRequest, units: &[u64]) {
    let config = ctx.env.config.paging.power_saving;
    let mode = request.active_s.zip(config.mode).map(|(active_s, limits)| PowerSaving {
        active_s: encodable(active_s, limits.active_time, units),
        periodic_s: request.periodic_s.map(|s| encodable(s, limits.periodic_update, TIMER_3)).filter(|s| *s > 0),
    });
    let paging = &mut ctx.ue.reachability.paging;
    paging.power_saving = mode;
    paging.extended_drx = request.extended_drx.filter(|_| config.extended_drx.is_some());
}

/// Returns the longest time that a timer of these units encodes, at most the requested one and the
/// limit.
fn encodable(requested_s: u64, limit: Duration, units: &[u64]) -> u32 {
    u32::try_from(at_most(requested_s.min(limit.as_secs()), units)).unwrap_or(u32::MAX)
}
