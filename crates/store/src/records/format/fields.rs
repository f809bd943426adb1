//! Splitting of a struct into encoded fields, and the reverse.
//!
//! Fields are compared by their binary encodings, which cost little. Only fields that differ from
//! those of the base are encoded in another format.
//!
//! A tuple of structs has the fields of all of them. Their names must differ.

use super::{Format, FormatError, Part};
use serde::Serialize;
use serde::de::{DeserializeSeed, Deserializer, MapAccess, SeqAccess, Visitor};
use serde::ser::{Impossible, SerializeStruct, SerializeTuple, Serializer};

type Never = Impossible<Vec<Part>, FormatError>;

/// Serializer that encodes each field of a struct.
#[derive(Clone, Copy)]
pub(super) struct Split<'a> {
    pub(super) format: Format,
    /// Names and binary encodings of the fields that need no encoding in `format`.
    pub(super) base: &'a [(String, Vec<u8>)],
}

/// The fields encoded so far.
pub(super) struct Fields<'a> {
    split: Split<'a>,
    parts: Vec<Part>,
}

impl Split<'_> {
    fn part<T: Serialize + ?Sized>(self, name: &'static str, value: &T) -> Result<Part, FormatError> {
        let binary = Format::Binary.encode(value)?;
        let is_changed = !self.base.iter().any(|(own, there)| own == name && *there == binary);
        let encoded = if is_changed && self.format != Format::Binary { Some(self.format.encode(value)?) } else { None };
        Ok(Part { name, binary, encoded, is_changed })
    }
}

fn no_struct<T>() -> Result<T, FormatError> {
    Err(FormatError::Value("only a struct with named fields has parts, or a tuple of such".into()))
}

/// Defines serializer methods that reject types other than structs.
macro_rules! refuse {
    ($($name:ident($($of:ty),*) -> $result:ty;)*) => {
        $(fn $name(self, $(_: $of),*) -> Result<$result, FormatError> { no_struct() })*
    };
}

impl<'a> Serializer for Split<'a> {
    type Ok = Vec<Part>;
    type Error = FormatError;
    type SerializeSeq = Never;
    type SerializeTuple = Fields<'a>;
    type SerializeTupleStruct = Never;
    type SerializeTupleVariant = Never;
    type SerializeMap = Never;
    type SerializeStruct = Fields<'a>;
    type SerializeStructVariant = Never;

    refuse! {
        serialize_bool(bool) -> Self::Ok;
        serialize_i8(i8) -> Self::Ok;
        serialize_i16(i16) -> Self::Ok;
        serialize_i32(i32) -> Self::Ok;
        serialize_i64(i64) -> Self::Ok;
        serialize_u8(u8) -> Self::Ok;
        serialize_u16(u16) -> Self::Ok;
        serialize_u32(u32) -> Self::Ok;
        serialize_u64(u64) -> Self::Ok;
        serialize_f32(f32) -> Self::Ok;
        serialize_f64(f64) -> Self::Ok;
        serialize_char(char) -> Self::Ok;
        serialize_str(&str) -> Self::Ok;
        serialize_bytes(&[u8]) -> Self::Ok;
        serialize_none() -> Self::Ok;
        serialize_unit() -> Self::Ok;
        serialize_unit_struct(&'static str) -> Self::Ok;
        serialize_unit_variant(&'static str, u32, &'static str) -> Self::Ok;
        serialize_seq(Option<usize>) -> Never;
        serialize_tuple_struct(&'static str, usize) -> Never;
        serialize_tuple_variant(&'static str, u32, &'static str, usize) -> Never;
        serialize_map(Option<usize>) -> Never;
        serialize_struct_variant(&'static str, u32, &'static str, usize) -> Never;
    }

    fn serialize_some<T: Serialize + ?Sized>(self, value: &T) -> Result<Self::Ok, FormatError> {
        value.serialize(self)
    }

    fn serialize_newtype_struct<T: Serialize + ?Sized>(
        self,
        _: &'static str,
        value: &T,
    ) -> Result<Self::Ok, FormatError> {
        value.serialize(self)
    }

    fn serialize_newtype_variant<T: Serialize + ?Sized>(
        self,
        _: &'static str,
        _: u32,
        _: &'static str,
        _: &T,
    ) -> Result<Self::Ok, FormatError> {
        no_struct()
    }

    fn serialize_tuple(self, _: usize) -> Result<Fields<'a>, FormatError> {
        Ok(Fields { split: self, parts: Vec::new() })
    }

    fn serialize_struct(self, _: &'static str, length: usize) -> Result<Fields<'a>, FormatError> {
        Ok(Fields { split: self, parts: Vec::with_capacity(length) })
    }
}

impl SerializeStruct for Fields<'_> {
    type Ok = Vec<Part>;
    type Error = FormatError;

    fn serialize_field<T: Serialize + ?Sized>(&mut self, name: &'static str, value: &T) -> Result<(), FormatError> {
        self.parts.push(self.split.part(name, value)?);
        Ok(())
    }

    fn end(self) -> Result<Self::Ok, FormatError> {
        Ok(self.parts)
    }
}

impl SerializeTuple for Fields<'_> {
    type Ok = Vec<Part>;
    type Error = FormatError;

