//! Queue of changed subscriber records that this host has not delivered.

use std::collections::VecDeque;
use vireo_types::{Duration, Instant, Supi};

/// Interval at which changes are delivered.
pub(super) const INTERVAL: Duration = Duration::from_millis(10);
/// Time after which a change is delivered once more. A registration or a migration of a UE is
/// shorter.
pub(super) const REPEAT_DELAY: Duration = Duration::from_secs(10);
/// Maximum of changes that wait. Beyond it, all UEs are examined instead.
const MAX_WAITING_CHANGES: usize = 65_536;

/// A change that waits.
#[derive(Clone, Copy, Debug)]
pub(super) struct Change {
    pub(super) supi: Supi,
    pub(super) is_repeated: bool,
}

/// Examination of all UEs, because it is not known which records have changed.
#[derive(Clone, Copy, Debug)]
pub(super) struct Examination {
    /// First slot that is not examined.
    pub(super) slot: u32,
    pub(super) is_repeated: bool,
}

/// Changes that this host has not delivered.
#[derive(Debug, Default)]
pub(super) struct SubscriberChanges {
    pub(super) waiting: VecDeque<Change>,
    /// Changes that are delivered once more, with the time.
    pub(super) recent: VecDeque<(Instant, Supi)>,
    pub(super) examination: Option<Examination>,
    pub(super) next: Instant,
}

impl SubscriberChanges {
    /// Adds changes; `None` = of any subscriber.
    pub(super) fn add(&mut self, changes: Option<Vec<Supi>>, now: Instant) {
        let room = MAX_WAITING_CHANGES.saturating_sub(self.waiting.len() + self.recent.len());
        match changes.filter(|supis| 2 * supis.len() <= room) {
            Some(supis) => {
                self.waiting.extend(supis.iter().map(|supi| Change { supi: *supi, is_repeated: false }));
                self.recent.extend(supis.into_iter().map(|supi| (now + REPEAT_DELAY, supi)));
            }
            None => {
                self.waiting.clear();
                self.recent.clear();
                self.examine(false);
            }
        }
    }

    /// Has all UEs examined.
    pub(super) fn examine(&mut self, is_repeated: bool) {
        self.examination = Some(Examination { slot: 0, is_repeated });
    }

    /// Delivers recent changes at once: UEs of other hosts have migrated to this one.
    pub(super) fn repeat(&mut self) {
        if self.waiting.is_empty() {
            self.waiting.extend(self.recent.iter().map(|(_, supi)| Change { supi: *supi, is_repeated: false }));
        }
    }

    /// Returns the time of the next delivery, if there is anything to deliver.
    pub(super) fn due(&self) -> Option<Instant> {
        match self.waiting.is_empty() && self.examination.is_none() {
            true => self.recent.front().map(|(at, _)| (*at).max(self.next)),
            false => Some(self.next),
        }
    }

    /// Returns the number of changes that wait.
    pub(super) fn len(&self) -> usize {
        self.waiting.len() + self.recent.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn supi(n: u64) -> Supi {
        "999700000000000".parse::<Supi>().expect("an IMSI").offset(n).expect("an IMSI")
    }

    #[test]
    fn change_is_delivered_twice() {
        let mut changes = SubscriberChanges::default();
        let now = Instant(1_000_000);
        assert_eq!(changes.due(), None);
        changes.add(Some(vec![supi(1), supi(2)]), now);
        assert_eq!((changes.due(), changes.len()), (Some(Instant(0)), 4));
        changes.waiting.clear();
        assert_eq!(changes.due(), Some(now + REPEAT_DELAY));
        // A cluster map brings other UEs to this host.
        changes.repeat();
        assert_eq!((changes.waiting.len(), changes.recent.len()), (2, 2));
    }

    #[test]
    fn too_many_changes_examine_all_ues() {
        let mut changes = SubscriberChanges::default();
        let now = Instant(1_000_000);
        changes.add(Some((0..16_384).map(supi).collect()), now);
        changes.add(Some((0..16_384).map(supi).collect()), now);
        assert_eq!((changes.len(), changes.examination.is_none()), (MAX_WAITING_CHANGES, true));
        changes.add(Some(vec![supi(1)]), now);
        assert_eq!((changes.len(), changes.examination.map(|e| e.is_repeated)), (0, Some(false)));
        changes.add(None, now);
        assert!(changes.due().is_some());
    }
}
