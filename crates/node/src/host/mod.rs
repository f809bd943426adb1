//! The host: brings what arrives to the network functions that run the steps, and carries out what they have committed.
//! The steps run in worker processes (`crate::worker`) over UE contexts in memory that all of them share; this thread is the
//! forwarder (Algorithm 2 of seed 1), the egress of committed effects, and keeper of what is not one UE's: RAN nodes,
//! timers, the directory. It never waits for a worker, and it alone enters and takes out UEs and their identifiers.
//!
//! It knows nothing of sockets: messages come from and go to the balancer by bounded queues.

mod address_audit;
mod builder;
mod claims;
mod cluster;
mod database_takeover;
mod egress;
mod entry;
mod error;
mod faults;
mod forward;
mod half_open;
mod keep;
mod migration;
mod nf_scaler;
mod nodes;
mod orders;
mod overload;
pub(crate) mod pools;
mod queue;
mod reconcile;
mod records;
mod region_usage;
mod reload;
mod slo_tracker;
mod stale;
mod status;
mod step_metrics;
mod takeover;
mod timers;

pub use builder::{HostBuilder, HostConfig};
pub(crate) use cluster::Membership;
pub use error::HostError;
pub use keep::KeepError;
pub(crate) use pools::pin;
pub use queue::HostSender;
pub(crate) use region_usage::RegionUsage;

use crate::api::{Status, StatusFilter};
use crate::balancer::{Command, CommandSender};
use crate::clock::{self, clock};
use crate::cluster::{LostBalancer, UnackedMessage};
use crate::evicted_claims::EvictedClaims;
use crate::metrics::{Metrics, Population, Queue};
use crate::reload::Reload;
use crate::sbi::amf::SmfLink;
use crate::shared_record::DelegatedCommit;
use crate::supervisor::{ExitCause, Supervisor, WorkerEvent};
use crate::worker::context_database;
use crate::worker::event_message::EventMessage;
use crate::worker::ids::IdAllocator;
use crate::worker::outbox::Summary;
use crate::worker::region_layout::{self, RegionLayout};
use crate::worker::{Location, WorkerConfig};
use cluster::Cluster;
use crossbeam_channel::{Sender, TryRecvError};
use nf_scaler::NfScaler;
use nodes::Nodes;
use pools::{NfId, Pools};
use rand::rngs::StdRng;
use rand::{RngCore, SeedableRng};
use rustc_hash::FxHashMap;
use std::collections::VecDeque;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use step_metrics::{StepMetrics, Totals};
use vireo_core::config::CoreConfig;
use vireo_core::n2::{Cause, Fault, ShallowView};
use vireo_core::ran;
use vireo_core::replica::{Claim, Claims};
use vireo_core::sba::{N1N2Transfer, PiggybackedSmContext, SessionNumber, SmfRequest, SmfResponse};
use vireo_core::schedule::kind::NfKind;
use vireo_core::subscription::{AuthenticationError, AuthenticationInfo};
use vireo_fabric::message::{AssociationOwner, ClusterMap};
use vireo_store::region::{Bell, Receiver, Region, Slot, Snapshot, Worker};
use vireo_subscribers::Udm;
use vireo_types::{AssocId, Bucket, Dnn, Instant, Ltmsi, Seid, SessionAddress, Supi};
use vireo_wire::ngap::CauseMisc;

/// Inputs, and records of each worker, taken in one go before other things are looked at.
const BATCH: usize = 64;
/// Inputs that may wait.
const INPUTS: usize = 65_536;
/// UEs that may wait for a place in the queue of their NF before nothing new is taken.
const UNPUSHED: usize = 65_536;
/// Worker processes at a time, the host's own number among them.
const WORKERS: u8 = 250;

