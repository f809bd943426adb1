//! Shards of a core that is one process tree (`pools.shards`).

use super::{ClusterReadiness, Core};
use crate::workers::Worker;
use rand::Rng;
use rand::seq::IndexedRandom;
use std::time::{Duration, Instant};
use vireo_config::Failure;
use vireo_ops::api::ShardStatus;

/// Upper bound of RAN nodes in a lab.
const NODES: usize = 64;
/// Thread of a shard that receives, runs the steps and sends.
const THREAD: &str = "host";
/// Maximum wait until that thread of a shard runs.
const AT_WORK_WITHIN: Duration = Duration::from_millis(100);
/// Maximum time from then until the kill, in microseconds: a few steps.
const AMID_STEPS_US: u64 = 300;

/// A shard that was killed.
#[derive(Debug)]
pub(crate) struct KilledShard {
    /// State of the shard when it was selected.
    pub(crate) status: ShardStatus,
    /// Whether it was at work.
    pub(crate) was_at_work: bool,
}

impl Core {
    /// Returns the status of the shards.
    pub(crate) fn shards(&self) -> Result<Vec<ShardStatus>, Failure> {
        Ok(self.overview()?.shards)
    }

    /// Returns true if all shards serve, and every UE has its copies.
    pub fn is_copied(&self) -> Result<bool, Failure> {
        let shards = self.shards()?;
        Ok(shards.len() == usize::from(self.options.shards) && shards.iter().all(|shard| shard.copied))
    }

    /// Kills a random shard at a random time while it is at work. If it stays idle, it is killed
    /// all the same.
    pub(crate) fn kill_random_shard(&self) -> Result<KilledShard, Failure> {
        let mut random = rand::rng();
        let shards = self.shards()?;
        let status = shards.choose(&mut random).cloned().ok_or_else(|| Failure("the core has no shards".into()))?;
        let running = Worker::shards(&self.process)?;
        let process = running.into_iter().find(|process| process.pid == status.pid);
        let ended = || Failure(format!("process {} of shard {} is no child of the core", status.pid, status.shard));
        let (process, deadline) = (process.ok_or_else(ended)?, Instant::now() + AT_WORK_WITHIN);
        let mut was_at_work = false;
        while !was_at_work && Instant::now() < deadline {
            was_at_work = process.is_running(THREAD);
        }
        let kill_at = Instant::now() + Duration::from_micros(random.random_range(0..AMID_STEPS_US));
        while Instant::now() < kill_at {
            std::hint::spin_loop();
        }
        process.kill()?;
        Ok(KilledShard { status, was_at_work })
    }

    /// Returns how many processes of a shard have ended.
    pub(crate) fn ends_of_shard(&self, shard: usize) -> Result<u64, Failure> {
        Ok(self.shards()?.get(shard).map_or(0, |shard| shard.ends))
    }

    /// Returns the state of the shards, as that of the hosts of a cluster.
    pub(super) fn standing_of_shards(&self) -> Result<ClusterReadiness, Failure> {
        let status = self.overview_with(NODES)?;
        Ok(ClusterReadiness {
            // A shard that ends and is replaced makes another state.
            epoch: status.shards.iter().map(|shard| shard.ends).sum(),
            hosts: status.shards.iter().filter(|shard| shard.copied).count(),
            balancers: 1,
            registered: status.counts.registered,
            copies: status.shards.iter().map(|shard| shard.copies).sum(),
            associations: status.gnbs.iter().map(|gnb| gnb.associations).sum(),
            upfs: status.upfs.iter().filter(|upf| upf.associated).count(),
        })
    }
}
