//! `vireo experiment` from a user's view: measurements and result files.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::{Mutex, PoisonError};
use vireo_bench::results::{Summary, read_table};

const VIREO: &str = env!("CARGO_BIN_EXE_vireo");
/// Experiments are measurements: one at a time.
static ALONE: Mutex<()> = Mutex::new(());

/// Experiment in its short form.
struct Quick {
    directory: tempfile::TempDir,
    output: Output,
    errors: String,
}

impl Quick {
    /// Runs the experiment alone; `None` if the machine does not permit it.
    fn run(name: &str) -> Option<Self> {
        let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
        Quick::run_concurrently(name, &[])
    }

    /// Runs the experiment alone with eNBs and UEs of 4G.
    fn run_in_4g(name: &str) -> Option<Self> {
        let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
        Quick::run_concurrently(name, &["--rat", "eps"])
    }

    /// Runs the experiment beside others: simulations are not measurements.
    fn run_concurrently(name: &str, more: &[&str]) -> Option<Self> {
        let directory = tempfile::tempdir().unwrap();
        let mut command = Command::new(VIREO);
        command.args(["experiment", name, "--quick"]).args(more).arg("--out").arg(directory.path().join("results"));
        let output = command.output().unwrap();
        let errors = String::from_utf8_lossy(&output.stderr).into_owned();
        if errors.contains("vireo: this needs ") || errors.contains("no permission") {
            eprintln!("skipped: {}", errors.trim());
            return None;
        }
        Some(Quick { directory, output, errors })
    }

    /// Returns the path of a result file.
    fn file(&self, name: &str) -> PathBuf {
        self.directory.path().join("results").join(name)
    }

    /// Returns the text of a result file; tables are compressed.
    fn text(&self, name: &str) -> String {
        match name.ends_with(".csv") {
            true => read_table(&self.file(&format!("{name}.gz"))).unwrap(),
            false => std::fs::read_to_string(self.file(name)).unwrap(),
        }
    }

    fn lines(&self, name: &str) -> usize {
        self.text(name).lines().count()
    }

    fn summary(&self) -> Summary {
        assert!(self.output.status.success(), "{}", self.errors);
        serde_json::from_str(&self.text("summary.json")).unwrap()
    }
}

/// Returns the median of a figure.
fn median(summary: &Summary, name: &str) -> f64 {
    let figure = summary.figures.iter().find(|figure| figure.name == name);
    figure.unwrap_or_else(|| panic!("no figure {name}")).ours.median
}

#[test]
fn experiment_writes_its_results() {
    let Some(quick) = Quick::run("service-load") else { return };
    let summary = quick.summary();
    assert_eq!((summary.experiment.as_str(), summary.quick, summary.runs), ("service-load", true, 1));
    let rate = &summary.figures[0];
    assert!(rate.ours.median > 10.0 && rate.unit == "1/s", "{rate:?}");
    assert!(summary.met.is_none() && summary.informative.is_some(), "{summary}");
    assert!(summary.commit.as_ref().is_some_and(|commit| !commit.is_empty()));
    assert_eq!(summary.load.as_ref().map(|load| load.values.as_slice()), Some(&[4.0, 64.0][..]));
    assert!(summary.machine.cpus > 0 && summary.configurations[0].toml.contains("sst = 1"));
    assert!(quick.text("latency.svg").contains("service requests per second"));
    assert_eq!(quick.lines("points.csv"), 1 + 2);
    assert!(String::from_utf8_lossy(&quick.output.stdout).contains("service requests at saturation"));
}

/// Experiments whose short form another test of this file runs.
const TESTED: [&str; 21] = [
    "service-load",
    "mmlite-fig7-host",
    "mmlite-agreement",
    "mmlite-fig10a",
    "mmlite-fig10b",
    "mmlite-fig10c",
    "mmlite-fig10d",
    "mmlite-fig11",
    "cloud-breakdown",
    "cloud-scaleout",
    "pepc-migration",
    "pepc-relocation",
    "pepc-isolation",
    "pepc-rebalance",
    "pepc-takeover",
    "pepc-signalling",
    "pepc-iot",
    "pepc-two-level",
    "stateless-fig3",
    "stateless-fig7",
    "stateless-shm",
];

