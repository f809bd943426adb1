//! Samples of the functions during a burst: CPU time and socket queues.
//!
//! They are read from outside the processes, every few milliseconds.

use std::collections::HashMap;
use std::time::{Duration, Instant};
use vireo_config::Failure;
use vireo_lab::core::Core;

/// The functions, in the order in which a request passes them.
pub(super) const FUNCTIONS: [&str; 3] = ["amf", "smf", "upf"];

/// Interval between scans for new sockets, which are rare.
const SOCKETS_EVERY: Duration = Duration::from_millis(100);

/// One sample.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct SocketSample {
    /// Seconds since the burst began.
    pub(super) at_s: f64,
    /// Processors used by each function since the previous sample.
    pub(super) cpu: [f64; 3],
    /// Unread bytes in each function's sockets.
    pub(super) waiting: [u64; 3],
}

/// Sampler of the functions.
#[derive(Debug)]
pub(super) struct Watch {
    began: Instant,
    last: Option<(Instant, [Duration; 3])>,
    /// Function index by socket inode.
    sockets: HashMap<u64, usize>,
    sampled_at: Option<Instant>,
    pub(super) moments: Vec<SocketSample>,
}

impl Watch {
    pub(super) fn new() -> Self {
        Watch { began: Instant::now(), last: None, sockets: HashMap::new(), sampled_at: None, moments: Vec::new() }
    }

    pub(super) fn sample(&mut self, core: &Core) -> Result<(), Failure> {
        let now = Instant::now();
        let functions = core.sba_processes();
        if self.sampled_at.is_none_or(|at| at.elapsed() > SOCKETS_EVERY) {
            self.sampled_at = Some(now);
            for (name, process) in &functions {
                let Some(place) = FUNCTIONS.iter().position(|function| function == name) else { continue };
                self.sockets.extend(sockets_of(process.pid())?.into_iter().map(|inode| (inode, place)));
            }
        }
        let mut cpu = [Duration::ZERO; 3];
        let mut waiting = [0; 3];
        for (name, process) in &functions {
            let Some(place) = FUNCTIONS.iter().position(|function| function == name) else { continue };
            cpu[place] = process.cpu()?;
        }
        if let Some((_, process)) = functions.first() {
            // All functions are in one namespace, so each process shows all sockets.
            for kind in ["tcp", "tcp6", "udp", "udp6", "raw", "raw6"] {
                let text = std::fs::read_to_string(format!("/proc/{}/net/{kind}", process.pid())).unwrap_or_default();
                for (inode, octets) in text.lines().skip(1).filter_map(socket) {
                    if let Some(place) = self.sockets.get(&inode) {
                        waiting[*place] += octets;
                    }
                }
            }
        }
        if let Some((then, before)) = self.last.replace((now, cpu)) {
            let span = now.duration_since(then).as_secs_f64().max(1e-6);
            let used = |place: usize| cpu[place].saturating_sub(before[place]).as_secs_f64() / span;
            let at_s = now.duration_since(self.began).as_secs_f64();
            self.moments.push(SocketSample { at_s, cpu: [used(0), used(1), used(2)], waiting });
        }
        Ok(())
    }
}

/// Returns the inodes of a process's sockets.
fn sockets_of(pid: u32) -> std::io::Result<Vec<u64>> {
    let mut inodes = Vec::new();
    for fd in std::fs::read_dir(format!("/proc/{pid}/fd"))? {
        // A descriptor closed in the meantime has no target.
        let Ok(target) = std::fs::read_link(fd?.path()) else { continue };
        let inode =
            target.to_str().and_then(|target| target.strip_prefix("socket:[")?.strip_suffix(']')?.parse::<u64>().ok());
        inodes.extend(inode);
    }
    Ok(inodes)
}

/// Parses inode and unread bytes of a socket from a line of `/proc/net/tcp` or a similar file
/// (proc(5)).
fn socket(line: &str) -> Option<(u64, u64)> {
    let mut fields = line.split_whitespace();
    let queues = fields.nth(4)?;
    let waiting = u64::from_str_radix(queues.split_once(':')?.1, 16).ok()?;
    Some((fields.nth(4)?.parse().ok()?, waiting))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_sockets_are_read() {
        let line =
            "   1: 0100007F:1F90 0100007F:9C40 01 00000000:0000002A 00:00000000 00000000     0        0 12345 1 0000";
        assert_eq!(socket(line), Some((12345, 42)));
        assert_eq!(socket("nonsense"), None);
    }

    #[test]
    fn socket_queue_is_found_by_inode() {
        let receiver = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        receiver.send_to(&[7; 100], receiver.local_addr().unwrap()).unwrap();
        let mine = sockets_of(std::process::id()).unwrap();
        let text = std::fs::read_to_string("/proc/self/net/udp").unwrap();
        let waiting: u64 =
            text.lines().skip(1).filter_map(socket).filter(|(inode, _)| mine.contains(inode)).map(|s| s.1).sum();
        assert!(waiting >= 100, "{waiting}");
    }
}
