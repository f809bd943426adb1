//! MSISDN: the GPSI by which operators look up a subscriber.

use std::fmt;
use std::str::FromStr;

/// Digits that `Display` shows.
const SHOWN_DIGITS: usize = 4;

/// MSISDN of a subscriber (TS 23.003 3.3), a GPSI (TS 23.501 5.9.8). `Display` masks all but the
/// first four digits; [`Msisdn::reveal`] returns all of them.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Msisdn(String);

/// The text is not an MSISDN.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("an MSISDN has 5 to 15 decimal digits, with country code and without +")]
pub struct MsisdnError;

impl Msisdn {
    /// Returns all digits: for the database, exports and explicit requests, not for logs.
    pub fn reveal(&self) -> &str {
        &self.0
    }
}

impl FromStr for Msisdn {
    type Err = MsisdnError;

    /// Parses digits, optionally after `msisdn-` (TS 29.571 5.3.2).
    fn from_str(text: &str) -> Result<Self, MsisdnError> {
        let digits = text.strip_prefix("msisdn-").unwrap_or(text);
        let is_number = (5..=15).contains(&digits.len()) && digits.bytes().all(|octet| octet.is_ascii_digit());
        if is_number { Ok(Msisdn(digits.to_owned())) } else { Err(MsisdnError) }
    }
}

impl fmt::Display for Msisdn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "msisdn-{}{}", &self.0[..SHOWN_DIGITS], "*".repeat(self.0.len() - SHOWN_DIGITS))
    }
}

impl fmt::Debug for Msisdn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digits_are_parsed_and_masked() {
        let number: Msisdn = "msisdn-4915112345678".parse().unwrap();
        assert_eq!((number.reveal(), Ok(number.clone())), ("4915112345678", "4915112345678".parse()));
        assert_eq!(number.to_string(), "msisdn-4915*********");
        assert_eq!(format!("{number:?}"), number.to_string());
        for text in ["", "1234", "1234567890123456", "+4915112345678", "msisdn-", "12345a", "extid-a@b"] {
            assert_eq!(text.parse::<Msisdn>(), Err(MsisdnError), "{text:?}");
        }
    }
}