/// What comes to a host.
#[derive(Debug)]
pub enum Input {
    /// An association came up.
    Up {
        /// Which.
        assoc: AssocId,
        /// Its peer.
        peer: SocketAddr,
    },
    /// An association is gone, or its peer has restarted it: what was known of it is void.
    Down {
        /// Which.
        assoc: AssocId,
        /// Whether it is up again at once.
        restarted: bool,
    },
    /// The peer of an association has given the sign of life that it was asked for.
    Alive {
        /// The association.
        assoc: AssocId,
    },
    /// In a cluster: a balancer is there, at these addresses of the AMF.
    Endpoints(Vec<IpAddr>),
    /// In a cluster: a balancer is gone with its associations.
    BalancerGone(Box<LostBalancer>),
    /// A message for a UE by an association that is gone with its balancer, or that ends and has not carried it.
    Unsent(Box<UnackedMessage>),
    /// An association is of a node that has set NG up on another, as other hosts know.
    Node(Box<AssociationOwner>),
    /// An NGAP message, looked at.
    Ngap {
        /// Its association.
        assoc: AssocId,
        /// Where it goes and what for.
        view: Result<ShallowView, Box<Fault>>,
        /// The PDU.
        pdu: Vec<u8>,
        /// When it came.
        at: Instant,
        /// The name that a cluster's balancer has given it: 0 = none.
        number: u64,
        /// Whether it is answered here, if it is not about a UE.
        answers: bool,
        /// Of a UE that is not known: a bucket of those hosts that shall keep it.
        bucket: Option<Bucket>,
    },
    /// The home network's answer for a UE.
    Authentication {
        /// The UE.
        ltmsi: Ltmsi,
        /// The answer.
        answer: Box<Result<AuthenticationInfo, AuthenticationError>>,
    },
    /// A PFCP message for a session.
    Pfcp {
        /// The UPF.
        upf: SocketAddr,
        /// The session.
        seid: Seid,
        /// Whether it is a request, which is owed an answer.
        request: bool,
        /// The message.
        message: Vec<u8>,
        /// As that of an NGAP message.
        number: u64,
    },
    /// A PFCP request for a session got no answer.
    PfcpTimeout {
        /// The session.
        seid: Seid,
        /// As that of an NGAP message.
        number: u64,
    },
    /// A UPF is associated, or is not.
    Upf {
        /// The UPF.
        upf: SocketAddr,
        /// Whether it is.
        up: bool,
    },
    /// A UPF lost its sessions.
    UpfLost {
        /// The UPF.
        upf: SocketAddr,
    },
    /// A configuration was read again.
    Reload(Box<Reload>),
    /// How the host is.
    Status {
        /// What is asked for.
        filter: StatusFilter,
        /// Where the answer goes.
        reply: Sender<Status>,
    },
    /// The operator wants a UE gone.
    Deregister {
        /// Whose.
        supi: Supi,
        /// Whether it shall register again.
        again: bool,
        /// Whether there was such a UE.
        reply: Sender<bool>,
    },
    /// The operator wants a UE's sessions at another UPF.
    Relocate {
        /// Whose.
        supi: Supi,
        /// The UPF.
        upf: SocketAddr,
        /// Whether there was such a UE.
        reply: Sender<bool>,
    },
    /// Of a service-based chain: what has become of a question to the SMF.
    Smf {
        /// The UE.
        ltmsi: Ltmsi,
        /// What the question was known by.
        key: u64,
        /// Its session.
        number: SessionNumber,
        /// The question.
        ask: Box<SmfRequest>,
        /// The answer.
        answer: SmfResponse,
        /// The SM context as it is then, if it travels.
        carried: Option<Box<PiggybackedSmContext>>,
        /// The input that is carried out by it, if a cluster's balancer has given that a number and the question was asked before.
        input: u64,
    },
    /// Of a service-based chain: an SMF has something for a UE and its RAN node.
    Transfer {
        /// Whose.
        supi: Supi,
        /// By what it is known when it is asked for again; 0: by nothing.
        key: u64,
        /// That.
        transfer: Box<N1N2Transfer>,
        /// The input that is carried out by it, as of [`Input::Smf`], where it answers a question.
        input: u64,
    },
    /// Of a service-based chain: an SMF has a session no more.
    SmContextReleased {
        /// Whose.
        supi: Supi,
        /// The session.
        number: SessionNumber,
        /// The notification that is answered.
        token: u64,
    },
    /// Of the worker processes.
    WorkerEvent(WorkerEvent),
    /// What a dead worker held is free again, its number too.
    Reclaimed {
        /// The worker.
        worker: u8,
    },
    /// In a cluster: from here on these hosts have the buckets.
    Map(Box<ClusterMap>),
    /// In a cluster: UEs of a host that is gone, out of the database that has their contexts.
    DatabaseLoaded(Box<database_takeover::LoadedBuckets>),
    /// In a cluster: a subscriber's context is at another host now.
    Claimed {
        /// Whose.
        supi: Supi,
        /// The UE that has it.
        ue: Ltmsi,
        /// When the subscriber registered there.
        at: Instant,
    },
    /// In a cluster: the balancer has done all that was said before a question of this host.
    BarrierReply {
        /// The number of the question.
        number: u64,
        /// Nothing that was said lately can have come to nobody.
        whole: bool,
    },
    /// In a cluster: a UE that had gone to another host with addresses of this one's part has them no more.
    Returned {
        /// The data network and the addresses.
        of: Box<(Dnn, SessionAddress)>,
    },
    /// In a cluster: other hosts are to get this one's UEs, and it is to end then.
    Leave,
    /// In a cluster: it has nothing any more that others have not.
    LeaveGranted,
    /// No more input follows: finish what is there and end.
    Stop,
}

