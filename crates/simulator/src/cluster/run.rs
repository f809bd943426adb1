//! Event loop of the cluster simulation.

use super::clock::{Clock, Nanos};
use super::host::{Host, Number, Shares};
use super::outcome::{Outcome, PoolCounters};
use super::workload::{KINDS, Procedure, Slice, Workload, WorkloadError};
use super::{Profile, Setup};
use vireo_core::placement::balance::HostId;
use vireo_core::placement::balance::load_table::LoadTable;
use vireo_core::placement::balance::maglev::Maglev;
use vireo_core::placement::balance::map::{BucketMap, SliceBuckets};
use vireo_core::placement::balance::ring::{Ring, WeightedHost};
use vireo_core::placement::balance::steer::{self, HostSet, Request};
use vireo_core::schedule::dispatch;
use vireo_core::schedule::estimate::ServiceTime;
use vireo_core::schedule::kind::NfKind;
use vireo_emulator::load::{Arrivals, Rng};
use vireo_types::{Bucket, Duration, Instant};

/// Queue samples between two reports.
const SAMPLES_PER_REPORT: u64 = 8;
/// Number of missed reports after which a host's load is unknown.
const STALE: u64 = 3;

/// Maximum number of UEs whose order of arrival is stored.
const MOST_ORDERED: u32 = 1 << 20;

/// Event of the simulation.
#[derive(Debug)]
enum Event {
    /// A procedure of a slice begins at the balancer.
    Arrives(usize),
    /// A message of a procedure reaches its NF.
    MessageArrives(Number),
    /// A core has processed a message.
    Done { host: u16, core: usize, took: Nanos },
    /// The balancer sees the end of a procedure.
    Ends { host: u16, pool: usize, counted: ServiceTime },
    /// A host samples its queues; at each [`SAMPLES_PER_REPORT`]th sample it reports.
    Sample { host: u16, count: u64 },
}

/// Procedure in progress.
#[derive(Clone, Copy, Debug)]
struct Running {
    host: u16,
    /// Service time that the balancer counts for it.
    counted: ServiceTime,
    core: Option<usize>,
    pool: usize,
    remaining: u32,
    /// Core time of one message.
    each: Nanos,
    between: Nanos,
    /// Arrival of its message in the core, and the core time of the messages before.
    arrived: Nanos,
    spent: Nanos,
    measured: bool,
}

/// Procedure that begins.
#[derive(Clone, Copy, Debug)]
struct Arriving {
    ue: u32,
    /// Hash of the UE.
    own: u64,
    bucket: Bucket,
    pool: usize,
    messages: u32,
    each: Nanos,
    between: Nanos,
}

/// Kind of procedure of a slice, prepared for the simulation.
#[derive(Debug)]
struct Pool {
    slo: Duration,
    time: ServiceTime,
    tally: PoolCounters,
}

/// Slice, prepared for the simulation.
struct SliceSource<'a> {
    slice: &'a Slice,
    arrivals: Arrivals,
    buckets: Vec<Bucket>,
    parts: f64,
    /// Order of arrival by UE, where it matters and there are not too many UEs.
    order: Box<[u32]>,
}

impl SliceSource<'_> {
    /// Returns the order of arrival of a UE.
    fn order_of(&self, drawn: &Arriving) -> u64 {
        // A random order is equally even for many UEs.
        self.order.get(drawn.ue as usize).map_or(drawn.own, |order| u64::from(*order))
    }
}

struct ClusterRun<'a> {
    setup: Setup,
    clock: Clock<Event>,
    rng: Rng,
    map: BucketMap,
    fleet: HostSet,
    ring: Ring,
    maglev: Maglev,
    load_table: LoadTable,
    shares: Shares,
    hosts: Vec<Host>,
    pools: Vec<Option<Pool>>,
    sources: Vec<SliceSource<'a>>,
    running: Vec<Option<Running>>,
    free: Vec<Number>,
    turn: u64,
    /// Salt of the UE identifiers, which decide the placement of their state.
    salt: u64,
    measured_from: Nanos,
}

/// Runs a workload on a cluster for this time, after an uncounted warm-up.
pub fn simulate(
    setup: Setup,
    workload: &Workload,
    seed: u64,
    warm_up: Duration,
    length: Duration,
) -> Result<Outcome, WorkloadError> {
    workload.patterns()?;
    let one_of = setup.sample.max(1);
    let sampled = workload.scaled(1.0 / f64::from(one_of));
    let setup = Setup { speed: setup.speed / f64::from(one_of), ..setup };
    let mut world = ClusterRun::new(setup, &sampled, seed, warm_up)?;
    let end = nanos(warm_up).saturating_add(nanos(length));
    let mut before = None;
    while let Some(event) = world.clock.next_before(end) {
        if before.is_none() && world.clock.now() >= world.measured_from {
            before = Some((world.worked(), world.woken()));
        }
        world.on_event(event);
    }
    let before = before.unwrap_or_else(|| (world.worked(), world.woken()));
    Ok(world.outcome(&sampled, &before, length))
}

