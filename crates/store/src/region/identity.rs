//! Identifiers of a UE in its slot: LTMSIs, 5G-TMSIs, SUPI and RAN id.
//!
//! Every identifier in an index is also stored in the slot. So freeing a slot removes all its index
//! entries, and the indexes can be rebuilt.
//!
//! A slot has an LTMSI of its own and up to three aliases: a UE gets another LTMSI without moving.
//! The holder of the UE adds aliases. One other process may rename the UE and drop aliases
//! meanwhile. A process killed in between leaves at worst an alias that is not in the index or not
//! in use. [`Region::aliases`] lists it and [`Region::drop_alias`] removes it.

use super::layout::Key;
use super::mem::{AtomicU64, Ordering};
use super::slots::{LEAVING, S_ID};
use super::{Region, Slot, halves, index, joined};
use vireo_types::Ltmsi;

const S_SUPI: usize = 4;
const S_RAN: usize = 5;
/// Two 5G-TMSIs, inverted: all ones is no TMSI (TS 23.003 2.4), so 0 is none.
const S_TMSI: usize = 6;
/// The aliases, 1 + LTMSI each. There is one word more than the maximum of aliases: a rename needs
/// it.
const S_ALIASES: [usize; 4] = [8, 9, 10, 11];
/// Maximum number of aliases of a slot.
const MAX_ALIASES: usize = S_ALIASES.len() - 1;
/// Flag of the old own LTMSI of a slot during a rename.
const RENAMING: u64 = 1 << 32;

/// Reason that a UE or an identifier was not entered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InsertError {
    /// The identifier refers to this other slot.
    #[error("the identifier leads to another UE")]
    InUse(Slot),
    /// The index or the slot table is full.
    #[error("the state region is full; raise state.ues")]
    Full,
    /// The slot already has the maximum of three aliases.
    #[error("the UE has too many LTMSIs; drop those that it does not use any more")]
    Aliases,
}

pub(super) fn insert_error(taken: index::IdentifierTaken) -> InsertError {
    match taken {
        index::IdentifierTaken::By(slot) => InsertError::InUse(Slot(slot)),
        index::IdentifierTaken::Full => InsertError::Full,
    }
}

impl Region {
    /// Returns true if a slot has this identifier.
    pub(super) fn holds(&self, key: Key, value: u64, slot: u32) -> bool {
        if slot as usize >= self.lay.slot_count {
            return false;
        }
        match key {
            Key::Ltmsi | Key::Tmsi => true,
            Key::Supi => self.word(self.slot(slot, S_SUPI)).load(Ordering::Acquire) == value.wrapping_add(1),
            Key::Ran => self.word(self.slot(slot, S_RAN)).load(Ordering::Acquire) == value.wrapping_add(1),
        }
    }

    /// Returns the slot of a UE, by its own LTMSI or an alias.
    #[inline]
    pub fn slot_of(&self, ltmsi: Ltmsi) -> Option<Slot> {
        self.find(Key::Ltmsi, u64::from(ltmsi.get())).map(Slot)
    }

    /// Returns the own LTMSI of a slot's UE.
    ///
    /// Returns `None` as soon as a worker begins to remove the commit record. A worker that finds
    /// no record and then gets an LTMSI from this function may fill the slot.
    pub fn ltmsi_of(&self, slot: Slot) -> Option<Ltmsi> {
        let id = self.word(self.slot(slot.0, S_ID)).load(Ordering::Acquire);
        (id as u32).checked_sub(1).filter(|_| id & LEAVING == 0).map(Ltmsi::from_raw)
    }

    /// Returns 1 + the own LTMSI of a slot; 0 if it has none.
    fn own_ltmsi(&self, slot: u32) -> u32 {
        self.word(self.slot(slot, S_ID)).load(Ordering::Acquire) as u32
    }

    /// Returns the slot of an identifier.
    pub fn lookup(&self, key: Key, value: u64) -> Option<Slot> {
        self.find(key, value).map(Slot)
    }

