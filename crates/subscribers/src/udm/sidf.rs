//! Subscription identifier de-concealing function (TS 33.501 6.12.5, Annex C).

use vireo_types::Supi;
use vireo_wire::security::nas_5gs::{HomeNetworkPrivateKey, ProtectionScheme, Suci, SuciError};

/// An ECIES profile of TS 33.501 Annex C.3.4.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Profile {
    /// Curve X25519.
    A,
    /// Curve secp256r1.
    B,
}

/// A private key of the home network. `Debug` does not print it.
#[derive(Debug)]
pub struct HomeNetworkKey {
    /// Home network public key identifier (TS 23.003 2.2B), 1 to 254.
    pub id: u8,
    key: HomeNetworkPrivateKey,
}

/// Reasons why octets are not a home network key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HomeNetworkKeyError {
    /// The identifier is 0 (null scheme) or 255 (reserved).
    #[error("a home network key identifier is 1 to 254")]
    Id,
    /// The scalar is zero or not below the order of the curve.
    #[error("these 32 octets are no private key of secp256r1: make one with vireo subscriber hn-key")]
    Scalar,
    /// The system has no random numbers.
    #[error("the system gives no random numbers")]
    Random,
}

impl HomeNetworkKey {
    /// Creates a key from 32 octets.
    pub fn new(id: u8, profile: Profile, private: &[u8; 32]) -> Result<Self, HomeNetworkKeyError> {
        Self::check_id(id)?;
        let key = match profile {
            Profile::A => HomeNetworkPrivateKey::profile_a(private),
            Profile::B => HomeNetworkPrivateKey::profile_b(private).map_err(|_| HomeNetworkKeyError::Scalar)?,
        };
        Ok(HomeNetworkKey { id, key })
    }

    /// Returns an error if a key cannot have this identifier.
    pub fn check_id(id: u8) -> Result<(), HomeNetworkKeyError> {
        if matches!(id, 0 | 255) { Err(HomeNetworkKeyError::Id) } else { Ok(()) }
    }

    /// Creates a random key. Returns also its 32 private octets.
    pub fn generate(id: u8, profile: Profile) -> Result<(Self, [u8; 32]), HomeNetworkKeyError> {
        loop {
            let mut private = [0; 32];
            getrandom::fill(&mut private).map_err(|_| HomeNetworkKeyError::Random)?;
            match Self::new(id, profile, &private) {
                // One number in 2^32 is above the order of the curve.
                Err(HomeNetworkKeyError::Scalar) => {}
                made => return made.map(|key| (key, private)),
            }
        }
    }

    /// Returns the public key for USIMs: 32 octets, or 33 octets of a compressed point.
    pub fn public(&self) -> Vec<u8> {
        self.key.public_key().to_octets()
    }

    /// Returns the public key of Profile B as an uncompressed point of 65 octets (SEC 1 2.3.3),
    /// which some tools for USIMs need. Profile A has no other form.
    pub fn uncompressed(&self) -> Option<Vec<u8>> {
        use p256::elliptic_curve::sec1::ToSec1Point;
        if self.profile() == Profile::A {
            return None;
        }
        let point = p256::PublicKey::from_sec1_bytes(&self.public()).ok()?;
        Some(point.to_sec1_point(false).as_bytes().to_vec())
    }

    /// Returns the profile of the key.
    pub fn profile(&self) -> Profile {
        if self.key.scheme() == ProtectionScheme::PROFILE_A { Profile::A } else { Profile::B }
    }
}

/// A SUCI cannot be parsed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("octets are not the SUCI of an IMSI")]
pub(super) struct Malformed;

