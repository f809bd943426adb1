//! Selection of the next message of a campaign.

use super::corpus::{self, Subject};
use super::elements::{Tree, mutate_octets};
use super::world::{OWN, PAST, UES, World};
use rand::Rng;
use std::net::Ipv4Addr;
use vireo_wire::pfcp::*;

/// Kind of mutation of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Level {
    /// Unchanged, as a control plane sends it.
    Valid,
    /// Changed elements with right lengths.
    Element,
    /// Changed octets.
    Octet,
    /// Valid, but at the wrong time or repeated.
    Order,
    /// Refers to an association or session of another control plane.
    Foreign,
}

impl Level {
    pub(super) const fn name(self) -> &'static str {
        match self {
            Level::Valid => "valid",
            Level::Element => "element",
            Level::Octet => "octet",
            Level::Order => "order",
            Level::Foreign => "foreign",
        }
    }
}

/// A message to be sent. Its sequence number is not final.
#[derive(Debug)]
pub(super) struct MutatedMessage {
    pub(super) octets: Vec<u8>,
    pub(super) level: Level,
}

/// Returns a message of the control plane that has an association or requests one.
pub(super) fn attacker_message(world: &mut World) -> MutatedMessage {
    if world.own.len() > OWN {
        let at = world.rng.random_range(0..world.own.len());
        return MutatedMessage { octets: corpus::deletion(world.own[at]), level: Level::Valid };
    }
    match world.rng.random_range(0..100) {
        0..25 => MutatedMessage { octets: usual(world), level: Level::Valid },
        25..60 => mutated(world),
        60..75 => {
            let mut octets = usual(world);
            mutate_octets(&mut octets, &mut world.rng);
            MutatedMessage { octets, level: Level::Octet }
        }
        75..88 => MutatedMessage { octets: disordered(world), level: Level::Order },
        _ => MutatedMessage { octets: foreign(world), level: Level::Foreign },
    }
}

/// Returns a message of an address without an association.
pub(super) fn unassociated_message(world: &mut World) -> MutatedMessage {
    match world.rng.random_range(0..10) {
        0..6 => MutatedMessage { octets: foreign(world), level: Level::Foreign },
        6..8 => {
            let own = world.own.last().copied().unwrap_or(1);
            let octets = match world.rng.random_range(0..4) {
                0 => corpus::deletion(own),
                1 => corpus::modification_of(world, own),
                2 => corpus::establishment_of(world, world.node_id(), Ipv4Addr::new(10, 45, 200, 1)),
                _ => corpus::heartbeat(world.rng.random()),
            };
            MutatedMessage { octets, level: Level::Order }
        }
        _ => {
            let mut octets = foreign(world);
            mutate_octets(&mut octets, &mut world.rng);
            MutatedMessage { octets, level: Level::Octet }
        }
    }
}

/// Returns a valid message of the control plane about its association and sessions.
fn usual(world: &mut World) -> Vec<u8> {
    let ue = Ipv4Addr::from_bits(world.first_ue.to_bits() + world.rng.random_range(0..UES));
    let subject = match (world.own.len(), world.rng.random_range(0..100)) {
        (0, 0..85) | (_, 0..35) => Subject::New,
        (own, 35..85) => Subject::Session(world.own[world.rng.random_range(0..own)]),
        _ => Subject::Node,
    };
    match subject {
        Subject::New => corpus::establishment_of(world, world.node_id(), ue),
        Subject::Session(seid) if world.rng.random_bool(0.2) => corpus::deletion(seid),
        Subject::Session(seid) => corpus::modification_of(world, seid),
        // The time stamp is older than that of the association, so it does not indicate a restart.
        Subject::Node => corpus::node_message(world.node_id(), world.recovery.wrapping_sub(1), &mut world.rng),
    }
}

fn mutated(world: &mut World) -> MutatedMessage {
    let base = usual(world);
    let Some(mut tree) = Tree::read(&base) else { return MutatedMessage { octets: base, level: Level::Valid } };
    let World { rng, elements, .. } = world;
    for _ in 0..rng.random_range(1..4) {
        tree.mutate(rng, elements);
    }
    MutatedMessage { octets: tree.write(0), level: Level::Element }
}

