//! Host thread: forwarder, egress and owner of per-host state.
//!
//! The host passes events to the NFs that run the steps, and executes the effects of their commits.
//! Steps run in worker processes (`crate::worker`) over UE contexts in shared memory, the state
//! region. This thread has three tasks:
//!
//! - forwarder: Algorithm 2 of MMLite;
//! - egress: execution of committed effects;
//! - state that belongs to no single UE: RAN nodes, timers, the directory of identifiers.
//!
//! Invariants:
//!
//! - The host never waits for a worker.
//! - Only the host inserts and removes UEs and their identifiers.
//!
//! The host uses no sockets. Bounded queues carry messages from and to the balancer.

mod authentication;
mod builder;
mod cluster;
mod concealed_request;
mod context_location;
mod database_takeover;
mod deferred_event;
mod egress;
mod error;
mod fair_queue;
mod faults;
mod forward;
mod half_open;
mod host_machine;
mod inline;
mod input_queues;
mod keep;
mod limits;
mod machine_io;
mod nf_scaler;
mod nodes;
mod origin;
mod overload;
mod path_switch;
pub(crate) mod pools;
mod ran_table;
mod region_usage;
mod reload;
mod serving;
mod short_mac;
mod slo_tracker;
mod stale;
mod state;
mod status;
mod step_metrics;
mod subscriber_change_queue;
mod subscriber_changes;
mod subscriber_events;
mod takeover;
mod timers;
mod ue_changes;
mod ue_query;
mod unproved;

pub use builder::{HostBuilder, HostConfig};
pub use cluster::Membership;
pub use error::HostError;
pub use keep::KeepError;
pub use region_usage::RegionUsage;
pub use state::Host;

use crate::worker::context_database;
use crate::worker::ids::IdAllocator;
use crate::worker::ran::NodeListEncoder;
use crate::worker::region_layout;
use crate::worker::{InlineWorker, Location, WorkerConfig};
use cluster::Cluster;
use crossbeam_channel::TryRecvError;
use egress::CommitOrder;
use host_machine::new_machine;
use limits::{BATCH, MAX_WAITING_UES, WORKERS};
use nf_scaler::NfScaler;
use pools::Pools;
use ran_table::Nodes;
use rand::rngs::StdRng;
use rand::{RngCore, SeedableRng};
use rustc_hash::FxHashMap;
use serving::Guests;
use slo_tracker::objectives;
use stale::Budgets;
use state::{Admission, CurrentInput, EventQueues, Faults, Persistence, Statistics, UeStore, WorkerPool};
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use step_metrics::StepMetrics;
use vireo_cluster::{CommandSender, HostTurn, Input, UnackedMessage};
use vireo_core::amf::engine::Event;
use vireo_core::amf::n2::Cause;
use vireo_core::amf::ran;
use vireo_core::placement::host as machine;
use vireo_core::placement::message::{BalancerNotice, ClusterOutput, PeerEvent, RanOutput, Receiver};
use vireo_core::schedule::kind::NfKind;
use vireo_ops::clock::{self, clock};
use vireo_ops::config::WorkerModel;
use vireo_ops::metrics::{Metrics, Population, Queue};
use vireo_ops::supervisor::{ExitCause, WorkerEvent};
use vireo_store::region::{Slot, Snapshot};
use vireo_subscribers::Udm;
use vireo_types::Instant;
use vireo_wire::ngap::CauseMisc;

/// Maximum start-up time of the first workers.
const START_TIMEOUT: Duration = Duration::from_secs(20);
/// Number of workers that may be killed during the start.
const MAX_START_KILLS: u32 = 8;

