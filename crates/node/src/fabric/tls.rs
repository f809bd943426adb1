//! TLS of the fabric (TLS 1.3 alone, both sides show certificates): whoever has none that the cluster's authorities have
//! signed for the cluster's name is not talked to. All members' certificates are for the same name, so that a member may
//! be at any address.

use super::FrameError;
use rustls::client::danger::HandshakeSignatureValid;
use rustls::client::{Resumption, verify_server_name};
use rustls::crypto::ring;
use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::server::{ParsedCertificate, WebPkiClientVerifier};
use rustls::{
    AlertDescription, CertificateError, ClientConfig, ClientConnection, Connection, DigitallySignedStruct,
    DistinguishedName, Error, RootCertStore, ServerConfig, ServerConnection, SignatureScheme, version,
};
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// How long nothing more is said of an address that is not talked to: it tries again and again.
const SAID_FOR: Duration = Duration::from_secs(60);
/// Addresses of which it is known when something was said.
const ADDRESSES: usize = 64;

/// The files of a member, in PEM.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsConfig {
    /// Its certificate, and those between it and an authority.
    pub certificate: PathBuf,
    /// Its private key.
    pub key: PathBuf,
    /// The authorities that sign the certificates of the cluster's members.
    pub authorities: PathBuf,
    /// The name that all members' certificates are for (a subjectAltName).
    pub name: String,
}

impl TlsConfig {
    /// Looks whether the files are good, which the configuration's table of that name has.
    ///
    /// # Errors
    ///
    /// What is wrong.
    pub fn check(&self, table: &'static str) -> Result<(), TlsError> {
        self.configurations(table).map(|_| ())
    }

    /// What the two sides of connections are made with, of the configuration's table of that name.
    ///
    /// # Errors
    ///
    /// When a file is not there, or does not fit the others.
    pub(crate) fn configurations(
        &self,
        table: &'static str,
    ) -> Result<(ClientConfig, ServerConfig, ServerName<'static>), TlsError> {
        let unfit = |error| TlsError::Unfit { table, error };
        let name =
            ServerName::try_from(self.name.clone()).map_err(|_| TlsError::Name { table, name: self.name.clone() })?;
        let provider = Arc::new(ring::default_provider());
        let chain = certificates(table, "certificate", &self.certificate)?;
        let key = || {
            PrivateKeyDer::from_pem_file(&self.key).map_err(|error| TlsError::File {
                key: format!("{table}.key"),
                path: self.key.clone(),
                error,
            })
        };
        let mut roots = RootCertStore::empty();
        for authority in certificates(table, "authorities", &self.authorities)? {
            roots.add(authority).map_err(unfit)?;
        }
        let roots = Arc::new(roots);
        let mut client = ClientConfig::builder_with_provider(Arc::clone(&provider))
            .with_protocol_versions(&[&version::TLS13])
            .map_err(unfit)?
            .with_root_certificates(Arc::clone(&roots))
            .with_client_auth_cert(chain.clone(), key()?)
            .map_err(unfit)?;
        // Certificates are shown each time: connections last.
        client.resumption = Resumption::disabled();
        let signed = WebPkiClientVerifier::builder_with_provider(roots, Arc::clone(&provider))
            .build()
            .map_err(|error| TlsError::Authorities { table, error })?;
        let verifier = Arc::new(Members { signed, name: name.clone() });
        let mut server = ServerConfig::builder_with_provider(provider)
            .with_protocol_versions(&[&version::TLS13])
            .map_err(unfit)?
            .with_client_cert_verifier(verifier)
            .with_single_cert(chain, key()?)
            .map_err(unfit)?;
        server.send_tls13_tickets = 0;
        Ok((client, server, name))
    }
}

/// Why a member's files are not good.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// A file.
    #[error("{key}: {}: {error}; a file in PEM is needed, that this process may read", path.display())]
    File {
        /// The key of the configuration.
        key: String,
        /// The file.
        path: PathBuf,
        /// What is wrong.
        error: pem::Error,
    },
    /// No certificates.
    #[error("{key}: {} has no certificate in PEM", path.display())]
    Empty {
        /// The key of the configuration.
        key: String,
        /// The file.
        path: PathBuf,
    },
    /// What they say.
    #[error("{table}: {error}; check that key and certificate belong together, and the authorities")]
    Unfit {
        /// The table of the configuration.
        table: &'static str,
        /// What is wrong.
        error: Error,
    },
    /// The authorities.
    #[error("{table}.authorities: {error}")]
    Authorities {
        /// The table of the configuration.
        table: &'static str,
        /// What is wrong.
        error: rustls::server::VerifierBuilderError,
    },
    /// The name.
    #[error("{table}.name: {name:?} is no name that a certificate can be for; a DNS name is needed")]
    Name {
        /// The table of the configuration.
        table: &'static str,
        /// The name.
        name: String,
    },
}

