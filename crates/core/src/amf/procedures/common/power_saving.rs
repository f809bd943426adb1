//! Power saving that a UE requests (TS 24.301 5.3.11, 5.3.12; TS 24.501 5.3.6).
//!
//! A UE requests it with each attach, registration and update; what it does not request ends.

use crate::amf::context::{ExtendedDrx, PowerSaving};
use crate::step::StepContext;
use vireo_types::Duration;

/// Units of GPRS timer 2 in seconds (TS 24.008 10.5.7.4).
pub const TIMER_2: &[u64] = &[2, 60, 360];
/// Units of GPRS timer 3 in seconds, as T3412 extended value (TS 24.008 10.5.7.4a).
pub const TIMER_3: &[u64] = &[2, 30, 60, 600, 3600, 36_000, 1_152_000];

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
    let most = requested_s.min(limit.as_secs());
    let longest = units.iter().map(|unit| (most / unit).min(31) * unit).max().unwrap_or(0);
    u32::try_from(longest).unwrap_or(u32::MAX)
}

/// Encodes a time as T3412 extended value; `None` if it has no encoding.
pub fn timer_3(seconds: u32) -> Option<u8> {
    /// Codings of [`TIMER_3`].
    const CODES: [u8; 7] = [3, 4, 5, 0, 1, 2, 6];
    let exact = |(unit, code): (&u64, u8)| {
        let value = u64::from(seconds) / unit;
        (value * unit == u64::from(seconds) && value <= 31).then_some(code << 5 | value as u8)
    };
    TIMER_3.iter().zip(CODES).find_map(exact)
}

#[cfg(test)]
mod tests {
    use super::*;
    use vireo_wire::nas::NasGprsTimer2;
    use vireo_wire::nas_eps::NasT3412ExtendedValue;

    #[test]
    fn granted_timers_are_encodable_and_not_longer() {
        let limit = Duration::from_secs(40 * 86_400);
        for requested in
            [0, 1, 2, 61, 62, 63, 100, 1861, 3599, 11_160, 11_161, 100_000, 1_116_000, 35_712_000, u64::MAX]
        {
            let active = u64::from(encodable(requested, limit, TIMER_2));
            let periodic = u64::from(encodable(requested, limit, TIMER_3));
            assert!(active <= requested && periodic <= requested.min(limit.as_secs()), "{active} {periodic}");
            assert_eq!(NasGprsTimer2::from_seconds(active).expect("a value").to_seconds(), Some(active));
            let timer = timer_3(periodic as u32).map(|octet| NasT3412ExtendedValue::new(vec![octet]));
            let seconds = timer.expect("a value").to_seconds_with_integrity(true);
            assert_eq!(seconds.unwrap_or_default(), periodic);
        }
        assert_eq!(encodable(7200, limit, TIMER_2), 7200);
        assert_eq!(encodable(36_000, Duration::from_secs(3599), TIMER_3), 3000);
    }
}
