//! Conformance suite of [`vireo_sctp::Endpoint`], run for every driver.

mod binding;
mod cases;
mod doomed;
mod multihoming;
mod peer;
#[allow(dead_code, reason = "the suite of hostile peers needs the rest")]
mod sys;
mod worlds;

/// Defines a test of each case for each driver.
///
/// Those of the kernel driver need a kernel with SCTP: `make test-kernel-sctp` provides one.
macro_rules! suite {
    ($($case:ident)*) => {
        suite!(@driver memory, [$($case)*]);
        suite!(@driver userspace_ip, [$($case)*]);
        suite!(@driver userspace_ipv6, [$($case)*]);
        suite!(@driver userspace_udp, [$($case)*]);
        suite!(@ignored kernel, [$($case)*]);
        suite!(@ignored kernel_ipv6, [$($case)*]);
    };
    (@driver $driver:ident, [$($case:ident)*]) => {
        suite!(@each $driver, (), [$($case)*]);
    };
    (@ignored $driver:ident, [$($case:ident)*]) => {
        suite!(@each $driver, (#[ignore = "make test-kernel-sctp"]), [$($case)*]);
    };
    (@each $driver:ident, $ignore:tt, [$($case:ident)*]) => {
        mod $driver {
            $(suite!(@test $driver, $ignore, $case);)*
        }
    };
    (@test $driver:ident, ($(#[$ignore:meta])?), $case:ident) => {
        #[test]
        $(#[$ignore])?
        fn $case() {
            super::cases::$case(&super::worlds::$driver());
        }
    };
}

suite! {
    connects_and_accepts
    streams_are_negotiated
    messages_of_every_size_arrive_whole_both_ways
    messages_out_of_bounds_are_refused
    each_stream_keeps_its_order
    several_peers_are_told_apart
    a_hundred_associations
    too_many_associations_are_refused
    a_full_buffer_says_so_and_then_that_it_is_not
    shutdown_delivers_what_is_queued
    abort_tells_both_sides_why
    dropping_an_endpoint_aborts
    a_connect_without_a_server_fails
    a_dead_peer_is_given_up
    what_a_dead_peer_has_not_acknowledged_is_given_back
    a_peer_that_comes_back_restarts_its_association
    an_idle_association_stays_up
    a_living_peer_answers_a_probe
    a_dead_peer_answers_no_probe
    a_second_association_with_the_same_ports_is_refused
    a_wake_ends_the_wait
    watched_descriptors_are_reported
    garbage_is_ignored
    another_endpoint_goes_on_with_what_is_handed_over
}
