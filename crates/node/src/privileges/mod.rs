//! What a worker process gives up before it looks at anything that a peer has sent.
//!
//! [`shed`] runs first thing in the process, before it has a second thread: capabilities are a thread's. It empties all
//! capability sets, sets `no_new_privs`, makes the process undumpable (its heap holds NAS keys) and raises its OOM score above
//! its parent's, whose death would end all workers. [`confine`] follows when the process has what it works with: from then on a
//! seccomp filter refuses every system call that its work does not need.
//!
//! Where the system does not permit a part, the process does its work without that part and logs it, once.

mod filter;

pub(crate) use filter::Profile;

use rustix::io::Errno;
use rustix::process::{DumpableBehavior, set_dumpable_behavior};
use rustix::thread::{
    CapabilitySet, CapabilitySets, capability_is_in_bounding_set, clear_ambient_capability_set,
    remove_capability_from_bounding_set, set_capabilities, set_no_new_privs,
};
use std::fmt::Display;
use std::fs;

/// By how much a worker's OOM score is above its parent's: a fifth of the memory that the machine or the cgroup has.
const ABOVE: i32 = 200;
/// The highest OOM score adjustment (proc_pid_oom_score_adj(5)).
const HIGHEST: i32 = 1000;
/// The file that has it.
const SCORE: &str = "/proc/self/oom_score_adj";

/// What the system did not permit.
#[derive(Debug, Default)]
#[must_use = "it is logged when there is a log"]
pub struct Kept(Vec<String>);

impl Kept {
    fn note(&mut self, part: &str, result: Result<(), impl Display>) {
        if let Err(error) = result {
            self.0.push(format!("{part}: {error}"));
        }
    }

    /// Logs it, if there is anything.
    pub fn log(&self) {
        if !self.0.is_empty() {
            let kept = self.0.join("; ");
            tracing::warn!(kept, "worker keeps privileges that the system does not let it drop");
        }
    }
}

/// Gives up what this process can do beyond its work. To be called while it has one thread.
pub fn shed() -> Kept {
    let mut kept = Kept::default();
    kept.note("OOM score", raise_score());
    // The bounding set first: it takes CAP_SETPCAP, which the next steps take away.
    kept.note("bounding set", empty_bounding_set());
    kept.note("ambient set", clear_ambient_capability_set());
    let none = CapabilitySet::empty();
    kept.note(
        "capabilities",
        set_capabilities(None, CapabilitySets { effective: none, permitted: none, inheritable: none }),
    );
    kept.note("no_new_privs", set_no_new_privs(true));
    kept.note("core dumps", set_dumpable_behavior(DumpableBehavior::NotDumpable));
    kept
}

/// Has the kernel refuse all system calls of this process, in all its threads, that a profile does not allow. They end it.
pub(crate) fn confine(profile: Profile) {
    let mut kept = Kept::default();
    kept.note("seccomp filter", filter::install(profile));
    kept.log();
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
    let score = (inherited + ABOVE).min(HIGHEST);
    fs::write(SCORE, score.to_string()).map_err(|error| error.to_string())
}
