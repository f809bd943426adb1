//! Mutation of NGAP PDUs by information element, and checks with the ASN.1 decoder.

use super::dice::{chance, pick};
use super::octets::LONGEST;
use crate::load::Rng;
use vireo_wire::ngap::*;

/// Attempts to change a value until the decoder reads the PDU.
const TRIES: usize = 6;
/// Bits of the first octet for initiating message, successful and unsuccessful outcome.
const DIRECTIONS: [u8; 3] = [0x00, 0x20, 0x40];

/// Procedures that RAN nodes start and every AMF supports.
const SERVED: [NgapPduKind; 11] = [
    NgapPduKind::Initiating_NGSetup,
    NgapPduKind::Initiating_RANConfigurationUpdate,
    NgapPduKind::Initiating_NGReset,
    NgapPduKind::Initiating_InitialUEMessage,
    NgapPduKind::Initiating_UplinkNASTransport,
    NgapPduKind::Initiating_UEContextReleaseRequest,
    NgapPduKind::Initiating_PathSwitchRequest,
    NgapPduKind::Initiating_HandoverPreparation,
    NgapPduKind::Initiating_HandoverNotification,
    NgapPduKind::Initiating_HandoverCancel,
    NgapPduKind::Initiating_UplinkRANStatusTransfer,
];

/// Returns true if the ASN.1 decoder reads the PDU and the value of each IE that its message may
/// have.
pub(super) fn decodes(octets: &[u8]) -> bool {
    let Ok(pdu) = NGAP_PDU::decode_borrowed(octets) else { return false };
    let undecodable = |deviation: &Deviation| matches!(deviation, Deviation::UndecodableIe { .. });
    pdu.check().is_ok_and(|deviations| !deviations.iter().any(undecodable))
}

/// Returns the reason for which TS 38.413 clause 10 requires an answer to this PDU, if it does. The
/// answer is ERROR INDICATION or an unsuccessful outcome. Reasons that depend on the state of the
/// UE or the node are not covered.
pub(super) fn answered_because(octets: &[u8]) -> Option<&'static str> {
    let Ok(pdu) = NGAP_PDU::decode_borrowed(octets) else { return Some("transfer syntax error (10.2)") };
    if pdu.direction() != "InitiatingMessage" || pdu.kind() == NgapPduKind::Initiating_ErrorIndication {
        return None;
    }
    let rejects = Criticality::reject;
    if matches!(pdu.kind(), NgapPduKind::Other { .. }) {
        return (pdu.criticality() == rejects).then_some("procedure not comprehended (10.3.4.1)");
    }
    if !SERVED.contains(&pdu.kind()) {
        // Support of the procedure by the AMF is optional.
        return None;
    }
    let Ok(deviations) = pdu.check() else { return Some("transfer syntax error (10.2)") };
    deviations.iter().find_map(|deviation| match deviation {
        Deviation::UnexpectedIe { criticality, .. } if *criticality == rejects => {
            Some("IE not comprehended (10.3.4.2)")
        }
        Deviation::MissingIe { criticality, .. } if *criticality == rejects => Some("IE missing (10.3.5)"),
        _ => None,
    })
}

/// Returns the IEs of a PDU.
pub(super) fn elements(octets: &[u8]) -> Vec<ProtocolIEField<'static>> {
    let pdu = NGAP_PDU::decode_borrowed(octets);
    let ies = pdu.and_then(|pdu| pdu.protocol_ies().map(ProtocolIEContainer::into_owned));
    ies.map_or(Vec::new(), |ies| ies.0)
}

/// Returns the PDU with these IEs.
pub(super) fn with_elements(octets: &[u8], ies: Vec<ProtocolIEField<'_>>) -> Option<Vec<u8>> {
    let mut pdu = NGAP_PDU::decode(octets).ok()?;
    pdu.set_protocol_ies(ProtocolIEContainer(ies)).ok()?;
    pdu.encode().ok()
}

