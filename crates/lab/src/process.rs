//! Child processes with measured CPU time and memory, and a guaranteed end.
//!
//! The kernel's counters are the only source of the measurements.

use crate::files::{API_TOKEN, STATE_KEY};
use crate::netns::Netns;
use crate::workers;
use rustix::process::{Pid, setpriority_process};
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

/// Time limit of a process to end after SIGTERM.
const GRACE: Duration = Duration::from_secs(10);
/// Nice value of low-priority processes: a ninth of the usual weight.
const NICE: i32 = 10;
/// Part of a log that [`Process::last_words`] reads, in bytes.
const LAST_WORDS_BYTES: u64 = 16 << 10;
/// Lines of a log shown after its process failed.
pub(crate) const LAST_WORDS: usize = 15;

/// Running child process. Dropping it kills the process.
#[derive(Debug)]
pub struct Process {
    name: &'static str,
    child: Child,
    log: Option<File>,
}

impl Process {
    /// Starts a command in a namespace. Its output goes to `log`, or to the output of this program.
    pub fn start(name: &'static str, netns: &Netns, command: &mut Command, log: Option<File>) -> io::Result<Self> {
        command.stdin(Stdio::null());
        if let Some(log) = &log {
            command.stdout(log.try_clone()?).stderr(log.try_clone()?);
        }
        // A separate process group: Ctrl-C reaches only the parent, which ends its children in
        // order.
        command.process_group(0);
        let child = netns.inside(command)?.spawn()?;
        Ok(Process { name, child, log })
    }

    /// Lowers the priority on shared processors. Call it directly after the start, because threads
    /// inherit the nice value.
    pub(crate) fn give_way(&self) -> io::Result<()> {
        Ok(setpriority_process(Some(Pid::from_child(&self.child)), NICE)?)
    }

    /// Returns a command that runs the executable of this process, independent of its path and of
    /// mounts over it. Its API has the lab's token and no unix socket, because many processes share
    /// the file system. State outside its memory is sealed with the lab's key.
    pub fn this_program() -> Command {
        Self::program("/proc/self/exe")
    }

    /// As [`Process::this_program`], with the executable of another release.
    pub(crate) fn program(path: &str) -> Command {
        let mut command = Command::new(path);
        command.arg0("vireo").env("VIREO_API__TOKEN_FILE", API_TOKEN).env("VIREO_API__SOCKET", "off");
        command.env("VIREO_STATE__KEY_FILE", STATE_KEY);
        command
    }

    /// Returns the exit status, if the process has ended.
    pub fn exit_status(&mut self) -> io::Result<Option<ExitStatus>> {
        self.child.try_wait()
    }

    /// Returns the last lines of the log, for a failure message.
    pub fn last_words(&self, lines: usize) -> String {
        let Some(log) = &self.log else { return String::new() };
        let size = log.metadata().map_or(0, |m| m.len());
        let mut text = vec![0; size.min(LAST_WORDS_BYTES) as usize];
        let read = log.read_at(&mut text, size.saturating_sub(LAST_WORDS_BYTES)).unwrap_or(0);
        let text = String::from_utf8_lossy(&text[..read]);
        let all: Vec<&str> = text.lines().collect();
        all[all.len().saturating_sub(lines)..].join("\n")
    }

    /// Returns the process ID.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Moves threads to a processor if their names begin with `names`.
    pub fn threads_on(&self, names: &str, processor: usize) -> io::Result<()> {
        use rustix::thread::{CpuSet, Pid, sched_setaffinity};
        let mut set = CpuSet::new();
        set.set(processor.min(CpuSet::MAX_CPU - 1));
        for thread in std::fs::read_dir(format!("/proc/{}/task", self.child.id()))? {
            let path = thread?.path();
            // A thread that has ended meanwhile has no name.
            let name = std::fs::read_to_string(path.join("comm")).unwrap_or_default();
            let number = path.file_name().and_then(|name| name.to_str()?.parse().ok()).and_then(Pid::from_raw);
            if name.starts_with(names)
                && let Some(thread) = number
            {
                sched_setaffinity(Some(thread), &set)?;
            }
        }
        Ok(())
    }

    /// Returns the CPU time of the threads with this name.
    pub fn cpu_of_threads(&self, name: &str) -> io::Result<Duration> {
        let mut sum = Duration::ZERO;
        for thread in std::fs::read_dir(format!("/proc/{}/task", self.child.id()))? {
            let path = thread?.path();
            // A thread that has ended meanwhile has no name.
            if std::fs::read_to_string(path.join("comm")).unwrap_or_default().trim_end() != name {
                continue;
            }
            let text = std::fs::read_to_string(path.join("schedstat"))?;
            let used =
                on_processor(&text).ok_or_else(|| io::Error::other("the kernel tells no CPU time of threads"))?;
            sum += used;
        }
        Ok(sum)
    }

    /// Returns the user and system CPU time of the process: all threads, including ended ones, and
    /// all children, including ended ones.
    pub fn cpu(&self) -> io::Result<Duration> {
        let ended = |stat: &str| ended_children(stat).ok_or_else(|| io::Error::other("no CPU time of ended children"));
        let stat = || std::fs::read_to_string(format!("/proc/{}/stat", self.child.id()));
        let before = ended(&stat()?)?;
        let mut sum = cpu_of(self.child.id())?;
        for child in workers::children(self.child.id())? {
            // A child reaped meanwhile counts with the ended ones in the next call.
            sum += cpu_of(child).unwrap_or_default();
        }
        Ok(sum + before)
    }

