//! Checks of the host's run-time keys.
//!
//! Covers latency objectives of slices, workers, state and overload control.

use crate::file::{self, ALL, Key};
use crate::problems::{Problems, unique};
use crate::state::State;
use crate::surfaces::database_tls;
use crate::values::{CountOrAuto, DurationText};
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;
use vireo_cluster::ReplicationConfig;
use vireo_core::config::{SliceConfig, StateLocation, StateMode};
use vireo_core::schedule::kind::NfKind;
use vireo_ops::config::{NF_KINDS, OverloadConfig, PoolKey, PoolsConfig, SliceRuntime, StateConfig, WorkerModel};
use vireo_ops::sbi::SbiConfig;
use vireo_ops::state::HAS_MONGODB;

/// Upper bound of worker processes, excluding the host (`vireo_store::region::RegionConfig`).
const WORKERS: usize = 249;
/// Upper bound of NFs that one thread runs: their numbers have 8 bits.
const INLINE_NFS: usize = 255;
/// Upper bound of processor numbers in a Linux affinity mask.
const CORES: usize = 1024;
/// Upper bound of UEs. An LTMSI has 28 bits; the memory of a host allows fewer UEs.
const UES: u32 = 1 << 24;
/// Upper bound of packets, excluding large ones.
const PACKETS: u32 = 1 << 19;
/// Upper bound of AMFs of an SMF.
const AMFS: usize = 64;
/// Upper bound of replicas whose confirmation a Redis Cluster master awaits.
const REPLICAS: u16 = 5;
/// Range of a fraction.
const PART: std::ops::RangeInclusive<f64> = 0.0..=1.0;

/// Returns the slices in the order of the core's configuration.
pub(super) fn slices(
    written: &BTreeMap<String, file::Slice>,
    known: &[SliceConfig],
    problems: &mut Problems,
) -> Vec<SliceRuntime> {
    let one = |config: &SliceConfig| {
        let mut slice = SliceRuntime::new(config.name.clone(), config.snssai);
        if let Some(written) = written.get(&config.name) {
            let key = format!("slice.{}", config.name);
            slice.slo = objectives(&format!("{key}.slo"), &written.slo, problems);
            let limit = written.limit > 0.0 && PART.contains(&written.limit);
            problems.check(limit, &format!("{key}.limit"), "a part of a core is allowed: above 0, at most 1");
            slice.limit = written.limit;
            let guarantee = (0.0..=written.limit).contains(&written.guarantee);
            problems.check(guarantee, &format!("{key}.guarantee"), format_args!("0 to {key}.limit is allowed"));
            slice.guarantee = written.guarantee;
            const MAX_REPLICAS: usize = ReplicationConfig::MAX_REPLICAS;
            let replicas = written.replicas <= MAX_REPLICAS;
            problems.check(replicas, &format!("{key}.replicas"), format_args!("0 to {MAX_REPLICAS} is allowed"));
            slice.replicas = written.replicas;
        }
        slice
    };
    let slices: Vec<SliceRuntime> = known.iter().map(one).collect();
    let all: f64 = slices.iter().map(|slice| slice.guarantee).sum();
    problems.check(all <= 1.0, "slice", "the guarantees of all slices exceed one core; make them smaller");
    slices
}

/// Returns the latency objective of each procedure kind: its own, or that of [`file::ALL`].
fn objectives(
    key: &str,
    written: &BTreeMap<String, DurationText>,
    problems: &mut Problems,
) -> [vireo_types::Duration; NF_KINDS] {
    let all = written.get(ALL).map_or(SliceRuntime::SLO, |span| span.0);
    let mut slo = [all; NF_KINDS];
    for (name, span) in written {
        match NfKind::from_name(name) {
            Some(kind) => slo[kind.index()] = span.0,
            None if name == ALL => {}
            None => {
                let names = NfKind::ALL.map(NfKind::name).join(", ");
                problems
                    .add(format_args!("{key}.{name}"), format_args!("there is no such kind; allowed: {ALL}, {names}"));
            }
        }
        let (least, most) = (vireo_types::Duration::from_millis(1), vireo_types::Duration::from_secs(60));
        problems.check((least..=most).contains(&span.0), &format!("{key}.{name}"), "1ms to 1m is allowed");
    }
    slo
}

