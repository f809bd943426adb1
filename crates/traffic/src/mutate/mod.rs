//! A peer of a UPF that sends what it should not: PFCP messages that are mutated in their elements or octets, come in the
//! wrong order, or are about another control plane's associations and sessions. An associated control plane and addresses
//! without an association send them. Everything follows from a seed; what is sent and what is answered is counted.
//!
//! The campaign says nothing about the other control plane's sessions: whoever set them up looks afterwards.

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

/// Messages that are sent before what is answered is looked at.
const BATCH: u64 = 32;
/// Sessions of the attacker's own, at most.
const OWN: usize = 96;
/// UE addresses of these.
const UES: u32 = 2_048;
/// Sessions that are gone, and messages that were sent, which are used again.
const PAST: usize = 64;
/// How long the UPF may take for a batch, in all attempts.
const PATIENCE: Duration = Duration::from_secs(10);

/// What is sent, and to whom.
#[derive(Clone, Debug)]
pub struct Campaign {
    /// The UPF.
    pub upf: SocketAddr,
    /// Where a control plane with an association sends from.
    pub attacker: SocketAddrV4,
    /// Where others send from.
    pub strangers: Vec<SocketAddrV4>,
    /// The control plane whose sessions are aimed at.
    pub victim: Victim,
    /// A RAN node's address.
    pub gnb: Ipv4Addr,
    /// The first of the 2,048 UE addresses of the attacker's own sessions.
    pub first_ue: Ipv4Addr,
    /// Everything random follows from it.
    pub seed: u64,
    /// Messages.
    pub count: u64,
}

/// The control plane whose sessions are aimed at: the worst case is that all its numbers are known.
#[derive(Clone, Debug)]
pub struct Victim {
    /// Its address, which is its Node ID.
    pub address: Ipv4Addr,
    /// Its Recovery Time Stamp.
    pub recovery: u32,
    /// The UPF's SEIDs of its sessions.
    pub seids: Vec<u64>,
    /// Their uplink TEIDs.
    pub teids: Vec<Teid>,
    /// Their first UE address; those of the others follow.
    pub first_ue: Ipv4Addr,
}

/// What messages are made of.
#[derive(Debug)]
struct World {
    victim: Victim,
    attacker: Ipv4Addr,
    gnb: Ipv4Addr,
    first_ue: Ipv4Addr,
    /// The attacker's Recovery Time Stamp.
    recovery: u32,
    /// Whether the attacker has an association.
    associated: bool,
    /// The attacker's sessions.
    own: Vec<u64>,
    /// Sessions that it had.
    gone: VecDeque<u64>,
    /// What it sent.
    sent: VecDeque<Vec<u8>>,
    /// Elements of what it sent.
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

    /// All sessions of the attacker are gone.
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

/// Sends the messages of a campaign until all are sent or `stop` is set, and counts. `each` is told how many were sent.
///
/// # Errors
///
/// When the sockets cannot be opened, or the UPF does not answer a heartbeat between the messages any more.
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
    // An association that two addresses ask for is decided within 2 s.
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
