//! Forwarding entry of one direction of a session: rule, rate and counters in one cache line.
//!
//! `bpf/entry.h` has the same layout. Workers read an entry without a lock while the control side
//! changes it. The *sequence* word is odd from the first change until [`UplinkEntry::end_write`].
//! Packets of such an entry wait for the change. The sequence word does not protect the words that
//! packets write ([`EntryCounters`]): each of them is consistent alone.

mod lean;
mod promote;

use crate::engine::counters::Volume;
use crate::engine::locking::{Locking, SpinWait};
use crate::engine::rate::{Policer, Rate};
use crate::engine::rule::{Action, DownlinkRule, Tunnel, UplinkRule};
use crate::engine::tunnel_target::TunnelTarget;
use crate::sys::shared::Plain;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicU32, AtomicU64, fence};
use vireo_types::{Instant, SessionAddress, Teid};

/// Policer state and counters that packets update.
#[derive(Debug, Default)]
#[repr(C)]
pub(crate) struct EntryCounters {
    pub(crate) policer: Policer,
    packets: AtomicU64,
    octets: AtomicU64,
}

impl EntryCounters {
    /// Counts a packet. Returns the octets counted before it.
    #[inline]
    pub(crate) fn count(&self, octets: usize) -> u64 {
        self.packets.fetch_add(1, Relaxed);
        self.octets.fetch_add(octets as u64, Relaxed)
    }

    /// Counts a packet without atomic additions. The caller must be the only one that counts. An
    /// atomic addition costs as much as the rest of a verdict.
    #[inline]
    pub(crate) fn count_alone(&self, octets: usize) -> u64 {
        let before = self.octets.load(Relaxed);
        self.packets.store(self.packets.load(Relaxed).wrapping_add(1), Relaxed);
        self.octets.store(before.wrapping_add(octets as u64), Relaxed);
        before
    }

    pub(crate) fn volume(&self) -> Volume {
        Volume { packets: self.packets.load(Relaxed), octets: self.octets.load(Relaxed) }
    }

    fn clear(&self) {
        self.policer.set(0);
        self.packets.store(0, Relaxed);
        self.octets.store(0, Relaxed);
    }
}

/// Sequence word of an entry. With [`Locking::SharedWriter`] it is also a lock: the bit [`HELD`]
/// marks that a worker classifies a packet with the entry.
#[derive(Debug, Default)]
#[repr(transparent)]
struct SeqLock(AtomicU32);

/// Set while one worker has the entry to itself ([`Locking::SharedWriter`]).
const HELD: u32 = 1 << 31;

impl SeqLock {
    /// Begins a write section: readers do not use the entry until [`SeqLock::end_write`].
    fn begin_write(&self) {
        let mut now = self.0.load(Relaxed) & !HELD;
        let mut pause = SpinWait::default();
        while now & 1 == 0 {
            match self.0.compare_exchange_weak(now, now | 1, Acquire, Relaxed) {
                Ok(_) => break,
                Err(version) => now = version & !HELD,
            }
            pause.once();
        }
        // Readers see the odd number before any of the following writes.
        fence(Release);
    }

    fn end_write(&self) {
        let now = self.0.load(Relaxed);
        if now & 1 == 1 {
            self.0.store(now.wrapping_add(1) & !HELD, Release);
        }
    }

    /// Begins a read section. Returns `None` while the entry changes.
    #[inline]
    fn begin_read(&self, locking: Locking) -> Option<SeqRead<'_>> {
        let locked = locking == Locking::SharedWriter;
        let version = if locked { self.hold()? } else { self.0.load(Acquire) };
        (version & 1 == 0).then_some(SeqRead { sequence: self, version, locked })
    }

    /// Waits until no other worker holds the entry, then holds it.
    fn hold(&self) -> Option<u32> {
        let mut pause = SpinWait::default();
        loop {
            let now = self.0.load(Relaxed) & !HELD;
            if now & 1 == 1 {
                return None;
            }
            if self.0.compare_exchange_weak(now, now | HELD, Acquire, Relaxed).is_ok() {
                return Some(now);
            }
            pause.once();
        }
    }
}

/// Read section of an entry.
#[derive(Debug)]
pub(crate) struct SeqRead<'a> {
    sequence: &'a SeqLock,
    version: u32,
    locked: bool,
}

