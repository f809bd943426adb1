//! Content of `vireo top`: totals and tables from two samples.
//!
//! Does not depend on how the content is drawn.

use super::sample::ApiSample;
use crate::status::{table, uptime};
use std::fmt;
use vireo_ops::api::{LatencyStatus, NfStatus, OverloadStatus, WorkerStatus};

/// Table of text cells.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Table {
    /// Title of the table.
    pub(super) name: &'static str,
    pub(super) header: &'static [&'static str],
    pub(super) lines: Vec<Vec<String>>,
    /// Lines to highlight: a missed objective or a late NF.
    pub(super) marked: Vec<bool>,
}

/// Complete content of the display.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct View {
    pub(super) title: String,
    /// Name and value of each total.
    pub(super) totals: Vec<(&'static str, String)>,
    pub(super) objectives: Table,
    pub(super) nfs: Table,
    pub(super) workers: Table,
}

/// An objective counts as missed if more than one in a hundred procedures exceed it.
const MISSED: f64 = 0.01;

impl View {
    /// Creates the view of the state in `now`, with rates since `before`.
    pub(super) fn new(before: &ApiSample, now: &ApiSample) -> Self {
        let status = &now.status;
        let rates = Rates { before, seconds: now.at.duration_since(before.at).as_secs_f64().max(1e-3) };
        let objectives = status.latencies.iter().map(objective);
        let mut nfs: Vec<(&WorkerStatus, &NfStatus)> =
            status.workers.iter().flat_map(|w| w.nfs.iter().map(move |nf| (w, nf))).collect();
        // Sorts by pool, active NFs first.
        nfs.sort_by(|(_, a), (_, b)| {
            (&a.slice, &a.kind, a.state != "active", a.id).cmp(&(&b.slice, &b.kind, b.state != "active", b.id))
        });
        View {
            title: format!("vireo {}, up {}", status.version, uptime(status.uptime_s)),
            totals: totals(now, &rates),
            objectives: Table::new(
                "latency objectives",
                &["slice", "procedure", "objective", "ended", "met", "p50", "p99", "since start", "met"],
                objectives,
            ),
            nfs: Table::new(
                "network functions",
                &["slice", "NF", "state", "worker", "queue", "share", "takes", "done/s", "done", "late/s", "late"],
                nfs.into_iter().map(|(worker, nf)| network_function(worker, nf, &rates)),
            ),
            workers: Table::new(
                "workers",
                &["worker", "process", "CPU", "active NFs", "idle NFs", "queue", "done/s"],
                status.workers.iter().map(|w| worker(w, &rates)),
            ),
        }
    }

    /// Returns the tables in display order.
    pub(super) fn tables(&self) -> [&Table; 3] {
        [&self.objectives, &self.nfs, &self.workers]
    }
}

impl Table {
    fn new(
        name: &'static str,
        header: &'static [&'static str],
        lines: impl Iterator<Item = (Vec<String>, bool)>,
    ) -> Self {
        let (lines, marked) = lines.unzip();
        Table { name, header, lines, marked }
    }
}

impl fmt::Display for View {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}", self.title)?;
        let width = self.totals.iter().map(|(name, _)| name.len()).max().unwrap_or(0);
        for (name, value) in &self.totals {
            writeln!(f, "{name:<width$}  {value}")?;
        }
        let mut text = String::new();
        for t in self.tables() {
            table(&mut text, t.header, t.lines.iter().cloned());
        }
        f.write_str(&text)
    }
}

/// Rates between two samples.
struct Rates<'a> {
    before: &'a ApiSample,
    seconds: f64,
}

impl Rates<'_> {
    /// Returns the growth of a counter per second. A counter that restarted has grown from zero.
    fn rate(&self, before: f64, now: f64) -> f64 {
        (if now < before { now } else { now - before }) / self.seconds
    }

    fn metric(&self, now: &ApiSample, name: &str, label: &str) -> f64 {
        let value = |sample: &ApiSample| sample.metrics.sum(name, label).unwrap_or(0.0);
        self.rate(value(self.before), value(now))
    }

    fn worker(&self, pid: u32) -> Option<&WorkerStatus> {
        self.before.status.workers.iter().find(|w| w.pid == pid)
    }

    fn nf(&self, pid: u32, id: u32) -> Option<&NfStatus> {
        self.worker(pid)?.nfs.iter().find(|nf| nf.id == id)
    }

    /// Returns the steps per second of an NF, or 0 without an earlier sample of its worker.
    fn steps(&self, pid: u32, nf: &NfStatus) -> f64 {
        self.nf(pid, nf.id).map_or(0.0, |before| self.rate(before.processed as f64, nf.processed as f64))
    }
}

