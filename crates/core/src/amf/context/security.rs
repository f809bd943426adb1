//! NAS security context of a UE (TS 33.501 6.3.2.1, TS 24.501 4.4; EPS: TS 33.401 6.2, TS 24.301
//! 4.4).
//!
//! It holds keys, algorithms and NAS COUNTs as plain data. `vireo-wire` implements the algorithms.

use serde::{Deserialize, Serialize};
use vireo_types::{Dialect, Instant};
use vireo_wire::nas::Nas5gsSecurityHeaderType as Header;
use vireo_wire::nas_eps::{NasEmmMessage, NasEpsMessage};
use vireo_wire::security::nas_5gs::{
    KAmf, KGnb, KNasEnc, KNasInt, NasConnection, Nh, derive_kgnb, derive_knas_enc, derive_knas_int, derive_nh,
    nas_cipher, nas_mac,
};
use vireo_wire::security::{
    AccessKeyCount, CipheringAlgorithm, Direction, IntegrityAlgorithm, NasCount, constant_time_eq, nas_eps,
};
use zeroize::Zeroize;

/// Key set identifier, and the dialect of its keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeySet(u8);

impl KeySet {
    const EPS: u8 = 0x10;
    /// Type of security context flag, at its place in the IE (TS 24.501 9.11.3.32).
    const MAPPED: u8 = 0x08;

    /// Returns the key set of an ngKSI or eKSI, 0 to 6.
    pub const fn new(dialect: Dialect, identifier: u8) -> Self {
        match dialect {
            Dialect::Nr => KeySet(identifier & 7),
            Dialect::Eps => KeySet(identifier & 7 | Self::EPS),
        }
    }

    /// Returns the ngKSI or eKSI, 0 to 6.
    pub const fn identifier(self) -> u8 {
        self.0 & 7
    }

    /// Returns the value of the key set identifier IE: the type of security context, and the ngKSI
    /// or eKSI.
    pub const fn ie(self) -> u8 {
        self.0 & 0xf
    }

    /// Returns the key set of a context that is mapped from this one to the other dialect. It keeps
    /// the identifier (TS 33.501 8.6).
    pub const fn mapped(self) -> Self {
        KeySet((self.0 ^ Self::EPS) | Self::MAPPED)
    }

    /// Returns true if the keys are mapped from those of the other dialect.
    pub const fn is_mapped(self) -> bool {
        self.0 & Self::MAPPED != 0
    }

    /// Returns the dialect: the keys of EPS are derived from KASME, those of 5GS from KAMF.
    pub const fn dialect(self) -> Dialect {
        if self.0 & Self::EPS == 0 { Dialect::Nr } else { Dialect::Eps }
    }
}

/// NAS security context. `Debug` prints no key. Keys are overwritten on drop.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NasSecurity {
    /// Key set identifier, of 5GS or EPS by the dialect.
    #[serde(rename = "ngksi")]
    pub key_set: KeySet,
    /// KAMF. In EPS it is KASME.
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
    /// Time of the authentication, if the keys have a lifetime; else 0. Set when the keys are taken
    /// into use, and stored apart.
    #[serde(skip)]
    pub agreed_at: Instant,
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
    /// Start of the chain: the KgNB of this uplink NAS COUNT, or of 2^32 - 1 after a handover
    /// between 5GS and EPS. The first NH is derived when a handover needs it, because few
    /// connections do.
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
    fn first(dialect: Dialect, root: &[u8; 32], access: &[u8; 32]) -> Self {
        let nh = match dialect {
            Dialect::Nr => *derive_nh(&KAmf::new(root), &KGnb::new(access)).as_octets(),
            Dialect::Eps => {
                let (kasme, kenb) = (nas_eps::KAsme::new(root), nas_eps::KEnb::new(access));
                *nas_eps::derive_nh(&kasme, &kenb).as_octets()
            }
        };
        NextHop { nh, ncc: 1 }
    }
}