impl SeqRead<'_> {
    /// Returns true if all words read so far belong to the same version of the entry.
    #[inline]
    pub(crate) fn is_consistent(&self) -> bool {
        fence(Acquire);
        self.locked || self.sequence.0.load(Relaxed) == self.version
    }
}

impl Drop for SeqRead<'_> {
    #[inline]
    fn drop(&mut self) {
        if self.locked {
            self.sequence.0.store(self.version, Release);
        }
    }
}

/// Rule and counters of the packets received with one TEID.
#[derive(Debug, Default)]
#[repr(C, align(64))]
pub(crate) struct UplinkEntry {
    sequence: SeqLock,
    /// 0 = no tunnel.
    teid: AtomicU32,
    /// Address of the UE in network byte order.
    ipv4: AtomicU32,
    flags: AtomicU32,
    /// Prefix of the UE in network byte order.
    prefix: AtomicU64,
    flows: AtomicU64,
    /// [`Rate`], or the first cell of the rule list ([`UP_OVERFLOW`]).
    cost: AtomicU64,
    pub(crate) state: EntryCounters,
}

const UP_FORWARD: u32 = 1;
const UP_GATE: u32 = 1 << 1;
const UP_IPV4: u32 = 1 << 2;
const UP_IPV6: u32 = 1 << 3;
/// [`crate::engine::flow_rules`] classify the packets of this session. `cost` is then the first
/// cell of the list that the kernel program evaluates; 0 = the kernel program passes these packets
/// to user space.
const UP_OVERFLOW: u32 = 1 << 4;
/// The packets are not counted one by one, and no rate applies: see `lean`.
const UP_LEAN: u32 = 1 << 5;
/// Position of 6 bits: see [`watched`].
const UP_WATCH_SHIFT: u32 = 8;
/// Position of 15 bits: required source of the packets, as an index into the address table
/// ([`crate::engine::access`]).
const UP_PEER_SHIFT: u32 = 16;
const PEER: u32 = 0x7fff;

/// No index: only user space knows the required source.
pub(crate) const NO_PEER: u32 = 0;
/// Every known address is a valid source.
pub(crate) const ANY_PEER: u32 = PEER;

/// Bits of the watch granularity: the control side is notified each time a count passes a multiple
/// of 2^n octets. A packet costs one comparison, and no entry stores a limit. 0 = never.
pub(crate) const WATCH: u32 = 0x3f;

/// Returns true if a count of `before` octets passes a watched multiple with this packet.
#[inline]
pub(crate) fn passes_watched_multiple(watch: u32, before: u64, octets: usize) -> bool {
    watch != 0 && (before ^ before.wrapping_add(octets as u64)) >> (watch & WATCH) != 0
}

/// Returns the watch granularity for `counts` counters. Together they add fewer than `octets`
/// octets without a notification. 0 octets disables watching.
pub fn watch_for(octets: u64, counts: u64) -> u32 {
    match octets {
        0 => 0,
        octets => (octets / counts.max(1)).max(2).ilog2().min(WATCH),
    }
}

fn set_watch(flags: &AtomicU32, shift: u32, watch: u32) {
    let others = flags.load(Relaxed) & !(WATCH << shift);
    flags.store(others | (watch & WATCH) << shift, Relaxed);
}

/// Marks an entry: its session has rules in [`crate::engine::flow_rules`], and `list` is their
/// first cell.
fn set_rule_list(sequence: &SeqLock, flags: &AtomicU32, bit: u32, cost: &AtomicU64, list: u32) {
    sequence.begin_write();
    flags.store(flags.load(Relaxed) | bit, Relaxed);
    cost.store(list.into(), Relaxed);
}

/// Removes the mark and restores the rate of the entry.
fn clear_rule_list(sequence: &SeqLock, flags: &AtomicU32, bit: u32, cost: &AtomicU64, mbr: Rate) {
    sequence.begin_write();
    flags.store(flags.load(Relaxed) & !bit, Relaxed);
    cost.store(mbr.cost(), Relaxed);
}

/// Returns the rate of an entry. A marked entry has none.
fn mbr(marked: bool, cost: &AtomicU64) -> Rate {
    if marked { Rate::UNLIMITED } else { Rate::from_cost(cost.load(Relaxed)) }
}

/// Flags that a new rule does not change.
const UP_KEPT: u32 = UP_OVERFLOW | UP_LEAN | WATCH << UP_WATCH_SHIFT | PEER << UP_PEER_SHIFT;

