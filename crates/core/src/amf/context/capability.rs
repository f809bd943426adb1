//! UE security capability (TS 24.501 9.11.3.54; EPS: TS 24.301 9.9.3.36, 9.9.3.53).

use serde::de::{Deserialize, Deserializer, Error, SeqAccess, Visitor};
use serde::ser::{Serialize, Serializer};
use smallvec::SmallVec;
use std::fmt;

/// UE security capability: the octets of the IE's contents (2 to 8). Two octets of 5G algorithms
/// precede the contents of the IE of EPS. They are zero without UE additional security capability.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct UeSecurityCapability {
    octets: [u8; 8],
    length: u8,
    /// Octets 5G-EA8 to 15 and 5G-IA8 to 15 of the UE additional security capability; `None` if the
    /// UE has not sent it.
    additional: Option<[u8; 2]>,
    /// True if the UE supports dual connectivity with NR (TS 24.301 9.9.3.34).
    dcnr: bool,
}

/// Marks beside the length, in binary forms.
const DCNR: u8 = 0x80;
const ADDITIONAL: u8 = 0x40;

impl UeSecurityCapability {
    /// Returns the capability of an IE's contents. Octets after the 8 that TS 24.501 defines are
    /// ignored.
    pub fn new(ie: &[u8]) -> Self {
        let length = ie.len().min(8);
        let mut octets = [0; 8];
        octets[..length].copy_from_slice(&ie[..length]);
        UeSecurityCapability { octets, length: length as u8, ..UeSecurityCapability::default() }
    }

    /// Returns the capability of the contents of an EPS IE (2 to 5 octets).
    pub fn from_eps(ie: &[u8]) -> Self {
        UeSecurityCapability::new(&[&[0, 0], ie].concat())
    }

    /// Returns the capability of a UE of EPS with its UE additional security capability, and with
    /// its support of dual connectivity with NR.
    pub fn with_en_dc(mut self, additional: Option<[u8; 4]>, dcnr: bool) -> Self {
        if let Some([ea, more_ea, ia, more_ia]) = additional {
            self.octets[..2].copy_from_slice(&[ea, ia]);
            self.additional = Some([more_ea, more_ia]);
        }
        UeSecurityCapability { dcnr, ..self }
    }

    /// Returns the UE additional security capability, which EPS repeats to the UE.
    pub fn additional(&self) -> Option<[u8; 4]> {
        self.additional.map(|[more_ea, more_ia]| [self.octets[0], more_ea, self.octets[1], more_ia])
    }

    /// Returns true if the UE supports dual connectivity with NR.
    pub fn supports_dcnr(&self) -> bool {
        self.dcnr
    }

    /// Returns the bits of 5G-EA1 to 16 and 5G-IA1 to 16, the first one in the most significant
    /// bit; `None` if no 5G algorithm is known.
    pub fn nr_algorithms(&self) -> Option<(u16, u16)> {
        let [more_ea, more_ia] = self.additional.unwrap_or_default();
        let bits = |first, second| u16::from_be_bytes([first, second]) << 1;
        (self.octets[..2] != [0, 0]).then(|| (bits(self.octets[0], more_ea), bits(self.octets[1], more_ia)))
    }

    /// Returns the capability with the 5G algorithms of `other`, if it has none itself: a UE of EPS
    /// need not name them.
    pub fn or_5g_of(mut self, other: Self) -> Self {
        if self.octets[..2] == [0, 0] {
            self.octets[..2].copy_from_slice(&other.octets[..2]);
        }
        self
    }

    /// Returns the contents of the IE by which EPS repeats the capability to the UE.
    pub fn replayed_by_eps(&self) -> &[u8] {
        self.as_slice().get(2..).unwrap_or_default()
    }

    /// Returns the length with the marks of its binary forms.
    fn marked_length(&self) -> u8 {
        let mark = |is_set: bool, mark: u8| if is_set { mark } else { 0 };
        self.length | mark(self.dcnr, DCNR) | mark(self.additional.is_some(), ADDITIONAL)
    }

    /// Returns the octets of a stored form: those of the IE's contents, or all with their marks.
    pub(super) fn stored(&self) -> SmallVec<[u8; 8]> {
        if !self.dcnr && self.additional.is_none() {
            return SmallVec::from_slice(self.as_slice());
        }
        let additional = self.additional.iter().flatten();
        self.octets.iter().chain(&[self.marked_length()]).chain(additional).copied().collect()
    }

    /// Restores the capability of a stored form; `None` if it has no such octets.
    pub(super) fn from_stored(form: &[u8]) -> Option<Self> {
        if form.len() <= 8 {
            return Some(UeSecurityCapability::new(form));
        }
        let capability: Self = postcard::from_bytes(form).ok()?;
        (capability.stored()[..] == *form).then_some(capability)
    }

