//! Worker thread: endpoint, gNBs, UEs and the loop that turns events into steps.

use super::chaos::ChaosRun;
use super::link::NodeLink;
use super::n3::{N3, Received};
use super::slot::{SlotState, UeSlot};
use super::steady::SteadyRun;
use super::timers::{Kind, Timers};
use crate::dialect::{Device, Node};
use crate::enb;
use crate::error::Error;
use crate::gnb;
use crate::load::{Arrivals, Pattern};
use crate::options::{Load, Options};
use crate::progress::{Counters, EndpointFactory};
use crate::ran::Tunnel;
use crate::rat::Rat;
use crate::report::Stats;
use crate::scenario::Scenario;
use crate::ue;
use crate::usim::{Concealment, Usim};
use rustc_hash::FxHashMap;
use std::collections::{HashMap, VecDeque};
use std::net::IpAddr;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};
use vireo_sctp::{Endpoint, Event};
use vireo_types::{AssocId, Teid};

/// Delay before a gNB reconnects a lost association.
const RECONNECT_US: u64 = 200_000;
/// Delay before a refused RAN Configuration Update is repeated on a further association (Time To
/// Wait).
pub(super) const BIND_AGAIN_US: u64 = 1_000_000;
/// Time that a stopped run waits for the UEs in progress.
const GRACE: Duration = Duration::from_secs(2);
/// Maximum number of UEs that start in one loop iteration.
const BURST: u32 = 64;
/// Maximum wait of one loop iteration, so that a stop is noticed.
const LONGEST_WAIT: Duration = Duration::from_millis(50);

/// Returns the number of workers of a run. gNBs that share an N3 address share its socket and thus
/// a worker.
pub(super) fn threads(options: &Options) -> u32 {
    let mut addresses = options.n3.clone();
    addresses.sort();
    addresses.dedup();
    let most = if options.has_traffic() { addresses.len() as u32 } else { options.gnbs };
    // A UE moves only between gNBs of its worker, which thus needs at least two gNBs.
    let most = if options.moves() { most.min(options.gnbs / 2) } else { most };
    options.threads.min(most).min(options.gnbs).max(1)
}

/// Runs worker `n` until its UEs are done and the run finishes.
pub(super) fn run(
    options: &Options,
    n: u32,
    threads: u32,
    open: EndpointFactory<'_>,
    counters: &Counters,
    begun: Instant,
) -> Result<(Stats, String), Error> {
    let mut endpoint = open(n).map_err(Error::Sctp)?;
    let driver = endpoint.driver().to_string();
    let mut worker = Worker::new(options, n, threads, &mut *endpoint, counters, begun)?;
    worker.prepare()?;
    worker.bring_up(&mut *endpoint)?;
    worker.origin_us = worker.tick();
    let mut stopped = None;
    while !worker.is_settled() && stopped.is_none_or(|at: Instant| at.elapsed() < GRACE || worker.is_ending()) {
        worker.run_once(&mut *endpoint, LONGEST_WAIT)?;
        if counters.stop.load(Ordering::Relaxed) {
            stopped.get_or_insert_with(Instant::now);
        }
    }
    counters.settled.fetch_add(1, Ordering::Relaxed);
    while !counters.finish.load(Ordering::Relaxed) {
        worker.run_once(&mut *endpoint, LONGEST_WAIT)?;
    }
    worker.check_released(u64::MAX);
    worker.shut_down_associations(&mut *endpoint);
    let mut stats = worker.stats;
    stats.report.user_plane = worker.n3.counts;
    stats.report.worker_cpu_us = thread_cpu_us();
    Ok((stats, driver))
}

/// Returns the CPU time of the calling thread from the kernel's scheduler statistics.
pub(super) fn thread_cpu_us() -> u64 {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    text.split(' ').next().and_then(|ns| ns.parse::<u64>().ok()).unwrap_or(0) / 1000
}

/// Part of a run that one worker has.
#[derive(Clone, Copy, Debug)]
pub(super) struct WorkerShare {
    pub(super) number: u32,
    pub(super) threads: u32,
    /// Number of UEs of this worker.
    pub(super) ues: u32,
}

impl WorkerShare {
    /// Returns the number in the run of this worker's UE `index`.
    pub(super) fn run_index(&self, index: u32) -> u32 {
        index * self.threads + self.number
    }
}

/// Start times of all UEs of a run, of which every worker takes its share.
struct StartTimes {
    arrivals: Arrivals,
    /// Number of start times taken from `arrivals`.
    known: u32,
    /// The last of them, in seconds.
    at_s: f64,
}

