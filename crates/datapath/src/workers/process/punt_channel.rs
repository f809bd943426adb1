//! Punt channel: shared memory for one batch that a worker process passes to the UPF process.
//!
//! A worker punts the packets that the fast path cannot handle: packets to be buffered, errors,
//! foreign TEIDs, flow rules, notifications. The punt handler, a thread of the UPF process,
//! classifies them by the locked tables and sends them. The worker waits for it, so nothing
//! overtakes the batch. The contents of the channel outlive the worker.

use crate::engine::batch::{PuntSink, PuntedPacket};
use crate::engine::event::PendingNotification;
use crate::engine::index::DownlinkId;
use crate::engine::locking::SpinWait;
use crate::sys::BATCH;
use crate::sys::poll::{Poller, Waker};
use crate::sys::shared::Shared;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::time::Duration;
use vireo_types::SessionAddress;

/// Longest packet in octets: the maximum of an IP packet.
const MAX_PACKET_OCTETS: usize = 65_536;
/// Header words before the packets.
const HEAD: usize = 8;
/// Words of a packet: source, destination and contents.
const ITEM: usize = 8 + MAX_PACKET_OCTETS / 8;
const WORDS: usize = HEAD + BATCH * ITEM;

const STATE: usize = 0;
const COUNT: usize = 1;
const PENDING: usize = 2;

const IDLE: u64 = 0;
const POSTED: u64 = 1;
const DONE: u64 = 2;

/// Punt channel between one worker process and its punt handler. Both map it.
#[derive(Debug)]
pub(crate) struct PuntChannel {
    words: Shared<AtomicU64>,
    /// Woken by the worker.
    bell: Waker,
    /// Woken by the punt handler.
    back: Waker,
    /// Poller of the worker for `back`.
    answers: Poller,
}

impl PuntChannel {
    /// Creates a channel. Returns it with its memory for another process.
    pub(crate) fn new() -> io::Result<(Self, OwnedFd)> {
        let (words, file) = Shared::in_file(WORDS)?;
        Ok((PuntChannel::with(words, Waker::new()?, Waker::new()?)?, file))
    }

    fn with(words: Shared<AtomicU64>, bell: Waker, back: Waker) -> io::Result<Self> {
        let answers = Poller::new()?;
        answers.add(back.as_fd(), 0)?;
        Ok(PuntChannel { words, bell, back, answers })
    }

    /// Maps a channel that another process created.
    pub(crate) fn from_fds(file: BorrowedFd<'_>, bell: OwnedFd, back: OwnedFd) -> io::Result<Self> {
        PuntChannel::with(Shared::mapped(file, WORDS)?, bell.into(), back.into())
    }

    /// Returns the bells of worker and punt handler.
    pub(crate) fn bells(&self) -> [BorrowedFd<'_>; 2] {
        [self.bell.as_fd(), self.back.as_fd()]
    }

    fn item(&self, n: usize) -> &[AtomicU64] {
        let start = HEAD + n * ITEM;
        self.words.get(start..start + ITEM).unwrap_or_default()
    }

    /// Worker: passes `count` packets to the punt handler, which first sends the deferred
    /// notification `pending`.
    pub(crate) fn post(&self, count: usize, pending: Option<PendingNotification>) {
        let words = pending_words(pending);
        self.words[PENDING..].iter().zip(words).for_each(|(word, value)| word.store(value, Relaxed));
        self.words[COUNT].store(count as u64, Relaxed);
        self.words[STATE].store(POSTED, Release);
        self.bell.wake();
    }

    /// Worker: waits until the punt handler has processed the batch.
    pub(crate) fn wait(&self) {
        let mut pause = SpinWait::default();
        while self.words[STATE].load(Acquire) == POSTED {
            if !pause.is_long() {
                pause.once();
                continue;
            }
            // The wait cannot fail. If it did, the loop would still end when the punt handler is
            // done.
            let _ = self.answers.wait(Some(Duration::from_millis(10)), |_| {});
        }
        self.back.clear();
        self.words[STATE].store(IDLE, Relaxed);
    }

    /// Punt handler: returns the bell that the worker wakes.
    pub(crate) fn bell(&self) -> &Waker {
        &self.bell
    }

    /// Punt handler: returns the number of packets and the deferred notification. `None` if nothing
    /// was posted.
    pub(crate) fn take_posted(&self) -> Option<(usize, Option<PendingNotification>)> {
        if self.words[STATE].load(Acquire) != POSTED {
            return None;
        }
        let mut pending = [0; 4];
        pending.iter_mut().zip(&self.words[PENDING..]).for_each(|(value, word)| *value = word.load(Relaxed));
        Some(((self.words[COUNT].load(Relaxed) as usize).min(BATCH), pending_from_words(pending)))
    }

    /// Punt handler: reads a packet into `into`, after `room` free octets.
    pub(crate) fn take(&self, n: usize, room: usize, into: &mut Vec<u8>) -> PuntedPacket {
        let item = self.item(n);
        let word = |at: usize| item.get(at).map_or(0, |word| word.load(Relaxed));
        let (kind, length) = (word(0), (word(1) as usize).min(MAX_PACKET_OCTETS));
        into.clear();
        into.resize(room, 0);
        let octets = item.iter().skip(8).flat_map(|word| word.load(Relaxed).to_ne_bytes());
        into.extend(octets.take(length));
        let v6 = kind >> 8 & 1 == 1;
        match kind & 0xff {
            1 => PuntedPacket::Downlink,
            2 => {
                let from = SocketAddr::new(address(v6, word(2), word(3)), (kind >> 16) as u16);
                PuntedPacket::Uplink(from, address(v6, word(4), word(5)))
            }
            _ => PuntedPacket::Truncated,
        }
    }

