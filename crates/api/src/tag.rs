//! Strong entity tags and preconditions (RFC 9110 13).

use crate::problem::Problem;
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use ring::hmac;

/// Octets of a tag.
const OCTETS: usize = 16;

/// Key of the tags of this process. A tag of secret content reveals nothing without it.
pub(crate) struct Tags(hmac::Key);

impl Tags {
    /// Creates a random key.
    pub(crate) fn new() -> Result<Self, getrandom::Error> {
        let mut key = [0; 32];
        getrandom::fill(&mut key)?;
        Ok(Tags(hmac::Key::new(hmac::HMAC_SHA256, &key)))
    }

    /// Returns the tag of a content, with its quotes.
    pub(crate) fn tag(&self, content: &[u8]) -> String {
        format!("\"{}\"", hex::encode(&hmac::sign(&self.0, content).as_ref()[..OCTETS]))
    }
}

/// Returns the tag as header value.
pub(crate) fn header_value(tag: &str) -> HeaderValue {
    // A tag is hexadecimal digits in quotes.
    HeaderValue::from_str(tag).unwrap_or(HeaderValue::from_static(""))
}

/// Checks that the request names the tag of the present state.
///
/// # Errors
///
/// 428 without `If-Match`, 412 if none of its tags is the present one.
pub(crate) fn matches(headers: &HeaderMap, tag: &str) -> Result<(), Problem> {
    let mut shown = headers.get_all(header::IF_MATCH).iter().peekable();
    if shown.peek().is_none() {
        let reason = "If-Match is needed: read the item, and send its ETag";
        return Err(Problem::new(StatusCode::PRECONDITION_REQUIRED, reason));
    }
    let mut all = shown.filter_map(|value| value.to_str().ok()).flat_map(|value| value.split(','));
    if all.any(|one| one.trim() == tag || one.trim() == "*") {
        return Ok(());
    }
    let reason = "the item has changed since it was read: read it again";
    Err(Problem::new(StatusCode::PRECONDITION_FAILED, reason))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_present_tag_matches() {
        let tags = Tags::new().unwrap();
        let (tag, other) = (tags.tag(b"a"), tags.tag(b"b"));
        assert_ne!(tag, other);
        assert_ne!(tag, Tags::new().unwrap().tag(b"a"));
        let with = |values: &[&str]| {
            let mut headers = HeaderMap::new();
            for value in values {
                headers.append(header::IF_MATCH, value.parse().unwrap());
            }
            matches(&headers, &tag).map_err(|problem| problem.into_status())
        };
        assert_eq!(with(&[]), Err(428));
        assert_eq!(with(&[&other]), Err(412));
        assert_eq!(with(&[&format!("W/{tag}")]), Err(412), "a weak tag never matches");
        assert_eq!(with(&[&format!("{other}, {tag}")]), Ok(()));
        assert_eq!(with(&[&other, &tag]), Ok(()));
        assert_eq!(with(&["*"]), Ok(()));
    }
}
