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
mod world;

pub use report::{Counts, Sessions};
pub use world::{Campaign, TargetControlPlane};

use crate::pfcp::PfcpError;
use make::MutatedMessage;
use peer::Peer;
use rand::Rng;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use world::World;

/// Messages that are sent before responses are processed.
const BATCH: u64 = 32;
/// Maximum time of the UPF for a batch, including all attempts.
const BATCH_TIMEOUT: Duration = Duration::from_secs(10);

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
            send(&mut peers[0], MutatedMessage { octets, level: make::Level::Valid }, true, &mut world, &mut counts)?;
            peers[0].settle(true, &mut world, &mut counts, BATCH_TIMEOUT)?;
        }
        let size = BATCH.min(campaign.count - counts.messages);
        for _ in 0..size {
            let sender = match peers.len() {
                1 => 0,
                all if world.rng.random_bool(0.3) => world.rng.random_range(1..all),
                _ => 0,
            };
            let made =
                if sender == 0 { make::attacker_message(&mut world) } else { make::unassociated_message(&mut world) };
            send(&mut peers[sender], made, sender == 0, &mut world, &mut counts)?;
        }
        for (n, peer) in peers.iter_mut().enumerate() {
            peer.settle(n == 0, &mut world, &mut counts, BATCH_TIMEOUT)?;
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

fn send(
    peer: &mut Peer,
    made: MutatedMessage,
    attacker: bool,
    world: &mut World,
    counts: &mut Counts,
) -> Result<(), PfcpError> {
    let MutatedMessage { mut octets, level } = made;
    let of = counts.count(&octets, level, attacker && world.associated, world);
    peer.send(&mut octets, of)?;
    if attacker {
        make::remember(world, octets);
    }
    Ok(())
}
