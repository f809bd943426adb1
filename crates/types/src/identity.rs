use crate::Plmn;
use serde::de::Visitor;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::fmt;
use std::str::FromStr;

/// Subscription Permanent Identifier of the IMSI kind (TS 23.003 2.2A).
///
/// Up to 15 digits are packed with their count into one word. `Display` masks all but the first
/// five digits; [`Supi::reveal`] returns all of them.
///
/// Serde uses the word in binary formats and the digits in human-readable ones (JSON).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Supi(u64);

/// The text is not a SUPI.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("an IMSI has 6 to 15 decimal digits")]
pub struct SupiError;

impl Supi {
    const VALUE_BITS: u32 = 56;
    /// Number of digits that `Display` does not mask.
    pub const SHOWN_DIGITS: usize = 5;

    /// Creates a SUPI from the digits of an IMSI.
    pub fn from_digits(digits: &str) -> Result<Self, SupiError> {
        if !(6..=15).contains(&digits.len()) || !digits.bytes().all(|b| b.is_ascii_digit()) {
            return Err(SupiError);
        }
        let value: u64 = digits.parse().map_err(|_| SupiError)?;
        Ok(Supi((digits.len() as u64) << Self::VALUE_BITS | value))
    }

    /// Returns all digits of the IMSI: for keys, messages and explicit requests, not for logs.
    pub fn reveal(self) -> String {
        let width = (self.0 >> Self::VALUE_BITS) as usize;
        format!("{:0width$}", self.0 & ((1 << Self::VALUE_BITS) - 1))
    }

    /// Returns the packed word, a key for indexes and hashes.
    pub const fn as_u64(self) -> u64 {
        self.0
    }

    /// Creates a SUPI from a packed word; `None` if the word is invalid.
    pub fn from_u64(word: u64) -> Option<Self> {
        let (width, value) = (word >> Self::VALUE_BITS, word & ((1 << Self::VALUE_BITS) - 1));
        let fits = (6..=15).contains(&width) && value < 10u64.pow(width as u32);
        fits.then_some(Supi(word))
    }

    /// Returns the IMSI `n` after this one, of the same length.
    pub fn offset(self, n: u64) -> Result<Self, SupiError> {
        let width = (self.0 >> Self::VALUE_BITS) as usize;
        let value = (self.0 & ((1 << Self::VALUE_BITS) - 1)) + n;
        Self::from_digits(&format!("{value:0width$}"))
    }
}

impl FromStr for Supi {
    type Err = SupiError;

    /// Parses digits, optionally after `imsi-` (TS 29.571 5.3.2).
    fn from_str(s: &str) -> Result<Self, SupiError> {
        Self::from_digits(s.strip_prefix("imsi-").unwrap_or(s))
    }
}

impl Serialize for Supi {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        if !s.is_human_readable() {
            return s.serialize_u64(self.0);
        }
        let supi = Supi::from_u64(self.0).ok_or_else(|| serde::ser::Error::custom(SupiError))?;
        s.serialize_str(&supi.reveal())
    }
}

impl<'de> Deserialize<'de> for Supi {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        struct Read;

        impl Visitor<'_> for Read {
            type Value = Supi;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("the digits of an IMSI")
            }

            fn visit_str<E: serde::de::Error>(self, digits: &str) -> Result<Supi, E> {
                Supi::from_digits(digits).map_err(E::custom)
            }

            /// Accepts the packed word, which older records contain.
            fn visit_u64<E: serde::de::Error>(self, word: u64) -> Result<Supi, E> {
                Supi::from_u64(word).ok_or_else(|| E::custom(SupiError))
            }
        }

        if d.is_human_readable() { d.deserialize_any(Read) } else { u64::deserialize(d).map(Supi) }
    }
}

impl fmt::Display for Supi {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let digits = self.reveal();
        let (shown, masked) = digits.split_at(Supi::SHOWN_DIGITS);
        write!(f, "imsi-{shown}{}", "*".repeat(masked.len()))
    }
}

