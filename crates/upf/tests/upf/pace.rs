//! Measurement of CPU time per packet, outside the suite.
//!
//! Run with `cargo test --release -p vireo-upf --test upf -- --ignored --nocapture pace`.

use crate::world::*;
use std::net::UdpSocket;
use std::time::{Duration, Instant};
use vireo_wire::gtpu;

const FOR: Duration = Duration::from_secs(3);
/// Size of an inner packet in bytes.
const INNER: usize = 128;

/// Returns the CPU time of the packet thread, in clock ticks of 10 ms.
fn ticks() -> (u64, u64) {
    for task in std::fs::read_dir("/proc/self/task").expect("proc").flatten() {
        let stat = std::fs::read_to_string(task.path().join("stat")).unwrap_or_default();
        if stat.contains("(upf-0)") {
            let words: Vec<&str> = stat.rsplit(')').next().unwrap_or("").split_whitespace().collect();
            return (words[11].parse().expect("user"), words[12].parse().expect("system"));
        }
    }
    panic!("no packet thread")
}

fn print_pace(what: &str, packets: u64, before: (u64, u64)) {
    let (user, system) = ticks();
    let (user, system) = ((user - before.0) * 10_000_000, (system - before.1) * 10_000_000);
    let packets = packets.max(1);
    println!(
        "{what}: {:.0} packets/s offered and carried, {} ns user + {} ns system a packet, {:.0} packets/s on a core",
        packets as f64 / FOR.as_secs_f64(),
        user / packets,
        system / packets,
        1e9 * packets as f64 / (user + system).max(1) as f64
    );
}

#[test]
#[ignore = "a measurement"]
fn pace() {
    let mut w = World::new();
    let upf = w.start(config()).expect("started");
    let (_, teid) = w.active_session();
    // to a socket that is never read: a port without a socket would be answered by ICMP
    let sink = w.inside("dn", || UdpSocket::bind((HOST, 9))).expect("bound");
    let packet = udp(UE, HOST, 9, &[0; INNER - 28]);
    let mut datagram = gtpu::g_pdu_header(teid, gtpu::PduSession::Uplink { qfi: QFI }, INNER).expect("short").to_vec();
    datagram.extend(packet);

    let (start, before) = (Instant::now(), ticks());
    while start.elapsed() < FOR {
        w.gnb.send_to(&datagram, (UPF, gtpu::PORT)).expect("sent");
    }
    let carried = upf.stats().packets.uplink.packets;
    print_pace("uplink", carried, before);
    assert!(carried > 10_000);

    let (start, before) = (Instant::now(), ticks());
    while start.elapsed() < FOR {
        sink.send_to(&[0; INNER - 28], (UE, 9)).expect("sent");
    }
    let carried = upf.stats().packets.downlink.packets;
    print_pace("downlink", carried, before);
    assert!(carried > 10_000);
}
