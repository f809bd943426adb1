//! Published 3GPP test data for the security functions that Vireo uses.
//!
//! Each algorithm has one set. A wrong or miscompiled algorithm fails here, because the library's
//! own tests do not run with Vireo's.

use vireo_wire::security::milenage::{Amf, K, Milenage, Op, Opc, Sqn};
use vireo_wire::security::nas_5gs::{HomeNetworkPrivateKey, Suci};
use vireo_wire::security::nas_eps::{KNasEnc, KNasInt};
use vireo_wire::security::{
    Bearer, CipheringAlgorithm, Direction, IntegrityAlgorithm, Rand, nea_cipher_bits, nia_mac_bits,
};

fn octets(digits: &str) -> Vec<u8> {
    hex::decode(digits).expect("hexadecimal digits")
}

/// Test set of a ciphering algorithm: key, COUNT, BEARER, DIRECTION, length in bits, plaintext and
/// ciphertext.
struct Ciphering(CipheringAlgorithm, &'static str, u32, u8, u8, u64, &'static str, &'static str);

#[test]
fn ciphering_gives_the_published_ciphertexts() {
    let sets = [
        // TS 33.401 C.3: set 1 of UEA2 (TS 35.218)
        Ciphering(
            CipheringAlgorithm::EEA1,
            "d3c5d592327fb11c4035c6680af8c6d1",
            0x398a_59b4,
            0x15,
            1,
            253,
            "981ba6824c1bfb1ab485472029b71d808ce33e2cc3c0b5fc1f3de8a6dc66b1f0",
            "5d5bfe75eb04f68ce0a12377ea00b37d47c6a0ba06309155086a859c4341b378",
        ),
        // TS 33.401 C.1.1
        Ciphering(
            CipheringAlgorithm::EEA2,
            "d3c5d592327fb11c4035c6680af8c6d1",
            0x398a_59b4,
            0x15,
            1,
            253,
            "981ba6824c1bfb1ab485472029b71d808ce33e2cc3c0b5fc1f3de8a6dc66b1f0",
            "e9fed8a63d155304d71df20bf3e82214b20ed7dad2f233dc3c22d7bdeeed8e78",
        ),
        // TS 35.223: 128-EEA3 test set 1
        Ciphering(
            CipheringAlgorithm::EEA3,
            "173d14ba5003731d7a60049470f00a29",
            0x6603_5492,
            0x0f,
            0,
            193,
            "6cf65340735552ab0c9752fa6f9025fe0bd675d9005875b200",
            "a6c85fc66afb8533aafc2518dfe784940ee1e4b030238cc800",
        ),
    ];
    for Ciphering(algorithm, key, count, bearer, direction, bits, plain, ciphered) in sets {
        let key = KNasEnc::from_slice(&octets(key)).expect("16 octets");
        let (bearer, direction) =
            (Bearer::new(bearer).expect("5 bits"), Direction::try_from(direction).expect("a bit"));
        let mut data = octets(plain);
        nea_cipher_bits(&key, count, bearer, direction, &mut data, bits, algorithm).expect("enough octets");
        let last = data.len() - 1;
        let bits_of_last = 0xff_u8 << ((8 - bits % 8) % 8);
        let wanted = octets(ciphered);
        assert_eq!(data[..last], wanted[..last], "{algorithm:?}");
        assert_eq!(data[last] & bits_of_last, wanted[last] & bits_of_last, "{algorithm:?}");
    }
}

/// Test set of an integrity algorithm: key, COUNT, BEARER (or FRESH's top bits), DIRECTION, length
/// in bits, message and MAC.
struct Integrity(IntegrityAlgorithm, &'static str, u32, u8, u8, u64, &'static str, u32);

#[test]
fn integrity_gives_the_published_macs() {
    let sets = [
        // TS 33.401 C.4: set 1 of UIA2 (TS 35.217)
        Integrity(
            IntegrityAlgorithm::EIA1,
            "2bd6459f82c5b300952c49104881ff48",
            0x38a6_f056,
            0x1f,
            0,
            88,
            "33323462633938613734790000000000",
            0x731f_1165,
        ),
        // TS 33.401 C.2.1
        Integrity(
            IntegrityAlgorithm::EIA2,
            "2bd6459f82c5b300952c49104881ff48",
            0x38a6_f056,
            0x18,
            0,
            58,
            "3332346263393840",
            0x118c_6eb8,
        ),
        // TS 33.401 C.2.2
        Integrity(
            IntegrityAlgorithm::EIA2,
            "d3c5d592327fb11c4035c6680af8c6d1",
            0x398a_59b4,
            0x1a,
            1,
            64,
            "484583d5afe082ae",
            0xb937_87e6,
        ),
        // TS 35.223: 128-EIA3 test sets 1 and 2
        Integrity(IntegrityAlgorithm::EIA3, "00000000000000000000000000000000", 0, 0, 0, 1, "00000000", 0xc8a9_595e),
        Integrity(
            IntegrityAlgorithm::EIA3,
            "47054125561eb2dda94059da05097850",
            0x561e_b2dd,
            0x14,
            0,
            90,
            "000000000000000000000000",
            0x6719_a088,
        ),
    ];
    for Integrity(algorithm, key, count, bearer, direction, bits, message, mac) in sets {
        let key = KNasInt::from_slice(&octets(key)).expect("16 octets");
        let (bearer, direction) =
            (Bearer::new(bearer).expect("5 bits"), Direction::try_from(direction).expect("a bit"));
        let seen = nia_mac_bits(&key, count, bearer, direction, &octets(message), bits, algorithm);
        assert_eq!(seen, Ok(mac), "{algorithm:?}");
    }
}

#[test]
fn milenage_gives_the_published_outputs() {
    // TS 35.208 4.3: test set 1
    let k = K::from_slice(&octets("465b5ce8b199b49faa5f0a2ee238a6bc")).expect("16 octets");
    let op = Op::from_slice(&octets("cdc202d5123e20f62b6d676ac72cb318")).expect("16 octets");
    let opc = Opc::from_op(&k, &op);
    assert_eq!(opc.as_octets()[..], octets("cd63cb71954a9f4e48a5994e37a02baf"));
    let rand = Rand::from_slice(&octets("23553cbe9637a89d218ae64dae47bf35")).expect("16 octets");
    let (sqn, amf) = (Sqn::try_from(0xff9b_b4d0_b607).expect("48 bits"), Amf::new(&[0xb9, 0xb9]));
    let card = Milenage::new(&k, &opc);
    assert_eq!(card.f1(&rand, &sqn, &amf).as_octets()[..], octets("4a9ffac354dfafb3"));
    assert_eq!(card.f1_star(&rand, &sqn, &amf).as_octets()[..], octets("01cfaf9ec4e871e9"));
    assert_eq!(card.f2(&rand).as_octets()[..], octets("a54211d5e3ba50bf"));
    assert_eq!(card.f3(&rand).as_octets()[..], octets("b40ba9a3c58b2a05bbf0d987b21bf8cb"));
    assert_eq!(card.f4(&rand).as_octets()[..], octets("f769bcd751044604127672711c6d3441"));
    assert_eq!(card.f5(&rand).as_octets()[..], octets("aa689c648370"));
    assert_eq!(card.f5_star(&rand).as_octets()[..], octets("451e8beca43b"));
}

#[test]
fn specification_sucis_deconceal() {
    // TS 33.501 C.4.3.1 (Profile A) and C.4.4.1 (Profile B): IMSI 274 012 001002086
    let a = octets("c53c22208b61860b06c62e5406a7b330c2b577aa5558981510d128247d38bd1d");
    let b = octets("f1ab1074477ebcc7f554ea1c5fc368b1616730155e0041ac447d6301975fecda");
    let a = HomeNetworkPrivateKey::profile_a(&a.try_into().expect("32 octets"));
    let b = HomeNetworkPrivateKey::profile_b(&b.try_into().expect("32 octets")).expect("a scalar of the curve");
    let output_a = "b2e92f836055a255837debf850b528997ce0201cb82adfe4be1f587d07d8457dcb02352410cddd9e730ef3fa87";
    let output_b = "039aab8376597021e855679a9778ea0b67396e68c66df32c0f41e9acca2da9b9d146a33fc2716ac7dae96aa30a4d";
    for (header, output, key) in [("01722410f0ff011b", output_a, &a), ("01722410f0ff021b", output_b, &b)] {
        let identity = octets(&format!("{header}{output}"));
        let suci = Suci::from_nas_octets(&identity).expect("a SUCI");
        assert_eq!(suci.deconceal(Some(key)).expect("it de-conceals").to_string(), "imsi-274012001002086");
        let mut wrong = identity.clone();
        *wrong.last_mut().expect("octets") ^= 1;
        assert!(Suci::from_nas_octets(&wrong).expect("a SUCI").deconceal(Some(key)).is_err(), "a wrong MAC tag");
    }
}
