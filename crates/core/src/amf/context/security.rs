//! NAS security context of a UE (TS 33.501 6.3.2.1, TS 24.501 4.4).
//!
//! It holds keys, algorithms and NAS COUNTs as plain data. `vireo-wire` implements the algorithms.

use serde::{Deserialize, Serialize};
use vireo_wire::nas::Nas5gsSecurityHeaderType as Header;
use vireo_wire::security::nas_5gs::{
    KAmf, KGnb, KNasEnc, KNasInt, NasConnection, Nh, derive_kgnb, derive_knas_enc, derive_knas_int, derive_nh,
    nas_cipher, nas_mac,
};
use vireo_wire::security::{CipheringAlgorithm, Direction, IntegrityAlgorithm, NasCount, constant_time_eq};
use zeroize::Zeroize;

/// 5G NAS security context. `Debug` prints no key. Keys are overwritten on drop.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NasSecurity {
    /// ngKSI, 0 to 6.
    pub ngksi: u8,
    pub kamf: [u8; 32],
    /// KNASint of the algorithm in use.
    pub knas_int: [u8; 16],
    /// KNASenc of the algorithm in use.
    pub knas_enc: [u8; 16],
    /// NIA code, 1 to 3.
    pub integrity: u8,
    /// NEA code, 0 to 3.
    pub ciphering: u8,
    /// Lowest uplink NAS COUNT that is accepted.
    pub uplink: u32,
    /// Downlink NAS COUNT of the next message. It is committed before that message is sent, so that
    /// no COUNT is used twice.
    pub downlink: u32,
    /// Position in the NH chain; each path switch and handover uses the next NH (TS 33.501
    /// 6.9.2.1.1).
    pub next_hop: Option<NextHopChain>,
    /// KNASint and KNASenc are not stored but derived from KAMF on load: for IoT devices, which are
    /// rarely active. Set when a registration is accepted, so that it is false in a pending
    /// context.
    #[serde(skip)]
    pub derives_keys: bool,
}

impl Drop for NasSecurity {
    fn drop(&mut self) {
        self.kamf.zeroize();
        self.knas_int.zeroize();
        self.knas_enc.zeroize();
        if let Some(NextHopChain::At(hop)) = &mut self.next_hop {
            hop.nh.zeroize();
        }
    }
}

/// Position in the NH chain (TS 33.501 6.9.2.1.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum NextHopChain {
    /// Start of the chain: the KgNB of this uplink NAS COUNT. The first NH is derived when a
    /// handover needs it, because few connections do.
    KGnb(u32),
    /// The {NH, NCC} that was sent last.
    At(NextHop),
}

/// NH with its NCC (TS 33.501 6.9.2.1.1).
#[derive(Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct NextHop {
    pub nh: [u8; 32],
    /// NCC, 0 to 7.
    pub ncc: u8,
}

impl NextHop {
    /// Returns the first NH of a chain, which belongs to the KgNB and is never sent to the RAN.
    pub(super) fn first(kamf: &[u8; 32], kgnb: &[u8; 32]) -> Self {
        NextHop { nh: *derive_nh(&KAmf::new(kamf), &KGnb::new(kgnb)).as_octets(), ncc: 1 }
    }
}

/// Returns KNASint and KNASenc, derived from KAMF and the codes of the algorithms.
pub(super) fn nas_keys(kamf: &[u8; 32], integrity: u8, ciphering: u8) -> ([u8; 16], [u8; 16]) {
    let kamf = KAmf::new(kamf);
    (*derive_knas_int(&kamf, nia(integrity)).as_octets(), *derive_knas_enc(&kamf, nea(ciphering)).as_octets())
}

fn nia(code: u8) -> IntegrityAlgorithm {
    // Only `fresh` sets the code, from a valid algorithm.
    IntegrityAlgorithm::try_from(code).unwrap_or(IntegrityAlgorithm::NIA2)
}

fn nea(code: u8) -> CipheringAlgorithm {
    CipheringAlgorithm::try_from(code).unwrap_or(CipheringAlgorithm::NEA2)
}

impl std::fmt::Debug for NasSecurity {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("NasSecurity")
            .field("ngksi", &self.ngksi)
            .field("integrity", &self.integrity)
            .field("ciphering", &self.ciphering)
            .field("uplink", &self.uplink)
            .field("downlink", &self.downlink)
            .finish_non_exhaustive()
    }
}

impl std::fmt::Debug for NextHop {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("NextHop").field("ncc", &self.ncc).finish_non_exhaustive()
    }
}

/// Reason why a message was not accepted or protected.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SecurityFault {
    /// Shorter than a security header.
    #[error("the security header is cut short")]
    Truncated,
    /// Wrong MAC, or a COUNT that was used before: a replay (TS 24.501 4.4.3.2).
    #[error("the MAC does not verify")]
    BadMac,
    /// All COUNTs are used (TS 24.501 4.4.3.1): the UE must authenticate again.
    #[error("the NAS COUNTs are used up")]
    Exhausted,
}

