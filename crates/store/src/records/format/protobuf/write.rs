use super::super::FormatError;
use prost::encoding::{WireType, encode_key, encode_varint};
use serde::Serialize;
use serde::ser;

/// A value's octets.
pub(in super::super) fn to_vec<T: Serialize + ?Sized>(value: &T) -> Result<Vec<u8>, FormatError> {
    let mut out = Vec::new();
    value.serialize(Field { out: &mut out, number: 1, explicit: false })?;
    Ok(out)
}

/// Where a value goes: a field of a message.
struct Field<'a> {
    out: &'a mut Vec<u8>,
    number: u32,
    /// It is written even if it is what an absent field is taken for.
    explicit: bool,
}

fn zigzag(value: i64) -> u64 {
    ((value << 1) ^ (value >> 63)) as u64
}

impl<'a> Field<'a> {
    fn varint(self, value: u64) -> Result<(), FormatError> {
        if value != 0 || self.explicit {
            encode_key(self.number, WireType::Varint, self.out);
            encode_varint(value, self.out);
        }
        Ok(())
    }

    fn octets(self, octets: &[u8]) -> Result<(), FormatError> {
        if !octets.is_empty() || self.explicit {
            encode_key(self.number, WireType::LengthDelimited, self.out);
            encode_varint(octets.len() as u64, self.out);
            self.out.extend_from_slice(octets);
        }
        Ok(())
    }

    fn message(self) -> Message<'a> {
        Message { field: self, octets: Vec::new(), next: 1 }
    }

    fn variant(self, index: u32) -> Message<'a> {
        Message { field: Field { explicit: true, ..self }, octets: Vec::new(), next: index + 1 }
    }

    fn repeated(self) -> Repeated<'a> {
        Repeated { field: self, packed: Vec::new() }
    }
}

impl<'a> ser::Serializer for Field<'a> {
    type Ok = ();
    type Error = FormatError;
    type SerializeSeq = Repeated<'a>;
    type SerializeTuple = Repeated<'a>;
    type SerializeTupleStruct = Repeated<'a>;
    type SerializeTupleVariant = Message<'a>;
    type SerializeMap = Entries<'a>;
    type SerializeStruct = Message<'a>;
    type SerializeStructVariant = Variant<'a>;

    fn is_human_readable(&self) -> bool {
        false
    }

    fn serialize_bool(self, value: bool) -> Result<(), FormatError> {
        self.varint(value.into())
    }

    fn serialize_i8(self, value: i8) -> Result<(), FormatError> {
        self.varint(zigzag(value.into()))
    }

    fn serialize_i16(self, value: i16) -> Result<(), FormatError> {
        self.varint(zigzag(value.into()))
    }

    fn serialize_i32(self, value: i32) -> Result<(), FormatError> {
        self.varint(zigzag(value.into()))
    }

    fn serialize_i64(self, value: i64) -> Result<(), FormatError> {
        self.varint(zigzag(value))
    }

    fn serialize_u8(self, value: u8) -> Result<(), FormatError> {
        self.varint(value.into())
    }

    fn serialize_u16(self, value: u16) -> Result<(), FormatError> {
        self.varint(value.into())
    }

    fn serialize_u32(self, value: u32) -> Result<(), FormatError> {
        self.varint(value.into())
    }

    fn serialize_u64(self, value: u64) -> Result<(), FormatError> {
        self.varint(value)
    }

    fn serialize_f32(self, value: f32) -> Result<(), FormatError> {
        self.serialize_f64(value.into())
    }

    fn serialize_f64(self, value: f64) -> Result<(), FormatError> {
        encode_key(self.number, WireType::SixtyFourBit, self.out);
        self.out.extend_from_slice(&value.to_le_bytes());
        Ok(())
    }

    fn serialize_char(self, value: char) -> Result<(), FormatError> {
        self.varint(u32::from(value).into())
    }

    fn serialize_str(self, value: &str) -> Result<(), FormatError> {
        self.octets(value.as_bytes())
    }

    fn serialize_bytes(self, value: &[u8]) -> Result<(), FormatError> {
        self.octets(value)
    }

    fn serialize_none(self) -> Result<(), FormatError> {
        // As an element of a sequence it has to be there.
        if self.explicit { self.octets(&[]) } else { Ok(()) }
    }

    fn serialize_some<T: Serialize + ?Sized>(self, value: &T) -> Result<(), FormatError> {
        let mut octets = Vec::new();
        value.serialize(Field { out: &mut octets, number: 1, explicit: true })?;
        Field { explicit: true, ..self }.octets(&octets)
    }

    fn serialize_unit(self) -> Result<(), FormatError> {
        self.octets(&[])
    }

    fn serialize_unit_struct(self, _: &'static str) -> Result<(), FormatError> {
        self.octets(&[])
    }

    fn serialize_unit_variant(self, _: &'static str, index: u32, _: &'static str) -> Result<(), FormatError> {
        self.variant(index).value(&())
    }

    fn serialize_newtype_struct<T: Serialize + ?Sized>(self, _: &'static str, value: &T) -> Result<(), FormatError> {
        value.serialize(self)
    }

    fn serialize_newtype_variant<T: Serialize + ?Sized>(
        self,
        _: &'static str,
        index: u32,
        _: &'static str,
        value: &T,
    ) -> Result<(), FormatError> {
        self.variant(index).value(value)
    }

    fn serialize_seq(self, _: Option<usize>) -> Result<Repeated<'a>, FormatError> {
        Ok(self.repeated())
    }

    fn serialize_tuple(self, _: usize) -> Result<Repeated<'a>, FormatError> {
        Ok(self.repeated())
    }

    fn serialize_tuple_struct(self, _: &'static str, _: usize) -> Result<Repeated<'a>, FormatError> {
        Ok(self.repeated())
    }
}