    fn serialize_element<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), FormatError> {
        let parts = value.serialize(self.split)?;
        if parts.iter().any(|part| self.parts.iter().any(|there| there.name == part.name)) {
            return Err(FormatError::Value("two structs of a tuple have a field of the same name".into()));
        }
        self.parts.extend(parts);
        Ok(())
    }

    fn end(self) -> Result<Self::Ok, FormatError> {
        Ok(self.parts)
    }
}

/// Deserializer of a struct from encoded fields.
#[derive(Clone, Copy)]
pub(super) struct Join<'a> {
    pub(super) format: Format,
    pub(super) parts: &'a [(String, Vec<u8>)],
}

impl<'de> Deserializer<'de> for Join<'de> {
    type Error = FormatError;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, FormatError> {
        visitor.visit_map(RemainingParts { format: self.format, parts: self.parts.iter(), fields: None, octets: &[] })
    }

    /// Skips the fields of other structs: not every format can skip unknown contents.
    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, FormatError> {
        visitor.visit_map(RemainingParts {
            format: self.format,
            parts: self.parts.iter(),
            fields: Some(fields),
            octets: &[],
        })
    }

    fn deserialize_tuple<V: Visitor<'de>>(self, _: usize, visitor: V) -> Result<V::Value, FormatError> {
        visitor.visit_seq(EachStruct(self))
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(self, _: &'static str, visitor: V) -> Result<V::Value, FormatError> {
        visitor.visit_newtype_struct(self)
    }

    serde::forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf option unit unit_struct
        seq tuple_struct map enum identifier ignored_any
    }
}

/// The structs of a tuple, each decoded from the same parts.
struct EachStruct<'a>(Join<'a>);

impl<'de> SeqAccess<'de> for EachStruct<'de> {
    type Error = FormatError;

    fn next_element_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<Option<S::Value>, FormatError> {
        seed.deserialize(self.0).map(Some)
    }
}

/// The parts that are not yet visited.
struct RemainingParts<'a> {
    format: Format,
    parts: std::slice::Iter<'a, (String, Vec<u8>)>,
    /// If set, only these fields are visited.
    fields: Option<&'static [&'static str]>,
    /// Contents of the part whose name was visited last.
    octets: &'a [u8],
}

impl<'de> MapAccess<'de> for RemainingParts<'de> {
    type Error = FormatError;

    fn next_key_seed<K: DeserializeSeed<'de>>(&mut self, seed: K) -> Result<Option<K::Value>, FormatError> {
        let fields = self.fields;
        let mut known = self.parts.by_ref().filter(|(name, _)| fields.is_none_or(|fields| fields.contains(&&name[..])));
        let Some((name, octets)) = known.next() else { return Ok(None) };
        self.octets = octets;
        seed.deserialize(serde::de::value::StrDeserializer::new(name)).map(Some)
    }

    fn next_value_seed<V: DeserializeSeed<'de>>(&mut self, seed: V) -> Result<V::Value, FormatError> {
        let error = |error: &dyn std::fmt::Display| FormatError::Octets(error.to_string());
        match self.format {
            Format::Binary => {
                let mut deserializer = postcard::Deserializer::from_bytes(self.octets);
                seed.deserialize(&mut deserializer).map_err(|e| error(&e))
            }
            Format::Json => {
                let mut deserializer = serde_json::Deserializer::from_slice(self.octets);
                seed.deserialize(&mut deserializer).map_err(|e| error(&e))
            }
            Format::Protobuf => super::protobuf::from_slice_seed(self.octets, seed),
        }
    }
}