/// EPD, security header type, MAC and sequence number (TS 24.501 9.1.1).
const HEADER_OCTETS: usize = 7;

impl NasSecurity {
    /// Returns the context of a newly agreed KAMF, with both COUNTs zero.
    pub fn fresh(ngksi: u8, kamf: [u8; 32], nia: IntegrityAlgorithm, nea: CipheringAlgorithm) -> Self {
        let (integrity, ciphering) = (nia as u8, nea as u8);
        let (knas_int, knas_enc) = nas_keys(&kamf, integrity, ciphering);
        NasSecurity {
            ngksi,
            kamf,
            knas_int,
            knas_enc,
            integrity,
            ciphering,
            uplink: 0,
            downlink: 0,
            next_hop: None,
            derives_keys: false,
        }
    }

    /// Protects a plain downlink message under the next COUNT, which is then used up.
    ///
    /// # Errors
    ///
    /// Returns [`SecurityFault::Exhausted`] if all downlink COUNTs are used.
    pub fn protect(&mut self, plain: &[u8], header: Header) -> Result<Vec<u8>, SecurityFault> {
        let count = NasCount::new(self.downlink).map_err(|_| SecurityFault::Exhausted)?;
        let mut out = Vec::with_capacity(HEADER_OCTETS + plain.len());
        out.extend_from_slice(&[0x7e, header as u8, 0, 0, 0, 0, count.sequence_number()]);
        out.extend_from_slice(plain);
        // Security Mode Command is never ciphered (TS 24.501 4.4.5): the UE does not know the
        // algorithm yet.
        if header == Header::IntegrityProtectedAndCiphered {
            let key = KNasEnc::new(&self.knas_enc);
            nas_cipher(&key, count, CONNECTION, Direction::Downlink, &mut out[HEADER_OCTETS..], nea(self.ciphering));
        }
        let key = KNasInt::new(&self.knas_int);
        let mac = nas_mac(&key, count, CONNECTION, Direction::Downlink, &out[HEADER_OCTETS - 1..], nia(self.integrity));
        out[2..6].copy_from_slice(&mac.to_be_bytes());
        self.downlink += 1;
        Ok(out)
    }

    /// Verifies an uplink message and returns its COUNT. The COUNT is not used up.
    ///
    /// # Errors
    ///
    /// Returns an error if the message is too short, its MAC does not verify, or all uplink COUNTs
    /// are used.
    pub fn verify(&self, message: &[u8]) -> Result<u32, SecurityFault> {
        if message.len() <= HEADER_OCTETS {
            return Err(SecurityFault::Truncated);
        }
        let lowest = NasCount::new(self.uplink).map_err(|_| SecurityFault::Exhausted)?;
        let count = lowest.estimate(message[HEADER_OCTETS - 1]).map_err(|_| SecurityFault::BadMac)?;
        let key = KNasInt::new(&self.knas_int);
        let mac =
            nas_mac(&key, count, CONNECTION, Direction::Uplink, &message[HEADER_OCTETS - 1..], nia(self.integrity));
        if constant_time_eq(&mac.to_be_bytes(), &message[2..6]) { Ok(count.get()) } else { Err(SecurityFault::BadMac) }
    }

    /// Verifies and deciphers an uplink message; returns its COUNT and the plain message. The COUNT
    /// is not used up.
    ///
    /// # Errors
    ///
    /// As [`NasSecurity::verify`].
    pub fn open(&self, message: &[u8]) -> Result<(u32, Vec<u8>), SecurityFault> {
        let count = self.verify(message)?;
        let mut plain = message[HEADER_OCTETS..].to_vec();
        // 2 and 4 are the ciphered header types (TS 24.501 table 9.3.1).
        if matches!(message[1] & 0x0f, 2 | 4) {
            self.cipher_uplink(count, &mut plain);
        }
        Ok((count, plain))
    }

    /// Uses up the COUNT of an accepted message: neither it nor a lower one is accepted again.
    pub fn use_up(&mut self, count: u32) {
        self.uplink = self.uplink.max(count + 1);
    }

    /// Deciphers the NAS message container of an initial NAS message, under the COUNT of that
    /// message (TS 24.501 4.4.6).
    pub fn cipher_uplink(&self, count: u32, octets: &mut [u8]) {
        if let Ok(count) = NasCount::new(count) {
            let key = KNasEnc::new(&self.knas_enc);
            nas_cipher(&key, count, CONNECTION, Direction::Uplink, octets, nea(self.ciphering));
        }
    }

    /// Derives and stores the next {NH, NCC} of the chain, for the target RAN node of a handover
    /// (TS 33.501 6.9.2.3.2, 6.9.2.3.3). Returns `None` before an initial context set-up.
    pub fn advance(&mut self) -> Option<NextHop> {
        let last = match self.next_hop? {
            NextHopChain::KGnb(count) => NextHop::first(&self.kamf, &self.kgnb(count)),
            NextHopChain::At(last) => last,
        };
        let kamf = KAmf::new(&self.kamf);
        let nh = derive_nh(&kamf, &Nh::new(&last.nh));
        let next = NextHop { nh: *nh.as_octets(), ncc: (last.ncc + 1) & 7 };
        self.next_hop = Some(NextHopChain::At(next));
        Some(next)
    }

