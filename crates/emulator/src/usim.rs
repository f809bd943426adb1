//! USIM of one subscriber: keys, freshness of challenges and concealed identity.
//!
//! The USIM has no NAS messages and no security contexts. It answers a challenge and encodes a
//! mobile identity.

use vireo_types::{Plmn, Supi};
use vireo_wire::eap::{SessionKeys, TransformedKeys};
use vireo_wire::security::milenage::{K as LongTermKey, Milenage, Opc, Sqn, UsimResponse};
pub use vireo_wire::security::nas_5gs::HomeNetworkPublicKey;
use vireo_wire::security::nas_5gs::{
    KAmf, Protection, RoutingIndicator, Suci, Supi as SupiText, derive_kamf, derive_kausf, derive_kseaf,
};
use vireo_wire::security::nas_eps::{KAsme, derive_kasme};
use vireo_wire::security::{Autn, Rand, SecurityError};

/// Concealment of a UE's SUPI (TS 33.501 C.3).
#[derive(Clone, Debug, Default)]
pub enum Concealment {
    /// Null scheme: no concealment.
    #[default]
    Null,
    /// Profile A or B with the home network's public key.
    Ecies {
        /// Home network public key identifier, 1 to 254.
        key_id: u8,
        /// Public key; its kind selects the profile.
        key: HomeNetworkPublicKey,
    },
}

/// Long-term keys of a subscriber.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Keys {
    pub k: [u8; 16],
    /// OPc (TS 35.206), derived from OP and K.
    pub opc: [u8; 16],
}

impl std::fmt::Debug for Keys {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Keys(..)")
    }
}

/// Values of a challenge.
#[derive(Debug)]
pub struct Challenge {
    pub rand: [u8; 16],
    pub autn: [u8; 16],
}

/// Verdict of USIM and ME on a challenge (TS 24.501 5.4.1.3, TS 24.301 5.4.2), with the response
/// and the key of a system.
#[derive(Debug)]
pub enum Answer<R, K> {
    /// The challenge is from the home network and fresh.
    Accepted {
        /// RES* or RES for the response.
        res: R,
        /// K_AMF or K_ASME for the following security mode control, with the keys of EAP-AKA'.
        key: K,
    },
    /// The MAC of AUTN is wrong: cause #20.
    MacFailure,
    /// The SQN is not fresh: cause #21 with this AUTS.
    SynchFailure([u8; 14]),
    /// The separation bit of the AMF field is zero: cause #26.
    NoSeparation,
}

/// One subscriber's USIM.
#[derive(Debug)]
pub struct Usim {
    supi: Supi,
    keys: Keys,
    /// Highest SEQ accepted for each IND seen (TS 33.102 C.2.1); few in practice.
    accepted: Vec<(u8, u64)>,
    /// SEQ offset of [`Usim::run_ahead`].
    ahead: u32,
    prepared: Option<Box<[u8]>>,
}

/// IND is the low five bits of SQN (TS 33.102 C.3.2: 32 array elements).
const IND_BITS: u32 = 5;
const SQN_MASK: u64 = (1 << 48) - 1;

impl Usim {
    /// Creates the USIM of `supi` without any accepted challenge.
    pub fn new(supi: Supi, keys: Keys) -> Self {
        Usim { supi, keys, accepted: Vec::new(), ahead: 0, prepared: None }
    }

    /// Returns the USIM of the same subscriber without any accepted challenge.
    pub(crate) fn renewed(&self) -> Self {
        Usim::new(self.supi, self.keys)
    }

    /// Returns the SUPI of the subscriber.
    pub fn supi(&self) -> Supi {
        self.supi
    }

    /// Returns the 16 digits of an IMEISV that is unique to this subscriber: it uses the last
    /// digits of the IMSI.
    pub fn imeisv(&self) -> [u8; 16] {
        let mut digits = *b"3500000000000001";
        let mut rest = self.supi.as_u64() & ((1 << 56) - 1);
        for digit in digits[2..14].iter_mut().rev() {
            *digit = b'0' + (rest % 10) as u8;
            rest /= 10;
        }
        digits
    }

