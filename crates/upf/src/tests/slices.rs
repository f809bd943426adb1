//! Slices: selection of slice and worker, and migration of users.

use super::*;
use crate::machine::user_migration::move_users;
use crate::server::rebalance::Rebalance;
use crate::server::slice_queues::SliceQueues;
use crate::{DataSlice, LeanSlice};
use vireo_datapath::SliceWorkers;
use vireo_ops::api::{MoveError, MoveRequest, MoveResult, UserSelector};
use vireo_types::{SessionAddress, Snssai};

const PHONES: Snssai = Snssai { sst: 1, sd: None };
const METERS: Snssai = Snssai { sst: 3, sd: Some(7) };

/// Phones with one worker, meters with two, and cars, selected by data network, with one.
fn sliced() -> Bench {
    let mut b = bench();
    let slice = |name: &str, snssai, dnns: &[&str], workers| DataSlice {
        name: name.to_owned(),
        snssai,
        dnns: dnns.iter().map(|dnn| dnn.parse().expect("a name")).collect(),
        workers: SliceWorkers { workers, cores: vec![] },
    };
    let slices = vec![
        slice("phones", Some(PHONES), &[], 1),
        slice("meters", Some(METERS), &[], 2),
        slice("cars", None, &["cars"], 1),
    ];
    b.upf = Upf::new(Settings { slices, max_sessions: 64, ..b.upf.settings.clone() });
    b.plane.tables.enable_steering();
    b.associate();
    b
}

fn ue(host: u8) -> Ipv4Addr {
    Ipv4Addr::new(10, 45, 0, host)
}

/// Creates a session, and returns its SEID and TEID.
fn session_of(b: &mut Bench, host: u8, snssai: Option<Snssai>, network: Option<&str>) -> (u64, Teid) {
    let mut request = request();
    request.create_pdrs[1] = downlink_pdr(2, Some(ue(host)), None);
    request.create_pdrs[1].pdi.network_instance = network.map(NetworkInstance::from);
    request.snssai = snssai.map(SliceId);
    let response = b.establish(&request);
    assert_eq!(response.cause, Cause::REQUEST_ACCEPTED, "{response:?}");
    established(&response)
}

/// Returns the workers of a session's packets, by tunnel and by address.
fn workers(b: &Bench, teid: Teid, host: u8) -> (u8, u8) {
    let owners = b.plane.tables.worker_map();
    let address = SessionAddress { ipv4: Some(ue(host)), ipv6_prefix: None };
    (owners.worker_by_tunnel(teid), owners.worker_by_address(address))
}

fn moved(b: &mut Bench, users: UserSelector, to: &str, worker: Option<u8>) -> Result<MoveResult, MoveError> {
    let Bench { upf, plane, .. } = b;
    move_users::<Memory>(&MoveRequest { users, to: to.to_owned(), worker }, |act| act(upf, plane))
}

fn users(b: &Bench) -> Vec<u64> {
    let status = b.upf.slices.status(&[]);
    status.slices.iter().flat_map(|slice| slice.workers.iter().map(|worker| worker.users)).collect()
}

#[test]
fn slice_is_chosen_by_snssai_then_network() {
    let mut b = sliced();
    let unknown = Snssai { sst: 9, sd: None };
    for (host, snssai, network, worker) in [
        (2, Some(PHONES), None, 0),
        (3, Some(METERS), None, 1),
        // within a slice the worker with the fewest users
        (4, Some(METERS), Some("cars"), 2),
        (5, None, Some("cars"), 3),
        (6, Some(unknown), Some("CARS"), 3),
        (7, Some(unknown), Some("internet"), 0),
        (8, None, None, 0),
        (9, Some(METERS), None, 1),
    ] {
        let (_, teid) = session_of(&mut b, host, snssai, network);
        assert_eq!(workers(&b, teid, host), (worker, worker), "{snssai:?} {network:?}");
    }
    assert_eq!(users(&b), [3, 2, 1, 2]);
    let status = b.upf.slices.status(&[]);
    let of = |n: usize| (status.slices[n].name.as_str(), status.slices[n].snssai.as_deref(), status.slices[n].users);
    assert_eq!([of(0), of(1), of(2)], [("phones", Some("1"), 3), ("meters", Some("3-000007"), 3), ("cars", None, 2)]);
}

