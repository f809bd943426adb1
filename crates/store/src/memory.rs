use crate::{CommitError, ContextStore, Stored, Version};
use rustc_hash::FxHashMap;
use vireo_types::{Instant, Ltmsi};

/// A [`ContextStore`] in the memory of this process.
///
/// The map uses a fast hash that is not collision-resistant. This is safe because the core, not a
/// peer, assigns the LTMSIs.
#[derive(Debug, Default)]
pub struct MemoryStore {
    slots: FxHashMap<Ltmsi, Slot>,
}

#[derive(Debug)]
struct Slot {
    octets: Box<[u8]>,
    /// Microseconds; `u64::MAX` = none. Half the size of an `Option`.
    deadline: u64,
    version: Version,
}

impl Slot {
    fn stored(&self) -> Stored<'_> {
        let deadline = (self.deadline != u64::MAX).then_some(Instant(self.deadline));
        Stored { version: self.version, octets: &self.octets, deadline }
    }
}

impl MemoryStore {
    /// Creates an empty store.
    pub fn new() -> Self {
        Self::default()
    }
}

impl ContextStore for MemoryStore {
    fn load(&self, ltmsi: Ltmsi) -> Option<Stored<'_>> {
        self.slots.get(&ltmsi).map(Slot::stored)
    }

    fn commit(
        &mut self,
        ltmsi: Ltmsi,
        expected: Version,
        octets: &[u8],
        deadline: Option<Instant>,
    ) -> Result<Version, CommitError> {
        let deadline = deadline.map_or(u64::MAX, |d| d.0);
        match self.slots.get_mut(&ltmsi) {
            Some(slot) if slot.version == expected => {
                // A context of unchanged length is overwritten in place: the usual step allocates
                // nothing.
                if slot.octets.len() == octets.len() {
                    slot.octets.copy_from_slice(octets);
                } else {
                    slot.octets = octets.into();
                }
                slot.deadline = deadline;
                slot.version = expected.wrapping_add(1).max(1);
                Ok(slot.version)
            }
            None if expected == 0 => {
                self.slots.insert(ltmsi, Slot { octets: octets.into(), deadline, version: 1 });
                Ok(1)
            }
            _ => Err(CommitError::Conflict),
        }
    }

    fn remove(&mut self, ltmsi: Ltmsi, expected: Version) -> Result<(), CommitError> {
        match self.slots.get(&ltmsi) {
            Some(slot) if slot.version == expected => {
                self.slots.remove(&ltmsi);
                Ok(())
            }
            _ => Err(CommitError::Conflict),
        }
    }

    fn len(&self) -> usize {
        self.slots.len()
    }

    fn each(&self, visit: &mut dyn FnMut(Ltmsi, Stored<'_>) -> bool) {
        for (ltmsi, slot) in &self.slots {
            if !visit(*ltmsi, slot.stored()) {
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn memory_keeps_the_contract() {
        crate::conformance::suite(&mut super::MemoryStore::new());
    }
}
