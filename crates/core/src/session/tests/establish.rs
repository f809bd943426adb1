use super::*;

#[test]
fn a_session_is_established_and_its_context_is_small() {
    let mut bench = Bench::new();
    assert_eq!(brief(&bench.create(REQUEST)), "establishment-request");
    assert_eq!(brief(&bench.established()), "accept/1 SetupRequest");
    assert_eq!(brief(&bench.ran_up(0x201)), "modification-request");
    assert_eq!(bench.modified(), [Output::Established]);
    assert_eq!(bench.sm().summary().state, SessionState::Active);
    assert_eq!(deadline(bench.sm()), None);
    let stored = postcard::to_stdvec(bench.sm()).expect("a context encodes");
    assert!(stored.len() <= 110, "{} octets", stored.len());
}
