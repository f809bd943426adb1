//! Commit records read in place, by the only worker of a region.

use super::mem::WORD;
use super::worker::SingleWorker;

impl SingleWorker {
    /// Returns the bytes of a current commit record in place.
    ///
    /// # Panics
    ///
    /// Panics if the range is outside of the region.
    pub(crate) fn octets(&self, number: usize, octets: usize) -> &[u8] {
        let mem = &self.region().mem;
        assert!(number <= mem.words && octets <= (mem.words - number) * WORD, "octets outside of the region");
        // SAFETY: within the mapping by the check. Nothing writes to the bytes while the borrow
        // lives. Every write to a commit record goes through a worker that is borrowed mutably. The
        // region has no other worker while this one exists (`Region::join_alone`), and this one is
        // borrowed.
        unsafe { std::slice::from_raw_parts(mem.base.as_ptr().add(number).cast(), octets) }
    }
}