/// Associations of a worker's gNBs.
#[derive(Default)]
struct AssociationTable {
    /// Index of the gNB and of its association.
    by_id: FxHashMap<AssocId, (usize, u8)>,
    /// Associations closed by gNBs and not down yet, with the gNB's index.
    ended: FxHashMap<AssocId, usize>,
    /// Time of the next forced association loss, and the number so far.
    drop_us: Option<(u64, u32)>,
}

/// Tunnels that only one side knows.
#[derive(Default)]
pub(super) struct LostTunnels {
    /// Tunnels of UEs that wait for paging or whose gNB lost them, with the gNB's address.
    pub(super) by_ue: HashMap<u32, (IpAddr, Tunnel)>,
    /// Tunnel ends that the core does not know and must release, with the time limit.
    pub(super) released: VecDeque<(u64, (IpAddr, Teid))>,
}

/// Results of received PDUs, of each dialect.
#[derive(Default)]
pub(super) struct Inboxes {
    pub(super) ng: gnb::Inbox,
    pub(super) s1: enb::Inbox,
}

/// State of a worker without its endpoint, which [`Endpoint::poll`] borrows.
pub(super) struct Worker<'a> {
    pub(super) options: &'a Options,
    pub(super) counters: &'a Counters,
    begun: Instant,
    pub(super) now_us: u64,
    /// Time at which UEs began to start.
    origin_us: u64,
    pub(super) share: WorkerShare,
    pub(super) steady: Option<SteadyRun<'a>>,
    /// Start times of UEs in an open loop.
    starts: Option<StartTimes>,
    pub(super) links: Vec<NodeLink>,
    associations: AssociationTable,
    pub(super) slots: Vec<UeSlot>,
    /// USIMs of future UEs with precomputed SUCIs; the next one is last.
    prepared: Vec<Usim>,
    pub(super) active: u32,
    pub(super) timers: Timers,
    pub(super) n3: N3,
    pub(super) stats: Stats,
    pub(super) out: ue::UeOutput,
    pub(super) inboxes: Inboxes,
    /// UEs by 5G-TMSI or M-TMSI, for paging.
    pub(super) listed: FxHashMap<(Rat, u32), u32>,
    pub(super) lost_tunnels: LostTunnels,
}

impl<'a> Worker<'a> {
    fn new(
        options: &'a Options,
        number: u32,
        threads: u32,
        endpoint: &mut dyn Endpoint,
        counters: &'a Counters,
        begun: Instant,
    ) -> Result<Self, Error> {
        let mine = (0..options.gnbs).filter(|gnb| gnb % threads == number);
        // With both dialects, gNBs and eNBs alternate, and UEs in the same way.
        let links = mine.flat_map(|number| options.rats.list().iter().map(move |rat| link(options, *rat, number)));
        let links: Vec<_> = links.collect();
        let addresses: Vec<IpAddr> = links.iter().map(|link| link.node.n3()).collect();
        let n3 = if options.has_traffic() { N3::open(&addresses, endpoint)? } else { N3::default() };
        let ues = options.ues / threads + u32::from(number < options.ues % threads);
        Ok(Worker {
            options,
            counters,
            begun,
            now_us: 0,
            origin_us: 0,
            share: WorkerShare { number, threads, ues },
            steady: options
                .steady
                .as_ref()
                .map(|steady| SteadyRun::new(steady, (options.ues, options.busy.as_ref()), options.seed))
                .map(|run| run.with_faults(options.chaos.map(|chaos| ChaosRun::new(chaos, options.seed, number)))),
            starts: starts(options),
            links,
            associations: AssociationTable::default(),
            slots: Vec::with_capacity(ues as usize),
            prepared: Vec::new(),
            active: 0,
            timers: Timers::default(),
            n3,
            stats: Stats::new(options.timeline),
            out: ue::UeOutput::default(),
            inboxes: Inboxes::default(),
            listed: FxHashMap::default(),
            lost_tunnels: LostTunnels::default(),
        })
    }

    /// Reads the clock: microseconds since the run began.
    pub(super) fn tick(&mut self) -> u64 {
        self.now_us = self.begun.elapsed().as_micros() as u64;
        self.now_us
    }

