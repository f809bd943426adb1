//! Certificates by role: identity of a process and verification of its peers.
//!
//! A certificate names the roles of its process in URIs among its subject alternative names:
//! `vireo://CLUSTER/ROLE`, one for each role. Each listener and each connector specifies the roles
//! that it expects. It accepts a certificate only if one of the configured authorities has signed
//! it for one of these roles of the same cluster. So a certificate stolen from one process opens
//! only the connections of that process's roles. Addresses and host names are not checked: a
//! process may run on any machine.
//!
//! All connections use TLS 1.3 with certificates on both sides. There is no revocation:
//! certificates have short lifetimes, or the authority is replaced.

use rustls::client::Resumption;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::verify_server_cert_signed_by_trust_anchor;
use rustls::crypto::{CryptoProvider, ring, verify_tls13_signature};
use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::server::{ParsedCertificate, WebPkiClientVerifier};
use rustls::{
    AlertDescription, CertificateError, ClientConfig, DigitallySignedStruct, DistinguishedName, Error, OtherError,
    RootCertStore, ServerConfig, SignatureScheme, version,
};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// A role of a process, as its certificate states it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CertificateRole {
    /// Controller of a cluster.
    Controller,
    /// Balancer of a cluster. A balancer with an embedded controller has both roles.
    Balancer,
    /// Host of a cluster.
    Host,
    /// AMF in SBA mode.
    Amf,
    /// SMF in SBA mode.
    Smf,
    /// UPF. It has no fabric or SBI connections; its certificate is for databases.
    Upf,
}

impl CertificateRole {
    /// All roles.
    pub const ALL: [CertificateRole; 6] = [
        CertificateRole::Controller,
        CertificateRole::Balancer,
        CertificateRole::Host,
        CertificateRole::Amf,
        CertificateRole::Smf,
        CertificateRole::Upf,
    ];

    /// Returns the name of the role in URIs.
    pub const fn name(self) -> &'static str {
        match self {
            CertificateRole::Controller => "controller",
            CertificateRole::Balancer => "balancer",
            CertificateRole::Host => "host",
            CertificateRole::Amf => "amf",
            CertificateRole::Smf => "smf",
            CertificateRole::Upf => "upf",
        }
    }

    /// Returns the URI of the role in certificates of a cluster.
    pub fn uri(self, cluster: &str) -> String {
        format!("vireo://{cluster}/{}", self.name())
    }
}

/// A set of roles.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CertificateRoles(u8);

impl CertificateRoles {
    /// Returns the set of `roles`.
    pub const fn new(roles: &[CertificateRole]) -> Self {
        let (mut bits, mut n) = (0, 0);
        while n < roles.len() {
            bits |= 1 << roles[n] as u8;
            n += 1;
        }
        CertificateRoles(bits)
    }

    /// Returns the roles of a certificate in a cluster; none if it cannot be parsed.
    pub fn from_certificate(certificate: &CertificateDer<'_>, cluster: &str) -> Self {
        let Ok(parsed) = webpki::EndEntityCert::try_from(certificate) else { return CertificateRoles::default() };
        let mut roles = CertificateRoles::default();
        for uri in parsed.valid_uri_names() {
            let role = CertificateRole::ALL.iter().find(|role| role.uri(cluster) == uri);
            roles.0 |= role.map_or(0, |role| 1 << *role as u8);
        }
        roles
    }

    /// Returns true if this set contains all of `others`.
    pub const fn contains(self, others: CertificateRoles) -> bool {
        self.0 & others.0 == others.0
    }

    /// Returns true if this set contains any of `others`.
    pub const fn meets(self, others: CertificateRoles) -> bool {
        self.0 & others.0 != 0
    }
}

impl fmt::Display for CertificateRoles {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names =
            CertificateRole::ALL.iter().filter(|role| self.0 & (1 << **role as u8) != 0).map(|role| role.name());
        let names: Vec<&str> = names.collect();
        f.write_str(if names.is_empty() { "no role" } else { "" })?;
        f.write_str(&names.join(", "))
    }
}

/// The PEM files of a process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsConfig {
    /// Certificate of the process, followed by the intermediate certificates.
    pub certificate: PathBuf,
    /// Private key of the certificate.
    pub key: PathBuf,
    /// Certificates of the authorities that sign the peers' certificates.
    pub authorities: PathBuf,
    /// Name of the cluster of all roles.
    pub name: String,
}

