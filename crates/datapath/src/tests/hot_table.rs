//! Tests of users that move between the tables: compared with users that do not, and with
//! concurrent workers.

use super::packets::with_checksum;
use crate::engine::batch::Batch;
use crate::engine::classifier::Classifier;
use crate::engine::datagram::Datagram;
use crate::engine::index::AddressKey;
use crate::engine::pipeline::{self, HEADROOM, PacketAction, SlowPath};
use crate::engine::shared_tables::Reader;
use crate::{
    ALL_FLOWS, Action, DownlinkId, DownlinkRule, Event, Limits, Locking, Pool, Rate, Released, SharedTables, Stats,
    Tables, Tunnel, UplinkRule, Volume, watch_for,
};
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::Relaxed};
use vireo_types::{Instant, SessionAddress, Teid};
use vireo_wire::gtpu::{self, PduSession};

const SERVER: Ipv4Addr = Ipv4Addr::new(198, 51, 100, 7);
const SERVER_V6: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0xffff, 0, 0, 0, 0, 7);
const GNB: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 9);
const UPF: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 1);
const USERS: u32 = 24;

/// IPv4 only, both families, or IPv6 only.
fn ue(n: u32) -> SessionAddress {
    let ipv4 = Ipv4Addr::from_bits(Ipv4Addr::new(10, 45, 0, 2).to_bits() + n);
    let prefix = Ipv6Addr::new(0x2001, 0xdb8, 0x45, n as u16, 0, 0, 0, 0);
    SessionAddress { ipv4: (n % 3 != 2).then_some(ipv4), ipv6_prefix: (!n.is_multiple_of(3)).then_some(prefix) }
}

fn tunnel(n: u32, moves: u32) -> Tunnel {
    Tunnel { teid: Teid(n << 24 | (moves & 0xffff)), address: GNB.into() }
}

/// Every other user has a rate that allows a burst of a few packets.
fn rate(n: u32) -> Rate {
    if n.is_multiple_of(2) { Rate::from_kbps(40) } else { Rate::UNLIMITED }
}

fn downlink_rule(n: u32, moves: u32, action: Action) -> DownlinkRule {
    let tunnel = (action == Action::Forward).then(|| tunnel(n, moves));
    let session = n.into();
    DownlinkRule { session, pdr: 1, qfi: Some(9), rqi: false, gate_open: true, action, tunnel, mbr: rate(n) }
}

/// Returns a packet between a user and the server, with one of the user's addresses.
fn packet(n: u32, v6: bool, up: bool) -> Vec<u8> {
    let SessionAddress { ipv4, ipv6_prefix } = ue(n);
    let order = |ue: Vec<u8>, server: Vec<u8>| if up { [ue, server].concat() } else { [server, ue].concat() };
    match (ipv4, ipv6_prefix) {
        (Some(v4), prefix) if !v6 || prefix.is_none() => {
            let mut packet = vec![0x45, 0, 0, 60, 0, 0, 0, 0, 64, 59, 0, 0];
            packet.extend(order(v4.octets().into(), SERVER.octets().into()));
            packet.resize(60, 0);
            with_checksum(&mut packet);
            packet
        }
        (_, prefix) => {
            let mut packet = vec![0x60, 0, 0, 0, 0, 20, 59, 64];
            let own = Ipv6Addr::from_bits(prefix.expect("one or the other").to_bits() | 5);
            packet.extend(order(own.octets().into(), SERVER_V6.octets().into()));
            packet.resize(60, 0);
            packet
        }
    }
}

/// Tables with all users.
struct Bench {
    tables: SharedTables,
    users: Vec<(Teid, DownlinkId)>,
}

