//! Log of a core with a full or closed standard error, and under a message flood.
//!
//! Each message of the flood causes a log line.

mod ports;
mod ran;

use ran::{Core, RanNode, WITHIN, golden};
use std::fs::{self, File};
use std::io::PipeReader;
use std::net::{Ipv4Addr, UdpSocket};
use std::os::fd::OwnedFd;
use std::time::Instant;

/// Number of unsolicited messages of each protocol.
const FLOOD: u64 = 50_000;

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
