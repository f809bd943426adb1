//! The scheduling policy of a thread.

use std::io;

/// The least priority of the real-time policies: it is above all that are of none.
const LEAST: libc::c_int = 1;

/// Puts the calling thread under the real-time policy SCHED_RR: it runs before all that are under none, and a limit of its
/// cgroup (`cpu.max`) does not hold it back. What it starts is under the usual one again.
///
/// # Errors
///
/// Where that is not permitted (CAP_SYS_NICE, RLIMIT_RTPRIO), or the cgroup has no time for it (CONFIG_RT_GROUP_SCHED).
pub(crate) fn real_time() -> io::Result<()> {
    let param = libc::sched_param { sched_priority: LEAST };
    // SAFETY: 0 is the calling thread; the kernel reads `param`, which is there until the call has returned.
    match unsafe { libc::sched_setscheduler(0, libc::SCHED_RR | libc::SCHED_RESET_ON_FORK, &raw const param) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}
