//! Log of a core with a full or closed standard error, under a message flood, in a file and in the
//! journal.
//!
//! Each message of the flood causes a log line.

mod ports;
mod ran;

use ran::{Core, RanNode, WITHIN, golden};
use std::fs::{self, File};
use std::io::{BufRead, BufReader, PipeReader};
use std::net::{Ipv4Addr, UdpSocket};
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// Number of unsolicited messages of each protocol. An unoptimised core is given fewer.
const FLOOD: u64 = if cfg!(debug_assertions) { 10_000 } else { 50_000 };

/// Returns a full pipe.
fn full_pipe() -> (PipeReader, OwnedFd) {
    let (reader, writer) = std::io::pipe().expect("a pipe");
    let writer = OwnedFd::from(writer);
    let flags = rustix::fs::fcntl_getfl(&writer).expect("its flags");
    rustix::fs::fcntl_setfl(&writer, flags | rustix::fs::OFlags::NONBLOCK).expect("non-blocking");
    while rustix::io::write(&writer, &[b'\n'; 4096]).is_ok() {}
    rustix::fs::fcntl_setfl(&writer, flags).expect("blocking again");
    (reader, writer)
}

#[test]
fn full_standard_error_stops_no_core() {
    let directory = tempfile::tempdir().expect("a directory");
    let (reader, writer) = full_pipe();
    let mut core = Core::start(directory.path(), ("", "level = \"trace\"\nlimit = false"), writer);
    core.wait();
    assert_eq!(core.end().code(), Some(0), "it ends though its last lines do not leave");
    drop(reader);
}

#[test]
fn closed_standard_error_is_counted() {
    let directory = tempfile::tempdir().expect("a directory");
    let (reader, writer) = std::io::pipe().expect("a pipe");
    drop(reader);
    let mut core = Core::start(directory.path(), ("", "limit = false"), OwnedFd::from(writer));
    core.wait_for("vireo_log_lines_dropped_total{reason=\"output\"}", 1.0);
    assert_eq!(core.end().code(), Some(0));
}

/// Returns the number after a field's name.
fn field(line: &str, name: &str) -> u64 {
    let (_, rest) = line.split_once(&format!(" {name}=")).expect("the field");
    rest.split(' ').next().and_then(|number| number.parse().ok()).expect("a number")
}

#[test]
fn message_flood_makes_few_lines_and_one_count() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("log");
    let mut core = Core::start(directory.path(), ("", "level = \"debug\""), File::create(&path).expect("a log"));
    core.wait();
    let mut node = RanNode::set_up(1, core.n2);
    let began = Instant::now();
    let acknowledge = golden("AMFConfigurationUpdateAcknowledge");
    // An unsolicited association setup response: version 1, type 6, length 4, sequence number 1.
    let (pfcp, response) = (UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).expect("a socket"), [0x20, 6, 0, 4, 0, 0, 1, 0]);
    for _ in 0..FLOOD {
        node.send(&acknowledge);
        pfcp.send_to(&response, (Ipv4Addr::LOCALHOST, core.n4)).expect("sent");
    }
    let faults =
        |core: &Core| core.metric("vireo_peer_errors_total{protocol=\"ngap\",kind=\"semantic\"}").expect("it answers");
    while faults(&core) < FLOOD as f64 {
        node.poll();
        assert!(began.elapsed() < WITHIN, "{} of {FLOOD}", faults(&core));
    }
    let suppressed = core.metric("vireo_log_lines_dropped_total{reason=\"rate\"}").expect("it answers");
    let periods = 1 + began.elapsed().as_secs() / 10;
    assert_eq!(core.end().code(), Some(0));
    let log = fs::read_to_string(&path).expect("a log");
    let lines = log.lines().count() as u64;
    assert!(lines < 200 * periods, "{lines} lines in {periods} periods: {}", &log[..log.len().min(4000)]);
    let of_node = log.lines().filter(|line| line.contains("a message was at fault"));
    let (counts, own): (Vec<&str>, Vec<&str>) = of_node.partition(|line| line.contains("log lines suppressed"));
    assert!(own.len() as u64 <= 5 * periods && counts.len() as u64 <= periods, "{own:#?}\n{counts:#?}");
    let counted: u64 = counts.iter().map(|line| field(line, "count")).sum();
    assert_eq!(counted + own.len() as u64, FLOOD, "every message is a line or counted\n{own:#?}\n{counts:#?}");
    assert!(suppressed >= counted as f64, "{suppressed}");
}

/// Returns the lines of all files of a log, the oldest first.
fn all_lines(path: &Path) -> String {
    let older = (1..9).rev().map(|n| PathBuf::from(format!("{}.{n}", path.display())));
    older.chain([path.to_path_buf()]).filter_map(|path| fs::read_to_string(path).ok()).collect()
}