    /// Makes the next genuine challenge look stale. The USIM then behaves as if it had accepted
    /// sequence numbers that are `ahead` higher. The home network must resynchronise (TS 33.102
    /// 6.3.5).
    pub fn run_ahead(&mut self, ahead: u32) {
        self.ahead = ahead;
    }

    /// Verifies a challenge of 5G-AKA and derives the keys if it is valid.
    pub fn answer(
        &mut self,
        challenge: &Challenge,
        network: &[u8],
        abba: &[u8],
    ) -> Result<Answer<[u8; 16], KAmf>, SecurityError> {
        let supi = self.supi;
        self.verify(challenge, |response, autn| {
            let res_star = *response.res_star(network)?.as_octets();
            let k_ausf = derive_kausf(response.ck(), response.ik(), network, autn)?;
            let k_seaf = derive_kseaf(&k_ausf, network)?;
            let digits = supi.reveal();
            Ok((res_star, derive_kamf(&k_seaf, &SupiText::imsi(&digits)?, abba)?))
        })
    }

    /// Verifies RAND and AUTN of EAP-AKA' and derives the keys if they are valid (TS 33.501 A.3,
    /// F.3).
    pub fn answer_eap(
        &mut self,
        challenge: &Challenge,
        network: &[u8],
        abba: &[u8],
    ) -> Result<Answer<[u8; 8], (SessionKeys, KAmf)>, SecurityError> {
        let supi = self.supi;
        self.verify(challenge, |response, autn| {
            let keys = TransformedKeys::derive(response.ck(), response.ik(), network, autn)?;
            let digits = supi.reveal();
            let session = SessionKeys::derive(&keys, digits.as_bytes());
            let k_seaf = derive_kseaf(session.kausf(), network)?;
            let k_amf = derive_kamf(&k_seaf, &SupiText::imsi(&digits)?, abba)?;
            Ok((*response.res().as_octets(), (session, k_amf)))
        })
    }

    /// Verifies a challenge of EPS-AKA and derives the keys if it is valid (TS 33.401 A.2).
    pub fn answer_eps(
        &mut self,
        challenge: &Challenge,
        network: Plmn,
    ) -> Result<Answer<[u8; 8], KAsme>, SecurityError> {
        self.verify(challenge, |response, autn| {
            let network = vireo_wire::security::Plmn::new(&network.mcc(), &network.mnc());
            let network = network.map_err(SecurityError::Identity)?;
            Ok((*response.res().as_octets(), derive_kasme(response.ck(), response.ik(), network, autn)))
        })
    }

    fn verify<R, K>(
        &mut self,
        challenge: &Challenge,
        derive: impl FnOnce(&UsimResponse, &Autn) -> Result<(R, K), SecurityError>,
    ) -> Result<Answer<R, K>, SecurityError> {
        let milenage = Milenage::new(&LongTermKey::new(&self.keys.k), &Opc::new(&self.keys.opc));
        let (rand, autn) = (Rand::new(&challenge.rand), Autn::new(&challenge.autn));
        let response = match milenage.check_autn(&rand, &autn) {
            Ok(response) => response,
            Err(SecurityError::MacFailure) => return Ok(Answer::MacFailure),
            Err(error) => return Err(error),
        };
        if !response.amf().separation_bit() {
            return Ok(Answer::NoSeparation);
        }
        if !self.accept(response.sqn().get()) {
            let sqn_ms = Sqn::try_from(self.sqn_ms())?;
            return Ok(Answer::SynchFailure(*milenage.auts(&rand, &sqn_ms).as_octets()));
        }
        let (res, key) = derive(&response, &autn)?;
        Ok(Answer::Accepted { res, key })
    }

    /// Returns SQN_MS: the highest SQN accepted (TS 33.102 6.3.3).
    fn sqn_ms(&self) -> u64 {
        let newest = self.accepted.iter().max_by_key(|(_, seq)| *seq);
        newest.map_or(0, |(ind, seq)| (seq << IND_BITS | u64::from(*ind)) & SQN_MASK)
    }