impl Host {
    /// Starts a host without UEs and waits until its first workers are ready.
    ///
    /// # Errors
    ///
    /// Returns an error if a worker does not start or the operating system refuses a resource.
    pub fn start(
        builder: HostBuilder,
        config: HostConfig,
        udm: Udm,
        metrics: Arc<Metrics>,
        egress: CommandSender,
    ) -> Result<Self, HostError> {
        let HostBuilder { region, input_sender, inputs, plan, member, smf } = builder;
        let kept = keep::Keep::open_for_host(&config, member.is_some())?;
        let mut rng = StdRng::from_os_rng();
        let mut tmsi_key = [0; 16];
        rng.fill_bytes(&mut tmsi_key);
        let mut part = (0, 1);
        if let Some(member) = &member {
            (tmsi_key, part) = (member.welcome.tmsi_key, member.welcome.part);
            // This host owns no bucket before the first cluster map.
            region_layout::set_own(&region, |_| false);
        }
        let (location, stored) = context_location::select(&config, member.is_some(), &input_sender, &mut rng)?;
        let stateful = location == Location::Worker;
        let instructions = WorkerConfig {
            core: config.core.clone(),
            nfs: plan.nfs,
            tmsi_key,
            part,
            location: location.clone(),
            log_level: None,
            added_step_us: u64::try_from(config.pools.added_step_time.as_micros()).unwrap_or(u64::MAX),
        };
        instructions.publish(&region)?;
        region.shared_word(region_layout::BOARD_CLOCK).store(clock::offset(), Ordering::Release);
        let own = region.join(region_layout::HOST)?;
        let mut pools = Pools::new(config.pools.clone(), config.slices.clone(), plan);
        if !pools.fits_in_workers(WORKERS) {
            return Err(HostError::Workers);
        }
        pools.calibrate(nf_scaler::initial_estimate());
        let (supervisor, inline) = match config.pools.worker_model {
            WorkerModel::Processes => {
                let supervisor = nf_scaler::start_supervisor(&region, &config, plan, input_sender.clone());
                (Some(supervisor.map_err(HostError::Supervisor)?), None)
            }
            WorkerModel::Inline => {
                let worker = region.join(inline::WORKER)?;
                (None, Some(Box::new(InlineWorker::new(&region, worker, instructions.clone()))))
            }
        };
        let ids = IdAllocator::new(region.clone(), &config.core, (&tmsi_key, part), StdRng::from_os_rng());
        let workers = WorkerPool {
            pools,
            scaler: NfScaler::new(),
            supervisor,
            inline,
            rings: Vec::new(),
            unpushed: FxHashMap::default(),
            returned: VecDeque::new(),
            location,
            instructions,
            nodes: NodeListEncoder::default(),
            faults: Faults::default(),
        };
        let ues = UeStore {
            own,
            plan,
            bell: plan.bell(&region, region_layout::HOST),
            ids,
            slots: 0,
            order: CommitOrder::default(),
            private: stateful.then(FxHashMap::default),
            snapshot: Snapshot::default(),
            scratch: Vec::new(),
            region,
        };
        let mut host = Host {
            inputs,
            input_sender,
            ues,
            workers,
            events: EventQueues::new(&objectives(&config.slices)),
            current: CurrentInput::default(),
            admission: Admission::new(config.overload),
            nodes: Nodes::new(config.allow),
            stale: Budgets::default(),
            udm,
            rng,
            statistics: Statistics::new(StepMetrics::new(metrics, &config.slices), std::time::Instant::now()),
            upfs: config.core.upfs.iter().map(|u| (u.n4, false)).collect(),
            egress,
            machine: Some(new_machine(member.as_ref(), &config.core.timers)),
            cluster: member.map(|member| Box::new(Cluster::new(member))),
            smf,
            persistence: Persistence::default(),
            guests: Guests::default(),
            config: Arc::new(config.core),
        };
        host.first_workers()?;
        kept.into_iter().for_each(|(keep, opened)| host.resume(keep, opened));
        stored.map_or(Ok(()), |kept| host.resume_stored(kept))?;
        Ok(host)
    }

    /// Starts the first workers and waits until they are ready.
    fn first_workers(&mut self) -> Result<(), HostError> {
        for pool_ids in self.workers.pools.first_workers() {
            if self.workers.inline.is_some() {
                self.enter_inline(&pool_ids);
                continue;
            }
            self.launch(&pool_ids);
        }
        let (until, mut killed) = (std::time::Instant::now() + START_TIMEOUT, 0);
        while self.workers.pools.iter().any(|nf| matches!(nf.state, pools::NfState::Starting { .. })) {
            match self.inputs.urgent.recv_deadline(until) {
                Ok(Input::WorkerEvent(WorkerEvent::Failed { worker, error }))
                    if !error.is_kill() || killed == MAX_START_KILLS =>
                {
                    return Err(HostError::Worker { worker, error: error.to_string() });
                }
                Ok(Input::WorkerEvent(WorkerEvent::Down { worker, cause: reason @ ExitCause::Exited(_), .. })) => {
                    return Err(HostError::Worker { worker, error: format!("it ended: {reason:?}") });
                }
                // A worker that was killed is replaced, as at any other time.
                Ok(input) => {
                    killed += u32::from(matches!(input, Input::WorkerEvent(WorkerEvent::Failed { .. })));
                    self.input(input);
                    self.replace_failed_launches();
                }
                Err(_) => return Err(HostError::StartTimeout(START_TIMEOUT)),
            }
        }
        Ok(())
    }

