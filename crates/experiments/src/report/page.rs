//! Markdown of the page.

use super::record::{EPS, Record, Records, ShownFigure};
use super::source::{Answer, Claim, Prediction, Source};
use std::fmt::Write;
use vireo_bench::results::{Bound, Measured};

/// Columns at which text wraps.
const WIDTH: usize = 100;

const HEAD: &str = "\
# Claims of the papers

This page is written by `vireo experiment report` from `results/*/summary.json`. Do not edit it: a
test compares it with the recorded results. It sets each claim of the four papers beside the figures
of Vireo that answer it, on comparable terms, and names what makes the terms differ. The quotations
are the papers' words.

- A record that ends in `-eps` is the same experiment with eNBs and UEs of 4G (`--rat eps`).
- *ours* is the median of all runs, with the least and the greatest in parentheses.
- *baseline* is the configuration that the experiment measured for comparison.
- *paper* is the paper's number on the terms of the figure.
- *as claimed*: `yes` if all runs are within the paper's number, `median` if only the median is,
  `no` otherwise. Where the paper states an approximate value, the column has our median (of the
  baseline, if the claim concerns it) divided by that value, for example `0.80 x`.
";

/// Agreement of a figure with the paper.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Agreement {
    Holds,
    MedianHolds,
    Fails,
    /// Ratio to an approximate value.
    Ratio(f64),
    NotCompared,
    NotRecorded,
}

impl Agreement {
    fn text(self) -> String {
        match self {
            Agreement::Holds => "yes".into(),
            Agreement::MedianHolds => "median".into(),
            Agreement::Fails => "no".into(),
            Agreement::Ratio(ratio) if ratio.abs() >= 10.0 => format!("{ratio:.0} x"),
            Agreement::Ratio(ratio) => format!("{ratio:.2} x"),
            Agreement::NotCompared => String::new(),
            Agreement::NotRecorded => "not recorded".into(),
        }
    }
}

/// Returns the median as a measurement of one run.
fn median(measured: &Measured) -> Measured {
    Measured { min: measured.median, max: measured.median, ..measured.clone() }
}

/// Compares a figure with what the claim predicts.
fn agreement(expected: Prediction, shown: Option<ShownFigure<'_>>) -> Agreement {
    let Some(ShownFigure { ours, baseline, .. }) = shown else { return Agreement::NotRecorded };
    let baseline = baseline.map(|baseline| &baseline.value);
    let within = |measured: &Measured, holds: &dyn Fn(&Measured) -> bool| match () {
        () if holds(measured) => Agreement::Holds,
        () if holds(&median(measured)) => Agreement::MedianHolds,
        () => Agreement::Fails,
    };
    let by = |bound: Bound, measured: &Measured| match bound {
        Bound::About(value) => Agreement::Ratio(measured.median / value),
        bound => within(measured, &|measured| bound.holds(measured)),
    };
    match expected {
        Prediction::Nothing => Agreement::NotCompared,
        Prediction::Ours(bound) => by(bound, ours),
        Prediction::Baseline(bound) => baseline.map_or(Agreement::NotRecorded, |measured| by(bound, measured)),
        Prediction::Between(least, most) => within(ours, &|m| m.min >= least && m.max <= most),
        Prediction::OverBaseline(most) => match baseline {
            Some(baseline) if ours.median - baseline.median <= most => Agreement::Holds,
            Some(_) => Agreement::Fails,
            None => Agreement::NotRecorded,
        },
    }
}

/// Returns the Markdown of the page: the overview, then the claims of each paper.
pub(super) fn page(sources: &[Source], records: &Records) -> String {
    let mut text = HEAD.to_owned();
    overview(&mut text, sources, records);
    for source in sources {
        let _ = writeln!(text, "\n## {}\n\n{}", source.title, wrapped(source.published, ""));
        for claim in source.claims {
            section(&mut text, claim, records);
        }
    }
    conditions(&mut text, records);
    text
}

/// Writes a table of all claims.
fn overview(text: &mut String, sources: &[Source], records: &Records) {
    text.push_str("\n## Overview\n\n| paper | claim | as claimed |\n|---|---|---|\n");
    for source in sources {
        for claim in source.claims {
            let _ = writeln!(text, "| `{}` | {} | {} |", source.name, claim.title, verdict(claim, records));
        }
    }
}

