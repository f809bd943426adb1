//! Results of `vireo bench host`: each figure in both views with its mark.

use super::cpu::CpuBreakdown;
use super::million::Million;
use crate::results::{Bound, Machine, Measured, OfferedLoad, all_met};
use serde::Serialize;
use std::collections::BTreeMap;
use std::fmt;
use vireo_emulator::Rats;

/// All results. The JSON key names are a contract.
#[derive(Debug, Serialize)]
pub(super) struct Numbers {
    /// Git commit at which the binary was built.
    pub(super) commit: String,
    pub(super) machine: Machine,
    /// Load of the core. Figures name theirs where it differs.
    pub(super) load: OfferedLoad,
    /// Load averages over 1, 5 and 15 minutes at the beginning and at the end. Other work on the
    /// machine inflates all figures.
    pub(super) load_average: [String; 2],
    pub(super) quick: bool,
    pub(super) runs: u32,
    pub(super) ues_per_run: u32,
    pub(super) window: u32,
    pub(super) rat: Rats,
    pub(super) sctp: String,
    pub(super) figures: Vec<Figure>,
    /// CPU time in microseconds by part of the core: default configuration, messages in memory,
    /// median of all runs.
    pub(super) parts: BTreeMap<&'static str, CpuBreakdown>,
    pub(super) million: Option<Million>,
    /// True if every mark is met; absent if no figure has a mark.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) met: Option<bool>,
    pub(super) notes: Vec<&'static str>,
}

/// One figure in both views.
#[derive(Debug, Serialize)]
pub(super) struct Figure {
    pub(super) name: String,
    pub(super) unit: &'static str,
    /// Without an SCTP stack; UPF and emulator are not counted.
    pub(super) messages: Option<View>,
    /// With SCTP, UPF and emulator on the same processors.
    pub(super) with_sctp: Option<View>,
}

/// Values of a figure in one view.
#[derive(Debug, Serialize)]
pub(super) struct View {
    pub(super) ours: Measured,
    pub(super) mark: Option<Bound>,
    /// True if the median is within the mark; absent without a mark.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) met: Option<bool>,
}

impl View {
    fn new(ours: Measured, mark: Option<Bound>) -> Self {
        let median = Measured { min: ours.median, max: ours.median, ..ours.clone() };
        View { met: mark.map(|mark| mark.holds(&median)), ours, mark }
    }
}

impl Figure {
    /// Returns a figure without values.
    pub(super) fn new(name: impl Into<String>, unit: &'static str) -> Self {
        Figure { name: name.into(), unit, messages: None, with_sctp: None }
    }

    /// Adds the values with messages in memory. Empty `runs` add nothing.
    pub(super) fn messages(mut self, runs: Vec<f64>, mark: Option<Bound>) -> Self {
        self.messages = Measured::from_runs(runs).map(|ours| View::new(ours, mark));
        self
    }

    /// Adds the values with SCTP.
    pub(super) fn with_sctp(mut self, runs: Vec<f64>, mark: Option<Bound>) -> Self {
        self.with_sctp = Measured::from_runs(runs).map(|ours| View::new(ours, mark));
        self
    }

    fn views(&self) -> impl Iterator<Item = &View> {
        self.messages.iter().chain(&self.with_sctp)
    }
}

impl Numbers {
    /// Removes figures without values and checks every mark.
    pub(super) fn judge(&mut self) {
        self.figures.retain(|figure| figure.views().next().is_some());
        self.met = all_met(self.figures.iter().flat_map(Figure::views).map(|view| view.met));
    }
}