    /// Runs until [`Input::Stop`] or until all senders are dropped.
    pub fn run(mut self) {
        loop {
            match self.pass() {
                HostTurn::Busy => {}
                HostTurn::Idle => self.sleep(),
                HostTurn::Ended => return self.finish(),
            }
        }
    }

    /// Processes inputs, steps and deadlines once.
    fn pass(&mut self) -> HostTurn {
        self.inputs.tick();
        let mut busy = self.read_worker_rings();
        while let Ok(input) = self.inputs.urgent.try_recv() {
            if matches!(input, Input::Stop) {
                return HostTurn::Ended;
            }
            self.input(input);
            busy = true;
        }
        // Deferred events precede new inputs.
        let room = self.post_deferred() && self.waiting_ues() < MAX_WAITING_UES && self.has_room_for_commands();
        self.sort_inputs();
        for _ in 0..if room { BATCH } else { 0 } {
            match self.next_input() {
                Ok(input) => self.input(input),
                Err(TryRecvError::Empty) => break,
                Err(TryRecvError::Disconnected) => return HostTurn::Ended,
            }
            busy = true;
        }
        if self.has_left() {
            return HostTurn::Ended;
        }
        busy |= self.serve_newcomers();
        busy |= self.submit_concealed();
        busy |= self.run_steps();
        self.retry_full_queues();
        self.on_time();
        self.wake();
        self.egress.flush();
        let now = clock();
        if now.since(self.statistics.updated) > vireo_types::Duration::from_millis(500) {
            self.statistics.updated = now;
            self.gauges();
            self.show_half_open(now);
            // The count matters only in a cluster.
            if self.cluster.is_some()
                && let Some(machine) = &mut self.machine
            {
                self.statistics.evicted_claims.update(machine.claims_mut(), &self.statistics.step_metrics.metrics, now);
            }
        }
        busy |= self.has_runnable_steps();
        if !self.keep_contexts(!busy, now) && !busy { HostTurn::Idle } else { HostTurn::Busy }
    }

    /// Returns true if events or UEs wait for room.
    fn has_backlog(&self) -> bool {
        !self.events.deferred.is_empty() || !self.workers.unpushed.is_empty()
    }

    /// Returns the maximum time for which the host may wait for an input or a worker.
    fn time_to_wait(&self) -> Duration {
        let moving = self.is_moving();
        let retries = self.has_backlog() || moving || !self.events.disconnected.is_empty() || self.has_newcomers();
        let retries = retries || !self.admission.concealed.is_empty();
        let now = clock();
        let due = self.events.timers.next().into_iter().chain(self.nodes.contest_due()).chain(self.guests.due());
        let due = due.chain(self.events.changes.due()).min();
        let wait = due.map_or(Duration::from_secs(1), |at| at.since(now).into());
        // A worker that makes room does not wake the host for it.
        wait.min(if retries { Duration::from_micros(200) } else { self.workers.scaler.next(now) })
    }

    /// Returns true if other hosts of the cluster sent something.
    fn has_news(&self) -> bool {
        self.cluster.as_deref().zip(self.owner()).is_some_and(|(cluster, owner)| cluster.has_news(owner))
    }

    /// Waits for an input, a worker or the next deadline.
    fn sleep(&mut self) {
        self.announce_awaited_answers();
        let (blocked, wait) = (self.has_backlog(), self.time_to_wait());
        let is_waiting = !self.events.waiting.is_empty();
        let (inputs, rings) = (&self.inputs, &self.workers.rings);
        let member = self.cluster.as_deref().zip(self.owner());
        self.ues.bell.wait(wait, || {
            let work = !inputs.urgent.is_empty()
                || member.is_some_and(|(cluster, owner)| cluster.has_news(owner))
                || !blocked && (is_waiting || !inputs.queue.is_empty())
                || rings.iter().any(|w| !w.committed.is_empty() || !w.returned.is_empty());
            work.then_some(())
        });
        if let Some(worker) = &mut self.workers.inline {
            worker.wakes_up();
        }
    }

    fn finish(mut self) {
        if self.cluster.is_some() {
            // Other hosts have taken over its UEs.
            return self.stop_workers();
        }
        // The contexts end with this process. NG Reset makes the RAN release all UEs at once.
        let cause = Cause::misc(CauseMisc::om_intervention);
        let associations: Vec<_> =
            self.nodes.iter().filter_map(|(node, _)| self.nodes.association_to(node, None)).collect();
        for assoc in associations {
            self.egress.send(RanOutput::Ngap {
                assoc,
                ue: None,
                key: 0,
                pdu: ran::reset_all(assoc.dialect(), cause.clone()),
            });
        }
        self.stop_workers();
    }

