//! Tests of SM contexts in the formats of the two previous releases.

use super::*;

/// An SMF takes over such SM contexts in every format, also during a transaction.
#[test]
fn what_the_release_before_has_left_is_gone_on_with() {
    for format in [Format::Binary, Format::Json, Format::Protobuf] {
        for (manner, is_older) in [
            (UpdateMode::Replace, false),
            (UpdateMode::Update, false),
            (UpdateMode::DeleteCreate, false),
            (UpdateMode::Replace, true),
            (UpdateMode::Update, true),
        ] {
            let mut world = World::kept_as(format, manner);
            let path = world.active();
            world.upf_answers = false;
            let key = "1/left";
            let idle = SmContextUpdateData { up_cnx_state: Some(UpCnxState::Deactivated), ..Default::default() };
            world.call_as(&format!("{path}/modify"), Message::new(&idle), key);
            let session = world.session();
            assert!(!session.rests(), "the UPF is waited for");
            let codec = world.codec();
            let name = recovery::name(session.sm.pfcp.cp_seid.ltmsi());
            let records = world.records.as_mut().unwrap();
            let version = records.load(&[name]).unwrap()[0].as_ref().unwrap().version;
            let mut known = RecordBase::at(version);
            match is_older {
                true => codec.commit(records, name, &mut known, &session.before_switches()).unwrap(),
                false => codec.commit(records, name, &mut known, &session.before()).unwrap(),
            };
            world.restart();
            assert_eq!(world.session(), session, "{format:?} {manner:?}");
            world.upf_answers = true;
            world.upf();
            assert!(world.session().rests());
            world.state(&path, UpCnxState::Activating);
            world.restart();
        }
    }
}

/// Applies also to piggybacked SM contexts and record parts. Other versions are refused.
#[test]
fn octets_of_the_release_before_are_read_and_others_are_not() {
    let mut world = World::stored();
    world.active();
    let session = world.session();
    for format in [Format::Binary, Format::Json, Format::Protobuf] {
        let before = format.encode(&session.before()).unwrap();
        assert_eq!(Session::of_part(format, &before).as_deref(), Some(&session), "{format:?}");
        let before = format.encode(&session.before_switches()).unwrap();
        assert_eq!(Session::of_part(format, &before).as_deref(), Some(&session), "{format:?}");
    }
    let mut octets = postcard::to_stdvec(&session.before()).unwrap();
    assert_eq!(Session::decode(&octets).as_deref(), Some(&session));
    for other in [3, 7] {
        octets[0] = other;
        assert_eq!(Session::decode(&octets), None);
        let mut records = Memory::new();
        let name = recovery::name(session.sm.pfcp.cp_seid.ltmsi());
        records.change(&[(name, Change::Commit { expected: 0, octets: &octets })]).remove(0).unwrap();
        let looked = recovery::look(&mut records, (Codec::default(), StateScope::Function), 7);
        assert!(matches!(looked, Err(vireo_ops::database::DatabaseError::UnknownFormat)), "it is refused");
    }
}
