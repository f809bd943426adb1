//! Recorded summaries of experiments and benchmarks.

use serde::Deserialize;
use std::collections::BTreeMap;
use std::path::Path;
use vireo_bench::results::{Baseline, Machine, Measured, OfferedLoad};
use vireo_config::Failure;

/// Records by folder name; `None` where a folder has no summary.
pub(super) struct Records(BTreeMap<String, Option<Record>>);

/// Ending of the folders of records with eNBs and UEs of 4G.
pub(super) const EPS: &str = "-eps";

/// Parts of a summary that the page shows. `vireo bench host` writes figures in two views.
#[derive(Debug, Deserialize)]
pub(super) struct Record {
    pub(super) commit: Option<String>,
    pub(super) machine: Machine,
    pub(super) load: Option<OfferedLoad>,
    pub(super) quick: bool,
    pub(super) runs: u32,
    figures: Vec<RecordedFigure>,
}

#[derive(Debug, Deserialize)]
struct RecordedFigure {
    name: String,
    unit: String,
    ours: Option<Measured>,
    messages: Option<View>,
    with_sctp: Option<View>,
    baseline: Option<Baseline>,
}

#[derive(Debug, Deserialize)]
struct View {
    ours: Measured,
}

/// A figure in the view that the page shows: with SCTP where both are recorded.
#[derive(Clone, Copy, Debug)]
pub(super) struct ShownFigure<'a> {
    pub(super) unit: &'a str,
    pub(super) ours: &'a Measured,
    pub(super) baseline: Option<&'a Baseline>,
}

impl RecordedFigure {
    fn shown(&self) -> Option<ShownFigure<'_>> {
        let view = self.with_sctp.as_ref().or(self.messages.as_ref()).map(|view| &view.ours);
        let ours = self.ours.as_ref().or(view)?;
        Some(ShownFigure { unit: &self.unit, ours, baseline: self.baseline.as_ref() })
    }
}

impl Records {
    /// Reads the summaries of these folders, and those of the same experiments with 4G where they
    /// are recorded.
    ///
    /// # Errors
    ///
    /// Fails if a summary exists and cannot be read.
    pub(super) fn read(results: &Path, names: impl Iterator<Item = &'static str>) -> Result<Self, Failure> {
        let mut records = BTreeMap::new();
        for name in names {
            if records.contains_key(name) {
                continue;
            }
            records.insert(name.to_owned(), record(&results.join(name).join("summary.json"))?);
            let with_eps = format!("{name}{EPS}");
            if let Some(recorded) = record(&results.join(&with_eps).join("summary.json"))? {
                records.insert(with_eps, Some(recorded));
            }
        }
        Ok(Records(records))
    }

    /// Returns all folder names in alphabetical order with their records.
    pub(super) fn all(&self) -> impl Iterator<Item = (&str, Option<&Record>)> {
        self.0.iter().map(|(name, record)| (name.as_str(), record.as_ref()))
    }

    /// Returns true if the folder has a summary.
    pub(super) fn has(&self, record: &str) -> bool {
        matches!(self.0.get(record), Some(Some(_)))
    }

    /// Returns a figure by record and name, if it is recorded.
    pub(super) fn figure(&self, record: &str, name: &str) -> Option<ShownFigure<'_>> {
        self.0.get(record)?.as_ref()?.figures.iter().find(|figure| figure.name == name)?.shown()
    }
}

fn record(path: &Path) -> Result<Option<Record>, Failure> {
    let octets = match std::fs::read(path) {
        Ok(octets) => octets,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(Failure(format!("{}: {error}", path.display()))),
    };
    serde_json::from_slice(&octets).map(Some).map_err(|error| Failure(format!("{}: {error}", path.display())))
}
