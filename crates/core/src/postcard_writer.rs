//! Serializer that writes postcard's encoding straight into a vector.
//!
//! Every commit encodes a context with it. The output is byte for byte that of postcard. Writing
//! into a vector cannot run out of room, so that derived `Serialize` implementations compile to a
//! sequence of stores. Postcard is generic over its output and checks each byte. Decoding is left
//! to postcard.

use serde::{Serialize, ser};
use std::fmt;

/// Appends the encoding of a value.
///
/// # Errors
///
/// Returns an error if a sequence does not know its length, or if a type's `Serialize`
/// implementation fails, as with postcard. An `i128`, which no type here has, is an error too.
pub fn to_vec(value: &impl Serialize, to: &mut Vec<u8>) -> Result<(), Unencodable> {
    value.serialize(&mut PostcardWriter(to))
}

/// Error of a value that has no encoding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("it has no encoding")]
pub struct Unencodable;

impl ser::Error for Unencodable {
    fn custom<T: fmt::Display>(_: T) -> Self {
        Unencodable
    }
}

type SerResult = Result<(), Unencodable>;

/// Serializer that appends to a vector.
struct PostcardWriter<'a>(&'a mut Vec<u8>);

impl PostcardWriter<'_> {
    /// Appends a variable-length number, its lowest 7 bits first.
    #[inline]
    fn number(&mut self, number: u64) -> SerResult {
        if number < 0x80 {
            self.0.push(number as u8);
            return Ok(());
        }
        self.long(number)
    }

    fn long(&mut self, number: u64) -> SerResult {
        let bits = u64::BITS - number.leading_zeros();
        if bits > 56 {
            return self.longest(number);
        }
        // Spreads the number, seven bits to a byte, in three steps: halves, quarters, eighths.
        let spread = |n: u64, low: u64, high: u64, by: u32| n & low | (n & high) << by;
        let halves = spread(number, 0x0000_0000_0fff_ffff, 0x00ff_ffff_f000_0000, 4);
        let quarters = spread(halves, 0x0000_3fff_0000_3fff, 0x0fff_c000_0fff_c000, 2);
        let eighths = spread(quarters, 0x007f_007f_007f_007f, 0x3f80_3f80_3f80_3f80, 1);
        // The top bit of a byte is set if another byte follows.
        let used = bits.div_ceil(7);
        let follow = 0x8080_8080_8080_8080 & ((1 << (8 * (used - 1))) - 1);
        // Append all eight bytes, then truncate: a constant length avoids a function call.
        let end = self.0.len() + used as usize;
        self.0.extend_from_slice(&(eighths | follow).to_le_bytes());
        self.0.truncate(end);
        Ok(())
    }

    #[cold]
    fn longest(&mut self, mut number: u64) -> SerResult {
        while number >= 0x80 {
            self.0.push(number as u8 | 0x80);
            number >>= 7;
        }
        self.0.push(number as u8);
        Ok(())
    }

    #[inline]
    fn signed(&mut self, number: i64) -> SerResult {
        self.number((number << 1 ^ number >> 63).cast_unsigned())
    }
}

impl<'a, 'b> ser::Serializer for &'a mut PostcardWriter<'b> {
    type Ok = ();
    type Error = Unencodable;
    type SerializeSeq = Self;
    type SerializeTuple = Self;
    type SerializeTupleStruct = Self;
    type SerializeTupleVariant = Self;
    type SerializeMap = Self;
    type SerializeStruct = Self;
    type SerializeStructVariant = Self;

    #[inline]
    fn is_human_readable(&self) -> bool {
        false
    }

    #[inline]
    fn serialize_bool(self, value: bool) -> SerResult {
        self.serialize_u8(value.into())
    }

    #[inline]
    fn serialize_i8(self, value: i8) -> SerResult {
        self.serialize_u8(value.cast_unsigned())
    }

    #[inline]
    fn serialize_i16(self, value: i16) -> SerResult {
        self.signed(value.into())
    }

    #[inline]
    fn serialize_i32(self, value: i32) -> SerResult {
        self.signed(value.into())
    }

    #[inline]
    fn serialize_i64(self, value: i64) -> SerResult {
        self.signed(value)
    }

    #[inline]
    fn serialize_u8(self, value: u8) -> SerResult {
        self.0.push(value);
        Ok(())
    }

