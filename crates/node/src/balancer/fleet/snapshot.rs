//! Hot-restart snapshot of a balancer's fleet.
//!
//! It has the connections of hosts with their buffered data, the inputs in flight, the recent
//! effects, and the state for hosts that join later. Hosts and the controller do not notice a hot
//! restart.

use super::member::{HostConnection, State};
use super::setup::Setup;
use super::steer::message;
use super::{Fleet, KnownRanNode, SAID};
use crate::cluster::{CarriedCaller, ClusterConfig, ControllerClient, LinkError, input};
use crate::host::Input;
use rustix::event::epoll;
use serde::{Deserialize, Serialize};
use std::io;
use std::net::{IpAddr, SocketAddr, TcpListener};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use vireo_core::config::CoreConfig;
use vireo_core::placement::balance::HostId;
use vireo_core::placement::cluster::{ClusterMap, DurableState};
use vireo_core::placement::message::{AssociationOwner, BalancerAssignment, ToHost};
use vireo_core::placement::replica::{Claim, EffectDedup, InflightInputs, RecentEffects};
use vireo_fabric::frame::decode;
use vireo_fabric::stream::{self, Stream};
use vireo_fabric::{Role, Security};
use vireo_ops::clock::clock;
use vireo_ops::config::SliceRuntime;
use vireo_ops::metrics::Metrics;
use vireo_types::{AssocId, Instant, Ltmsi, Supi};

/// Snapshot of a [`Fleet`].
#[derive(Debug, Serialize, Deserialize)]
pub(in crate::balancer) struct FleetSnapshot {
    seat: BalancerAssignment,
    caller: CarriedCaller,
    members: Vec<MemberSnapshot>,
    lost: Vec<(HostId, Vec<InputSnapshot>, RecentEffects)>,
    complained: bool,
    map: Option<ClusterMap>,
    nodes: Vec<RanNodeSnapshot>,
    setups: Vec<(AssocId, Setup)>,
    upfs: Vec<(SocketAddr, bool)>,
    number: u64,
    again: Vec<InputSnapshot>,
    repeats: EffectDedup,
    claims: Vec<(Supi, Ltmsi, Instant)>,
}

#[derive(Debug, Serialize, Deserialize)]
struct MemberSnapshot {
    stream: stream::StreamSnapshot,
    host: Option<HostId>,
    state: State,
    since: Instant,
    flying: Vec<InputSnapshot>,
    emitted: RecentEffects,
    given: u64,
    told: u64,
}

#[derive(Debug, Serialize, Deserialize)]
struct RanNodeSnapshot {
    assoc: AssocId,
    peer: SocketAddr,
    said: Vec<Vec<u8>>,
    of: Option<AssociationOwner>,
}

/// An input encoded as a message to a host, with its number and the time it was sent.
#[derive(Debug, Serialize, Deserialize)]
pub(in crate::balancer) struct InputSnapshot {
    number: u64,
    at: Instant,
    #[serde(with = "serde_bytes")]
    message: Vec<u8>,
}

impl InputSnapshot {
    /// Encodes an input; `None` if it did not come from RAN or UPFs.
    pub(in crate::balancer) fn new(number: u64, at: Instant, input: &Input) -> Option<Self> {
        let message = postcard::to_stdvec(&message(number, input, true)?).ok()?;
        Some(InputSnapshot { number, at, message })
    }

    /// Decodes the input; `None` if the content is invalid.
    pub(in crate::balancer) fn input(&self) -> Option<Input> {
        input(decode::<ToHost<'_>>(&self.message).ok()?)
    }
}

impl FleetSnapshot {
    /// Returns the recovery time stamp of the cluster's N4.
    pub(in crate::balancer) fn recovery(&self) -> u32 {
        self.seat.recovery
    }
}

fn carried(flying: &InflightInputs<Input>) -> Vec<InputSnapshot> {
    flying.iter().filter_map(|sent| InputSnapshot::new(sent.number, sent.at, sent.input)).collect()
}

/// The snapshot lacks the load share of the inputs, because hosts report their load several times a
/// second.
fn resumed(inputs: &[InputSnapshot]) -> InflightInputs<Input> {
    let mut flying = InflightInputs::default();
    for carried in inputs {
        if let Some(input) = carried.input() {
            flying.add(carried.number, input, None, carried.at);
        }
    }
    flying
}

impl Fleet {
    /// Returns the durable state for the embedded controller of the next process. `map` replaces
    /// its last map.
    pub(in crate::balancer) fn record(&self, map: Option<ClusterMap>) -> Option<DurableState> {
        let DurableState { secrets, map: own } = self.caller.record()?.clone();
        Some(DurableState { secrets, map: map.or(own) })
    }

