//! Mutation of PDUs by information element.

use super::dice::{chance, pick};
use super::octets::MAX_MESSAGE_OCTETS;
use crate::dialect::{Element, Protocol};
use crate::load::Rng;

/// Attempts to change a value until the decoder reads the PDU.
const TRIES: usize = 6;
/// Bits of the first octet for initiating message, successful and unsuccessful outcome.
const DIRECTIONS: [u8; 3] = [0x00, 0x20, 0x40];

/// Changes the elements or the head of a PDU in one way. `donor` is a PDU that provides elements.
pub(super) fn mutate(protocol: &Protocol, octets: &[u8], donor: &[u8], rng: &mut Rng) -> Vec<u8> {
    for _ in 0..TRIES {
        let changed = change(protocol, octets, donor, rng);
        if let Some(changed) = changed
            && changed != octets
            && changed.len() <= MAX_MESSAGE_OCTETS
            && (protocol.decodes(&changed) || chance(rng, 4))
        {
            return changed;
        }
    }
    // Treats a PDU with an unknown procedure code as a container of IEs.
    let mut unknown = octets.to_vec();
    unknown.iter_mut().skip(1).take(1).for_each(|code| *code = 200);
    unknown
}

fn change(protocol: &Protocol, octets: &[u8], donor: &[u8], rng: &mut Rng) -> Option<Vec<u8>> {
    if chance(rng, 15) {
        return Some(change_head(protocol, octets, rng));
    }
    let mut ies = protocol.elements(octets);
    if ies.is_empty() {
        return Some(change_head(protocol, octets, rng));
    }
    let at = rng.below(ies.len());
    match rng.below(11) {
        0 | 1 => drop(ies.remove(at)),
        2 => {
            let copy = ies[at].clone();
            let times = if chance(rng, 10) { 1 << rng.below(8) } else { 1 };
            ies.extend(std::iter::repeat_n(copy, times));
        }
        3 => {
            let other = rng.below(ies.len());
            ies.swap(at, other);
        }
        4 => ies[at].criticality = rng.below(3) as u8,
        5 => ies[at].id = if chance(rng, 50) { rng.below(protocol.known.0) } else { rng.below(65_536) } as u16,
        6 => {
            let foreign = protocol.elements(donor);
            let element = foreign.get(rng.below(foreign.len().max(1)))?.clone();
            if chance(rng, 50) { ies.push(element) } else { ies[at].value = element.value }
        }
        _ => change_value(protocol, &mut ies[at], rng),
    }
    protocol.with_elements(octets, &ies)
}

/// Changes direction, procedure code or criticality.
fn change_head(protocol: &Protocol, octets: &[u8], rng: &mut Rng) -> Vec<u8> {
    let mut octets = octets.to_vec();
    if let [choice, code, criticality, ..] = octets.as_mut_slice() {
        match rng.below(4) {
            0 => *choice = *pick(rng, &DIRECTIONS),
            1 => *criticality = *pick(rng, &[0x00, 0x40, 0x80]),
            2 => *code = rng.below(protocol.known.1) as u8,
            _ => *code = rng.bits() as u8,
        }
    }
    octets
}

/// Sets an element to an extreme or a changed value.
fn change_value(protocol: &Protocol, ie: &mut Element, rng: &mut Rng) {
    let extreme = |rng: &mut Rng| *pick(rng, &[0u64, 1, u64::from(u32::MAX), (1 << 40) - 1, 0x00ff_ffff]);
    let of_core = protocol.core_ids.contains(&ie.id);
    let value = if (of_core || ie.id == protocol.ran_id) && chance(rng, 50) {
        let id = if chance(rng, 50) { extreme(rng) } else { rng.bits() >> 24 };
        Some(if of_core { protocol.core_value(id) } else { protocol.ran_value(id as u32) })
    } else if ie.id == protocol.nas && chance(rng, 40) {
        let length = *pick(rng, &[0, 1, 2, 7, 8, 300, 5_000]);
        let octets: Vec<u8> = (0..length).map(|_| rng.bits() as u8).collect();
        protocol.nas_value(&octets)
    } else {
        None
    };
    if let Some(value) = value {
        return ie.value = value;
    }
    match ie.value.len() {
        0 => ie.value.push(rng.bits() as u8),
        length => {
            let at = rng.below(length);
            ie.value[at] ^= 1 << rng.below(8);
        }
    }
}
