use super::*;
use crate::record::Key;

fn subscriber(n: u64) -> Subscriber {
    let first: Supi = "999700000000001".parse().expect("an IMSI");
    let key = |text: &str| -> Key { text.parse().expect("32 digits") };
    let k = key("465B5CE8B199B49FAA5F0A2EE238A6BC");
    Subscriber::new(first.offset(n).expect("15 digits"), k, key("E8ED289DEBA952E4283B54E88E6183CA"))
}

fn memory() -> Store {
    Store::open(":memory:").expect("a database in memory")
}

fn file() -> (tempfile::TempDir, String) {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("subscribers.db").to_string_lossy().into_owned();
    (directory, path)
}

/// Runs a statement by another SQLite than ours, as another process: the witness of what is in the file.
fn python(path: &str, statement: &str) -> String {
    let program = "import sqlite3, sys\nc = sqlite3.connect(sys.argv[1], timeout=5)\n\
                   print(*c.execute(sys.argv[2]).fetchall(), sep='\\n')\nc.commit()";
    let output = std::process::Command::new("python3").args(["-c", program, path, statement]).output();
    let output = output.expect("python3 with its sqlite3 module");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).trim().to_owned()
}

#[test]
fn a_record_comes_back_as_it_was_put() {
    let mut store = memory();
    let mut one = subscriber(0);
    one.static_ipv4 = Some("10.45.7.7".parse().expect("an address"));
    one.sqn_offset = -5;
    one.amf = [0x90, 0x01];
    one.subscription.slices[0].snssai.sd = Some(0xab);
    store.add(&one).expect("added");
    assert_eq!(store.get(one.supi).expect("read"), Some(one.clone()));
    assert_eq!(store.get(subscriber(1).supi).expect("read"), None);
    assert!(matches!(store.add(&one), Err(StoreError::Exists(supi)) if supi == one.supi));
}

#[test]
fn a_replaced_record_keeps_its_sqn_offset() {
    let mut store = memory();
    store.add(&subscriber(0)).expect("added");
    store.set_sqn_offset(subscriber(0).supi, 77).expect("stored");
    let mut other = subscriber(0);
    other.k = Key::new([9; 16]);
    store.upsert(&other).expect("replaced");
    let read = store.get(other.supi).expect("read").expect("there");
    assert_eq!((read.sqn_offset, read.k), (77, other.k));
}

#[test]
fn an_import_is_whole_or_nothing() {
    let mut store = memory();
    store.add(&subscriber(700)).expect("added");
    let many: Vec<_> = (0..1000).map(subscriber).collect();
    let refused = store.import(&many, OnExisting::Refuse, &mut |_| {});
    assert!(matches!(refused, Err(StoreError::Exists(supi)) if supi == subscriber(700).supi), "{refused:?}");
    assert_eq!(store.count(&Filter::default()).expect("counted"), 1);
    let mut last = 0;
    assert_eq!(store.import(&many, OnExisting::Replace, &mut |n| last = n).expect("imported"), 1000);
    assert_eq!((last, store.count(&Filter::default()).expect("counted")), (1000, 1000));
}

#[test]
fn lists_are_in_pages_and_by_prefix() {
    let mut store = memory();
    let mut foreign = subscriber(0);
    foreign.supi = "00101000000001".parse().expect("an IMSI");
    store.add(&foreign).expect("added");
    let many: Vec<_> = (0..2500).map(subscriber).collect();
    store.import(&many, OnExisting::Refuse, &mut |_| {}).expect("imported");
    let home = Filter { prefix: "99970".into() };
    assert_eq!(store.count(&home).expect("counted"), 2500);
    let page = store.list(&home, Page { after: Some(subscriber(9).supi), limit: 3 }).expect("listed");
    assert_eq!(page, many[10..13]);
    let mut all = Vec::new();
    store
        .export(&home, &mut |s| {
            all.push(s);
            true
        })
        .expect("exported");
    assert_eq!(all, many);
    let asked: Vec<_> = [3, 5, 9_999, 300].map(|n| subscriber(n).supi).into();
    let mut found = store.get_many(&asked, &mut |e| panic!("{e}")).expect("read");
    found.sort_by_key(|s| s.supi);
    assert_eq!(found, [3, 5, 300].map(subscriber));
    assert_eq!(store.remove(asked).expect("removed"), 3);
    assert_eq!(store.count(&Filter::default()).expect("counted"), 2498);
}

