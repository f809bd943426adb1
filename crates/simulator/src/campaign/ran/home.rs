//! Home network of the UEs: the answers of its subscriber database.

use super::{Network, SLICE};
use rand::Rng;
use vireo_core::subscription::{
    AuthenticationError, AuthenticationInfo, AuthenticationRequest, AuthenticationVector, DnnSubscription,
    SliceSubscription, SubscriberIdentity, Subscription, TransformedVector,
};
use vireo_emulator::{LAB_K, LAB_OPC};
use vireo_types::{Dialect, Supi};
use vireo_wire::eap::TransformedKeys;
use vireo_wire::security::milenage::{self, Amf, Auts, K, Milenage, Opc, Sqn};
use vireo_wire::security::nas_5gs::{derive_kausf, derive_kseaf};
use vireo_wire::security::nas_eps::derive_kasme;
use vireo_wire::security::{Plmn, Rand};

/// Returns the home network's answer. Its SQN only grows (it is one database for all hosts). In 5G,
/// every second subscriber has EAP-AKA'.
pub(in super::super) fn authenticate(
    network: &mut Network,
    request: &AuthenticationRequest,
) -> Result<AuthenticationVector, AuthenticationError> {
    let supi = match &request.identity {
        SubscriberIdentity::Supi(supi) | SubscriberIdentity::Imsi(supi) => *supi,
        SubscriberIdentity::Suci(octets) => supi_from_suci(octets).ok_or(AuthenticationError::BadSuci)?,
    };
    let milenage = Milenage::new(&K::new(&LAB_K), &Opc::new(&LAB_OPC));
    if let Some(resync) = &request.resync {
        let sqn = milenage.verify_auts(&Rand::new(&resync.rand), &Auts::new(&resync.auts));
        network.sqn = network.sqn.max(sqn.map_err(|_| AuthenticationError::BadAuts)?.get());
    }
    network.sqn += 32;
    let rand: [u8; 16] = network.random.random();
    let sqn = Sqn::try_from(network.sqn).map_err(|_| AuthenticationError::Unavailable)?;
    let vector = milenage.authentication_vector(&Rand::new(&rand), &sqn, &Amf::new(&[0x80, 0]));
    let slice = SliceSubscription { snssai: SLICE, default: true, dnns: vec![DnnSubscription::default()] };
    let subscription = Subscription { slices: vec![slice], ..Subscription::default() };
    let (serving_network, autn) = (request.serving_network, *vector.autn().as_octets());
    let keys = match request.identity.dialect() {
        Dialect::Nr if supi.as_u64() % 2 == 1 => {
            let name = serving_network.serving_network_octets();
            let keys = TransformedKeys::derive(vector.ck(), vector.ik(), &name, vector.autn());
            let keys = keys.map_err(|_| AuthenticationError::Unavailable)?;
            let xres = *vector.xres().as_octets();
            let (ck_prime, ik_prime) = (*keys.ck(), *keys.ik());
            let vector =
                TransformedVector { supi, serving_network, rand, autn, xres, ck_prime, ik_prime, subscription };
            return Ok(AuthenticationVector::EapAkaPrime(vector));
        }
        Dialect::Nr => keys_of_5gs(&vector, serving_network),
        Dialect::Eps => keys_of_eps(&vector, serving_network),
    };
    let (xres_star, kseaf) = keys.ok_or(AuthenticationError::Unavailable)?;
    Ok(AuthenticationInfo { supi, rand, autn, xres_star, kseaf, subscription }.into())
}

/// Returns XRES* and KSEAF.
fn keys_of_5gs(vector: &milenage::AuthenticationVector, network: vireo_types::Plmn) -> Option<([u8; 16], [u8; 32])> {
    let name = network.serving_network_name();
    let kausf = derive_kausf(vector.ck(), vector.ik(), name.as_bytes(), vector.autn()).ok()?;
    let kseaf = *derive_kseaf(&kausf, name.as_bytes()).ok()?.as_octets();
    Some((*vector.xres_star(name.as_bytes()).ok()?.as_octets(), kseaf))
}

/// Returns XRES in the form of [`AuthenticationInfo::xres_star`], and KASME.
fn keys_of_eps(vector: &milenage::AuthenticationVector, network: vireo_types::Plmn) -> Option<([u8; 16], [u8; 32])> {
    let mut xres = [0; 16];
    xres.get_mut(..AuthenticationInfo::RES_OCTETS)?.copy_from_slice(vector.xres().as_octets());
    let network = Plmn::from_nas_octets(network.nas()).ok()?;
    Some((xres, *derive_kasme(vector.ck(), vector.ik(), network, vector.autn()).as_octets()))
}

/// Returns the SUPI of a null-scheme SUCI: the MSIN follows 8 octets, two digits in each (TS 24.501
/// 9.11.3.4).
fn supi_from_suci(octets: &[u8]) -> Option<Supi> {
    let digit = |d: u8| char::from_digit(d.into(), 10);
    let msin: Option<String> = octets.get(8..)?.iter().flat_map(|o| [digit(o & 0xf), digit(o >> 4)]).collect();
    format!("99970{}", msin?).parse().ok()
}
