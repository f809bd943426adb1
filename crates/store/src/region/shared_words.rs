//! What a host tells all its workers, and they tell it: the board, single words that anybody reads and writes, and
//! bulletins, octets that one writer publishes whole. It knows nothing of what they mean.

use super::Region;
use super::layout::{BULLETIN, bulletin_words};
use super::mem::{AtomicU64, Ordering, fence};

/// Of a bulletin: how often it was published.
const U_VERSION: usize = 0;
/// The lengths of its two copies, a word each.
const U_LENGTHS: usize = 1;

/// Attempts to read a bulletin before the reader lets others run.
const ATTEMPTS: u32 = 4;

/// Why nothing was published.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PublishError {
    /// There are not so many.
    #[error("the state region has no bulletin {0}; make it with more of them")]
    Number(u8),
    /// It does not fit.
    #[error("{octets} octets do not fit into a bulletin of {room}; make the state region with larger ones")]
    TooLarge {
        /// What was to be published.
        octets: usize,
        /// What there is room for.
        room: usize,
    },
}

impl Region {
    /// A word of the board: 0 until somebody writes to it.
    ///
    /// # Panics
    ///
    /// When the board is smaller: its words are given out by the host, not by peers.
    #[inline]
    pub fn shared_word(&self, number: u32) -> &AtomicU64 {
        assert!(number < self.config.board, "the board has no word {number}");
        self.word(self.lay.board + number as usize)
    }

    fn bulletin(&self, number: u8, word: usize) -> Option<usize> {
        let base = self.lay.bulletins + usize::from(number) * bulletin_words(&self.config);
        (number < self.config.bulletins).then_some(base + word)
    }

    /// Where a version's copy begins: it is written over only when the version after it is published already.
    fn copy_of(&self, base: usize, version: u64) -> usize {
        let half = (bulletin_words(&self.config) - BULLETIN) / 2;
        base + BULLETIN + (version & 1) as usize * half
    }

    /// Publishes a bulletin: readers see all of it or what was there before. It has one writer.
    ///
    /// # Errors
    ///
    /// When there is no such bulletin, or it has no room; what was published before stays.
    pub fn publish(&self, number: u8, octets: &[u8]) -> Result<(), PublishError> {
        let base = self.bulletin(number, 0).ok_or(PublishError::Number(number))?;
        let room = self.config.bulletin_bytes as usize;
        if octets.len() > room {
            return Err(PublishError::TooLarge { octets: octets.len(), room });
        }
        let version = self.word(base + U_VERSION).load(Ordering::Relaxed).wrapping_add(1).max(1);
        // Who sees anything of what is written now sees by the version that its copy is not the latest any more.
        fence(Ordering::Release);
        self.word(base + U_LENGTHS + (version & 1) as usize).store(octets.len() as u64, Ordering::Relaxed);
        self.mem.write(self.copy_of(base, version), octets);
        self.word(base + U_VERSION).store(version, Ordering::Release);
        Ok(())
    }

    /// How often a bulletin was published; 0 = never, or there is no such bulletin. It costs one read.
    #[inline]
    pub fn published_version(&self, number: u8) -> u64 {
        self.bulletin(number, U_VERSION).map_or(0, |word| self.word(word).load(Ordering::Acquire))
    }

    /// Puts what was published last into `to`, in place of what is there; its version, 0 = never published.
    pub fn read_published(&self, number: u8, to: &mut Vec<u8>) -> u64 {
        let Some(base) = self.bulletin(number, 0) else {
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
            self.mem.read(self.copy_of(base, version), length.min(self.config.bulletin_bytes as usize), to);
            fence(Ordering::Acquire);
            if self.word(base + U_VERSION).load(Ordering::Relaxed) == version {
                return version;
            }
            // Again only if it was published meanwhile; a writer that is stopped in the middle holds nobody up.
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
    fn a_bulletin_is_whole_whoever_reads_it() {
        let region =
            Region::create(RegionConfig { bulletin_bytes: 4096, ..RegionConfig::new(1, 1, 16 << 20) }).unwrap();
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
    fn the_board_and_its_sizes_are_seen_by_who_attaches() {
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
