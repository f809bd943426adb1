//! Tests of SM contexts in another format.

use super::*;

#[test]
fn session_of_other_format_is_refused() {
    let mut world = World::stored();
    world.active();
    let session = world.session();
    let mut octets = postcard::to_stdvec(&session).unwrap();
    assert_eq!(Session::decode(&octets).as_deref(), Some(&session));
    for other in [6, 8] {
        octets[0] = other;
        assert_eq!(Session::decode(&octets), None);
        let mut records = Memory::new();
        let name = storage::name(session.sm.pfcp.cp_seid.ltmsi());
        records.change(&[(name, Change::Commit { expected: 0, octets: &octets })]).remove(0).unwrap();
        let previous = recovery::load_previous(&mut records, (Codec::default(), StateScope::Function), 7);
        assert!(matches!(previous, Err(vireo_ops::database::DatabaseError::UnknownFormat)), "{other}");
    }
}
