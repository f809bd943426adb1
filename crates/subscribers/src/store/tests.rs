use super::*;
use crate::record::Key;

fn open(location: &str) -> Result<Store, StoreError> {
    Store::open(location, key_source(location, None))
}

fn subscriber(n: u64) -> Subscriber {
    let first: Supi = "999700000000001".parse().expect("an IMSI");
    let key = |text: &str| -> Key { text.parse().expect("32 digits") };
    let k = key("465B5CE8B199B49FAA5F0A2EE238A6BC");
    Subscriber::new(first.offset(n).expect("15 digits"), k, key("E8ED289DEBA952E4283B54E88E6183CA"))
}

fn memory() -> Store {
    open(":memory:").expect("a database in memory")
}

fn file() -> (tempfile::TempDir, String) {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("subscribers.db").to_string_lossy().into_owned();
    (directory, path)
}

/// Runs a statement with Python's SQLite, as another process: an independent check of the file's
/// content.
fn python(path: &str, statement: &str) -> String {
    let program = "import sqlite3, sys\nc = sqlite3.connect(sys.argv[1], timeout=5)\n\
                   print(*c.execute(sys.argv[2]).fetchall(), sep='\\n')\nc.commit()";
    let output = std::process::Command::new("python3").args(["-c", program, path, statement]).output();
    let output = output.expect("python3 with its sqlite3 module");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).trim().to_owned()
}

