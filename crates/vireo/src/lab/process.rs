//! Child processes that are measured: their CPU time and memory as the kernel counts them, and an end that is certain.

use super::netns::Netns;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

/// How long a process may take to end after SIGTERM.
const GRACE: Duration = Duration::from_secs(10);
/// How much of a log is looked at for [`Process::last_words`].
const LAST_WORDS_BYTES: u64 = 16 << 10;

/// A running child. Dropping it kills it.
#[derive(Debug)]
pub(crate) struct Process {
    name: &'static str,
    child: Child,
    log: Option<File>,
}

impl Process {
    /// Starts a command in a namespace. What it writes goes to `log`, or, if there is none, to where this program's
    /// own goes.
    pub(crate) fn start(
        name: &'static str,
        netns: &Netns,
        command: &mut Command,
        log: Option<File>,
    ) -> io::Result<Self> {
        command.stdin(Stdio::null());
        if let Some(log) = &log {
            command.stdout(log.try_clone()?).stderr(log.try_clone()?);
        }
        // A group of its own: Ctrl-C goes to the parent alone, which ends its children in order.
        command.process_group(0);
        let child = netns.inside(command)?.spawn()?;
        Ok(Process { name, child, log })
    }

    /// The same program as this one, however it was found and whatever is mounted over its path by now.
    pub(crate) fn this_program() -> Command {
        let mut command = Command::new("/proc/self/exe");
        command.arg0("vireo");
        command
    }

    /// How it ended, if it has.
    pub(crate) fn ended(&mut self) -> io::Result<Option<ExitStatus>> {
        self.child.try_wait()
    }

    /// The last lines it logged, for a message about its failure.
    pub(crate) fn last_words(&self, lines: usize) -> String {
        let Some(log) = &self.log else { return String::new() };
        let size = log.metadata().map_or(0, |m| m.len());
        let mut text = vec![0; size.min(LAST_WORDS_BYTES) as usize];
        let read = log.read_at(&mut text, size.saturating_sub(LAST_WORDS_BYTES)).unwrap_or(0);
        let text = String::from_utf8_lossy(&text[..read]);
        let all: Vec<&str> = text.lines().collect();
        all[all.len().saturating_sub(lines)..].join("\n")
    }

    /// Its number.
    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// CPU time of all its threads, ended ones too, in user and kernel mode.
    pub(crate) fn cpu(&self) -> io::Result<Duration> {
        cpu_of(self.child.id())
    }

    /// Resident memory now, in octets.
    pub(crate) fn resident_bytes(&self) -> io::Result<u64> {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id()))?;
        resident(&status).ok_or_else(|| io::Error::other(format!("the kernel tells no memory of {}", self.name)))
    }

    /// Ends it in good order: SIGTERM, and SIGKILL if that does not help.
    pub(crate) fn terminate(&mut self) -> io::Result<ExitStatus> {
        if let Some(status) = self.child.try_wait()? {
            return Ok(status);
        }
        // SAFETY: takes no pointers. The child has not been waited for, so its number is still its own.
        unsafe { libc::kill(self.child.id() as libc::pid_t, libc::SIGTERM) };
        let deadline = Instant::now() + GRACE;
        while Instant::now() < deadline {
            if let Some(status) = self.child.try_wait()? {
                return Ok(status);
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        self.child.kill()?;
        self.child.wait()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // Both fail only if it has ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The parent of a process.
pub(crate) fn parent(pid: u32) -> Option<u32> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name may have anything in it, parentheses too.
    stat.rsplit_once(')')?.1.split_whitespace().nth(1)?.parse().ok()
}

/// CPU time of all children that have ended and been waited for.
pub(crate) fn cpu_of_ended_children() -> io::Result<Duration> {
    // SAFETY: all-zero is a valid rusage.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: the pointer is to a variable of the right type that outlives the call.
    if unsafe { libc::getrusage(libc::RUSAGE_CHILDREN, &raw mut usage) } != 0 {
        return Err(io::Error::last_os_error());
    }
    let span = |t: libc::timeval| {
        Duration::from_secs(t.tv_sec.cast_unsigned()) + Duration::from_micros(t.tv_usec.cast_unsigned())
    };
    Ok(span(usage.ru_utime) + span(usage.ru_stime))
}

fn cpu_of(pid: u32) -> io::Result<Duration> {
    let mut clock: libc::clockid_t = 0;
    // SAFETY: the pointer is to a variable of the right type that outlives the call.
    let error = unsafe { libc::clock_getcpuclockid(pid as libc::pid_t, &raw mut clock) };
    if error != 0 {
        return Err(io::Error::from_raw_os_error(error));
    }
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: as above.
    if unsafe { libc::clock_gettime(clock, &raw mut time) } != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(Duration::new(time.tv_sec.cast_unsigned(), u32::try_from(time.tv_nsec).unwrap_or(0)))
}

/// `VmRSS` of `/proc/PID/status`.
fn resident(status: &str) -> Option<u64> {
    let line = status.lines().find_map(|l| l.strip_prefix("VmRSS:"))?;
    Some(line.split_whitespace().next()?.parse::<u64>().ok()? * 1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cpu_time_of_all_threads_is_counted() {
        let before = cpu_of(std::process::id()).unwrap();
        // Until the kernel's scheduler says so: on a busy machine that takes longer than it is.
        let own = || std::fs::read_to_string("/proc/thread-self/schedstat").unwrap();
        let nanoseconds = move || own().split(' ').next().unwrap().parse::<u64>().unwrap();
        let thread = std::thread::spawn(move || while nanoseconds() < 20_000_000 {});
        thread.join().unwrap();
        let used = cpu_of(std::process::id()).unwrap() - before;
        assert!(used > Duration::from_millis(10), "{used:?}");
    }

    #[test]
    fn resident_memory_is_read() {
        assert_eq!(resident("Name:\tx\nVmRSS:\t     12 kB\n"), Some(12 * 1024));
        assert_eq!(resident("Name:\tx\n"), None);
    }
}