/// Every experiment that no other test runs ends in good order and writes a complete summary, plots
/// and tables. A failed mark is no failure: the short form proves no figure.
#[test]
#[ignore = "make test-experiments"]
fn other_experiments_have_short_forms() {
    let output = Command::new(VIREO).args(["experiment", "mmlite-fig11", "--rat", "eps"]).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&output.stderr).contains("choose one of"));
    let output = Command::new(VIREO).args(["experiment", "--list"]).output().unwrap();
    let list = String::from_utf8_lossy(&output.stdout).into_owned();
    let names: Vec<&str> = list.lines().filter_map(|line| line.split_whitespace().next()).collect();
    for tested in TESTED {
        assert!(names.contains(&tested), "{tested} is no experiment");
    }
    let mut failed = Vec::new();
    for name in names.into_iter().filter(|name| !TESTED.contains(name)) {
        let Some(quick) = Quick::run(name) else { continue };
        if quick.errors.contains("without MongoDB's driver") || quick.errors.contains("install the package") {
            eprintln!("skipped: {name}: {}", quick.errors.lines().last().unwrap_or_default());
            continue;
        }
        if !quick.output.status.success() {
            failed.push(format!("{name}: {}", quick.errors));
            continue;
        }
        let summary = quick.summary();
        assert_eq!((summary.experiment.as_str(), summary.quick), (name, true));
        assert!(!summary.figures.is_empty() && !summary.configurations.is_empty(), "{summary}");
        assert_eq!(summary.missing_part(), None, "{name}");
        let written = std::fs::read_dir(quick.file("")).unwrap().map(|entry| entry.unwrap().path());
        let written: Vec<PathBuf> = written.collect();
        let has = |ending: &str| written.iter().any(|path| path.to_string_lossy().ends_with(ending));
        if !has(".svg") || !has(".csv.gz") {
            failed.push(format!("{name}: plot or table is missing: {written:?}"));
        }
    }
    assert!(failed.is_empty(), "{}", failed.join("\n"));
}

#[test]
#[ignore = "make test-experiments"]
fn packet_time_is_measured_by_driver() {
    let Some(quick) = Quick::run("cloud-breakdown") else { return };
    if quick.errors.contains("measure again on an idle machine") {
        // Other test programs may run concurrently. The experiment correctly refuses impossible
        // figures.
        return assert!(!quick.output.status.success() && !quick.file("summary.json").exists(), "{}", quick.errors);
    }
    let summary = quick.summary();
    for driver in ["sockets", "af-packet", "af-xdp", "xdp"] {
        for part in ["T_c", "T_p"] {
            let name = format!("{driver}, {part}");
            let figure = summary.figures.iter().find(|figure| figure.name == name).unwrap();
            assert!(figure.unit == "ns" && figure.paper.is_some(), "{figure:?}");
        }
    }
    assert!(median(&summary, "sockets, T_p") > 100.0, "system calls for every packet: {summary}");
    assert!(quick.text("times.svg").contains("af-packet"));
    assert_eq!(quick.lines("times.csv"), 1 + 4 * 2);
}

#[test]
#[ignore = "make test-experiments"]
fn migrations_lose_no_packet_and_no_count() {
    let Some(quick) = Quick::run("pepc-migration") else { return };
    let summary = quick.summary();
    let of = |name: &str| median(&summary, name);
    let wrong = ["packets lost", "packets duplicated", "packets miscounted"].map(of);
    assert_eq!(wrong, [0.0; 3], "{summary}");
    assert!(of("migrations") > 1000.0 && of("packets with migrations") > 1000.0, "{summary}");
}

#[test]
#[ignore = "make test-experiments"]
fn relocations_lose_no_packet_and_no_count() {
    let Some(quick) = Quick::run("pepc-relocation") else { return };
    let summary = quick.summary();
    let of = |name: &str| median(&summary, name);
    let wrong = ["packets lost", "packets misdelivered", "bytes miscounted"].map(of);
    assert_eq!(wrong, [0.0; 3], "{summary}");
    assert!(of("relocations") > 100.0 && of("echoes") > 1000.0, "{summary}");
}

#[test]
#[ignore = "make test-experiments"]
fn flood_is_measured_with_and_without_slices() {
    let Some(quick) = Quick::run("pepc-isolation") else { return };
    let summary = quick.summary();
    for way in ["slices, control side placed", "slices", "shared workers"] {
        let of = |what: &str| median(&summary, &format!("{way}, {what}"));
        assert!(of("flood that came through") > 1000.0, "{summary}");
        assert!(of("packets under a flood, of those without") > 0.0, "{summary}");
    }
}

