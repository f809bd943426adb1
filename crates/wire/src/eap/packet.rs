//! Reading of EAP packets (RFC 3748 4, RFC 4187 8).

use super::{AKA_PRIME, attribute};
use crate::security::constant_time_eq;
use crate::security::kdf::kdf;

/// Octets of the header: code, identifier and length.
const HEADER: usize = 4;
/// Octets from the beginning of a packet of EAP-AKA' to its first attribute: header, type, subtype
/// and two reserved ones.
pub(super) const FIRST_ATTRIBUTE: usize = 8;
const NAK: u8 = 3;
/// Octets of a message authentication code: HMAC-SHA-256-128 (RFC 9048 3.4.2).
pub(super) const MAC: usize = 16;
/// Octets of `AT_MAC` before its value: type, length and two reserved ones.
const BEFORE_VALUE: usize = 4;

/// Reason why octets are no packet, or a packet has no valid attributes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ParseError {
    /// No EAP packet: a wrong length, or an unknown code. A receiver discards it (RFC 3748 4).
    #[error("not an EAP packet")]
    NotEap,
    /// An attribute exceeds the packet, has another length than its type, or occurs twice.
    #[error("attribute {0} is malformed")]
    Malformed(u8),
    /// An attribute that a receiver must know (RFC 4187 8.1).
    #[error("attribute {0} is unknown and must not be skipped")]
    Unknown(u8),
}

/// Code of a packet (RFC 3748 4).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Code {
    Request = 1,
    Response = 2,
    Success = 3,
    Failure = 4,
}

/// An EAP packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Packet<'a> {
    pub code: Code,
    pub identifier: u8,
    pub body: Body<'a>,
}

/// Type of a request or response, with its data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Body<'a> {
    /// Success and failure have none.
    None,
    /// Legacy Nak: the peer does not support the method (RFC 3748 5.3.1). The value has the types
    /// that it desires.
    Nak(&'a [u8]),
    AkaPrime(AkaPrime<'a>),
    /// Type of another method.
    Other(u8),
}

/// Subtype of EAP-AKA' (RFC 4187 11).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Subtype {
    Challenge = 1,
    AuthenticationReject = 2,
    SynchronizationFailure = 4,
    Identity = 5,
    Notification = 12,
    Reauthentication = 13,
    ClientError = 14,
}

impl Subtype {
    fn from_octet(octet: u8) -> Option<Self> {
        use Subtype::*;
        let all = [
            Challenge,
            AuthenticationReject,
            SynchronizationFailure,
            Identity,
            Notification,
            Reauthentication,
            ClientError,
        ];
        all.into_iter().find(|subtype| *subtype as u8 == octet)
    }
}

/// Message of EAP-AKA'.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AkaPrime<'a> {
    /// `None` for an unknown subtype.
    pub subtype: Option<Subtype>,
    /// Octets of the attributes, not checked.
    attributes: &'a [u8],
}

/// Attributes of a message, as far as they are known. Others are skipped if that is allowed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Attributes<'a> {
    pub rand: Option<&'a [u8; 16]>,
    pub autn: Option<&'a [u8; 16]>,
    /// RES of 4 to 16 octets.
    pub res: Option<&'a [u8]>,
    pub auts: Option<&'a [u8; 14]>,
    /// Value of `AT_KDF_INPUT`, without padding.
    pub network_name: Option<&'a [u8]>,
    /// The first `AT_KDF`, which the sender prefers.
    pub kdf: Option<u16>,
    /// `AT_CLIENT_ERROR_CODE` (RFC 4187 10.20).
    pub client_error: Option<u16>,
    /// Offset of the value of `AT_MAC` in the packet; see [`has_mac`].
    pub mac_at: Option<usize>,
}

impl<'a> Packet<'a> {
    /// Reads a packet. Octets after its length are an error: an IE of NAS has one packet alone (TS
    /// 24.501 9.11.2.2).
    ///
    /// # Errors
    ///
    /// Returns [`ParseError::NotEap`] if the octets are no packet.
    pub fn parse(octets: &'a [u8]) -> Result<Self, ParseError> {
        let ([code, identifier, high, low], data) = octets.split_first_chunk::<HEADER>().ok_or(ParseError::NotEap)?;
        if usize::from(u16::from_be_bytes([*high, *low])) != octets.len() {
            return Err(ParseError::NotEap);
        }
        let (code, body) = match (code, data) {
            (1, data) => (Code::Request, Body::parse(data)?),
            (2, data) => (Code::Response, Body::parse(data)?),
            (3, []) => (Code::Success, Body::None),
            (4, []) => (Code::Failure, Body::None),
            _ => return Err(ParseError::NotEap),
        };
        Ok(Packet { code, identifier: *identifier, body })
    }
}

impl<'a> Body<'a> {
    fn parse(data: &'a [u8]) -> Result<Self, ParseError> {
        match data {
            [AKA_PRIME, subtype, _, _, attributes @ ..] => {
                Ok(Body::AkaPrime(AkaPrime { subtype: Subtype::from_octet(*subtype), attributes }))
            }
            [NAK, types @ ..] => Ok(Body::Nak(types)),
            // Cut short.
            [AKA_PRIME, ..] | [] => Err(ParseError::NotEap),
            [kind, ..] => Ok(Body::Other(*kind)),
        }
    }
}

