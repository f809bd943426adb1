//! Table of reported host loads, as kept by a balancer.
//!
//! Reports are moving averages that arrive every few hundred milliseconds (MMLite, 5.1). The
//! balancer adds what it has sent since. Otherwise all procedures between two reports would go to
//! the host that looked best at the first.

use super::HostId;
use crate::schedule::estimate::ServiceTime;
use serde::{Deserialize, Serialize};
use vireo_types::{Duration, Instant};

/// Moving average in which each new value has weight 1/2, as in the artefact of MMLite.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct MovingAverage(Option<f64>);

impl MovingAverage {
    /// Adds a value to the average.
    pub fn take(&mut self, value: f64) {
        self.0 = Some(self.0.map_or(value, |old| (old + value) / 2.0));
    }

    /// Returns the average; 0 before the first value.
    pub fn get(self) -> f64 {
        self.0.unwrap_or_default()
    }
}

/// Method to estimate a host's load between two reports.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Estimate {
    /// Procedures that the balancer itself has in progress there. The balancer knows when each
    /// starts and ends, so this is never outdated. It requires [`LoadTable::ended`].
    #[default]
    UnderWay,
    /// Reported load plus procedures sent since, minus what the host has done meanwhile.
    Corrected,
    /// Reported load until the next report, as MMLite specifies.
    Reported,
}

/// Load report for one pool: the NFs of one slice and kind of procedure.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct PoolReport {
    /// Minimum `q_i / c_i` of its NFs, from moving averages.
    pub backlog: f64,
    /// Sum of the CPU core shares of its NFs. A pool without a share serves no UE.
    pub share: f64,
}

/// Estimated load of a host at one time.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct HostLoad {
    /// CPU use of the host, 0 to 1.
    pub cpu: f64,
    /// `q / c` of the NF that would finish first.
    pub backlog: f64,
    /// CPU time in nanoseconds of all procedures in progress there, of all pools. If only the
    /// backlog is known, the CPU time of the backlog.
    pub work: f64,
    /// Nanoseconds in which the pool's NFs would complete all of that work at their share.
    pub wait: f64,
}

impl HostLoad {
    /// Returns the completion time of a new procedure: `T = (q / c + 1) T_t`.
    pub fn completion(&self, time: ServiceTime) -> Duration {
        // Rounded up. A float beyond the integer range becomes the maximum.
        Duration(((self.backlog + 1.0) * time.nanos() as f64 / 1000.0).ceil() as u64)
    }

    /// Returns the completion time of a new procedure after the work of all pools. Unlike
    /// [`HostLoad::completion`] it also rises if another pool gets less of the CPU than it needs.
    pub fn completion_after_all(&self, time: ServiceTime) -> Duration {
        Duration(((self.wait + time.nanos() as f64) / 1000.0).ceil() as u64)
    }
}

#[derive(Clone, Copy, Debug, Default)]
struct Entry {
    report: PoolReport,
    /// Procedures sent since the report.
    sent: u32,
    /// Procedures sent that have not ended.
    in_progress: u32,
}

/// Loads of all hosts.
#[derive(Clone, Debug)]
pub struct LoadTable {
    pools: usize,
    stale: Duration,
    estimate: Estimate,
    /// Per host, its CPU use and the time of the report.
    hosts: Vec<Option<(f64, Instant)>>,
    entries: Vec<Entry>,
    /// Per host, CPU time in nanoseconds of the procedures in progress.
    work: Vec<u64>,
    /// Sum of the CPU use of all known hosts, and their number.
    in_use: f64,
    known: usize,
}

impl LoadTable {
    /// Creates a table for `pools` pools. Reports older than `stale` are ignored.
    pub fn new(pools: usize, stale: Duration) -> Self {
        LoadTable {
            pools,
            stale,
            estimate: Estimate::default(),
            hosts: Vec::new(),
            entries: Vec::new(),
            work: Vec::new(),
            in_use: 0.0,
            known: 0,
        }
    }

    /// Returns the table with another method of estimation.
    #[must_use]
    pub fn with(mut self, estimate: Estimate) -> Self {
        self.estimate = estimate;
        self
    }

    /// Stores the report of a host: CPU use (0 to 1) and its pools, in the order of their indices.
    pub fn report(&mut self, host: HostId, cpu: f64, pools: &[PoolReport], now: Instant) {
        let at = host.index();
        if self.hosts.len() <= at {
            self.hosts.resize(at + 1, None);
            self.entries.resize((at + 1) * self.pools, Entry::default());
            self.work.resize(at + 1, 0);
        }
        self.unknown(host);
        self.hosts[at] = Some((cpu, now));
        self.in_use += cpu;
        self.known += 1;
        let own = &mut self.entries[at * self.pools..(at + 1) * self.pools];
        for (n, entry) in own.iter_mut().enumerate() {
            (entry.report, entry.sent) = (pools.get(n).copied().unwrap_or_default(), 0);
        }
    }

