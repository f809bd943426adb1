//! Scheduling policy of a thread.

use std::io;

/// Lowest real-time priority: above all threads without a real-time policy.
const MIN_PRIORITY: libc::c_int = 1;

/// Sets the real-time policy SCHED_RR for the calling thread. It then precedes all threads without
/// real-time policy, and the limit of its cgroup (`cpu.max`) does not throttle it. Its child
/// threads and processes have the default policy.
///
/// # Errors
///
/// Returns an error if it is not permitted (CAP_SYS_NICE, RLIMIT_RTPRIO), or the cgroup has no
/// real-time budget (CONFIG_RT_GROUP_SCHED).
pub fn real_time() -> io::Result<()> {
    let param = libc::sched_param { sched_priority: MIN_PRIORITY };
    // SAFETY: 0 is the calling thread; the kernel reads `param`, which is valid until the call
    // returns.
    match unsafe { libc::sched_setscheduler(0, libc::SCHED_RR | libc::SCHED_RESET_ON_FORK, &raw const param) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}