impl UplinkEntry {
    /// Assigns the entry to a tunnel and clears the counters.
    pub(crate) fn begin(&self, teid: Teid, rule: &UplinkRule) {
        self.sequence.begin_write();
        self.flags.store(0, Relaxed);
        self.set(rule);
        self.teid.store(teid.0, Relaxed);
        self.state.clear();
    }

    pub(crate) fn set(&self, rule: &UplinkRule) {
        self.sequence.begin_write();
        let SessionAddress { ipv4, ipv6_prefix } = rule.ue;
        let flag = |set: bool, bit: u32| if set { bit } else { 0 };
        let flags = flag(rule.forward, UP_FORWARD) | flag(rule.gate_open, UP_GATE);
        let flags = flags | self.flags.load(Relaxed) & UP_KEPT;
        self.flags.store(flags | flag(ipv4.is_some(), UP_IPV4) | flag(ipv6_prefix.is_some(), UP_IPV6), Relaxed);
        self.ipv4.store(ipv4.map_or(0, wire), Relaxed);
        self.prefix.store(ipv6_prefix.map_or(0, |prefix| words(prefix)[0]), Relaxed);
        self.flows.store(rule.flows, Relaxed);
        if !self.overflows() {
            self.cost.store(rule.mbr.cost(), Relaxed);
        }
    }

    /// Marks the entry: its session has rules in [`crate::engine::flow_rules`], and `list` is their
    /// first cell.
    pub(crate) fn set_rule_list(&self, list: u32) {
        set_rule_list(&self.sequence, &self.flags, UP_OVERFLOW, &self.cost, list);
    }

    /// Removes the mark and restores the rate of the entry.
    pub(crate) fn clear_rule_list(&self, mbr: Rate) {
        clear_rule_list(&self.sequence, &self.flags, UP_OVERFLOW, &self.cost, mbr);
    }

    /// Returns the first cell of the rule list.
    pub(crate) fn list(&self) -> Option<u32> {
        self.overflows().then(|| self.cost.load(Relaxed) as u32)
    }

    /// Sets the watch granularity in octets. The sequence word does not protect it: it is one word,
    /// and valid with the rule before and after a change.
    pub(crate) fn set_watch(&self, watch: u32) {
        set_watch(&self.flags, UP_WATCH_SHIFT, watch);
    }

    #[inline]
    pub(crate) fn watch(&self) -> u32 {
        self.flags.load(Relaxed) >> UP_WATCH_SHIFT & WATCH
    }

    /// Sets the required source of the packets. One word without protection, like
    /// [`UplinkEntry::set_watch`].
    pub(crate) fn set_peer(&self, place: u32) {
        let others = self.flags.load(Relaxed) & !(PEER << UP_PEER_SHIFT);
        self.flags.store(others | (place & PEER) << UP_PEER_SHIFT, Relaxed);
    }

    /// Returns the required source of the packets.
    #[inline]
    pub(crate) fn peer(&self) -> u32 {
        self.flags.load(Relaxed) >> UP_PEER_SHIFT & PEER
    }

    #[inline]
    pub(crate) fn overflows(&self) -> bool {
        self.flags.load(Relaxed) & UP_OVERFLOW != 0
    }

    /// Frees the entry.
    pub(crate) fn end(&self) {
        self.sequence.begin_write();
        self.teid.store(0, Relaxed);
        self.flags.store(0, Relaxed);
    }

    /// Begins a write section. Packets of the entry wait until [`UplinkEntry::end_write`].
    pub(crate) fn begin_write(&self) {
        self.sequence.begin_write();
    }

    /// Ends the write section.
    pub(crate) fn end_write(&self) {
        self.sequence.end_write();
    }

