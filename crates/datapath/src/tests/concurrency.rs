//! Tests of workers that classify packets while the rules change.

use super::packets::with_checksum;
use crate::engine::batch::Batch;
use crate::engine::classifier::Classifier;
use crate::engine::pipeline::{self, HEADROOM, PacketAction, SlowPath};
use crate::sys::BATCH;
use crate::{
    ALL_FLOWS, Action, DownlinkId, DownlinkRule, Event, Limits, Locking, MemoryFrames, NextHop, Pool, Rate, Released,
    SharedTables, Stats, Tables, Tunnel, UplinkRule, Volume, watch_for,
};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use vireo_types::{Instant, SessionAddress, Teid};
use vireo_wire::gtpu;

const ALL: [Locking; 3] = [Locking::Fine, Locking::Coarse, Locking::SharedWriter];
const SERVER: Ipv4Addr = Ipv4Addr::new(198, 51, 100, 7);
const USERS: u32 = 16;

fn ue(n: u32) -> SessionAddress {
    let ipv4 = Some(Ipv4Addr::from_bits(Ipv4Addr::new(10, 45, 0, 2).to_bits() + n));
    SessionAddress { ipv4, ipv6_prefix: None }
}

/// Returns the tunnel of a user after `moves` tunnel changes. TEID and address belong together.
fn tunnel(n: u32, moves: u32) -> Tunnel {
    let address = Ipv4Addr::from_bits(Ipv4Addr::new(192, 0, 2, 0).to_bits() + moves % 200 + 1);
    Tunnel { teid: Teid(n << 24 | (moves & 0xffff) << 8 | (moves % 200 + 1)), address: address.into() }
}

fn rule(n: u32, moves: u32) -> DownlinkRule {
    DownlinkRule {
        session: n.into(),
        pdr: 1,
        qfi: Some(9),
        rqi: false,
        gate_open: true,
        action: Action::Forward,
        tunnel: Some(tunnel(n, moves)),
        mbr: Rate::UNLIMITED,
    }
}

fn add(tables: &mut Tables, n: u32) -> (Teid, DownlinkId) {
    let mbr = Rate::UNLIMITED;
    let uplink = UplinkRule { ue: ue(n), flows: ALL_FLOWS, gate_open: true, forward: true, mbr };
    let teid = tables.add_uplink(None, uplink).expect("room");
    let id = tables.add_downlink(ue(n), n.into()).expect("room");
    tables.set_downlink(id, rule(n, 0), false, &mut Released::default());
    (teid, id)
}

fn tables(locking: Locking) -> (SharedTables, Vec<(Teid, DownlinkId)>) {
    let pool = Pool { ipv4: Some((Ipv4Addr::new(10, 45, 0, 0), 16)), mtu: 1400, ..Pool::default() };
    let limits = Limits { records: 2 * USERS as usize, locking, ..Limits::default() };
    let mut tables = Tables::new(vec![pool], limits);
    let users = (0..USERS).map(|n| add(&mut tables, n)).collect();
    (SharedTables::new(tables), users)
}

fn to(n: u32) -> Vec<u8> {
    let mut packet = vec![0x45, 0, 0, 24, 0, 0, 0, 0, 64, 59, 0, 0];
    packet.extend([SERVER.octets(), ue(n).ipv4.expect("one").octets()].concat());
    packet.extend([1, 2, 3, 4]);
    with_checksum(&mut packet);
    packet
}

/// Records sent datagrams in order.
#[derive(Default)]
struct Wire(Mutex<Vec<(IpAddr, gtpu::MessageType, Teid)>>);

impl Wire {
    fn send(&self, to: SocketAddr, datagram: &[u8]) {
        let packet = gtpu::Packet::parse(datagram).expect("ours");
        self.0.lock().expect("nobody panicked").push((to.ip(), packet.kind, packet.teid));
    }
}

/// Batch of packets from N6 for users. Like a driver, it sends its output at the end of each part.
struct Packets<'a> {
    users: &'a [u32],
    wire: Option<&'a Wire>,
    stats: Stats,
    reported: u64,
}

impl SlowPath for Packets<'_> {
    fn answer(&mut self, _: SocketAddr, _: &[u8]) -> bool {
        panic!("nothing is answered")
    }

    fn event(&mut self, _: Event) -> bool {
        self.reported += 1;
        true
    }
}

impl Batch for Packets<'_> {
    fn count(&self) -> usize {
        self.users.len()
    }

    fn decide(&mut self, by: &impl Classifier, from: usize) -> usize {
        let (users, mut stats, mut out, mut done) = (self.users, self.stats, vec![], self.users.len());
        for (n, user) in users.iter().enumerate().skip(from) {
            let mut buffer = [vec![0; HEADROOM], to(*user)].concat();
            let end = buffer.len();
            match pipeline::downlink(by, &mut buffer, end, Instant(1), &mut stats, self) {
                PacketAction::Send(left) => {
                    stats.downlink.add(left.octets);
                    let packet = gtpu::Packet::parse(&buffer[left.start..left.end]).expect("ours");
                    let expected = Ipv4Addr::from_bits(Ipv4Addr::new(192, 0, 2, 0).to_bits() + (packet.teid.0 & 0xff));
                    assert_eq!(left.target.address(), IpAddr::from(expected), "of one moment");
                    assert_eq!(packet.teid.0 >> 24, *user, "its own");
                    out.push((left.target.socket(), buffer[left.start..left.end].to_vec()));
                }
                PacketAction::Done => {}
                PacketAction::Punt => {
                    done = n;
                    break;
                }
            }
            if by.ends() {
                done = n + 1;
                break;
            }
        }
        self.stats = stats;
        if let Some(wire) = self.wire {
            out.iter().for_each(|(to, datagram)| wire.send(*to, datagram));
        }
        done
    }

    fn notify(&mut self, event: Event) {
        self.event(event);
    }
}