/// Returns the SUPI of a null-scheme SUCI (TS 24.501 9.11.3.4), without an allocation; `None` if
/// the SUPI is concealed.
pub(super) fn in_clear(identity: &[u8]) -> Result<Option<Supi>, Malformed> {
    // Type of identity 1. SUPI formats 1 to 3 are NAIs, which contain no IMSI.
    if identity.len() < 9 || identity[0] & 7 != 1 || matches!(identity[0] >> 4 & 7, 1..=3) {
        return Err(Malformed);
    }
    if identity[6] & 0xf != 0 {
        return Ok(None);
    }
    let mut digits = Digits::default();
    let [a, b, c] = [identity[1], identity[2], identity[3]];
    for nibble in [a, a >> 4, b, c, c >> 4] {
        digits.push(nibble)?;
    }
    if b >> 4 != 0xf {
        digits.push(b >> 4)?;
    }
    let (last, whole) = identity[8..].split_last().ok_or(Malformed)?;
    for octet in whole {
        digits.push(*octet)?;
        digits.push(octet >> 4)?;
    }
    digits.push(*last)?;
    if last >> 4 != 0xf {
        digits.push(last >> 4)?;
    }
    digits.supi().map(Some)
}

#[derive(Default)]
struct Digits {
    text: [u8; 15],
    len: usize,
}

impl Digits {
    fn push(&mut self, nibble: u8) -> Result<(), Malformed> {
        let digit = nibble & 0xf;
        *self.text.get_mut(self.len).filter(|_| digit <= 9).ok_or(Malformed)? = b'0' + digit;
        self.len += 1;
        Ok(())
    }

    fn supi(&self) -> Result<Supi, Malformed> {
        let text = std::str::from_utf8(&self.text[..self.len]).map_err(|_| Malformed)?;
        Supi::from_digits(text).map_err(|_| Malformed)
    }
}

/// Returns the SUPI of a SUCI of any scheme. Takes 50 to 300 us for a profile, so it needs threads
/// of its own.
pub(super) fn deconceal(identity: &[u8], keys: &[HomeNetworkKey]) -> Result<Supi, SuciError> {
    let suci = Suci::from_nas_octets(identity)?;
    let (id, scheme) = (suci.home_network_public_key_id(), suci.protection_scheme());
    let key = keys.iter().find(|k| k.id == id && k.key.scheme() == scheme);
    let supi = suci.deconceal(key.map(|k| &k.key))?;
    supi.identity().parse().map_err(|_| SuciError::Plaintext)
}

#[cfg(test)]
mod tests {
    use super::*;
    use vireo_wire::security::Plmn;
    use vireo_wire::security::nas_5gs::{Protection, RoutingIndicator};

    #[test]
    fn null_scheme_suci_matches_security_crate() {
        for (mcc, mnc, msin) in [("999", "70", "0000000001"), ("310", "410", "123456789"), ("001", "01", "1")] {
            let plmn = Plmn::new(mcc, mnc).expect("a PLMN");
            let suci = Suci::conceal_imsi(plmn, msin, RoutingIndicator::default(), Protection::Null);
            let octets = suci.expect("null scheme").to_nas_octets().expect("an IMSI");
            let supi = format!("{mcc}{mnc}{msin}").parse().expect("an IMSI");
            assert_eq!(in_clear(&octets), Ok(Some(supi)));
            assert_eq!(deconceal(&octets, &[]), Ok(supi));
        }
    }

    #[test]
    fn malformed_suci_is_refused() {
        let good = [0x01, 0x99, 0xf9, 0x07, 0xf0, 0xff, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x10];
        assert_eq!(in_clear(&good), Ok(Some("999700000000001".parse().expect("an IMSI"))));
        for end in 0..9 {
            assert!(in_clear(&good[..end]).is_err(), "{end}");
        }
        for first in [0x02, 0x11, 0x21, 0x31] {
            let mut bad = good;
            bad[0] = first;
            assert_eq!(in_clear(&bad), Err(Malformed), "{first:#x}");
        }
        let long = [&good[..], &[0x11]].concat();
        assert_eq!(in_clear(&long), Err(Malformed), "17 digits");
        let mut letter = good;
        letter[10] = 0x0a;
        assert_eq!(in_clear(&letter), Err(Malformed));
    }

