//! System calls missing in the standard library, each in a safe function.

pub(crate) mod bpf;
pub(crate) mod clock;
pub(crate) mod ethtool;
pub(crate) mod local;
pub(crate) mod netlink;
pub(crate) mod poll;
pub(crate) mod route;
pub(crate) mod shared;
pub(crate) mod tun;
pub(crate) mod udp;

use std::io;

/// Maximum number of packets that one call receives or sends.
pub const BATCH: usize = 32;

/// Pins the calling thread to the processor.
pub(crate) fn run_on(processor: usize) -> io::Result<()> {
    // SAFETY: a processor set is plain data for which zeros are valid.
    let mut set: libc::cpu_set_t = unsafe { std::mem::zeroed() };
    if processor >= libc::CPU_SETSIZE as usize {
        return Err(io::Error::from_raw_os_error(libc::EINVAL));
    }
    // SAFETY: the number is within the set, which outlives the call.
    let result = unsafe {
        libc::CPU_SET(processor, &mut set);
        libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &raw const set)
    };
    check(result).map(|_| ())
}

/// Time slice in ns that a thread runs at once. It is the minimum of the kernel.
const SHORT_TURN: u64 = 100_000;

/// Requests short time slices for the calling thread.
///
/// Its share of the processor stays the same, but it runs soon after an event, even if packets keep
/// all processors busy. Its nice value stays. Under a real-time policy nothing changes. Kernels
/// before 6.12 ignore the request. Threads that it starts have time slices of the default length.
///
/// # Errors
///
/// Returns an error if the kernel does not return or accept the scheduling attributes.
pub fn request_short_time_slices() -> io::Result<()> {
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
    // SAFETY: the structure outlives the call, which writes no more of it than its size.
    let result = unsafe { libc::syscall(libc::SYS_sched_getattr, 0, &raw mut attributes, SIZE, 0) };
    check_size(result as isize)?;
    if ![libc::SCHED_OTHER, libc::SCHED_BATCH].contains(&(attributes.sched_policy as i32)) {
        return Ok(());
    }
    attributes.sched_runtime = SHORT_TURN;
    attributes.sched_flags |= libc::SCHED_FLAG_RESET_ON_FORK as u64;
    // SAFETY: the structure outlives the call, which reads no more of it than its size.
    let result = unsafe { libc::syscall(libc::SYS_sched_setattr, 0, &raw const attributes, 0) };
    check_size(result as isize).map(|_| ())
}

/// Prefetches a value into the processor's caches, where the architecture supports that. Does not
/// wait.
#[inline]
pub(crate) fn prefetch<T>(what: &T) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: prefetching an address has no effect visible to the program.
    unsafe {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        _mm_prefetch::<_MM_HINT_T0>(std::ptr::from_ref(what).cast());
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = what;
}

/// Converts the result of a call that returns -1 on failure.
pub(crate) fn check(result: i32) -> io::Result<usize> {
    usize::try_from(result).map_err(|_| io::Error::last_os_error())
}

/// Converts the result of a call that returns a size, or -1 on failure.
fn check_size(result: isize) -> io::Result<usize> {
    usize::try_from(result).map_err(|_| io::Error::last_os_error())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_turns_leave_a_threads_nice_value() {
        let nice = || rustix::process::getpriority_process(None).expect("of this thread");
        // A thread may always raise its nice value.
        std::thread::spawn(move || {
            rustix::process::nice(3).expect("nicer");
            let before = nice();
            assert!(before > 0, "as it was made");
            request_short_time_slices().expect("allowed");
            assert_eq!(nice(), before);
        })
        .join()
        .expect("it ended");
    }
}