    /// Starts the NH chain (TS 33.501 6.9.2.1.1) at the uplink message accepted last, which
    /// requires an initial context set-up. The KgNB of that set-up uses the COUNT of this message,
    /// even if the UE sends others before it (6.8.1.2.2, A.9).
    pub fn begin_access(&mut self) {
        self.next_hop = Some(NextHopChain::KGnb(self.last_uplink()));
    }

    /// Returns KgNB for the initial context set-up that [`NasSecurity::begin_access`] prepared.
    pub fn initial_kgnb(&mut self) -> [u8; 32] {
        let count = match self.next_hop {
            Some(NextHopChain::KGnb(count)) => count,
            // Not prepared: the last accepted message caused the set-up.
            Some(NextHopChain::At(_)) | None => self.last_uplink(),
        };
        self.next_hop = Some(NextHopChain::KGnb(count));
        self.kgnb(count)
    }

    fn last_uplink(&self) -> u32 {
        self.uplink.saturating_sub(1)
    }

    fn kgnb(&self, count: u32) -> [u8; 32] {
        let count = NasCount::new(count).unwrap_or(NasCount::ZERO);
        *derive_kgnb(&KAmf::new(&self.kamf), count).as_octets()
    }
}

/// Vireo serves 3GPP access only.
const CONNECTION: NasConnection = NasConnection::ThreeGpp;

#[cfg(test)]
mod tests {
    use super::*;
    use vireo_wire::nas::{Direction as NasDirection, Nas5gsMessage, NasSecurityContext};

    fn pair(nia: IntegrityAlgorithm, nea: CipheringAlgorithm) -> (NasSecurity, NasSecurityContext) {
        let kamf = [0x42; 32];
        let ue = NasSecurityContext::from_fresh_kamf(
            &KAmf::new(&kamf),
            vireo_wire::nas::IntegrityAlgorithm::from_u8(nia as u8).expect("an algorithm"),
            vireo_wire::nas::CipheringAlgorithm::from_u8(nea as u8).expect("an algorithm"),
        );
        (NasSecurity::fresh(0, kamf, nia, nea), ue.expect("a context"))
    }

    /// The peer is the security context of the codec crate, which shares no framing code with this
    /// module.
    #[test]
    fn algorithm_pairs_agree_with_independent_peer() {
        // 5GMM STATUS, which is valid in both directions.
        const PLAIN: [u8; 4] = [0x7e, 0x00, 0x64, 0x16];
        let status = Nas5gsMessage::decode(&PLAIN).expect("a 5GMM Status");
        for nia in [IntegrityAlgorithm::NIA1, IntegrityAlgorithm::NIA2, IntegrityAlgorithm::NIA3] {
            for nea in
                [CipheringAlgorithm::NEA0, CipheringAlgorithm::NEA1, CipheringAlgorithm::NEA2, CipheringAlgorithm::NEA3]
            {
                let (mut amf, mut ue) = pair(nia, nea);
                for _ in 0..300 {
                    let sent = amf.protect(&PLAIN, Header::IntegrityProtectedAndCiphered).expect("sent");
                    assert_eq!(ue.unprotect(&sent, NasDirection::Downlink).expect("verified").message, status);
                    let sent =
                        ue.protect(&status, Header::IntegrityProtectedAndCiphered, NasDirection::Uplink).expect("sent");
                    let (count, plain) = amf.open(&sent).expect("verified");
                    assert_eq!((plain, amf.open(&sent).map(|(again, _)| again)), (PLAIN.to_vec(), Ok(count)));
                    amf.use_up(count);
                    assert_eq!(amf.open(&sent), Err(SecurityFault::BadMac), "a replay is refused");
                }
            }
        }
    }

    #[test]
    fn invalid_mac_is_refused_and_uses_no_count() {
        let (amf, mut ue) = pair(IntegrityAlgorithm::NIA2, CipheringAlgorithm::NEA2);
        let message = Nas5gsMessage::decode(&[0x7e, 0x00, 0x43]).expect("a Registration Complete");
        let sent = ue.protect(&message, Header::IntegrityProtectedAndCiphered, NasDirection::Uplink).expect("sent");
        for at in 2..sent.len() {
            let mut changed = sent.clone();
            changed[at] ^= 1;
            assert_eq!(amf.open(&changed), Err(SecurityFault::BadMac), "octet {at}");
        }
        assert_eq!(amf.open(&sent[..7]), Err(SecurityFault::Truncated));
        assert_eq!(amf.open(&sent).map(|(_, plain)| plain), Ok(vec![0x7e, 0x00, 0x43]));
    }
}