/// Returns KNASint and KNASenc, derived from KAMF or KASME and the codes of the algorithms.
pub(super) fn nas_keys(dialect: Dialect, root: &[u8; 32], integrity: u8, ciphering: u8) -> ([u8; 16], [u8; 16]) {
    let (integrity, ciphering) = (nia(integrity), nea(ciphering));
    match dialect {
        Dialect::Nr => {
            let kamf = KAmf::new(root);
            (*derive_knas_int(&kamf, integrity).as_octets(), *derive_knas_enc(&kamf, ciphering).as_octets())
        }
        Dialect::Eps => {
            let kasme = nas_eps::KAsme::new(root);
            let integrity = *nas_eps::derive_knas_int(&kasme, integrity).as_octets();
            (integrity, *nas_eps::derive_knas_enc(&kasme, ciphering).as_octets())
        }
    }
}

pub(super) fn nia(code: u8) -> IntegrityAlgorithm {
    // Only `fresh` sets the code, from a valid algorithm.
    IntegrityAlgorithm::try_from(code).unwrap_or(IntegrityAlgorithm::NIA2)
}

fn nea(code: u8) -> CipheringAlgorithm {
    CipheringAlgorithm::try_from(code).unwrap_or(CipheringAlgorithm::NEA2)
}

impl std::fmt::Debug for NasSecurity {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("NasSecurity")
            .field("key_set", &self.key_set)
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

/// Octets of a security header before the plain message.
const fn header_octets(dialect: Dialect) -> usize {
    match dialect {
        // EPD, security header type, MAC and sequence number (TS 24.501 9.1.1).
        Dialect::Nr => 7,
        // Header type and protocol discriminator, MAC and sequence number (TS 24.301 9.1).
        Dialect::Eps => 6,
    }
}

/// Security header type of a partially ciphered message (TS 24.301 table 9.3.1).
pub(crate) const PARTIALLY_CIPHERED: u8 = 5;

/// Octets of a SERVICE REQUEST of EPS, whose header is the whole message (TS 24.301 8.2.25).
const SERVICE_REQUEST_OCTETS: usize = 4;

impl NasSecurity {
    /// Returns the context of a newly agreed KAMF, with both COUNTs zero.
    pub fn fresh(ngksi: u8, kamf: [u8; 32], nia: IntegrityAlgorithm, nea: CipheringAlgorithm) -> Self {
        NasSecurity::agreed(KeySet::new(Dialect::Nr, ngksi), kamf, nia, nea)
    }

    /// Returns the context of a newly agreed KAMF or KASME, with both COUNTs zero.
    pub fn agreed(key_set: KeySet, root: [u8; 32], nia: IntegrityAlgorithm, nea: CipheringAlgorithm) -> Self {
        let (integrity, ciphering) = (nia as u8, nea as u8);
        let (knas_int, knas_enc) = nas_keys(key_set.dialect(), &root, integrity, ciphering);
        NasSecurity {
            key_set,
            kamf: root,
            knas_int,
            knas_enc,
            integrity,
            ciphering,
            uplink: 0,
            downlink: 0,
            next_hop: None,
            derives_keys: false,
            agreed_at: Instant::default(),
        }
    }

    /// Protects a plain downlink message under the next COUNT, which is then used up.
    ///
    /// # Errors
    ///
    /// Returns [`SecurityFault::Exhausted`] if all downlink COUNTs are used.
    pub fn protect(&mut self, plain: &[u8], header: Header) -> Result<Vec<u8>, SecurityFault> {
        let count = NasCount::new(self.downlink).map_err(|_| SecurityFault::Exhausted)?;
        let octets = header_octets(self.dialect());
        let mut out = Vec::with_capacity(octets + plain.len());
        // The header types have the same values in both dialects (TS 24.301 9.3.1).
        match self.dialect() {
            Dialect::Nr => out.extend_from_slice(&[0x7e, header as u8]),
            Dialect::Eps => out.push((header as u8) << 4 | 0x07),
        }
        out.extend_from_slice(&[0, 0, 0, 0, count.sequence_number()]);
        out.extend_from_slice(plain);
        // Security Mode Command is never ciphered (TS 24.501 4.4.5, TS 24.301 4.4.5): the UE does
        // not know the algorithm yet.
        if header == Header::IntegrityProtectedAndCiphered {
            self.cipher(count, Direction::Downlink, &mut out[octets..]);
        }
        let mac = self.mac(count, Direction::Downlink, &out[octets - 1..]);
        out[octets - 5..octets - 1].copy_from_slice(&mac.to_be_bytes());
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
        self.verify_framed(self.dialect(), message)
    }

