//! Worker processes for crash tests: this test binary started again, and its end.

use rustix::process::{Pid, PidfdFlags, Signal, kill_process, pidfd_open, pidfd_send_signal};
use rustix::process::{getppid, set_parent_process_death_signal};
use std::fmt;
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use vireo_store::region::{DeadWorker, ReapError, Region, Worker};

const FD: &str = "VIREO_TEST_REGION";
const LOG: &str = "VIREO_TEST_LOG";
const NUMBER: &str = "VIREO_TEST_WORKER";
const PARENT: &str = "VIREO_TEST_PARENT";

/// Starts worker `number`: the test `role` of this binary, which recognises its role by [`role`].
pub(crate) fn start(region: &Region, role: &str, number: u8, log: &Log) -> Child {
    let fd = region.share().unwrap();
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", role, "--ignored", "--test-threads=1", "--nocapture"]);
    command.env(FD, fd.as_raw_fd().to_string()).env(NUMBER, number.to_string()).env(LOG, &log.path);
    command.env(PARENT, std::process::id().to_string());
    command.stdout(Stdio::null()).spawn().unwrap()
}

/// Kills a worker and waits for its end.
pub(crate) fn kill(child: &mut Child) {
    child.kill().unwrap();
    assert_eq!(child.wait().unwrap().code(), None, "it was killed, and had not failed");
}

/// The sequence of worker deaths in a test: kills and stops (simulating a hang), in a fixed order.
///
/// A worker that has not joined yet does not count.
pub(crate) struct Deaths {
    kills: (u32, u32),
    stops: (u32, u32),
    early: u32,
    random: Random,
    stopped: Option<OwnedFd>,
}

impl Deaths {
    /// Returns a sequence with these numbers of kills and stops. The environment variables
    /// `VIREO_KILLS` and `VIREO_STOPS` override them.
    pub(crate) fn new(kills: u32, stops: u32) -> Self {
        let count = |name: &str, usual: u32| {
            std::env::var(name).ok().map_or(usual, |n| n.parse().unwrap_or_else(|_| panic!("{name} is a number")))
        };
        let (kills, stops) = (count("VIREO_KILLS", kills), count("VIREO_STOPS", stops));
        Deaths { kills: (0, kills), stops: (0, stops), early: 0, random: Random(0xdead), stopped: None }
    }

    pub(crate) fn are_left(&self) -> bool {
        self.kills.0 < self.kills.1 || self.stops.0 < self.stops.1
    }

    pub(crate) fn count(&self) -> u32 {
        self.kills.0 + self.stops.0 + self.early
    }

    /// Ends a worker. Returns `None` if it had not joined, so that there is nothing to recover.
    pub(crate) fn die(&mut self, region: &Region, number: u8, child: &mut Child) -> Option<DeadWorker> {
        let left = |(done, all): (u32, u32)| u64::from(all - done);
        let stop = self.random.below(left(self.kills) + left(self.stops)) >= left(self.kills);
        self.stopped = None;
        if stop {
            self.stopped = Some(stop_and_kill(region, number, child));
        } else {
            kill(child);
        }
        let dead = region.declare_dead(number).ok();
        let count = if dead.is_none() {
            &mut self.early
        } else if stop {
            &mut self.stops.0
        } else {
            &mut self.kills.0
        };
        *count += 1;
        if self.count().is_multiple_of(1000) {
            println!("{self} until now");
        }
        dead
    }

    /// Checks that the last stopped worker, whose work was taken over, cannot be continued by
    /// SIGCONT.
    pub(crate) fn stays_dead(&mut self) {
        if let Some(pidfd) = self.stopped.take() {
            assert_eq!(
                pidfd_send_signal(&pidfd, Signal::CONT),
                Err(rustix::io::Errno::SRCH),
                "nobody is there to wake"
            );
        }
    }

    /// Kills a worker at the end of a test.
    pub(crate) fn last(region: &Region, number: u8, mut child: Child) -> Option<DeadWorker> {
        kill(&mut child);
        region.declare_dead(number).ok()
    }
}

impl fmt::Display for Deaths {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} kills, {} stops ({} more died before they had joined)", self.kills.0, self.stops.0, self.early)
    }
}

