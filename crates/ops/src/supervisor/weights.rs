//! CPU weights of workers that share a processor.
//!
//! The first available method is used: `cpu.weight` of cgroup v2 if this process may create
//! cgroups, else nice values if it may lower them, else none, which is logged once.

use super::cgroup::CgroupTree;
use rustix::process::{Pid, getpriority_process, setpriority_process};
use std::collections::BTreeMap;
use std::fs;
use std::io;

/// Ratio of the kernel's weights of two consecutive nice values.
const NICE_WEIGHT_RATIO: f64 = 1.25;
/// The lowest nice value.
const MIN_NICE: i32 = -20;
/// `cpu.weight` of the lightest worker: the kernel's default, and thus the host's.
const DEFAULT_CPU_WEIGHT: f64 = 100.0;
/// Maximum ratio of the heaviest to the lightest worker.
const MAX_WEIGHT_RATIO: f64 = 20.0;

/// CPU weights of all workers.
#[derive(Debug, Default)]
pub(super) struct Weights {
    /// `None` until the first weight is set; most hosts never set one.
    means: Option<WeightMethod>,
    workers: BTreeMap<u8, WorkerWeight>,
}

#[derive(Debug)]
struct WorkerWeight {
    pid: u32,
    weight: f64,
    /// Value that was set last; only changes are set.
    set: Option<u32>,
}

#[derive(Debug)]
enum WeightMethod {
    Groups(CgroupTree),
    Nice {
        /// Nice value of the host, used for the lightest worker.
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
            Err(cause) => cause,
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

/// Returns the nice value of this thread if it may lower it. On Linux the value is per thread.
fn lowerable_nice() -> io::Result<i32> {
    let own = getpriority_process(None)?;
    setpriority_process(None, own - 1)?;
    setpriority_process(None, own)?;
    Ok(own)
}

impl Weights {
    /// Adds a worker.
    pub(super) fn add(&mut self, worker: u8, pid: u32) {
        self.workers.insert(worker, WorkerWeight { pid, weight: 1.0, set: None });
        if self.means.is_some() {
            self.apply();
        }
    }

    /// Removes a worker.
    pub(super) fn remove(&mut self, worker: u8) {
        self.workers.remove(&worker);
        if let Some(WeightMethod::Groups(groups)) = &mut self.means {
            groups.remove(worker);
        }
    }

    /// Sets a weight. Only ratios between workers count.
    pub(super) fn set(&mut self, worker: u8, weight: f64) {
        let Some(weighed) = self.workers.get_mut(&worker) else { return };
        if weight.is_finite() && weight > 0.0 && weighed.weight != weight {
            weighed.weight = weight;
            self.means.get_or_insert_with(WeightMethod::find);
            self.apply();
        }
    }

    /// Removes all cgroups, after all workers have exited.
    pub(super) fn end(&mut self) {
        self.workers.clear();
        if let Some(WeightMethod::Groups(groups)) = self.means.take() {
            groups.end();
        }
    }

    /// Applies the weights. The lightest worker has the weight of the host, the others more. Shares
    /// only order the NFs. A worker's share of a processor must not be less than that of host and
    /// balancer, or their messages would pile up.
    fn apply(&mut self) {
        let least = self.workers.values().map(|w| w.weight).fold(f64::INFINITY, f64::min);
        for (worker, weighed) in &mut self.workers {
            let times = (weighed.weight / least).min(MAX_WEIGHT_RATIO);
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
                // The worker may have ended; the supervisor will notice.
                Err(error) => tracing::debug!(%error, worker, "a worker's weight cannot be set"),
            }
        }
    }
}

/// Sets the nice value of all threads of a process. On Linux each thread has its own.
fn be_nice(pid: u32, value: i32) -> io::Result<()> {
    for thread in fs::read_dir(format!("/proc/{pid}/task"))? {
        let number = thread?.file_name().to_string_lossy().parse().ok();
        setpriority_process(number.and_then(Pid::from_raw), value)?;
    }
    Ok(())
}

/// Returns the nice value for this multiple of the lightest worker's CPU time.
fn nice(times: f64, own: i32) -> i32 {
    let steps = times.log(NICE_WEIGHT_RATIO).round() as i32;
    (own - steps).max(MIN_NICE)
}

/// Returns the cgroup weight for this multiple of the lightest worker's CPU time.
fn cpu_weight(times: f64) -> u32 {
    (times * DEFAULT_CPU_WEIGHT).round() as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn weights_follow_the_kernels_steps() {
        assert_eq!((nice(1.0, 0), nice(1.25, 0), nice(2.0, 0), nice(10.0, 0)), (0, -1, -3, -10));
        assert_eq!((nice(1.0, -5), nice(2.0, 18), nice(MAX_WEIGHT_RATIO, -19)), (-5, 15, -20));
        assert_eq!((cpu_weight(1.0), cpu_weight(4.0), cpu_weight(MAX_WEIGHT_RATIO)), (100, 400, 2000));
    }
}
