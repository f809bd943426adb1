//! APN-AMBR (TS 24.301 9.9.4.2).

use vireo_wire::nas_eps::NasApnAggregateMaximumBitRate;

/// Returns the APN-AMBR IE: exact if possible, else rounded up.
pub(super) fn apn_ambr(downlink_bps: u64, uplink_bps: u64) -> Option<NasApnAggregateMaximumBitRate> {
    NasApnAggregateMaximumBitRate::from_kbps(encodable_kbps(downlink_bps), encodable_kbps(uplink_bps)).ok()
}

/// Returns the lowest rate in kbit/s that the IE encodes and that is not below `bps`.
fn encodable_kbps(bps: u64) -> u64 {
    /// Highest rate of the IE, in kbit/s.
    const HIGHEST: u64 = 65_280_000;
    /// Steps of the coding, in kbit/s.
    const STEPS: [u64; 7] = [1, 8, 64, 100, 1_000, 2_000, 256_000];
    let kbps = bps.div_ceil(1000).clamp(1, HIGHEST);
    let rounded = STEPS.into_iter().map(|step| kbps.next_multiple_of(step));
    let encodable = |rate: &u64| NasApnAggregateMaximumBitRate::from_kbps(*rate, *rate).is_ok();
    rounded.filter(encodable).min().unwrap_or(HIGHEST)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn apn_rate_code_is_never_below_subscribed() {
        for (bps, kbps) in [
            (0, 1),
            (64_000, 64),
            (8_640_000, 8_640),
            (100_000_000, 100_000),
            (1_000_000_000, 1_000_000),
            (u64::MAX, 65_280_000),
        ] {
            assert_eq!(encodable_kbps(bps), kbps, "{bps}");
        }
        for bps in [999, 123_456_789, 7_777_777_777] {
            let coded = encodable_kbps(bps);
            assert!(coded * 1000 >= bps && coded * 1000 <= bps.max(1000) * 3 / 2, "{bps} is coded as {coded} kbit/s");
            assert!(apn_ambr(bps, bps).is_some());
        }
    }
}
