//! Tests of the file of SQLite.

use super::*;

/// Runs several statements by Python's SQLite.
fn script(database: &TestDatabase, statements: &str) {
    let program = "import sqlite3, sys\nc = sqlite3.connect(sys.argv[1])\nc.executescript(sys.argv[2])\nc.commit()";
    python(program, &database.location, statements);
}

#[test]
fn database_error_is_one_sentence() {
    let database = TestDatabase::sqlite();
    let path = |name: &str| database.directory.path().join(name).to_string_lossy().into_owned();
    let error = |location: &str| Store::open(location, key_source(location, None)).expect_err("refused").to_string();
    assert!(error("mysql://host/db").contains("is no subscriber database"));
    assert!(error(&path("no/such.db")).contains("cannot be opened"));
    std::fs::write(path("text.db"), "this is a text of more than sixteen octets".repeat(20)).expect("written");
    assert!(error(&path("text.db")).contains("is no subscriber database or is damaged"));
}

#[test]
fn path_with_special_characters_is_opened() {
    let database = TestDatabase::sqlite();
    let path = database.directory.path().join("a b?c#d%25ü.db").to_string_lossy().into_owned();
    Store::open(&path, database.source()).expect("made").add(&subscriber(0)).expect("added");
    assert!(std::fs::exists(&path).expect("looked"));
    let url = format!("sqlite://{path}");
    assert_eq!(Store::open_existing(&url, database.source()).expect("opened").all(), [subscriber(0)]);
    assert_eq!(database.open().count(&Filter::default()).expect("counted"), 0);
}

#[test]
fn memory_databases_are_separate() {
    let open = || Store::open(":memory:", key_source(":memory:", None)).expect("a database in memory");
    let (mut one, mut other) = (open(), open());
    one.add(&subscriber(0)).expect("added");
    assert_eq!((one.all().len(), other.all().len()), (1, 0));
}

#[test]
fn file_is_readable_by_owner_only() {
    use std::os::unix::fs::PermissionsExt;
    let database = TestDatabase::sqlite();
    let mut store = database.open();
    store.add(&subscriber(0)).expect("added");
    store.mark_in_use().expect("marked");
    let path = &database.location;
    for file in [path.clone(), format!("{path}-wal"), format!("{path}-shm"), format!("{path}.lock")] {
        let mode = std::fs::metadata(&file).expect("there").permissions().mode();
        assert_eq!(mode & 0o777, 0o600, "{file}");
    }
    assert_eq!(database.sql("PRAGMA integrity_check"), "ok");
}

/// Returns the bytes of the database file and its journals.
fn octets_on_disk(database: &TestDatabase) -> Vec<u8> {
    let files = ["", "-wal", "-shm"].map(|end| format!("{}{end}", database.location));
    files.iter().filter_map(|file| std::fs::read(file).ok()).flatten().collect()
}

fn holds(octets: &[u8], key: &Key) -> bool {
    octets.windows(16).any(|window| window == key.octets())
}

#[test]
fn keys_on_disk_are_sealed() {
    let database = TestDatabase::sqlite();
    let one = subscriber(0);
    let mut store = database.open();
    store.add(&one).expect("added");
    let octets = octets_on_disk(&database);
    assert!(octets.windows(15).any(|window| window == one.supi.reveal().as_bytes()), "the right files are read");
    assert!(!holds(&octets, &one.k) && !holds(&octets, &one.opc));
    drop(store);
    assert_eq!(database.open().get(one.supi).expect("read"), Some(one));
}

#[test]
fn clear_keys_of_schema_1_are_sealed() {
    let database = TestDatabase::sqlite();
    drop(database.open());
    let many: Vec<_> = (0..1200).map(subscriber).collect();
    // The state of the previous release: its tables, only its migration, and keys in clear text.
    let (k, opc) = (many[0].k.reveal(), many[0].opc.reveal());
    let subscription = serde_json::to_string(&many[0].subscription).expect("JSON");
    script(
        &database,
        &format!(
            "DROP TABLE subscribers; DROP TABLE sealing; DROP TABLE changes; DROP TABLE sqn_reservations;
             DELETE FROM _sqlx_migrations WHERE version = 2; {};
             WITH RECURSIVE n(i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n WHERE i < 1199)
             INSERT INTO subscribers SELECT 999700000000001 + i, x'{k}', x'{opc}', x'8000', i, NULL, '{subscription}' FROM n;",
            include_str!("../../../migrations/sqlite/0001_subscribers.sql")
        ),
    );
    std::fs::remove_file(database.key_file()).expect("the key of a database that is no more");
    assert!(holds(&octets_on_disk(&database), &many[0].k), "in clear");
    let read = database.open().all();
    let octets = octets_on_disk(&database);
    assert!(!holds(&octets, &many[0].k) && !holds(&octets, &many[0].opc), "wiped");
    assert_eq!(read.iter().map(|s| s.sqn_offset).collect::<Vec<_>>(), (0..1200).collect::<Vec<_>>());
    assert!(
        read.iter().zip(&many).all(|(read, was)| (&read.supi, &read.k, &read.opc) == (&was.supi, &was.k, &was.opc))
    );
}
