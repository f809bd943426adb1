//! Test that processing a packet allocates nothing.
//!
//! The global allocator counts every allocation of this crate's unit tests.

use crate::engine::datagram::Datagram;
use crate::engine::pipeline::{self, HEADROOM, PacketAction, SlowPath};
use crate::engine::read_section::ReadSection;
use crate::{ALL_FLOWS, Action, DownlinkRule, Event, Limits, Pool, Rate, Released, Stats, Tables, Tunnel, UplinkRule};
use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use vireo_types::{Instant, SessionAddress, Teid};
use vireo_wire::gtpu::{self, PduSession};

struct Counting;

thread_local! {
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
}

// SAFETY: the system's allocator does the work; counting touches only a plain cell of this thread.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let _ = ALLOCATIONS.try_with(|n| n.set(n.get() + 1));
        // SAFETY: the caller upholds the contract, which is that of the system allocator.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        // SAFETY: the caller upholds the contract, which is that of the system allocator.
        unsafe { System.dealloc(memory, layout) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

fn allocations(work: impl FnOnce()) -> u64 {
    let before = ALLOCATIONS.get();
    work();
    ALLOCATIONS.get() - before
}

struct NullSlowPath;

impl SlowPath for NullSlowPath {
    fn answer(&mut self, _: SocketAddr, _: &[u8]) -> bool {
        true
    }

    fn event(&mut self, _: Event) -> bool {
        true
    }
}

#[test]
fn no_packet_allocates() {
    let gnb = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 9));
    let from = SocketAddr::new(gnb, gtpu::PORT);
    let pool = Pool { ipv4: Some((Ipv4Addr::new(10, 45, 0, 0), 16)), mtu: 1400, ..Pool::default() };
    let mut tables = Tables::new(vec![pool], Limits { records: 4, ..Limits::default() });
    let ue = SessionAddress { ipv4: Some(Ipv4Addr::new(10, 45, 0, 2)), ipv6_prefix: None };
    let mbr = Rate::from_kbps(1 << 39);
    let rule = UplinkRule { ue, flows: ALL_FLOWS, gate_open: true, forward: true, mbr };
    let teid = tables.add_uplink(None, rule).expect("room");
    let id = tables.add_downlink(ue, 1).expect("room");
    let tunnel = Some(Tunnel { teid: Teid(9), address: gnb });
    let rule = DownlinkRule {
        session: 1,
        pdr: 1,
        qfi: Some(9),
        rqi: false,
        gate_open: true,
        action: Action::Forward,
        tunnel,
        mbr,
    };
    tables.set_downlink(id, rule, false, &mut Released::default());

    let mut up = gtpu::g_pdu_header(teid, PduSession::Uplink { qfi: 9 }, 20).expect("short").to_vec();
    up.extend([0x45, 0, 0, 20, 0, 0, 0, 0, 64, 59, 0x46, 0x46, 10, 45, 0, 2, 198, 51, 100, 7]);
    let mut down = vec![0; HEADROOM];
    down.extend([0x45, 0, 0, 20, 0, 0, 0, 0, 64, 59, 0x46, 0x46, 198, 51, 100, 7, 10, 45, 0, 2]);
    tables.settle();
    let (mut stats, mut crossed) = (Stats::default(), 0);
    // The slow path does not allocate either, except for buffering.
    let unknown = gtpu::g_pdu_header(Teid(0xffff_ffff), PduSession::Uplink { qfi: 9 }, 0).expect("short");
    let count = allocations(|| {
        for n in 0..1000 {
            let now = Instant(1_000_000 + n);
            let end = down.len();
            let packet = pipeline::uplink(
                &tables,
                Datagram { from, local: gnb, octets: &up },
                now,
                &mut stats,
                &mut NullSlowPath,
            );
            let out = pipeline::downlink(&tables, &mut down, end, now, &mut stats, &mut NullSlowPath);
            crossed += usize::from(matches!(packet, PacketAction::Send(_)))
                + usize::from(matches!(out, PacketAction::Send(_)));
            let inside = ReadSection::without_writers(tables.arrays());
            let packet = pipeline::uplink(
                &inside,
                Datagram { from, local: gnb, octets: &up },
                now,
                &mut stats,
                &mut NullSlowPath,
            );
            let out = pipeline::downlink(&inside, &mut down, end, now, &mut stats, &mut NullSlowPath);
            crossed += usize::from(matches!(packet, PacketAction::Send(_)))
                + usize::from(matches!(out, PacketAction::Send(_)));
            pipeline::uplink(
                &tables,
                Datagram { from, local: gnb, octets: &unknown },
                now,
                &mut stats,
                &mut NullSlowPath,
            );
        }
    });
    assert_eq!((count, crossed, stats.answers), (0, 4000, 1000));
    assert!(allocations(|| drop(vec![1])) > 0, "the counter counts");
}
