//! Conformance suites that every implementation of a store must pass.

use crate::records::{
    Change, Codec, Format, Name, RecordBase, RecordError, RecordPart, RecordStore, StoredRecord, UpdateMode,
};
use crate::{CommitError, ContextStore, Version};
use serde::{Deserialize, Serialize};
use vireo_types::{Bucket, Instant, Ltmsi};

/// Runs the suite over an empty store, and leaves it empty.
///
/// # Panics
///
/// Panics if the store breaks the contract.
pub fn suite(store: &mut dyn ContextStore) {
    let ue = |n| Ltmsi::new(Bucket::new(n % 7), n);
    assert!(store.is_empty() && store.load(ue(1)).is_none(), "the suite starts with an empty store");

    let first = store.commit(ue(1), 0, b"one", None).expect("an empty place takes version 0");
    assert_eq!(store.commit(ue(1), 0, b"two", None), Err(CommitError::Conflict), "a taken place does not");
    let loaded = store.load(ue(1)).expect("it is there");
    assert_eq!((loaded.version, loaded.octets, loaded.deadline), (first, &b"one"[..], None));

    let second = store.commit(ue(1), first, b"a longer one", Some(Instant(7))).expect("the version it has");
    assert!(second > first, "versions grow");
    assert_eq!(
        store.commit(ue(1), first, b"stale", None),
        Err(CommitError::Conflict),
        "a stale version changes nothing"
    );
    let loaded = store.load(ue(1)).expect("it is there");
    assert_eq!((loaded.octets, loaded.deadline), (&b"a longer one"[..], Some(Instant(7))));

    assert_eq!(store.remove(ue(1), first), Err(CommitError::Conflict), "nor does it remove anything");
    store.remove(ue(1), second).expect("the version it has");
    assert!(store.load(ue(1)).is_none() && store.remove(ue(1), second).is_err(), "it is gone");

    // The version may continue from that of a previous context in the same place.
    let versions: Vec<_> =
        (0..1000).map(|n| store.commit(ue(n), 0, &n.to_be_bytes(), None).expect("an empty place")).collect();
    let mut seen = Vec::new();
    store.each(&mut |ltmsi, stored| {
        assert_eq!(stored.octets, ltmsi.number().to_be_bytes());
        seen.push(ltmsi.number());
        true
    });
    seen.sort_unstable();
    assert_eq!((store.len(), seen), (1000, (0..1000).collect::<Vec<_>>()), "each is visited once");
    for (n, version) in (0..1000).zip(versions) {
        store.remove(ue(n), version).expect("it is there");
    }
    assert!(store.is_empty());
}

/// Runs the suite over an empty record store through two handles, and leaves it empty.
///
/// # Panics
///
/// Panics if the record store breaks the contract.
pub fn records(one: &mut dyn RecordStore, other: &mut dyn RecordStore) {
    let name = |id| Name { collection: "ue", id };
    let commit = |expected, octets| Change::Commit { expected, octets };
    let change_one = |store: &mut dyn RecordStore, id, change| store.change(&[(name(id), change)]).remove(0);
    assert_eq!(one.load(&[name(1), name(2)]), Ok(vec![None, None]), "the suite starts with an empty place");

    let first = change_one(one, 1, commit(0, b"one")).expect("an empty place takes version 0");
    assert_eq!(change_one(other, 1, commit(0, b"two")), Err(RecordError::Conflict), "a taken place does not");
    let found = |version, octets: &[u8]| {
        Ok(vec![Some(StoredRecord { version, octets: octets.to_vec(), ..StoredRecord::default() })])
    };
    assert_eq!(other.load(&[name(1)]), found(first, b"one"), "the other sees it");
    let longer = [0xff, 0, b'\r', b'\n'].repeat(1000);
    let second = change_one(other, 1, commit(first, &longer)).expect("the version it has");
    assert!(second > first, "versions grow");
    assert_eq!(
        change_one(one, 1, commit(first, b"stale")),
        Err(RecordError::Conflict),
        "a stale version changes nothing"
    );
    assert_eq!(one.load(&[name(1)]), found(second, &longer));
    let elsewhere = Name { collection: "amf", id: 1 };
    assert_eq!(one.load(&[elsewhere]), Ok(vec![None]), "collections are apart");

    assert_eq!(
        change_one(one, 1, Change::Remove { expected: first }),
        Err(RecordError::Conflict),
        "nor does it remove"
    );
    assert_eq!(change_one(one, 1, Change::Remove { expected: 0 }), Err(RecordError::Conflict), "nobody has version 0");
    assert_eq!(change_one(one, 1, Change::Remove { expected: second }), Ok(0));
    assert!(change_one(one, 1, Change::Remove { expected: second }).is_err(), "it is gone");
    assert_eq!(change_one(one, 2, Change::Remove { expected: 0 }), Err(RecordError::Conflict), "there is none");

    // A batch in which some changes are refused: the others are applied.
    let before = one.operations();
    let versions = one.change(&[(name(1), commit(0, b"a")), (name(2), commit(7, b"b")), (name(3), commit(0, b""))]);
    assert!(versions[0].is_ok() && versions[2].is_ok(), "{versions:?}");
    assert_eq!(versions[1], Err(RecordError::Conflict));
    let questions = one.operations().round_trips - before.round_trips;
    assert!((1..=3).contains(&questions), "no more questions than records: {questions}");
    assert_eq!(one.operations().writes - before.writes, 3);
    let there = other.load(&[name(1), name(2), name(3)]).expect("they are there");
    let octets: Vec<_> = there.into_iter().map(|found| found.map(|found| found.octets)).collect();
    assert_eq!(octets, [Some(b"a".to_vec()), None, Some(Vec::new())]);
    let mut numbers = other.list_ids("ue").expect("it answers");
    numbers.sort_unstable();
    assert_eq!((numbers, other.list_ids("amf")), (vec![1, 3], Ok(Vec::new())), "of each collection what is there");
    for (id, version) in [(1, &versions[0]), (3, &versions[2])] {
        let expected = version.clone().expect("it was committed");
        assert_eq!(change_one(other, id, Change::Remove { expected }), Ok(0));
    }
    parts(one, other);
}

