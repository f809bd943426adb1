//! Document layout of a record.

use crate::Version;
use crate::records::{Change, Format, Name, RecordError, RecordPart, StoredRecord};
use mongodb::bson::spec::BinarySubtype;
use mongodb::bson::{Binary, Bson, DateTime, Document, doc};
use serde_json::{Number, Value};

const ID: &str = "_id";
const VERSION: &str = "_version";
pub(super) const EXPIRES: &str = "_expires";
/// Contents of a whole record.
const OCTETS: &str = "_octets";
/// BSON has no unsigned numbers: one that is too large for a signed one is a document with this
/// field, its decimal digits.
const UNSIGNED: &str = "_u64";
/// Not every server supports nested lists: the inner one is a document with this field.
const LIST: &str = "_list";

/// Returns the document id of a record. BSON has only signed numbers, so the largest ids are
/// negative.
pub(super) fn key(name: Name) -> i64 {
    name.id.cast_signed()
}

/// Returns a filter for the documents of these ids that have not expired.
pub(super) fn not_expired_filter(ids: &[i64]) -> Document {
    let living = doc! { "$gt": DateTime::now() };
    match ids {
        // Not every server uses its index for a list.
        [id] => doc! { ID: *id, EXPIRES: living },
        _ => doc! { ID: { "$in": ids.to_vec() }, EXPIRES: living },
    }
}

/// Returns a filter for all documents that have not expired.
pub(super) fn all_living() -> Document {
    doc! { EXPIRES: { "$gt": DateTime::now() } }
}

/// Returns a projection to the document id.
pub(super) fn only_key() -> Document {
    doc! { ID: 1 }
}

/// Returns the record number of a document.
pub(super) fn number(document: &Document) -> Option<u64> {
    document.get(ID).and_then(integer).map(i64::cast_unsigned)
}

/// Returns a filter for the document of an id with version `expected`, not expired.
///
/// For version 0, the filter matches an expired document.
pub(super) fn filter(id: i64, expected: Version) -> Document {
    let now = DateTime::now();
    match expected {
        0 => doc! { ID: id, EXPIRES: { "$lte": now } },
        _ => doc! { ID: id, VERSION: i64::from(expected), EXPIRES: { "$gt": now } },
    }
}

/// Returns the fields that a commit sets.
pub(super) fn set(mut fields: Document, version: Version, expires: DateTime) -> Document {
    fields.insert(VERSION, i64::from(version));
    fields.insert(EXPIRES, expires);
    fields
}

/// Conversion between parts and document fields.
#[derive(Clone, Copy, Debug)]
pub(super) struct Shape {
    pub(super) format: Format,
}

