//! The bounded queue in front of standard error, and its writer thread.

use crate::counts::{self, Counts};
use crate::limiter::SuppressedLines;
use rustix::event::{PollFd, PollFlags, poll};
use std::fs::File;
use std::io::{self, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::time::{Duration, Instant};
use tracing::Level;
use tracing_subscriber::fmt::MakeWriter;

/// Maximum number of queued lines.
const LINES: usize = 4096;
/// Maximum bytes of the queued lines.
const OCTETS: usize = 4 << 20;
/// Maximum bytes of a line; the rest is cut off.
const LINE: usize = 16 << 10;
/// Interval at which the thread checks for suppressed and dropped lines to report.
const TICK: Duration = Duration::from_millis(250);

/// A line that originates in the queue itself.
#[derive(Debug)]
pub struct Report {
    pub level: Level,
    pub message: &'static str,
    pub fields: Vec<(&'static str, Value)>,
}

/// Value of a field of a [`Report`].
#[derive(Debug)]
pub enum Value {
    Text(String),
    Number(u64),
}

/// The queue of log lines. Clones share the queue.
///
/// Writing to it neither blocks nor fails: a line without room is dropped and counted.
#[derive(Clone, Debug)]
pub struct Output {
    queue: SyncSender<Box<[u8]>>,
    shared: Arc<Shared>,
}

#[derive(Debug, Default)]
struct Shared {
    /// Bytes of the queued lines.
    waiting: AtomicUsize,
    /// Lines received since the start.
    accepted: AtomicU64,
    /// Lines written or dropped, out of `taken`.
    settled: AtomicU64,
    /// True if everything suppressed must be reported.
    finish: AtomicBool,
    /// True if the request of `finish` is done.
    finished: AtomicBool,
}

impl Output {
    /// Starts the thread that writes to `file`.
    ///
    /// `format` returns the line of a report, with its end. `suppressed` returns the suppressed
    /// lines to report; its argument is true at the end of the process.
    ///
    /// # Errors
    ///
    /// Returns an error if the thread cannot be started.
    pub fn start(
        file: File,
        format: impl Fn(&Report) -> String + Send + 'static,
        suppressed: impl FnMut(bool) -> Vec<SuppressedLines> + Send + 'static,
    ) -> io::Result<Self> {
        let (queue, lines) = sync_channel(LINES);
        let shared = Arc::new(Shared::default());
        let thread = Thread {
            file,
            lines,
            shared: shared.clone(),
            format: Box::new(format),
            suppressed: Box::new(suppressed),
            dropped: counts::this_process().dropped,
            reported: Counts::default(),
            torn: false,
        };
        std::thread::Builder::new().name("log".into()).spawn(move || thread.run())?;
        Ok(Output { queue, shared })
    }

    /// Returns standard error as a file, for [`Output::start`].
    ///
    /// # Errors
    ///
    /// Returns an error if the process has no free descriptor.
    pub fn standard_error() -> io::Result<File> {
        use std::os::fd::AsFd;
        Ok(io::stderr().as_fd().try_clone_to_owned()?.into())
    }

    /// Queues a line.
    pub fn line(&self, octets: &[u8]) {
        let octets: Box<[u8]> =
            if octets.len() > LINE { [&octets[..LINE - 1], b"\n"].concat().into() } else { octets.into() };
        let length = octets.len();
        self.shared.accepted.fetch_add(1, Ordering::Release);
        if self.shared.waiting.fetch_add(length, Ordering::Relaxed) + length > OCTETS
            || self.queue.try_send(octets).is_err()
        {
            self.shared.waiting.fetch_sub(length, Ordering::Relaxed);
            counts::count_dropped(1);
            self.shared.settled.fetch_add(1, Ordering::Release);
        }
    }

    /// Waits until the lines queued so far are written or dropped, but at most `within`.
    ///
    /// Returns true if they are.
    pub fn flush(&self, within: Duration) -> bool {
        let accepted = self.shared.accepted.load(Ordering::Acquire);
        wait(within, || self.shared.settled.load(Ordering::Acquire) >= accepted)
    }

    /// Flushes as [`Output::flush`] does, and reports everything suppressed and dropped.
    ///
    /// It is for the end of the process. Returns true if it completed within `within`.
    pub fn finish(&self, within: Duration) -> bool {
        self.shared.finished.store(false, Ordering::Release);
        self.shared.finish.store(true, Ordering::Release);
        // Wakes the thread. With a full queue the thread is awake anyway.
        let _ = self.queue.try_send(Box::default());
        wait(within, || self.shared.finished.load(Ordering::Acquire))
    }
}

fn wait(within: Duration, is_done: impl Fn() -> bool) -> bool {
    let deadline = Instant::now() + within;
    while !is_done() {
        if Instant::now() >= deadline {
            return false;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    true
}

impl<'a> MakeWriter<'a> for Output {
    type Writer = Lines<'a>;

    fn make_writer(&'a self) -> Lines<'a> {
        Lines(self)
    }
}

/// A writer that passes each `write` to the [`Output`] as one line.
#[derive(Debug)]
pub struct Lines<'a>(&'a Output);

impl Write for Lines<'_> {
    fn write(&mut self, octets: &[u8]) -> io::Result<usize> {
        self.0.line(octets);
        Ok(octets.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// The writer thread of the queue.
struct Thread {
    file: File,
    lines: Receiver<Box<[u8]>>,
    shared: Arc<Shared>,
    format: Box<dyn Fn(&Report) -> String + Send>,
    suppressed: Box<dyn FnMut(bool) -> Vec<SuppressedLines> + Send>,
    /// Dropped lines that are already reported.
    dropped: u64,
    /// Counts last reported to the parent process.
    reported: Counts,
    /// True if the last line was written only in part.
    torn: bool,
}

impl Thread {
    fn run(mut self) {
        let mut reported_at = Instant::now();
        loop {
            match self.lines.recv_timeout(TICK) {
                // an empty line only wakes this thread
                Ok(line) if line.is_empty() => {}
                Ok(line) => {
                    self.shared.waiting.fetch_sub(line.len(), Ordering::Relaxed);
                    if !self.write(&line) {
                        counts::count_dropped(1);
                    }
                    self.shared.settled.fetch_add(1, Ordering::Release);
                }
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return,
            }
            let all_written =
                || self.shared.settled.load(Ordering::Acquire) >= self.shared.accepted.load(Ordering::Acquire);
            let finish = self.shared.finish.load(Ordering::Acquire) && all_written();
            if finish || reported_at.elapsed() >= TICK {
                self.report_losses(finish);
                reported_at = Instant::now();
            }
            if finish {
                self.shared.finish.store(false, Ordering::Release);
                self.shared.finished.store(true, Ordering::Release);
            }
        }
    }

    /// Reports suppressed and dropped lines, bypassing the queue and the filters.
    fn report_losses(&mut self, finish: bool) {
        for SuppressedLines { level, text, count, peers, peer } in (self.suppressed)(finish) {
            let mut fields = vec![("line", Value::Text(text)), ("count", Value::Number(count))];
            if peers > 0 {
                // a peer name has at most the length of a `Short`
                fields.extend([("peers", Value::Number(peers as u64)), ("peer", Value::Text(peer))]);
            }
            self.report(&Report { level, message: "log lines suppressed", fields });
        }
        let dropped = counts::this_process().dropped;
        let count = dropped - self.dropped;
        if count > 0 {
            let fields = vec![("count", Value::Number(count)), ("reason", Value::Text("output".into()))];
            if self.report(&Report { level: Level::WARN, message: "log lines dropped", fields }) {
                self.dropped = dropped;
            }
        }
        counts::report(&mut self.reported);
    }

    /// Writes a line that originates in this thread. Returns true if it was written.
    fn report(&mut self, report: &Report) -> bool {
        let line = (self.format)(report);
        self.write(line.as_bytes())
    }

    /// Writes a line, however long that takes. Returns true if it was written completely.
    fn write(&mut self, line: &[u8]) -> bool {
        if self.torn && self.put(b"\n").is_ok() {
            self.torn = false;
        }
        match self.put(line) {
            Ok(()) => true,
            Err(written) => {
                self.torn |= written > 0;
                false
            }
        }
    }

    /// Writes bytes; the error is the number of bytes written before the failure.
    fn put(&mut self, octets: &[u8]) -> Result<(), usize> {
        let mut written = 0;
        while written < octets.len() {
            match self.file.write(&octets[written..]) {
                Ok(0) => return Err(written),
                Ok(count) => written += count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                // Another process that shares the descriptor has made it non-blocking.
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    let mut waited = [PollFd::new(&self.file, PollFlags::OUT)];
                    if poll(&mut waited, None).is_err_and(|error| error != rustix::io::Errno::INTR) {
                        return Err(written);
                    }
                }
                Err(_) => return Err(written),
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{BufRead, BufReader};
    use std::os::fd::OwnedFd;
    use std::sync::{Mutex, MutexGuard, PoisonError};

    /// Serialises the tests, because dropped lines are counted for the whole process.
    fn exclusive() -> MutexGuard<'static, ()> {
        static ALONE: Mutex<()> = Mutex::new(());
        ALONE.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn pipe() -> (File, File) {
        let (from, to): (OwnedFd, OwnedFd) = rustix::pipe::pipe().expect("a pipe");
        (from.into(), to.into())
    }

    fn format(Report { level, message, fields }: &Report) -> String {
        let fields = fields.iter().map(|(name, value)| match value {
            Value::Text(text) => format!(" {name}={text:?}"),
            Value::Number(number) => format!(" {name}={number}"),
        });
        format!("{level} {message}{}\n", fields.collect::<String>())
    }

    const SOON: Duration = Duration::from_secs(20);
    const SOMETIME: Duration = Duration::from_millis(20);

    #[test]
    fn full_pipe_drops_lines_and_reports_them() {
        let _guard = exclusive();
        let (from, to) = pipe();
        let output = Output::start(to, format, |_| Vec::new()).expect("a thread");
        let before = counts::this_process().dropped;
        // Ten times the capacity of the pipe and the queue. Without a reader, a blocking write
        // would never return.
        const ALL: u64 = 60_000;
        (0..ALL).for_each(|n| output.line(format!("line {n:040}\n").as_bytes()));
        let dropped = counts::this_process().dropped - before;
        assert!(dropped > ALL / 2, "{dropped}");
        assert!(!output.flush(SOMETIME) && !output.finish(SOMETIME), "the pipe is full");
        let mut written = 0;
        let report = BufReader::new(from).lines().find_map(|line| {
            let line = line.expect("text");
            written += u64::from(line.starts_with("line "));
            Some(line.split_once("WARN log lines dropped count=")?.1.to_owned())
        });
        let report = report.expect("a report");
        assert_eq!(report, format!("{dropped} reason=\"output\""));
        assert_eq!(written + dropped, ALL);
    }

    #[test]
    fn closed_pipe_drops_lines() {
        let _guard = exclusive();
        let (from, to) = pipe();
        drop(from);
        let output = Output::start(to, format, |_| Vec::new()).expect("a thread");
        let before = counts::this_process().dropped;
        (0..100).for_each(|_| output.line(b"nobody reads this\n"));
        assert!(output.flush(SOON) && output.finish(SOON));
        assert_eq!(counts::this_process().dropped - before, 100);
    }

    #[test]
    fn full_device_drops_lines() {
        let _guard = exclusive();
        let full = File::options().write(true).open("/dev/full").expect("the device");
        let output = Output::start(full, format, |_| Vec::new()).expect("a thread");
        let before = counts::this_process().dropped;
        output.line(b"there is no space left\n");
        assert!(output.flush(SOON));
        assert_eq!(counts::this_process().dropped - before, 1);
    }

    #[test]
    fn non_blocking_pipe_takes_all_lines() {
        let _guard = exclusive();
        let (from, to) = pipe();
        rustix::fs::fcntl_setfl(&to, rustix::fs::OFlags::NONBLOCK).expect("non-blocking");
        let output = Output::start(to, format, |_| Vec::new()).expect("a thread");
        // More than a pipe holds, less than the queue holds.
        let reader = std::thread::spawn(move || BufReader::new(from).lines().take(3000).map_while(Result::ok).count());
        (0..3000).for_each(|n| output.line(format!("{n:060}\n").as_bytes()));
        assert_eq!(reader.join().expect("read"), 3000);
    }

    #[test]
    fn suppressed_lines_are_reported_at_the_end() {
        let _guard = exclusive();
        let (from, to) = pipe();
        let of = |all: bool| SuppressedLines {
            level: Level::INFO,
            text: format!("node: {all}"),
            count: 49_995,
            peers: 2,
            peer: "192.0.2.1".into(),
        };
        let output =
            Output::start(to, format, move |all| all.then(|| of(all)).into_iter().collect()).expect("a thread");
        output.line(&[&[b'x'; 2 * LINE][..], b"\n"].concat());
        assert!(output.finish(SOON));
        let mut lines = BufReader::new(from).lines().map_while(Result::ok);
        assert_eq!(lines.next().map(|line| line.len()), Some(LINE - 1), "a long line is cut");
        let line = lines.next().expect("a line");
        let report = "INFO log lines suppressed line=\"node: true\" count=49995 peers=2 peer=\"192.0.2.1\"";
        assert!(line.ends_with(report), "{line}");
    }
}
