//! `vireo bench cluster`: cost of a service request by the role of the host that serves it.
//!
//! Three hosts behind one balancer. All procedures are of UEs of one owner, so that its CPU time
//! is known apart from that of replicas. With `steering.inter = "round-robin"` owner and replicas
//! serve in turn. The cost of a replica follows from this mixture and the cost of the owner.
//!
//! The last two variants are `vireo run` with one host, and with two shards (`pools.shards`).

use crate::results::{Bound, Configuration, Figure, Machine, Measured, OfferedLoad, Summary};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime};
use vireo_config::Failure;
use vireo_lab::core::{Core, ServedProcedures};
use vireo_lab::emulator::{self, EmulatorOptions, EmulatorRun, Load};
use vireo_lab::files::create;
use vireo_lab::options::{CoreOptions, UE_NETWORKS, UNSHED};
use vireo_lab::{Interrupt, Lab};

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Run the short form: a functional check without meaningful figures
    #[arg(long)]
    quick: bool,
    /// Repeat every measurement N times [default: 5; 1 with --quick]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=50))]
    runs: Option<u32>,
    /// Write the figures as JSON to FILE
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

const HOSTS: usize = 3;
/// Loads of each variant: for CPU time, and for latency.
const LOADS: usize = 2;
/// File of the active UEs, in the lab's own `/tmp`.
const ACTIVE_FILE: &str = "/tmp/active-ues";
/// Share of procedures that replicas must serve, or their cost cannot be known.
const MIN_SHARE: f64 = 0.05;
/// Marks: additional CPU time of a replica in percent, owner's part in percent, added one-way
/// delays of the first replica and in the mean of both, and refused proposals in percent.
const MORE_CPU: f64 = 15.0;
const OWNERS_PART: f64 = 40.0;
const FIRST_DELAYS: f64 = 0.0;
const OTHER_DELAYS: f64 = 1.0;
const CONFLICTS: f64 = 0.1;
/// Mark: throughput of two shards on a core each, by that of one.
const TWO_BY_ONE: f64 = 1.8;

/// Sizes of the measurements.
#[derive(Clone, Copy)]
struct Size {
    ues: u32,
    active: usize,
    /// Service requests per second for CPU time, and for latency.
    rates: [u32; LOADS],
    /// Duration of each load, and of the first part that does not count.
    seconds: f64,
    settle: Duration,
    /// Time for the CPU use without load.
    idle: Duration,
}

impl Size {
    fn new(quick: bool) -> Self {
        match quick {
            true => Size {
                ues: 150,
                active: 20,
                rates: [50, 20],
                seconds: 1.5,
                settle: Duration::from_millis(500),
                idle: Duration::from_millis(300),
            },
            false => Size {
                ues: 3000,
                active: 500,
                rates: [1500, 100],
                seconds: 8.0,
                settle: Duration::from_secs(2),
                idle: Duration::from_secs(2),
            },
        }
    }
}

/// Configuration of the cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Variant {
    name: &'static str,
    about: &'static str,
    replicas: usize,
    ack: &'static str,
    /// True if owner and replicas serve in turn.
    in_turn: bool,
    /// True if hosts with copies run the steps on their own threads.
    is_inline: bool,
    /// Number of shards, if UEs of all hosts are active: hosts without copies that run the steps on
    /// their own threads.
    shards: Option<usize>,
    /// True if the shards are those of `vireo run`; several have copies.
    is_tree: bool,
}

const OWNER: Variant = Variant {
    name: "owner",
    about: "The owner serves.",
    replicas: 1,
    ack: "one",
    in_turn: false,
    is_inline: false,
    shards: None,
    is_tree: false,
};
const TURNS: Variant = Variant { name: "in turn", about: "Owner and replica serve in turn.", in_turn: true, ..OWNER };
const OWNER_OF_TWO: Variant = Variant { name: "owner, 2 replicas", replicas: 2, ..OWNER };
const TURNS_OF_TWO: Variant =
    Variant { name: "in turn, 2 replicas", about: "Owner and both replicas serve in turn.", replicas: 2, ..TURNS };
const NO_ACK: Variant = Variant {
    name: "no acknowledgement",
    about: "The owner serves, and effects do not wait for copies: the difference is two one-way delays.",
    ack: "none",
    ..OWNER
};
const ONE_SHARD: Variant =
    Variant { name: "1 shard", about: "One host with inline steps, without copies.", shards: Some(1), ..OWNER };