#[test]
#[ignore = "make test-experiments"]
fn rebalance_moves_users_without_loss() {
    let Some(quick) = Quick::run("pepc-rebalance") else { return };
    let summary = quick.summary();
    let of = |what: &str| median(&summary, &format!("sockets, {what}"));
    assert!(of("users moved") >= 1.0, "{summary}");
    assert_eq!((of("packets lost"), of("packets miscounted")), (0.0, 0.0), "{summary}");
    assert!(of("packets of the second worker, of all, before") < 0.1, "{summary}");
    assert!(of("packets of the second worker, of all, after") > 0.2, "{summary}");
}

#[test]
#[ignore = "make test-experiments"]
fn data_worker_deaths_are_measured() {
    let Some(quick) = Quick::run("pepc-takeover") else { return };
    let summary = quick.summary();
    let figure = |what: &str| {
        let name = format!("sockets, {what}");
        summary.figures.iter().find(|figure| figure.name.starts_with(&name)).unwrap_or_else(|| panic!("no {name}"))
    };
    let lost = figure("packets lost by a worker's death, most");
    let again = &lost.baseline.as_ref().expect("measured").value;
    assert!(lost.ours.median < again.median, "{summary}");
    assert!(figure("packets a second by processes").ours.median > 0.0, "{summary}");
    assert_eq!(quick.lines("deaths.csv"), 1 + 4 + 1 + 1);
}

#[test]
#[ignore = "make test-experiments"]
fn signalling_is_measured_beside_split_core() {
    let Some(quick) = Quick::run("pepc-signalling") else { return };
    let summary = quick.summary();
    for core in ["slice", "slice, one processor", "coarse", "split, sockets", "split, queues"] {
        for load in ["no events", "1:1000", "1:10"] {
            assert!(median(&summary, &format!("{core}, {load}, packets")) > 1000.0, "{summary}");
        }
    }
    assert!(median(&summary, "processes, 10K events/s, events") > 100.0, "{summary}");
    assert!(median(&summary, "slice over split, sockets, 1:10") > 1.0, "messages cost nothing: {summary}");
    assert_eq!(quick.lines("sweeps.csv"), 1 + 7 * (4 + 2 * 3 + 5));
}

#[test]
#[ignore = "make test-experiments"]
fn experiments_have_short_forms_in_4g() {
    let Some(quick) = Quick::run_in_4g("pepc-signalling") else { return };
    let summary = quick.summary();
    assert_eq!(summary.experiment, "pepc-signalling-eps");
    assert!(median(&summary, "250 service requests/s, completed") > 200.0, "{summary}");
    assert_eq!(quick.lines("turns.csv"), 1 + 7);
    for name in ["service-load", "mmlite-fig2c", "mmlite-fig7-nf", "mmlite-fig7-host", "mmlite-fig9"] {
        let Some(quick) = Quick::run_in_4g(name) else { return };
        assert_eq!(quick.summary().experiment, format!("{name}-eps"));
    }
}

#[test]
#[ignore = "make test-experiments"]
fn placement_is_measured_on_real_hosts() {
    let Some(quick) = Quick::run("placement-real") else { return };
    let summary = quick.summary();
    for variant in ["owner-bound", "weighted buckets", "per procedure"] {
        for load in ["0.5", "0.8"] {
            let of = |what: &str| median(&summary, &format!("{what}, {variant}, load {load}"));
            assert!(of("service request p50") > 0.0 && of("late procedures") <= 100.0, "{summary}");
        }
    }
    assert!(median(&summary, "choices that follow the configured rule, worst variant") >= 95.0, "{summary}");
    assert_eq!(quick.lines("loads.csv"), 1 + 3 * 2);
    assert!(quick.text("late.svg").contains("per procedure"));
}

#[test]
#[ignore = "make test-experiments"]
fn iot_devices_are_measured_against_others() {
    let Some(quick) = Quick::run("pepc-iot") else { return };
    let summary = quick.summary();
    for path in ["user space", "XDP"] {
        assert!(median(&summary, &format!("{path}, both directions, packets with iot over full")) > 0.2, "{summary}");
        assert!(median(&summary, &format!("{path}, uplink, iot")) > 5.0, "{summary}");
    }
    let record = |profile: &str| median(&summary, &format!("{profile}, octets of a UE's record in the state region"));
    assert!(record("iot") >= 256.0 && record("iot") < record("full"), "whole buffers: {summary}");
    assert_eq!(quick.lines("runs.csv"), 1 + 3 * 2);
}