/// How long the first workers may take to be ready.
const START_WITHIN: Duration = Duration::from_secs(20);

/// A host.
#[derive(Debug)]
pub struct Host {
    /// Dropped before `udm`, whose threads end only when no answer of theirs waits for room here.
    inputs: queue::HostReceiver,
    door: HostSender,
    config: Arc<CoreConfig>,
    region: Region,
    /// The host's own place in the region.
    own: Worker,
    plan: RegionLayout,
    bell: Bell,
    ids: IdAllocator,
    pools: Pools,
    controller: NfScaler,
    overload: overload::Overload,
    half_open: half_open::HalfOpen,
    crew: Supervisor,
    /// The rings of the workers that are there.
    rings: Vec<WorkerRings>,
    nodes: Nodes,
    stale: stale::Budgets,
    timers: timers::Timers,
    udm: Udm,
    rng: StdRng,
    account: StepMetrics,
    totals: Totals,
    /// Which UPFs are associated.
    upfs: FxHashMap<SocketAddr, bool>,
    /// Events that wait for room, and those that steps caused for other UEs: they go through the same door.
    follow: VecDeque<DeferredEvent>,
    /// The UEs of `follow`, and how many events of each are there: nothing overtakes them.
    held: FxHashMap<Slot, u32>,
    /// UEs whose worker's queue was full.
    unpushed: FxHashMap<NfId, VecDeque<Slot>>,
    /// Inputs handed back by workers: a repeat after a worker's death is dropped.
    returned: VecDeque<u64>,
    /// Of a stateful host: what is known of the UEs in its workers' memories.
    private: Option<FxHashMap<Slot, (NfId, Summary)>>,
    location: Location,
    /// What workers are told.
    instructions: WorkerConfig,
    order: egress::CommitOrder,
    /// New UEs by the time of their first message.
    young: VecDeque<(Instant, Slot, Ltmsi)>,
    /// A UPF has lost its sessions: how far its UEs were told.
    lost: VecDeque<(SocketAddr, u32)>,
    egress: CommandSender,
    /// One more than the highest slot that was ever used: memory beyond is not touched.
    slots: u32,
    /// The number of the last input.
    sequence: u64,
    /// When what is being dealt with came.
    arrived: Instant,
    /// The balancer's number of it, 0 = none, and the bucket by which it came to this host.
    input: u64,
    bucket: Option<Bucket>,
    /// The last claims of subscribers.
    claims: Claims,
    forgotten: EvictedClaims,
    /// Of a host of a cluster.
    cluster: Option<Box<Cluster>>,
    /// Of the AMF of a service-based chain.
    smf: Option<SmfLink>,
    /// Contexts that outlive this process.
    keep: Option<Box<keep::Keep>>,
    back: keep::Back,
    /// Of contexts in a database that outlive this process.
    renewal: Option<keep::Renewal>,
    /// What the questions take along of the record that is being let go.
    travels: Option<DelegatedCommit>,
    started: std::time::Instant,
    faults: faults::Faults,
    scratch: Vec<u8>,
    snapshot: Snapshot,
}