#[test]
fn another_sqlite_reads_what_was_written_and_its_writes_are_seen() {
    let (_directory, path) = file();
    let mut store = Store::open(&path).expect("made");
    store.add(&subscriber(0)).expect("added");
    assert_eq!(
        python(&path, "SELECT imsi, hex(k), hex(opc), hex(amf), sqn_offset, static_ipv4 FROM subscribers"),
        "('999700000000001', '465B5CE8B199B49FAA5F0A2EE238A6BC', 'E8ED289DEBA952E4283B54E88E6183CA', '8000', 0, None)"
    );
    assert_eq!(
        python(&path, "SELECT json_extract(subscription, '$.slices[0].dnns[0].dnn') FROM subscribers"),
        "('internet',)"
    );
    assert_eq!(python(&path, "PRAGMA integrity_check"), "('ok',)");

    let (version, last) = (store.data_version().expect("read"), store.last_change().expect("read"));
    store.set_sqn_offset(subscriber(0).supi, 1).expect("stored");
    assert_eq!(store.data_version().expect("read"), version, "our own writes are no news");
    python(&path, "UPDATE subscribers SET subscription = json_set(subscription, '$.ambr.uplink_bps', 5)");
    assert_ne!(store.data_version().expect("read"), version);
    let (changes, newest) = store.changes_since(last).expect("read");
    assert_eq!((changes, newest), (Changes::These(vec![subscriber(0).supi]), last + 1));
    assert_eq!(store.get(subscriber(0).supi).expect("read").expect("there").subscription.ambr.uplink_bps, 5);
    python(&path, "DELETE FROM changes");
    store.import(&(1..3).map(subscriber).collect::<Vec<_>>(), OnExisting::Refuse, &mut |_| {}).expect("imported");
    assert_eq!(store.changes_since(last).expect("read").0, Changes::Many, "a gap");
}

#[test]
fn what_is_wrong_with_a_database_is_said_in_one_sentence() {
    let (directory, path) = file();
    let error = |location: &str| Store::open(location).expect_err("refused").to_string();
    assert!(matches!(Store::open_existing(&path), Err(StoreError::Missing { .. })));
    assert!(error("postgres://host/db").contains("is no subscriber database"));
    assert!(error(&directory.path().join("no/such.db").to_string_lossy()).contains("cannot be opened"));

    std::fs::write(directory.path().join("text.db"), "this is a text of more than sixteen octets".repeat(20))
        .expect("written");
    assert!(
        error(&directory.path().join("text.db").to_string_lossy()).contains("is no subscriber database or is damaged")
    );

    drop(Store::open(&path).expect("made"));
    python(
        &path,
        "INSERT INTO _sqlx_migrations (version, description, success, checksum, execution_time) \
                   VALUES (2, 'later', 1, x'00', 0)",
    );
    assert!(error(&path).contains("written by a newer Vireo (schema 2)"), "{}", error(&path));
    python(&path, "DELETE FROM _sqlx_migrations WHERE version = 2");

    let mut store = Store::open(&path).expect("opened");
    store.add(&subscriber(0)).expect("added");
    python(&path, "UPDATE subscribers SET subscription = '{'");
    let bad = store.get(subscriber(0).supi).expect_err("no JSON").to_string();
    assert!(bad.contains("999700000000001 cannot be read (subscription: "), "{bad}");
    let mut said = 0;
    assert!(store.get_many(&[subscriber(0).supi], &mut |_| said += 1).expect("read").is_empty());
    assert_eq!(said, 1);
}

#[test]
fn a_writer_that_stays_is_named_as_the_trouble_and_readers_go_on() {
    let (_directory, path) = file();
    let (mut one, mut other) = (Store::open(&path).expect("made"), Store::open(&path).expect("opened"));
    one.run_for_test("BEGIN IMMEDIATE");
    let error = other.add(&subscriber(0)).expect_err("locked").to_string();
    assert!(error.ends_with("is locked by another process: wait until that ends, or end it"), "{error}");
    assert_eq!(other.count(&Filter::default()).expect("readers do not wait"), 0);
    one.run_for_test("COMMIT");
    other.add(&subscriber(0)).expect("free again");
}

#[test]
fn the_file_is_for_its_owner_only() {
    use std::os::unix::fs::PermissionsExt;
    let (_directory, path) = file();
    let mut store = Store::open(&path).expect("made");
    store.add(&subscriber(0)).expect("added");
    for file in [path.clone(), format!("{path}-wal"), format!("{path}-shm")] {
        let mode = std::fs::metadata(&file).expect("there").permissions().mode();
        assert_eq!(mode & 0o777, 0o600, "{file}");
    }
}

impl Store {
    /// Runs a statement as it is.
    pub(crate) fn run_for_test(&mut self, sql: &str) {
        let query = sqlx::query(sql);
        self.runtime.block_on(query.execute(&mut self.connection)).expect("run");
    }
}

/// The promise is 100,000 in less than 30 s; a fifth of both here, in a debug build on a busy machine.
#[test]
fn twenty_thousand_are_imported_in_seconds() {
    let (_directory, path) = file();
    let many: Vec<_> = (0..20_000).map(subscriber).collect();
    let started = std::time::Instant::now();
    Store::open(&path).expect("made").import(&many, OnExisting::Refuse, &mut |_| {}).expect("imported");
    let took = started.elapsed();
    assert_eq!(python(&path, "SELECT count(*), count(DISTINCT imsi) FROM subscribers"), "(20000, 20000)");
    assert!(took < Duration::from_secs(6), "{took:?}");
}
