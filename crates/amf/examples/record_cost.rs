//! What a record takes and costs in each format, whole and by its changed parts: `cargo run
//! --release -p vireo-amf --example record_cost [TIMES]`. The contexts are those of a registered
//! UE with one session, before and after a service request.

use serde::Serialize;
use serde::de::DeserializeOwned;
use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::Instant;
use vireo_core::amf::context::{Connection, KeySet, NasSecurity, RanContext, Registration, UeContext, encode};
use vireo_core::smf::{N4State, PfcpSession, RanState, SessionHandover, SessionTerms, SmContext, Stage, Tunnel, Usage};
use vireo_core::subscription::{Ambr, DnnSubscription, SliceSubscription, Subscription};
use vireo_store::records::{Codec, Format, RecordBase, StoredRecord, UpdateMode};
use vireo_types::{
    AmfUeNgapId, AssocId, Bucket, Dialect, Dnn, Ltmsi, NrCgi, PduSessionType, Plmn, RanUeNgapId, Seid, SessionAddress,
    SessionIndex, Snssai, Tac, Tai, Teid, Tmsi,
};

const SLICE: Snssai = Snssai { sst: 1, sd: None };

fn dnn() -> Dnn {
    "internet".parse().expect("a DNN")
}

/// An AMF's UE, connected or idle.
fn amf(connected: bool) -> UeContext {
    let ltmsi = Ltmsi::new(Bucket::new(77), 1234);
    let tai = Tai { plmn: Plmn::from_nas([0x99, 0xf9, 0x07]), tac: Tac(1) };
    let mut ue = UeContext::new(ltmsi);
    ue.sequence = 17 + u64::from(connected);
    ue.identity.supi = Some("999700000000001".parse().expect("a SUPI"));
    ue.identity.tmsi = Some(Tmsi(0xc0de_1234));
    ue.registration = Registration::Registered;
    ue.security = Some(NasSecurity {
        key_set: KeySet::new(Dialect::Nr, 1),
        kamf: std::array::from_fn(|n| n as u8 * 7),
        knas_int: std::array::from_fn(|n| n as u8 * 11),
        knas_enc: std::array::from_fn(|n| n as u8 * 13),
        integrity: 2,
        ciphering: 2,
        uplink: 5 + u32::from(connected),
        downlink: 4 + u32::from(connected),
        next_hop: None,
        derives_keys: false,
        agreed_at: vireo_types::Instant(0),
    });
    let session = DnnSubscription {
        dnn: dnn(),
        types: vec![PduSessionType::Ipv4],
        ambr: Ambr::default(),
        five_qi: 9,
        arp_priority: 8,
        ..DnnSubscription::default()
    };
    let slice = SliceSubscription { snssai: SLICE, default: true, dnns: vec![session] };
    ue.subscription = Some(Arc::new(Subscription { slices: vec![slice], ..Subscription::default() }));
    ue.allowed.push(SLICE);
    ue.radio_capability = (0..120).collect();
    ue.reachability.area.push(tai);
    ue.connections = 3 + u16::from(connected);
    ue.connection = connected.then(|| Connection {
        assoc: AssocId(7),
        ran_id: RanUeNgapId(4711),
        amf_id: AmfUeNgapId::new(ltmsi, 4),
        tai,
        cell: NrCgi { plmn: tai.plmn, cell: 0x10 },
        ran: RanContext::SetUp,
    });
    ue
}

/// An SMF's session, with its user plane or without.
fn smf(up: bool) -> SmContext {
    let tunnel = |last| Tunnel { address: Ipv4Addr::new(10, 0, 0, last).into(), teid: Teid(0x0100_0007) };
    SmContext {
        psi: 1,
        dialect: Dialect::Nr,
        index: SessionIndex::default(),
        terms: SessionTerms {
            snssai: SLICE,
            dnn: dnn(),
            ambr: Ambr::default(),
            five_qi: 9,
            arp_priority: 8,
            up_security: None,
            framed_routes: Vec::new(),
            change: None,
        },
        kind: PduSessionType::Ipv4,
        address: SessionAddress { ipv4: Some(Ipv4Addr::new(10, 45, 0, 9)), ipv6_prefix: None },
        always_on: false,
        integrity_rate: 0xffff,
        pfcp: PfcpSession {
            upf: "10.0.0.3:8805".parse().expect("an address"),
            cp_seid: Seid(0x0004_d4d2_0000_0001),
            up_seid: 99,
            over_nas: false,
        },
        uplink: Some(tunnel(3)),
        downlink: up.then(|| tunnel(2)),
        handover: SessionHandover::default(),
        end_marker: false,
        stage: Stage::Established,
        ran: if up { RanState::Up } else { RanState::Idle },
        n4: N4State::Synced,
        usage: Usage::default(),
        relocation: None,
        deadline: None,
        since: vireo_types::Instant(5),
    }
}

/// Nanoseconds for each of so many times.
fn timed(times: u32, mut what: impl FnMut()) -> f64 {
    let begun = Instant::now();
    (0..times).for_each(|_| what());
    begun.elapsed().as_secs_f64() * 1e9 / f64::from(times)
}

fn measure<T: Serialize + DeserializeOwned + PartialEq + std::fmt::Debug>(
    name: &str,
    before: &T,
    after: &T,
    times: u32,
) {
    for (format, called) in [(Format::Binary, "binary"), (Format::Json, "json"), (Format::Protobuf, "protobuf")] {
        let codec = Codec { format, update_mode: UpdateMode::Update };
        let found = |value: &T| {
            let parts = format.split(value).expect("it has parts");
            let parts = parts.changed().iter().map(|part| (part.name.to_owned(), part.octets.to_vec())).collect();
            StoredRecord { version: 1, parts, ..StoredRecord::default() }
        };
        let load = |found: StoredRecord| codec.decode_stored::<T>(found).expect("it decodes");
        let change = |base: &RecordBase| codec.encode(base, after).expect("it has an encoding");
        assert_eq!(&load(found(after)).0, after, "it comes back");
        let (there, base) = (found(before), load(found(before)).1);
        let value = change(&base);
        let (changed, all) = (codec.parts(&value), found(after).parts);
        let whole = format.encode(after).expect("it has an encoding");
        let octets: usize = changed.iter().map(|part| part.name.len() + part.octets.len()).sum();
        let octets_of_all: usize = all.iter().map(|(name, octets)| name.len() + octets.len()).sum();
        let encode = timed(times, || drop(std::hint::black_box(format.encode(after))));
        let decode = timed(times, || drop(std::hint::black_box(format.decode::<T>(&whole))));
        let changing = timed(times, || drop(std::hint::black_box(change(&base))));
        let loading = timed(times, || drop(std::hint::black_box(load(there.clone()))));
        println!(
            "{name:4} {called:9} whole {:5} octets, encode {encode:6.0} ns, decode {decode:6.0} ns; parts {octets_of_all:5} octets \
             with names, {} of {} changed with {octets:4} octets, load {loading:6.0} ns, encode changed ones {changing:6.0} ns",
            whole.len(),
            changed.len(),
            all.len(),
        );
    }
}

fn main() {
    let times = std::env::args().nth(1).map_or(20_000, |times| times.parse().expect("a number"));
    let own = encode(&amf(true), Vec::new()).expect("it has an encoding").len();
    println!("the layout of shared memory has {own} octets for the AMF's UE");
    measure("AMF", &amf(false), &amf(true), times);
    measure("SMF", &smf(false), &smf(true), times);
}
