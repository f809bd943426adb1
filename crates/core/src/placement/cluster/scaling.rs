//! Autoscaler: number of serving hosts of a cluster.
//!
//! The decision is a pure function of load reports. More hosts than needed have joined and are
//! idle. Adding one therefore takes a map and no process start. Removing one drains it first. All
//! hosts are assumed to be of equal size.

use crate::placement::balance::HostId;
use std::collections::BTreeMap;
use vireo_types::{Duration, Instant};

/// Age from which a load report is ignored.
const MAX_REPORT_AGE: Duration = Duration::from_secs(2);
/// Factor by which removing a host takes longer than adding one: a missing host costs latency, an
/// excess one does not.
const REMOVAL_DELAY_FACTOR: u64 = 3;
/// Fraction of the known capacity per host below which busy processors alone do not add a host.
const NEAR_CAPACITY: f32 = 0.9;

/// Settings of the autoscaler.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Scaling {
    /// Minimum number of serving hosts.
    pub least: usize,
    /// Maximum number of serving hosts.
    pub most: usize,
    /// Number of idle hosts to keep joined.
    pub idle: usize,
    /// Mean CPU use of hosts (0 to 1) above which a host is added. It counts only at a message rate
    /// near the highest that hosts are known to carry, or above. At lower rates each message costs
    /// more. There, only procedures that are late at all hosts show an overload, for example
    /// because messages have become more expensive.
    pub high: f32,
    /// Fraction of the known capacity of one host. A host is removed if each of the remaining ones
    /// would carry less than this.
    pub low: f32,
    /// Time for which either condition must last, and pause after a change.
    pub lasts: Duration,
}

/// Load report of a host.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct HostUtilisation {
    /// CPU use of the host, 0 to 1, averaged.
    pub cpu: f32,
    /// True if a procedure that starts at report time would be late: `(Q / C + 1) T_t` of a pool
    /// exceeds its objective (MMLite, Algorithm 1).
    pub late: bool,
    /// Processed messages per second, averaged.
    pub rate: f32,
}

/// Change of the number of serving hosts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ScalingDecision {
    /// One more host starts to serve.
    ScaleOut,
    /// This host migrates all its buckets and leaves.
    ScaleIn(HostId),
}

/// State of the autoscaler.
#[derive(Clone, Debug)]
pub(super) struct Scaler {
    settings: Scaling,
    loads: BTreeMap<HostId, (HostUtilisation, Instant)>,
    /// Start of the uninterrupted period in which hosts are overloaded, and in which one is spare.
    high: Option<Instant>,
    spare: Option<Instant>,
    /// Messages per second that one host is known to carry. It is the highest rate without late
    /// procedures, but not above the rate at which a host had to be added. CPU time is no measure.
    /// At low rates a message costs several times as much, because it wakes threads, so that nearly
    /// idle hosts would seem to be full.
    capacity: f32,
    /// Time of the last procedure for which no host would meet the objective.
    violated: Option<Instant>,
}

impl Scaler {
    pub(super) fn new(settings: Scaling) -> Self {
        Scaler { settings, loads: BTreeMap::new(), high: None, spare: None, capacity: 0.0, violated: None }
    }

    /// Stores the load report of a host.
    pub(super) fn on_load_report(&mut self, host: HostId, load: HostUtilisation, now: Instant) {
        self.loads.insert(host, (load, now));
    }

    /// Handles that balancers found no host that would meet the objective of a procedure.
    pub(super) fn on_violations(&mut self, now: Instant) {
        self.violated = Some(now);
    }

    /// Removes a departed host.
    pub(super) fn forget(&mut self, host: HostId) {
        self.loads.remove(&host);
    }

    /// Restarts both periods: hosts join, leave or migrate buckets, and their load is not
    /// representative.
    pub(super) fn reset_hysteresis(&mut self) {
        (self.high, self.spare) = (None, None);
    }

    /// Returns true if the number of hosts is about to change.
    pub(super) fn is_pending(&self, working: usize, has_idle: bool) -> bool {
        let grows = self.high.is_some() && has_idle && working < self.settings.most;
        grows || self.spare.is_some() && working > self.settings.least
    }

