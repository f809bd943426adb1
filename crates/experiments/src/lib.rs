//! `vireo experiment`: experiments of papers, repeated with the real core.
//!
//! Core and emulator are processes in separate namespaces of this machine. The experiments compare
//! configurations of the one core. Each writes `results/NAME/`: `summary.json`, SVG plots, and
//! compressed CSV tables with the measurements.

#![forbid(unsafe_code)]

mod analysis;
mod attach_interference;
pub mod capacity;
mod cluster;
mod context;
mod experiment;
mod faults;
mod host_capacity;
mod isolation;
mod migration;
mod near_saturation;
mod packet_cost_breakdown;
mod pepc;
pub mod plot;
mod rebalance;
mod relocation;
mod report;
mod scaleout;
mod service_load;
mod soak;
mod stateless;
mod steady;
mod steering;
mod store_throughput;
mod takeover;
mod variants;
mod worker_failure;

use context::ExperimentContext;
use experiment::{Experiment, Plane, Run, Simulation};
use std::path::{Path, PathBuf};
use vireo_bench::results::{Folder, Machine, Summary};
use vireo_bench::upf::network::Network;
use vireo_config::Failure;
use vireo_emulator::Rats;
use vireo_lab::options::UE_NETWORKS;
use vireo_lab::{Interrupt, Lab};
use vireo_simulator::cluster::ServingCost;

#[derive(Debug, clap::Args)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
pub struct Args {
    #[command(subcommand)]
    command: Option<Command>,
    /// Run experiment NAME (see --list)
    #[arg(value_name = "NAME", required_unless_present = "list")]
    name: Option<String>,
    /// List the experiments
    #[arg(long)]
    list: bool,
    /// Run the short form (under a minute) without meaningful figures
    #[arg(long)]
    quick: bool,
    /// Write the results to DIR [default: results/NAME]
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Repeat every measurement N times [default: 3; 1 with --quick]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=50))]
    runs: Option<u32>,
    /// Run the soak for M minutes
    #[arg(long, value_name = "M", default_value_t = 30.0, value_parser = minutes)]
    minutes: f64,
    /// Seed the random choices (arrivals, worker faults) with N
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Set the CPU time of a simulated procedure at a replica: both hosts, and the owner
    ///
    /// Both are parts of the CPU time of a procedure that the owner serves. The default is what
    /// `vireo bench cluster` measured. Experiments with a real core ignore it.
    #[arg(long, value_name = "TOTAL,OWNER", default_value_t)]
    serving_cost: ServingCost,
    /// Run the load with gNBs and UEs of 5G (nr), or with eNBs and UEs of 4G (eps)
    ///
    /// The results of 4G are in results/NAME-eps. Some experiments have 5G only.
    #[arg(long, value_name = "RAT", default_value = "nr", value_parser = vireo_bench::rat)]
    rat: Rats,
    /// Write the core's log to FILE
    #[arg(long, value_name = "FILE")]
    core_log: Option<PathBuf>,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    /// Write the pages of claims and of machines with many cores, from recorded results
    Report(report::Args),
}

const ALL: &[Experiment] = &[
    service_load::EXPERIMENT,
    attach_interference::EXPERIMENT,
    store_throughput::EXPERIMENT,
    worker_failure::EXPERIMENT,
    cluster::simulator_validation::EXPERIMENT,
    cluster::host_scaling::MIGRATION,
    cluster::placement::EXPERIMENT,
    cluster::recovery_time::EXPERIMENT,
    cluster::throughput::EXPERIMENT,
    cluster::host_failure::EXPERIMENT,
    cluster::host_scaling::SCALING,
    near_saturation::EXPERIMENT,
    soak::EXPERIMENT,
    packet_cost_breakdown::EXPERIMENT,
    scaleout::EXPERIMENT,
    migration::EXPERIMENT,
    relocation::EXPERIMENT,
    isolation::EXPERIMENT,
    takeover::EXPERIMENT,
    rebalance::EXPERIMENT,
    pepc::locking::EXPERIMENT,
    pepc::signalling::EXPERIMENT,
    pepc::iot::EXPERIMENT,
    pepc::two_level::EXPERIMENT,
    steering::load_balance::A,
    steering::load_balance::B,
    steering::load_balance::C,
    steering::load_balance::D,
    steering::hosts_needed::EXPERIMENT,
    steering::limits::EXPERIMENT,
    host_capacity::EXPERIMENT,
    stateless::FIG3,
    stateless::FIG4,
    stateless::FIG5,
    stateless::PACED_FIGURES,
    stateless::FIG6,
    stateless::FIG7,
    stateless::BEYOND_FIGURES,
    stateless::DISTANCE_FIGURES,
    stateless::MONGODB_FIGURES,
    stateless::fault_injection::EXPERIMENT,
    stateless::consolidated::EXPERIMENT,
];

fn minutes(text: &str) -> Result<f64, String> {
    text.parse().ok().filter(|m| (0.5..=1440.0).contains(m)).ok_or_else(|| "0.5 to 1440 minutes are allowed".into())
}

