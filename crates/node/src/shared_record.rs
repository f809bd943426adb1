//! The record of a UE that functions share (`state.scope`): a part of the AMF, and one for each SM context. Whoever commits changes
//! its own part and leaves the others as they are, by a compare-and-swap of the whole.
//!
//! Where a step of the AMF asks the SMF and wants nothing else done, it commits nothing: its part goes with the question, and the
//! SMF commits it with its own in one write, before anything of either leaves. Parts of the AMF are whole and numbered, so a later
//! one is in the place of all that were before: the SMF puts one only where an earlier one of the same owner is. An AMF that was
//! taken over from is no owner any more: what it asks is refused, and nothing is done.
//!
//! The UPF may have a part for each session, too. What a PFCP request changes there comes with the answer, and the SMF commits it
//! with what the answer changes of the SM context; what packets and time change, the UPF commits itself. Both go by an element of
//! our own in the messages, which peers that do not know it pass over: nothing is shared with these.

use crate::state::RecordsConfig;
use serde::{Deserialize, Serialize};
use vireo_store::records::{Format, Name, StoredRecord};
use vireo_wire::pfcp::Message;

/// Whose records these are.
pub(crate) const COLLECTION: &str = "ue";
/// The AMF's part.
pub(crate) const AMF: &str = "amf";
/// What the names of SM contexts begin with.
const SM: &str = "sm-";
/// What the names of the UPF's sessions begin with, which end as those of their SM contexts.
const UP: &str = "up-";
/// The Enterprise ID of our elements of PFCP: the one for examples (RFC 5612), as we have none of our own.
const ENTERPRISE: u16 = 32473;
/// The element of a request that says which part the UPF has.
const PLACE: u16 = 0x8001;
/// The element of an answer that is the UPF's part; empty: it has none any more.
const PART: u16 = 0x8002;
/// Octets of a part that travels at the most. The AMF commits a longer one itself.
pub(crate) const PART_OCTETS: usize = 32 * 1024;

/// The record of that number.
pub(crate) fn name(id: u64) -> Name {
    Name { collection: COLLECTION, id }
}

/// The part of an SM context.
pub(crate) fn sm_context_part_name(number: u32) -> String {
    format!("{SM}{number:07x}")
}

/// Whose part that is, if it is of an SM context.
pub(crate) fn sm_of(part: &str) -> Option<u32> {
    u32::from_str_radix(part.strip_prefix(SM)?, 16).ok()
}

/// The part of the UPF that goes with an SM context.
pub(crate) fn upf_part_name(number: u32) -> String {
    format!("{UP}{number:07x}")
}

/// Whose part that is, if it is the UPF's of an SM context.
pub(crate) fn up_of(part: &str) -> Option<u32> {
    u32::from_str_radix(part.strip_prefix(UP)?, 16).ok()
}

/// What a part of a UPF begins with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct UpfPartHeader {
    /// The session, as the UPF has it.
    pub(crate) seid: u64,
    /// Which it is of those that the session has had: a later one is greater.
    pub(crate) step: u64,
}

impl UpfPartHeader {
    /// Of a part.
    pub(crate) fn of(part: &[u8]) -> Option<Self> {
        postcard::take_from_bytes(part).ok().map(|(head, _)| head)
    }

    /// Whether this part is put in the place of that one. A session that was set up anew has another SEID.
    pub(crate) fn follows(self, there: Option<UpfPartHeader>) -> bool {
        there.is_none_or(|there| self.seid != there.seid || self.step > there.step)
    }
}

/// Adds to a PFCP request which part the UPF has.
pub(crate) fn with_place(message: &mut Vec<u8>, (record, number): (u64, u32)) {
    append(message, PLACE, &[&record.to_be_bytes()[..], &number.to_be_bytes()].concat());
}

/// Which part the UPF has, if a request says so.
pub(crate) fn place(message: &[u8]) -> Option<(u64, u32)> {
    let (record, number) = element(message, PLACE)?.split_first_chunk()?;
    Some((u64::from_be_bytes(*record), u32::from_be_bytes(number.try_into().ok()?)))
}

/// Adds to an answer what the UPF has then. Whether there is room.
pub(crate) fn with_part(message: &mut Vec<u8>, part: &[u8]) -> bool {
    append(message, PART, part)
}

/// What a UPF has to be committed, of its answer: empty, if the session is gone.
pub(crate) fn part(message: &[u8]) -> Option<&[u8]> {
    element(message, PART)
        .filter(|part| part.len() <= PART_OCTETS && (part.is_empty() || UpfPartHeader::of(part).is_some()))
}

fn element(message: &[u8], id: u16) -> Option<&[u8]> {
    let mut elements = Message::new(message).ok()?.ies().filter_map(Result::ok);
    elements.find(|element| element.id == id && element.enterprise == Some(ENTERPRISE)).map(|element| element.value)
}

/// Appends an element of our own to a message, if there is room.
fn append(message: &mut Vec<u8>, id: u16, content: &[u8]) -> bool {
    let element = u16::try_from(content.len() + 2).ok();
    let length = u16::try_from(message.len().saturating_sub(4) + content.len() + 6).ok();
    let (Some(element), Some(length), true) = (element, length, message.len() >= 4) else { return false };
    message.extend([id, element, ENTERPRISE].into_iter().flat_map(u16::to_be_bytes));
    message.extend_from_slice(content);
    message[2..4].copy_from_slice(&length.to_be_bytes());
    true
}

