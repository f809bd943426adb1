//! Tests with one Redis server.

use crate::servers::{Redis, free_port, until};
use std::time::{Duration, Instant};
use vireo_store::conformance;
use vireo_store::records::{
    Change, DatabaseTls, LinkConfig, Name, RecordError, RecordStore, RecordsKey, RedisRecords, Sealed,
};

fn start(arguments: &[&str]) -> Option<Redis> {
    Redis::start(free_port(false), arguments)
}

fn records(port: u16, life: Duration) -> RedisRecords {
    let config = LinkConfig {
        url: format!("redis://127.0.0.1:{port}"),
        timeout: Duration::from_millis(200),
        tls: DatabaseTls::default(),
    };
    RedisRecords::new(config, "vireo", life)
}

const LIFE: Duration = Duration::from_secs(60);
const ONE: Name = Name { collection: "ue", id: 1 };

fn commit(store: &mut RedisRecords, octets: &[u8]) -> Result<u32, RecordError> {
    store.change(&[(ONE, Change::Commit { expected: 0, octets })]).remove(0)
}

#[test]
fn redis_keeps_the_contract() {
    let Some(server) = start(&[]) else { return };
    conformance::records(&mut records(server.port, LIFE), &mut records(server.port, LIFE));
    conformance::values(&mut records(server.port, LIFE), &conformance::FORMATS);
    let way = || Box::new(records(server.port, LIFE)) as Box<dyn RecordStore>;
    conformance::concurrency_suite(&mut [way(), way(), way(), way()], 100);
    let life = Duration::from_millis(200);
    conformance::expiry_suite(&mut records(server.port, life), life);
}

/// Redis does not hold the committed bytes in clear, and another key does not open them.
#[test]
fn sealed_records_hide_their_content() {
    let Some(server) = start(&["--appendonly", "no"]) else { return };
    let key = |octet| RecordsKey::from(vireo_sealing::SealingKey::new([octet; 32]));
    let sealed = |octet| Sealed::new(records(server.port, LIFE), key(octet), false);
    conformance::records(&mut sealed(1), &mut sealed(1));
    conformance::values(&mut sealed(1), &conformance::FORMATS);
    let secret = b"K_AMF of a UE that nobody is to know";
    let change = Change::Commit { expected: 0, octets: secret };
    let name = Name { collection: "ue", id: 77 };
    assert_eq!(sealed(1).change(&[(name, change)]), [Ok(1)]);
    let plain = records(server.port, LIFE).load(&[name]).unwrap().remove(0).unwrap().octets;
    assert!(plain.len() > secret.len() && !plain.windows(8).any(|window| window == &secret[..8]));
    assert_eq!(sealed(2).load(&[name]), Err(RecordError::OtherKey));
    assert_eq!((sealed(1).prove(), sealed(2).prove()), (Ok(()), Err(RecordError::OtherKey)));
}

#[test]
fn redis_outage_is_reported() {
    let Some(server) = start(&[]) else { return };
    let mut store = records(server.port, LIFE);
    assert!(store.load(&[ONE]).is_ok());
    // A stopped server: the outcome of a commit is unknown.
    server.signal("-STOP");
    let begun = Instant::now();
    let silent = commit(&mut store, b"x");
    assert!(matches!(silent, Err(RecordError::OutcomeUnknown(_))), "{silent:?}");
    assert!(begun.elapsed() < Duration::from_secs(10), "nobody waits longer than is wanted");
    // During the back-off, the error is returned without a request.
    let unasked = |_| matches!(store.load(&[ONE]), Err(RecordError::Down(_)));
    assert!((0..10).any(unasked), "who has just waited in vain is not kept waiting again");
    server.signal("-CONT");
    let mut found = None;
    until("the database answers again", || {
        found = store.load(&[ONE]).ok();
        found.is_some()
    });
    let found = found.expect("it is back").remove(0);
    assert!(found.is_none_or(|found| found.octets == b"x"), "done or not, never in part");
    // The server is killed and restarted without its data.
    let port = server.port;
    drop(server);
    assert!(store.load(&[ONE]).is_err_and(|error| error.is_retryable()));
    let Some(_server) = Redis::start(port, &[]) else { return };
    until("the database is back", || store.load(&[ONE]) == Ok(vec![None]));
}

#[test]
fn flushed_scripts_are_loaded_again() {
    let Some(server) = start(&[]) else { return };
    let mut store = records(server.port, LIFE);
    assert_eq!(commit(&mut store, b"x"), Ok(1));
    assert!(server.query("SCRIPT FLUSH").is_ok_and(|answer| answer.starts_with("+OK")));
    let mut change = |expected| store.change(&[(ONE, Change::Commit { expected, octets: b"y" })]).remove(0);
    assert!(change(1).is_err_and(|error| error.is_retryable()), "it is said that nothing was done");
    assert_eq!(change(1), Ok(2), "the next one finds the record as it was");
}

#[test]
fn full_database_refuses_and_changes_nothing() {
    let Some(server) = start(&["--maxmemory", "3mb", "--maxmemory-policy", "noeviction"]) else { return };
    let mut store = records(server.port, LIFE);
    let octets = vec![7; 100_000];
    let results: Vec<_> = (0..100)
        .map(|id| {
            let name = Name { collection: "ue", id };
            store.change(&[(name, Change::Commit { expected: 0, octets: &octets })]).remove(0)
        })
        .collect();
    assert!(results[0].is_ok() && results.contains(&Err(RecordError::Full)), "{results:?}");
    for (id, result) in (0..).zip(&results) {
        let found = store.load(&[Name { collection: "ue", id }]).unwrap().remove(0);
        assert_eq!(found.is_some(), result.is_ok(), "record {id}");
    }
}

#[test]
fn foreign_key_is_reported() {
    let Some(server) = start(&[]) else { return };
    let mut store = records(server.port, LIFE);
    for command in ["SET vireo:ue:{1} abc", "HSET vireo:ue:{2} some thing"] {
        assert!(server.query(command).is_ok_and(|answer| !answer.starts_with('-')));
    }
    for id in [1, 2] {
        let name = Name { collection: "ue", id };
        assert_eq!(store.load(&[name]), Err(RecordError::NotARecord));
        let refused = store.change(&[(name, Change::Commit { expected: 0, octets: b"x" })]).remove(0);
        assert_eq!(refused, Err(RecordError::NotARecord));
    }
}

#[test]
fn operations_go_together() {
    let Some(server) = start(&[]) else { return };
    let mut store = records(server.port, LIFE);
    let names: Vec<_> = (0..100).map(|id| Name { collection: "ue", id }).collect();
    let changes: Vec<_> = names.iter().map(|name| (*name, Change::Commit { expected: 0, octets: b"x" })).collect();
    assert!(store.change(&changes).iter().all(Result::is_ok));
    assert!(store.load(&names).unwrap().iter().all(Option::is_some));
    let operations = store.operations();
    assert_eq!((operations.reads, operations.writes, operations.round_trips), (100, 100, 2));
}

/// Tests that a restarted server, which has lost its data, has another incarnation.
#[test]
fn restarted_redis_has_another_incarnation() {
    let Some(server) = start(&[]) else { return };
    let first = records(server.port, LIFE).incarnation().unwrap().unwrap();
    assert_eq!(records(server.port, LIFE).incarnation().unwrap(), Some(first.clone()));
    let port = server.port;
    drop(server);
    let Some(_server) = Redis::start(port, &[]) else { return };
    let second = records(port, LIFE).incarnation().unwrap().unwrap();
    assert!(second != first && second.len() == first.len(), "{first} {second}");
}