/// Returns the configuration of workers and their NFs.
pub(super) fn pools(
    pools: &file::Pools,
    steering: &file::Steering,
    (slices, location): (usize, StateLocation),
    problems: &mut Problems,
) -> PoolsConfig {
    let per_worker = usize::from(pools.nfs_per_worker);
    problems.check((1..=64).contains(&per_worker), "pools.nfs-per-worker", "1 to 64 is allowed");
    problems.check(pools.idle <= 16, "pools.idle", "0 to 16 is allowed");
    problems.check(unique(&pools.cores), "pools.cores", "a processor is there twice");
    let named = pools.cores.iter().all(|core| *core < CORES);
    problems.check(named, "pools.cores", "numbers of processors are 0 to 1023, as in [0, 1]");
    let wildcard = pools.key == Key::Wildcard;
    let workers = pools.workers.or(0);
    problems.check(workers <= WORKERS, "pools.workers", format_args!("1 to {WORKERS} or \"auto\" is allowed"));
    let free = wildcard || pools.workers == CountOrAuto::Auto;
    problems.check(free, "pools.workers", "only pools.key = \"wildcard\" has a number of workers; write \"auto\"");
    // Each slice, and the UEs whose slice is still unknown, need one NF of each kind.
    let needed = (slices + 1) * NF_KINDS;
    let is_inline = pools.worker_model == file::WorkerModel::Inline;
    problems.check(
        !is_inline || location == StateLocation::Shm,
        "pools.worker-model",
        "only contexts in shared memory (state.location = \"shm\") go with \"inline\"",
    );
    let none = "pools.worker-model = \"inline\" has no worker processes; remove the key";
    problems.check(!is_inline || pools.workers == CountOrAuto::Auto, "pools.workers", none);
    problems.check(!is_inline || pools.cores.is_empty() || pools.shards > 1, "pools.cores", none);
    if is_inline && !wildcard && needed > INLINE_NFS {
        let what = format_args!(
            "\"inline\" runs at most {INLINE_NFS} NFs, and {slices} slices have {needed}; write \"processes\""
        );
        problems.add("pools.worker-model", what);
    }
    if !is_inline && !wildcard && per_worker > 0 && needed.div_ceil(per_worker) > WORKERS {
        let least = needed.div_ceil(WORKERS);
        let what =
            format_args!("{slices} slices have {needed} NFs, for which there must be at least {least} in a worker");
        problems.add("pools.nfs-per-worker", what);
    }
    let mut span = |key: &str, span: DurationText, least: u64, most: u64| {
        let good = (Duration::from_millis(least)..=Duration::from_millis(most)).contains(&Duration::from(span.0));
        problems.check(good, key, format_args!("{least}ms to {most}ms is allowed"));
        Duration::from(span.0)
    };
    let stopped_after = span("pools.stopped-after", pools.stopped_after, 5, 10_000);
    let stuck_after = span("pools.stuck-after", pools.stuck_after, 50, 60_000);
    let added_step_time = span("pools.added-step-time", pools.added_step_time, 0, 10);
    problems.check(stopped_after <= stuck_after, "pools.stuck-after", "it is not less than pools.stopped-after");
    PoolsConfig {
        key: if wildcard { PoolKey::Wildcard } else { PoolKey::SliceProcedure },
        worker_model: if is_inline { WorkerModel::Inline } else { WorkerModel::Processes },
        nfs_per_worker: pools.nfs_per_worker,
        workers: u8::try_from(workers).unwrap_or(u8::MAX),
        idle: pools.idle,
        intra: steering.intra,
        cores: pools.cores.clone(),
        stopped_after,
        stuck_after,
        added_step_time,
    }
}

/// Returns the configuration of the state region.
pub(super) fn state(state: &State, problems: &mut Problems) -> StateConfig {
    problems.check((1..=UES).contains(&state.ues), "state.ues", format_args!("1 to {UES} is allowed"));
    let packets = (256..=PACKETS).contains(&state.packets);
    problems.check(packets, "state.packets", format_args!("256 to {PACKETS} is allowed"));
    let bytes = state.bytes.or(StateConfig::bytes_for(state.ues, state.packets));
    // Per UE: index entry, slot and an empty context.
    let least = state.ues as usize * 512 + state.packets as usize * 2048 + (16 << 20);
    problems.check(
        bytes >= least,
        "state.bytes",
        format_args!("so many UEs and packets need at least {least}, or \"auto\""),
    );
    let mode = state.chosen().unwrap_or_else(|reason| {
        problems.add("state.preset", reason);
        StateMode::default()
    });
    let (database, confirm) = database(state, mode.location, problems);
    let secured = ["rediss://", "rediss-cluster://"].iter().any(|scheme| database.starts_with(scheme));
    problems.check(
        secured || state.tls.is_none(),
        "state.tls",
        "only connections to \"rediss://\" and \"rediss-cluster://\" (state.database) have TLS: change the URL, or remove the key",
    );
    let tls = database_tls("state.tls", &state.tls, problems);
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    let good = (1..=64).contains(&state.key.len()) && state.key.chars().all(plain);
    problems.check(good, "state.key", "1 to 64 of the characters a-z, A-Z, 0-9, \"-\", \"_\" and \".\" are allowed");
    // MongoDB database names permit fewer characters, and each network function appends a suffix.
    let named = mode.location != StateLocation::Mongodb || (state.key.len() <= 16 && !state.key.contains('.'));
    problems.check(named, "state.key", "it begins the names of databases in MongoDB: at most 16, and no \".\"");
    StateConfig {
        location: mode.location,
        persist: mode.persist,
        change: mode.change,
        format: mode.format,
        scope: mode.scope,
        carry: mode.carry,
        write: mode.write,
        answer: mode.answer,
        database,
        tls,
        confirm,
        key: state.key.clone(),
        sealing: None,
        keep: None,
        ues: state.ues,
        bytes,
        packets: state.packets,
    }
}