    /// Precomputes the SUCIs of all UEs if concealment is expensive.
    fn prepare(&mut self) -> Result<(), Error> {
        let profile = &self.options.profile;
        if matches!(profile.concealment, Concealment::Null) {
            return Ok(());
        }
        for index in (0..self.share.ues).rev() {
            if self.counters.stop.load(Ordering::Relaxed) {
                return Err(Error::Stopped);
            }
            let Some(mut usim) = self.usim(index) else { continue };
            let prepared = usim.prepare(profile.plmn, &profile.concealment);
            prepared.map_err(|error| Error::Options(error.to_string()))?;
            self.prepared.push(usim);
        }
        Ok(())
    }

    /// Returns the USIM of this worker's UE `index`.
    fn usim(&self, index: u32) -> Option<Usim> {
        let (supi, keys) = self.options.subscribers.get(self.share.run_index(index))?;
        Some(Usim::new(supi, keys))
    }

    /// Connects all gNBs and waits for their NG Setup.
    fn bring_up(&mut self, endpoint: &mut dyn Endpoint) -> Result<(), Error> {
        for index in 0..self.links.len() {
            self.connect(index, 0, endpoint);
        }
        let deadline = Instant::now() + self.options.timeout;
        while let Some(link) = self.links.iter().find(|link| !link.is_complete()) {
            if self.counters.stop.load(Ordering::Relaxed) {
                return Err(Error::Stopped);
            }
            if Instant::now() > deadline || link.refused.is_some() {
                let (core, gnb) = (link.core(), link.number);
                let why = link.refused.clone().or(link.trouble.clone());
                let mut why = why.unwrap_or_else(|| "no answer: is it running and reachable?".into());
                if link.node.is_up() {
                    let (up, all) = (link.node.associations_up(), link.associations.len());
                    why = format!("it has {up} of {all} associations: {why}");
                }
                return Err(match link.node.rat() {
                    Rat::Nr => Error::NgSetup { core, gnb, why },
                    Rat::Eps => Error::S1Setup { core, enb: gnb, why },
                });
            }
            self.run_once(endpoint, LONGEST_WAIT)?;
        }
        self.counters.connected.fetch_add(self.links.len() as u64, Ordering::Relaxed);
        Ok(())
    }

    fn connect(&mut self, index: usize, by: u8, endpoint: &mut dyn Endpoint) {
        let link = &mut self.links[index];
        let core = link.core();
        let association = &mut link.associations[usize::from(by)];
        association.retry_us = None;
        if association.streams.is_some() {
            // The association is up and must be bound again.
            return self.attach(index);
        }
        match endpoint.connect(*association.core.get_or_insert(core)) {
            Ok(assoc) => {
                association.assoc = Some(assoc);
                self.associations.by_id.insert(assoc, (index, by));
            }
            Err(error) => {
                association.retry_us = Some(self.now_us + RECONNECT_US);
                link.trouble = Some(error.to_string());
            }
        }
    }

    /// Starts NG Setup or the binding on the gNB's associations.
    pub(super) fn attach(&mut self, index: usize) {
        let link = &mut self.links[index];
        if let Err(error) = link.attach(self.now_us) {
            link.trouble = Some(error.to_string());
        }
    }

    /// Closes one association of every gNB when the time has come, in turn from the first.
    fn drop_associations(&mut self, endpoint: &mut dyn Endpoint) -> Option<u64> {
        let every = self.options.drop_association?.as_micros() as u64;
        // A steady load must be in progress: UEs that start before it would wait for T3510.
        let waits = self.steady.as_ref().is_some_and(|steady| !steady.is_under_way());
        if self.origin_us == 0 || waits {
            return None;
        }
        let (due_us, dropped) = self.associations.drop_us.unwrap_or((self.now_us + every, 0));
        if due_us > self.now_us {
            self.associations.drop_us = Some((due_us, dropped));
            return Some(due_us);
        }
        for index in 0..self.links.len() {
            let by = dropped as usize % self.links[index].associations.len();
            // Only if another association remains; an eNB has one.
            if self.links[index].associations.len() < 2 {
                continue;
            }
            if let Some(assoc) = self.links[index].associations[by].assoc.filter(|_| self.links[index].is_complete()) {
                self.end_association(assoc, (index, by as u8), "the gNB has dropped it", endpoint);
            }
        }
        let next = self.now_us + every;
        self.associations.drop_us = Some((next, dropped + 1));
        Some(next)
    }

