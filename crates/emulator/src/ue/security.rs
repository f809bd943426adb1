//! 5G NAS security context of a UE (TS 24.501 4.4, TS 33.501 6.4).
//!
//! The context has keys, algorithms and NAS COUNTs, and protects single messages. It does not use
//! the NAS codec, so that the emulator stays an independent check of the core's protection. It
//! shares only the algorithms with the core.

use std::fmt;
use vireo_wire::security::nas_5gs::{
    KAmf, KGnb, KNasEnc, KNasInt, NasConnection, Nh, derive_kgnb, derive_knas_enc, derive_knas_int,
    derive_mapped_kasme_handover, derive_mapped_kasme_idle, derive_nh, nas_cipher, nas_container_mac, nas_mac,
};
use vireo_wire::security::nas_eps::KAsme;
use vireo_wire::security::{
    AccessKeyCount, CipheringAlgorithm, Direction, IntegrityAlgorithm, NasCount, constant_time_eq,
};

/// Octets of a security header: EPD, header type, MAC, sequence number.
pub const HEADER: usize = 7;
/// Extended protocol discriminator of 5GMM.
pub const EPD_5GMM: u8 = 0x7e;
/// Extended protocol discriminator of 5GSM.
pub const EPD_5GSM: u8 = 0x2e;

/// Security header types (TS 24.501 9.3).
pub mod header {
    /// Plain.
    pub const PLAIN: u8 = 0;
    /// Integrity protected.
    pub const INTEGRITY: u8 = 1;
    /// Integrity protected and ciphered.
    pub const CIPHERED: u8 = 2;
    /// Integrity protected with a new context: SECURITY MODE COMMAND.
    pub const NEW_INTEGRITY: u8 = 3;
    /// Integrity protected and ciphered with a new context: SECURITY MODE COMPLETE.
    pub const NEW_CIPHERED: u8 = 4;
}

/// Reason for which a protected message was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// The message is shorter than a security header.
    Short,
    /// The MAC is wrong, or the NAS COUNT was used before (both look the same).
    Mac,
    /// The NAS COUNT is exhausted.
    Exhausted,
}

/// Ciphering and integrity algorithm.
pub type Algorithms = (CipheringAlgorithm, IntegrityAlgorithm);

/// NAS security context of one dialect.
pub trait SecurityContext: fmt::Debug {
    /// Returns the key set identifier.
    fn ksi(&self) -> u8;

    /// Returns the algorithms in use.
    fn algorithms(&self) -> Algorithms;

    /// Returns the NAS COUNT of the next uplink message.
    fn uplink_count(&self) -> u32;

    /// Selects other algorithms under the same root key; the COUNTs continue (TS 33.501 6.7.2,
    /// TS 33.401 7.2.8.1.2).
    fn reselect(&mut self, ciphering: CipheringAlgorithm, integrity: IntegrityAlgorithm);

    /// Returns the key of the RAN node for the NAS COUNT of the message that started the access:
    /// K_gNB (TS 33.501 A.9) or K_eNB (TS 33.401 A.3). The COUNT may be [`AT_HANDOVER`].
    fn access_key(&self, uplink_count: u32) -> Option<[u8; 32]>;

    /// Returns the next NH with chaining counter `ncc` (3 bits), from `last` on, including `last`.
    /// Without `last` it starts after the access key of `uplink_count` (TS 33.501 A.10, TS 33.401
    /// A.4).
    fn next_hop(&self, uplink_count: u32, ncc: u8, last: Option<NextHop>) -> Option<NextHop>;

    /// Protects `plain` with the next uplink COUNT and appends the whole message to `out`. The
    /// header type decides whether the content is ciphered.
    ///
    /// # Errors
    ///
    /// Fails if the COUNT is exhausted.
    fn protect(&mut self, kind: u8, plain: &[u8], out: &mut Vec<u8>) -> Result<(), Refusal>;

    /// Verifies a downlink message and appends its plain content to `out`.
    ///
    /// # Errors
    ///
    /// Fails if the message is short, its MAC wrong, or its COUNT used before.
    fn unprotect(&mut self, message: &[u8], out: &mut Vec<u8>) -> Result<(), Refusal>;
}

/// A 5G NAS security context.
#[derive(Debug)]
pub struct NasSecurity {
    k_amf: KAmf,
    k_enc: KNasEnc,
    k_int: KNasInt,
    ciphering: CipheringAlgorithm,
    integrity: IntegrityAlgorithm,
    ksi: u8,
    /// True if K_AMF is mapped from a K_ASME.
    is_mapped: bool,
    uplink: NasCount,
    /// Lowest downlink NAS COUNT that is still accepted.
    downlink: NasCount,
}

/// Keys of EPS that are mapped from those of 5G (TS 33.501 8.6.1).
pub(super) struct MappedKeys {
    pub(super) k_asme: KAsme,
    pub(super) ksi: u8,
    /// Uplink and downlink COUNTs, which go on.
    pub(super) counts: (NasCount, NasCount),
}

