//! Time-based sequence numbers (TS 33.102 Annex C.1.1.3, C.1.2).
//!
//! They need no database write for each vector. SQN is SEQ (43 bits) followed by IND (5 bits, the
//! host's slot: C.1.2). SEQ is the clock plus the subscriber's offset, or its last SEQ plus one if
//! the clock has not advanced since.
//!
//! **The tick is one second**, counted from 2025. A USIM may refuse a SEQ more than 2^28 ahead of
//! its own (C.2.1), which limits the resolution. With ticks of 0.1 ms, a UE that was off for 7.5
//! hours would fail its first authentication; with one second, the limit is 8.5 years. Until 2033 a
//! factory-new USIM (SEQ 0) accepts SEQ without a resynchronisation.
//!
//! **Reservation**: several authentications of one UE in a second run ahead of the clock. So the
//! clock alone does not show where to continue after a restart. Therefore the database holds a
//! reservation above every clock value in use, as with block-allocated identifiers. It is extended
//! by [`CHUNK`] about every half hour. A process starts above the last reservation, also after a
//! crash and if the clock was set back.
//!
//! **Several processes with one slot** (two clusters that share a database, or more than 32 hosts)
//! each have their own reservations: [`SqnClock::on_reserved`] jumps over those of the others.

use crate::store::SqnClaim;
use std::sync::atomic::{AtomicU64, Ordering};
use vireo_types::Instant;

/// Seconds from the Unix epoch to 2025-01-01, the epoch of sequence numbers.
const EPOCH_S: u64 = 1_735_689_600;
/// Ticks in one reservation. An unclean stop skips at most this many, of 2^43.
const CHUNK: u64 = 3600;
/// Length of IND in bits.
const IND_BITS: u32 = 5;
/// Upper bound of SEQ, exclusive (TS 33.102 C.3: 43 bits).
pub(super) const SEQ_END: i64 = 1 << 43;
/// Maximum lead of SEQ over the USIM's with which an offset stays after an AUTS. It is far below
/// the 2^28 of C.2.1, because the USIM may be stricter.
const KEEP_AHEAD: i64 = 1 << 20;

/// Clock of one host slot, shared by all threads. Its values ("ticks") are SEQ without the
/// subscriber's offset.
#[derive(Debug)]
pub(super) struct SqnClock {
    ind: u8,
    /// First usable tick. Earlier runs or other processes have the ticks below.
    start: AtomicU64,
    /// The database has a reservation for ticks below this.
    reserved: AtomicU64,
    used: AtomicU64,
}

impl SqnClock {
    /// Creates the clock of a host slot with this last reservation. No tick is reserved yet.
    pub(super) fn new(ind: u8, last_reservation: u64) -> Self {
        let [start, reserved, used] = [(); 3].map(|()| AtomicU64::new(last_reservation));
        SqnClock { ind: ind & 31, start, reserved, used }
    }

    pub(super) fn ind(&self) -> u8 {
        self.ind
    }

    /// Returns a tick above `last`, for `now`; `None` if the reservation must first be extended.
    pub(super) fn next(&self, last: u64, now: Instant) -> Option<u64> {
        // The end is read first: with the end of a new reservation, its start is visible as well.
        let reserved = self.reserved.load(Ordering::Acquire);
        let tick = ticks(now).max(last + 1).max(self.start.load(Ordering::Relaxed));
        if tick >= reserved {
            return None;
        }
        if tick > self.used.load(Ordering::Relaxed) {
            self.used.fetch_max(tick, Ordering::Relaxed);
        }
        Some(tick)
    }

    /// Returns the reservation to make for `at_least` and all ticks in use, from the end of the
    /// present one; `None` while that has room for half a chunk.
    pub(super) fn next_reservation(&self, at_least: u64) -> Option<SqnClaim> {
        let high = self.used.load(Ordering::Relaxed).max(at_least);
        let start = self.reserved.load(Ordering::Relaxed);
        (high + CHUNK / 2 >= start).then_some(SqnClaim { start, end: high + CHUNK })
    }

    /// Records that the database has the reservation for this process. One that does not begin at
    /// the end of the last one ends the use of that: another process has the ticks in between.
    pub(super) fn on_reserved(&self, claim: SqnClaim) {
        if claim.start > self.reserved.load(Ordering::Relaxed) {
            self.used.fetch_max(claim.start, Ordering::Relaxed);
            self.start.store(claim.start, Ordering::Relaxed);
        }
        self.reserved.store(claim.end, Ordering::Release);
    }

