//! What a controller without a memory learns of a cluster from its members.
//!
//! Nothing outlives a controller that keeps nothing, and its members may have been told different maps. The next controller
//! takes the newest map that a member brings, and waits for the others of that map: for longer as long as it has not heard most
//! of its hosts, because the few that it has heard may have been left out of a newer map. The first map that it makes is of an
//! epoch far beyond, so that it is newer than one which the controller before has told to members that are not there.

use crate::balance::map::BucketMap;
use vireo_types::{Duration, Instant};

/// How long most hosts are waited for: the time in which members are waited for, times this.
const MOST_WITHIN: u64 = 5;
/// Epochs that are left out after a controller of which not all is known: far more than it has made in between.
const LEFT_OUT: u64 = 1 << 10;

/// What was learned, and what that means until the next map.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Succession {
    /// Until when most hosts of the map that was learned are waited for.
    until: Option<Instant>,
    /// The next map is the first one of this controller.
    leaps: bool,
}

impl Succession {
    /// A map was learned from a member, whether it is the first one or not.
    pub(super) fn learned(&mut self, now: Instant, patience: Duration) {
        self.until.get_or_insert(now + Duration(patience.0 * MOST_WITHIN));
        self.leaps = true;
    }

    /// Returns true if maps of members count as what is to be gone on from.
    pub(super) fn is_on(&self) -> bool {
        self.until.is_some()
    }

    /// Until when members are waited for who are waited for until `else_until` where most hosts are there.
    pub(super) fn until(&self, else_until: Instant, most_are_there: bool) -> Instant {
        self.until.filter(|_| !most_are_there).map_or(else_until, |until| until.max(else_until))
    }

    /// Nobody is waited for any more.
    pub(super) fn is_over(&mut self) {
        self.until = None;
    }

    /// The next map, of which this is to be.
    pub(super) fn next(&mut self, buckets: BucketMap) -> BucketMap {
        if std::mem::take(&mut self.leaps) { buckets.later(LEFT_OUT) } else { buckets }
    }
}