fn totals(now: &ApiSample, rates: &Rates<'_>) -> Vec<(&'static str, String)> {
    let c = now.status.counts;
    let metric = |name, label| rates.metric(now, name, label);
    let workers: f64 = now.status.workers.iter().map(|w| cpu(w, rates)).sum();
    let own = metric("process_cpu_seconds_total", "");
    let queue = |label| now.metrics.sum("vireo_queue_depth", label).unwrap_or(0.0);
    let (good, bad) = ("result=\"success\"", "result=\"failure\"");
    vec![
        ("gNBs", c.gnbs.to_string()),
        ("UEs", format!("{}, {} registered, {} connected", c.ues, c.registered, c.connected)),
        ("sessions", c.sessions.to_string()),
        (
            "procedures/s",
            format!(
                "{:.0}, {:.0} failed",
                metric("vireo_procedures_completed_total", good),
                metric("vireo_procedures_completed_total", bad)
            ),
        ),
        (
            "NGAP messages/s",
            format!(
                "{:.0} in, {:.0} out",
                metric("vireo_ngap_messages_total", "direction=\"in\""),
                metric("vireo_ngap_messages_total", "direction=\"out\"")
            ),
        ),
        (
            "waiting",
            format!("{:.0} messages in, {:.0} out", queue("queue=\"n2_inbound\""), queue("queue=\"n2_outbound\"")),
        ),
        ("overload", overload(&now.status.overload, rates)),
        ("CPU", format!("{} workers, {} the rest", percent(workers), percent(own))),
    ]
}

fn overload(now: &OverloadStatus, rates: &Rates<'_>) -> String {
    let turned_away = match now.level.as_str() {
        "" | "normal" => "none",
        "registrations" => "new registrations are turned away",
        "low-priority" => "registrations, and service requests without priority, are turned away",
        _ => "all but emergencies and handovers is turned away",
    };
    let mut text = format!("{turned_away}, room {:.0} % full", now.fill * 100.0);
    if now.refused > 0 {
        let refused = rates.rate(rates.before.status.overload.refused as f64, now.refused as f64);
        text.push_str(&format!(", {refused:.0}/s refused ({} since start)", now.refused));
    }
    if let Some(percent) = now.reduction_percent {
        text.push_str(&format!(", RAN asked for {percent} % less"));
    }
    text
}

fn objective(l: &LatencyStatus) -> (Vec<String>, bool) {
    let slice = named(&l.slice);
    let met = |missed: u64, of: u64| match of {
        0 => "-".to_owned(),
        of => format!("{:.2} %", 100.0 * (1.0 - missed as f64 / of as f64)),
    };
    let quantile = |us| if l.count == 0 { "-".to_owned() } else { time(us as f64) };
    let line = vec![
        slice,
        l.kind.clone(),
        time(l.slo_us as f64),
        l.count.to_string(),
        met(l.violations, l.count),
        quantile(l.p50_us),
        quantile(l.p99_us),
        l.total.to_string(),
        met(l.total_violations, l.total),
    ];
    (line, l.violations as f64 > l.count as f64 * MISSED)
}

fn network_function(worker: &WorkerStatus, nf: &NfStatus, rates: &Rates<'_>) -> (Vec<String>, bool) {
    let late =
        rates.nf(worker.pid, nf.id).map_or(0.0, |before| rates.rate(before.violations as f64, nf.violations as f64));
    let line = vec![
        named(&nf.slice),
        nf.kind.clone(),
        nf.state.clone(),
        worker.number.to_string(),
        nf.queue.to_string(),
        format!("{:.3}", nf.share),
        time(nf.service_time_us),
        format!("{:.0}", rates.steps(worker.pid, nf)),
        nf.processed.to_string(),
        format!("{late:.0}"),
        nf.violations.to_string(),
    ];
    (line, late > 0.0)
}

fn worker(w: &WorkerStatus, rates: &Rates<'_>) -> (Vec<String>, bool) {
    let active = w.nfs.iter().filter(|nf| nf.state == "active").count();
    let queue: u64 = w.nfs.iter().map(|nf| u64::from(nf.queue)).sum();
    let steps: f64 = w.nfs.iter().map(|nf| rates.steps(w.pid, nf)).sum();
    let line = vec![
        w.number.to_string(),
        w.pid.to_string(),
        percent(cpu(w, rates)),
        active.to_string(),
        (w.nfs.len() - active).to_string(),
        queue.to_string(),
        format!("{steps:.0}"),
    ];
    (line, false)
}

/// Returns the CPU utilisation of a worker. For a new worker, the whole CPU time counts.
fn cpu(w: &WorkerStatus, rates: &Rates<'_>) -> f64 {
    let before = rates.worker(w.pid).map_or(0, |before| before.cpu_us);
    rates.rate(before as f64, w.cpu_us as f64) / 1e6
}

fn named(slice: &str) -> String {
    if slice.is_empty() { "-".to_owned() } else { slice.to_owned() }
}

fn percent(part: f64) -> String {
    format!("{:.1} %", part * 100.0)
}

