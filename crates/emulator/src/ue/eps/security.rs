//! EPS NAS security context of a UE (TS 24.301 4.4, TS 33.401 7.2, 8).
//!
//! As [`crate::ue::security`], it protects single messages without the NAS codec. It shares only
//! the algorithms with the core.

pub use crate::ue::security::{Algorithms, NextHop, Refusal, SecurityContext, header};

use crate::ue::security::{MappedKeys, NasSecurity};

use vireo_wire::security::nas_5gs::{KAmf, derive_mapped_kamf_handover, derive_mapped_kamf_idle};
use vireo_wire::security::nas_eps::{
    KAsme, KEnb, KNasEnc, KNasInt, Nh, derive_kenb, derive_knas_enc, derive_knas_int, derive_nh, nas_cipher, nas_mac,
    service_request_short_mac,
};
use vireo_wire::security::{
    AccessKeyCount, CipheringAlgorithm, Direction, IntegrityAlgorithm, NasCount, constant_time_eq,
};

/// Octets of a security header: header type and protocol discriminator, MAC, sequence number.
pub const HEADER: usize = 6;
/// Protocol discriminator of EMM.
pub const PD_EMM: u8 = 0x7;
/// Protocol discriminator of ESM.
pub const PD_ESM: u8 = 0x2;
/// Security header type of a partially ciphered message (TS 24.301 table 9.3.1).
const PARTIALLY_CIPHERED: u8 = 5;
/// Message type, and the element of its ESM message (TS 24.301 8.2.33).
const CONTROL_PLANE_SERVICE_REQUEST: u8 = 0x4d;
const ESM_CONTAINER: u8 = 0x78;
/// First octet of a SERVICE REQUEST: its security header type and the protocol discriminator.
const SERVICE_REQUEST: u8 = 0xc7;

/// An EPS NAS security context.
#[derive(Debug)]
pub struct EpsSecurity {
    k_asme: KAsme,
    k_enc: KNasEnc,
    k_int: KNasInt,
    ciphering: CipheringAlgorithm,
    integrity: IntegrityAlgorithm,
    ksi: u8,
    uplink: NasCount,
    /// Lowest downlink NAS COUNT that is still accepted.
    downlink: NasCount,
}

impl EpsSecurity {
    /// Creates the context of a fresh K_ASME with both COUNTs zero.
    pub fn new(k_asme: KAsme, ksi: u8, ciphering: CipheringAlgorithm, integrity: IntegrityAlgorithm) -> Self {
        let (k_enc, k_int) = (derive_knas_enc(&k_asme, ciphering), derive_knas_int(&k_asme, integrity));
        let (uplink, downlink) = (NasCount::ZERO, NasCount::ZERO);
        EpsSecurity { k_asme, k_enc, k_int, ciphering, integrity, ksi, uplink, downlink }
    }

    /// Creates the context of keys that are mapped from 5G. `algorithms` are EEA and EIA.
    pub(in crate::ue) fn mapped(keys: MappedKeys, algorithms: u8) -> Option<Self> {
        let ciphering = CipheringAlgorithm::try_from(algorithms >> 4 & 7).ok()?;
        let integrity = IntegrityAlgorithm::try_from(algorithms & 7).ok()?;
        let (uplink, downlink) = keys.counts;
        Some(EpsSecurity { uplink, downlink, ..EpsSecurity::new(keys.k_asme, keys.ksi, ciphering, integrity) })
    }

    /// Protects the integrity of a TRACKING AREA UPDATE REQUEST for a REGISTRATION REQUEST in 5G.
    /// Returns it with the K_AMF' that is mapped with its COUNT (TS 33.501 8.2, A.15.1).
    pub(super) fn protect_for_nr(&mut self, plain: &[u8]) -> Result<(Vec<u8>, KAmf), Refusal> {
        let k_amf = derive_mapped_kamf_idle(&self.k_asme, self.uplink);
        let mut request = Vec::new();
        self.protect(header::INTEGRITY, plain, &mut request)?;
        Ok((request, k_amf))
    }

    /// Returns the context of 5G for a handover (TS 33.501 8.4.2), from the value of the S1 mode to
    /// N1 mode NAS transparent container (TS 24.501 9.11.2.9). Its NH comes after the K_eNB of
    /// `access_count`, or after `last`. `None` if the MAC of the container is wrong, or its
    /// algorithms do not exist.
    pub(super) fn handed_to_5g(
        &self,
        container: &[u8],
        access_count: u32,
        last: Option<NextHop>,
    ) -> Option<NasSecurity> {
        let (mac, octets) = container.split_first_chunk::<4>()?;
        let &[algorithms, keys, _, _, ..] = octets else { return None };
        let ciphering = CipheringAlgorithm::try_from(algorithms >> 4).ok()?;
        let integrity = IntegrityAlgorithm::try_from(algorithms & 0xf).ok()?;
        let hop = self.next_hop(access_count, keys >> 4 & 7, last)?;
        let k_amf = derive_mapped_kamf_handover(&self.k_asme, &Nh::new(&hop.nh));
        // A mapped context with the eKSI.
        let is_own = keys & 0xf == 8 | self.ksi;
        let mapped = NasSecurity::from_container(k_amf, self.ksi, ciphering, integrity);
        (is_own && constant_time_eq(&mapped.container_mac(octets), mac)).then_some(mapped)
    }