    /// Returns a snapshot, and the sockets in the order that [`Fleet::resume`] expects. Returns
    /// `None` if a connection cannot be transferred, because it uses TLS.
    pub(in crate::balancer) fn snapshot(&self) -> Option<(FleetSnapshot, Vec<BorrowedFd<'_>>)> {
        let caller = self.caller.hand_over(self.several)?;
        let mut sockets = vec![self.listener.as_fd()];
        if caller.stream.is_some() {
            sockets.extend(self.caller.fd());
        }
        let mut members = Vec::new();
        // A refused peer that is no host closes its connection itself. A removed host may not have
        // read the notification yet.
        let stays = |member: &&HostConnection| member.state != State::Refused || member.host.is_some();
        for member in self.members.values().filter(stays) {
            sockets.push(member.stream.fd());
            members.push(MemberSnapshot {
                stream: member.stream.snapshot()?,
                host: member.host,
                state: member.state,
                since: member.since,
                flying: carried(&member.flying),
                emitted: member.emitted.clone(),
                given: member.given,
                told: member.told,
            });
        }
        let nodes = self.nodes.iter().map(|(assoc, node)| RanNodeSnapshot {
            assoc: *assoc,
            peer: node.peer,
            said: node.said.iter().cloned().collect(),
            of: node.of.clone(),
        });
        let again = self.again.iter().filter_map(|(number, input)| InputSnapshot::new(*number, Instant(0), input));
        let lost = self.lost.iter().map(|(host, (flying, emitted))| (*host, carried(flying), emitted.clone()));
        let carried = FleetSnapshot {
            seat: self.seat.clone(),
            caller,
            members,
            lost: lost.collect(),
            complained: self.complained,
            map: self.map.clone(),
            nodes: nodes.collect(),
            setups: self.setups.iter().map(|(assoc, setup)| (*assoc, setup.clone())).collect(),
            upfs: self.upfs.iter().map(|(upf, up)| (*upf, *up)).collect(),
            number: self.number,
            again: again.collect(),
            repeats: self.repeats.clone(),
            claims: self.claims.recent(clock()).map(|claim| (claim.supi, claim.ue, claim.at)).collect(),
        };
        Some((carried, sockets))
    }

    /// Restores a fleet from a snapshot and the predecessor's sockets.
    ///
    /// # Errors
    ///
    /// Returns an error if a system call fails, or a socket is missing.
    pub(in crate::balancer) fn resume(
        carried: FleetSnapshot,
        sockets: &mut dyn Iterator<Item = OwnedFd>,
        (config, security, endpoints): (&ClusterConfig, &Security, &[IpAddr]),
        core: &CoreConfig,
        slices: &[SliceRuntime],
        metrics: Arc<Metrics>,
    ) -> Result<Self, LinkError> {
        let mut next = || sockets.next().ok_or(LinkError::System(io::ErrorKind::UnexpectedEof.into()));
        let listener = TcpListener::from(next()?);
        let controller = carried.caller.stream.is_some().then(&mut next).transpose()?.map(Into::into);
        let caller =
            ControllerClient::resume(config, security, carried.caller, controller).map_err(LinkError::System)?;
        let mut fleet =
            Fleet::new(listener, (caller, carried.seat), (config, security, endpoints), core, slices, metrics)?;
        for old in carried.members {
            let stream = Stream::resume(next()?.into(), security, &[Role::Host], old.stream);
            let stream = stream.map_err(LinkError::System)?;
            let token = fleet.next_token;
            fleet.next_token += 1;
            epoll::add(&fleet.epoll, stream.fd(), epoll::EventData::new_u64(token), epoll::EventFlags::IN)
                .map_err(|error| LinkError::System(error.into()))?;
            let mut member = HostConnection::new(stream, old.since);
            (member.host, member.state, member.given, member.told) = (old.host, old.state, old.given, old.told);
            (member.flying, member.emitted) = (resumed(&old.flying), old.emitted);
            if let (Some(host), State::Serving) = (member.host, member.state) {
                fleet.serving.insert(host, token);
            }
            fleet.members.insert(token, member);
            // Data that the predecessor had read but not processed does not make the socket
            // readable.
            fleet.unread.push(token);
        }
        let lost = carried.lost.iter().map(|(host, flying, emitted)| (*host, (resumed(flying), emitted.clone())));
        fleet.lost = lost.collect();
        fleet.nodes = carried.nodes.into_iter().map(|node| (node.assoc, KnownRanNode::resumed(node))).collect();
        fleet.setups = carried.setups.into_iter().collect();
        for (upf, up) in carried.upfs {
            fleet.upfs.entry(upf).and_modify(|known| *known = up);
        }
        (fleet.number, fleet.complained) = (carried.number, carried.complained);
        fleet.again = carried.again.iter().filter_map(|again| Some((again.number, again.input()?))).collect();
        fleet.repeats = carried.repeats;
        let now = clock();
        carried
            .claims
            .into_iter()
            .for_each(|(supi, ue, at)| _ = fleet.claims.on_remote_claim(Claim { supi, ue, at }, now));
        if let Some(map) = carried.map {
            fleet.steer_by(&map);
            fleet.show(&map);
            fleet.map = Some(map);
        }
        fleet.show_upfs();
        Ok(fleet)
    }
}

impl Fleet {
    /// Returns the peer of an association, and true if the association belongs to a RAN node.
    pub(in crate::balancer) fn known(&self, assoc: AssocId) -> Option<(SocketAddr, bool)> {
        let node = self.nodes.get(&assoc)?;
        Some((node.peer, node.of.is_some() || !node.said.is_empty()))
    }
}

impl KnownRanNode {
    fn resumed(node: RanNodeSnapshot) -> Self {
        let mut said: std::collections::VecDeque<_> = node.said.into();
        said.truncate(SAID);
        KnownRanNode { peer: node.peer, said, of: node.of }
    }
}
