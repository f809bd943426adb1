//! Private keys of the home network, in the configuration or in a file.
//!
//! A file holds hexadecimal digits, or PEM as OpenSSL writes it (`openssl genpkey -algorithm
//! X25519`, `openssl ecparam -name prime256v1 -genkey -noout`).

use crate::subscribers::HnKey;
use vireo_subscribers::{HomeNetworkKey, Profile};

/// Bytes before the 32 bytes of the key in its DER form.
const X25519_PKCS8: &[u8] = b"\x30\x2e\x02\x01\x00\x30\x05\x06\x03\x2b\x65\x6e\x04\x22\x04\x20";
const P256_SEC1: &[u8] = b"\x30\x77\x02\x01\x01\x04\x20";
const P256_PKCS8: &[u8] =
    b"\x30\x81\x87\x02\x01\x00\x30\x13\x06\x07\x2a\x86\x48\xce\x3d\x02\x01\x06\x08\x2a\x86\x48\xce\x3d\x03\x01\x07\
    \x04\x6d\x30\x6b\x02\x01\x01\x04\x20";

/// Returns the key of an entry.
pub(super) fn key(entry: &HnKey) -> Result<HomeNetworkKey, String> {
    let profile = match entry.profile.to_ascii_uppercase().as_str() {
        "A" => Profile::A,
        "B" => Profile::B,
        other => return Err(format!("profile: {other:?} is not allowed; allowed: \"A\" (X25519), \"B\" (secp256r1)")),
    };
    let octets = match (&entry.private, &entry.file) {
        (Some(private), None) => digits(&private.0).ok_or("private: write 64 hexadecimal digits")?,
        (None, Some(file)) => {
            let text = std::fs::read_to_string(file).map_err(|e| format!("file: {file} cannot be read: {e}"))?;
            let found = if text.contains("-----BEGIN") { pem(&text, profile) } else { digits(text.trim()) };
            found.ok_or_else(|| {
                format!("file: {file} holds neither 64 hexadecimal digits nor a PEM private key of this profile")
            })?
        }
        _ => return Err("write either private or file".to_owned()),
    };
    HomeNetworkKey::new(entry.id, profile, &octets).map_err(|e| e.to_string())
}

fn digits(text: &str) -> Option<[u8; 32]> {
    let mut octets = [0; 32];
    hex::decode_to_slice(text, &mut octets).ok().map(|()| octets)
}

/// Returns the key in the last PEM block. OpenSSL may write the curve's parameters in an earlier
/// block.
fn pem(text: &str, profile: Profile) -> Option<[u8; 32]> {
    let block = text.split("-----BEGIN ").last()?;
    let body = block.split_once("-----")?.1.split("-----END").next()?;
    let der = base64(body)?;
    let heads: &[&[u8]] = match profile {
        Profile::A => &[X25519_PKCS8],
        Profile::B => &[P256_SEC1, P256_PKCS8],
    };
    let rest = heads.iter().find_map(|head| der.strip_prefix(*head))?;
    rest.first_chunk().copied()
}

/// Decodes RFC 4648 base64 with line breaks.
fn base64(text: &str) -> Option<Vec<u8>> {
    let mut octets = Vec::new();
    let (mut bits, mut held) = (0u32, 0);
    for c in text.bytes().filter(|c| !c.is_ascii_whitespace() && *c != b'=') {
        let value = match c {
            b'A'..=b'Z' => c - b'A',
            b'a'..=b'z' => c - b'a' + 26,
            b'0'..=b'9' => c - b'0' + 52,
            b'+' => 62,
            b'/' => 63,
            _ => return None,
        };
        bits = bits << 6 | u32::from(value);
        held += 6;
        if held >= 8 {
            held -= 8;
            octets.push((bits >> held) as u8);
        }
    }
    Some(octets)
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
            (entry("A", None, Some("/no/such")), "cannot be read"),
            (entry("B", Some(&"f".repeat(64)), None), "no private key of secp256r1"),
            (HnKey { id: 0, ..entry("A", Some(digits), None) }, "1 to 254"),
        ] {
            let error = key(&entry).expect_err(expected);
            assert!(error.contains(expected) && !error.contains("f1ab") && !error.contains("abc1"), "{error}");
        }
    }
}
