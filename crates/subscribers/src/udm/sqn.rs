//! Sequence numbers from time (TS 33.102 Annex C.1.1.3, C.1.2), without a database write for each vector.
//!
//! SQN is SEQ (43 bits) followed by IND (5 bits, the host's slot: C.1.2). SEQ is the clock plus the subscriber's
//! offset, or one more than its last SEQ when the clock has not moved since.
//!
//! **The tick is one second**, counted from 2025. A USIM may refuse a SEQ more than 2^28 ahead of its own (C.2.1), so
//! a finer tick has a price: at 0.1 ms a device that was off for 7.5 hours would fail its first authentication, at one
//! second it is 8.5 years, and until 2033 a factory-new USIM (SEQ 0) is accepted without a resynchronisation.
//! **The price of the coarse tick** is that several authentications of one UE in a second run ahead of the clock, so
//! the clock alone does not say where to go on after a restart. Hence a reservation, as for block-allocated
//! identifiers: before a clock value is used, the database holds one that lies above it, moved on by [`CHUNK`] every
//! half hour or so. A start begins above the last reservation; also after a crash, and when the clock was set back.

use std::sync::atomic::{AtomicU64, Ordering};
use vireo_types::Instant;

/// Seconds from the Unix epoch to 2025-01-01, where the clock of sequence numbers starts.
const EPOCH_S: u64 = 1_735_689_600;
/// How many ticks one reservation covers. An unclean stop skips at most so many, of 2^43.
const CHUNK: u64 = 3600;
/// The bits of IND.
const IND_BITS: u32 = 5;
/// SEQ values lie below this (TS 33.102 C.3: 43 bits).
pub(super) const SEQ_END: i64 = 1 << 43;
/// How far ahead of the USIM's a SEQ may be to be kept after an AUTS: far below the 2^28 of C.2.1, as the USIM that
/// refused it may be stricter than that.
const KEEP_AHEAD: i64 = 1 << 20;

/// The clock of one host slot, shared by all threads. Its values ("ticks") are SEQ before the subscriber's offset.
#[derive(Debug)]
pub(super) struct SqnClock {
    ind: u8,
    /// The first tick that may be used: all below belong to earlier runs.
    start: u64,
    /// Ticks below this are reserved in the database.
    reserved: AtomicU64,
    /// The highest tick used.
    used: AtomicU64,
}

impl SqnClock {
    /// The clock of a host slot whose last reservation is given. Nothing is reserved yet.
    pub(super) fn new(ind: u8, last_reservation: u64) -> Self {
        let used = AtomicU64::new(last_reservation);
        SqnClock { ind: ind & 31, start: last_reservation, reserved: AtomicU64::new(last_reservation), used }
    }

    pub(super) fn ind(&self) -> u8 {
        self.ind
    }

    /// A tick above `last`, for `now`; `None` when the reservation must be moved on first.
    pub(super) fn next(&self, last: u64, now: Instant) -> Option<u64> {
        let tick = ticks(now).max(last + 1).max(self.start);
        if tick >= self.reserved.load(Ordering::Acquire) {
            return None;
        }
        if tick > self.used.load(Ordering::Relaxed) {
            self.used.fetch_max(tick, Ordering::Relaxed);
        }
        Some(tick)
    }

    /// What to reserve so that `now` and any tick used so far have room; `None` while the present one is good for
    /// half a chunk more.
    pub(super) fn wanted(&self, at_least: u64) -> Option<u64> {
        let high = self.used.load(Ordering::Relaxed).max(at_least);
        (high + CHUNK / 2 >= self.reserved.load(Ordering::Relaxed)).then_some(high + CHUNK)
    }

    /// The database holds the reservation.
    pub(super) fn reserved(&self, end: u64) {
        self.reserved.fetch_max(end, Ordering::Release);
    }

    /// What to leave in the database at an orderly stop, when no more vectors are made.
    pub(super) fn close(&self) -> u64 {
        self.used.load(Ordering::Relaxed) + 1
    }

