//! Tests of slices: the kernel steers each packet to the worker of its user, and users migrate
//! under load.

use super::drivers::{Rig, frames, interfaces, refusal};
use super::packets::{Side, frame, packet, tunnelled};
use super::table::{FLOW, UDP, down, g_pdu, host, up};
use super::*;
use crate::{Fanout, FrameIo, SliceWorkers, UserPlaneConfig, WorkerLoad, XdpMode};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant as Wall};

type Change = fn(&mut UserPlaneConfig);

/// Configures two slices, with one worker and with two.
fn sliced(config: &mut UserPlaneConfig) {
    config.slices = [1, 2].map(|workers| SliceWorkers { workers, cores: vec![] }).to_vec();
}

/// Drivers that steer packets to the workers of slices.
const DRIVERS: [(&str, Change); 4] = [
    ("af-packet", |config| {
        sliced(config);
        config.frames = Some(frames(FrameIo::AfPacket(Fanout::Hash)));
    }),
    ("sockets", sliced),
    ("xdp", |config| on_processors(config, XdpMode::Native)),
    ("xdp, generic", |config| on_processors(config, XdpMode::Generic)),
];

/// Configures two slices with one processor each.
fn on_processors(config: &mut UserPlaneConfig, mode: XdpMode) {
    let processors = std::thread::available_parallelism().map_or(1, usize::from).min(2);
    config.slices = (0..processors).map(|core| SliceWorkers { workers: 1, cores: vec![core] }).collect();
    config.workers = 1;
    config.xdp = Some(XdpConfig { interfaces: interfaces(), mode, ..XdpConfig::default() });
}

/// Returns the number of workers.
fn workers(rig: &Rig) -> u8 {
    rig.driver.stats().loads().len() as u8
}

/// Assigns the user of a session to a worker.
fn assign(rig: &Rig, n: u8, worker: u8) {
    let teid = rig.teids[usize::from(n)];
    rig.driver.stats().read(|tables| tables.worker_map().assign(&[teid], [ue(n)].into_iter(), worker));
}

/// Sends a packet of each direction and family for a session's user.
fn run_all(rig: &mut Rig, n: u8) {
    let teid = rig.teids[usize::from(n)];
    let datagrams =
        [up(n, b"four"), packet(host(n), SERVER[1], UDP, 64, b"six")].map(|inner| g_pdu(teid, FLOW, &inner));
    for datagram in &datagrams {
        for from in GNB {
            rig.run("uplink", &Side::N3 { from: SocketAddr::new(from, 2152), datagram }, 0, Done::Sent);
        }
    }
    for packet in [down(n, b"four"), packet(SERVER[1], host(n), UDP, 64, b"six")] {
        rig.run("downlink", &Side::N6 { packet: &packet }, 0, Done::Sent);
    }
}

/// Returns the packets of each direction that each worker has forwarded since `before`.
fn since(rig: &Rig, before: &[WorkerLoad]) -> Vec<[u64; 2]> {
    let now = rig.driver.stats().loads();
    let packets = |load: &WorkerLoad| [load.uplink.packets, load.downlink.packets];
    now.iter().zip(before).map(|(now, before)| [0, 1].map(|n| packets(now)[n] - packets(before)[n])).collect()
}

#[test]
fn table_passes_through_slices() {
    for (_, change) in DRIVERS {
        in_namespace(|| {
            let mut rig = Rig::new(&change);
            let workers = workers(&rig);
            (0..9).for_each(|n| assign(&rig, n, n % workers));
            rig.table();
        });
    }
}

#[test]
fn packets_come_to_the_worker_of_their_user() {
    for (name, change) in DRIVERS {
        in_namespace(|| {
            let mut rig = Rig::new(&change);
            let [mine, other] = [0, 3];
            let workers = workers(&rig);
            for worker in (0..workers).rev() {
                assign(&rig, mine, worker);
                assign(&rig, other, (worker + 1) % workers);
                let before = rig.driver.stats().loads();
                run_all(&mut rig, mine);
                let mut expected = vec![[0; 2]; workers.into()];
                expected[usize::from(worker)] = [4, 2];
                assert_eq!(since(&rig, &before), expected, "{name}: all of them and no other's");
            }
        });
    }
}

/// Packets sent at once, well below the capacity of a ring or a socket.
const WINDOW: usize = 64;
const PACKETS: usize = 20_000;

