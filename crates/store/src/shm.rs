//! A [`ContextStore`] over a [`Region`], for a host with a single step thread.

use crate::region::{CommitRecord, ContextLocation, JoinError, Region, SingleWorker};
use crate::{CommitError, ContextStore, Stored, Version};
use vireo_types::{Instant, Ltmsi};

/// A store that uses a region exclusively.
///
/// No other worker commits, so contexts are read in place.
#[derive(Debug)]
pub struct ShmStore {
    sole: SingleWorker,
    len: usize,
}

impl ShmStore {
    /// Creates a store over a region, as its worker 0. The store contains all contexts of the
    /// region.
    ///
    /// # Errors
    ///
    /// Returns an error if another worker has joined the region.
    pub fn new(region: &Region) -> Result<Self, JoinError> {
        let sole = region.join_alone(0)?;
        Ok(ShmStore { len: region.slots().count(), sole })
    }

    /// Returns the region of the store.
    pub fn region(&self) -> &Region {
        self.sole.region()
    }

    /// Returns true if the region has room for one more commit record of this many bytes.
    pub fn has_room(&mut self, octets: usize) -> bool {
        self.sole.worker().has_room(octets)
    }

    fn stored(&self, word: u64) -> Option<Stored<'_>> {
        let (version, buffer) = ((word >> 32) as Version, word as u32);
        if buffer == 0 {
            return None;
        }
        let ContextLocation { word, length, deadline } = self.sole.region().context_at(buffer);
        Some(Stored { version, octets: self.sole.octets(word, length), deadline })
    }
}

impl ContextStore for ShmStore {
    fn load(&self, ltmsi: Ltmsi) -> Option<Stored<'_>> {
        let region = self.sole.region();
        self.stored(region.word_of(region.slot_of(ltmsi)?))
    }

    fn commit(
        &mut self,
        ltmsi: Ltmsi,
        expected: Version,
        octets: &[u8],
        deadline: Option<Instant>,
    ) -> Result<Version, CommitError> {
        let region = self.sole.region();
        let slot = match region.slot_of(ltmsi) {
            Some(slot) => slot,
            None if expected != 0 => return Err(CommitError::Conflict),
            None => self.sole.worker().insert(ltmsi).map_err(|_| CommitError::Full)?,
        };
        let word = self.sole.region().word_of(slot);
        let found = if word as u32 == 0 { 0 } else { (word >> 32) as Version };
        if found != expected {
            return Err(CommitError::Conflict);
        }
        let record = CommitRecord { deadline, context: octets, ..CommitRecord::default() };
        let committed = self.sole.worker().commit_word(slot, word, &record)?;
        self.len += usize::from(found == 0);
        Ok(committed.version)
    }

    fn remove(&mut self, ltmsi: Ltmsi, expected: Version) -> Result<(), CommitError> {
        let region = self.sole.region();
        let slot = region.slot_of(ltmsi).ok_or(CommitError::Conflict)?;
        let word = region.word_of(slot);
        if expected == 0 || (word >> 32) as Version != expected {
            return Err(CommitError::Conflict);
        }
        self.sole.worker().remove_word(slot, word)?;
        self.len -= 1;
        Ok(())
    }

    fn len(&self) -> usize {
        self.len
    }

    fn each(&self, visit: &mut dyn FnMut(Ltmsi, Stored<'_>) -> bool) {
        let region = self.sole.region();
        for slot in region.slots() {
            let Some(ltmsi) = region.ltmsi_of(slot) else { continue };
            if self.stored(region.word_of(slot)).is_some_and(|stored| !visit(ltmsi, stored)) {
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::ShmStore;
    use crate::region::{JoinError, Region, RegionConfig};

    #[test]
    fn region_passes_conformance() {
        let region = Region::create(RegionConfig::new(2000, 2, 32 << 20)).unwrap();
        let mut store = ShmStore::new(&region).unwrap();
        crate::conformance::suite(&mut store);
        assert_eq!(region.join(1).err(), Some(JoinError::Sole), "nobody else commits");
        drop(store);
        assert_eq!(region.heap_use().0, 0, "nothing is left behind");
        drop(region.join(1).unwrap());
    }
}
