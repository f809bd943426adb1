//! NAS messages built by hand under the keys of the network.

use vireo_core::amf::context::NasSecurity;
use vireo_types::Dialect;
use vireo_wire::ngap::{NGAP_PDU, ie};
use vireo_wire::security::nas_5gs::{KNasEnc, KNasInt, NasConnection, nas_cipher, nas_mac};
use vireo_wire::security::{CipheringAlgorithm, Direction, IntegrityAlgorithm, NasCount, nas_eps};

/// Security header types (TS 24.501 table 9.3.1, TS 24.301 table 9.3.1).
pub(crate) const INTEGRITY: u8 = 1;
pub(crate) const CIPHERED: u8 = 2;
pub(crate) const NEW_CONTEXT: u8 = 4;

fn cipher(security: &NasSecurity, count: NasCount, direction: Direction, octets: &mut [u8]) {
    let algorithm = CipheringAlgorithm::try_from(security.ciphering).expect("an algorithm");
    match security.dialect() {
        Dialect::Nr => {
            let key = KNasEnc::new(&security.knas_enc);
            nas_cipher(&key, count, NasConnection::ThreeGpp, direction, octets, algorithm);
        }
        Dialect::Eps => {
            nas_eps::nas_cipher(&nas_eps::KNasEnc::new(&security.knas_enc), count, direction, octets, algorithm);
        }
    }
}

fn mac(security: &NasSecurity, count: NasCount, octets: &[u8]) -> [u8; 4] {
    let algorithm = IntegrityAlgorithm::try_from(security.integrity).expect("an algorithm");
    let mac = match security.dialect() {
        Dialect::Nr => {
            let key = KNasInt::new(&security.knas_int);
            nas_mac(&key, count, NasConnection::ThreeGpp, Direction::Uplink, octets, algorithm)
        }
        Dialect::Eps => {
            let key = nas_eps::KNasInt::new(&security.knas_int);
            nas_eps::nas_mac(&key, count, Direction::Uplink, octets, algorithm)
        }
    };
    mac.to_be_bytes()
}

/// Returns the first octets of a protected message of the dialect.
pub(crate) fn discriminator(dialect: Dialect, header: u8) -> Vec<u8> {
    match dialect {
        Dialect::Nr => vec![0x7e, header],
        Dialect::Eps => vec![header << 4 | 0x07],
    }
}

/// Protects an uplink message under a security context, with the COUNT that the network expects.
pub(crate) fn protected(security: &NasSecurity, header: u8, plain: &[u8]) -> Vec<u8> {
    protected_at(security, security.uplink, header, plain)
}

/// As [`protected`], with any COUNT.
pub(crate) fn protected_at(security: &NasSecurity, count: u32, header: u8, plain: &[u8]) -> Vec<u8> {
    let count = NasCount::new(count).expect("a COUNT");
    let mut rest = [&[count.sequence_number()], plain].concat();
    if header == CIPHERED || header == NEW_CONTEXT {
        cipher(security, count, Direction::Uplink, &mut rest[1..]);
    }
    [&discriminator(security.dialect(), header)[..], &mac(security, count, &rest), &rest].concat()
}

/// Returns SERVICE REQUEST of EPS (TS 24.301 8.2.25) with a COUNT.
pub(crate) fn service_request(security: &NasSecurity, count: u32) -> Vec<u8> {
    let count = NasCount::new(count).expect("a COUNT");
    let head = [0xc7, security.key_set.identifier() << 5 | count.sequence_number() & 0x1f];
    [&head[..], &mac(security, count, &head)[2..]].concat()
}

/// Returns a message with header type 1 and an arbitrary MAC.
pub(crate) fn unverified(plain: &[u8]) -> Vec<u8> {
    let dialect = if plain.first() == Some(&0x7e) { Dialect::Nr } else { Dialect::Eps };
    [&discriminator(dialect, INTEGRITY)[..], &[0xde, 0xad, 0xbe, 0xef, 0], plain].concat()
}

/// Returns the NAS message of a Downlink NAS Transport without its protection.
pub(crate) fn downlink(security: &NasSecurity, pdu: &[u8]) -> Option<Vec<u8>> {
    let nas = NGAP_PDU::decode(pdu).ok()?.ie::<ie::NAS_PDU>()?.ok()?.0.to_vec();
    if nas.get(1) != Some(&CIPHERED) {
        return Some(nas);
    }
    let next = NasCount::new(security.downlink.saturating_sub(1)).expect("a COUNT");
    let count = (next.get() & !0xff) | u32::from(*nas.get(6)?);
    let mut plain = nas.get(7..)?.to_vec();
    cipher(security, NasCount::new(count).ok()?, Direction::Downlink, &mut plain);
    Some(plain)
}