    /// Closes one association of a gNB.
    pub(super) fn end_association(
        &mut self,
        assoc: AssocId,
        (index, by): (usize, u8),
        why: &str,
        endpoint: &mut dyn Endpoint,
    ) {
        endpoint.abort(assoc);
        self.associations.by_id.remove(&assoc);
        self.associations.ended.insert(assoc, index);
        self.on_lost(index, by, why);
    }

    /// Closes the associations that the AMF has removed.
    fn end_removed(&mut self, endpoint: &mut dyn Endpoint) {
        for index in 0..self.links.len() {
            for by in std::mem::take(&mut self.links[index].removed) {
                if let Some(assoc) = self.links[index].associations[usize::from(by)].assoc {
                    self.end_association(assoc, (index, by), "the AMF has given it up", endpoint);
                }
            }
        }
    }

    /// Returns true if no UE is in progress and none will start.
    fn is_settled(&self) -> bool {
        if let Some(steady) = &self.steady {
            return steady.is_over();
        }
        self.active == 0 && (self.slots.len() as u32 >= self.share.ues || self.is_over())
    }

    /// Returns true when a steady load has ended. Its last procedures have their time limit, unless
    /// another worker failed.
    fn is_ending(&self) -> bool {
        let is_whole = !self.counters.finish.load(Ordering::Relaxed);
        is_whole && self.steady.as_ref().is_some_and(SteadyRun::is_under_way)
    }

    /// Returns true if no further UE and no further round starts.
    pub(super) fn is_over(&self) -> bool {
        let late = |limit: Duration| self.now_us - self.origin_us > limit.as_micros() as u64;
        let duration = self.options.duration.filter(|_| self.steady.is_none());
        self.counters.stop.load(Ordering::Relaxed) || duration.is_some_and(late)
    }

    /// Runs one loop iteration: due work first, then received events.
    fn run_once(&mut self, endpoint: &mut dyn Endpoint, longest: Duration) -> Result<(), Error> {
        self.tick();
        let next_start = self.launch();
        let next_procedure = self.drive();
        while let Some(due) = self.timers.pop(self.now_us) {
            self.on_due(due);
        }
        let next_drop = self.drop_associations(endpoint);
        let next_restart = self.restart_nodes(endpoint);
        self.restart_with_all_ues(endpoint);
        self.check_released(self.now_us);
        for index in 0..self.links.len() {
            for by in 0..self.links[index].associations.len() {
                if self.links[index].associations[by].retry_us.is_some_and(|at| at <= self.now_us) {
                    self.connect(index, by as u8, endpoint);
                }
            }
        }
        self.flush(endpoint);
        let retry =
            self.links.iter().flat_map(|link| &link.associations).filter_map(|association| association.retry_us).min();
        let dues = [next_start, next_procedure, self.timers.next(), retry, next_drop, next_restart];
        let next = dues.into_iter().flatten().min();
        let wait = next.map_or(longest, |at| Duration::from_micros(at.saturating_sub(self.now_us)).min(longest));
        endpoint.poll(Some(wait), &mut |event| self.on_event(event)).map_err(Error::io("polling SCTP"))?;
        self.end_removed(endpoint);
        self.flush(endpoint);
        Ok(())
    }

    /// Starts the UEs that are due. Returns the time of the next start.
    fn launch(&mut self) -> Option<u64> {
        if self.origin_us == 0 {
            return None;
        }
        let mut begun_now = 0;
        loop {
            let started = self.slots.len() as u32;
            if started >= self.share.ues || self.is_over() {
                return None;
            }
            let intended = match (&self.options.load, &mut self.starts) {
                (Load::Window(window), _) => {
                    if self.active >= (window / self.share.threads).max(1) {
                        return None;
                    }
                    self.now_us
                }
                (_, Some(StartTimes { arrivals, known, at_s })) => {
                    // Every worker generates all start times and takes its share.
                    let index = self.share.run_index(started);
                    while *known <= index {
                        (*known, *at_s) = (*known + 1, arrivals.next_s());
                    }
                    self.origin_us + (*at_s * 1e6) as u64
                }
                (_, None) => return None,
            };
            if intended > self.now_us {
                return Some(intended);
            }
            // Many starts at once must not delay answers.
            if begun_now >= BURST {
                return Some(self.now_us);
            }
            begun_now += 1;
            self.start_ue(started, intended);
        }
    }