/// Why a connection is not secure.
#[derive(Debug, thiserror::Error)]
pub enum Insecure {
    /// The other side has no TLS.
    #[error("it speaks without TLS, and this member with it: set cluster.tls there too, or for no member")]
    Plain,
    /// TLS.
    #[error("{}", told("cluster.tls", .0))]
    Tls(Error),
}

/// What secures connections, if anything does; and of which peers was said that they are not talked to.
#[derive(Clone, Default)]
pub(crate) struct Security {
    tls: Option<Arc<Tls>>,
    said: Arc<Mutex<Vec<(IpAddr, Instant)>>>,
}

impl std::fmt::Debug for Security {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // A key is nobody's business.
        f.debug_struct("Security").field("tls", &self.tls.is_some()).finish_non_exhaustive()
    }
}

struct Tls {
    client: Arc<ClientConfig>,
    server: Arc<ServerConfig>,
    name: ServerName<'static>,
}

impl Security {
    /// By a member's files; without a configuration nothing secures.
    ///
    /// # Errors
    ///
    /// When a file is not there, or does not fit the others.
    pub(crate) fn load(config: Option<&TlsConfig>) -> Result<Self, TlsError> {
        let Some(config) = config else { return Ok(Security::default()) };
        let (client, server, name) = config.configurations("cluster.tls")?;
        let tls = Tls { client: Arc::new(client), server: Arc::new(server), name };
        Ok(Security { tls: Some(Arc::new(tls)), said: Arc::default() })
    }

    /// The side that makes a connection; `None` where nothing secures.
    pub(super) fn connecting(&self) -> Result<Option<Connection>, Error> {
        let connection = |tls: &Arc<Tls>| ClientConnection::new(Arc::clone(&tls.client), tls.name.clone());
        Ok(self.tls.as_ref().map(connection).transpose()?.map(Connection::from))
    }

    /// The side that is asked for one.
    pub(super) fn accepting(&self) -> Result<Option<Connection>, Error> {
        let connection = |tls: &Arc<Tls>| ServerConnection::new(Arc::clone(&tls.server));
        Ok(self.tls.as_ref().map(connection).transpose()?.map(Connection::from))
    }

    /// Says of a peer that it is not talked to, now and then.
    pub(super) fn refuses(&self, peer: Option<SocketAddr>, why: &FrameError) {
        if peer.is_none_or(|peer| self.is_news(peer.ip(), Instant::now())) {
            tracing::warn!(?peer, %why, "somebody is not talked to over the fabric");
        }
    }

    fn is_news(&self, address: IpAddr, now: Instant) -> bool {
        // Poisoned by nobody: what is done under the lock does not panic.
        let Ok(mut said) = self.said.lock() else { return false };
        said.retain(|(_, at)| now.duration_since(*at) < SAID_FOR);
        let is_new = said.len() < ADDRESSES && !said.iter().any(|(known, _)| *known == address);
        if is_new {
            said.push((address, now));
        }
        is_new
    }
}

/// Takes those for members who show certificates that an authority has signed for the cluster's name.
#[derive(Debug)]
struct Members {
    signed: Arc<dyn ClientCertVerifier>,
    name: ServerName<'static>,
}

impl ClientCertVerifier for Members {
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        self.signed.root_hint_subjects()
    }

    fn verify_client_cert(
        &self,
        end: &CertificateDer<'_>,
        between: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        let verified = self.signed.verify_client_cert(end, between, now)?;
        verify_server_name(&ParsedCertificate::try_from(end)?, &self.name)?;
        Ok(verified)
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.signed.verify_tls12_signature(message, certificate, signature)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.signed.verify_tls13_signature(message, certificate, signature)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.signed.supported_verify_schemes()
    }
}