    /// Decides on a change. Hosts without a recent report do not count, and no host is removed
    /// while there are any.
    pub(super) fn decide(&mut self, working: &[HostId], now: Instant) -> Option<ScalingDecision> {
        let fresh = |host: &HostId| {
            self.loads.get(host).filter(|(_, at)| now.since(*at) < MAX_REPORT_AGE).map(|(load, _)| *load)
        };
        let known: Vec<(HostId, HostUtilisation)> =
            working.iter().filter_map(|host| Some((*host, fresh(host)?))).collect();
        let sum: f32 = known.iter().map(|(_, load)| load.cpu).sum();
        // If one host were in time, the balancers would select it.
        let violated = self.violated.is_some_and(|at| now.since(at) < MAX_REPORT_AGE);
        let late = violated || known.iter().all(|(_, load)| load.late);
        let rate: f32 = known.iter().map(|(_, load)| load.rate).sum();
        let each = rate / known.len().max(1) as f32;
        let busy = sum / known.len().max(1) as f32 > self.settings.high && each >= NEAR_CAPACITY * self.capacity;
        let high = !known.is_empty() && (late || busy);
        let rest = known.len().saturating_sub(1).max(1) as f32;
        let any_late = violated || known.iter().any(|(_, load)| load.late);
        if !any_late {
            self.capacity = self.capacity.max(each);
        }
        let has_room = rate / rest < self.settings.low * self.capacity || sum / rest < self.settings.low;
        let spare = known.len() == working.len() && !any_late && has_room;
        let lasting = |since: &mut Option<Instant>, is: bool, lasts: Duration| {
            *since = is.then(|| since.unwrap_or(now));
            since.is_some_and(|since| now.since(since) >= lasts)
        };
        let lasts = self.settings.lasts;
        let out = lasting(&mut self.high, high, lasts) && working.len() < self.settings.most;
        let fewer = lasting(&mut self.spare, spare, Duration(lasts.0 * REMOVAL_DELAY_FACTOR))
            && working.len() > self.settings.least;
        let step = match (out, fewer) {
            (true, _) => Some(ScalingDecision::ScaleOut),
            (false, true) => known
                .iter()
                .min_by(|a, b| a.1.rate.total_cmp(&b.1.rate))
                .map(|(host, _)| ScalingDecision::ScaleIn(*host)),
            (false, false) => None,
        };
        if step == Some(ScalingDecision::ScaleOut) {
            self.capacity = each;
        }
        if step.is_some() {
            self.reset_hysteresis();
        }
        step
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SETTINGS: Scaling =
        Scaling { least: 2, most: 4, idle: 1, high: 0.7, low: 0.4, lasts: Duration::from_secs(1) };

    /// Returns the first decision and the seconds until it, while hosts report these loads every
    /// 200 ms.
    fn decided(scaler: &mut Scaler, loads: &[(f32, bool)], seconds: u64) -> Option<(ScalingDecision, u64)> {
        let hosts: Vec<HostId> = (0..loads.len() as u16).map(HostId).collect();
        (0..seconds * 5).find_map(|n| {
            let now = Instant(1_000_000 + n * 200_000);
            for (host, (cpu, late)) in hosts.iter().zip(loads) {
                scaler.on_load_report(*host, HostUtilisation { cpu: *cpu, late: *late, rate: 1000.0 * cpu }, now);
            }
            Some((scaler.decide(&hosts, now)?, n * 200))
        })
    }

    #[test]
    fn lasting_load_scales_out_to_limit() {
        let of = |loads: &[(f32, bool)]| decided(&mut Scaler::new(SETTINGS), loads, 20);
        assert_eq!(of(&[(0.8, false), (0.7, false)]), Some((ScalingDecision::ScaleOut, 1000)));
        assert_eq!(of(&[(0.9, false), (0.5, false)]), None, "in the mean they have room");
        assert_eq!(of(&[(0.4, true), (0.5, true)]), Some((ScalingDecision::ScaleOut, 1000)), "everybody would be late");
        assert_eq!(of(&[(0.4, true), (0.5, false)]), None, "the second one would be in time");
        assert_eq!(of(&[(0.9, true); 4]), None);
    }

    #[test]
    fn least_loaded_host_scales_in_to_minimum() {
        let of = |loads: &[(f32, bool)]| decided(&mut Scaler::new(SETTINGS), loads, 20);
        assert_eq!(of(&[(0.3, false), (0.1, false), (0.2, false)]), Some((ScalingDecision::ScaleIn(HostId(1)), 3000)));
        assert_eq!(of(&[(0.3, false), (0.3, false), (0.3, false)]), None, "two would have 0.45 each");
        assert_eq!(of(&[(0.1, true), (0.1, false), (0.1, false)]), None);
        assert_eq!(of(&[(0.0, false), (0.0, false)]), None);
    }

    /// Threads that wake up for each message keep processors busy at any load.
    #[test]
    fn rate_outweighs_cpu_use() {
        let mut scaler = Scaler::new(SETTINGS);
        let mut decided = |rates: &[f32], late: bool, begins: u64| {
            let hosts: Vec<HostId> = (0..rates.len() as u16).map(HostId).collect();
            (0..100).find_map(|n| {
                let now = Instant(begins * 1_000_000 + n * 200_000);
                let each = |(host, rate): (&HostId, &f32)| {
                    scaler.on_load_report(*host, HostUtilisation { cpu: 0.9, late, rate: *rate }, now)
                };
                hosts.iter().zip(rates).for_each(each);
                scaler.decide(&hosts, now)
            })
        };
        assert_eq!(
            decided(&[900.0; 3], false, 100),
            Some(ScalingDecision::ScaleOut),
            "nobody knows yet that they can carry more"
        );
        assert_eq!(decided(&[700.0; 4], false, 200), None);
        assert_eq!(decided(&[2000.0; 4], false, 300), None, "as many as may");
        assert_eq!(decided(&[700.0; 4], false, 400), None, "three would have 930 each, of 2,000 that one carries");
        assert_eq!(decided(&[300.0, 310.0, 320.0, 330.0], false, 500), Some(ScalingDecision::ScaleIn(HostId(0))));
        assert_eq!(decided(&[500.0; 3], false, 600), Some(ScalingDecision::ScaleIn(HostId(0))));
        assert_eq!(decided(&[750.0; 2], false, 700), None, "busy as they are, they have carried more");
        assert_eq!(decided(&[1900.0; 2], false, 800), Some(ScalingDecision::ScaleOut));
        assert_eq!(decided(&[1000.0; 2], true, 900), Some(ScalingDecision::ScaleOut), "today's messages take longer");
        assert_eq!(decided(&[700.0; 3], false, 1000), None, "which is remembered");
    }

    #[test]
    fn short_load_peak_changes_nothing() {
        let mut scaler = Scaler::new(SETTINGS);
        let hosts = [HostId(0), HostId(1)];
        for n in 0..100 {
            let now = Instant(1_000_000 + n * 200_000);
            // Every fifth report has a lower load.
            let cpu = if n % 5 == 4 { 0.5 } else { 0.9 };
            hosts.iter().for_each(|host| {
                scaler.on_load_report(*host, HostUtilisation { cpu, late: false, rate: 1000.0 * cpu }, now)
            });
            assert_eq!(scaler.decide(&hosts, now), None);
        }
    }

    #[test]
    fn scale_in_waits_for_silent_host() {
        let mut scaler = Scaler::new(SETTINGS);
        let hosts = [0, 1, 2].map(HostId);
        scaler.on_load_report(HostId(2), HostUtilisation::default(), Instant(0));
        for n in 20..100 {
            let now = Instant(n * 200_000);
            hosts[..2].iter().for_each(|host| scaler.on_load_report(*host, HostUtilisation::default(), now));
            assert_eq!(scaler.decide(&hosts, now), None);
        }
        scaler.forget(HostId(2));
        assert_eq!(decided(&mut scaler, &[(0.8, false), (0.8, false)], 20), Some((ScalingDecision::ScaleOut, 1000)));
    }
}
