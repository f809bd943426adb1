//! Recovery of the cluster state by a controller without a store.
//!
//! Such a controller leaves no state, and its members may have received different maps. The next
//! controller adopts the newest map that a member presents and waits for the other members of that
//! map. It waits longer while most hosts are missing, because the present ones may have been
//! removed by a newer map. The first map that it makes has a much higher epoch, so that it is newer
//! than any that the previous controller sent to absent members.

use crate::placement::balance::map::BucketMap;
use vireo_types::{Duration, Instant};

/// Factor on the reconnect timeout: maximum wait for most hosts.
const MOST_HOSTS_WAIT_FACTOR: u64 = 5;
/// Number of epochs skipped after a controller whose last map is unknown: far more than it can have
/// made meanwhile.
const LEFT_OUT: u64 = 1 << 10;

/// Adopted map of a previous controller, until the first own map.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Succession {
    /// End of the wait for most hosts of the adopted map.
    deadline: Option<Instant>,
    /// True if the next map is the first one of this controller.
    leaps: bool,
}

impl Succession {
    /// Handles that a map was adopted from a member, the first one or a newer one.
    pub(super) fn on_map_adopted(&mut self, now: Instant, reconnect_timeout: Duration) {
        self.deadline.get_or_insert(now + Duration(reconnect_timeout.0 * MOST_HOSTS_WAIT_FACTOR));
        self.leaps = true;
    }

    /// Returns true if maps of members are still adopted.
    pub(super) fn is_on(&self) -> bool {
        self.deadline.is_some()
    }

    /// Returns the end of the wait for members: `else_until` if most hosts are present, else at
    /// least the end of the wait for most hosts.
    pub(super) fn until(&self, else_until: Instant, most_are_there: bool) -> Instant {
        self.deadline.filter(|_| !most_are_there).map_or(else_until, |deadline| deadline.max(else_until))
    }

    /// Ends the wait for members.
    pub(super) fn end_wait(&mut self) {
        self.deadline = None;
    }

    /// Returns the next map, with a higher epoch if it is the first one of this controller.
    pub(super) fn next(&mut self, buckets: BucketMap) -> BucketMap {
        if std::mem::take(&mut self.leaps) { buckets.advance_epoch(LEFT_OUT) } else { buckets }
    }
}