    /// Begins a read section. Returns `None` while the entry changes.
    #[inline]
    pub(crate) fn begin_read(&self, locking: Locking) -> Option<SeqRead<'_>> {
        self.sequence.begin_read(locking)
    }

    #[inline]
    pub(crate) fn teid(&self) -> Teid {
        Teid(self.teid.load(Relaxed))
    }

    #[inline]
    pub(crate) fn rule(&self) -> UplinkRule {
        let flags = self.flags.load(Relaxed);
        let ipv4 = (flags & UP_IPV4 != 0).then(|| Ipv4Addr::from(self.ipv4.load(Relaxed).to_ne_bytes()));
        let ipv6_prefix = (flags & UP_IPV6 != 0).then(|| address([self.prefix.load(Relaxed), 0]));
        UplinkRule {
            ue: SessionAddress { ipv4, ipv6_prefix },
            flows: self.flows.load(Relaxed),
            gate_open: flags & UP_GATE != 0,
            forward: flags & UP_FORWARD != 0,
            mbr: mbr(flags & UP_OVERFLOW != 0, &self.cost),
        }
    }

    #[inline]
    pub(crate) fn conforms(&self, mbr: Rate, octets: usize, now: Instant) -> bool {
        self.state.policer.allow(mbr, octets, now)
    }
}

/// Rule and counters of the packets to one UE, without the fields that only reports need.
#[derive(Debug, Default)]
#[repr(C, align(64))]
pub(crate) struct DownlinkEntry {
    sequence: SeqLock,
    flags: AtomicU32,
    teid: AtomicU32,
    /// Bits [`DATA`] and [`TUNNEL_ERROR`], and the count of [`DownlinkEntry::allow_advertisement`].
    reported: AtomicU32,
    /// Address of the tunnel in network byte order. An IPv4 address uses the first four octets.
    address: [AtomicU64; 2],
    /// [`Rate`], or the first cell of the rule list ([`DOWN_OVERFLOW`]).
    cost: AtomicU64,
    pub(crate) state: EntryCounters,
}

/// Downlink data was reported.
pub(crate) const DATA: u32 = 1;
/// An error of the tunnel was reported.
pub(crate) const TUNNEL_ERROR: u32 = 2;

/// Bits below the count of advertisements in `reported`.
const REPORTED: u32 = DATA | TUNNEL_ERROR;
/// Position of 3 bits: advertisements in the last second that had any.
const ADVERTISED_SHIFT: u32 = 2;
const ADVERTISED: u32 = 7;
/// Position of the other bits: number of this second.
const SECOND_SHIFT: u32 = 5;
/// Maximum advertisements that a UE can solicit in one second: a host repeats a solicitation after
/// 1 s or more (RFC 4861 10).
const ADVERTISEMENTS_PER_SECOND: u32 = 4;

const ACTION: u32 = 3;
pub(crate) const ACTION_DROP: u32 = 0;
pub(crate) const ACTION_FORWARD: u32 = 1;
pub(crate) const ACTION_BUFFER: u32 = 2;
const ACTION_BUFFER_AND_NOTIFY: u32 = 3;
pub(crate) const DOWN_GATE: u32 = 1 << 2;
pub(crate) const DOWN_RQI: u32 = 1 << 3;
pub(crate) const DOWN_QFI: u32 = 1 << 4;
pub(crate) const DOWN_IPV4: u32 = 1 << 5;
pub(crate) const DOWN_IPV6: u32 = 1 << 6;
/// Downlink counterpart of [`UP_OVERFLOW`].
const DOWN_OVERFLOW: u32 = 1 << 7;
pub(crate) const QFI_SHIFT: u32 = 8;
/// Downlink counterpart of [`UP_LEAN`].
const DOWN_LEAN: u32 = 1 << 15;
const GENERATION_SHIFT: u32 = 16;
/// Downlink counterpart of [`UP_WATCH_SHIFT`].
const DOWN_WATCH_SHIFT: u32 = 24;

impl DownlinkEntry {
    /// Assigns the entry to a UE and clears the counters. `generation` is that of the index.
    pub(crate) fn begin(&self, generation: u8, rule: &DownlinkRule) {
        self.sequence.begin_write();
        self.flags.store(u32::from(generation) << GENERATION_SHIFT, Relaxed);
        self.set(rule);
        self.reported.store(0, Relaxed);
        self.state.clear();
    }

