//! Insertion of UEs: the search of a worker for a free slot.
//!
//! A worker keeps the slots that it has freed itself in a list and reuses the oldest of them first.
//! Other slots are found by a search that goes round. At most one whole round without a free slot
//! is made; after it the search checks a few slots for each insertion. So an insertion into a full
//! region fails at once. Slots that other workers free are then found late.
//!
//! The list belongs to the process. The slots in the list of a killed worker are left to the search
//! of the other workers.

use super::identity::{InsertError, insert_error};
use super::layout::{H_USED, Key};
use super::mem::Ordering;
use super::slots::S_ID;
use super::{Region, Slot, Worker};
use vireo_types::Ltmsi;

/// Freed slots that one insertion checks. A slot that a worker still processes is not reused.
const MAX_FREED_CHECKED: usize = 8;
/// Slots that one insertion checks after a round without a free slot.
const MAX_CHECKED: usize = 64;

impl Region {
    /// Returns the number of slots with a UE, with or without a commit record.
    ///
    /// A worker killed during an insertion makes it wrong by one until [`Region::rebuild`].
    pub fn slots_taken(&self) -> usize {
        self.word(H_USED).load(Ordering::Relaxed) as usize
    }

    fn count_used(&self) {
        self.word(H_USED).fetch_add(1, Ordering::Relaxed);
    }

    /// Counts a slot as free.
    pub(super) fn count_free(&self) {
        self.word(H_USED).fetch_add(u64::MAX, Ordering::Relaxed);
    }

    /// Counts the used slots again and returns the error of the previous count.
    ///
    /// Slots that workers take or free meanwhile may be counted wrongly. A caller that needs the
    /// exact number must keep all other processes from using the region.
    pub fn recount(&self) -> usize {
        let before = self.word(H_USED).load(Ordering::Relaxed);
        let (used, _) = self.slots_used(self.slot_count());
        self.word(H_USED).fetch_add((used as u64).wrapping_sub(before), Ordering::Relaxed);
        before.abs_diff(used as u64) as usize
    }
}

impl Worker {
    /// Returns the slot of a UE, or takes a free slot for it, which has no commit record yet.
    ///
    /// In a full region it fails at once.
    ///
    /// # Errors
    ///
    /// Returns an error if there is no room.
    pub fn insert(&mut self, ltmsi: Ltmsi) -> Result<Slot, InsertError> {
        if let Some(slot) = self.region.slot_of(ltmsi) {
            return Ok(slot);
        }
        let slot = self.occupy(ltmsi).ok_or(InsertError::Full)?;
        self.region.insert_identifier(Key::Ltmsi, u64::from(ltmsi.get()), slot).map(|()| Slot(slot)).or_else(|error| {
            self.region.word(self.region.slot(slot, S_ID)).store(0, Ordering::Release);
            self.region.count_free();
            self.vacant.on_freed(slot);
            match insert_error(error) {
                InsertError::InUse(slot) => Ok(slot),
                full => Err(full),
            }
        })
    }

    /// Takes the guest slot of this index for a UE of another host; `None` if it is in use.
    pub fn insert_guest(&mut self, guest: u32, ltmsi: Ltmsi) -> Option<Slot> {
        let slot = self.region.lay.own_slots as u32 + guest;
        let is_guest = guest < self.region.config.guests;
        (is_guest && self.try_occupy(slot, ltmsi)).then_some(Slot(slot))
    }

    /// Takes a free slot for a UE.
    fn occupy(&mut self, ltmsi: Ltmsi) -> Option<u32> {
        for _ in 0..MAX_FREED_CHECKED.min(self.vacant.freed.len()) {
            let slot = self.vacant.freed.pop_front()?;
            if self.try_occupy(slot, ltmsi) {
                return Some(slot);
            }
            if self.region.word(self.region.slot(slot, S_ID)).load(Ordering::Relaxed) == 0 {
                self.vacant.freed.push_back(slot);
            }
        }
        let count = self.region.lay.own_slots;
        for _ in 0..if self.vacant.searched { MAX_CHECKED.min(count) } else { count } {
            let slot = self.vacant.cursor;
            self.vacant.cursor = (slot + 1) % count as u32;
            if self.try_occupy(slot, ltmsi) {
                return Some(slot);
            }
        }
        self.vacant.searched = true;
        None
    }