/// Stops a worker, simulating a hang, and then kills it.
///
/// Nothing may be taken over before it is killed and reaped. SIGCONT while it dies does not
/// continue it.
fn stop_and_kill(region: &Region, number: u8, child: &mut Child) -> OwnedFd {
    let pid = Pid::from_child(child);
    kill_process(pid, Signal::STOP).unwrap();
    let pidfd = pidfd_open(pid, PidfdFlags::empty()).unwrap();
    let alive = |error: Option<ReapError>| matches!(error, Some(ReapError::Alive(_) | ReapError::NoWorker));
    assert!(alive(region.declare_dead(number).err()), "a stopped worker is not buried");
    pidfd_send_signal(&pidfd, Signal::KILL).unwrap();
    pidfd_send_signal(&pidfd, Signal::CONT).unwrap();
    assert!(alive(region.declare_dead(number).err()), "nor one that was not waited for");
    assert_eq!(child.wait().unwrap().code(), None, "it was killed, and had not failed");
    pidfd
}

/// Returns the worker of this process; `None` in a test process.
pub(crate) fn role() -> Option<Worker> {
    let number = std::env::var(NUMBER).ok()?.parse().unwrap();
    // The worker must end with the test, even if the test fails.
    set_parent_process_death_signal(Some(Signal::KILL)).unwrap();
    let parent = getppid().map(|pid| pid.as_raw_nonzero().to_string());
    if parent != std::env::var(PARENT).ok() {
        // The test process has ended already.
        return None;
    }
    let fd: i32 = std::env::var(FD).unwrap().parse().unwrap();
    let fd = OpenOptions::new().read(true).write(true).open(format!("/proc/self/fd/{fd}")).unwrap().into();
    let region = Region::attach(fd).expect("the region of the test");
    Some(region.join(number).expect("its number is free"))
}

/// A small random generator (xorshift), sufficient for tests.
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn below(&mut self, n: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % n
    }
}

/// A file in which all processes log their actions.
///
/// A line is written completely, or, if its writer is killed before, not at all. (Lines do not
/// cross pages: a kill may truncate a write at a page boundary.)
pub(crate) struct Log {
    path: PathBuf,
    file: File,
    /// Bytes read so far.
    read: u64,
}

impl Log {
    /// Creates a log file that is removed on drop.
    pub(crate) fn create(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("vireo-{name}-{}", std::process::id()));
        let file = OpenOptions::new().create(true).read(true).append(true).open(&path).unwrap();
        Log { path, file, read: 0 }
    }

    /// Opens the log file of the test that started this process.
    pub(crate) fn inherited() -> Self {
        let path = PathBuf::from(std::env::var_os(LOG).unwrap());
        Log { file: OpenOptions::new().append(true).open(&path).unwrap(), path, read: 0 }
    }

    pub(crate) fn write(&mut self, numbers: &[u64]) {
        let mut octets: Vec<u8> = numbers.iter().flat_map(|n| n.to_le_bytes()).collect();
        octets.resize(octets.len().next_power_of_two(), 0);
        assert_eq!(self.file.write(&octets).unwrap(), octets.len());
    }

    /// Returns the lines since the last call, each with `N` numbers.
    pub(crate) fn read<const N: usize>(&mut self) -> Vec<[u64; N]> {
        let (there, line) = (self.file.metadata().unwrap().len(), (N * 8).next_power_of_two());
        let mut octets = vec![0; (there - self.read) as usize / line * line];
        self.file.read_exact_at(&mut octets, self.read).unwrap();
        self.read += octets.len() as u64;
        let number = |octets: &[u8]| u64::from_le_bytes(octets.try_into().unwrap());
        octets.chunks(line).map(|line| std::array::from_fn(|i| number(&line[i * 8..][..8]))).collect()
    }
}

impl Drop for Log {
    fn drop(&mut self) {
        // A worker must not remove the file.
        if std::env::var_os(LOG).is_none() {
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

/// Returns a fingerprint (FNV-1a).
pub(crate) fn hash(octets: &[u8]) -> u64 {
    octets.iter().fold(0xcbf2_9ce4_8422_2325, |hash, o| (hash ^ u64::from(*o)).wrapping_mul(0x100_0000_01b3))
}