/// Returns the PDU with its UE NGAP IDs replaced, where it has any.
pub(super) fn retarget(octets: &[u8], amf: Option<u64>, ran: Option<u32>) -> Option<Vec<u8>> {
    let mut ies = elements(octets);
    for ie in &mut ies {
        let value = match (ie.id, amf, ran) {
            (ID_AMF_UE_NGAP_ID | ID_SOURCE_AMF_UE_NGAP_ID, Some(amf), _) => encode_open_type(&AMFUENGAPID(amf)),
            (ID_RAN_UE_NGAP_ID, _, Some(ran)) => encode_open_type(&RANUENGAPID(ran)),
            _ => continue,
        };
        ie.value = value.ok()?;
    }
    with_elements(octets, ies)
}

/// Changes the elements or the head of a PDU in one way. `donor` is a PDU that provides elements.
pub(super) fn mutate(octets: &[u8], donor: &[u8], rng: &mut Rng) -> Vec<u8> {
    for _ in 0..TRIES {
        let changed = change(octets, donor, rng);
        if let Some(changed) = changed
            && changed != octets
            && changed.len() <= LONGEST
            && (decodes(&changed) || chance(rng, 4))
        {
            return changed;
        }
    }
    // Treats a PDU with an unknown procedure code as a container of IEs.
    let mut unknown = octets.to_vec();
    unknown.iter_mut().skip(1).take(1).for_each(|code| *code = 200);
    unknown
}

fn change(octets: &[u8], donor: &[u8], rng: &mut Rng) -> Option<Vec<u8>> {
    if chance(rng, 15) {
        return Some(change_head(octets, rng));
    }
    let mut ies = elements(octets);
    if ies.is_empty() {
        return Some(change_head(octets, rng));
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
        4 => {
            let others = [Criticality::reject, Criticality::ignore, Criticality::notify];
            ies[at].criticality = *pick(rng, &others);
        }
        5 => ies[at].id = ProtocolIEID(if chance(rng, 50) { rng.below(490) } else { rng.below(65_536) } as u16),
        6 => {
            let foreign = elements(donor);
            let element = foreign.get(rng.below(foreign.len().max(1)))?.clone();
            if chance(rng, 50) { ies.push(element) } else { ies[at].value = element.value }
        }
        _ => change_value(&mut ies[at], rng),
    }
    with_elements(octets, ies)
}

/// Changes direction, procedure code or criticality.
fn change_head(octets: &[u8], rng: &mut Rng) -> Vec<u8> {
    let mut octets = octets.to_vec();
    if let [choice, code, criticality, ..] = octets.as_mut_slice() {
        match rng.below(4) {
            0 => *choice = *pick(rng, &DIRECTIONS),
            1 => *criticality = *pick(rng, &[0x00, 0x40, 0x80]),
            2 => *code = rng.below(87) as u8,
            _ => *code = rng.bits() as u8,
        }
    }
    octets
}

/// Sets an element to an extreme or a changed value.
fn change_value(ie: &mut ProtocolIEField<'static>, rng: &mut Rng) {
    let extreme = |rng: &mut Rng| *pick(rng, &[0u64, 1, u64::from(u32::MAX), (1 << 40) - 1, 0x00ff_ffff]);
    let value = match ie.id {
        ID_AMF_UE_NGAP_ID | ID_SOURCE_AMF_UE_NGAP_ID if chance(rng, 50) => {
            let id = if chance(rng, 50) { extreme(rng) } else { rng.bits() >> 24 };
            encode_open_type(&AMFUENGAPID(id)).ok()
        }
        ID_RAN_UE_NGAP_ID if chance(rng, 50) => {
            let id = if chance(rng, 50) { extreme(rng) } else { rng.bits() };
            encode_open_type(&RANUENGAPID(id as u32)).ok()
        }
        ID_NAS_PDU if chance(rng, 40) => {
            let length = *pick(rng, &[0, 1, 2, 7, 8, 300, 5_000]);
            let octets: Vec<u8> = (0..length).map(|_| rng.bits() as u8).collect();
            encode_open_type(&NASPDU(octets.into())).ok()
        }
        _ => None,
    };
    ie.value = value.unwrap_or_else(|| {
        let mut octets = ie.value.to_vec();
        match octets.len() {
            0 => octets.push(rng.bits() as u8),
            length => {
                let at = rng.below(length);
                octets[at] ^= 1 << rng.below(8);
            }
        }
        octets.into()
    });
}