/// Runs workers with random batches while `control` runs. Returns their counters and number of
/// notifications.
fn beside(tables: &SharedTables, workers: u32, wire: Option<&Wire>, control: impl FnOnce()) -> (Stats, u64) {
    let stop = AtomicBool::new(false);
    let begun = AtomicU64::new(0);
    std::thread::scope(|scope| {
        let (stop, begun) = (&stop, &begun);
        let workers: Vec<_> = (0..workers)
            .map(|worker| {
                let reader = tables.reader();
                scope.spawn(move || {
                    let (mut sum, mut reported, mut random) = (Stats::default(), 0, 7 + worker);
                    while !stop.load(Relaxed) {
                        let users: Vec<u32> = std::iter::repeat_with(|| {
                            random = random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                            (random >> 16) % USERS
                        })
                        .take(BATCH)
                        .collect();
                        let mut batch = Packets { users: &users, wire, stats: sum, reported: 0 };
                        reader.decide(&mut batch);
                        sum = batch.stats;
                        reported += batch.reported;
                        begun.fetch_add(1, Relaxed);
                    }
                    (sum, reported)
                })
            })
            .collect();
        while begun.load(Relaxed) == 0 {
            std::thread::yield_now();
        }
        control();
        stop.store(true, Relaxed);
        let mut all = (Stats::default(), 0);
        for worker in workers {
            let (stats, reported) = worker.join().expect("no panic");
            all.0.downlink.packets += stats.downlink.packets;
            all.0.downlink.octets += stats.downlink.octets;
            all.0.drops.iter_mut().zip(stats.drops).for_each(|(sum, drops)| *sum += drops);
            all.1 += reported;
        }
        all
    })
}

#[test]
fn packet_uses_one_rule_and_precedes_end_marker() {
    for locking in ALL {
        let (tables, users) = tables(locking);
        let wire = Wire::default();
        let (stats, _) = beside(&tables, 2, Some(&wire), || {
            for moves in 1..400 {
                for (n, (_, id)) in (0..USERS).zip(&users).filter(|(n, _)| (n + moves) % 5 == 0) {
                    let change = |tables: &mut Tables, released: &mut Released| {
                        tables.set_downlink(*id, rule(n, moves), true, released);
                    };
                    tables.change(change, |released| {
                        released.datagrams.iter().for_each(|(to, datagram)| wire.send(*to, datagram));
                    });
                }
            }
        });
        let sent = wire.0.into_inner().expect("nobody panicked");
        let mut ended = std::collections::HashSet::new();
        let mut forwarded = 0;
        for (_, kind, teid) in &sent {
            match kind {
                gtpu::MessageType::EndMarker => assert!(ended.insert(*teid), "{locking:?}: {teid:?} ends once"),
                _ => {
                    assert!(!ended.contains(teid), "{locking:?}: a packet behind the End Marker of {teid:?}");
                    forwarded += 1;
                }
            }
        }
        assert!(ended.len() > 1_000 && stats.drops.iter().sum::<u64>() == 0, "{locking:?}: {}", ended.len());
        assert_eq!(forwarded, stats.downlink.packets, "{locking:?}");
        let counted: u64 = users.iter().map(|(_, id)| tables.read(|t| t.downlink_volume(*id).packets)).sum();
        assert_eq!(counted, forwarded, "{locking:?}: each is counted once");
    }
}

#[test]
fn final_count_of_users_is_complete() {
    for (locking, workers) in ALL.into_iter().flat_map(|locking| [(locking, 1), (locking, 2)]) {
        let (tables, mut users) = tables(locking);
        tables.change(|tables, _| tables.set_single_worker(workers == 1), |_| ());
        let mut counted = Volume::default();
        let mut sum = |volume: Volume| {
            counted.packets += volume.packets;
            counted.octets += volume.octets;
        };
        let (stats, _) = beside(&tables, workers, None, || {
            for round in 0..3_000 {
                let n = round % USERS;
                let (teid, id) = users[n as usize];
                tables.change(
                    |tables, released| {
                        // Read first: nothing is counted between this read and the end.
                        tables.hold_packets(&[teid], [id]);
                        let before = tables.downlink_volume(id);
                        tables.remove_uplink(teid);
                        assert_eq!(tables.remove_downlink(id, released), before);
                        sum(before);
                    },
                    |_| (),
                );
                users[n as usize] = tables.change(|tables, _| add(tables, n), |_| ());
            }
        });
        users.iter().for_each(|(_, id)| sum(tables.read(|tables| tables.downlink_volume(*id))));
        assert_eq!(counted, stats.downlink, "{locking:?}, {workers} workers");
        // The number depends on the load of the machine.
        assert!(counted.packets > 0, "{counted:?}");
    }
}