#[test]
fn users_move_by_number_address_range_and_slice() {
    let mut b = sliced();
    let sessions: Vec<_> = (2..10).map(|host| (host, session_of(&mut b, host, Some(PHONES), None))).collect();
    assert_eq!(users(&b), [8, 0, 0, 0]);
    let (seid, teid) = sessions[0].1;
    let moved_one = Ok(MoveResult { users: 1, moved: 1 });
    assert_eq!(moved(&mut b, UserSelector::Seid(seid), "cars", None), moved_one);
    assert_eq!(workers(&b, teid, 2), (3, 3));
    assert_eq!(
        moved(&mut b, UserSelector::Seid(seid), "cars", None),
        Ok(MoveResult { users: 1, moved: 0 }),
        "it is there already"
    );
    let address = |host| IpAddr::from(ue(host));
    assert_eq!(moved(&mut b, UserSelector::Addresses(address(3), address(3)), "meters", Some(1)), moved_one);
    assert_eq!(workers(&b, sessions[1].1.1, 3), (2, 2));
    // the existing users of the range, divided between the two workers of the slice
    let range = UserSelector::Addresses(address(4), address(200));
    assert_eq!(moved(&mut b, range, "meters", None), Ok(MoveResult { users: 6, moved: 6 }));
    assert_eq!(users(&b), [0, 4, 3, 1]);
    let some = |count| UserSelector::Slice { name: "meters".into(), count };
    assert_eq!(moved(&mut b, some(Some(2)), "phones", None), Ok(MoveResult { users: 2, moved: 2 }));
    assert_eq!(moved(&mut b, some(None), "phones", None), Ok(MoveResult { users: 5, moved: 5 }));
    assert_eq!((users(&b), b.upf.slices.status(&[]).moved), (vec![7, 0, 0, 1], 15));
    for (host, (_, teid)) in &sessions[1..] {
        assert_eq!(workers(&b, *teid, *host), (0, 0));
    }
    // counters and assignments of users are unchanged
    b.uplink(teid, &ipv4(ue(2), SERVER, 100));
    assert_eq!(b.plane.n6.len(), 1);
    assert_eq!(b.plane.tables.uplink_volume(teid).packets, 1);
    b.delete(seid);
    assert_eq!(users(&b), [7, 0, 0, 0]);
}

#[test]
fn slice_moves_in_portions_between_others() {
    let mut b = sliced();
    let sessions = 600;
    b.upf = Upf::new(Settings { max_sessions: 1_000, ..b.upf.settings.clone() });
    let pool = Pool { ipv4: Some((Ipv4Addr::new(10, 45, 0, 0), 16)), mtu: 1400, ..Pool::default() };
    b.plane = plane(pool, Limits { records: 2_000, ..Limits::default() });
    b.plane.tables.enable_steering();
    b.associate();
    let mut seids = vec![];
    for n in 0..sessions {
        let mut request = request();
        request.create_pdrs[1] =
            downlink_pdr(2, Some(Ipv4Addr::new(10, 45, 1 + (n / 250) as u8, (n % 250) as u8)), None);
        request.snssai = Some(SliceId(PHONES));
        seids.push(established(&b.establish(&request)).0);
    }
    let mut pieces = 0;
    let Bench { upf, plane, .. } = &mut b;
    let order = MoveRequest {
        users: UserSelector::Slice { name: "phones".into(), count: None },
        to: "meters".into(),
        worker: None,
    };
    let all = move_users::<Memory>(&order, |act| {
        pieces += 1;
        let before = upf.slices.status(&[]).moved;
        act(upf, plane);
        assert!(upf.slices.status(&[]).moved - before <= 256, "nobody waits for more");
    });
    assert_eq!(all, Ok(MoveResult { users: sessions, moved: sessions }));
    assert!(pieces >= 4, "{pieces}");
    assert_eq!(users(&b), [0, 300, 300, 0]);
    let range = (IpAddr::from(Ipv4Addr::new(10, 45, 1, 0)), IpAddr::from(Ipv4Addr::new(10, 45, 1, 249)));
    let again = moved(&mut b, UserSelector::Addresses(range.0, range.1), "cars", None);
    assert_eq!(again, Ok(MoveResult { users: 250, moved: 250 }));
    assert_eq!(users(&b)[3], 250);
    for seid in seids {
        b.delete(seid);
    }
    assert_eq!(users(&b), [0, 0, 0, 0]);
}