/// The rings from a worker to the host.
#[derive(Debug)]
struct WorkerRings {
    number: u8,
    pid: u32,
    committed: Receiver,
    returned: Receiver,
    bell: Bell,
    /// It has been given something and was not waked for it yet.
    called: bool,
}

/// An event for a UE that could not be posted at once.
#[derive(Debug)]
struct DeferredEvent {
    slot: Slot,
    ltmsi: Ltmsi,
    kind: NfKind,
    octets: Vec<u8>,
}

impl Host {
    /// A host without UEs, its first workers ready.
    ///
    /// # Errors
    ///
    /// When a worker does not start, or the system refuses something.
    pub fn start(
        frame: HostBuilder,
        config: HostConfig,
        udm: Udm,
        metrics: Arc<Metrics>,
        egress: CommandSender,
    ) -> Result<Self, HostError> {
        let HostBuilder { region, door, inputs, plan, member, smf } = frame;
        let kept = keep::Keep::of_host(&config, member.is_some())?;
        let mut rng = StdRng::from_os_rng();
        let mut tmsi_key = [0; 16];
        rng.fill_bytes(&mut tmsi_key);
        let mut part = (0, 1);
        if let Some(member) = &member {
            (tmsi_key, part) = (member.welcome.tmsi_key, member.welcome.part);
            // None is this host's until a map says so.
            region_layout::set_own(&region, |_| false);
        }
        let (location, stored) = records::location(&config, member.is_some(), &door, &mut rng)?;
        let stateful = location == Location::Worker;
        let instructions = WorkerConfig {
            core: config.core.clone(),
            nfs: plan.nfs,
            tmsi_key,
            part,
            location: location.clone(),
            log_level: None,
        };
        instructions.publish(&region).map_err(HostError::Instructions)?;
        region.shared_word(region_layout::BOARD_CLOCK).store(clock::offset(), Ordering::Release);
        let own = region.join(region_layout::HOST)?;
        let mut pools = Pools::new(config.pools.clone(), config.slices.clone(), plan);
        if !pools.fits(WORKERS) {
            return Err(HostError::Workers);
        }
        pools.calibrate(nf_scaler::calibrated());
        let crew = nf_scaler::crew(&region, &config, plan, door.clone()).map_err(HostError::Crew)?;
        let ids = IdAllocator::new(region.clone(), &config.core, (&tmsi_key, part), StdRng::from_os_rng());
        let mut host = Host {
            inputs,
            door,
            own,
            bell: plan.bell(&region, region_layout::HOST),
            ids,
            controller: NfScaler::new(),
            overload: overload::Overload::new(config.overload),
            half_open: half_open::HalfOpen::new(config.overload.half_open),
            crew,
            pools,
            rings: Vec::new(),
            nodes: Nodes::new(config.allow),
            stale: stale::Budgets::default(),
            timers: timers::Timers::default(),
            udm,
            rng,
            account: StepMetrics::new(metrics, &config.slices),
            totals: Totals::default(),
            upfs: config.core.upfs.iter().map(|u| (u.n4, false)).collect(),
            follow: VecDeque::new(),
            held: FxHashMap::default(),
            unpushed: FxHashMap::default(),
            returned: VecDeque::new(),
            private: stateful.then(FxHashMap::default),
            location,
            instructions,
            order: egress::CommitOrder::default(),
            young: VecDeque::new(),
            lost: VecDeque::new(),
            egress,
            slots: 0,
            sequence: 0,
            arrived: Instant::default(),
            input: 0,
            bucket: None,
            claims: claims::claims(&config.core.timers),
            forgotten: EvictedClaims::default(),
            cluster: member.map(|member| Box::new(Cluster::new(member))),
            smf,
            keep: None,
            back: keep::Back::default(),
            renewal: None,
            travels: None,
            started: std::time::Instant::now(),
            faults: faults::Faults::default(),
            scratch: Vec::new(),
            snapshot: Snapshot::default(),
            config: Arc::new(config.core),
            plan,
            region,
        };
        host.first_crew()?;
        kept.into_iter().for_each(|(keep, opened)| host.resume(keep, opened));
        stored.map_or(Ok(()), |kept| host.resume_stored(kept))?;
        Ok(host)
    }