/// The loaded certificate, key and authorities of a process.
pub struct Identity {
    table: &'static str,
    provider: Arc<CryptoProvider>,
    chain: Vec<CertificateDer<'static>>,
    key: PrivateKeyDer<'static>,
    roots: Arc<RootCertStore>,
    cluster: Arc<str>,
}

impl fmt::Debug for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Never print the key.
        f.debug_struct("Identity").field("cluster", &self.cluster).finish_non_exhaustive()
    }
}

impl TlsConfig {
    /// Checks the files. `table` is the configuration table that names them.
    ///
    /// # Errors
    ///
    /// Returns an error if a file is unusable or the files do not fit together.
    pub fn check(&self, table: &'static str) -> Result<(), TlsError> {
        let identity = self.load(table, CertificateRoles::default())?;
        identity.client(CertificateRoles::default()).map(|_| ())
    }

    /// Loads the files for a process with the roles `own`. `table` is the configuration table that
    /// names them.
    ///
    /// # Errors
    ///
    /// Returns an error if a file is missing or unusable, the files do not fit together, or the
    /// certificate lacks a role.
    pub fn load(&self, table: &'static str, own: CertificateRoles) -> Result<Identity, TlsError> {
        let chain = certificates(table, "certificate", &self.certificate)?;
        let key = PrivateKeyDer::from_pem_file(&self.key).map_err(|error| TlsError::File {
            key: format!("{table}.key"),
            path: self.key.clone(),
            error,
        })?;
        let authorities = certificates(table, "authorities", &self.authorities)?;
        let has = chain.first().map(|own| CertificateRoles::from_certificate(own, &self.name)).unwrap_or_default();
        if !has.contains(own) {
            let (path, cluster) = (self.certificate.clone(), self.name.clone());
            return Err(TlsError::Role { table, path, cluster, has, needs: own });
        }
        Identity::new(table, (chain, key), authorities, &self.name)
    }
}

/// The same as [`TlsConfig`], as texts in PEM that were never written to a file.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TlsTexts {
    pub certificate: String,
    pub key: String,
    pub authorities: String,
    /// Name of the cluster of all roles.
    pub name: String,
}

impl fmt::Debug for TlsTexts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Never print the key.
        f.debug_struct("TlsTexts").field("name", &self.name).finish_non_exhaustive()
    }
}

impl TlsTexts {
    /// Parses the texts. `table` is the name of the connections in errors.
    ///
    /// # Errors
    ///
    /// Returns an error if a text is not PEM, or the texts do not fit together.
    pub fn load(&self, table: &'static str) -> Result<Identity, TlsError> {
        let wrong = |key: &str, error| TlsError::File { key: format!("{table}.{key}"), path: "memory".into(), error };
        let all = |key: &str, text: &str| {
            let all: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(text.as_bytes()).collect();
            all.map_err(|error| wrong(key, error))
        };
        let chain = all("certificate", &self.certificate)?;
        let key = PrivateKeyDer::from_pem_slice(self.key.as_bytes()).map_err(|error| wrong("key", error))?;
        Identity::new(table, (chain, key), all("authorities", &self.authorities)?, &self.name)
    }
}

impl Identity {
    /// Creates the identity of a certificate chain with its key.
    fn new(
        table: &'static str,
        (chain, key): (Vec<CertificateDer<'static>>, PrivateKeyDer<'static>),
        authorities: Vec<CertificateDer<'static>>,
        cluster: &str,
    ) -> Result<Self, TlsError> {
        let mut roots = RootCertStore::empty();
        for authority in authorities {
            roots.add(authority).map_err(|error| TlsError::Unfit { table, error })?;
        }
        let (provider, roots) = (Arc::new(ring::default_provider()), Arc::new(roots));
        Ok(Identity { table, provider, chain, key, roots, cluster: cluster.into() })
    }

