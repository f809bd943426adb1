//! The system calls that the standard library has no words for, each behind a safe function.

pub(crate) mod bpf;
pub(crate) mod ethtool;
pub(crate) mod link;
pub(crate) mod local;
pub(crate) mod netlink;
pub mod poll;
pub(crate) mod ring;
pub(crate) mod route;
pub(crate) mod shared;
pub(crate) mod tun;
pub mod udp;
pub(crate) mod xsk;

use std::io;

/// The time that BPF programs see: monotonic, from an arbitrary start, in ns.
pub(crate) fn monotonic_ns() -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the structure is writable; this clock always exists, so the call does not fail
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &mut time) };
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// Has the calling thread run on this processor alone.
pub(crate) fn run_on(processor: usize) -> io::Result<()> {
    // SAFETY: a processor set is plain data for which zeros are valid
    let mut set: libc::cpu_set_t = unsafe { std::mem::zeroed() };
    if processor >= libc::CPU_SETSIZE as usize {
        return Err(io::Error::from_raw_os_error(libc::EINVAL));
    }
    // SAFETY: the number is within the set, which outlives the call
    let result = unsafe {
        libc::CPU_SET(processor, &mut set);
        libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &raw const set)
    };
    check(result).map(|_| ())
}

/// How long a thread that takes short turns runs at once, in ns: the least that there is.
const SHORT_TURN: u64 = 100_000;

/// Has the calling thread ask for short turns of the processor: it gets no larger part of it than others, but gets it soon
/// after something has come for it, though packets keep all processors busy. Its nice value stays; where it does not share
/// processors fairly (real-time policies) everything does. Kernels before 6.12 take no notice.
/// Threads that it starts take turns of the usual length.
pub fn take_short_turns() -> io::Result<()> {
    const SIZE: usize = size_of::<libc::sched_attr>();
    let mut attributes = libc::sched_attr {
        size: SIZE as u32,
        sched_policy: 0,
        sched_flags: 0,
        sched_nice: 0,
        sched_priority: 0,
        sched_runtime: 0,
        sched_deadline: 0,
        sched_period: 0,
    };
    // SAFETY: the structure outlives the call, which writes no more of it than its size
    let result = unsafe { libc::syscall(libc::SYS_sched_getattr, 0, &raw mut attributes, SIZE, 0) };
    check_size(result as isize)?;
    if ![libc::SCHED_OTHER, libc::SCHED_BATCH].contains(&(attributes.sched_policy as i32)) {
        return Ok(());
    }
    attributes.sched_runtime = SHORT_TURN;
    attributes.sched_flags |= libc::SCHED_FLAG_RESET_ON_FORK as u64;
    // SAFETY: the structure outlives the call, which reads as much of it as its size says
    let result = unsafe { libc::syscall(libc::SYS_sched_setattr, 0, &raw const attributes, 0) };
    check_size(result as isize).map(|_| ())
}

/// Fetches a value into the processor's caches, where the machine can be asked to; nothing waits for it.
#[inline]
pub(crate) fn prefetch<T>(what: &T) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: fetching an address has no effect that a program sees
    unsafe {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        _mm_prefetch::<_MM_HINT_T0>(std::ptr::from_ref(what).cast());
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = what;
}

/// The result of a call that says -1 where it failed.
fn check(result: i32) -> io::Result<usize> {
    usize::try_from(result).map_err(|_| io::Error::last_os_error())
}

/// The same for calls that give a size.
fn check_size(result: isize) -> io::Result<usize> {
    usize::try_from(result).map_err(|_| io::Error::last_os_error())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_turns_leave_a_threads_nice_value() {
        let nice = || rustix::process::getpriority_process(None).expect("of this thread");
        // a thread may always become nicer
        std::thread::spawn(move || {
            rustix::process::nice(3).expect("nicer");
            let before = nice();
            assert!(before > 0, "as it was made");
            take_short_turns().expect("allowed");
            assert_eq!(nice(), before);
        })
        .join()
        .expect("it ended");
    }
}