    /// Starts the first workers and waits until they are ready.
    fn first_crew(&mut self) -> Result<(), HostError> {
        for purposes in self.pools.first_crew() {
            self.launch(&purposes);
        }
        let until = std::time::Instant::now() + START_WITHIN;
        while self.pools.iter().any(|nf| matches!(nf.state, pools::State::Starting { .. })) {
            match self.inputs.urgent.recv_deadline(until) {
                Ok(Input::WorkerEvent(WorkerEvent::Failed { worker, error })) => {
                    return Err(HostError::Worker { worker, error: error.to_string() });
                }
                Ok(Input::WorkerEvent(WorkerEvent::Down { worker, why: why @ ExitCause::Exited(_), .. })) => {
                    return Err(HostError::Worker { worker, error: format!("it ended: {why:?}") });
                }
                // One that was killed is replaced, now as ever.
                Ok(input) => self.input(input),
                Err(_) => return Err(HostError::Late(START_WITHIN)),
            }
        }
        Ok(())
    }

    /// Runs until [`Input::Stop`] or until nobody can send any more.
    pub fn run(mut self) {
        let mut gauges = Instant::default();
        loop {
            self.inputs.turn();
            let mut busy = self.committed();
            while let Ok(input) = self.inputs.urgent.try_recv() {
                if matches!(input, Input::Stop) {
                    return self.finish();
                }
                self.input(input);
                busy = true;
            }
            // What waits for room goes first.
            let room = self.release_held() && self.unpushed() < UNPUSHED;
            for _ in 0..if room { BATCH } else { 0 } {
                match self.inputs.queue.try_recv() {
                    Ok(input) => self.input(input),
                    Err(TryRecvError::Empty) => break,
                    Err(TryRecvError::Disconnected) => return self.finish(),
                }
                busy = true;
            }
            if self.cluster.as_ref().is_some_and(|cluster| cluster.has_left) {
                return self.finish();
            }
            busy |= self.serve_newcomers();
            self.push_again();
            self.on_time();
            self.wake();
            self.egress.flush();
            let now = clock();
            if now.since(gauges) > vireo_types::Duration::from_millis(500) {
                gauges = now;
                self.gauges();
                self.show_half_open(now);
                // A host by itself has nobody to whom it matters.
                if self.cluster.is_some() {
                    self.forgotten.look(&mut self.claims, &self.account.metrics, now);
                }
            }
            if !self.keep_contexts(!busy, now) && !busy {
                self.sleep();
            }
        }
    }

    /// Whether something waits for room.
    fn is_held_up(&self) -> bool {
        !self.follow.is_empty() || !self.unpushed.is_empty()
    }

    /// Waits for an input, a worker or the time.
    fn sleep(&mut self) {
        let blocked = self.is_held_up();
        let moving = self.cluster.as_ref().is_some_and(|cluster| cluster.is_moving());
        let again = blocked || moving || self.nodes.is_disconnecting() || self.has_newcomers();
        let now = clock();
        let due = self.timers.next().into_iter().chain(self.nodes.contests.due()).min();
        let wait = due.map_or(Duration::from_secs(1), |at| at.since(now).into());
        // A worker that makes room rings nobody for it.
        let wait = wait.min(if again { Duration::from_micros(200) } else { self.controller.next(now) });
        let (inputs, rings) = (&self.inputs, &self.rings);
        let acknowledged = self.cluster.as_deref();
        self.bell.wait(wait, || {
            let work = !inputs.urgent.is_empty()
                || acknowledged.is_some_and(|acknowledged| acknowledged.is_news())
                || !blocked && !inputs.queue.is_empty()
                || rings.iter().any(|w| !w.committed.is_empty() || !w.returned.is_empty());
            work.then_some(())
        });
    }

