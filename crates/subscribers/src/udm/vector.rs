//! 5G HE and EPS authentication vectors (TS 33.501 6.1.3.2 step 1, TS 33.401 6.1.2, TS 33.102
//! 6.3.2).

use vireo_core::subscription::{AuthenticationInfo, Resync, Subscription};
use vireo_types::{Dialect, Plmn, Supi};
use vireo_wire::security::Rand;
use vireo_wire::security::milenage::{Amf, AuthenticationVector, Auts, K, Milenage, Opc, Sqn};
use vireo_wire::security::nas_5gs::{derive_kausf, derive_kseaf};
use vireo_wire::security::nas_eps::derive_kasme;
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

    /// Computes the vector of a dialect; `None` only for an SQN above 48 bits.
    ///
    /// The separation bit of the subscriber's AMF field must be 1 in both (TS 33.401 6.1.2).
    pub(super) fn vector(
        &self,
        (supi, dialect): (Supi, Dialect),
        sqn: u64,
        rand: [u8; 16],
        serving_network: Plmn,
        subscription: Subscription,
    ) -> Option<AuthenticationInfo> {
        let (sqn, amf) = (Sqn::try_from(sqn).ok()?, Amf::new(&self.amf));
        let vector = self.milenage().authentication_vector(&Rand::new(&rand), &sqn, &amf);
        let (xres_star, kseaf) = match dialect {
            Dialect::Nr => keys_of_5gs(&vector, serving_network)?,
            Dialect::Eps => keys_of_eps(&vector, serving_network)?,
        };
        let autn = *vector.autn().as_octets();
        Some(AuthenticationInfo { supi, rand, autn, xres_star, kseaf, subscription })
    }

    /// Returns SQNMS of an AUTS with a valid MAC-S (TS 33.102 6.3.5).
    pub(super) fn sqn_ms(&self, resync: &Resync) -> Option<u64> {
        let (rand, auts) = (Rand::new(&resync.rand), Auts::new(&resync.auts));
        self.milenage().verify_auts(&rand, &auts).ok().map(|sqn| sqn.get())
    }
}

/// Returns XRES* and KSEAF.
fn keys_of_5gs(vector: &AuthenticationVector, serving_network: Plmn) -> Option<([u8; 16], [u8; 32])> {
    let name = serving_network_name(serving_network);
    let kausf = derive_kausf(vector.ck(), vector.ik(), &name, vector.autn()).ok()?;
    Some((*vector.xres_star(&name).ok()?.as_octets(), *derive_kseaf(&kausf, &name).ok()?.as_octets()))
}

/// Returns XRES in the form of [`AuthenticationInfo::xres_star`], and KASME.
fn keys_of_eps(vector: &AuthenticationVector, serving_network: Plmn) -> Option<([u8; 16], [u8; 32])> {
    let mut xres = [0; 16];
    xres.get_mut(..AuthenticationInfo::RES_OCTETS)?.copy_from_slice(vector.xres().as_octets());
    let network = vireo_wire::security::Plmn::from_nas_octets(serving_network.nas()).ok()?;
    Some((xres, *derive_kasme(vector.ck(), vector.ik(), network, vector.autn()).as_octets()))
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
        let vector = |dialect| {
            let subscription = Subscription::default();
            credentials.vector((supi, dialect), 0xff9b_b4d0_b607, rand, plmn, subscription).expect("48 bits")
        };
        let info = vector(Dialect::Nr);
        assert_eq!(hex::encode(info.autn), "55f328b43577b9b94a9ffac354dfafb3");
        assert_eq!(hex::encode(info.xres_star), "5cc9527f4d21c43bee83a15443acf1c4");
        assert_eq!(hex::encode(info.kseaf), "cfddde483bd1318a412e98870f556410905be4fb7500abed93ee16af71bbb3fa");
        let eps = vector(Dialect::Eps);
        assert_eq!(eps.autn, info.autn, "one AUTN, which is bound to the network by the keys alone");
        assert_eq!(hex::encode(&eps.xres_star[..AuthenticationInfo::RES_OCTETS]), "a54211d5e3ba50bf");
        assert_ne!(eps.kseaf, info.kseaf);
    }
}
