//! Latency over time around an event.

/// What happened in a short piece of time. Latencies count for the piece in which the procedure was meant to begin.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Bin {
    /// Its beginning, in seconds of the run.
    pub at_s: f64,
    /// Procedures that were done.
    pub done: u64,
    /// Procedures that failed.
    pub failed: u64,
    /// Those of them that cost the UE its registration.
    pub lost: u64,
    /// Latency in milliseconds: median, 99th percentile, largest.
    pub p50_ms: f64,
    /// 99th percentile.
    pub p99_ms: f64,
    /// Largest.
    pub max_ms: f64,
}

/// What an event did to the latency.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct EventImpact {
    /// The largest latency of a piece of time before the event, the median of all of them.
    pub usual_ms: f64,
    /// The largest latency in the time after the event.
    pub worst_ms: f64,
    /// What the event added: the worst over the usual one, never below 0.
    pub added_ms: f64,
    /// How long after the event the last piece with a largest latency above twice the usual one (and above the usual one
    /// by [`NOTICED_MS`]) ended; 0 if there is none.
    pub recovered_s: f64,
}

/// What nobody notices.
pub const NOTICED_MS: f64 = 10.0;

/// What the event at `event_s` did. The pieces of the time from `within_s` before it to `within_s` after it count.
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
    fn a_spike_is_seen_and_measured() {
        let mut bins = flat();
        (bins[40].max_ms, bins[41].max_ms, bins[44].max_ms) = (60.0, 30.0, 14.0);
        // before the event and long after it
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
    fn a_piece_in_which_nothing_was_begun_does_not_count() {
        let mut bins = flat();
        bins[50] = Bin { at_s: 5.0, ..Bin::default() };
        assert_eq!(around(&bins, 5.0, 3.0).added_ms, 0.0);
    }
}