/// Checks records in parts over an empty record store.
fn parts(one: &mut dyn RecordStore, other: &mut dyn RecordStore) {
    const NAME: Name = Name { collection: "smf", id: u64::MAX };
    fn change_one(store: &mut dyn RecordStore, change: Change<'_>) -> Result<Version, RecordError> {
        store.change(&[(NAME, change)]).remove(0)
    }
    // A store may convert a part whose bytes are JSON text, if it returns the same value.
    let [keys, count, none] = [("keys", "[1,2]"), ("count", "7"), ("none", "null")]
        .map(|(name, octets)| RecordPart { name, octets: octets.as_bytes() });
    let there = |store: &mut dyn RecordStore, version, parts: &[RecordPart<'_>]| {
        let mut found = store.load(&[NAME]).expect("the place answers").remove(0).expect("it is there");
        found.parts.sort();
        let parts: Vec<_> = parts.iter().map(|part| (part.name.to_owned(), part.octets.to_vec())).collect();
        assert_eq!(found, StoredRecord { version, octets: Vec::new(), parts });
    };
    let first = change_one(one, Change::Replace { expected: 0, parts: &[keys, none] }).expect("an empty place");
    there(other, first, &[keys, none]);
    let refused = change_one(other, Change::Update { expected: first + 1, parts: &[count] });
    assert_eq!(refused, Err(RecordError::Conflict), "another version");
    let second = change_one(other, Change::Update { expected: first, parts: &[count] }).expect("the version it has");
    there(one, second, &[count, keys, none]);
    let more = RecordPart { octets: b"8", ..count };
    let third = change_one(one, Change::Update { expected: second, parts: &[more] }).expect("the version it has");
    there(other, third, &[more, keys, none]);
    let fourth = change_one(one, Change::Replace { expected: third, parts: &[count] }).expect("the version it has");
    there(other, fourth, &[count]);
    // Removed and created again: versions continue, so that a holder of an old version does not
    // mistake the new record for the old one.
    let create = Change::Create { before: fourth, parts: &[keys] };
    assert_eq!(change_one(one, create), Err(RecordError::Conflict), "it is there");
    assert_eq!(change_one(one, Change::Remove { expected: fourth }), Ok(0));
    assert_eq!(other.load(&[NAME]), Ok(vec![None]), "in between there is none");
    let fifth = change_one(one, create).expect("an empty place");
    assert!(fifth > fourth, "versions go on");
    there(other, fifth, &[keys]);
    // A whole record replaces one in parts, and the reverse.
    let sixth = change_one(one, Change::Commit { expected: fifth, octets: b"whole" }).expect("the version it has");
    let whole = StoredRecord { version: sixth, octets: b"whole".to_vec(), ..StoredRecord::default() };
    assert_eq!(other.load(&[NAME]), Ok(vec![Some(whole)]));
    let last = change_one(one, Change::Replace { expected: sixth, parts: &[keys] }).expect("the version it has");
    there(other, last, &[keys]);
    assert_eq!(change_one(other, Change::Remove { expected: last }), Ok(0));
    let new =
        change_one(one, Change::Update { expected: 0, parts: &[keys] }).expect("a new one may begin with an update");
    there(other, new, &[keys]);
    assert_eq!(change_one(other, Change::Remove { expected: new }), Ok(0));
}

/// Example of a value that an NF may store.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Value {
    number: u64,
    name: String,
    list: Vec<(u8, Option<i64>)>,
    key: [u8; 4],
    kind: Kind,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
