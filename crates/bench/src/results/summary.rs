//! `summary.json`: our figures beside the paper's and the baseline's.
//!
//! The names of the JSON are a contract. Summaries of earlier releases have no `commit` and no
//! `load`.

use super::{Machine, Measured, OfferedLoad};
use serde::{Deserialize, Serialize};
use std::fmt;

/// Result of an experiment.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Summary {
    /// Name on the command line.
    pub experiment: String,
    /// Question of the experiment, in a sentence.
    pub about: String,
    /// Publication and figure; empty if there is none.
    pub paper: String,
    /// Git commit at which the binary was built.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub commit: Option<String>,
    /// Machine of the measurements.
    pub machine: Machine,
    /// Load at which the figures were taken.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub load: Option<OfferedLoad>,
    /// True for the short form, whose figures prove little.
    pub quick: bool,
    /// Number of runs of each measurement.
    pub runs: u32,
    pub configurations: Vec<Configuration>,
    pub figures: Vec<Figure>,
    /// True if every figure with a mark meets it; absent if no figure has a mark.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub met: Option<bool>,
    /// Reason for which no figure has a mark; absent if one has.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub informative: Option<String>,
    /// Notes that a reader needs beside the figures.
    pub notes: Vec<String>,
}

/// One of the compared configurations.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Configuration {
    /// Name in the figures and plots.
    pub name: String,
    /// Description in a sentence.
    pub about: String,
    /// Lines of the core's configuration file beyond the common ones of the lab.
    pub toml: String,
}

/// One figure with its references.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Figure {
    pub name: String,
    /// Unit: `ms`, `%`, `1/s`, `ratio`, `UEs`.
    pub unit: String,
    pub ours: Measured,
    /// Value of the paper.
    pub paper: Option<Paper>,
    /// Value of the baseline in the same run.
    pub baseline: Option<Baseline>,
    /// Bound that decides about [`Figure::met`].
    pub mark: Option<Bound>,
    /// True if the mark holds; absent without a mark.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub met: Option<bool>,
}

/// Value of a paper.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Paper {
    /// Value, or a bound if the paper states one.
    pub value: Bound,
    pub source: String,
}

/// Result of the baseline.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Baseline {
    pub name: String,
    pub value: Measured,
}

/// Value or bound. Of several runs the median counts for [`Bound::About`], the worst one for the
/// others.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Bound {
    /// Approximate value, as read from a plot; not checked.
    About(f64),
    /// Upper bound in every run, inclusive.
    AtMost(f64),
    /// Upper bound in every run, exclusive.
    Below(f64),
    /// Lower bound in every run, inclusive.
    AtLeast(f64),
    /// Lower bound in every run, exclusive.
    Above(f64),
}

impl Bound {
    /// Returns the number of the bound.
    pub fn number(self) -> f64 {
        match self {
            Bound::About(n) | Bound::AtMost(n) | Bound::Below(n) | Bound::AtLeast(n) | Bound::Above(n) => n,
        }
    }

    /// Returns true if all runs meet the bound.
    pub fn holds(self, measured: &Measured) -> bool {
        match self {
            Bound::About(_) => true,
            Bound::AtMost(most) => measured.max <= most,
            Bound::Below(limit) => measured.max < limit,
            Bound::AtLeast(least) => measured.min >= least,
            Bound::Above(limit) => measured.min > limit,
        }
    }
}

impl fmt::Display for Bound {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sign = match self {
            Bound::About(_) => "~",
            Bound::AtMost(_) => "<= ",
            Bound::Below(_) => "< ",
            Bound::AtLeast(_) => ">= ",
            Bound::Above(_) => "> ",
        };
        write!(f, "{sign}{}", self.number())
    }
}

impl Figure {
    /// Creates a figure without references.
    pub fn new(name: impl Into<String>, unit: impl Into<String>, ours: Measured) -> Self {
        Figure { name: name.into(), unit: unit.into(), ours, paper: None, baseline: None, mark: None, met: None }
    }

