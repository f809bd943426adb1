//! Valid NAS messages of a UE, and their mutation by the format rules of TS 24.501.

use super::dice::{chance, pick};
use super::octets;
use crate::load::Rng;

/// Identifiers in the messages of one UE.
#[derive(Clone, Debug, Default)]
pub(super) struct Names {
    /// Mobile identity IE with the SUCI.
    pub(super) suci: Vec<u8>,
    /// Mobile identity IE with the 5G-GUTI.
    pub(super) guti: Option<[u8; 11]>,
    /// Key set identifier of the security context.
    pub(super) ksi: Option<u8>,
    /// Current or future PDU session.
    pub(super) psi: u8,
    /// SST of the slice; there is no SD.
    pub(super) sst: u8,
    /// One label, without its length octet.
    pub(super) dnn: String,
}

/// 5GMM message types of both directions (TS 24.501 table 9.7.1).
const GMM_TYPES: [u8; 36] = [
    0x41, 0x42, 0x43, 0x44, 0x45, 0x46, 0x47, 0x48, 0x4c, 0x4d, 0x4e, 0x4f, 0x50, 0x51, 0x52, 0x54, 0x55, 0x56, 0x57,
    0x58, 0x59, 0x5a, 0x5b, 0x5c, 0x5d, 0x5e, 0x5f, 0x64, 0x65, 0x66, 0x67, 0x68, 0x69, 0x6a, 0x6b, 0x00,
];
/// 5GSM message types of both directions (TS 24.501 table 9.7.2).
const GSM_TYPES: [u8; 18] =
    [0xc1, 0xc2, 0xc3, 0xc5, 0xc6, 0xc7, 0xc8, 0xc9, 0xca, 0xcb, 0xcc, 0xcd, 0xd1, 0xd2, 0xd3, 0xd4, 0xd6, 0xd8];
/// Identifiers of 5GMM and 5GSM IEs with a length of one octet.
const SHORT_IES: [u8; 18] =
    [0x10, 0x2e, 0x2f, 0x40, 0x50, 0x18, 0x52, 0x17, 0x25, 0x22, 0x28, 0x2c, 0x56, 0x59, 0x33, 0x60, 0x6e, 0x2a];
/// Identifiers of IEs with a length of two octets.
const LONG_IES: [u8; 9] = [0x71, 0x72, 0x74, 0x77, 0x78, 0x79, 0x7a, 0x7b, 0x7c];

fn no_key(ksi: Option<u8>) -> u8 {
    ksi.unwrap_or(7) & 7
}

/// Returns a mobile identity with its length.
fn identity(names: &Names, rng: &mut Rng) -> Vec<u8> {
    let octets = match (&names.guti, rng.below(8)) {
        (_, 0) => vec![rng.below(8) as u8],
        (_, 1) => vec![0x15, 0x32, 0x54, 0x76, 0x98, 0x10, 0x32, 0x54, 0xf6],
        (Some(guti), 2..=5) => guti.to_vec(),
        _ => names.suci.clone(),
    };
    let mut out = (octets.len() as u16).to_be_bytes().to_vec();
    out.extend_from_slice(&octets);
    out
}

/// Returns the 5G-S-TMSI of a 5G-GUTI as a mobile identity with its length.
fn s_tmsi(names: &Names) -> Vec<u8> {
    let mut out = vec![0, 7, 0xf4];
    match &names.guti {
        Some(guti) => out.extend_from_slice(&guti[5..]),
        None => out.extend_from_slice(&[0; 6]),
    }
    out
}

/// Returns a REGISTRATION REQUEST.
pub(super) fn registration(names: &Names, rng: &mut Rng) -> Vec<u8> {
    let kind = *pick(rng, &[1, 1, 2, 3, 4, 9, 10]);
    let mut nas = vec![0x7e, 0, 0x41, no_key(names.ksi) << 4 | kind];
    nas.extend(identity(names, rng));
    // UE security capability, requested NSSAI, UE status, session status, uplink data status.
    nas.extend_from_slice(&[0x2e, 2, 0xf0, 0x70]);
    let options: [&[u8]; 6] = [
        &[0x10, 1, 0],
        &[0x2f, 2, 1, names.sst],
        &[0x2b, 1, 1],
        &[0x50, 2, 2, 0],
        &[0x40, 2, 2, 0],
        &[0x52, 0x99, 0xf9, 0x07, 0, 0, 1],
    ];
    options.iter().filter(|_| chance(rng, 40)).for_each(|option| nas.extend_from_slice(option));
    nas
}

/// Returns a SERVICE REQUEST.
pub(super) fn service_request(names: &Names, rng: &mut Rng) -> Vec<u8> {
    let mut nas = vec![0x7e, 0, 0x4c, no_key(names.ksi) | (rng.below(12) as u8) << 4];
    nas.extend(s_tmsi(names));
    if chance(rng, 50) {
        nas.extend_from_slice(&[0x40, 2, rng.bits() as u8, rng.bits() as u8]);
    }
    if chance(rng, 50) {
        nas.extend_from_slice(&[0x50, 2, 1 << (names.psi & 7), 0]);
    }
    nas
}

