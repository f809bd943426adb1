//! TLS of the API as a client sees it.

use super::tests::{Source, config};
use super::*;
use crate::config::ApiTls;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::ring::default_provider;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{ClientConfig, ClientConnection, DigitallySignedStruct, SignatureScheme, StreamOwned};
use std::io::{Read, Write};
use std::net::TcpStream;

/// Accepts one certificate.
#[derive(Debug)]
struct Only(Vec<u8>);

impl ServerCertVerifier for Only {
    fn verify_server_cert(
        &self,
        shown: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        let known = shown.as_ref() == self.0.as_slice();
        if known { Ok(ServerCertVerified::assertion()) } else { Err(rustls::Error::General("another".into())) }
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Err(rustls::Error::General("TLS 1.2".into()))
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = default_provider().signature_verification_algorithms;
        rustls::crypto::verify_tls13_signature(message, certificate, signed, &algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        default_provider().signature_verification_algorithms.supported_schemes()
    }
}

/// Writes a new certificate and its key.
fn identity(directory: &std::path::Path) -> ApiTls {
    let signed = vireo_pki::Authority::new().unwrap().sign("api", &["vireo://x/api"], 1).unwrap();
    let tls = ApiTls { certificate: directory.join("api.pem"), key: directory.join("api.key") };
    std::fs::write(&tls.certificate, signed.certificate).unwrap();
    std::fs::write(&tls.key, signed.key).unwrap();
    tls
}

#[test]
fn tls_serves_the_routes_by_its_certificate() {
    let directory = tempfile::tempdir().unwrap();
    let tls = identity(directory.path());
    let known = super::tls::certificates(&tls).unwrap()[0].to_vec();
    let config = ApiConfig { tls: Some(tls), ..config(directory.path()) };
    let source = Arc::new(Source::default());
    let server = Server::start(&config, source, Arc::new(Metrics::new())).unwrap().unwrap();
    let address = server.address().unwrap();
    let client = ClientConfig::builder_with_provider(Arc::new(default_provider()))
        .with_protocol_versions(&[&rustls::version::TLS13])
        .unwrap()
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(Only(known)))
        .with_no_client_auth();
    let name = ServerName::try_from("localhost").unwrap();
    let connection = ClientConnection::new(Arc::new(client), name).unwrap();
    let mut stream = StreamOwned::new(connection, TcpStream::connect(address).unwrap());
    write!(stream, "GET /healthz HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n").unwrap();
    let mut answer = String::new();
    // The server ends the connection without a close_notify.
    let _ = stream.read_to_string(&mut answer);
    assert!(answer.starts_with("HTTP/1.1 200") && answer.ends_with("ok\n"), "{answer}");
    // Plain HTTP gets no answer.
    let mut plain = TcpStream::connect(address).unwrap();
    // The server may end the connection before it has all.
    let _ = write!(plain, "GET /healthz HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n");
    let mut octets = Vec::new();
    let _ = plain.read_to_end(&mut octets);
    assert!(!octets.starts_with(b"HTTP"), "{octets:?}");
}

#[test]
fn unusable_tls_files_are_named() {
    let directory = tempfile::tempdir().unwrap();
    let (good, other) = (identity(directory.path()), tempfile::tempdir().unwrap());
    let foreign = identity(other.path());
    let start = |tls: ApiTls| {
        let config = ApiConfig { tls: Some(tls), ..config(directory.path()) };
        Prepared::new(&config).unwrap_err().to_string()
    };
    let missing = directory.path().join("missing.pem");
    assert!(start(ApiTls { certificate: missing.clone(), ..good.clone() }).contains("api.tls-certificate"));
    assert!(start(ApiTls { key: missing, ..good.clone() }).contains("api.tls-key"));
    assert!(start(ApiTls { certificate: good.key.clone(), ..good.clone() }).contains("no certificate"));
    assert!(start(ApiTls { key: foreign.key, ..good }).contains("the key must be that"));
}
