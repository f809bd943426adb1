//! TLS of database connections: accepted authorities and the client certificate.

use serde::{Deserialize, Serialize};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// PEM files, read for each connection.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DatabaseTls {
    /// Authorities that sign the database's certificate; `None`: those of the system.
    pub authorities: Option<PathBuf>,
    /// Client certificate of this process; `None`: none.
    pub certificate: Option<PathBuf>,
    /// Private key of `certificate`.
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
    /// Reads the certificates for the database client.
    ///
    /// # Errors
    ///
    /// Returns an error if a file cannot be read or is not in PEM.
    pub(super) fn read(&self) -> Result<redis::TlsCertificates, DatabaseTlsError> {
        // The client uses the crypto provider of the process. If one is installed already, it is
        // the same.
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

    /// Checks that the files are readable and in PEM.
    ///
    /// # Errors
    ///
    /// Returns a [`DatabaseTlsError`] for the first file that is not.
    pub fn check(&self) -> Result<(), DatabaseTlsError> {
        self.read().map(|_| ())
    }
}

/// Labels of a certificate in PEM, and of a private key of any kind (RFC 7468).
const CERTIFICATE: &str = "BEGIN CERTIFICATE-----";
const KEY: &str = "PRIVATE KEY-----";

fn file(key: &'static str, path: &Path, has: &str) -> Result<Vec<u8>, DatabaseTlsError> {
    let failed = |error| DatabaseTlsError { key, path: path.to_owned(), error };
    let octets = fs::read(path).map_err(failed)?;
    let is_pem = octets.windows(has.len()).any(|part| part == has.as_bytes());
    if is_pem { Ok(octets) } else { Err(failed(io::ErrorKind::InvalidData.into())) }
}
