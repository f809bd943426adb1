//! The fabric: how the controller, the balancers and the hosts of a cluster talk, over TCP.
//!
//! Each side of a connection first sends a *greeting* of fixed layout, which every version of the fabric reads:
//!
//! ```text
//! octets 0-7   "VIREOFAB"
//! octets 8-9   the newest version that the sender speaks, big-endian
//! octets 10-11 the oldest version that it speaks
//! octet 12     its role: 1 balancer, 2 host (towards balancers and the controller), 3 host (towards another host),
//!              4 controller
//! ```
//!
//! Both go on in the newest version that both speak; if there is none, the connection ends with a sentence. What follows
//! are *frames*: four octets of length, big-endian, then one message ([`message`], [`membership`]). Several frames leave in one write. Messages are
//! enumerations in postcard's encoding, where a variant is a number: a later version adds variants and never moves or
//! changes one that is there, and sends new ones only to who speaks that version. So a cluster is upgraded host by host.
//!
//! Nothing here trusts its peer: lengths are bounded before memory is taken, and what does not decode ends the
//! connection. With [`crate::identity::TlsConfig`] all of this goes over TLS, in which each side shows the other a certificate of its role before
//! either greets; without it the fabric belongs on a network of the operator's.

#![forbid(unsafe_code)]

#[cfg(test)]
#[path = "../../vireo/src/pki/authority.rs"]
mod authority;
pub mod frame;
pub mod identity;
pub mod membership;
pub mod message;
mod socket;
pub mod stream;
mod tls;

pub use frame::{FrameError, FrameReader, FrameWriter};
use serde::{Deserialize, Serialize};
pub use tls::Security;
pub use tls::TlsPeerError;

/// The version that this release speaks.
pub const VERSION: u16 = 9;
/// The oldest version that this release speaks.
pub const OLDEST: u16 = 9;
/// Octets of a greeting.
pub const GREETING: usize = 13;
const MAGIC: [u8; 8] = *b"VIREOFAB";
/// The first octets of TLS: an alert, or a handshake (RFC 8446 5.1).
const TLS: [u8; 2] = [21, 22];

/// Who speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Role {
    /// A balancer.
    Balancer,
    /// A host, to a balancer or the controller.
    Host,
    /// A host, to another.
    Peer,
    /// The controller.
    Controller,
}

/// What each side says first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Greeting {
    /// The newest version that it speaks.
    pub newest: u16,
    /// The oldest.
    pub oldest: u16,
    /// Its role.
    pub role: Role,
}

/// Why a peer is not talked to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum GreetingError {
    /// It is something else.
    #[error(
        "whoever is there does not speak Vireo's fabric; check cluster.controller, cluster.balancer and cluster.listen"
    )]
    Stranger,
    /// It speaks TLS.
    #[error("it speaks TLS, and this member without: set cluster.tls here as there, or for no member")]
    Tls,
    /// No common version.
    #[error("it speaks versions {0} to {1} of the fabric, this release {OLDEST} to {VERSION}: upgrade the older first")]
    Version(u16, u16),
    /// Not what its certificate is for.
    #[error(
        "it greets as {0:?}, and its certificate is for something else: issue one for that role (`vireo pki issue`)"
    )]
    Certificate(Role),
    /// Not whom this connection is for.
    #[error(
        "it has another role than was expected here; check cluster.controller, cluster.balancer and cluster.listen"
    )]
    Role,
}

impl Greeting {
    /// This release's.
    pub fn of(role: Role) -> Self {
        Greeting { newest: VERSION, oldest: OLDEST, role }
    }

    /// Its octets.
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

    /// Of its octets.
    ///
    /// # Errors
    ///
    /// When they are none.
    pub fn decode(octets: &[u8; GREETING]) -> Result<Self, GreetingError> {
        let [m0, m1, m2, m3, m4, m5, m6, m7, n0, n1, o0, o1, role] = *octets;
        if [m0, m1, m2, m3, m4, m5, m6, m7] != MAGIC {
            return Err(GreetingError::Stranger);
        }
        let role = match role {
            1 => Role::Balancer,
            2 => Role::Host,
            3 => Role::Peer,
            4 => Role::Controller,
            _ => return Err(GreetingError::Stranger),
        };
        Ok(Greeting { newest: u16::from_be_bytes([n0, n1]), oldest: u16::from_be_bytes([o0, o1]), role })
    }

    /// The version that both sides go on in.
    ///
    /// # Errors
    ///
    /// When there is none, or the peer has another role than it should.
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
    fn the_newest_common_version_is_spoken() {
        for role in [Role::Balancer, Role::Host, Role::Peer, Role::Controller] {
            let greeting = Greeting::of(role);
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
        assert_eq!(Greeting::decode(b"GET / HTTP/1."), Err(GreetingError::Stranger));
        let mut octets = Greeting::of(Role::Host).encode();
        octets[12] = 9;
        assert_eq!(Greeting::decode(&octets), Err(GreetingError::Stranger));
    }
}
