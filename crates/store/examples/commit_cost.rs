//! Cost of a commit in shared and private memory, and memory of a UE.
//!
//! Usage: `cargo run --release -p vireo-store --example commit_cost [UES] [OCTETS]`.

use std::time::Instant;
use vireo_store::region::{Region, RegionConfig};
use vireo_store::{ContextStore, MemoryStore, ShmStore};
use vireo_types::{Bucket, Ltmsi};

fn ltmsi(n: u32) -> Ltmsi {
    Ltmsi::new(Bucket::new((n % 4096) as u16), (n / 4096) as u16)
}

/// Returns the nanoseconds of a load and a commit, over UEs in an order that caches cannot predict.
fn cost(store: &mut dyn ContextStore, ues: u32, octets: usize) -> f64 {
    let mut context = vec![7; octets];
    let commits = 2_000_000;
    for n in 0..ues {
        store.commit(ltmsi(n), 0, &context, None).expect("there is room");
    }
    let start = Instant::now();
    let mut at = 1_u32;
    for n in 0..commits {
        at = at.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        let ue = ltmsi(((u64::from(at) * u64::from(ues)) >> 32) as u32);
        let stored = store.load(ue).expect("it is there");
        context.copy_from_slice(stored.octets);
        context[0] = n as u8;
        let version = stored.version;
        store.commit(ue, version, &context, None).expect("nobody else commits");
    }
    start.elapsed().as_secs_f64() * 1e9 / f64::from(commits)
}

fn main() {
    let mut arguments = std::env::args().skip(1).map(|a| a.parse::<u32>().expect("a number"));
    let ues = arguments.next().unwrap_or(100_000);
    let octets = arguments.next().unwrap_or(600) as usize;
    println!("{ues} UEs of {octets} octets, load and commit:");
    println!("  memory  {:6.0} ns", cost(&mut MemoryStore::new(), ues, octets));
    let bytes = ues as usize * (octets * 2 + 1024) + (96 << 20);
    let region = Region::create(RegionConfig::new(ues, 2, bytes)).expect("the machine has the memory");
    let mut store = ShmStore::new(&region).expect("nobody else is there");
    println!("  region  {:6.0} ns", cost(&mut store, ues, octets));
    let heap = region.heap_use().1 / ues as usize;
    println!(
        "  region  {} octets a UE: {} fixed, {heap} of buffers",
        region.fixed_bytes_per_ue() + heap,
        region.fixed_bytes_per_ue()
    );
}
