//! Starting this binary again as a worker, and ending it.

use rustix::process::{Pid, PidfdFlags, Signal, kill_process, pidfd_open, pidfd_send_signal};
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::os::fd::AsRawFd;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use vireo_store::region::{BuryError, Region, Worker};

const FD: &str = "VIREO_TEST_REGION";
const LOG: &str = "VIREO_TEST_LOG";
const NUMBER: &str = "VIREO_TEST_WORKER";

/// Starts worker `number`: the test `role` of this binary, which finds out by [`role`] that it is one.
pub(crate) fn start(region: &Region, role: &str, number: u8, log: &Log) -> Child {
    let fd = region.share().unwrap();
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", role, "--ignored", "--test-threads=1"]);
    command.env(FD, fd.as_raw_fd().to_string()).env(NUMBER, number.to_string()).env(LOG, &log.path);
    command.stdout(Stdio::null()).spawn().unwrap()
}

/// Kills a worker and waits for its end.
pub(crate) fn kill(child: &mut Child) {
    child.kill().unwrap();
    assert_eq!(child.wait().unwrap().code(), None, "it was killed, and had not failed");
}

/// Stops a worker as if it were stuck; nothing of it may be taken over before it is killed and its end waited for.
pub(crate) fn stop_and_kill(region: &Region, number: u8, child: &mut Child) {
    let pid = Pid::from_child(child);
    kill_process(pid, Signal::STOP).unwrap();
    let pidfd = pidfd_open(pid, PidfdFlags::empty()).unwrap();
    let alive = |error: Option<BuryError>| matches!(error, Some(BuryError::Alive(_) | BuryError::Nobody));
    assert!(alive(region.bury(number).err()), "a stopped worker is not buried");
    pidfd_send_signal(&pidfd, Signal::KILL).unwrap();
    assert!(alive(region.bury(number).err()), "nor one that was not waited for");
    assert_eq!(child.wait().unwrap().code(), None, "it was killed, and had not failed");
}

/// The worker that this process is; `None` if it is a test.
pub(crate) fn role() -> Option<Worker> {
    let number = std::env::var(NUMBER).ok()?.parse().unwrap();
    let fd: i32 = std::env::var(FD).unwrap().parse().unwrap();
    let fd = OpenOptions::new().read(true).write(true).open(format!("/proc/self/fd/{fd}")).unwrap().into();
    let region = Region::attach(fd).expect("the region of the test");
    Some(region.join(number).expect("its number is free"))
}

/// A small generator (xorshift): the tests need no better one.
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn below(&mut self, n: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % n
    }
}

/// How many kills: `quick` in the usual run, or what the environment says.
pub(crate) fn kills(quick: u32) -> u32 {
    std::env::var("VIREO_KILLS").ok().map_or(quick, |n| n.parse().expect("VIREO_KILLS is a number"))
}

/// What all processes say they did, in one file: a line is written at once or, if its writer is killed before, not.
pub(crate) struct Log {
    path: PathBuf,
    file: File,
}

impl Log {
    /// A new one, which goes when it is dropped.
    pub(crate) fn create(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("vireo-{name}-{}", std::process::id()));
        let file = OpenOptions::new().create(true).append(true).open(&path).unwrap();
        Log { path, file }
    }

    /// The one that this process was given.
    pub(crate) fn inherited() -> Self {
        let path = PathBuf::from(std::env::var_os(LOG).unwrap());
        Log { file: OpenOptions::new().append(true).open(&path).unwrap(), path }
    }

    pub(crate) fn write(&mut self, numbers: &[u64]) {
        let octets: Vec<u8> = numbers.iter().flat_map(|n| n.to_le_bytes()).collect();
        assert_eq!(self.file.write(&octets).unwrap(), octets.len());
    }

    /// Everything that was written, as lines of `N` numbers; and the file is removed.
    pub(crate) fn finish<const N: usize>(self) -> Vec<[u64; N]> {
        let octets = std::fs::read(&self.path).unwrap();
        std::fs::remove_file(&self.path).unwrap();
        let number = |octets: &[u8]| u64::from_le_bytes(octets.try_into().unwrap());
        let lines = octets.chunks(N * 8).map(|line| std::array::from_fn(|i| number(&line[i * 8..][..8])));
        lines.collect()
    }
}

/// A fingerprint (FNV-1a).
pub(crate) fn hash(octets: &[u8]) -> u64 {
    octets.iter().fold(0xcbf2_9ce4_8422_2325, |hash, o| (hash ^ u64::from(*o)).wrapping_mul(0x100_0000_01b3))
}
