//! Temporary identity in the first NAS message of a connection.

use crate::config::CoreConfig;
use crate::schedule::kind::{self, DEREGISTRATION_REQUEST_BY_UE, REGISTRATION_REQUEST, SERVICE_REQUEST, emm};
use serde::{Deserialize, Serialize};
use vireo_types::Tmsi;

/// Type of identity (TS 24.301 9.9.3.12).
const EPS_GUTI: u8 = 6;
/// Types of identity (TS 24.501 9.11.3.4).
const GUTI: u8 = 2;
const S_TMSI: u8 = 4;

/// 5G-GUTI or 5G-S-TMSI in an initial NAS message. The message is not verified.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NasIdentity {
    /// PLMN and AMF Region ID of a 5G-GUTI, as encoded; `None` for a 5G-S-TMSI.
    region: Option<[u8; 4]>,
    /// AMF Set ID (10 bits) and AMF Pointer (6 bits), as encoded.
    amf: u16,
    tmsi: Tmsi,
}

impl NasIdentity {
    /// Reads the identity of a message without decoding the message; `None` if it has none. It
    /// serves RAN nodes that do not send the 5G-S-TMSI themselves (a UE that registers with its
    /// 5G-GUTI).
    pub fn peek(nas: &[u8]) -> Option<Self> {
        // Registration, service and UE-originating deregistration requests have the same layout:
        // one octet of types, then the identity with a length of two octets (TS 24.501 8.2.6,
        // 8.2.16, 8.2.12).
        let (identity, length) = match kind::clear(nas)? {
            [REGISTRATION_REQUEST | SERVICE_REQUEST | DEREGISTRATION_REQUEST_BY_UE, _, high, low, rest @ ..] => {
                (rest, usize::from(u16::from_be_bytes([*high, *low])))
            }
            _ => return None,
        };
        NasIdentity::from_mobile_identity(identity.get(..length)?)
    }

    /// Reads the value of a 5GS mobile identity IE; `None` if it is no temporary identity.
    pub fn from_mobile_identity(identity: &[u8]) -> Option<Self> {
        // Figures 9.11.3.4.1 (5G-GUTI) and 9.11.3.4.5 (5G-S-TMSI): AMF Set ID 10 | AMF Pointer 6,
        // then 5G-TMSI.
        let (region, tail) = match identity {
            [kind, a, b, c, region, tail @ ..] if kind & 0x07 == GUTI => (Some([*a, *b, *c, *region]), tail),
            [kind, tail @ ..] if kind & 0x07 == S_TMSI => (None, tail),
            _ => return None,
        };
        let [set, pointer, tmsi @ ..] = *<&[u8; 6]>::try_from(tail).ok()?;
        Some(NasIdentity { region, amf: u16::from_be_bytes([set, pointer]), tmsi: Tmsi(u32::from_be_bytes(tmsi)) })
    }

    /// Reads the 4G-GUTI of an EMM message without decoding the message, mapped to a 5G-GUTI (TS
    /// 23.003 2.10.2.2.2); `None` if it has none.
    pub fn peek_emm(nas: &[u8]) -> Option<Self> {
        // Attach, tracking area update and detach requests have the same layout: one octet of
        // types, then the identity with a length of one octet (TS 24.301 8.2.4, 8.2.29, 8.2.11).
        let (identity, length) = match emm::clear(nas)? {
            [emm::ATTACH_REQUEST | emm::UPDATE_REQUEST | emm::DETACH_REQUEST, _, length, rest @ ..] => {
                (rest, usize::from(*length))
            }
            _ => return None,
        };
        let [kind, a, b, c, region, set, code, tmsi @ ..] = *<&[u8; 11]>::try_from(identity.get(..length)?).ok()?;
        let identity = NasIdentity {
            region: Some([a, b, c, region]),
            amf: u16::from_be_bytes([set, code]),
            tmsi: Tmsi(u32::from_be_bytes(tmsi)),
        };
        (kind & 0x07 == EPS_GUTI).then_some(identity)
    }

    /// Returns the 5G-TMSI, if the AMF with this configuration allocated it, or an MME of its pool.
    pub fn tmsi_of(&self, config: &CoreConfig) -> Option<Tmsi> {
        let is_own_region = |region: [u8; 4]| {
            let [a, b, c] = config.guami().plmn.nas();
            region == [a, b, c, config.amf_region]
        };
        let is_own = self.amf >> 6 == config.amf_set && config.is_mme_of_pool(self.amf as u8 & 0x3f);
        (is_own && self.region.is_none_or(is_own_region)).then_some(self.tmsi)
    }
}
