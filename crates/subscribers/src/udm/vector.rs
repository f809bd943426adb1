//! 5G HE and EPS authentication vectors, and those of EAP-AKA' (TS 33.501 6.1.3.2 step 1, 6.1.3.1
//! step 1, TS 33.401 6.1.2, TS 33.102 6.3.2).

use vireo_core::subscription::{AuthenticationInfo, AuthenticationVector, Resync, Subscription, TransformedVector};
use vireo_types::{Plmn, Supi};
use vireo_wire::eap::TransformedKeys;
use vireo_wire::security::Rand;
use vireo_wire::security::milenage::{self, Amf, Auts, K, Milenage, Opc, Sqn};
use vireo_wire::security::nas_5gs::{derive_kausf, derive_kseaf};
use vireo_wire::security::nas_eps::derive_kasme;
use zeroize::{Zeroize, ZeroizeOnDrop};

/// Authentication scheme of a vector.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Scheme {
    FiveGAka,
    EapAkaPrime,
    EpsAka,
}

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

    /// Computes a vector; `None` only for an SQN above 48 bits.
    ///
    /// The separation bit of the subscriber's AMF field must be 1 in all (TS 33.401 6.1.2).
    pub(super) fn vector(
        &self,
        (supi, scheme): (Supi, Scheme),
        sqn: u64,
        rand: [u8; 16],
        serving_network: Plmn,
        subscription: Subscription,
    ) -> Option<AuthenticationVector> {
        let (sqn, amf) = (Sqn::try_from(sqn).ok()?, Amf::new(&self.amf));
        let vector = self.milenage().authentication_vector(&Rand::new(&rand), &sqn, &amf);
        let autn = *vector.autn().as_octets();
        let (xres_star, kseaf) = match scheme {
            Scheme::FiveGAka => keys_of_5gs(&vector, serving_network)?,
            Scheme::EpsAka => keys_of_eps(&vector, serving_network)?,
            Scheme::EapAkaPrime => {
                let name = serving_network.serving_network_octets();
                let keys = TransformedKeys::derive(vector.ck(), vector.ik(), &name, vector.autn()).ok()?;
                let xres = *vector.xres().as_octets();
                let (ck_prime, ik_prime) = (*keys.ck(), *keys.ik());
                let vector =
                    TransformedVector { supi, serving_network, rand, autn, xres, ck_prime, ik_prime, subscription };
                return Some(AuthenticationVector::EapAkaPrime(vector));
            }
        };
        Some(AuthenticationInfo { supi, rand, autn, xres_star, kseaf, subscription }.into())
    }

    /// Returns SQNMS of an AUTS with a valid MAC-S (TS 33.102 6.3.5).
    pub(super) fn sqn_ms(&self, resync: &Resync) -> Option<u64> {
        let (rand, auts) = (Rand::new(&resync.rand), Auts::new(&resync.auts));
        self.milenage().verify_auts(&rand, &auts).ok().map(|sqn| sqn.get())
    }
}

/// Returns XRES* and KSEAF.
fn keys_of_5gs(vector: &milenage::AuthenticationVector, serving_network: Plmn) -> Option<([u8; 16], [u8; 32])> {
    let name = serving_network.serving_network_octets();
    let kausf = derive_kausf(vector.ck(), vector.ik(), &name, vector.autn()).ok()?;
    Some((*vector.xres_star(&name).ok()?.as_octets(), *derive_kseaf(&kausf, &name).ok()?.as_octets()))
}

/// Returns XRES in the form of [`AuthenticationInfo::xres_star`], and KASME.
fn keys_of_eps(vector: &milenage::AuthenticationVector, serving_network: Plmn) -> Option<([u8; 16], [u8; 32])> {
    let mut xres = [0; 16];
    xres.get_mut(..AuthenticationInfo::RES_OCTETS)?.copy_from_slice(vector.xres().as_octets());
    let network = vireo_wire::security::Plmn::from_nas_octets(serving_network.nas()).ok()?;
    Some((xres, *derive_kasme(vector.ck(), vector.ik(), network, vector.autn()).as_octets()))
}

#[cfg(test)]
mod tests {
    use super::*;

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
        let vector = |scheme| {
            let subscription = Subscription::default();
            credentials.vector((supi, scheme), 0xff9b_b4d0_b607, rand, plmn, subscription).expect("48 bits")
        };
        let info = |scheme| match vector(scheme) {
            AuthenticationVector::Aka(info) => info,
            AuthenticationVector::EapAkaPrime(_) => panic!("a vector of EAP-AKA'"),
        };
        let (info, eps) = (info(Scheme::FiveGAka), info(Scheme::EpsAka));
        assert_eq!(hex::encode(info.autn), "55f328b43577b9b94a9ffac354dfafb3");
        assert_eq!(hex::encode(info.xres_star), "5cc9527f4d21c43bee83a15443acf1c4");
        assert_eq!(hex::encode(info.kseaf), "cfddde483bd1318a412e98870f556410905be4fb7500abed93ee16af71bbb3fa");
        assert_eq!(eps.autn, info.autn, "one AUTN, which is bound to the network by the keys alone");
        assert_eq!(hex::encode(&eps.xres_star[..AuthenticationInfo::RES_OCTETS]), "a54211d5e3ba50bf");
        assert_ne!(eps.kseaf, info.kseaf);
        // CK' and IK' are those of tests/reference/security_values.py for these CK, IK and network.
        let AuthenticationVector::EapAkaPrime(eap) = vector(Scheme::EapAkaPrime) else { panic!("a vector of AKA") };
        assert_eq!((eap.autn, eap.rand, eap.serving_network), (info.autn, rand, plmn));
        assert_eq!(hex::encode(eap.xres), "a54211d5e3ba50bf");
        assert_eq!(hex::encode(eap.ck_prime), "bac43fbbc49f8759ae359e5239cdd537");
        assert_eq!(hex::encode(eap.ik_prime), "bce820331285d5d92abfe25f72315e6e");
    }
}