enum Kind {
    Idle,
    Busy { since: u64 },
}

/// All formats of values.
pub const FORMATS: [Format; 3] = [Format::Binary, Format::Json, Format::Protobuf];

/// Checks over an empty record store that values survive every update mode, and leaves it empty.
///
/// # Panics
///
/// Panics if the record store breaks the contract.
pub fn values(store: &mut dyn RecordStore, formats: &[Format]) {
    let name = Name { collection: "amf", id: 1 << 60 };
    for format in formats.iter().copied() {
        for update_mode in [UpdateMode::Replace, UpdateMode::Update, UpdateMode::DeleteCreate] {
            let codec = Codec { format, update_mode };
            let list = vec![(1, None), (2, Some(-3))];
            let mut value = Value { number: u64::MAX, name: "one".into(), list, key: [9; 4], kind: Kind::Idle };
            let mut known = RecordBase::default();
            for step in 1..4 {
                codec.commit(store, name, &mut known, &value).expect("it is committed");
                let (there, loaded) = codec.load::<Value>(store, name).expect("it is loaded").expect("it is there");
                assert_eq!((&there, loaded.version, known.version), (&value, step, step), "{codec:?}");
                known = loaded;
                value =
                    Value { number: 5, name: String::new(), list: Vec::new(), kind: Kind::Busy { since: 7 }, ..value };
            }
            let mut stale = known.clone();
            stale.version = 1;
            assert!(codec.commit(store, name, &mut stale, &value).is_err(), "a stale one");
            let gone = store.change(&[(name, Change::Remove { expected: known.version })]).remove(0);
            assert_eq!(gone, Ok(0));
        }
    }
}

/// Checks concurrent commits of one record through several handles. Returns how many were refused.
///
/// Exactly one of the commits based on the same version may succeed: as many commits are reported
/// as successful as the record has versions.
///
/// # Panics
///
/// Panics if the record store breaks the contract.
pub fn concurrency_suite(ways: &mut [Box<dyn RecordStore>], commits: u32) -> u32 {
    const NAME: Name = Name { collection: "amf", id: 77 };
    let outcomes: Vec<(u32, u32)> = std::thread::scope(|scope| {
        let mut threads = Vec::new();
        for way in &mut *ways {
            threads.push(scope.spawn(move || {
                let (mut done, mut refused) = (0, 0);
                while done < commits {
                    let there = way.load(&[NAME]).expect("the place answers").remove(0);
                    let expected = there.map_or(0, |found| found.version);
                    match way.change(&[(NAME, Change::Commit { expected, octets: b"x" })]).remove(0) {
                        Ok(_) => done += 1,
                        Err(RecordError::Conflict) => refused += 1,
                        Err(error) => panic!("{error}"),
                    }
                }
                (done, refused)
            }));
        }
        threads.into_iter().map(|thread| thread.join().expect("it has not panicked")).collect()
    });
    let found = ways[0].load(&[NAME]).expect("the place answers").remove(0).expect("it was committed");
    let done: u32 = outcomes.iter().map(|(done, _)| done).sum();
    assert_eq!(found.version, done, "each version is one commit's");
    assert_eq!(ways[0].change(&[(NAME, Change::Remove { expected: found.version })]).remove(0), Ok(0));
    outcomes.iter().map(|(_, refused)| refused).sum()
}

/// Checks over an empty record store that a record expires unless it is committed again.
///
/// # Panics
///
/// Panics if the record store breaks the contract.
pub fn expiry_suite(store: &mut dyn RecordStore, life: std::time::Duration) {
    let commit = |expected| Change::Commit { expected, octets: &[1] };
    // On a loaded machine a pause may outlast the lifetime. That attempt proves nothing and is
    // repeated.
    let shown = (0..10).any(|n| {
        let [kept, left] = [1, 2].map(|id| Name { collection: "ue", id: 2 * n + id });
        let begun = std::time::Instant::now();
        let first = store.change(&[(kept, commit(0)), (left, commit(0))]);
        let version = first[0].clone().expect("an empty place");
        std::thread::sleep(life * 6 / 10);
        let again = std::time::Instant::now();
        let renewed = store.change(&[(kept, commit(version))]).remove(0);
        if begun.elapsed() >= life {
            return false;
        }
        let version = renewed.expect("it is still there");
        std::thread::sleep(life * 6 / 10);
        let there = store.load(&[kept, left]).expect("the place answers");
        if again.elapsed() >= life {
            return false;
        }
        assert_eq!(there, [Some(StoredRecord { version, octets: vec![1], ..StoredRecord::default() }), None]);
        assert!(store.change(&[(left, commit(0))])[0].is_ok(), "its place is empty");
        true
    });
    assert!(shown, "the machine was too busy ten times");
}