#[test]
#[ignore = "make test-experiments"]
fn idle_users_cost_memory_and_lose_no_packet() {
    let Some(quick) = Quick::run("pepc-two-level") else { return };
    let summary = quick.summary();
    let of = |name: &str| median(&summary, name);
    assert_eq!(of("first packets of idle users that were lost"), 0.0, "{summary}");
    assert!((120.0..400.0).contains(&of("data side of an idle user")), "two records at least: {summary}");
    for active in ["1%", "100%"] {
        assert!(of(&format!("{active} active, two levels, packets")) > 1000.0, "{summary}");
    }
    assert!(of("10% active, users that are hot") > 100.0, "{summary}");
    assert!(quick.text("packets.svg").contains("two levels"));
}

/// The figures of an unoptimised user plane say nothing, but it forwards what the load sends.
#[test]
fn user_plane_forwards_load_of_experiments() {
    for name in ["pepc-locking", "pepc-two-level"] {
        let Some(quick) = Quick::run_concurrently(name, &[]) else { return };
        assert_eq!(quick.summary().experiment, name);
    }
}

#[test]
#[ignore = "make test-experiments"]
fn scale_out_is_measured_by_both_modes() {
    let Some(quick) = Quick::run("cloud-scaleout") else { return };
    let summary = quick.summary();
    for mode in ["separate interfaces", "fanout"] {
        assert!(median(&summary, &format!("{mode}, 1 module, packets each way")) > 10_000.0, "{summary}");
    }
    let several = summary.figures.iter().filter(|figure| figure.unit == "ratio").count();
    assert_eq!(several > 0, summary.machine.cpus > 1, "{summary}");
    assert!(summary.configurations.iter().any(|configuration| configuration.toml.contains("[[datapath.module]]")));
    assert!(quick.text("throughput.svg").contains("fanout"));
    assert!(quick.lines("modules.csv") > 2);
}

#[test]
fn host_failure_is_measured_by_replication_mode() {
    let Some(quick) = Quick::run("mmlite-fig7-host") else { return };
    let summary = quick.summary();
    let place = "host killed, 50% load, hot, ack one";
    assert_eq!(median(&summary, &format!("lost UEs, {place}")), 0.0, "{summary}");
    assert_eq!(median(&summary, &format!("failed procedures, {place}")), 0.0, "{summary}");
    let lost = summary.figures.iter().find(|figure| figure.name.starts_with("lost UEs")).unwrap();
    assert!(lost.baseline.as_ref().expect("measured").value.median > 10.0, "a third of 200 UEs or more: {summary}");
    assert!(median(&summary, &format!("worst latency, {place}")) > 0.0);
    assert!(quick.text("killed.svg").contains("stateful"));
    assert_eq!(quick.lines("cases.csv"), 1 + 2);
}

#[test]
#[ignore = "make test-experiments"]
fn simulation_of_three_hosts_is_measured() {
    let Some(quick) = Quick::run("mmlite-agreement") else { return };
    if quick.errors.contains("measure again on an idle machine") {
        // Short loads beside other test programs permit no conclusion, and the program reports
        // this.
        return assert!(!quick.output.status.success() && !quick.file("summary.json").exists(), "{}", quick.errors);
    }
    let summary = quick.summary();
    let done = "procedures done, 40% load, hot, ack one, serve procedure, simulated";
    let real = summary.figures.iter().find(|figure| figure.name == done).and_then(|figure| figure.baseline.as_ref());
    assert!(median(&summary, done) > 10.0 && real.is_some_and(|real| real.value.median > 10.0), "{summary}");
    assert!(quick.text("latency.svg").contains("simulated"));
    assert_eq!(quick.lines("points.csv"), 1 + 2);
}

/// Simulated experiments need no privileges, and yield the same results for the same seed.
#[test]
fn simulated_experiments_are_reproducible() {
    for (name, plot, ours) in [
        ("mmlite-fig10a", "schemes.svg", "standard deviation of hosts' CPU, UEs skewed, ours"),
        ("mmlite-fig10b", "schemes.svg", "late procedures, UEs skewed, ours"),
        ("mmlite-fig10c", "hosts.svg", "late procedures on 4 hosts, ours"),
        ("mmlite-fig10d", "parts.svg", "late procedures, ours"),
        ("mmlite-fig11", "pareto-1.svg", "hosts, Pareto 1, load for 3, ours"),
        ("mmlite-limits", "loads.svg", "served by replicas, load 0.5, ours"),
    ] {
        let [one, other] = [(); 2].map(|()| Quick::run_concurrently(name, &[]).expect("it needs nothing"));
        let summary = one.summary();
        assert_eq!((summary.experiment.as_str(), summary.quick), (name, true));
        assert_eq!(summary.figures, other.summary().figures, "{name}");
        assert!(median(&summary, ours).is_finite());
        assert!(summary.configurations.iter().any(|configuration| configuration.name == "ours"));
        assert!(one.text(plot).contains("ours"), "{name}");
    }
}