    /// Stops the workers.
    fn stop_workers(mut self) {
        self.egress.flush();
        while self.keep_contexts(true, clock()) {}
        self.gauges();
        self.ues.region.shared_word(region_layout::BOARD_STOP).store(1, Ordering::Release);
        for worker in &self.workers.rings {
            worker.bell.ring();
        }
        if let Some(supervisor) = self.workers.supervisor.take() {
            supervisor.stop();
        }
        if let Some(renewal) = self.persistence.renewal.take() {
            renewal.end();
        } else if let Location::Database(config) = &self.workers.location
            && !config.shared
            && let Err(error) = context_database::clear(config)
        {
            tracing::warn!(%error, key = config.records.key, "contexts are left in the database");
        }
    }

    fn gauges(&self) {
        let metrics = &self.statistics.step_metrics.metrics;
        metrics.population(Population::Gnbs, self.nodes.count());
        metrics.population(Population::Contexts, self.statistics.totals.contexts);
        metrics.population(Population::Registered, self.statistics.totals.registered);
        metrics.population(Population::Connected, self.statistics.totals.connected);
        metrics.population(Population::Sessions, self.statistics.totals.sessions);
        metrics.queue_depth(Queue::N2Inbound, self.waiting_inputs());
        metrics.queue_depth(Queue::N2Outbound, self.egress.len());
        let load = self.udm.load();
        let concealed = load.deconceal_waiting + self.admission.concealed.len();
        metrics.queue_depth(Queue::Subscribers, concealed + load.database_waiting);
        metrics.queue_depth(Queue::SubscriberChanges, self.events.changes.len());
    }

    /// Processes one input.
    fn input(&mut self, input: Input) {
        if let Input::Peer { envelope, at } = input {
            if envelope.receiver == Receiver::ServingHost {
                return self.serve_input(envelope, at);
            }
            return self.own_input(Input::Peer { envelope, at });
        }
        self.own_input(input);
    }

    /// Processes one input that is not about a UE of another host.
    fn own_input(&mut self, input: Input) {
        let Some(input) = self.admit_input(input).and_then(|input| self.waits_for_sessions(input)) else { return };
        let (at, number, bucket) = match &input {
            Input::Peer { envelope, at } => {
                let is_ngap = matches!(envelope.event, PeerEvent::Ngap { .. });
                (is_ngap.then_some(*at), envelope.acknowledged_number(), envelope.bucket)
            }
            _ => (None, 0, None),
        };
        self.current.arrived = at.unwrap_or_else(clock);
        (self.current.input, self.current.bucket) = (number, bucket);
        if self.current.input != 0 {
            self.cluster.iter_mut().for_each(|cluster| cluster.inputs += 1);
        }
        match input {
            Input::Peer { envelope, .. } => self.on_peer_event(envelope.event, envelope.answers),
            Input::Notice(notice) => self.on_notice(notice),
            Input::BalancerUnreachable(balancer) => self.on_balancer_unreachable(*balancer),
            Input::AssociationsLost(associations) => self.on_association_losses(associations),
            Input::Unsent(message) => self.send_again(*message),
            Input::Authentication { ltmsi, answer } => {
                self.deliver_to(ltmsi, &Event::Authentication(*answer).into(), NfKind::Registration);
            }
            Input::SubscribersChanged(changes) => self.on_subscribers_changed(changes),
            Input::SubscriberRecord { supi, is_repeated, subscription } => {
                self.on_subscriber_record(supi, is_repeated, *subscription);
            }
            Input::Reload(reload) => self.reload(&reload),
            Input::Status { filter, reply } => {
                // The requester may have timed out.
                let _ = reply.try_send(self.status(&filter));
            }
            Input::Ues { query, reply } => {
                let _ = reply.try_send(self.ues(&query));
            }
            Input::Deregister { supi, reregister, cause, reply } => {
                let event = Event::Deregister { reregister, cause };
                self.order(supi, &event.into(), NfKind::StateManagement, &reply);
            }
            Input::Relocate { supi, upf, reply } => {
                self.order(supi, &Event::Relocate { upf }.into(), NfKind::Session, &reply);
            }
            Input::Locate { supi, reply } => {
                self.order(supi, &Event::Locate.into(), NfKind::StateManagement, &reply);
            }
            Input::Smf(event) => self.on_smf_event(event),
            Input::DatabaseLoaded(loaded) => self.enter_stored(*loaded),
            Input::Map(map) => {
                self.adopt(&map);
                self.events.changes.repeat();
            }
            Input::BarrierReply { number, whole } => self.on_barrier_reply(number, whole),
            Input::Leave => self.egress.send(ClusterOutput::Leave),
            Input::LeaveGranted => self.on_leave_granted(),
            Input::WorkerEvent(event) => self.on_worker_event(event),
            Input::Reclaimed { worker } => self.workers.scaler.free_number(worker),
            Input::Stop => {}
        }
    }