    pub(crate) fn set(&self, rule: &DownlinkRule) {
        self.sequence.begin_write();
        let action = match rule.action {
            Action::Drop => ACTION_DROP,
            Action::Forward => ACTION_FORWARD,
            Action::Buffer { notify: false } => ACTION_BUFFER,
            Action::Buffer { notify: true } => ACTION_BUFFER_AND_NOTIFY,
        };
        let flag = |set: bool, bit: u32| if set { bit } else { 0 };
        let mut flags = self.flags.load(Relaxed)
            & (0xff << GENERATION_SHIFT | DOWN_OVERFLOW | DOWN_LEAN | WATCH << DOWN_WATCH_SHIFT);
        flags |= action;
        flags |= flag(rule.gate_open, DOWN_GATE) | flag(rule.rqi, DOWN_RQI);
        flags |= rule.qfi.map_or(0, |qfi| DOWN_QFI | u32::from(qfi & 0x3f) << QFI_SHIFT);
        let (family, [first, second]) = match rule.tunnel.map(|tunnel| tunnel.address) {
            None => (0, [0, 0]),
            Some(IpAddr::V4(v4)) => (DOWN_IPV4, words(v4.to_ipv6_leading())),
            Some(IpAddr::V6(v6)) => (DOWN_IPV6, words(v6)),
        };
        self.flags.store(flags | family, Relaxed);
        self.teid.store(rule.tunnel.map_or(0, |tunnel| tunnel.teid.0), Relaxed);
        self.address[0].store(first, Relaxed);
        self.address[1].store(second, Relaxed);
        if !self.overflows() {
            self.cost.store(rule.mbr.cost(), Relaxed);
        }
    }

    /// Marks the entry: its session has rules in [`crate::engine::flow_rules`], and `list` is their
    /// first cell.
    pub(crate) fn set_rule_list(&self, list: u32) {
        set_rule_list(&self.sequence, &self.flags, DOWN_OVERFLOW, &self.cost, list);
    }

    /// Removes the mark and restores the rate of the entry.
    pub(crate) fn clear_rule_list(&self, mbr: Rate) {
        clear_rule_list(&self.sequence, &self.flags, DOWN_OVERFLOW, &self.cost, mbr);
    }

    /// Returns the first cell of the rule list.
    pub(crate) fn list(&self) -> Option<u32> {
        self.overflows().then(|| self.cost.load(Relaxed) as u32)
    }

    /// Sets the watch granularity; see [`UplinkEntry::set_watch`].
    pub(crate) fn set_watch(&self, watch: u32) {
        set_watch(&self.flags, DOWN_WATCH_SHIFT, watch);
    }

    #[inline]
    pub(crate) fn watch(&self) -> u32 {
        self.flags.load(Relaxed) >> DOWN_WATCH_SHIFT & WATCH
    }

    #[inline]
    pub(crate) fn overflows(&self) -> bool {
        self.flags.load(Relaxed) & DOWN_OVERFLOW != 0
    }

    /// Frees the entry.
    pub(crate) fn end(&self) {
        self.sequence.begin_write();
        self.flags.store(0, Relaxed);
    }

    /// Begins a write section. Packets of the entry wait until [`DownlinkEntry::end_write`].
    pub(crate) fn begin_write(&self) {
        self.sequence.begin_write();
    }

    /// Ends the write section.
    pub(crate) fn end_write(&self) {
        self.sequence.end_write();
    }