const TWO_SHARDS: Variant = Variant {
    name: "2 shards",
    about: "Two hosts with inline steps, without copies; each has half of the UEs.",
    shards: Some(2),
    ..OWNER
};
const ONE_OF_RUN: Variant = Variant {
    name: "vireo run, 1 shard",
    about: "One process with inline steps, without copies.",
    is_tree: true,
    ..ONE_SHARD
};
const TWO_OF_RUN: Variant = Variant {
    name: "vireo run, 2 shards",
    about: "One process tree; each shard has half of the UEs, and copies of the others.",
    is_tree: true,
    ..TWO_SHARDS
};
const INLINE_OWNER: Variant =
    Variant { name: "owner, inline", about: "The owner serves; hosts with inline steps.", is_inline: true, ..OWNER };
const INLINE_TURNS: Variant = Variant {
    name: "in turn, inline",
    about: "Owner and replica serve in turn; hosts with inline steps.",
    is_inline: true,
    ..TURNS
};
const INLINE_NO_ACK: Variant = Variant {
    name: "no acknowledgement, inline",
    about: "As no acknowledgement; hosts with inline steps.",
    is_inline: true,
    ..NO_ACK
};
const VARIANTS: [Variant; 12] = [
    OWNER,
    TURNS,
    OWNER_OF_TWO,
    TURNS_OF_TWO,
    NO_ACK,
    ONE_SHARD,
    TWO_SHARDS,
    ONE_OF_RUN,
    TWO_OF_RUN,
    INLINE_OWNER,
    INLINE_TURNS,
    INLINE_NO_ACK,
];

impl Variant {
    /// Returns the options of the core for this number of subscribers.
    fn options(self, subscribers: u64) -> CoreOptions {
        let hosts = if self.is_tree { 0 } else { self.shards.unwrap_or(HOSTS) };
        let shards = self.shards.filter(|shards| self.is_tree && *shards > 1).map_or(0, |shards| shards as u8);
        CoreOptions { subscribers, hosts, shards, tables: self.tables(), ..CoreOptions::default() }
    }

    fn tables(self) -> String {
        let Variant { replicas, ack, in_turn, is_inline, .. } = self;
        if self.is_tree {
            // The lab adds the table of several shards.
            let inline = "[pools]\nworker-model = \"inline\"\n\n";
            return format!("{}{UNSHED}", if self.shards > Some(1) { "" } else { inline });
        }
        if self.shards.is_some() {
            return format!("[replication]\nmode = \"none\"\n\n[pools]\nworker-model = \"inline\"\n\n{UNSHED}");
        }
        let serve = if in_turn { "serve = \"procedure\"\ninter = \"round-robin\"\n" } else { "serve = \"owner\"\n" };
        let pools = if is_inline { "[pools]\nworker-model = \"inline\"\n\n" } else { "" };
        format!(
            "[replication]\nmode = \"hot\"\nreplicas = {replicas}\nack = {ack:?}\n\n[steering]\n{serve}\n{pools}{UNSHED}"
        )
    }
}

/// CPU time so far, in seconds.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct CpuTimes {
    /// Balancer, with the controller and the UPF; of `vireo run` all processes.
    balancer: f64,
    owner: f64,
    replicas: f64,
}

impl CpuTimes {
    fn read(core: &Core, owner: usize) -> Result<Self, Failure> {
        let hosts: Vec<f64> = core.cpu_by_host()?.iter().map(Duration::as_secs_f64).collect();
        let own = hosts.get(owner).copied().unwrap_or_default();
        Ok(CpuTimes {
            balancer: core.process.cpu()?.as_secs_f64(),
            owner: own,
            replicas: hosts.iter().sum::<f64>() - own,
        })
    }

    fn total(&self) -> f64 {
        self.balancer + self.hosts()
    }

    fn hosts(&self) -> f64 {
        self.owner + self.replicas
    }

    /// Combines each part with that of another value.
    fn zip(self, other: Self, with: impl Fn(f64, f64) -> f64) -> Self {
        CpuTimes {
            balancer: with(self.balancer, other.balancer),
            owner: with(self.owner, other.owner),
            replicas: with(self.replicas, other.replicas),
        }
    }
}

