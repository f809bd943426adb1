//! Tests of PostgreSQL: access, outage, and what it stores.

use super::*;
use crate::testing::{PASSWORD, URL_PASSWORD, USER};

#[test]
fn keys_in_postgres_are_sealed() {
    let database = TestDatabase::postgres();
    let one = subscriber(0);
    database.open().add(&one).expect("added");
    let holds = |key: &Key| {
        let octets = database.octets(&key.reveal());
        database.sql(&format!("SELECT count(*) FROM subscribers WHERE position({octets} in secret) > 0"))
    };
    assert_eq!((holds(&one.k), holds(&one.opc)), ("0".into(), "0".into()));
    assert_eq!(database.sql("SELECT version FROM _sqlx_migrations"), SCHEMA.to_string());
}

#[test]
fn refused_access_is_one_sentence() {
    let server = PostgresServer::shared();
    let (port, database) = (server.port(), TestDatabase::postgres());
    let name = database.location.rsplit('/').next().expect("a name").to_owned();
    let error = |url: &str| Store::open(url, database.source()).expect_err("refused").to_string();
    let wrong = error(&format!("postgres://{USER}:other-secret@127.0.0.1:{port}/{name}"));
    let shown = format!("postgres://{USER}@127.0.0.1:{port}/{name}");
    assert!(wrong.contains(&format!("{shown} refuses this user: password authentication failed")), "{wrong}");
    assert!(wrong.contains("PGPASSWORD") && !wrong.contains("other-secret"), "{wrong}");
    let missing = error(&format!("postgres://{USER}:{URL_PASSWORD}@127.0.0.1:{port}/no_such"));
    assert!(missing.contains("database \"no_such\" does not exist"), "{missing}");
    let closed = error(&format!("postgres://{USER}:{URL_PASSWORD}@127.0.0.1:1/{name}"));
    assert!(closed.contains("does not answer") && closed.contains("start PostgreSQL there"), "{closed}");
    server.psql("postgres", "CREATE DATABASE foreign_owner");
    server.psql("foreign_owner", "REVOKE CREATE ON SCHEMA public FROM PUBLIC");
    let refused = error(&format!("postgres://{USER}:{URL_PASSWORD}@127.0.0.1:{port}/foreign_owner"));
    assert!(refused.contains("make its user the owner of the database"), "{refused}");
    for text in [&wrong, &missing, &closed, &refused] {
        assert!(!text.contains(PASSWORD) && !text.contains(URL_PASSWORD) && !text.contains('\n'), "{text}");
    }
    let store = database.open();
    assert!(!format!("{store:?}").contains(URL_PASSWORD), "{store:?}");
    assert!(!store.path().contains(URL_PASSWORD), "{}", store.path());
}

#[test]
fn store_connects_again_after_outage() {
    let mut server = PostgresServer::start();
    let database = TestDatabase::at(server.database());
    let mut store = database.open();
    store.add(&subscriber(0)).expect("added");
    let last = store.last_change().expect("read");
    server.stop();
    let down = store.get(subscriber(0).supi).expect_err("down").to_string();
    assert!(down.contains("does not answer") && !down.contains(URL_PASSWORD), "{down}");
    let started = std::time::Instant::now();
    for _ in 0..100 {
        assert!(matches!(store.add(&subscriber(1)), Err(StoreError::Unreachable { .. })));
    }
    assert!(started.elapsed() < Duration::from_secs(2), "refused at once: {:?}", started.elapsed());
    assert!(matches!(database.try_open(), Err(StoreError::Unreachable { .. })));
    server.start_again();
    std::thread::sleep(Duration::from_millis(600));
    assert_eq!(store.get(subscriber(0).supi).expect("up"), Some(subscriber(0)));
    store.add(&subscriber(1)).expect("added");
    assert_eq!(store.changes_since(last).expect("read").0, Changes::These(vec![subscriber(1).supi]));
    // Restarted while nothing was asked: neither a read nor a write fails.
    server.stop();
    server.start_again();
    store.add(&subscriber(2)).expect("added");
    server.stop();
    server.start_again();
    assert_eq!(store.count(&Filter::default()).expect("counted"), 3);
}

#[test]
fn silent_server_fails_in_time() {
    let server = PostgresServer::start();
    let database = TestDatabase::at(server.database());
    let mut store = database.open();
    server.signal("-STOP");
    let started = std::time::Instant::now();
    let silent = store.get(subscriber(0).supi).expect_err("silent").to_string();
    assert!(silent.contains("no answer within"), "{silent}");
    assert!(matches!(store.add(&subscriber(0)), Err(StoreError::Unreachable { .. })));
    assert!(started.elapsed() < Duration::from_secs(8), "{:?}", started.elapsed());
    server.signal("-CONT");
    std::thread::sleep(Duration::from_millis(600));
    store.add(&subscriber(0)).expect("added");
    assert_eq!(store.get(subscriber(0).supi).expect("read"), Some(subscriber(0)));
}