/// Returns a DEREGISTRATION REQUEST of a UE.
pub(super) fn deregistration(names: &Names, rng: &mut Rng) -> Vec<u8> {
    let mut nas = vec![0x7e, 0, 0x45, no_key(names.ksi) << 4 | rng.below(16) as u8];
    nas.extend(identity(names, rng));
    nas
}

/// Returns a SECURITY MODE COMPLETE with the whole initial message.
pub(super) fn security_mode_complete(names: &Names, rng: &mut Rng) -> Vec<u8> {
    let mut nas = vec![0x7e, 0, 0x5e, 0x77, 0, 9, 0x05, 0x53, 0, 0, 0, 0, 0, 0, 0xf1, 0x71];
    let mut inner = registration(names, rng);
    if chance(rng, 40) {
        mutate(&mut inner, rng);
    }
    nas.extend_from_slice(&(inner.len() as u16).to_be_bytes());
    nas.extend_from_slice(&inner);
    nas
}

/// Returns a 5GMM message that does not end the UE's registration.
pub(super) fn gmm(names: &Names, rng: &mut Rng) -> Vec<u8> {
    let cause = rng.bits() as u8;
    match rng.below(20) {
        0..=2 => registration(names, rng),
        3 => service_request(names, rng),
        4 => vec![0x7e, 0, 0x43, 0x73, 0, 18, 1, 0, 16, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0],
        5 => vec![0x7e, 0, 0x55],
        6 => {
            let mut nas = vec![0x7e, 0, 0x57, 0x2d, 16];
            nas.extend((0..16).map(|_| rng.bits() as u8));
            nas
        }
        7 => vec![0x7e, 0, 0x59, *pick(rng, &[20, 26, 71, cause])],
        8 => {
            let mut nas = vec![0x7e, 0, 0x59, 21, 0x30, 14];
            nas.extend((0..14).map(|_| rng.bits() as u8));
            nas
        }
        9 => {
            let mut nas = vec![0x7e, 0, 0x5c];
            nas.extend(identity(names, rng));
            nas
        }
        10 => security_mode_complete(names, rng),
        11 => vec![0x7e, 0, 0x5f, *pick(rng, &[23, 24, cause])],
        12 => vec![0x7e, 0, 0x64, cause],
        13 => vec![0x7e, 0, 0x66, 0x50, 2, 2, 0],
        14 => vec![0x7e, 0, 0x48],
        15 => vec![0x7e, 0, 0x51, 0, 4, 2, 1, 0, 4, 1],
        16 => vec![0x7e, 0, 0x4f, no_key(names.ksi) | 0x10],
        17 => {
            // SMS, LPP, SOR, UE policy and other payloads than N1 SM information.
            let mut nas = vec![0x7e, 0, 0x67, *pick(rng, &[2, 3, 4, 5, 6, 8, 9, 15])];
            nas.extend_from_slice(&[0, 5, 0x09, 0x01, 0x02, 0x00, 0x00]);
            nas
        }
        18 => vec![0x7e, 0, *pick(rng, &GMM_TYPES), cause],
        _ => deregistration(names, rng),
    }
}

/// Returns a 5GSM message of a UE.
pub(super) fn gsm(names: &Names, rng: &mut Rng) -> Vec<u8> {
    let psi = if chance(rng, 75) { names.psi } else { rng.below(17) as u8 };
    let pti = if chance(rng, 80) { 1 + rng.below(254) as u8 } else { *pick(rng, &[0, 255]) };
    let mut nas = vec![0x2e, psi, pti];
    let cause = *pick(rng, &[26, 36, 43, 45, 81, 96, 97, 111]);
    let rules = [0x7a, 0, 9, 1, 0, 6, 0x31, 0x31, 1, 1, 255, 9];
    let flows = [0x79, 0, 6, 9, 0x20, 0x41, 1, 1, 9];
    let options = [0x7b, 0, 4, 0x80, 0, 0x0d, 0];
    match rng.below(12) {
        0..=3 => {
            nas.extend_from_slice(&[0xc1, 0xff, 0xff, 0x90 | (1 + rng.below(5) as u8), 0xa1]);
            if chance(rng, 50) {
                nas.extend_from_slice(&[0x28, 1, 0]);
            }
            if chance(rng, 50) {
                nas.extend_from_slice(&options);
            }
        }
        4 | 5 => {
            nas.push(0xc9);
            if chance(rng, 30) {
                nas.extend_from_slice(&[0x59, cause]);
            }
            if chance(rng, 60) {
                nas.extend_from_slice(&rules);
            }
            if chance(rng, 60) {
                nas.extend_from_slice(&flows);
            }
        }
        6 => nas.extend_from_slice(&[0xd1, 0x59, cause]),
        7 => nas.push(0xd4),
        8 => nas.push(0xcc),
        9 => nas.extend_from_slice(&[0xcd, cause]),
        10 => nas.extend_from_slice(&[0xd6, cause]),
        _ => nas.extend_from_slice(&[*pick(rng, &GSM_TYPES), 0, 4, 2, 1, 0, 4]),
    }
    nas
}