    /// Returns the resident memory in bytes.
    pub fn resident_bytes(&self) -> io::Result<u64> {
        resident_bytes_of(self.child.id())
            .map_err(|error| io::Error::other(format!("the memory of {}: {error}", self.name)))
    }

    /// Sends a signal if the process has not ended.
    pub fn signal(&mut self, signal: libc::c_int) -> io::Result<()> {
        if self.child.try_wait()?.is_none() {
            // SAFETY: takes no pointers. The child has not been waited for, so its number is still
            // its own.
            unsafe { libc::kill(self.child.id() as libc::pid_t, signal) };
        }
        Ok(())
    }

    /// Kills the process (SIGKILL) and waits for its end.
    pub fn kill(&mut self) -> io::Result<()> {
        self.child.kill()?;
        self.child.wait().map(|_| ())
    }

    /// Ends the process with SIGTERM, or with SIGKILL after [`GRACE`].
    pub fn terminate(&mut self) -> io::Result<ExitStatus> {
        if let Some(status) = self.child.try_wait()? {
            return Ok(status);
        }
        // SAFETY: takes no pointers. The child has not been waited for, so its number is still its
        // own.
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
        // Both calls fail only if the process has already ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Returns the resident memory of a process in bytes.
pub(crate) fn resident_bytes_of(pid: u32) -> io::Result<u64> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status"))?;
    resident(&status).ok_or_else(|| io::Error::other("the kernel does not tell it"))
}

/// Runs `work` with this thread restricted to the processors, if any are given. Children started
/// meanwhile stay on them.
pub fn on_processors<T>(processors: &[usize], work: impl FnOnce() -> T) -> io::Result<T> {
    use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
    if processors.is_empty() {
        return Ok(work());
    }
    let before = sched_getaffinity(None)?;
    let mut set = CpuSet::new();
    processors.iter().filter(|n| **n < CpuSet::MAX_CPU).for_each(|n| set.set(*n));
    sched_setaffinity(None, &set)?;
    let done = work();
    sched_setaffinity(None, &before)?;
    Ok(done)
}

/// Runs `work` with this thread, and all processes started meanwhile, in `SCHED_BATCH`. A woken
/// thread then does not preempt the running one; it waits until that blocks or its time slice ends.
pub fn in_turns<T>(work: impl FnOnce() -> T) -> io::Result<T> {
    let set = |policy: libc::c_int| {
        let none = libc::sched_param { sched_priority: 0 };
        // SAFETY: the pointer is to a variable of the right type that outlives the call.
        match unsafe { libc::sched_setscheduler(0, policy, &raw const none) } {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    };
    set(libc::SCHED_BATCH)?;
    let done = work();
    set(libc::SCHED_OTHER)?;
    Ok(done)
}

/// Returns the CPU time of all reaped children.
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

/// Returns the user and system time of ended children in a `/proc/PID/stat` (proc(5): cutime and
/// cstime, fields 16 and 17).
fn ended_children(stat: &str) -> Option<Duration> {
    // SAFETY: takes no pointers.
    let ticks_per_s = unsafe { libc::sysconf(libc::_SC_CLK_TCK) }.max(1).cast_unsigned();
    let fields = stat.rsplit_once(')')?.1.split_whitespace();
    let mut ticks = 0;
    for field in fields.skip(13).take(2) {
        ticks += field.parse::<u64>().ok()?;
    }
    Some(Duration::from_micros(ticks * 1_000_000 / ticks_per_s))
}

/// Returns the user and system CPU time of all threads of a process.
pub fn cpu_of(pid: u32) -> io::Result<Duration> {
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

/// Returns the first field of `/proc/PID/task/TID/schedstat`: time on a processor, in nanoseconds.
fn on_processor(schedstat: &str) -> Option<Duration> {
    schedstat.split_whitespace().next()?.parse().ok().map(Duration::from_nanos)
}

/// Returns `VmRSS` of `/proc/PID/status`.
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
        // The loop uses the scheduler's clock, because wall-clock time passes faster on a busy
        // machine.
        let own = || std::fs::read_to_string("/proc/thread-self/schedstat").unwrap();
        let nanoseconds = move || own().split(' ').next().unwrap().parse::<u64>().unwrap();
        let thread = std::thread::spawn(move || while nanoseconds() < 20_000_000 {});
        thread.join().unwrap();
        let used = cpu_of(std::process::id()).unwrap() - before;
        assert!(used > Duration::from_millis(10), "{used:?}");
    }

    #[test]
    fn ended_children_are_counted() {
        let stat = "7 (a) b) S 1 7 7 0 -1 4194304 100 0 0 0 5 6 70 30 20 0 1 0 9 9 9";
        assert_eq!(ended_children(stat), Some(Duration::from_secs(1)), "a tick is 10 ms wherever Linux runs today");
        assert_eq!(ended_children("7 (sh"), None);
    }

    #[test]
    fn child_stays_on_its_processors() {
        let allowed = || {
            let status = std::fs::read_to_string("/proc/thread-self/status").unwrap();
            status.lines().find_map(|l| l.strip_prefix("Cpus_allowed_list:").map(|l| l.trim().to_owned())).unwrap()
        };
        let before = allowed();
        let child = || Command::new("grep").args(["Cpus_allowed_list", "/proc/self/status"]).output();
        let output = on_processors(&[0], child).unwrap().unwrap();
        assert_eq!(String::from_utf8_lossy(&output.stdout).split_whitespace().last(), Some("0"));
        assert_eq!(allowed(), before);
    }

    #[test]
    fn resident_memory_is_read() {
        assert_eq!(resident("Name:\tx\nVmRSS:\t     12 kB\n"), Some(12 * 1024));
        assert_eq!(resident("Name:\tx\n"), None);
    }
}
