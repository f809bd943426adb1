//! GTP-U path supervision (TS 23.007 20.3, TS 29.281 7.2).
//!
//! The UPF sends Echo Requests to the GTP-U peers of sessions at an interval. It reports to the
//! control planes which peers fail and which respond again.

use std::collections::HashMap;
use std::net::IpAddr;
use vireo_types::{Duration, Instant};

/// Maximum number of supervised peers.
const PEERS: usize = 65_536;
/// Maximum number of peers that one call of [`PathMonitor::due`] handles.
const REQUESTS_AT_ONCE: usize = 128;

/// The GTP-U peers of all sessions.
#[derive(Debug)]
pub(crate) struct PathMonitor {
    /// Interval of Echo Requests to a peer; `None` = never.
    every: Option<Duration>,
    response_time: Duration,
    attempts: u8,
    peers: HashMap<IpAddr, PathState>,
    sequence: u16,
}

#[derive(Debug)]
struct PathState {
    /// Number of FARs that send to the peer.
    users: u64,
    /// Time of the next Echo Request.
    due: Instant,
    /// Remaining Echo Requests while no response has arrived.
    remaining: Option<u8>,
    lost: bool,
}

/// Actions that are due.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct PathActions {
    /// Peers to send an Echo Request to, with its sequence number.
    pub(crate) echo_requests: Vec<(IpAddr, u16)>,
    /// Peers that have just failed.
    pub(crate) lost: Vec<IpAddr>,
    /// True if more actions are due at once.
    pub(crate) more: bool,
}

impl PathMonitor {
    pub(crate) fn new(every: Option<Duration>, response_time: Duration, attempts: u8) -> Self {
        PathMonitor { every, response_time, attempts: attempts.max(1), peers: HashMap::new(), sequence: 0 }
    }

    /// Replaces the peers of a session.
    pub(crate) fn change(&mut self, before: &[IpAddr], after: &[IpAddr], now: Instant) {
        if self.every.is_none() {
            return;
        }
        for peer in after {
            let room = self.peers.len() < PEERS;
            match self.peers.get_mut(peer) {
                Some(path) => path.users += 1,
                None if room => {
                    self.peers.insert(*peer, PathState { users: 1, due: now, remaining: None, lost: false });
                }
                None => {}
            }
        }
        for peer in before {
            if let Some(path) = self.peers.get_mut(peer) {
                path.users -= 1;
                if path.users == 0 {
                    self.peers.remove(peer);
                }
            }
        }
    }

    /// Handles an Echo Response. Returns true if the peer had failed.
    pub(crate) fn on_echo_response(&mut self, peer: IpAddr, now: Instant) -> bool {
        let (Some(every), Some(path)) = (self.every, self.peers.get_mut(&peer)) else { return false };
        path.remaining = None;
        path.due = now + every;
        std::mem::take(&mut path.lost)
    }

    /// Returns the due actions. Must be called about once a second.
    pub(crate) fn due(&mut self, now: Instant) -> PathActions {
        let mut due = PathActions::default();
        let Some(every) = self.every else { return due };
        let mut peers = self.peers.iter_mut().filter(|(_, path)| path.due <= now);
        for (peer, path) in peers.by_ref().take(REQUESTS_AT_ONCE) {
            let left = path.remaining.unwrap_or(self.attempts);
            if left == 0 {
                path.remaining = None;
                path.due = now + every;
                if !std::mem::replace(&mut path.lost, true) {
                    due.lost.push(*peer);
                }
                continue;
            }
            path.remaining = Some(left - 1);
            path.due = now + self.response_time;
            self.sequence = self.sequence.wrapping_add(1);
            due.echo_requests.push((*peer, self.sequence));
        }
        due.more = peers.next().is_some();
        due
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PEER: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(192, 0, 2, 9));

    fn at(seconds: u64) -> Instant {
        Instant(1) + Duration::from_secs(seconds)
    }

    #[test]
    fn silent_peer_fails_once_and_recovers() {
        let mut paths = PathMonitor::new(Some(Duration::from_secs(60)), Duration::from_secs(3), 3);
        paths.change(&[], &[PEER, PEER], at(0));
        let mut requests = vec![];
        let mut lost = vec![];
        for second in 0..200 {
            let due = paths.due(at(second));
            requests.extend(due.echo_requests.iter().map(|_| second));
            lost.extend(due.lost.iter().map(|_| second));
        }
        assert_eq!(requests, [0, 3, 6, 69, 72, 75, 138, 141, 144]);
        assert_eq!(lost, [9]);
        assert!(paths.on_echo_response(PEER, at(200)) && !paths.on_echo_response(PEER, at(201)));
        assert_eq!(paths.due(at(260)), PathActions::default());
        assert_eq!(paths.due(at(261)).echo_requests.len(), 1);
        // no session has the peer
        paths.change(&[PEER], &[], at(262));
        assert_eq!(paths.peers.len(), 1);
        paths.change(&[PEER], &[], at(262));
        assert!(paths.peers.is_empty() && !paths.on_echo_response(PEER, at(263)));
    }

    #[test]
    fn many_are_asked_little_by_little() {
        let mut paths = PathMonitor::new(Some(Duration::from_secs(60)), Duration::from_secs(3), 3);
        let peers: Vec<IpAddr> = (0..300).map(|n| std::net::Ipv4Addr::from_bits(n).into()).collect();
        paths.change(&[], &peers, at(0));
        let mut turn = || {
            let due = paths.due(at(1));
            (due.echo_requests.len(), due.more)
        };
        assert_eq!([turn(), turn(), turn(), turn()], [(128, true), (128, true), (44, false), (0, false)]);
    }

    #[test]
    fn nobody_is_asked_unless_told() {
        let mut paths = PathMonitor::new(None, Duration::from_secs(3), 3);
        paths.change(&[], &[PEER], at(0));
        assert_eq!((paths.due(at(100)), paths.peers.len()), (PathActions::default(), 0));
    }
}
