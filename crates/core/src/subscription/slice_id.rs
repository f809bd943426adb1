//! S-NSSAI in records that an operator writes.
//!
//! The slice differentiator is a number, or text of six hexadecimal digits as in the configuration.
//! Records are written with the number, which release 0.2.0 reads.

use serde::Deserialize;
use serde::de::{Deserializer, Error, Unexpected, Visitor};
use vireo_types::Snssai;

/// Reads an S-NSSAI.
pub(super) fn read<'de, D: Deserializer<'de>>(d: D) -> Result<Snssai, D::Error> {
    WrittenSnssai::deserialize(d).map(|WrittenSnssai { sst, sd }| Snssai::new(sst, sd))
}

#[derive(Deserialize)]
#[serde(rename = "Snssai")]
struct WrittenSnssai {
    sst: u8,
    #[serde(default, deserialize_with = "read_sd")]
    sd: Option<u32>,
}

fn read_sd<'de, D: Deserializer<'de>>(d: D) -> Result<Option<u32>, D::Error> {
    d.deserialize_any(SdVisitor)
}

struct SdVisitor;

impl<'de> Visitor<'de> for SdVisitor {
    type Value = Option<u32>;

    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("a slice differentiator: six hexadecimal digits as text, or a number of 24 bits")
    }

    fn visit_unit<E: Error>(self) -> Result<Self::Value, E> {
        Ok(None)
    }

    fn visit_none<E: Error>(self) -> Result<Self::Value, E> {
        Ok(None)
    }

    fn visit_some<D: Deserializer<'de>>(self, d: D) -> Result<Self::Value, D::Error> {
        d.deserialize_any(self)
    }

    fn visit_u64<E: Error>(self, number: u64) -> Result<Self::Value, E> {
        u32::try_from(number).map(Some).map_err(|_| E::invalid_value(Unexpected::Unsigned(number), &self))
    }

    fn visit_i64<E: Error>(self, number: i64) -> Result<Self::Value, E> {
        u32::try_from(number).map(Some).map_err(|_| E::invalid_value(Unexpected::Signed(number), &self))
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Self::Value, E> {
        Snssai::sd_from_hex(text).map(Some).ok_or_else(|| E::invalid_value(Unexpected::Str(text), &self))
    }
}