    fn start_ue(&mut self, index: u32, intended_us: u64) {
        // The options check has ensured one USIM for each UE.
        let Some(usim) = self.prepared.pop().or_else(|| self.usim(index)) else { return };
        let link = index as usize % self.links.len();
        let rat = self.links[link].node.rat();
        let script = match self.share.run_index(index) < self.options.movers {
            true => Scenario::movers().steps(),
            false => self.options.script(rat),
        };
        let mut slot = UeSlot::new(Device::new(rat, usim), link as u16, script);
        if let Some(run) = &self.steady {
            slot.group = run.group_of(self.share.run_index(index));
            slot.script = run.home(slot.group).arrive();
        }
        slot.life = SlotState::Running;
        (slot.times.born_us, slot.times.sent_us) = (intended_us, self.now_us);
        self.slots.push(slot);
        self.active += 1;
        self.stats.report.started += 1;
        self.counters.started.fetch_add(1, Ordering::Relaxed);
        self.advance(index, Some(intended_us));
    }

    fn on_event(&mut self, event: Event<'_>) {
        self.tick();
        match event {
            Event::Up { assoc, outbound_streams, .. } => self.on_up(assoc, outbound_streams),
            Event::Message { assoc, stream, ppid, data } => match self.associations.by_id.get(&assoc).copied() {
                Some((link, _)) if ppid != self.links[link].node.ppid() => {
                    self.stats.violation(format!("a message with PPID {ppid}"))
                }
                Some((link, by)) if stream != 0 && self.links[link].check_repeat(by, data, self.now_us) => {
                    self.stats.report.repeats += 1;
                }
                Some((link, by)) => self.on_pdu(link, by, data),
                None => {}
            },
            Event::Unacknowledged { assoc, stream, data, .. } => {
                let link = self
                    .associations
                    .by_id
                    .get(&assoc)
                    .map(|(link, _)| link)
                    .or(self.associations.ended.get(&assoc))
                    .copied();
                if let Some(link) = link {
                    self.links[link].unacknowledged(stream, data);
                }
            }
            Event::Restarted { assoc } => {
                if let Some((link, by)) = self.associations.by_id.get(&assoc).copied() {
                    self.on_lost(link, by, "the core restarted the association");
                    let association = &mut self.links[link].associations[usize::from(by)];
                    (association.assoc, association.retry_us) = (Some(assoc), None);
                    self.on_up(assoc, 2);
                }
            }
            Event::Down { assoc, reason } => {
                if let Some((link, by)) = self.associations.by_id.remove(&assoc) {
                    self.on_lost(link, by, reason);
                } else if let Some(link) = self.associations.ended.remove(&assoc) {
                    self.resend_unacknowledged(link);
                }
            }
            Event::Writable { assoc } => {
                if let Some((link, by)) = self.associations.by_id.get(&assoc) {
                    self.links[*link].unblock(*by);
                }
            }
            Event::Readable { token } => self.on_n3(token),
            // gNBs do not use the liveness event.
            Event::Alive { .. } => {}
        }
    }

    fn on_up(&mut self, assoc: AssocId, streams: u16) {
        let Some((index, by)) = self.associations.by_id.get(&assoc).copied() else { return };
        if self.links[index].node.is_down() {
            // Messages that UEs sent without an association are lost.
            self.release_all(index, "there was no association");
        }
        let link = &mut self.links[index];
        link.associations[usize::from(by)].streams = Some(streams);
        self.attach(index);
        self.answer_requested(index);
    }

    /// Handles the loss of an association. If the gNB has another one, UEs continue on it, and it
    /// resends unacknowledged messages. Other messages in transit are lost; UE timers repeat them.
    fn on_lost(&mut self, index: usize, by: u8, reason: &str) {
        let link = &mut self.links[index];
        let goes_on = link.on_association_lost(by, self.now_us);
        link.associations[usize::from(by)].retry_us = Some(self.now_us + RECONNECT_US);
        let reason = format!("the association was lost: {reason}");
        if goes_on {
            self.stats.report.associations_lost += 1;
            self.release_ended(index, &reason);
            self.resend_unacknowledged(index);
        } else {
            self.release_all(index, &reason);
        }
        self.links[index].trouble = Some(reason);
        // NG Setup may have been due on the lost association while another is up.
        self.attach(index);
        self.answer_requested(index);
    }

    /// Reports the loss of the S1 connection to every UE whose association with its MME has ended.
    fn release_ended(&mut self, index: usize, why: &str) {
        for owner in 0..self.slots.len() as u32 {
            let slot = &self.slots[owner as usize];
            let has_ended = slot.ran.is_some_and(|id| self.links[index].node.owner(id).is_none());
            if usize::from(slot.link) == index && has_ended {
                self.on_released(owner, || why.into());
            }
        }
    }

