//! Procedure latencies by slice and kind, compared with the latency objectives.
//!
//! The tracker has the latencies of the last seconds, and the violations since the start. The
//! latency of a procedure extends from the step of its first message to that of its last. It
//! includes the times of RAN, UE and UPF in between. It excludes the queueing of the first message.

use hdrhistogram::Histogram;
use vireo_core::schedule::kind::NfKind;
use vireo_ops::api::LatencyStatus;
use vireo_ops::config::{NF_KINDS, SliceRuntime};
use vireo_types::{Duration, Instant};

/// Length of a window. Status shows the last complete window and the current one: 5 to 10 s.
const WINDOW_LENGTH: Duration = Duration::from_secs(5);
/// Longer latencies count as this value, in microseconds: one minute.
const MAX_LATENCY_US: u64 = 60_000_000;
/// Significant decimal digits of a quantile. A histogram then has 10 kB.
const DIGITS: u8 = 2;

/// Latencies of one kind of procedure in one slice.
#[derive(Debug)]
struct LatencySeries {
    /// Latencies of the current window and of the last one.
    latencies: [Histogram<u32>; 2],
    /// Violations in the same windows.
    missed: [u64; 2],
    ended: u64,
    missed_ever: u64,
}

impl LatencySeries {
    fn new() -> Option<Self> {
        let histogram = || Histogram::new_with_bounds(1, MAX_LATENCY_US, DIGITS).ok();
        Some(LatencySeries { latencies: [histogram()?, histogram()?], missed: [0; 2], ended: 0, missed_ever: 0 })
    }

    /// Makes the current window the last one.
    fn rotate(&mut self) {
        self.latencies.swap(0, 1);
        self.missed.swap(0, 1);
        self.latencies[0].reset();
        self.missed[0] = 0;
    }
}

/// Latencies of all slices and kinds of a host.
#[derive(Debug)]
pub(super) struct SloTracker {
    /// Names of the slices. The first one is for UEs of unknown slice.
    names: Vec<String>,
    /// Latency objectives in microseconds.
    objectives: Vec<[u64; NF_KINDS]>,
    /// By slice and kind; `None` before the first procedure.
    series: Vec<[Option<Box<LatencySeries>>; NF_KINDS]>,
    /// Start of the current window.
    began: Instant,
}

impl SloTracker {
    pub(super) fn new(slices: &[SliceRuntime]) -> Self {
        SloTracker {
            names: std::iter::once(String::new()).chain(slices.iter().map(|s| s.name.clone())).collect(),
            objectives: objectives(slices),
            series: (0..=slices.len()).map(|_| Default::default()).collect(),
            began: Instant::default(),
        }
    }

    /// Replaces the objectives for procedures that end later.
    pub(super) fn set_objectives(&mut self, slices: &[SliceRuntime]) {
        self.objectives = objectives(slices);
    }

    /// Records the end of a procedure. Slice 0 = unknown, else 1 + its position.
    pub(super) fn record(&mut self, slice: usize, kind: NfKind, now: Instant, latency: Duration) {
        self.rotate_windows(now);
        let Some(objective) = self.objectives.get(slice).map(|all| all[kind.index()]) else { return };
        let series = &mut self.series[slice][kind.index()];
        if series.is_none() {
            *series = LatencySeries::new().map(Box::new);
        }
        let Some(series) = series else { return };
        let missed = u64::from(latency.as_micros() > objective);
        series.latencies[0].saturating_record(latency.as_micros().max(1));
        series.missed[0] += missed;
        series.ended += 1;
        series.missed_ever += missed;
    }

    fn rotate_windows(&mut self, now: Instant) {
        let passed = now.since(self.began);
        if passed < WINDOW_LENGTH {
            return;
        }
        // After a window without procedures, nothing of the window before it remains.
        let rotations = if passed.as_micros() < 2 * WINDOW_LENGTH.as_micros() { 1 } else { 2 };
        for series in self.series.iter_mut().flatten().flatten() {
            (0..rotations).for_each(|_| series.rotate());
        }
        self.began = now;
    }

    /// Returns the status of each slice and kind that had a procedure.
    pub(super) fn status(&mut self, now: Instant) -> Vec<LatencyStatus> {
        self.rotate_windows(now);
        let mut all = Vec::new();
        for (slice, kinds) in self.series.iter().enumerate() {
            for (series, kind) in kinds.iter().zip(NfKind::ALL).filter_map(|(s, kind)| Some((s.as_deref()?, kind))) {
                let mut latencies = series.latencies[0].clone();
                // Histograms with the same bounds: no value is out of range.
                let _ = latencies.add(&series.latencies[1]);
                all.push(LatencyStatus {
                    slice: self.names[slice].clone(),
                    kind: kind.name().into(),
                    slo_us: self.objectives[slice][kind.index()],
                    count: latencies.len(),
                    violations: series.missed.iter().sum(),
                    p50_us: latencies.value_at_quantile(0.5),
                    p99_us: latencies.value_at_quantile(0.99),
                    total: series.ended,
                    total_violations: series.missed_ever,
                });
            }
        }
        all
    }
}

/// Returns the objectives in microseconds of UEs of unknown slice, followed by those of each slice.
pub(super) fn objectives(slices: &[SliceRuntime]) -> Vec<[u64; NF_KINDS]> {
    let of = |slice: &SliceRuntime| slice.slo.map(Duration::as_micros);
    // An unknown slice may be any slice: the strictest objective counts.
    let strictest = |kind: usize| slices.iter().map(|s| s.slo[kind]).min().unwrap_or(SliceRuntime::SLO).as_micros();
    let unknown = std::array::from_fn(strictest);
    std::iter::once(unknown).chain(slices.iter().map(of)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use vireo_types::Snssai;

    fn at(ms: u64) -> Instant {
        Instant::default() + Duration::from_millis(ms)
    }

    #[test]
    fn latencies_are_kept_by_slice_kind_and_window() {
        let mut slices = ["a", "b"].map(|name| SliceRuntime::new(name, Snssai { sst: 1, sd: None }));
        slices[1].slo[NfKind::Handover.index()] = Duration::from_millis(20);
        let mut tracker = SloTracker::new(&slices);
        for ms in [10, 20, 21] {
            tracker.record(2, NfKind::Handover, at(100_000), Duration::from_millis(ms));
        }
        tracker.record(0, NfKind::Handover, at(100_001), Duration::from_millis(30));
        tracker.record(9, NfKind::Handover, at(100_001), Duration::from_millis(30));
        let all = tracker.status(at(101_000));
        assert_eq!(all.len(), 2, "{all:?}");
        assert_eq!((all[0].slice.as_str(), all[0].slo_us, all[0].violations), ("", 20_000, 1), "the strictest");
        let of = &all[1];
        assert_eq!((of.slice.as_str(), of.kind.as_str(), of.slo_us), ("b", "handover", 20_000));
        assert_eq!((of.count, of.violations, of.total, of.total_violations), (3, 1, 3, 1));
        assert!(of.p50_us.abs_diff(20_000) < 300 && of.p99_us.abs_diff(21_000) < 300, "{of:?}");
        // The next window still shows them; the one after it does not.
        tracker.record(2, NfKind::Handover, at(106_000), Duration::from_millis(1));
        assert_eq!(tracker.status(at(106_000))[1].count, 4);
        let last = tracker.status(at(111_500)).swap_remove(1);
        assert_eq!((last.count, last.total, last.total_violations), (1, 4, 1));
        assert_eq!(tracker.status(at(200_000))[1].count, 0);
    }
}
