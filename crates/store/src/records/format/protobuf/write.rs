use super::super::FormatError;
use prost::encoding::{WireType, encode_key, encode_varint};
use serde::Serialize;
use serde::ser;

/// Encodes a value.
pub(in super::super) fn to_vec<T: Serialize + ?Sized>(value: &T) -> Result<Vec<u8>, FormatError> {
    let mut out = Vec::new();
    value.serialize(Field { out: &mut out, number: 1, explicit: false })?;
    Ok(out)
}

/// Destination of a value: a field of a message.
struct Field<'a> {
    out: &'a mut Vec<u8>,
    number: u32,
    /// True if the field is written even with its default value.
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

    fn repeated(self) -> Repeated<'a> {
        Repeated { field: self, octets: Vec::new(), packed: Vec::new(), variant: None }
    }

    /// Writes a complete message, as a field of a oneof if it is a variant.
    fn close(self, octets: &[u8], variant: Option<u32>) -> Result<(), FormatError> {
        let Some(number) = variant else { return self.octets(octets) };
        let mut oneof = Vec::new();
        Field { out: &mut oneof, number, explicit: true }.octets(octets)?;
        self.octets(&oneof)
    }

    fn variant<T: Serialize + ?Sized>(self, index: u32, value: &T) -> Result<(), FormatError> {
        let mut oneof = Vec::new();
        value.serialize(Field { out: &mut oneof, number: index + 1, explicit: true })?;
        self.octets(&oneof)
    }
}

impl<'a> ser::Serializer for Field<'a> {
    type Ok = ();
    type Error = FormatError;
    type SerializeSeq = Repeated<'a>;
    type SerializeTuple = Repeated<'a>;
    type SerializeTupleStruct = Repeated<'a>;
    type SerializeTupleVariant = Repeated<'a>;
    type SerializeMap = Entries<'a>;
    type SerializeStruct = Message<'a>;
    type SerializeStructVariant = Message<'a>;

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
        // An element of a sequence must be present.
        if self.explicit { self.octets(&[]) } else { Ok(()) }
    }

    fn serialize_some<T: Serialize + ?Sized>(self, value: &T) -> Result<(), FormatError> {
        if !self.explicit {
            return value.serialize(Field { explicit: true, ..self });
        }
        let mut octets = Vec::new();
        value.serialize(Field { out: &mut octets, number: 1, explicit: true })?;
        self.octets(&octets)
    }

    fn serialize_unit(self) -> Result<(), FormatError> {
        self.octets(&[])
    }

    fn serialize_unit_struct(self, _: &'static str) -> Result<(), FormatError> {
        self.octets(&[])
    }

    fn serialize_unit_variant(self, _: &'static str, index: u32, _: &'static str) -> Result<(), FormatError> {
        self.variant(index, &())
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
        self.variant(index, value)
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

    fn serialize_tuple_variant(
        self,
        _: &'static str,
        index: u32,
        _: &'static str,
        _: usize,
    ) -> Result<Repeated<'a>, FormatError> {
        Ok(Repeated { variant: Some(index + 1), ..self.repeated() })
    }

    fn serialize_map(self, _: Option<usize>) -> Result<Entries<'a>, FormatError> {
        Ok(Entries { field: self, entry: Vec::new(), octets: Vec::new() })
    }

    fn serialize_struct(self, _: &'static str, _: usize) -> Result<Message<'a>, FormatError> {
        Ok(Message { field: self, octets: Vec::new(), next: 1, variant: None })
    }

    fn serialize_struct_variant(
        self,
        _: &'static str,
        index: u32,
        _: &'static str,
        _: usize,
    ) -> Result<Message<'a>, FormatError> {
        Ok(Message { field: self, octets: Vec::new(), next: 1, variant: Some(index + 1) })
    }
}

/// A message whose fields are numbered in the order in which they are added.
struct Message<'a> {
    field: Field<'a>,
    octets: Vec<u8>,
    next: u32,
    /// The message is this field of a oneof; `None`: it is no variant.
    variant: Option<u32>,
}

impl Message<'_> {
    fn put<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), FormatError> {
        let number = self.next;
        self.next += 1;
        value.serialize(Field { out: &mut self.octets, number, explicit: false })
    }

    fn close(self) -> Result<(), FormatError> {
        self.field.close(&self.octets, self.variant)
    }
}

