//! Valid NAS messages of a 5G UE (TS 24.501).

use super::super::dice::{chance, pick};
use super::{Names, mutate};
use crate::load::Rng;
use crate::rat::Rat;

/// 5GMM message types of both directions (TS 24.501 table 9.7.1).
pub(super) const MM_TYPES: [u8; 36] = [
    0x41, 0x42, 0x43, 0x44, 0x45, 0x46, 0x47, 0x48, 0x4c, 0x4d, 0x4e, 0x4f, 0x50, 0x51, 0x52, 0x54, 0x55, 0x56, 0x57,
    0x58, 0x59, 0x5a, 0x5b, 0x5c, 0x5d, 0x5e, 0x5f, 0x64, 0x65, 0x66, 0x67, 0x68, 0x69, 0x6a, 0x6b, 0x00,
];
/// 5GSM message types of both directions (TS 24.501 table 9.7.2).
pub(super) const SM_TYPES: [u8; 18] =
    [0xc1, 0xc2, 0xc3, 0xc5, 0xc6, 0xc7, 0xc8, 0xc9, 0xca, 0xcb, 0xcc, 0xcd, 0xd1, 0xd2, 0xd3, 0xd4, 0xd6, 0xd8];
/// Identifiers of 5GMM and 5GSM IEs with a length of one octet.
pub(super) const SHORT_IES: [u8; 18] =
    [0x10, 0x2e, 0x2f, 0x40, 0x50, 0x18, 0x52, 0x17, 0x25, 0x22, 0x28, 0x2c, 0x56, 0x59, 0x33, 0x60, 0x6e, 0x2a];
/// Identifiers of IEs with a length of two octets.
pub(super) const LONG_IES: [u8; 9] = [0x71, 0x72, 0x74, 0x77, 0x78, 0x79, 0x7a, 0x7b, 0x7c];

pub(super) fn no_key(ksi: Option<u8>) -> u8 {
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
        mutate(&mut inner, Rat::Nr, rng);
    }
    nas.extend_from_slice(&(inner.len() as u16).to_be_bytes());
    nas.extend_from_slice(&inner);
    nas
}

/// Returns a 5GMM message that does not end the UE's registration.
pub(super) fn mm(names: &Names, rng: &mut Rng) -> Vec<u8> {
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
        18 => vec![0x7e, 0, *pick(rng, &MM_TYPES), cause],
        _ => deregistration(names, rng),
    }
}

/// Returns a 5GSM message of a UE.
pub(super) fn sm(names: &Names, rng: &mut Rng) -> Vec<u8> {
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
        _ => nas.extend_from_slice(&[*pick(rng, &SM_TYPES), 0, 4, 2, 1, 0, 4]),
    }
    nas
}

/// Returns an UL NAS TRANSPORT with a 5GSM message.
pub(super) fn transport(sm: &[u8], names: &Names, rng: &mut Rng) -> Vec<u8> {
    let mut nas = vec![0x7e, 0, 0x67, 1];
    nas.extend_from_slice(&(sm.len() as u16).to_be_bytes());
    nas.extend_from_slice(sm);
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