    /// As [`NasSecurity::verify`], for a message with the security header of a dialect, which may
    /// be another one than that of the keys.
    pub(super) fn verify_framed(&self, framing: Dialect, message: &[u8]) -> Result<u32, SecurityFault> {
        let octets = header_octets(framing);
        if message.len() <= octets {
            return Err(SecurityFault::Truncated);
        }
        let lowest = NasCount::new(self.uplink).map_err(|_| SecurityFault::Exhausted)?;
        let count = lowest.estimate(message[octets - 1]).map_err(|_| SecurityFault::BadMac)?;
        let mac = self.mac(count, Direction::Uplink, &message[octets - 1..]);
        let same = constant_time_eq(&mac.to_be_bytes(), &message[octets - 5..octets - 1]);
        if same { Ok(count.get()) } else { Err(SecurityFault::BadMac) }
    }

    /// Verifies a SERVICE REQUEST of EPS and returns its COUNT, which is not used up. It has the
    /// lowest 5 bits of the COUNT and the lowest 16 bits of the MAC (TS 24.301 9.9.3.28, 9.9.3.19).
    ///
    /// # Errors
    ///
    /// As [`NasSecurity::verify`].
    pub fn verify_service_request(&self, message: &[u8]) -> Result<u32, SecurityFault> {
        let Some([header, key_and_count, mac @ ..]) = message.first_chunk::<SERVICE_REQUEST_OCTETS>() else {
            return Err(SecurityFault::Truncated);
        };
        let is_own = self.key_set.identifier() == key_and_count >> 5;
        if !is_own || message.len() != SERVICE_REQUEST_OCTETS {
            return Err(SecurityFault::BadMac);
        }
        // The lowest COUNT that is accepted and ends with these bits.
        let count = self.uplink + (u32::from(key_and_count & 0x1f).wrapping_sub(self.uplink) & 0x1f);
        let count = NasCount::new(count).map_err(|_| SecurityFault::Exhausted)?;
        let expected = self.mac(count, Direction::Uplink, &[*header, *key_and_count]);
        let same = constant_time_eq(&expected.to_be_bytes()[2..], mac);
        if same { Ok(count.get()) } else { Err(SecurityFault::BadMac) }
    }

    /// Verifies and deciphers an uplink message; returns its COUNT and the plain message. The COUNT
    /// is not used up.
    ///
    /// # Errors
    ///
    /// As [`NasSecurity::verify`].
    pub fn open(&self, message: &[u8]) -> Result<(u32, Vec<u8>), SecurityFault> {
        let count = self.verify(message)?;
        let mut plain = message[header_octets(self.dialect())..].to_vec();
        let header = match self.dialect() {
            Dialect::Nr => message[1] & 0x0f,
            Dialect::Eps => message[0] >> 4,
        };
        // 2 and 4 are the ciphered header types (TS 24.501 table 9.3.1, TS 24.301 table 9.3.1).
        if matches!(header, 2 | 4) {
            self.cipher_uplink(count, &mut plain);
        } else if (self.dialect(), header) == (Dialect::Eps, PARTIALLY_CIPHERED) {
            self.decipher_container(count, &mut plain);
        }
        Ok((count, plain))
    }

    /// Deciphers the container of a CONTROL PLANE SERVICE REQUEST, the only part of it that is
    /// ciphered (TS 24.301 4.4.5). Octets that are no such message stay as they are.
    fn decipher_container(&self, count: u32, plain: &mut Vec<u8>) {
        let decoded = NasEpsMessage::decode(plain);
        let Ok(mut message @ NasEpsMessage::Emm(_, NasEmmMessage::ControlPlaneServiceRequest(_))) = decoded else {
            return;
        };
        let NasEpsMessage::Emm(_, NasEmmMessage::ControlPlaneServiceRequest(request)) = &mut message else { return };
        if let Some(container) = &mut request.esm_message_container {
            self.cipher_uplink(count, &mut container.value);
        } else if let Some(container) = &mut request.nas_message_container {
            self.cipher_uplink(count, &mut container.value);
        }
        if let Ok(octets) = message.encode() {
            *plain = octets;
        }
    }