    /// Resends the unacknowledged messages of a lost association on another one.
    fn resend_unacknowledged(&mut self, index: usize) {
        self.stats.report.sent_again += self.links[index].repeat() as u64;
    }

    fn answer_requested(&mut self, index: usize) {
        if let Err(error) = self.links[index].answer_requested() {
            self.stats.violation(format!("the gNB could not answer: {error}"));
        }
    }

    /// Reports the loss of the NG connection to every connected UE of a gNB.
    fn release_all(&mut self, index: usize, why: &str) {
        for owner in 0..self.slots.len() as u32 {
            let slot = &self.slots[owner as usize];
            if usize::from(slot.link) == index && slot.ran.is_some() {
                self.on_released(owner, || why.into());
            }
        }
    }

    fn on_n3(&mut self, token: u64) {
        while let Some(received) = self.n3.receive(token) {
            // An answer may arrive within this burst.
            self.tick();
            match received {
                Received::Packet(teid, range) => self.on_packet(teid, range),
                Received::EndMarker(teid) => self.on_end_marker(teid),
                Received::ErrorIndication(error) => self.on_error_indication(error),
                Received::Bad => self.n3.counts.bad_packets += 1,
            }
        }
    }

    fn on_due(&mut self, due: super::timers::ExpiredTimer) {
        let Some(slot) = self.slots.get(due.owner as usize) else { return };
        match due.kind {
            Kind::Ping => return self.on_ping_due(due.owner, due.sequence),
            Kind::Forwarded => return self.on_forwarded_due(due.owner, due.sequence),
            _ => {}
        }
        if slot.sequence != due.sequence || slot.life != SlotState::Running {
            return;
        }
        match due.kind {
            Kind::Guard => self.on_timeout(due.owner),
            Kind::Pause => self.on_pause_over(due.owner),
            Kind::Resume => self.advance(due.owner, None),
            Kind::Echo(flow) => self.on_echo_due(due.owner, flow),
            Kind::Ping | Kind::Forwarded => {}
        }
    }

    fn flush(&mut self, endpoint: &mut dyn Endpoint) {
        for index in 0..self.links.len() {
            if let Err((by, reason)) = self.links[index].flush(endpoint) {
                match self.links[index].associations[usize::from(by)].assoc {
                    Some(assoc) => self.end_association(assoc, (index, by), &reason, endpoint),
                    None => self.on_lost(index, by, &reason),
                }
            }
        }
    }

    /// Shuts the associations down gracefully, as far as the core responds.
    fn shut_down_associations(&mut self, endpoint: &mut dyn Endpoint) {
        let associations = self.links.iter().flat_map(|link| &link.associations);
        let mut open: Vec<_> = associations.filter_map(|association| association.assoc).collect();
        for assoc in &open {
            endpoint.shutdown(*assoc);
        }
        let deadline = Instant::now() + Duration::from_millis(500);
        while !open.is_empty() && Instant::now() < deadline {
            let mut down = |event: Event<'_>| {
                if let Event::Down { assoc, .. } = event {
                    open.retain(|known| *known != assoc);
                }
            };
            if endpoint.poll(Some(Duration::from_millis(20)), &mut down).is_err() {
                return;
            }
        }
    }
}

/// Returns the start times of UEs in an open loop.
fn starts(options: &Options) -> Option<StartTimes> {
    let arrivals = match &options.load {
        Load::Window(_) => return None,
        Load::Rate(rate) => Arrivals::new(&Pattern::Constant, *rate, options.seed),
        Load::Pattern(pattern, rate) => Arrivals::new(pattern, *rate, options.seed),
    };
    Some(StartTimes { arrivals, known: 0, at_s: 0.0 })
}

fn link(options: &Options, rat: Rat, number: u32) -> NodeLink {
    let node = Node::new(options, rat, number);
    // Nodes use the addresses in turn.
    let cores = options.cores(rat);
    let first = number as usize % cores.len();
    match (rat, options.tnl_associations) {
        // TS 36.412 7: one association for each eNB and MME.
        (_, 0 | 1) => NodeLink::new(node, number, &cores[first..=first], 1),
        // One with each MME.
        (Rat::Eps, associations) => NodeLink::new(node, number, cores, associations.min(cores.len() as u32)),
        (Rat::Nr, associations) => NodeLink::new(node, number, cores, associations),
    }
}
