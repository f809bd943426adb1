//! Event loop of the cluster simulation.

use super::arrivals::{Arriving, Traffic, sampled};
use super::balancer::{Balancer, Delivery, Message};
use super::clock::{Clock, Nanos};
use super::host::{Host, Job, Part, Shares};
use super::host_weights::{HostWeights, bucket_map};
use super::outcome::{Outcome, PoolCounters, ServedCounts};
use super::workload::{KINDS, Slice, Workload, WorkloadError};
use super::{Binding, Profile, Setup};
use std::collections::HashMap;
use vireo_core::placement::balance::HostId;
use vireo_core::placement::balance::load_table::PoolReport;
use vireo_core::placement::balance::maglev::Maglev;
use vireo_core::placement::balance::map::BucketMap;
use vireo_core::placement::balance::ring::{Ring, WeightedHost};
use vireo_core::placement::balance::steer::Policy;
use vireo_core::placement::balancer::Serve;
use vireo_core::placement::message::{PoolLoad, Receiver};
use vireo_core::schedule::dispatch;
use vireo_core::schedule::estimate::ServiceTime;
use vireo_core::schedule::kind::NfKind;
use vireo_emulator::load::Rng;
use vireo_types::{Bucket, Duration, Instant, Ltmsi};

/// Queue samples between two reports.
const SAMPLES_PER_REPORT: u64 = 8;
/// Objective of kinds that a slice does not have.
const NO_OBJECTIVE: Duration = Duration::from_secs(1);

/// Event of the simulation.
#[derive(Debug)]
enum Event {
    /// A procedure of a slice begins.
    Arrives(usize),
    /// The next message of the procedure in a slot reaches the balancer.
    Sent(usize),
    /// A message reaches its host.
    Delivered(Delivery),
    /// A core has completed its work.
    Done { host: u16, core: usize, took: Nanos },
    /// A proposal reaches the owner.
    Proposed(Job),
    /// The balancer learns that the owner has committed an input.
    Acknowledged { owner: u16, input: u64 },
    /// Inputs at serving hosts may be late.
    RecallDue,
    /// A host samples its queues; at each [`SAMPLES_PER_REPORT`]th sample it reports.
    Sample { host: u16, count: u64 },
}

/// Procedure in progress.
#[derive(Clone, Copy, Debug)]
struct Running {
    start: Arriving,
    /// Its number, which no other procedure in the slot has.
    number: u32,
    /// Bucket of the UE, once the balancer has chosen its owner.
    bucket: Option<Bucket>,
    /// Position of the message in progress.
    index: u32,
    /// Host and core of the NF that had the last message.
    nf: Option<(u16, usize)>,
    /// Time at which the message reached a host first, and the time of the messages before.
    arrived: Option<Nanos>,
    spent: Nanos,
    /// True if the owner has the message itself: it then refuses a proposal.
    is_at_owner: bool,
    /// True if the owner commits a proposal.
    is_committing: bool,
    /// True if a replica has served one of the messages.
    by_replica: bool,
    measured: bool,
}

/// Kind of procedure of a slice, prepared for the simulation.
#[derive(Debug)]
struct Pool {
    slo: Duration,
    time: ServiceTime,
    tally: PoolCounters,
}

/// Hosts of UEs by tables without buckets ([`Binding::Ue`]).
struct UeTable {
    ring: Ring,
    maglev: Maglev,
}

struct ClusterRun<'a> {
    setup: Setup,
    clock: Clock<Event>,
    map: BucketMap,
    ue_table: UeTable,
    balancer: Option<Balancer>,
    host_weights: Option<HostWeights>,
    shares: Shares,
    hosts: Vec<Host>,
    pools: Vec<Option<Pool>>,
    traffic: Traffic<'a>,
    running: Vec<Option<Running>>,
    free: Vec<usize>,
    /// Number of procedures that have begun.
    begun: u32,
    /// Buckets of UEs whose owner the balancer has chosen, by slice and UE.
    placed: HashMap<(usize, u32), Bucket>,
    served: ServedCounts,
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
    let (setup, sampled) = sampled(setup, workload);
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
    world.count_overdue(end);
    Ok(world.outcome(&sampled, &before, length))
}