/// COUNT of the key of the RAN node after a handover from the other system (TS 33.501 8.3.2,
/// 8.4.2).
pub(super) const AT_HANDOVER: u32 = AccessKeyCount::Handover.get();

/// Protocol discriminator of EMM.
const PD_EMM: u8 = 0x7;

/// One link of the chain of next hops.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NextHop {
    /// Number of links since the K_gNB, which is 0. The chaining counter is its last 3 bits.
    number: u32,
    /// Next Hop key (NH).
    pub nh: [u8; 32],
}

impl NextHop {
    /// Returns the chaining counter of the link after `last`.
    pub(super) fn next_chaining(last: Option<NextHop>) -> u8 {
        let number = last.map_or(2, |last| last.number + 1);
        (number & 7) as u8
    }

    /// Returns true if the link has this key and chaining counter.
    pub(super) fn is(&self, key: &[u8], chaining: u8) -> bool {
        self.nh == key && self.number & 7 == u32::from(chaining)
    }

    /// Returns the next link with chaining counter `ncc` (3 bits), from `last` on, including
    /// `last`. Without `last` the chain starts with `first`, the NH after K_gNB or K_eNB, which
    /// counts as 0 (TS 33.501 6.9.2.1.1, TS 33.401 7.2.8.1.1).
    pub(super) fn find(
        first: impl FnOnce() -> Option<[u8; 32]>,
        next: impl Fn(&[u8; 32]) -> [u8; 32],
        ncc: u8,
        last: Option<NextHop>,
    ) -> Option<NextHop> {
        let mut hop = match last {
            Some(hop) => hop,
            None => NextHop { number: 1, nh: first()? },
        };
        for _ in 0..=8 {
            // 1 belongs to the first connection; a handover uses 2 first (TS 33.501 6.9.2.3.3 note,
            // TS 33.401 7.2.8.4.2 note).
            if hop.number > 1 && hop.number & 7 == u32::from(ncc) {
                return Some(hop);
            }
            hop = NextHop { number: hop.number + 1, nh: next(&hop.nh) };
        }
        None
    }
}

impl NasSecurity {
    /// Creates the context of a fresh K_AMF with both COUNTs zero.
    pub fn new(k_amf: KAmf, ksi: u8, ciphering: CipheringAlgorithm, integrity: IntegrityAlgorithm) -> Self {
        let (k_enc, k_int) = (derive_knas_enc(&k_amf, ciphering), derive_knas_int(&k_amf, integrity));
        let (uplink, downlink) = (NasCount::ZERO, NasCount::ZERO);
        NasSecurity { k_amf, k_enc, k_int, ciphering, integrity, ksi, is_mapped: false, uplink, downlink }
    }

    /// Returns true if K_AMF is mapped from a K_ASME.
    pub fn is_mapped(&self) -> bool {
        self.is_mapped
    }

    /// Sets whether K_AMF is mapped from a K_ASME.
    pub(super) fn set_mapped(&mut self, is_mapped: bool) {
        self.is_mapped = is_mapped;
    }

    /// Protects the integrity of an EMM message with the next uplink COUNT, as that of a message of
    /// 5G (TS 33.501 8.5.2), and appends it to `out`. Returns the keys of EPS that are mapped with
    /// that COUNT.
    pub(super) fn protect_for_eps(&mut self, plain: &[u8], out: &mut Vec<u8>) -> Result<MappedKeys, Refusal> {
        let (count, start) = (self.uplink, out.len());
        out.extend_from_slice(&[header::INTEGRITY << 4 | PD_EMM, 0, 0, 0, 0, count.sequence_number()]);
        out.extend_from_slice(plain);
        let access = NasConnection::ThreeGpp;
        let mac = nas_mac(&self.k_int, count, access, Direction::Uplink, &out[start + 5..], self.integrity);
        out[start + 1..start + 5].copy_from_slice(&mac.to_be_bytes());
        self.uplink = count.next().map_err(|_| Refusal::Exhausted)?;
        let k_asme = derive_mapped_kasme_idle(&self.k_amf, count);
        Ok(MappedKeys { k_asme, ksi: self.ksi, counts: (self.uplink, self.downlink) })
    }

    /// Returns the keys of EPS for a handover (TS 33.501 8.3.2). `sequence` is the value of the N1
    /// mode to S1 mode NAS transparent container: the last octet of a downlink COUNT that no
    /// message has used.
    pub(super) fn handed_to_eps(&self, sequence: u8) -> Option<MappedKeys> {
        let count = self.downlink.estimate(sequence).ok()?;
        let k_asme = derive_mapped_kasme_handover(&self.k_amf, count);
        Some(MappedKeys { k_asme, ksi: self.ksi, counts: (self.uplink, count.next().ok()?) })
    }

