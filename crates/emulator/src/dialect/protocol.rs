//! PDUs of NGAP and S1AP by information element, without their meaning.
//!
//! Both protocols encode a PDU alike (X.691, aligned): kind, procedure code, criticality and an
//! open type with a list of information elements. This module splits and joins that list without
//! the codec, and asks the codec only whether a PDU decodes.

use crate::rat::Rat;
use vireo_wire::{ngap, s1ap};

/// Largest open type that is split or joined; larger ones are in fragments (X.691 11.9.3.8).
const MAX_OPEN_TYPE_OCTETS: usize = 0x3fff;

/// One information element of a PDU.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Element {
    pub(crate) id: u16,
    /// 0 reject, 1 ignore, 2 notify.
    pub(crate) criticality: u8,
    pub(crate) value: Vec<u8>,
}

/// UE IDs of a PDU: those of the core (40 or 32 bits) and of the node (32 or 24 bits).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct UeIds {
    pub(crate) core: u64,
    pub(crate) ran: u32,
}

/// NGAP or S1AP.
#[derive(Debug)]
pub(crate) struct Protocol {
    pub(crate) rat: Rat,
    /// Element identifiers of the core's UE ID.
    pub(crate) core_ids: &'static [u16],
    pub(crate) ran_id: u16,
    pub(crate) nas: u16,
    /// Octets of the core's and of the node's largest UE ID.
    sizes: (u32, u32),
    /// Procedure code of INITIAL UE MESSAGE.
    initial: u8,
    /// Number of element identifiers and of procedure codes.
    pub(crate) known: (usize, usize),
    /// Procedure with which a node updates its configuration.
    pub(crate) update: &'static str,
    decodes: fn(&[u8]) -> bool,
    answered: fn(&[u8]) -> Option<&'static str>,
}

/// Defines the checks of one codec. `served` are the procedures that RAN nodes start and that every
/// core supports.
macro_rules! checks {
    ($name:ident, $codec:ident, $pdu:ident, $kind:ident, [$($served:ident),* $(,)?]) => {
        mod $name {
            use vireo_wire::$codec::{Criticality, Deviation, $kind, $pdu};

            const SERVED: &[$kind] = &[$($kind::$served),*];

            pub(super) fn decodes(octets: &[u8]) -> bool {
                let Ok(pdu) = $pdu::decode_borrowed(octets) else { return false };
                let undecodable = |deviation: &Deviation| matches!(deviation, Deviation::UndecodableIe { .. });
                pdu.check().is_ok_and(|deviations| !deviations.iter().any(undecodable))
            }

            pub(super) fn answered(octets: &[u8]) -> Option<&'static str> {
                const SYNTAX: &str = "transfer syntax error (10.2)";
                let Ok(pdu) = $pdu::decode_borrowed(octets) else { return Some(SYNTAX) };
                if pdu.direction() != "InitiatingMessage" || pdu.kind() == $kind::Initiating_ErrorIndication {
                    return None;
                }
                let rejects = Criticality::reject;
                if matches!(pdu.kind(), $kind::Other { .. }) {
                    return (pdu.criticality() == rejects).then_some("procedure not comprehended (10.3.4.1)");
                }
                if !SERVED.contains(&pdu.kind()) {
                    // Support of the procedure by the core is optional.
                    return None;
                }
                let Ok(deviations) = pdu.check() else { return Some(SYNTAX) };
                deviations.iter().find_map(|deviation| match deviation {
                    Deviation::UnexpectedIe { criticality, .. } if *criticality == rejects => {
                        Some("IE not comprehended (10.3.4.2)")
                    }
                    Deviation::MissingIe { criticality, .. } if *criticality == rejects => Some("IE missing (10.3.5)"),
                    _ => None,
                })
            }
        }
    };
}

checks!(
    ng,
    ngap,
    NGAP_PDU,
    NgapPduKind,
    [
        Initiating_NGSetup,
        Initiating_RANConfigurationUpdate,
        Initiating_NGReset,
        Initiating_InitialUEMessage,
        Initiating_UplinkNASTransport,
        Initiating_UEContextReleaseRequest,
        Initiating_PathSwitchRequest,
        Initiating_HandoverPreparation,
        Initiating_HandoverNotification,
        Initiating_HandoverCancel,
        Initiating_UplinkRANStatusTransfer,
    ]
);
checks!(
    s1,
    s1ap,
    S1AP_PDU,
    S1apPduKind,
    [
        Initiating_S1Setup,
        Initiating_ENBConfigurationUpdate,
        Initiating_Reset,
        Initiating_initialUEMessage,
        Initiating_uplinkNASTransport,
        Initiating_UEContextReleaseRequest,
    ]
);

