//! Valid NAS messages of a UE, and their mutation by the format rules of TS 24.501 and TS 24.301.

mod eps;
mod nr;

use super::dice::{chance, pick};
use super::octets;
use crate::load::Rng;
use crate::rat::Rat;
use crate::ue::security::header;
use vireo_wire::nas::Nas5gsMessage;
use vireo_wire::nas_eps::{Direction, NasEpsMessage};

/// Identifiers in the messages of one UE.
#[derive(Clone, Debug)]
pub(in crate::mutate) struct Names {
    pub(in crate::mutate) rat: Rat,
    /// Mobile identity IE with the SUCI or IMSI.
    pub(in crate::mutate) suci: Vec<u8>,
    /// Mobile identity IE with the GUTI.
    pub(in crate::mutate) guti: Option<[u8; 11]>,
    /// Key set identifier of the security context.
    pub(in crate::mutate) ksi: Option<u8>,
    /// Current or future PDU session, or EPS bearer.
    pub(in crate::mutate) psi: u8,
    /// SST of the slice; there is no SD.
    pub(in crate::mutate) sst: u8,
    /// One label, without its length octet.
    pub(in crate::mutate) dnn: String,
}

impl Names {
    /// Returns the names of no UE.
    pub(in crate::mutate) fn new(rat: Rat) -> Self {
        Names { rat, suci: Vec::new(), guti: None, ksi: None, psi: 0, sst: 0, dnn: String::new() }
    }
}

/// Format of the messages of one system.
struct Format {
    /// Octets up to the message type, in mobility and in session management.
    heads: (usize, usize),
    mm_types: &'static [u8],
    sm_types: &'static [u8],
    /// Identifiers of IEs with a length of one octet, and of two.
    short_ies: &'static [u8],
    long_ies: &'static [u8],
}

impl Format {
    fn by_rat(rat: Rat) -> &'static Format {
        static NR: Format = Format {
            heads: (3, 4),
            mm_types: &nr::MM_TYPES,
            sm_types: &nr::SM_TYPES,
            short_ies: &nr::SHORT_IES,
            long_ies: &nr::LONG_IES,
        };
        static EPS: Format = Format {
            heads: (2, 3),
            mm_types: &eps::MM_TYPES,
            sm_types: &eps::SM_TYPES,
            short_ies: &eps::SHORT_IES,
            long_ies: &eps::LONG_IES,
        };
        match rat {
            Rat::Nr => &NR,
            Rat::Eps => &EPS,
        }
    }
}

/// Returns true if a plain message is of session management.
fn is_sm(rat: Rat, nas: &[u8]) -> bool {
    match (rat, nas.first()) {
        (Rat::Nr, first) => first == Some(&0x2e),
        (Rat::Eps, first) => first.is_some_and(|first| first & 0xf == 2),
    }
}

/// Returns true if the codec reads a plain message of mobility management.
pub(in crate::mutate) fn is_read(rat: Rat, nas: &[u8]) -> bool {
    match rat {
        Rat::Nr => matches!(Nas5gsMessage::decode(nas), Ok(Nas5gsMessage::Gmm(..))),
        Rat::Eps => {
            let message = NasEpsMessage::decode_with_direction(nas, Direction::Uplink);
            matches!(message, Ok(NasEpsMessage::Emm(..)))
        }
    }
}

/// Prepends a security header with a wrong MAC.
pub(in crate::mutate) fn forge(nas: &mut Vec<u8>, rat: Rat, rng: &mut Rng) {
    let mac = [0xde, 0xad, 0xbe, 0xef, rng.bits() as u8];
    let start: &[u8] = match rat {
        Rat::Nr => &[0x7e, header::INTEGRITY],
        Rat::Eps => &[header::INTEGRITY << 4 | 7],
    };
    nas.splice(0..0, start.iter().copied().chain(mac));
}

/// Returns a REGISTRATION REQUEST, or an ATTACH REQUEST.
pub(in crate::mutate) fn registration(names: &Names, rng: &mut Rng) -> Vec<u8> {
    match names.rat {
        Rat::Nr => nr::registration(names, rng),
        Rat::Eps => eps::attach(names, rng),
    }
}

/// Returns a SERVICE REQUEST, or an EXTENDED SERVICE REQUEST.
pub(in crate::mutate) fn service_request(names: &Names, rng: &mut Rng) -> Vec<u8> {
    match names.rat {
        Rat::Nr => nr::service_request(names, rng),
        Rat::Eps => eps::extended_service_request(names, rng),
    }
}

/// Returns the message with which an idle UE comes back.
pub(in crate::mutate) fn return_from_idle(names: &Names, rng: &mut Rng) -> Vec<u8> {
    match names.rat {
        Rat::Nr => nr::service_request(names, rng),
        Rat::Eps => eps::tracking_area_update(names, rng),
    }
}

