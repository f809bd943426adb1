//! Rebalancing of users between the workers of a slice.
//!
//! Users migrate from the worker with the most packets to the one with the fewest, if the imbalance
//! persists. The choice of users ignores their traffic: with many users, a random subset carries
//! its share.

use crate::machine::tables_access::TablesAccess;
use crate::machine::user_migration::move_from;
use crate::machine::{SliceLoad, Upf};
use tracing::info;
use vireo_datapath::WorkerLoad;

/// Packet rate in 1/s below which a worker is never relieved: no processor is near its limit.
const BUSY: f64 = 20_000.0;
/// Maximum ratio of the highest to the lowest packet rate.
const UNEVEN: f64 = 1.25;
/// Number of consecutive imbalanced checks before users migrate.
const PERSISTENT: u32 = 2;
/// Maximum number of users that migrate in one check.
const MAX_MIGRATED_USERS: usize = 4096;
/// Maximum number of checks to pause when migrating users has no effect.
const MAX_PAUSE_CHECKS: u32 = 64;

/// Users to migrate from one worker to another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct UserMoves {
    from: u8,
    to: u8,
    users: usize,
}

/// Rebalancing state of a slice.
#[derive(Clone, Copy, Debug, Default)]
struct SliceLoadState {
    uneven: u32,
    /// Source and target of the last migration. If users would migrate back, one of them carries
    /// nearly all packets and no worker would benefit. The rebalancing then pauses, each time for
    /// longer.
    last: Option<(u8, u8)>,
    rest: u32,
    resting: u32,
}

/// Load of one worker.
#[derive(Clone, Copy, Debug)]
struct UserRate {
    worker: u8,
    /// Packets per second in both directions.
    rate: f64,
    users: usize,
}

impl SliceLoadState {
    /// Checks the load of each worker. Returns the migration to run, if any.
    fn check(&mut self, workers: &[UserRate]) -> Option<UserMoves> {
        self.resting = self.resting.saturating_sub(1);
        let by_rate = |a: &&UserRate, b: &&UserRate| a.rate.total_cmp(&b.rate);
        let &UserRate { worker: from, rate: most, users } = workers.iter().max_by(by_rate)?;
        let &UserRate { worker: to, rate: least, .. } = workers.iter().min_by(by_rate)?;
        if most < BUSY || most < least * UNEVEN {
            self.uneven = 0;
            if most >= BUSY {
                // the migration had an effect
                (self.last, self.rest) = (None, 0);
            }
            return None;
        }
        self.uneven += 1;
        if self.uneven < PERSISTENT || self.resting > 0 || users < 2 {
            return None;
        }
        self.rest = match self.last == Some((to, from)) {
            true => (self.rest * 2).clamp(PERSISTENT, MAX_PAUSE_CHECKS),
            false => 0,
        };
        (self.last, self.resting, self.uneven) = (Some((from, to)), self.rest, 0);
        let part = (most - least) / 2.0 / most;
        let users = ((users as f64 * part).ceil() as usize).clamp(1, MAX_MIGRATED_USERS.min(users - 1));
        Some(UserMoves { from, to, users })
    }
}

/// Rebalancing state of all slices.
#[derive(Debug, Default)]
pub(crate) struct Rebalance {
    watches: Vec<SliceLoadState>,
    /// Packets of each worker at the last check.
    packets: Vec<u64>,
}

impl Rebalance {
    /// Checks the work of the workers since the last check, `seconds` ago, and migrates users.
    /// `with` lends the state machine and the tables, for which other threads wait.
    pub(crate) fn check<P: TablesAccess>(
        &mut self,
        loads: &[WorkerLoad],
        seconds: f64,
        mut with: impl FnMut(&mut dyn FnMut(&mut Upf, &mut P)),
    ) {
        let packets: Vec<u64> = loads.iter().map(|load| load.uplink.packets + load.downlink.packets).collect();
        let before = std::mem::replace(&mut self.packets, packets);
        if before.len() != self.packets.len() || seconds <= 0.0 {
            return;
        }
        let rate = |worker: u8| {
            let at = usize::from(worker);
            let new = self.packets.get(at).zip(before.get(at)).map_or(0, |(now, before)| now.saturating_sub(*before));
            new as f64 / seconds
        };
        let mut slices: Vec<SliceLoad> = vec![];
        with(&mut |upf, _| slices = upf.slices.users_by_worker());
        self.watches.resize(slices.len(), SliceLoadState::default());
        let mut moved = 0;
        for (slice, watch) in slices.iter().zip(&mut self.watches) {
            let load = |&(worker, users): &(u8, usize)| UserRate { worker, rate: rate(worker), users };
            let workers: Vec<UserRate> = slice.workers.iter().map(load).collect();
            let Some(UserMoves { from, to, users }) = watch.check(&workers) else { continue };
            let (_, own) = move_from(from, users, &(to..to.saturating_add(1)), &mut with);
            info!(slice = slice.name, from, to, "{own} users migrated to a less loaded worker");
            moved += own;
        }
        if moved > 0 {
            with(&mut |upf, _| upf.slices.count_rebalanced(moved));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rates(workers: [(u8, f64, usize); 2]) -> [UserRate; 2] {
        workers.map(|(worker, rate, users)| UserRate { worker, rate, users })
    }

    #[test]
    fn users_move_when_it_is_uneven_for_longer() {
        let mut watch = SliceLoadState::default();
        let uneven = rates([(1, 100_000.0, 50), (2, 20_000.0, 50)]);
        assert_eq!(watch.check(&uneven), None, "once is none");
        assert_eq!(watch.check(&uneven), Some(UserMoves { from: 1, to: 2, users: 20 }), "two fifths of its packets");
        assert_eq!(watch.check(&rates([(1, 60_000.0, 30), (2, 58_000.0, 70)])), None);
        assert_eq!(watch.check(&uneven), None, "it has to be uneven for longer again");
        assert_eq!(watch.check(&rates([(1, 61_000.0, 30), (2, 50_000.0, 70)])), None, "not by much");
        assert_eq!(watch.check(&uneven), None);
    }

    #[test]
    fn idle_workers_and_single_users_are_not_moved() {
        for workers in [[(1, 19_000.0, 50), (2, 0.0, 50)], [(1, 90_000.0, 1), (2, 0.0, 50)]] {
            let mut watch = SliceLoadState::default();
            assert!((0..10).all(|_| watch.check(&rates(workers)).is_none()));
        }
        assert_eq!(SliceLoadState::default().check(&[]), None);
    }

    #[test]
    fn single_heavy_user_does_not_oscillate() {
        let mut watch = SliceLoadState::default();
        let mut at_first = true;
        let mut shifts = 0;
        for _ in 0..1000 {
            let workers = if at_first { [(1, 1e5, 10), (2, 1.0, 10)] } else { [(1, 1.0, 10), (2, 1e5, 10)] };
            if watch.check(&rates(workers)).is_some() {
                at_first = !at_first;
                shifts += 1;
            }
        }
        assert!((5..25).contains(&shifts), "{shifts} times in 1000 s");
    }
}