fn time(us: f64) -> String {
    match us {
        us if us < 1000.0 => format!("{us:.0} us"),
        us if us < 1e6 => format!("{:.1} ms", us / 1e3),
        us => format!("{:.1} s", us / 1e6),
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::super::sample::Metrics;
    use super::*;
    use std::time::{Duration, Instant};
    use vireo_ops::api::{Counts, Status};

    fn nf(id: u32, slice: &str, state: &str, processed: u64) -> NfStatus {
        NfStatus {
            id,
            slice: slice.into(),
            kind: "handover".into(),
            state: state.into(),
            queue: 2,
            share: 0.25,
            processed,
            violations: processed / 100,
            service_time_us: 12.34,
        }
    }

    /// Returns two samples, two seconds apart.
    pub(in crate::top) fn samples() -> [ApiSample; 2] {
        let at = Instant::now();
        [0, 1].map(|n: u64| {
            let workers = vec![
                WorkerStatus { number: 1, pid: 11, cpu_us: 500_000 * n, nfs: vec![nf(256, "phones", "idle", 7)] },
                WorkerStatus { number: 2, pid: 12 + n as u32, cpu_us: 20_000, nfs: vec![nf(512, "", "active", 50)] },
                WorkerStatus {
                    number: 3,
                    pid: 14,
                    cpu_us: 0,
                    nfs: vec![nf(768, "phones", "active", 1000 + 400 * n), nf(769, "phones", "idle", 0)],
                },
            ];
            let latency = LatencyStatus {
                slice: "phones".into(),
                kind: "handover".into(),
                slo_us: 20_000,
                count: 200,
                violations: 3,
                p50_us: 999,
                p99_us: 21_000,
                total: 1000,
                total_violations: 3,
            };
            let status = Status {
                version: "0.2.0".into(),
                uptime_s: 61,
                counts: Counts { gnbs: 1, ues: 3, registered: 2, connected: 1, sessions: 2 },
                workers,
                overload: OverloadStatus {
                    level: "registrations".into(),
                    fill: 0.62,
                    refused: 100 * n,
                    reduction_percent: Some(40),
                },
                latencies: vec![LatencyStatus { count: 0, violations: 0, ..latency.clone() }, latency],
                ..Status::default()
            };
            let metrics = format!(
                "vireo_ngap_messages_total{{direction=\"in\"}} {}\nvireo_procedures_completed_total{{result=\"success\",cause=\"\"}} {}\n",
                100 + 30 * n,
                // The counter of a restarted core begins at zero.
                9 - n
            );
            ApiSample { at: at + Duration::from_secs(2 * n), status, metrics: Metrics::read(&metrics) }
        })
    }

    #[test]
    fn rates_are_of_what_changed() {
        let [before, now] = samples();
        let view = View::new(&before, &now);
        let total = |name: &str| view.totals.iter().find(|(n, _)| *n == name).unwrap().1.as_str();
        assert_eq!(total("NGAP messages/s"), "15 in, 0 out");
        assert_eq!(total("procedures/s"), "4, 0 failed");
        let overload = "new registrations are turned away, room 62 % full, 50/s refused (100 since start), RAN asked for 40 % less";
        assert_eq!(total("overload"), overload);
        assert_eq!(total("CPU"), "26.0 % workers, 0.0 % the rest", "of the new worker all that it used");
        let lines: Vec<String> = view.nfs.lines.iter().map(|line| line.join(" ")).collect();
        assert_eq!(
            lines,
            [
                "- handover active 2 2 0.250 12 us 0 50 0 0",
                "phones handover active 3 2 0.250 12 us 200 1400 2 14",
                "phones handover idle 1 2 0.250 12 us 0 7 0 0",
                "phones handover idle 3 2 0.250 12 us 0 0 0 0"
            ]
        );
        assert_eq!(view.nfs.marked, [false, true, false, false]);
        assert_eq!(view.workers.lines[2], ["3", "14", "0.0 %", "1", "1", "4", "200"]);
        assert_eq!(
            view.objectives.lines[1].join(" "),
            "phones handover 20.0 ms 200 98.50 % 999 us 21.0 ms 1000 99.70 %"
        );
        assert_eq!(view.objectives.lines[0][3..7].join(" "), "0 - - -");
        assert_eq!(view.objectives.marked, [false, true]);
    }

    #[test]
    fn all_of_it_is_printed() {
        let [before, now] = samples();
        let text = View::new(&before, &now).to_string();
        assert!(text.starts_with("vireo 0.2.0, up 1 min\ngNBs             1\n"), "{text}");
        let words: Vec<Vec<&str>> = text.lines().map(|line| line.split_whitespace().collect()).collect();
        for line in ["3 14 0.0 % 1 1 4 200", "slice NF state worker queue share takes done/s done late/s late"] {
            assert!(words.contains(&line.split(' ').collect()), "{text}");
        }
    }
}