#[test]
fn report_is_written_from_recorded_results() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("claims.md");
    let mut command = Command::new(VIREO);
    command.args(["experiment", "report", "--out"]).arg(&file).arg("--results").arg(root.join("results"));
    let output = command.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let committed = std::fs::read_to_string(root.join("docs/evaluation/claims.md")).unwrap();
    assert_eq!(std::fs::read_to_string(&file).unwrap(), committed, "run `vireo experiment report`");
}

#[test]
fn unknown_experiment_is_refused_at_once() {
    let output = Command::new(VIREO).args(["experiment", "nothing"]).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&output.stderr).contains("vireo experiment --list"));
    let output = Command::new(VIREO).args(["experiment", "--list"]).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    let mmlite = [
        "mmlite-fig2c",
        "mmlite-fig2b",
        "mmlite-fig2d",
        "mmlite-fig6",
        "mmlite-fig6-store",
        "mmlite-fig7-host",
        "mmlite-fig7-nf",
        "mmlite-fig8",
        "mmlite-fig9",
        "mmlite-agreement",
        "soak",
    ];
    let pepc = ["iot", "isolation", "locking", "migration", "rebalance", "signalling", "takeover", "two-level"]
        .map(|name| format!("pepc-{name}"));
    let pepc: Vec<&str> = pepc.iter().map(String::as_str).collect();
    let steering =
        ["mmlite-fig10a", "mmlite-fig10b", "mmlite-fig10c", "mmlite-fig10d", "mmlite-fig11", "mmlite-limits"];
    for name in mmlite.iter().chain(&pepc).chain(&steering).chain(&["cloud-breakdown", "cloud-scaleout"]) {
        assert!(text.contains(name), "{name} in {text}");
    }
}

#[test]
#[ignore = "make test-experiments"]
fn consolidated_core_is_measured_by_state() {
    let Some(quick) = Quick::run("stateless-shm") else { return };
    let summary = quick.summary();
    for kind in ["bursts", "4 under way"] {
        let of = |configuration: &str, what: &str| median(&summary, &format!("{configuration}, {kind}: {what}"));
        for configuration in ["stateful", "shm", "shm, one replica"] {
            assert!(of(configuration, "establishment, mean") > 0.0, "{summary}");
            assert!(of(configuration, "CPU of the hosts per UE") > 10.0, "{summary}");
        }
        // The copies that one side sends are those that the other stores.
        let copies = |configuration: &str| of(configuration, "of it, threads that send and keep copies");
        assert!(copies("shm, one replica") > 2.0 * copies("shm"), "{summary}");
    }
    assert!(quick.text("time.svg").contains("one replica"));
    assert_eq!(quick.lines("loads.csv"), 1 + 3 * 2);
}

/// The server itself counts its requests: reads and commits of two network functions for each
/// transaction.
#[test]
fn statelessness_is_measured_over_database() {
    if Command::new("redis-server").arg("--version").output().is_err() {
        return eprintln!("skipped: redis-server is not installed");
    }
    let Some(quick) = Quick::run("stateless-fig3") else { return };
    let summary = quick.summary();
    let of = |figure: &str| median(&summary, figure);
    assert!(of("transactional: commands of the database per UE") > 20.0, "{summary}");
    assert!(of("transactional: octets to and from the database per UE") > 5000.0, "{summary}");
    assert!(of("stateful: establishment, mean of all sizes") > 0.0, "{summary}");
    let commands = |mode: &str| of(&format!("{mode}: commands of the database per UE"));
    assert!(commands("procedural") < commands("transactional"), "{summary}");
    // Three modes, two sizes and the cold start, and the header line.
    assert_eq!((quick.lines("bursts.csv"), quick.lines("intervals.csv")), (10, 7));
}

#[test]
#[ignore = "make test-experiments"]
fn sba_cpu_and_queues_are_measured_over_time() {
    let Some(quick) = Quick::run("stateless-fig7") else { return };
    assert!(quick.lines("moments.csv") > 10, "{}", quick.text("moments.csv"));
    assert!(quick.summary().figures.iter().any(|figure| figure.name.contains("SMF") && figure.ours.max >= 0.0));
}