/// Results of one variant.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Outcome {
    /// CPU time per service request with its release, in microseconds, without that of the idle
    /// cluster.
    cpu: CpuTimes,
    /// Mean latency at the low rate, in microseconds.
    latency_us: f64,
    /// Share of procedures that replicas served, 0 to 1.
    share: f64,
    /// Proposals, and those refused.
    proposals: u64,
    refused: u64,
    /// Resident memory of all processes of `vireo run` after the load, in MiB.
    memory_mib: f64,
}

/// Difference of a replica-served procedure to an owner-served one, from a mixture.
#[derive(Clone, Copy, Debug, PartialEq)]
struct ByReplica {
    /// CPU time per procedure in microseconds.
    cpu: CpuTimes,
    latency_us: f64,
}

impl ByReplica {
    /// Returns the values of replicas from those of the owner and of both in turn; `None` if
    /// replicas served too few procedures.
    fn from_mixture(owner: &Outcome, mixed: &Outcome) -> Option<Self> {
        let share = mixed.share;
        let apart = |mixed: f64, owner: f64| (mixed - (1.0 - share) * owner) / share;
        (share >= MIN_SHARE).then(|| ByReplica {
            cpu: mixed.cpu.zip(owner.cpu, apart),
            latency_us: apart(mixed.latency_us, owner.latency_us),
        })
    }
}

/// Results of all variants, in the order of [`VARIANTS`].
type Round = [Outcome; VARIANTS.len()];

/// The lab and the sizes.
struct Bench {
    lab: Lab,
    interrupt: Interrupt,
    size: Size,
}

/// Runs `vireo bench cluster`.
pub(crate) fn run(args: &Args, commit: &str) -> Result<(), Failure> {
    let mut json = args.json.as_deref().map(create).transpose()?;
    let bench = Bench { lab: Lab::build(&UE_NETWORKS)?, interrupt: Interrupt::listen()?, size: Size::new(args.quick) };
    let runs = args.runs.unwrap_or(if args.quick { 1 } else { 5 });
    let mut rounds: Vec<Round> = Vec::new();
    for run in 1..=runs {
        eprintln!("bench: run {run} of {runs}");
        let mut round = Round::default();
        for (outcome, variant) in round.iter_mut().zip(VARIANTS) {
            *outcome = bench.measure(variant)?;
            eprintln!("bench: {}: {outcome:?}", variant.name);
        }
        rounds.push(round);
    }
    let configuration = |variant: Variant| Configuration {
        name: variant.name.into(),
        about: variant.about.into(),
        toml: variant.tables(),
    };
    let mut summary = Summary {
        experiment: "bench cluster".into(),
        about: "what a service request costs that the owner, the first or another replica serves".into(),
        paper: String::new(),
        commit: Some(commit.to_owned()),
        machine: Machine::read(),
        load: Some(OfferedLoad::new(
            "service requests with their releases, T1, open loop: CPU time, latency",
            bench.size.rates.map(f64::from),
            "1/s",
        )),
        quick: args.quick,
        runs,
        configurations: VARIANTS.map(configuration).to_vec(),
        figures: figures(&rounds)?,
        met: None,
        informative: None,
        notes: notes(&rounds),
    };
    summary.judge(Some("Replicas served too few procedures."));
    print!("{summary}");
    if let Some(file) = &mut json {
        file.write_all(&serde_json::to_vec_pretty(&summary)?)?;
        file.write_all(b"\n")?;
    }
    Ok(())
}

impl Bench {
    /// Runs both loads on a new cluster.
    fn measure(&self, variant: Variant) -> Result<Outcome, Failure> {
        self.interrupt.check()?;
        let options = variant.options(u64::from(self.size.ues) * LOADS as u64);
        let mut core = Core::start(&self.lab, &options, create(Path::new("/tmp/core.log"))?, &self.interrupt)?;
        core.wait_for_upfs(&self.interrupt)?;
        let [busy, calm] = self.size.rates;
        let (mut outcome, _) = self.load(&mut core, variant, (0, busy))?;
        if variant.is_tree {
            outcome.memory_mib = core.resident_bytes()? as f64 / f64::from(1 << 20);
        }
        if variant.shards.is_some() {
            core.stop()?;
            return Ok(outcome);
        }
        let (_, emulated) = self.load(&mut core, variant, (1, calm))?;
        let latency_us = emulated.result.latency("service_request").mean;
        let of =
            |core: &Core, result: &str| core.sum_over_hosts(&format!("vireo_proposals_total{{result={result:?}}}"));
        let (committed, refused) = (of(&core, "committed")?, of(&core, "refused")?);
        core.stop()?;
        Ok(Outcome { latency_us, proposals: committed + refused, refused, ..outcome })
    }