    /// Accepts an SQN that is higher than the last accepted one of its IND (TS 33.102 C.2.2).
    /// Returns true if it is accepted.
    fn accept(&mut self, sqn: u64) -> bool {
        let (ind, seq) = ((sqn & ((1 << IND_BITS) - 1)) as u8, sqn >> IND_BITS);
        if self.ahead > 0 {
            let ahead = seq + u64::from(std::mem::take(&mut self.ahead));
            self.accepted = (0..1 << IND_BITS).map(|ind| (ind, ahead)).collect();
        }
        match self.accepted.iter_mut().find(|(known, _)| *known == ind) {
            Some((_, last)) if seq <= *last => false,
            Some((_, last)) => {
                *last = seq;
                true
            }
            None if seq == 0 => false,
            None => {
                // Most cores use only one IND, and there may be a million USIMs.
                self.accepted.reserve_exact(1);
                self.accepted.push((ind, seq));
                true
            }
        }
    }

    /// Computes the next SUCI in advance. Profile A costs about 50 us and Profile B about 270 us,
    /// which a load generator should spend before the load begins.
    pub fn prepare(&mut self, home: Plmn, concealment: &Concealment) -> Result<(), SuciFailure> {
        self.prepared = Some(self.conceal(home, concealment)?.into());
        Ok(())
    }

    /// Returns the mobile identity IE with the SUCI (TS 24.501 9.11.3.4).
    pub fn suci(&mut self, home: Plmn, concealment: &Concealment) -> Result<Vec<u8>, SuciFailure> {
        match self.prepared.take() {
            Some(prepared) => Ok(prepared.into()),
            None => self.conceal(home, concealment),
        }
    }

    fn conceal(&self, home: Plmn, concealment: &Concealment) -> Result<Vec<u8>, SuciFailure> {
        let digits = self.supi.reveal();
        let (mcc, mnc) = (home.mcc(), home.mnc());
        let msin = digits
            .strip_prefix(mcc.as_str())
            .and_then(|rest| rest.strip_prefix(mnc.as_str()))
            .ok_or(SuciFailure::OtherNetwork)?;
        let plmn = vireo_wire::security::Plmn::new(&mcc, &mnc).map_err(|_| SuciFailure::OtherNetwork)?;
        let protection = match concealment {
            Concealment::Null => Protection::Null,
            Concealment::Ecies { key_id, key } => Protection::Ecies { key_id: *key_id, key },
        };
        let suci = Suci::conceal_imsi(plmn, msin, RoutingIndicator::default(), protection)
            .map_err(|e| SuciFailure::Concealment(e.to_string()))?;
        suci.to_nas_octets().map_err(|e| SuciFailure::Concealment(e.to_string()))
    }
}

/// Reason for which the SUCI could not be computed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SuciFailure {
    /// The IMSI does not begin with the home network's digits.
    #[error("the IMSI does not begin with the PLMN: give --imsi and --plmn that belong together")]
    OtherNetwork,
    #[error("the SUPI could not be concealed: {0}")]
    Concealment(String),
}

#[cfg(test)]
mod tests {
    use super::*;
    use vireo_wire::security::milenage::Amf;

    const K_: [u8; 16] = [0x46; 16];
    const OPC: [u8; 16] = [0xe8; 16];
    const NETWORK: &[u8] = b"5G:mnc070.mcc999.3gppnetwork.org";

    fn usim() -> Usim {
        let supi = "999700000000001".parse().expect("digits");
        Usim::new(supi, Keys { k: K_, opc: OPC })
    }

    fn challenge(sqn: u64, amf: [u8; 2]) -> Challenge {
        let home = Milenage::new(&LongTermKey::new(&K_), &Opc::new(&OPC));
        let rand = Rand::new(&[7; 16]);
        let sqn = Sqn::try_from(sqn).expect("48 bits");
        let vector = home.authentication_vector(&rand, &sqn, &Amf::new(&amf));
        Challenge { rand: [7; 16], autn: *vector.autn().as_octets() }
    }