impl Bench {
    fn new(hot_users: usize) -> Self {
        let pool = Pool {
            ipv4: Some((Ipv4Addr::new(10, 45, 0, 0), 16)),
            ipv6: Some((Ipv6Addr::new(0x2001, 0xdb8, 0x45, 0, 0, 0, 0, 0), 48)),
            mtu: 1400,
            ..Pool::default()
        };
        let locking = Locking::Fine;
        let limits = Limits { records: 2 * USERS as usize, locking, hot_users, ..Limits::default() };
        let mut tables = Tables::new(vec![pool], limits);
        let users = (0..USERS).map(|n| add(&mut tables, n)).collect();
        Bench { tables: SharedTables::new(tables), users }
    }

    fn volumes(&self, n: u32) -> [Volume; 2] {
        let (teid, id) = self.users[n as usize];
        self.tables.read(|tables| [tables.uplink_volume(teid), tables.downlink_volume(id)])
    }

    fn end(&self, n: u32) -> [Volume; 2] {
        let (teid, id) = self.users[n as usize];
        self.tables.change(
            |tables, released| {
                tables.hold_packets(&[teid], [id]);
                [tables.remove_uplink(teid), tables.remove_downlink(id, released)]
            },
            |_| (),
        )
    }

    fn hot(&self) -> usize {
        self.tables.read(Tables::hot)
    }

    fn maintain(&self, count: usize) {
        (0..count).for_each(|_| self.tables.maintain_hot_table());
    }
}

fn add(tables: &mut Tables, n: u32) -> (Teid, DownlinkId) {
    let uplink = UplinkRule { ue: ue(n), flows: ALL_FLOWS, gate_open: true, forward: true, mbr: rate(n) };
    let teid = tables.add_uplink(None, uplink).expect("room");
    let id = tables.add_downlink(ue(n), n.into()).expect("room");
    tables.set_downlink(id, downlink_rule(n, 0, Action::Forward), false, &mut Released::default());
    (teid, id)
}

/// One packet of a user: with its TEID, or to its address.
#[derive(Clone, Copy)]
struct Sent {
    user: u32,
    teid: Teid,
    v6: bool,
    up: bool,
}

/// Packets and their results.
#[derive(Default)]
struct Packets {
    sent: Vec<Sent>,
    now: Instant,
    stats: Stats,
    /// User and tunnel number of each sent packet; 0 for uplink packets.
    forwarded: Vec<(u32, u32)>,
    events: Vec<Event>,
    /// Number of packets classified without the lock.
    unlocked: u64,
}

impl SlowPath for Packets {
    fn answer(&mut self, _: SocketAddr, _: &[u8]) -> bool {
        true
    }

    fn event(&mut self, event: Event) -> bool {
        self.events.push(event);
        true
    }
}

impl Packets {
    /// Classifies one packet. Returns `None` if it is punted to the tables.
    fn one(&mut self, by: &impl Classifier, Sent { user, teid, v6, up }: Sent) -> Option<()> {
        let mut stats = self.stats;
        let packet = packet(user, v6, up);
        if up {
            let header = gtpu::g_pdu_header(teid, PduSession::Uplink { qfi: 9 }, packet.len()).expect("short");
            let datagram = [&header[..], &packet].concat();
            let from = SocketAddr::new(GNB.into(), gtpu::PORT);
            match pipeline::uplink(
                by,
                Datagram { from, local: UPF.into(), octets: &datagram },
                self.now,
                &mut stats,
                self,
            ) {
                PacketAction::Send(left) => {
                    assert_eq!(left, packet);
                    stats.uplink.add(left.len());
                    self.forwarded.push((user, 0));
                }
                PacketAction::Done => {}
                PacketAction::Punt => return None,
            }
        } else {
            let mut buffer = [vec![0; HEADROOM], packet].concat();
            let end = buffer.len();
            match pipeline::downlink(by, &mut buffer, end, self.now, &mut stats, self) {
                PacketAction::Send(out) => {
                    stats.downlink.add(out.octets);
                    let left = gtpu::Packet::parse(&buffer[out.start..out.end]).expect("ours");
                    assert_eq!(left.teid.0 >> 24, user, "into its own tunnel");
                    self.forwarded.push((user, left.teid.0));
                }
                PacketAction::Done => {}
                PacketAction::Punt => return None,
            }
        }
        self.stats = stats;
        self.unlocked += u64::from(by.tables().is_none());
        Some(())
    }
}

