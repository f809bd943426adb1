//! The balancer thread: sockets of N2 and N4, and the routing of messages to hosts.

mod n4_event;
#[cfg(test)]
mod tests;
mod traces;
mod unsent;

use crate::admission::Admission;
use crate::assoc_ids::AssocIdMap;
use crate::fleet::{Fleet, HostCommand};
use crate::hot_restart::HotRestartListener;
use crate::ppid;
use crossbeam_channel::{Receiver, Sender, TrySendError, bounded};
use n4_event::n4_event;
use rand::RngCore;
use rustc_hash::FxHashMap;
use std::collections::VecDeque;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant as Monotonic};
use vireo_cluster::{
    COMMANDS, Command, CommandReceiver, CommandSender, HostSender, HostTurn, HostTurns, Input, LocalHost,
    ProgressCounter,
};
use vireo_core::amf::access;
use vireo_core::amf::n2::Route;
use vireo_core::amf::ran::admission::Refusal;
use vireo_core::placement::message::{Envelope, PeerEvent, RanOutput};
use vireo_n4 as n4;
use vireo_n4::ue_peers::UePeers;
use vireo_ops::clock::clock;
use vireo_ops::config::N2Config;
use vireo_ops::metrics::{Fault, Flow, Metrics};
use vireo_ops::priority_boost::PriorityBoost;
use vireo_ops::privileges;
use vireo_ops::reload::AllowLists;
use vireo_sctp::{Endpoint, Event, SendError, Waker};
use vireo_types::{AssocId, Instant, Ltmsi};
use vireo_wire::pfcp::{Cause, Error};

/// Maximum time for the shutdown of associations.
const DRAIN: Duration = Duration::from_secs(2);
const N4_TOKEN: u64 = 1;
const FABRIC_TOKEN: u64 = 2;
pub(crate) const HOT_RESTART_TOKEN: u64 = 3;

/// Number of turns of a host on this thread between two polls of the sockets.
const HOST_TURNS: u32 = 4;

/// Destination of inputs.
#[derive(Debug)]
pub(crate) enum Hosts {
    /// The host in this process, with a thread of its own.
    Local(Box<HostSender>),
    /// The host on the thread of the balancer.
    OnThread { input_sender: Box<HostSender>, host: Box<dyn LocalHost> },
    /// The hosts of a cluster, connected by the fabric.
    Fabric(Box<Fleet>),
}

impl Hosts {
    /// Passes an input to the host that must handle it. Returns the input if there is no room.
    #[allow(clippy::result_large_err, reason = "a refused input returns to its sender, and none is allocated")]
    #[inline]
    fn send(&mut self, at: Instant, event: PeerEvent) -> Result<(), Input> {
        match self {
            Hosts::Local(input_sender) | Hosts::OnThread { input_sender, .. } => {
                put(input_sender, Input::Peer { envelope: Envelope::new(event), at })
            }
            Hosts::Fabric(fleet) => {
                fleet.route(event);
                Ok(())
            }
        }
    }

    /// Returns true if inputs wait for the hosts of a cluster.
    fn is_congested(&self) -> bool {
        matches!(self, Hosts::Fabric(fleet) if fleet.machine().is_congested())
    }

    /// Sends queued inputs and wakes the host.
    #[inline]
    fn flush(&mut self) {
        match self {
            Hosts::Local(input_sender) => input_sender.wake(),
            Hosts::OnThread { .. } => {}
            Hosts::Fabric(fleet) => fleet.flush(),
        }
    }
}

/// Capacity of the queue of reloaded allow lists.
const RELOADS: usize = 16;

