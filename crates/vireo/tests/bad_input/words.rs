//! Damage of the state region by a broken or compromised worker process.

use crate::core::Core;
use crate::device::Device;
use crate::ran::Ran;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, Instant};

/// Length of the damaged range from the beginning of the region, in bytes. It contains the shared
/// words, slots, indexes, rings and records.
const SPAN: u64 = 48 << 20;
/// Number of written words per seed.
const WORDS: u64 = 20_000;
/// Number of subscribers; the first of them are registered when the words are written.
const SUBSCRIBERS: u32 = 64;
/// Wait of a refused UE before it retries.
const TURNED_AWAY: Duration = Duration::from_millis(200);

/// Generator SplitMix64.
fn random(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut z = *state;
    z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ z >> 31
}

/// Opens the region through a worker of the core: it is the worker's standard input.
fn region(core: &Core) -> Option<File> {
    let tasks = std::fs::read_dir(format!("/proc/{}/task", core.pid())).expect("a process");
    let children = tasks.flatten().filter_map(|task| std::fs::read_to_string(task.path().join("children")).ok());
    let children: Vec<String> = children.collect();
    let is_worker = |pid: &&str| {
        let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        line.split(|octet| *octet == 0).any(|word| word == b"nf-worker")
    };
    let worker = children.iter().flat_map(|children| children.split_whitespace()).find(is_worker)?;
    File::options().read(true).write(true).open(format!("/proc/{worker}/fd/0")).ok()
}

/// Writes random words across the region, half of them into used pages.
fn damage(region: &File, seed: u64) {
    let mut state = seed;
    let length = region.metadata().expect("a file").len().min(SPAN);
    let mut octets = [0; 8];
    for n in 0..WORDS {
        // The beginning has the common data: sizes, workers and the first slots.
        let span = [length, 4096, 1 << 16, 1 << 20][(n % 4) as usize];
        let place = random(&mut state) % (span / 8) * 8;
        region.read_exact_at(&mut octets, place).expect("within the region");
        let now = u64::from_le_bytes(octets);
        let word = match random(&mut state) % 4 {
            0 => random(&mut state),
            1 => now ^ 1 << (random(&mut state) % 64),
            2 => random(&mut state) % 300,
            _ => now.wrapping_add(1),
        };
        region.write_all_at(&word.to_le_bytes(), place).expect("written");
    }
}

#[test]
fn random_words_of_a_worker_do_not_end_the_core() {
    let mut core = Core::start(SUBSCRIBERS, "");
    if region(&core).is_none() {
        return eprintln!("skipped: the memory of another process cannot be opened here");
    }
    let (mut ran, mut number) = (Ran::set_up(&core, 0x00d0_0000), 4);
    (1..=number).for_each(|n| _ = Device::new(n).register(&mut ran));
    for seed in [1, 3] {
        let deadline = Instant::now() + Duration::from_secs(20);
        let file = loop {
            match region(&core) {
                Some(file) => break file,
                None => assert!(Instant::now() < deadline, "no worker is there any more:\n{}", core.log()),
            }
        };
        damage(&file, seed);
        assert_recovers(&mut core, &mut number);
    }
    let log = core.log();
    assert!(log.contains("state region has words that no worker writes"), "the damage was not noticed:\n{log}");
    assert!(!log.contains("panic"), "{log}");
}

/// Checks that the core serves later UEs, though perhaps not the first. A refused UE retries.
fn assert_recovers(core: &mut Core, number: &mut u32) {
    let deadline = Instant::now() + Duration::from_secs(40);
    loop {
        core.assert_alive();
        *number = *number % SUBSCRIBERS + 1;
        let served = catch_unwind(AssertUnwindSafe(|| crate::assert_serves_another(core, *number)));
        if served.is_ok() {
            return;
        }
        assert!(Instant::now() < deadline, "no UE is served any more:\n{}", core.log());
        std::thread::sleep(TURNED_AWAY);
    }
}