    /// Uses up the COUNT of an accepted message: neither it nor a lower one is accepted again.
    pub fn use_up(&mut self, count: u32) {
        self.uplink = self.uplink.max(count + 1);
    }

    /// Deciphers the NAS message container of an initial NAS message, under the COUNT of that
    /// message (TS 24.501 4.4.6).
    pub fn cipher_uplink(&self, count: u32, octets: &mut [u8]) {
        if let Ok(count) = NasCount::new(count) {
            self.cipher(count, Direction::Uplink, octets);
        }
    }

    /// Returns the dialect of the keys.
    pub fn dialect(&self) -> Dialect {
        self.key_set.dialect()
    }

    fn cipher(&self, count: NasCount, direction: Direction, octets: &mut [u8]) {
        let algorithm = nea(self.ciphering);
        match self.dialect() {
            Dialect::Nr => nas_cipher(&KNasEnc::new(&self.knas_enc), count, CONNECTION, direction, octets, algorithm),
            Dialect::Eps => {
                nas_eps::nas_cipher(&nas_eps::KNasEnc::new(&self.knas_enc), count, direction, octets, algorithm);
            }
        }
    }

    fn mac(&self, count: NasCount, direction: Direction, octets: &[u8]) -> u32 {
        let algorithm = nia(self.integrity);
        match self.dialect() {
            Dialect::Nr => nas_mac(&KNasInt::new(&self.knas_int), count, CONNECTION, direction, octets, algorithm),
            Dialect::Eps => {
                nas_eps::nas_mac(&nas_eps::KNasInt::new(&self.knas_int), count, direction, octets, algorithm)
            }
        }
    }

    /// Derives and stores the next {NH, NCC} of the chain, for the target RAN node of a handover
    /// (TS 33.501 6.9.2.3.2, 6.9.2.3.3). Returns `None` before an initial context set-up.
    pub fn advance(&mut self) -> Option<NextHop> {
        let last = match self.next_hop? {
            NextHopChain::KGnb(count) => NextHop::first(self.dialect(), &self.kamf, &self.kgnb(count)),
            NextHopChain::At(last) => last,
        };
        let nh = match self.dialect() {
            Dialect::Nr => *derive_nh(&KAmf::new(&self.kamf), &Nh::new(&last.nh)).as_octets(),
            Dialect::Eps => {
                let kasme = nas_eps::KAsme::new(&self.kamf);
                *nas_eps::derive_nh(&kasme, &nas_eps::Nh::new(&last.nh)).as_octets()
            }
        };
        let next = NextHop { nh, ncc: (last.ncc + 1) & 7 };
        self.next_hop = Some(NextHopChain::At(next));
        Some(next)
    }

    /// Starts the NH chain (TS 33.501 6.9.2.1.1) at the uplink message accepted last, which
    /// requires an initial context set-up. The KgNB of that set-up uses the COUNT of this message,
    /// even if the UE sends others before it (6.8.1.2.2, A.9).
    pub fn begin_access(&mut self) {
        self.next_hop = Some(NextHopChain::KGnb(self.last_uplink()));
    }

    /// Returns KgNB or KeNB for the initial context set-up that [`NasSecurity::begin_access`]
    /// prepared.
    pub fn initial_kgnb(&mut self) -> [u8; 32] {
        let count = match self.next_hop {
            Some(NextHopChain::KGnb(count)) => count,
            // Not prepared: the last accepted message caused the set-up.
            Some(NextHopChain::At(_)) | None => self.last_uplink(),
        };
        self.next_hop = Some(NextHopChain::KGnb(count));
        self.kgnb(count)
    }

    /// Returns the KgNB of [`NasSecurity::begin_access`] as the NH of a path switch that crosses
    /// its renewal: with NCC 0 (TS 33.501 6.9.2.3.2).
    pub fn renewed_hop(&mut self) -> NextHop {
        NextHop { nh: self.initial_kgnb(), ncc: 0 }
    }

    /// Returns the COUNT of the message that was accepted last.
    pub(super) fn last_uplink(&self) -> u32 {
        self.uplink.saturating_sub(1)
    }

