//! UE security capability (TS 24.501 9.11.3.54; EPS: TS 24.301 9.9.3.36).

use serde::{Deserialize, Serialize};

/// UE security capability: the octets of the IE's contents (2 to 8). A UE of EPS has no 5G
/// algorithms: two octets of zero precede the contents of its IE.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct UeSecurityCapability {
    octets: [u8; 8],
    length: u8,
}

impl UeSecurityCapability {
    /// Returns the capability of an IE's contents. Octets after the 8 that TS 24.501 defines are
    /// ignored.
    pub fn new(ie: &[u8]) -> Self {
        let length = ie.len().min(8);
        let mut octets = [0; 8];
        octets[..length].copy_from_slice(&ie[..length]);
        UeSecurityCapability { octets, length: length as u8 }
    }

    /// Returns the capability of the contents of an EPS IE (2 to 5 octets).
    pub fn from_eps(ie: &[u8]) -> Self {
        UeSecurityCapability::new(&[&[0, 0], ie].concat())
    }

    /// Returns the capability with the 5G algorithms of `other`, if it has none itself: a UE of EPS
    /// does not name them.
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