/// Returns an UL NAS TRANSPORT with a 5GSM message.
pub(super) fn transport(gsm: &[u8], names: &Names, rng: &mut Rng) -> Vec<u8> {
    let mut nas = vec![0x7e, 0, 0x67, 1];
    nas.extend_from_slice(&(gsm.len() as u16).to_be_bytes());
    nas.extend_from_slice(gsm);
    if chance(rng, 90) {
        nas.extend_from_slice(&[0x12, if chance(rng, 85) { names.psi } else { rng.bits() as u8 }]);
    }
    if chance(rng, 15) {
        nas.extend_from_slice(&[0x59, rng.bits() as u8]);
    }
    if chance(rng, 60) {
        nas.push(0x80 | if chance(rng, 60) { 1 } else { rng.below(8) as u8 });
    }
    if chance(rng, 60) {
        nas.extend_from_slice(&[0x22, 1, names.sst]);
    }
    if chance(rng, 60) {
        let label = names.dnn.as_bytes();
        nas.extend_from_slice(&[0x25, label.len() as u8 + 1, label.len() as u8]);
        nas.extend_from_slice(label);
    }
    nas
}

/// Returns the content of a protected message, changed in its 5GMM or 5GSM part.
pub(super) fn inner(names: &Names, rng: &mut Rng) -> Vec<u8> {
    if chance(rng, 40) {
        let mut nas = gmm(names, rng);
        mutate(&mut nas, rng);
        return nas;
    }
    let mut payload = gsm(names, rng);
    let deep = chance(rng, 75);
    if deep {
        mutate(&mut payload, rng);
    }
    let mut nas = transport(&payload, names, rng);
    if !deep || chance(rng, 15) {
        mutate(&mut nas, rng);
    }
    nas
}

/// Changes the head, the IEs or the octets of a plain 5GMM or 5GSM message in one way.
pub(super) fn mutate(nas: &mut Vec<u8>, rng: &mut Rng) {
    let before = nas.clone();
    // EPD, security header or PSI and PTI, type.
    let head = if nas.first() == Some(&0x2e) { 4 } else { 3 };
    match rng.below(12) {
        0 => {
            let kind = *pick(rng, if head == 4 { &GSM_TYPES } else { &GMM_TYPES });
            nas.iter_mut().skip(head - 1).take(1).for_each(|octet| *octet = kind);
        }
        1 => {
            let at = 1 + rng.below(head - 1);
            nas.iter_mut().skip(at).take(1).for_each(|octet| *octet = rng.bits() as u8);
        }
        2..=4 => append(nas, rng),
        5 => change_length(nas, head, rng),
        6 => nas.truncate(head + rng.below(nas.len().saturating_sub(head).max(1))),
        _ => octets::mutate(nas, head, rng),
    }
    nas.truncate(octets::LONGEST / 2);
    if *nas == before {
        octets::mutate(nas, head, rng);
    }
}

/// Appends an IE: an allowed one, one of another message, one with comprehension required, or one
/// many times.
fn append(nas: &mut Vec<u8>, rng: &mut Rng) {
    let most = if chance(rng, 4) { 3_000 } else { 20 };
    let value: Vec<u8> = (0..rng.below(most)).map(|_| rng.bits() as u8).collect();
    let mut ie = Vec::new();
    match rng.below(4) {
        0 => {
            ie.push(*pick(rng, &LONG_IES));
            ie.extend_from_slice(&(value.len() as u16).to_be_bytes());
            ie.extend_from_slice(&value);
        }
        // TS 24.007 11.2.4: comprehension required.
        1 => ie.extend_from_slice(&[rng.below(16) as u8, 1, 0]),
        2 => ie.push(0x80 | rng.bits() as u8),
        _ => {
            let length = value.len().min(255);
            ie.extend_from_slice(&[*pick(rng, &SHORT_IES), length as u8]);
            ie.extend_from_slice(&value[..length]);
        }
    }
    let times = if chance(rng, 10) { 1 << rng.below(7) } else { 1 };
    (0..times).for_each(|_| nas.extend_from_slice(&ie));
}

/// Changes an octet whose value may be the length of the following part.
fn change_length(nas: &mut Vec<u8>, head: usize, rng: &mut Rng) {
    let length = nas.len();
    let lies = |at: &usize| *at + 1 + usize::from(nas[*at]) <= length && nas[*at] > 0;
    let places: Vec<usize> = (head..length).filter(lies).collect();
    match places.is_empty() {
        true => nas.push(rng.bits() as u8),
        false => {
            let at = *pick(rng, &places);
            nas[at] = match rng.below(4) {
                0 => nas[at] - 1,
                1 => nas[at].wrapping_add(1),
                2 => 0,
                _ => 0xff,
            };
        }
    }
}
