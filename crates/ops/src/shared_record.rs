//! Record of a UE that network functions share (`state.scope`).
//!
//! It has one part of the AMF and one for each SM context. A commit changes its own part and keeps
//! the others, by a compare-and-swap of the whole record.
//!
//! A step of the AMF whose only effect is a request to the SMF commits nothing. The request
//! delegates its part, and the SMF commits it with its own part in one write, before any effect of
//! either is sent. Parts of the AMF are complete and numbered, so a later one replaces all earlier
//! ones. The SMF stores a part only over an earlier one of the same owner. An AMF whose UE was
//! taken over is not the owner: its request is refused, and nothing is done.
//!
//! The UPF may also have a part for each session. A change by a PFCP request returns with the
//! response, and the SMF commits it with the changes of the SM context. The UPF itself commits
//! changes by packets and time. Both use vendor-specific PFCP elements. A peer that ignores them
//! shares nothing.

use crate::state::RecordsConfig;
use serde::{Deserialize, Serialize};
use vireo_store::records::{Format, Name, StoredRecord};
use vireo_wire::pfcp::Message;

/// Collection of the shared records.
pub const COLLECTION: &str = "ue";
/// Name of the AMF's part.
pub const AMF: &str = "amf";
/// Prefix of the names of SM contexts.
const SM: &str = "sm-";
/// Prefix of the names of the UPF's sessions. The rest is that of their SM contexts.
const UP: &str = "up-";
/// Enterprise ID of our PFCP elements: the one for examples (RFC 5612), as we have none of our own.
const ENTERPRISE: u16 = 32473;
/// Element of a request that names the UPF's part.
const PART_NAME: u16 = 0x8001;
/// Element of a response with the content of the UPF's part; empty: the part is removed.
const PART: u16 = 0x8002;
/// Maximum size of a delegated part in octets. The AMF commits a longer one itself.
pub const PART_OCTETS: usize = 32 * 1024;

/// Returns the name of a record.
pub fn name(id: u64) -> Name {
    Name { collection: COLLECTION, id }
}

/// Returns the name of an SM context's part.
pub fn sm_context_part_name(number: u32) -> String {
    format!("{SM}{number:07x}")
}

/// Returns the SM context of a part; `None` for other parts.
pub fn sm_of(part: &str) -> Option<u32> {
    u32::from_str_radix(part.strip_prefix(SM)?, 16).ok()
}

/// Returns the name of the UPF's part for an SM context.
pub fn upf_part_name(number: u32) -> String {
    format!("{UP}{number:07x}")
}

/// Returns the SM context of a part of the UPF; `None` for other parts.
pub fn up_of(part: &str) -> Option<u32> {
    u32::from_str_radix(part.strip_prefix(UP)?, 16).ok()
}

/// Header of a part of the UPF.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct UpfPartHeader {
    /// SEID of the session at the UPF.
    pub seid: u64,
    /// Grows with every change of the session; the highest is valid.
    pub step: u64,
}

impl UpfPartHeader {
    /// Decodes the header of a part.
    pub fn decode(part: &[u8]) -> Option<Self> {
        postcard::take_from_bytes(part).ok().map(|(head, _)| head)
    }

    /// Returns true if this part replaces another. A session that was set up again has another
    /// SEID.
    pub fn follows(self, there: Option<UpfPartHeader>) -> bool {
        there.is_none_or(|there| self.seid != there.seid || self.step > there.step)
    }
}

/// Adds the name of the UPF's part to a PFCP request.
pub fn with_part_name(message: &mut Vec<u8>, (record, number): (u64, u32)) {
    append(message, PART_NAME, &[&record.to_be_bytes()[..], &number.to_be_bytes()].concat());
}

/// Returns the name of the UPF's part in a request, if it has one.
pub fn part_name(message: &[u8]) -> Option<(u64, u32)> {
    let (record, number) = element(message, PART_NAME)?.split_first_chunk()?;
    Some((u64::from_be_bytes(*record), u32::from_be_bytes(number.try_into().ok()?)))
}

/// Adds the content of the UPF's part to a response. Returns true if there is room.
pub fn with_part(message: &mut Vec<u8>, part: &[u8]) -> bool {
    append(message, PART, part)
}

/// Returns the content of the UPF's part in a response: empty, if the session is removed.
pub fn part(message: &[u8]) -> Option<&[u8]> {
    element(message, PART)
        .filter(|part| part.len() <= PART_OCTETS && (part.is_empty() || UpfPartHeader::decode(part).is_some()))
}

fn element(message: &[u8], id: u16) -> Option<&[u8]> {
    let mut elements = Message::new(message).ok()?.ies().filter_map(Result::ok);
    elements.find(|element| element.id == id && element.enterprise == Some(ENTERPRISE)).map(|element| element.value)
}

/// Appends a vendor-specific element to a message. Returns true if there is room.
fn append(message: &mut Vec<u8>, id: u16, content: &[u8]) -> bool {
    let element = u16::try_from(content.len() + 2).ok();
    let length = u16::try_from(message.len().saturating_sub(4) + content.len() + 6).ok();
    let (Some(element), Some(length), true) = (element, length, message.len() >= 4) else { return false };
    message.extend([id, element, ENTERPRISE].into_iter().flat_map(u16::to_be_bytes));
    message.extend_from_slice(content);
    message[2..4].copy_from_slice(&length.to_be_bytes());
    true
}