/// Summarises the agreement of all figures of a claim.
fn verdict(claim: &Claim, records: &Records) -> String {
    if claim.answers.is_empty() {
        return "not measured".into();
    }
    let all: Vec<Agreement> = claim
        .answers
        .iter()
        .map(|answer| agreement(answer.expected, records.figure(answer.record, answer.figure)))
        .filter(|agreement| *agreement != Agreement::NotCompared)
        .collect();
    let count = |of: &dyn Fn(&Agreement) -> bool| all.iter().filter(|agreement| of(agreement)).count();
    let holds = count(&|agreement| *agreement == Agreement::Holds);
    let judged = holds + count(&|agreement| matches!(agreement, Agreement::MedianHolds | Agreement::Fails));
    let missing = count(&|agreement| *agreement == Agreement::NotRecorded);
    let ratios: Vec<f64> = all
        .iter()
        .filter_map(|agreement| if let Agreement::Ratio(ratio) = agreement { Some(*ratio) } else { None })
        .collect();
    let mut parts = Vec::new();
    if judged > 0 {
        parts.push(format!("{holds} of {judged} figures"));
    }
    let ends = ratios.iter().copied().reduce(f64::min).zip(ratios.iter().copied().reduce(f64::max));
    if let Some((least, most)) = ends {
        let (least, most) = (Agreement::Ratio(least).text(), Agreement::Ratio(most).text());
        parts.push(if least == most { least } else { format!("{least} to {most}") });
    }
    if missing > 0 {
        parts.push(format!("{missing} not recorded"));
    }
    if parts.is_empty() { "no number to compare".into() } else { parts.join("; ") }
}

fn section(text: &mut String, claim: &Claim, records: &Records) {
    let Claim { title, location, words, answers, caveat } = claim;
    let _ = writeln!(text, "\n### {title}\n\n{}", wrapped(&format!("\"{words}\" ({location})"), "> "));
    if answers.is_empty() {
        let _ = writeln!(text, "\nNot measured. {}", wrapped_after(caveat, "Not measured. ".len()));
        return;
    }
    text.push_str("\n| record | figure | ours | baseline | paper | as claimed |\n|---|---|---|---|---|---|\n");
    for answer in *answers {
        row(text, answer, answer.record, records);
        let with_eps = format!("{}{EPS}", answer.record);
        if records.figure(&with_eps, answer.figure).is_some() {
            row(text, answer, &with_eps, records);
        }
    }
    let _ = writeln!(text, "\nCaveat: {}", wrapped_after(caveat, "Caveat: ".len()));
    let mut names: Vec<&str> = answers.iter().map(|answer| answer.record).collect();
    names.dedup();
    let with_eps = |name: &&str| Some(format!("{name}{EPS}")).filter(|name| records.has(name));
    let names = names.iter().flat_map(|name| [Some((*name).to_owned()), with_eps(name)]).flatten();
    let commands: Vec<String> = names.map(|name| command(&name)).collect();
    let _ = writeln!(text, "\n```\n{}\n```", commands.join("\n"));
}

fn row(text: &mut String, answer: &Answer, record: &str, records: &Records) {
    let shown = records.figure(record, answer.figure);
    let unit = shown.map_or("", |shown| shown.unit);
    let figure = if unit.is_empty() { answer.figure.to_owned() } else { format!("{} [{unit}]", answer.figure) };
    let ours = shown.map_or_else(String::new, |shown| shown.ours.to_string());
    let baseline =
        shown.and_then(|shown| shown.baseline).map_or_else(String::new, |b| format!("{} {}", b.name, b.value));
    let agreement = agreement(answer.expected, shown).text();
    let _ = writeln!(text, "| `{record}` | {figure} | {ours} | {baseline} | {} | {agreement} |", answer.paper);
}

/// Returns the command that repeats a record.
fn command(record: &str) -> String {
    let (name, rat) = record.strip_suffix(EPS).map_or((record, ""), |name| (name, " --rat eps"));
    match name.strip_prefix("bench-") {
        Some(bench) => format!("vireo bench {bench}{rat} --json results/{record}/summary.json"),
        None => format!("vireo experiment {name}{rat}"),
    }
}