    #[inline]
    fn serialize_u16(self, value: u16) -> SerResult {
        self.number(value.into())
    }

    #[inline]
    fn serialize_u32(self, value: u32) -> SerResult {
        self.number(value.into())
    }

    #[inline]
    fn serialize_u64(self, value: u64) -> SerResult {
        self.number(value)
    }

    #[inline]
    fn serialize_u128(self, mut value: u128) -> SerResult {
        while value >= 0x80 {
            self.0.push(value as u8 | 0x80);
            value >>= 7;
        }
        self.serialize_u8(value as u8)
    }

    #[inline]
    fn serialize_f32(self, value: f32) -> SerResult {
        self.0.extend_from_slice(&value.to_le_bytes());
        Ok(())
    }

    #[inline]
    fn serialize_f64(self, value: f64) -> SerResult {
        self.0.extend_from_slice(&value.to_le_bytes());
        Ok(())
    }

    #[inline]
    fn serialize_char(self, value: char) -> SerResult {
        self.serialize_str(value.encode_utf8(&mut [0; 4]))
    }

    #[inline]
    fn serialize_str(self, value: &str) -> SerResult {
        self.serialize_bytes(value.as_bytes())
    }

    #[inline]
    fn serialize_bytes(self, value: &[u8]) -> SerResult {
        self.number(value.len() as u64)?;
        self.0.extend_from_slice(value);
        Ok(())
    }

    #[inline]
    fn serialize_none(self) -> SerResult {
        self.serialize_u8(0)
    }

    #[inline]
    fn serialize_some<T: Serialize + ?Sized>(self, value: &T) -> SerResult {
        self.0.push(1);
        value.serialize(self)
    }

    #[inline]
    fn serialize_unit(self) -> SerResult {
        Ok(())
    }

    #[inline]
    fn serialize_unit_struct(self, _: &'static str) -> SerResult {
        Ok(())
    }

    #[inline]
    fn serialize_unit_variant(self, _: &'static str, variant: u32, _: &'static str) -> SerResult {
        self.number(variant.into())
    }

    #[inline]
    fn serialize_newtype_struct<T: Serialize + ?Sized>(self, _: &'static str, value: &T) -> SerResult {
        value.serialize(self)
    }

    #[inline]
    fn serialize_newtype_variant<T: Serialize + ?Sized>(
        self,
        _: &'static str,
        variant: u32,
        _: &'static str,
        value: &T,
    ) -> SerResult {
        self.number(variant.into())?;
        value.serialize(self)
    }

    #[inline]
    fn serialize_seq(self, length: Option<usize>) -> Result<Self, Unencodable> {
        self.number(length.ok_or(Unencodable)? as u64)?;
        Ok(self)
    }

    #[inline]
    fn serialize_tuple(self, _: usize) -> Result<Self, Unencodable> {
        Ok(self)
    }

    #[inline]
    fn serialize_tuple_struct(self, _: &'static str, _: usize) -> Result<Self, Unencodable> {
        Ok(self)
    }

    #[inline]
    fn serialize_tuple_variant(
        self,
        _: &'static str,
        variant: u32,
        _: &'static str,
        _: usize,
    ) -> Result<Self, Unencodable> {
        self.number(variant.into())?;
        Ok(self)
    }

    #[inline]
    fn serialize_map(self, length: Option<usize>) -> Result<Self, Unencodable> {
        self.serialize_seq(length)
    }

    #[inline]
    fn serialize_struct(self, _: &'static str, _: usize) -> Result<Self, Unencodable> {
        Ok(self)
    }

    #[inline]
    fn serialize_struct_variant(
        self,
        _: &'static str,
        variant: u32,
        _: &'static str,
        _: usize,
    ) -> Result<Self, Unencodable> {
        self.number(variant.into())?;
        Ok(self)
    }
}

/// Implements a compound serializer whose elements are appended one after the other.
macro_rules! one_after_the_other {
    ($($of:ident: $function:ident,)+) => {$(
        impl ser::$of for &mut PostcardWriter<'_> {
            type Ok = ();
            type Error = Unencodable;

            #[inline]
            fn $function<T: Serialize + ?Sized>(&mut self, value: &T) -> SerResult {
                value.serialize(&mut **self)
            }

            #[inline]
            fn end(self) -> SerResult {
                Ok(())
            }
        }
    )+};
}