    /// Removes a departed host. Its procedures end at other hosts.
    pub fn forget(&mut self, host: HostId) {
        self.unknown(host);
        if let Some(work) = self.work.get_mut(host.index()) {
            *work = 0;
            let at = host.index() * self.pools;
            self.entries[at..at + self.pools].fill(Entry::default());
        }
    }

    fn unknown(&mut self, host: HostId) {
        if let Some((cpu, _)) = self.hosts.get_mut(host.index()).and_then(Option::take) {
            self.known -= 1;
            // Rounding errors must not accumulate.
            self.in_use = if self.known == 0 { 0.0 } else { self.in_use - cpu };
        }
    }

    /// Returns true if the cluster could do with one host less: the CPU use of the others would be
    /// at most `most`.
    #[inline]
    pub fn can_remove_host(&self, most: f64) -> bool {
        self.known > 1 && self.in_use <= most * (self.known - 1) as f64
    }

    /// Records that a procedure with this service time was sent to a pool of a host.
    #[inline]
    pub fn on_sent(&mut self, host: HostId, pool: usize, time: ServiceTime) {
        if let Some(at) = self.entry(host, pool) {
            let entry = &mut self.entries[at];
            (entry.sent, entry.in_progress) = (entry.sent.saturating_add(1), entry.in_progress.saturating_add(1));
            self.work[host.index()] = self.work[host.index()].saturating_add(time.nanos());
        }
    }

    /// Records that a procedure counted by [`LoadTable::on_sent`] with this service time has ended
    /// or moved.
    #[inline]
    pub fn on_ended(&mut self, host: HostId, pool: usize, time: ServiceTime) {
        if let Some(at) = self.entry(host, pool) {
            self.entries[at].in_progress = self.entries[at].in_progress.saturating_sub(1);
            self.work[host.index()] = self.work[host.index()].saturating_sub(time.nanos());
        }
    }

    /// Returns the load of a host for procedures of a pool; `None` without a recent report or such
    /// NFs.
    #[inline]
    pub fn load(&self, host: HostId, pool: usize, time: ServiceTime, now: Instant) -> Option<HostLoad> {
        let (cpu, at) = (*self.hosts.get(host.index())?)?;
        let since = now.0.saturating_sub(at.0);
        let Entry { report, sent, in_progress } = self.entries[self.entry(host, pool)?];
        if since > self.stale.0 || report.share.is_nan() || report.share <= 0.0 {
            return None;
        }
        let reported = report.backlog.max(0.0);
        let backlog = match self.estimate {
            Estimate::UnderWay => {
                let work = self.work[host.index()] as f64;
                let backlog = f64::from(in_progress) / report.share;
                return Some(HostLoad { cpu, backlog, work, wait: work / report.share });
            }
            Estimate::Reported => reported,
            // Procedures sent since the report are queued, minus those that the pool has done
            // meanwhile.
            Estimate::Corrected => {
                let done = since as f64 * 1000.0 / time.nanos() as f64;
                reported + (f64::from(sent) / report.share - done).max(0.0)
            }
        };
        let work = backlog * time.nanos() as f64;
        Some(HostLoad { cpu, backlog, work, wait: work })
    }