impl<'a> ClusterRun<'a> {
    fn new(setup: Setup, workload: &'a Workload, seed: u64, warm_up: Duration) -> Result<Self, WorkloadError> {
        let slices = workload.slices.len();
        let hosts: Vec<HostId> = (0..setup.hosts).map(HostId).collect();
        let weighted: Vec<WeightedHost> = hosts.iter().map(|host| WeightedHost::new(*host, 1.0)).collect();
        let map = bucket_map(&weighted, slices, setup.replicas);
        let is_ordered = setup.binding == Binding::Ue && setup.inter == Policy::RoundRobin;
        let traffic = Traffic::new(workload, &map, (setup.speed, is_ordered), seed)?;
        let pools = pools(&setup, workload);
        let serve = match setup.binding {
            Binding::Procedure => Some(Serve::Procedure),
            Binding::FirstMessage | Binding::Bucket => Some(Serve::Owner),
            Binding::Ue => None,
        };
        let objective = |n: usize| pools[n].as_ref().map_or(NO_OBJECTIVE, |pool| pool.slo);
        let objectives = (0..slices).map(|slice| std::array::from_fn(|kind| objective(slice * KINDS + kind)));
        let balancer = serve.map(|serve| Balancer::new(&setup, serve, map.clone(), objectives.collect()));
        let mut world = ClusterRun {
            clock: Clock::new(),
            ue_table: UeTable { ring: Ring::new(&weighted, seed), maglev: Maglev::new(&hosts) },
            balancer,
            host_weights: setup.rebalance.map(|pause| HostWeights::new(&hosts, (slices, setup.replicas), pause)),
            shares: Shares::new(pools.iter().map(|pool| pool.as_ref().map(|pool| pool.slo)).collect()),
            hosts: Vec::new(),
            pools,
            traffic,
            map,
            running: Vec::new(),
            free: Vec::new(),
            begun: 0,
            placed: HashMap::new(),
            served: ServedCounts::default(),
            measured_from: nanos(warm_up),
            setup,
        };
        for host in 0..setup.hosts {
            let begins = setup.cap.map(|cap| (cap, f64::from(host) / f64::from(setup.hosts)));
            world.hosts.push(Host::new(setup.cores, world.pools.len(), begins));
        }
        for slice in 0..slices {
            world.arrives_next(slice);
        }
        let mut rng = Rng::new(seed ^ 0x0ff5);
        for host in 0..setup.hosts {
            // The hosts report at different times.
            let after = (rng.unit() * world.look_every() as f64) as Nanos;
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
            Event::Sent(slot) => self.on_sent(slot),
            Event::Delivered(delivery) => self.on_delivered(delivery),
            Event::Done { host, core, took } => self.done(host, core, took),
            Event::Proposed(job) => self.on_proposed(job),
            Event::Acknowledged { owner, input } => {
                let now = self.now();
                self.balancer.iter_mut().for_each(|balancer| balancer.on_done(owner, input, now));
                self.deliver();
            }
            Event::RecallDue => {
                let now = self.now();
                self.balancer.iter_mut().for_each(|balancer| balancer.on_due(now));
                self.deliver();
            }
            Event::Sample { host, count } => self.sample(host, count),
        }
    }

    fn now(&self) -> Instant {
        Instant(self.clock.now() / 1000)
    }

    fn arrives_next(&mut self, slice: usize) {
        let at = self.traffic.next_at(slice);
        self.clock.at(at, Event::Arrives(slice));
    }

    /// Begins a procedure of a slice.
    fn begins(&mut self, slice: usize) {
        let Some(start) = self.traffic.draw(slice).filter(|start| self.has_arrived(start)) else { return };
        self.begun = self.begun.wrapping_add(1);
        let bucket = match self.setup.binding {
            Binding::FirstMessage => self.placed.get(&(slice, start.ue)).copied(),
            Binding::Procedure | Binding::Bucket | Binding::Ue => Some(start.bucket),
        };
        let running = Some(Running {
            start,
            number: self.begun,
            bucket,
            index: 0,
            nf: None,
            arrived: None,
            spent: 0,
            is_at_owner: false,
            is_committing: false,
            by_replica: false,
            measured: self.clock.now() >= self.measured_from,
        });
        let slot = match self.free.pop() {
            Some(slot) => {
                self.running[slot] = running;
                slot
            }
            None => {
                self.running.push(running);
                self.running.len() - 1
            }
        };
        self.on_sent(slot);
    }

