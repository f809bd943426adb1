//! A log file with rotation, in place of standard error.
//!
//! Standard error of the process becomes a pipe. A thread copies the lines from the pipe to the
//! file. Worker processes inherit the pipe: they need neither the path nor the right to open files.
//! Lines that the C library or a signal handler writes are in the file, too.
//!
//! Several processes may append to one file (a balancer and its successor). Each checks before a
//! write that the path still names its file, and rotates under a lock of that file.

use crate::counts;
use rustix::event::{PollFd, PollFlags, poll};
use std::fs::{self, File};
use std::io::{self, PipeReader, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Maximum bytes of one read from the pipe.
const CHUNK: usize = 64 << 10;
/// Permissions of a new file: lines may show SUPIs.
const MODE: u32 = 0o640;

/// Limits of a log file.
#[derive(Clone, Copy, Debug)]
pub struct FileLimits {
    /// Maximum bytes of the file. Only a longer line makes it longer.
    pub octets: u64,
    /// Maximum number of files, the current one included; at least 2.
    pub files: u32,
}

/// A log file that receives what this process and its children write to standard error.
#[derive(Debug)]
pub struct LogFile {
    pipe: PipeReader,
    /// True if the thread has written all that it has read.
    idle: Arc<AtomicBool>,
    /// Standard error as it was.
    terminal: File,
}

impl LogFile {
    /// Opens or creates the file and redirects standard error to it.
    ///
    /// # Errors
    ///
    /// Returns an error if the file cannot be opened, or the system provides no pipe or thread.
    pub fn redirect_standard_error(path: &Path, limits: FileLimits) -> io::Result<Self> {
        let file = RotatingFile::open(path, limits)?;
        let terminal = File::from(io::stderr().as_fd().try_clone_to_owned()?);
        let (pipe, writer) = io::pipe()?;
        let idle = Arc::new(AtomicBool::new(false));
        let copy = CopyThread { file, pipe: pipe.try_clone()?, idle: idle.clone(), terminal: terminal.try_clone()? };
        std::thread::Builder::new().name("log-file".into()).spawn(move || copy.run())?;
        rustix::stdio::dup2_stderr(&writer)?;
        Ok(LogFile { pipe, idle, terminal })
    }

    /// Waits until the file has all that was written to standard error, but at most `within`.
    ///
    /// Returns true if it has.
    pub fn flush(&self, within: Duration) -> bool {
        let deadline = Instant::now() + within;
        // In this order: the thread is not idle from before a read until its write.
        while rustix::io::ioctl_fionread(&self.pipe).is_ok_and(|waiting| waiting > 0)
            || !self.idle.load(Ordering::Acquire)
        {
            if Instant::now() >= deadline {
                return false;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        true
    }

    /// Writes a text to standard error as it was before the redirection.
    pub fn write_to_terminal(&self, text: &[u8]) {
        // Ignores a write error: standard error is closed.
        let _ = (&self.terminal).write_all(text);
    }
}

/// The thread that copies the pipe to the file.
struct CopyThread {
    file: RotatingFile,
    pipe: PipeReader,
    idle: Arc<AtomicBool>,
    terminal: File,
}

impl CopyThread {
    fn run(mut self) {
        let mut buffer = vec![0; CHUNK];
        let mut has_failed = false;
        loop {
            self.idle.store(true, Ordering::Release);
            // An interrupted wait ends in a read that blocks.
            let _ = poll(&mut [PollFd::new(&self.pipe, PollFlags::IN)], None);
            self.idle.store(false, Ordering::Release);
            let octets = match self.pipe.read(&mut buffer) {
                Ok(0) => return,
                Ok(count) => &buffer[..count],
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(_) => return,
            };
            match self.file.append(octets) {
                Ok(()) => has_failed = false,
                Err(FailedWrite { lines, error }) => {
                    counts::count_dropped(lines);
                    if !has_failed {
                        let path = self.file.path.display();
                        // Ignores a write error: standard error is closed.
                        let _ = writeln!(self.terminal, "vireo: log.file: {path}: {error}; lines are dropped");
                    }
                    has_failed = true;
                }
            }
        }
    }
}

/// A write that failed.
#[derive(Debug)]
struct FailedWrite {
    /// Lines that are not in the file, or only in part.
    lines: u64,
    error: io::Error,
}

/// The current file.
#[derive(Debug)]
struct RotatingFile {
    path: PathBuf,
    limits: FileLimits,
    file: File,
    /// True if the last byte in the file ends a line.
    at_line_start: bool,
}

impl RotatingFile {
    fn open(path: &Path, limits: FileLimits) -> io::Result<Self> {
        // The process may change its directory.
        let path = std::path::absolute(path)?;
        Ok(RotatingFile { file: append_to(&path)?, path, limits, at_line_start: true })
    }

    /// Appends bytes. Starts a new file between two lines where the limit requires it.
    fn append(&mut self, mut octets: &[u8]) -> Result<(), FailedWrite> {
        while !octets.is_empty() {
            let written = self.append_part(octets).map_err(|error| {
                self.at_line_start = true;
                let lines = octets.iter().filter(|octet| **octet == b'\n').count().max(1);
                FailedWrite { lines: lines as u64, error }
            })?;
            octets = &octets[written..];
        }
        Ok(())
    }

    /// Appends as many bytes as the current file may have, or starts another file. Returns the
    /// number of bytes written.
    fn append_part(&mut self, octets: &[u8]) -> io::Result<usize> {
        if !self.is_current() {
            self.file = append_to(&self.path)?;
        }
        let length = self.file.metadata()?.len();
        let room = usize::try_from(self.limits.octets.saturating_sub(length)).unwrap_or(usize::MAX);
        let end_of_line = |octet: &u8| *octet == b'\n';
        let part = if octets.len() <= room {
            octets.len()
        } else if let Some(last) = octets[..room].iter().rposition(end_of_line) {
            last + 1
        } else if self.at_line_start && length > 0 {
            self.rotate()?;
            return Ok(0);
        } else {
            // The rest of a line that has begun, or a line longer than a file.
            octets.iter().position(end_of_line).map_or(octets.len(), |first| first + 1)
        };
        self.file.write_all(&octets[..part])?;
        self.at_line_start = octets[..part].ends_with(b"\n");
        Ok(part)
    }

    /// Returns true if the path names the open file.
    fn is_current(&self) -> bool {
        let inode = |found: io::Result<fs::Metadata>| found.map(|found| (found.dev(), found.ino())).ok();
        let named = inode(fs::metadata(&self.path));
        named.is_some() && named == inode(self.file.metadata())
    }

    /// Starts another file, unless another process has done it meanwhile.
    fn rotate(&mut self) -> io::Result<()> {
        self.file.lock()?;
        let renamed = if self.is_current() { self.rename_all() } else { Ok(()) };
        self.file.unlock()?;
        renamed?;
        self.file = append_to(&self.path)?;
        Ok(())
    }

    /// Renames the file to `PATH.1`, that to `PATH.2` and so on.
    fn rename_all(&self) -> io::Result<()> {
        let last = self.limits.files.saturating_sub(1).max(1);
        // Files of an earlier, higher limit.
        (last + 1..).take_while(|n| fs::remove_file(self.older(*n)).is_ok()).for_each(drop);
        for n in (1..last).rev() {
            match fs::rename(self.older(n), self.older(n + 1)) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => {}
            }
        }
        fs::rename(&self.path, self.older(1))
    }

    fn older(&self, number: u32) -> PathBuf {
        let mut name = self.path.clone().into_os_string();
        name.push(format!(".{number}"));
        name.into()
    }
}

fn append_to(path: &Path) -> io::Result<File> {
    File::options().append(true).create(true).mode(MODE).open(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: FileLimits = FileLimits { octets: 100, files: 3 };

    /// Returns the texts of the file and of older ones, the oldest first.
    fn texts(path: &Path) -> Vec<String> {
        let older = (1..9).rev().map(|n| PathBuf::from(format!("{}.{n}", path.display())));
        older.chain([path.to_path_buf()]).filter_map(|path| fs::read_to_string(path).ok()).collect()
    }

    fn lines(range: std::ops::Range<u32>) -> String {
        range.map(|n| format!("line {n:04}\n")).collect()
    }

    #[test]
    fn file_is_rotated_between_lines() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("log");
        let mut file = RotatingFile::open(&path, LIMITS).expect("created");
        // Ten lines fill a file. Pieces end within lines.
        for piece in lines(0..35).as_bytes().chunks(37) {
            file.append(piece).expect("written");
        }
        assert_eq!(texts(&path), [lines(10..20), lines(20..30), lines(30..35)], "the first file was removed");
        let mode = fs::metadata(&path).expect("the file").mode();
        assert_eq!(mode & 0o007, 0, "not for others");
    }

    #[test]
    fn rotation_continues_after_restart() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("log");
        RotatingFile::open(&path, LIMITS).expect("created").append(lines(0..9).as_bytes()).expect("written");
        let mut file = RotatingFile::open(&path, LIMITS).expect("opened");
        file.append(lines(9..12).as_bytes()).expect("written");
        assert_eq!(texts(&path), [lines(0..10), lines(10..12)]);
        // A lower limit removes what the higher one left.
        let mut file = RotatingFile::open(&path, FileLimits { octets: 20, files: 2 }).expect("opened");
        file.append(lines(12..15).as_bytes()).expect("written");
        assert_eq!(texts(&path), [lines(12..14), lines(14..15)]);
    }

    #[test]
    fn long_line_stays_whole() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("log");
        let mut file = RotatingFile::open(&path, LIMITS).expect("created");
        let long = format!("{}\n", "x".repeat(250));
        file.append(lines(0..1).as_bytes()).expect("written");
        long.as_bytes().chunks(60).for_each(|piece| file.append(piece).expect("written"));
        file.append(lines(1..2).as_bytes()).expect("written");
        // A line that has begun is not divided.
        assert_eq!(texts(&path), [lines(0..1) + &long, lines(1..2)]);
    }

    #[test]
    fn two_writers_rotate_once() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("log");
        let limits = FileLimits { octets: 100, files: 40 };
        let write = |first: u32| {
            let mut file = RotatingFile::open(&path, limits).expect("opened");
            (first..first + 100).for_each(|n| file.append(lines(n..n + 1).as_bytes()).expect("written"));
        };
        std::thread::scope(|scope| {
            scope.spawn(|| write(0));
            scope.spawn(|| write(100));
        });
        let all = (1..40).map(|n| PathBuf::from(format!("{}.{n}", path.display()))).chain([path.clone()]);
        let all: String = all.filter_map(|path| fs::read_to_string(path).ok()).collect();
        let mut numbers: Vec<_> = all.lines().collect();
        numbers.sort_unstable();
        assert_eq!(numbers.join("\n") + "\n", lines(0..200), "no line is lost or torn");
    }

    #[test]
    fn file_moved_by_another_program_is_created_anew() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("log");
        let mut file = RotatingFile::open(&path, LIMITS).expect("created");
        file.append(b"before\n").expect("written");
        fs::rename(&path, directory.path().join("moved")).expect("renamed");
        file.append(b"after\n").expect("written");
        assert_eq!(texts(&path), ["after\n"]);
    }

    #[test]
    fn failed_rotation_counts_lines() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("log");
        let mut file = RotatingFile::open(&path, LIMITS).expect("created");
        file.append(lines(0..10).as_bytes()).expect("written");
        // A directory that is not empty is where the older file would be.
        fs::create_dir_all(directory.path().join("log.1/in")).expect("created");
        fs::create_dir(directory.path().join("log.2")).expect("created");
        fs::write(directory.path().join("log.2/in"), "").expect("written");
        let unwritten = file.append(lines(10..13).as_bytes()).expect_err("no place");
        assert_eq!(unwritten.lines, 3, "{}", unwritten.error);
        fs::remove_dir_all(directory.path().join("log.1")).expect("removed");
        file.append(lines(13..14).as_bytes()).expect("written again");
        assert_eq!(fs::read_to_string(&path).expect("the file"), lines(13..14));
    }
}
