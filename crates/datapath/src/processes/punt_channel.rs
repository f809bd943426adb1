//! Where a worker that is a process of its own puts what it does not decide alone (packets that are to be buffered,
//! errors, foreign TEIDs, rules beside records, what the owner must be told): shared memory for one batch. A clerk, a
//! thread of the UPF's process, decides on it by the locked tables and sends it itself; the worker waits for it, so that
//! nothing overtakes it, and what is on the desk outlives the worker.

use crate::fast::{PendingNotification, SpinWait};
use crate::sys::poll::{Poller, Waker};
use crate::sys::shared::Shared;
use crate::sys::udp::BATCH;
use crate::tables::DownlinkId;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::time::Duration;
use vireo_types::SessionAddress;

/// Octets of the longest packet on it: no IP packet is longer.
const LONGEST: usize = 65_536;
/// Words before those of the packets.
const HEAD: usize = 8;
/// Words of a packet: where it came from and to, and octets.
const ITEM: usize = 8 + LONGEST / 8;
const WORDS: usize = HEAD + BATCH * ITEM;

const STATE: usize = 0;
const COUNT: usize = 1;
const OWED: usize = 2;

const IDLE: u64 = 0;
const POSTED: u64 = 1;
const DONE: u64 = 2;

/// What kind of packet lies there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PuntedPacket {
    /// A datagram from N3: from whom, and to which of our addresses.
    Uplink(SocketAddr, IpAddr),
    /// A packet from N6.
    Downlink,
    /// It was too long for whoever received it.
    Truncated,
}

/// A desk. Both sides map it.
#[derive(Debug)]
pub(crate) struct PuntChannel {
    words: Shared<AtomicU64>,
    /// Rung by the worker,
    bell: Waker,
    /// and by the clerk,
    back: Waker,
    /// for which the worker waits.
    answers: Poller,
}

impl PuntChannel {
    /// A desk, and its memory for another process.
    pub(crate) fn new() -> io::Result<(Self, OwnedFd)> {
        let (words, file) = Shared::in_file(WORDS)?;
        Ok((PuntChannel::with(words, Waker::new()?, Waker::new()?)?, file))
    }

    fn with(words: Shared<AtomicU64>, bell: Waker, back: Waker) -> io::Result<Self> {
        let answers = Poller::new()?;
        answers.add(back.as_fd(), 0)?;
        Ok(PuntChannel { words, bell, back, answers })
    }

    /// The desk that another process has made.
    pub(crate) fn of(file: BorrowedFd<'_>, bell: OwnedFd, back: OwnedFd) -> io::Result<Self> {
        PuntChannel::with(Shared::mapped(file, WORDS)?, bell.into(), back.into())
    }

    /// What the two ring.
    pub(crate) fn bells(&self) -> [BorrowedFd<'_>; 2] {
        [self.bell.as_fd(), self.back.as_fd()]
    }

    fn item(&self, n: usize) -> &[AtomicU64] {
        let start = HEAD + n * ITEM;
        self.words.get(start..start + ITEM).unwrap_or_default()
    }

