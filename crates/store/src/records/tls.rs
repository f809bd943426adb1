//! TLS of connections to a database: whose certificates are accepted, and what this process shows.

use serde::{Deserialize, Serialize};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// Files in PEM, read for each connection.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DatabaseTls {
    /// Authorities that sign the database's certificate; `None`: those of the system.
    pub authorities: Option<PathBuf>,
    /// The certificate that this process shows; `None`: none.
    pub certificate: Option<PathBuf>,
    /// Its private key, with the certificate.
    pub key: Option<PathBuf>,
}

/// A file of [`DatabaseTls`] that is not usable.
#[derive(Debug, thiserror::Error)]
#[error("state.tls.{key}: {}: {error}; a file in PEM that this process may read is needed", path.display())]
pub struct DatabaseTlsError {
    key: &'static str,
    path: PathBuf,
    error: io::Error,
}

impl DatabaseTls {
    /// What the client of the database needs.
    ///
    /// # Errors
    ///
    /// When a file cannot be read, or holds something else.
    pub(super) fn read(&self) -> Result<redis::TlsCertificates, DatabaseTlsError> {
        // The client takes that of the process. One that is there already is the same.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let read =
            |key, path: &Option<PathBuf>, begins| path.as_deref().map(|path| file(key, path, begins)).transpose();
        let root_cert = read("authorities", &self.authorities, CERTIFICATE)?;
        let client_cert = read("certificate", &self.certificate, CERTIFICATE)?;
        let client_key = read("key", &self.key, KEY)?;
        let client_tls = client_cert
            .zip(client_key)
            .map(|(client_cert, client_key)| redis::ClientTlsConfig { client_cert, client_key });
        Ok(redis::TlsCertificates { client_tls, root_cert })
    }

    /// Checks that the files are there and in PEM.
    ///
    /// # Errors
    ///
    /// [`DatabaseTlsError`] names the first that is not.
    pub fn check(&self) -> Result<(), DatabaseTlsError> {
        self.read().map(|_| ())
    }
}

/// Of a certificate in PEM, and of a private key of any kind (RFC 7468).
const CERTIFICATE: &str = "BEGIN CERTIFICATE-----";
const KEY: &str = "PRIVATE KEY-----";

fn file(key: &'static str, path: &Path, has: &str) -> Result<Vec<u8>, DatabaseTlsError> {
    let failed = |error| DatabaseTlsError { key, path: path.to_owned(), error };
    let octets = fs::read(path).map_err(failed)?;
    let is_pem = octets.windows(has.len()).any(|part| part == has.as_bytes());
    if is_pem { Ok(octets) } else { Err(failed(io::ErrorKind::InvalidData.into())) }
}