/// A balancer. One thread runs it ([`Balancer::run`]).
pub struct Balancer {
    pub(crate) endpoint: Box<dyn Endpoint>,
    pub(crate) n4: n4::Endpoint,
    n4_due: Option<Instant>,
    /// Counted PFCP messages from UE addresses.
    n4_from_ues: u64,
    pub(crate) hosts: Hosts,
    /// Inputs for which the queue of the host in this process had no room. While it is not empty,
    /// no socket is read.
    deferred: VecDeque<Input>,
    commands: CommandReceiver,
    pub(crate) assoc_ids: AssocIdMap,
    /// Keyed by the driver's association IDs.
    pub(crate) associations: FxHashMap<AssocId, Association>,
    admission: Admission,
    /// Filters for peers with UE addresses: on N2, which aborts such associations, and on N4, whose
    /// endpoint drops such messages itself.
    ue_peers: [UePeers; 2],
    /// Callback for the address of each RAN node that connects (`true`) or disconnects (`false`).
    nodes: Option<Box<dyn Fn(IpAddr, bool) + Send>>,
    metrics: Arc<Metrics>,
    stop: Arc<AtomicBool>,
    /// Allow lists of a reloaded configuration, applied in the next iteration.
    lists: Receiver<AllowLists>,
    /// Hot restart: the listener for a successor, and whether a successor has taken over.
    pub(crate) hot_restart: Option<HotRestartListener>,
    pub(crate) replaced: Arc<AtomicBool>,
    /// Grows at least once a second while the thread runs.
    progress: ProgressCounter,
}

impl std::fmt::Debug for Balancer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Balancer").field("driver", &self.endpoint.driver()).finish_non_exhaustive()
    }
}

#[derive(Debug, Default)]
pub(crate) struct Association {
    pub(crate) streams: u16,
    /// Peer address; only if `Balancer::nodes` is set.
    pub(crate) peer: Option<IpAddr>,
    /// Messages with their streams for which the send buffer of the association had no room, in
    /// order.
    pub(crate) unsent: VecDeque<(u16, Vec<u8>)>,
    /// Bytes that they take.
    unsent_octets: usize,
}

/// A balancer and its ends for other threads.
#[derive(Debug)]
pub struct BalancerParts {
    pub balancer: Balancer,
    /// Sender of the commands of a host in this process.
    pub commands: CommandSender,
    pub stopper: StopHandle,
}

/// Handle for other threads to stop a balancer or to replace its allow lists.
#[derive(Clone, Debug)]
pub struct StopHandle {
    stop: Arc<AtomicBool>,
    lists: Sender<AllowLists>,
    waker: Waker,
    replaced: Arc<AtomicBool>,
    progress: ProgressCounter,
}

impl StopHandle {
    /// Stops the balancer, which then shuts down its associations gracefully.
    pub fn stop(&self) {
        self.stop.store(true, Ordering::SeqCst);
        self.waker.wake();
    }

    /// Replaces the allow lists. Existing associations stay up.
    pub fn allow(&self, lists: AllowLists) {
        if self.lists.try_send(lists).is_err() {
            tracing::error!("lists of peers not applied: the balancer thread hangs or has ended");
        }
        self.waker.wake();
    }

    /// Returns true if another process has replaced this balancer by a hot restart.
    pub fn has_successor(&self) -> bool {
        self.replaced.load(Ordering::SeqCst)
    }

    /// Returns the number of iterations of the balancer: it grows at least once a second unless the
    /// thread hangs.
    pub fn progress(&self) -> u64 {
        self.progress.count()
    }
}

impl Balancer {
    /// Creates a balancer over bound endpoints that passes inputs to one host of the same process.
    pub fn with_local_host(
        endpoint: Box<dyn Endpoint>,
        n4: n4::Endpoint,
        host: HostSender,
        metrics: Arc<Metrics>,
    ) -> std::io::Result<BalancerParts> {
        Balancer::over(endpoint, n4, Hosts::Local(Box::new(host)), metrics)
    }

    /// Creates a balancer for the hosts of a cluster.
    pub fn for_fleet(
        mut endpoint: Box<dyn Endpoint>,
        n4: n4::Endpoint,
        fleet: Fleet,
        metrics: Arc<Metrics>,
    ) -> std::io::Result<(Self, StopHandle)> {
        endpoint.watch(fleet.fd(), FABRIC_TOKEN)?;
        let assoc_ids = AssocIdMap::new(fleet.balancer(), rand::rng().next_u32());
        let mut n4 = n4;
        // The balancer is passive on N4 until a cluster map makes it the active N4 balancer.
        n4.deactivate(clock());
        let BalancerParts { balancer, stopper, .. } =
            Balancer::over(endpoint, n4, Hosts::Fabric(Box::new(fleet)), metrics)?;
        Ok((Balancer { assoc_ids, ..balancer }, stopper))
    }