/// What the AMF's part begins with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct AmfPartHeader {
    /// Whose it is.
    pub(crate) owner: u64,
    /// Which it is of those that the UE has had: a later one is greater.
    pub(crate) step: u64,
    /// The UE is gone.
    pub(crate) gone: bool,
}

impl AmfPartHeader {
    /// Of a part, as it travels.
    pub(crate) fn of(part: &[u8]) -> Option<Self> {
        postcard::take_from_bytes(part).ok().map(|(head, _)| head)
    }

    /// Of the part of a record, as that has it; `None`: it is of another format or release, or there is none.
    pub(crate) fn kept(format: Format, found: &StoredRecord) -> Option<Self> {
        format.decode(found.part(AMF)?).ok()
    }

    /// Whether this part is put in the place of that one.
    pub(crate) fn follows(self, there: AmfPartHeader) -> bool {
        self.owner == there.owner && self.step > there.step
    }
}

/// A part of octets (the UPF's) as a record of that format has it: JSON has none.
pub(crate) fn kept(format: Format, part: Vec<u8>) -> Vec<u8> {
    match format {
        Format::Binary | Format::Protobuf => part,
        Format::Json => format!("\"{}\"", hex::encode(part)).into_bytes(),
    }
}

/// A part of octets, of what a record of that format has.
pub(crate) fn opened(format: Format, kept: &[u8]) -> Option<Vec<u8>> {
    match format {
        Format::Binary | Format::Protobuf => Some(kept.to_vec()),
        Format::Json => hex::decode(kept.strip_prefix(b"\"")?.strip_suffix(b"\"")?).ok(),
    }
}

/// What goes with a question to the SMF.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct DelegatedCommit {
    /// The UE's record.
    pub(crate) record: u64,
    /// The AMF's part, if the SMF is to commit that.
    pub(crate) part: Option<Vec<u8>>,
}

impl DelegatedCommit {
    /// As it travels.
    pub(crate) fn encode(&self) -> Vec<u8> {
        [&self.record.to_be_bytes()[..], self.part.as_deref().unwrap_or_default()].concat()
    }

    /// Of what has travelled; `None` if it is too short or too long, or no part of this release.
    pub(crate) fn decode(octets: &[u8]) -> Option<Self> {
        let (record, part) = octets.split_first_chunk()?;
        let good = part.is_empty() || part.len() <= PART_OCTETS && AmfPartHeader::of(part).is_some();
        let part = (!part.is_empty()).then(|| part.to_vec());
        good.then_some(DelegatedCommit { record: u64::from_be_bytes(*record), part })
    }
}

impl RecordsConfig {
    /// Whether AMF and SMF have one record of a UE.
    pub(crate) fn is_shared(&self) -> bool {
        self.scope.is_shared()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_comes_back_in_every_format_and_what_is_none_is_refused() {
        let part = postcard::to_stdvec(&(AmfPartHeader { owner: u64::MAX, step: 7, gone: true }, "rest")).unwrap();
        for format in [Format::Binary, Format::Json, Format::Protobuf] {
            assert_eq!(opened(format, &kept(format, part.clone())), Some(part.clone()), "{format:?}");
        }
        for wrong in ["", "\"", "\"0\"", "\"0g\"", "00"] {
            assert_eq!(opened(Format::Json, wrong.as_bytes()), None, "{wrong}");
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
    fn a_pfcp_message_says_which_part_there_is_and_what_it_has() {
        let mut message = Vec::new();
        let kind = vireo_wire::pfcp::MessageType::SESSION_MODIFICATION_REQUEST;
        vireo_wire::pfcp::Builder::new(&mut message, kind, Some(7), 1).finish().unwrap();
        assert_eq!((place(&message), part(&message)), (None, None));
        with_place(&mut message, (u64::MAX, 5));
        let octets = postcard::to_stdvec(&(UpfPartHeader { seid: 9, step: 2 }, "rest")).unwrap();
        assert!(with_part(&mut message, &octets));
        assert_eq!((place(&message), part(&message)), (Some((u64::MAX, 5)), Some(&octets[..])));
        assert!(!with_part(&mut message, &[0; 65_536]));
        assert_eq!((up_of(&upf_part_name(5)), up_of(AMF), sm_of(&upf_part_name(5))), (Some(5), None, None));
        let of = |seid, step| UpfPartHeader { seid, step };
        assert!(of(9, 2).follows(None) && of(9, 2).follows(Some(of(9, 1))) && of(8, 1).follows(Some(of(9, 1))));
        assert!(!of(9, 2).follows(Some(of(9, 2))));
    }

    #[test]
    fn only_a_later_part_of_the_same_owner_follows() {
        let of = |owner, step| AmfPartHeader { owner, step, gone: false };
        assert!(of(1, 5).follows(of(1, 3)));
        assert!(!of(1, 5).follows(of(1, 5)) && !of(1, 5).follows(of(2, 3)));
    }
}