/// Procedure of a trace.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Arrival {
    /// Seconds since the measured time began.
    pub at_s: f64,
    /// Seconds of work on one core of a host, alone.
    pub work_s: f64,
    /// Latency objective, in seconds.
    pub slo_s: f64,
}

/// Returns the procedures that begin in the measured time, as in [`simulate`].
pub fn trace(
    setup: Setup,
    workload: &Workload,
    seed: u64,
    warm_up: Duration,
    length: Duration,
) -> Result<Vec<Arrival>, WorkloadError> {
    workload.patterns()?;
    let one_of = setup.sample.max(1);
    let sampled = workload.scaled(1.0 / f64::from(one_of));
    let setup = Setup { speed: setup.speed / f64::from(one_of), ..setup };
    let mut world = ClusterRun::new(setup, &sampled, seed, warm_up)?;
    let (from, mut arrivals) = (nanos(warm_up), Vec::new());
    while let Some(event) = world.clock.next_before(from.saturating_add(nanos(length))) {
        let Event::Arrives(slice) = event else { continue };
        let drawn = world.drawn(slice);
        world.arrives_next(slice);
        let at = world.clock.now();
        let pool = drawn.and_then(|drawn| world.pools[drawn.pool].as_ref().map(|pool| (drawn, pool.slo)));
        if let Some((drawn, slo)) = pool.filter(|_| at >= from) {
            let work_s = drawn.each as f64 * f64::from(drawn.messages) / 1e9;
            arrivals.push(Arrival { at_s: (at - from) as f64 / 1e9, work_s, slo_s: slo.0 as f64 / 1e6 });
        }
    }
    Ok(arrivals)
}

