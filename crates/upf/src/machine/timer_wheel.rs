//! Timer wheel for time-based actions of sessions, with slots of one second.

/// Number of slots, hence the maximum delay in seconds. A later timer is set to the last slot and
/// armed again when it fires.
const SLOTS: usize = 4096;

/// Sessions by the second in which their timer fires.
///
/// Each session stores the second of its valid timer ([`TimerDue`]). Arming an earlier timer adds
/// an entry; arming a later one changes nothing. Entries that do not match are skipped.
#[derive(Debug)]
pub(crate) struct TimerWheel {
    slots: Vec<Vec<u64>>,
    /// The next second to process; 0 before the first use.
    next: u64,
    /// Unprocessed entries of the previous seconds.
    overdue: Vec<u64>,
}

/// Second in which a session's timer fires, by the datapath's clock; 0 = never.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct TimerDue(u64);

impl TimerWheel {
    pub(crate) fn new() -> Self {
        TimerWheel { slots: vec![vec![]; SLOTS], next: 0, overdue: vec![] }
    }

    /// Arms the timer of a session, to fire in `after` seconds but at least 1. `now` is in seconds
    /// of the datapath's clock.
    pub(crate) fn arm(&mut self, session: u64, timer: &mut TimerDue, now: u64, after: u32) {
        self.begin(now);
        let at = now.max(self.next - 1) + u64::from(after).clamp(1, SLOTS as u64 - 1);
        if timer.0 == 0 || at < timer.0 {
            timer.0 = at;
            self.slots[at as usize % SLOTS].push(session);
        }
    }

    /// Returns true if entries of past seconds are unprocessed.
    pub(crate) fn is_behind(&self) -> bool {
        !self.overdue.is_empty()
    }

    fn begin(&mut self, now: u64) {
        if self.next == 0 {
            self.next = now + 1;
        }
    }

    /// Returns a session whose timer has fired. `timer` returns the [`TimerDue`] of a session,
    /// which the caller must then reset ([`TimerDue::default`]). At most `entries` entries are
    /// processed; their number is subtracted from it.
    pub(crate) fn take(
        &mut self,
        now: u64,
        entries: &mut usize,
        timer: impl Fn(u64) -> Option<TimerDue>,
    ) -> Option<u64> {
        self.begin(now);
        loop {
            while *entries > 0
                && let Some(session) = self.overdue.pop()
            {
                *entries -= 1;
                // due in the past or now; later timers of the same session lie in other slots
                if timer(session).is_some_and(|timer| timer.0 != 0 && timer.0 < self.next) {
                    return Some(session);
                }
            }
            if *entries == 0 || self.next > now {
                return None;
            }
            let slot = self.next as usize % SLOTS;
            // `overdue` is empty; the memory of a burst is freed
            std::mem::swap(&mut self.overdue, &mut self.slots[slot]);
            self.slots[slot].shrink_to(64);
            self.next += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashMap;

    /// Returns the timers that fire second by second from `from` to `to`.
    fn run(timers: &mut TimerWheel, known: &mut HashMap<u64, TimerDue>, from: u64, to: u64) -> Vec<(u64, u64)> {
        let mut all = vec![];
        for now in from..=to {
            while let Some(session) = timers.take(now, &mut usize::MAX.clone(), |n| known.get(&n).copied()) {
                known.insert(session, TimerDue::default());
                all.push((now, session));
            }
        }
        all
    }

    #[test]
    fn timer_fires_once_and_in_its_second() {
        let (mut timers, mut known) = (TimerWheel::new(), HashMap::new());
        for (session, after) in [(1, 5), (2, 0), (3, 5), (4, 100_000)] {
            let mut timer = TimerDue::default();
            timers.arm(session, &mut timer, 1_000, after);
            known.insert(session, timer);
        }
        // an earlier timer replaces the first, a later one does not
        timers.arm(1, known.get_mut(&1).expect("there"), 1_000, 3);
        timers.arm(1, known.get_mut(&1).expect("there"), 1_000, 9);
        known.remove(&3);
        let last = 1_000 + SLOTS as u64 - 1;
        assert_eq!(run(&mut timers, &mut known, 1_000, 6_000), [(1_001, 2), (1_003, 1), (last, 4)]);
        assert!(timers.slots.iter().all(Vec::is_empty), "nothing is left behind");
    }

    #[test]
    fn obsolete_entries_are_skipped_in_portions() {
        let mut timers = TimerWheel::new();
        for session in 1..=10 {
            timers.arm(session, &mut TimerDue::default(), 50, 1);
        }
        let (mut turns, mut seen) = (0, 0);
        let of_last = |session: u64| (session == 1).then_some(TimerDue(51));
        while seen == 0 {
            let mut entries = 3;
            seen += usize::from(timers.take(51, &mut entries, of_last).is_some());
            turns += 1;
            assert!(seen == 1 || (entries == 0 && timers.is_behind()));
        }
        assert_eq!((turns, timers.is_behind()), (4, false), "nine are of sessions that are gone");
    }

    #[test]
    fn missed_seconds_are_processed_later() {
        let (mut timers, mut known) = (TimerWheel::new(), HashMap::new());
        for session in 1..=9 {
            let mut timer = TimerDue::default();
            timers.arm(session, &mut timer, 50, session as u32);
            known.insert(session, timer);
        }
        assert_eq!(run(&mut timers, &mut known, 20_000, 20_000).len(), 9);
        let mut timer = TimerDue::default();
        timers.arm(1, &mut timer, 20_000, 1);
        known.insert(1, timer);
        assert_eq!(run(&mut timers, &mut known, 20_000, 20_005), [(20_001, 1)]);
    }
}