    fn finish(mut self) {
        if self.cluster.is_some() {
            // Others go on with its UEs.
            return self.dismiss();
        }
        // The contexts go with this process: the RAN lets its UEs go too, instead of finding out one by one.
        let cause = Cause::misc(CauseMisc::om_intervention);
        let ways: Vec<_> = self.nodes.iter().filter_map(|(node, _)| self.nodes.way(node, None)).collect();
        for assoc in ways {
            self.egress.send(Command::Ngap { assoc, ue: None, key: 0, pdu: ran::ng_reset(cause.clone()) });
        }
        self.dismiss();
    }

    /// The workers end.
    fn dismiss(mut self) {
        self.egress.flush();
        while self.keep_contexts(true, clock()) {}
        self.gauges();
        self.region.shared_word(region_layout::BOARD_STOP).store(1, Ordering::Release);
        for worker in &self.rings {
            worker.bell.ring();
        }
        self.crew.stop();
        if let Some(renewal) = self.renewal.take() {
            renewal.end();
        } else if let Location::Central(config) = &self.location
            && !config.shared
            && let Err(error) = context_database::clear(config)
        {
            tracing::warn!(%error, key = config.records.key, "contexts are left in the database");
        }
    }

    fn gauges(&self) {
        let metrics = &self.account.metrics;
        metrics.population(Population::Gnbs, self.nodes.set_up());
        metrics.population(Population::Contexts, self.totals.contexts);
        metrics.population(Population::Registered, self.totals.registered);
        metrics.population(Population::Connected, self.totals.connected);
        metrics.population(Population::Sessions, self.totals.sessions);
        metrics.queue_depth(Queue::N2Inbound, self.inputs.queue.len());
        metrics.queue_depth(Queue::N2Outbound, self.egress.len());
        let load = self.udm.load();
        metrics.queue_depth(Queue::Subscribers, load.deconceal_waiting + load.database_waiting);
    }

    /// Takes one input.
    fn input(&mut self, input: Input) {
        let Some(input) = self.admit_input(input).and_then(|input| self.waits_for_sessions(input)) else { return };
        self.arrived = match &input {
            Input::Ngap { at, .. } => *at,
            _ => clock(),
        };
        self.input = match &input {
            Input::Ngap { number, .. } | Input::Pfcp { number, .. } | Input::PfcpTimeout { number, .. } => *number,
            _ => 0,
        };
        self.bucket = match &input {
            Input::Ngap { bucket, .. } => *bucket,
            _ => None,
        };
        if self.input != 0 {
            self.cluster.iter_mut().for_each(|cluster| cluster.inputs += 1);
            if self.was_carried_out() {
                return;
            }
        }
        match input {
            Input::Up { assoc, peer } => self.nodes.up(assoc, peer),
            Input::Node(of) => self.node_told(*of),
            Input::Down { assoc, restarted } => self.association_lost(assoc, restarted),
            Input::Alive { assoc } => self.node_lives(assoc),
            Input::Endpoints(addresses) => self.balancer_there(&addresses),
            Input::BalancerGone(left) => self.balancer_gone(*left),
            Input::Unsent(message) => self.send_again(*message),
            Input::Ngap { assoc, view, pdu, answers, .. } => self.ngap(assoc, view, &pdu, answers),
            Input::Authentication { ltmsi, answer } => {
                self.deliver_to(ltmsi, &EventMessage::Authentication(answer), NfKind::Registration);
            }
            Input::Pfcp { upf, seid, request, message, .. } => self.pfcp(upf, seid, request, &message),
            Input::PfcpTimeout { seid, .. } => {
                self.deliver_to(seid.ltmsi(), &EventMessage::PfcpTimeout { seid }, NfKind::Session);
            }
            Input::Upf { upf, up } => {
                self.upfs.insert(upf, up);
                if up {
                    self.upf_gets_sessions(upf);
                }
            }
            Input::UpfLost { upf } => self.lost.push_back((upf, 0)),
            Input::Reload(reload) => self.reload(&reload),
            Input::Status { filter, reply } => {
                // Whoever asked may have given up meanwhile.
                let _ = reply.try_send(self.status(&filter));
            }
            Input::Deregister { supi, again, reply } => {
                self.order(supi, &EventMessage::Deregister { again }, NfKind::StateManagement, &reply);
            }
            Input::Relocate { supi, upf, reply } => {
                self.order(supi, &EventMessage::Relocate { upf }, NfKind::Session, &reply);
            }
            Input::Smf { ltmsi, key, number, ask, answer, carried, input } => {
                let carried = carried.map(|carried| *carried);
                self.input = input;
                self.deliver_to(ltmsi, &EventMessage::Smf { key, number, ask, answer, carried }, NfKind::Session);
                if self.region.slot_of(ltmsi).is_none() {
                    self.done();
                }
            }
            Input::Transfer { supi, key, transfer, input } => {
                self.input = input;
                self.transfer(supi, key, transfer);
            }
            Input::SmContextReleased { supi, number, token } => self.released(supi, number, token),
            Input::DatabaseLoaded(loaded) => self.enter_stored(*loaded),
            Input::Map(map) => self.adopt(*map),
            Input::Claimed { supi, ue, at } => self.claimed(Claim { supi, ue, at }),
            Input::BarrierReply { number, whole } => self.synced(number, whole),
            Input::Returned { of } => self.ids.returned(&of.0, &of.1),
            Input::Leave => self.egress.send(Command::Leave),
            Input::LeaveGranted => self.leave(),
            Input::WorkerEvent(notice) => self.notice(notice),
            Input::Reclaimed { worker } => self.controller.reclaimed(worker),
            Input::Stop => {}
        }
    }