impl<'a> ClusterRun<'a> {
    fn new(setup: Setup, workload: &'a Workload, seed: u64, warm_up: Duration) -> Result<Self, WorkloadError> {
        let patterns = workload.patterns()?;
        let hosts: Vec<HostId> = (0..setup.hosts).map(HostId).collect();
        let weighted: Vec<WeightedHost> = hosts.iter().map(|host| WeightedHost { host: *host, weight: 1.0 }).collect();
        let part =
            |slice: &Slice| SliceBuckets { weight: slice.rate, replicas: setup.replicas, hosts: weighted.clone() };
        let map = BucketMap::new(1, &workload.slices.iter().map(part).collect::<Vec<_>>());
        let slots = workload.slices.len() * KINDS;
        let mut pools: Vec<Option<Pool>> = (0..slots).map(|_| None).collect();
        for (n, slice) in workload.slices.iter().enumerate() {
            for p in &slice.procedures {
                let factor = match setup.profile {
                    Profile::Mean => slice.mean_factor(),
                    Profile::Heaviest => slice.heavy.map_or(1.0, |heavy| heavy.factor.max(1.0)),
                };
                let time = p.time_us * factor * 1000.0 / setup.speed;
                let slo = Duration((p.slo_ms * 1000.0) as u64);
                pools[n * KINDS + p.kind.index()] =
                    PoolCounters::new().map(|tally| Pool { slo, time: ServiceTime::new(time as u64), tally });
            }
        }
        let source = |((n, slice), pattern): ((usize, &'a Slice), _)| SliceSource {
            slice,
            arrivals: Arrivals::new(&pattern, slice.rate, seed.wrapping_add(n as u64)),
            buckets: map.buckets(n).collect(),
            parts: slice.procedures.iter().map(|p| p.part).sum(),
            order: if setup.bound && slice.ues <= MOST_ORDERED { shuffled(slice.ues, seed) } else { Box::default() },
        };
        let sources = workload.slices.iter().enumerate().zip(patterns).map(source).collect();
        let shares = Shares::new(pools.iter().map(|pool| pool.as_ref().map(|pool| pool.slo)).collect());
        let mut world = ClusterRun {
            setup,
            clock: Clock::new(),
            rng: Rng::new(seed),
            ring: Ring::new(&weighted, seed),
            maglev: Maglev::new(&hosts),
            fleet: HostSet::new(hosts).with(setup.prefer),
            load_table: LoadTable::new(slots, Duration(setup.report_every.0.saturating_mul(STALE)))
                .with(setup.estimate),
            shares,
            hosts: Vec::new(),
            pools,
            sources,
            map,
            running: Vec::new(),
            free: Vec::new(),
            turn: 0,
            salt: Rng::new(seed ^ 0x5eed).bits(),
            measured_from: nanos(warm_up),
        };
        for host in 0..setup.hosts {
            let begins = setup.cap.map(|cap| (cap, f64::from(host) / f64::from(setup.hosts)));
            world.hosts.push(Host::new(setup.cores, slots, begins));
        }
        for slice in 0..world.sources.len() {
            world.arrives_next(slice);
        }
        for host in 0..setup.hosts {
            // The hosts report at different times.
            let after = (world.rng.unit() * world.look_every() as f64) as Nanos;
            world.clock.at(after, Event::Sample { host, count: host.into() });
        }
        Ok(world)
    }

    fn on_event(&mut self, event: Event) {
        match event {
            Event::Arrives(slice) => {
                self.begins(slice);
                self.arrives_next(slice);
            }
            Event::MessageArrives(number) => self.on_message(number),
            Event::Done { host, core, took } => self.done(host, core, took),
            Event::Ends { host, pool, counted } => self.load_table.ended(HostId(host), pool, counted),
            Event::Sample { host, count } => self.sample(host, count),
        }
    }

    fn arrives_next(&mut self, slice: usize) {
        let at = self.sources[slice].arrivals.next_s();
        self.clock.at((at * 1e9) as Nanos, Event::Arrives(slice));
    }

    /// Draws the UE and kind of a slice's next procedure, independently of the choice of hosts.
    fn drawn(&mut self, number: usize) -> Option<Arriving> {
        let source = &self.sources[number];
        let ue = ue(source.slice, &mut self.rng);
        let own = Rng::new((u64::from(ue) << 8 | number as u64) ^ self.salt).bits();
        let procedure = pick(source, &mut self.rng)?;
        let bucket = source.buckets[(own as usize).checked_rem(source.buckets.len())?];
        let messages = procedure.messages;
        let each = procedure.time_us * source.slice.factor(ue) * 1000.0 / f64::from(messages) / self.setup.speed;
        let (each, between) = (each as Nanos, (procedure.between_ms * 1e6) as Nanos);
        Some(Arriving { ue, own, bucket, pool: number * KINDS + procedure.kind.index(), messages, each, between })
    }

    /// Begins a procedure of a slice: the balancer chooses its host.
    fn begins(&mut self, number: usize) {
        let Some(drawn) = self.drawn(number) else { return };
        let Arriving { bucket, own, pool, .. } = drawn;
        let Some(Pool { slo, time, .. }) = &self.pools[pool] else { return };
        self.turn += 1;
        let owners = self.map.owners(bucket);
        let turn = if self.setup.bound { self.sources[number].order_of(&drawn) } else { self.turn };
        let request = Request { bucket, owners, pool, time: *time, slo: *slo, turn };
        let now = Instant(self.clock.now() / 1000);
        // These two policies hash UEs: buckets would be coarser than the comparison of the papers.
        let host = match self.setup.inter {
            steer::Policy::ConsistentHash => self.ring.owners(own).next(),
            steer::Policy::Maglev => self.maglev.host(own),
            policy => {
                steer::select_host(policy, &request, &self.fleet, &self.load_table, now).map(|choice| choice.host)
            }
        };
        let Some(host) = host else { return };
        let counted = *time;
        self.load_table.sent(host, pool, counted);
        let running = Running {
            host: host.0,
            counted,
            core: None,
            pool,
            remaining: drawn.messages,
            each: drawn.each,
            between: drawn.between,
            arrived: 0,
            spent: 0,
            measured: self.clock.now() >= self.measured_from,
        };
        let number = self.keep(running);
        self.clock.after(nanos(self.setup.hop), Event::MessageArrives(number));
    }

    fn keep(&mut self, running: Running) -> Number {
        match self.free.pop() {
            Some(number) => {
                self.running[number as usize] = Some(running);
                number
            }
            None => {
                self.running.push(Some(running));
                self.running.len() as Number - 1
            }
        }
    }

    /// Handles a message at its host. The forwarder chooses the NF of a procedure's first message;
    /// later ones go to the same NF.
    fn on_message(&mut self, number: Number) {
        let now = self.clock.now();
        let Some(running) = &mut self.running[number as usize] else { return };
        running.arrived = now;
        let (host, pool) = (running.host, running.pool);
        let at = usize::from(host);
        let core = running.core.or_else(|| {
            let loads = self.hosts[at].loads(pool, &mut self.shares);
            let (time, slo) = self.pools[pool].as_ref().map(|p| (p.time, p.slo))?;
            let choice = dispatch::select_nf(self.setup.intra, &loads, time, slo, self.turn, number.into())?;
            Some(choice.nf)
        });
        let Some(core) = core else { return };
        running.core = Some(core);
        let wakes = self.hosts[at].enqueue(core, pool, number);
        let wake = nanos(self.setup.wake) as f64 / self.setup.speed;
        self.serve(host, core, if wakes { wake as Nanos } else { 0 });
    }

    /// Starts the next work of a core, if the core is free. `more` is added to its time.
    fn serve(&mut self, host: u16, core: usize, more: Nanos) {
        let next = self.hosts[usize::from(host)].next(core, &mut self.shares);
        if let Some(each) = next.and_then(|number| self.running[number as usize]).map(|running| running.each) {
            let took = each + more;
            let ends = self.hosts[usize::from(host)].ends(self.clock.now(), took);
            self.clock.at(ends, Event::Done { host, core, took });
        }
    }

    fn done(&mut self, host: u16, core: usize, took: Nanos) {
        let number = self.hosts[usize::from(host)].done(core, took);
        if let Some(number) = number
            && let Some(running) = &mut self.running[number as usize]
        {
            running.spent += self.clock.now() - running.arrived;
            running.remaining -= 1;
            if running.remaining > 0 {
                let between = running.between + 2 * nanos(self.setup.hop);
                self.clock.after(between, Event::MessageArrives(number));
            } else {
                let Running { pool, spent, measured, .. } = *running;
                // The last answer takes one hop, too.
                self.clock.after(nanos(self.setup.hop), Event::Ends { host, pool, counted: running.counted });
                if let Some(pool) = self.pools[pool].as_mut().filter(|_| measured) {
                    pool.tally.count(spent as f64 / 1000.0, pool.slo.0 as f64);
                }
                self.running[number as usize] = None;
                self.free.push(number);
            }
        }
        self.serve(host, core, 0);
    }

    fn sample(&mut self, host: u16, count: u64) {
        let every = self.look_every();
        let own = &mut self.hosts[usize::from(host)];
        own.sample(every);
        if count.is_multiple_of(SAMPLES_PER_REPORT) {
            let (cpu, pools) = own.report(&mut self.shares);
            self.load_table.report(HostId(host), cpu, &pools, Instant(self.clock.now() / 1000));
        }
        self.clock.after(every, Event::Sample { host, count: count + 1 });
    }

    fn look_every(&self) -> Nanos {
        (nanos(self.setup.report_every) / SAMPLES_PER_REPORT).max(1)
    }

    fn worked(&self) -> Vec<Nanos> {
        self.hosts.iter().map(|host| host.worked_in_all).collect()
    }

    fn woken(&self) -> u64 {
        self.hosts.iter().map(|host| host.woken).sum()
    }

    fn outcome(&self, workload: &Workload, (before, woken): &(Vec<Nanos>, u64), length: Duration) -> Outcome {
        let room = |host: &Host| nanos(length) as f64 * host.part();
        let hosts = self.hosts.iter().zip(before);
        let cpu = hosts.map(|(host, before)| (host.worked_in_all - before) as f64 / room(host)).collect();
        let pools = self.pools.iter().enumerate().filter_map(|(n, pool)| {
            let slice = workload.slices.get(n / KINDS)?;
            Some(pool.as_ref()?.tally.outcome(&slice.name, NfKind::ALL[n % KINDS].name()))
        });
        let under_way = self.running.iter().flatten().filter(|running| running.measured).count() as u64;
        Outcome { pools: pools.collect(), cpu, woken: self.woken() - woken, under_way }
    }
}

/// Returns the order of arrival of UEs, which differs from that of their ranks.
fn shuffled(ues: u32, seed: u64) -> Box<[u32]> {
    let mut rng = Rng::new(seed ^ 0x0bde);
    let mut order: Box<[u32]> = (0..ues).collect();
    for last in (1..order.len()).rev() {
        order.swap(last, rng.below(last + 1));
    }
    order
}

/// Draws the rank of the active UE of a slice.
fn ue(slice: &Slice, rng: &mut Rng) -> u32 {
    (slice.rank(rng.unit()) as u32).min(slice.ues - 1)
}

/// Draws the kind of procedure.
fn pick<'a>(source: &SliceSource<'a>, rng: &mut Rng) -> Option<&'a Procedure> {
    let mut remaining = rng.unit() * source.parts;
    let procedures = &source.slice.procedures;
    let found = procedures.iter().find(|p| {
        remaining -= p.part;
        remaining < 0.0
    });
    found.or(procedures.last())
}

fn nanos(duration: Duration) -> Nanos {
    duration.0.saturating_mul(1000)
}
