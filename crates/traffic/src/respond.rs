//! Mirror on N6: returns each packet of [`crate::generate`] to its source.
//!
//! Each returned packet carries the number of packets received in its run. All other packets are
//! counted and not answered, so two mirrors never send packets to each other.

use crate::distribution::LONGEST;
use crate::generate::{LoadError, open};
use crate::stamp::{STAMP, Stamp};
use crate::sys::batch::{BATCH, Inbox, Outbox, Poller};
use serde::Serialize;
use std::net::{SocketAddrV4, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Maximum number of runs with counters. The run that was idle longest is evicted.
const RUNS: usize = 64;
/// Maximum sleep, which bounds the reaction time to a stop.
const SLEEP: Duration = Duration::from_millis(50);

/// Counters of a mirror.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct MirrorReport {
    /// Number of returned packets.
    pub packets: u64,
    /// Payload octets of the returned packets.
    pub octets: u64,
    /// Packets that the kernel refused to send.
    pub refused: u64,
    /// Error of the last refused packet.
    pub refusal: Option<String>,
    /// Datagrams that do not belong to a load.
    #[serde(rename = "others")]
    pub unrelated: u64,
    /// Time from the first to the last packet, in seconds.
    pub seconds: f64,
}

/// Mirror socket on N6.
#[derive(Debug)]
pub struct Mirror {
    socket: UdpSocket,
}

/// Counter of one run.
#[derive(Clone, Copy)]
struct Run {
    run: u32,
    packets: u64,
    /// Total number of packets of all runs at the last packet of this run.
    last_packet: u64,
}

impl Mirror {
    /// Opens the socket of a mirror.
    ///
    /// # Errors
    ///
    /// Returns an error if the address is missing or in use.
    pub fn open(address: SocketAddrV4) -> Result<Self, LoadError> {
        Ok(Mirror { socket: open(address, true)? })
    }

    /// Returns the local address.
    pub fn address(&self) -> std::io::Result<std::net::SocketAddr> {
        self.socket.local_addr()
    }

    /// Mirrors until `stop` is set, `duration` has passed, or `packets` packets were mirrored.
    pub fn run(
        &self,
        duration: Option<Duration>,
        packets: Option<u64>,
        stop: &AtomicBool,
    ) -> Result<MirrorReport, LoadError> {
        let (mut inbox, mut outbox) = (Inbox::new(LONGEST.into()), Outbox::new(LONGEST.into()));
        let mut waiting = Poller::new([&self.socket]);
        let mut runs: Vec<Run> = Vec::with_capacity(RUNS);
        let mut done = MirrorReport::default();
        let began = Instant::now();
        let mut first = None;
        let left = |done: &MirrorReport| packets.is_none_or(|packets| done.packets < packets);
        let in_time = || duration.is_none_or(|duration| began.elapsed() < duration);
        while left(&done) && in_time() && !stop.load(Ordering::Relaxed) {
            let count = inbox.receive(&self.socket)?;
            for n in 0..count.min(BATCH) {
                let Some(datagram) = inbox.datagram(n) else {
                    done.unrelated += 1;
                    continue;
                };
                let Some(stamp) = Stamp::read(datagram.octets).filter(|stamp| stamp.mirrored == 0) else {
                    done.unrelated += 1;
                    continue;
                };
                let mirrored = count_run(&mut runs, stamp.run, done.packets);
                let length = datagram.octets.len();
                let room = outbox.next();
                room[..length].copy_from_slice(datagram.octets);
                if let Some(octets) = room.first_chunk_mut::<STAMP>() {
                    Stamp { mirrored, ..stamp }.write(octets);
                }
                outbox.queue(datagram.from, datagram.local, length);
                done.packets += 1;
                done.octets += length as u64;
            }
            let sent = outbox.send(&self.socket);
            if sent.refused != 0 {
                done.refused += u64::from(sent.refused.count_ones());
                done.refusal = sent.error.map(|error| error.to_string());
            }
            if count > 0 {
                let first = *first.get_or_insert_with(Instant::now);
                done.seconds = first.elapsed().as_secs_f64();
            }
            if count < BATCH {
                waiting.wait(SLEEP)?;
            }
        }
        Ok(done)
    }
}

/// Counts a packet of a run. Returns the new count.
fn count_run(runs: &mut Vec<Run>, run: u32, last_packet: u64) -> u64 {
    if let Some(known) = runs.iter_mut().find(|known| known.run == run) {
        known.packets += 1;
        known.last_packet = last_packet;
        return known.packets;
    }
    if runs.len() >= RUNS
        && let Some(oldest) = (0..runs.len()).min_by_key(|n| runs[*n].last_packet)
    {
        runs.swap_remove(oldest);
    }
    runs.push(Run { run, packets: 1, last_packet });
    1
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::Ipv4Addr;

    #[test]
    fn only_loads_are_mirrored() {
        let mirror = Mirror::open(SocketAddrV4::new(Ipv4Addr::LOCALHOST, 0)).unwrap();
        let to = mirror.address().unwrap();
        let peer = UdpSocket::bind("127.0.0.1:0").unwrap();
        peer.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
        let stamp = Stamp { run: 7, lane: 0, sequence: 4, time: 5, mirrored: 0 };
        let send = |stamp: Stamp| {
            let mut octets = [9; 40];
            stamp.write(octets.first_chunk_mut().unwrap());
            peer.send_to(&octets, to).unwrap();
        };
        peer.send_to(b"who is there?", to).unwrap();
        send(Stamp { mirrored: 1, ..stamp });
        send(stamp);
        send(Stamp { run: 8, ..stamp });
        send(Stamp { sequence: 5, ..stamp });
        let done = mirror.run(Some(Duration::from_secs(10)), Some(3), &AtomicBool::new(false)).unwrap();
        assert_eq!((done.packets, done.octets, done.unrelated, done.refused), (3, 120, 2, 0));
        let answers: Vec<Stamp> = (0..3)
            .map(|_| {
                let mut octets = [0; 64];
                assert_eq!(peer.recv(&mut octets).unwrap(), 40);
                assert_eq!(octets[32..40], [9; 8]);
                Stamp::read(&octets).unwrap()
            })
            .collect();
        let first = Stamp { mirrored: 1, ..stamp };
        assert_eq!(answers, [first, Stamp { run: 8, ..first }, Stamp { sequence: 5, mirrored: 2, ..stamp }]);
        let stopped = mirror.run(None, None, &AtomicBool::new(true)).unwrap();
        assert_eq!(stopped, MirrorReport::default());
    }

    #[test]
    fn old_runs_make_room() {
        let mut runs = vec![];
        for run in 0..100 {
            assert_eq!(count_run(&mut runs, run, u64::from(run)), 1);
        }
        assert_eq!((runs.len(), count_run(&mut runs, 99, 100), count_run(&mut runs, 0, 101)), (RUNS, 2, 1));
    }
}