#[test]
fn refused_move_names_the_reason() {
    let mut b = sliced();
    let (seid, _) = session_of(&mut b, 2, Some(PHONES), None);
    let mut says =
        |who: UserSelector, to: &str, worker| moved(&mut b, who, to, worker).map_err(|error| error.to_string());
    let at = |host: u8| IpAddr::from(ue(host));
    assert!(says(UserSelector::Seid(seid + 1), "cars", None).is_err_and(|error| error.contains("no session here")));
    assert!(
        says(UserSelector::Addresses(at(3), at(9)), "cars", None).is_err_and(|error| error.contains("no session here"))
    );
    let unknown = says(UserSelector::Seid(seid), "boats", None);
    assert_eq!(unknown, Err("there is no slice boats: this user plane has phones, meters, cars".into()));
    assert!(says(UserSelector::Seid(seid), "meters", Some(2)).is_err_and(|error| error.contains("2 workers")));
    assert!(says(UserSelector::Seid(seid), "meters", Some(255)).is_err_and(|error| error.contains("2 workers")));
    assert!(
        says(UserSelector::Addresses(at(9), at(3)), "cars", None).is_err_and(|error| error.contains("a range goes"))
    );
    let families = UserSelector::Addresses(at(9), IpAddr::from(Ipv6Addr::LOCALHOST));
    assert!(says(families, "cars", None).is_err_and(|error| error.contains("a range goes")));
    let all = UserSelector::Addresses(Ipv4Addr::UNSPECIFIED.into(), Ipv4Addr::BROADCAST.into());
    assert!(says(all, "cars", None).is_err_and(|error| error.contains("65,536")));
    let empty = UserSelector::Slice { name: "cars".into(), count: None };
    assert_eq!(says(empty, "phones", None), Ok(MoveResult::default()), "a slice may have no users");
    let mut b = bench();
    let (seid, _) = b.session();
    let undivided = moved(&mut b, UserSelector::Seid(seid), "phones", None);
    assert!(undivided.is_err_and(|error| error.to_string().contains("data-workers")));
}

#[test]
fn new_tunnels_of_a_session_are_its_workers_too() {
    let mut b = sliced();
    let (seid, old) = session_of(&mut b, 2, Some(PHONES), None);
    moved(&mut b, UserSelector::Seid(seid), "cars", None).expect("moved");
    let mut modification = SessionModificationRequest::default();
    modification.remove_pdrs.push(RemovePdr { pdr_id: PdrId(1) });
    modification.create_pdrs.push(uplink_pdr(3, CHOOSE));
    let response = b.modify(seid, &modification);
    let teid = response.created_pdrs[0].f_teid.and_then(|end| end.teid()).expect("chosen");
    assert!(teid != old);
    assert_eq!(workers(&b, teid, 2), (3, 3));
    // a restarted control plane removes all sessions
    b.associate_as(2_000);
    assert_eq!(users(&b), [0, 0, 0, 0]);
}

#[test]
fn iot_session_is_lean_until_usage_is_needed() {
    let mut b = bench();
    let meters =
        LeanSlice { snssai: Some(METERS), dnns: vec!["meters".parse().expect("a name")], is_only_slice: false };
    b.upf = Upf::new(Settings { lean: vec![meters], max_sessions: 64, ..b.upf.settings.clone() });
    b.associate();
    // by how much a packet increases the counter of the session's tunnel
    let counted = |b: &mut Bench, teid: Teid, host: u8| {
        let before = b.plane.tables.uplink_volume(teid).packets;
        let left = b.plane.stats.uplink.packets;
        b.uplink(teid, &ipv4(ue(host), SERVER, 40));
        assert_eq!(b.plane.stats.uplink.packets, left + 1, "it is forwarded, and counted with all others");
        b.plane.tables.uplink_volume(teid).packets - before
    };
    let (seid, simple) = session_of(&mut b, 2, Some(METERS), None);
    let (_, other) = session_of(&mut b, 3, Some(PHONES), Some("meters"));
    let (_, named) = session_of(&mut b, 4, None, Some("meters"));
    assert_eq!((counted(&mut b, simple, 2), counted(&mut b, other, 3), counted(&mut b, named, 4)), (0, 1, 0));
    // a session whose control plane requests usage is counted from then on
    let timer = |seconds| SessionModificationRequest {
        user_plane_inactivity_timer: Some(UserPlaneInactivityTimer(seconds)),
        ..SessionModificationRequest::default()
    };
    assert!(b.upf.sessions.is_small(seid));
    assert_eq!(b.modify(seid, &timer(60)).cause, Cause::REQUEST_ACCEPTED);
    assert_eq!(counted(&mut b, simple, 2), 1);
    assert!(!b.upf.sessions.is_small(seid));
    assert_eq!(b.modify(seid, &timer(0)).cause, Cause::REQUEST_ACCEPTED);
    assert_eq!(counted(&mut b, simple, 2), 0);
}

