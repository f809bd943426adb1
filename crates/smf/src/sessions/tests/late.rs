//! Tests of a database that is slow, down, or written to by others.

use super::*;

/// After a conflict with another SMF's commit, the step runs again on the stored SM context. A
/// commit whose answer was lost is recognised.
#[test]
fn late_commit_is_repeated_over_newer_version() {
    let mut world = World::stored();
    let path = world.active();
    let ltmsi = *world.smf.index.keys().next().unwrap();
    let name = Name { collection: "smf", id: ltmsi.get().into() };
    let data = SmContextUpdateData { up_cnx_state: Some(UpCnxState::Deactivated), ..SmContextUpdateData::default() };
    for lost in [false, true] {
        let (calls, replies) = (world.records.as_ref().unwrap().operations(), world.replies.len());
        let mut lookup = |_| Ok(None);
        let call = IncomingRequest {
            path: format!("{path}/modify"),
            message: Message::new(&data),
            key: None,
            repeated: false,
            reply: ReplyTo::disconnected(),
        };
        world.smf.call(call, world.now, &mut lookup);
        assert!(world.work(), "it is loaded");
        let records = world.records.as_mut().unwrap();
        let found = records.load(&[name]).unwrap().remove(0).unwrap();
        let job = world.smf.jobs().unwrap().front().unwrap();
        let DatabaseOperation::Put { known, value: Encoded::Whole(octets) } = &job.operation else { panic!("{job:?}") };
        let octets = if lost { octets } else { &found.octets };
        records.change(&[(name, Change::Commit { expected: known.version, octets })]).remove(0).unwrap();
        world.act();
        let now = world.records.as_ref().unwrap().operations();
        assert_eq!(world.replies.len(), replies + 1);
        // The test's write, the SMF's refused one, and the one for the UPF's response; one more if
        // the step ran again.
        assert_eq!(now.writes - calls.writes, if lost { 3 } else { 4 });
        assert_eq!(world.session().sm.downlink, None);
        world.state(&path, UpCnxState::Activating);
        world.ran_up(&path);
    }
}

#[test]
fn database_timeout_is_answered_without_effect() {
    let mut world = World::stored();
    let down = |error| RecordError::Down(error);
    let fail = |world: &mut World| {
        let job = world.smf.jobs().unwrap().pop_front().expect("it asks");
        assert!(job.deadline.is_some(), "it does not wait for ever");
        let error = down("gone".into());
        let done = if let DatabaseOperation::Load = job.operation {
            OperationResult::Loaded(Err(error))
        } else {
            OperationResult::Changed(Err(error))
        };
        world.smf.on_database_result(storage::ltmsi(job.name), done, world.now);
        world.act();
        assert_eq!(world.last().status, 500, "{:?}", world.last());
    };
    let mut lookup = |_: Supi| {
        let slices = vec![SliceSubscription::default()];
        Ok(Some(Subscription { slices, ..Subscription::default() }))
    };
    let mut call = |world: &mut World, path: &str, message| {
        let call = IncomingRequest {
            path: path.to_owned(),
            message,
            key: None,
            repeated: false,
            reply: ReplyTo::disconnected(),
        };
        world.smf.call(call, world.now, &mut lookup);
    };
    call(&mut world, SM_CONTEXTS, create_message(&data()));
    fail(&mut world);
    assert!(world.is_empty() && world.pfcp.is_empty(), "nothing has left");
    // The only address is free.
    let path = world.active();
    let before = world.session();
    call(&mut world, &format!("{path}/release"), Message::default());
    fail(&mut world);
    assert_eq!(world.session(), before);
    world.call(&format!("{path}/release"), Message::default());
    assert!(world.is_empty());
}
