use super::*;
use proptest::prelude::*;
use serde::Deserialize;
use std::collections::BTreeMap;

/// A value with every type that contexts use.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
struct All {
    number: u64,
    small: i8,
    flag: bool,
    letter: char,
    text: String,
    maybe: Option<u32>,
    twice: Option<Option<u8>>,
    list: Vec<u16>,
    lists: Vec<Vec<u8>>,
    maybe_list: Option<Vec<i32>>,
    texts: Vec<String>,
    maybes: Vec<Option<u8>>,
    key: [u8; 16],
    mixed: (u8, String, i64, Vec<u8>),
    pairs: Vec<(u32, u64)>,
    map: BTreeMap<u32, Vec<u8>>,
    kind: Kind,
    kinds: Vec<Kind>,
    inner: Inner,
    inners: Vec<Inner>,
    half: f64,
    unit: (),
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
struct Inner {
    wrapped: Wrapped,
    empty: Option<Empty>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
struct Wrapped(u32);

#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
struct Empty {
    nothing: u8,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
enum Kind {
    #[default]
    None,
    One(u32),
    Two(u8, String),
    Three {
        list: Vec<u8>,
        maybe: Option<u8>,
    },
    Boxed(Box<Inner>),
    Listed(Vec<Wrapped>),
}

fn kind() -> impl Strategy<Value = Kind> {
    prop_oneof![
        Just(Kind::None),
        any::<u32>().prop_map(Kind::One),
        (any::<u8>(), ".{0,3}").prop_map(|(n, text)| Kind::Two(n, text)),
        (any::<Vec<u8>>(), any::<Option<u8>>()).prop_map(|(list, maybe)| Kind::Three { list, maybe }),
        inner().prop_map(|inner| Kind::Boxed(Box::new(inner))),
        prop::collection::vec((0..3u32).prop_map(Wrapped), 0..3).prop_map(Kind::Listed),
    ]
}

fn inner() -> impl Strategy<Value = Inner> {
    (0..3u32, prop::option::of(0..2u8))
        .prop_map(|(n, empty)| Inner { wrapped: Wrapped(n), empty: empty.map(|nothing| Empty { nothing }) })
}

fn all() -> impl Strategy<Value = All> {
    let numbers = (any::<u64>(), any::<i8>(), any::<bool>(), any::<char>(), any::<[u8; 16]>(), -9i32..9);
    let options = (any::<Option<u32>>(), any::<Option<Option<u8>>>(), any::<Option<Vec<i32>>>());
    let lists = (any::<Vec<u16>>(), any::<Vec<Vec<u8>>>(), any::<Vec<Option<u8>>>(), any::<Vec<(u32, u64)>>());
    let texts = (".{0,5}", prop::collection::vec(".{0,2}", 0..3), any::<BTreeMap<u32, Vec<u8>>>());
    let mixed = (any::<u8>(), ".{0,2}", any::<i64>(), any::<Vec<u8>>());
    let kinds = (kind(), prop::collection::vec(kind(), 0..3), inner(), prop::collection::vec(inner(), 0..3));
    (numbers, options, lists, texts, mixed, kinds).prop_map(|(numbers, options, lists, texts, mixed, kinds)| All {
        number: numbers.0,
        small: numbers.1,
        flag: numbers.2,
        letter: numbers.3,
        key: numbers.4,
        half: f64::from(numbers.5) / 2.0,
        maybe: options.0,
        // JSON cannot distinguish `None` from `Some(None)`.
        twice: options.1.filter(Option::is_some),
        maybe_list: options.2,
        list: lists.0,
        lists: lists.1,
        maybes: lists.2,
        pairs: lists.3,
        text: texts.0,
        texts: texts.1,
        map: texts.2,
        mixed,
        kind: kinds.0,
        kinds: kinds.1,
        inner: kinds.2,
        inners: kinds.3,
        unit: (),
    })
}

const FORMATS: [Format; 3] = [Format::Binary, Format::Json, Format::Protobuf];

fn found(parts: &Parts) -> StoredRecord {
    let parts = parts.changed().iter().map(|part| (part.name.to_owned(), part.octets.to_vec())).collect();
    StoredRecord { version: 1, parts, ..StoredRecord::default() }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 16, ..ProptestConfig::default() })]

    #[test]
    fn encoded_value_round_trips(value in all()) {
        for format in FORMATS {
            let whole = format.encode(&value).unwrap();
            prop_assert_eq!(&format.decode::<All>(&whole).unwrap(), &value, "{:?}", format);
            let parts = format.split(&value).unwrap();
            prop_assert_eq!(&format.join::<All>(&found(&parts)).unwrap(), &value, "{:?}", format);
        }
    }