    /// Adds the paper's value.
    #[must_use]
    pub fn paper(mut self, value: Bound, source: impl Into<String>) -> Self {
        self.paper = Some(Paper { value, source: source.into() });
        self
    }

    /// Adds the baseline's value, if it was measured.
    #[must_use]
    pub fn baseline(mut self, name: impl Into<String>, value: Option<Measured>) -> Self {
        self.baseline = value.map(|value| Baseline { name: name.into(), value });
        self
    }

    /// Adds the required bound.
    #[must_use]
    pub fn mark(mut self, mark: Bound) -> Self {
        self.met = Some(mark.holds(&self.ours));
        self.mark = Some(mark);
        self
    }
}

/// Returns true if all marks are met; `None` without marks.
pub(crate) fn all_met(figures: impl Iterator<Item = Option<bool>>) -> Option<bool> {
    figures.flatten().reduce(|all, met| all && met)
}

impl Summary {
    /// Sets `met` by the figures with a mark. Without marks, `unmarked` is the reason for that.
    pub fn judge(&mut self, unmarked: Option<&str>) {
        self.met = all_met(self.figures.iter().map(|figure| figure.met));
        self.informative = unmarked.filter(|_| self.met.is_none()).map(str::to_owned);
    }

    /// Returns a part that a complete summary has and this one has not.
    pub fn missing_part(&self) -> Option<&'static str> {
        if self.met.is_none() && self.informative.is_none() {
            Some("a mark, or a reason for having none")
        } else if self.load.as_ref().is_none_or(|load| load.about.is_empty() || load.values.is_empty()) {
            Some("the load of the figures")
        } else {
            None
        }
    }
}