    /// Returns true if a UE has arrived at the cluster. If the first message decides, UEs arrive
    /// one after the other during the warm-up, so that each finds the load of the UEs before it.
    fn has_arrived(&self, start: &Arriving) -> bool {
        let part = (start.own >> 32) as f64 / f64::from(u32::MAX);
        self.setup.binding != Binding::FirstMessage || self.clock.now() as f64 >= part * self.measured_from as f64
    }

    /// Passes the next message of a procedure to the balancer.
    fn on_sent(&mut self, slot: usize) {
        let Some(running) = &self.running[slot] else { return };
        let message = Message { slot: slot as u32, procedure: running.number, index: running.index };
        let (start, now) = (running.start, self.now());
        match &mut self.balancer {
            Some(balancer) => {
                let ltmsi = running.bucket.map(|bucket| Ltmsi::new(bucket, start.own as u16));
                balancer.on_message(message, (ltmsi, start.kind), now);
                self.deliver();
            }
            None => {
                let Some(host) = self.host_of_ue(&start) else { return };
                let delivery = Delivery { host: host.0, input: 0, receiver: Receiver::Owner, bucket: None, message };
                self.clock.after(nanos(self.setup.hop), Event::Delivered(delivery));
            }
        }
    }

    /// Returns the host of a UE by the table of the policy.
    fn host_of_ue(&self, drawn: &Arriving) -> Option<HostId> {
        let hosts = u64::from(self.setup.hosts);
        match self.setup.inter {
            Policy::ConsistentHash | Policy::SkewedCh | Policy::LeastLoaded => {
                self.ue_table.ring.owners(drawn.own).next()
            }
            Policy::Maglev => self.ue_table.maglev.host(drawn.own),
            Policy::RoundRobin => Some(HostId(self.traffic.order_of(drawn).checked_rem(hosts)? as u16)),
            Policy::StaticRange => Some(HostId(((u128::from(drawn.own) * u128::from(hosts)) >> 64) as u16)),
        }
    }

    /// Sends the messages that the balancer has routed.
    fn deliver(&mut self) {
        let now = self.now();
        let hop = nanos(self.setup.hop);
        let Some(balancer) = &mut self.balancer else { return };
        for delivery in balancer.take_deliveries() {
            if let (Some(bucket), Some(Some(running))) =
                (delivery.bucket, self.running.get_mut(delivery.message.slot as usize))
                && running.bucket.is_none()
            {
                // The UE gets an LTMSI of its slice in the column of the bucket.
                let slice = running.start.slice;
                let own = Bucket::new(bucket.get() + 1 + slice as u16);
                running.bucket = Some(*self.placed.entry((slice, running.start.ue)).or_insert(own));
            }
            self.clock.after(hop, Event::Delivered(delivery));
        }
        if let Some(due) = balancer.take_due(now) {
            self.clock.at(due.0 * 1000, Event::RecallDue);
        }
    }

    /// Returns the procedure of a message that is in progress.
    fn current(&mut self, message: Message) -> Option<&mut Running> {
        let running = self.running[message.slot as usize].as_mut()?;
        ((running.number, running.index) == (message.procedure, message.index)).then_some(running)
    }

    /// Handles a message at its host. The forwarder chooses the NF of a procedure's first message;
    /// later ones go to the same NF.
    fn on_delivered(&mut self, delivery: Delivery) {
        let (now, cost) = (self.clock.now(), self.setup.serving_cost);
        let Delivery { host, input, receiver, message, .. } = delivery;
        // The owner drops a recalled input that it has committed.
        let Some(running) = self.current(message).filter(|running| !running.is_committing) else { return };
        running.arrived.get_or_insert(now);
        let (part, factor) = match receiver {
            Receiver::ServingHost => (Part::ServingHost, cost.serving_host()),
            Receiver::Owner | Receiver::OwnerAfterServingHost => (Part::Owner, 1.0),
        };
        running.is_at_owner |= part == Part::Owner;
        let (pool, work) = (running.start.pool(), (running.start.each as f64 * factor) as Nanos);
        let bucket = running.bucket.unwrap_or(running.start.bucket);
        let pinned = running.nf.filter(|(own, _)| *own == host).map(|(_, core)| core);
        let Some(core) = pinned.or_else(|| self.select_nf(host, pool, message)) else { return };
        self.running[message.slot as usize].iter_mut().for_each(|running| running.nf = Some((host, core)));
        let job = Job { message, input, bucket, pool, part, work, host };
        let wakes = self.hosts[usize::from(host)].enqueue(core, job);
        self.serve((host, core), wakes);
    }

