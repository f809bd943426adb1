//! Tests of the database operations per transaction and procedure.

use super::*;

/// A chain of n network functions needs 4n database messages (stateless paper). The SMF reads and
/// writes once per transaction. The first transaction finds nothing to read, and the last removes
/// the record.
#[test]
fn transaction_costs_one_read_and_one_write() {
    let mut world = World::stored();
    let count = |world: &World| {
        let now = world.records.as_ref().unwrap().operations();
        (now.reads, now.writes, now.removals)
    };
    let path = world.create();
    // The create request, and the UPF's response.
    assert_eq!(count(&world), (1, 2, 0));
    world.ran_up(&path);
    // The RAN's response, and the UPF's.
    assert_eq!(count(&world), (3, 4, 0), "3 reads and 4 writes for a session, as in the paper");
    world.call(&format!("{path}/modify"), handover::path_switch());
    assert_eq!((world.last().status, count(&world)), (200, (5, 6, 0)));
    world.state(&path, UpCnxState::Deactivated);
    assert_eq!(count(&world), (7, 8, 0));
    world.call(&format!("{path}/release"), Message::new(smf::SmContextReleaseData::default()));
    assert_eq!(count(&world), (9, 9, 1));
    assert!(world.is_empty());
}

/// A procedure in progress is lost with the SMF; a completed one is not.
#[test]
fn procedure_costs_one_read_and_one_write() {
    let mut world = World::procedural();
    let count = |world: &World| {
        let now = world.records.as_ref().unwrap().operations();
        (now.reads, now.writes, now.removals)
    };
    let path = world.create();
    assert_eq!(count(&world), (0, 0, 0));
    world.ran_up(&path);
    assert_eq!(count(&world), (0, 1, 0), "it rests");
    world.state(&path, UpCnxState::Deactivated);
    assert_eq!(count(&world), (1, 2, 0));
    let before = world.session();
    world.state(&path, UpCnxState::Activating);
    assert_eq!(count(&world), (3, 2, 0), "the RAN is waited for; one read is the test's own");
    world.restart();
    assert_eq!(world.session(), before);
    let operations = count(&world);
    world.state(&path, UpCnxState::Activating);
    world.ran_up(&path);
    let now = count(&world);
    assert_eq!((now.0 - operations.0, now.1 - operations.1), (1, 1));
    world.call(&format!("{path}/release"), Message::new(smf::SmContextReleaseData::default()));
    assert_eq!(world.last().status, 204);
    assert!(world.is_empty());
    // A session that was never committed is lost: the AMF gets 404.
    let path = world.create();
    world.restart();
    assert!(world.is_empty());
    world.ran_up(&path);
    assert_eq!(world.last().status, 404);
}
