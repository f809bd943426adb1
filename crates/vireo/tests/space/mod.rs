//! Network namespaces for tests, each with the lifetime of a process in it.
#![allow(dead_code, reason = "no test needs all of it")]

use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use std::fs;
use std::io;
use std::os::fd::AsFd;
use std::path::Path;
use std::process::{self, Command, ExitStatus, Output, Stdio};
use std::time::{Duration, Instant};

/// Path of the program.
pub(crate) const VIREO: &str = env!("CARGO_BIN_EXE_vireo");

/// Process that is killed when its owner is dropped.
pub(crate) struct Child(process::Child);

impl Child {
    pub(crate) fn new(process: process::Child) -> Self {
        Child(process)
    }

    pub(crate) fn id(&self) -> u32 {
        self.0.id()
    }

    pub(crate) fn try_wait(&mut self) -> io::Result<Option<ExitStatus>> {
        self.0.try_wait()
    }

    pub(crate) fn wait(&mut self) -> io::Result<ExitStatus> {
        self.0.wait()
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Kernel counters of an interface.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Counters {
    pub(crate) received: u64,
    pub(crate) sent: u64,
}

/// Network namespace of an idle process.
pub(crate) struct Space {
    holder: Child,
    directory: tempfile::TempDir,
}

impl Space {
    /// Creates a namespace with its loopback up; `None` if root privileges are missing.
    pub(crate) fn new() -> Option<Self> {
        let mut command = Command::new("unshare");
        // Nothing outlives a test's maximum duration, even if the test is killed.
        command.args(["--net", "sleep", "600"]).stderr(Stdio::null());
        let mut space = Space { holder: Child(command.spawn().ok()?), directory: tempfile::tempdir().ok()? };
        let own = fs::read_link("/proc/self/ns/net").ok()?;
        let path = format!("/proc/{}/ns/net", space.holder.0.id());
        while fs::read_link(&path).ok()? == own {
            if space.holder.try_wait().ok()?.is_some() {
                return None;
            }
            std::thread::sleep(Duration::from_millis(2));
        }
        space.run("ip link set lo up");
        Some(space)
    }

    /// Moves the calling thread and its future children into the namespace.
    pub(crate) fn enter(&self) {
        let path = format!("/proc/{}/ns/net", self.holder.0.id());
        let file = fs::File::open(path).unwrap();
        move_into_link_name_space(file.as_fd(), Some(LinkNameSpaceType::Network)).unwrap();
    }

    /// Returns the process that holds the namespace.
    pub(crate) fn holder(&self) -> u32 {
        self.holder.0.id()
    }

    /// Returns the directory of the namespace's files. Its commands have it in their environment.
    pub(crate) fn directory(&self) -> &Path {
        self.directory.path()
    }

    fn inside(&self, command: &Command) -> Command {
        let mut inside = Command::new("nsenter");
        inside.args(["--net", "--target", &self.holder.0.id().to_string()]);
        inside.arg(command.get_program()).args(command.get_args());
        // Namespaces share the file system, where a core has its token and its socket by default.
        inside.env("VIREO_API__SOCKET", "off").env("VIREO_API__TOKEN_FILE", self.directory.path().join("api.token"));
        inside
    }

    /// Starts a command inside.
    pub(crate) fn start(&self, command: &mut Command) -> Child {
        Child(self.inside(command).spawn().unwrap())
    }

    /// Starts `vireo traffic respond` inside, with further words, and waits until it listens.
    pub(crate) fn start_mirror(&self, words: &[&str]) -> Child {
        let mut mirror = self.start(Command::new(VIREO).args(["traffic", "respond"]).args(words));
        let deadline = Instant::now() + Duration::from_secs(20);
        let sockets = format!("/proc/{}/net/udp", self.holder.0.id());
        // Its default port is 5678.
        while !fs::read_to_string(&sockets).unwrap().contains(":162E ") {
            assert_eq!(mirror.try_wait().unwrap(), None, "the mirror ended");
            assert!(Instant::now() < deadline, "the mirror does not listen");
            std::thread::sleep(Duration::from_millis(2));
        }
        mirror
    }

    /// Runs these words inside; the command must succeed.
    pub(crate) fn run_words(&self, words: &[&str]) {
        let output = self.output(Command::new(words[0]).args(&words[1..]));
        assert!(output.status.success(), "{words:?}: {}", String::from_utf8_lossy(&output.stderr));
    }

    /// Starts a command inside that writes to a file.
    pub(crate) fn start_logged(&self, command: &mut Command, log: fs::File) -> Child {
        let mut inside = self.inside(command);
        inside.stdin(Stdio::null()).stdout(log.try_clone().unwrap()).stderr(log);
        Child(inside.spawn().unwrap())
    }

    /// Runs a command inside to its end.
    pub(crate) fn output(&self, command: &mut Command) -> Output {
        self.inside(command).output().unwrap()
    }

    /// Starts a UPF inside with this configuration and waits until it is up. Its API is at the
    /// default address of `vireo status`.
    pub(crate) fn start_upf(&self, config: &Path) -> Child {
        let mut upf = self.start(Command::new(VIREO).args(["upf", "--config"]).arg(config));
        let deadline = Instant::now() + Duration::from_secs(20);
        while !self.output(Command::new(VIREO).arg("status")).status.success() {
            assert_eq!(upf.try_wait().unwrap(), None, "the UPF ended");
            assert!(Instant::now() < deadline, "the UPF does not come up");
            std::thread::sleep(Duration::from_millis(50));
        }
        upf
    }

    /// Runs a line inside; it must succeed.
    pub(crate) fn run(&self, line: &str) {
        let mut words = line.split(' ');
        let output = self.output(Command::new(words.next().unwrap()).args(words));
        assert!(output.status.success(), "{line}: {}", String::from_utf8_lossy(&output.stderr));
    }

    /// Joins this namespace to another by a veth pair.
    pub(crate) fn join(&self, own: &str, address: &str, other: &Space, far: &str, far_address: &str) {
        self.run(&format!("ip link add {own} type veth peer name {far} netns {}", other.holder.0.id()));
        for (space, interface, address) in [(self, own, address), (other, far, far_address)] {
            space.run(&format!("ip address add {address} dev {interface}"));
            space.run(&format!("ip link set {interface} up"));
        }
    }

    /// Returns the kernel counters of an interface inside.
    pub(crate) fn counters(&self, interface: &str) -> Counters {
        let text = fs::read_to_string(format!("/proc/{}/net/dev", self.holder.0.id())).unwrap();
        let line = text.lines().find_map(|line| line.trim_start().strip_prefix(interface)?.strip_prefix(':'));
        let numbers: Vec<u64> = line.unwrap().split_whitespace().map(|word| word.parse().unwrap()).collect();
        Counters { received: numbers[1], sent: numbers[9] }
    }
}
