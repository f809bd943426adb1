//! Certificate authority of `vireo pki`, of demos and of tests.
//!
//! The authority's certificate follows from its key, except for its dates. Signing therefore needs
//! only the key.

#![forbid(unsafe_code)]

use rcgen::{
    BasicConstraints, Certificate, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, KeyPair, KeyUsagePurpose,
    SanType,
};
use std::fmt;
use std::fs::File;
use std::io::{self, Write};
use std::net::IpAddr;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Cluster name in certificates of demos and tests.
pub const NAME: &str = "fabric.vireo.test";

/// Largest difference between the clocks of two machines.
const SKEW: Duration = Duration::from_secs(3600);
const DAY: Duration = Duration::from_secs(24 * 3600);

/// Certificate authority: a key and the certificate derived from it.
pub struct Authority {
    certificate: Certificate,
    key: KeyPair,
}

/// Paths of a member's PEM files.
#[derive(Clone, Debug)]
pub struct Files {
    pub certificate: PathBuf,
    pub key: PathBuf,
    /// Certificate of the authority.
    pub authorities: PathBuf,
}

impl Files {
    /// Returns the paths of a member in a directory.
    pub fn new(directory: &Path, member: &str) -> Self {
        let file = |name: String| directory.join(name);
        Files {
            certificate: file(format!("{member}.pem")),
            key: file(format!("{member}.key")),
            authorities: file("ca.pem".into()),
        }
    }
}

/// Signed certificate with its key, in PEM.
pub struct SignedCertificate {
    pub certificate: String,
    pub key: String,
}

// Keys are not printed.
impl fmt::Debug for Authority {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Authority").finish_non_exhaustive()
    }
}

impl fmt::Debug for SignedCertificate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SignedCertificate").field("certificate", &self.certificate).finish_non_exhaustive()
    }
}

impl Authority {
    /// Creates an authority with a new key, valid for ten years.
    pub fn new() -> io::Result<Self> {
        Authority::with(KeyPair::generate().map_err(io::Error::other)?, 3650)
    }

    /// Creates the authority of a PEM key. Its certificate is valid for `days` from the present
    /// time.
    pub fn from_key(pem: &str, days: u32) -> io::Result<Self> {
        Authority::with(KeyPair::from_pem(pem).map_err(io::Error::other)?, days)
    }

    fn with(key: KeyPair, days: u32) -> io::Result<Self> {
        let mut params = CertificateParams::new(Vec::new()).map_err(io::Error::other)?;
        params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        // The name in a certificate identifies the signing authority.
        let id: String = key.public_key_der().iter().rev().take(8).map(|octet| format!("{octet:02x}")).collect();
        params.distinguished_name.push(DnType::CommonName, format!("vireo authority {id}"));
        last(&mut params, days);
        Ok(Authority { certificate: params.self_signed(&key).map_err(io::Error::other)?, key })
    }

    /// Returns the authority's certificate in PEM.
    pub fn certificate(&self) -> String {
        self.certificate.pem()
    }

    /// Returns the authority's key in PEM.
    pub fn key(&self) -> String {
        self.key.serialize_pem()
    }

    /// Signs a certificate of a new key, for clients and servers, valid for `days`. `names` are
    /// URIs, addresses and host names.
    pub fn sign(&self, subject: &str, names: &[&str], days: u32) -> io::Result<SignedCertificate> {
        let mut params = CertificateParams::new(Vec::new()).map_err(io::Error::other)?;
        params.distinguished_name.push(DnType::CommonName, subject);
        params.subject_alt_names = names.iter().map(|name| san(name)).collect::<io::Result<_>>()?;
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
        params.use_authority_key_identifier_extension = true;
        last(&mut params, days);
        self.signed(params)
    }

    fn signed(&self, params: CertificateParams) -> io::Result<SignedCertificate> {
        let key = KeyPair::generate().map_err(io::Error::other)?;
        let certificate = params.signed_by(&key, &self.certificate, &self.key).map_err(io::Error::other)?;
        Ok(SignedCertificate { certificate: certificate.pem(), key: key.serialize_pem() })
    }

    /// Signs a member's certificate and writes its files to a directory.
    pub fn member(&self, directory: &Path, member: &str, names: &[&str]) -> io::Result<Files> {
        self.write(directory, member, self.sign(member, names, 1)?)
    }

    /// Signs an expired certificate of a member and writes its files to a directory.
    pub fn expired(&self, directory: &Path, member: &str, names: &[&str]) -> io::Result<Files> {
        let mut params = CertificateParams::new(Vec::new()).map_err(io::Error::other)?;
        params.subject_alt_names = names.iter().map(|name| san(name)).collect::<io::Result<_>>()?;
        params.not_after = rcgen::date_time_ymd(2001, 1, 1);
        params.not_before = rcgen::date_time_ymd(2000, 1, 1);
        self.write(directory, member, self.signed(params)?)
    }

    fn write(&self, directory: &Path, member: &str, signed: SignedCertificate) -> io::Result<Files> {
        // Members of several tests' authorities share one directory.
        let files = Files { authorities: directory.join(format!("{member}-ca.pem")), ..Files::new(directory, member) };
        write(&files.certificate, &signed.certificate, 0o644)?;
        write(&files.key, &signed.key, 0o600)?;
        write(&files.authorities, &self.certificate(), 0o644)?;
        Ok(files)
    }
}

/// Writes a file with a mode. An existing file keeps its mode.
fn write(path: &Path, text: &str, mode: u32) -> io::Result<()> {
    let mut file = File::options().write(true).create(true).truncate(true).mode(mode).open(path)?;
    file.write_all(text.as_bytes())
}

/// Parses a subject alternative name.
fn san(name: &str) -> io::Result<SanType> {
    if let Ok(address) = name.parse::<IpAddr>() {
        return Ok(SanType::IpAddress(address));
    }
    let text = name.try_into().map_err(io::Error::other)?;
    Ok(if name.contains("://") { SanType::URI(text) } else { SanType::DnsName(text) })
}

/// Sets the validity: from the present time minus [`SKEW`], for `days`.
fn last(params: &mut CertificateParams, days: u32) {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let epoch = rcgen::date_time_ymd(1970, 1, 1);
    params.not_before = epoch + now.saturating_sub(SKEW);
    params.not_after = epoch + now + DAY * days;
}
