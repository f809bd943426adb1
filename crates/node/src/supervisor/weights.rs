//! How workers that want the same processor share it: by cgroup v2's `cpu.weight` where this process may make groups,
//! else by nice values where it may give smaller ones than its own, else not at all, which is said once.

use super::cgroup::CgroupTree;
use rustix::process::{Pid, getpriority_process, setpriority_process};
use std::collections::BTreeMap;
use std::fs;
use std::io;

/// What a step of nice is worth (the kernel's table of weights: each is 1.25 times the next).
const STEP: f64 = 1.25;
/// The smallest nice value.
const LEAST_NICE: i32 = -20;
/// `cpu.weight` of the lightest worker: the kernel's usual one, and so the host's.
const USUAL: f64 = 100.0;
/// The heaviest worker gets so many times what the lightest gets, at most.
const MOST: f64 = 20.0;

/// The workers' weights.
#[derive(Debug, Default)]
pub(super) struct Weights {
    /// `None` as long as nobody weighed anything: most hosts never do.
    means: Option<WeightMethod>,
    workers: BTreeMap<u8, WorkerWeight>,
}

#[derive(Debug)]
struct WorkerWeight {
    pid: u32,
    weight: f64,
    /// What was set last, so that only what changes is set again.
    set: Option<u32>,
}

#[derive(Debug)]
enum WeightMethod {
    Groups(CgroupTree),
    Nice {
        /// The host's own, which is that of the lightest worker.
        own: i32,
    },
    Nothing,
}

impl WeightMethod {
    fn find() -> Self {
        let groups = match CgroupTree::open() {
            Ok(groups) => {
                tracing::info!("workers share processors by cgroup weights");
                return WeightMethod::Groups(groups);
            }
            Err(why) => why,
        };
        match lowerable_nice() {
            Ok(own) => {
                tracing::info!(cgroups = %groups, "workers share processors by nice values");
                WeightMethod::Nice { own }
            }
            Err(nice) => {
                tracing::warn!(
                    cgroups = %groups, %nice,
                    "shares among worker processes are not enforced; give the core a cgroup of its own (Delegate=cpu) \
                     or CAP_SYS_NICE"
                );
                WeightMethod::Nothing
            }
        }
    }
}

/// The nice value of this thread, if a thread may take a smaller one. It is this thread's alone (on Linux).
fn lowerable_nice() -> io::Result<i32> {
    let own = getpriority_process(None)?;
    setpriority_process(None, own - 1)?;
    setpriority_process(None, own)?;
    Ok(own)
}

impl Weights {
    /// A worker is there.
    pub(super) fn add(&mut self, worker: u8, pid: u32) {
        self.workers.insert(worker, WorkerWeight { pid, weight: 1.0, set: None });
        if self.means.is_some() {
            self.apply();
        }
    }

    /// A worker is gone.
    pub(super) fn remove(&mut self, worker: u8) {
        self.workers.remove(&worker);
        if let Some(WeightMethod::Groups(groups)) = &mut self.means {
            groups.remove(worker);
        }
    }

    /// Sets a weight; only its ratio to the others counts.
    pub(super) fn set(&mut self, worker: u8, weight: f64) {
        let Some(weighed) = self.workers.get_mut(&worker) else { return };
        if weight.is_finite() && weight > 0.0 && weighed.weight != weight {
            weighed.weight = weight;
            self.means.get_or_insert_with(WeightMethod::find);
            self.apply();
        }
    }

    /// Every worker is gone.
    pub(super) fn end(&mut self) {
        self.workers.clear();
        if let Some(WeightMethod::Groups(groups)) = self.means.take() {
            groups.end();
        }
    }

    /// The lightest worker weighs what the host does, the others more: shares decide among NFs, and a share of a processor
    /// that host and balancer use too must not be less than theirs, or what they bring in would pile up.
    fn apply(&mut self) {
        let least = self.workers.values().map(|w| w.weight).fold(f64::INFINITY, f64::min);
        for (worker, weighed) in &mut self.workers {
            let times = (weighed.weight / least).min(MOST);
            let (value, result) = match &mut self.means {
                Some(WeightMethod::Groups(groups)) => {
                    let value = cpu_weight(times);
                    if weighed.set == Some(value) {
                        continue;
                    }
                    (value, groups.set(*worker, weighed.pid, value))
                }
                Some(WeightMethod::Nice { own }) => {
                    let value = nice(times, *own);
                    if weighed.set == Some(value.cast_unsigned()) {
                        continue;
                    }
                    (value.cast_unsigned(), be_nice(weighed.pid, value))
                }
                Some(WeightMethod::Nothing) | None => return,
            };
            match result {
                Ok(()) => weighed.set = Some(value),
                // It may have ended, which the crew is about to notice.
                Err(error) => tracing::debug!(%error, worker, "a worker's weight cannot be set"),
            }
        }
    }
}

/// Sets the nice value of a process: of each of its threads, for on Linux each has its own.
fn be_nice(pid: u32, value: i32) -> io::Result<()> {
    for thread in fs::read_dir(format!("/proc/{pid}/task"))? {
        let number = thread?.file_name().to_string_lossy().parse().ok();
        setpriority_process(number.and_then(Pid::from_raw), value)?;
    }
    Ok(())
}

/// The nice value of who gets so many times what the lightest gets.
fn nice(times: f64, own: i32) -> i32 {
    let steps = times.log(STEP).round() as i32;
    (own - steps).max(LEAST_NICE)
}

/// The weight in a cgroup of who gets so many times what the lightest gets.
fn cpu_weight(times: f64) -> u32 {
    (times * USUAL).round() as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn weights_follow_the_kernels_steps() {
        assert_eq!((nice(1.0, 0), nice(1.25, 0), nice(2.0, 0), nice(10.0, 0)), (0, -1, -3, -10));
        assert_eq!((nice(1.0, -5), nice(2.0, 18), nice(MOST, -19)), (-5, 15, -20));
        assert_eq!((cpu_weight(1.0), cpu_weight(4.0), cpu_weight(MOST)), (100, 400, 2000));
    }
}
