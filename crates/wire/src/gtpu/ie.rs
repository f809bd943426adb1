use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use vireo_types::Teid;

// TS 29.281 table 8.1-1
pub(super) const RECOVERY: u8 = 14;
pub(super) const TEID_DATA_I: u8 = 16;
pub(super) const GSN_ADDRESS: u8 = 133;
pub(super) const EXTENSION_HEADER_TYPE_LIST: u8 = 141;

/// Content of an Error Indication (TS 29.281 7.3.1): packets to this F-TEID find no tunnel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ErrorIndication {
    /// Tunnel Endpoint Identifier Data I.
    pub teid: Teid,
    /// GTP-U Peer Address: the address that has no such tunnel.
    pub peer: IpAddr,
}

/// Iterator over the IEs of a payload, as type and value. It ends at the first malformed IE.
struct Elements<'a>(&'a [u8]);

impl<'a> Iterator for Elements<'a> {
    type Item = (u8, &'a [u8]);

    fn next(&mut self) -> Option<Self::Item> {
        let (&kind, rest) = self.0.split_first()?;
        // below 128 the type determines the length (TS 29.281 8.1); GTP-U uses only these two
        let (skip, length) = match kind {
            RECOVERY => (0, 1),
            TEID_DATA_I => (0, 4),
            0..=127 => return None,
            // 8.5: the only TLV with a length of a single octet
            EXTENSION_HEADER_TYPE_LIST => (1, usize::from(*rest.first()?)),
            _ => (2, usize::from(u16::from_be_bytes(*rest.first_chunk()?))),
        };
        let value = rest.get(skip..skip + length)?;
        self.0 = &rest[skip + length..];
        Some((kind, value))
    }
}

/// Parses the payload of an Error Indication. Returns `None` if a mandatory IE is missing or
/// malformed.
pub fn error_indication(payload: &[u8]) -> Option<ErrorIndication> {
    let mut teid = None;
    let mut peer = None;
    for (kind, value) in Elements(payload) {
        match (kind, value.len()) {
            (TEID_DATA_I, _) => teid = value.first_chunk().map(|octets| Teid(u32::from_be_bytes(*octets))),
            (GSN_ADDRESS, 4) => peer = value.first_chunk().map(|octets: &[u8; 4]| IpAddr::V4(Ipv4Addr::from(*octets))),
            (GSN_ADDRESS, 16) => {
                peer = value.first_chunk().map(|octets: &[u8; 16]| IpAddr::V6(Ipv6Addr::from(*octets)))
            }
            _ => {}
        }
    }
    Some(ErrorIndication { teid: teid?, peer: peer? })
}

/// Returns the restart counter in an Echo Response's payload (TS 29.281 8.2: sent as 0, and ignored
/// by the receiver).
pub fn recovery(payload: &[u8]) -> Option<u8> {
    Elements(payload).find(|(kind, _)| *kind == RECOVERY).and_then(|(_, value)| value.first().copied())
}

/// Returns the types that a Supported Extension Headers Notification lists.
pub fn supported_extension_headers(payload: &[u8]) -> Option<impl Iterator<Item = u8> + '_> {
    let (_, list) = Elements(payload).find(|(kind, _)| *kind == EXTENSION_HEADER_TYPE_LIST)?;
    Some(list.iter().copied())
}
