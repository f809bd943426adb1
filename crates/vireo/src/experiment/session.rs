//! What all experiments need: a core by its configuration, loads on it, repetition, and a place for what was found.

use crate::cli::Failure;
use crate::lab::core::{Core, CoreOptions};
use crate::lab::emulator::{self, Emulated, EmulatorOptions};
use crate::lab::{Interrupt, Lab, create};
use std::fs::File;
use std::path::Path;
use vireo_simulator::results::{Configuration, Figure, Table};

/// What an experiment runs in.
#[derive(Debug)]
pub(super) struct Session {
    pub(super) lab: Lab,
    pub(super) interrupt: Interrupt,
    /// The short form.
    pub(super) quick: bool,
    /// How often everything is measured.
    pub(super) runs: u32,
    /// Where the core's log goes, if it is to be kept.
    pub(super) log: Option<File>,
}

/// What an experiment found.
#[derive(Debug, Default)]
pub(super) struct Findings {
    pub(super) configurations: Vec<Configuration>,
    pub(super) figures: Vec<Figure>,
    /// SVG by name.
    pub(super) plots: Vec<(&'static str, String)>,
    pub(super) tables: Vec<(&'static str, Table)>,
    pub(super) notes: Vec<String>,
    /// What must not happen whatever the machine, and did.
    pub(super) broken: Option<String>,
}

/// One of the configurations that are compared.
#[derive(Clone, Debug)]
pub(super) struct Variant {
    /// Its name in figures and plots.
    pub(super) name: &'static str,
    /// What it is, in a sentence.
    pub(super) about: &'static str,
    /// The tables of the slices.
    pub(super) slices: String,
    /// Further tables.
    pub(super) tables: String,
}

impl Variant {
    /// For the summary.
    pub(super) fn configuration(&self) -> Configuration {
        let toml = format!("{}\n{}", self.slices.trim(), self.tables.trim()).trim().to_owned() + "\n";
        Configuration { name: self.name.into(), about: self.about.into(), toml }
    }
}

impl Session {
    /// Runs something as often as it is measured.
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

    /// A core of this configuration with so many subscribers.
    pub(super) fn core(&self, variant: &Variant, subscribers: u32) -> Result<Core, Failure> {
        let options = CoreOptions {
            subscribers: subscribers.into(),
            slices: variant.slices.clone(),
            tables: variant.tables.clone(),
            ..CoreOptions::default()
        };
        let log = match &self.log {
            Some(log) => log.try_clone()?,
            None => create(Path::new("/tmp/core.log"))?,
        };
        Core::start(&self.lab, &options, log, &self.interrupt)
    }

    /// A load on a core, to its end.
    pub(super) fn emulate(&self, core: &mut Core, options: &EmulatorOptions) -> Result<Emulated, Failure> {
        emulator::run(&self.lab, core, options, &self.interrupt)
    }
}
