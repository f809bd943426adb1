//! AKA, NAS security and SUCIs of a lab subscriber, as computed by OpenSSL.
//!
//! The values come from tests/reference/security_values.py.

use crate::case::security as computed;
use crate::values::octets;
use vireo_wire::nas::*;
use vireo_wire::security::milenage::{Amf, Auts, K, Milenage, Opc, Sqn};
use vireo_wire::security::nas_5gs::{
    HomeNetworkPrivateKey, KAmf, Suci, Supi, derive_kamf, derive_kausf, derive_kgnb, derive_knas_enc, derive_knas_int,
    derive_kseaf,
};
use vireo_wire::security::{self, NasCount, Rand};

pub(crate) const NETWORK: &[u8] = b"5G:mnc070.mcc999.3gppnetwork.org";
pub(crate) const SQN: u64 = 0xc0_ffee;

pub(crate) fn card() -> Milenage {
    let k = K::from_slice(&octets("465b5ce8b199b49faa5f0a2ee238a6bc")).expect("16 octets");
    let opc = Opc::from_slice(&octets("e8ed289deba952e4283b54e88e6183ca")).expect("16 octets");
    Milenage::new(&k, &opc)
}

pub(crate) fn rand() -> Rand {
    Rand::from_slice(&octets("23553cbe9637a89d218ae64dae47bf35")).expect("16 octets")
}

#[test]
fn key_chain_equals_openssl() {
    let wanted = computed();
    let sqn = Sqn::try_from(SQN).expect("48 bits");
    let vector = card().authentication_vector(&rand(), &sqn, &Amf::new(&[0x80, 0]));
    assert_eq!(vector.autn().as_octets()[..], wanted["autn"]);
    assert_eq!(vector.xres_star(NETWORK).expect("a name").as_octets()[..], wanted["xres_star"]);
    let kausf = derive_kausf(vector.ck(), vector.ik(), NETWORK, vector.autn()).expect("a name");
    let kseaf = derive_kseaf(&kausf, NETWORK).expect("a name");
    assert_eq!(kseaf.as_octets()[..], wanted["kseaf"]);
    let supi = Supi::parse("imsi-999700000000001").expect("a SUPI");
    let kamf = derive_kamf(&kseaf, &supi, &[0, 0]).expect("an ABBA");
    assert_eq!(kamf.as_octets()[..], wanted["kamf"]);
    assert_eq!(derive_kgnb(&kamf, NasCount::ZERO).as_octets()[..], wanted["kgnb"]);
    for (name, algorithm) in
        [("knas_enc_1", security::CipheringAlgorithm::NEA1), ("knas_enc_2", security::CipheringAlgorithm::NEA2)]
    {
        assert_eq!(derive_knas_enc(&kamf, algorithm).as_octets()[..], wanted[name], "{name}");
    }
    for (name, algorithm) in
        [("knas_int_2", security::IntegrityAlgorithm::NIA2), ("knas_int_3", security::IntegrityAlgorithm::NIA3)]
    {
        assert_eq!(derive_knas_int(&kamf, algorithm).as_octets()[..], wanted[name], "{name}");
    }
}

#[test]
fn eps_key_chain_equals_openssl() {
    use vireo_wire::security::nas_eps::{derive_kasme, derive_kenb, derive_knas_enc, derive_knas_int, derive_nh};
    let wanted = computed();
    let vector = card().authentication_vector(&rand(), &Sqn::try_from(SQN).expect("48 bits"), &Amf::new(&[0x80, 0]));
    let network = security::Plmn::new("999", "70").expect("a PLMN");
    let kasme = derive_kasme(vector.ck(), vector.ik(), network, vector.autn());
    assert_eq!(kasme.as_octets()[..], wanted["kasme"]);
    let kenb = derive_kenb(&kasme, NasCount::new(300).expect("24 bits"));
    assert_eq!(kenb.as_octets()[..], wanted["kenb_300"]);
    let first = derive_nh(&kasme, &kenb);
    assert_eq!(first.as_octets()[..], wanted["nh_1"]);
    assert_eq!(derive_nh(&kasme, &first).as_octets()[..], wanted["nh_2"]);
    for code in 1..=3 {
        let ciphering = security::CipheringAlgorithm::try_from(code).expect("an algorithm");
        let integrity = security::IntegrityAlgorithm::try_from(code).expect("an algorithm");
        let (enc, int) = (derive_knas_enc(&kasme, ciphering), derive_knas_int(&kasme, integrity));
        assert_eq!(enc.as_octets()[..], wanted[&format!("eps_knas_enc_{code}")]);
        assert_eq!(int.as_octets()[..], wanted[&format!("eps_knas_int_{code}")]);
    }
}

