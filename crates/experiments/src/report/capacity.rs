//! Markdown of the page that models machines with many cores.

use super::page::wrapped;
use super::record::Records;
use crate::host_capacity::CORES;
use crate::host_capacity::costs::{Costs, Path as ModelPath};
use crate::host_capacity::model::{Division, divide};
use std::fmt::Write;
use std::path::Path;
use vireo_config::Failure;

const RECORD: &str = "bench-host/summary.json";
/// The only record with several shards, and its figure of them.
const SHARDS: (&str, &str) = ("bench-cluster", "requests per CPU-second of a shard, of two by of one");

const HEAD: &str = "\
# Machines with many cores

This page is written by `vireo experiment report` from `results/bench-host/summary.json`. Do not
edit it: a test compares it with the recorded results. It is a model, not a measurement: all
recorded runs are of machines with 2 cores. `vireo experiment host-capacity` plots it.

";

const ASSUMPTIONS: &str = "
## Assumptions

- A procedure is a service request with its N4 exchange, and the release that follows, at
  saturation. At low load wake-ups multiply the CPU time, see [Benchmarks](benchmarks.md).
- A core runs one thread. Threads of a stage share nothing: a host is a shard with its own state
  region and buckets. Several shards of a machine are hosts of the cluster map with one machine
  label. Several balancer threads are balancers; each serves the RAN nodes that connect to it.
";

const FURTHER_ASSUMPTIONS: &str = "\
- Everything that SCTP adds is work of the balancer. The recorded SCTP is usrsctp in user space
  where the kernel has none.
- The balancer passes messages by queues of one process. Balancers and hosts in processes of their
  own use TCP, which costs both of them more, and copies for replicas cost the host more
  (`stateless-shm`, `bench-cluster`). Neither is in the model.
- The user plane and the RAN need cores of their own.
";

/// Returns the page of the records in this folder.
pub(super) fn page(results: &Path) -> Result<String, Failure> {
    let mut text = HEAD.to_owned();
    let octets = match std::fs::read(results.join(RECORD)) {
        Ok(octets) => octets,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            text.push_str("`vireo bench host` is not recorded.\n");
            return Ok(text);
        }
        Err(error) => return Err(Failure(format!("{}: {error}", results.join(RECORD).display()))),
    };
    let costs = Costs::read(&octets)?;
    stages(&mut text, &costs);
    machines(&mut text, &costs);
    text.push_str(ASSUMPTIONS);
    let _ = writeln!(text, "{}", growth(results)?);
    text.push_str(FURTHER_ASSUMPTIONS);
    memory(&mut text, &costs);
    Ok(text)
}

/// Writes the CPU time of each stage, and what one balancer thread feeds.
fn stages(text: &mut String, costs: &Costs) {
    text.push_str(
        "## Stages of a procedure\n\nCPU time in microseconds. The last column is the number of cores beyond which \
         one balancer thread\nis saturated.\n\n| path | balancer | host | workers | of other stages for each balancer \
         thread | cores that one balancer thread uses |\n|---|---|---|---|---|---|\n",
    );
    for ModelPath { name, stages, .. } in &costs.paths {
        let us =
            |stage: &str| stages.iter().find(|own| own.name == stage).map_or("-".into(), |s| format!("{:.1}", s.us));
        let others: f64 = stages.iter().skip(1).map(|stage| stage.us).sum();
        let each = others / stages[0].us;
        let used = divide(stages, u32::MAX, 1).map_or(0, |division| division.cores());
        let _ =
            writeln!(text, "| {name} | {} | {} | {} | {each:.1} | {used} |", us("balancer"), us("host"), us("worker"));
    }
}

/// Writes the rates of machines.
fn machines(text: &mut String, costs: &Costs) {
    text.push_str(
        "\n## Machines\n\n| cores | path | balancer threads | shards (host threads) | worker cores | idle cores | procedures \
         per second | saturated |\n|---|---|---|---|---|---|---|---|\n",
    );
    for cores in CORES {
        for path in &costs.paths {
            let one = divide(&path.stages, cores, 1);
            let best = divide(&path.stages, cores, u32::MAX).filter(|best| Some(best) != one.as_ref());
            for division in one.into_iter().chain(best) {
                machine(text, cores, path, &division);
            }
        }
    }
}

fn machine(text: &mut String, cores: u32, ModelPath { name, stages, .. }: &ModelPath, division: &Division) {
    let Division { threads, rate, limit } = division;
    let worker = threads.get(2).map_or("-".into(), ToString::to_string);
    let idle = cores - division.cores();
    let _ = writeln!(
        text,
        "| {cores} | {name} | {} | {} | {worker} | {idle} | {:.0} | {} |",
        threads[0],
        threads[1],
        (rate / 100.0).round() * 100.0,
        stages[*limit].name
    );
}

/// Returns the assumption about the rate of several shards, with what is recorded of them.
fn growth(results: &Path) -> Result<String, Failure> {
    let (record, figure) = SHARDS;
    let records = Records::read(results, std::iter::once(record))?;
    let recorded = match records.figure(record, figure) {
        Some(shown) => format!(
            "the only record with several shards is `{record}`, where two shards on two cores served {:.2} ({:.2} to \
             {:.2}) times the requests per CPU-second of one",
            shown.ours.median, shown.ours.min, shown.ours.max
        ),
        None => "no recorded run has several shards".to_owned(),
    };
    let item = format!(
        "Linear growth is the upper bound: {recorded}. If each further shard adds 0.9 times the rate of the first, the \
         rates are up to 10% lower."
    );
    Ok(wrapped(&item, "  ").replacen("  ", "- ", 1))
}

/// Writes what the model does not know of memory.
fn memory(text: &mut String, costs: &Costs) {
    let rates = costs.paths.iter().filter_map(|path| divide(&path.stages, CORES[CORES.len() - 1], u32::MAX));
    let highest = rates.map(|division| division.rate).fold(0.0, f64::max);
    let bytes = 2.0 * costs.bytes_per_ue;
    let paragraph = format!(
        "A UE takes {:.0} bytes. Reading and writing all of it for each procedure is {:.1} kB, at the highest rate of {} \
         cores {:.0} GB/s. That is the least traffic if UEs are not in caches; messages, copies and reading whole cache \
         lines add to it. The recorded runs have 10,000 UEs, which are partly in caches. Cache misses of more UEs, memory \
         bandwidth that cores share, and distances between NUMA nodes are not in the model.",
        costs.bytes_per_ue,
        bytes / 1e3,
        CORES[CORES.len() - 1],
        bytes * highest / 1e9,
    );
    let _ = writeln!(text, "\n## Memory\n\n{}", wrapped(&paragraph, ""));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn growth_shows_recorded_shards() {
        let results = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../results");
        let records = Records::read(&results, std::iter::once(SHARDS.0)).unwrap();
        let median = records.figure(SHARDS.0, SHARDS.1).unwrap().ours.median;
        let text = growth(&results).unwrap();
        assert!(text.starts_with("- Linear growth") && text.contains(&format!("served {median:.2} (")), "{text}");
        let none = tempfile::tempdir().unwrap();
        assert!(growth(none.path()).unwrap().contains("no recorded run has several shards"));
    }
}
