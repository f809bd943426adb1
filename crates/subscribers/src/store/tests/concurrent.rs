//! Tests of several processes with one database.

use super::*;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};

over_both! { no_change_is_missed_by_a_reader claims_of_one_slot_are_disjoint rest_of_claim_is_returned }

const WRITERS: u64 = 3;
const CHANGES: u64 = 40;

/// Repeats a write while other writers are in the way.
fn insist<T>(mut write: impl FnMut() -> Result<T, StoreError>) -> T {
    loop {
        match write() {
            Err(StoreError::Locked { .. }) => {}
            done => return done.expect("written"),
        }
    }
}

fn no_change_is_missed_by_a_reader(database: &TestDatabase) {
    let mut reader = database.open();
    let running = AtomicUsize::new(WRITERS as usize);
    let write = |writer: u64| {
        let mut store = database.open();
        for n in 0..CHANGES {
            insist(|| store.upsert(&subscriber(writer * CHANGES + n)));
        }
        running.fetch_sub(1, Ordering::Release);
    };
    let mut seen: BTreeMap<Supi, u32> = BTreeMap::new();
    let mut last = reader.last_change().expect("read");
    std::thread::scope(|scope| {
        for writer in 0..WRITERS {
            scope.spawn(move || write(writer));
        }
        loop {
            let ended = running.load(Ordering::Acquire) == 0;
            let (changes, newest) = reader.changes_since(last).expect("read");
            let Changes::These(supis) = changes else { panic!("a gap after {last}") };
            supis.into_iter().for_each(|supi| *seen.entry(supi).or_default() += 1);
            last = newest;
            if ended {
                break;
            }
        }
    });
    let all: Vec<Supi> = (0..WRITERS * CHANGES).map(|n| subscriber(n).supi).collect();
    assert_eq!(seen.keys().copied().collect::<Vec<_>>(), all);
    assert!(seen.values().all(|times| *times == 1));
    assert_eq!(reader.last_change().expect("read"), last);
}

fn claims_of_one_slot_are_disjoint(database: &TestDatabase) {
    drop(database.open());
    let claim = |_: u64| {
        let mut store = database.open();
        let mut claims = Vec::new();
        let mut end = store.sqn_reservation(7).expect("read");
        for _ in 0..CHANGES {
            let claim = insist(|| store.reserve_sqn(7, SqnClaim { start: end, end: end + 100 }));
            assert!(claim.end >= claim.start + 100, "{claim:?}");
            end = claim.end;
            claims.push(claim);
        }
        claims
    };
    let claims = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..WRITERS).map(|n| scope.spawn(move || claim(n))).collect();
        threads.into_iter().map(|thread| thread.join().expect("no panic")).collect::<Vec<_>>()
    });
    let mut all: Vec<SqnClaim> = claims.into_iter().flatten().collect();
    all.sort_by_key(|claim| claim.start);
    assert_eq!(all.len() as u64, WRITERS * CHANGES);
    assert!(all.windows(2).all(|pair| pair[0].end <= pair[1].start), "{all:?}");
    assert_eq!(database.sql("SELECT ind, seq FROM sqn_reservations"), format!("7|{}", all[all.len() - 1].end));
}

fn rest_of_claim_is_returned(database: &TestDatabase) {
    let (mut one, mut other) = (database.open(), database.open());
    let first = one.reserve_sqn(3, SqnClaim { start: 0, end: 100 }).expect("claimed");
    assert_eq!(first, SqnClaim { start: 0, end: 100 });
    one.release_sqn(3, 40, first.end).expect("returned");
    // The other process read the reservation before it was returned.
    let second = other.reserve_sqn(3, SqnClaim { start: 100, end: 200 }).expect("claimed");
    assert_eq!(second, SqnClaim { start: 100, end: 200 });
    let third = one.reserve_sqn(3, SqnClaim { start: 40, end: 140 }).expect("claimed");
    assert_eq!(third, SqnClaim { start: 200, end: 300 }, "above the other process's");
    other.release_sqn(3, 150, second.end).expect("not the last one");
    assert_eq!(one.sqn_reservation(3).expect("read"), 300);
    assert_eq!(one.sqn_reservation(4).expect("read"), 0);
}