fn certificates(table: &str, key: &str, path: &Path) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let key = || format!("{table}.{key}");
    let wrong = |error| TlsError::File { key: key(), path: path.to_owned(), error };
    let all: Vec<_> = CertificateDer::pem_file_iter(path).map_err(wrong)?.collect::<Result<_, _>>().map_err(wrong)?;
    if all.is_empty() { Err(TlsError::Empty { key: key(), path: path.to_owned() }) } else { Ok(all) }
}

/// What is wrong with a peer, and what helps, where the configuration's table of that name says who is good.
pub(crate) fn told(table: &str, error: &Error) -> String {
    use CertificateError as Wrong;
    let certificate = match error {
        Error::InvalidCertificate(wrong) => wrong,
        Error::NoCertificatesPresented => return format!("it shows no certificate: set {table} there as here"),
        Error::InvalidMessage(_) => return format!("it speaks without TLS: set {table} there as here"),
        Error::AlertReceived(
            alert @ (AlertDescription::UnknownCA
            | AlertDescription::BadCertificate
            | AlertDescription::UnsupportedCertificate
            | AlertDescription::CertificateExpired
            | AlertDescription::CertificateRevoked
            | AlertDescription::CertificateUnknown
            | AlertDescription::CertificateRequired
            | AlertDescription::DecryptError
            | AlertDescription::AccessDenied),
        ) => return format!("it does not take this member's certificate ({alert:?}): its log says why"),
        other => return format!("TLS fails: {other}"),
    };
    match certificate {
        Wrong::UnknownIssuer | Wrong::BadSignature => {
            format!("its certificate is of none of {table}.authorities: have one of them sign it")
        }
        Wrong::NotValidForName | Wrong::NotValidForNameContext { .. } => {
            format!("its certificate is for another name than {table}.name")
        }
        Wrong::Expired | Wrong::ExpiredContext { .. } => "its certificate has expired: give it another one".into(),
        Wrong::NotValidYet | Wrong::NotValidYetContext { .. } => {
            "its certificate is not valid yet: look at both machines' clocks".into()
        }
        Wrong::InvalidPurpose | Wrong::InvalidPurposeContext { .. } => {
            "its certificate is not for servers and clients both, as its extended key usage says".into()
        }
        other => format!("its certificate is not good: {other}"),
    }
}

#[cfg(test)]
mod tests {
    use super::super::authority::{Authority, NAME};
    use super::*;

    #[test]
    fn files_that_are_not_good_are_named_by_their_keys() {
        let directory = tempfile::tempdir().unwrap();
        let (one, other) = (Authority::new().unwrap(), Authority::new().unwrap());
        let good = one.member(directory.path(), "good", NAME).unwrap();
        let config = |certificate: &Path, key: &Path| TlsConfig {
            certificate: certificate.into(),
            key: key.into(),
            authorities: good.authorities.clone(),
            name: NAME.into(),
        };
        let member = config(&good.certificate, &good.key);
        assert!(member.check("cluster.tls").is_ok());
        assert!(Security::load(None).is_ok_and(|security| security.tls.is_none()));
        let says = |config: &TlsConfig| config.check("cluster.tls").unwrap_err().to_string();
        let nothing = directory.path().join("nothing");
        assert!(says(&config(&nothing, &good.key)).starts_with("cluster.tls.certificate: "));
        assert!(says(&config(&good.certificate, &nothing)).starts_with("cluster.tls.key: "));
        // Files that hold something else.
        assert!(says(&config(&good.key, &good.key)).contains("has no certificate in PEM"));
        assert!(says(&config(&good.certificate, &good.certificate)).starts_with("cluster.tls.key: "));
        let theirs = other.member(directory.path(), "other", NAME).unwrap();
        assert!(says(&config(&good.certificate, &theirs.key)).contains("belong together"));
        let unnamed = TlsConfig { name: "no name".into(), ..member };
        assert!(says(&unnamed).starts_with("cluster.tls.name: \"no name\""), "{}", says(&unnamed));
    }

    #[test]
    fn of_an_address_that_comes_again_and_again_is_spoken_once_a_minute() {
        let (security, now) = (Security::default(), Instant::now());
        let address = |n: u8| IpAddr::from([192, 0, 2, n]);
        assert!(security.is_news(address(1), now));
        assert!(!security.is_news(address(1), now + Duration::from_secs(59)));
        assert!(security.is_news(address(1), now + Duration::from_secs(60)));
        let news = (0..=255).filter(|n| security.is_news(address(*n), now + Duration::from_secs(61))).count();
        assert_eq!(news, ADDRESSES - 1, "and not without bound");
    }
}