    #[test]
    fn octets_of_anything_are_no_panic(octets in any::<Vec<u8>>(), cut in 0..200usize, value in all()) {
        for format in FORMATS {
            let _ = format.decode::<All>(&octets);
            let whole = format.encode(&value).unwrap();
            let _ = format.decode::<All>(&whole[..cut.min(whole.len())]);
        }
    }
}

#[test]
fn only_changed_fields_are_written() {
    let before = All { number: 1, text: "a".into(), ..All::default() };
    let after = All { number: 2, kind: Kind::One(7), ..before.clone() };
    for format in FORMATS {
        let (base, all) = (format.split(&before).unwrap().into_base(), format.split(&after).unwrap());
        let over = |base: &[(String, Vec<u8>)]| format.split_over(base, &after).unwrap();
        let now = over(&base);
        assert_eq!(now.changed().iter().map(|part| part.name).collect::<Vec<_>>(), ["number", "kind"]);
        assert!(now.changed().iter().all(|part| all.changed().contains(part)), "{format:?}: in its own format");
        assert!(now == all && now != format.split(&before).unwrap(), "equal values have equal parts");
        assert!(over(&all.clone().into_base()).changed().is_empty() && all.changed().len() == base.len());
    }
    assert!(matches!(Format::Json.split(&5u8), Err(FormatError::Value(_))), "a number has no parts");
}

/// A number that has no JSON.
struct NoJson(u8);

impl Serialize for NoJson {
    fn serialize<S: serde::Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        if s.is_human_readable() { Err(serde::ser::Error::custom("JSON")) } else { s.serialize_u8(self.0) }
    }
}

#[test]
fn unchanged_field_is_not_encoded_in_json() {
    #[derive(Serialize)]
    struct Value {
        count: u8,
        rest: NoJson,
    }
    let value = |count, rest| Value { count, rest: NoJson(rest) };
    let base = Format::Binary.split(&value(1, 5)).unwrap().into_base();
    let changed = Format::Json.split_over(&base, &value(2, 5)).unwrap();
    assert_eq!(changed.changed(), [RecordPart { name: "count", octets: b"2" }]);
    assert!(Format::Json.split_over(&base, &value(2, 6)).is_err() && Format::Json.split(&value(1, 5)).is_err());
}

/// Tests a record of several structs, each of which decodes its own parts.
#[test]
fn tuple_of_structs_has_all_fields() {
    #[derive(Debug, PartialEq, Serialize, Deserialize)]
    struct Head {
        owner: u64,
        course: Vec<u8>,
    }
    let (head, all) = (Head { owner: 7, course: vec![1, 2] }, All { number: 1, text: "a".into(), ..All::default() });
    for format in FORMATS {
        let parts = format.split(&(&head, &all)).unwrap();
        assert_eq!(parts.changed().len(), format.split(&all).unwrap().changed().len() + 2);
        assert!(matches!(format.join::<(Head, All)>(&found(&parts)), Ok(both) if (&both.0, &both.1) == (&head, &all)));
        assert_eq!(format.join::<All>(&found(&parts)).unwrap(), all, "the other's are left alone");
        let whole = format.encode(&(&head, &all)).unwrap();
        assert!(matches!(format.decode::<(Head, All)>(&whole), Ok(both) if (&both.0, &both.1) == (&head, &all)));
        assert!(format.split(&(&all, &all)).is_err(), "which is whose?");
    }
}

/// Compares with the bytes of protoc for `message RecordPart { Inner value = 1; }` and so on.
#[test]
fn protocol_buffers_are_what_specification_says() {
    fn encode<T: Serialize + ?Sized>(value: &T) -> Vec<u8> {
        Format::Protobuf.encode(value).unwrap()
    }
    assert_eq!(encode(&150u32), b"\x08\x96\x01");
    assert_eq!(encode(&-2i32), b"\x08\x03", "zigzag");
    assert_eq!(encode("testing"), b"\x0a\x07testing");
    assert_eq!(encode(&[3u32, 270, 86_942][..]), b"\x0a\x06\x03\x8e\x02\x9e\xa7\x05");
    assert_eq!(encode(&0u32), b"", "what it would be taken for is left out");
    assert_eq!(encode(&Some(0u32)), b"\x08\x00", "but within an option");
    let inner = Inner { wrapped: Wrapped(150), empty: Some(Empty { nothing: 0 }) };
    assert_eq!(encode(&inner), b"\x0a\x05\x08\x96\x01\x12\x00");
    assert_eq!(encode(&Kind::One(1)), b"\x0a\x02\x10\x01", "a oneof");
}