    /// Returns the context of a UE that arrives from EPS by a handover: the NAS container counts as
    /// the first downlink message (TS 33.501 8.4.2).
    pub(super) fn from_container(
        k_amf: KAmf,
        ksi: u8,
        ciphering: CipheringAlgorithm,
        integrity: IntegrityAlgorithm,
    ) -> Self {
        let downlink = NasCount::from_parts(0, 1);
        NasSecurity { is_mapped: true, downlink, ..NasSecurity::new(k_amf, ksi, ciphering, integrity) }
    }

    /// Returns the MAC of the NAS container from its octets after the MAC.
    pub(super) fn container_mac(&self, octets: &[u8]) -> [u8; 4] {
        nas_container_mac(&self.k_int, octets, self.integrity).to_be_bytes()
    }

    /// Protects an initial NAS message (TS 24.501 4.4.6). `cleartext` is sent unchanged. A NAS
    /// message container IE (IEI 0x71) with the ciphered `complete` follows.
    pub fn protect_initial(&mut self, cleartext: &[u8], complete: &[u8], out: &mut Vec<u8>) -> Result<(), Refusal> {
        let count = self.uplink;
        let start = self.begin(header::INTEGRITY, count, out);
        out.extend_from_slice(cleartext);
        let length = u16::try_from(complete.len()).map_err(|_| Refusal::Short)?;
        out.push(0x71);
        out.extend_from_slice(&length.to_be_bytes());
        let content = out.len();
        out.extend_from_slice(complete);
        self.cipher(count, &mut out[content..]);
        self.finish(count, &mut out[start..])
    }

    fn begin(&self, kind: u8, count: NasCount, out: &mut Vec<u8>) -> usize {
        let start = out.len();
        out.extend_from_slice(&[EPD_5GMM, kind, 0, 0, 0, 0, count.sequence_number()]);
        start
    }

    fn cipher(&self, count: NasCount, data: &mut [u8]) {
        nas_cipher(&self.k_enc, count, NasConnection::ThreeGpp, Direction::Uplink, data, self.ciphering);
    }

    fn finish(&mut self, count: NasCount, message: &mut [u8]) -> Result<(), Refusal> {
        let access = NasConnection::ThreeGpp;
        let mac = nas_mac(&self.k_int, count, access, Direction::Uplink, &message[6..], self.integrity);
        message[2..6].copy_from_slice(&mac.to_be_bytes());
        self.uplink = count.next().map_err(|_| Refusal::Exhausted)?;
        Ok(())
    }
}

impl SecurityContext for NasSecurity {
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
        self.k_enc = derive_knas_enc(&self.k_amf, ciphering);
        self.k_int = derive_knas_int(&self.k_amf, integrity);
        (self.ciphering, self.integrity) = (ciphering, integrity);
    }

    fn access_key(&self, uplink_count: u32) -> Option<[u8; 32]> {
        let count = AccessKeyCount::try_from(uplink_count).ok()?;
        Some(*derive_kgnb(&self.k_amf, count).as_octets())
    }

    fn next_hop(&self, uplink_count: u32, ncc: u8, last: Option<NextHop>) -> Option<NextHop> {
        let first = || Some(*derive_nh(&self.k_amf, &KGnb::new(&self.access_key(uplink_count)?)).as_octets());
        NextHop::find(first, |nh| *derive_nh(&self.k_amf, &Nh::new(nh)).as_octets(), ncc, last)
    }

    fn protect(&mut self, kind: u8, plain: &[u8], out: &mut Vec<u8>) -> Result<(), Refusal> {
        let count = self.uplink;
        let start = self.begin(kind, count, out);
        out.extend_from_slice(plain);
        if kind == header::CIPHERED || kind == header::NEW_CIPHERED {
            self.cipher(count, &mut out[start + HEADER..]);
        }
        self.finish(count, &mut out[start..])
    }

    fn unprotect(&mut self, message: &[u8], out: &mut Vec<u8>) -> Result<(), Refusal> {
        let Some((head, content)) = message.split_at_checked(HEADER) else { return Err(Refusal::Short) };
        let (access, downlink) = (NasConnection::ThreeGpp, Direction::Downlink);
        let count = self.downlink.estimate(head[6]).map_err(|_| Refusal::Exhausted)?;
        let mac = nas_mac(&self.k_int, count, access, downlink, &message[6..], self.integrity);
        if !constant_time_eq(&mac.to_be_bytes(), &head[2..6]) {
            return Err(Refusal::Mac);
        }
        self.downlink = count.next().map_err(|_| Refusal::Exhausted)?;
        let start = out.len();
        out.extend_from_slice(content);
        if matches!(head[1] & 0xf, header::CIPHERED | header::NEW_CIPHERED) {
            nas_cipher(&self.k_enc, count, access, downlink, &mut out[start..], self.ciphering);
        }
        Ok(())
    }
}