    proptest::proptest! {
        /// Compares this parser of the null scheme with the security crate's, on octets near a
        /// SUCI.
        #[test]
        fn suci_readers_agree(
            head in proptest::sample::select(vec![0x01u8, 0x01, 0x41, 0x11, 0x02]),
            scheme in proptest::sample::select(vec![0u8, 0, 0, 1, 0xf0]),
            plmn in proptest::array::uniform3(proptest::sample::select(vec![0x99u8, 0xf9, 0x07, 0x00, 0x1a])),
            msin in proptest::collection::vec(proptest::sample::select(vec![0x00u8, 0x21, 0x99, 0xf1, 0x0f, 0xa0]), 0..8),
        ) {
            let octets = [&[head][..], &plmn, &[0xf0, 0xff, scheme, 0], &msin].concat();
            let ours = in_clear(&octets);
            match deconceal(&octets, &[]) {
                Ok(supi) => proptest::prop_assert_eq!(ours, Ok(Some(supi))),
                Err(_) => proptest::prop_assert!(!matches!(ours, Ok(Some(_))), "{:02x?} {:?}", octets, ours),
            }
        }

        #[test]
        fn no_octets_make_a_reader_panic(octets in proptest::collection::vec(proptest::num::u8::ANY, 0..80)) {
            let _ = (in_clear(&octets), deconceal(&octets, &[]));
        }
    }

    /// SUCIs of TS 33.501 Annex C.4.3 (Profile A) and C.4.4 (Profile B).
    #[test]
    fn specified_sucis_deconceal() {
        let key = |id, profile, text: &str| {
            let octets: [u8; 32] = hex::decode(text).expect("hex").try_into().expect("32 octets");
            HomeNetworkKey::new(id, profile, &octets).expect("a key")
        };
        let keys = [
            key(27, Profile::A, "c53c22208b61860b06c62e5406a7b330c2b577aa5558981510d128247d38bd1d"),
            key(27, Profile::B, "f1ab1074477ebcc7f554ea1c5fc368b1616730155e0041ac447d6301975fecda"),
        ];
        let suci = |scheme: u8, output: &str| {
            let head = [0x01, 0x72, 0x24, 0x10, 0xf0, 0xff, scheme, 27];
            [&head[..], &hex::decode(output).expect("hex")].concat()
        };
        let a = suci(1, "b2e92f836055a255837debf850b528997ce0201cb82adfe4be1f587d07d8457dcb02352410cddd9e730ef3fa87");
        let b = suci(2, "039aab8376597021e855679a9778ea0b67396e68c66df32c0f41e9acca2da9b9d146a33fc2716ac7dae96aa30a4d");
        let supi = "274012001002086".parse().expect("an IMSI");
        assert_eq!((deconceal(&a, &keys), deconceal(&b, &keys)), (Ok(supi), Ok(supi)));
        assert_eq!(in_clear(&a), Ok(None));
        let mut forged = a.clone();
        *forged.last_mut().expect("a MAC tag") ^= 1;
        assert_eq!(deconceal(&forged, &keys), Err(SuciError::MacMismatch));
        assert_eq!(deconceal(&a, &keys[1..]), Err(SuciError::MissingKey), "the other scheme's key");
        assert!(deconceal(&suci(3, "00"), &keys).is_err());
    }

    /// TS 33.501 C.4.4.1.
    #[test]
    fn public_key_of_profile_b_has_both_forms() {
        let mut private = [0; 32];
        let digits = "f1ab1074477ebcc7f554ea1c5fc368b1616730155e0041ac447d6301975fecda";
        hex::decode_to_slice(digits, &mut private).expect("32 octets");
        let key = HomeNetworkKey::new(2, Profile::B, &private).expect("a key");
        let x = "72da71976234ce833a6907425867b82e074d44ef907dfb4b3e21c1c2256ebcd1";
        let y = "5a7ded52fcbb097a4ed250e036c7b9c8c7004c4eedc4f068cd7bf8d3f900e3b4";
        assert_eq!(hex::encode(key.public()), format!("02{x}"));
        assert_eq!(key.uncompressed().map(hex::encode), Some(format!("04{x}{y}")));
        assert_eq!(HomeNetworkKey::new(2, Profile::A, &private).expect("a key").uncompressed(), None);
    }
}