static NGAP: Protocol = Protocol {
    rat: Rat::Nr,
    core_ids: &[ngap::ID_AMF_UE_NGAP_ID.0, ngap::ID_SOURCE_AMF_UE_NGAP_ID.0],
    ran_id: ngap::ID_RAN_UE_NGAP_ID.0,
    nas: ngap::ID_NAS_PDU.0,
    sizes: (5, 4),
    initial: 15,
    known: (490, 87),
    update: "RANConfigurationUpdate",
    decodes: ng::decodes,
    answered: ng::answered,
};

static S1AP: Protocol = Protocol {
    rat: Rat::Eps,
    core_ids: &[s1ap::ID_MME_UE_S1_AP_ID.0, s1ap::ID_SOURCE_MME_UE_S1_AP_ID.0],
    ran_id: s1ap::ID_E_NB_UE_S1_AP_ID.0,
    nas: s1ap::ID_NAS_PDU.0,
    sizes: (4, 3),
    initial: 12,
    known: (350, 68),
    update: "ENBConfigurationUpdate",
    decodes: s1::decodes,
    answered: s1::answered,
};

/// Returns the octets of an unconstrained length and the length itself.
fn length(octets: &[u8]) -> Option<(usize, &[u8])> {
    match *octets {
        [short, ref rest @ ..] if short < 0x80 => Some((usize::from(short), rest)),
        [high, low, ref rest @ ..] if high < 0xc0 => Some((usize::from(high & 0x3f) << 8 | usize::from(low), rest)),
        _ => None,
    }
}

/// Appends a length and the octets.
fn append(out: &mut Vec<u8>, octets: &[u8]) -> Option<()> {
    match octets.len() {
        short @ 0..0x80 => out.push(short as u8),
        long @ 0x80..=MAX_OPEN_TYPE_OCTETS => out.extend_from_slice(&(0x8000 | long as u16).to_be_bytes()),
        _ => return None,
    }
    out.extend_from_slice(octets);
    Some(())
}

/// Returns the value of an integer of at most `most` octets, 2 to 8 (X.691 13.2.6).
fn integer(value: u64, most: u32) -> Vec<u8> {
    let value = value & (u64::MAX >> (64 - 8 * most));
    let used = (8 - value.leading_zeros() / 8).max(1);
    // The number of octets less one, in as many bits as the largest number needs.
    let bits = 32 - (most - 1).leading_zeros();
    let mut out = vec![((used - 1) << (8 - bits)) as u8];
    out.extend_from_slice(&value.to_be_bytes()[8 - used as usize..]);
    out
}

impl Protocol {
    /// Returns the protocol of a technology.
    pub(crate) fn by_rat(rat: Rat) -> &'static Protocol {
        match rat {
            Rat::Nr => &NGAP,
            Rat::Eps => &S1AP,
        }
    }

    /// Returns true if the ASN.1 decoder reads the PDU and the value of each element that its
    /// message may have.
    pub(crate) fn decodes(&self, octets: &[u8]) -> bool {
        (self.decodes)(octets)
    }

    /// Returns the reason for which clause 10 of TS 38.413 or TS 36.413 requires an answer to this
    /// PDU, if it does. The answer is ERROR INDICATION or an unsuccessful outcome. Reasons that
    /// depend on the state of the UE or the node are not covered.
    pub(crate) fn answered_because(&self, octets: &[u8]) -> Option<&'static str> {
        (self.answered)(octets)
    }

    /// Returns the elements of a PDU; none if it has another form.
    pub(crate) fn elements(&self, octets: &[u8]) -> Vec<Element> {
        split(octets).unwrap_or_default()
    }

    /// Returns the PDU with these elements.
    pub(crate) fn with_elements(&self, octets: &[u8], elements: &[Element]) -> Option<Vec<u8>> {
        let [kind, code, criticality, ..] = *octets else { return None };
        let mut list = vec![0];
        list.extend_from_slice(&u16::try_from(elements.len()).ok()?.to_be_bytes());
        for element in elements {
            list.extend_from_slice(&element.id.to_be_bytes());
            list.push(element.criticality << 6);
            append(&mut list, &element.value)?;
        }
        let mut out = vec![kind, code, criticality];
        append(&mut out, &list)?;
        Some(out)
    }

    /// Returns true if the PDU is an INITIAL UE MESSAGE.
    pub(crate) fn starts_connection(&self, octets: &[u8]) -> bool {
        octets.starts_with(&[0, self.initial])
    }

    /// Returns the value of the core's UE ID.
    pub(crate) fn core_value(&self, id: u64) -> Vec<u8> {
        integer(id, self.sizes.0)
    }

    /// Returns the value of the node's UE ID.
    pub(crate) fn ran_value(&self, id: u32) -> Vec<u8> {
        integer(id.into(), self.sizes.1)
    }

    /// Returns the value of a NAS-PDU.
    pub(crate) fn nas_value(&self, nas: &[u8]) -> Option<Vec<u8>> {
        let mut out = Vec::with_capacity(nas.len() + 2);
        append(&mut out, nas)?;
        Some(out)
    }

    /// Returns the NAS message of a PDU.
    pub(crate) fn nas_of(&self, octets: &[u8]) -> Option<Vec<u8>> {
        let element = self.elements(octets).into_iter().find(|element| element.id == self.nas)?;
        let (length, nas) = length(&element.value)?;
        nas.get(..length).map(<[u8]>::to_vec)
    }

    /// Returns true if the PDU has a UE ID.
    pub(crate) fn names_ue(&self, octets: &[u8]) -> bool {
        let names = |element: &Element| element.id == self.ran_id || self.core_ids.contains(&element.id);
        self.elements(octets).iter().any(names)
    }

    /// Returns the PDU with its UE IDs replaced, where it has any.
    pub(crate) fn retarget(&self, octets: &[u8], core: Option<u64>, ran: Option<u32>) -> Option<Vec<u8>> {
        let mut elements = split(octets)?;
        for element in &mut elements {
            match (core, ran) {
                (Some(core), _) if self.core_ids.contains(&element.id) => element.value = self.core_value(core),
                (_, Some(ran)) if element.id == self.ran_id => element.value = self.ran_value(ran),
                _ => {}
            }
        }
        self.with_elements(octets, &elements)
    }

    /// Returns the PDU without the elements of this identifier.
    pub(crate) fn without(&self, octets: &[u8], id: u16) -> Vec<u8> {
        let mut elements = self.elements(octets);
        elements.retain(|element| element.id != id);
        self.with_elements(octets, &elements).unwrap_or_default()
    }
}

