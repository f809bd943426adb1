//! The hosts of a cluster, as its balancer sees them: who they are, which has which bucket (by the map of
//! [`vireo_core::balance`]), what was given to each and is not known to be carried out, and what becomes of that when one
//! dies. The balancer is all that emits towards RAN and UPFs; a host that it has given up has lost its connection, and
//! says nothing to anybody any more.

mod flight;
mod member;
mod steer;

use super::Command;
use crate::api::HostStatus;
use crate::clock::clock;
use crate::cluster::ClusterConfig;
use crate::config::{NF_KINDS, SliceRuntime};
use crate::fabric::Role;
use crate::fabric::frame::FrameError;
use crate::fabric::message::{Map, ToHost, Welcome};
use crate::fabric::stream::Stream;
use crate::host::Input;
use crate::metrics::{Flow, Metrics};
use flight::Repeats;
use member::{Member, State};
use rand::RngCore;
use rustc_hash::FxHashMap;
use rustix::event::epoll;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::{SocketAddr, TcpListener};
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use steer::Steering;
use vireo_core::balance::HostId;
use vireo_core::balance::map::{BucketMap, SlicePart};
use vireo_core::balance::moves::CatchUp;
use vireo_core::balance::ring::Weighted;
use vireo_core::config::CoreConfig;
use vireo_types::{AssocId, Instant};

/// Octets that may wait for a host that does not read; beyond, the RAN is held back.
const UNSENT: usize = 8 << 20;
/// Connections whose other ends have not said who they are.
const STRANGERS: usize = 64;
/// NG Setup and configuration updates that are kept of a RAN node, for hosts that join later.
const SAID: usize = 32;
const LISTENER: u64 = 0;

/// What is known of a RAN node: enough to tell a host that joins.
#[derive(Debug)]
struct Node {
    peer: SocketAddr,
    /// Its NG Setup Request, and the configuration updates since.
    said: VecDeque<Vec<u8>>,
}

/// What is seen of a fleet from other threads.
pub(crate) type View = Arc<Mutex<Seen>>;

/// What that is.
#[derive(Debug, Default)]
pub(crate) struct Seen {
    /// The hosts.
    pub(crate) hosts: Vec<HostStatus>,
    /// The UPFs, and whether each is associated.
    pub(crate) upfs: Vec<(SocketAddr, bool)>,
}

/// The hosts.
#[derive(Debug)]
pub(crate) struct Fleet {
    config: ClusterConfig,
    slices: usize,
    listener: TcpListener,
    epoll: OwnedFd,
    /// By the tokens of their connections.
    members: BTreeMap<u64, Member>,
    /// The connection of each host that serves.
    serving: FxHashMap<HostId, u64>,
    next_token: u64,
    next_host: u16,
    tmsi_key: [u8; 16],
    map: Option<BucketMap>,
    /// Who has not all copies yet that the map wants.
    catch_up: CatchUp,
    /// Whether all buckets are where they are to be.
    settled: bool,
    /// Hosts that give their buckets away and leave.
    draining: BTreeSet<HostId>,
    steering: Steering,
    nodes: FxHashMap<AssocId, Node>,
    upfs: FxHashMap<SocketAddr, bool>,
    /// The number of the last input.
    number: u64,
    /// Inputs of hosts that died, which go before all others.
    again: VecDeque<(u64, Input)>,
    repeats: Repeats,
    /// What hosts want sent, until the balancer takes it.
    commands: VecDeque<Command>,
    /// When it was last looked who has said nothing.
    looked: Instant,
    metrics: Arc<Metrics>,
    view: View,
}

impl Fleet {
    /// A fleet without hosts, which may join from now on.
    ///
    /// # Errors
    ///
    /// When the address is not to be had.
    pub(crate) fn listen(
        config: ClusterConfig,
        core: &CoreConfig,
        slices: &[SliceRuntime],
        metrics: Arc<Metrics>,
    ) -> std::io::Result<Self> {
        let listener = TcpListener::bind(config.balancer)?;
        listener.set_nonblocking(true)?;
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        epoll::add(&epoll, &listener, epoll::EventData::new_u64(LISTENER), epoll::EventFlags::IN)?;
        let mut tmsi_key = [0; 16];
        rand::rng().fill_bytes(&mut tmsi_key);
        let fleet = Fleet {
            steering: Steering::new(config.inter, core.clone(), slices, &tmsi_key, config.report),
            slices: slices.len(),
            config,
            listener,
            epoll,
            members: BTreeMap::new(),
            serving: FxHashMap::default(),
            next_token: LISTENER + 1,
            next_host: 0,
            tmsi_key,
            map: None,
            catch_up: CatchUp::default(),
            settled: true,
            draining: BTreeSet::new(),
            nodes: FxHashMap::default(),
            upfs: core.upfs.iter().map(|upf| (upf.n4, false)).collect(),
            number: 0,
            again: VecDeque::new(),
            repeats: Repeats::default(),
            commands: VecDeque::new(),
            looked: clock(),
            metrics,
            view: View::default(),
        };
        fleet.show_upfs();
        Ok(fleet)
    }

