//! One worker process: its start, and its state as shown by the kernel.

use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use std::ffi::OsString;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use vireo_logging::counts::{Report, SLOT_VARIABLE};

use super::ExitCause;

/// Environment variable with the number of the worker.
pub(super) const NUMBER: &str = "VIREO_WORKER";
/// Environment variable with the process id of the host.
pub(super) const HOST: &str = "VIREO_WORKER_HOST";

/// Command of a worker process. The process calls [`super::join_region`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Program {
    pub path: PathBuf,
    pub args: Vec<OsString>,
    pub env: Vec<(OsString, OsString)>,
}

impl Program {
    /// Returns the running program with other arguments, even if its file was replaced or removed.
    pub fn this(args: impl IntoIterator<Item = impl Into<OsString>>) -> Self {
        let args = args.into_iter().map(Into::into).collect();
        Program { path: "/proc/self/exe".into(), args, env: Vec::new() }
    }
}

/// Runs `start` on one processor. A process that it starts inherits the processor from its first
/// instruction on.
fn on<T>(core: Option<usize>, start: impl FnOnce() -> T) -> T {
    let all = core.filter(|core| *core < CpuSet::MAX_CPU).and_then(|core| {
        let all = sched_getaffinity(None).ok()?;
        let mut only = CpuSet::new();
        only.set(core);
        let moved = sched_setaffinity(None, &only)
            .inspect_err(|error| tracing::warn!(%error, core, "worker not pinned to its CPU; it runs on any CPU"));
        moved.is_ok().then_some(all)
    });
    let started = start();
    if let Some(error) = all.and_then(|all| sched_setaffinity(None, &all).err()) {
        tracing::warn!(%error, "supervisor thread remains pinned to the CPU of a worker");
    }
    started
}

/// A running worker process.
#[derive(Debug)]
pub(super) struct Process {
    child: Child,
    /// Readable when the process has ended.
    pub(super) pidfd: OwnedFd,
    pub(super) started: Instant,
    /// Receives the counts of log lines that the worker drops, while it exists.
    _report: Option<Report>,
}

impl Process {
    /// Starts a process. Its standard input is the region, and its standard output has the counts
    /// of its log. No inheritable descriptor is open in this process, and no code runs between fork
    /// and exec. The C library may therefore combine both (posix_spawn).
    pub(super) fn start(program: &Program, number: u8, region: &OwnedFd, core: Option<usize>) -> io::Result<Self> {
        let mut command = Command::new(&program.path);
        command.args(&program.args).envs(program.env.iter().map(|(k, v)| (k, v)));
        command.env(NUMBER, number.to_string()).env(HOST, std::process::id().to_string());
        let report = Report::new()?;
        let stdout = match &report {
            Some(report) => {
                command.env(SLOT_VARIABLE, report.slot().to_string());
                report.descriptor()?.into()
            }
            None => Stdio::null(),
        };
        command.stdin(Stdio::from(region.try_clone()?)).stdout(stdout).process_group(0);
        if program.path.as_os_str() == "/proc/self/exe" {
            command.arg0("vireo");
        }
        let started = Instant::now();
        let mut child = on(core, || command.spawn())?;
        // The process is not reaped yet, so its id is not reused.
        let pid = Pid::from_child(&child);
        let pidfd = match pidfd_open(pid, PidfdFlags::empty()) {
            Ok(pidfd) => pidfd,
            Err(error) => {
                child.kill()?;
                child.wait()?;
                return Err(error.into());
            }
        };
        Ok(Process { child, pidfd, started, _report: report })
    }

    /// Returns the process id, which is not reused before the process is reaped.
    pub(super) fn pid(&self) -> u32 {
        self.child.id()
    }

    pub(super) fn signal(&self, signal: Signal) {
        // Fails only if the process has ended.
        let _ = pidfd_send_signal(&self.pidfd, signal);
    }

    /// Reaps the process if it has ended, and returns the cause.
    pub(super) fn reap(&mut self) -> Option<ExitCause> {
        match self.child.try_wait() {
            Ok(None) => None,
            Ok(Some(status)) => Some(match (status.code(), status.signal()) {
                (Some(code), _) => ExitCause::Exited(code),
                (None, Some(signal)) => ExitCause::Signal(signal),
                (None, None) => ExitCause::Unknown,
            }),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => None,
            // Another part of the process has reaped it, or ignores SIGCHLD.
            Err(_) => Some(ExitCause::Unknown),
        }
    }

    /// Kills the process and waits for its end.
    pub(super) fn end(&mut self) {
        // Both fail only if it has ended and was reaped.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    /// Returns true if a signal or a tracer has stopped the process.
    pub(super) fn is_stopped(&self) -> bool {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.pid()));
        stat.is_ok_and(|stat| activity(&stat).is_some_and(|(state, _)| state == State::Stopped))
    }

    /// Returns the current activity of the process; `None` if it has ended.
    pub(super) fn activity(&self) -> Option<Activity> {
        let pid = self.pid();
        let (state, cpu) = activity(&std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)?;
        // The state of a process is that of its first thread. Other threads may run while that one
        // waits for them.
        let runs = |thread: io::Result<std::fs::DirEntry>| {
            let stat = std::fs::read_to_string(thread.ok()?.path().join("stat")).ok()?;
            Some(activity(&stat)?.0 == State::Runnable)
        };
        let threads = || std::fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten();
        let runnable = state == State::Other && threads().any(|t| runs(t) == Some(true));
        Some(Activity { state: if runnable { State::Runnable } else { state }, cpu })
    }
}

/// State and CPU time of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Activity {
    pub(super) state: State,
    /// CPU time used so far.
    pub(super) cpu: Duration,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    /// Stopped by a signal or by a tracer.
    Stopped,
    /// Running or runnable.
    Runnable,
    /// Waiting.
    Other,
}

/// Parses `/proc/PID/stat` (proc_pid_stat(5)): state and CPU time.
fn activity(stat: &str) -> Option<(State, Duration)> {
    // The command name is in parentheses and may contain any character; the fields after it start
    // with 3.
    let (_, rest) = stat.rsplit_once(')')?;
    let mut fields = rest.split_ascii_whitespace();
    let state = match fields.next()? {
        "T" | "t" => State::Stopped,
        "R" => State::Runnable,
        _ => State::Other,
    };
    // utime and stime, fields 14 and 15, in hundredths of a second on every Linux machine.
    let mut ticks = fields.skip(10).map_while(|f| f.parse::<u64>().ok());
    Some((state, Duration::from_millis((ticks.next()? + ticks.next()?) * 10)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stat_line_is_read_with_any_command_name() {
        let line = |state| format!("77 (a) R b) {state} 1 77 77 0 -1 4194304 98 0 0 0 150 25 0 0 20 0 1 0 5 0 0");
        let cpu = Duration::from_millis(1750);
        assert_eq!(activity(&line("T")), Some((State::Stopped, cpu)));
        assert_eq!(activity(&line("t")), Some((State::Stopped, cpu)));
        assert_eq!(activity(&line("R")), Some((State::Runnable, cpu)));
        assert_eq!(activity(&line("S")), Some((State::Other, cpu)));
        assert_eq!(activity("77 (a"), None);
        let own = activity(&std::fs::read_to_string("/proc/thread-self/stat").unwrap()).expect("read");
        assert_eq!(own.0, State::Runnable, "who reads its own state runs");
    }
}
