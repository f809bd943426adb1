//! Tests of a busy worker: progress and fairness between UEs.

use super::*;
use std::time::Duration as Span;
use vireo_ops::config::StateConfig;
use vireo_store::region::{Posted, Receiver};

const PLAN: RegionLayout = RegionLayout { nfs: 1 };

pub(crate) fn config() -> CoreConfig {
    CoreConfig::lab()
}

fn region() -> Region {
    let state =
        StateConfig { ues: 16, packets: 1024, bytes: StateConfig::bytes_for(16, 1024), ..StateConfig::default() };
    Region::create(region_layout::region_config(PLAN, &state, 2, &config())).unwrap()
}

fn instructions() -> WorkerConfig {
    WorkerConfig {
        core: config(),
        nfs: PLAN.nfs,
        tmsi_key: [0; 16],
        part: (0, 1),
        location: Location::Region,
        log_level: None,
        added_step_us: 0,
    }
}

/// Returns the host's handle of a region, worker 1, and the ring of its committed records.
fn worker() -> (Worker, NfWorker, Receiver) {
    let region = region();
    let host = region.join(region_layout::HOST).unwrap();
    let rings = HostRings::new(&region, PLAN, 1);
    let nf = NfWorker::new(
        region.clone(),
        region.join(1).unwrap(),
        (instructions(), 0),
        |_| {},
        Results::Rings(Box::new(rings)),
    );
    (host, nf, region.receiver(PLAN.commit_ring(1)).unwrap())
}

/// Posts events to a UE and pushes it to the worker's NF.
fn post(host: &mut Worker, ltmsi: u32, events: u64) -> Slot {
    let region = host.region().clone();
    let slot = host.insert(Ltmsi::from_raw(ltmsi)).unwrap();
    for sequence in 1..=events {
        let packet =
            host.packet(sequence, &EventMessage::from(Event::Deadline).encode(clock(), 0, Vec::new())).unwrap();
        let posted = region.post(host, slot, packet, 1).unwrap();
        assert_eq!(posted == Posted::Holder, sequence == 1);
    }
    PLAN.queue(&region, 1, 0).push(slot.number().into()).unwrap();
    slot
}

#[test]
fn worker_waiting_for_its_host_shows_progress() {
    let (_host, mut nf, mut committed) = worker();
    let region = nf.region.clone();
    let items = u64::from(region.config().ring_cells) + 1;
    let thread = std::thread::spawn(move || {
        (0..items).for_each(|item| nf.push(true, item));
        nf
    });
    // The host reads nothing for a while.
    let until = Instant::now() + Span::from_secs(10);
    for _ in 0..3 {
        let before = region.last_beat(1);
        while region.last_beat(1) == before {
            assert!(Instant::now() < until, "the worker looks stuck");
            std::thread::sleep(Span::from_millis(1));
        }
    }
    assert!(!thread.is_finished());
    while !thread.is_finished() {
        committed.take();
        std::thread::yield_now();
    }
    thread.join().unwrap();
}

/// A host that runs the steps itself does not sleep meanwhile.
#[test]
fn inline_worker_has_work_while_ue_waits() {
    let region = region();
    let (mut host, own) = (region.join(region_layout::HOST).unwrap(), region.join(1).unwrap());
    let mut worker = InlineWorker::new(&region, own, instructions());
    assert!(!worker.has_work() && !worker.run_once());
    post(&mut host, 1, 1);
    assert!(worker.has_work() && worker.run_once());
    assert!(!worker.has_work() && !worker.run_once());
    assert_eq!(worker.take_results().returned.len(), 1, "there is no such UE");
}

#[test]
fn ue_with_many_events_is_requeued() {
    let (mut host, mut nf, _) = worker();
    let (busy, other) = (post(&mut host, 1, 40), post(&mut host, 2, 1));
    let mut served = Vec::new();
    let mut events = 0;
    while events < 41 {
        let before = nf.region.last_beat(1);
        let (more, _) = nf.serve(0);
        assert!(more > 0, "{served:?}");
        events += more;
        served.push(more);
        assert!(more < MAX_CONSECUTIVE_EVENTS || nf.region.last_beat(1) != before, "it shows progress");
    }
    assert_eq!(served, [MAX_CONSECUTIVE_EVENTS, 1, MAX_CONSECUTIVE_EVENTS, 8]);
    assert_eq!(nf.serve(0), (0, 0));
    assert!(nf.region.is_idle_and_empty(busy) && nf.region.is_idle_and_empty(other));
}