/// Returns the URL of the database and the number of replicas that confirm commits.
fn database(state: &State, location: StateLocation, problems: &mut Problems) -> (String, u16) {
    let usual = match location {
        StateLocation::Mongodb => "mongodb://127.0.0.1:27017".to_owned(),
        _ => StateConfig::default().database,
    };
    let url = state.database.clone().unwrap_or(usual);
    match StateLocation::from_url(&url) {
        None => problems.add(
            "state.database",
            "a URL is allowed: \"redis://HOST:PORT\", \"redis+unix:///PATH\", \"redis-cluster://HOST:PORT,HOST:PORT\", \
             with TLS \"rediss://HOST:PORT\" or \"rediss-cluster://HOST:PORT,HOST:PORT\", \
             \"mongodb://HOST:PORT\" or, of shared memory, \"shm:///DIRECTORY\"",
        ),
        Some(named) => {
            let same = named == location || !location.is_database() && named.is_database();
            problems.check(same, "state.database", "it is of something else than state.location");
        }
    }
    let there = location != StateLocation::Mongodb || HAS_MONGODB;
    problems.check(
        there,
        "state.database",
        "this program was built without MongoDB's driver: build it with `cargo build --release -p vireo --features mongodb`",
    );
    let cluster = ["redis-cluster://", "rediss-cluster://"].iter().find_map(|scheme| url.strip_prefix(scheme));
    let nodes = cluster.is_none_or(|nodes| nodes.split(',').any(|node| !node.is_empty()));
    problems.check(
        nodes,
        "state.database",
        "some nodes of the cluster are named: \"redis-cluster://HOST:PORT,HOST:PORT\"",
    );
    // The client would interpret one fragment as permission to accept any certificate.
    problems.check(!url.contains('#'), "state.database", "a URL without a fragment (#) is allowed");
    let confirm = state.confirm.unwrap_or(u16::from(cluster.is_some()));
    let confirms = state.confirm.is_none() || (cluster.is_some() && location.is_database());
    problems.check(
        confirms,
        "state.confirm",
        "only a Redis Cluster (state.database) has commits confirmed: remove the key",
    );
    problems.check(confirm <= REPLICAS, "state.confirm", format_args!("0 to {REPLICAS} is allowed"));
    (url, confirm)
}

/// Returns the configuration of SBA mode.
pub(super) fn sbi(sbi: &file::Sbi, problems: &mut Problems) -> SbiConfig {
    let &file::Sbi { ref amf, listen, smf, timeout, attempts, encoding, ref tls, insecure } = sbi;
    let amf = amf.all();
    let found = |address: &SocketAddr| !address.ip().is_unspecified() && address.port() != 0;
    let allowed = "others find the function by it: an address of its machine and a port are allowed";
    problems.check(amf.iter().all(found), "sbi.amf", allowed);
    problems.check(found(&smf), "sbi.smf", allowed);
    let once = amf.iter().enumerate().all(|(n, address)| !amf[..n].contains(address));
    problems.check(
        (1..=AMFS).contains(&amf.len()) && once,
        "sbi.amf",
        format_args!("1 to {AMFS} are allowed, each once"),
    );
    problems.check(listen.is_none_or(|own| amf.contains(&own)), "sbi.listen", "one of sbi.amf is allowed");
    problems.check(!amf.contains(&smf), "sbi.smf", "it is another address than sbi.amf, or has another port");
    let timeout = Duration::from(timeout.0);
    let good = (Duration::from_millis(10)..=Duration::from_secs(10)).contains(&timeout);
    problems.check(good, "sbi.timeout", "10ms to 10s is allowed");
    problems.check((1..=10).contains(&attempts), "sbi.attempts", "1 to 10 is allowed");
    let tls = crate::cluster::tls("sbi.tls", tls, problems);
    SbiConfig { amf, listen, smf, timeout, attempts, encoding, tls, insecure }
}

/// Returns the thresholds of load shedding.
pub(super) fn overload(file: &file::File, problems: &mut Problems) -> OverloadConfig {
    let file::Overload { wait, start, stop, registrations, other_procedures: others, back_off } = file.overload;
    for (key, part) in [("start", start), ("stop", stop), ("registrations", registrations), ("others", others)] {
        problems.check(PART.contains(&part), &format!("overload.{key}"), "a part of the room is allowed: 0 to 1");
    }
    problems.check(stop < start, "overload.stop", "it is less than overload.start");
    let order = registrations <= others;
    problems.check(order, "overload.others", "it is not less than overload.registrations: those are refused first");
    // Range of the coarsest units of T3346 (GPRS timer 2, TS 24.008 10.5.7.4).
    let span = Duration::from(back_off.0);
    let good = (Duration::from_secs(2)..=Duration::from_secs(31 * 360)).contains(&span);
    problems.check(good, "overload.back-off", "2s to 186m is allowed");
    let wait = Duration::from(wait.0);
    let good = (Duration::from_millis(10)..=Duration::from_secs(10)).contains(&wait);
    problems.check(good, "overload.wait", "10ms to 10s is allowed: UEs ask again after that");
    let half_open = file.half_open.check(problems);
    OverloadConfig { wait, start, stop, registrations, procedures: others, back_off: span, half_open }
}
