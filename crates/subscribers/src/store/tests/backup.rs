//! Tests of backup and restore.

use super::*;
use std::sync::atomic::{AtomicBool, Ordering};

over_both! { backup_is_consistent restore_is_refused_with_reason damaged_backup_changes_nothing }

fn written(database: &TestDatabase) -> Vec<u8> {
    let mut lines = Vec::new();
    database.open().backup(&mut lines).expect("written");
    lines
}

fn restored(database: &TestDatabase, lines: &[u8], replace: bool) -> Result<u64, BackupError> {
    restore(&database.location, &database.source(), &mut &*lines, replace)
}

fn filled(database: &TestDatabase) -> Vec<Subscriber> {
    let mut many: Vec<_> = (0..2500).map(subscriber).collect();
    many[7].static_ipv4 = Some("10.45.7.7".parse().expect("an address"));
    many[8].subscription.slices[0].snssai.sd = Some(0xab);
    many[9].msisdn = "4915100000009".parse().ok();
    let mut store = database.open();
    store.import(&many, OnExisting::Refuse, &mut |_| {}).expect("imported");
    store.set_sqn_offset(many[9].supi, -77).expect("stored");
    many[9].sqn_offset = -77;
    store.reserve_sqn(4, SqnClaim { start: 0, end: 5000 }).expect("claimed");
    many
}

#[test]
fn backup_moves_between_databases() {
    let (sqlite, postgres, back) = (TestDatabase::sqlite(), TestDatabase::postgres(), TestDatabase::sqlite());
    let many = filled(&sqlite);
    let lines = written(&sqlite);
    let text = String::from_utf8_lossy(&lines).to_lowercase();
    assert!(!text.contains(&many[0].k.reveal()) && !text.contains(&many[0].opc.reveal()), "keys stay sealed");
    for (from, to) in [(&sqlite, &postgres), (&postgres, &back)] {
        std::fs::copy(from.key_file(), to.key_file()).expect("the key is given apart");
        assert_eq!(restored(to, &written(from), false).expect("restored"), 2500);
        assert_eq!(to.open().all(), many);
        assert_eq!(to.sql("SELECT ind, seq FROM sqn_reservations"), "4|5000");
    }
    assert_eq!(written(&back), lines, "octet for octet");
    assert_eq!(postgres.sql("SELECT count(*), max(imsi) FROM subscribers"), "2500|999700000002500");
}

fn backup_is_consistent(database: &TestDatabase) {
    let pair = |amf: u8| [subscriber(0), subscriber(5000)].map(|s| Subscriber { amf: [0x80, amf], ..s });
    let many: Vec<_> = (1..3000).map(subscriber).collect();
    let mut store = database.open();
    store.import(&many, OnExisting::Refuse, &mut |_| {}).expect("imported");
    store.import(&pair(0), OnExisting::Refuse, &mut |_| {}).expect("imported");
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut writer = database.open();
            for amf in (0..=255).cycle() {
                if stop.load(Ordering::Relaxed) {
                    break;
                }
                writer.import(&pair(amf), OnExisting::Replace, &mut |_| {}).expect("written meanwhile");
            }
        });
        for _ in 0..8 {
            let lines = written(database);
            let lines: Vec<serde_json::Value> =
                lines.split(|o| *o == b'\n').filter_map(|line| serde_json::from_slice(line).ok()).collect();
            let amf = |supi: Supi| lines.iter().find(|l| l["imsi"] == supi.reveal()).expect("there")["amf"].clone();
            assert_eq!(amf(subscriber(0).supi), amf(subscriber(5000).supi));
        }
        stop.store(true, Ordering::Relaxed);
    });
}

fn restore_is_refused_with_reason(database: &TestDatabase) {
    let many = filled(database);
    let lines = written(database);
    let refused = |lines: &[u8], replace| restored(database, lines, replace).expect_err("refused").to_string();
    assert!(refused(&lines, false).contains("has 2500 subscribers already: give --replace"));
    let mut core = database.open();
    core.mark_in_use().expect("marked");
    database.open().mark_in_use().expect("a second core");
    assert!(refused(&lines, true).contains("is used by a running core"));
    drop(core);
    let newer = String::from_utf8_lossy(&lines).replacen("\"schema\":2", "\"schema\":3", 1);
    assert!(refused(newer.as_bytes(), true).contains("written by a newer Vireo (format 1, schema 3)"));
    let right = std::fs::read(database.key_file()).expect("the key");
    vireo_sealing::write_key_file(&database.key_file(), &vireo_sealing::SealingKey::generate()).expect("written");
    let other = refused(&lines, true);
    assert!(other.contains("of the backup is sealed with key") && other.contains("key-file"), "{other}");
    std::fs::remove_file(database.key_file()).expect("removed");
    assert!(refused(&lines, true).contains("is missing"));
    assert!(!database.key_file().exists(), "no other key is made");
    let key = String::from_utf8_lossy(&right);
    std::fs::write(database.key_file(), key.as_bytes()).expect("put back");
    std::fs::set_permissions(database.key_file(), std::os::unix::fs::PermissionsExt::from_mode(0o600)).expect("set");
    assert_eq!(database.open().all(), many);
    let mut store = database.open();
    let last = store.last_change().expect("read");
    store.remove([many[0].supi]).expect("removed");
    store.reserve_sqn(4, SqnClaim { start: 5000, end: 9000 }).expect("claimed");
    assert_eq!(restored(database, &lines, true).expect("restored"), 2500);
    assert_eq!(store.all(), many);
    assert_eq!(store.sqn_reservation(4).expect("read"), 9000, "no number is used twice");
    assert_ne!(store.changes_since(last).expect("read").0, Changes::These(Vec::new()), "caches follow");
}

fn damaged_backup_changes_nothing(database: &TestDatabase) {
    let many = filled(database);
    let lines = written(database);
    let text = String::from_utf8(lines).expect("text");
    let end = text.trim_end().rfind('\n').expect("lines");
    let third = text.lines().nth(5).expect("lines").to_owned();
    for (damaged, reason) in [
        (text[..end].to_owned(), "incomplete (2500 found)"),
        (text.replacen(&format!("{third}\n"), "", 1), "incomplete (2499 found)"),
        (text.replacen(&third, "{", 1), "line 6 of the backup's subscribers is damaged"),
        (text.replacen("\"secret\":\"", "\"secret\":\"00", 1), "damaged (secret: "),
        (text.replacen("internet", "inter\\\"net", 1), "subscription: "),
        (String::new(), "it is no header"),
    ] {
        let error = restored(database, damaged.as_bytes(), true).expect_err(reason).to_string();
        assert!(error.contains(reason), "{error}");
        assert_eq!(database.open().all().len(), many.len());
    }
}