    /// Returns the TLS configuration of connections to peers that have one of the `expected` roles.
    ///
    /// # Errors
    ///
    /// Returns [`TlsError::Unfit`] if key and certificate do not belong together.
    pub fn client(&self, expected: CertificateRoles) -> Result<ClientConfig, TlsError> {
        let unfit = |error| TlsError::Unfit { table: self.table, error };
        let mut client = ClientConfig::builder_with_provider(Arc::clone(&self.provider))
            .with_protocol_versions(&[&version::TLS13])
            .map_err(unfit)?
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(self.peers(expected)?))
            .with_client_auth_cert(self.chain.clone(), self.key.clone_key())
            .map_err(unfit)?;
        // Connections are long-lived, so each handshake presents certificates. The verifier checks
        // roles, not a server name.
        client.resumption = Resumption::disabled();
        client.enable_sni = false;
        Ok(client)
    }

    /// Returns the TLS configuration for connections from peers that have one of the `expected`
    /// roles.
    ///
    /// # Errors
    ///
    /// Returns [`TlsError::Unfit`] if key and certificate do not belong together.
    pub fn server(&self, expected: CertificateRoles) -> Result<ServerConfig, TlsError> {
        let unfit = |error| TlsError::Unfit { table: self.table, error };
        let mut server = ServerConfig::builder_with_provider(Arc::clone(&self.provider))
            .with_protocol_versions(&[&version::TLS13])
            .map_err(unfit)?
            .with_client_cert_verifier(Arc::new(self.peers(expected)?))
            .with_single_cert(self.chain.clone(), self.key.clone_key())
            .map_err(unfit)?;
        server.send_tls13_tickets = 0;
        Ok(server)
    }

    /// Returns the roles of a peer's certificate.
    pub fn roles_of(&self, certificate: &CertificateDer<'_>) -> CertificateRoles {
        CertificateRoles::from_certificate(certificate, &self.cluster)
    }

    fn peers(&self, expected: CertificateRoles) -> Result<Peers, TlsError> {
        let signed = WebPkiClientVerifier::builder_with_provider(Arc::clone(&self.roots), Arc::clone(&self.provider))
            .build()
            .map_err(|error| TlsError::Authorities { table: self.table, error })?;
        let (provider, roots, cluster) =
            (Arc::clone(&self.provider), Arc::clone(&self.roots), Arc::clone(&self.cluster));
        Ok(Peers { signed, provider, roots, cluster, expected })
    }
}

/// Returns a placeholder server name. No certificate has to contain it.
pub fn any_name() -> ServerName<'static> {
    ServerName::IpAddress(std::net::Ipv4Addr::UNSPECIFIED.into())
}

/// Verifier that accepts peers whose certificate one of the authorities has signed for an expected
/// role.
#[derive(Debug)]
struct Peers {
    signed: Arc<dyn ClientCertVerifier>,
    provider: Arc<CryptoProvider>,
    roots: Arc<RootCertStore>,
    cluster: Arc<str>,
    expected: CertificateRoles,
}

impl Peers {
    fn check(&self, end: &CertificateDer<'_>) -> Result<(), Error> {
        let has = CertificateRoles::from_certificate(end, &self.cluster);
        if has.meets(self.expected) {
            return Ok(());
        }
        let wrong = WrongRole { cluster: Arc::clone(&self.cluster), has, expected: self.expected };
        Err(Error::InvalidCertificate(CertificateError::Other(OtherError(Arc::new(wrong)))))
    }

    fn signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature(message, certificate, signature, &self.provider.signature_verification_algorithms)
    }
}

/// Returns the error of the TLS 1.2 callbacks, which TLS 1.3 connections never use.
fn never() -> Error {
    Error::General("TLS 1.3 alone is spoken".into())
}

