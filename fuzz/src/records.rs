//! Fuzz target of database records with arbitrary content.

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use vireo_store::records::{Format, RecordPart, StoredRecord};

/// One value of every part of a record.
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
    lists: Vec<Vec<i64>>,
    texts: Vec<String>,
    key: [u8; 16],
    mixed: (u8, String, Vec<u8>),
    map: BTreeMap<u32, Vec<u8>>,
    kinds: Vec<Kind>,
    inner: Option<Inner>,
    unit: (),
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
    Nested(Box<Inner>),
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
struct Inner {
    number: Number,
    deeper: Option<Box<Innermost>>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
struct Innermost {
    key: Vec<u8>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
struct Number(i32);

/// Decodes a protocol-buffer record as a whole, and as the only changed part. Encoding and decoding
/// again yields the same record.
pub fn protobuf(octets: &[u8]) {
    check_round_trip::<All>(octets);
    check_round_trip::<Vec<Kind>>(octets);
    check_round_trip::<Inner>(octets);
    let parts = Format::Protobuf.split(&All::default()).expect("a struct has parts");
    for name in ["number", "text", "lists", "mixed", "map", "kinds", "inner"] {
        let part = |part: &RecordPart<'_>| {
            let octets = if part.name == name { octets } else { part.octets };
            (part.name.to_owned(), octets.to_vec())
        };
        let found = StoredRecord { version: 1, octets: Vec::new(), parts: parts.changed().iter().map(part).collect() };
        if let Ok(all) = Format::Protobuf.join::<All>(&found) {
            let octets = Format::Protobuf.encode(&all).expect("what is read can be written");
            assert_eq!(Format::Protobuf.decode::<All>(&octets).ok(), Some(all), "a record changes");
        }
    }
}

fn check_round_trip<T: Serialize + DeserializeOwned + PartialEq + std::fmt::Debug>(octets: &[u8]) {
    if let Ok(value) = Format::Protobuf.decode::<T>(octets) {
        let octets = Format::Protobuf.encode(&value).expect("what is read can be written");
        assert_eq!(Format::Protobuf.decode::<T>(&octets).ok(), Some(value), "a record changes");
    }
}

/// Returns a record with all parts, and its parts.
pub fn seeds() -> Vec<Vec<u8>> {
    let inner = Inner { number: Number(-7), deeper: Some(Box::new(Innermost { key: vec![1] })) };
    let all = All {
        number: u64::MAX,
        small: -1,
        flag: true,
        letter: 'é',
        text: "text".into(),
        maybe: Some(0),
        twice: Some(None),
        list: vec![1, 300, 0],
        lists: vec![vec![-1, 2], Vec::new()],
        texts: vec![String::new(), "a".into()],
        key: [9; 16],
        mixed: (1, "b".into(), vec![2, 3]),
        map: BTreeMap::from([(0, vec![1]), (70_000, Vec::new())]),
        kinds: vec![
            Kind::None,
            Kind::One(5),
            Kind::Two(6, "c".into()),
            Kind::Three { list: vec![7], maybe: Some(0) },
            Kind::Nested(Box::new(inner.clone())),
        ],
        inner: Some(inner.clone()),
        unit: (),
    };
    let parts = Format::Protobuf.split(&all).expect("a struct has parts");
    let parts = parts.changed().iter().map(|part| part.octets.to_vec()).filter(|octets| !octets.is_empty()).collect();
    let whole = |encoded: Result<Vec<u8>, _>| encoded.expect("it has an encoding");
    let more: Vec<Vec<u8>> = vec![
        whole(Format::Protobuf.encode(&all)),
        whole(Format::Protobuf.encode(&all.kinds)),
        whole(Format::Protobuf.encode(&inner)),
    ];
    [more, parts].concat()
}