impl<'a> AkaPrime<'a> {
    /// Reads the attributes.
    ///
    /// # Errors
    ///
    /// Returns an error if an attribute is malformed, or unknown and not to be skipped.
    pub fn attributes(&self) -> Result<Attributes<'a>, ParseError> {
        let mut attributes = Attributes::default();
        let mut rest = self.attributes;
        while let [kind, units, ..] = *rest {
            let malformed = ParseError::Malformed(kind);
            let at = FIRST_ATTRIBUTE + self.attributes.len() - rest.len();
            let (whole, after) = rest.split_at_checked(usize::from(units) * 4).ok_or(malformed)?;
            attributes.read(kind, whole.get(2..).ok_or(malformed)?, at)?;
            rest = after;
        }
        match rest {
            [] => Ok(attributes),
            [kind, ..] => Err(ParseError::Malformed(*kind)),
        }
    }
}

impl<'a> Attributes<'a> {
    /// Reads an attribute at this offset of the packet. `data` follows its length.
    fn read(&mut self, kind: u8, data: &'a [u8], at: usize) -> Result<(), ParseError> {
        let malformed = ParseError::Malformed(kind);
        // The first two octets are reserved, or a length or code.
        let (first, value) = data.split_first_chunk::<2>().ok_or(malformed)?;
        let first = u16::from_be_bytes(*first);
        match kind {
            attribute::RAND => once(&mut self.rand, value.try_into().ok(), malformed),
            attribute::AUTN => once(&mut self.autn, value.try_into().ok(), malformed),
            attribute::RES => once(&mut self.res, response(first, value), malformed),
            attribute::AUTS => once(&mut self.auts, data.try_into().ok(), malformed),
            attribute::KDF_INPUT => once(&mut self.network_name, text(first, value), malformed),
            attribute::CLIENT_ERROR_CODE => once(&mut self.client_error, single(first, value), malformed),
            attribute::MAC => once(&mut self.mac_at, (value.len() == MAC).then_some(at + BEFORE_VALUE), malformed),
            attribute::KDF => {
                let kdf = single(first, value).ok_or(malformed)?;
                self.kdf.get_or_insert(kdf);
                Ok(())
            }
            attribute::SKIPPABLE.. => Ok(()),
            _ => Err(ParseError::Unknown(kind)),
        }
    }
}

/// Stores the value of an attribute, which must be valid and the first one of its type.
fn once<T>(attribute: &mut Option<T>, value: Option<T>, malformed: ParseError) -> Result<(), ParseError> {
    match (attribute.is_none(), value) {
        (true, Some(value)) => {
            *attribute = Some(value);
            Ok(())
        }
        _ => Err(malformed),
    }
}

/// Returns RES, whose length is in bits (RFC 4187 10.8).
fn response(bits: u16, value: &[u8]) -> Option<&[u8]> {
    let octets = usize::from(bits) / 8;
    let fits = bits.is_multiple_of(8) && (4..=16).contains(&octets) && octets.next_multiple_of(4) == value.len();
    value.get(..octets).filter(|_| fits)
}

/// Returns a network name of this length, without the padding (RFC 9048 3.1).
fn text(octets: u16, value: &[u8]) -> Option<&[u8]> {
    let octets = usize::from(octets);
    let fits = octets > 0 && octets.next_multiple_of(4) == value.len();
    value.get(..octets).filter(|_| fits)
}

/// Returns a value that nothing follows.
fn single(value: u16, rest: &[u8]) -> Option<u16> {
    rest.is_empty().then_some(value)
}

