//! Worker processes of a core: discovery, resource use, kill and stop.
//!
//! All data come from the kernel, and none from the core's own reports.

use crate::process::{Process, cpu_of};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt;
use std::time::Duration;
use vireo_config::Failure;

/// Command-line argument that identifies a worker among the children.
const WORKER: &[u8] = vireo_config::worker_process::NF_WORKER.as_bytes();
/// Command-line argument that identifies a shard.
const SHARD: &[u8] = vireo_config::worker_process::SHARD.as_bytes();
/// Command-line argument that identifies a data worker.
const DATA_WORKER: &[u8] = vireo_config::worker_process::DATA_WORKER.as_bytes();

/// Worker process.
#[derive(Debug)]
pub struct Worker {
    pub pid: u32,
    /// Process descriptor: refers to this process even if its ID is reused.
    fd: OwnedFd,
}

/// Resource use of a core, from the kernel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ResourceUse {
    /// Number of worker processes.
    pub workers: usize,
    /// Resident private memory of the core's own process.
    pub parent_bytes: u64,
    /// Resident private memory of all workers.
    pub worker_bytes: u64,
    /// Resident private memory of the largest worker.
    pub largest_worker_bytes: u64,
    /// Allocated memory of the state region, counted once for all processes.
    pub shared_bytes: u64,
    /// File descriptors of the core's own process.
    pub parent_fds: usize,
    /// File descriptors of all workers.
    pub worker_fds: usize,
}

impl Worker {
    /// Returns the workers of a core, the oldest first.
    pub fn nf_workers(core: &Process) -> Result<Vec<Worker>, Failure> {
        Worker::by_parent(core.pid())
    }

    /// Returns the workers of the core with this process ID, the oldest first.
    pub fn by_parent(core: u32) -> Result<Vec<Worker>, Failure> {
        Worker::by_word(core, WORKER)
    }

    /// Returns the data worker processes of a core. The standby worker, which has no queue of the
    /// TUN device, is excluded.
    pub fn data_workers(core: &Process) -> Result<Vec<Worker>, Failure> {
        let mut workers = Worker::by_word(core.pid(), DATA_WORKER)?;
        workers.retain(|worker| {
            let mut files = fs::read_dir(format!("/proc/{}/fd", worker.pid)).into_iter().flatten().flatten();
            files.any(|file| fs::read_link(file.path()).is_ok_and(|to| to.as_os_str() == "/dev/net/tun"))
        });
        Ok(workers)
    }

    /// Returns the shards of a core, the oldest first.
    pub fn shards(core: &Process) -> Result<Vec<Worker>, Failure> {
        Worker::by_word(core.pid(), SHARD)
    }

    fn by_word(core: u32, word: &[u8]) -> Result<Vec<Worker>, Failure> {
        let mut workers = Vec::new();
        for pid in children(core)? {
            let is_worker = |pid: u32| fs::read(format!("/proc/{pid}/cmdline")).is_ok_and(|line| has_word(&line, word));
            let Some(number) = Pid::from_raw(pid.cast_signed()).filter(|_| is_worker(pid)) else { continue };
            // The process may end and its ID may be reused, so it is checked again after it is
            // opened.
            let Ok(fd) = pidfd_open(number, PidfdFlags::empty()) else { continue };
            if parent(pid) == Some(core) && is_worker(pid) {
                workers.push(Worker { pid, fd });
            }
        }
        workers.sort_by_key(|worker| worker.pid);
        Ok(workers)
    }

    /// Kills the worker (SIGKILL). Returns false if it has already ended.
    pub fn kill(&self) -> io::Result<bool> {
        self.signal(Signal::KILL)
    }

    /// Stops the worker (SIGSTOP). Returns false if it has already ended.
    pub fn stop(&self) -> io::Result<bool> {
        self.signal(Signal::STOP)
    }