    /// Punt handler: marks the batch as processed and sent.
    pub(crate) fn done(&self) {
        self.words[STATE].store(DONE, Release);
        self.back.wake();
    }

    /// After the death of the worker: wakes the punt handler, and returns true if it has processed
    /// the posted batch.
    pub(crate) fn is_through(&self) -> bool {
        if self.words[STATE].load(Acquire) == POSTED {
            self.bell.wake();
            return false;
        }
        true
    }

    /// Resets the channel for the next worker.
    pub(crate) fn reset(&self) {
        self.words[STATE].store(IDLE, Relaxed);
        self.back.clear();
    }
}

impl PuntSink for PuntChannel {
    /// Worker: writes a packet. The punt handler reads it only after [`PuntChannel::post`].
    fn put(&self, n: usize, packet: PuntedPacket, octets: &[u8]) {
        let mut head = [0_u64; 8];
        let octets = &octets[..octets.len().min(MAX_PACKET_OCTETS)];
        head[1] = octets.len() as u64;
        match packet {
            PuntedPacket::Truncated => {}
            PuntedPacket::Downlink => head[0] = 1,
            PuntedPacket::Uplink(from, local) => {
                head[0] = 2 | u64::from(from.is_ipv6()) << 8 | u64::from(from.port()) << 16;
                (head[2], head[3]) = bits(from.ip());
                (head[4], head[5]) = bits(local);
            }
        }
        let item = self.item(n);
        item.iter().zip(head).for_each(|(word, value)| word.store(value, Relaxed));
        for (word, part) in item.iter().skip(8).zip(octets.chunks(8)) {
            let mut value = [0; 8];
            value[..part.len()].copy_from_slice(part);
            word.store(u64::from_ne_bytes(value), Relaxed);
        }
    }
}

fn bits(address: IpAddr) -> (u64, u64) {
    match address {
        IpAddr::V4(v4) => (v4.to_bits().into(), 0),
        IpAddr::V6(v6) => ((v6.to_bits() >> 64) as u64, v6.to_bits() as u64),
    }
}

fn address(v6: bool, first: u64, second: u64) -> IpAddr {
    match v6 {
        false => Ipv4Addr::from_bits(first as u32).into(),
        true => Ipv6Addr::from_bits(u128::from(first) << 64 | u128::from(second)).into(),
    }
}

fn pending_words(pending: Option<PendingNotification>) -> [u64; 4] {
    match pending {
        None => [0; 4],
        Some(PendingNotification::Downlink(id)) => [1, id.0.into(), 0, 0],
        Some(PendingNotification::Uplink(SessionAddress { ipv4, ipv6_prefix })) => {
            let (first, second) = ipv6_prefix.map_or((0, 0), |v6| bits(v6.into()));
            let has = 2 | u64::from(ipv4.is_some()) << 8 | u64::from(ipv6_prefix.is_some()) << 9;
            [has | ipv4.map_or(0, |v4| u64::from(v4.to_bits())) << 32, first, second, 0]
        }
    }
}

fn pending_from_words([has, first, second, _]: [u64; 4]) -> Option<PendingNotification> {
    match has & 0xff {
        1 => Some(PendingNotification::Downlink(DownlinkId(first as u32))),
        2 => {
            let ipv4 = (has >> 8 & 1 == 1).then(|| Ipv4Addr::from_bits((has >> 32) as u32));
            let v6 = Ipv6Addr::from_bits(u128::from(first) << 64 | u128::from(second));
            Some(PendingNotification::Uplink(SessionAddress { ipv4, ipv6_prefix: (has >> 9 & 1 == 1).then_some(v6) }))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn punted_packets_are_read_as_written() {
        let (ours, file) = PuntChannel::new().expect("memory");
        let [bell, back] = ours.bells().map(|bell| bell.try_clone_to_owned().expect("a descriptor"));
        let theirs = PuntChannel::from_fds(file.as_fd(), bell, back).expect("mapped");
        assert!(ours.take_posted().is_none() && ours.is_through());
        let v4 = PuntedPacket::Uplink("192.0.2.1:2152".parse().expect("one"), "192.0.2.2".parse().expect("one"));
        let v6 = PuntedPacket::Uplink("[2001:db8::1]:65535".parse().expect("one"), "2001:db8::2".parse().expect("one"));
        let put = [
            (v4, vec![1, 2, 3]),
            (v6, vec![7; 16]),
            (PuntedPacket::Downlink, vec![9; 9_001]),
            (PuntedPacket::Truncated, vec![]),
        ];
        let ipv6_prefix = Some("2001:db8:45::".parse().expect("one"));
        for pending in [
            None,
            Some(PendingNotification::Downlink(DownlinkId(77))),
            Some(PendingNotification::Uplink(SessionAddress {
                ipv4: Some(Ipv4Addr::new(10, 45, 255, 3)),
                ipv6_prefix: None,
            })),
            Some(PendingNotification::Uplink(SessionAddress { ipv4: None, ipv6_prefix })),
        ] {
            put.iter().enumerate().for_each(|(n, (packet, octets))| theirs.put(n, *packet, octets));
            theirs.post(put.len(), pending);
            assert!(!ours.is_through());
            assert_eq!(ours.take_posted(), Some((put.len(), pending)));
            let mut got = vec![];
            for (n, (packet, octets)) in put.iter().enumerate() {
                assert_eq!((ours.take(n, 4, &mut got), &got[4..]), (*packet, &octets[..]));
            }
            ours.done();
            theirs.wait();
            assert!(ours.take_posted().is_none() && ours.is_through());
        }
    }
}