    /// Begins a read section. Returns `None` while the entry changes.
    #[inline]
    pub(crate) fn begin_read(&self, locking: Locking) -> Option<SeqRead<'_>> {
        self.sequence.begin_read(locking)
    }

    /// Returns the tunnel of the packets and their marks.
    #[inline(always)]
    pub(crate) fn tunnel_target(&self) -> Option<TunnelTarget> {
        let flags = self.flags.load(Relaxed);
        let v6 = flags & DOWN_IPV6 != 0;
        let [first, second] = &self.address;
        let second = if v6 { second.load(Relaxed) } else { 0 };
        let target = TunnelTarget::from_words(Teid(self.teid.load(Relaxed)), v6, [first.load(Relaxed), second]);
        let target = match flags & DOWN_QFI {
            0 => target,
            _ => target.with_flow(flags >> QFI_SHIFT, flags & DOWN_RQI != 0),
        };
        (flags & (DOWN_IPV4 | DOWN_IPV6) != 0).then_some(target)
    }

    /// Returns the tunnel of the packets.
    pub(crate) fn tunnel(&self) -> Option<Tunnel> {
        self.rule(0, 0).tunnel
    }

    /// Returns the generation of the index of this entry.
    pub(crate) fn generation(&self) -> u8 {
        (self.flags.load(Relaxed) >> GENERATION_SHIFT) as u8
    }

    /// Returns the rule of the entry. The caller supplies `session` and `pdr`, which the entry does
    /// not store.
    #[inline]
    pub(crate) fn rule(&self, session: u64, pdr: u16) -> DownlinkRule {
        let flags = self.flags.load(Relaxed);
        let octets = || address([self.address[0].load(Relaxed), self.address[1].load(Relaxed)]);
        let address = match flags & (DOWN_IPV4 | DOWN_IPV6) {
            DOWN_IPV4 => {
                let [a, b, c, d, ..] = self.address[0].load(Relaxed).to_ne_bytes();
                Some(IpAddr::from([a, b, c, d]))
            }
            DOWN_IPV6 => Some(IpAddr::V6(octets())),
            _ => None,
        };
        DownlinkRule {
            session,
            pdr,
            qfi: (flags & DOWN_QFI != 0).then_some((flags >> QFI_SHIFT & 0x3f) as u8),
            rqi: flags & DOWN_RQI != 0,
            gate_open: flags & DOWN_GATE != 0,
            action: match flags & ACTION {
                ACTION_FORWARD => Action::Forward,
                ACTION_BUFFER => Action::Buffer { notify: false },
                ACTION_BUFFER_AND_NOTIFY => Action::Buffer { notify: true },
                _ => Action::Drop,
            },
            tunnel: address.map(|address| Tunnel { teid: Teid(self.teid.load(Relaxed)), address }),
            mbr: mbr(flags & DOWN_OVERFLOW != 0, &self.cost),
        }
    }

    #[inline]
    pub(crate) fn conforms(&self, mbr: Rate, octets: usize, now: Instant) -> bool {
        self.state.policer.allow(mbr, octets, now)
    }

    /// Marks `what` as reported. Returns false if it was marked already.
    pub(crate) fn report_once(&self, what: u32) -> bool {
        self.reported.fetch_or(what, Relaxed) & what == 0
    }

    /// Returns true if the UE can be sent one more solicited advertisement in this second, and
    /// counts it.
    pub(crate) fn allow_advertisement(&self, now: Instant) -> bool {
        let second = ((now.as_micros() / 1_000_000) as u32) << SECOND_SHIFT;
        let next = |word: u32| {
            let is_same = word >> SECOND_SHIFT == second >> SECOND_SHIFT;
            let count = if is_same { word >> ADVERTISED_SHIFT & ADVERTISED } else { 0 };
            let next = word & REPORTED | (count + 1) << ADVERTISED_SHIFT | second;
            (count < ADVERTISEMENTS_PER_SECOND).then_some(next)
        };
        self.reported.fetch_update(Relaxed, Relaxed, next).is_ok()
    }

    pub(crate) fn is_reported(&self, what: u32) -> bool {
        self.reported.load(Relaxed) & what != 0
    }

    pub(crate) fn report_again(&self, what: u32) {
        self.reported.fetch_and(!what, Relaxed);
    }
}

// SAFETY: atomics only, 64 octets without padding (asserted below), and all bit patterns are valid.
unsafe impl Plain for UplinkEntry {}
// SAFETY: as for `UplinkEntry`.
unsafe impl Plain for DownlinkEntry {}

const _: () = assert!(size_of::<UplinkEntry>() == 64 && size_of::<DownlinkEntry>() == 64);
const _: () = assert!(std::mem::offset_of!(UplinkEntry, state) == 40);
const _: () = assert!(std::mem::offset_of!(DownlinkEntry, state) == 40);

/// Returns an IPv4 address in network byte order.
pub(crate) fn wire(address: Ipv4Addr) -> u32 {
    u32::from_ne_bytes(address.octets())
}

/// Returns an IPv6 address as two words in network byte order.
fn words(address: Ipv6Addr) -> [u64; 2] {
    let bits = address.to_bits();
    [((bits >> 64) as u64).to_be(), (bits as u64).to_be()]
}

fn address([first, second]: [u64; 2]) -> Ipv6Addr {
    Ipv6Addr::from_bits(u128::from(u64::from_be(first)) << 64 | u128::from(u64::from_be(second)))
}

trait Ipv6Prefix64 {
    fn to_ipv6_leading(self) -> Ipv6Addr;
}

