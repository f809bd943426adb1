//! Identities of RAN nodes.

use crate::Plmn;
use serde::{Deserialize, Serialize};
use std::fmt;

/// Global gNB ID (TS 38.413 9.3.1.6).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct GnbId {
    pub plmn: Plmn,
    /// gNB ID within the PLMN.
    pub id: u32,
    /// Number of bits of `id`, 22 to 32.
    pub bits: u8,
}

/// Global eNB ID (TS 36.413 9.2.1.37).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct EnbId {
    pub plmn: Plmn,
    pub kind: EnbKind,
    /// eNB ID within the PLMN.
    pub id: u32,
}

/// Kind of an eNB ID, which determines its length.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum EnbKind {
    Macro,
    Home,
    ShortMacro,
    LongMacro,
}

impl EnbKind {
    /// Returns the number of bits of an eNB ID of this kind.
    pub const fn bits(self) -> u8 {
        match self {
            EnbKind::Macro => 20,
            EnbKind::Home => 28,
            EnbKind::ShortMacro => 18,
            EnbKind::LongMacro => 21,
        }
    }

    const fn from_bits(bits: u8) -> Option<Self> {
        match bits {
            20 => Some(EnbKind::Macro),
            28 => Some(EnbKind::Home),
            18 => Some(EnbKind::ShortMacro),
            21 => Some(EnbKind::LongMacro),
            _ => None,
        }
    }
}

/// Global identity of a RAN node. An eNB, an ng-eNB and a gNB are different nodes, even if their
/// IDs have the same value and length.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(into = "EncodedRanNodeId", try_from = "EncodedRanNodeId")]
pub enum RanNodeId {
    Gnb(GnbId),
    Enb(EnbId),
    /// Global ng-eNB ID (TS 38.413 9.3.1.8): macro, short macro or long macro.
    NgEnb(EnbId),
}

impl RanNodeId {
    /// Returns the PLMN of the identity.
    pub const fn plmn(self) -> Plmn {
        match self {
            RanNodeId::Gnb(gnb) => gnb.plmn,
            RanNodeId::Enb(enb) | RanNodeId::NgEnb(enb) => enb.plmn,
        }
    }

    /// Returns the gNB ID or eNB ID within the PLMN.
    pub const fn value(self) -> u32 {
        match self {
            RanNodeId::Gnb(gnb) => gnb.id,
            RanNodeId::Enb(enb) | RanNodeId::NgEnb(enb) => enb.id,
        }
    }
}

/// As the identity that it is.
impl fmt::Debug for RanNodeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RanNodeId::Gnb(gnb) => gnb.fmt(f),
            RanNodeId::Enb(enb) => enb.fmt(f),
            RanNodeId::NgEnb(enb) => f.debug_tuple("NgEnb").field(enb).finish(),
        }
    }
}

impl From<GnbId> for RanNodeId {
    fn from(gnb: GnbId) -> Self {
        RanNodeId::Gnb(gnb)
    }
}

impl From<EnbId> for RanNodeId {
    fn from(enb: EnbId) -> Self {
        RanNodeId::Enb(enb)
    }
}

/// Encoded form of a [`RanNodeId`]. For a gNB it is that of [`GnbId`], which release 0.2.0 wrote.
#[derive(Clone, Copy, Serialize, Deserialize)]
struct EncodedRanNodeId {
    plmn: Plmn,
    id: u32,
    /// Number of bits of `id`, with [`EncodedRanNodeId::ENB`] for an eNB ID and
    /// [`EncodedRanNodeId::NG_ENB`] for an ng-eNB ID.
    bits: u8,
}

impl EncodedRanNodeId {
    const ENB: u8 = 0x40;
    const NG_ENB: u8 = 0x80;
}

impl From<RanNodeId> for EncodedRanNodeId {
    fn from(node: RanNodeId) -> Self {
        match node {
            RanNodeId::Gnb(GnbId { plmn, id, bits }) => EncodedRanNodeId { plmn, id, bits },
            RanNodeId::Enb(EnbId { plmn, kind, id }) => EncodedRanNodeId { plmn, id, bits: kind.bits() | Self::ENB },
            RanNodeId::NgEnb(EnbId { plmn, kind, id }) => {
                EncodedRanNodeId { plmn, id, bits: kind.bits() | Self::NG_ENB }
            }
        }
    }
}

/// The number of bits is none of an eNB ID.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("eNB ID: no kind has {0} bits")]
struct EnbBitsError(u8);

impl TryFrom<EncodedRanNodeId> for RanNodeId {
    type Error = EnbBitsError;

    fn try_from(EncodedRanNodeId { plmn, id, bits }: EncodedRanNodeId) -> Result<Self, EnbBitsError> {
        let node = match bits & (EncodedRanNodeId::ENB | EncodedRanNodeId::NG_ENB) {
            0 => return Ok(RanNodeId::Gnb(GnbId { plmn, id, bits })),
            EncodedRanNodeId::ENB => RanNodeId::Enb,
            _ => RanNodeId::NgEnb,
        };
        let bits = bits & !(EncodedRanNodeId::ENB | EncodedRanNodeId::NG_ENB);
        let kind = EnbKind::from_bits(bits).ok_or(EnbBitsError(bits))?;
        Ok(node(EnbId { plmn, kind, id }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn enb_and_gnb_of_equal_value_differ() {
        let plmn = "99970".parse().expect("a PLMN");
        let gnb = RanNodeId::Gnb(GnbId { plmn, id: 7, bits: 28 });
        let enb = RanNodeId::Enb(EnbId { plmn, kind: EnbKind::Home, id: 7 });
        let ng_enb = RanNodeId::NgEnb(EnbId { plmn, kind: EnbKind::Home, id: 7 });
        assert!(gnb != enb && enb != ng_enb && ng_enb != gnb);
        assert_eq!((gnb.value(), gnb.plmn()), (enb.value(), enb.plmn()));
    }

    #[test]
    fn encoded_form_roundtrip_is_exact() {
        let plmn = "99970".parse().expect("a PLMN");
        let enb = |kind| RanNodeId::Enb(EnbId { plmn, kind, id: 7 });
        let kinds = [EnbKind::Macro, EnbKind::Home, EnbKind::ShortMacro, EnbKind::LongMacro];
        let ng_enb = |kind| RanNodeId::NgEnb(EnbId { plmn, kind, id: 7 });
        let gnb = RanNodeId::Gnb(GnbId { plmn, id: 7, bits: 22 });
        for node in kinds.map(enb).into_iter().chain(kinds.map(ng_enb)).chain([gnb]) {
            assert_eq!(EncodedRanNodeId::from(node).try_into(), Ok(node));
        }
        let unknown = EncodedRanNodeId { plmn, id: 7, bits: 19 | EncodedRanNodeId::ENB };
        assert_eq!(RanNodeId::try_from(unknown), Err(EnbBitsError(19)));
    }
}
