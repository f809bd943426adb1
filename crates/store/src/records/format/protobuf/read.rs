use super::super::FormatError;
use prost::encoding::{WireType, decode_key, decode_varint};
use serde::de::{DeserializeOwned, DeserializeSeed, Deserializer, EnumAccess, IntoDeserializer};
use serde::de::{MapAccess, SeqAccess, VariantAccess, Visitor};

/// Decodes a value.
pub(in super::super) fn from_slice<T: DeserializeOwned>(octets: &[u8]) -> Result<T, FormatError> {
    from_slice_seed(octets, std::marker::PhantomData)
}

/// Decodes a value by a seed.
pub(in super::super) fn from_slice_seed<'de, S: DeserializeSeed<'de>>(
    octets: &'de [u8],
    seed: S,
) -> Result<S::Value, FormatError> {
    seed.deserialize(Value { occurrences: Message::parse(octets)?.field(1), explicit: false })
}

fn damaged<T>() -> Result<T, FormatError> {
    Err(FormatError::Octets("it is cut short, or of another type".into()))
}

/// An undecoded field value.
#[derive(Clone, Copy, Debug)]
enum Raw<'de> {
    Varint(u64),
    Fixed([u8; 8]),
    Octets(&'de [u8]),
}

/// A message of which only the keys are decoded.
struct Message<'de>(Vec<(u32, Raw<'de>)>);

impl<'de> Message<'de> {
    fn parse(mut octets: &'de [u8]) -> Result<Self, FormatError> {
        let mut fields = Vec::new();
        let error = |_| FormatError::Octets("it is cut short".into());
        while !octets.is_empty() {
            let (number, kind) = decode_key(&mut octets).map_err(error)?;
            let raw = match kind {
                WireType::Varint => Raw::Varint(decode_varint(&mut octets).map_err(error)?),
                WireType::SixtyFourBit => {
                    let Some((value, rest)) = octets.split_first_chunk() else { return damaged() };
                    octets = rest;
                    Raw::Fixed(*value)
                }
                WireType::LengthDelimited => {
                    let length = usize::try_from(decode_varint(&mut octets).map_err(error)?).unwrap_or(usize::MAX);
                    let Some((value, rest)) = octets.split_at_checked(length) else { return damaged() };
                    octets = rest;
                    Raw::Octets(value)
                }
                _ => return damaged(),
            };
            fields.push((number, raw));
        }
        Ok(Message(fields))
    }

    /// Returns all occurrences of a field.
    fn field(&self, number: u32) -> Vec<Raw<'de>> {
        self.0.iter().filter(|(of, _)| *of == number).map(|(_, raw)| *raw).collect()
    }
}

/// A value: the occurrences of its field, possibly none.
struct Value<'de> {
    occurrences: Vec<Raw<'de>>,
    /// True for the contents of an option or enum, or an element: there, sequences and options are
    /// messages of their own.
    explicit: bool,
}

impl<'de> Value<'de> {
    fn one(raw: Raw<'de>) -> Self {
        Value { occurrences: vec![raw], explicit: true }
    }

    fn varint(&self) -> Result<u64, FormatError> {
        match self.occurrences.last() {
            None => Ok(0),
            Some(Raw::Varint(value)) => Ok(*value),
            Some(_) => damaged(),
        }
    }

    fn signed(&self) -> Result<i64, FormatError> {
        let value = self.varint()?;
        Ok((value >> 1).cast_signed() ^ -(value & 1).cast_signed())
    }

    fn octets(&self) -> Result<&'de [u8], FormatError> {
        match self.occurrences.last() {
            None => Ok(&[]),
            Some(Raw::Octets(octets)) => Ok(octets),
            Some(_) => damaged(),
        }
    }

    fn message(&self) -> Result<Message<'de>, FormatError> {
        Message::parse(self.octets()?)
    }

    fn elements(self) -> Result<Elements<'de>, FormatError> {
        let occurrences = if self.explicit { self.message()?.field(1) } else { self.occurrences };
        Ok(Elements { rest: occurrences.into_iter(), packed: &[] })
    }
}

macro_rules! numbers {
    ($($name:ident $read:ident $visit:ident;)*) => {
        $(fn $name<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, FormatError> {
            visitor.$visit(self.$read()?)
        })*
    };
}