    /// Deadlines that have passed, and what else is done from time to time.
    fn on_time(&mut self) {
        let now = clock();
        (self.arrived, self.input) = (now, 0);
        self.replicate(now);
        self.sweep(now);
        while let Some(slot) = self.timers.due(now) {
            // It may have been moved further off since it was entered, or the UE may be gone.
            match self.region.deadline_of(slot) {
                Some(deadline) if deadline <= now => {
                    self.deliver(slot, &EventMessage::Deadline, NfKind::StateManagement);
                }
                Some(deadline) => self.timers.schedule(slot, deadline, now),
                // What a worker has in its own memory, it alone can look at.
                None if self.private.as_ref().is_some_and(|private| private.contains_key(&slot)) => {
                    self.deliver(slot, &EventMessage::Deadline, NfKind::StateManagement);
                }
                None => {}
            }
        }
        self.free_unused_slots(now);
        self.tell_lost();
        self.tell_disconnected();
        self.settle_contests(now);
        self.serve_ran_nodes(now);
        self.scale_nfs(now);
    }

    /// Enters deadlines that have come within the horizon, a few UEs at a time.
    fn sweep(&mut self, now: Instant) {
        let Some((from, count)) = self.timers.sweep(now, self.slots) else { return };
        self.evict_broken(from, count);
        let timers = &mut self.timers;
        for (slot, deadline) in self.region.slots_from(from, count) {
            if let Some(deadline) = deadline {
                timers.schedule(slot, deadline, now);
            }
        }
    }

    /// Tells UEs that a UPF has lost their sessions, a few at a time.
    fn tell_lost(&mut self) {
        const AT_A_TIME: u32 = 256;
        let Some((upf, from)) = self.lost.pop_front() else { return };
        if self.follow.len() < BATCH {
            let slots: Vec<Slot> = self.region.slots_from(from, AT_A_TIME).map(|(slot, _)| slot).collect();
            for slot in slots {
                self.deliver(slot, &EventMessage::UpfLost { upf }, NfKind::StateManagement);
            }
            if from + AT_A_TIME < self.slots {
                self.lost.push_front((upf, from + AT_A_TIME));
            }
        } else {
            self.lost.push_front((upf, from));
        }
    }
}
