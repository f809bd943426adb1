//! Valid NAS messages of a UE of EPS (TS 24.301).

use super::super::dice::{chance, pick};
use super::nr::no_key;
use super::{Names, mutate};
use crate::load::Rng;
use crate::rat::Rat;

/// EMM message types of both directions (TS 24.301 table 9.8.1).
pub(super) const MM_TYPES: [u8; 34] = [
    0x41, 0x42, 0x43, 0x44, 0x45, 0x46, 0x48, 0x49, 0x4a, 0x4b, 0x4c, 0x4d, 0x4e, 0x4f, 0x50, 0x51, 0x52, 0x53, 0x54,
    0x55, 0x56, 0x5c, 0x5d, 0x5e, 0x5f, 0x60, 0x61, 0x62, 0x63, 0x64, 0x68, 0x69, 0x00, 0xff,
];
/// ESM message types of both directions (TS 24.301 table 9.8.2).
pub(super) const SM_TYPES: [u8; 24] = [
    0xc1, 0xc2, 0xc3, 0xc5, 0xc6, 0xc7, 0xc9, 0xca, 0xcb, 0xcd, 0xce, 0xd0, 0xd1, 0xd2, 0xd3, 0xd4, 0xd5, 0xd6, 0xd7,
    0xd9, 0xda, 0xdb, 0xe8, 0xeb,
];
/// Identifiers of EMM and ESM IEs with a length of one octet.
pub(super) const SHORT_IES: [u8; 25] = [
    0x50, 0x58, 0x31, 0x11, 0x20, 0x40, 0x57, 0x5d, 0x10, 0x6a, 0x5e, 0x6e, 0x6f, 0x6d, 0x6c, 0x23, 0x30, 0x27, 0x28,
    0x34, 0x32, 0x5f, 0x56, 0x29, 0x5b,
];
/// Identifiers of IEs with a length of two octets.
pub(super) const LONG_IES: [u8; 5] = [0x79, 0x7b, 0x78, 0x7e, 0x7c];

/// Returns a mobile identity with its length: GUTI, IMSI, IMEI or nothing valid.
fn identity(names: &Names, rng: &mut Rng) -> Vec<u8> {
    let octets = match (&names.guti, rng.below(8)) {
        (_, 0) => vec![rng.below(8) as u8],
        (_, 1) => vec![0x3b, 0x32, 0x54, 0x76, 0x98, 0x10, 0x32, 0x54],
        (Some(guti), 2..=5) => guti.to_vec(),
        _ => names.suci.clone(),
    };
    let mut out = vec![octets.len() as u8];
    out.extend_from_slice(&octets);
    out
}

/// Returns a PDN CONNECTIVITY REQUEST.
fn connectivity(names: &Names, rng: &mut Rng) -> Vec<u8> {
    let pti = if chance(rng, 80) { 1 + rng.below(254) as u8 } else { *pick(rng, &[0, 255]) };
    let mut nas = vec![0x02, pti, 0xd0, (1 + rng.below(6) as u8) << 4 | (1 + rng.below(4) as u8)];
    if chance(rng, 30) {
        nas.push(0xd0 | rng.below(2) as u8);
    }
    if chance(rng, 40) {
        let label = names.dnn.as_bytes();
        nas.extend_from_slice(&[0x28, label.len() as u8 + 1, label.len() as u8]);
        nas.extend_from_slice(label);
    }
    if chance(rng, 50) {
        nas.extend_from_slice(&[0x27, 8, 0x80, 0, 0x0d, 0, 0, 0x10, 0, 0]);
    }
    nas
}