    /// The worker's: puts a packet there. Nobody looks before [`PuntChannel::post`].
    pub(crate) fn put(&self, n: usize, came: PuntedPacket, octets: &[u8]) {
        let mut head = [0_u64; 8];
        let octets = &octets[..octets.len().min(LONGEST)];
        head[1] = octets.len() as u64;
        match came {
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

    /// The worker's: has the clerk decide on so many packets, and before them tell what is owed.
    pub(crate) fn post(&self, count: usize, owed: Option<PendingNotification>) {
        let words = owed_words(owed);
        self.words[OWED..].iter().zip(words).for_each(|(word, value)| word.store(value, Relaxed));
        self.words[COUNT].store(count as u64, Relaxed);
        self.words[STATE].store(POSTED, Release);
        self.bell.wake();
    }

    /// The worker's: waits until the clerk has decided.
    pub(crate) fn wait(&self) {
        let mut pause = SpinWait::default();
        while self.words[STATE].load(Acquire) == POSTED {
            if !pause.is_long() {
                pause.once();
                continue;
            }
            // it cannot fail, and if it did the clerk would be through some time
            let _ = self.answers.wait(Some(Duration::from_millis(10)), |_| {});
        }
        self.back.clear();
        self.words[STATE].store(IDLE, Relaxed);
    }

    /// The clerk's: what is rung for.
    pub(crate) fn bell(&self) -> &Waker {
        &self.bell
    }

    /// The clerk's: how many packets are there to be decided on, and what is owed; `None` if nothing was posted.
    pub(crate) fn posted(&self) -> Option<(usize, Option<PendingNotification>)> {
        if self.words[STATE].load(Acquire) != POSTED {
            return None;
        }
        let mut owed = [0; 4];
        owed.iter_mut().zip(&self.words[OWED..]).for_each(|(value, word)| *value = word.load(Relaxed));
        Some(((self.words[COUNT].load(Relaxed) as usize).min(BATCH), owed_of(owed)))
    }

    /// The clerk's: a packet, put behind so many octets.
    pub(crate) fn take(&self, n: usize, room: usize, into: &mut Vec<u8>) -> PuntedPacket {
        let item = self.item(n);
        let word = |at: usize| item.get(at).map_or(0, |word| word.load(Relaxed));
        let (kind, length) = (word(0), (word(1) as usize).min(LONGEST));
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

    /// The clerk's: all is decided on and has left.
    pub(crate) fn done(&self) {
        self.words[STATE].store(DONE, Release);
        self.back.wake();
    }

    /// When the worker has died: rings in its place, and says whether the clerk is through with what it had posted.
    pub(crate) fn is_through(&self) -> bool {
        if self.words[STATE].load(Acquire) == POSTED {
            self.bell.wake();
            return false;
        }
        true
    }

    /// Readies it for the next worker.
    pub(crate) fn tidy(&self) {
        self.words[STATE].store(IDLE, Relaxed);
        self.back.clear();
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

fn owed_words(owed: Option<PendingNotification>) -> [u64; 4] {
    match owed {
        None => [0; 4],
        Some(PendingNotification::Downlink(id)) => [1, id.0.into(), 0, 0],
        Some(PendingNotification::Uplink(SessionAddress { ipv4, ipv6_prefix })) => {
            let (first, second) = ipv6_prefix.map_or((0, 0), |v6| bits(v6.into()));
            let has = 2 | u64::from(ipv4.is_some()) << 8 | u64::from(ipv6_prefix.is_some()) << 9;
            [has | ipv4.map_or(0, |v4| u64::from(v4.to_bits())) << 32, first, second, 0]
        }
    }
}

fn owed_of([has, first, second, _]: [u64; 4]) -> Option<PendingNotification> {
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
    fn what_is_put_on_it_is_taken_as_it_was() {
        let (ours, file) = PuntChannel::new().expect("memory");
        let [bell, back] = ours.bells().map(|bell| bell.try_clone_to_owned().expect("a descriptor"));
        let theirs = PuntChannel::of(file.as_fd(), bell, back).expect("mapped");
        assert!(ours.posted().is_none() && ours.is_through());
        let v4 = PuntedPacket::Uplink("192.0.2.1:2152".parse().expect("one"), "192.0.2.2".parse().expect("one"));
        let v6 = PuntedPacket::Uplink("[2001:db8::1]:65535".parse().expect("one"), "2001:db8::2".parse().expect("one"));
        let put = [
            (v4, vec![1, 2, 3]),
            (v6, vec![7; 16]),
            (PuntedPacket::Downlink, vec![9; 9_001]),
            (PuntedPacket::Truncated, vec![]),
        ];
        let ipv6_prefix = Some("2001:db8:45::".parse().expect("one"));
        for owed in [
            None,
            Some(PendingNotification::Downlink(DownlinkId(77))),
            Some(PendingNotification::Uplink(SessionAddress {
                ipv4: Some(Ipv4Addr::new(10, 45, 255, 3)),
                ipv6_prefix: None,
            })),
            Some(PendingNotification::Uplink(SessionAddress { ipv4: None, ipv6_prefix })),
        ] {
            put.iter().enumerate().for_each(|(n, (came, octets))| theirs.put(n, *came, octets));
            theirs.post(put.len(), owed);
            assert!(!ours.is_through());
            assert_eq!(ours.posted(), Some((put.len(), owed)));
            let mut got = vec![];
            for (n, (came, octets)) in put.iter().enumerate() {
                assert_eq!((ours.take(n, 4, &mut got), &got[4..]), (*came, &octets[..]));
            }
            ours.done();
            theirs.wait();
            assert!(ours.posted().is_none() && ours.is_through());
        }
    }
}
