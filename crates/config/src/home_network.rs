//! Private keys of the home network, in the configuration or in a file.
//!
//! A file holds hexadecimal digits, or PEM as OpenSSL writes it (`openssl genpkey -algorithm
//! X25519`, `openssl ecparam -name prime256v1 -genkey -noout`).

use crate::subscribers::HnKey;
use pkcs8::der::{Decode, asn1::OctetStringRef};
use pkcs8::{ObjectIdentifier, PrivateKeyInfo};
use rustls_pki_types::{PrivateKeyDer, pem::PemObject};
use sec1::{EcParameters, EcPrivateKey};
use vireo_subscribers::{HomeNetworkKey, HomeNetworkKeyError, Profile};

/// id-X25519 (RFC 8410 3).
const X25519: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.3.101.110");
/// id-ecPublicKey with secp256r1 (RFC 5480 2.1.1).
const EC: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.2.840.10045.2.1");
const SECP256R1: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.2.840.10045.3.1.7");

/// An entry that is not a private key. No text contains the key.
#[derive(Debug, thiserror::Error)]
pub(super) enum KeyEntryError {
    #[error("profile: {0:?} is not allowed; allowed: \"A\" (X25519), \"B\" (secp256r1)")]
    Profile(String),
    #[error("private: write 64 hexadecimal digits")]
    Private,
    #[error("file: {file} cannot be read: {error}")]
    Unreadable { file: String, error: std::io::Error },
    #[error("file: {0} holds neither 64 hexadecimal digits nor a PEM private key of this profile")]
    Content(String),
    /// The entry has both, or none.
    #[error("write either private or file")]
    Source,
    #[error(transparent)]
    Key(#[from] HomeNetworkKeyError),
}

/// Checks an entry. Returns its key, or `None` if that is in a file, which only the role that needs
/// the key reads.
pub(super) fn key(entry: &HnKey) -> Result<Option<HomeNetworkKey>, KeyEntryError> {
    let profile = profile(entry)?;
    HomeNetworkKey::check_id(entry.id)?;
    match (&entry.private, &entry.file) {
        (Some(private), None) => {
            let octets = digits(&private.0).ok_or(KeyEntryError::Private)?;
            Ok(Some(HomeNetworkKey::new(entry.id, profile, &octets)?))
        }
        (None, Some(_)) => Ok(None),
        _ => Err(KeyEntryError::Source),
    }
}

/// Reads the key of an entry from its file.
pub(super) fn read(entry: &HnKey) -> Result<HomeNetworkKey, KeyEntryError> {
    let profile = profile(entry)?;
    let Some(file) = &entry.file else { return Err(KeyEntryError::Source) };
    let unreadable = |error| KeyEntryError::Unreadable { file: file.clone(), error };
    let text = std::fs::read_to_string(file).map_err(unreadable)?;
    let found = if text.contains("-----BEGIN") { pem(&text, profile) } else { digits(text.trim()) };
    let octets = found.ok_or_else(|| KeyEntryError::Content(file.clone()))?;
    Ok(HomeNetworkKey::new(entry.id, profile, &octets)?)
}

fn profile(entry: &HnKey) -> Result<Profile, KeyEntryError> {
    match entry.profile.to_ascii_uppercase().as_str() {
        "A" => Ok(Profile::A),
        "B" => Ok(Profile::B),
        other => Err(KeyEntryError::Profile(other.to_owned())),
    }
}

fn digits(text: &str) -> Option<[u8; 32]> {
    let mut octets = [0; 32];
    hex::decode_to_slice(text, &mut octets).ok().map(|()| octets)
}

/// Returns the first private key in PEM. OpenSSL may write the curve's parameters before it.
fn pem(text: &str, profile: Profile) -> Option<[u8; 32]> {
    match (profile, PrivateKeyDer::from_pem_slice(text.as_bytes()).ok()?) {
        (Profile::A, PrivateKeyDer::Pkcs8(key)) => {
            let info = PrivateKeyInfo::try_from(key.secret_pkcs8_der()).ok()?;
            info.algorithm.assert_algorithm_oid(X25519).ok()?;
            OctetStringRef::from_der(info.private_key).ok()?.as_bytes().try_into().ok()
        }
        (Profile::B, PrivateKeyDer::Pkcs8(key)) => {
            let info = PrivateKeyInfo::try_from(key.secret_pkcs8_der()).ok()?;
            info.algorithm.assert_oids(EC, SECP256R1).ok()?;
            sec1(info.private_key)
        }
        (Profile::B, PrivateKeyDer::Sec1(key)) => sec1(key.secret_sec1_der()),
        _ => None,
    }
}

/// Returns the key of an ECPrivateKey (RFC 5915), which must not name another curve than secp256r1.
fn sec1(der: &[u8]) -> Option<[u8; 32]> {
    let key = EcPrivateKey::try_from(der).ok()?;
    let curve = key.parameters.and_then(EcParameters::named_curve);
    if curve.is_some_and(|curve| curve.as_bytes() != SECP256R1.as_bytes()) {
        return None;
    }
    key.private_key.try_into().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::values::Secret;

    fn entry(profile: &str, private: Option<&str>, file: Option<&str>) -> HnKey {
        let private = private.map(|p| Secret(p.into()));
        HnKey { id: 1, profile: profile.into(), private, file: file.map(str::to_owned) }
    }

    /// The keys come from OpenSSL, with the private numbers that `openssl pkey -text` shows.
    #[test]
    fn pem_keys_of_openssl_are_read() {
        let a = "-----BEGIN PRIVATE KEY-----\nMC4CAQAwBQYDK2VuBCIEIID2HfwNmGD6iPOkyauGn+wh2TFAT0nRNkU2caZC/692\n\
                 -----END PRIVATE KEY-----\n";
        let sec1 = "-----BEGIN EC PARAMETERS-----\nBggqhkjOPQMBBw==\n-----END EC PARAMETERS-----\n\
                    -----BEGIN EC PRIVATE KEY-----\nMHcCAQEEIEQtKrN+pxANhffRW1F28aR5NThBtHjTGcJjpo5LYdCmoAoGCCqGSM49\n\
                    AwEHoUQDQgAEHeFuCXrfV01B73z0tFyym3YSUhQ/gnNwEQky2wmyhQHc5iXqmCSA\n\
                    vjzINTZrG7eUpJhl4N0atw3pnrzzAtXMuQ==\n-----END EC PRIVATE KEY-----\n";
        let pkcs8 = "-----BEGIN PRIVATE KEY-----\nMIGHAgEAMBMGByqGSM49AgEGCCqGSM49AwEHBG0wawIBAQQgRC0qs36nEA2F99Fb\n\
                     UXbxpHk1OEG0eNMZwmOmjkth0KahRANCAAQd4W4Jet9XTUHvfPS0XLKbdhJSFD+C\n\
                     c3ARCTLbCbKFAdzmJeqYJIC+PMg1Nmsbt5SkmGXg3Rq3DemevPMC1cy5\n-----END PRIVATE KEY-----\n";
        let x25519 = "80f61dfc0d9860fa88f3a4c9ab869fec21d931404f49d136453671a642ffaf76";
        let p256 = "442d2ab37ea7100d85f7d15b5176f1a479353841b478d319c263a68e4b61d0a6";
        assert_eq!(pem(a, Profile::A).map(hex::encode).as_deref(), Some(x25519));
        assert_eq!(pem(sec1, Profile::B).map(hex::encode).as_deref(), Some(p256));
        assert_eq!(pem(pkcs8, Profile::B).map(hex::encode).as_deref(), Some(p256));
        let secp256k1 = "-----BEGIN EC PRIVATE KEY-----\nMHQCAQEEIIkNjw/qB1OkCtSFqkBBWOeoZzq+GYzkGnjqVABgKHi6oAcGBSuBBAAK\n\
             oUQDQgAElB1hIWU93WarvGRDaNbJNm0gafaWlUNIoFTVahXHOd30+K6Fm59TNol5\n\
             e+CbFPPQQ2RWNqgHYvcg/yE8nFYBXQ==\n-----END EC PRIVATE KEY-----\n";
        assert_eq!(pem(secp256k1, Profile::B), None);
        assert_eq!((pem(a, Profile::B), pem(pkcs8, Profile::A), pem("-----BEGIN x", Profile::A)), (None, None, None));
    }

    #[test]
    fn key_error_does_not_show_key() {
        let digits = "f1ab1074477ebcc7f554ea1c5fc368b1616730155e0041ac447d6301975fecda";
        assert!(key(&entry("b", Some(digits), None)).is_ok());
        for (entry, expected) in [
            (entry("C", Some(digits), None), "allowed: \"A\""),
            (entry("A", Some("abc1"), None), "64 hexadecimal digits"),
            (entry("A", None, None), "either private or file"),
            (entry("A", Some(digits), Some("x")), "either private or file"),
            (entry("B", Some(&"f".repeat(64)), None), "no private key of secp256r1"),
            (HnKey { id: 0, ..entry("A", Some(digits), None) }, "1 to 254"),
        ] {
            let error = key(&entry).map(drop).expect_err(expected).to_string();
            assert!(error.contains(expected) && !error.contains("f1ab") && !error.contains("abc1"), "{error}");
        }
    }

    #[test]
    fn key_file_is_read_by_its_role_only() {
        let missing = entry("A", None, Some("/no/such"));
        assert!(key(&missing).expect("not read").is_none());
        let error = read(&missing).expect_err("missing").to_string();
        assert!(error.contains("file: /no/such cannot be read"), "{error}");
        for (wrong, expected) in [
            (HnKey { id: 255, ..entry("A", None, Some("/no/such")) }, "1 to 254"),
            (entry("C", None, Some("/no/such")), "allowed: \"A\""),
        ] {
            assert!(key(&wrong).map(drop).expect_err(expected).to_string().contains(expected));
        }
    }
}
