//! Common part of all experiments: cores, loads, repetition and findings.

use super::steady::{OTHER_SST, Outcome, Steady};
use crate::analysis::saturation;
use std::fs::File;
use std::path::Path;
use std::time::Duration;
use vireo_bench::results::{Configuration, Figure, Measured, OfferedLoad, Table};
use vireo_config::Failure;
use vireo_emulator::Rats;
use vireo_lab::addresses::CORE;
use vireo_lab::core::Core;
use vireo_lab::emulator::{self, EmulatorOptions, EmulatorRun};
use vireo_lab::files::create;
use vireo_lab::options::{CoreOptions, CpuShare, SubscriberRecords, s1_table};
use vireo_lab::{Interrupt, Lab};

/// Start of the saturation search, in procedures per second.
pub(super) const FIRST_GUESS: f64 = 6000.0;
/// A core with a greater median latency does not keep up.
const LONGEST: Duration = Duration::from_millis(200);

/// Environment and options of an experiment.
#[derive(Debug)]
pub(super) struct ExperimentContext {
    pub(super) lab: Lab,
    pub(super) interrupt: Interrupt,
    /// True for the short form.
    pub(super) quick: bool,
    /// Number of repetitions of every measurement.
    pub(super) runs: u32,
    /// Duration of the soak in minutes.
    pub(super) minutes: f64,
    /// Seed of all random choices.
    pub(super) seed: u64,
    /// RAN nodes and UEs of the loads: of 5G, or of 4G.
    pub(super) rats: Rats,
    /// Destination of the core's log, if it is kept.
    pub(super) log: Option<File>,
}

