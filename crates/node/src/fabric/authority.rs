//! An authority that signs certificates for tests: of this crate, and of whole clusters.

use rcgen::{BasicConstraints, Certificate, CertificateParams, DnType, IsCa, KeyPair};
use std::path::{Path, PathBuf};

/// The name that members' certificates are for.
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

impl Authority {
    /// A new one.
    pub(crate) fn new() -> Self {
        let mut params = CertificateParams::new(Vec::new()).expect("no names");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().expect("a key");
        // By its name a certificate says which authority has signed it.
        let name: String = key.public_key_der().iter().rev().take(8).map(|octet| format!("{octet:02x}")).collect();
        params.distinguished_name.push(DnType::CommonName, name);
        Authority { certificate: params.self_signed(&key).expect("a certificate"), key }
    }

    /// Signs a certificate for a name, and writes the member's files to a directory.
    pub(crate) fn member(&self, directory: &Path, member: &str, name: &str) -> Files {
        self.sign(directory, member, CertificateParams::new(vec![name.to_owned()]).expect("a name"))
    }

    /// The same, of one that has expired.
    #[allow(dead_code, reason = "tests of whole clusters have none")]
    pub(crate) fn expired(&self, directory: &Path, member: &str, name: &str) -> Files {
        let mut params = CertificateParams::new(vec![name.to_owned()]).expect("a name");
        params.not_after = rcgen::date_time_ymd(2001, 1, 1);
        params.not_before = rcgen::date_time_ymd(2000, 1, 1);
        self.sign(directory, member, params)
    }

    fn sign(&self, directory: &Path, member: &str, params: CertificateParams) -> Files {
        let key = KeyPair::generate().expect("a key");
        let certificate = params.signed_by(&key, &self.certificate, &self.key).expect("a certificate");
        let write = |what: &str, text: String| {
            let path = directory.join(format!("{member}-{what}.pem"));
            std::fs::write(&path, text).expect("a file");
            path
        };
        Files {
            certificate: write("certificate", certificate.pem()),
            key: write("key", key.serialize_pem()),
            authorities: write("authorities", self.certificate.pem()),
        }
    }
}
