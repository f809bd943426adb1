//! Shards of a core that is one process tree (`pools.shards`).

use super::{ClusterReadiness, Core};
use crate::workers::Worker;
use vireo_config::Failure;
use vireo_ops::api::ShardStatus;

/// Upper bound of RAN nodes in a lab.
const NODES: usize = 64;

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

    /// Kills the shard with the most UEs. Returns its state before.
    pub(crate) fn kill_busiest_shard(&self) -> Result<ShardStatus, Failure> {
        let none = || Failure("the core has no shards".into());
        let busiest = self.shards()?.into_iter().max_by_key(|shard| shard.ues).ok_or_else(none)?;
        let running = Worker::shards(&self.process)?;
        let process = running.into_iter().find(|process| process.pid == busiest.pid);
        let ended = || Failure(format!("process {} of shard {} is no child of the core", busiest.pid, busiest.shard));
        process.ok_or_else(ended)?.kill()?;
        Ok(busiest)
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
