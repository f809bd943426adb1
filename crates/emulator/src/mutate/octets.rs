//! Mutation of octets regardless of their encoding.

use super::dice::{chance, pick};
use crate::load::Rng;

/// Maximum size of a mutated message in octets, well below the SCTP limit.
pub(super) const MAX_MESSAGE_OCTETS: usize = 12_000;

/// Changes `octets[from..]` in one way, so that they differ from before. If `from` is the length,
/// it appends octets.
pub(super) fn mutate(octets: &mut Vec<u8>, from: usize, rng: &mut Rng) {
    let from = from.min(octets.len());
    let length = octets.len() - from;
    if length == 0 {
        return insert(octets, from, rng);
    }
    let at = from + rng.below(length);
    match rng.below(8) {
        0 | 1 => {
            for _ in 0..1 + rng.below(4) {
                let place = from + rng.below(length);
                // The final flip of a bit cannot be undone by a later one.
                octets[place] ^= 1 << rng.below(7);
            }
            octets[at] ^= 0x80;
        }
        2 => octets.truncate(at),
        3 => insert(octets, at, rng),
        4 => {
            let end = (at + 1 + rng.below(64)).min(octets.len());
            let copy = octets[at..end].to_vec();
            let times = 1usize << rng.below(6);
            octets.splice(at..at, copy.iter().copied().cycle().take(copy.len() * times));
            octets.push(0);
        }
        5 => {
            let end = (at + 1 + rng.below(16)).min(octets.len());
            octets.drain(at..end);
        }
        6 => octets[at] = octets[at].wrapping_add(*pick(rng, &[1, 0x7f, 0xff])),
        _ => {
            let value = *pick(rng, &[0x00, 0xff, 0x80, 0x7f]);
            let end = (at + 1 + rng.below(8)).min(octets.len());
            let same = octets[at..end].iter().all(|octet| *octet == value);
            octets[at..end].fill(if same { !value } else { value });
        }
    }
    octets.truncate(MAX_MESSAGE_OCTETS);
}

fn insert(octets: &mut Vec<u8>, at: usize, rng: &mut Rng) {
    let most = if chance(rng, 5) { 4_000 } else { 24 };
    let new: Vec<u8> = (0..1 + rng.below(most)).map(|_| rng.bits() as u8).collect();
    octets.splice(at..at, new);
}
