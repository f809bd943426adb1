//! Text of what a RAN node offers in its set-up, for the log of a refusal.

use super::{SupportedArea, areas, s1};
use crate::amf::n2;
use vireo_types::{AssocId, Dialect};
use vireo_wire::ngap::{NGAP_PDU, ie};
use vireo_wire::s1ap::{S1AP_PDU, ie as s1_ie};

/// Upper bound of tracking areas in the text.
const AREAS: usize = 4;

/// Returns identity, tracking areas and slices in NG SETUP REQUEST or S1 SETUP REQUEST; `None` for
/// another message.
pub fn offered(assoc: AssocId, octets: &[u8]) -> Option<String> {
    let (id, areas) = match assoc.dialect() {
        Dialect::Nr => {
            let pdu = NGAP_PDU::decode_borrowed(octets).ok()?;
            let id = pdu.ie::<ie::GlobalRANNodeID>().and_then(Result::ok).as_ref().and_then(n2::gnb_of);
            let list = pdu.ie::<ie::SupportedTAList>().and_then(Result::ok)?;
            (id.map(|id| format!("gNB {}-{}", id.plmn, id.id)), areas(&list))
        }
        Dialect::Eps => {
            let pdu = S1AP_PDU::decode_borrowed(octets).ok()?;
            let list = pdu.ie::<s1_ie::SupportedTAs>().and_then(Result::ok)?;
            (None, s1::areas(&list))
        }
    };
    let further = areas.len().saturating_sub(AREAS);
    let mut texts: Vec<String> = id.into_iter().chain(areas.iter().take(AREAS).map(area)).collect();
    if further > 0 {
        texts.push(format!("{further} more"));
    }
    Some(texts.join(", "))
}

fn area(area: &SupportedArea) -> String {
    let slices: Vec<String> = area.slices.iter().map(ToString::to_string).collect();
    let slices = if slices.is_empty() { String::new() } else { format!(" slices {}", slices.join(" ")) };
    format!("PLMN {} TAC {}{slices}", area.tai.plmn, area.tai.tac.0)
}