#[test]
fn user_migration_loses_and_repeats_nothing() {
    for (name, change) in DRIVERS {
        in_namespace(|| {
            let rig = Rig::new(&change);
            let teid = rig.teids[0];
            let datagram = g_pdu(teid, FLOW, &up(0, b"hello"));
            let wires = [
                frame(mac(3, 9), mac(3, 1), &tunnelled(GNB[0], UPF[0], &datagram)),
                frame(mac(6, 7), mac(6, 1), &down(0, b"hello")),
            ];
            let (done, view, started) = (AtomicBool::new(false), rig.driver.stats(), rig.driver.stats().loads());
            let (mut moves, workers) = (0_u64, u64::from(workers(&rig)));
            let (moved, sent) = std::thread::scope(|scope| {
                let mover = scope.spawn(|| {
                    while !done.load(Relaxed) {
                        assign(&rig, 0, (moves % workers) as u8);
                        moves += 1;
                        std::thread::sleep(Duration::from_micros(100));
                    }
                    moves
                });
                let sent = (0..PACKETS / WINDOW).fold(0, |sent, _| {
                    for _ in 0..WINDOW {
                        rig.ran.send(&wires[0]);
                        rig.dn.send(&wires[1]);
                    }
                    let (sent, end) = (sent + WINDOW as u64, Wall::now() + Duration::from_secs(5));
                    let came = || [0, 1].map(|n| since(&rig, &started).iter().map(|load| load[n]).sum::<u64>());
                    while came() != [sent, sent] {
                        assert!(Wall::now() < end, "{name}: {:?} of {sent} have come", came());
                        std::thread::sleep(Duration::from_micros(50));
                    }
                    sent
                });
                done.store(true, Relaxed);
                (mover.join().expect("it ended"), sent)
            });
            let volumes = view.read(|tables| {
                let id = tables
                    .find_downlink(crate::engine::index::AddressKey::V4(ue(0).ipv4.expect("one").to_bits()))
                    .expect("there");
                [tables.uplink_volume(teid), tables.downlink_volume(id)]
            });
            let each = (up(0, b"hello").len() as u64, down(0, b"hello").len() as u64);
            let volume = |octets| Volume { packets: sent, octets: octets * sent };
            assert_eq!(volumes, [volume(each.0), volume(each.1)], "{name}: the records have counted each once");
            let worked = since(&rig, &started);
            assert!(moved > 100 && worked.iter().all(|load| load[0] > 0 && load[1] > 0), "{name}: {moved} {worked:?}");
        });
    }
}

#[test]
fn flood_affects_worker_of_its_user_only() {
    const LOOPED: u64 = 2_000;
    for (name, change) in DRIVERS {
        in_namespace(|| {
            let rig = Rig::new(&change);
            let last = workers(&rig) - 1;
            assign(&rig, 0, 0);
            assign(&rig, 3, last);
            // Separate links, so that no packet is lost before it is distributed.
            let flood = frame(mac(6, 7), mac(6, 1), &down(0, b"flood"));
            let datagram = g_pdu(rig.teids[3], FLOW, &up(3, b"hello"));
            let looped = frame(mac(3, 9), mac(3, 1), &tunnelled(GNB[0], UPF[0], &datagram));
            let (done, started) = (AtomicBool::new(false), rig.driver.stats().loads());
            std::thread::scope(|scope| {
                let flooding = scope.spawn(|| {
                    while !done.load(Relaxed) {
                        rig.dn.send(&flood);
                    }
                });
                let end = Wall::now() + Duration::from_secs(20);
                for sent in (0..LOOPED).step_by(16).map(|sent| sent + 16) {
                    (0..16).for_each(|_| rig.ran.send(&looped));
                    while since(&rig, &started)[usize::from(last)][0] < sent && Wall::now() < end {
                        std::thread::sleep(Duration::from_micros(50));
                    }
                }
                done.store(true, Relaxed);
                flooding.join().expect("it ended");
            });
            let worked = since(&rig, &started);
            if last > 0 {
                assert_eq!(worked[usize::from(last)], [LOOPED, 0], "{name}: all of its own and nothing of the flood");
                assert!(worked[0][0] == 0 && worked[0][1] > 0, "{name}: the flood and nothing else: {worked:?}");
            }
        });
    }
}

#[test]
fn drivers_without_steering_refuse_slices() {
    in_namespace(|| {
        let refused = refusal(|config| {
            config.frames = Some(frames(FrameIo::AfXdp(XdpMode::Native)));
            sliced(config);
        });
        assert!(refused.contains("choose driver ="), "{refused}");
    });
}
