//! Keys of EAP-AKA' (RFC 9048 3.3, TS 33.501 A.3, F.3).

use crate::security::kdf::{Zeroizing, build_s, kdf};
use crate::security::nas_5gs::KAusf;
use crate::security::{Autn, Ck, Ik, SecurityError};
use std::ops::Range;

/// FC of the derivation of CK' and IK' (TS 33.402 A.2).
const FC: u8 = 0x20;
/// Octets of the master key: `K_encr`, `K_aut`, `K_re`, MSK and EMSK.
const MASTER_OCTETS: usize = 208;
const K_AUT: Range<usize> = 16..48;
/// The most significant 256 bits of EMSK are KAUSF (TS 33.501 6.1.3.1 step 10).
const KAUSF: Range<usize> = 144..176;

/// CK' and IK'. `Debug` prints no key. They are overwritten on drop.
pub struct TransformedKeys {
    ck: Zeroizing<[u8; 16]>,
    ik: Zeroizing<[u8; 16]>,
}

impl TransformedKeys {
    /// Returns the keys of these octets.
    pub fn new(ck: &[u8; 16], ik: &[u8; 16]) -> Self {
        TransformedKeys { ck: Zeroizing::new(*ck), ik: Zeroizing::new(*ik) }
    }

    /// Derives the keys from CK, IK and the network name.
    ///
    /// # Errors
    ///
    /// Returns an error if the network name has more than 65,535 octets.
    pub fn derive(ck: &Ck, ik: &Ik, network_name: &[u8], autn: &Autn) -> Result<Self, SecurityError> {
        let mut key = Zeroizing::new([0; 32]);
        key[..16].copy_from_slice(ck.as_octets());
        key[16..].copy_from_slice(ik.as_octets());
        let both = kdf(&key[..], &build_s(FC, &[network_name, autn.sqn_xor_ak()])?);
        let mut keys = TransformedKeys::new(&[0; 16], &[0; 16]);
        keys.ck.copy_from_slice(&both[..16]);
        keys.ik.copy_from_slice(&both[16..]);
        Ok(keys)
    }

    /// Returns CK'.
    pub fn ck(&self) -> &[u8; 16] {
        &self.ck
    }

    /// Returns IK'.
    pub fn ik(&self) -> &[u8; 16] {
        &self.ik
    }

    /// Returns MK = PRF'(IK' | CK', "EAP-AKA'" | identity).
    fn master_key(&self, identity: &[u8]) -> Zeroizing<[u8; MASTER_OCTETS]> {
        let mut key = Zeroizing::new([0; 32]);
        key[..16].copy_from_slice(&self.ik[..]);
        key[16..].copy_from_slice(&self.ck[..]);
        let mut master = Zeroizing::new([0; MASTER_OCTETS]);
        let mut input = Zeroizing::new(Vec::with_capacity(64 + identity.len()));
        for (number, part) in (1..).zip(master.chunks_mut(32)) {
            input.extend_from_slice(b"EAP-AKA'");
            input.extend_from_slice(identity);
            input.push(number);
            let next = kdf(&key[..], &input);
            part.copy_from_slice(&next[..part.len()]);
            input.clear();
            input.extend_from_slice(&next[..]);
        }
        master
    }
}

impl std::fmt::Debug for TransformedKeys {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("TransformedKeys(..)")
    }
}

/// Keys of one authentication. `Debug` prints no key. They are overwritten on drop.
pub struct SessionKeys {
    k_aut: Zeroizing<[u8; 32]>,
    kausf: KAusf,
}

impl SessionKeys {
    /// Derives the keys of a subscriber. In 5G the identity is the SUPI: the digits of an IMSI (TS
    /// 33.501 F.3).
    pub fn derive(keys: &TransformedKeys, identity: &[u8]) -> Self {
        let master = keys.master_key(identity);
        let (mut k_aut, mut kausf) = (Zeroizing::new([0; 32]), Zeroizing::new([0; 32]));
        k_aut.copy_from_slice(&master[K_AUT]);
        kausf.copy_from_slice(&master[KAUSF]);
        SessionKeys { k_aut, kausf: KAusf::new(&kausf) }
    }

    /// Returns `K_aut`, the key of `AT_MAC`.
    pub fn k_aut(&self) -> &[u8; 32] {
        &self.k_aut
    }

    /// Returns KAUSF.
    pub fn kausf(&self) -> &KAusf {
        &self.kausf
    }
}

