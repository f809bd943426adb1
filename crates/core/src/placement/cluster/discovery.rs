//! What a new controller waits for: members of an existing cluster, and their reconnection.

use super::succession::Succession;
use vireo_types::Instant;

/// Waits of a controller for members that know a cluster or must reconnect.
#[derive(Clone, Debug)]
pub(super) struct Discovery {
    /// End of the period in which no member is declared dead, because members must reconnect.
    pub(super) reconnect_until: Instant,
    /// True if that period ends early when all members are connected.
    pub(super) ends_early: bool,
    /// End of the period in which the controller may discover an existing cluster. It answers no
    /// join before.
    pub(super) listen_until: Option<Instant>,
    pub(super) succession: Succession,
    /// True if another cluster exists that this controller does not know.
    pub(super) missed_cluster: bool,
}

impl Discovery {
    /// Returns the waits of a controller that starts now and knows no cluster.
    pub(super) fn new(now: Instant, listen_until: Instant) -> Self {
        Discovery {
            reconnect_until: now,
            ends_early: true,
            listen_until: Some(listen_until),
            succession: Succession::default(),
            missed_cluster: false,
        }
    }
}