impl ServerCertVerifier for Peers {
    fn verify_server_cert(
        &self,
        end: &CertificateDer<'_>,
        between: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let algorithms = self.provider.signature_verification_algorithms.all;
        let parsed = ParsedCertificate::try_from(end)?;
        verify_server_cert_signed_by_trust_anchor(&parsed, &self.roots, between, now, algorithms)?;
        self.check(end).map(|()| ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Err(never())
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.signature(message, certificate, signature)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}

impl ClientCertVerifier for Peers {
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
        self.check(end).map(|()| verified)
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Err(never())
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.signature(message, certificate, signature)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.signed.supported_verify_schemes()
    }
}

/// The certificate is valid but not for an expected role.
#[derive(Debug, thiserror::Error)]
#[error("the certificate of the peer is for {has} in cluster {cluster}, expected {expected}; issue one for that role")]
struct WrongRole {
    cluster: Arc<str>,
    has: CertificateRoles,
    expected: CertificateRoles,
}

/// Reasons why the TLS configuration of a process is refused.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// A file cannot be read or parsed.
    #[error("{key}: {}: {error}; a file in PEM is needed, that this process may read", path.display())]
    File {
        /// Configuration key of the file.
        key: String,
        path: PathBuf,
        error: pem::Error,
    },
    /// A file contains no certificate.
    #[error("{key}: {} has no certificate in PEM", path.display())]
    Empty {
        /// Configuration key of the file.
        key: String,
        path: PathBuf,
    },
    /// The files do not fit together.
    #[error("{table}: {error}; check that key and certificate belong together, and the authorities")]
    Unfit {
        /// Configuration table of the files.
        table: &'static str,
        error: Error,
    },
    /// The authorities are unusable.
    #[error("{table}.authorities: {error}")]
    Authorities {
        /// Configuration table of the files.
        table: &'static str,
        error: rustls::server::VerifierBuilderError,
    },
    /// The certificate is not for the roles of the process.
    #[error(
        "{table}.certificate: {} is for {has} in cluster {cluster}, and this process is {needs}: issue one with `vireo pki issue`",
        path.display()
    )]
    Role {
        /// Configuration table of the files.
        table: &'static str,
        path: PathBuf,
        /// Name of the cluster.
        cluster: String,
        /// Roles in the certificate.
        has: CertificateRoles,
        /// Roles of the process.
        needs: CertificateRoles,
    },
    /// The address is not on loopback, and the configuration has neither TLS nor `insecure = true`.
    #[error(
        "{table}.tls: other machines may reach {address}, and nothing secures it: set {table}.tls (`vireo pki`), or {table}.insecure \
         = true on a network of its own"
    )]
    Open {
        /// Configuration section of the listener.
        table: &'static str,
        address: SocketAddr,
    },
}

/// Checks that a process may listen on an address: on loopback, with TLS, or if the configuration
/// section has `insecure = true`.
///
/// # Errors
///
/// Returns [`TlsError::Open`] otherwise.
pub fn check_listener(
    table: &'static str,
    address: SocketAddr,
    (tls, insecure): (Option<&TlsConfig>, bool),
) -> Result<(), TlsError> {
    if tls.is_some() || address.ip().to_canonical().is_loopback() {
        return Ok(());
    }
    if !insecure {
        return Err(TlsError::Open { table, address });
    }
    tracing::warn!(section = table, %address, "connections are not secured: every process that reaches this address is a peer");
    Ok(())
}

fn certificates(table: &str, key: &str, path: &Path) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let key = || format!("{table}.{key}");
    let wrong = |error| TlsError::File { key: key(), path: path.to_owned(), error };
    let all: Vec<_> = CertificateDer::pem_file_iter(path).map_err(wrong)?.collect::<Result<_, _>>().map_err(wrong)?;
    if all.is_empty() { Err(TlsError::Empty { key: key(), path: path.to_owned() }) } else { Ok(all) }
}

/// Checks that an authority has signed a certificate. Both are in PEM.
///
/// # Errors
///
/// Returns an error if one of the two is not a certificate, or the signature is not valid.
pub fn verify_signed_by(certificate: &str, authority: &str) -> Result<(), SignatureError> {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_slice(authority.as_bytes())?)?;
    let end = CertificateDer::from_pem_slice(certificate.as_bytes())?;
    let parsed = ParsedCertificate::try_from(&end)?;
    let algorithms = ring::default_provider().signature_verification_algorithms.all;
    Ok(verify_server_cert_signed_by_trust_anchor(&parsed, &roots, &[], UnixTime::now(), algorithms)?)
}

/// Reason why a certificate is not one of an authority.
#[derive(Debug, thiserror::Error)]
pub enum SignatureError {
    /// The text has no certificate in PEM.
    #[error(transparent)]
    Pem(#[from] pem::Error),
    /// The certificate is invalid, or another authority has signed it.
    #[error(transparent)]
    Tls(#[from] Error),
}

/// Describes a TLS error of a peer and its remedy. `table` is the configuration table of the TLS
/// files.
pub fn describe(table: &str, error: &Error) -> String {
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
        Wrong::Expired | Wrong::ExpiredContext { .. } => "its certificate has expired: give it another one".into(),
        Wrong::NotValidYet | Wrong::NotValidYetContext { .. } => {
            "its certificate is not valid yet: look at both machines' clocks".into()
        }
        Wrong::InvalidPurpose | Wrong::InvalidPurposeContext { .. } => {
            "its certificate is not for servers and clients both, as its extended key usage says".into()
        }
        Wrong::Other(OtherError(other)) => other.to_string(),
        other => format!("its certificate is not good: {other}"),
    }
}

#[cfg(test)]
mod tests;