    /// Creates the successor of a balancer after a hot restart. `first` is the first association
    /// ID. The N4 role stays unchanged.
    pub(crate) fn from_predecessor(
        mut endpoint: Box<dyn Endpoint>,
        n4: n4::Endpoint,
        fleet: Fleet,
        first: u32,
        metrics: Arc<Metrics>,
    ) -> std::io::Result<(Self, StopHandle)> {
        endpoint.watch(fleet.fd(), FABRIC_TOKEN)?;
        let assoc_ids = AssocIdMap::new(fleet.balancer(), first);
        let BalancerParts { balancer, stopper, .. } =
            Balancer::over(endpoint, n4, Hosts::Fabric(Box::new(fleet)), metrics)?;
        Ok((Balancer { assoc_ids, ..balancer }, stopper))
    }

    fn over(
        mut endpoint: Box<dyn Endpoint>,
        n4: n4::Endpoint,
        hosts: Hosts,
        metrics: Arc<Metrics>,
    ) -> std::io::Result<BalancerParts> {
        for fd in n4.fds() {
            endpoint.watch(fd, N4_TOKEN)?;
        }
        let (outbound, commands) = vireo_cluster::channel(COMMANDS, endpoint.waker());
        let stop = Arc::new(AtomicBool::new(false));
        let replaced = Arc::new(AtomicBool::new(false));
        let (sender, lists) = bounded(RELOADS);
        let progress = ProgressCounter::default();
        let stopper = StopHandle {
            stop: Arc::clone(&stop),
            lists: sender,
            waker: endpoint.waker(),
            replaced: Arc::clone(&replaced),
            progress: progress.clone(),
        };
        let ue_peers = ["n2", "n4"].map(|interface| UePeers::new(interface, n4.n4().ue_pools().to_vec()));
        let balancer = Balancer {
            endpoint,
            n4,
            n4_due: Some(Instant::default()),
            n4_from_ues: 0,
            hosts,
            deferred: VecDeque::new(),
            commands,
            assoc_ids: AssocIdMap::default(),
            associations: FxHashMap::default(),
            admission: Admission::default(),
            ue_peers,
            nodes: None,
            metrics,
            stop,
            lists,
            hot_restart: None,
            replaced,
            progress,
        };
        Ok(BalancerParts { balancer, commands: outbound, stopper })
    }

    /// Runs the local host on the thread of the balancer. Its inputs must wake that thread.
    pub fn run_on_thread(&mut self, host: Box<dyn LocalHost>) {
        if let Hosts::Local(input_sender) = &self.hosts {
            self.hosts = Hosts::OnThread { input_sender: input_sender.clone(), host };
        }
    }

    /// Sets the limits of associations. Without a call, all associations are accepted.
    pub fn limit(&mut self, config: &N2Config) {
        self.admission.limit(config);
        if config.is_open() {
            tracing::warn!(
                addresses = ?config.addresses,
                "every RAN node is permitted on addresses that are not private; set [[n2.allow]] or use IPsec"
            );
        }
    }

    /// Restores the admission state of the predecessor's associations after a hot restart.
    pub(crate) fn resume_admission(&mut self, config: &N2Config) {
        self.admission.limit(config);
        let Hosts::Fabric(fleet) = &self.hosts else { return };
        for assoc in self.associations.keys() {
            if let Some((peer, is_node)) = fleet.machine().association(self.assoc_ids.to_cluster(*assoc)) {
                self.admission.resume(*assoc, peer.ip(), is_node, clock());
            }
        }
    }

