//! An authority that signs certificates of functions and members: for demos, and for tests of this crate and of others.

use rcgen::{BasicConstraints, Certificate, CertificateParams, DnType, IsCa, KeyPair};
use std::path::{Path, PathBuf};
use std::{fs, io};

/// The name that members' certificates are for.
#[allow(dead_code, reason = "tests of other crates have names of their own")]
pub(crate) const NAME: &str = "fabric.vireo.test";

/// An authority.
pub(crate) struct Authority {
    certificate: Certificate,
    key: KeyPair,
}

/// The files of a member.
pub(crate) struct Files {
    /// Its certificate.
    pub(crate) certificate: PathBuf,
    /// Its key.
    pub(crate) key: PathBuf,
    /// The authority.
    pub(crate) authorities: PathBuf,
}

impl Files {
    /// Of a member, in a directory.
    pub(crate) fn of(directory: &Path, member: &str) -> Self {
        let file = |what: &str| directory.join(format!("{member}-{what}.pem"));
        Files { certificate: file("certificate"), key: file("key"), authorities: file("authorities") }
    }
}

impl Authority {
    /// A new one.
    pub(crate) fn new() -> io::Result<Self> {
        let mut params = CertificateParams::new(Vec::new()).map_err(io::Error::other)?;
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().map_err(io::Error::other)?;
        // By its name a certificate says which authority has signed it.
        let name: String = key.public_key_der().iter().rev().take(8).map(|octet| format!("{octet:02x}")).collect();
        params.distinguished_name.push(DnType::CommonName, name);
        Ok(Authority { certificate: params.self_signed(&key).map_err(io::Error::other)?, key })
    }

    /// Signs a certificate for a name, and writes the member's files to a directory.
    pub(crate) fn member(&self, directory: &Path, member: &str, name: &str) -> io::Result<Files> {
        let params = CertificateParams::new(vec![name.to_owned()]).map_err(io::Error::other)?;
        self.sign(directory, member, params)
    }

    /// The same, of one that has expired.
    #[allow(dead_code, reason = "tests of this interface and of the fabric have one")]
    pub(crate) fn expired(&self, directory: &Path, member: &str, name: &str) -> io::Result<Files> {
        let mut params = CertificateParams::new(vec![name.to_owned()]).map_err(io::Error::other)?;
        params.not_after = rcgen::date_time_ymd(2001, 1, 1);
        params.not_before = rcgen::date_time_ymd(2000, 1, 1);
        self.sign(directory, member, params)
    }

    fn sign(&self, directory: &Path, member: &str, params: CertificateParams) -> io::Result<Files> {
        let key = KeyPair::generate().map_err(io::Error::other)?;
        let certificate = params.signed_by(&key, &self.certificate, &self.key).map_err(io::Error::other)?;
        let files = Files::of(directory, member);
        fs::write(&files.certificate, certificate.pem())?;
        fs::write(&files.key, key.serialize_pem())?;
        fs::write(&files.authorities, self.certificate.pem())?;
        Ok(files)
    }
}
