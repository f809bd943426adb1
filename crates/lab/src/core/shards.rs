//! Shards of a core that is one process tree (`pools.shards`).

use super::{ClusterReadiness, Core};
use crate::workers::Worker;
use vireo_config::Failure;
use vireo_ops::api::ShardStatus;

/// Upper bound of RAN nodes in a lab.
const NODES: usize = 64;

/// Returns the tables of a core with this number of shards.
pub(crate) fn tables(shards: u8) -> String {
    match shards {
        0 => String::new(),
        _ => format!("[pools]\nworker-model = \"inline\"\nshards = {shards}\n"),
    }
}

/// Removes the label of shards from metrics.
pub(super) fn without_shards(text: &str) -> String {
    let line = |line: &str| match line.split_once("{shard=\"") {
        Some((name, rest)) => {
            let rest = rest.split_once('"').map_or(rest, |(_, rest)| rest);
            let labels = rest.strip_prefix(',').map(|labels| format!("{{{labels}"));
            format!("{name}{}\n", labels.unwrap_or_else(|| rest.strip_prefix('}').unwrap_or(rest).to_owned()))
        }
        None => format!("{line}\n"),
    };
    text.lines().map(line).collect()
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn label_of_shards_is_removed() {
        let text = "# HELP a b\na{shard=\"0\"} 1\na{shard=\"10\",b=\"c\"} 2\na{b=\"c\"} 3\na 4\n";
        assert_eq!(without_shards(text), "# HELP a b\na 1\na{b=\"c\"} 2\na{b=\"c\"} 3\na 4\n");
    }
}
