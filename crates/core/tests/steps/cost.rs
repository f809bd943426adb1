//! Measured cost of the parts of a step that every message needs.
//!
//! These are the shallow view, and encoding and decoding a context. Run it by hand: `cargo test
//! --release -p vireo-core --test steps cost -- --ignored --nocapture`.

use crate::lab::{self, Lab};
use std::hint::black_box;
use std::time::Instant;
use vireo_core::amf::context;
use vireo_core::amf::n2;
use vireo_emulator::ue;
use vireo_wire::ngap::NGAP_PDU;

/// Returns the time of one call of `act` in nanoseconds: the minimum of several runs, which other
/// load disturbs least.
fn nanos(act: impl FnMut()) -> f64 {
    nanos_of(20_000, act)
}

fn nanos_of(turns: u32, mut act: impl FnMut()) -> f64 {
    let mut run = || {
        let start = Instant::now();
        (0..turns).for_each(|_| act());
        start.elapsed().as_nanos() as f64 / f64::from(turns)
    };
    (0..15).map(|_| run()).fold(f64::INFINITY, f64::min)
}

#[test]
#[ignore = "a measurement"]
fn views() {
    let mut lab = Lab::new();
    lab.register();
    lab.session(1);
    lab.idle();
    lab.ue_does(|ue, _, out| {
        ue.service_request(ue::Service::Data, out).expect("a request");
    });
    lab.idle();
    let mut measured = Vec::new();
    for pdu in &lab.received {
        let kind = NGAP_PDU::decode_borrowed(pdu).expect("a PDU").kind();
        let what = format!("{kind:?}, {} octets", pdu.len());
        if measured.contains(&what) {
            continue;
        }
        let time = nanos(|| {
            black_box(n2::peek(black_box(pdu))).expect("a view");
        });
        println!("{what}: {time:.0} ns");
        measured.push(what);
    }
    assert!(measured.iter().any(|what| what.starts_with("Initiating_InitialUEMessage")));
}

#[test]
#[ignore = "a measurement"]
fn stored_contexts() {
    for (what, lab) in lab::in_each_state() {
        let ue = lab.context().expect("a context");
        let octets = context::encode(&ue, Vec::new()).expect("it encodes");
        let mut buffer = Vec::with_capacity(4096);
        let encode = nanos(|| {
            let mut out = std::mem::take(&mut buffer);
            out.clear();
            buffer = context::encode(black_box(&ue), out).expect("it encodes");
        });
        let decode = nanos(|| drop(black_box(context::decode(black_box(&octets)))));
        println!("{what}: {} octets, encode {encode:.0} ns, decode {decode:.0} ns", octets.len());
        let mut parts = context::IncrementalEncoder::from_stored(&ue, &octets).expect("parts");
        let kept = nanos(|| {
            buffer.clear();
            let changed = parts.encode(black_box(&ue), &mut buffer);
            assert_eq!(changed, Ok(false));
        });
        let record = context::EncodedContext::new(&octets).expect("a record");
        let (lasting, passing) = (record.perpetual.len(), record.ephemeral.len());
        println!("{what}: perpetual {lasting}, ephemeral {passing} octets; kept decoded, encode {kept:.0} ns");
    }
}

/// Measures the encoding of consecutive contexts of a UE, as in a worker that keeps the context
/// decoded.
#[test]
#[ignore = "a measurement"]
fn ue_life_cost_is_bounded() {
    let mut lab = Lab::new();
    lab.register();
    lab.session(1);
    lab.idle();
    lab.ue_does(|ue, _, out| ue.service_request(ue::Service::Data, out).expect("a request"));
    lab.idle();
    let mut life: Vec<_> = lab.history.iter().map(|(before, _)| before.clone()).collect();
    life.push(lab.context().expect("a context"));
    let mut buffer = Vec::with_capacity(4096);
    let mut octets = 0;
    let life_of = |buffer: &mut Vec<u8>, octets: &mut usize| {
        let mut parts = context::IncrementalEncoder::new(&life[0]).expect("parts");
        *octets = 0;
        for ue in &life[1..] {
            buffer.clear();
            parts.encode(black_box(ue), buffer).expect("it encodes");
            *octets += buffer.len();
        }
    };
    let turns = std::env::var("TURNS").map_or(2_000, |turns| turns.parse().expect("a number"));
    let time = nanos_of(turns, || life_of(&mut buffer, &mut octets));
    let commits = life.len() - 1;
    println!("{commits} commits, {octets} octets, {time:.0} ns: {:.0} ns each", time / commits as f64);
}

#[test]
#[ignore = "a measurement"]
fn steps() {
    let mut lab = Lab::new();
    let mut from = 0;
    let mut measure = |what: &str, lab: &mut Lab| {
        let history = lab.history[from..].to_vec();
        from = lab.history.len();
        let mut sum = 0.0;
        for (before, happened) in &history {
            let copies = nanos_of(2_000, || drop(black_box((before.clone(), happened.event()))));
            let all = nanos_of(2_000, || {
                let mut ue = before.clone();
                black_box(lab.try_step(&mut ue, happened.event()));
            });
            let name = format!("{happened:?}");
            let kind = match happened {
                lab::RecordedEvent::Ngap { pdu, .. } => {
                    NGAP_PDU::decode_borrowed(pdu).map(|pdu| format!("{:?}", pdu.kind()))
                }
                _ => Ok(name.split([' ', '(']).next().unwrap_or_default().to_owned()),
            };
            println!("  {}: {:.0} ns", kind.unwrap_or_default(), all - copies);
            sum += all - copies;
        }
        println!("{what}: {} steps, {sum:.0} ns", history.len());
    };
    lab.register();
    measure("registration", &mut lab);
    lab.session(1);
    measure("session", &mut lab);
    lab.idle();
    measure("release", &mut lab);
    lab.ue_does(|ue, _, out| ue.service_request(ue::Service::Data, out).expect("a request"));
    measure("service request", &mut lab);
}
