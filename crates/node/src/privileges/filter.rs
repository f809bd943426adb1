//! The system calls that workers may make, as seccomp filters.
//!
//! The lists are of what the workers were seen to call (strace, in the tests of this repository) and of what their allocator
//! and the standard library call in conditions that tests do not bring about. They are lists of what is allowed: a call of a
//! later kernel is refused.
//!
//! A call that is not on the list ends the process, with a line that names the call: see [`crate::sys::refused`]. Opening files
//! alone gets an answer, EACCES: the standard library looks for debug information when a step panics, and goes on without.

use crate::sys::refused;
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter, SeccompRule, TargetArch,
};
use std::collections::BTreeMap;

/// What a process works on, after what it has when the filter is installed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Profile {
    /// A worker whose contexts are in the region or in its own memory: neither sockets, files nor threads.
    Region,
    /// A worker whose contexts are in a database: connections to that, with what finds its address, and threads that write.
    Database,
    /// A data worker: packets of sockets and devices that it was given, and questions to the kernel's tables of routes.
    Packets,
}

/// Why there is no filter.
#[derive(Debug, thiserror::Error)]
pub(super) enum FilterError {
    #[error(transparent)]
    Filter(#[from] seccompiler::Error),
    #[error(transparent)]
    Backend(#[from] seccompiler::BackendError),
    #[error("no handler of SIGSYS: {0}")]
    Handler(#[from] std::io::Error),
}

type Rules = BTreeMap<i64, Vec<SeccompRule>>;

/// Calls of every process: memory, time, waiting, signals of its own, what is open.
const ALWAYS: &[i64] = &[
    libc::SYS_read,
    libc::SYS_readv,
    libc::SYS_write,
    libc::SYS_writev,
    libc::SYS_close,
    libc::SYS_fstat,
    libc::SYS_fstatfs,
    libc::SYS_newfstatat,
    libc::SYS_statx,
    libc::SYS_lseek,
    libc::SYS_fcntl,
    libc::SYS_dup,
    libc::SYS_fallocate,
    libc::SYS_munmap,
    libc::SYS_mremap,
    libc::SYS_madvise,
    libc::SYS_brk,
    libc::SYS_futex,
    libc::SYS_sched_yield,
    libc::SYS_sched_getaffinity,
    libc::SYS_getcpu,
    libc::SYS_nanosleep,
    libc::SYS_clock_nanosleep,
    libc::SYS_clock_gettime,
    libc::SYS_clock_getres,
    libc::SYS_gettimeofday,
    libc::SYS_getrandom,
    libc::SYS_getpid,
    libc::SYS_getppid,
    libc::SYS_gettid,
    libc::SYS_getrusage,
    libc::SYS_sysinfo,
    libc::SYS_uname,
    libc::SYS_ppoll,
    libc::SYS_epoll_ctl,
    libc::SYS_epoll_pwait,
    libc::SYS_epoll_pwait2,
    libc::SYS_rt_sigaction,
    libc::SYS_rt_sigprocmask,
    libc::SYS_rt_sigreturn,
    libc::SYS_sigaltstack,
    libc::SYS_restart_syscall,
    libc::SYS_membarrier,
    libc::SYS_rseq,
    libc::SYS_set_robust_list,
    libc::SYS_exit,
    libc::SYS_exit_group,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_poll,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_epoll_wait,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_time,
];

/// Messages over sockets that are open.
const MESSAGES: &[i64] = &[
    libc::SYS_sendto,
    libc::SYS_sendmsg,
    libc::SYS_sendmmsg,
    libc::SYS_recvfrom,
    libc::SYS_recvmsg,
    libc::SYS_recvmmsg,
    libc::SYS_getsockopt,
    libc::SYS_setsockopt,
    libc::SYS_getsockname,
    libc::SYS_getpeername,
    libc::SYS_shutdown,
    libc::SYS_epoll_create1,
    libc::SYS_eventfd2,
];

/// Connections of one's own, and threads.
const CONNECTIONS: &[i64] = &[
    libc::SYS_connect,
    libc::SYS_bind,
    libc::SYS_ioctl,
    libc::SYS_clone,
    libc::SYS_clone3,
    libc::SYS_readlinkat,
    libc::SYS_timerfd_create,
    libc::SYS_timerfd_settime,
    libc::SYS_pread64,
    libc::SYS_getdents64,
    libc::SYS_getuid,
    libc::SYS_geteuid,
    libc::SYS_getgid,
    libc::SYS_getegid,
    libc::SYS_mmap,
    libc::SYS_mprotect,
    libc::SYS_pipe2,
    libc::SYS_socketpair,
];

/// What a data worker does to its place at its start, and to its sockets.
const PLACES: &[i64] = &[libc::SYS_ioctl, libc::SYS_sched_setaffinity, libc::SYS_bind];

/// Calls that open files: where files are not allowed they are answered by EACCES.
const FILES: &[i64] = &[
    libc::SYS_openat,
    libc::SYS_openat2,
    libc::SYS_faccessat,
    libc::SYS_faccessat2,
    libc::SYS_readlinkat,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_open,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_access,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_readlink,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_stat,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_lstat,
];

/// `PR_GET_AUXV`: what the kernel has told the process at its start. rustix asks for it when it first calls the vDSO.
const AUXILIARY: u64 = 0x4155_5856;
/// `prctl` of a thread's name, of a mapping's, and of what the kernel has told.
const OWN: [u64; 3] = [libc::PR_SET_NAME as u64, libc::PR_SET_VMA as u64, AUXILIARY];

/// Has every thread of this process obey the filter of a profile.
pub(super) fn install(profile: Profile) -> Result<(), FilterError> {
    let (allowed, files) = programs(profile)?;
    refused::end_loudly()?;
    // The kernel takes the severest answer of all filters; this one comes first, as the next allows no other.
    if let Some(files) = files {
        seccompiler::apply_filter_all_threads(&files)?;
    }
    Ok(seccompiler::apply_filter_all_threads(&allowed)?)
}

/// The filter of what is allowed, and the one of files, if they are not.
fn programs(profile: Profile) -> Result<(BpfProgram, Option<BpfProgram>), FilterError> {
    let architecture: TargetArch = std::env::consts::ARCH.try_into()?;
    let allowed = SeccompFilter::new(allowed(profile)?, SeccompAction::Trap, SeccompAction::Allow, architecture)?;
    let files = match profile {
        Profile::Database => None,
        Profile::Region | Profile::Packets => {
            let refused = SeccompAction::Errno(libc::EACCES.unsigned_abs());
            Some(SeccompFilter::new(free(FILES), SeccompAction::Allow, refused, architecture)?.try_into()?)
        }
    };
    Ok((allowed.try_into()?, files))
}

/// These calls, whatever their arguments are.
fn free(calls: &[i64]) -> Rules {
    calls.iter().map(|call| (*call, Vec::new())).collect()
}

fn allowed(profile: Profile) -> Result<Rules, seccompiler::BackendError> {
    let mut rules = free(ALWAYS);
    rules.extend(free(FILES));
    // Nobody makes code out of what it was sent.
    let not_executable = || only(2, SeccompCmpOp::MaskedEq(libc::PROT_EXEC as u64), &[0]);
    rules.insert(libc::SYS_mmap, not_executable()?);
    rules.insert(libc::SYS_mprotect, not_executable()?);
    rules.insert(libc::SYS_prctl, only(0, SeccompCmpOp::Eq, &OWN)?);
    // abort(3) signals its own thread.
    rules.insert(libc::SYS_tgkill, only(0, SeccompCmpOp::Eq, &[std::process::id().into()])?);
    let families: &[i32] = match profile {
        Profile::Region => &[],
        Profile::Database => &[libc::AF_INET, libc::AF_INET6, libc::AF_UNIX, libc::AF_NETLINK],
        Profile::Packets => &[libc::AF_UNIX, libc::AF_NETLINK],
    };
    match profile {
        Profile::Region => return Ok(rules),
        // The resolver loads libraries.
        Profile::Database => rules.extend(free(&[MESSAGES, CONNECTIONS].concat())),
        Profile::Packets => rules.extend(free(&[MESSAGES, PLACES].concat())),
    }
    let families: Vec<u64> = families.iter().map(|family| family.unsigned_abs().into()).collect();
    rules.insert(libc::SYS_socket, only(0, SeccompCmpOp::Eq, &families)?);
    Ok(rules)
}

/// Calls of which this argument is one of these.
fn only(argument: u8, is: SeccompCmpOp, values: &[u64]) -> Result<Vec<SeccompRule>, seccompiler::BackendError> {
    let rule = |value: &u64| {
        let condition = SeccompCondition::new(argument, SeccompCmpArgLen::Dword, is.clone(), *value)?;
        SeccompRule::new(vec![condition])
    };
    values.iter().map(rule).collect()
}
