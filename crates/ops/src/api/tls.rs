//! TLS of the API: certificate and key of the server. Clients show tokens, no certificates.

use crate::config::ApiTls;
use rustls::ServerConfig;
use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use std::path::PathBuf;
use std::sync::Arc;

/// Reasons why TLS does not start.
#[derive(Debug, thiserror::Error)]
pub enum ApiTlsError {
    /// A file cannot be read, or is not PEM.
    #[error("api.{key}: {} is not usable ({cause}); a PEM file is needed", path.display())]
    File { key: &'static str, path: PathBuf, cause: String },
    /// Certificate and key do not belong together.
    #[error("api.tls-certificate and api.tls-key: {0}; the key must be that of the first certificate")]
    Pair(rustls::Error),
}

/// Returns the certificates of a file.
pub(super) fn certificates(tls: &ApiTls) -> Result<Vec<CertificateDer<'static>>, ApiTlsError> {
    let failed = |cause: String| ApiTlsError::File { key: "tls-certificate", path: tls.certificate.clone(), cause };
    let found = CertificateDer::pem_file_iter(&tls.certificate).map_err(|error| failed(error.to_string()))?;
    let found = found.collect::<Result<Vec<_>, _>>().map_err(|error| failed(error.to_string()))?;
    if found.is_empty() { Err(failed("it has no certificate".into())) } else { Ok(found) }
}

/// Loads certificate and key. TLS 1.3 only.
pub(super) fn load(tls: &ApiTls) -> Result<Arc<ServerConfig>, ApiTlsError> {
    let failed = |cause: String| ApiTlsError::File { key: "tls-key", path: tls.key.clone(), cause };
    let key = PrivateKeyDer::from_pem_file(&tls.key).map_err(|error| failed(error.to_string()))?;
    let config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_protocol_versions(&[&rustls::version::TLS13])
        .map_err(ApiTlsError::Pair)?
        .with_no_client_auth()
        .with_single_cert(certificates(tls)?, key)
        .map_err(ApiTlsError::Pair)?;
    Ok(Arc::new(config))
}
