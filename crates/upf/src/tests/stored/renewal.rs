//! Restoration and renewal of records.

use super::*;

/// A session that exists only in a record of an earlier incarnation is restored when a request
/// names it.
#[test]
fn renewal_keeps_record_alive() {
    let mut world = World::new();
    let (seid, teid) = world.establish(&request());
    let Bench { upf, plane, .. } = &mut world.bench;
    upf.forget(seid, plane);
    assert_eq!(world.bench.upf.sessions(), 0);
    assert_eq!(world.modify(seid, &forward(RAN_TEID)).cause, Cause::REQUEST_ACCEPTED);
    world.passes(teid);
}

/// Unchanged records are committed again before they expire.
#[test]
fn records_live_on() {
    let mut world = World::new();
    let (seid, _) = world.establish(&request());
    let name = Name { collection: "upf", id: seid };
    let version = |world: &mut World| world.records.load(&[name]).expect("it answers")[0].as_ref().map(|f| f.version);
    let before = version(&mut world);
    world.with(|stored, on| stored.renew(on));
    assert_eq!(world.work(), vec![]);
    assert!(version(&mut world) > before);
}
