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
    messages_of_every_size_arrive_whole
    messages_out_of_bounds_are_refused
    each_stream_keeps_its_order
    several_peers_are_distinct
    hundred_associations_are_served
    too_many_associations_are_refused
    full_buffer_reports_full_then_writable
    shutdown_delivers_queued_messages
    abort_reports_reason_to_both_sides
    dropping_an_endpoint_aborts
    connect_without_server_fails
    dead_peer_ends_association
    dead_peer_returns_unacknowledged
    restarted_peer_restarts_association
    idle_association_stays_up
    living_peer_answers_probe
    dead_peer_answers_no_probe
    second_association_with_same_ports_is_refused
    wake_ends_wait
    watched_descriptors_are_reported
    garbage_is_ignored
    adopted_endpoint_continues_associations
}