/// Results of an experiment.
#[derive(Debug, Default)]
pub(super) struct Findings {
    /// Load at which the figures were taken. A summary without it is incomplete.
    pub(super) load: OfferedLoad,
    pub(super) configurations: Vec<Configuration>,
    pub(super) figures: Vec<Figure>,
    /// SVG documents by name.
    pub(super) plots: Vec<(&'static str, String)>,
    pub(super) tables: Vec<(&'static str, Table)>,
    pub(super) notes: Vec<String>,
    /// Violation of an invariant that holds on any machine.
    pub(super) broken: Option<String>,
}

/// One of the compared configurations.
#[derive(Clone, Debug)]
pub(super) struct Variant {
    /// Name in figures and plots.
    pub(super) name: &'static str,
    /// Description in one sentence.
    pub(super) about: &'static str,
    /// Configuration tables of the slices.
    pub(super) slices: String,
    /// Configuration tables besides those of the slices.
    pub(super) tables: String,
    /// Further keys of `[cluster]`.
    pub(super) cluster: &'static str,
    /// Hosts behind a balancer; 0 = the whole core as one process.
    pub(super) hosts: usize,
    /// Additional idle hosts that wait until they are needed.
    pub(super) idle: usize,
    /// Upper bound of the processor share of each host.
    pub(super) host_part: Option<f64>,
    /// Upper bounds of the processor time of a core without hosts.
    pub(super) share: Option<CpuShare>,
}

impl Variant {
    /// Returns the configuration as the summary reports it.
    pub(super) fn configuration(&self) -> Configuration {
        let cluster = if self.cluster.is_empty() { String::new() } else { format!("\n[cluster]\n{}", self.cluster) };
        let toml = format!("{}\n{}{cluster}", self.slices.trim(), self.tables.trim()).trim().to_owned() + "\n";
        Configuration { name: self.name.into(), about: self.about.into(), toml }
    }
}

impl ExperimentContext {
    /// Runs a function once per repetition.
    pub(super) fn repeat<T>(
        &self,
        what: &str,
        mut run: impl FnMut(u32) -> Result<T, Failure>,
    ) -> Result<Vec<T>, Failure> {
        (1..=self.runs)
            .map(|n| {
                eprintln!("experiment: {what}, run {n} of {}", self.runs);
                self.interrupt.check()?;
                run(n)
            })
            .collect()
    }

    /// Starts a core of this configuration with a number of subscribers on the given processors
    /// (empty = all).
    pub(super) fn core(&self, variant: &Variant, subscribers: u32, processors: &[usize]) -> Result<Core, Failure> {
        self.core_with(variant, (subscribers, None), processors)
    }

    /// Starts a core whose subscribers from a given one on belong to another slice with the given
    /// SST.
    fn core_with(
        &self,
        variant: &Variant,
        (subscribers, other_slice): (u32, Option<(u64, u8)>),
        processors: &[usize],
    ) -> Result<Core, Failure> {
        let options = CoreOptions {
            subscribers: subscribers.into(),
            records: other_slice
                .map_or(SubscriberRecords::Equal, |(from, sst)| SubscriberRecords::OtherSlice { from, sst }),
            slices: variant.slices.clone(),
            tables: self.tables(variant),
            cluster: variant.cluster.into(),
            processors: processors.to_vec(),
            hosts: variant.hosts,
            idle: variant.idle,
            host_part: variant.host_part,
            share: variant.share,
            ..CoreOptions::default()
        };
        let log = match &self.log {
            Some(log) => log.try_clone()?,
            None => create(Path::new("/tmp/core.log"))?,
        };
        Core::start(&self.lab, &options, log, &self.interrupt)
    }

    /// Returns the configuration tables besides those of the slices, with an endpoint for eNBs if
    /// the load has them.
    fn tables(&self, variant: &Variant) -> String {
        if self.rats == Rats::Nr { variant.tables.clone() } else { format!("{}\n{}", variant.tables, s1_table(CORE)) }
    }

    /// Adds the RAT of the load to the options of its emulator.
    pub(super) fn with_rat(&self, mut options: EmulatorOptions) -> EmulatorOptions {
        options.more.extend(["--rat", self.rats.name()].map(str::to_owned));
        options
    }

    /// Runs a steady load on a new core.
    pub(super) fn on_core(&self, variant: &Variant, processors: &[usize], steady: &Steady) -> Result<Outcome, Failure> {
        let other = steady.beside.as_ref().map(|_| (steady.ues.into(), OTHER_SST));
        let mut core = self.core_with(variant, (steady.subscribers(), other), processors)?;
        let outcome = self.steady(&mut core, steady, &mut |_, _| Ok(()))?;
        core.stop()?;
        Ok(outcome)
    }

    /// Returns the highest rate that a core of this configuration keeps up with, for a load given
    /// by rate and seconds. The search begins at `guess`.
    pub(super) fn saturation(
        &self,
        variant: &Variant,
        processors: &[usize],
        guess: f64,
        load: &dyn Fn(f64, f64) -> Steady,
    ) -> Result<f64, Failure> {
        let (seconds, steps) = if self.quick { (1.5, 2) } else { (6.0, 4) };
        let attempt = |rate: f64| {
            self.interrupt.check()?;
            let outcome = self.on_core(variant, processors, &load(rate, seconds))?;
            let kept_up = outcome.kept_up(LONGEST);
            let (completed, due) = (outcome.result.completed, outcome.result.procedures);
            eprintln!("experiment: {}: {rate:.0}/s: {completed} of {due} done, kept up: {kept_up}", variant.name);
            Ok::<_, Failure>(kept_up)
        };
        // A failed step runs twice, so that a short disturbance of the machine does not decide.
        let again = !self.quick;
        let found =
            saturation::search(guess, steps, |rate| Ok::<_, Failure>(attempt(rate)? || again && attempt(rate)?))?;
        if found <= 0.0 {
            return Err(Failure(format!("the core ({}) keeps up with no load that was tried", variant.name)));
        }
        Ok(found)
    }

    /// Runs a load on a core to its end.
    pub(super) fn emulate(&self, core: &mut Core, options: &EmulatorOptions) -> Result<EmulatorRun, Failure> {
        emulator::run(&self.lab, core, &self.with_rat(options.clone()), &self.interrupt)
    }
}

/// Returns the values over all runs; fails if nothing was measured.
pub(super) fn each<T>(runs: &[T], value: impl Fn(&T) -> f64) -> Result<Measured, Failure> {
    Measured::each(runs, value).ok_or_else(|| Failure("nothing was measured".into()))
}

/// Name and function that extracts the value from a measurement.
pub(super) type Metric<T> = (&'static str, fn(&T) -> f64);
