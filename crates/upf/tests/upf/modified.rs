//! Rules that change while packets pass: no packet is lost.

use crate::charging::{Receiving, takes_all};
use crate::life::by;
use crate::world::*;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};
use vireo_types::Teid;
use vireo_wire::gtpu::{self, PduSession};
use vireo_wire::pfcp::*;

const USERS: u8 = 40;
/// Time with packets of all users, once in a round.
const SPAN: Duration = Duration::from_secs(2);
const ROUND: Duration = Duration::from_millis(5);

/// A session of the test.
struct User {
    seid: u64,
    teid: Teid,
    ue: Ipv4Addr,
}

/// Creates a session. Every second one has a URR, and every third one a filter beside.
fn user(w: &mut World, n: u8) -> User {
    let ue = Ipv4Addr::new(10, 45, 0, 2 + n);
    let prefix = Ipv6Addr::from_bits(PREFIX.to_bits() + (u128::from(n) << 64));
    let mut request = establishment(ue, prefix);
    if n % 2 == 1 {
        let urr = CreateUrr { urr_id: UrrId(1), measurement_method: MeasurementMethod::VOLUM, ..CreateUrr::default() };
        request.create_urrs.push(urr);
        request.create_pdrs.iter_mut().for_each(|pdr| pdr.urr_ids.push(UrrId(1)));
    }
    if n % 3 == 2 {
        let mut filtered = request.create_pdrs[1].clone();
        filtered.pdr_id = PdrId(3);
        filtered.precedence = Precedence(10);
        filtered.pdi.sdf_filters = vec![SdfFilter::new("permit out 17 from any to assigned")];
        request.create_pdrs.push(filtered);
    }
    let response: SessionEstablishmentResponse = w.request(|out, sequence| request.emit(out, 0, sequence));
    assert_eq!(response.cause, Cause::REQUEST_ACCEPTED, "{response:?}");
    let seid = response.up_f_seid.expect("accepted").seid;
    let teid = response.created_pdrs[0].f_teid.and_then(|end| end.teid()).expect("chosen");
    w.downlink(seid, true);
    assert_eq!(w.tunnel_down()[40], 134, "the UE is told its prefix");
    User { seid, teid, ue }
}

/// Returns another maximum bit rate for a session, always far above its traffic.
fn other_rate(turn: u64) -> SessionModificationRequest {
    let kbps = 500_000 + turn % 7 * 1_000;
    let mbr = Some(Mbr { uplink_kbps: kbps, downlink_kbps: kbps + 1 });
    let mut request = SessionModificationRequest::default();
    request.update_qers.push(UpdateQer { qer_id: QerId(1), mbr, ..UpdateQer::default() });
    request
}

fn modified(driver: &str) {
    let mut w = World::new();
    let base = if driver == "sockets" { config() } else { by(driver) };
    let upf = w.start(base).expect("started");
    w.associate();
    let users: Vec<User> = (0..USERS).map(|n| user(&mut w, n)).collect();
    takes_all(&w.gnb);
    let [n6, _] = w.counters("dn", "eth");
    let (sender, receiver) = (w.gnb.try_clone().expect("a copy"), w.gnb.try_clone().expect("a copy"));
    let (is_over, has_sent) = (AtomicBool::new(false), AtomicBool::new(false));
    let (sent, answered) = (AtomicU64::new(0), AtomicU64::new(0));
    let mut turns = 0;
    std::thread::scope(|scope| {
        let _receiving = Receiving(&is_over);
        scope.spawn(|| {
            let mut buffer = [0; 2048];
            while !is_over.load(Relaxed) {
                let Ok(length) = receiver.recv(&mut buffer) else { continue };
                let packet = gtpu::Packet::parse(&buffer[..length]).expect("sound").payload;
                let is_reply = packet.len() == 84 && (packet[9], packet[20]) == (1, 0);
                answered.fetch_add(u64::from(is_reply), Relaxed);
            }
        });
        scope.spawn(|| {
            let began = Instant::now();
            for round in 0.. {
                if began.elapsed() >= SPAN {
                    break;
                }
                for User { teid, ue, .. } in &users {
                    let mut datagram =
                        gtpu::g_pdu_header(*teid, PduSession::Uplink { qfi: QFI }, 84).expect("short").to_vec();
                    datagram.extend(echo(*ue, HOST, round));
                    sender.send_to(&datagram, (UPF, gtpu::PORT)).expect("sent");
                }
                sent.fetch_add(users.len() as u64, Relaxed);
                std::thread::sleep(ROUND);
            }
            has_sent.store(true, Relaxed);
        });
        while !has_sent.load(Relaxed) {
            let seid = users[turns as usize % users.len()].seid;
            let request = other_rate(turns);
            let response: SessionModificationResponse = w.request(|out, sequence| request.emit(out, seid, sequence));
            assert_eq!(response.cause, Cause::REQUEST_ACCEPTED);
            turns += 1;
        }
        let end = Instant::now() + Duration::from_secs(5);
        while answered.load(Relaxed) < sent.load(Relaxed) && Instant::now() < end {
            std::thread::sleep(Duration::from_millis(10));
        }
    });
    let [after, _] = w.counters("dn", "eth");
    let (sent, answered) = (sent.load(Relaxed), answered.load(Relaxed));
    assert_eq!(answered, sent, "{turns} changes, {} packets on N6: {:?}", after.0 - n6.0, upf.stats());
    assert!(after.0 - n6.0 >= sent && turns > 100 && sent > 1_000, "{turns} {sent}");
}

#[test]
fn modified_sessions_lose_no_packet_by_sockets() {
    modified("sockets");
}

#[test]
fn modified_sessions_lose_no_packet_by_xdp() {
    modified("xdp");
}