    #[test]
    fn fresh_challenge_is_accepted_once() {
        let mut usim = usim();
        let first = challenge(0x40, [0x80, 0]);
        assert!(matches!(usim.answer(&first, NETWORK, &[0, 0]), Ok(Answer::Accepted { .. })));
        let Ok(Answer::SynchFailure(auts)) = usim.answer(&first, NETWORK, &[0, 0]) else { panic!("a replay is fresh") };
        let home = Milenage::new(&LongTermKey::new(&K_), &Opc::new(&OPC));
        let auts = vireo_wire::security::milenage::Auts::new(&auts);
        assert_eq!(home.verify_auts(&Rand::new(&[7; 16]), &auts).map(|sqn| sqn.get()), Ok(0x40));
        // Another IND has independent freshness.
        let other = challenge(0x41, [0x80, 0]);
        assert!(matches!(usim.answer(&other, NETWORK, &[0, 0]), Ok(Answer::Accepted { .. })));
    }

    #[test]
    fn usim_ahead_requests_resynchronisation() {
        let mut usim = usim();
        usim.run_ahead(1 << 20);
        let stale = challenge(0x40, [0x80, 0]);
        assert!(matches!(usim.answer(&stale, NETWORK, &[0, 0]), Ok(Answer::SynchFailure(_))));
        assert!(matches!(usim.answer(&stale, NETWORK, &[0, 0]), Ok(Answer::SynchFailure(_))));
        let fresh = challenge(((1 << 20) + 3) << 5, [0x80, 0]);
        assert!(matches!(usim.answer(&fresh, NETWORK, &[0, 0]), Ok(Answer::Accepted { .. })));
    }

    #[test]
    fn forged_and_foreign_challenges_are_told_apart() {
        let mut forged = challenge(0x40, [0x80, 0]);
        forged.autn[15] ^= 1;
        assert!(matches!(usim().answer(&forged, NETWORK, &[0, 0]), Ok(Answer::MacFailure)));
        let other = challenge(0x40, [0, 0]);
        assert!(matches!(usim().answer(&other, NETWORK, &[0, 0]), Ok(Answer::NoSeparation)));
        let home = "99970".parse().expect("digits");
        assert!(matches!(usim().answer_eps(&other, home), Ok(Answer::NoSeparation)));
    }

    #[test]
    fn eps_challenge_yields_keys_of_home_network() {
        let home = Milenage::new(&LongTermKey::new(&K_), &Opc::new(&OPC));
        let sqn = Sqn::try_from(0x40u64).expect("48 bits");
        let vector = home.authentication_vector(&Rand::new(&[7; 16]), &sqn, &Amf::new(&[0x80, 0]));
        let network = vireo_wire::security::Plmn::new("999", "70").expect("digits");
        let k_asme = derive_kasme(vector.ck(), vector.ik(), network, vector.autn());
        let mut usim = usim();
        let answer = usim.answer_eps(&challenge(0x40, [0x80, 0]), "99970".parse().expect("digits"));
        let Ok(Answer::Accepted { res, key }) = answer else { panic!("the challenge is genuine") };
        assert_eq!((&res, key.as_octets()), (vector.xres().as_octets(), k_asme.as_octets()));
        // One USIM serves both systems: freshness is common.
        assert!(matches!(usim.answer(&challenge(0x40, [0x80, 0]), NETWORK, &[0, 0]), Ok(Answer::SynchFailure(_))));
    }

    #[test]
    fn null_scheme_suci_has_octets_of_specification() {
        let home: Plmn = "99970".parse().expect("digits");
        let suci = usim().suci(home, &Concealment::Null).expect("belongs to the network");
        // SUPI format IMSI, PLMN, routing indicator 0, null scheme, key 0, MSIN 0000000001
        assert_eq!(suci, [1, 0x99, 0xf9, 0x07, 0xf0, 0xff, 0, 0, 0, 0, 0, 0, 0x10]);
        let mut prepared = usim();
        prepared.prepare(home, &Concealment::Null).expect("belongs to the network");
        assert_eq!(prepared.suci(home, &Concealment::Null), Ok(suci.clone()));
        assert_eq!(prepared.suci(home, &Concealment::Null), Ok(suci));
        assert_eq!(usim().suci("00101".parse().expect("digits"), &Concealment::Null), Err(SuciFailure::OtherNetwork));
        assert_eq!(&usim().imeisv(), b"3570000000000101");
    }
}