    /// Returns the tick at which the next run may start, after the last vector at a clean stop, and
    /// the end of the reservation that it replaces.
    pub(super) fn close(&self) -> SqnClaim {
        SqnClaim { start: self.used.load(Ordering::Relaxed) + 1, end: self.reserved.load(Ordering::Relaxed) }
    }

    /// Returns the SQN of a tick and an offset; `None` outside 43 bits, which only an invalid
    /// offset causes.
    pub(super) fn sqn(&self, tick: u64, offset: i64) -> Option<u64> {
        let seq = i64::try_from(tick).ok()?.checked_add(offset)?;
        (0..SEQ_END).contains(&seq).then(|| (seq as u64) << IND_BITS | u64::from(self.ind))
    }
}

/// Returns the ticks since the epoch of sequence numbers.
pub(super) fn ticks(now: Instant) -> u64 {
    (now.as_micros() / 1_000_000).saturating_sub(EPOCH_S)
}

/// Returns the offset with which the USIM that sent SQNMS accepts the SQN of `tick` (TS 33.102
/// 6.3.5). That is the present offset if it suffices, else the one that continues from SEQMS.
/// `None` if SEQMS is at the end of its range.
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
        clock.on_reserved(clock.next_reservation(1000).expect("nothing is reserved yet"));
        clock
    }

    #[test]
    fn tick_follows_clock_within_second() {
        let clock = ready(0);
        assert_eq!(clock.next(0, NOW), Some(1000));
        assert_eq!(clock.next(1000, NOW), Some(1001));
        assert_eq!(clock.next(1001, Instant(0)), Some(1002));
        assert_eq!(clock.sqn(1000, 5), Some(1005 << 5 | 3));
        assert_eq!((clock.sqn(5, -6), clock.sqn(1, SEQ_END)), (None, None));
    }

    #[test]
    fn start_is_above_earlier_reservation() {
        let first = ready(0);
        first.next(0, NOW).expect("reserved");
        let claim = first.next_reservation(5000).expect("5000 is above the reservation");
        first.on_reserved(claim);
        let end = claim.end;
        // After a crash, the next run knows only `end`. The clock was also set back.
        let second = SqnClock::new(3, end);
        assert_eq!(second.next(0, NOW), None);
        second.on_reserved(second.next_reservation(0).expect("nothing is reserved yet"));
        assert_eq!(second.next(0, Instant(0)), Some(end));
        assert!(second.close().start > end);
    }

    #[test]
    fn claim_of_other_process_is_skipped() {
        let clock = ready(0);
        assert_eq!(clock.next(0, NOW), Some(1000));
        // Another process has claimed the ticks from 4,600 to 8,200.
        let claim = clock.next_reservation(4600).expect("above the reservation");
        assert_eq!(claim.start, 4600);
        clock.on_reserved(SqnClaim { start: 8200, end: 11_800 });
        assert_eq!(clock.next(1000, NOW), Some(8200));
        assert_eq!(clock.close(), SqnClaim { start: 8201, end: 11_800 });
    }

    #[test]
    fn reservation_is_moved_on_before_it_is_used_up() {
        let clock = ready(0);
        clock.next(0, NOW).expect("reserved");
        assert_eq!(clock.next_reservation(0), None);
        clock.next(1000 + CHUNK / 2, NOW).expect("still reserved");
        assert!(clock.next_reservation(0).is_some());
        assert_eq!(clock.next(1000 + CHUNK, NOW), None);
    }

    #[test]
    fn offset_changes_only_when_it_must() {
        let sqn_ms = |seq: u64| seq << IND_BITS | 7;
        assert_eq!(resynchronised(0, 1000, sqn_ms(999)), Some(0));
        assert_eq!(resynchronised(0, 1000, sqn_ms(1000)), Some(1));
        assert_eq!(resynchronised(0, 1000, sqn_ms(50_000)), Some(49_001));
        assert_eq!(resynchronised(1 << 40, 1000, sqn_ms(4)), Some(5 - 1000), "the USIM is far behind");
        assert_eq!(resynchronised(0, 1000, sqn_ms(SEQ_END as u64 - 1)), None);
    }
}