one_after_the_other! {
    SerializeSeq: serialize_element,
    SerializeTuple: serialize_element,
    SerializeTupleStruct: serialize_field,
    SerializeTupleVariant: serialize_field,
}

/// Implements a compound serializer whose fields are appended in order. Field names are not
/// written.
macro_rules! field_after_field {
    ($($of:ident,)+) => {$(
        impl ser::$of for &mut PostcardWriter<'_> {
            type Ok = ();
            type Error = Unencodable;

            #[inline]
            fn serialize_field<T: Serialize + ?Sized>(&mut self, _: &'static str, value: &T) -> SerResult {
                value.serialize(&mut **self)
            }

            #[inline]
            fn end(self) -> SerResult {
                Ok(())
            }
        }
    )+};
}

field_after_field! {
    SerializeStruct,
    SerializeStructVariant,
}

impl ser::SerializeMap for &mut PostcardWriter<'_> {
    type Ok = ();
    type Error = Unencodable;

    #[inline]
    fn serialize_key<T: Serialize + ?Sized>(&mut self, key: &T) -> SerResult {
        key.serialize(&mut **self)
    }

    #[inline]
    fn serialize_value<T: Serialize + ?Sized>(&mut self, value: &T) -> SerResult {
        value.serialize(&mut **self)
    }

    #[inline]
    fn end(self) -> SerResult {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;
    use std::net::{IpAddr, Ipv6Addr};

    #[derive(Serialize)]
    enum Kind {
        Unit,
        One(u16),
        Two(i64, Option<bool>),
        Named { octets: [u8; 3], text: String },
    }

    #[derive(Serialize)]
    struct Marker;

    #[derive(Serialize)]
    struct All<'a> {
        kinds: Vec<Kind>,
        unsigned: Vec<(u8, u16, u32, u64, u128)>,
        signed: Vec<(i8, i16, i32, i64)>,
        floats: (f32, f64),
        letters: (char, &'a str),
        octets: &'a serde_bytes::Bytes,
        address: IpAddr,
        unit: (),
        marker: Marker,
        #[serde(with = "postcard::fixint::le")]
        fixed: u64,
        map: BTreeMap<u8, &'a str>,
    }

    #[test]
    fn its_octets_are_those_of_postcard() {
        let bits = |n: u32| 1_u128 << n;
        let unsigned = (0..128).map(|n| (bits(n) as u8, bits(n) as u16, bits(n) as u32, bits(n) as u64, bits(n)));
        let less = (0..128).map(|n| bits(n) - 1).map(|n| (n as u8, n as u16, n as u32, n as u64, n));
        let unsigned: Vec<_> =
            unsigned.chain(less).chain([(u8::MAX, u16::MAX, u32::MAX, u64::MAX, u128::MAX)]).collect();
        let signed = unsigned.iter().map(|n| (n.4 as i8, n.4 as i16, n.4 as i32, n.4 as i64));
        let signed: Vec<_> = signed.clone().chain(signed.map(|n| (!n.0, !n.1, !n.2, !n.3))).collect();
        let all = All {
            kinds: vec![
                Kind::Unit,
                Kind::One(700),
                Kind::Two(-1, Some(true)),
                Kind::Two(i64::MIN, None),
                Kind::Named { octets: [0, 127, 255], text: "é".repeat(100) },
            ],
            unsigned,
            signed,
            floats: (1.5, -0.1),
            letters: ('é', ""),
            octets: serde_bytes::Bytes::new(&[7; 300]),
            address: Ipv6Addr::LOCALHOST.into(),
            unit: (),
            marker: Marker,
            fixed: 0x0102_0304_0506_0708,
            map: BTreeMap::from([(1, "a"), (200, "b")]),
        };
        let mut ours = vec![9];
        to_vec(&all, &mut ours).expect("it encodes");
        assert_eq!(ours, postcard::to_extend(&all, vec![9]).expect("it encodes"));
    }

    #[test]
    fn sequence_of_unknown_length_is_refused() {
        struct Unknown;
        impl Serialize for Unknown {
            fn serialize<S: ser::Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
                ser::SerializeSeq::end(s.serialize_seq(None)?)
            }
        }
        assert_eq!(to_vec(&Unknown, &mut Vec::new()), Err(Unencodable));
        assert!(postcard::to_allocvec(&Unknown).is_err());
    }
}