/// Returns a DEREGISTRATION REQUEST or DETACH REQUEST of a UE.
pub(in crate::mutate) fn deregistration(names: &Names, rng: &mut Rng) -> Vec<u8> {
    match names.rat {
        Rat::Nr => nr::deregistration(names, rng),
        Rat::Eps => eps::detach(names, rng),
    }
}

/// Returns a SECURITY MODE COMPLETE with the whole initial message.
pub(in crate::mutate) fn security_mode_complete(names: &Names, rng: &mut Rng) -> Vec<u8> {
    match names.rat {
        Rat::Nr => nr::security_mode_complete(names, rng),
        Rat::Eps => eps::security_mode_complete(names, rng),
    }
}

/// Returns the REGISTRATION COMPLETE or ATTACH COMPLETE of session `psi`.
pub(in crate::mutate) fn complete(rat: Rat, psi: u8) -> Vec<u8> {
    match rat {
        Rat::Nr => vec![0x7e, 0, 0x43],
        Rat::Eps => vec![0x07, 0x43, 0, 3, psi << 4 | 2, 0, 0xc2],
    }
}

/// Returns a 5GMM or EMM message that does not end the UE's registration.
pub(in crate::mutate) fn mm(names: &Names, rng: &mut Rng) -> Vec<u8> {
    match names.rat {
        Rat::Nr => nr::mm(names, rng),
        Rat::Eps => eps::mm(names, rng),
    }
}

/// Returns a 5GSM or ESM message of a UE.
pub(in crate::mutate) fn sm(names: &Names, rng: &mut Rng) -> Vec<u8> {
    match names.rat {
        Rat::Nr => nr::sm(names, rng),
        Rat::Eps => eps::sm(names, rng),
    }
}

/// Returns the message that carries a 5GSM message. An ESM message is a message of its own.
pub(in crate::mutate) fn transport(sm: &[u8], names: &Names, rng: &mut Rng) -> Vec<u8> {
    match names.rat {
        Rat::Nr => nr::transport(sm, names, rng),
        Rat::Eps => sm.to_vec(),
    }
}

/// Returns the content of a protected message, changed in its mobility or session management part.
pub(in crate::mutate) fn inner(names: &Names, rng: &mut Rng) -> Vec<u8> {
    if chance(rng, 40) {
        let mut nas = mm(names, rng);
        mutate(&mut nas, names.rat, rng);
        return nas;
    }
    let mut payload = sm(names, rng);
    let deep = chance(rng, 75);
    if deep {
        mutate(&mut payload, names.rat, rng);
    }
    let mut nas = transport(&payload, names, rng);
    if !deep || chance(rng, 15) {
        mutate(&mut nas, names.rat, rng);
    }
    nas
}

/// Changes the head, the IEs or the octets of a plain message in one way.
pub(in crate::mutate) fn mutate(nas: &mut Vec<u8>, rat: Rat, rng: &mut Rng) {
    let before = nas.clone();
    let format = Format::by_rat(rat);
    let is_sm = is_sm(rat, nas);
    // Protocol discriminator, security header or identities of the session, type.
    let head = if is_sm { format.heads.1 } else { format.heads.0 };
    match rng.below(12) {
        0 => {
            let kind = *pick(rng, if is_sm { format.sm_types } else { format.mm_types });
            nas.iter_mut().skip(head - 1).take(1).for_each(|octet| *octet = kind);
        }
        1 => {
            let at = rng.below(head - 1).max(usize::from(rat == Rat::Nr));
            nas.iter_mut().skip(at).take(1).for_each(|octet| *octet = rng.bits() as u8);
        }
        2..=4 => append(nas, format, rng),
        5 => change_length(nas, head, rng),
        6 => nas.truncate(head + rng.below(nas.len().saturating_sub(head).max(1))),
        _ => octets::mutate(nas, head, rng),
    }
    nas.truncate(octets::MAX_MESSAGE_OCTETS / 2);
    if *nas == before {
        octets::mutate(nas, head, rng);
    }
}

/// Appends an IE: an allowed one, one of another message, one with comprehension required, or one
/// many times.
fn append(nas: &mut Vec<u8>, format: &Format, rng: &mut Rng) {
    let most = if chance(rng, 4) { 3_000 } else { 20 };
    let value: Vec<u8> = (0..rng.below(most)).map(|_| rng.bits() as u8).collect();
    let mut ie = Vec::new();
    match rng.below(4) {
        0 => {
            ie.push(*pick(rng, format.long_ies));
            ie.extend_from_slice(&(value.len() as u16).to_be_bytes());
            ie.extend_from_slice(&value);
        }
        // TS 24.007 11.2.4: comprehension required.
        1 => ie.extend_from_slice(&[rng.below(16) as u8, 1, 0]),
        2 => ie.push(0x80 | rng.bits() as u8),
        _ => {
            let length = value.len().min(255);
            ie.extend_from_slice(&[*pick(rng, format.short_ies), length as u8]);
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
