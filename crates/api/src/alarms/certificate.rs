//! End of a certificate's validity (RFC 5280 4.1.2.5).

use std::fs::File;
use std::io::Read;
use std::path::Path;

/// Maximum size of a file in bytes.
const FILE: u64 = 1 << 20;
const SEQUENCE: u8 = 0x30;
const UTC_TIME: u8 = 0x17;
const GENERALIZED_TIME: u8 = 0x18;

/// Returns the end of the first certificate in a PEM file, in seconds since 1970.
///
/// # Errors
///
/// Returns the reason as text.
pub(crate) fn end(path: &Path) -> Result<u64, String> {
    let file = File::open(path).map_err(|error| error.to_string())?;
    let mut text = String::new();
    file.take(FILE).read_to_string(&mut text).map_err(|error| error.to_string())?;
    let body = text.split("-----BEGIN CERTIFICATE-----").nth(1);
    let body = body.and_then(|body| body.split("-----END").next()).ok_or("it has no certificate")?;
    let der = base64(body).ok_or("it is no PEM")?;
    not_after(&der).ok_or_else(|| "it is no X.509 certificate".into())
}

fn base64(text: &str) -> Option<Vec<u8>> {
    let (mut octets, mut bits, mut count) = (Vec::new(), 0u32, 0);
    for octet in text.bytes().filter(|octet| !octet.is_ascii_whitespace() && *octet != b'=') {
        let value = match octet {
            b'A'..=b'Z' => octet - b'A',
            b'a'..=b'z' => octet - b'a' + 26,
            b'0'..=b'9' => octet - b'0' + 52,
            b'+' => 62,
            b'/' => 63,
            _ => return None,
        };
        bits = bits << 6 | u32::from(value);
        count += 6;
        if count >= 8 {
            count -= 8;
            octets.push((bits >> count) as u8);
        }
    }
    Some(octets)
}

/// Splits the first element off: tag, content, rest.
fn element(der: &[u8]) -> Option<Element<'_>> {
    let (tag, rest) = der.split_first()?;
    let (first, rest) = rest.split_first()?;
    let (length, rest) = match first {
        0..=0x7f => (usize::from(*first), rest),
        0x81..=0x83 => {
            let (length, rest) = rest.split_at_checked(usize::from(first & 0x7f))?;
            (length.iter().fold(0, |sum, octet| sum << 8 | usize::from(*octet)), rest)
        }
        _ => return None,
    };
    let (content, rest) = rest.split_at_checked(length)?;
    Some(Element { tag: *tag, content, rest })
}

struct Element<'a> {
    tag: u8,
    content: &'a [u8],
    rest: &'a [u8],
}

fn not_after(der: &[u8]) -> Option<u64> {
    let certificate = element(der).filter(|found| found.tag == SEQUENCE)?;
    let mut rest = element(certificate.content).filter(|found| found.tag == SEQUENCE)?.content;
    // An explicit version (tag 0) is optional. Serial number, signature and issuer precede the
    // validity.
    let version = element(rest)?;
    if version.tag == 0xa0 {
        rest = version.rest;
    }
    for _ in 0..3 {
        rest = element(rest)?.rest;
    }
    let validity = element(rest).filter(|found| found.tag == SEQUENCE)?;
    let end = element(element(validity.content)?.rest)?;
    time(end.tag, end.content)
}

/// Parses `YYMMDDHHMMSSZ` or `YYYYMMDDHHMMSSZ`.
fn time(tag: u8, content: &[u8]) -> Option<u64> {
    let text = std::str::from_utf8(content).ok()?.strip_suffix('Z')?;
    let digits = text.bytes().all(|octet| octet.is_ascii_digit());
    let (year, rest) = match (tag, text.len()) {
        (UTC_TIME, 12) if digits => {
            let year = text[..2].parse::<u64>().ok()?;
            (if year < 50 { 2000 + year } else { 1900 + year }, &text[2..])
        }
        (GENERALIZED_TIME, 14) if digits => (text[..4].parse().ok()?, &text[4..]),
        _ => return None,
    };
    let part = |n: usize| rest[2 * n..2 * n + 2].parse::<u64>().ok();
    let (month, day, hour, minute, second) = (part(0)?, part(1)?, part(2)?, part(3)?, part(4)?);
    if year < 1970 || !(1..=12).contains(&month) || day == 0 {
        return None;
    }
    // Days before the month in a year that begins in March.
    let (year, month) = if month > 2 { (year, month - 3) } else { (year - 1, month + 9) };
    let days = 365 * year + year / 4 - year / 100 + year / 400 + (153 * month + 2) / 5 + day - 1;
    Some(days.checked_sub(719_468)? * 86_400 + hour * 3600 + minute * 60 + second)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// By `openssl ca -selfsign -startdate 20260101000000Z -enddate 20270228235959Z`; `openssl x509
    /// -enddate` shows the same.
    const CERTIFICATE: &str = include_str!("../../tests/certificate.pem");

    #[test]
    fn end_matches_openssl() {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), CERTIFICATE).unwrap();
        assert_eq!(end(file.path()).map(crate::time::rfc3339).as_deref(), Ok("2027-02-28T23:59:59Z"));
    }

    #[test]
    fn damaged_certificates_have_no_end() {
        let body = CERTIFICATE.split("-----").nth(2).unwrap();
        let der = base64(body).unwrap();
        assert!(not_after(&der).is_some());
        for length in 0..der.len() {
            assert_eq!(not_after(&der[..length]), None, "{length}");
        }
        for at in 0..der.len().min(200) {
            for value in [0, 0x7f, 0x80, 0x84, 0xff] {
                let mut damaged = der.clone();
                damaged[at] = value;
                let _ = not_after(&damaged);
            }
        }
        assert_eq!(end(Path::new("/nonexistent")).unwrap_err(), "No such file or directory (os error 2)");
    }

    #[test]
    fn both_forms_of_time_are_read() {
        assert_eq!(time(UTC_TIME, b"261129145111Z"), Some(1_795_963_871));
        assert_eq!(time(GENERALIZED_TIME, b"21000301000000Z"), Some(4_107_542_400));
        for bad in [&b"2611291451Z"[..], b"+61129145111Z", b"261329145111Z", b"261129145111+0000", b"\xff"] {
            assert_eq!(time(UTC_TIME, bad), None);
        }
    }
}