impl fmt::Display for Summary {
    /// Formats the table for people.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let head = ["figure", "ours", "baseline", "paper", "mark", ""].map(str::to_owned);
        let rows = self.figures.iter().map(|figure| {
            [
                format!("{} [{}]", figure.name, figure.unit),
                figure.ours.to_string(),
                figure.baseline.as_ref().map_or_else(String::new, |b| format!("{} {}", b.name, b.value)),
                figure.paper.as_ref().map_or_else(String::new, |p| p.value.to_string()),
                figure.mark.map_or_else(String::new, |m| m.to_string()),
                match figure.met {
                    None => String::new(),
                    Some(true) => "met".into(),
                    Some(false) => "NOT MET".into(),
                },
            ]
        });
        let rows: Vec<[String; 6]> = std::iter::once(head).chain(rows).collect();
        let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
        let widths: Vec<usize> = (0..6).map(width).collect();
        writeln!(f, "{}: {}", self.experiment, self.about)?;
        for row in &rows {
            let cells: Vec<String> = row.iter().zip(&widths).map(|(cell, width)| format!("{cell:<width$}")).collect();
            writeln!(f, "  {}", cells.join("  ").trim_end())?;
        }
        if let Some(load) = &self.load {
            writeln!(f, "  load: {load}")?;
        }
        if let Some(reason) = &self.informative {
            writeln!(f, "  no mark: {reason}")?;
        }
        self.notes.iter().try_for_each(|note| writeln!(f, "  note: {note}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    pub(crate) fn example() -> Summary {
        let measured = |runs: &[f64]| Measured::from_runs(runs.to_vec()).unwrap();
        Summary {
            experiment: "example".into(),
            about: "What is it?".into(),
            paper: "A paper, figure 1".into(),
            commit: Some("0123abcd".into()),
            machine: Machine { cpu: "x".into(), cpus: 2, kernel: "6".into(), release: "0.2.0".into() },
            load: Some(OfferedLoad::new("service requests, open loop", [250.0, 500.0], "1/s")),
            quick: true,
            runs: 3,
            configurations: vec![Configuration {
                name: "unified".into(),
                about: "One NF for all.".into(),
                toml: "[pools]\nkey = \"wildcard\"\n".into(),
            }],
            figures: vec![
                Figure::new("lost UEs", "UEs", measured(&[0.0, 0.0])).mark(Bound::AtMost(0.0)),
                Figure::new("latency", "ms", measured(&[3.0, 1.5, 9.0]))
                    .paper(Bound::Below(10.0), "figure 1")
                    .baseline("unified", Some(measured(&[35.0])))
                    .mark(Bound::Below(8.0)),
            ],
            met: None,
            informative: None,
            notes: vec!["A note.".into()],
        }
    }

    #[test]
    fn summary_json_roundtrip_is_exact() {
        let mut summary = example();
        summary.judge(None);
        let json = serde_json::to_string_pretty(&summary).unwrap();
        assert_eq!(serde_json::from_str::<Summary>(&json).unwrap(), summary);
        let value: serde_json::Value = serde_json::from_str(&json).unwrap();
        assert_eq!(value["figures"][1]["ours"]["median"], 3.0);
        assert_eq!(value["figures"][1]["paper"]["value"]["below"], 10.0);
        assert_eq!(value["figures"][1]["baseline"]["name"], "unified");
        assert_eq!(value["machine"]["cpus"], 2);
        assert_eq!((&value["commit"], &value["load"]["values"][1]), (&"0123abcd".into(), &500.0.into()));
    }

    #[test]
    fn worst_run_decides_about_mark() {
        let mut summary = example();
        let met: Vec<Option<bool>> = summary.figures.iter().map(|figure| figure.met).collect();
        assert_eq!(met, [Some(true), Some(false)], "one of the runs took 9 ms");
        summary.judge(None);
        assert_eq!(summary.met, Some(false));
        summary.figures.pop();
        summary.judge(None);
        assert_eq!(summary.met, Some(true));
        let measured = Measured::from_runs(vec![2.0, 4.0]).unwrap();
        for (bound, holds) in [
            (Bound::About(99.0), true),
            (Bound::AtMost(4.0), true),
            (Bound::Below(4.0), false),
            (Bound::AtLeast(2.0), true),
            (Bound::Above(2.0), false),
        ] {
            assert_eq!(bound.holds(&measured), holds, "{bound}");
        }
    }

    #[test]
    fn summary_without_mark_has_reason() {
        let mut summary = example();
        summary.judge(Some("Nothing is compared."));
        assert_eq!((summary.informative.as_deref(), summary.missing_part()), (None, None));
        for figure in &mut summary.figures {
            (figure.mark, figure.met) = (None, None);
        }
        summary.judge(None);
        assert_eq!(summary.missing_part(), Some("a mark, or a reason for having none"));
        summary.judge(Some("Nothing is compared."));
        assert_eq!(summary.missing_part(), None);
        let value = serde_json::to_value(&summary).unwrap();
        assert!(value.get("met").is_none() && value["figures"][0].get("met").is_none(), "{value}");
        assert_eq!(value["informative"], "Nothing is compared.");
        summary.load = Some(OfferedLoad::default());
        assert_eq!(summary.missing_part(), Some("the load of the figures"));
    }

    #[test]
    fn summary_of_earlier_release_is_read() {
        let mut value = serde_json::to_value(example()).unwrap();
        let fields = value.as_object_mut().unwrap();
        fields.remove("commit");
        fields.remove("load");
        fields.insert("met".into(), true.into());
        let summary: Summary = serde_json::from_value(value).unwrap();
        assert_eq!((summary.commit, summary.load, summary.met), (None, None, Some(true)));
    }

    #[test]
    fn summary_table_shows_all_parts() {
        let text = example().to_string();
        let load = "load: service requests, open loop: 250, 500 1/s";
        for part in
            ["latency [ms]", "3.00 (1.50 to 9.00)", "unified 35.0", "< 10", "NOT MET", "met", load, "note: A note."]
        {
            assert!(text.contains(part), "{part} in:\n{text}");
        }
    }
}
