//! What the parts of a step that every message pays for cost: the shallow view of a message, and a context's way out of
//! and into its stored form. For people: `cargo test --release -p vireo-core --test cost -- --ignored --nocapture`.

#[allow(dead_code, reason = "a part of what the procedures' tests use")]
mod lab;

use lab::Lab;
use std::hint::black_box;
use std::time::Instant;
use vireo_core::n2;
use vireo_wire::ngap::NGAP_PDU;

/// Nanoseconds of one turn of `act`: the least of some runs, which the machine's other work disturbs least.
fn nanos(mut act: impl FnMut()) -> f64 {
    const TURNS: u32 = 20_000;
    let mut run = || {
        let start = Instant::now();
        (0..TURNS).for_each(|_| act());
        start.elapsed().as_nanos() as f64 / f64::from(TURNS)
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
        ue.service_request(vireo_emulator::ue::Service::Data, out).expect("a request");
    });
    lab.idle();
    let mut seen = Vec::new();
    for pdu in &lab.received {
        let kind = NGAP_PDU::decode_borrowed(pdu).expect("a PDU").kind();
        let what = format!("{kind:?}, {} octets", pdu.len());
        if seen.contains(&what) {
            continue;
        }
        let time = nanos(|| {
            black_box(n2::view(black_box(pdu))).expect("a view");
        });
        println!("{what}: {time:.0} ns");
        seen.push(what);
    }
    assert!(seen.iter().any(|what| what.starts_with("Initiating_InitialUEMessage")));
}
