//! The time of this host: microseconds since the Unix epoch, never going back, the same in all its processes.

use std::sync::OnceLock;
use std::time::{SystemTime, UNIX_EPOCH};
use vireo_types::Instant;

/// How far the epoch is from the monotonic clock, in microseconds.
static OFFSET: OnceLock<u64> = OnceLock::new();

/// Microseconds of the clock that all processes of a machine share and nobody sets.
pub(crate) fn monotonic() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    now.tv_sec as u64 * 1_000_000 + now.tv_nsec as u64 / 1000
}

/// What is to be added to [`monotonic`]: taken once, when the core starts, so that a change of the system's time moves
/// no deadline.
pub(crate) fn offset() -> u64 {
    *OFFSET.get_or_init(|| {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        u64::try_from(since.as_micros()).unwrap_or(u64::MAX).wrapping_sub(monotonic())
    })
}

/// Takes the offset of another process of the host over; before the clock is first read.
pub(crate) fn adopt(offset: u64) {
    // Read before: the process keeps the one it has.
    let _ = OFFSET.set(offset);
}

/// Now.
pub(crate) fn clock() -> Instant {
    Instant(monotonic().wrapping_add(offset()))
}
