//! Rings with a single producer and a single consumer.
//!
//! They connect a worker with the host, for example. Neither end needs a compare-and-swap, and each
//! reads the other end's position only when it must. Items pushed before the producer died stay
//! readable. A taken item is gone. So the death of the consumer must end the host.
//!
//! The words are those of a [`super::Ring`]. A ring is used in one of the two ways, never both.

use super::layout::RING;
use super::mem::{AtomicU64, Ordering};
use super::ring::{HEAD, ITEM, TAIL};
use super::{Region, RingFull};

#[derive(Debug)]
struct SpscRing {
    region: Region,
    base: usize,
    cells: u64,
}

impl SpscRing {
    fn new(region: &Region, number: u16) -> Option<Self> {
        let base = region.ring_base(number)?;
        Some(SpscRing { region: region.clone(), base, cells: region.config.ring_cells.into() })
    }

    fn at(&self, word: usize) -> &AtomicU64 {
        self.region.word(self.base + word)
    }

    fn cell(&self, position: u64) -> &AtomicU64 {
        self.at(RING + (position & (self.cells - 1)) as usize)
    }
}

/// The producer's end of a ring.
///
/// There is one at a time: a process that replaces a dead producer creates its own.
#[derive(Debug)]
pub struct Sender {
    pipe: SpscRing,
    /// Position of the next item.
    tail: u64,
    /// Lower bound of the consumer's position.
    head: u64,
}

/// The consumer's end of a ring. There is one at a time.
#[derive(Debug)]
pub struct Receiver {
    pipe: SpscRing,
    /// Position of the next item.
    head: u64,
    /// Lower bound of the producer's position.
    tail: u64,
}

impl Region {
    /// Returns the producer's end of a ring; `None` if the ring does not exist.
    pub fn sender(&self, number: u16) -> Option<Sender> {
        let pipe = SpscRing::new(self, number)?;
        let tail = pipe.at(TAIL).load(Ordering::Acquire);
        Some(Sender { head: pipe.at(HEAD).load(Ordering::Acquire), tail, pipe })
    }

    /// Returns the consumer's end of a ring; `None` if the ring does not exist.
    pub fn receiver(&self, number: u16) -> Option<Receiver> {
        let pipe = SpscRing::new(self, number)?;
        let head = pipe.at(HEAD).load(Ordering::Acquire);
        Some(Receiver { tail: head, head, pipe })
    }
}

impl Sender {
    /// Appends an item (40 bits).
    ///
    /// # Errors
    ///
    /// Returns an error if the ring is full.
    #[inline]
    pub fn push(&mut self, item: u64) -> Result<(), RingFull> {
        if self.tail.wrapping_sub(self.head) >= self.pipe.cells {
            // Acquire: the consumer has read the cell before it is overwritten.
            self.head = self.pipe.at(HEAD).load(Ordering::Acquire);
            if self.tail.wrapping_sub(self.head) >= self.pipe.cells {
                return Err(RingFull);
            }
        }
        self.pipe.cell(self.tail).store(item & ITEM, Ordering::Relaxed);
        self.tail = self.tail.wrapping_add(1);
        self.pipe.at(TAIL).store(self.tail, Ordering::Release);
        Ok(())
    }
}

impl Receiver {
    /// Takes the oldest item; `None` if the ring is empty.
    #[inline]
    pub fn take(&mut self) -> Option<u64> {
        if self.head == self.tail {
            let tail = self.pipe.at(TAIL).load(Ordering::Acquire);
            if self.head == tail {
                return None;
            }
            if tail.wrapping_sub(self.head) > self.pipe.cells {
                // No producer can be so far ahead: the word is corrupt. The producer's next push
                // overwrites it.
                self.pipe.region.mem.fault();
                return None;
            }
            self.tail = tail;
        }
        let item = self.pipe.cell(self.head).load(Ordering::Relaxed);
        self.head = self.head.wrapping_add(1);
        self.pipe.at(HEAD).store(self.head, Ordering::Release);
        Some(item)
    }

    /// Returns true if no item waits.
    #[inline]
    pub fn is_empty(&self) -> bool {
        let ahead = || self.pipe.at(TAIL).load(Ordering::Acquire).wrapping_sub(self.head);
        self.head == self.tail && !(1..=self.pipe.cells).contains(&ahead())
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use crate::region::{Region, RegionConfig, RingFull};

    #[test]
    fn items_keep_order_and_outlive_producer() {
        let region = Region::create(RegionConfig { ring_cells: 64, ..RegionConfig::new(1, 1, 32 << 20) }).unwrap();
        let mut receiver = region.receiver(1).unwrap();
        assert!(receiver.take().is_none() && region.sender(2).is_none());
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for n in 0..100_000_u64 {
                    // The producer is replaced for each item.
                    let mut sender = region.sender(1).unwrap();
                    while sender.push(n).is_err() {
                        std::thread::yield_now();
                    }
                }
            });
            for n in 0..100_000 {
                let item = loop {
                    match receiver.take() {
                        Some(item) => break item,
                        None => std::thread::yield_now(),
                    }
                };
                assert_eq!(item, n);
            }
        });
        let mut sender = region.sender(1).unwrap();
        (0..64).for_each(|n| sender.push(n).unwrap());
        assert_eq!(sender.push(64), Err(RingFull));
        drop(sender);
        assert!((0..64).all(|n| receiver.take() == Some(n)) && receiver.take().is_none());
    }
}