    /// Runs a load of service requests by UEs of one host, or of all shards. Each load has UEs of
    /// its own. Returns the CPU time per request and the share of replicas.
    fn load(
        &self,
        core: &mut Core,
        variant: Variant,
        (number, rate): (u32, u32),
    ) -> Result<(Outcome, EmulatorRun), Failure> {
        let size = self.size;
        let _ = std::fs::remove_file(ACTIVE_FILE);
        let words = [
            ["--load".to_owned(), "service-request=1".to_owned()],
            ["--duration".to_owned(), size.seconds.to_string()],
            ["--settle".to_owned(), format!("{}ms", size.settle.as_millis())],
            ["--busy-ues".to_owned(), ACTIVE_FILE.to_owned()],
            ["--busy-share".to_owned(), "1".to_owned()],
        ];
        let options = EmulatorOptions {
            ues: size.ues,
            first: u64::from(number * size.ues),
            load: Load::Rate(rate),
            limit: Duration::from_secs_f64(size.seconds + 120.0),
            more: words.into_iter().flatten().collect(),
            ..EmulatorOptions::default()
        };
        let registered = ((number + 1) * size.ues) as usize;
        let mut watch = Watch::new(size, registered, variant.shards.is_some());
        let run = &mut |core: &mut Core| watch.work(core);
        let emulated = emulator::run_with(&self.lab, core, &options, &self.interrupt, run)?;
        let result = &emulated.result;
        if result.completed * 100 < result.procedures * 98 {
            let complaints = result.complaints().join(", ");
            return Err(Failure(format!(
                "{} of {} service requests were done: {complaints}; the load is too high for this machine",
                result.completed, result.procedures
            )));
        }
        Ok((watch.outcome(result.steady_began_unix_us, result.steady_seconds, rate), emulated))
    }
}

/// Readings of the core during a load.
struct Watch {
    size: Size,
    /// Number of registered UEs when those of the load have registered.
    registered: usize,
    /// True if UEs of all hosts are active.
    of_all_hosts: bool,
    /// Host of the active UEs, from when all UEs are registered, with the time of that and the CPU
    /// times until then.
    owner: Option<(usize, Instant, CpuTimes)>,
    /// CPU use of the idle cluster, in processors.
    idle: Option<CpuTimes>,
    /// Unix time in microseconds, CPU times and served procedures.
    readings: Vec<(u64, CpuTimes, ServedProcedures)>,
    read_at: Instant,
}

impl Watch {
    fn new(size: Size, registered: usize, of_all_hosts: bool) -> Self {
        Watch { size, registered, of_all_hosts, owner: None, idle: None, readings: Vec::new(), read_at: Instant::now() }
    }

    /// Chooses the active UEs when all UEs are registered and the idle cluster was measured, and
    /// reads the core twice per second from then on.
    fn work(&mut self, core: &Core) -> Result<(), Failure> {
        const EVERY: Duration = Duration::from_millis(500);
        if self.read_at.elapsed() < EVERY.min(self.size.idle) {
            return Ok(());
        }
        self.read_at = Instant::now();
        match (self.owner, self.idle) {
            (None, _) if core.registered()? < self.registered => {}
            (None, _) => {
                let mut by_host = core.subscribers_by_host()?;
                if self.of_all_hosts {
                    by_host = vec![by_host.into_iter().flatten().collect()];
                }
                let most = by_host.into_iter().enumerate().max_by_key(|(_, ues)| ues.len());
                let Some((owner, mut ues)) = most else { return Err(Failure("bug: the cluster has no hosts".into())) };
                let part = format!("{ACTIVE_FILE}.part");
                // UEs of an earlier load have lower numbers.
                ues.sort_unstable();
                std::fs::write(&part, ues[ues.len().saturating_sub(self.size.active)..].join("\n"))?;
                self.owner = Some((owner, Instant::now(), CpuTimes::read(core, owner)?));
            }
            (Some((owner, since, before)), None) if since.elapsed() >= self.size.idle => {
                let seconds = since.elapsed().as_secs_f64();
                let used = CpuTimes::read(core, owner)?.zip(before, |now, before| (now - before) / seconds);
                self.idle = Some(used);
                std::fs::rename(format!("{ACTIVE_FILE}.part"), ACTIVE_FILE)?;
            }
            (Some(_), None) => {}
            (Some((owner, ..)), Some(_)) => {
                let unix = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
                let served = core.procedures_served()?.into_iter().flatten().sum();
                self.readings.push((unix.as_micros() as u64, CpuTimes::read(core, owner)?, served));
            }
        }
        Ok(())
    }