    /// Enters an identifier of a UE, which then refers to the slot of the UE.
    ///
    /// A UE has one SUPI and one RAN id; a new one replaces the old one. An LTMSI becomes an alias.
    ///
    /// # Errors
    ///
    /// Returns an error if the identifier refers to another slot, or there is no room.
    pub fn bind(&self, slot: Slot, key: Key, value: u64) -> Result<(), InsertError> {
        let word = match key {
            Key::Ltmsi => return self.alias(slot, Ltmsi::from_raw(value as u32)),
            Key::Tmsi => return self.bind_tmsi(slot.0, value as u32),
            Key::Supi => self.slot(slot.0, S_SUPI),
            Key::Ran => self.slot(slot.0, S_RAN),
        };
        let before = self.word(word).load(Ordering::Acquire);
        if before != 0 && before != value.wrapping_add(1) {
            self.remove_identifier(key, before.wrapping_sub(1), slot.0);
        }
        // The slot is written first: every identifier in the index must also be in the slot.
        self.word(word).store(value.wrapping_add(1), Ordering::SeqCst);
        self.insert_identifier(key, value, slot.0).map_err(|error| {
            self.word(word).store(0, Ordering::Release);
            insert_error(error)
        })
    }

    /// Enters an identifier as [`Region::bind`] does, and takes it from another slot that has it.
    ///
    /// Returns that other slot, whose UE loses the identifier. (A gNB assigns a RAN UE NGAP ID to
    /// another UE when it has lost the first: TS 38.413 9.3.3.2.)
    ///
    /// # Errors
    ///
    /// Returns an error if there is no room, or the identifier is the own LTMSI of another slot.
    pub fn bind_over(&self, slot: Slot, key: Key, value: u64) -> Result<Option<Slot>, InsertError> {
        let mut from = None;
        loop {
            match self.bind(slot, key, value) {
                Ok(()) => return Ok(from),
                // The own LTMSI of a slot is needed to free the slot, so it cannot be taken away.
                Err(InsertError::InUse(other))
                    if key == Key::Ltmsi && u64::from(self.own_ltmsi(other.0)) == value + 1 =>
                {
                    return Err(InsertError::InUse(other));
                }
                Err(InsertError::InUse(other)) => {
                    self.unbind(other, key, value);
                    // Also if that slot does not contain the identifier, a state that no correct
                    // worker leaves.
                    self.remove_identifier(key, value, other.0);
                    from = Some(other);
                }
                Err(error) => return Err(error),
            }
        }
    }

    fn bind_tmsi(&self, slot: u32, tmsi: u32) -> Result<(), InsertError> {
        let word = self.word(self.slot(slot, S_TMSI));
        let (old, new) = halves(word.load(Ordering::Acquire));
        if old != !tmsi && new != !tmsi {
            if old != 0 {
                self.remove_identifier(Key::Tmsi, u64::from(!old), slot);
            }
            word.store(joined(new, !tmsi), Ordering::SeqCst);
        }
        self.insert_identifier(Key::Tmsi, u64::from(tmsi), slot).map_err(|error| {
            self.forget_tmsi(slot, tmsi);
            insert_error(error)
        })
    }

    fn forget_tmsi(&self, slot: u32, tmsi: u32) {
        let word = self.word(self.slot(slot, S_TMSI));
        let (old, new) = halves(word.load(Ordering::Acquire));
        let without = |half: u32| if half == !tmsi { 0 } else { half };
        word.store(joined(without(old), without(new)), Ordering::Release);
    }

    /// Removes an identifier of a UE. Its own LTMSI stays.
    pub fn unbind(&self, slot: Slot, key: Key, value: u64) {
        if key == Key::Ltmsi {
            self.drop_alias(slot, Ltmsi::from_raw(value as u32));
            return;
        }
        self.remove_identifier(key, value, slot.0);
        let word = match key {
            Key::Supi => self.slot(slot.0, S_SUPI),
            Key::Ran => self.slot(slot.0, S_RAN),
            Key::Tmsi | Key::Ltmsi => return self.forget_tmsi(slot.0, value as u32),
        };
        // Fails if the slot has another identifier meanwhile, which must stay.
        let _ = self.word(word).compare_exchange(value.wrapping_add(1), 0, Ordering::AcqRel, Ordering::Relaxed);
    }

