//! What every store must do, as one run over an empty store.

use crate::{CommitError, ContextStore};
use vireo_types::{Bucket, Instant, Ltmsi};

/// Runs the suite over an empty store, and leaves it empty.
///
/// # Panics
///
/// When the store breaks the contract.
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

    // A version may go on from that of a predecessor in the same place.
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