    /// SQN of a tick and an offset; `None` outside 43 bits, where only a wrong offset can lead.
    pub(super) fn sqn(&self, tick: u64, offset: i64) -> Option<u64> {
        let seq = i64::try_from(tick).ok()?.checked_add(offset)?;
        (0..SEQ_END).contains(&seq).then(|| (seq as u64) << IND_BITS | u64::from(self.ind))
    }
}

/// Ticks since the epoch of sequence numbers.
pub(super) fn ticks(now: Instant) -> u64 {
    (now.as_micros() / 1_000_000).saturating_sub(EPOCH_S)
}

/// The offset with which the USIM that answered SQNMS accepts the SQN made at `tick` (TS 33.102 6.3.5): the present
/// one if it does so already, else the one that continues from SEQMS. `None` when SEQMS is at the end of its range.
pub(super) fn resynchronised(offset: i64, tick: u64, sqn_ms: u64) -> Option<i64> {
    let (seq_ms, tick) = ((sqn_ms >> IND_BITS) as i64, i64::try_from(tick).ok()?);
    let ahead = tick.checked_add(offset)?.checked_sub(seq_ms)?;
    if (1..=KEEP_AHEAD).contains(&ahead) {
        return Some(offset);
    }
    (seq_ms + 1 < SEQ_END).then_some(seq_ms + 1 - tick)
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Instant = Instant((EPOCH_S + 1000) * 1_000_000);

    fn ready(start: u64) -> SqnClock {
        let clock = SqnClock::new(3, start);
        clock.reserved(clock.wanted(1000).expect("nothing is reserved yet"));
        clock
    }

    #[test]
    fn a_tick_follows_the_clock_and_runs_ahead_within_a_second() {
        let clock = ready(0);
        assert_eq!(clock.next(0, NOW), Some(1000));
        assert_eq!(clock.next(1000, NOW), Some(1001));
        assert_eq!(clock.next(1001, Instant(0)), Some(1002));
        assert_eq!(clock.sqn(1000, 5), Some(1005 << 5 | 3));
        assert_eq!((clock.sqn(5, -6), clock.sqn(1, SEQ_END)), (None, None));
    }

    #[test]
    fn a_start_is_above_what_was_reserved_before() {
        let first = ready(0);
        first.next(0, NOW).expect("reserved");
        let end = first.wanted(5000).expect("5000 is above the reservation");
        first.reserved(end);
        // A crash: the next run knows only `end`; and the clock was set back
        let second = SqnClock::new(3, end);
        assert_eq!(second.next(0, NOW), None);
        second.reserved(second.wanted(0).expect("nothing is reserved yet"));
        assert_eq!(second.next(0, Instant(0)), Some(end));
        assert!(second.close() > end);
    }

    #[test]
    fn a_reservation_is_moved_on_before_it_is_used_up() {
        let clock = ready(0);
        clock.next(0, NOW).expect("reserved");
        assert_eq!(clock.wanted(0), None);
        clock.next(1000 + CHUNK / 2, NOW).expect("still reserved");
        assert!(clock.wanted(0).is_some());
        assert_eq!(clock.next(1000 + CHUNK, NOW), None);
    }

    #[test]
    fn an_offset_changes_only_when_it_must() {
        let sqn_ms = |seq: u64| seq << IND_BITS | 7;
        assert_eq!(resynchronised(0, 1000, sqn_ms(999)), Some(0));
        assert_eq!(resynchronised(0, 1000, sqn_ms(1000)), Some(1));
        assert_eq!(resynchronised(0, 1000, sqn_ms(50_000)), Some(49_001));
        assert_eq!(resynchronised(1 << 40, 1000, sqn_ms(4)), Some(5 - 1000), "the USIM is far behind");
        assert_eq!(resynchronised(0, 1000, sqn_ms(SEQ_END as u64 - 1)), None);
    }
}
