//! Combination of slices, IoT sessions and the hot table.
//!
//! Each user's packets pass, and are counted as its slice requires, whichever worker and table the
//! entry is in.

use crate::life::by;
use crate::world::*;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::time::Duration;
use vireo_datapath::SliceWorkers;
use vireo_ops::api::{MoveRequest, UserSelector};
use vireo_types::{Snssai, Teid};
use vireo_upf::{DataSlice, LeanSlice, UpfConfig};
use vireo_wire::pfcp::*;

const NAMES: [&str; 2] = ["phones", "meters"];
const USERS: u8 = 6;
const ROUNDS: u16 = 30;
/// Longer than a user without packets stays in the hot table.
const COLD: Duration = Duration::from_millis(60);

fn together(driver: &str) {
    let mut w = World::new();
    let slice = |n: usize| DataSlice {
        name: NAMES[n].to_owned(),
        snssai: Some(Snssai { sst: n as u8 + 1, sd: None }),
        dnns: vec![],
        workers: SliceWorkers { workers: 1, cores: vec![] },
    };
    let meters = LeanSlice { snssai: Some(Snssai { sst: 2, sd: None }), dnns: vec![], is_only_slice: false };
    let base = if driver == "sockets" { config() } else { by(driver) };
    // fewer than there are users, so that users are promoted and demoted
    let upf = w.start(UpfConfig { slices: vec![slice(0), slice(1)], lean: vec![meters], hot_users: 2, ..base });
    let upf = upf.expect("started");
    w.associate();
    let users: Vec<(Ipv4Addr, Teid)> = (0..USERS)
        .map(|n| {
            let (ue, prefix) =
                (Ipv4Addr::new(10, 45, 0, 2 + n), Ipv6Addr::from_bits(PREFIX.to_bits() + (u128::from(n) << 64)));
            let mut request = establishment(ue, prefix);
            request.snssai = Some(SliceId(Snssai { sst: 1 + n % 2, sd: None }));
            let response: SessionEstablishmentResponse = w.request(|out, sequence| request.emit(out, 0, sequence));
            assert_eq!(response.cause, Cause::REQUEST_ACCEPTED, "{response:?}");
            w.downlink(response.up_f_seid.expect("accepted").seid, true);
            assert_eq!(w.tunnel_down()[40], 134, "the UE is told its prefix");
            (ue, response.created_pdrs[0].f_teid.and_then(|f_teid| f_teid.teid()).expect("chosen"))
        })
        .collect();
    for round in 0..ROUNDS {
        for (n, (ue, teid)) in users.iter().enumerate() {
            // some users have several packets in a row, which promotes them, others single ones
            for again in 0..=u16::from(n < 3) * 3 {
                w.tunnel_up(*teid, &echo(*ue, HOST, round << 2 | again));
                let reply = w.tunnel_down();
                assert_eq!((&reply[16..20], reply[20]), (&ue.octets()[..], 0), "user {n}");
            }
            if (usize::from(round) + n) % 5 == 0 {
                let to = NAMES[(n + usize::from(round / 5)) % 2].to_owned();
                let moved = upf.move_users(&MoveRequest {
                    users: UserSelector::Addresses((*ue).into(), (*ue).into()),
                    to,
                    worker: None,
                });
                assert_eq!(moved.expect("a user").users, 1);
            }
        }
        if round % 10 == 9 {
            std::thread::sleep(COLD);
        }
    }
    let packets = |n: u64| u64::from(ROUNDS) * if n < 3 { 4 } else { 1 };
    let all: u64 = (0..u64::from(USERS)).map(packets).sum();
    let phones: u64 = (0..u64::from(USERS)).filter(|n| n % 2 == 0).map(packets).sum();
    let stats = counted(&upf, |stats| stats.packets.uplink.packets == all);
    assert_eq!((stats.packets.uplink.packets, stats.packets.downlink.packets), (all, all));
    // counters of entries in either table; IoT sessions are not counted
    let counted: u64 = upf.slices(true).slices.iter().filter_map(|slice| slice.counted).map(|one| one.packets).sum();
    assert_eq!(counted, 2 * phones);
    assert!(upf.slices(false).moved >= u64::from(ROUNDS));
    upf.stop();
}

#[test]
fn slices_iot_and_hot_table_combine_by_sockets() {
    together("sockets");
}

#[test]
fn slices_iot_and_hot_table_combine_by_rings() {
    together("af-packet");
}