/// Names the experiments that have a form with eNBs and UEs of 4G.
fn with_either_rat() -> String {
    let names = ALL.iter().filter(|one| one.has_either_rat()).map(|one| one.name);
    format!("choose one of {}", names.collect::<Vec<_>>().join(", "))
}

/// Runs `vireo experiment`. `commit` is the Git commit of the binary.
pub fn run(args: &Args, commit: &str) -> Result<(), Failure> {
    if let Some(Command::Report(args)) = &args.command {
        return report::run(args);
    }
    if args.list {
        for experiment in ALL {
            println!("{:<16} {}", experiment.name, experiment.about);
        }
        return Ok(());
    }
    let name = args.name.as_deref().unwrap_or_default();
    let experiment = ALL
        .iter()
        .find(|experiment| experiment.name == name)
        .ok_or_else(|| Failure(format!("there is no experiment {name:?}: see vireo experiment --list")))?;
    if args.rat != Rats::Nr && !experiment.has_either_rat() {
        return Err(Failure(format!("{name} has no form with --rat {}: {}", args.rat.name(), with_either_rat())));
    }
    let recorded_as = if args.rat == Rats::Nr { name.to_owned() } else { format!("{name}-{}", args.rat.name()) };
    // The lab replaces `/tmp`, so the output folder is created first. A wrong path thus fails
    // before the run.
    let out = args.out.clone().unwrap_or_else(|| Path::new("results").join(&recorded_as));
    let folder = Folder::make(&out)?;
    let log = args.core_log.as_deref().map(vireo_lab::files::create).transpose()?;
    let runs = args.runs.unwrap_or(if args.quick { 1 } else { 3 });
    let findings = match experiment.run {
        Run::Core(run) | Run::EitherRat(run) => {
            let lab = Lab::build(&UE_NETWORKS)?;
            let interrupt = Interrupt::listen()?;
            let &Args { quick, minutes, seed, rat: rats, .. } = args;
            run(&ExperimentContext { lab, interrupt, quick, runs, minutes, seed, rats, log })?
        }
        Run::Simulated(run) => {
            let (quick, seed, serving_cost) = (args.quick, args.seed, args.serving_cost);
            run(&Simulation { interrupt: Interrupt::listen()?, quick, runs, seed, serving_cost })?
        }
        Run::UserPlane(run) | Run::EitherRatUserPlane(run) => {
            let network = Network::build()?;
            run(&Plane { network, interrupt: Interrupt::listen()?, quick: args.quick, runs, rats: args.rat })?
        }
    };
    let mut notes = findings.notes;
    if args.rat != Rats::Nr {
        notes.push("eNBs and UEs of 4G. An N2 handover is an S1 handover, a registration an attach.".into());
    }
    for (name, table) in &findings.tables {
        let step = folder.table(name, table)?;
        if step > 1 {
            notes.push(format!("The table {name} is large: of {step} measurements {name}.csv.gz has one."));
        }
    }
    for (name, svg) in &findings.plots {
        folder.plot(name, svg)?;
    }
    let mut summary = Summary {
        experiment: recorded_as,
        about: experiment.about.into(),
        paper: experiment.paper.into(),
        commit: Some(commit.to_owned()),
        machine: Machine::read(),
        load: Some(findings.load),
        quick: args.quick,
        runs,
        configurations: findings.configurations,
        figures: findings.figures,
        met: None,
        informative: None,
        notes,
    };
    if cfg!(debug_assertions) {
        summary.notes.push("Made with a debug build: nothing can be concluded from the figures.".into());
    }
    summary.judge(experiment.informative);
    folder.summary(&summary)?;
    print!("{summary}");
    eprintln!("experiment: results in {}", folder.path().display());
    match (findings.broken, summary.missing_part()) {
        (None, None) => Ok(()),
        (None, Some(what)) => Err(Failure(format!("bug: the summary of {name} lacks {what}"))),
        (Some(what), _) => Err(Failure(format!("{what}: see {}", folder.path().join("summary.json").display()))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_unique_and_can_be_paths() {
        for (index, experiment) in ALL.iter().enumerate() {
            assert!(ALL[..index].iter().all(|other| other.name != experiment.name), "{}", experiment.name);
            assert!(experiment.name.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-'));
            assert!(experiment.about.ends_with('?'), "{}: {}", experiment.name, experiment.about);
            assert_ne!(experiment.name, "report", "the name of a command");
        }
    }

    /// Recorded summaries show which experiments have marks. Those that are not recorded, or were
    /// recorded without marks, must state a reason.
    #[test]
    fn experiment_without_mark_states_reason() {
        let results = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../results");
        for experiment in ALL {
            let recorded = std::fs::read(results.join(experiment.name).join("summary.json")).ok();
            let recorded = recorded.map(|octets| serde_json::from_slice::<Summary>(&octets).unwrap());
            let has_mark = recorded.is_some_and(|summary| summary.figures.iter().any(|figure| figure.mark.is_some()));
            assert!(has_mark || experiment.informative.is_some(), "{} has neither", experiment.name);
            assert!(experiment.informative.is_none_or(|reason| reason.ends_with('.')), "{}", experiment.name);
        }
    }
}