/// Returns true if a packet has this `AT_MAC` at this offset: HMAC-SHA-256-128 of the packet with
/// zeros in its place (RFC 4187 10.15, RFC 9048 3.4.2).
pub fn has_mac(packet: &[u8], at: usize, k_aut: &[u8; 32]) -> bool {
    let mut zeroed = packet.to_vec();
    let Some(place) = zeroed.get_mut(at..at.saturating_add(MAC)) else { return false };
    place.fill(0);
    let mac = kdf(k_aut, &zeroed);
    packet.get(at..at + MAC).is_some_and(|received| constant_time_eq(received, &mac[..MAC]))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::eap::{self, Challenge};

    const K_AUT: [u8; 32] = [7; 32];
    const NAME: &[u8; 32] = b"5G:mnc070.mcc999.3gppnetwork.org";

    fn request() -> Vec<u8> {
        eap::challenge(9, &Challenge { rand: &[1; 16], autn: &[2; 16], network_name: NAME }, &K_AUT)
    }

    fn attributes(octets: &[u8]) -> Result<Attributes<'_>, ParseError> {
        match Packet::parse(octets)?.body {
            Body::AkaPrime(message) => message.attributes(),
            _ => Err(ParseError::NotEap),
        }
    }

    /// Returns a response with these attributes.
    fn with(attributes: &[u8]) -> Vec<u8> {
        let length = (FIRST_ATTRIBUTE + attributes.len()) as u8;
        [&[2, 9, 0, length, AKA_PRIME, 1, 0, 0], attributes].concat()
    }

    #[test]
    fn challenge_has_values_and_mac() {
        let octets = request();
        let packet = Packet::parse(&octets).expect("a packet");
        assert_eq!((packet.code, packet.identifier), (Code::Request, 9));
        let read = attributes(&octets).expect("attributes");
        assert_eq!((read.rand, read.autn), (Some(&[1; 16]), Some(&[2; 16])));
        assert_eq!((read.network_name, read.kdf), (Some(&NAME[..]), Some(eap::KDF)));
        let at = read.mac_at.expect("AT_MAC");
        assert!(has_mac(&octets, at, &K_AUT) && !has_mac(&octets, at, &[8; 32]));
        for octet in 0..octets.len() {
            let mut altered = octets.clone();
            altered[octet] ^= 1;
            assert!(!has_mac(&altered, at, &K_AUT), "octet {octet} is not under the MAC");
        }
    }

    #[test]
    fn answers_have_their_values() {
        let res = [0x5c; 8];
        let octets = eap::response(9, &res, &K_AUT);
        let read = attributes(&octets).expect("attributes");
        assert_eq!(read.res, Some(&res[..]));
        assert!(has_mac(&octets, read.mac_at.expect("AT_MAC"), &K_AUT));
        let synchronization = eap::synchronization_failure(9, &[0x5e; 14]);
        let read = attributes(&synchronization).expect("attributes");
        assert_eq!((read.auts, read.kdf), (Some(&[0x5e; 14]), Some(eap::KDF)));
        assert_eq!(attributes(&eap::client_error(9, 0)).map(|read| read.client_error), Ok(Some(0)));
        assert_eq!(attributes(&eap::authentication_reject(9)), Ok(Attributes::default()));
        let result = |octets: &[u8]| Packet::parse(octets).map(|packet| (packet.code, packet.identifier));
        assert_eq!(result(&eap::success(9)), Ok((Code::Success, 9)));
        assert_eq!(result(&eap::failure(9)), Ok((Code::Failure, 9)));
    }

    #[test]
    fn wrong_lengths_are_no_packets() {
        let octets = request();
        for end in 0..octets.len() {
            assert_eq!(Packet::parse(&octets[..end]), Err(ParseError::NotEap), "{end} octets");
        }
        let longer = [&octets[..], &[0]].concat();
        assert_eq!(Packet::parse(&longer), Err(ParseError::NotEap));
        for wrong in [&[3, 9, 0, 5, 0][..], &[5, 9, 0, 4], &[1, 9, 0, 4], &[2, 9, 0, 6, AKA_PRIME, 1]] {
            assert_eq!(Packet::parse(wrong), Err(ParseError::NotEap), "{wrong:?}");
        }
    }

    #[test]
    fn malformed_attributes_are_refused() {
        let res = [3, 3, 0, 64, 1, 2, 3, 4, 5, 6, 7, 8];
        assert_eq!(attributes(&with(&res)).map(|read| read.res.map(<[u8]>::len)), Ok(Some(8)));
        let malformed: [&[u8]; 9] = [
            // Without end, of length 0, and beyond the packet.
            &[3],
            &[3, 0, 0, 0],
            &[3, 4, 0, 64, 1, 2, 3, 4, 5, 6, 7, 8],
            // RES of 7 octets and 4 bits, of 2 octets, and shorter than its length.
            &[3, 3, 0, 60, 1, 2, 3, 4, 5, 6, 7, 8],
            &[3, 2, 0, 16, 1, 2, 0, 0],
            &[3, 2, 0, 64, 1, 2, 3, 4],
            // A network name without octets, and one longer than its attribute.
            &[23, 1, 0, 0],
            &[23, 2, 0, 5, 1, 2, 3, 4],
            // Twice.
            &[22, 1, 0, 0, 22, 1, 0, 0],
        ];
        for wrong in malformed {
            assert_eq!(attributes(&with(wrong)), Err(ParseError::Malformed(wrong[0])), "{wrong:?}");
        }
        // A receiver must know types below 128.
        assert_eq!(attributes(&with(&[14, 1, 0, 0])), Err(ParseError::Unknown(14)));
        assert_eq!(attributes(&with(&[135, 1, 0, 0])), Ok(Attributes::default()));
        // The first of several is preferred.
        assert_eq!(attributes(&with(&[24, 1, 0, 2, 24, 1, 0, 1])).map(|read| read.kdf), Ok(Some(2)));
    }

    #[test]
    fn other_methods_are_named() {
        let body = |octets: &[u8]| Packet::parse(octets).map(|packet| format!("{:?}", packet.body));
        assert_eq!(body(&[2, 9, 0, 6, 3, 50]), Ok("Nak([50])".to_owned()));
        assert_eq!(body(&[2, 9, 0, 8, 23, 1, 0, 0]), Ok("Other(23)".to_owned()));
        assert_eq!(body(&[2, 9, 0, 5, 1]), Ok("Other(1)".to_owned()));
    }
}
