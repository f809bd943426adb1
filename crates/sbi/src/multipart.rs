//! Multipart bodies (RFC 2046 5.1, RFC 2387), as TS 29.502 annex B uses them.
//!
//! A body has a JSON root part, and binary parts with a Content-ID.

use crate::message::{PARTS, Part};

/// Maximum size of a part's headers in bytes.
const HEADERS: usize = 1024;
/// Maximum length of a boundary in characters (RFC 2046 5.1.1).
const BOUNDARY: usize = 70;

/// A received part.
#[derive(Debug)]
pub(crate) struct BodyPart<'a> {
    /// Media type without parameters.
    pub(crate) media_type: Option<&'a str>,
    /// Content-ID without brackets. TS 29.502 writes it without, RFC 2045 with.
    pub(crate) id: Option<&'a str>,
    pub(crate) octets: &'a [u8],
}

/// Returns the boundary from the parameters of a media type.
pub(crate) fn boundary(parameters: &str) -> Option<&str> {
    let of = |parameter: &'_ str| -> Option<(usize, usize)> {
        let (name, value) = parameter.split_once('=')?;
        name.trim().eq_ignore_ascii_case("boundary").then_some((parameter.len() - value.len(), parameter.len()))
    };
    let mut rest = parameters;
    while !rest.is_empty() {
        // A quoted value may contain a semicolon.
        let mut quoted = false;
        let end = rest.bytes().position(|octet| {
            quoted ^= octet == b'"';
            octet == b';' && !quoted
        });
        let (parameter, next) = end.map_or((rest, ""), |end| (&rest[..end], &rest[end + 1..]));
        if let Some((from, to)) = of(parameter) {
            let value = parameter[from..to].trim();
            let value = value.strip_prefix('"').and_then(|v| v.strip_suffix('"')).unwrap_or(value);
            return Some(value).filter(|value| (1..=BOUNDARY).contains(&value.len()));
        }
        rest = next;
    }
    None
}

/// Splits a body into its parts; `None` if it is malformed. Stops after one part more than a
/// message may have.
pub(crate) fn read<'a>(boundary: &str, body: &'a [u8]) -> Option<Vec<BodyPart<'a>>> {
    let delimiter = format!("\r\n--{boundary}");
    let delimiter = delimiter.as_bytes();
    // The first delimiter may be at the start of the body, without line break.
    let mut rest = match body.strip_prefix(&delimiter[2..]) {
        Some(rest) => rest,
        None => &body[find(body, delimiter)? + delimiter.len()..],
    };
    let mut sections = Vec::new();
    while !rest.starts_with(b"--") {
        if sections.len() > PARTS + 1 {
            return Some(sections);
        }
        // White space may follow a boundary.
        let padding = rest.iter().take_while(|octet| matches!(octet, b' ' | b'\t')).count();
        let content = rest[padding..].strip_prefix(b"\r\n")?;
        let end = find(content, delimiter)?;
        sections.push(section(&content[..end])?);
        rest = &content[end + delimiter.len()..];
    }
    Some(sections)
}

fn section(content: &[u8]) -> Option<BodyPart<'_>> {
    // A part without headers starts with the empty line.
    let (headers, octets) = match content.strip_prefix(b"\r\n") {
        Some(octets) => (&[][..], octets),
        None => {
            let end = find(&content[..content.len().min(HEADERS)], b"\r\n\r\n")?;
            (&content[..end], &content[end + 4..])
        }
    };
    let headers = std::str::from_utf8(headers).ok()?;
    let mut section = BodyPart { media_type: None, id: None, octets };
    for line in headers.split("\r\n").filter(|line| !line.is_empty()) {
        let (name, value) = line.split_once(':')?;
        let (name, value) = (name.trim(), value.trim());
        if name.eq_ignore_ascii_case("content-type") {
            section.media_type = Some(value.split(';').next().unwrap_or(value).trim());
        } else if name.eq_ignore_ascii_case("content-id") {
            let inner = value.strip_prefix('<').and_then(|v| v.strip_suffix('>')).unwrap_or(value);
            let plain = |id: &&str| id.bytes().all(|octet| octet.is_ascii_graphic() && !b"<>".contains(&octet));
            section.id = Some(inner).filter(|id| !id.is_empty()).filter(plain);
        }
    }
    Some(section)
}

fn find(octets: &[u8], wanted: &[u8]) -> Option<usize> {
    octets.windows(wanted.len()).position(|window| window == wanted)
}

/// Encodes a body. Returns also its boundary, which occurs in no part.
pub(crate) fn write(json: &[u8], json_type: &str, parts: &[Part]) -> (String, Vec<u8>) {
    let is_free = |boundary: &String| {
        let text = boundary.as_bytes();
        find(json, text).is_none() && parts.iter().all(|part| find(&part.octets, text).is_none())
    };
    // There are more candidates than a body can contain.
    let boundary = (0u32..).map(|n| format!("vireo-{n}")).find(is_free).unwrap_or_default();
    let octets: usize = parts.iter().map(|part| part.octets.len()).sum();
    let mut body = Vec::with_capacity(json.len() + octets + 128 * (parts.len() + 1));
    let mut put = |headers: &str, octets: &[u8]| {
        body.extend_from_slice(format!("--{boundary}\r\n{headers}\r\n\r\n").as_bytes());
        body.extend_from_slice(octets);
        body.extend_from_slice(b"\r\n");
    };
    put(&format!("Content-Type: {json_type}"), json);
    for part in parts {
        let media_type = part.content.media_type();
        put(&format!("Content-Type: {media_type}\r\nContent-Id: {}", part.id), &part.octets);
    }
    body.extend_from_slice(format!("--{boundary}--\r\n").as_bytes());
    (boundary, body)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn boundaries_are_found_among_other_parameters() {
        assert_eq!(boundary(" boundary=a"), Some("a"));
        assert_eq!(boundary("type=\"x;boundary=no\"; Boundary=\"a b\""), Some("a b"));
        assert_eq!(boundary("type=x"), None);
        assert_eq!(boundary("boundary="), None);
        assert_eq!(boundary(&format!("boundary={}", "x".repeat(BOUNDARY + 1))), None);
    }

    #[test]
    fn boundary_is_not_in_any_part() {
        let part = Part { id: "n".into(), content: crate::PartContent::Nas, octets: b"vireo-0 vireo-1".to_vec() };
        assert_eq!(write(b"{}", "application/json", &[part]).0, "vireo-2");
    }
}
