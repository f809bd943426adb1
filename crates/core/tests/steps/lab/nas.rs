//! NAS messages built by hand under the keys of the network.

use vireo_core::amf::context::NasSecurity;
use vireo_wire::ngap::{NGAP_PDU, ie};
use vireo_wire::security::nas_5gs::{KNasEnc, KNasInt, NasConnection, nas_cipher, nas_mac};
use vireo_wire::security::{CipheringAlgorithm, Direction, IntegrityAlgorithm, NasCount};

/// Security header types (TS 24.501 table 9.3.1).
pub(crate) const INTEGRITY: u8 = 1;
pub(crate) const CIPHERED: u8 = 2;
pub(crate) const NEW_CONTEXT: u8 = 4;

fn cipher(security: &NasSecurity, count: NasCount, direction: Direction, octets: &mut [u8]) {
    let nea = CipheringAlgorithm::try_from(security.ciphering).expect("an algorithm");
    nas_cipher(&KNasEnc::new(&security.knas_enc), count, NasConnection::ThreeGpp, direction, octets, nea);
}

/// Protects an uplink message under a security context, with the COUNT that the network expects.
pub(crate) fn protected(security: &NasSecurity, header: u8, plain: &[u8]) -> Vec<u8> {
    let count = NasCount::new(security.uplink).expect("a COUNT");
    let nia = IntegrityAlgorithm::try_from(security.integrity).expect("an algorithm");
    let mut out = vec![0x7e, header, 0, 0, 0, 0, count.sequence_number()];
    out.extend_from_slice(plain);
    if header == CIPHERED || header == NEW_CONTEXT {
        cipher(security, count, Direction::Uplink, &mut out[7..]);
    }
    let key = KNasInt::new(&security.knas_int);
    let mac = nas_mac(&key, count, NasConnection::ThreeGpp, Direction::Uplink, &out[6..], nia);
    out[2..6].copy_from_slice(&mac.to_be_bytes());
    out
}

/// Returns a message with header type 1 and an arbitrary MAC.
pub(crate) fn unverified(plain: &[u8]) -> Vec<u8> {
    [&[0x7e, INTEGRITY, 0xde, 0xad, 0xbe, 0xef, 0][..], plain].concat()
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
