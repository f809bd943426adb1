//! Latency over time around an event.

/// Measurements of one short interval. A latency counts in the interval of the procedure's intended
/// start.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Bin {
    /// Start of the interval, in seconds of the run.
    pub at_s: f64,
    pub done: u64,
    pub failed: u64,
    /// Failed procedures that cost the UE its registration.
    pub lost: u64,
    /// Latency in milliseconds: median, 99th percentile, largest.
    pub p50_ms: f64,
    pub p99_ms: f64,
    pub max_ms: f64,
}

/// Effect of an event on the latency.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct EventImpact {
    /// Median of the largest latencies of the intervals before the event.
    pub usual_ms: f64,
    /// Largest latency after the event.
    pub worst_ms: f64,
    /// Latency added by the event: worst minus usual, at least 0.
    pub added_ms: f64,
    /// Seconds from the event to the end of the last interval with an elevated largest latency; 0
    /// if there is none. Elevated means above twice the usual value and above it by [`NOTICED_MS`].
    pub recovered_s: f64,
}

/// Latency increase below which a change is not noticeable, in milliseconds.
pub const NOTICED_MS: f64 = 10.0;

/// Returns the effect of the event at `event_s`. Intervals within `within_s` before and after it
/// count.
pub fn around(bins: &[Bin], event_s: f64, within_s: f64) -> EventImpact {
    let width = bins.windows(2).map(|pair| pair[1].at_s - pair[0].at_s).fold(f64::INFINITY, f64::min);
    let width = if width.is_finite() { width } else { 0.0 };
    let counted = bins.iter().filter(|bin| bin.done + bin.failed > 0);
    let mut before: Vec<f64> = counted
        .clone()
        .filter(|bin| bin.at_s >= event_s - within_s && bin.at_s + width <= event_s)
        .map(|bin| bin.max_ms)
        .collect();
    before.sort_by(f64::total_cmp);
    let usual_ms = before.get(before.len() / 2).copied().unwrap_or(0.0);
    let after = counted.filter(|bin| bin.at_s + width > event_s && bin.at_s <= event_s + within_s);
    let worst_ms = after.clone().map(|bin| bin.max_ms).fold(0.0, f64::max);
    let noticed = (usual_ms * 2.0).max(usual_ms + NOTICED_MS);
    let slow = after.filter(|bin| bin.max_ms > noticed).map(|bin| bin.at_s + width - event_s);
    EventImpact { usual_ms, worst_ms, added_ms: (worst_ms - usual_ms).max(0.0), recovered_s: slow.fold(0.0, f64::max) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn flat() -> Vec<Bin> {
        let bin = |n: u32| Bin { at_s: f64::from(n) * 0.1, done: 100, max_ms: 5.0, ..Bin::default() };
        (0..100).map(bin).collect()
    }

    #[test]
    fn spike_around_event_is_measured() {
        let mut bins = flat();
        (bins[40].max_ms, bins[41].max_ms, bins[44].max_ms) = (60.0, 30.0, 14.0);
        // Before the event and long after it.
        (bins[10].max_ms, bins[95].max_ms) = (90.0, 500.0);
        let found = around(&bins, 4.05, 4.0);
        assert_eq!((found.usual_ms, found.worst_ms, found.added_ms), (5.0, 60.0, 55.0));
        assert!((found.recovered_s - 0.15).abs() < 1e-9, "{found:?}: 14 ms are not worth a word");
    }

    #[test]
    fn nothing_happened() {
        let found = around(&flat(), 5.0, 3.0);
        assert_eq!(found, EventImpact { usual_ms: 5.0, worst_ms: 5.0, added_ms: 0.0, recovered_s: 0.0 });
        assert_eq!(around(&[], 5.0, 3.0), EventImpact::default());
    }

    #[test]
    fn empty_interval_does_not_count() {
        let mut bins = flat();
        bins[50] = Bin { at_s: 5.0, ..Bin::default() };
        assert_eq!(around(&bins, 5.0, 3.0).added_ms, 0.0);
    }
}