impl Ipv6Prefix64 for Ipv4Addr {
    /// Maps an IPv4 address to the first four of sixteen octets.
    fn to_ipv6_leading(self) -> Ipv6Addr {
        Ipv6Addr::from_bits(u128::from(self.to_bits()) << 96)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ALL_FLOWS;
    use proptest::prelude::*;

    fn rate() -> impl Strategy<Value = Rate> {
        prop_oneof![Just(Rate::UNLIMITED), (0..u64::MAX >> 24).prop_map(Rate::from_kbps)]
    }

    proptest! {
        #[test]
        fn uplink_rule_is_read_as_written(
            v4: Option<u32>, v6: Option<u64>, flows: u64, gate_open: bool, forward: bool, mbr in rate(),
        ) {
            let ue = SessionAddress {
                ipv4: v4.map(Ipv4Addr::from_bits),
                ipv6_prefix: v6.map(|v6| Ipv6Addr::from_bits(u128::from(v6) << 64)),
            };
            let rule = UplinkRule { ue, flows, gate_open, forward, mbr };
            let record = UplinkEntry::default();
            record.begin(Teid(7), &UplinkRule { flows: ALL_FLOWS, ..rule });
            record.set(&rule);
            prop_assert_eq!((record.rule(), record.teid()), (rule, Teid(7)));
        }

        #[test]
        fn downlink_rule_is_read_as_written(
            qfi in proptest::option::of(0..64_u8), rqi: bool, gate_open: bool, action in 0..4, teid: u32,
            v4: Option<u32>, v6: Option<u128>, generation: u8, mbr in rate(),
        ) {
            let v4 = v4.map(|v4| IpAddr::V4(Ipv4Addr::from_bits(v4)));
            let address = v4.or(v6.map(|v6| IpAddr::V6(Ipv6Addr::from_bits(v6))));
            let rule = DownlinkRule {
                session: 5,
                pdr: 6,
                qfi,
                rqi,
                gate_open,
                action: match action {
                    0 => Action::Drop,
                    1 => Action::Forward,
                    n => Action::Buffer { notify: n == 3 },
                },
                tunnel: address.map(|address| Tunnel { teid: Teid(teid), address }),
                mbr,
            };
            let record = DownlinkEntry::default();
            record.begin(generation, &DownlinkRule { qfi: Some(63), tunnel: None, ..rule });
            record.set(&rule);
            prop_assert_eq!(record.rule(5, 6), rule);
            let marked = qfi.map(|qfi| vireo_wire::gtpu::PduSession::Downlink { qfi, rqi });
            prop_assert_eq!(record.tunnel_target(), rule.tunnel.map(|tunnel| TunnelTarget::new(tunnel, marked)));
            prop_assert_eq!((record.flags.load(Relaxed) >> GENERATION_SHIFT) as u8, generation);
        }
    }

    #[test]
    fn watched_count_is_reported_before_its_limit() {
        for (limit, counts) in [(1, 1), (2, 1), (3, 2), (1_000, 2), (5_000_000_000, 3), (u64::MAX, 1)] {
            let watch = watch_for(limit, counts);
            assert!(watch > 0 && 1 << watch <= (limit / counts).max(2), "{limit} {counts} {watch}");
        }
        assert_eq!((watch_for(0, 1), passes_watched_multiple(0, 0, 9_999)), (0, false));
        assert!(
            passes_watched_multiple(10, 1_000, 24)
                && !passes_watched_multiple(10, 1_000, 23)
                && !passes_watched_multiple(10, 1_024, 1_023)
        );
        let record = UplinkEntry::default();
        let ue = SessionAddress::default();
        let rule = UplinkRule { ue, flows: ALL_FLOWS, gate_open: true, forward: true, mbr: Rate::UNLIMITED };
        record.begin(Teid(1), &rule);
        record.set_watch(12);
        record.set(&rule);
        record.set_rule_list(5);
        record.set(&UplinkRule { mbr: Rate::from_kbps(9), ..rule });
        assert_eq!((record.watch(), record.rule(), record.list()), (12, rule, Some(5)), "a change leaves it");
        record.clear_rule_list(Rate::from_kbps(9));
        assert_eq!((record.rule().mbr, record.list()), (Rate::from_kbps(9), None));
        record.begin(Teid(2), &rule);
        assert_eq!((record.watch(), record.overflows()), (0, false));
    }

    #[test]
    fn sequence_is_odd_while_entry_changes() {
        let record = UplinkEntry::default();
        let sequence = || record.sequence.0.load(Relaxed);
        record.end();
        record.end();
        assert_eq!(sequence(), 1);
        record.end_write();
        record.end_write();
        assert_eq!(sequence(), 2);
    }
}