    /// Aborts associations whose NG Setup is overdue, and those that make room for other machines.
    fn abort_overdue(&mut self) {
        if self.admission.due().is_none() {
            return;
        }
        let overdue = self.admission.overdue(clock()).into_iter().map(|ended| (ended, Refusal::NoSetup));
        let displaced = self.admission.take_displaced().into_iter().map(|ended| (ended, Refusal::Full));
        for ((assoc, peer), reason) in overdue.chain(displaced) {
            self.metrics.n2_refused(reason);
            tracing::warn!(%peer, assoc = self.assoc_ids.to_cluster(assoc).0, reason = reason.label(), "association ended");
            self.endpoint.abort(assoc);
        }
    }

    /// Sets a callback that receives the address of each RAN node that connects or disconnects.
    pub fn set_node_callback(&mut self, nodes: impl Fn(IpAddr, bool) + Send + 'static) {
        self.nodes = Some(Box::new(nodes));
    }

    /// Runs until it is stopped, then shuts down the associations. Returns early if a hot restart
    /// has replaced the balancer.
    ///
    /// # Errors
    ///
    /// Returns an error if polling fails, or if the cluster has removed this balancer.
    pub fn run(mut self) -> std::io::Result<()> {
        if self.endpoint.parses_packets() {
            // All sockets are open, and no packet has been parsed yet.
            privileges::confine_thread(matches!(&self.hosts, Hosts::Fabric(_)));
        }
        let mut priority_boost = match &self.hosts {
            Hosts::Fabric(fleet) => Some(PriorityBoost::new(fleet.heartbeat(), Monotonic::now())),
            Hosts::Local(_) | Hosts::OnThread { .. } => None,
        };
        while !self.stop.load(Ordering::SeqCst) {
            self.progress.tick();
            priority_boost.iter_mut().for_each(|priority_boost| priority_boost.update(Monotonic::now()));
            self.run_once()?;
            // At this point, all commands received from hosts have been executed.
            if self.hand_over_if_requested() {
                self.detach();
                return Ok(());
            }
        }
        self.drain()
    }

    fn run_once(&mut self) -> std::io::Result<()> {
        self.commands();
        let is_busy = self.run_host()?;
        while let Ok(AllowLists { n2, n4 }) = self.lists.try_recv() {
            self.admission.set_allow(n2);
            self.n4.set_allow(n4);
        }
        let sent = self.fabric()?;
        self.drop_associations_if_isolated();
        self.abort_overdue();
        self.release_deferred();
        self.hosts.flush();
        if !self.deferred.is_empty() || self.hosts.is_congested() {
            // No socket is read until the host has room. The host does not signal that, so the
            // balancer polls.
            // A host on this thread makes room as it runs.
            if !matches!(self.hosts, Hosts::OnThread { .. }) {
                std::thread::sleep(Duration::from_micros(100));
            }
            return Ok(());
        }
        let now = clock();
        let time_until = |due: Instant| Duration::from(due.since(now));
        let due = self.n4_due.into_iter().chain(self.admission.due()).min();
        let mut wait = due.map_or(Duration::from_secs(1), time_until);
        if let Hosts::Fabric(fleet) = &self.hosts {
            wait = wait.min(time_until(fleet.due()));
        }
        // The thread does not block while commands are unsent or unacknowledged.
        let mut may_sleep = self.commands.sleep() && !sent && !is_busy;
        if let Hosts::OnThread { host, .. } = &mut self.hosts
            && may_sleep
        {
            let at_most = host.sleep();
            (may_sleep, wait) = (at_most.is_some(), wait.min(at_most.unwrap_or_default()));
        }
        let wait = if may_sleep { wait.min(Duration::from_secs(1)) } else { Duration::ZERO };
        let readable = self.poll(wait)?;
        self.commands.awake();
        if let Hosts::OnThread { host, .. } = &mut self.hosts {
            host.awake();
        }
        if let Hosts::Fabric(fleet) = &mut self.hosts {
            fleet.acknowledge_sent();
        }
        // A balancer that is not the active N4 balancer also answers PFCP heartbeats.
        if readable || self.n4_due.is_some_and(|due| due <= clock()) {
            self.poll_n4()?;
        }
        // One wake-up for all received messages: on a shared CPU, the host would otherwise run once
        // for each message.
        self.hosts.flush();
        Ok(())
    }