    /// What becomes readable when there is something for [`Fleet::pump`].
    pub(crate) fn fd(&self) -> RawFd {
        self.epoll.as_raw_fd()
    }

    /// What is seen of it from other threads.
    pub(crate) fn view(&self) -> View {
        Arc::clone(&self.view)
    }

    /// Until when [`Fleet::pump`] need not be called.
    pub(crate) fn due(&self) -> Instant {
        self.looked + vireo_types::Duration::from(self.config.heartbeat)
    }

    /// What hosts want sent, one after the other.
    pub(crate) fn next_command(&mut self) -> Option<Command> {
        self.commands.pop_front()
    }

    /// Takes what hosts have said, sends what waits for them, and looks who has died.
    pub(crate) fn pump(&mut self) {
        let mut events =
            [const { epoll::Event { flags: epoll::EventFlags::empty(), data: epoll::EventData::new_u64(0) } }; 32];
        let nothing = rustix::event::Timespec { tv_sec: 0, tv_nsec: 0 };
        let ready = match epoll::wait(&self.epoll, &mut events[..], Some(&nothing)) {
            Ok(ready) => ready,
            Err(error) => {
                tracing::error!(%error, "the connections of the hosts are not heard");
                0
            }
        };
        for event in &events[..ready] {
            match event.data.u64() {
                LISTENER => self.accept(),
                token => self.read(token),
            }
        }
        let now = clock();
        if now >= self.due() {
            self.looked = now;
            self.look();
            self.repeats.forget(now);
        }
        self.advance();
        self.give_again();
        self.flush();
    }

    fn accept(&mut self) {
        while let Ok((socket, peer)) = self.listener.accept() {
            let strangers = self.members.values().filter(|member| member.host.is_none()).count();
            if strangers >= STRANGERS {
                tracing::warn!(%peer, "too many connections to the fabric have not said who they are");
                continue;
            }
            let token = self.next_token;
            let member = Stream::new(socket, Role::Balancer, Role::Host).and_then(|stream| {
                epoll::add(&self.epoll, stream.fd(), epoll::EventData::new_u64(token), epoll::EventFlags::IN)?;
                Ok(Member::new(stream))
            });
            match member {
                Ok(member) => drop(self.members.insert(token, member)),
                Err(error) => tracing::warn!(%peer, %error, "a connection to the fabric"),
            }
            self.next_token += 1;
        }
    }

    /// Takes what one host has said.
    fn read(&mut self, token: u64) {
        let Some(member) = self.members.get_mut(&token) else { return };
        let mut said = member::Said::default();
        let heard = member.read(&mut said, &self.repeats, &mut self.commands);
        if said.repeats > 0 {
            self.metrics.messages(Flow::Repeats, said.repeats);
        }
        if let Some(host) = member.host {
            self.steering.ended(host, member.flying.ended());
        }
        if let Some(copies) = said.join {
            self.join(token, copies);
        }
        if said.ready {
            self.serve(token);
        }
        let host = self.members.get(&token).and_then(|member| member.host);
        if let (Some(host), Some((cpu, pools))) = (host, said.report) {
            self.steering.report(host, cpu, &pools);
        }
        for (supi, ue) in said.claims {
            self.everyone_but(host, &ToHost::Claimed { supi, ue });
        }
        for (to, dnn, address) in said.returns {
            self.tell(to, &ToHost::Returned { dnn, address });
        }
        self.again.extend(said.back);
        if let Some(host) = host {
            said.caught_up.into_iter().for_each(|(epoch, replica)| self.catch_up.said(host, epoch, replica));
            if said.leaves {
                self.drain(host);
            }
        }
        if let Err(error) = heard {
            self.lose(token, &error);
        }
    }

    /// A host wants to join.
    fn join(&mut self, token: u64, copies: SocketAddr) {
        let Some(member) = self.members.get_mut(&token).filter(|member| member.host.is_none()) else { return };
        if self.next_host >= self.config.address_parts {
            let why = format!(
                "{} hosts have joined since the balancer started, and each has a part of the UE addresses for good: \
                 raise cluster.address-parts",
                self.next_host
            );
            member.stream.put(&ToHost::Refused(why));
            member.state = State::Refused;
            return;
        }
        let host = HostId(self.next_host);
        self.next_host += 1;
        (member.host, member.copies, member.state) = (Some(host), Some(copies), State::Starting);
        let millis = |span: Duration| u32::try_from(span.as_millis()).unwrap_or(u32::MAX);
        member.stream.put(&ToHost::Welcome(Welcome {
            host,
            tmsi_key: self.tmsi_key,
            part: (host.0, self.config.address_parts),
            heartbeat: (millis(self.config.heartbeat), self.config.misses),
            report: millis(self.config.report),
        }));
        tracing::info!(host = host.0, peer = ?member.stream.peer(), "a host joins");
    }