    /// Returns the CPU time per request and the share of replicas in the measured part of a load.
    fn outcome(&self, began_us: u64, seconds: f64, rate: u32) -> Outcome {
        let within = began_us + self.size.settle.as_micros() as u64..=began_us + (seconds * 1e6) as u64;
        let mut within = self.readings.iter().filter(|(at, ..)| within.contains(at));
        let (Some(first), Some(last)) = (within.next(), within.next_back()) else { return Outcome::default() };
        let elapsed = (last.0 - first.0) as f64 / 1e6;
        let used = last.1.zip(first.1, |last, first| (last - first) / elapsed);
        let cpu = used.zip(self.idle.unwrap_or_default(), |used, idle| (used - idle) * 1e6 / f64::from(rate));
        let (owner, replica) = (last.2.by_owner - first.2.by_owner, last.2.by_replica - first.2.by_replica);
        Outcome { cpu, share: replica as f64 / (owner + replica).max(1) as f64, ..Outcome::default() }
    }
}

/// Variants from which the cost of a replica follows.
struct ReplicaVariants {
    /// Who serves, in the names of figures.
    serving_host: &'static str,
    owner: Variant,
    turns: Variant,
    no_ack: Variant,
    /// Mark of the added one-way delays.
    delays: f64,
    /// True if the cost has marks.
    has_marks: bool,
}

const REPLICA_VARIANTS: [ReplicaVariants; 3] = [
    ReplicaVariants {
        serving_host: "the replica of 1",
        owner: OWNER,
        turns: TURNS,
        no_ack: NO_ACK,
        delays: FIRST_DELAYS,
        has_marks: true,
    },
    ReplicaVariants {
        serving_host: "a replica of 2, in the mean",
        owner: OWNER_OF_TWO,
        turns: TURNS_OF_TWO,
        no_ack: NO_ACK,
        delays: OTHER_DELAYS,
        has_marks: false,
    },
    ReplicaVariants {
        serving_host: "the replica of 1, inline",
        owner: INLINE_OWNER,
        turns: INLINE_TURNS,
        no_ack: INLINE_NO_ACK,
        delays: FIRST_DELAYS,
        has_marks: true,
    },
];

/// Returns the outcome of a variant.
fn outcome_of(round: &Round, variant: Variant) -> Outcome {
    VARIANTS.iter().position(|other| *other == variant).map_or_else(Outcome::default, |at| round[at])
}

/// Returns the one-way delay between two hosts in microseconds: with an acknowledgement an effect
/// waits for two.
fn one_way_us(round: &Round, owner: Variant, no_ack: Variant) -> f64 {
    (outcome_of(round, owner).latency_us - outcome_of(round, no_ack).latency_us) / 2.0
}

fn figures(rounds: &[Round]) -> Result<Vec<Figure>, Failure> {
    let each = |value: &dyn Fn(&Round) -> f64| {
        Measured::each(rounds, value).ok_or_else(|| Failure("nothing was measured".into()))
    };
    let of = |variant: Variant, value: fn(&Outcome) -> f64| each(&|round| value(&outcome_of(round, variant)));
    let total = |variant: Variant| of(variant, |outcome| outcome.cpu.total());
    let hosts = |variant: Variant| of(variant, |outcome| outcome.cpu.hosts());
    let mut figures = vec![
        Figure::new("CPU, served by the owner, 1 replica", "us", total(OWNER)?),
        Figure::new("CPU, served by the owner, 2 replicas", "us", total(OWNER_OF_TWO)?),
        Figure::new("CPU, served by the owner, 1 replica, inline", "us", total(INLINE_OWNER)?),
        Figure::new("latency, served by the owner, 1 replica", "us", of(OWNER, |outcome| outcome.latency_us)?),
        Figure::new(
            "latency, served by the owner, 1 replica, inline",
            "us",
            of(INLINE_OWNER, |outcome| outcome.latency_us)?,
        ),
        Figure::new(
            "one-way delay between hosts, with wake-ups",
            "us",
            each(&|round| one_way_us(round, OWNER, NO_ACK))?,
        ),
        Figure::new("CPU of the hosts, 1 shard", "us", hosts(ONE_SHARD)?),
        Figure::new("CPU of the hosts, 2 shards", "us", hosts(TWO_SHARDS)?),
        Figure::new(
            "requests per CPU-second of a shard, of two by of one",
            "",
            each(&|round| 2.0 * outcome_of(round, ONE_SHARD).cpu.hosts() / outcome_of(round, TWO_SHARDS).cpu.hosts())?,
        )
        .mark(Bound::AtLeast(TWO_BY_ONE)),
        Figure::new("CPU of vireo run, 1 shard", "us", total(ONE_OF_RUN)?),
        Figure::new("CPU of vireo run, 2 shards with copies", "us", total(TWO_OF_RUN)?),
        Figure::new("memory of vireo run, 1 shard", "MiB", of(ONE_OF_RUN, |outcome| outcome.memory_mib)?),
        Figure::new("memory of vireo run, 2 shards with copies", "MiB", of(TWO_OF_RUN, |outcome| outcome.memory_mib)?),
    ];
    for variants in REPLICA_VARIANTS {
        figures.extend(replica_figures(&variants, rounds)?);
    }
    Ok(figures)
}

