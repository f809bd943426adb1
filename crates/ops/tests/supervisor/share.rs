//! CPU time of workers and supervisor.
//!
//! A starved worker is not stuck, weights apply, and an idle supervisor uses no CPU time.

use crate::lab::{Lab, Part, exclusive_machine};
use rustix::process::{Pid, getpriority_process, setpriority_process};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

fn process(pid: u32) -> Option<Pid> {
    Pid::from_raw(pid.cast_signed())
}

/// Returns the first processor that this process may run on.
fn core() -> usize {
    let all = sched_getaffinity(None).unwrap();
    (0..CpuSet::MAX_CPU).find(|cpu| all.is_set(*cpu)).unwrap()
}

/// Returns the threads of a process.
fn threads(pid: impl std::fmt::Display) -> Vec<String> {
    let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).unwrap();
    tasks.map(|t| t.unwrap().path().display().to_string()).collect()
}

fn number(thread: &str) -> u32 {
    thread.rsplit('/').next().unwrap().parse().unwrap()
}

/// Returns the CPU time of a thread in nanoseconds.
fn cpu(path: &str) -> u64 {
    let text = std::fs::read_to_string(format!("{path}/schedstat")).unwrap();
    text.split(' ').next().unwrap().parse().unwrap()
}

/// Returns how often a thread went to sleep.
fn wakeups(path: &str) -> u64 {
    let text = std::fs::read_to_string(format!("{path}/status")).unwrap();
    let of = text.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"));
    of.unwrap().trim().parse().unwrap()
}

#[test]
fn starved_worker_is_not_stuck() {
    let _alone = exclusive_machine();
    let core = core();
    let lab = Lab::start(Part::WorksHard, |c| {
        c.cores = vec![core];
        c.stuck_after = Duration::from_millis(50);
    });
    let pid = lab.launch(1);
    let mut only = CpuSet::new();
    only.set(core);
    assert!(sched_getaffinity(process(pid)).unwrap() == only, "it is on its core");
    threads(pid).iter().for_each(|t| setpriority_process(process(number(t)), 19).unwrap());
    lab.busy(1, true);
    let over = Arc::new(AtomicBool::new(false));
    let others = [(); 3].map(|()| {
        let over = over.clone();
        std::thread::spawn(move || {
            sched_setaffinity(None, &only).unwrap();
            while !over.load(Ordering::Relaxed) {
                std::hint::spin_loop();
            }
        })
    });
    let (begun, mut last, mut last_beat, mut longest) = (Instant::now(), Instant::now(), 0, Duration::ZERO);
    while begun.elapsed() < Duration::from_millis(1200) {
        std::thread::sleep(Duration::from_millis(1));
        let now = lab.region.last_beat(1);
        if now != last_beat {
            (last_beat, last) = (now, Instant::now());
        }
        longest = longest.max(last.elapsed());
    }
    over.store(true, Ordering::Relaxed);
    others.into_iter().for_each(|o| o.join().unwrap());
    println!("it was silent for up to {longest:?}, with {:?} to be stuck", Duration::from_millis(50));
    if longest > Duration::from_millis(400) {
        // The supervisor waits ten times the stuck limit of 50 ms for a starved worker. Here other
        // processes were busy too.
        eprintln!("skipped: this machine is too busy to tell");
        return;
    }
    assert!(lab.is_quiet_for(Duration::ZERO), "others were busy");
}

#[test]
fn weights_are_kept_to() {
    let _alone = exclusive_machine();
    let core = core();
    let lab = Lab::start(Part::WorksHard, |c| c.cores = vec![core]);
    let pids = [lab.launch(1), lab.launch(2)];
    lab.supervisor.weigh(2, 0.25);
    let group = |pid: u32| std::fs::read_to_string(format!("/proc/{pid}/cgroup")).unwrap();
    let nice = |pid: u32| getpriority_process(process(pid)).unwrap();
    let grouped = || group(pids[1]).contains(&format!("vireo-{}/worker-2", std::process::id()));
    if !within_a_second(|| grouped() || nice(pids[1]) != nice(pids[0])) {
        return println!("skipped: neither cgroup weights nor nice values can be set here");
    }
    let means = if grouped() { "cgroup weights" } else { "nice values" };
    let now = || pids.map(|pid| threads(pid).iter().map(|t| cpu(t)).sum::<u64>());
    let before = now();
    std::thread::sleep(Duration::from_millis(800));
    let after = now();
    let ratio = (after[0] - before[0]) as f64 / (after[1] - before[1]) as f64;
    println!("with {means}, a worker of weight 1 had {ratio:.2} times what one of weight 0.25 had");
    assert!((2.5..6.5).contains(&ratio), "{ratio}");
    lab.supervisor.weigh(2, 1.0);
    assert!(within_a_second(|| nice(pids[0]) == nice(pids[1])), "it gets back what it had");
}

fn within_a_second(true_now: impl Fn() -> bool) -> bool {
    let begun = Instant::now();
    while !true_now() {
        if begun.elapsed() > Duration::from_secs(1) {
            return false;
        }
        std::thread::sleep(Duration::from_millis(2));
    }
    true
}

#[test]
fn supervisor_of_idle_workers_uses_little_cpu() {
    let _alone = exclusive_machine();
    let lab = Lab::start(Part::Sleeps, |_| {});
    for worker in 1..=4 {
        lab.launch(worker);
    }
    // Other tests have supervisors too; the youngest one belongs to this test.
    let supervisors = threads("self")
        .into_iter()
        .filter(|t| std::fs::read_to_string(format!("{t}/comm")).is_ok_and(|c| c.trim() == "supervisor"));
    let task = supervisors.max_by_key(|t| number(t)).unwrap();
    let (before, woken_before) = (cpu(&task), wakeups(&task));
    let begun = Instant::now();
    std::thread::sleep(Duration::from_secs(1));
    let lasted = begun.elapsed();
    let part = (cpu(&task) - before) as f64 / lasted.as_nanos() as f64;
    let woken = (wakeups(&task) - woken_before) as f64 / lasted.as_secs_f64();
    println!(
        "looking after four workers without work takes {woken:.0} wakeups a second, {:.2} % of a processor",
        part * 100.0
    );
    // A check each 10 ms. Its cost depends on the machine and on what runs beside.
    assert!(woken < 150.0 && part < 0.1, "{woken} {part}");
}
