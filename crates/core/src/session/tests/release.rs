use super::*;

/// PDU Session Release Request and Complete of PSI 5, PTI 7.
pub(super) const RELEASE: &str = "2e0507d1";
pub(super) const COMPLETE: &str = "2e0507d4";

#[test]
fn a_release_by_the_ue_ends_at_ran_and_upf_in_either_order() {
    for upf_first in [true, false] {
        let mut bench = Bench::active();
        assert_eq!(brief(&bench.n1(RELEASE)), "release/7#36 ReleaseCommand deletion-request");
        if upf_first {
            assert_eq!(bench.deleted(), []);
            assert_eq!(brief(&bench.n1(COMPLETE)), "free gone");
        } else {
            assert_eq!(bench.n1(COMPLETE), []);
            assert_eq!(brief(&bench.deleted()), "free gone");
        }
        assert_eq!(bench.sm, None);
    }
}

#[test]
fn a_deregistered_ue_leaves_nothing_and_hears_nothing() {
    for mut bench in [Bench::active(), Bench::inactive()] {
        assert_eq!(brief(&bench.step(Input::ReleaseLocally)), "deletion-request");
        assert_eq!(brief(&bench.deleted()), "free gone");
    }
}