/// Returns the figures of procedures that a replica serves; none if it served too few.
fn replica_figures(variants: &ReplicaVariants, rounds: &[Round]) -> Result<Vec<Figure>, Failure> {
    let ReplicaVariants { serving_host, owner, turns, no_ack, delays, has_marks } = *variants;
    let of = |round: &Round| ByReplica::from_mixture(&outcome_of(round, owner), &outcome_of(round, turns));
    if !rounds.iter().all(|round| of(round).is_some()) {
        return Ok(Vec::new());
    }
    let each = |value: &dyn Fn(&Round) -> f64| {
        Measured::each(rounds, value).ok_or_else(|| Failure("nothing was measured".into()))
    };
    let replica = |value: &dyn Fn(&ByReplica, &Outcome, &Round) -> f64| {
        each(&|round| of(round).map_or(f64::NAN, |replica| value(&replica, &outcome_of(round, owner), round)))
    };
    let conflicts = |round: &Round| {
        let turns = outcome_of(round, turns);
        turns.refused as f64 * 100.0 / turns.proposals.max(1) as f64
    };
    let named = |what: &str| format!("{what}, served by {serving_host}");
    let more = Figure::new(
        named("CPU beyond that of the owner"),
        "%",
        replica(&|replica, owner, _| (replica.cpu.total() / owner.cpu.total() - 1.0) * 100.0)?,
    );
    let part = Figure::new(
        named("CPU of the owner, of all"),
        "%",
        replica(&|replica, _, _| replica.cpu.owner * 100.0 / replica.cpu.total())?,
    );
    Ok(vec![
        Figure::new(named("CPU"), "us", replica(&|replica, _, _| replica.cpu.total())?),
        if has_marks { more.mark(Bound::AtMost(MORE_CPU)) } else { more },
        if has_marks { part.mark(Bound::AtMost(OWNERS_PART)) } else { part },
        Figure::new(
            named("CPU of the owner, of what it needs to serve"),
            "%",
            replica(&|replica, owner, _| replica.cpu.owner * 100.0 / owner.cpu.owner)?,
        ),
        Figure::new(
            named("added one-way delays"),
            "",
            replica(&|replica, outcome, round| {
                (replica.latency_us - outcome.latency_us) / one_way_us(round, owner, no_ack)
            })?,
        )
        .mark(Bound::AtMost(delays)),
        Figure::new(named("proposals refused"), "%", each(&conflicts)?).mark(Bound::Below(CONFLICTS)),
    ])
}

fn notes(rounds: &[Round]) -> Vec<String> {
    let mut notes = vec![
        "All procedures are of UEs of one host. CPU is that of balancer, controller, UPF and hosts without what the idle \
         cluster uses; a service request includes its release."
            .to_owned(),
        "With steering.inter = \"round-robin\" owner and replicas serve in turn. The values of replicas follow from the \
         mixture and from the owner alone. With 2 replicas they are the mean of both."
            .to_owned(),
        "A one-way delay is half of what an acknowledgement by one replica adds to the latency of the owner. It contains \
         the wake-ups of the threads."
            .to_owned(),
        "A shard is a host that runs the steps on its own thread. Two shards with a core each serve twice what one serves, \
         by the CPU time that a request costs at one shard and at two. The CPU time of vireo run is that of all its \
         processes; two shards of it have copies of each other's UEs."
            .to_owned(),
    ];
    let is_missing = |round: &Round| {
        let of = |variants: &ReplicaVariants| (outcome_of(round, variants.owner), outcome_of(round, variants.turns));
        REPLICA_VARIANTS.iter().map(of).any(|(owner, turns)| ByReplica::from_mixture(&owner, &turns).is_none())
    };
    if rounds.iter().any(is_missing) {
        notes.push("Replicas of a variant served too few procedures: their figures are missing.".to_owned());
    }
    notes
}