impl fmt::Display for Numbers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Machine { cpus, cpu, kernel, .. } = &self.machine;
        writeln!(f, "{cpus} x {cpu}, Linux {kernel}; load {} to {}", self.load_average[0], self.load_average[1])?;
        if !self.sctp.is_empty() {
            writeln!(f, "SCTP: {}", self.sctp)?;
        }
        let cell = |view: &Option<View>| match view {
            None => String::new(),
            Some(View { ours, mark, met }) => match mark.zip(*met) {
                None => ours.to_string(),
                Some((mark, met)) => format!("{ours}  {mark} {}", if met { "met" } else { "MISSED" }),
            },
        };
        let head = ["", "messages in memory", "with SCTP and emulator"].map(str::to_owned);
        let rows = self.figures.iter().map(|figure| {
            [format!("{} ({})", figure.name, figure.unit), cell(&figure.messages), cell(&figure.with_sctp)]
        });
        let rows: Vec<[String; 3]> = std::iter::once(head).chain(rows).collect();
        let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
        let (first, second) = (width(0), width(1));
        for [name, messages, with_sctp] in &rows {
            writeln!(f, "{}", format!("{name:<first$}  {messages:<second$}  {with_sctp}").trim_end())?;
        }
        for (what, cpu) in &self.parts {
            let CpuBreakdown { host, balancer, supervisor, udm, workers, upf, emulator, .. } = cpu;
            writeln!(
                f,
                "{what} (us): host {host:.1}, balancer {balancer:.1}, supervisor {supervisor:.1}, udm {udm:.1}, workers \
                 {workers:.1}; UPF {upf:.1}, emulator {emulator:.1}"
            )?;
        }
        if let Some(m) = &self.million {
            writeln!(
                f,
                "{} UEs with a session in {:.0} s ({:.0}/s, {:.0} us of CPU each): {:.0} octets each, {:.0} of them \
                 shared; then a service request takes {} us (p50), {} us (p99)",
                m.registered,
                m.seconds,
                m.registrations_per_s,
                m.cpu_us_per_ue,
                m.octets_per_ue,
                m.shared_octets_per_ue,
                m.service_request_us.p50,
                m.service_request_us.p99
            )?;
        }
        for note in &self.notes {
            writeln!(f, "{note}")?;
        }
        Ok(())
    }
}

/// Returns the additional CPU time of `ours` over the baseline, in percent, from the means of
/// interleaved measurements.
pub(super) fn cost(baseline: &[f64], ours: &[f64]) -> f64 {
    let mean = |all: &[f64]| all.iter().sum::<f64>() / all.len() as f64;
    (mean(ours) / mean(baseline) - 1.0) * 100.0
}

/// Returns the median of each part over all runs.
pub(super) fn median(runs: &[CpuBreakdown]) -> CpuBreakdown {
    let of = |part: fn(&CpuBreakdown) -> f64| Measured::each(runs, part).map_or(f64::NAN, |m| m.median);
    CpuBreakdown {
        host: of(|c| c.host),
        balancer: of(|c| c.balancer),
        supervisor: of(|c| c.supervisor),
        udm: of(|c| c.udm),
        workers: of(|c| c.workers),
        upf: of(|c| c.upf),
        emulator: of(|c| c.emulator),
        other: of(|c| c.other),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn numbers(figures: Vec<Figure>) -> Numbers {
        Numbers {
            commit: "unknown".into(),
            machine: Machine::read(),
            load: OfferedLoad::default(),
            load_average: ["0.1 0.2 0.3".into(), "1 2 3".into()],
            quick: true,
            runs: 3,
            rat: Rats::Nr,
            ues_per_run: 1,
            window: 1,
            sctp: String::new(),
            figures,
            parts: BTreeMap::from([(
                "service request",
                CpuBreakdown { host: 4.0, workers: 9.0, ..CpuBreakdown::default() },
            )]),
            million: None,
            met: None,
            notes: vec!["a note"],
        }
    }

    #[test]
    fn median_decides_and_views_are_columns() {
        let cpu = Figure::new("CPU", "us")
            .messages(vec![19.0, 30.0, 18.0], Some(Bound::AtMost(20.0)))
            .with_sctp(vec![210.0, 190.0, 250.0], Some(Bound::AtMost(200.0)));
        let mut numbers = numbers(vec![cpu, Figure::new("nothing", "us").messages(vec![], None)]);
        numbers.judge();
        assert_eq!(numbers.met, Some(false));
        let text = numbers.to_string();
        let line = text.lines().find(|line| line.starts_with("CPU (us)")).unwrap();
        assert!(line.contains("19.0 (18.0 to 30.0)  <= 20 met"), "{line}");
        assert!(line.contains("210 (190 to 250)  <= 200 MISSED"), "{line}");
        assert!(!text.contains("nothing") && text.contains("host 4.0") && text.contains("a note"), "{text}");
        let json = serde_json::to_value(&numbers).unwrap();
        assert_eq!(json["figures"][0]["messages"]["met"], true);
        assert_eq!(json["figures"][0]["with_sctp"]["mark"]["at_most"], 200.0);
    }

    #[test]
    fn cost_is_relative_to_all_baselines() {
        assert!((cost(&[90.0, 110.0, 100.0], &[102.0, 104.0]) - 3.0).abs() < 1e-9);
        assert!(cost(&[100.0], &[95.0]) < 0.0);
    }

    #[test]
    fn parts_have_medians_of_their_own() {
        let cpu = |host, workers| CpuBreakdown { host, workers, ..CpuBreakdown::default() };
        let middle = median(&[cpu(1.0, 9.0), cpu(2.0, 7.0), cpu(3.0, 8.0)]);
        assert_eq!((middle.host, middle.workers, middle.core()), (2.0, 8.0, 10.0));
    }
}
