//! `--kill-nf`, `--kill-data` and `--kill-shard`: kills of NF workers, data workers or shards under
//! load.
//!
//! The process is chosen at random, at a fixed rate, while UEs are active. A shard is killed only
//! when every UE has its copies again: copies of UEs are in one other shard.

use crate::core::Core;
use crate::process::Process;
use crate::workers::Worker;
use rand::seq::IndexedRandom;
use std::str::FromStr;
use std::time::{Duration, Instant};
use vireo_config::Failure;

/// Interval of a rate such as `5/s`, `0.5/s` or `30/m`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Rate(pub(super) Duration);

/// Shortest interval: a worker needs longer to restart.
const SHORTEST: Duration = Duration::from_millis(10);

impl FromStr for Rate {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (count, unit) = text.split_once('/').ok_or("write a number and /s or /m, as in 5/s")?;
        let seconds = match unit {
            "s" => 1.0,
            "m" => 60.0,
            _ => return Err("write a number and /s or /m, as in 5/s".into()),
        };
        let every = count.parse::<f64>().ok().and_then(|count| Duration::try_from_secs_f64(seconds / count).ok());
        every
            .filter(|every| *every >= SHORTEST && *every < Duration::from_secs(86_400))
            .map(Rate)
            .ok_or_else(|| "a rate above 0 and up to 100/s is allowed".into())
    }
}

/// Returns the workers that may be killed.
type Of = fn(&Process) -> Result<Vec<Worker>, Failure>;

/// Kills workers at a fixed rate.
#[derive(Debug)]
pub(super) struct WorkerKiller {
    of: Of,
    every: Duration,
    due: Instant,
    /// Returns true if a kill may be injected.
    is_ready: fn(&Core) -> Result<bool, Failure>,
    /// Last killed worker. On a busy machine it may still exist when the next kill is due.
    last: Option<u32>,
    pub(super) kills: u64,
}

impl WorkerKiller {
    /// Creates a killer of NF workers; the first kill is due after one interval.
    pub(super) fn nf_workers(rate: Rate) -> Self {
        WorkerKiller {
            of: Worker::nf_workers,
            every: rate.0,
            due: Instant::now() + rate.0,
            is_ready: |_| Ok(true),
            last: None,
            kills: 0,
        }
    }

    /// Creates a killer of data workers. Standby workers are exempt.
    pub(super) fn data_workers(rate: Rate) -> Self {
        WorkerKiller { of: Worker::data_workers, ..WorkerKiller::nf_workers(rate) }
    }

    /// Creates a killer of shards.
    pub(super) fn shards(rate: Rate) -> Self {
        WorkerKiller { of: Worker::shards, is_ready: Core::is_copied, ..WorkerKiller::nf_workers(rate) }
    }

    /// Kills a worker if due. If no worker exists, because the last one is not replaced yet, the
    /// kill stays due.
    pub(super) fn work(&mut self, core: &Core) -> Result<(), Failure> {
        if Instant::now() < self.due || !(self.is_ready)(core)? {
            return Ok(());
        }
        let mut workers = (self.of)(&core.process)?;
        workers.retain(|worker| Some(worker.pid) != self.last);
        if let Some(worker) = workers.choose(&mut rand::rng())
            && worker.kill()?
        {
            self.last = Some(worker.pid);
            self.kills += 1;
            // A kill that had to wait does not bring the next one forward.
            self.due = Instant::now().max(self.due + self.every);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_read() {
        let every = |text: &str| text.parse::<Rate>().map(|r| r.0.as_micros());
        assert_eq!((every("5/s"), every("0.5/s"), every("30/m")), (Ok(200_000), Ok(2_000_000), Ok(2_000_000)));
        for bad in ["", "5", "5/h", "/s", "x/s", "0/s", "-1/s", "101/s", "nan/s", "inf/s", "1e-9/s"] {
            assert!(every(bad).is_err(), "{bad}");
        }
    }
}