/// Writes the conditions of each record.
fn conditions(text: &mut String, records: &Records) {
    text.push_str(
        "\n## Conditions of the records\n\nThe notes in each `summary.json` have the details. Records of \
         releases that did not store commit or\nload lack them.\n\n| record | runs | machine | release | commit | load |\n|---|---|---|---|---|---|\n",
    );
    for (name, record) in records.all() {
        let Some(Record { commit, machine, load, quick, runs, .. }) = record else {
            let _ = writeln!(text, "| `{name}` | not recorded | | | | |");
            continue;
        };
        let form = if *quick { ", short form" } else { "" };
        let commit =
            commit.as_deref().map_or_else(String::new, |commit| format!("`{}`", commit.get(..12).unwrap_or(commit)));
        let load = load.as_ref().map_or_else(String::new, ToString::to_string);
        let (cpus, cpu, kernel, release) = (machine.cpus, &machine.cpu, &machine.kernel, &machine.release);
        let _ = writeln!(
            text,
            "| `{name}` | {runs}{form} | {cpus} x {cpu}, Linux {kernel} | {release} | {commit} | {load} |"
        );
    }
}

/// Wraps text at [`WIDTH`], with a prefix on each line.
pub(super) fn wrapped(text: &str, prefix: &str) -> String {
    lines(text, WIDTH - prefix.len(), 0).iter().map(|line| format!("{prefix}{line}")).collect::<Vec<_>>().join("\n")
}

/// Wraps text that follows `used` columns on its first line.
fn wrapped_after(text: &str, used: usize) -> String {
    lines(text, WIDTH, used).join("\n")
}

fn lines(text: &str, width: usize, used: usize) -> Vec<String> {
    let (mut lines, mut line, mut length) = (Vec::new(), String::new(), used);
    for word in text.split_whitespace() {
        let columns = word.chars().count();
        if !line.is_empty() && length + 1 + columns > width {
            lines.push(std::mem::take(&mut line));
            length = 0;
        } else if !line.is_empty() {
            line.push(' ');
            length += 1;
        }
        line.push_str(word);
        length += columns;
    }
    lines.push(line);
    lines
}

#[cfg(test)]
mod tests {
    use super::*;
    use vireo_bench::results::Baseline;

    #[test]
    fn agreement_follows_runs_and_median() {
        let of = |runs: &[f64]| Measured::from_runs(runs.to_vec()).unwrap();
        let (ours, slow) = (of(&[3.0, 4.0, 8.0]), Baseline { name: "stateful".into(), value: of(&[9.0]) });
        let shown = ShownFigure { unit: "ms", ours: &ours, baseline: Some(&slow) };
        for (expected, text) in [
            (Prediction::Nothing, ""),
            (Prediction::Ours(Bound::AtMost(8.0)), "yes"),
            (Prediction::Ours(Bound::Below(8.0)), "median"),
            (Prediction::Ours(Bound::AtLeast(5.0)), "no"),
            (Prediction::Ours(Bound::About(5.0)), "0.80 x"),
            (Prediction::Ours(Bound::About(0.1)), "40 x"),
            (Prediction::Baseline(Bound::AtLeast(9.0)), "yes"),
            (Prediction::Between(3.0, 8.0), "yes"),
            (Prediction::Between(3.5, 8.0), "median"),
            (Prediction::OverBaseline(-5.0), "yes"),
            (Prediction::OverBaseline(-6.0), "no"),
        ] {
            assert_eq!(agreement(expected, Some(shown)).text(), text, "{expected:?}");
        }
        assert_eq!(agreement(Prediction::Nothing, None), Agreement::NotRecorded);
    }

    #[test]
    fn long_text_wraps_at_width() {
        let text = "word ".repeat(60);
        assert!(wrapped(&text, "> ").lines().all(|line| line.starts_with("> word") && line.len() <= WIDTH));
        let after = wrapped_after(&text, 8);
        assert!(after.lines().next().unwrap().len() <= WIDTH - 8 && after.lines().count() == 4, "{after}");
    }
}
