//! Seccomp filters: the system calls that workers may make.
//!
//! The lists allow the calls that workers were observed to make (strace, in the tests of this
//! repository). They also allow calls of the allocator and the standard library under conditions
//! that tests do not cause. Everything else is refused, including calls of later kernels.
//!
//! A call that is not on the list of a worker ends the process, with a line that names the call
//! (see [`crate::sys::refused`]). Only opening files fails with EACCES instead: the standard
//! library looks for debug information when a step panics, and continues without.

use crate::sys::refused;
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter, SeccompRule, TargetArch,
};
use std::collections::BTreeMap;

/// Work of a process, beyond the resources that it has when the filter is installed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Profile {
    /// A worker with contexts in the region or in private memory: no sockets, files or threads.
    Region,
    /// A worker with contexts in a database: connections to it, name resolution, and writer
    /// threads.
    Database,
    /// A data worker: packets of inherited sockets and devices, and queries of the kernel's routes.
    Packets,
    /// A shard: connections to other members and to databases, files of the subscriber database,
    /// threads and their priority. No programs, devices, raw sockets or other processes. Refused
    /// calls fail with EPERM, as the database driver may try calls that it does not need.
    Shard,
}

/// Error that prevents the installation of a filter.
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

/// Calls of every process: memory, time, waiting, own signals, open descriptors.
const ALWAYS: &[i64] = &[
    libc::SYS_read,
    libc::SYS_readv,
    libc::SYS_write,
    libc::SYS_writev,
    // Counts of suppressed log lines go to a place of the parent's file.
    libc::SYS_pwrite64,
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

/// Messages over open sockets.
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

/// New connections and threads.
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

/// Processor placement at the start of a data worker, and set-up of its sockets.
const PLACES: &[i64] = &[libc::SYS_ioctl, libc::SYS_sched_setaffinity, libc::SYS_bind];

/// Files of an embedded database, and priorities of threads.
const SHARD: &[i64] = &[
    libc::SYS_pwrite64,
    libc::SYS_ftruncate,
    libc::SYS_fsync,
    libc::SYS_fdatasync,
    libc::SYS_fchmod,
    libc::SYS_fchown,
    libc::SYS_flock,
    libc::SYS_unlinkat,
    libc::SYS_renameat2,
    libc::SYS_utimensat,
    libc::SYS_prlimit64,
    libc::SYS_sched_setscheduler,
    libc::SYS_sched_getscheduler,
    libc::SYS_sched_getparam,
    libc::SYS_sched_setaffinity,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_unlink,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_rename,
];

/// Calls that open files. Without file access they fail with EACCES.
const FILES: &[i64] = &[
    libc::SYS_openat,
    libc::SYS_openat2,
    libc::SYS_faccessat,
    libc::SYS_faccessat2,
    libc::SYS_getcwd,
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

/// `PR_GET_AUXV`: the auxiliary vector. rustix requests it at its first vDSO call.
const AUXILIARY: u64 = 0x4155_5856;
/// Allowed `prctl` operations: thread name, mapping name, auxiliary vector.
const OWN: [u64; 3] = [libc::PR_SET_NAME as u64, libc::PR_SET_VMA as u64, AUXILIARY];

/// Installs the filter of a profile for all threads of this process.
pub(super) fn install(profile: Profile) -> Result<(), FilterError> {
    let (allowed, files) = programs(profile)?;
    if profile == Profile::Shard {
        return Ok(seccompiler::apply_filter_all_threads(&allowed)?);
    }
    refused::exit_on_refused_call()?;
    // The kernel takes the most restrictive result of all filters. This filter comes first, because
    // the next one does not allow installing another.
    if let Some(files) = files {
        seccompiler::apply_filter_all_threads(&files)?;
    }
    Ok(seccompiler::apply_filter_all_threads(&allowed)?)
}

/// Additional calls of a thread with SCTP packets: sockets including fabric connections, and
/// threads for blocking work.
const ENDPOINT: &[i64] = &[
    libc::SYS_accept4,
    libc::SYS_bind,
    libc::SYS_connect,
    libc::SYS_listen,
    libc::SYS_clone,
    libc::SYS_clone3,
    libc::SYS_setpriority,
    libc::SYS_getpriority,
];

/// Installs a filter for a thread with SCTP packets and the threads that it starts. Refused calls
/// fail with EPERM.
pub(super) fn install_for_thread() -> Result<(), FilterError> {
    let architecture: TargetArch = std::env::consts::ARCH.try_into()?;
    let mut rules = common()?;
    FILES.iter().for_each(|call| drop(rules.remove(call)));
    rules.extend(free(&[MESSAGES, ENDPOINT].concat()));
    rules.insert(libc::SYS_socket, socket_rules(&[libc::AF_INET, libc::AF_INET6, libc::AF_UNIX])?);
    // The standard library sets the blocking mode of sockets by an ioctl.
    rules.insert(libc::SYS_ioctl, only(1, SeccompCmpOp::Eq, &[libc::FIONBIO, libc::FIONREAD])?);
    let refused = SeccompAction::Errno(libc::EPERM.unsigned_abs());
    let program: BpfProgram = SeccompFilter::new(rules, refused, SeccompAction::Allow, architecture)?.try_into()?;
    Ok(seccompiler::apply_filter(&program)?)
}

/// Returns the filter of allowed calls, and the filter of files if they are refused.
fn programs(profile: Profile) -> Result<(BpfProgram, Option<BpfProgram>), FilterError> {
    let architecture: TargetArch = std::env::consts::ARCH.try_into()?;
    let refusal = match profile {
        Profile::Region | Profile::Database | Profile::Packets => SeccompAction::Trap,
        Profile::Shard => SeccompAction::Errno(libc::EPERM.unsigned_abs()),
    };
    let allowed = SeccompFilter::new(allowed(profile)?, refusal, SeccompAction::Allow, architecture)?;
    let files = match profile {
        Profile::Database | Profile::Shard => None,
        Profile::Region | Profile::Packets => {
            let refused = SeccompAction::Errno(libc::EACCES.unsigned_abs());
            Some(SeccompFilter::new(free(FILES), SeccompAction::Allow, refused, architecture)?.try_into()?)
        }
    };
    Ok((allowed.try_into()?, files))
}

/// Returns rules that allow these calls with any arguments.
fn free(calls: &[i64]) -> Rules {
    calls.iter().map(|call| (*call, Vec::new())).collect()
}

/// Returns rules for sockets of these families.
fn socket_rules(families: &[libc::c_int]) -> Result<Vec<SeccompRule>, seccompiler::BackendError> {
    let families: Vec<u64> = families.iter().map(|family| family.unsigned_abs().into()).collect();
    only(0, SeccompCmpOp::Eq, &families)
}

/// Returns the rules that all processes and threads have in common.
fn common() -> Result<Rules, seccompiler::BackendError> {
    let mut rules = free(ALWAYS);
    rules.extend(free(FILES));
    // No received data can be made executable.
    let not_executable = || only(2, SeccompCmpOp::MaskedEq(libc::PROT_EXEC as u64), &[0]);
    rules.insert(libc::SYS_mmap, not_executable()?);
    rules.insert(libc::SYS_mprotect, not_executable()?);
    rules.insert(libc::SYS_prctl, only(0, SeccompCmpOp::Eq, &OWN)?);
    // abort(3) signals its own thread.
    rules.insert(libc::SYS_tgkill, only(0, SeccompCmpOp::Eq, &[std::process::id().into()])?);
    Ok(rules)
}

fn allowed(profile: Profile) -> Result<Rules, seccompiler::BackendError> {
    let mut rules = common()?;
    match profile {
        Profile::Region => {}
        Profile::Database | Profile::Shard => {
            // The resolver loads libraries.
            rules.extend(free(&[MESSAGES, CONNECTIONS].concat()));
            if profile == Profile::Shard {
                rules.extend(free(&[ENDPOINT, SHARD].concat()));
            }
            let families = [libc::AF_INET, libc::AF_INET6, libc::AF_UNIX, libc::AF_NETLINK];
            rules.insert(libc::SYS_socket, socket_rules(&families)?);
        }
        Profile::Packets => {
            rules.extend(free(&[MESSAGES, PLACES].concat()));
            rules.insert(libc::SYS_socket, socket_rules(&[libc::AF_UNIX, libc::AF_NETLINK])?);
        }
    }
    Ok(rules)
}

/// Returns rules for calls with one of these values of an argument.
fn only(argument: u8, is: SeccompCmpOp, values: &[u64]) -> Result<Vec<SeccompRule>, seccompiler::BackendError> {
    let rule = |value: &u64| {
        let condition = SeccompCondition::new(argument, SeccompCmpArgLen::Dword, is.clone(), *value)?;
        SeccompRule::new(vec![condition])
    };
    values.iter().map(rule).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::FileExt;
    use std::os::unix::process::ExitStatusExt;
    use std::process::{Command, Output};

    const PART: &str = "VIREO_TEST_CONFINED";

    /// Not a test: the part of this binary that runs as a separate process.
    #[test]
    #[ignore = "a part that other tests start"]
    fn part() {
        let Ok(part) = std::env::var(PART) else { return };
        let (profile, what) = match part.split_once(' ').expect("two words") {
            ("region", what) => (Profile::Region, what),
            ("database", what) => (Profile::Database, what),
            ("shard", what) => (Profile::Shard, what),
            (_, what) => (Profile::Packets, what),
        };
        let counts = tempfile::tempfile().expect("a file");
        let directory = (what == "database").then(|| tempfile::tempdir().expect("a directory"));
        install(profile).expect("installed");
        match what {
            "counts" => counts.write_all_at(&[1; 16], 16).expect("written"),
            "socket" => drop(std::net::UdpSocket::bind("127.0.0.1:0")),
            "file" => assert_eq!(std::fs::read("/etc/hostname").unwrap_err().raw_os_error(), Some(libc::EACCES)),
            "program" => drop(Command::new("/bin/true").status()),
            "database" => directory.iter().for_each(|directory| database(directory.path())),
            "panic" => drop(std::panic::catch_unwind(|| panic!("a step"))),
            _ => {}
        }
        drop(directory);
        std::process::exit(7);
    }

    /// Calls of an embedded database, and calls that a shard does not need.
    fn database(directory: &std::path::Path) {
        let (path, moved) = (directory.join("journal"), directory.join("moved"));
        let file = std::fs::File::create(&path).expect("created");
        file.write_all_at(&[1; 16], 16).and_then(|()| file.sync_data()).expect("written");
        file.set_len(4).expect("truncated");
        std::fs::rename(&path, &moved).and_then(|()| std::fs::remove_file(&moved)).expect("removed");
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("bound");
        let address = listener.local_addr().expect("an address");
        let client = std::thread::spawn(move || std::net::TcpStream::connect(address).map(drop));
        listener.accept().expect("accepted");
        client.join().expect("joined").expect("connected");
        assert_eq!(Command::new("/bin/true").status().unwrap_err().raw_os_error(), Some(libc::EPERM));
        let raw = socket2::Socket::new(socket2::Domain::PACKET, socket2::Type::RAW, None);
        assert_eq!(raw.unwrap_err().raw_os_error(), Some(libc::EPERM));
    }

    fn run(part: &str) -> Output {
        let mut command = Command::new("/proc/self/exe");
        let name = "privileges::filter::tests::part";
        command.args(["--exact", name, "--ignored", "--test-threads=1", "--nocapture"]);
        command.env(PART, part).env("RUST_BACKTRACE", "1").output().expect("started")
    }

    /// Checks that a process exits normally, or that its filter ends it at this call.
    fn ends(part: &str, refused: Option<&str>) {
        let Output { status, stderr, .. } = run(part);
        let stderr = String::from_utf8_lossy(&stderr).into_owned();
        let expected = if refused.is_some() { refused::STATUS } else { 7 };
        assert_eq!((status.code(), status.signal()), (Some(expected), None), "{part}: {stderr}");
        if let Some(call) = refused {
            assert!(stderr.contains(&format!("seccomp filter refuses system call {call}")), "{part}: {stderr}");
        }
    }

    #[test]
    fn refused_call_ends_the_process_and_is_named() {
        let socket = format!("{} (socket)", libc::SYS_socket);
        ends("region socket", Some(&socket));
        ends("packets socket", Some(&socket));
        ends("database socket", None);
        ends("shard socket", None);
        ends("shard database", None);
        for profile in ["region", "packets"] {
            ends(&format!("{profile} file"), None);
            ends(&format!("{profile} panic"), None);
            ends(&format!("{profile} counts"), None);
        }
        // posix_spawn(3) blocks signals. The kernel then ends the process by SIGSYS, and no line
        // names the call.
        let program = run("region program").status;
        assert!(program.code() == Some(refused::STATUS) || program.signal() == Some(libc::SIGSYS), "{program:?}");
        assert_ne!(run("database program").status.code(), Some(0));
    }
}