    /// A host is ready.
    fn serve(&mut self, token: u64) {
        let Some(member) = self.members.get_mut(&token).filter(|member| member.state == State::Starting) else {
            return;
        };
        let Some(host) = member.host else { return };
        member.state = State::Serving;
        member.misses = 0;
        for (assoc, node) in &self.nodes {
            member.stream.put(&ToHost::Up { assoc: *assoc, peer: node.peer });
            for pdu in &node.said {
                let view = vireo_core::n2::view(pdu).ok();
                member.stream.put(&ToHost::Ngap { number: 0, assoc: *assoc, answers: false, bucket: None, view, pdu });
            }
        }
        for (upf, up) in &self.upfs {
            member.stream.put(&ToHost::Upf { upf: *upf, up: *up });
        }
        self.serving.insert(host, token);
        tracing::info!(host = host.0, hosts = self.serving.len(), "a host is ready");
        if self.map.is_some() || self.serving.len() >= usize::from(self.config.hosts) {
            self.remap();
        }
    }

    /// A connection is over. If it was a host's, its buckets go to the hosts that have their UEs' state.
    fn lose(&mut self, token: u64, why: &FrameError) {
        let Some(member) = self.members.remove(&token) else { return };
        let _ = epoll::delete(&self.epoll, member.stream.fd());
        let Some(host) = member.host else {
            return tracing::debug!(%why, "a connection to the fabric ended");
        };
        self.steering.forget(host);
        self.draining.remove(&host);
        if member.state == State::Left {
            return tracing::info!(host = host.0, "a host has left, and is gone");
        }
        if self.serving.remove(&host).is_none() {
            return tracing::warn!(host = host.0, %why, "a host is gone before it was ready");
        }
        tracing::warn!(host = host.0, %why, hosts = self.serving.len(), "a host is gone: others take over");
        let now = clock();
        self.repeats.add(member.emitted, now);
        self.remap();
        // What it was given before what comes now.
        for (number, input) in member.flying.into_unfinished(now).into_iter().rev() {
            self.again.push_front((number, input));
        }
        self.give_again();
    }

    /// The hosts, and the part that each is to have.
    fn parts(&self) -> Vec<SlicePart> {
        let replication = self.config.replication;
        let weight = |host: &HostId| if self.draining.contains(host) { 0.0 } else { 1.0 };
        let part = SlicePart {
            weight: 1.0,
            replicas: if replication.is_on() { replication.replicas } else { 0 },
            hosts: self.hosts().iter().map(|host| Weighted { host: *host, weight: weight(host) }).collect(),
        };
        // That of UEs whose slice is not known yet, and the slices.
        vec![part; self.slices + 1]
    }

    /// The hosts that serve, in order.
    fn hosts(&self) -> Vec<HostId> {
        let mut hosts: Vec<HostId> = self.serving.keys().copied().collect();
        hosts.sort_unstable();
        hosts
    }

    /// The next epoch's map for the hosts that there are now.
    fn remap(&mut self) {
        let parts = self.parts();
        let map = match &self.map {
            Some(map) => map.next(&parts),
            None => BucketMap::first(&parts),
        };
        self.install(map);
    }

    /// Goes a step further towards where buckets are to be, when all have the copies that the last one wants.
    fn advance(&mut self) {
        if self.settled || !self.catch_up.is_over() {
            return;
        }
        let Some(map) = &self.map else { return };
        let parts = self.parts();
        if let Some(next) = map.prepare(&parts).or_else(|| map.switch(&parts)) {
            return self.install(next);
        }
        self.settled = true;
        let nobody = parts.iter().all(|part| part.hosts.iter().all(|weighted| weighted.weight == 0.0));
        let done: Vec<HostId> = self.draining.iter().copied().filter(|host| nobody || !map.has(*host)).collect();
        for host in done {
            self.dismiss(host);
        }
    }

    /// A host is to give all to others, and to leave.
    fn drain(&mut self, host: HostId) {
        if self.serving.contains_key(&host) && self.draining.insert(host) {
            tracing::info!(host = host.0, "a host wants to leave: others get its UEs");
            self.settled = false;
            self.steer();
        }
    }