/// Runs several statements in the same way.
fn python_script(path: &str, statements: &str) {
    let program = "import sqlite3, sys\nc = sqlite3.connect(sys.argv[1])\nc.executescript(sys.argv[2])\nc.commit()";
    let output = std::process::Command::new("python3").args(["-c", program, path, statements]).output();
    let output = output.expect("python3 with its sqlite3 module");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn record_round_trips() {
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
fn replaced_record_keeps_its_sqn_offset() {
    let mut store = memory();
    store.add(&subscriber(0)).expect("added");
    store.set_sqn_offset(subscriber(0).supi, 77).expect("stored");
    let mut other = subscriber(0);
    other.k = Key::new([9; 16]);
    store.upsert(&other).expect("replaced");
    let read = store.get(other.supi).expect("read").expect("there");
    assert_eq!((read.sqn_offset, &read.k), (77, &other.k));
}

#[test]
fn import_is_atomic() {
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
fn other_sqlite_shares_database() {
    let (_directory, path) = file();
    let mut store = open(&path).expect("made");
    store.add(&subscriber(0)).expect("added");
    assert_eq!(
        python(&path, "SELECT imsi, length(secret), hex(amf), sqn_offset, static_ipv4 FROM subscribers"),
        "('999700000000001', 77, '8000', 0, None)"
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
fn database_error_is_one_sentence() {
    let (directory, path) = file();
    let error = |location: &str| open(location).expect_err("refused").to_string();
    assert!(matches!(Store::open_existing(&path, key_source(&path, None)), Err(StoreError::Missing { .. })));
    assert!(error("postgres://host/db").contains("is no subscriber database"));
    assert!(error(&directory.path().join("no/such.db").to_string_lossy()).contains("cannot be opened"));

    std::fs::write(directory.path().join("text.db"), "this is a text of more than sixteen octets".repeat(20))
        .expect("written");
    assert!(
        error(&directory.path().join("text.db").to_string_lossy()).contains("is no subscriber database or is damaged")
    );

    drop(open(&path).expect("made"));
    python(
        &path,
        "INSERT INTO _sqlx_migrations (version, description, success, checksum, execution_time) \
                   VALUES (3, 'later', 1, x'00', 0)",
    );
    assert!(error(&path).contains("written by a newer Vireo (schema 3)"), "{}", error(&path));
    python(&path, "DELETE FROM _sqlx_migrations WHERE version = 3");

    let mut store = open(&path).expect("opened");
    store.add(&subscriber(0)).expect("added");
    python(&path, "UPDATE subscribers SET subscription = '{'");
    let bad = store.get(subscriber(0).supi).expect_err("no JSON").to_string();
    assert!(bad.contains("999700000000001 cannot be read (subscription: "), "{bad}");
    let mut said = 0;
    assert!(store.get_many(&[subscriber(0).supi], &mut |_| said += 1).expect("read").is_empty());
    assert_eq!(said, 1);
}

#[test]
fn stuck_writer_is_named_and_readers_continue() {
    let (_directory, path) = file();
    let (mut one, mut other) = (open(&path).expect("made"), open(&path).expect("opened"));
    one.run_for_test("BEGIN IMMEDIATE");
    let error = other.add(&subscriber(0)).expect_err("locked").to_string();
    assert!(error.ends_with("is locked by another process: wait until that ends, or end it"), "{error}");
    assert_eq!(other.count(&Filter::default()).expect("readers do not wait"), 0);
    one.run_for_test("COMMIT");
    other.add(&subscriber(0)).expect("free again");
}

#[test]
fn file_is_readable_by_owner_only() {
    use std::os::unix::fs::PermissionsExt;
    let (_directory, path) = file();
    let mut store = open(&path).expect("made");
    store.add(&subscriber(0)).expect("added");
    for file in [path.clone(), format!("{path}-wal"), format!("{path}-shm")] {
        let mode = std::fs::metadata(&file).expect("there").permissions().mode();
        assert_eq!(mode & 0o777, 0o600, "{file}");
    }
}

impl Store {
    /// Runs a statement without checks.
    pub(crate) fn run_for_test(&mut self, sql: &str) {
        let query = sqlx::query(sql);
        self.runtime.block_on(query.execute(&mut self.connection)).expect("run");
    }
}

/// The requirement is 100,000 in less than 30 s. A fifth of both is tested in a debug build on a
/// busy machine.
#[test]
fn twenty_thousand_are_imported_in_seconds() {
    let (_directory, path) = file();
    let many: Vec<_> = (0..20_000).map(subscriber).collect();
    let started = std::time::Instant::now();
    open(&path).expect("made").import(&many, OnExisting::Refuse, &mut |_| {}).expect("imported");
    let took = started.elapsed();
    assert_eq!(python(&path, "SELECT count(*), count(DISTINCT imsi) FROM subscribers"), "(20000, 20000)");
    assert!(took < Duration::from_secs(6), "{took:?}");
}

/// Returns the bytes of the database file and its journals.
fn octets_on_disk(path: &str) -> Vec<u8> {
    let files = [path.to_owned(), format!("{path}-wal"), format!("{path}-shm")];
    files.iter().filter_map(|file| std::fs::read(file).ok()).flatten().collect()
}

fn holds(octets: &[u8], key: &Key) -> bool {
    octets.windows(16).any(|window| window == key.octets())
}

#[test]
fn keys_on_disk_are_sealed() {
    let (_directory, path) = file();
    let one = subscriber(0);
    let mut store = open(&path).expect("made");
    store.add(&one).expect("added");
    let octets = octets_on_disk(&path);
    assert!(octets.windows(15).any(|window| window == one.supi.reveal().as_bytes()), "the right files are read");
    assert!(!holds(&octets, &one.k) && !holds(&octets, &one.opc));
    drop(store);
    assert_eq!(open(&path).expect("opened").get(one.supi).expect("read"), Some(one));
}

#[test]
fn clear_keys_of_schema_1_are_sealed() {
    let (_directory, path) = file();
    drop(open(&path).expect("made"));
    let many: Vec<_> = (0..1200).map(subscriber).collect();
    // The state of the previous release: its tables, only its migration, and keys in clear text.
    let (k, opc) = (many[0].k.reveal(), many[0].opc.reveal());
    let subscription = serde_json::to_string(&many[0].subscription).expect("JSON");
    python_script(
        &path,
        &format!(
            "DROP TABLE subscribers; DROP TABLE sealing; DROP TABLE changes; DROP TABLE sqn_reservations;
             DELETE FROM _sqlx_migrations WHERE version = 2; {};
             WITH RECURSIVE n(i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n WHERE i < 1199)
             INSERT INTO subscribers SELECT 999700000000001 + i, x'{k}', x'{opc}', x'8000', i, NULL, '{subscription}' FROM n;",
            include_str!("../../migrations/sqlite/0001_subscribers.sql")
        ),
    );
    std::fs::remove_file(format!("{path}.key")).expect("the key of a database that is no more");
    assert!(holds(&octets_on_disk(&path), &many[0].k), "in clear");
    let mut store = open(&path).expect("opened");
    let octets = octets_on_disk(&path);
    assert!(!holds(&octets, &many[0].k) && !holds(&octets, &many[0].opc), "wiped");
    let mut read = Vec::new();
    store
        .export(&Filter::default(), &mut |s| {
            read.push(s);
            true
        })
        .expect("exported");
    assert_eq!(read.iter().map(|s| s.sqn_offset).collect::<Vec<_>>(), (0..1200).collect::<Vec<_>>());
    assert!(
        read.iter().zip(&many).all(|(read, was)| (&read.supi, &read.k, &read.opc) == (&was.supi, &was.k, &was.opc))
    );
}

#[test]
fn wrong_or_missing_sealing_key_is_refused() {
    let (_directory, path) = file();
    open(&path).expect("made").add(&subscriber(0)).expect("added");
    let file = format!("{path}.key");
    let right = std::fs::read(&file).expect("the key file");
    vireo_sealing::write_key_file(file.as_ref(), &vireo_sealing::SealingKey::generate()).expect("written");
    let error = open(&path).expect_err("refused").to_string();
    assert!(error.contains("is sealed with key") && error.contains("subscribers.key-file"), "{error}");
    std::fs::remove_file(&file).expect("removed");
    let error = open(&path).expect_err("refused").to_string();
    assert!(error.contains(&file) && error.contains("is missing"), "{error}");
    assert!(!std::fs::exists(&file).expect("looked"), "no other key is made");
    std::fs::write(&file, right).expect("put back");
    let error = open(&path).expect_err("refused").to_string();
    assert!(error.contains("chmod 600"), "{error}");
}

#[test]
fn secret_of_another_subscriber_is_refused() {
    let (_directory, path) = file();
    let mut store = open(&path).expect("made");
    store.import(&[subscriber(0), subscriber(1)], OnExisting::Refuse, &mut |_| {}).expect("imported");
    let other = subscriber(1).supi.reveal();
    python(&path, &format!("UPDATE subscribers SET secret = (SELECT secret FROM subscribers WHERE imsi = '{other}')"));
    assert!(matches!(store.get(subscriber(0).supi), Err(StoreError::BadRecord { .. })));
    assert!(store.get(subscriber(1).supi).expect("read").is_some());
}

#[test]
fn unreadable_record_names_its_fault() {
    let (_directory, path) = file();
    let mut store = open(&path).expect("made");
    store.add(&subscriber(0)).expect("added");
    let imsi = subscriber(0).supi.reveal();
    for (change, fault) in [
        ("subscription = 'x'", "subscription: expected value at line 1 column 1"),
        ("static_ipv4 = '10.45'", "\"10.45\" is no IPv4 address"),
        ("secret = x'00'", "secret: the octets are not sealed"),
    ] {
        python(&path, &format!("UPDATE subscribers SET {change}"));
        let error = store.get(subscriber(0).supi).expect_err(change).to_string();
        assert_eq!(error, format!("the record of {imsi} cannot be read ({fault}): remove it and add it again"));
    }
}

#[test]
fn rekey_seals_anew_and_open_stores_follow() {
    let (_directory, path) = file();
    let many: Vec<_> = (0..1200).map(subscriber).collect();
    let (mut running, mut command) = (open(&path).expect("made"), open(&path).expect("opened"));
    running.import(&many, OnExisting::Refuse, &mut |_| {}).expect("imported");
    let secret = |path: &str| python(path, "SELECT hex(secret) FROM subscribers ORDER BY imsi LIMIT 1");
    let (file, before) = (format!("{path}.key"), secret(&path));
    let old = std::fs::read(&file).expect("the key file");
    let last = running.last_change().expect("read");
    assert_eq!(command.rekey().expect("sealed anew"), 1200);
    assert_ne!((std::fs::read(&file).expect("the key file"), secret(&path)), (old.clone(), before));
    assert_eq!(running.last_change().expect("read"), last, "no subscriber changed");
    assert_eq!(running.get(many[7].supi).expect("read"), Some(many[7].clone()), "by the new key");
    running.upsert(&subscriber(2000)).expect("added");
    assert_eq!(command.rekey().expect("again"), 1201);
    // A store that learns of the new key by a write instead of a read.
    running.upsert(&subscriber(2001)).expect("added");
    assert_eq!(open(&path).expect("opened").get(subscriber(2001).supi).expect("read"), Some(subscriber(2001)));
    assert!(!std::fs::exists(format!("{file}.next")).expect("looked"));
}

#[test]
fn interrupted_rekey_loses_nothing() {
    let (_directory, path) = file();
    let file = format!("{path}.key");
    let mut store = open(&path).expect("made");
    store.add(&subscriber(0)).expect("added");
    let old = std::fs::read(&file).expect("the key file");
    // Stopped before the commit: the next key exists, and nothing is sealed with it.
    vireo_sealing::write_key_file(format!("{file}.next").as_ref(), &vireo_sealing::SealingKey::generate())
        .expect("written");
    assert!(open(&path).expect("opened").get(subscriber(0).supi).expect("read").is_some());
    // Stopped after the commit: the key file has the old key.
    store.rekey().expect("sealed anew");
    std::fs::rename(&file, format!("{file}.next")).expect("renamed");
    std::fs::write(&file, &old).expect("written");
    std::fs::set_permissions(&file, std::os::unix::fs::PermissionsExt::from_mode(0o600)).expect("set");
    let mut next = open(&path).expect("opened");
    assert!(next.get(subscriber(0).supi).expect("read").is_some());
    assert_eq!(next.rekey().expect("sealed anew"), 1);
    assert!(open(&path).expect("opened").get(subscriber(0).supi).expect("read").is_some());
}