    /// Runs the host on this thread until nothing waits, and executes its commands. Returns true if
    /// it has more to do.
    fn run_host(&mut self) -> std::io::Result<bool> {
        for () in HostTurns::begin(HOST_TURNS) {
            let Hosts::OnThread { host, .. } = &mut self.hosts else { return Ok(false) };
            match host.run_once() {
                HostTurn::Busy => self.commands(),
                HostTurn::Idle => return Ok(false),
                HostTurn::Ended => return Err(std::io::Error::other("the host has ended")),
            }
        }
        Ok(true)
    }

    /// Aborts all associations if this balancer is isolated, so that RAN nodes use other balancers
    /// at once.
    fn drop_associations_if_isolated(&mut self) {
        if matches!(&self.hosts, Hosts::Fabric(fleet) if fleet.machine().is_isolated()) {
            for assoc in self.associations.keys().copied().collect::<Vec<_>>() {
                self.endpoint.abort(assoc);
            }
        }
    }

    /// Activates or deactivates N4 by the cluster map. One balancer of a cluster exchanges PFCP
    /// with the UPFs.
    fn update_n4_role(&mut self) {
        let Hosts::Fabric(fleet) = &mut self.hosts else { return };
        let (holds, takes_over) = (fleet.machine().holds_n4(), !fleet.machine().is_first_map());
        let now = clock();
        match (holds, self.n4.n4().is_active()) {
            (true, false) => {
                tracing::info!(takes_over, "this balancer holds N4");
                let (hosts, deferred) = (&mut self.hosts, &mut self.deferred);
                self.n4.activate(now, takes_over, &mut |event| n4_event(hosts, deferred, event));
                self.n4_due = Some(now);
            }
            (false, true) => {
                tracing::warn!("another balancer holds N4");
                fleet.deactivate_n4();
                self.n4.deactivate(now);
            }
            _ => {}
        }
    }

    /// Receives messages of hosts and the controller, and executes their commands. Returns true if
    /// an NGAP message was sent.
    fn fabric(&mut self) -> std::io::Result<bool> {
        let Hosts::Fabric(fleet) = &mut self.hosts else { return Ok(false) };
        fleet.pump();
        if let Some(end) = fleet.take_exit_reason() {
            return Err(std::io::Error::other(end));
        }
        // The N4 role must change before commands that hosts sent under the new map are executed.
        self.update_n4_role();
        let mut sent = 0;
        while let Hosts::Fabric(fleet) = &mut self.hosts
            && let Some(command) = fleet.next_command()
        {
            match command {
                HostCommand::Output(output) => {
                    sent += u64::from(matches!(output, RanOutput::Ngap { .. }));
                    self.execute(output);
                }
                HostCommand::Barrier { host, number } => fleet.on_barrier(host, number),
            }
        }
        self.flush(sent);
        Ok(sent > 0)
    }