#[test]
fn single_worker_counts_are_exact() {
    let (tables, users) = tables(Locking::Fine);
    tables.change(|tables, _| tables.set_single_worker(true), |_| ());
    let mut alone = Stats::default();
    let (stats, _) = beside(&tables, 1, None, || {
        let reader = tables.reader();
        for n in 0..3_000 {
            let mut batch = Packets { users: &[n % USERS, 3], wire: None, stats: alone, reported: 0 };
            reader.decide_alone(&mut batch);
            alone = batch.stats;
        }
    });
    let counted: u64 = users.iter().map(|(_, id)| tables.read(|t| t.downlink_volume(*id).packets)).sum();
    assert_eq!((alone.downlink.packets, counted), (6_000, 6_000 + stats.downlink.packets));
}

#[test]
fn watched_multiple_is_reported_once() {
    for locking in ALL {
        let (tables, users) = tables(locking);
        let watch = watch_for(1 << 10, 1);
        tables.read(|tables| tables.watch(&[], users.iter().map(|(_, id)| *id), watch));
        let octets = || users.iter().map(|(_, id)| tables.read(|tables| tables.downlink_volume(*id).octets));
        let passed = || octets().map(|octets| octets >> watch).sum::<u64>();
        let (_, reported) = beside(&tables, 2, None, || {
            // On a busy machine the workers get processor time late.
            let end = std::time::Instant::now() + std::time::Duration::from_secs(10);
            while passed() <= 100 && std::time::Instant::now() < end {
                std::thread::sleep(std::time::Duration::from_millis(10));
            }
        });
        assert_eq!(reported, passed(), "{locking:?}");
        assert!(reported > 100, "{reported}");
    }
}

#[test]
fn workers_of_frames_share_tables() {
    let (tables, users) = tables(Locking::Fine);
    let hop = NextHop { to: tunnel(0, 0).address, port: 3, macs: [2; 12] };
    let upf = Ipv4Addr::new(192, 0, 2, 250).into();
    let mut workers = [(); 2].map(|()| MemoryFrames::sharing(tables.clone(), &[upf], &[hop]));
    for (n, worker) in (0..).zip(&mut workers) {
        let frame = [&[7; 12][..], &[8, 0], &to(n)].concat();
        worker.next(frame.len()).expect("room").copy_from_slice(&frame);
        assert_eq!(worker.process(Instant(1)), 1);
        assert_eq!(worker.output(0).map(|(port, _)| port), Some(3));
        assert_eq!(tables.read(|tables| tables.downlink_volume(users[n as usize].1).packets), 1);
    }
}

#[test]
fn lean_entry_verdicts_equal_tables() {
    let (shared, users) = tables(Locking::Fine);
    let (teid, id) = users[3];
    let up = |source: u32, flow: Option<u8>| {
        let mut packet = to(7);
        packet[12..16].copy_from_slice(&ue(source).ipv4.expect("one").octets());
        with_checksum(&mut packet);
        let container = flow.map(|qfi| gtpu::PduSession::Uplink { qfi });
        let mut buffer = [vec![0; HEADROOM], packet].concat();
        let end = buffer.len();
        let start = gtpu::prepend_g_pdu(&mut buffer, HEADROOM, end, teid, container).expect("room");
        buffer[start..].to_vec()
    };
    let (pending, gnb) = (std::cell::Cell::new(None), tunnel(3, 1).address);
    for (lean, open) in [(false, true), (true, true), (true, false)] {
        shared.change(
            |tables, released| {
                tables.set_lean(&[teid], std::iter::once(id), lean);
                tables.set_downlink(id, DownlinkRule { gate_open: open, ..rule(3, 1) }, false, released);
            },
            |_| (),
        );
        for datagram in [up(3, None), up(3, Some(9)), up(4, Some(9))] {
            let fast = shared.read(|tables| {
                let arrays = tables.shared_arrays();
                arrays.classify_uplink(gnb, &datagram, Instant(1), &pending).map(|verdict| format!("{verdict:?}"))
            });
            let locked =
                shared.read(|tables| format!("{:?}", tables.classify_uplink(gnb, &datagram, Instant(1), &mut |_| ())));
            assert_eq!(fast, Some(locked), "lean: {lean}");
        }
        let fast = shared.read(|tables| tables.shared_arrays().classify_downlink(&to(3), Instant(1), &pending));
        let locked = shared.read(|tables| tables.classify_downlink(&to(3), Instant(1), &mut |_| ()));
        assert_eq!(fast, Some(locked), "lean: {lean}, open: {open}");
    }
    let counted = shared.read(|tables| (tables.uplink_volume(teid).packets, tables.downlink_volume(id).packets));
    assert_eq!(counted, (4, 2), "while it was not lean");
    assert_eq!(pending.get(), None);
}
