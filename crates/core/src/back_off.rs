//! Back-off times of UEs that are rejected for congestion (TS 24.501 5.3.9, 6.2.7; TS 24.301 5.3.9,
//! 6.3.6).

/// Units of GPRS timer 2 (TS 24.008 10.5.7.4) in seconds, each with the lowest count that no finer
/// unit can express.
const UNITS: [(u64, u64); 3] = [(2, 1), (60, 2), (360, 6)];
/// Highest count.
const LARGEST: u64 = 31;

/// Returns the back-off time of one UE in seconds: one of the values that GPRS timer 2 encodes, at
/// random between half and one and a half times the mean, so that UEs do not return together.
pub(crate) fn seconds(mean: u64, random: u32) -> u64 {
    let (least, most) = (mean / 2, mean.saturating_add(mean / 2));
    let counts = |(unit, first): (u64, u64)| (unit, first.max(least.div_ceil(unit)), LARGEST.min(most / unit));
    let known = |(_, first, last): (u64, u64, u64)| (last + 1).saturating_sub(first);
    let total: u64 = UNITS.into_iter().map(counts).map(known).sum();
    let mut at = u64::from(random) % total.max(1);
    for range in UNITS.into_iter().map(counts) {
        if at < known(range) {
            return range.0 * (range.1 + at);
        }
        at -= known(range);
    }
    // No encodable value is in the range: use the nearest one.
    mean.clamp(UNITS[0].0, UNITS[2].0 * LARGEST) / 2 * 2
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;
    use vireo_wire::nas::NasGprsTimer2;

    #[test]
    fn backoff_timer_values_spread_around_configured() {
        for mean in [1, 2, 10, 60, 100, 300, 3600, 11_160, 1_000_000] {
            let timers: BTreeSet<_> = (0..1000u32).map(|n| seconds(mean, n.wrapping_mul(0x9e37_79b1))).collect();
            for value in &timers {
                let timer = NasGprsTimer2::from_seconds(*value).expect("a value of the coding");
                assert_eq!(timer.to_seconds(), Some(*value));
                let nearest = mean.clamp(2, 11_160);
                assert!(*value > 0 && (nearest / 2..=nearest * 3 / 2 + 1).contains(value), "{value} s for {mean} s");
            }
            assert!(timers.len() > 1 || !(10..=11_160).contains(&mean), "{timers:?} for {mean} s");
        }
        let minute: BTreeSet<_> = (0..1000).map(|n| seconds(60, n)).collect();
        assert_eq!((minute.len(), minute.first(), minute.last()), (17, Some(&30), Some(&62)));
    }
}