    fn try_occupy(&self, slot: u32, ltmsi: Ltmsi) -> bool {
        let id = u64::from(self.number) << 32 | u64::from(ltmsi.get() + 1);
        let word = self.region.word(self.region.slot(slot, S_ID));
        // A slot that a worker still processes is not taken: the packets in its mailbox are for the
        // previous UE.
        let free = word.load(Ordering::Relaxed) == 0 && self.region.is_idle(slot);
        let done = free && word.compare_exchange(0, id, Ordering::AcqRel, Ordering::Relaxed).is_ok();
        if done {
            self.region.count_used();
        }
        done
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use crate::region::crash_points::reads;
    use crate::region::layout::H_USED;
    use crate::region::mem::Ordering;
    use crate::region::{CommitRecord, InsertError, Region, RegionConfig, Slot, Snapshot, Worker};
    use vireo_types::Ltmsi;

    /// Maximum number of words that one insertion may read, whatever the size of the region.
    const FEW: u64 = 400;

    fn ltmsi(n: u32) -> Ltmsi {
        Ltmsi::from_raw(n)
    }

    fn insert(worker: &mut Worker, n: u32) -> Slot {
        let (slot, mut seen) = (worker.insert(ltmsi(n)).unwrap(), Snapshot::default());
        worker.region().read(slot, &mut seen);
        let _ = worker.commit(slot, &seen, &CommitRecord::default()).unwrap();
        slot
    }

    fn remove(worker: &mut Worker, slot: Slot) {
        let mut seen = Snapshot::default();
        assert!(worker.region().read(slot, &mut seen));
        worker.remove(slot, &seen).unwrap();
    }

    fn full(ues: u32) -> (Region, Worker, Vec<Slot>) {
        let region = Region::create(RegionConfig::new(ues, 2, 64 << 20)).unwrap();
        let mut worker = region.join(0).unwrap();
        let slots = (0..region.slot_count()).map(|n| insert(&mut worker, n)).collect();
        assert_eq!(worker.insert(ltmsi(1 << 20)), Err(InsertError::Full));
        (region, worker, slots)
    }

    #[test]
    fn insertion_into_a_full_region_fails_at_once() {
        let (region, mut worker, slots) = full(20_000);
        for n in 0..100 {
            let most = reads(|| assert_eq!(worker.insert(ltmsi((1 << 20) + n)), Err(InsertError::Full)));
            assert!(most <= FEW, "{most} words were read to find no slot");
        }
        assert_eq!(region.slots_taken(), slots.len());
        // In a full region, an insertion after a removal finds the freed slot, wherever it is.
        for n in 0..100 {
            remove(&mut worker, slots[n * 7]);
            let ltmsi = ltmsi((1 << 20) + n as u32);
            let most = reads(|| assert_eq!(worker.insert(ltmsi), Ok(slots[n * 7])));
            assert!(most <= FEW, "{most} words were read to find the only slot");
        }
    }

    #[test]
    fn slots_freed_by_other_worker_are_found() {
        let (region, mut worker, slots) = full(2000);
        let mut other = region.join(1).unwrap();
        for slot in &slots[500..1500] {
            remove(&mut other, *slot);
        }
        assert_eq!(region.slots_taken(), slots.len() - 1000);
        let mut missed = 0;
        for n in 0..1000 {
            while let Err(error) = worker.insert(ltmsi((1 << 20) + n)) {
                assert_eq!(error, InsertError::Full);
                missed += 1;
            }
        }
        assert!(missed < 100, "{missed} times none was found");
        assert_eq!((region.slots_taken(), worker.insert(ltmsi(0))), (slots.len(), Ok(slots[0])));
    }

    #[test]
    fn damaged_number_of_slots_is_counted_anew() {
        let (region, mut worker, slots) = full(100);
        for wrong in [0, 7, u64::MAX, 4_415_226_380_512] {
            region.word(H_USED).store(wrong, Ordering::Relaxed);
            assert_eq!(region.recount() as u64, wrong.abs_diff(slots.len() as u64));
            assert_eq!((region.slots_taken(), region.recount()), (slots.len(), 0));
        }
        remove(&mut worker, slots[0]);
        assert_eq!(region.slots_taken(), slots.len() - 1);
    }

    #[test]
    fn oldest_slot_freed_is_used_first() {
        let region = Region::create(RegionConfig::new(100, 1, 64 << 20)).unwrap();
        let mut worker = region.join(0).unwrap();
        let slots: Vec<Slot> = (0..10).map(|n| insert(&mut worker, n)).collect();
        let turned_away = worker.insert(ltmsi(99)).unwrap();
        remove(&mut worker, slots[4]);
        assert!(worker.abandon(turned_away));
        remove(&mut worker, slots[2]);
        let again: Vec<Slot> = (20..23).map(|n| insert(&mut worker, n)).collect();
        assert_eq!(again, [slots[4], turned_away, slots[2]], "memory that was never used stays so");
        assert_eq!(region.slots_taken(), 11);
    }

    #[test]
    fn no_index_or_sweep_leads_to_guests() {
        let config = RegionConfig { guests: 2, ..RegionConfig::new(4, 1, 64 << 20) };
        let region = Region::create(config).unwrap();
        let mut worker = region.join(0).unwrap();
        let guest = worker.insert_guest(1, ltmsi(7)).unwrap();
        let _ = worker.commit(guest, &Snapshot::default(), &CommitRecord::default()).unwrap();
        assert!(region.is_guest(guest) && region.guest_index(guest) == Some(1));
        assert_eq!(worker.insert_guest(1, ltmsi(8)), None, "it is in use");
        assert_eq!(worker.insert_guest(2, ltmsi(8)), None, "there are two");
        assert_eq!((region.slot_of(ltmsi(7)), region.ltmsi_of(guest)), (None, Some(ltmsi(7))));
        // The UE may become an own one meanwhile.
        let own = insert(&mut worker, 7);
        region.rebuild().unwrap();
        assert_eq!((region.slots().collect::<Vec<_>>(), region.slot_of(ltmsi(7))), (vec![own], Some(own)));
        remove(&mut worker, guest);
        assert_eq!(region.slot_of(ltmsi(7)), Some(own));
        // A freed guest slot is no slot for an own UE.
        let all = (0..).map_while(|n| worker.insert(ltmsi(100 + n)).ok());
        assert!(all.into_iter().all(|slot| !region.is_guest(slot)));
        assert!(worker.insert_guest(1, ltmsi(9)).is_some());
    }

    #[test]
    fn busy_slot_is_not_reclaimed() {
        let region = Region::create(RegionConfig::new(100, 2, 64 << 20)).unwrap();
        let (mut host, mut worker) = (region.join(0).unwrap(), region.join(1).unwrap());
        let slot = insert(&mut host, 1);
        let packet = host.packet(1, b"event").unwrap();
        let _ = region.post(&host, slot, packet, 1).unwrap();
        remove(&mut host, slot);
        let other = host.insert(ltmsi(2)).unwrap();
        assert_ne!(other, slot);
        assert!(region.next(&worker, slot).is_some() && worker.finish(slot).is_none());
        assert_eq!(host.insert(ltmsi(3)), Ok(slot));
    }
}
