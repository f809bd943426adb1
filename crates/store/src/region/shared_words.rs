//! Shared words and published values, for data exchange of a host and its workers.
//!
//! Any process reads and writes the shared words. A published value has a single writer that
//! replaces it as a whole. The region does not interpret either.

use super::Region;
use super::layout::{PUBLISHED_HEADER, published_words};
use super::mem::{AtomicU64, Ordering, fence};

/// Word of a published value: how often it was published.
const U_VERSION: usize = 0;
/// First of two words with the lengths of the copies in bytes.
const U_LENGTHS: usize = 1;

/// Attempts to read a published value before the reader yields the processor.
const ATTEMPTS: u32 = 4;

/// Reason that a value was not published.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PublishError {
    /// The region has no published value of this number.
    #[error("the state region has no published value {0}; make it with more of them")]
    Number(u8),
    /// The value exceeds the configured maximum.
    #[error("{octets} octets do not fit into a published value of {room}; make the state region with larger ones")]
    TooLarge {
        /// Size of the value in bytes.
        octets: usize,
        /// Maximum size in bytes.
        room: usize,
    },
}

impl Region {
    /// Returns a shared word; it is 0 until a process writes to it.
    ///
    /// # Panics
    ///
    /// Panics if the region has no shared word of this number. The host assigns the numbers, not a
    /// peer.
    #[inline]
    pub fn shared_word(&self, number: u32) -> &AtomicU64 {
        assert!(number < self.config.board, "the board has no word {number}");
        self.word(self.lay.board + number as usize)
    }

    fn published_word(&self, number: u8, word: usize) -> Option<usize> {
        let base = self.lay.published_values + usize::from(number) * published_words(&self.config);
        (number < self.config.published_values).then_some(base + word)
    }

    /// Returns the word number at which the copy of a version begins.
    ///
    /// The copy is overwritten only after the following version is published.
    fn copy_of(&self, base: usize, version: u64) -> usize {
        let half = (published_words(&self.config) - PUBLISHED_HEADER) / 2;
        base + PUBLISHED_HEADER + (version & 1) as usize * half
    }

    /// Publishes a value. Readers see the new or the previous version, never a mixture.
    ///
    /// Each value has a single writer.
    ///
    /// # Errors
    ///
    /// Returns an error if the number does not exist or the value is too large. The previous
    /// version stays published.
    pub fn publish(&self, number: u8, octets: &[u8]) -> Result<(), PublishError> {
        let base = self.published_word(number, 0).ok_or(PublishError::Number(number))?;
        let room = self.config.published_value_bytes as usize;
        if octets.len() > room {
            return Err(PublishError::TooLarge { octets: octets.len(), room });
        }
        let version = self.word(base + U_VERSION).load(Ordering::Relaxed).wrapping_add(1).max(1);
        // A reader that sees any of the words written below also sees that its version is outdated.
        fence(Ordering::Release);
        self.word(base + U_LENGTHS + (version & 1) as usize).store(octets.len() as u64, Ordering::Relaxed);
        self.mem.write(self.copy_of(base, version), octets);
        self.word(base + U_VERSION).store(version, Ordering::Release);
        Ok(())
    }

    /// Returns how often a value was published, for the cost of one read.
    ///
    /// The result is 0 if it was never published or the number does not exist.
    #[inline]
    pub fn published_version(&self, number: u8) -> u64 {
        self.published_word(number, U_VERSION).map_or(0, |word| self.word(word).load(Ordering::Acquire))
    }

    /// Copies the newest version into `to` and returns its number; 0 = never published.
    pub fn read_published(&self, number: u8, to: &mut Vec<u8>) -> u64 {
        let Some(base) = self.published_word(number, 0) else {
            to.clear();
            return 0;
        };
        let mut attempts = 0;
        loop {
            to.clear();
            let version = self.word(base + U_VERSION).load(Ordering::Acquire);
            if version == 0 {
                return 0;
            }
            let length = self.word(base + U_LENGTHS + (version & 1) as usize).load(Ordering::Relaxed) as usize;
            self.mem.read(self.copy_of(base, version), length.min(self.config.published_value_bytes as usize), to);
            fence(Ordering::Acquire);
            if self.word(base + U_VERSION).load(Ordering::Relaxed) == version {
                return version;
            }
            // A retry is needed only if the value was published meanwhile. A writer that stops
            // halfway blocks no reader.
            attempts += 1;
            if attempts % ATTEMPTS == 0 {
                std::thread::yield_now();
            }
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::PublishError;
    use crate::region::{Region, RegionConfig};
    use std::sync::atomic::{AtomicBool, Ordering};

    #[test]
    fn published_value_is_read_whole() {
        let region =
            Region::create(RegionConfig { published_value_bytes: 4096, ..RegionConfig::new(1, 1, 16 << 20) }).unwrap();
        let mut seen = vec![1];
        assert_eq!((region.published_version(3), region.read_published(3, &mut seen)), (0, 0), "never published");
        assert!(seen.is_empty());
        let done = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for n in 1..=20_000_u32 {
                    let octets: Vec<u8> = (0..n % 1000).flat_map(|_| n.to_le_bytes()).collect();
                    region.publish(3, &octets).unwrap();
                }
                done.store(true, Ordering::Release);
            });
            let mut last = 0;
            while !done.load(Ordering::Acquire) || last < 20_000 {
                let version = region.read_published(3, &mut seen);
                assert!(version >= last, "no version comes back");
                last = version;
                let expected: Vec<u8> = (0..version % 1000).flat_map(|_| (version as u32).to_le_bytes()).collect();
                assert_eq!(seen, expected, "version {version}");
            }
        });
        assert_eq!(region.published_version(2), 0, "the others are others");
        assert_eq!(region.publish(4, &[]), Err(PublishError::Number(4)));
        let large = vec![0; 4097];
        assert_eq!(region.publish(3, &large), Err(PublishError::TooLarge { octets: 4097, room: 4096 }));
    }

    #[test]
    fn attached_process_sees_shared_words() {
        let mut tables = [0; super::super::TABLES];
        (tables[0], tables[2]) = (5, 7);
        let config = RegionConfig { tables, ..RegionConfig::new(10, 2, 32 << 20) };
        let region = Region::create(config).unwrap();
        region.shared_word(16_383).store(7, Ordering::Relaxed);
        let other = Region::attach(region.share().unwrap()).unwrap();
        assert_eq!(other.shared_word(16_383).load(Ordering::Relaxed), 7);
        assert_eq!(other.shared_word(0).load(Ordering::Relaxed), 0);
        assert_eq!(other.config(), &config);
    }
}