    /// Adds an alias: a second LTMSI that refers to the slot. [`Region::ltmsi_of`] does not change.
    ///
    /// A UE that gets another LTMSI has both until its new context is committed.
    ///
    /// # Errors
    ///
    /// Returns an error if the LTMSI refers to another slot, the slot has three aliases, or there
    /// is no room.
    pub fn alias(&self, slot: Slot, ltmsi: Ltmsi) -> Result<(), InsertError> {
        let value = u64::from(ltmsi.get()) + 1;
        let place = loop {
            let noted = self.alias_words(slot.0).map(|word| (word, word.load(Ordering::Acquire)));
            // Read after the alias words: an alias equal to the slot's own LTMSI is left over from
            // a rename and free.
            let own = u64::from(self.own_ltmsi(slot.0));
            if value == own {
                return Ok(());
            }
            // A worker killed before the index update may have left this alias.
            if let Some((word, _)) = noted.iter().find(|(_, now)| *now == value) {
                break *word;
            }
            let others = noted.iter().filter(|(_, now)| *now as u32 != 0 && u64::from(*now as u32) != own).count();
            let free = noted.iter().find(|(_, now)| *now == 0 || *now == own);
            let (word, now) = free.filter(|_| others < MAX_ALIASES).ok_or(InsertError::Aliases)?;
            // The slot is written first: every identifier in the index must also be in the slot.
            if word.compare_exchange(*now, value, Ordering::AcqRel, Ordering::Relaxed).is_ok() {
                break *word;
            }
        };
        self.insert_identifier(Key::Ltmsi, value - 1, slot.0).map_err(|error| {
            let _ = place.compare_exchange(value, 0, Ordering::AcqRel, Ordering::Relaxed);
            insert_error(error)
        })
    }

    fn alias_words(&self, slot: u32) -> [&AtomicU64; 4] {
        S_ALIASES.map(|word| self.word(self.slot(slot, word)))
    }

    /// Returns the aliases of a slot, without its own LTMSI.
    pub fn aliases(&self, slot: Slot) -> impl Iterator<Item = Ltmsi> + use<> {
        let own = self.own_ltmsi(slot.0);
        let words = self.alias_words(slot.0).map(|word| word.load(Ordering::Acquire) as u32);
        words
            .into_iter()
            .filter(move |value| *value != own)
            .filter_map(|value| value.checked_sub(1).map(Ltmsi::from_raw))
    }

    /// Removes an alias of a slot. Returns false if the slot does not have it.
    pub fn drop_alias(&self, slot: Slot, ltmsi: Ltmsi) -> bool {
        let value = ltmsi.get() + 1;
        let was = self.aliases(slot).any(|alias| alias == ltmsi);
        if was {
            self.remove_identifier(Key::Ltmsi, u64::from(ltmsi.get()), slot.0);
        }
        self.forget_alias(slot.0, value);
        was
    }

    fn forget_alias(&self, slot: u32, value: u32) {
        for (word, note) in self.alias_words(slot).into_iter().flat_map(|word| [(word, 0), (word, RENAMING)]) {
            // Fails if the word holds another alias meanwhile.
            let _ = word.compare_exchange(note | u64::from(value), 0, Ordering::AcqRel, Ordering::Relaxed);
        }
    }

    /// Makes an alias the slot's own LTMSI; the old own LTMSI becomes an alias.
    ///
    /// Returns false if the slot does not have the alias. Only one process at a time may rename or
    /// drop. The holder of the UE may add an alias meanwhile.
    pub fn rename(&self, slot: Slot, ltmsi: Ltmsi) -> bool {
        let (own, value) = (self.own_ltmsi(slot.0), ltmsi.get() + 1);
        if own == value {
            return true;
        }
        if own == 0 || !self.aliases(slot).any(|alias| alias == ltmsi) {
            return false;
        }
        // Both LTMSIs are stored at every moment: if the process is killed, the slot has one of
        // them twice. The flag distinguishes this word from one that an earlier rename left over.
        let marked = RENAMING | u64::from(own);
        let note = |word: &&AtomicU64| {
            let now = word.load(Ordering::Acquire);
            let mine = now == 0 || now as u32 == own;
            mine && word.compare_exchange(now, marked, Ordering::AcqRel, Ordering::Relaxed).is_ok()
        };
        // There is always a free word, because `alias` reserves it. If `alias` has just used this
        // word, another one was free.
        let Some(word) = (0..4).find_map(|_| self.alias_words(slot.0).into_iter().find(note)) else { return false };
        self.change_id(slot.0, |id| id & !u64::from(u32::MAX) | u64::from(value));
        let _ = word.compare_exchange(marked, own.into(), Ordering::AcqRel, Ordering::Relaxed);
        self.forget_alias(slot.0, value);
        true
    }