    #[inline]
    fn entry(&self, host: HostId, pool: usize) -> Option<usize> {
        (pool < self.pools && host.index() < self.hosts.len()).then(|| host.index() * self.pools + pool)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOST: HostId = HostId(3);
    const MS: u64 = 1_000;
    const MILLISECOND: ServiceTime = ServiceTime::new(1_000_000);

    fn backlog(loads: &LoadTable, now: u64) -> Option<f64> {
        loads.load(HOST, 1, MILLISECOND, Instant(now)).map(|load| load.backlog)
    }

    fn load_table() -> LoadTable {
        let mut loads = LoadTable::new(2, Duration::from_millis(600)).with(Estimate::Corrected);
        let pools = [PoolReport::default(), PoolReport { backlog: 4.0, share: 0.5 }];
        loads.report(HOST, 0.7, &pools, Instant(1_000 * MS));
        loads
    }

    #[test]
    fn load_adds_inputs_sent_since_report() {
        let mut loads = load_table();
        assert_eq!(backlog(&loads, 1_000 * MS), Some(4.0));
        (0..10).for_each(|_| loads.on_sent(HOST, 1, MILLISECOND));
        assert_eq!(backlog(&loads, 1_000 * MS), Some(24.0), "10 of 1 ms at half a core are 20 ms");
        assert_eq!(backlog(&loads, 1_015 * MS), Some(9.0));
        assert_eq!(backlog(&loads, 1_100 * MS), Some(4.0), "never less than was reported");
        loads.report(HOST, 0.7, &[PoolReport::default(), PoolReport { backlog: 1.0, share: 0.5 }], Instant(1_200 * MS));
        assert_eq!(backlog(&loads, 1_200 * MS), Some(1.0));
    }

    #[test]
    fn host_is_removable_if_others_have_room() {
        let mut loads = LoadTable::new(0, Duration::from_millis(600));
        let mut report = |host, cpu| {
            loads.report(HostId(host), cpu, &[], Instant(0));
            loads.can_remove_host(0.7)
        };
        assert!(!report(0, 0.1), "one alone cannot");
        assert!(report(1, 0.5) && report(2, 0.7));
        assert!(!report(0, 0.3), "1.5 on two hosts");
        loads.forget(HostId(2));
        assert!(!loads.can_remove_host(0.7) && loads.can_remove_host(0.8));
        (0..3).for_each(|host| loads.forget(HostId(host)));
        assert!(!loads.can_remove_host(1.0));
    }

    #[test]
    fn input_in_flight_counts_until_its_end() {
        let mut loads = load_table().with(Estimate::UnderWay);
        let pools = [PoolReport { backlog: 0.0, share: 1.0 }, PoolReport { backlog: 9.0, share: 0.5 }];
        loads.report(HOST, 0.5, &pools, Instant(1_000 * MS));
        (0..4).for_each(|_| loads.on_sent(HOST, 1, MILLISECOND));
        loads.on_sent(HOST, 0, ServiceTime::new(3_000_000));
        let load =
            |loads: &LoadTable| loads.load(HOST, 1, MILLISECOND, Instant(1_100 * MS)).map(|l| (l.backlog, l.work));
        assert_eq!(load(&loads), Some((8.0, 7e6)), "all pools are work, but only one's own wait in line");
        let both = loads.load(HOST, 1, MILLISECOND, Instant(1_100 * MS)).expect("a report");
        let completion = [both.completion(MILLISECOND), both.completion_after_all(MILLISECOND)];
        assert_eq!(completion, [9, 15].map(Duration::from_millis));
        loads.report(HOST, 0.5, &pools, Instant(1_100 * MS));
        loads.on_ended(HOST, 1, MILLISECOND);
        assert_eq!(load(&loads), Some((6.0, 6e6)));
        loads.forget(HOST);
        loads.report(HOST, 0.5, &pools, Instant(1_100 * MS));
        loads.on_ended(HOST, 1, MILLISECOND);
        assert_eq!(load(&loads), Some((0.0, 0.0)), "what was at a host that went is not there any more");
    }

    #[test]
    fn reported_estimate_ignores_sent_inputs() {
        let mut loads = load_table().with(Estimate::Reported);
        (0..10).for_each(|_| loads.on_sent(HOST, 1, MILLISECOND));
        assert_eq!(backlog(&loads, 1_015 * MS), Some(4.0));
    }

    #[test]
    fn stale_report_and_empty_pool_give_no_load() {
        let mut loads = load_table();
        let time = MILLISECOND;
        assert_eq!(loads.load(HOST, 0, time, Instant(1_000 * MS)), None, "no NF");
        assert_eq!(loads.load(HOST, 2, time, Instant(1_000 * MS)), None, "no such pool");
        assert_eq!(loads.load(HostId(9), 1, time, Instant(1_000 * MS)), None, "no such host");
        assert!(backlog(&loads, 1_600 * MS).is_some());
        assert_eq!(backlog(&loads, 1_601 * MS), None);
        assert!(backlog(&loads, 900 * MS).is_some(), "a clock that is behind is no age");
        loads.on_sent(HostId(9), 1, time);
        loads.on_ended(HostId(9), 1, time);
        loads.forget(HOST);
        assert_eq!(backlog(&loads, 1_000 * MS), None);
    }

    #[test]
    fn averages_follow() {
        let mut average = MovingAverage::default();
        assert_eq!(average.get(), 0.0);
        [8.0, 4.0, 2.0].into_iter().for_each(|value| average.take(value));
        assert_eq!(average.get(), 4.0);
    }
}