    fn kgnb(&self, count: u32) -> [u8; 32] {
        let count = AccessKeyCount::try_from(count).unwrap_or(NasCount::ZERO.into());
        match self.dialect() {
            Dialect::Nr => *derive_kgnb(&KAmf::new(&self.kamf), count).as_octets(),
            Dialect::Eps => *nas_eps::derive_kenb(&nas_eps::KAsme::new(&self.kamf), count).as_octets(),
        }
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

    /// The peer is the EPS security context of the codec crate.
    #[test]
    fn eps_algorithms_agree_with_independent_peer() {
        use vireo_wire::nas_eps::{KAsme, NasEpsMessage, NasEpsSecurityHeaderType, NasSecurityContext};
        // EMM STATUS, which is valid in both directions.
        const PLAIN: [u8; 3] = [0x07, 0x60, 0x16];
        let status = NasEpsMessage::decode(&PLAIN).expect("an EMM Status");
        let (kasme, header) = ([0x42; 32], NasEpsSecurityHeaderType::IntegrityProtectedAndCiphered);
        for nia in [IntegrityAlgorithm::EIA1, IntegrityAlgorithm::EIA2, IntegrityAlgorithm::EIA3] {
            for nea in
                [CipheringAlgorithm::EEA0, CipheringAlgorithm::EEA1, CipheringAlgorithm::EEA2, CipheringAlgorithm::EEA3]
            {
                let key_set = KeySet::new(Dialect::Eps, 3);
                let mut mme = NasSecurity::agreed(key_set, kasme, nia, nea);
                let mut ue = NasSecurityContext::from_fresh_kasme(
                    &KAsme::new(&kasme),
                    vireo_wire::nas_eps::IntegrityAlgorithm::from_u8(nia as u8).expect("an algorithm"),
                    vireo_wire::nas_eps::CipheringAlgorithm::from_u8(nea as u8).expect("an algorithm"),
                )
                .expect("a context");
                for _ in 0..300 {
                    let sent = mme.protect(&PLAIN, Header::IntegrityProtectedAndCiphered).expect("sent");
                    assert_eq!(ue.unprotect(&sent, NasDirection::Downlink).expect("verified").message, status);
                    let sent = ue.protect(&status, header, NasDirection::Uplink).expect("sent");
                    let (count, plain) = mme.open(&sent).expect("verified");
                    assert_eq!((plain, mme.verify(&sent)), (PLAIN.to_vec(), Ok(count)));
                    mme.use_up(count);
                    assert_eq!(mme.open(&sent), Err(SecurityFault::BadMac), "a replay is refused");
                }
            }
        }
    }

    /// Returns a value that OpenSSL has computed (tests/reference/security_values.py).
    fn computed(name: &str) -> Vec<u8> {
        let text = include_str!("../../../../../tests/reference/security.txt");
        let value = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        hex::decode(value.expect("a value")).expect("hexadecimal digits")
    }

    fn openssl_keys() -> NasSecurity {
        let kasme = computed("kasme").try_into().expect("32 octets");
        let key_set = KeySet::new(Dialect::Eps, 2);
        NasSecurity::agreed(key_set, kasme, IntegrityAlgorithm::EIA2, CipheringAlgorithm::EEA2)
    }

    /// TS 33.401 A.3, A.4, A.7.
    #[test]
    fn eps_keys_equal_openssl() {
        let mut keys = openssl_keys();
        assert_eq!(keys.knas_enc[..], computed("eps_knas_enc_2"));
        assert_eq!(keys.knas_int[..], computed("eps_knas_int_2"));
        keys.use_up(300);
        keys.begin_access();
        assert_eq!(keys.initial_kgnb()[..], computed("kenb_300"));
        let next = keys.advance().expect("a chain");
        assert_eq!((next.ncc, &next.nh[..]), (2, &computed("nh_2")[..]));
    }

    /// TS 33.501 8.3.2, 8.4.2, A.14.2, A.15.2; TS 24.501 9.11.2.9.
    #[test]
    fn mapped_handover_keys_equal_openssl() {
        let (nia, nea) = (IntegrityAlgorithm::NIA2, CipheringAlgorithm::NEA2);
        let kamf = computed("kamf").try_into().expect("32 octets");
        let mut source = NasSecurity::fresh(2, kamf, nia, nea);
        (source.uplink, source.downlink) = (7, 300);
        let keys = source.handed_to_eps(nia, nea).expect("keys");
        assert_eq!(keys.mapped.kamf[..], computed("handover_kasme_300"));
        assert_eq!((keys.next_hop.ncc, &keys.next_hop.nh[..]), (2, &computed("handover_nh_2")[..]));
        assert_eq!((keys.mapped.uplink, keys.mapped.downlink, source.downlink), (7, 301, 301));
        assert_eq!((keys.mapped.n1_to_s1_container(), keys.container), ((300 & 0xff) as u8, None));

        let mut source = openssl_keys();
        source.use_up(300);
        source.begin_access();
        let keys = source.handed_to_5g(nia, nea).expect("keys");
        assert_eq!(keys.mapped.kamf[..], computed("handover_kamf"));
        assert_eq!((keys.next_hop.ncc, &keys.next_hop.nh[..]), (0, &computed("handover_kgnb")[..]));
        assert_eq!(keys.container.map(Vec::from), Some(computed("handover_nas_container")));
        assert_eq!((keys.mapped.uplink, keys.mapped.downlink), (0, 1));
        assert!(openssl_keys().handed_to_5g(nia, nea).is_none(), "there is no chain");
        let mut last = NasSecurity::fresh(2, kamf, nia, nea);
        last.downlink = 1 << 24;
        assert!(last.handed_to_eps(nia, nea).is_none(), "the COUNTs are used up");
    }

    /// TS 24.301 4.4.3, 9.1: header, COUNT, MAC and ciphering.
    #[test]
    fn eps_messages_equal_openssl() {
        use Header::{IntegrityProtectedAndCiphered, IntegrityProtectedWithNewFiveGNasSecurityContext as NewContext};
        let mut keys = openssl_keys();
        let command = hex::decode("075d020202f070c1").expect("digits");
        assert_eq!(keys.protect(&command, NewContext), Ok(computed("EPS-SecurityModeCommand-down-0")));
        let information = keys.protect(&[0x07, 0x61, 0x46, 0x40], IntegrityProtectedAndCiphered);
        assert_eq!(information, Ok(computed("EPS-EMMInformation-down-1")));
        for (name, count, plain) in [
            ("EPS-SecurityModeComplete-up-0", 0, "075e23093375000000000001f1"),
            ("EPS-AttachComplete-up-300", 300, "074300035200c2"),
            ("EPS-TrackingAreaUpdateRequest-up-301", 301, "0748230bf699f9078001c3deadbeef57022000e0"),
        ] {
            keys.uplink = count;
            let plain = hex::decode(plain).expect("digits");
            assert_eq!(keys.open(&computed(name)), Ok((count, plain)), "{name}");
        }
        keys.use_up(301);
        assert_eq!(keys.verify_service_request(&computed("EPS-ServiceRequest-up-302")), Ok(302));
    }

    #[test]
    fn service_request_verifies_once_under_own_keys() {
        use vireo_wire::security::nas_eps::{KNasInt, service_request_short_mac};
        let key_set = KeySet::new(Dialect::Eps, 3);
        let mut mme = NasSecurity::agreed(key_set, [7; 32], IntegrityAlgorithm::EIA2, CipheringAlgorithm::EEA2);
        for count in [0, 1, 31, 32, 60, 91, 0x1fff] {
            if count > mme.uplink + 31 {
                mme.use_up(count - 1);
            }
            let octet = 3 << 5 | (count & 0x1f) as u8;
            let key = KNasInt::new(&mme.knas_int);
            let counted = NasCount::new(count).expect("a COUNT");
            let mac = service_request_short_mac(&key, counted, Direction::Uplink, octet, IntegrityAlgorithm::EIA2);
            let [a, b] = mac.to_be_bytes();
            let message = [0xc7, octet, a, b];
            assert_eq!(mme.verify_service_request(&message), Ok(count));
            mme.use_up(count);
            assert!(mme.verify_service_request(&message).is_err(), "a replay is refused");
            assert!(mme.verify_service_request(&[0xc7, octet ^ 0x20, a, b]).is_err(), "of another key set");
            assert_eq!(mme.verify_service_request(&message[..3]), Err(SecurityFault::Truncated));
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
