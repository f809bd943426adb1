//! Tests of the sealing key.

use super::*;

over_both! {
    wrong_or_missing_sealing_key_is_refused secret_of_another_subscriber_is_refused
    rekey_seals_anew_and_open_stores_follow interrupted_rekey_loses_nothing
}

fn wrong_or_missing_sealing_key_is_refused(database: &TestDatabase) {
    database.open().add(&subscriber(0)).expect("added");
    let file = database.key_file();
    let right = std::fs::read(&file).expect("the key file");
    vireo_sealing::write_key_file(&file, &vireo_sealing::SealingKey::generate()).expect("written");
    let error = database.try_open().expect_err("refused").to_string();
    assert!(error.contains("is sealed with key") && error.contains("subscribers.key-file"), "{error}");
    std::fs::remove_file(&file).expect("removed");
    let error = database.try_open().expect_err("refused").to_string();
    assert!(error.contains(&*file.to_string_lossy()) && error.contains("is missing"), "{error}");
    assert!(!file.exists(), "no other key is made");
    std::fs::write(&file, right).expect("put back");
    let error = database.try_open().expect_err("refused").to_string();
    assert!(error.contains("chmod 600"), "{error}");
}

fn secret_of_another_subscriber_is_refused(database: &TestDatabase) {
    let mut store = database.open();
    store.import(&[subscriber(0), subscriber(1)], OnExisting::Refuse, &mut |_| {}).expect("imported");
    let other = subscriber(1).supi.reveal();
    database.sql(&format!("UPDATE subscribers SET secret = (SELECT secret FROM subscribers WHERE imsi = '{other}')"));
    assert!(matches!(store.get(subscriber(0).supi), Err(StoreError::BadRecord { .. })));
    assert!(store.get(subscriber(1).supi).expect("read").is_some());
}

fn rekey_seals_anew_and_open_stores_follow(database: &TestDatabase) {
    let many: Vec<_> = (0..1200).map(subscriber).collect();
    let (mut running, mut command) = (database.open(), database.open());
    running.import(&many, OnExisting::Refuse, &mut |_| {}).expect("imported");
    let secret =
        || database.sql(&format!("SELECT {} FROM subscribers ORDER BY imsi LIMIT 1", database.digits("secret")));
    let (file, before) = (database.key_file(), secret());
    let old = std::fs::read(&file).expect("the key file");
    let last = running.last_change().expect("read");
    assert_eq!(command.rekey().expect("sealed anew"), 1200);
    assert_ne!((std::fs::read(&file).expect("the key file"), secret()), (old.clone(), before));
    assert_eq!(running.last_change().expect("read"), last, "no subscriber changed");
    assert_eq!(running.get(many[7].supi).expect("read"), Some(many[7].clone()), "by the new key");
    running.upsert(&subscriber(2000)).expect("added");
    assert_eq!(command.rekey().expect("again"), 1201);
    // A store that learns of the new key by a write instead of a read.
    running.upsert(&subscriber(2001)).expect("added");
    assert_eq!(database.open().get(subscriber(2001).supi).expect("read"), Some(subscriber(2001)));
    assert!(!file.with_extension("key.next").exists());
}

fn interrupted_rekey_loses_nothing(database: &TestDatabase) {
    let file = database.key_file();
    let next = file.with_extension("key.next");
    let mut store = database.open();
    store.add(&subscriber(0)).expect("added");
    let old = std::fs::read(&file).expect("the key file");
    // Stopped before the commit: the next key exists, and nothing is sealed with it.
    vireo_sealing::write_key_file(&next, &vireo_sealing::SealingKey::generate()).expect("written");
    assert!(database.open().get(subscriber(0).supi).expect("read").is_some());
    // Stopped after the commit: the key file has the old key.
    store.rekey().expect("sealed anew");
    std::fs::rename(&file, &next).expect("renamed");
    std::fs::write(&file, &old).expect("written");
    std::fs::set_permissions(&file, std::os::unix::fs::PermissionsExt::from_mode(0o600)).expect("set");
    let mut opened = database.open();
    assert!(opened.get(subscriber(0).supi).expect("read").is_some());
    assert_eq!(opened.rekey().expect("sealed anew"), 1);
    assert!(database.open().get(subscriber(0).supi).expect("read").is_some());
}