    /// Processes the events of the SCTP endpoint. Returns true if N4 is readable.
    fn poll(&mut self, wait: Duration) -> std::io::Result<bool> {
        let mut n4 = false;
        let mut writable = Vec::new();
        let (hosts, deferred, metrics) = (&mut self.hosts, &mut self.deferred, &self.metrics);
        let (associations, admission, assoc_ids) = (&mut self.associations, &mut self.admission, self.assoc_ids);
        let (mut received, mut restart_requested, mut refused) = (0, false, Vec::new());
        let ([n2_peers, _], nodes) = (&mut self.ue_peers, &self.nodes);
        let (n4_endpoint, mut n4_readable, mut n4_received) = (&mut self.n4, false, Ok(false));
        let polled = self.endpoint.poll(Some(wait), &mut |event| {
            let event = match event {
                Event::Up { assoc, peer, .. } if n2_peers.has(peer.ip()) => {
                    metrics.fault(Fault::SctpFromUe);
                    n2_peers.log(peer.ip(), 1);
                    refused.push(assoc);
                    return;
                }
                Event::Message { assoc, .. } | Event::Restarted { assoc } if refused.contains(&assoc) => return,
                Event::Up { assoc, peer, outbound_streams } => {
                    if let Err(reason) = admission.up(assoc, peer.ip(), clock()) {
                        metrics.n2_refused(reason);
                        tracing::warn!(%peer, reason = reason.label(), "association refused");
                        refused.push(assoc);
                        return;
                    }
                    nodes.iter().for_each(|notify| notify(peer.ip(), true));
                    let peer_of = nodes.is_some().then(|| peer.ip());
                    let new = Association { streams: outbound_streams, peer: peer_of, ..Association::default() };
                    associations.insert(assoc, new);
                    PeerEvent::Up { assoc: assoc_ids.to_cluster(assoc), peer }
                }
                Event::Restarted { assoc } => {
                    let (streams, peer) = associations.get(&assoc).map_or((1, None), |a| (a.streams, a.peer));
                    associations.insert(assoc, Association { streams, peer, ..Association::default() });
                    admission.start_deadline(assoc, clock());
                    PeerEvent::Down { assoc: assoc_ids.to_cluster(assoc), restarted: true }
                }
                Event::Alive { assoc } => PeerEvent::Alive { assoc: assoc_ids.to_cluster(assoc) },
                Event::Down { assoc, reason } => {
                    admission.down(assoc);
                    let Some(removed) = associations.remove(&assoc) else { return };
                    nodes.iter().zip(removed.peer).for_each(|(notify, peer)| notify(peer, false));
                    let assoc = assoc_ids.to_cluster(assoc);
                    tracing::debug!(assoc = assoc.0, reason, "an association ended");
                    PeerEvent::Down { assoc, restarted: false }
                }
                Event::Message { assoc, ppid, data, .. } => {
                    if let Some(fault) = ppid::fault(assoc, ppid, data.len()) {
                        metrics.fault(fault);
                        let octets = data.len();
                        tracing::debug!(assoc = assoc.0, ppid, octets, "a message that is no PDU was dropped");
                        return;
                    }
                    received += 1;
                    if std::mem::take(&mut n4_readable) {
                        // A message may follow from what a UPF did: a UE that has got its packets
                        // may be released at once. The host gets messages of the UPFs first.
                        n4_received = n4_endpoint.receive(clock(), &mut |event| n4_event(hosts, deferred, event));
                    }
                    let (view, assoc) = (access::peek(assoc.dialect(), data).ok(), assoc_ids.to_cluster(assoc));
                    traces::record_received(view.as_ref(), data.len());
                    // The host determines the fault of an invalid message.
                    PeerEvent::Ngap { assoc, view, pdu: data.to_vec() }
                }
                Event::Writable { assoc } => {
                    writable.push(assoc);
                    return;
                }
                Event::Unacknowledged { assoc, data, .. } => match access::route(assoc.dialect(), data) {
                    Ok(Route::Ue(id)) => {
                        let (assoc, ue) = (assoc_ids.to_cluster(assoc), id.ltmsi());
                        PeerEvent::Undelivered { assoc, ue, pdu: data.to_vec() }
                    }
                    // A message without a UE needs no retry: it concerns only the lost association.
                    _ => return,
                },
                Event::Readable { token } => {
                    // The fabric is polled in every iteration.
                    n4 |= token == N4_TOKEN;
                    n4_readable |= token == N4_TOKEN;
                    restart_requested |= token == HOT_RESTART_TOKEN;
                    return;
                }
            };
            offer(hosts, deferred, event);
        });
        metrics.messages(Flow::NgapIn, received);
        polled?;
        n4_received?;
        refused.into_iter().for_each(|assoc| self.endpoint.abort(assoc));
        if let Some(hot_restart) = self.hot_restart.as_ref().filter(|_| restart_requested) {
            hot_restart.accept(&self.endpoint.waker());
        }
        for assoc in writable {
            self.send_unsent(assoc);
        }
        Ok(n4)
    }