impl Batch for Packets {
    fn count(&self) -> usize {
        self.sent.len()
    }

    fn decide(&mut self, by: &impl Classifier, from: usize) -> usize {
        for n in from..self.sent.len() {
            let sent = self.sent[n];
            if self.one(by, sent).is_none() {
                return n;
            }
            if by.ends() {
                return n + 1;
            }
        }
        self.sent.len()
    }

    fn notify(&mut self, event: Event) {
        self.events.push(event);
    }
}

fn send(reader: &Reader, sent: Vec<Sent>, now: Instant) -> Packets {
    let mut packets = Packets { sent, now, ..Packets::default() };
    reader.decide(&mut packets);
    packets
}

#[test]
fn promotion_and_demotion_keep_counts() {
    let bench = Bench::new(USERS as usize);
    let reader = bench.tables.reader();
    let of = |user: u32, v6, up| Sent { user, teid: bench.users[user as usize].0, v6, up };
    // A user with IPv4 only, one with both families by either address, and one with IPv6 only.
    let each = |user: u32| vec![of(user, false, true), of(user, false, false), of(user, true, false)];
    for (n, user) in (1..).zip([3, 1, 5]) {
        let first = send(&reader, each(user), Instant(1));
        assert_eq!((first.forwarded.len(), bench.hot()), (3, n - 1), "the cold level decides on the first");
        bench.maintain(1);
        assert_eq!(bench.hot(), n);
        let next = send(&reader, each(user), Instant(1));
        assert_eq!((next.forwarded.len(), next.unlocked), (3, 3));
        assert_eq!(bench.volumes(user).map(|volume| volume.packets), [2, 4]);
    }
    // A change applies to the entry in its current table.
    let (teid, id) = bench.users[3];
    let rule = downlink_rule(3, 77, Action::Forward);
    bench.tables.change(|tables, released| tables.set_downlink(id, rule, false, released), |_| ());
    bench.tables.read(|tables| {
        tables.watch(&[teid], [id].into_iter(), watch_for(512, 1));
        assert_eq!(tables.downlink_rule(id), Some(rule));
    });
    let moved = send(&reader, vec![of(3, false, false)], Instant(1));
    assert_eq!((moved.forwarded, moved.unlocked), (vec![(3, tunnel(3, 77).teid.0)], 1));
    let told: usize = (0..9).map(|_| send(&reader, vec![of(3, false, false)], Instant(1)).events.len()).sum();
    assert_eq!(told, 1, "60 * 14 octets pass the mark once");
    // An active user stays, idle users are demoted.
    for _ in 0..2_200 {
        send(&reader, vec![of(1, false, true), of(1, true, false)], Instant(1));
        bench.maintain(1);
    }
    assert_eq!(bench.hot(), 1);
    assert_eq!(bench.volumes(3).map(|volume| volume.packets), [2, 14]);
    assert_eq!(bench.tables.read(|tables| tables.downlink_rule(id)), Some(rule));
    assert_eq!(bench.end(1).map(|volume| volume.packets), [2 + 2_200, 4 + 2_200]);
    assert_eq!(bench.hot(), 0);
}

/// Returns the operations for both tables.
fn steps(seed: u32) -> impl Iterator<Item = (u32, u32)> {
    let mut random = seed;
    std::iter::repeat_with(move || {
        random = random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (random >> 24, (random >> 8) & 0xffff)
    })
}

