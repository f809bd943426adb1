//! The one binary encoding of a context: for shared memory, replication and every store.

use super::UeContext;

/// The layout that this build writes, in the first octet of every encoded context. It grows with each change of
/// [`UeContext`] or what it is made of, so that a rolling upgrade can tell contexts apart.
pub const LAYOUT_VERSION: u8 = 3;

/// Why octets are no context.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CodecError {
    /// Written by another release.
    #[error("the context has layout version {0}, this release reads {LAYOUT_VERSION}")]
    Version(u8),
    /// Cut short or damaged.
    #[error("the context does not decode")]
    Damaged,
}

/// Appends the encoded context to `out`.
///
/// # Errors
///
/// None that a context can cause today: what has no encoding would be a fault of this build, and must not be stored.
pub fn encode(context: &UeContext, mut out: Vec<u8>) -> Result<Vec<u8>, CodecError> {
    out.push(LAYOUT_VERSION);
    postcard::to_extend(context, out).map_err(|_| CodecError::Damaged)
}

/// The context of its octets.
pub fn decode(octets: &[u8]) -> Result<UeContext, CodecError> {
    match octets {
        [LAYOUT_VERSION, rest @ ..] => postcard::from_bytes(rest).map_err(|_| CodecError::Damaged),
        [version, ..] => Err(CodecError::Version(*version)),
        [] => Err(CodecError::Damaged),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use vireo_types::{Bucket, Ltmsi};

    #[test]
    fn a_context_comes_back_and_what_is_none_is_told() {
        let context = UeContext::new(Ltmsi::new(Bucket::new(7), 9));
        let octets = encode(&context, Vec::new()).expect("it encodes");
        assert_eq!(decode(&octets), Ok(context));
        assert!(octets.len() < 64, "an empty context is small: {} octets", octets.len());
        assert_eq!(decode(&[]), Err(CodecError::Damaged));
        assert_eq!(decode(&[LAYOUT_VERSION]), Err(CodecError::Damaged));
        assert_eq!(decode(&[200, 1, 2]), Err(CodecError::Version(200)));
    }
}
