//! Tasks on the repository itself.
//!
//! - `cargo run -p xtask -- tidy` checks the house rules that no other tool knows: layers, names,
//!   sizes, import cycles.
//! - `cargo run -p xtask -- notices TARGET` writes the licence texts of the crates in the program.
//! - `cargo run -p xtask -- modules [CRATE]` shows import cycles and the edges to cut.
//!
//! Knows nothing of the running core; reads source text and `cargo metadata` only.
#![forbid(unsafe_code)]

mod modules;
mod notices;
mod tidy;

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use tidy::{Report, Rule, baseline};

const USAGE: &str = "\
usage: cargo run -p xtask -- tidy                                      check all rules
       cargo run -p xtask -- tidy [--rule NAME] [--crate NAME] --list  print violations of rules with a baseline
       cargo run -p xtask -- tidy --write-baseline                     write today's counts as the baseline
       cargo run -p xtask -- notices TARGET                            print licence texts of the crates in vireo
       cargo run -p xtask -- modules [CRATE]                           print import cycles";

/// A task of the command line.
#[derive(Debug, PartialEq)]
enum Task {
    Tidy,
    List { rule: Option<Rule>, krate: Option<String> },
    WriteBaseline,
    Modules { krate: Option<String> },
}

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    if let [task, target] = &args[..]
        && task == "notices"
    {
        return match notices::notices(&root(), "vireo", target) {
            Ok(text) => {
                print!("{text}");
                ExitCode::SUCCESS
            }
            Err(error) => {
                eprintln!("xtask: {error}");
                ExitCode::FAILURE
            }
        };
    }
    let Some(task) = parse(&args) else {
        let rules: Vec<&str> = Rule::ALL.iter().map(|rule| rule.name()).collect();
        eprintln!("{USAGE}\nrules with a baseline: {}", rules.join(", "));
        return ExitCode::from(2);
    };
    match tidy::check(&root()).and_then(|report| run(&task, &report)) {
        Ok(code) => code,
        Err(error) => {
            eprintln!("xtask: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Returns the task that `args` name, `None` if they name none.
fn parse(args: &[String]) -> Option<Task> {
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    match args.as_slice() {
        ["tidy"] => Some(Task::Tidy),
        ["tidy", "--write-baseline"] => Some(Task::WriteBaseline),
        ["tidy", options @ ..] => parse_list(options),
        ["modules"] => Some(Task::Modules { krate: None }),
        ["modules", krate] => Some(Task::Modules { krate: Some((*krate).to_owned()) }),
        _ => None,
    }
}

fn parse_list(mut options: &[&str]) -> Option<Task> {
    let (mut rule, mut krate, mut is_list) = (None, None, false);
    while !options.is_empty() {
        options = match options {
            ["--list", rest @ ..] => {
                is_list = true;
                rest
            }
            ["--rule", name, rest @ ..] => {
                rule = Some(Rule::by_name(name)?);
                rest
            }
            ["--crate", name, rest @ ..] => {
                krate = Some((*name).to_owned());
                rest
            }
            _ => return None,
        };
    }
    is_list.then_some(Task::List { rule, krate })
}

fn run(task: &Task, report: &Report) -> Result<ExitCode, String> {
    match task {
        Task::Tidy => return check(report),
        Task::List { rule, krate } => list(report, *rule, krate.as_deref()),
        Task::WriteBaseline => {
            baseline::write(&root(), &baseline::count(&report.debts))?;
            println!("tidy: {} violations are the baseline", report.debts.len());
        }
        Task::Modules { krate } => print!("{}", modules::describe(&report.sources, krate.as_deref())?),
    }
    Ok(ExitCode::SUCCESS)
}

fn check(report: &Report) -> Result<ExitCode, String> {
    let differences = tidy::compare(&root(), report)?;
    let count = report.findings.len() + differences.len();
    for finding in report.findings.iter().chain(&differences) {
        eprintln!("{finding}");
    }
    if count > 0 {
        eprintln!("tidy: {count} findings in {} files", report.files);
        return Ok(ExitCode::FAILURE);
    }
    println!("tidy: {} files keep the house rules, {} violations in the baseline", report.files, report.debts.len());
    Ok(ExitCode::SUCCESS)
}

fn list(report: &Report, rule: Option<Rule>, krate: Option<&str>) {
    let is_chosen = |debt: &&tidy::Debt| rule.is_none_or(|r| r == debt.rule) && krate.is_none_or(|k| k == debt.krate);
    let debts: Vec<_> = report.debts.iter().filter(is_chosen).collect();
    for debt in &debts {
        println!("{} [{}]", debt.finding, debt.rule.name());
    }
    println!("tidy: {} violations", debts.len());
}

/// The workspace's root: the parent of this crate.
fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("xtask lies in the workspace").to_path_buf()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn task(line: &str) -> Option<Task> {
        parse(&line.split_whitespace().map(str::to_owned).collect::<Vec<_>>())
    }

    #[test]
    fn command_line_names_task() {
        assert_eq!(task("tidy"), Some(Task::Tidy));
        assert_eq!(task("tidy --write-baseline"), Some(Task::WriteBaseline));
        assert_eq!(task("modules node"), Some(Task::Modules { krate: Some("node".into()) }));
        let tuples = Task::List { rule: Some(Rule::Tuple), krate: Some("node".into()) };
        assert_eq!(task("tidy --rule tuple --crate node --list"), Some(tuples));
        assert_eq!(task("tidy --list"), Some(Task::List { rule: None, krate: None }));
    }

    #[test]
    fn command_line_faults_are_refused() {
        for line in ["", "other", "tidy --rule other --list", "tidy --rule tuple", "tidy --crate", "modules a b"] {
            assert_eq!(task(line), None, "{line}");
        }
    }
}