    fn poll_n4(&mut self) -> std::io::Result<()> {
        let (hosts, deferred) = (&mut self.hosts, &mut self.deferred);
        self.n4_due = self.n4.poll(clock(), &mut |event| n4_event(hosts, deferred, event))?;
        self.metrics.faults(Fault::PfcpUnlisted, self.n4.take_unlisted());
        if let Some(ue) = self.n4.take_ue() {
            let sum = self.n4.counters().from_ues;
            let count = sum - std::mem::replace(&mut self.n4_from_ues, sum);
            (0..count).for_each(|_| self.metrics.fault(Fault::PfcpFromUe));
            self.ue_peers[1].log(ue, count);
        }
        Ok(())
    }

    fn release_deferred(&mut self) {
        let (Hosts::Local(input_sender) | Hosts::OnThread { input_sender, .. }) = &self.hosts else { return };
        while let Some(input) = self.deferred.pop_front() {
            if let Err(input) = put(input_sender, input) {
                self.deferred.push_front(input);
                return;
            }
        }
    }

    /// Executes the commands of the host.
    fn commands(&mut self) {
        let mut sent = 0;
        while let Ok(command) = self.commands.queue.try_recv() {
            // A host in the same process has no cluster.
            let Command::Ran(output) = command else { continue };
            sent += u64::from(matches!(output, RanOutput::Ngap { .. }));
            self.execute(output);
        }
        self.flush(sent);
    }

    fn flush(&mut self, sent: u64) {
        self.n4.flush();
        if sent > 0 {
            self.metrics.messages(Flow::NgapOut, sent);
        }
    }

    /// Executes an output of a host.
    fn execute(&mut self, output: RanOutput) {
        match output {
            RanOutput::Ngap { assoc, ue, key, pdu } => {
                if ue.is_none() {
                    self.on_sent_to_node(assoc, &pdu);
                }
                traces::record_sent(ue, key, pdu.len());
                self.send(assoc, ue, pdu);
            }
            // Hosts send these again to the active N4 balancer.
            RanOutput::Pfcp { .. } | RanOutput::RefuseReport { .. } if !self.n4.n4().is_active() => {}
            RanOutput::Pfcp { upf, key, seid, message, .. } => {
                let (hosts, deferred) = (&mut self.hosts, &mut self.deferred);
                let now = clock();
                let session = seid.unwrap_or_default();
                traces::note_submitted(seid, key, &message, now);
                let submitted = self.n4.submit(now, upf, Some(key), session, &message, &mut |event| {
                    n4_event(hosts, deferred, event);
                });
                // The new request may be due before the current deadline.
                self.n4_due = Some(now);
                if let Err(error) = submitted {
                    tracing::debug!(%error, "a PFCP request was not sent");
                    // The session handles a failed send like a missing response of the UPF.
                    if let Some(seid) = seid {
                        offer(&mut self.hosts, &mut self.deferred, PeerEvent::PfcpTimeout { seid });
                    }
                }
            }
            RanOutput::RefuseReport { upf, message } => {
                let error = Error { cause: Cause::SESSION_CONTEXT_NOT_FOUND, offending_ie: None };
                self.n4.refuse_report(clock(), upf, &message, error);
            }
            RanOutput::Abort { assoc } => {
                if let Hosts::Fabric(fleet) = &mut self.hosts {
                    fleet.on_abort(assoc);
                }
                if let Some(assoc) = self.assoc_ids.to_driver(assoc) {
                    self.endpoint.abort(assoc);
                }
            }
            RanOutput::Probe { assoc } => {
                if let Some(assoc) = self.assoc_ids.to_driver(assoc) {
                    self.endpoint.probe(assoc);
                }
            }
        }
    }

    /// Updates the set-up state of an association by a message to the RAN node that does not
    /// concern a UE.
    fn on_sent_to_node(&mut self, assoc: AssocId, pdu: &[u8]) {
        if let Some(own) = self.assoc_ids.to_driver(assoc) {
            self.admission.on_sent(own, pdu, clock());
        }
        if let Hosts::Fabric(fleet) = &mut self.hosts {
            fleet.on_node_message(assoc, pdu);
        }
    }

