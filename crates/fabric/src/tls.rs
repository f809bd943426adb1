//! TLS of the fabric: each member presents a certificate of its role and accepts those of the
//! expected roles ([`crate::identity`]).

use super::{FrameError, Role};
use crate::identity::{self, CertificateRole, CertificateRoles, Identity, TlsConfig, TlsError, TlsTexts};
use rustls::{ClientConfig, ClientConnection, Connection, Error, ServerConfig, ServerConnection};
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// Minimum time between two log lines about the same refused address, which retries continuously.
const LOG_INTERVAL: Duration = Duration::from_secs(60);
/// Maximum number of addresses with a recent log line.
const ADDRESSES: usize = 64;

/// Reason why a connection is not secure.
#[derive(Debug, thiserror::Error)]
pub enum TlsPeerError {
    /// The peer does not use TLS.
    #[error("the peer does not use TLS and this member does; set cluster.tls there too, or for no member")]
    Plain,
    /// Error of the TLS library.
    #[error("{}", identity::describe("cluster.tls", .0))]
    Tls(Error),
}

impl Role {
    /// Returns the certificate role that a member of this role presents.
    const fn certificate(self) -> CertificateRole {
        match self {
            Role::Controller => CertificateRole::Controller,
            Role::Balancer => CertificateRole::Balancer,
            Role::Host | Role::Peer => CertificateRole::Host,
        }
    }
}

/// Returns the certificate roles of members with these roles.
fn certificates(roles: &[Role]) -> CertificateRoles {
    CertificateRoles::new(&roles.iter().map(|role| role.certificate()).collect::<Vec<_>>())
}

/// Security of connections, if TLS is configured, and the refused peers with a recent log line.
#[derive(Clone, Default)]
pub struct Security {
    tls: Option<Arc<Tls>>,
    logged: Arc<Mutex<Vec<(IpAddr, Instant)>>>,
}

impl std::fmt::Debug for Security {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // Keys must not appear in logs.
        f.debug_struct("Security").field("tls", &self.tls.is_some()).finish_non_exhaustive()
    }
}

/// Sets of peer roles: each role alone, and hosts with balancers, which a controller accepts.
const PEERS: [&[Role]; 4] = [&[Role::Controller], &[Role::Balancer], &[Role::Host], &[Role::Host, Role::Balancer]];

struct Tls {
    identity: Identity,
    /// One element per set of roles in [`PEERS`].
    sides: Vec<RoleTls>,
}

/// TLS configuration of connections to peers that have one of `roles`.
struct RoleTls {
    roles: CertificateRoles,
    client: Arc<ClientConfig>,
    server: Arc<ServerConfig>,
}

impl Tls {
    /// Returns the TLS configuration for peers of these roles.
    fn with(&self, expected: &[Role]) -> Result<&RoleTls, Error> {
        let expected = certificates(expected);
        let side = self.sides.iter().find(|side| side.roles == expected);
        side.ok_or_else(|| Error::General(format!("bug: no connection is for {expected}")))
    }
}

impl Security {
    /// Loads the files of a member with these roles. Without a configuration, connections are not
    /// secured.
    ///
    /// # Errors
    ///
    /// Returns a [`TlsError`] if a file is missing, does not match the others, or is for another
    /// role.
    pub fn load(config: Option<&TlsConfig>, own: &[Role]) -> Result<Self, TlsError> {
        let Some(config) = config else { return Ok(Security::default()) };
        Security::new(config.load("cluster.tls", certificates(own))?)
    }

    /// Secures connections with a certificate in memory, as a process passes it to its children.
    ///
    /// # Errors
    ///
    /// Returns a [`TlsError`] if the texts are unusable.
    pub fn from_texts(texts: &TlsTexts) -> Result<Self, TlsError> {
        Security::new(texts.load("pools.shards")?)
    }

    fn new(identity: Identity) -> Result<Self, TlsError> {
        let side = |roles: &&[Role]| {
            let roles = certificates(roles);
            Ok(RoleTls { roles, client: Arc::new(identity.client(roles)?), server: Arc::new(identity.server(roles)?) })
        };
        let sides = PEERS.iter().map(side).collect::<Result<_, TlsError>>()?;
        Ok(Security { tls: Some(Arc::new(Tls { identity, sides })), logged: Arc::default() })
    }

    /// Creates the connecting side for a peer of these roles; `None` without TLS.
    pub(super) fn connecting(&self, expected: &[Role]) -> Result<Option<Connection>, Error> {
        let Some(tls) = &self.tls else { return Ok(None) };
        let client = Arc::clone(&tls.with(expected)?.client);
        Ok(Some(ClientConnection::new(client, identity::any_name())?.into()))
    }

    /// Creates the accepting side for a peer of these roles; `None` without TLS.
    pub(super) fn accepting(&self, expected: &[Role]) -> Result<Option<Connection>, Error> {
        let Some(tls) = &self.tls else { return Ok(None) };
        let server = Arc::clone(&tls.with(expected)?.server);
        Ok(Some(ServerConnection::new(server)?.into()))
    }

    /// Returns true if the peer may greet with this role: its certificate contains it, or TLS is
    /// off.
    pub(super) fn may_be(&self, connection: Option<&Connection>, role: Role) -> bool {
        let Some(tls) = &self.tls else { return true };
        let shown = connection.and_then(|connection| connection.peer_certificates()?.first());
        let roles = shown.map(|certificate| tls.identity.roles_of(certificate)).unwrap_or_default();
        roles.contains(CertificateRoles::new(&[role.certificate()]))
    }

    /// Logs that a peer is refused, at a limited rate.
    pub(super) fn refuses(&self, peer: Option<SocketAddr>, cause: &FrameError) {
        if peer.is_none_or(|peer| self.is_news(peer.ip(), Instant::now())) {
            tracing::warn!(?peer, reason = %cause, "fabric connection refused");
        }
    }

    fn is_news(&self, address: IpAddr, now: Instant) -> bool {
        // Never poisoned: the code under the lock does not panic.
        let Ok(mut logged) = self.logged.lock() else { return false };
        logged.retain(|(_, at)| now.duration_since(*at) < LOG_INTERVAL);
        let is_new = logged.len() < ADDRESSES && !logged.iter().any(|(known, _)| *known == address);
        if is_new {
            logged.push((address, now));
        }
        is_new
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_connection_has_its_roles() {
        for expected in PEERS {
            assert!(expected.iter().all(|role| certificates(expected).contains(certificates(&[*role]))));
        }
        assert_eq!(certificates(&[Role::Peer]), certificates(&[Role::Host]), "a host to another");
    }

    #[test]
    fn repeated_address_is_logged_once_a_minute() {
        let (security, now) = (Security::default(), Instant::now());
        let address = |n: u8| IpAddr::from([192, 0, 2, n]);
        assert!(security.is_news(address(1), now));
        assert!(!security.is_news(address(1), now + Duration::from_secs(59)));
        assert!(security.is_news(address(1), now + Duration::from_secs(60)));
        let news = (0..=255).filter(|n| security.is_news(address(*n), now + Duration::from_secs(61))).count();
        assert_eq!(news, ADDRESSES - 1, "and not without bound");
    }
}