    /// Processes an event of a RAN node or UPF.
    fn on_peer_event(&mut self, event: PeerEvent, answers: bool) {
        match event {
            PeerEvent::Up { assoc, peer } => self.association_up(assoc, peer),
            PeerEvent::Down { assoc, restarted } => self.on_association_loss(assoc, restarted),
            PeerEvent::Alive { assoc } => self.node_lives(assoc),
            PeerEvent::Ngap { assoc, view, pdu } => self.ngap(assoc, view, &pdu, answers),
            PeerEvent::Undelivered { assoc, ue, pdu } => self.send_again(UnackedMessage { assoc, ue, key: 0, pdu }),
            PeerEvent::Pfcp { upf, seid, request, message } => self.pfcp(upf, seid, request, &message),
            PeerEvent::PfcpTimeout { seid } => {
                self.deliver_to(seid.ltmsi(), &Event::PfcpTimeout { seid }.into(), NfKind::Session);
            }
            PeerEvent::Upf { upf, up } => {
                self.upfs.insert(upf, up);
                if up {
                    self.upf_gets_sessions(upf);
                }
            }
            PeerEvent::UpfLost { upf } => self.events.lost.push_back((upf, 0)),
        }
    }

    /// Processes a notice of a balancer.
    fn on_notice(&mut self, notice: BalancerNotice) {
        match notice {
            BalancerNotice::Claimed(claim) => self.on(machine::Input::Claimed(claim)),
            BalancerNotice::AddressReturned { dnn, address } => self.ues.ids.free_returned(&dnn, &address),
            BalancerNotice::RanNode(of) => self.on_node_report(*of),
            BalancerNotice::Endpoints(addresses) => self.on_balancer_up(&addresses),
        }
    }

    /// Delivers expired deadlines and runs the periodic tasks.
    fn on_time(&mut self) {
        let now = clock();
        (self.current.arrived, self.current.input) = (now, 0);
        self.replicate(now);
        self.sweep(now);
        while let Some(slot) = self.events.timers.due(now) {
            // The deadline may have moved since it was scheduled, or the UE may be gone.
            match self.ues.region.deadline_of(slot) {
                Some(deadline) if deadline <= now => {
                    self.deliver(slot, &Event::Deadline.into(), NfKind::StateManagement);
                }
                Some(deadline) => self.events.timers.schedule(slot, deadline, now),
                // Only the worker can read a context in its private memory.
                None if self.ues.private.as_ref().is_some_and(|private| private.contains_key(&slot)) => {
                    self.deliver(slot, &Event::Deadline.into(), NfKind::StateManagement);
                }
                None => {}
            }
        }
        self.free_unused_slots(now);
        self.notify_upf_loss();
        self.notify_disconnected();
        self.settle_contests(now);
        self.serve_ran_nodes(now);
        self.serve_subscriber_changes(now);
        self.scale_nfs(now);
    }

    /// Schedules deadlines that are within the horizon, a few UEs per call.
    fn sweep(&mut self, now: Instant) {
        let Some((from, count)) = self.events.timers.sweep(now, self.ues.slots) else { return };
        self.evict_broken(from, count);
        let timers = &mut self.events.timers;
        for (slot, deadline) in self.ues.region.slots_from(from, count) {
            if let Some(deadline) = deadline {
                timers.schedule(slot, deadline, now);
            }
        }
    }

    /// Notifies UEs whose sessions a UPF has lost, a few per call.
    fn notify_upf_loss(&mut self) {
        const AT_A_TIME: u32 = 256;
        let Some((upf, from)) = self.events.lost.pop_front() else { return };
        if self.events.deferred.len() < BATCH {
            let slots: Vec<Slot> = self.ues.region.slots_from(from, AT_A_TIME).map(|(slot, _)| slot).collect();
            for slot in slots {
                self.deliver(slot, &Event::UpfLost { upf }.into(), NfKind::StateManagement);
            }
            if from + AT_A_TIME < self.ues.slots {
                self.events.lost.push_front((upf, from + AT_A_TIME));
            }
        } else {
            self.events.lost.push_front((upf, from));
        }
    }
}