impl Shape {
    /// Converts parts to document fields.
    pub(super) fn fields(self, parts: &[RecordPart<'_>]) -> Result<Document, RecordError> {
        let field = |part: &RecordPart<'_>| Ok((part.name.to_owned(), self.value(part.octets)?));
        parts.iter().map(field).collect()
    }

    fn value(self, octets: &[u8]) -> Result<Bson, RecordError> {
        match self.format {
            Format::Json => serde_json::from_slice(octets).map(bson).map_err(|_| RecordError::NotARecord),
            Format::Binary | Format::Protobuf => Ok(binary(octets)),
        }
    }

    /// Returns the document that a change stores in place of the previous one.
    pub(super) fn whole(self, id: i64, change: &Change<'_>, expires: DateTime) -> Result<Document, RecordError> {
        let mut document = doc! { ID: id };
        document.extend(set(self.fields(change.parts())?, change.result(), expires));
        if let Some(octets) = change.octets() {
            document.insert(OCTETS, binary(octets));
        }
        Ok(document)
    }

    /// Converts a document to a record and its id.
    pub(super) fn decode_record(self, document: Document) -> Result<(i64, StoredRecord), RecordError> {
        let (mut id, mut found) = (None, StoredRecord::default());
        for (name, value) in document {
            match (&name[..], value) {
                (ID, value) => id = integer(&value),
                (VERSION, value) => {
                    found.version = integer(&value).and_then(|v| v.try_into().ok()).ok_or(RecordError::NotARecord)?;
                }
                (EXPIRES, _) => {}
                (OCTETS, Bson::Binary(binary)) => found.octets = binary.bytes,
                (_, Bson::Binary(binary)) => found.parts.push((name, binary.bytes)),
                (_, value) => found.parts.push((name, json(value)?.to_string().into_bytes())),
            }
        }
        match id {
            Some(id) if found.version != 0 => Ok((id, found)),
            _ => Err(RecordError::NotARecord),
        }
    }
}

fn binary(octets: &[u8]) -> Bson {
    Bson::Binary(Binary { subtype: BinarySubtype::Generic, bytes: octets.to_vec() })
}

fn integer(value: &Bson) -> Option<i64> {
    match value {
        Bson::Int32(n) => Some(i64::from(*n)),
        Bson::Int64(n) => Some(*n),
        _ => None,
    }
}

/// Converts JSON to BSON.
fn bson(value: Value) -> Bson {
    match value {
        Value::Null => Bson::Null,
        Value::Bool(value) => Bson::Boolean(value),
        Value::Number(number) => bson_number(&number),
        Value::String(text) => Bson::String(text),
        Value::Array(values) => Bson::Array(values.into_iter().map(element).collect()),
        Value::Object(fields) => Bson::Document(fields.into_iter().map(|(name, value)| (name, bson(value))).collect()),
    }
}

fn element(value: Value) -> Bson {
    match bson(value) {
        Bson::Array(values) => Bson::Document(doc! { LIST: values }),
        value => value,
    }
}

fn bson_number(number: &Number) -> Bson {
    match (number.as_i64(), number.as_u64(), number.as_f64()) {
        (Some(n), ..) => i32::try_from(n).map_or(Bson::Int64(n), Bson::Int32),
        (None, Some(n), _) => Bson::Document(doc! { UNSIGNED: n.to_string() }),
        (None, None, n) => Bson::Double(n.unwrap_or_default()),
    }
}

/// Converts BSON to JSON.
fn json(value: Bson) -> Result<Value, RecordError> {
    Ok(match value {
        Bson::Null => Value::Null,
        Bson::Boolean(value) => Value::Bool(value),
        Bson::Int32(n) => n.into(),
        Bson::Int64(n) => n.into(),
        Bson::Double(n) => n.into(),
        Bson::String(text) => Value::String(text),
        Bson::Array(values) => Value::Array(values.into_iter().map(json).collect::<Result<_, _>>()?),
        Bson::Document(mut fields) => match (fields.get_str(UNSIGNED).map(str::parse::<u64>), fields.remove(LIST)) {
            (Ok(Ok(n)), _) => n.into(),
            (_, Some(list)) => json(list)?,
            (_, None) => {
                let fields = fields.into_iter().map(|(name, value)| Ok((name, json(value)?)));
                Value::Object(fields.collect::<Result<_, RecordError>>()?)
            }
        },
        _ => return Err(RecordError::NotARecord),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bson_round_trips() {
        let value = serde_json::json!({
            "small": 7, "large": i64::MAX, "largest": u64::MAX, "negative": -5, "half": 0.5, "none": null,
            "list": [1, [2, {"deep": true}], "text"], "empty": {},
        });
        assert_eq!(json(bson(value.clone())), Ok(value.clone()));
        let octets = value.to_string().into_bytes();
        let parts = [RecordPart { name: "part", octets: &octets }];
        let shape = Shape { format: Format::Json };
        let change = Change::Replace { expected: 4, parts: &parts };
        let document = shape.whole(-1, &change, DateTime::now()).unwrap();
        assert!(document.get_document("part").unwrap().get_bool("none").is_err(), "it is a document");
        let (id, found) = shape.decode_record(document).unwrap();
        assert_eq!((id, found.version), (-1, 5));
        assert_eq!(serde_json::from_slice::<Value>(found.part("part").unwrap()).unwrap(), value);
    }
}
