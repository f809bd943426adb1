//! Clock of the datapath.

use vireo_types::Instant;

/// Returns the clock of BPF programs: monotonic, with an arbitrary start, in ns.
pub(crate) fn monotonic_ns() -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the structure is writable; this clock always exists, so the call does not fail.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &mut time) };
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// Clock of the datapath: monotonic, with an arbitrary start. The kernel program uses the same
/// clock.
#[derive(Clone, Copy, Debug, Default)]
pub struct Clock(());

impl Clock {
    /// Returns the current time.
    pub fn now(&self) -> Instant {
        Instant(monotonic_ns() / 1_000)
    }
}