fn split(octets: &[u8]) -> Option<Vec<Element>> {
    let (whole, content) = length(octets.get(3..)?)?;
    let content = content.get(..whole)?;
    let [0, high, low, ref rest @ ..] = *content else { return None };
    let (mut rest, mut elements) = (rest, Vec::new());
    for _ in 0..u16::from_be_bytes([high, low]) {
        let [first, second, criticality, ref value @ ..] = *rest else { return None };
        let (length, value) = length(value)?;
        let (value, next) = value.split_at_checked(length)?;
        let id = u16::from_be_bytes([first, second]);
        elements.push(Element { id, criticality: criticality >> 6, value: value.to_vec() });
        rest = next;
    }
    Some(elements)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn integers_have_octets_of_codec() {
        for id in [0, 1, 0xff, 0x100, 0xff_ffff, 0x100_0000, u64::from(u32::MAX), (1 << 40) - 1] {
            let codec = ngap::encode_open_type(&ngap::AMFUENGAPID(id)).expect("40 bits");
            assert_eq!(NGAP.core_value(id), codec.as_ref(), "{id:#x}");
            let Ok(id) = u32::try_from(id) else { continue };
            let codec = ngap::encode_open_type(&ngap::RANUENGAPID(id)).expect("32 bits");
            assert_eq!(NGAP.ran_value(id), codec.as_ref(), "{id:#x}");
            let codec = s1ap::encode_open_type(&s1ap::MMEUES1APID(id)).expect("32 bits");
            assert_eq!(S1AP.core_value(id.into()), codec.as_ref(), "{id:#x}");
            if id < 1 << 24 {
                let codec = s1ap::encode_open_type(&s1ap::ENBUES1APID(id)).expect("24 bits");
                assert_eq!(S1AP.ran_value(id), codec.as_ref(), "{id:#x}");
            }
        }
    }

    #[test]
    fn elements_join_to_same_pdu() {
        for nas in [vec![1; 3], vec![2; 200], vec![3; 9000]] {
            let pdu = s1ap::build_s1ap!(
                InitiatingMessage,
                downlinkNASTransport,
                DownlinkNASTransport,
                MME_UE_S1AP_ID(70_000u32),
                eNB_UE_S1AP_ID(9u32),
                NAS_PDU(nas.clone()),
            );
            let pdu = pdu.and_then(|pdu| pdu.encode()).expect("it encodes");
            let elements = S1AP.elements(&pdu);
            assert_eq!(elements.len(), 3);
            assert_eq!(S1AP.with_elements(&pdu, &elements).as_deref(), Some(&pdu[..]));
            assert_eq!(S1AP.nas_of(&pdu), Some(nas));
            let other = S1AP.retarget(&pdu, Some(5), Some(6)).expect("it has both IDs");
            assert!(S1AP.decodes(&other) && S1AP.retarget(&other, Some(70_000), Some(9)) == Some(pdu));
        }
    }
}