impl<'de> Deserializer<'de> for Value<'de> {
    type Error = FormatError;

    fn is_human_readable(&self) -> bool {
        false
    }

    fn deserialize_any<V: Visitor<'de>>(self, _: V) -> Result<V::Value, FormatError> {
        Err(FormatError::Octets("the type does not say what it is".into()))
    }

    numbers! {
        deserialize_u8 varint visit_u64;
        deserialize_u16 varint visit_u64;
        deserialize_u32 varint visit_u64;
        deserialize_u64 varint visit_u64;
        deserialize_i8 signed visit_i64;
        deserialize_i16 signed visit_i64;
        deserialize_i32 signed visit_i64;
        deserialize_i64 signed visit_i64;
        deserialize_bytes octets visit_borrowed_bytes;
        deserialize_byte_buf octets visit_borrowed_bytes;
    }

    fn deserialize_bool<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, FormatError> {
        visitor.visit_bool(self.varint()? != 0)
    }

    fn deserialize_char<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, FormatError> {
        match u32::try_from(self.varint()?).ok().and_then(char::from_u32) {
            Some(value) => visitor.visit_char(value),
            None => damaged(),
        }
    }

    fn deserialize_f32<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, FormatError> {
        self.deserialize_f64(visitor)
    }

    fn deserialize_f64<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, FormatError> {
        match self.occurrences.last() {
            None => visitor.visit_f64(0.0),
            Some(Raw::Fixed(value)) => visitor.visit_f64(f64::from_le_bytes(*value)),
            Some(_) => damaged(),
        }
    }

    fn deserialize_str<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, FormatError> {
        match std::str::from_utf8(self.octets()?) {
            Ok(text) => visitor.visit_borrowed_str(text),
            Err(_) => damaged(),
        }
    }

    fn deserialize_string<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, FormatError> {
        self.deserialize_str(visitor)
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, FormatError> {
        if !self.explicit {
            let there = !self.occurrences.is_empty();
            return if there { visitor.visit_some(Value { explicit: true, ..self }) } else { visitor.visit_none() };
        }
        let occurrences = self.message()?.field(1);
        let there = !occurrences.is_empty();
        if there { visitor.visit_some(Value { occurrences, explicit: true }) } else { visitor.visit_none() }
    }

    fn deserialize_unit<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, FormatError> {
        visitor.visit_unit()
    }

    fn deserialize_unit_struct<V: Visitor<'de>>(self, _: &'static str, visitor: V) -> Result<V::Value, FormatError> {
        visitor.visit_unit()
    }

    fn deserialize_ignored_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, FormatError> {
        visitor.visit_unit()
    }

    fn deserialize_identifier<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, FormatError> {
        self.deserialize_any(visitor)
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(self, _: &'static str, visitor: V) -> Result<V::Value, FormatError> {
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_seq<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, FormatError> {
        visitor.visit_seq(self.elements()?)
    }

    fn deserialize_tuple<V: Visitor<'de>>(self, _: usize, visitor: V) -> Result<V::Value, FormatError> {
        self.deserialize_seq(visitor)
    }

    fn deserialize_tuple_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        _: usize,
        visitor: V,
    ) -> Result<V::Value, FormatError> {
        self.deserialize_seq(visitor)
    }

    fn deserialize_map<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, FormatError> {
        let entries = self.elements()?;
        visitor.visit_map(Entries { entries: entries.rest, value: Vec::new() })
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, FormatError> {
        let message = self.message()?;
        visitor.visit_seq(Fields { message, numbers: 1..=fields.len() as u32 })
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _: &'static str,
        _: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, FormatError> {
        match self.message()?.0.last() {
            Some((number @ 1.., raw)) => visitor.visit_enum(Variant { index: number - 1, raw: *raw }),
            _ => damaged(),
        }
    }
}

/// The fields of a struct, in their order.
struct Fields<'de> {
    message: Message<'de>,
    numbers: std::ops::RangeInclusive<u32>,
}

impl<'de> SeqAccess<'de> for Fields<'de> {
    type Error = FormatError;

    fn next_element_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<Option<S::Value>, FormatError> {
        let Some(number) = self.numbers.next() else { return Ok(None) };
        seed.deserialize(Value { occurrences: self.message.field(number), explicit: false }).map(Some)
    }
}

/// The variant of an enum.
struct Variant<'de> {
    index: u32,
    raw: Raw<'de>,
}

impl<'de> EnumAccess<'de> for Variant<'de> {
    type Error = FormatError;
    type Variant = Self;

    fn variant_seed<S: DeserializeSeed<'de>>(self, seed: S) -> Result<(S::Value, Self), FormatError> {
        let index: serde::de::value::U32Deserializer<FormatError> = self.index.into_deserializer();
        Ok((seed.deserialize(index)?, self))
    }
}

