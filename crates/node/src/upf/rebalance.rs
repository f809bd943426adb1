//! Rebalancing: users of a slice go from the worker that has most packets to the one that has fewest, when that is uneven for
//! longer. Which of its users carry most is not looked at: of many users some at random carry their part.

use super::slices::{SliceLoad, move_from};
use super::state::{TablesAccess, Upf};
use tracing::info;
use vireo_datapath::WorkerLoad;

/// Packets a second of a worker below which it is left alone: no processor is near its limit by them.
const BUSY: f64 = 20_000.0;
/// How many times as much the busiest may have as the idlest.
const UNEVEN: f64 = 1.25;
/// Looks in a row that find it uneven before users move.
const PERSISTENT: u32 = 2;
/// Users that move at one look.
const MOST: usize = 4096;
/// Looks that are waited at the most when moving users helps nothing.
const LONGEST_REST: u32 = 64;

/// Users that are to move from one worker to another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct UserMoves {
    from: u8,
    to: u8,
    users: usize,
}

/// What is known of a slice.
#[derive(Clone, Copy, Debug, Default)]
struct SliceLoadState {
    uneven: u32,
    /// Where users moved from and to last. If they are to go back, one of them carries nearly everything and no worker
    /// would be better off: then it is waited, each time for longer.
    last: Option<(u8, u8)>,
    rest: u32,
    resting: u32,
}

impl SliceLoadState {
    /// Looks at the packets a second and the users of each worker.
    fn look(&mut self, workers: &[(u8, f64, usize)]) -> Option<UserMoves> {
        self.resting = self.resting.saturating_sub(1);
        let by_rate = |a: &&(u8, f64, usize), b: &&(u8, f64, usize)| a.1.total_cmp(&b.1);
        let &(from, most, users) = workers.iter().max_by(by_rate)?;
        let &(to, least, _) = workers.iter().min_by(by_rate)?;
        if most < BUSY || most < least * UNEVEN {
            self.uneven = 0;
            if most >= BUSY {
                // it has helped
                (self.last, self.rest) = (None, 0);
            }
            return None;
        }
        self.uneven += 1;
        if self.uneven < PERSISTENT || self.resting > 0 || users < 2 {
            return None;
        }
        self.rest = match self.last == Some((to, from)) {
            true => (self.rest * 2).clamp(PERSISTENT, LONGEST_REST),
            false => 0,
        };
        (self.last, self.resting, self.uneven) = (Some((from, to)), self.rest, 0);
        let part = (most - least) / 2.0 / most;
        let users = ((users as f64 * part).ceil() as usize).clamp(1, MOST.min(users - 1));
        Some(UserMoves { from, to, users })
    }
}

/// All slices.
#[derive(Debug, Default)]
pub(super) struct Rebalance {
    watches: Vec<SliceLoadState>,
    /// Packets of each worker at the last look.
    packets: Vec<u64>,
}

impl Rebalance {
    /// Looks at what workers have handled since the last time, `seconds` ago, and moves users; `with` lends the state machine
    /// and the tables, for which others wait.
    pub(super) fn look<P: TablesAccess>(
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
            let workers: Vec<_> = slice.workers.iter().map(|(n, users)| (*n, rate(*n), *users)).collect();
            let Some(UserMoves { from, to, users }) = watch.look(&workers) else { continue };
            let (_, own) = move_from(from, users, &(to..to.saturating_add(1)), &mut with);
            info!(slice = slice.name, from, to, "{own} users are handled by another worker now: theirs had more to do");
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

    #[test]
    fn users_move_when_it_is_uneven_for_longer() {
        let mut watch = SliceLoadState::default();
        let uneven = [(1, 100_000.0, 50), (2, 20_000.0, 50)];
        assert_eq!(watch.look(&uneven), None, "once is none");
        assert_eq!(watch.look(&uneven), Some(UserMoves { from: 1, to: 2, users: 20 }), "two fifths of its packets");
        assert_eq!(watch.look(&[(1, 60_000.0, 30), (2, 58_000.0, 70)]), None);
        assert_eq!(watch.look(&uneven), None, "it has to be uneven for longer again");
        assert_eq!(watch.look(&[(1, 61_000.0, 30), (2, 50_000.0, 70)]), None, "not by much");
        assert_eq!(watch.look(&uneven), None);
    }

    #[test]
    fn workers_with_little_to_do_and_single_users_stay_as_they_are() {
        for workers in [[(1, 19_000.0, 50), (2, 0.0, 50)], [(1, 90_000.0, 1), (2, 0.0, 50)]] {
            let mut watch = SliceLoadState::default();
            assert!((0..10).all(|_| watch.look(&workers).is_none()));
        }
        assert_eq!(SliceLoadState::default().look(&[]), None);
    }

    #[test]
    fn one_user_who_carries_everything_does_not_go_to_and_fro_for_ever() {
        let mut watch = SliceLoadState::default();
        let mut at_first = true;
        let mut shifts = 0;
        for _ in 0..1000 {
            let workers = if at_first { [(1, 1e5, 10), (2, 1.0, 10)] } else { [(1, 1.0, 10), (2, 1e5, 10)] };
            if watch.look(&workers).is_some() {
                at_first = !at_first;
                shifts += 1;
            }
        }
        assert!((5..25).contains(&shifts), "{shifts} times in 1000 s");
    }
}