/// Header of the AMF's part.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AmfPartHeader {
    /// Owner number of the AMF.
    pub owner: u64,
    /// Grows with every change of the UE; the highest is valid.
    pub step: u64,
    /// True if the UE is removed.
    pub removed: bool,
}

impl AmfPartHeader {
    /// Decodes the header of a part in its transfer form.
    pub fn decode(part: &[u8]) -> Option<Self> {
        postcard::take_from_bytes(part).ok().map(|(head, _)| head)
    }

    /// Returns the header of the part in a record. Returns `None` without such a part, or for
    /// another format or release.
    pub fn from_record(format: Format, found: &StoredRecord) -> Option<Self> {
        format.decode(found.part(AMF)?).ok()
    }

    /// Returns true if this part replaces another.
    pub fn follows(self, there: AmfPartHeader) -> bool {
        self.owner == there.owner && self.step > there.step
    }
}

/// Encodes an octet string (the UPF's part) for a record of this format: JSON has no octet strings.
pub fn encode_octets(format: Format, part: Vec<u8>) -> Vec<u8> {
    match format {
        Format::Binary | Format::Protobuf => part,
        Format::Json => format!("\"{}\"", hex::encode(part)).into_bytes(),
    }
}

/// Decodes an octet string from a record of this format.
pub fn decode_octets(format: Format, octets: &[u8]) -> Option<Vec<u8>> {
    match format {
        Format::Binary | Format::Protobuf => Some(octets.to_vec()),
        Format::Json => hex::decode(octets.strip_prefix(b"\"")?.strip_suffix(b"\"")?).ok(),
    }
}

/// Commit that a request to the SMF delegates.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DelegatedCommit {
    /// Number of the UE's record.
    pub record: u64,
    /// Part of the AMF to commit, if any.
    pub part: Option<Vec<u8>>,
}

impl DelegatedCommit {
    /// Returns the transfer form.
    pub fn encode(&self) -> Vec<u8> {
        [&self.record.to_be_bytes()[..], self.part.as_deref().unwrap_or_default()].concat()
    }

    /// Decodes the transfer form; `None` if it is too short, too long or of another release.
    pub fn decode(octets: &[u8]) -> Option<Self> {
        let (record, part) = octets.split_first_chunk()?;
        let good = part.is_empty() || part.len() <= PART_OCTETS && AmfPartHeader::decode(part).is_some();
        let part = (!part.is_empty()).then(|| part.to_vec());
        good.then_some(DelegatedCommit { record: u64::from_be_bytes(*record), part })
    }
}

impl RecordsConfig {
    /// Returns true if AMF and SMF share one record of a UE.
    pub fn is_shared(&self) -> bool {
        self.scope.is_shared()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn part_is_decoded_in_every_format() {
        let part = postcard::to_stdvec(&(AmfPartHeader { owner: u64::MAX, step: 7, removed: true }, "rest")).unwrap();
        for format in [Format::Binary, Format::Json, Format::Protobuf] {
            assert_eq!(decode_octets(format, &encode_octets(format, part.clone())), Some(part.clone()), "{format:?}");
        }
        for wrong in ["", "\"", "\"0\"", "\"0g\"", "00"] {
            assert_eq!(decode_octets(Format::Json, wrong.as_bytes()), None, "{wrong}");
        }
        assert_eq!(
            (sm_of(&sm_context_part_name(0x0fff_ffff)), sm_of(AMF), sm_of("sm-x")),
            (Some(0x0fff_ffff), None, None)
        );
        for part in [None, Some(part)] {
            let travels = DelegatedCommit { record: 9, part };
            assert_eq!(DelegatedCommit::decode(&travels.encode()), Some(travels));
        }
        let long = [&[0; 8][..], &[1; PART_OCTETS + 1]].concat();
        for wrong in [&[0; 7][..], &[0, 0, 0, 0, 0, 0, 0, 0, 0xff], &long] {
            assert_eq!(DelegatedCommit::decode(wrong), None);
        }
    }

    #[test]
    fn pfcp_message_names_and_contains_part() {
        let mut message = Vec::new();
        let kind = vireo_wire::pfcp::MessageType::SESSION_MODIFICATION_REQUEST;
        vireo_wire::pfcp::Builder::new(&mut message, kind, Some(7), 1).finish().unwrap();
        assert_eq!((part_name(&message), part(&message)), (None, None));
        with_part_name(&mut message, (u64::MAX, 5));
        let octets = postcard::to_stdvec(&(UpfPartHeader { seid: 9, step: 2 }, "rest")).unwrap();
        assert!(with_part(&mut message, &octets));
        assert_eq!((part_name(&message), part(&message)), (Some((u64::MAX, 5)), Some(&octets[..])));
        assert!(!with_part(&mut message, &[0; 65_536]));
        assert_eq!((up_of(&upf_part_name(5)), up_of(AMF), sm_of(&upf_part_name(5))), (Some(5), None, None));
        let of = |seid, step| UpfPartHeader { seid, step };
        assert!(of(9, 2).follows(None) && of(9, 2).follows(Some(of(9, 1))) && of(8, 1).follows(Some(of(9, 1))));
        assert!(!of(9, 2).follows(Some(of(9, 2))));
    }

    #[test]
    fn later_part_of_same_owner_follows() {
        let of = |owner, step| AmfPartHeader { owner, step, removed: false };
        assert!(of(1, 5).follows(of(1, 3)));
        assert!(!of(1, 5).follows(of(1, 5)) && !of(1, 5).follows(of(2, 3)));
    }
}