impl fmt::Debug for Supi {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Permanent Equipment Identifier: the 16 digits of an IMEISV (TS 23.003 6.2.2), packed.
///
/// `Debug` masks it as for a [`Supi`].
#[derive(Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Pei(pub u64);

impl Pei {
    /// Returns the Masked IMEISV (TS 38.413 9.3.1.54, TS 36.413 9.2.3.38): 4 bits for each digit,
    /// and the last 4 digits of the serial number set to 1.
    pub const fn masked(self) -> u64 {
        let (mut rest, mut bits, mut digit) = (self.0, 0, 0);
        while digit < 16 {
            bits |= (rest % 10) << (4 * digit);
            (rest, digit) = (rest / 10, digit + 1);
        }
        bits | 0x00ff_ff00
    }
}

impl fmt::Debug for Pei {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "imeisv-{:08}********", self.0 / 100_000_000)
    }
}

/// 5G-TMSI (TS 23.003 2.10): identifies a UE in paging and in its requests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Tmsi(pub u32);

/// Globally Unique AMF Identifier (TS 23.003 2.10.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Guami {
    pub plmn: Plmn,
    /// AMF Region ID, 8 bits.
    pub region: u8,
    /// AMF Set ID, 10 bits.
    pub set: u16,
    /// AMF Pointer, 6 bits (`core.amf.pointer`). Towards eNBs each balancer adds its number.
    pub pointer: u8,
}

impl Guami {
    /// Returns the MME Group ID and the MME Code that this GUAMI maps to (TS 23.003 2.10.2.1.2). A
    /// UE finds the same core under the 4G-GUTI and the 5G-GUTI that it maps to each other.
    pub const fn mme(self) -> (u16, u8) {
        let group = (self.region as u16) << 8 | self.set >> 2 & 0xff;
        (group, (self.set as u8 & 3) << 6 | self.pointer & 0x3f)
    }
}

/// 5G-GUTI (TS 23.003 2.10.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Guti {
    /// AMF that assigned the GUTI.
    pub guami: Guami,
    /// Identity of the UE within that AMF.
    pub tmsi: Tmsi,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn supi_keeps_leading_zeros_and_is_masked() {
        let supi: Supi = "imsi-001010000000001".parse().expect("fifteen digits");
        assert_eq!(supi.reveal(), "001010000000001");
        assert_eq!(supi.to_string(), "imsi-00101**********");
        assert_eq!(Supi::from_u64(supi.as_u64()), Some(supi));
        assert_eq!(
            (Supi::from_u64(7), Supi::from_u64(u64::MAX), Supi::from_u64(6 << 56 | 1_000_000)),
            (None, None, None)
        );
        assert_eq!(supi.offset(9).map(Supi::reveal), Ok("001010000000010".into()));
    }

    /// TS 23.003 2.10.2.1.2: the Group ID is Region and the upper 8 bits of the Set, the Code the
    /// lower 2 bits of the Set and the Pointer.
    #[test]
    fn guami_maps_to_group_and_code() {
        let guami = Guami { plmn: "99970".parse().expect("a PLMN"), region: 0x02, set: 0x2a7, pointer: 0x15 };
        assert_eq!(guami.mme(), (0x02a9, 0xd5));
    }

    /// TAC 35123456, SNR 789012, SVN 34.
    #[test]
    fn masked_imeisv_shows_model_alone() {
        assert_eq!(Pei(3_512_345_678_901_234).masked(), 0x3512_3456_78ff_ff34);
        assert_eq!(Pei(34).masked(), 0x00ff_ff34);
    }

    #[test]
    fn non_imsi_supi_is_refused() {
        for text in ["", "12345", "1234567890123456", "99970000000000x", "imsi-"] {
            assert_eq!(text.parse::<Supi>(), Err(SupiError), "{text}");
        }
    }
}