/// TS 33.401 C.1.1 and C.2.2; `security_vectors` has the values that the specification prints.
#[test]
fn annex_c_sets_equal_openssl() {
    use vireo_wire::security::nas_eps::{KNasEnc, KNasInt};
    use vireo_wire::security::{Bearer, CipheringAlgorithm, Direction, IntegrityAlgorithm};
    let (wanted, key, count) = (computed(), octets("d3c5d592327fb11c4035c6680af8c6d1"), 0x398a_59b4);
    let bearer = |number| Bearer::new(number).expect("5 bits");
    let mut data = octets("981ba6824c1bfb1ab485472029b71d808ce33e2cc3c0b5fc1f3de8a6dc66b1f0");
    let enc = KNasEnc::from_slice(&key).expect("16 octets");
    let (way, eea2) = (Direction::Downlink, CipheringAlgorithm::EEA2);
    security::nea_cipher_bits(&enc, count, bearer(0x15), way, &mut data, 253, eea2).expect("enough octets");
    data[31] &= 0xf8;
    assert_eq!(data, wanted["annex_c_eea2"]);
    let (int, message) = (KNasInt::from_slice(&key).expect("16 octets"), octets("484583d5afe082ae"));
    let mac = security::nia_mac_bits(&int, count, bearer(0x1a), way, &message, 64, IntegrityAlgorithm::EIA2);
    assert_eq!(mac.expect("enough octets").to_be_bytes()[..], wanted["annex_c_eia2"]);
}

#[test]
fn openssl_auts_yields_sequence_number() {
    let auts = Auts::from_slice(&computed()["auts"]).expect("14 octets");
    assert_eq!(card().verify_auts(&rand(), &auts).expect("the MAC-S is right").get(), SQN);
}

/// Returns a context with NIA2 and NEA2 whose next NAS COUNT is `count` in both directions.
fn context(count: u32) -> NasSecurityContext {
    let kamf = KAmf::from_slice(&computed()["kamf"]).expect("32 octets");
    let next = Some(NasCount::new(count).expect("24 bits"));
    let (nia, nea) = (IntegrityAlgorithm::NIA2, CipheringAlgorithm::NEA2);
    NasSecurityContext::restore_from_kamf(&kamf, nia, nea, (next, next), (None, None)).expect("counts")
}

#[test]
fn protected_messages_equal_openssl() {
    use Nas5gsSecurityHeaderType as Header;
    let (wanted, plain) = (computed(), crate::case::golden());
    let cases = [
        ("SecurityModeCommand", Header::IntegrityProtectedWithNewFiveGNasSecurityContext, "down", 0),
        ("SecurityModeComplete", Header::IntegrityProtectedAndCipheredWithNewFiveGNasSecurityContext, "up", 0),
        ("RegistrationAccept", Header::IntegrityProtectedAndCiphered, "down", 1),
        ("RegistrationComplete", Header::IntegrityProtectedAndCiphered, "up", 300),
        ("ServiceRequest", Header::IntegrityProtected, "up", 301),
    ];
    for (name, header, way, count) in cases {
        let direction = if way == "up" { Direction::Uplink } else { Direction::Downlink };
        let octets = &wanted[&format!("{name}-{way}-{count}")];
        let message = Nas5gsMessage::decode(&plain[name]).expect(name);
        let made = context(count).protect(&message, header, direction).expect(name);
        assert_eq!(made, *octets, "{name}");
        let read = context(count).unprotect(octets, direction).expect(name);
        assert_eq!((read.message, read.count.get()), (message, count), "{name}");
        let mut wrong = octets.clone();
        wrong[3] ^= 0x10;
        assert!(context(count).unprotect(&wrong, direction).is_err(), "{name} with a wrong MAC");
        assert!(context(count + 1).unprotect(octets, direction).is_err(), "{name} replayed");
    }
}

#[test]
fn sucis_of_openssl_deconceal() {
    let a = octets("c53c22208b61860b06c62e5406a7b330c2b577aa5558981510d128247d38bd1d");
    let b = octets("f1ab1074477ebcc7f554ea1c5fc368b1616730155e0041ac447d6301975fecda");
    let a = HomeNetworkPrivateKey::profile_a(&a.try_into().expect("32 octets"));
    let b = HomeNetworkPrivateKey::profile_b(&b.try_into().expect("32 octets")).expect("a scalar of the curve");
    for (name, key) in [("suci_a", a), ("suci_b", b)] {
        let wanted = computed();
        let suci = Suci::from_nas_octets(&wanted[name]).expect(name);
        assert_eq!(suci.deconceal(Some(&key)).expect(name).to_string(), "imsi-999700000000001");
    }
}