/// Returns an ATTACH REQUEST.
pub(super) fn attach(names: &Names, rng: &mut Rng) -> Vec<u8> {
    let kind = *pick(rng, &[1, 1, 1, 2, 6, 7]);
    let mut nas = vec![0x07, 0x41, no_key(names.ksi) << 4 | kind];
    nas.extend(identity(names, rng));
    // UE network capability.
    nas.extend_from_slice(&[2, 0xf0, 0x70]);
    let mut container = connectivity(names, rng);
    if chance(rng, 20) {
        mutate(&mut container, Rat::Eps, rng);
    }
    nas.extend_from_slice(&(container.len() as u16).to_be_bytes());
    nas.extend_from_slice(&container);
    // Last visited TAI, DRX, classmark, voice domain, GUTI type, T3324, extended T3412, eDRX, NR
    // capability.
    let options: [&[u8]; 10] = [
        &[0x52, 0x99, 0xf9, 0x07, 0, 1],
        &[0x5c, 0x0a, 0x00],
        &[0x11, 3, 0x57, 0x58, 0xa6],
        &[0x5d, 1, 3],
        &[0xe0],
        &[0x6a, 1, 0x21],
        &[0x5e, 1, 0x41],
        &[0x6e, 1, 0x35],
        &[0x6f, 4, 0xf0, 0, 0x70, 0],
        &[0x6d, 1, 3],
    ];
    options.iter().filter(|_| chance(rng, 30)).for_each(|option| nas.extend_from_slice(option));
    nas
}

/// Returns a TRACKING AREA UPDATE REQUEST.
pub(super) fn tracking_area_update(names: &Names, rng: &mut Rng) -> Vec<u8> {
    let kind = *pick(rng, &[0, 0, 1, 2, 3, 8, 11]);
    let mut nas = vec![0x07, 0x48, no_key(names.ksi) << 4 | kind];
    nas.extend(identity(names, rng));
    let options: [&[u8]; 7] = [
        &[0x58, 2, 0xf0, 0x70],
        &[0x52, 0x99, 0xf9, 0x07, 0, 1],
        &[0x57, 2, 0x20, 0],
        &[0xe0],
        &[0x6a, 1, 0x21],
        &[0x6f, 4, 0xf0, 0, 0x70, 0],
        &[0x6d, 1, 3],
    ];
    options.iter().filter(|_| chance(rng, 40)).for_each(|option| nas.extend_from_slice(option));
    nas
}

/// Returns an EXTENDED SERVICE REQUEST.
pub(super) fn extended_service_request(names: &Names, rng: &mut Rng) -> Vec<u8> {
    let mut nas = vec![0x07, 0x4c, no_key(names.ksi) << 4 | *pick(rng, &[0, 1, 2, 8, 15]), 5, 0xf4];
    match &names.guti {
        Some(guti) => nas.extend_from_slice(&guti[7..]),
        None => nas.extend_from_slice(&[0; 4]),
    }
    if chance(rng, 50) {
        nas.push(0xb1);
    }
    if chance(rng, 50) {
        nas.extend_from_slice(&[0x57, 2, 0x20, 0]);
    }
    nas
}

/// Returns a DETACH REQUEST of a UE.
pub(super) fn detach(names: &Names, rng: &mut Rng) -> Vec<u8> {
    let mut nas = vec![0x07, 0x45, no_key(names.ksi) << 4 | rng.below(16) as u8];
    nas.extend(identity(names, rng));
    nas
}

/// Returns a SECURITY MODE COMPLETE with IMEISV and the whole initial message.
pub(super) fn security_mode_complete(names: &Names, rng: &mut Rng) -> Vec<u8> {
    let mut nas = vec![0x07, 0x5e];
    if chance(rng, 80) {
        nas.extend_from_slice(&[0x23, 9, 0x33, 0x05, 0, 0, 0, 0, 0, 0x10, 0xf0]);
    }
    if chance(rng, 40) {
        let mut inner = if chance(rng, 50) { attach(names, rng) } else { tracking_area_update(names, rng) };
        if chance(rng, 40) {
            mutate(&mut inner, Rat::Eps, rng);
        }
        nas.push(0x79);
        nas.extend_from_slice(&(inner.len() as u16).to_be_bytes());
        nas.extend_from_slice(&inner);
    }
    nas
}

