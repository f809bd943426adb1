//! A ring's other use: one producer and one consumer, as from a worker to the host. Neither needs a compare-and-swap, nor
//! looks at the other's end more often than it must. What was pushed stays readable when the producer has died; what was
//! taken is gone, so the consumer is one whose death ends the host.
//!
//! The words are those of a [`super::Ring`]: a ring is used as one or as the other, never both.

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
    fn of(region: &Region, number: u16) -> Option<Self> {
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

/// The producer's end of a ring. There is one at a time: who replaces a dead producer makes its own.
#[derive(Debug)]
pub struct Sender {
    pipe: SpscRing,
    /// Where the next item goes.
    tail: u64,
    /// Where the consumer is at least.
    head: u64,
}

/// The consumer's end of a ring. There is one at a time.
#[derive(Debug)]
pub struct Receiver {
    pipe: SpscRing,
    /// Where the next item is.
    head: u64,
    /// Where the producer is at least.
    tail: u64,
}

impl Region {
    /// The producer's end of a ring that has one producer and one consumer.
    pub fn sender(&self, number: u16) -> Option<Sender> {
        let pipe = SpscRing::of(self, number)?;
        let tail = pipe.at(TAIL).load(Ordering::Acquire);
        Some(Sender { head: pipe.at(HEAD).load(Ordering::Acquire), tail, pipe })
    }

    /// The consumer's end of a ring that has one producer and one consumer.
    pub fn receiver(&self, number: u16) -> Option<Receiver> {
        let pipe = SpscRing::of(self, number)?;
        let head = pipe.at(HEAD).load(Ordering::Acquire);
        Some(Receiver { tail: head, head, pipe })
    }
}

impl Sender {
    /// Puts an item (40 bits) in.
    ///
    /// # Errors
    ///
    /// When the ring is full.
    #[inline]
    pub fn push(&mut self, item: u64) -> Result<(), RingFull> {
        if self.tail.wrapping_sub(self.head) >= self.pipe.cells {
            // What the consumer has read is read before this is written over.
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
    /// Takes the oldest item.
    #[inline]
    pub fn take(&mut self) -> Option<u64> {
        if self.head == self.tail {
            let tail = self.pipe.at(TAIL).load(Ordering::Acquire);
            if self.head == tail {
                return None;
            }
            if tail.wrapping_sub(self.head) > self.pipe.cells {
                // No producer is so far ahead. The next that it puts in says where it is.
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

    /// Whether nothing waits.
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
    fn items_come_in_order_and_outlive_their_producer() {
        let region = Region::create(RegionConfig { ring_cells: 64, ..RegionConfig::new(1, 1, 32 << 20) }).unwrap();
        let mut receiver = region.receiver(1).unwrap();
        assert!(receiver.take().is_none() && region.sender(2).is_none());
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for n in 0..100_000_u64 {
                    // A producer that is replaced now and then.
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