    fn signal(&self, signal: Signal) -> io::Result<bool> {
        match pidfd_send_signal(&self.fd, signal) {
            Ok(()) => Ok(true),
            Err(rustix::io::Errno::SRCH) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    /// Returns true if a thread of the worker with this name is running or ready to run.
    pub fn is_running(&self, thread: &str) -> bool {
        let tasks = fs::read_dir(format!("/proc/{}/task", self.pid)).into_iter().flatten().flatten();
        let mut stats = tasks.filter_map(|task| fs::read_to_string(task.path().join("stat")).ok());
        // `ID (name) state ...`
        let fields = |stat: &str| {
            let (name, rest) = stat.split_once('(')?.1.rsplit_once(") ")?;
            Some(name == thread && rest.starts_with('R'))
        };
        stats.any(|stat| fields(&stat) == Some(true))
    }

    /// Returns the CPU time, zero if the worker has ended.
    pub fn cpu(&self) -> Duration {
        cpu_of(self.pid).unwrap_or_default()
    }
}

/// Returns the resource use of the core and its workers.
pub fn holdings(core: &Process) -> Result<ResourceUse, Failure> {
    let status = |pid: u32| fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let own = status(core.pid());
    let mut held = ResourceUse {
        parent_bytes: octets(&own, "RssAnon:"),
        shared_bytes: octets(&own, "RssShmem:"),
        parent_fds: descriptors(core.pid()),
        ..ResourceUse::default()
    };
    for worker in Worker::nf_workers(core)? {
        let text = status(worker.pid);
        held.workers += 1;
        let private = octets(&text, "RssAnon:");
        held.worker_bytes += private;
        held.largest_worker_bytes = held.largest_worker_bytes.max(private);
        held.shared_bytes = held.shared_bytes.max(octets(&text, "RssShmem:")).max(region_octets(worker.pid));
        held.worker_fds += descriptors(worker.pid);
    }
    Ok(held)
}

/// Returns the children of a process.
pub(crate) fn children(of: u32) -> io::Result<Vec<u32>> {
    let numbers = fs::read_dir("/proc")?.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
    Ok(numbers.filter(|pid| parent(*pid) == Some(of)).collect())
}

fn parent(pid: u32) -> Option<u32> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name may contain any character, including parentheses.
    stat.rsplit_once(')')?.1.split_whitespace().nth(1)?.parse().ok()
}

fn has_word(line: &[u8], word: &[u8]) -> bool {
    line.split(|octet| *octet == 0).any(|w| w == word)
}

fn octets(status: &str, name: &str) -> u64 {
    let line = status.lines().find_map(|l| l.strip_prefix(name));
    line.and_then(|l| l.split_whitespace().next()?.parse::<u64>().ok()).unwrap_or(0) * 1024
}

/// Returns the memory of the region, which is a worker's standard input. No process has to map all
/// of it.
fn region_octets(pid: u32) -> u64 {
    let file = format!("/proc/{pid}/fd/0");
    let is_memory = fs::read_link(&file).is_ok_and(|to| to.to_string_lossy().starts_with("/memfd:"));
    // A block has 512 bytes (stat(3type)).
    if is_memory { fs::metadata(&file).map_or(0, |region| region.blocks() * 512) } else { 0 }
}

fn descriptors(pid: u32) -> usize {
    fs::read_dir(format!("/proc/{pid}/fd")).map_or(0, Iterator::count)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::netns::Netns;
    use std::process::Command;
    use std::time::Instant;

    /// A shell acts as core; its child is a worker by its command line.
    #[test]
    fn workers_are_found_measured_stopped_and_killed() {
        let Ok(netns) = Netns::new() else {
            eprintln!("skipped: only root may make network namespaces here");
            return;
        };
        let mut command = Command::new("sh");
        command.args(["-c", "sleep 50 & sh -c 'i=0; while :; do i=$((i+1)); done' nf-worker & wait; wait"]);
        let core = Process::start("core", &netns, &mut command, None).unwrap();
        let deadline = Instant::now() + Duration::from_secs(20);
        let worker = loop {
            match Worker::nf_workers(&core).unwrap().pop() {
                Some(worker) if worker.cpu() > Duration::from_millis(5) => break worker,
                _ => assert!(Instant::now() < deadline, "no worker"),
            }
            std::thread::sleep(Duration::from_millis(5));
        };
        assert_ne!(worker.pid, core.pid());
        assert_eq!(children(core.pid()).unwrap().len(), 2, "the sleeper is a child but no worker");
        assert!(core.cpu().unwrap() >= worker.cpu(), "the workers' time is in the core's");
        let held = holdings(&core).unwrap();
        assert!(held.workers == 1 && held.worker_fds > 0 && held.parent_bytes > 0 && held.worker_bytes > 0, "{held:?}");
        assert_eq!(held.largest_worker_bytes, held.worker_bytes, "there is one");
        assert!(worker.stop().unwrap());
        let state = || fs::read_to_string(format!("/proc/{}/stat", worker.pid)).unwrap_or_default();
        while !state().contains(") T ") {
            assert!(Instant::now() < deadline, "{}", state());
            std::thread::sleep(Duration::from_millis(1));
        }
        let used = worker.cpu();
        assert!(worker.kill().unwrap());
        while worker.kill().unwrap() {
            assert!(Instant::now() < deadline, "{}", state());
            std::thread::sleep(Duration::from_millis(1));
        }
        assert!(Worker::nf_workers(&core).unwrap().is_empty());
        // The kernel counts ended children in ticks.
        assert!(core.cpu().unwrap() + Duration::from_millis(20) >= used, "the time of the dead is in it too");
    }
}