    /// Appends a SERVICE REQUEST with its short MAC to `out` (TS 24.301 8.2.25).
    pub fn service_request(&mut self, out: &mut Vec<u8>) -> Result<(), Refusal> {
        let count = self.uplink;
        let octet = self.ksi << 5 | count.sequence_number() & 0x1f;
        let mac = service_request_short_mac(&self.k_int, count, Direction::Uplink, octet, self.integrity);
        let [high, low] = mac.to_be_bytes();
        out.extend_from_slice(&[SERVICE_REQUEST, octet, high, low]);
        self.uplink = count.next().map_err(|_| Refusal::Exhausted)?;
        Ok(())
    }

    /// Appends a CONTROL PLANE SERVICE REQUEST to `out` (TS 24.301 8.2.33), whose ESM message alone
    /// is ciphered (4.4.5).
    pub fn control_plane_service(
        &mut self,
        is_paged: bool,
        esm: Option<&[u8]>,
        out: &mut Vec<u8>,
    ) -> Result<(), Refusal> {
        let (count, start) = (self.uplink, out.len());
        let header = if esm.is_some() { PARTIALLY_CIPHERED } else { header::INTEGRITY };
        out.extend_from_slice(&[header << 4 | PD_EMM, 0, 0, 0, 0, count.sequence_number()]);
        out.extend_from_slice(&[PD_EMM, CONTROL_PLANE_SERVICE_REQUEST, self.ksi << 4 | u8::from(is_paged)]);
        if let Some(esm) = esm {
            let [high, low] = u16::try_from(esm.len()).map_err(|_| Refusal::Short)?.to_be_bytes();
            out.extend_from_slice(&[ESM_CONTAINER, high, low]);
            let at = out.len();
            out.extend_from_slice(esm);
            nas_cipher(&self.k_enc, count, Direction::Uplink, &mut out[at..], self.ciphering);
        }
        let mac = nas_mac(&self.k_int, count, Direction::Uplink, &out[start + 5..], self.integrity);
        out[start + 1..start + 5].copy_from_slice(&mac.to_be_bytes());
        self.uplink = count.next().map_err(|_| Refusal::Exhausted)?;
        Ok(())
    }
}

impl SecurityContext for EpsSecurity {
    fn ksi(&self) -> u8 {
        self.ksi
    }

    fn algorithms(&self) -> Algorithms {
        (self.ciphering, self.integrity)
    }

    fn uplink_count(&self) -> u32 {
        self.uplink.get()
    }

    fn reselect(&mut self, ciphering: CipheringAlgorithm, integrity: IntegrityAlgorithm) {
        self.k_enc = derive_knas_enc(&self.k_asme, ciphering);
        self.k_int = derive_knas_int(&self.k_asme, integrity);
        (self.ciphering, self.integrity) = (ciphering, integrity);
    }

    fn access_key(&self, uplink_count: u32) -> Option<[u8; 32]> {
        let count = AccessKeyCount::try_from(uplink_count).ok()?;
        Some(*derive_kenb(&self.k_asme, count).as_octets())
    }

    fn next_hop(&self, uplink_count: u32, ncc: u8, last: Option<NextHop>) -> Option<NextHop> {
        let first = || Some(*derive_nh(&self.k_asme, &KEnb::new(&self.access_key(uplink_count)?)).as_octets());
        NextHop::find(first, |nh| *derive_nh(&self.k_asme, &Nh::new(nh)).as_octets(), ncc, last)
    }

    fn protect(&mut self, kind: u8, plain: &[u8], out: &mut Vec<u8>) -> Result<(), Refusal> {
        let count = self.uplink;
        let start = out.len();
        out.extend_from_slice(&[kind << 4 | PD_EMM, 0, 0, 0, 0, count.sequence_number()]);
        out.extend_from_slice(plain);
        if kind == header::CIPHERED || kind == header::NEW_CIPHERED {
            nas_cipher(&self.k_enc, count, Direction::Uplink, &mut out[start + HEADER..], self.ciphering);
        }
        let mac = nas_mac(&self.k_int, count, Direction::Uplink, &out[start + 5..], self.integrity);
        out[start + 1..start + 5].copy_from_slice(&mac.to_be_bytes());
        self.uplink = count.next().map_err(|_| Refusal::Exhausted)?;
        Ok(())
    }

    fn unprotect(&mut self, message: &[u8], out: &mut Vec<u8>) -> Result<(), Refusal> {
        let Some((head, content)) = message.split_at_checked(HEADER) else { return Err(Refusal::Short) };
        let count = self.downlink.estimate(head[5]).map_err(|_| Refusal::Exhausted)?;
        let mac = nas_mac(&self.k_int, count, Direction::Downlink, &message[5..], self.integrity);
        if !constant_time_eq(&mac.to_be_bytes(), &head[1..5]) {
            return Err(Refusal::Mac);
        }
        self.downlink = count.next().map_err(|_| Refusal::Exhausted)?;
        let start = out.len();
        out.extend_from_slice(content);
        if matches!(head[0] >> 4, header::CIPHERED | header::NEW_CIPHERED) {
            nas_cipher(&self.k_enc, count, Direction::Downlink, &mut out[start..], self.ciphering);
        }
        Ok(())
    }
}
