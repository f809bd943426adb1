//! Dropping of privileges before a worker process reads input of a peer.
//!
//! [`drop_all`] runs first in the process, before it has a second thread: capabilities belong to a
//! thread. It empties all capability sets, sets `no_new_privs` and makes the process undumpable
//! (its heap has NAS keys). It also raises the OOM score above that of the parent, whose death
//! would end all workers. [`confine`] follows when the process has all its resources. From then on
//! a seccomp filter refuses every system call that its work does not need.
//!
//! [`confine_thread`] does the same to one thread of a process that needs privileges elsewhere: the
//! thread on which usrsctp parses packets of RAN nodes. It shares memory with the other threads, so
//! it is a smaller obstacle than a process.
//!
//! If the system does not permit a part, the process works without that part and logs it once.

mod filter;

pub use filter::Profile;

use rustix::io::Errno;
use rustix::process::{DumpableBehavior, set_dumpable_behavior};
use rustix::thread::{
    CapabilitySet, CapabilitySets, capabilities, capability_is_in_bounding_set, clear_ambient_capability_set,
    remove_capability_from_bounding_set, set_capabilities, set_no_new_privs,
};
use std::fmt::Display;
use std::fs;

/// Difference between the OOM scores of worker and parent: one fifth of the memory of the machine
/// or cgroup.
const OOM_SCORE_DIFFERENCE: i32 = 200;
/// Highest OOM score adjustment (proc_pid_oom_score_adj(5)).
const HIGHEST: i32 = 1000;
/// File of the OOM score adjustment.
const SCORE: &str = "/proc/self/oom_score_adj";

/// Privileges that the system did not permit to drop.
#[derive(Debug, Default)]
#[must_use = "it is logged when there is a log"]
pub struct RetainedPrivileges(Vec<String>);

impl RetainedPrivileges {
    fn note(&mut self, part: &str, result: Result<(), impl Display>) {
        if let Err(error) = result {
            self.0.push(format!("{part}: {error}"));
        }
    }

    /// Logs the list unless it is empty.
    pub fn log(&self) {
        if !self.0.is_empty() {
            let privileges = self.0.join("; ");
            tracing::warn!(privileges, "system does not permit to drop some privileges");
        }
    }
}

/// Drops all privileges of this process. Must be called while it has one thread.
pub fn drop_all() -> RetainedPrivileges {
    drop_all_but(CapabilitySet::empty())
}

/// Drops all privileges except CAP_SYS_NICE, if the process has it: a process whose heartbeats
/// other members wait for raises the priority of its threads. Must be called as [`drop_all`].
pub fn drop_all_but_nice() -> RetainedPrivileges {
    drop_all_but(CapabilitySet::SYS_NICE)
}

fn drop_all_but(retained: CapabilitySet) -> RetainedPrivileges {
    let mut kept = RetainedPrivileges::default();
    kept.note("OOM score", raise_score());
    // The bounding set first: it requires CAP_SETPCAP, which the next steps drop.
    kept.note("bounding set", empty_bounding_set());
    kept.note("ambient set", clear_ambient_capability_set());
    kept.note("capabilities", keep_only(retained));
    kept.note("no_new_privs", set_no_new_privs(true));
    kept.note("core dumps", set_dumpable_behavior(DumpableBehavior::NotDumpable));
    kept
}

/// Installs the filter of a profile for all threads of this process. A refused call ends the
/// process.
pub fn confine(profile: Profile) {
    let mut kept = RetainedPrivileges::default();
    kept.note("seccomp filter", filter::install(profile));
    kept.log();
}

/// Drops the capabilities of the calling thread and filters its system calls to those for SCTP
/// packets. Refused calls fail, as the end of the process would be the end of the core. With
/// `is_punctual` the thread keeps CAP_SYS_NICE for raising its priority, because other machines
/// wait for it.
pub fn confine_thread(is_punctual: bool) {
    let mut kept = RetainedPrivileges::default();
    kept.note("ambient set", clear_ambient_capability_set());
    kept.note("capabilities", keep_only(if is_punctual { CapabilitySet::SYS_NICE } else { CapabilitySet::empty() }));
    kept.note("no_new_privs", set_no_new_privs(true));
    kept.note("seccomp filter", filter::install_for_thread());
    kept.log();
}

/// Drops all capabilities of the calling thread except these.
fn keep_only(wanted: CapabilitySet) -> Result<(), Errno> {
    let left = capabilities(None)?.permitted & wanted;
    set_capabilities(None, CapabilitySets { effective: left, permitted: left, inheritable: CapabilitySet::empty() })
}

fn empty_bounding_set() -> Result<(), Errno> {
    // Capabilities are numbered from 0 up to the last one that the kernel knows.
    for number in 0..u64::BITS {
        let capability = CapabilitySet::from_bits_retain(1 << number);
        match capability_is_in_bounding_set(capability) {
            Ok(true) => remove_capability_from_bounding_set(capability)?,
            Ok(false) => {}
            Err(_) => break,
        }
    }
    Ok(())
}

/// The process has inherited its parent's score.
fn raise_score() -> Result<(), String> {
    let inherited = fs::read_to_string(SCORE).map_err(|error| error.to_string())?;
    let inherited: i32 = inherited.trim().parse().map_err(|_| format!("{SCORE} is not a number ({inherited})"))?;
    let score = (inherited + OOM_SCORE_DIFFERENCE).min(HIGHEST);
    fs::write(SCORE, score.to_string()).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    use std::os::unix::process::ExitStatusExt;
    use std::process::{Command, ExitStatus};

    const PART: &str = "VIREO_TEST_SHEDS";

    /// Not a test: a process that is ended by a signal which dumps core.
    #[test]
    #[ignore = "a part that other tests start"]
    fn part() {
        let Ok(part) = std::env::var(PART) else { return };
        let most = getrlimit(Resource::Core).maximum;
        setrlimit(Resource::Core, Rlimit { current: most, maximum: most }).expect("up to the maximum");
        if part == "sheds" {
            // Only of this thread: a test process has others.
            let kept = drop_all();
            assert!(kept.0.is_empty() || !rustix::process::getuid().is_root(), "{kept:?}");
            assert_eq!(capabilities(None).expect("asked").permitted, CapabilitySet::empty());
        }
        std::process::abort();
    }

    fn ends(part: &str) -> ExitStatus {
        let directory = tempfile::tempdir().expect("a directory");
        let program = std::fs::read_link("/proc/self/exe").expect("this program");
        let mut command = Command::new(program);
        command.args(["--exact", "privileges::tests::part", "--ignored", "--test-threads=1"]).env(PART, part);
        command.current_dir(&directory).output().expect("started").status
    }

    #[test]
    fn confined_process_leaves_no_core() {
        let before = ends("keeps");
        let after = ends("sheds");
        assert_eq!((before.signal(), after.signal()), (Some(libc::SIGABRT), Some(libc::SIGABRT)));
        assert!(!after.core_dumped(), "the kernel has written its memory down");
        if !before.core_dumped() {
            eprintln!("skipped in part: no process leaves a core here");
        }
    }
}