#[test]
fn log_file_is_rotated() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("core.log");
    let log = format!(
        "level = \"trace\"\nformat = \"json\"\nlimit = false\nfile = \"{}\"\nmax-file-bytes = 1048576\nmax-files = 3",
        path.display()
    );
    let errors = directory.path().join("stderr");
    let mut core = Core::start(directory.path(), ("", &log), File::create(&errors).expect("a file"));
    core.wait();
    let mut node = RanNode::set_up(1, core.n2);
    let acknowledge = golden("AMFConfigurationUpdateAcknowledge");
    let began = Instant::now();
    // Each message makes a line. The files together have less than these lines.
    while !path.with_extension("log.2").exists() {
        (0..50).for_each(|_| node.send(&acknowledge));
        node.poll();
        assert!(began.elapsed() < WITHIN, "the log is not rotated");
    }
    assert_eq!(core.end().code(), Some(0));
    assert!(!path.with_extension("log.3").exists(), "3 files are the maximum");
    for file in [path.clone(), path.with_extension("log.1"), path.with_extension("log.2")] {
        assert!(fs::metadata(&file).expect("a file").len() <= 1 << 20, "{}", file.display());
    }
    let text = all_lines(&path);
    assert!(text.lines().all(|line| serde_json::from_str::<serde_json::Value>(line).is_ok()), "a line is torn");
    let last = text.lines().last().expect("a line");
    assert!(text.contains("\"message\":\"the core stops\""), "{last}");
    assert_eq!(fs::read_to_string(&errors).expect("a file"), "", "nothing is on standard error");
}

#[test]
fn workers_write_to_log_file_of_core() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("core.log");
    let log = format!("level = \"debug\"\nfile = \"{}\"", path.display());
    let mut core = Core::start(directory.path(), ("", &log), Stdio::null());
    core.wait();
    let file = directory.path().join("vireo.toml");
    let dnn = "[dnn.internet]\nipv4-pool = \"10.45.0.0/16\"\nipv6-pool = \"fd45:45::/48\"\ndns = [\"9.9.9.9\"]\n";
    fs::write(&file, fs::read_to_string(&file).expect("its configuration") + dnn).expect("written");
    core.reload();
    let began = Instant::now();
    while !fs::read_to_string(&path).expect("a log").contains("DEBUG vireo_amf::worker") {
        assert!(began.elapsed() < WITHIN, "{}", fs::read_to_string(&path).expect("a log"));
        std::thread::sleep(Duration::from_millis(20));
    }
    assert_eq!(core.end().code(), Some(0));
}

#[test]
fn unusable_log_file_is_named() {
    let directory = tempfile::tempdir().expect("a directory");
    let (errors, file) = (directory.path().join("stderr"), directory.path().join("none/core.log"));
    let log = format!("file = \"{}\"", file.display());
    let mut core = Core::start(directory.path(), ("", &log), File::create(&errors).expect("a file"));
    assert_eq!(core.exit_status().code(), Some(1));
    let text = fs::read_to_string(&errors).expect("a file");
    assert!(text.starts_with(&format!("vireo: log.file: {}: No such file", file.display())), "{text}");
}

#[test]
fn unknown_log_level_is_refused() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("vireo.toml");
    fs::write(&path, "log.level = \"nonsense\"\n").expect("written");
    let check = Command::new(env!("CARGO_BIN_EXE_vireo")).args(["config", "check", "--config"]).arg(&path).output();
    let check = check.expect("it runs");
    let errors = String::from_utf8_lossy(&check.stderr);
    assert_eq!((check.status.code(), errors.lines().count()), (Some(1), 1), "{errors}");
    assert!(errors.contains("log.level: \"nonsense\" is not allowed (\"nonsense\" is no level)"), "{errors}");
}

#[test]
fn journal_gets_priorities() {
    let directory = tempfile::tempdir().expect("a directory");
    let (reader, writer) = std::io::pipe().expect("a pipe");
    let found = File::from(OwnedFd::from(writer.try_clone().expect("a copy"))).metadata().expect("its inode");
    let stream = format!("{}:{}", found.dev(), found.ino());
    let mut core = Core::start_with(directory.path(), ("", ""), OwnedFd::from(writer), &[("JOURNAL_STREAM", &stream)]);
    core.wait();
    assert_eq!(core.end().code(), Some(0));
    let lines: Vec<_> = BufReader::new(reader).lines().map_while(Result::ok).collect();
    assert!(lines.iter().any(|line| line.starts_with("<6> INFO vireo::run: core started")), "{lines:#?}");
    assert!(lines.iter().all(|line| line.starts_with('<')), "{lines:#?}");
}
