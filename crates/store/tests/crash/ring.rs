//! Test with workers that take items out of one ring and are killed.

use crate::process::{Deaths, Log, Random, role, start};
use std::time::Duration;
use vireo_store::region::{Region, RegionConfig, Worker};

const WORKERS: u8 = 3;

fn work(worker: Worker) {
    let mut log = Log::inherited();
    let ring = worker.region().ring(0).unwrap();
    let bell = ring.bell();
    loop {
        if let Some(taken) = bell.wait(Duration::from_millis(100), || ring.take(&worker)) {
            log.write(&[taken.item]);
            assert!(ring.acknowledge(&worker, taken), "it is this worker's");
        }
    }
}

#[test]
#[ignore = "a worker of the tests here"]
fn worker() {
    if let Some(worker) = role() {
        work(worker);
    }
}

#[test]
fn items_of_killed_workers_return_once() {
    let mut config = RegionConfig::new(16, WORKERS + 1, 32 << 20);
    config.ring_cells = 64;
    let region = Region::create(config).unwrap();
    let me = region.join(WORKERS).unwrap();
    let ring = region.ring(0).unwrap();
    let mut log = Log::create("ring");
    let mut random = Random(0x5eed);
    let mut workers: Vec<_> = (0..WORKERS).map(|n| start(&region, "ring::worker", n, &log)).collect();
    let (mut pushed, mut came_back) = (0, 0);
    let mut deaths = Deaths::new(100, 10);
    while deaths.are_left() {
        let until = std::time::Instant::now() + Duration::from_micros(random.below(8000));
        while std::time::Instant::now() < until {
            if ring.push(pushed + 1).is_ok() {
                pushed += 1;
                ring.bell().ring();
            }
        }
        let number = random.below(WORKERS.into()) as u8;
        if let Some(dead) = deaths.die(&region, number, &mut workers[usize::from(number)]) {
            let back = ring.requeue(&dead, &me);
            assert!(back.is_sorted_by_key(|taken| taken.item) && back.len() <= 1, "a worker takes one at a time");
            assert!(ring.requeue(&dead, &me).is_empty(), "they come back once");
            for taken in back {
                log.write(&[taken.item]);
                assert!(ring.acknowledge(&me, taken));
                came_back += 1;
            }
            region.reclaim(dead);
            deaths.stays_dead();
        }
        workers[usize::from(number)] = start(&region, "ring::worker", number, &log);
    }
    let end = std::time::Instant::now() + Duration::from_secs(20);
    while !ring.is_empty() && std::time::Instant::now() < end {
        std::thread::sleep(Duration::from_millis(1));
    }
    for (number, child) in (0..).zip(workers) {
        if let Some(dead) = Deaths::last(&region, number, child) {
            for taken in ring.requeue(&dead, &me) {
                log.write(&[taken.item]);
                came_back += 1;
            }
        }
    }
    let mut seen: Vec<u64> = log.read().into_iter().map(|[item]| item).collect();
    seen.sort_unstable();
    let all = seen.len();
    seen.dedup();
    assert!(seen.iter().copied().eq(1..=pushed), "{} of {pushed} items were seen", seen.len());
    // An item that was logged and not acknowledged is delivered again. The commit record of the UE
    // detects it (see `mailbox`).
    assert!(all - seen.len() <= came_back, "an item was seen twice that did not come back");
    println!("{deaths}, {pushed} items, {came_back} came back, {} seen twice", all - seen.len());
}
