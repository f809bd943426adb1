//! Writing of EAP packets of both ends.

use super::packet::{FIRST_ATTRIBUTE, MAC};
use super::{AKA_PRIME, Code, KDF, Subtype, attribute};
use crate::security::kdf::kdf;

/// Values of EAP-Request/AKA'-Challenge (RFC 9048 3).
#[derive(Clone, Copy, Debug)]
pub struct Challenge<'a> {
    pub rand: &'a [u8; 16],
    pub autn: &'a [u8; 16],
    /// Serving network name (TS 24.501 9.12.1).
    pub network_name: &'a [u8; 32],
}

/// Returns EAP-Request/AKA'-Challenge.
pub fn challenge(identifier: u8, values: &Challenge<'_>, k_aut: &[u8; 32]) -> Vec<u8> {
    let mut packet = begin(Code::Request, identifier, Subtype::Challenge);
    put(&mut packet, attribute::RAND, 0, values.rand);
    put(&mut packet, attribute::AUTN, 0, values.autn);
    put(&mut packet, attribute::KDF_INPUT, values.network_name.len() as u16, values.network_name);
    put(&mut packet, attribute::KDF, KDF, &[]);
    finish_with_mac(packet, k_aut)
}

/// Returns EAP-Response/AKA'-Challenge with RES of Milenage.
pub fn response(identifier: u8, res: &[u8; 8], k_aut: &[u8; 32]) -> Vec<u8> {
    let mut packet = begin(Code::Response, identifier, Subtype::Challenge);
    put(&mut packet, attribute::RES, 64, res);
    finish_with_mac(packet, k_aut)
}

/// Returns EAP-Response/AKA'-Synchronization-Failure.
pub fn synchronization_failure(identifier: u8, auts: &[u8; 14]) -> Vec<u8> {
    let mut packet = begin(Code::Response, identifier, Subtype::SynchronizationFailure);
    // AT_AUTS has no reserved octets.
    packet.extend_from_slice(&[attribute::AUTS, 4]);
    packet.extend_from_slice(auts);
    put(&mut packet, attribute::KDF, KDF, &[]);
    finish(packet)
}

/// Returns EAP-Response/AKA'-Authentication-Reject: AUTN is wrong.
pub fn authentication_reject(identifier: u8) -> Vec<u8> {
    finish(begin(Code::Response, identifier, Subtype::AuthenticationReject))
}

/// Returns EAP-Response/AKA'-Client-Error with a code (RFC 4187 10.20).
pub fn client_error(identifier: u8, code: u16) -> Vec<u8> {
    let mut packet = begin(Code::Response, identifier, Subtype::ClientError);
    put(&mut packet, attribute::CLIENT_ERROR_CODE, code, &[]);
    finish(packet)
}

/// Returns EAP-Success, which answers the response with this identifier.
pub fn success(identifier: u8) -> [u8; 4] {
    [Code::Success as u8, identifier, 0, 4]
}

/// Returns EAP-Failure, which answers the response with this identifier.
pub fn failure(identifier: u8) -> [u8; 4] {
    [Code::Failure as u8, identifier, 0, 4]
}

fn begin(code: Code, identifier: u8, subtype: Subtype) -> Vec<u8> {
    let mut packet = Vec::with_capacity(FIRST_ATTRIBUTE + 104);
    packet.extend_from_slice(&[code as u8, identifier, 0, 0, AKA_PRIME, subtype as u8, 0, 0]);
    packet
}

/// Appends an attribute whose value is a multiple of 4 octets, after two reserved ones, a length or
/// a code.
fn put(packet: &mut Vec<u8>, kind: u8, first: u16, value: &[u8]) {
    packet.extend_from_slice(&[kind, 1 + (value.len() / 4) as u8]);
    packet.extend_from_slice(&first.to_be_bytes());
    packet.extend_from_slice(value);
}

fn finish(mut packet: Vec<u8>) -> Vec<u8> {
    let length = (packet.len() as u16).to_be_bytes();
    packet[2..4].copy_from_slice(&length);
    packet
}

fn finish_with_mac(mut packet: Vec<u8>, k_aut: &[u8; 32]) -> Vec<u8> {
    put(&mut packet, attribute::MAC, 0, &[0; MAC]);
    let mut packet = finish(packet);
    let (at, mac) = (packet.len() - MAC, kdf(k_aut, &packet));
    packet[at..].copy_from_slice(&mac[..MAC]);
    packet
}