#[test]
fn moved_users_get_same_verdicts_and_counts() {
    let (mut there, mut here) = (Bench::new(8), Bench::new(0));
    let (mut moved, mut promoted) = (0, 0);
    let mut now = 1_000_000;
    for (step, (what, number)) in (0..).zip(steps(11).take(60_000)) {
        now += 500;
        // A few users have most of the packets, and other users after a while.
        let user = (if number.is_multiple_of(8) { number >> 4 } else { (number >> 4) % 5 + step / 6_000 }) % USERS;
        let n = user as usize;
        match what {
            0..=1 => {
                for bench in [&mut there, &mut here] {
                    bench.end(user);
                    bench.users[n] = bench.tables.change(|tables, _| add(tables, user), |_| ());
                }
            }
            2..=9 => {
                let action = if what < 4 { Action::Buffer { notify: true } } else { Action::Forward };
                let rule = downlink_rule(user, number, action);
                let change = |bench: &Bench| {
                    let id = bench.users[n].1;
                    let set = |tables: &mut Tables, released: &mut Released| {
                        tables.set_downlink(id, rule, true, released);
                    };
                    bench.tables.change(set, |_| ());
                };
                change(&there);
                change(&here);
            }
            10..=40 => {
                let before = there.hot();
                there.maintain(if what == 10 { 150 } else { 1 });
                moved += usize::from(there.hot() < before);
                promoted += usize::from(there.hot() > before);
            }
            _ => {
                let (v6, up) = (number & 1 == 1, number & 2 == 2);
                let [a, b] = [&there, &here].map(|bench| {
                    let sent = vec![Sent { user, teid: bench.users[n].0, v6, up }; 1 + (what as usize & 3)];
                    send(&bench.tables.reader(), sent, Instant(now))
                });
                assert_eq!((&a.forwarded, &a.events, a.stats), (&b.forwarded, &b.events, b.stats), "step {step}");
            }
        }
    }
    (0..USERS).for_each(|user| assert_eq!(there.volumes(user), here.volumes(user)));
    assert!(moved > 20 && promoted > 40, "{moved} {promoted}");
}

/// Runs workers that send to users, which become idle repeatedly, while `control` moves them.
fn beside(bench: &Bench, workers: u32, control: impl FnOnce()) -> [Volume; 2] {
    let (stop, begun) = (AtomicBool::new(false), AtomicU32::new(0));
    std::thread::scope(|scope| {
        let (stop, begun) = (&stop, &begun);
        let threads: Vec<_> = (0..workers)
            .map(|worker| {
                let reader = bench.tables.reader();
                // Odd users have no rate.
                let users: Vec<(u32, Teid)> =
                    (0..USERS / 2).map(|n| (2 * n + 1, bench.users[2 * n as usize + 1].0)).collect();
                scope.spawn(move || {
                    let mut sum = [Volume::default(); 2];
                    for (round, (_, number)) in (0..).zip(steps(worker + 1)) {
                        if stop.load(Relaxed) {
                            break;
                        }
                        let sent = (0..16).map(|n| {
                            let (user, teid) = users[((round / 256 + (number >> n) % 3) % (USERS / 2)) as usize];
                            Sent { user, teid, v6: n & 1 == 1, up: n & 2 == 2 }
                        });
                        let packets = send(&reader, sent.collect(), Instant(1));
                        assert_eq!(packets.forwarded.len(), 16);
                        for (sum, volume) in sum.iter_mut().zip([packets.stats.uplink, packets.stats.downlink]) {
                            sum.packets += volume.packets;
                            sum.octets += volume.octets;
                        }
                        begun.fetch_add(1, Relaxed);
                    }
                    sum
                })
            })
            .collect();
        while begun.load(Relaxed) == 0 {
            std::thread::yield_now();
        }
        control();
        stop.store(true, Relaxed);
        let all = threads.into_iter().map(|thread| thread.join().expect("no panic"));
        all.fold([Volume::default(); 2], |mut sum, more| {
            for (sum, more) in sum.iter_mut().zip(more) {
                sum.packets += more.packets;
                sum.octets += more.octets;
            }
            sum
        })
    })
}