impl<'de> VariantAccess<'de> for Variant<'de> {
    type Error = FormatError;

    fn unit_variant(self) -> Result<(), FormatError> {
        Ok(())
    }

    fn newtype_variant_seed<S: DeserializeSeed<'de>>(self, seed: S) -> Result<S::Value, FormatError> {
        seed.deserialize(Value::one(self.raw))
    }

    fn tuple_variant<V: Visitor<'de>>(self, _: usize, visitor: V) -> Result<V::Value, FormatError> {
        Value::one(self.raw).deserialize_seq(visitor)
    }

    fn struct_variant<V: Visitor<'de>>(
        self,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, FormatError> {
        Value::one(self.raw).deserialize_struct("", fields, visitor)
    }
}

/// The entries of a map.
struct Entries<'de> {
    entries: std::vec::IntoIter<Raw<'de>>,
    value: Vec<Raw<'de>>,
}

impl<'de> MapAccess<'de> for Entries<'de> {
    type Error = FormatError;

    fn next_key_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<Option<S::Value>, FormatError> {
        let Some(entry) = self.entries.next() else { return Ok(None) };
        let entry = Value::one(entry).message()?;
        self.value = entry.field(2);
        seed.deserialize(Value { occurrences: entry.field(1), explicit: false }).map(Some)
    }

    fn next_value_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<S::Value, FormatError> {
        seed.deserialize(Value { occurrences: std::mem::take(&mut self.value), explicit: false })
    }
}

/// The elements of a repeated field. Only the requested type decides whether they are packed
/// numbers.
struct Elements<'de> {
    rest: std::vec::IntoIter<Raw<'de>>,
    packed: &'de [u8],
}

impl<'de> Elements<'de> {
    fn whole(&mut self) -> Result<Value<'de>, FormatError> {
        match self.rest.next().filter(|_| self.packed.is_empty()) {
            Some(raw) => Ok(Value::one(raw)),
            None => damaged(),
        }
    }

    fn number(&mut self) -> Result<Value<'de>, FormatError> {
        if self.packed.is_empty() {
            match self.rest.next() {
                Some(Raw::Octets(packed)) => self.packed = packed,
                Some(raw) => return Ok(Value::one(raw)),
                None => return damaged(),
            }
        }
        match decode_varint(&mut self.packed) {
            Ok(value) => Ok(Value::one(Raw::Varint(value))),
            Err(_) => damaged(),
        }
    }
}

impl<'de> SeqAccess<'de> for Elements<'de> {
    type Error = FormatError;

    fn next_element_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<Option<S::Value>, FormatError> {
        if self.packed.is_empty() && self.rest.as_slice().is_empty() {
            return Ok(None);
        }
        seed.deserialize(Element(self)).map(Some)
    }
}

struct Element<'a, 'de>(&'a mut Elements<'de>);

macro_rules! element {
    ($take:ident: $($name:ident($($argument:ident: $of:ty),*);)*) => {
        $(fn $name<V: Visitor<'de>>(self, $($argument: $of,)* visitor: V) -> Result<V::Value, FormatError> {
            self.0.$take()?.$name($($argument,)* visitor)
        })*
    };
}

impl<'de> Deserializer<'de> for Element<'_, 'de> {
    type Error = FormatError;

    fn is_human_readable(&self) -> bool {
        false
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(self, _: &'static str, visitor: V) -> Result<V::Value, FormatError> {
        visitor.visit_newtype_struct(self)
    }

    element! { number:
        deserialize_bool();
        deserialize_u8();
        deserialize_u16();
        deserialize_u32();
        deserialize_u64();
        deserialize_i8();
        deserialize_i16();
        deserialize_i32();
        deserialize_i64();
        deserialize_char();
    }

    element! { whole:
        deserialize_any();
        deserialize_f32();
        deserialize_f64();
        deserialize_str();
        deserialize_string();
        deserialize_bytes();
        deserialize_byte_buf();
        deserialize_option();
        deserialize_unit();
        deserialize_unit_struct(name: &'static str);
        deserialize_ignored_any();
        deserialize_identifier();
        deserialize_seq();
        deserialize_tuple(length: usize);
        deserialize_tuple_struct(name: &'static str, length: usize);
        deserialize_map();
        deserialize_struct(name: &'static str, fields: &'static [&'static str]);
        deserialize_enum(name: &'static str, variants: &'static [&'static str]);
    }
}
