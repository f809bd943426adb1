//! 5G HE authentication vector (TS 33.501 6.1.3.2 step 1, TS 33.102 6.3.2).

use vireo_core::subscription::{AuthenticationInfo, Resync, Subscription};
use vireo_types::{Plmn, Supi};
use vireo_wire::security::Rand;
use vireo_wire::security::milenage::{Amf, Auts, K, Milenage, Opc, Sqn};
use vireo_wire::security::nas_5gs::{derive_kausf, derive_kseaf};
use zeroize::{Zeroize, ZeroizeOnDrop};

/// Secrets of one subscriber, for the duration of one computation.
#[derive(Zeroize, ZeroizeOnDrop)]
pub(super) struct Credentials {
    pub(super) k: [u8; 16],
    pub(super) opc: [u8; 16],
    pub(super) amf: [u8; 2],
}

impl Credentials {
    fn milenage(&self) -> Milenage {
        Milenage::new(&K::new(&self.k), &Opc::new(&self.opc))
    }

    /// Computes the vector; `None` only for an SQN above 48 bits.
    pub(super) fn vector(
        &self,
        supi: Supi,
        sqn: u64,
        rand: [u8; 16],
        serving_network: Plmn,
        subscription: Subscription,
    ) -> Option<AuthenticationInfo> {
        let name = serving_network_name(serving_network);
        let (sqn, amf) = (Sqn::try_from(sqn).ok()?, Amf::new(&self.amf));
        let vector = self.milenage().authentication_vector(&Rand::new(&rand), &sqn, &amf);
        let kausf = derive_kausf(vector.ck(), vector.ik(), &name, vector.autn()).ok()?;
        Some(AuthenticationInfo {
            supi,
            rand,
            autn: *vector.autn().as_octets(),
            xres_star: *vector.xres_star(&name).ok()?.as_octets(),
            kseaf: *derive_kseaf(&kausf, &name).ok()?.as_octets(),
            subscription,
        })
    }

    /// Returns SQNMS of an AUTS with a valid MAC-S (TS 33.102 6.3.5).
    pub(super) fn sqn_ms(&self, resync: &Resync) -> Option<u64> {
        let (rand, auts) = (Rand::new(&resync.rand), Auts::new(&resync.auts));
        self.milenage().verify_auts(&rand, &auts).ok().map(|sqn| sqn.get())
    }
}

/// Same result as [`Plmn::serving_network_name`], without an allocation.
fn serving_network_name(plmn: Plmn) -> [u8; 32] {
    let mut name = *b"5G:mnc000.mcc000.3gppnetwork.org";
    let digit = |nibble: u8| b'0' + (nibble & 0xf).min(9);
    let [a, b, c] = plmn.nas();
    name[13..16].copy_from_slice(&[digit(a), digit(a >> 4), digit(b)]);
    match b >> 4 {
        0xf => name[7..9].copy_from_slice(&[digit(c), digit(c >> 4)]),
        third => name[6..9].copy_from_slice(&[digit(c), digit(c >> 4), digit(third)]),
    }
    name
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn name_is_one_of_types() {
        for text in ["99970", "310410", "00101", "001001"] {
            let plmn: Plmn = text.parse().expect("a PLMN");
            assert_eq!(serving_network_name(plmn), plmn.serving_network_name().as_bytes(), "{text}");
        }
    }

    /// AUTN of TS 35.208 test set 1. KSEAF and XRES* of the same set come from the independent
    /// derivation that the security crate documents (its tests/five_g_aka_chain.py).
    #[test]
    fn vector_matches_published_test_set() {
        let octets = |s: &str| -> [u8; 16] { hex::decode(s).expect("hex").try_into().expect("16 octets") };
        let credentials = Credentials {
            k: octets("465b5ce8b199b49faa5f0a2ee238a6bc"),
            opc: octets("cd63cb71954a9f4e48a5994e37a02baf"),
            amf: [0xb9, 0xb9],
        };
        let rand = octets("23553cbe9637a89d218ae64dae47bf35");
        let (supi, plmn) = ("208930000000001".parse().expect("IMSI"), "20893".parse().expect("PLMN"));
        let info = credentials.vector(supi, 0xff9b_b4d0_b607, rand, plmn, Subscription::default()).expect("48 bits");
        assert_eq!(hex::encode(info.autn), "55f328b43577b9b94a9ffac354dfafb3");
        assert_eq!(hex::encode(info.xres_star), "5cc9527f4d21c43bee83a15443acf1c4");
        assert_eq!(hex::encode(info.kseaf), "cfddde483bd1318a412e98870f556410905be4fb7500abed93ee16af71bbb3fa");
    }
}