impl std::fmt::Debug for SessionKeys {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("SessionKeys(..)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A case of RFC 9048 appendix D.
    struct Case {
        ck_ik: [&'static str; 2],
        autn: &'static str,
        network_name: &'static [u8],
        transformed: [&'static str; 2],
        /// `K_encr`, `K_aut`, `K_re`, MSK and EMSK.
        master: [&'static str; 5],
    }

    const IDENTITY: &[u8] = b"0555444333222111";

    const CASES: [Case; 4] = [
        Case {
            ck_ik: ["5349fbe098649f948f5d2e973a81c00f", "9744871ad32bf9bbd1dd5ce54e3e2e5a"],
            autn: "bb52e91c747ac3ab2a5c23d15ee351d5",
            network_name: b"WLAN",
            transformed: ["0093962d0dd84aa5684b045c9edffa04", "ccfc230ca74fcc96c0a5d61164f5a76c"],
            master: [
                "766fa0a6c317174b812d52fbcd11a179",
                "0842ea722ff6835bfa2032499fc3ec23c2f0e388b4f07543ffc677f1696d71ea",
                "cf83aa8bc7e0aced892acc98e76a9b2095b558c7795c7094715cb3393aa7d17a",
                "67c42d9aa56c1b79e295e3459fc3d187d42be0bf818d3070e362c5e967a4d544\
                 e8ecfe19358ab3039aff03b7c930588c055babee58a02650b067ec4e9347c75a",
                "f861703cd775590e16c7679ea3874ada866311de290764d760cf76df647ea01c\
                 313f69924bdd7650ca9bac141ea075c4ef9e8029c0e290cdbad5638b63bc23fb",
            ],
        },
        Case {
            ck_ik: ["5349fbe098649f948f5d2e973a81c00f", "9744871ad32bf9bbd1dd5ce54e3e2e5a"],
            autn: "bb52e91c747ac3ab2a5c23d15ee351d5",
            network_name: b"HRPD",
            transformed: ["3820f0277fa5f77732b1fb1d90c1a0da", "db94a0ab557ef6c9ab48619ca05b9a9f"],
            master: [
                "05ad73ac915fce89ac77e1520d82187b",
                "5b4acaef62c6ebb8882b2f3d534c4b35277337a00184f20ff25d224c04be2afd",
                "3f90bf5c6e5ef325ff04eb5ef6539fa8cca8398194fbd00be425b3f40dba10ac",
                "87b321570117cd6c95ab6c436fb5073ff15cf85505d2bc5bb7355fc21ea8a757\
                 57e8f86a2b138002e05752913bb43b82f868a96117e91a2d95f526677d572900",
                "c891d5f20f148a1007553e2dea555c9cb672e9675f4a66b4bafa027379f93aee\
                 539a5979d0a0042b9d2ae28bed3b17a31dc8ab75072b80bd0c1da612466e402c",
            ],
        },
        Case {
            ck_ik: ["c0c0c0c0c0c0c0c0c0c0c0c0c0c0c0c0", "b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0"],
            autn: "a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0",
            network_name: b"WLAN",
            transformed: ["cd4c8e5c68f57dd1d7d7dfd0c538e577", "3ece6b705dbbf7dfc459a11280c65524"],
            master: [
                "897d302fa2847416488c28e20dcb7be4",
                "c40700e7722483ae3dc7139eb0b88bb558cb3081eccd057f9207d1286ee7dd53",
                "0a591a22dd8b5b1cf29e3d508c91dbbdb4aee23051892c42b6a2de66ea504473",
                "9f7dca9e37bb22029ed986e7cd09d4a70d1ac76d95535c5cac40a7504699bb89\
                 61a29ef6f3e90f183de5861ad1bedc81ce9916391b401aa006c98785a5756df7",
                "724de00bdb9e568187be3fe746114557d5018779537ee37f4d3c6c738cb97b9d\
                 c651bc19bfadc344ffe2b52ca78bd8316b51dacc5f2b1440cb9515521cc7ba23",
            ],
        },
        Case {
            ck_ik: ["c0c0c0c0c0c0c0c0c0c0c0c0c0c0c0c0", "b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0"],
            autn: "a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0",
            network_name: b"HRPD",
            transformed: ["8310a71ce6f754889613da8f64d5fb46", "5adf14360ae838192db23f6fcb7f8c76"],
            master: [
                "745e7439ba238f50fcac4d15d47cd1d9",
                "3e1d2aa4e677025cfd862a4be18361a13a645765571463df833a9759e8099879",
                "99da835e2ae82462576fe6516fad1f802f0fa1191655dd0a273da96d04e0fcd3",
                "c6d3a6e0ceea951eb20d74f32c3061d0680a04b0b086ee8700ace3e0b95fa026\
                 83c287beee44432294ff98af26d2cc783bace75c4b0af7fdfeb5511ba8e4cbd0",
                "7fb56813838adafa99d140c2f198f6dacebfb6afee444961105402b508c7f363\
                 352cb2919644b50463e6a69354150147ae09cbc54b8a651d8787a6893ed8536d",
            ],
        },
    ];

    #[test]
    fn keys_equal_cases_of_rfc_9048() {
        for case in &CASES {
            let [ck, ik] = case.ck_ik.map(|digits| hex::decode(digits).expect("hex"));
            let autn = Autn::from_slice(&hex::decode(case.autn).expect("hex")).expect("16 octets");
            let (ck, ik) = (Ck::from_slice(&ck).expect("16 octets"), Ik::from_slice(&ik).expect("16 octets"));
            let keys = TransformedKeys::derive(&ck, &ik, case.network_name, &autn).expect("a name");
            assert_eq!([hex::encode(keys.ck()), hex::encode(keys.ik())], case.transformed);
            assert_eq!(hex::encode(&keys.master_key(IDENTITY)[..]), case.master.concat());
            let session = SessionKeys::derive(&keys, IDENTITY);
            assert_eq!(hex::encode(session.k_aut()), case.master[1]);
            assert_eq!(hex::encode(session.kausf().as_octets()), case.master[4][..64]);
        }
    }
}