#[test]
fn moves_beside_workers_lose_no_count() {
    for workers in [1, 2] {
        let bench = Bench::new(8);
        // A non-atomic count writes back its earlier read: a moved entry would lose packets.
        bench.tables.change(|tables, _| tables.set_single_worker(workers == 1), |_| ());
        let mut moves = 0;
        let forwarded = beside(&bench, workers, || {
            let began = std::time::Instant::now();
            while began.elapsed().as_millis() < 400 || moves < 20 {
                bench.maintain(1);
                moves += bench.tables.demote_all();
                std::thread::yield_now();
            }
        });
        let mut counted = [Volume::default(); 2];
        for volumes in (0..USERS).map(|user| bench.volumes(user)) {
            for (sum, volume) in counted.iter_mut().zip(volumes) {
                sum.packets += volume.packets;
                sum.octets += volume.octets;
            }
        }
        assert_eq!(counted, forwarded, "{workers} workers");
    }
}

/// A batch in progress while its user is moved. It records its observations and counts.
struct Long<'a> {
    packets: Packets,
    begun: &'a AtomicBool,
    moved: &'a AtomicBool,
}

impl Batch for Long<'_> {
    fn count(&self) -> usize {
        2
    }

    fn decide(&mut self, by: &impl Classifier, from: usize) -> usize {
        if by.tables().is_none() {
            let first = self.packets.sent[0];
            assert!(self.packets.one(by, first).is_some(), "it is hot");
            self.begun.store(true, Relaxed);
            // On a busy machine the mover gets processor time late.
            let key = AddressKey::V4(ue(first.user).ipv4.expect("it has one").to_bits());
            let rests =
                || by.arrays().look_up(key).is_some_and(|found| found.record.begin_read(Locking::Fine).is_some());
            let end = std::time::Instant::now() + std::time::Duration::from_secs(10);
            while rests() && std::time::Instant::now() < end {
                std::thread::yield_now();
            }
            std::thread::sleep(std::time::Duration::from_millis(20));
            assert!(!self.moved.load(Relaxed), "its record stays until the batch has ended");
            let second = self.packets.sent[1];
            assert!(self.packets.one(by, second).is_none(), "nobody goes by a record that is about to move");
            return 1;
        }
        self.packets.decide(by, from)
    }

    fn notify(&mut self, _: Event) {}
}

#[test]
fn entry_moves_after_batches_end() {
    let bench = Bench::new(USERS as usize);
    let reader = bench.tables.reader();
    let sent = vec![Sent { user: 1, teid: bench.users[1].0, v6: false, up: false }; 2];
    let (begun, moved) = (AtomicBool::new(false), AtomicBool::new(false));
    for moving in [SharedTables::demote_all, |tables: &SharedTables| {
        tables.maintain_hot_table();
        0
    }] {
        // In the second case the user is cold and about to be promoted.
        send(&reader, sent.clone(), Instant(1));
        if !moved.load(Relaxed) {
            bench.maintain(1);
        }
        begun.store(false, Relaxed);
        moved.store(false, Relaxed);
        std::thread::scope(|scope| {
            let owner = scope.spawn(|| {
                while !begun.load(Relaxed) {
                    std::thread::yield_now();
                }
                moving(&bench.tables);
                moved.store(true, Relaxed);
            });
            let packets = Packets { sent: sent.clone(), now: Instant(1), ..Packets::default() };
            let mut long = Long { packets, begun: &begun, moved: &moved };
            reader.decide(&mut long);
            owner.join().expect("no panic");
            assert_eq!((long.packets.forwarded.len(), long.packets.unlocked), (2, 1));
        });
    }
    assert_eq!(bench.volumes(1)[1].packets, 8);
    assert_eq!(bench.hot(), 1, "it was promoted last");
}

impl SharedTables {
    /// Demotes all users. Returns their number.
    fn demote_all(&self) -> usize {
        self.change(|tables, _| tables.demote_all(), |_| ())
    }
}