/// Returns a valid message at the wrong time.
fn disordered(world: &mut World) -> Vec<u8> {
    let ended = world.ended.back().copied().unwrap_or(77);
    let node = world.node_id();
    match world.rng.random_range(0..120) {
        // The attacker restarts or leaves: its sessions end.
        0 => {
            world.recovery = world.recovery.wrapping_add(1);
            corpus::setup(node, world.recovery, false)
        }
        1 => corpus::release(node),
        2 => {
            world.recovery = world.recovery.wrapping_add(1);
            corpus::heartbeat(world.recovery)
        }
        3..15 => corpus::setup(node, world.recovery, world.rng.random_bool(0.5)),
        15..45 => {
            let sent = world.sent.len();
            let mut octets =
                if sent == 0 { corpus::deletion(ended) } else { world.sent[world.rng.random_range(0..sent)].clone() };
            // Repeats the message, or sends it again as another request.
            if world.rng.random_bool(0.5) {
                set_sequence(&mut octets, 0);
            }
            octets
        }
        45..50 => {
            // Another request with a used sequence number.
            let number = world.sent.back().and_then(|octets| Message::new(octets).ok()).map(|last| last.sequence());
            let mut octets = usual(world);
            set_sequence(&mut octets, number.unwrap_or(1));
            octets
        }
        50..60 => corpus::deletion(ended),
        60..75 => corpus::modification_of(world, ended),
        75..85 => corpus::deletion(world.rng.random()),
        85..95 => corpus::report_response(ended, &mut world.rng),
        _ => {
            // A SEID where none belongs, or none where one is required.
            let base = usual(world);
            let Some(mut tree) = Tree::read(&base) else { return base };
            tree.seid = if tree.seid.is_some() { None } else { Some(ended) };
            tree.write(0)
        }
    }
}

/// Returns a message about the association or a session of the other control plane.
fn foreign(world: &mut World) -> Vec<u8> {
    let (node, recovery) = (NodeId::Ipv4(world.target.address), world.target.recovery);
    let seids = world.target.seids.len().max(1);
    let at = world.rng.random_range(0..seids);
    let seid = world.target.seids.get(at).copied().unwrap_or(1);
    let ue = Ipv4Addr::from_bits(world.target.first_ue.to_bits() + at as u32);
    let stamps = [recovery, recovery.wrapping_add(world.rng.random_range(1..1_000)), recovery.wrapping_sub(9), 0];
    let stamp = stamps[world.rng.random_range(0..stamps.len())];
    let octets = match world.rng.random_range(0..20) {
        0..3 => corpus::setup(node, stamp, world.rng.random_bool(0.3)),
        3..5 => corpus::release(node),
        5..8 => corpus::node_message(node, stamp, &mut world.rng),
        8 => corpus::heartbeat(stamp),
        9..12 => corpus::deletion(seid),
        12..15 => corpus::modification_of(world, seid),
        15..17 => corpus::report_response(seid, &mut world.rng),
        17 => corpus::establishment_of(world, node, ue),
        // The attacker's session with the address or tunnel of the other control plane.
        18 => corpus::establishment_of(world, world.node_id(), ue),
        _ => with_tunnel_of(world, at),
    };
    if world.rng.random_bool(0.75) {
        return octets;
    }
    let Some(mut tree) = Tree::read(&octets) else { return octets };
    let World { rng, elements, .. } = world;
    tree.mutate(rng, elements);
    tree.write(0)
}

/// Returns a Session Establishment Request with the F-TEID of another session.
fn with_tunnel_of(world: &mut World, session: usize) -> Vec<u8> {
    let ue = Ipv4Addr::from_bits(world.first_ue.to_bits() + world.rng.random_range(0..UES));
    let octets = corpus::establishment_of(world, world.node_id(), ue);
    let parsed = Message::new(&octets).ok().and_then(|message| SessionEstablishmentRequest::parse(&message).ok());
    let (Some(mut request), Some(teid)) = (parsed, world.target.teids.get(session)) else { return octets };
    for pdr in &mut request.create_pdrs {
        pdr.pdi.f_teid = pdr.pdi.f_teid.map(|_| FTeid::new(*teid, world.gnb.into()));
    }
    let mut out = Vec::new();
    if request.emit(&mut out, 0, 0).is_ok() { out } else { octets }
}

/// Stores a message and its elements for later messages.
pub(super) fn remember(world: &mut World, octets: Vec<u8>) {
    if world.sent.len() >= PAST {
        world.sent.pop_front();
    }
    let tree = Tree::read(&octets);
    world.sent.push_back(octets);
    if let Some(tree) = tree
        && !tree.elements.is_empty()
    {
        let element = tree.elements[world.rng.random_range(0..tree.elements.len())].clone();
        match world.elements.len() {
            0..PAST => world.elements.push(element),
            _ => world.elements[world.rng.random_range(0..PAST)] = element,
        }
    }
}
