//! Tests of the order in which waiting inputs are taken.

use super::*;
use crate::host::{HostBuilder, HostConfig};
use crate::worker::tests::config;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use std::sync::Arc;
use vireo_cluster::CommandSender;
use vireo_core::config::SliceConfig;
use vireo_core::placement::message::Envelope;
use vireo_ops::clock::clock;
use vireo_ops::config::{OverloadConfig, PoolsConfig, SliceRuntime, StateConfig, WorkerModel};
use vireo_ops::metrics::Metrics;
use vireo_ops::supervisor::Program;
use vireo_store::region::{Region, RegionConfig};
use vireo_subscribers::{Store, Udm, UdmConfig, key_source};
use vireo_types::{Bucket, Instant, Seid, Snssai};

fn queue(queue: usize, ue: Option<Slot>) -> InputClass {
    InputClass::Queue { queue, ue }
}

#[test]
fn full_queue_delays_others_by_one_turn() {
    let mut waiting = InputQueues::default();
    // Objectives of slice 1: 160 ms, but for handovers 10 ms.
    let mut slice = [160_000; NF_KINDS];
    slice[NfKind::Handover.index()] = 10_000;
    waiting.set_objectives(&[slice]);
    let [flooded, other] = [NfKind::Registration, NfKind::Session].map(|kind| queue_of(0, kind));
    (0..60_000).for_each(|n| waiting.push(queue(flooded, None), n));
    (100_000..100_003).for_each(|n| waiting.push(queue(other, None), n));
    assert_eq!(waiting.len(), 60_003);
    let first: Vec<u32> = std::iter::from_fn(|| waiting.pop()).take(6).collect();
    assert_eq!(first, [0, 100_000, 1, 100_001, 2, 100_002]);
}

/// The paper's example: objectives of 5 and 10 ms give shares of 2/3 and 1/3.
#[test]
fn turns_follow_priorities() {
    let mut waiting = InputQueues::default();
    let strict = [5_000; NF_KINDS];
    waiting.set_objectives(&[strict, strict, strict.map(|objective| 2 * objective)]);
    for _ in 0..10_000 {
        for slice in [1, 2] {
            waiting.push(queue(queue_of(slice, NfKind::ServiceRequest), None), slice);
        }
    }
    let first: Vec<usize> = std::iter::from_fn(|| waiting.pop()).take(6_000).collect();
    assert_eq!(first.iter().filter(|slice| **slice == 1).count(), 4_000);
    // The rest is taken, whatever the shares.
    assert_eq!(std::iter::from_fn(|| waiting.pop()).count(), 14_000);
}

/// Whatever the classes of its inputs: a UE may get another number, of another slice, meanwhile.
#[test]
fn inputs_of_ue_and_barriers_keep_their_order() {
    let region = Region::create(RegionConfig { rings: 1, ..RegionConfig::new(8, 3, 32 << 20) }).unwrap();
    let ues: Vec<Slot> = (0..8_u64).map(|n| region.slot_at(n).unwrap()).collect();
    let mut random = StdRng::seed_from_u64(7);
    let (mut waiting, mut taken) = (InputQueues::default(), Vec::new());
    // Each input: its number, and its UE; a barrier has none.
    let mut number = 0;
    while taken.len() < 50_000 {
        if waiting.is_open() && random.random_bool(0.55) {
            number += 1;
            let ue = random.random_range(0..8);
            match random.random_range(0..200) {
                0 => waiting.push(InputClass::Barrier, (number, None)),
                n => waiting.push(queue(n % 5, Some(ues[ue])), (number, Some(ue))),
            }
        } else {
            taken.extend(waiting.pop());
        }
    }
    let (mut last, mut barrier) = ([0; 8], 0);
    for (number, ue) in taken {
        assert!(number > barrier, "an input of before the barrier comes after it");
        match ue {
            Some(ue) => {
                assert!(number > last[ue], "UE {ue}: {number} after {}", last[ue]);
                last[ue] = number;
            }
            None => {
                assert!(last.iter().all(|last| *last < number), "an input has overtaken a barrier");
                barrier = number;
            }
        }
    }
    assert!(barrier > 0, "there were barriers");
    std::iter::from_fn(|| waiting.pop()).for_each(drop);
    assert!(waiting.is_empty() && waiting.ues.is_empty(), "nothing of a UE is left");
}

/// Returns a host that runs steps inline and has two slices.
fn host() -> Host {
    let mut core = config();
    let meters = SliceConfig { name: "meters".into(), snssai: Snssai { sst: 3, sd: None }, ..core.slices[0].clone() };
    core.slices.push(meters);
    let slices = core.slices.iter().map(|slice| SliceRuntime::new(slice.name.clone(), slice.snssai)).collect();
    let (ues, packets) = (16, 1024);
    let config = HostConfig {
        core,
        slices,
        pools: PoolsConfig { worker_model: WorkerModel::Inline, ..PoolsConfig::default() },
        state: StateConfig { ues, packets, bytes: StateConfig::bytes_for(ues, packets), ..StateConfig::default() },
        overload: OverloadConfig::default(),
        program: Program::this(["worker"]),
        allow: Vec::new(),
    };
    let store = Store::open(":memory:", key_source(":memory:", None)).unwrap();
    let udm = Udm::start(store, UdmConfig::default(), clock(), |_, _| ()).unwrap();
    let (egress, _) = CommandSender::without_balancer();
    Host::start(HostBuilder::new(&config).unwrap(), config, udm, Arc::new(Metrics::new()), egress).unwrap()
}

/// Returns a UE of a slice.
fn ue_of(host: &mut Host, slice: usize) -> Ltmsi {
    let of = |ltmsi: &Ltmsi| host.ues.ids.slice_of(*ltmsi) == slice;
    let ltmsi = (0..Bucket::COUNT).map(|n| Ltmsi::new(Bucket::new(n), 1)).find(of).expect("a bucket of the slice");
    host.ues.own.insert(ltmsi).expect("a slot");
    ltmsi
}

fn response(ltmsi: Ltmsi) -> Input {
    let event = PeerEvent::PfcpTimeout { seid: Seid::new(ltmsi, 1, 1) };
    Input::Peer { envelope: Envelope::new(event), at: Instant::default() }
}

/// In one pass, the host forwards a batch and runs some steps. The inputs before that of the other
/// slice would be 60,000 in the order of their arrival.
#[test]
fn flood_of_slice_spares_other_slice() {
    let mut host = host();
    let [flooded, other] = [1, 2].map(|slice| ue_of(&mut host, slice));
    let sender = host.input_sender.clone();
    let flood = |count: usize| (0..count).for_each(|_| sender.try_put(response(flooded)).expect("there is room"));
    flood(BATCH);
    host.sort_inputs();
    assert!(host.events.waiting.is_empty(), "what one pass takes is not sorted");
    flood(60_000 - BATCH);
    sender.try_put(response(other)).expect("there is room");
    let is_other = |input: &Input| match input {
        Input::Peer { envelope, .. } => {
            matches!(envelope.event, PeerEvent::PfcpTimeout { seid } if seid.ltmsi() == other)
        }
        _ => false,
    };
    let mut before = 0;
    'passes: loop {
        host.sort_inputs();
        for _ in 0..BATCH {
            if is_other(&host.next_input().expect("inputs wait")) {
                break 'passes;
            }
            before += 1;
        }
    }
    assert!(before <= 4 * BATCH, "{before} inputs of the flood came first");
    assert_eq!(host.waiting_inputs(), 60_000 - before, "nothing is lost");
}
