//! Fabric: TCP connections between the controller, balancers and hosts of a cluster.
//!
//! Each side of a connection first sends a *greeting* of fixed layout, which every version of the
//! fabric decodes:
//!
//! ```text
//! bytes 0-7    "VIREOFAB"
//! bytes 8-9    newest version that the sender supports, big-endian
//! bytes 10-11  oldest version that the sender supports
//! byte 12      role of the sender: 1 balancer, 2 host (towards balancers and the controller),
//!              3 host (towards another host), 4 controller
//! ```
//!
//! Both sides continue in the newest common version. Without one, the connection ends with an error
//! message. *Frames* follow: a length of four bytes, big-endian, then one message
//! ([`vireo_core::placement::message`]). One write may contain several frames. Messages are
//! enumerations in postcard encoding, where a variant is a number. A later version adds variants
//! and never moves or changes an existing one. It sends new ones only to peers that support that
//! version. A cluster can therefore be upgraded host by host.
//!
//! The fabric trusts no peer: lengths are checked before memory is allocated, and a message that
//! cannot be decoded ends the connection. With [`crate::identity::TlsConfig`] all connections use
//! TLS, and each side presents a certificate of its role before either greets. Without TLS the
//! fabric must run on a trusted network.

#![forbid(unsafe_code)]

pub mod frame;
pub mod identity;
mod socket;
pub mod stream;
mod tls;

pub use frame::{FrameError, FrameReader, FrameWriter};
use serde::{Deserialize, Serialize};
pub use tls::Security;
pub use tls::TlsPeerError;

/// Newest protocol version of this release. Version 12 adds
/// [`ToController::Machine`](vireo_core::placement::message::ToController::Machine), and `Cordoned`
/// of both directions.
pub const VERSION: u16 = 12;
/// Oldest protocol version that this release supports: that of release 0.2.0.
pub const OLDEST: u16 = 11;
/// Length of a greeting in bytes.
pub const GREETING: usize = 13;
const MAGIC: [u8; 8] = *b"VIREOFAB";
/// First bytes of TLS: an alert or a handshake (RFC 8446 5.1).
const TLS: [u8; 2] = [21, 22];

/// Role of a peer on a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Role {
    Balancer,
    /// Host towards a balancer or the controller.
    Host,
    /// Host towards another host.
    Peer,
    Controller,
}

/// First message of each side of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Greeting {
    /// Newest version that the sender supports.
    pub newest: u16,
    /// Oldest version that the sender supports.
    pub oldest: u16,
    pub role: Role,
}

/// Reason to refuse a peer after its greeting.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum GreetingError {
    /// The peer does not use the fabric protocol.
    #[error("the peer does not use the fabric protocol; check cluster.controller, cluster.balancer and cluster.listen")]
    NotFabric,
    /// The peer uses TLS, and this member does not.
    #[error("the peer uses TLS and this member does not; set cluster.tls here as there, or for no member")]
    Tls,
    /// The peer's oldest and newest versions have no overlap with this release's.
    #[error(
        "the peer supports fabric versions {0} to {1}, this release {OLDEST} to {VERSION}; upgrade the older one first"
    )]
    Version(u16, u16),
    /// The peer's certificate is for another role.
    #[error(
        "the peer has the role {0:?}, and its certificate is for another role; issue one for its role (`vireo pki issue`)"
    )]
    Certificate(Role),
    /// The peer has another role than this connection expects.
    #[error("the peer has an unexpected role; check cluster.controller, cluster.balancer and cluster.listen")]
    Role,
}

impl Greeting {
    /// Creates the greeting of this release for a role.
    pub fn new(role: Role) -> Self {
        Greeting { newest: VERSION, oldest: OLDEST, role }
    }

    /// Encodes the greeting.
    pub fn encode(&self) -> [u8; GREETING] {
        let mut octets = [0; GREETING];
        octets[..8].copy_from_slice(&MAGIC);
        octets[8..10].copy_from_slice(&self.newest.to_be_bytes());
        octets[10..12].copy_from_slice(&self.oldest.to_be_bytes());
        octets[12] = match self.role {
            Role::Balancer => 1,
            Role::Host => 2,
            Role::Peer => 3,
            Role::Controller => 4,
        };
        octets
    }

    /// Decodes a greeting.
    ///
    /// # Errors
    ///
    /// Returns an error if the bytes are not a greeting.
    pub fn decode(octets: &[u8; GREETING]) -> Result<Self, GreetingError> {
        let [m0, m1, m2, m3, m4, m5, m6, m7, n0, n1, o0, o1, role] = *octets;
        if [m0, m1, m2, m3, m4, m5, m6, m7] != MAGIC {
            return Err(GreetingError::NotFabric);
        }
        let role = match role {
            1 => Role::Balancer,
            2 => Role::Host,
            3 => Role::Peer,
            4 => Role::Controller,
            _ => return Err(GreetingError::NotFabric),
        };
        Ok(Greeting { newest: u16::from_be_bytes([n0, n1]), oldest: u16::from_be_bytes([o0, o1]), role })
    }

    /// Returns the version that both sides use.
    ///
    /// # Errors
    ///
    /// Returns an error if there is no common version or the peer's role is not expected.
    pub fn agree(&self, expected: &[Role]) -> Result<u16, GreetingError> {
        if !expected.contains(&self.role) {
            return Err(GreetingError::Role);
        }
        let common = self.newest.min(VERSION);
        if self.newest < self.oldest || common < self.oldest.max(OLDEST) {
            return Err(GreetingError::Version(self.oldest, self.newest));
        }
        Ok(common)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn newest_common_version_is_chosen() {
        for role in [Role::Balancer, Role::Host, Role::Peer, Role::Controller] {
            let greeting = Greeting::new(role);
            assert_eq!(Greeting::decode(&greeting.encode()), Ok(greeting));
            assert_eq!(greeting.agree(&[role]), Ok(VERSION));
        }
        let newer = Greeting { newest: VERSION + 5, oldest: OLDEST, role: Role::Host };
        assert_eq!(newer.agree(&[Role::Host]), Ok(VERSION), "a later release that still speaks this one");
        let apart = Greeting { newest: VERSION + 5, oldest: VERSION + 1, role: Role::Host };
        assert_eq!(apart.agree(&[Role::Host]), Err(GreetingError::Version(VERSION + 1, VERSION + 5)));
        let odd = Greeting { newest: 0, oldest: 3, role: Role::Host };
        assert!(odd.agree(&[Role::Host]).is_err());
        assert_eq!(newer.agree(&[Role::Peer, Role::Balancer]), Err(GreetingError::Role));
    }

    #[test]
    fn something_else_is_no_greeting() {
        assert_eq!(Greeting::decode(b"GET / HTTP/1."), Err(GreetingError::NotFabric));
        let mut octets = Greeting::new(Role::Host).encode();
        octets[12] = 9;
        assert_eq!(Greeting::decode(&octets), Err(GreetingError::NotFabric));
    }
}