#[test]
fn flooded_slice_loses_only_own_requests() {
    let mut b = sliced();
    let from = Bench::smf();
    let (seid, _) = session_of(&mut b, 2, Some(METERS), None);
    let establishment = |snssai, sequence| {
        let mut request = request();
        request.snssai = Some(SliceId(snssai));
        let mut octets = vec![];
        request.emit(&mut octets, 0, sequence).expect("short");
        octets
    };
    let mut turns = SliceQueues::default();
    let mut taken = 0;
    while turns.push(&b.upf, from, &establishment(PHONES, taken + 1)) {
        taken += 1;
    }
    assert!((1_000..10_000).contains(&taken), "{taken}");
    let mut deletion = vec![];
    (SessionDeletionRequest {}).emit(&mut deletion, seid, 70_001).expect("short");
    let mut heartbeat = vec![];
    HeartbeatRequest { recovery_time_stamp: RecoveryTimeStamp(1) }.emit(&mut heartbeat, 70_003).expect("short");
    for datagram in [&deletion, &establishment(METERS, 70_002), &heartbeat] {
        assert!(turns.push(&b.upf, from, datagram), "others have room");
    }
    let mut order = vec![];
    while let Some((_, datagram)) = turns.pop() {
        order.push(Message::new(&datagram).expect("sound").sequence());
    }
    assert!(turns.is_empty() && order.len() == taken as usize + 3);
    assert_eq!(order[0], 70_003, "what is of no session goes first");
    let place = |sequence| order.iter().position(|other| *other == sequence).expect("it is there");
    assert!(place(70_001) <= 2 && place(70_002) <= 4, "{:?}", &order[..6]);
    let phones: Vec<u32> = order.iter().copied().filter(|sequence| *sequence < 70_000).collect();
    assert!(phones.is_sorted(), "each in its order");
}

#[test]
fn rebalancing_moves_users_to_idle_worker() {
    let mut b = sliced();
    for host in 2..22 {
        session_of(&mut b, host, Some(METERS), None);
    }
    // all users at one of the two workers
    moved(&mut b, UserSelector::Slice { name: "meters".into(), count: None }, "meters", Some(0)).expect("moved");
    assert_eq!(users(&b), [0, 20, 0, 0]);
    let mut rebalance = Rebalance::default();
    let mut loads = vec![vireo_datapath::WorkerLoad::default(); 4];
    for (second, expected) in [(1, 20), (2, 20), (3, 10)] {
        loads[0].downlink.packets += 500_000;
        loads[1].uplink.packets += 60_000;
        let Bench { upf, plane, .. } = &mut b;
        rebalance.check::<Memory>(&loads, 1.0, |act| act(upf, plane));
        assert_eq!(users(&b), [0, expected, 20 - expected, 0], "after {second} s");
    }
    let status = b.upf.slices.status(&loads);
    assert_eq!((status.moved, status.rebalanced), (20, 10));
    for _ in 0..5 {
        loads[1].uplink.packets += 30_000;
        loads[2].uplink.packets += 30_000;
        let Bench { upf, plane, .. } = &mut b;
        rebalance.check::<Memory>(&loads, 1.0, |act| act(upf, plane));
    }
    assert_eq!(users(&b), [0, 10, 10, 0], "even is left alone");
}