#[cfg(test)]
mod tests {
    use super::*;
    use vireo_config::Config;
    use vireo_lab::provision::config;

    #[test]
    fn every_variant_configuration_is_accepted() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("vireo.toml");
        for variant in VARIANTS {
            std::fs::write(&path, config(&variant.options(10))).unwrap();
            let config = Config::load(Some(&path)).unwrap_or_else(|e| panic!("{}: {e}", variant.name));
            let has_copies = variant.shards.is_none() || variant == TWO_OF_RUN;
            assert_eq!(config.cluster.replication.is_on(), has_copies, "{}", variant.name);
            assert_eq!(config.shards, if variant == TWO_OF_RUN { 2 } else { 1 }, "{}", variant.name);
            if variant.shards.is_none() {
                assert_eq!(config.cluster.replication.replicas, variant.replicas);
            }
        }
    }

    #[test]
    fn replica_cost_follows_from_mixture() {
        let cpu = |owner, replicas| CpuTimes { balancer: 10.0, owner, replicas };
        let of =
            |cpu, latency_us, share| Outcome { cpu, latency_us, share, proposals: 5000, refused: 1, memory_mib: 0.0 };
        let owner = of(cpu(40.0, 10.0), 500.0, 0.0);
        // The replica serves half: 20 us of the owner and 38 us of the replica.
        let turns = of(cpu(30.0, 24.0), 450.0, 0.5);
        let replica = ByReplica::from_mixture(&owner, &turns).unwrap();
        assert_eq!((replica.cpu, replica.latency_us), (cpu(20.0, 38.0), 400.0));
        assert_eq!(ByReplica::from_mixture(&owner, &of(cpu(40.0, 10.0), 500.0, 0.0)), None);
        let shards = [of(cpu(40.0, 0.0), 0.0, 0.0), of(cpu(42.0, 0.0), 0.0, 0.0)];
        let [one, two] = shards;
        let no_ack = of(cpu(40.0, 10.0), 300.0, 0.0);
        let round = [owner, turns, owner, turns, no_ack, one, two, one, two, owner, turns, no_ack];
        let figures = figures(&[round]).unwrap();
        let figure = |name: &str| figures.iter().find(|figure| figure.name == name).unwrap();
        assert_eq!(figure("one-way delay between hosts, with wake-ups").ours.median, 100.0);
        assert_eq!(figure("added one-way delays, served by the replica of 1").ours.median, -1.0);
        assert!(
            (figure("requests per CPU-second of a shard, of two by of one").ours.median - 80.0 / 42.0).abs() < 1e-9
        );
        let more = figure("CPU beyond that of the owner, served by the replica of 1");
        assert!((more.ours.median - 13.333).abs() < 0.01 && more.met == Some(true), "{more:?}");
        assert_eq!(figure("CPU of the owner, of all, served by the replica of 1").met, Some(true));
        assert_eq!(figure("proposals refused, served by the replica of 1").ours.median, 0.02);
    }

    #[test]
    fn idle_use_is_not_a_cost() {
        let size = Size { settle: Duration::from_secs(1), ..Size::new(true) };
        let times = |owner| CpuTimes { owner, ..CpuTimes::default() };
        let mut watch = Watch::new(size, 0, false);
        watch.idle = Some(times(0.01));
        let served = |by_owner, by_replica| ServedProcedures { by_owner, by_replica };
        watch.readings = vec![
            (1_500_000, times(5.0), served(0, 0)),
            (2_000_000, times(6.0), served(10, 0)),
            (4_000_000, times(6.22), served(110, 100)),
        ];
        let outcome = watch.outcome(1_000_000, 4.0, 1000);
        assert!((outcome.cpu.owner - 100.0).abs() < 1e-6 && outcome.share == 0.5, "{outcome:?}");
    }
}