/// Returns an EMM message that does not end the UE's registration.
pub(super) fn mm(names: &Names, rng: &mut Rng) -> Vec<u8> {
    let cause = rng.bits() as u8;
    match rng.below(22) {
        0..=2 => attach(names, rng),
        3 | 4 => tracking_area_update(names, rng),
        5 => extended_service_request(names, rng),
        6 => vec![0x07, 0x43, 0, 3, names.psi << 4 | 2, 0, 0xc2],
        7 => vec![0x07, 0x4a],
        8 => vec![0x07, 0x51],
        9 => {
            let mut nas = vec![0x07, 0x53, 8];
            nas.extend((0..8).map(|_| rng.bits() as u8));
            nas
        }
        10 => vec![0x07, 0x5c, *pick(rng, &[20, 26, cause])],
        11 => {
            let mut nas = vec![0x07, 0x5c, 21, 0x30, 14];
            nas.extend((0..14).map(|_| rng.bits() as u8));
            nas
        }
        12 => {
            let mut nas = vec![0x07, 0x56];
            nas.extend(identity(names, rng));
            nas
        }
        13 => security_mode_complete(names, rng),
        14 => vec![0x07, 0x5f, *pick(rng, &[23, 24, cause])],
        15 => vec![0x07, 0x60, cause],
        16 => vec![0x07, 0x46],
        // SMS and generic payloads.
        17 => vec![0x07, 0x63, 5, 0x09, 0x01, 0x02, 0x00, 0x00],
        18 => vec![0x07, 0x69, *pick(rng, &[1, 2, cause]), 0, 3, 1, 2, 3],
        // CONTROL PLANE SERVICE REQUEST with an ESM DATA TRANSPORT.
        19 => vec![0x07, 0x4d, no_key(names.ksi) << 4, 0x78, 0, 6, names.psi << 4 | 2, 0, 0xeb, 0, 1, 9],
        20 => vec![0x07, *pick(rng, &MM_TYPES), cause],
        _ => detach(names, rng),
    }
}

/// Returns an ESM message of a UE.
pub(super) fn sm(names: &Names, rng: &mut Rng) -> Vec<u8> {
    let ebi = if chance(rng, 75) { names.psi } else { rng.below(16) as u8 };
    let pti = if chance(rng, 50) { 1 + rng.below(254) as u8 } else { *pick(rng, &[0, 0, 255]) };
    let cause = *pick(rng, &[26, 31, 32, 43, 47, 54, 81, 96, 97, 111]);
    let mut nas = vec![ebi << 4 | 2, pti];
    // One filter with the protocol identifier, and a bit rate (TS 24.008 10.5.6.12, TS 24.301
    // 9.9.4.3).
    let filter = [8, 0x21, 0x31, 0x01, 0x02, 0x30, 0x11, 0x00, 0x00];
    match rng.below(15) {
        0..=2 => return connectivity(names, rng),
        3 => nas.extend_from_slice(&[0xd2, ebi & 0xf]),
        4 => {
            nas.extend_from_slice(&[0xd4, ebi & 0xf]);
            nas.extend_from_slice(&filter);
            nas.extend_from_slice(&[1, 9]);
        }
        5 => {
            nas.extend_from_slice(&[0xd6, ebi & 0xf]);
            nas.extend_from_slice(&filter);
            if chance(rng, 50) {
                nas.extend_from_slice(&[0x5b, 1, 9]);
            }
        }
        6 => {
            nas.push(0xda);
            if chance(rng, 70) {
                let label = names.dnn.as_bytes();
                nas.extend_from_slice(&[0x28, label.len() as u8 + 1, label.len() as u8]);
                nas.extend_from_slice(label);
            }
        }
        7 => nas.push(0xc2),
        8 => nas.extend_from_slice(&[0xc3, cause]),
        9 => nas.push(0xca),
        10 => nas.extend_from_slice(&[0xcb, cause]),
        11 => nas.push(0xce),
        12 => nas.extend_from_slice(&[0xe8, cause]),
        13 => nas.extend_from_slice(&[0xeb, 0, 4, 1, 2, 3, 4]),
        _ => nas.extend_from_slice(&[*pick(rng, &SM_TYPES), 0, 4, 2, 1, 0, 4]),
    }
    nas
}