    /// Applies `change` to the word `S_ID` of a slot: its LTMSI and the responsible worker.
    pub(super) fn change_id(&self, slot: u32, change: impl Fn(u64) -> u64) {
        let word = self.word(self.slot(slot, S_ID));
        let mut now = word.load(Ordering::Acquire);
        while let Err(seen) = word.compare_exchange(now, change(now), Ordering::AcqRel, Ordering::Acquire) {
            now = seen;
        }
    }

    fn bound(&self, slot: u32) -> impl Iterator<Item = (Key, u64)> {
        let get = |word: usize| self.word(self.slot(slot, word)).load(Ordering::Acquire);
        let (old, new) = halves(get(S_TMSI));
        let tmsi = |half: u32| (half != 0).then_some((Key::Tmsi, u64::from(!half)));
        let word = |key: Key, word: u64| (word != 0).then(|| (key, word.wrapping_sub(1)));
        let id = self.own_ltmsi(slot).checked_sub(1).map(|ltmsi| (Key::Ltmsi, u64::from(ltmsi)));
        [tmsi(old), tmsi(new), word(Key::Supi, get(S_SUPI)), word(Key::Ran, get(S_RAN)), id].into_iter().flatten()
    }

    /// Rebuilds the indexes from the slots. No other process may use the region meanwhile.
    ///
    /// # Errors
    ///
    /// Returns an error if two slots have the same identifier.
    pub fn rebuild(&self) -> Result<(), InsertError> {
        let aliases = |slot: Slot| self.aliases(slot).map(move |alias| (slot, alias));
        // An alias without index entry is from a worker killed before it entered it. It may belong
        // to another slot meanwhile.
        let (used, unused): (Vec<_>, Vec<_>) =
            self.slots().flat_map(aliases).partition(|(slot, alias)| self.slot_of(*alias) == Some(*slot));
        for key in [Key::Ltmsi, Key::Tmsi, Key::Supi, Key::Ran] {
            self.empty_index(key);
        }
        for slot in self.slots() {
            for (key, value) in self.bound(slot.0) {
                self.insert_identifier(key, value, slot.0).map_err(insert_error)?;
            }
        }
        for (slot, alias) in used.into_iter().chain(unused) {
            match self.insert_identifier(Key::Ltmsi, u64::from(alias.get()), slot.0).map_err(insert_error) {
                Err(InsertError::InUse(_)) => self.forget_alias(slot.0, alias.get() + 1),
                done => done?,
            }
        }
        let _ = self.recount();
        Ok(())
    }