impl ser::SerializeStruct for Message<'_> {
    type Ok = ();
    type Error = FormatError;

    fn serialize_field<T: Serialize + ?Sized>(&mut self, _: &'static str, value: &T) -> Result<(), FormatError> {
        self.put(value)
    }

    fn skip_field(&mut self, _: &'static str) -> Result<(), FormatError> {
        self.next += 1;
        Ok(())
    }

    fn end(self) -> Result<(), FormatError> {
        self.close()
    }
}

impl ser::SerializeStructVariant for Message<'_> {
    type Ok = ();
    type Error = FormatError;

    fn serialize_field<T: Serialize + ?Sized>(&mut self, _: &'static str, value: &T) -> Result<(), FormatError> {
        self.put(value)
    }

    fn skip_field(&mut self, _: &'static str) -> Result<(), FormatError> {
        self.next += 1;
        Ok(())
    }

    fn end(self) -> Result<(), FormatError> {
        self.close()
    }
}

/// A repeated field being written.
struct Repeated<'a> {
    field: Field<'a>,
    /// Bytes already encoded: the occurrences of the field, with number 1 if they are in a message
    /// of their own.
    octets: Vec<u8>,
    /// Packed numbers that are not yet written to `octets`.
    packed: Vec<u8>,
    /// The sequence is this field of a oneof; `None`: it is no variant.
    variant: Option<u32>,
}

impl<'a> Repeated<'a> {
    /// Returns the field number of the occurrences.
    fn number(&self) -> u32 {
        if self.wrapped() { 1 } else { self.field.number }
    }

    /// Returns true if the sequence needs a message of its own: in another sequence, an option or a
    /// oneof.
    fn wrapped(&self) -> bool {
        self.field.explicit || self.variant.is_some()
    }

    fn flush(&mut self) {
        if !self.packed.is_empty() {
            encode_key(self.number(), WireType::LengthDelimited, &mut self.octets);
            encode_varint(self.packed.len() as u64, &mut self.octets);
            self.octets.append(&mut self.packed);
        }
    }

    fn put<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), FormatError> {
        let (number, mut element) = (self.number(), Vec::new());
        value.serialize(Field { out: &mut element, number, explicit: true })?;
        let mut rest = &element[..];
        match prost::encoding::decode_key(&mut rest) {
            // Numbers are packed without their key.
            Ok((_, WireType::Varint)) => self.packed.extend_from_slice(rest),
            _ => {
                self.flush();
                self.octets.append(&mut element);
            }
        }
        Ok(())
    }

    fn close(mut self) -> Result<(), FormatError> {
        self.flush();
        if self.wrapped() {
            return self.field.close(&self.octets, self.variant);
        }
        self.field.out.append(&mut self.octets);
        Ok(())
    }
}

/// Implements the serializer traits of sequences.
macro_rules! elements {
    ($($of:ident $element:ident;)*) => {
        $(impl ser::$of for Repeated<'_> {
            type Ok = ();
            type Error = FormatError;

            fn $element<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), FormatError> {
                self.put(value)
            }

            fn end(self) -> Result<(), FormatError> {
                self.close()
            }
        })*
    };
}

elements! {
    SerializeSeq serialize_element;
    SerializeTuple serialize_element;
    SerializeTupleStruct serialize_field;
    SerializeTupleVariant serialize_field;
}

/// A map: a repeated field of messages of key and value.
struct Entries<'a> {
    field: Field<'a>,
    entry: Vec<u8>,
    octets: Vec<u8>,
}

impl ser::SerializeMap for Entries<'_> {
    type Ok = ();
    type Error = FormatError;

    fn serialize_key<T: Serialize + ?Sized>(&mut self, key: &T) -> Result<(), FormatError> {
        self.entry.clear();
        key.serialize(Field { out: &mut self.entry, number: 1, explicit: false })
    }

    fn serialize_value<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), FormatError> {
        value.serialize(Field { out: &mut self.entry, number: 2, explicit: false })?;
        let number = if self.field.explicit { 1 } else { self.field.number };
        Field { out: &mut self.octets, number, explicit: true }.octets(&self.entry)
    }

    fn end(self) -> Result<(), FormatError> {
        if self.field.explicit {
            return self.field.octets(&self.octets);
        }
        self.field.out.extend_from_slice(&self.octets);
        Ok(())
    }
}