    /// Returns the octets of the IE's contents.
    pub fn as_slice(&self) -> &[u8] {
        &self.octets[..usize::from(self.length).min(8)]
    }

    /// Returns the 5G-EA bits; EA0 is the most significant.
    pub fn ea(&self) -> u8 {
        self.octets[0]
    }

    /// Returns the 5G-IA bits; IA0 is the most significant.
    pub fn ia(&self) -> u8 {
        self.octets[1]
    }

    /// Returns the EEA bits; zero if the UE has no EPS capability.
    pub fn eea(&self) -> u8 {
        self.octets[2]
    }

    /// Returns the EIA bits; zero if the UE has no EPS capability.
    pub fn eia(&self) -> u8 {
        self.octets[3]
    }
}

/// Form in records that an operator reads.
#[derive(serde::Serialize, serde::Deserialize)]
#[serde(rename = "UeSecurityCapability")]
struct ReadableCapability {
    octets: [u8; 8],
    length: u8,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    additional: Option<[u8; 2]>,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    dcnr: bool,
}

/// The binary form has the octets, the length with two marks, and the additional octets if there
/// are any. Without marks it is that of release 0.2.0.
impl Serialize for UeSecurityCapability {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        let UeSecurityCapability { octets, length, additional, dcnr } = *self;
        if s.is_human_readable() {
            return ReadableCapability { octets, length, additional, dcnr }.serialize(s);
        }
        match additional {
            None => (octets, self.marked_length()).serialize(s),
            Some(additional) => (octets, self.marked_length(), additional).serialize(s),
        }
    }
}

impl<'de> Deserialize<'de> for UeSecurityCapability {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        if d.is_human_readable() {
            let ReadableCapability { octets, length, additional, dcnr } = ReadableCapability::deserialize(d)?;
            return Ok(UeSecurityCapability { octets, length, additional, dcnr });
        }
        d.deserialize_tuple(3, CapabilityVisitor)
    }
}

struct CapabilityVisitor;

impl<'de> Visitor<'de> for CapabilityVisitor {
    type Value = UeSecurityCapability;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a UE security capability")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Self::Value, A::Error> {
        let missing = || A::Error::custom("a UE security capability ends early");
        let octets = seq.next_element()?.ok_or_else(missing)?;
        let marked: u8 = seq.next_element()?.ok_or_else(missing)?;
        let additional = if marked & ADDITIONAL == 0 { None } else { Some(seq.next_element()?.ok_or_else(missing)?) };
        let length = marked & !(DCNR | ADDITIONAL);
        Ok(UeSecurityCapability { octets, length, additional, dcnr: marked & DCNR != 0 })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// EEA0 to EEA2, EIA1 and EIA2, and 5G algorithms up to 5G-EA8 and 5G-IA15.
    fn dual() -> UeSecurityCapability {
        UeSecurityCapability::from_eps(&[0xe0, 0x60]).with_en_dc(Some([0xf0, 0x80, 0x70, 0x01]), true)
    }

    #[test]
    fn en_dc_capability_roundtrip_is_exact() {
        let plain = UeSecurityCapability::new(&[0xe0, 0x60, 0xe0, 0x60]);
        for capability in [plain, dual(), plain.with_en_dc(None, true), UeSecurityCapability::default()] {
            let octets = postcard::to_allocvec(&capability).expect("it encodes");
            assert_eq!(postcard::take_from_bytes(&octets), Ok((capability, &[][..])));
            assert_eq!(UeSecurityCapability::from_stored(&capability.stored()), Some(capability));
        }
        let earlier = postcard::to_allocvec(&([0xe0_u8, 0x60, 0xe0, 0x60, 0, 0, 0, 0], 4_u8)).expect("it encodes");
        assert_eq!(postcard::to_allocvec(&plain), Ok(earlier), "as release 0.2.0 writes it");
    }

    #[test]
    fn nr_algorithms_follow_additional_capability() {
        assert_eq!(dual().additional(), Some([0xf0, 0x80, 0x70, 0x01]));
        assert_eq!(dual().nr_algorithms(), Some((0xe100, 0xe002)));
        assert_eq!(dual().replayed_by_eps(), [0xe0, 0x60]);
        let without = UeSecurityCapability::from_eps(&[0xe0, 0x60]);
        assert_eq!((without.additional(), without.nr_algorithms()), (None, None));
        assert_eq!(without.or_5g_of(dual()).nr_algorithms(), Some((0xe000, 0xe000)), "known from 5G");
    }
}