    fn select_nf(&mut self, host: u16, pool: usize, message: Message) -> Option<usize> {
        let loads = self.hosts[usize::from(host)].loads(pool, &mut self.shares);
        let (time, slo) = self.pools[pool].as_ref().map(|p| (p.time, p.slo))?;
        let turn = u64::from(self.begun);
        Some(dispatch::select_nf(self.setup.intra, &loads, time, slo, turn, message.procedure.into())?.nf)
    }

    /// Handles a proposal at the owner.
    fn on_proposed(&mut self, job: Job) {
        let owner_part = self.setup.serving_cost.owner;
        let is_refused = self.current(job.message).is_none_or(|running| running.is_at_owner);
        let Some(HostId(owner)) = self.map.owners(job.bucket).owner() else { return };
        if let Some(running) = self.current(job.message).filter(|_| !is_refused) {
            running.is_committing = true;
        }
        let part = if is_refused { Part::Refusal } else { Part::Commit };
        // The owner's part is of the same step.
        let step = job.work as f64 / self.setup.serving_cost.serving_host().max(f64::MIN_POSITIVE);
        let job = Job { part, work: (step * owner_part) as Nanos, ..job };
        let (core, wakes) = self.hosts[usize::from(owner)].enqueue_proposal(job);
        self.serve((owner, core), wakes);
    }

    /// Starts the next work of a core, if the core is free. `wakes`: the core was idle.
    fn serve(&mut self, (host, core): (u16, usize), wakes: bool) {
        if let Some(job) = self.hosts[usize::from(host)].next(core, &mut self.shares) {
            let wake = nanos(self.setup.wake) as f64 / self.setup.speed;
            let took = job.work + if wakes { wake as Nanos } else { 0 };
            let ends = self.hosts[usize::from(host)].ends(self.clock.now(), took);
            self.clock.at(ends, Event::Done { host, core, took });
        }
    }

    fn done(&mut self, host: u16, core: usize, took: Nanos) {
        if let Some(job) = self.hosts[usize::from(host)].done(core, took) {
            match job.part {
                Part::Owner | Part::Commit => self.commit(job, host),
                Part::ServingHost => self.clock.after(nanos(self.setup.hop), Event::Proposed(job)),
                Part::Refusal => {}
            }
        }
        self.serve((host, core), false);
    }

    /// Handles the commit of a message by the owner.
    fn commit(&mut self, job: Job, owner: u16) {
        let (now, hop) = (self.clock.now(), nanos(self.setup.hop));
        let has_replicas = self.setup.replicas > 0 && self.setup.hosts > 1;
        let first_replica = self.map.owners(job.bucket).replicas().next();
        let Some(running) = self.current(job.message) else { return };
        running.index += 1;
        let is_last = running.index == running.start.messages;
        // The proposal of the first replica is its copy.
        let is_acknowledged = job.part == Part::Commit && first_replica == Some(HostId(job.host)) && !is_last;
        let effect_at = now + if has_replicas && !is_acknowledged { 2 * hop } else { 0 };
        running.spent += effect_at - running.arrived.take().unwrap_or(now);
        (running.is_at_owner, running.is_committing) = (false, false);
        running.by_replica |= job.part == Part::Commit;
        let (between, slot) = (running.start.between, job.message.slot as usize);
        if job.input != 0 {
            self.clock.at(effect_at + hop, Event::Acknowledged { owner, input: job.input });
        }
        if is_last {
            self.ended(slot);
        } else {
            self.clock.at(effect_at + hop + between, Event::Sent(slot));
        }
    }

