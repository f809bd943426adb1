//! Monotonic clock of a host, in microseconds since the Unix epoch.
//!
//! It is the same in all processes of the host.

use std::sync::OnceLock;
use std::time::{SystemTime, UNIX_EPOCH};
use vireo_types::Instant;

/// Offset of the Unix epoch from the monotonic clock, in microseconds.
static OFFSET: OnceLock<u64> = OnceLock::new();

/// Returns the microseconds of the monotonic clock, which all processes of a machine share and no
/// user sets.
pub fn monotonic() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    now.tv_sec as u64 * 1_000_000 + now.tv_nsec as u64 / 1000
}

/// Returns the offset to add to [`monotonic`]. It is set once at the start, so that a change of the
/// system time moves no deadline.
pub fn offset() -> u64 {
    *OFFSET.get_or_init(|| {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        u64::try_from(since.as_micros()).unwrap_or(u64::MAX).wrapping_sub(monotonic())
    })
}

/// Adopts the offset of another process of the host. Must be called before the clock is first read.
pub fn adopt(offset: u64) {
    // If the clock was read before, the process keeps its offset.
    let _ = OFFSET.set(offset);
}

/// Returns the present time.
pub fn clock() -> Instant {
    Instant(monotonic().wrapping_add(offset()))
}