    /// Frees a slot that has no commit record. Its identifiers are removed first, so that no index
    /// refers to it.
    pub(super) fn release(&self, slot: u32) {
        self.free_noted(Slot(slot));
        for alias in self.aliases(Slot(slot)) {
            self.drop_alias(Slot(slot), alias);
        }
        for (key, value) in self.bound(slot) {
            match key {
                Key::Ltmsi => self.remove_identifier(key, value, slot),
                _ => self.unbind(Slot(slot), key, value),
            }
        }
        self.alias_words(slot).iter().for_each(|word| word.store(0, Ordering::Relaxed));
        self.word(self.slot(slot, S_ID)).store(0, Ordering::Release);
        self.count_free();
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::InsertError;
    use crate::region::{CommitRecord, Key, Region, RegionConfig, Slot, Snapshot, Worker};
    use vireo_types::Ltmsi;

    fn ltmsi(n: u32) -> Ltmsi {
        Ltmsi::from_raw(n)
    }

    fn insert(worker: &mut Worker, n: u32) -> Slot {
        let slot = worker.insert(ltmsi(n)).unwrap();
        let _ = worker.commit(slot, &Snapshot::default(), &CommitRecord::default()).unwrap();
        slot
    }

    fn aliases(region: &Region, slot: Slot) -> Vec<u32> {
        let mut all: Vec<u32> = region.aliases(slot).map(Ltmsi::get).collect();
        all.sort_unstable();
        all
    }

    #[test]
    fn ue_changes_its_ltmsi_and_keeps_its_slot() {
        let region = Region::create(RegionConfig::new(16, 1, 32 << 20)).unwrap();
        let mut worker = region.join(0).unwrap();
        let (slot, other) = (insert(&mut worker, 1), insert(&mut worker, 2));
        assert_eq!(region.alias(slot, ltmsi(2)), Err(InsertError::InUse(other)));
        assert!(!region.rename(slot, ltmsi(10)), "it is no alias");
        (10..13).for_each(|n| region.alias(slot, ltmsi(n)).unwrap());
        region.alias(slot, ltmsi(12)).unwrap();
        assert_eq!(region.alias(slot, ltmsi(13)), Err(InsertError::Aliases));
        assert_eq!(region.slot_of(ltmsi(13)), None, "and nothing is left of it");
        for n in [10, 1, 12, 12, 11] {
            assert!(region.rename(slot, ltmsi(n)));
            assert_eq!(region.ltmsi_of(slot), Some(ltmsi(n)));
            let others: Vec<u32> = [1, 10, 11, 12].into_iter().filter(|other| *other != n).collect();
            assert_eq!(aliases(&region, slot), others);
            assert!([1, 10, 11, 12].iter().all(|n| region.slot_of(ltmsi(*n)) == Some(slot)));
            assert!(!region.drop_alias(slot, ltmsi(n)) && region.slot_of(ltmsi(n)) == Some(slot), "it is its own now");
            region.rebuild().unwrap();
        }
        assert!(region.drop_alias(slot, ltmsi(1)) && !region.drop_alias(slot, ltmsi(1)));
        assert_eq!(region.slot_of(ltmsi(1)), None);
        assert_eq!(worker.insert(ltmsi(10)), Ok(slot), "an alias is the UE");
        let mut seen = Snapshot::default();
        assert!(region.read(slot, &mut seen));
        worker.remove(slot, &seen).unwrap();
        assert!((0..20).all(|n| region.slot_of(ltmsi(n)) == (n == 2).then_some(other)), "all of it is gone");
        assert_eq!(region.aliases(slot).count(), 0);
    }

    #[test]
    fn ran_id_moves_to_another_ue() {
        let region = Region::create(RegionConfig::new(16, 1, 32 << 20)).unwrap();
        let mut worker = region.join(0).unwrap();
        let (one, two) = (insert(&mut worker, 1), insert(&mut worker, 2));
        let ran = |association: u32, id: u32| u64::from(association) << 32 | u64::from(id);
        region.bind(one, Key::Ran, ran(3, 0)).unwrap();
        region.bind(one, Key::Ran, ran(3, 0)).unwrap();
        assert_eq!(region.lookup(Key::Ran, ran(3, 0)), Some(one));
        assert_eq!(region.lookup(Key::Ran, ran(4, 0)), None, "another association's");
        assert_eq!(region.bind(two, Key::Ran, ran(3, 0)), Err(InsertError::InUse(one)));
        assert_eq!(region.bind_over(two, Key::Ran, ran(3, 0)), Ok(Some(one)));
        assert_eq!(region.lookup(Key::Ran, ran(3, 0)), Some(two));
        region.bind(one, Key::Ran, ran(3, u32::MAX)).unwrap();
        assert_eq!(region.bind_over(one, Key::Ran, ran(4, 0)), Ok(None));
        assert_eq!(region.lookup(Key::Ran, ran(3, u32::MAX)), None, "it has another now");
        region.unbind(one, Key::Ran, ran(3, 0));
        assert_eq!(region.lookup(Key::Ran, ran(3, 0)), Some(two), "it was not one's any more");
        region.rebuild().unwrap();
        region.unbind(two, Key::Ran, ran(3, 0));
        assert_eq!(region.lookup(Key::Ran, ran(3, 0)), None);
        assert_eq!(region.lookup(Key::Ran, ran(4, 0)), Some(one));
        assert_eq!(region.bind_over(two, Key::Ltmsi, 1), Err(InsertError::InUse(one)), "its own is not taken away");
    }

    #[test]
    fn refused_ue_leaves_nothing() {
        let region = Region::create(RegionConfig::new(16, 1, 32 << 20)).unwrap();
        let mut worker = region.join(0).unwrap();
        let slot = worker.insert(ltmsi(1)).unwrap();
        region.bind(slot, Key::Supi, 999_700_000_000_001).unwrap();
        region.alias(slot, ltmsi(5)).unwrap();
        assert!(worker.abandon(slot) && !worker.abandon(slot));
        assert_eq!((region.slot_of(ltmsi(1)), region.slot_of(ltmsi(5))), (None, None));
        assert_eq!(region.lookup(Key::Supi, 999_700_000_000_001), None);
        let there = insert(&mut worker, 1);
        assert!(!worker.abandon(there), "it has a record");
        assert_eq!(region.slot_at(there.number()), Some(there));
        assert_eq!(region.slot_at(region.slot_count()), None);
    }
}