    /// Counts a procedure that has ended.
    fn ended(&mut self, slot: usize) {
        let Some(running) = self.running[slot].take() else { return };
        self.free.push(slot);
        if let Some(pool) = self.pools[running.start.pool()].as_mut().filter(|_| running.measured) {
            pool.tally.count(running.spent as f64 / 1000.0, pool.slo.0 as f64);
            self.served.count(running.by_replica);
        }
    }

    /// Counts procedures that are late already and still in progress: the queue of a host may be
    /// longer than the measured time.
    fn count_overdue(&mut self, end: Nanos) {
        for running in self.running.iter_mut().filter(|running| running.is_some_and(|running| running.measured)) {
            let Some(Running { start, spent, arrived, by_replica, .. }) = *running else { continue };
            let spent = spent + arrived.map_or(0, |arrived| end.saturating_sub(arrived));
            let pool = self.pools[start.pool()].as_mut().filter(|pool| spent > nanos(pool.slo));
            if let Some(pool) = pool {
                pool.tally.count_overdue(spent as f64 / 1000.0, pool.slo.0 as f64);
                self.served.count(by_replica);
                *running = None;
            }
        }
    }

    fn sample(&mut self, host: u16, count: u64) {
        let every = self.look_every();
        self.hosts[usize::from(host)].sample(every);
        if count.is_multiple_of(SAMPLES_PER_REPORT) {
            self.report(host);
        }
        self.clock.after(every, Event::Sample { host, count: count + 1 });
    }

    /// Sends the load report of a host to the balancer and the controller.
    fn report(&mut self, host: u16) {
        let now = self.now();
        let (cpu, reports) = self.hosts[usize::from(host)].report(&mut self.shares);
        if let Some(balancer) = &mut self.balancer {
            let load = |(report, pool): (PoolReport, &Option<Pool>)| {
                let PoolReport { backlog, share } = report;
                let time_us = pool.as_ref().map_or(0.0, |pool| pool.time.nanos() as f32 / 1000.0);
                PoolLoad { backlog: backlog as f32, share: share as f32, time_us }
            };
            let known: Vec<PoolLoad> = reports.into_iter().zip(&self.pools).map(load).collect();
            // UEs of unknown slice have the NFs of the first slice.
            let pools = known[..KINDS].iter().chain(&known).copied().collect();
            balancer.on_report(host, (cpu, pools), now);
        }
        let Some(host_weights) = &mut self.host_weights else { return };
        host_weights.on_report(HostId(host), cpu, now);
        if let Some(map) = host_weights.next_map(now) {
            self.map = map.clone();
            self.balancer.iter_mut().for_each(|balancer| balancer.set_map(map.clone(), now));
            self.deliver();
        }
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
        let in_progress = self.running.iter().flatten().filter(|running| running.measured).count() as u64;
        let (recalled, expected_violations) = self.balancer.as_ref().map_or((0, 0), Balancer::counts);
        let served = ServedCounts { recalled, expected_violations, ..self.served };
        Outcome { pools: pools.collect(), cpu, woken: self.woken() - woken, in_progress, served }
    }
}

/// Returns the pools of all slices, by kind.
fn pools(setup: &Setup, workload: &Workload) -> Vec<Option<Pool>> {
    let mut pools: Vec<Option<Pool>> = (0..workload.slices.len() * KINDS).map(|_| None).collect();
    for (n, slice) in workload.slices.iter().enumerate() {
        for p in &slice.procedures {
            let factor = profiled_factor(setup.profile, slice);
            let time = p.time_us * factor * 1000.0 / setup.speed;
            let slo = Duration((p.slo_ms * 1000.0) as u64);
            pools[n * KINDS + p.kind.index()] =
                PoolCounters::new().map(|tally| Pool { slo, time: ServiceTime::new(time as u64), tally });
        }
    }
    pools
}

fn profiled_factor(profile: Profile, slice: &Slice) -> f64 {
    match profile {
        Profile::Mean => slice.mean_factor(),
        Profile::Heaviest => slice.heavy.map_or(1.0, |heavy| heavy.factor.max(1.0)),
    }
}

pub(super) fn nanos(duration: Duration) -> Nanos {
    duration.0.saturating_mul(1000)
}