    /// Sends a PDU: on stream 0 if it does not concern a UE, else on a stream chosen by the UE (TS
    /// 38.412 clause 7, TS 36.412 clause 7).
    fn send(&mut self, assoc: AssocId, ue: Option<Ltmsi>, pdu: Vec<u8>) {
        let Some(assoc) = self.assoc_ids.to_driver(assoc) else { return };
        let Some(association) = self.associations.get_mut(&assoc) else { return };
        let others = u32::from(association.streams.saturating_sub(1));
        let stream = match ue {
            Some(ue) if others > 0 => 1 + (u32::from(ue.number()) % others) as u16,
            _ => 0,
        };
        if pdu.is_empty() {
            // An encoding failure is a bug of this program. The message is logged, never silently
            // dropped.
            tracing::error!(assoc = assoc.0, ?ue, "bug: message to a RAN node does not encode; not sent");
            return;
        }
        if association.unsent.is_empty() {
            match self.endpoint.send(assoc, stream, ppid::by_dialect(assoc), &pdu) {
                Ok(()) | Err(SendError::NoAssociation) => return,
                Err(SendError::Full) => {}
                Err(SendError::Io(error)) => {
                    tracing::warn!(assoc = assoc.0, %error, "message refused by SCTP");
                    return;
                }
            }
        }
        if association.refuses(assoc, &pdu) {
            self.refuse_relayed(assoc, &pdu);
        } else if association.queue(stream, pdu) {
            self.limit_unsent(assoc);
        }
    }

    /// Sends the last messages of the host, then ends the associations with RAN nodes and UPFs.
    /// Waits at most [`DRAIN`].
    fn drain(mut self) -> std::io::Result<()> {
        let deadline = Monotonic::now() + DRAIN;
        match &mut self.hosts {
            Hosts::Local(input_sender) => drop(input_sender.send_urgent(Input::Stop)),
            Hosts::OnThread { .. } => {}
            Hosts::Fabric(fleet) => fleet.stop_heartbeats(),
        }
        if let Hosts::OnThread { input_sender, host } = self.hosts {
            self.hosts = Hosts::Local(input_sender);
            host.end();
        }
        self.commands();
        // Another balancer takes over the PFCP associations and sessions.
        if matches!(&self.hosts, Hosts::Fabric(fleet) if !fleet.machine().is_alone()) {
            tracing::info!("next balancer takes over the PFCP associations");
        } else if self.n4.n4().is_active() {
            self.n4.release_all(clock());
        }
        for assoc in self.associations.keys() {
            self.endpoint.shutdown(*assoc);
        }
        while (!self.associations.is_empty() || self.n4.n4().is_releasing()) && Monotonic::now() < deadline {
            let associations = &mut self.associations;
            self.endpoint.poll(Some(Duration::from_millis(50)), &mut |event| {
                if let Event::Down { assoc, .. } = event {
                    associations.remove(&assoc);
                }
            })?;
            self.n4.poll(clock(), &mut |_| ())?;
        }
        Ok(())
    }
}

/// Passes an input to the host in this process. Returns the input if there is no room.
#[allow(clippy::result_large_err, reason = "a refused input returns to its sender, and none is allocated")]
fn put(input_sender: &HostSender, input: Input) -> Result<(), Input> {
    match input_sender.try_put(input) {
        Ok(()) | Err(TrySendError::Disconnected(_)) => Ok(()),
        Err(TrySendError::Full(input)) => Err(input),
    }
}

/// Passes an event to the host, or queues it until there is room.
fn offer(hosts: &mut Hosts, deferred: &mut VecDeque<Input>, event: PeerEvent) {
    let at = clock();
    if !deferred.is_empty() {
        deferred.push_back(Input::Peer { envelope: Envelope::new(event), at });
    } else if let Err(input) = hosts.send(at, event) {
        deferred.push_back(input);
    }
}
