//! Configurations of the core that the experiments compare.

use super::context::Variant;

/// Latency objectives of procedures, in milliseconds.
pub(super) type Objectives<'a> = &'a [(&'a str, u32)];

/// Returns the stateful baseline: one NF for all procedures, with the contexts in its memory.
pub(super) fn unified(cores: &[usize]) -> Variant {
    Variant {
        name: "unified",
        about: "The stateful baseline: one NF for all procedures, in one worker process that keeps the contexts.",
        slices: slice(&[]),
        tables: format!("[pools]\nkey = \"wildcard\"\nworkers = 1\n{}\n[state]\nlocation = \"memory\"\n", on(cores)),
        cluster: "",
        hosts: 0,
        idle: 0,
        host_part: None,
        share: None,
    }
}

/// Returns the NF of the stateful baseline with contexts in the memory that workers share. Its
/// difference from [`unified`] is the cost of that memory alone, and its difference from
/// [`decomposed`] is the effect of NFs by procedure alone.
pub(super) fn unified_shared(cores: &[usize]) -> Variant {
    Variant {
        name: "unified, shared memory",
        about: "One NF for all procedures, in one worker process; contexts are in memory that outlives it.",
        tables: format!("[pools]\nkey = \"wildcard\"\nworkers = 1\n{}\n[state]\nlocation = \"shm\"\n", on(cores)),
        ..unified(cores)
    }
}

/// Returns the stateful baseline with several workers, each of which keeps the contexts of some
/// UEs.
pub(super) fn stateful(workers: u32) -> Variant {
    Variant {
        name: "stateful",
        about: "The stateful baseline: worker processes that do everything and keep the contexts of their UEs.",
        slices: slice(&[]),
        tables: format!("[pools]\nkey = \"wildcard\"\nworkers = {workers}\n\n[state]\nlocation = \"memory\"\n"),
        cluster: "",
        hosts: 0,
        idle: 0,
        host_part: None,
        share: None,
    }
}

/// Returns the core with a central store: the NF of the stateful baseline, which accesses a
/// database at each step.
pub(super) fn central(cores: &[usize]) -> Variant {
    Variant {
        name: "central",
        about: "A central store: one NF for all procedures, in one worker process, which asks Redis for a context at each step.",
        slices: slice(&[]),
        tables: format!(
            "[pools]\nkey = \"wildcard\"\nworkers = 1\n{}\n[state]\nlocation = \"redis\"\nkeep = false\n",
            on(cores)
        ),
        cluster: "",
        hosts: 0,
        idle: 0,
        host_part: None,
        share: None,
    }
}

/// Returns the core with NFs by slice and procedure, and with contexts in memory that all workers
/// share.
pub(super) fn decomposed(
    name: &'static str,
    about: &'static str,
    cores: &[usize],
    nfs_per_worker: u32,
    objectives: Objectives<'_>,
) -> Variant {
    Variant {
        name,
        about,
        slices: slice(objectives),
        tables: format!(
            "[pools]\nkey = \"slice,procedure\"\nnfs-per-worker = {nfs_per_worker}\n{}\n[state]\nlocation = \"shm\"\n",
            on(cores)
        ),
        cluster: "",
        hosts: 0,
        idle: 0,
        host_part: None,
        share: None,
    }
}

/// Returns the same core with all NFs on the thread of the host.
pub(super) fn inline(name: &'static str, about: &'static str, objectives: Objectives<'_>) -> Variant {
    let base = decomposed(name, about, &[], 8, objectives);
    Variant { tables: base.tables.replacen("[pools]\n", "[pools]\nworker-model = \"inline\"\n", 1), ..base }
}

fn on(cores: &[usize]) -> String {
    if cores.is_empty() { String::new() } else { format!("cores = {cores:?}\n") }
}

fn slice(objectives: Objectives<'_>) -> String {
    let mut text = "[slice.default]\nsnssai = { sst = 1 }\n".to_owned();
    if !objectives.is_empty() {
        let each: Vec<String> = objectives.iter().map(|(name, ms)| format!("{name} = \"{ms}ms\"")).collect();
        text.push_str(&format!("slo = {{ {} }}\n", each.join(", ")));
    }
    text
}

/// Returns the processors of core and emulator: one each if there are two, otherwise all.
pub(super) fn processors() -> (Vec<usize>, Vec<usize>) {
    match std::thread::available_parallelism().map_or(1, usize::from) {
        1 => (Vec::new(), Vec::new()),
        _ => (vec![0], vec![1]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use vireo_config::Config;
    use vireo_lab::options::CoreOptions;
    use vireo_lab::provision::config;
    use vireo_ops::config::{PoolKey, StateLocation};

    fn read(variant: &Variant) -> Config {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("vireo.toml");
        let options =
            CoreOptions { slices: variant.slices.clone(), tables: variant.tables.clone(), ..CoreOptions::default() };
        std::fs::write(&path, config(&options)).unwrap();
        Config::load(Some(&path)).unwrap_or_else(|e| panic!("{}: {e}", variant.name))
    }

    #[test]
    fn every_variant_configuration_is_accepted() {
        let baseline = read(&unified(&[0]));
        assert_eq!((baseline.pools.key, baseline.pools.workers), (PoolKey::Wildcard, 1));
        assert_eq!((baseline.state.location, baseline.pools.cores), (StateLocation::Memory, vec![0]));
        assert_eq!(read(&stateful(3)).pools.workers, 3);
        let shared = read(&unified_shared(&[0]));
        assert_eq!((shared.pools.key, shared.state.location), (PoolKey::Wildcard, StateLocation::Shm));
        assert_eq!(read(&central(&[0])).state.location, StateLocation::Redis);
        let ours = read(&decomposed("ours", "", &[1], 4, &[("service-request", 5), ("handover", 20)]));
        assert_eq!((ours.pools.key, ours.pools.nfs_per_worker), (PoolKey::SliceProcedure, 4));
        assert_eq!((ours.state.location, ours.pools.cores), (StateLocation::Shm, vec![1]));
        let slo: Vec<u64> = ours.slices[0].slo.iter().map(|d| d.as_micros() / 1000).collect();
        assert_eq!((slo[1], slo[3]), (5, 20), "{slo:?}");
    }
}
