//! Mutation campaign: a peer of a UPF that sends PFCP messages which it should not send.
//!
//! The messages have mutated elements or octets, are out of order, or refer to associations and
//! sessions of another control plane. An associated control plane and addresses without an
//! association send them. All messages follow from a seed. The campaign counts messages and
//! responses.
//!
//! It does not check the sessions of the other control plane: their creator does that afterwards.

mod corpus;
mod elements;
mod make;
mod peer;
mod report;

pub use report::{Counts, Sessions};

use crate::pfcp::PfcpError;
use elements::Element;
use make::Made;
use peer::Peer;
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use std::collections::VecDeque;
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use vireo_types::Teid;
use vireo_wire::pfcp::*;

/// Messages that are sent before responses are processed.
const BATCH: u64 = 32;
/// Maximum number of the attacker's sessions.
const OWN: usize = 96;
/// Number of UE addresses for these sessions.
const UES: u32 = 2_048;
/// Number of ended sessions, and of sent messages, that are kept for reuse.
const PAST: usize = 64;
/// Maximum time of the UPF for a batch, including all attempts.
const PATIENCE: Duration = Duration::from_secs(10);

/// Parameters of a campaign.
#[derive(Clone, Debug)]
pub struct Campaign {
    /// PFCP address of the UPF.
    pub upf: SocketAddr,
    /// Address of the control plane with an association.
    pub attacker: SocketAddrV4,
    /// Addresses of the senders without an association.
    pub strangers: Vec<SocketAddrV4>,
    /// Control plane whose sessions are attacked.
    pub victim: Victim,
    /// N3 address of a RAN node.
    pub gnb: Ipv4Addr,
    /// First of the 2,048 UE addresses of the attacker's sessions.
    pub first_ue: Ipv4Addr,
    /// Seed of all random choices.
    pub seed: u64,
    /// Number of messages to send.
    pub count: u64,
}

/// Control plane whose sessions are attacked. In the worst case, the attacker knows all its
/// numbers.
#[derive(Clone, Debug)]
pub struct Victim {
    /// Its address, which is also its Node ID.
    pub address: Ipv4Addr,
    /// Its Recovery Time Stamp.
    pub recovery: u32,
    /// SEIDs of the UPF for its sessions.
    pub seids: Vec<u64>,
    /// Uplink TEIDs of its sessions.
    pub teids: Vec<Teid>,
    /// UE address of its first session. Those of the others follow.
    pub first_ue: Ipv4Addr,
}

/// State from which messages are made.
#[derive(Debug)]
struct World {
    victim: Victim,
    attacker: Ipv4Addr,
    gnb: Ipv4Addr,
    first_ue: Ipv4Addr,
    /// Recovery Time Stamp of the attacker.
    recovery: u32,
    /// True while the attacker has an association.
    associated: bool,
    /// SEIDs of the attacker's sessions.
    own: Vec<u64>,
    /// SEIDs of the attacker's ended sessions.
    gone: VecDeque<u64>,
    /// Messages that the attacker sent.
    sent: VecDeque<Vec<u8>>,
    /// Elements of messages that the attacker sent.
    elements: Vec<Element>,
    rng: SmallRng,
}

impl World {
    fn new(campaign: &Campaign) -> Self {
        World {
            victim: campaign.victim.clone(),
            attacker: *campaign.attacker.ip(),
            gnb: campaign.gnb,
            first_ue: campaign.first_ue,
            recovery: campaign.victim.recovery,
            associated: false,
            own: Vec::new(),
            gone: VecDeque::new(),
            sent: VecDeque::new(),
            elements: Vec::new(),
            rng: SmallRng::seed_from_u64(campaign.seed),
        }
    }

    fn node_id(&self) -> NodeId {
        NodeId::Ipv4(self.attacker)
    }

    /// Moves all sessions of the attacker to the ended ones.
    fn forget(&mut self) {
        let own = std::mem::take(&mut self.own);
        own.into_iter().for_each(|seid| self.remember_gone(seid));
    }

    fn remember_gone(&mut self, seid: u64) {
        if self.gone.len() >= PAST {
            self.gone.pop_front();
        }
        self.gone.push_back(seid);
    }
}

/// Sends the messages of a campaign until all are sent or `stop` is set. Calls `each` with the
/// number of sent messages. Returns the counters.
///
/// # Errors
///
/// Returns an error if the sockets cannot be opened, or the UPF stops answering heartbeats between
/// the messages.
pub fn run(campaign: &Campaign, stop: &AtomicBool, mut each: impl FnMut(u64)) -> Result<Counts, PfcpError> {
    let mut world = World::new(campaign);
    let mut counts = Counts::new(campaign.seed);
    let mut peers = vec![Peer::open(campaign.attacker, campaign.upf)?];
    for address in &campaign.strangers {
        peers.push(Peer::open(*address, campaign.upf)?);
    }
    let began = Instant::now();
    while counts.messages < campaign.count && !stop.load(Ordering::Relaxed) {
        if !world.associated {
            let octets = corpus::setup(world.node_id(), world.recovery, false);
            send(&mut peers[0], Made { octets, level: make::Level::Valid }, true, &mut world, &mut counts)?;
            peers[0].settle(true, &mut world, &mut counts, PATIENCE)?;
        }
        let size = BATCH.min(campaign.count - counts.messages);
        for _ in 0..size {
            let who = match peers.len() {
                1 => 0,
                all if world.rng.random_bool(0.3) => world.rng.random_range(1..all),
                _ => 0,
            };
            let made = if who == 0 { make::of_attacker(&mut world) } else { make::of_stranger(&mut world) };
            send(&mut peers[who], made, who == 0, &mut world, &mut counts)?;
        }
        for (n, peer) in peers.iter_mut().enumerate() {
            peer.settle(n == 0, &mut world, &mut counts, PATIENCE)?;
        }
        each(counts.messages);
    }
    // The UPF decides within 2 s on an association that two addresses request.
    let until = Instant::now() + Duration::from_millis(2_500);
    while Instant::now() < until && peers.iter().any(Peer::waits_for_setup) {
        for (n, peer) in peers.iter_mut().enumerate() {
            peer.linger(n == 0, &mut world, &mut counts)?;
        }
    }
    peers.iter_mut().for_each(|peer| peer.end(&mut counts));
    counts.seconds = began.elapsed().as_secs_f64();
    counts.own_sessions = world.own.len();
    Ok(counts)
}

fn send(peer: &mut Peer, made: Made, attacker: bool, world: &mut World, counts: &mut Counts) -> Result<(), PfcpError> {
    let Made { mut octets, level } = made;
    let of = counts.count(&octets, level, attacker && world.associated, world);
    peer.send(&mut octets, of)?;
    if attacker {
        make::remember(world, octets);
    }
    Ok(())
}