    /// A host has nothing any more, or there is nobody who could have it: it may end.
    fn dismiss(&mut self, host: HostId) {
        self.tell(host, &ToHost::Left);
        let token = self.serving.remove(&host);
        if let Some(member) = token.and_then(|token| self.members.get_mut(&token)) {
            member.state = State::Left;
        }
        self.draining.remove(&host);
        self.steering.forget(host);
        tracing::info!(host = host.0, hosts = self.serving.len(), "a host leaves");
        self.remap();
    }

    /// Tells whoever has just said something that all of it is done.
    pub(crate) fn synced(&mut self, host: HostId, number: u64) {
        if let Some(member) = self.members.values_mut().find(|member| member.host == Some(host)) {
            member.stream.put(&ToHost::Synced { number });
        }
    }

    fn tell(&mut self, host: HostId, message: &ToHost<'_>) {
        if let Some(member) = self.serving.get(&host).and_then(|token| self.members.get_mut(token)) {
            member.stream.put(message);
        }
    }

    /// Lets UEs that are not known be steered to the hosts that stay.
    fn steer(&mut self) {
        let (leave, stay): (Vec<_>, Vec<_>) = self.hosts().into_iter().partition(|host| self.draining.contains(host));
        self.steering.hosts(if stay.is_empty() { leave } else { stay });
    }

    /// From here on a map holds.
    fn install(&mut self, map: BucketMap) {
        self.steer();
        let hosts = self.hosts();
        let address = |host: &HostId| Some((*host, self.members.get(self.serving.get(host)?)?.copies?));
        let sent = Map { hosts: hosts.iter().filter_map(address).collect(), buckets: map };
        tracing::info!(epoch = sent.buckets.epoch(), hosts = hosts.len(), "a new epoch");
        self.show(&sent);
        self.catch_up = CatchUp::of(&sent.buckets);
        self.settled = false;
        let message = ToHost::Map(Box::new(sent));
        self.everyone_but(None, &message);
        if let ToHost::Map(sent) = message {
            self.map = Some(sent.buckets);
        }
    }

    fn show(&self, map: &Map) {
        let mut counts: FxHashMap<HostId, usize> = FxHashMap::default();
        let buckets = (0..vireo_types::Bucket::COUNT).map(vireo_types::Bucket::new);
        buckets.filter_map(|bucket| map.buckets.owners(bucket).primary()).for_each(|host| {
            *counts.entry(host).or_default() += 1;
        });
        let seen = map.hosts.iter().map(|(host, address)| HostStatus {
            host: host.0,
            address: address.to_string(),
            buckets: counts.get(host).copied().unwrap_or_default(),
            epoch: map.buckets.epoch(),
        });
        // Poisoned by nobody: what is done under the lock does not panic.
        if let Ok(mut view) = self.view.lock() {
            view.hosts = seen.collect();
        }
    }

    fn show_upfs(&self) {
        if let Ok(mut view) = self.view.lock() {
            view.upfs = self.upfs.iter().map(|(upf, up)| (*upf, *up)).collect();
        }
    }

    /// Who has said nothing since this was asked last. A balancer that was held up itself asks once, after it has heard
    /// all, so that nobody pays for it.
    fn look(&mut self) {
        let mut dead = Vec::new();
        for (token, member) in &mut self.members {
            member.stream.put(&ToHost::Beat);
            if member.stream.was_heard() || member.state != State::Serving {
                member.misses = 0;
                continue;
            }
            member.misses += 1;
            if member.misses >= self.config.misses {
                dead.push(*token);
            }
        }
        for token in dead {
            let silent = self.config.heartbeat * self.config.misses;
            self.lose(token, &FrameError::Refused(format!("it has said nothing for {silent:?}")));
        }
    }

    fn everyone_but(&mut self, but: Option<HostId>, message: &ToHost<'_>) {
        for (host, token) in &self.serving {
            if let Some(member) = self.members.get_mut(token).filter(|_| Some(*host) != but) {
                member.stream.put(message);
            }
        }
    }

    /// Sends what waits for hosts.
    pub(crate) fn flush(&mut self) {
        let mut gone = Vec::new();
        for (token, member) in &mut self.members {
            match member.flush(&self.epoll, *token) {
                Err(error) => gone.push((*token, error)),
                Ok(()) if member.state == State::Refused && member.stream.unsent() == 0 => {
                    gone.push((*token, FrameError::Refused("it was refused".into())));
                }
                Ok(()) => {}
            }
        }
        for (token, error) in gone {
            self.lose(token, &error);
        }
    }

    /// The end: hosts are told.
    pub(crate) fn stop(&mut self) {
        self.everyone_but(None, &ToHost::Refused("the balancer stops".into()));
        self.flush();
    }
}

/// Pools that hosts report: each slice's, and that of UEs whose slice is not known, for each kind of procedure.
pub(crate) const fn pools(slices: usize) -> usize {
    (slices + 1) * NF_KINDS
}
