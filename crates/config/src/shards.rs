//! `[pools] shards`: several hosts of one machine as processes of `vireo run`.
//!
//! The shards are the hosts of a private cluster, whose controller and only balancer are `vireo
//! run` itself. Its settings follow from the number of shards.

use crate::file::{self, File};
use crate::problems::Problems;
use crate::surfaces::Cluster;
use crate::{Config, Failure};
use std::net::{Ipv4Addr, SocketAddr};
use vireo_cluster::ReplicationConfig;
use vireo_core::config::StateLocation;

/// Upper bound of the shards.
const SHARDS: u8 = 64;
/// Partitions of the UE address pools for each shard. A shard that replaces a dead one gets another
/// partition while UEs have addresses of the dead one's.
const PARTS_EACH: u16 = 4;
/// Any port of the loopback interface.
const ANY: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 0);

/// Returns the file with the cluster settings that the shards need, if there are several.
pub(super) fn with_cluster(file: &File, problems: &mut Problems) -> File {
    let shards = file.pools.shards;
    problems.check((1..=SHARDS).contains(&shards), "pools.shards", format_args!("1 to {SHARDS} is allowed"));
    if shards < 2 {
        return file.clone();
    }
    check(file, problems);
    let mut file = file.clone();
    if file.replication.mode == file::Mode::None {
        file.replication.mode = file::Mode::Hot;
    }
    let shards = u16::from(shards.min(SHARDS));
    let parts = (shards * PARTS_EACH).next_power_of_two();
    file.cluster.hosts = shards;
    file.cluster.address_parts = file.cluster.address_parts.max(parts);
    file
}

impl Config {
    /// Refuses several shards in a process that starts none.
    ///
    /// # Errors
    ///
    /// Returns an error if there are several.
    pub fn check_no_shards(&self) -> Result<(), Failure> {
        match self.shards {
            1 => Ok(()),
            _ => Err(Failure(
                "pools.shards: only `vireo run` starts shards: remove the key; a cluster has several `vireo host` on a machine \
                 instead (cluster.machine)"
                    .into(),
            )),
        }
    }
}

/// Sets the addresses of the private cluster.
pub(super) fn set_addresses(shards: u8, cluster: &mut vireo_cluster::ClusterConfig) {
    if shards > 1 {
        (cluster.balancer, cluster.listen) = (ANY, ANY);
    }
}

/// Refuses the keys that do not go with several shards.
fn check(file: &File, problems: &mut Problems) {
    problems.check(
        file.pools.worker_model == file::WorkerModel::Inline,
        "pools.shards",
        "each of several shards runs the steps on its own thread: write pools.worker-model = \"inline\", or shards = 1",
    );
    problems.check(
        file.state.mode().location == StateLocation::Shm,
        "pools.shards",
        "only contexts in shared memory (state.location = \"shm\") have copies in another shard; write shards = 1",
    );
    problems.check(
        file.state.keep != Some(true),
        "state.keep",
        "contexts of several shards (pools.shards) end with the core: remove the key, or write shards = 1",
    );
    problems.check(
        file.scaling.least == 0,
        "scaling.least",
        "the number of shards (pools.shards) is fixed: only 0 is allowed",
    );
    let file::Replication { mode, replicas, ack } = file.replication;
    let most = ReplicationConfig::MAX_REPLICAS.min(usize::from(file.pools.shards) - 1);
    problems.check(
        mode != file::Mode::Cold && ack != file::Ack::None,
        "replication",
        "the UEs of a shard that ends are lost unless another has each commit: mode \"hot\" and ack \"one\" or \"all\" are \
         allowed with pools.shards",
    );
    problems.check(
        (1..=most).contains(&replicas),
        "replication.replicas",
        format_args!("1 to {most} is allowed with {} shards (pools.shards)", file.pools.shards),
    );
    let (own, none) = (&file.cluster, Cluster::default());
    for (key, is_default) in [
        ("controller", own.controller == none.controller),
        ("etcd", own.etcd == none.etcd),
        ("etcd-tls", own.etcd_tls == none.etcd_tls),
        ("balancer", own.balancer == none.balancer),
        ("handover", own.handover == none.handover),
        ("listen", own.listen == none.listen),
        ("machine", own.machine == none.machine),
        ("tls", own.tls == none.tls),
        ("insecure", own.insecure == none.insecure),
        ("hosts", own.hosts == none.hosts),
    ] {
        problems.check(
            is_default,
            &format!("cluster.{key}"),
            "several shards (pools.shards) are no cluster's: remove the key, or write shards = 1 and run the roles of a cluster",
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use figment::providers::Env;
    use vireo_cluster::Mode;
    use vireo_core::placement::balancer::Serve;

    fn load(text: &str) -> Result<Config, Vec<String>> {
        let file = crate::load::parse(text, Env::prefixed("NO_VARIABLE_BEGINS_SO_"))?;
        crate::check::config(&file)
    }

    const TWO: &str = "[pools]\nworker-model = \"inline\"\nshards = 2\n";

    #[test]
    fn shards_have_a_cluster_of_their_own() {
        let config = load(TWO).unwrap();
        let cluster = &config.cluster;
        assert_eq!((config.shards, cluster.hosts, cluster.pool_partitions), (2, 2, 16));
        assert_eq!((cluster.replication.mode, cluster.replication.replicas), (Mode::Hot, 1));
        assert_eq!((cluster.serve, cluster.balancer.port(), cluster.listen.port()), (Serve::Procedure, 0, 0));
        let many = load(&TWO.replace("= 2", "= 64")).unwrap();
        assert_eq!((many.cluster.hosts, many.cluster.pool_partitions), (64, 256));
        let one = load(&TWO.replace("= 2", "= 1")).unwrap();
        assert_eq!((one.shards, one.cluster.replication.mode), (1, Mode::None));
    }

    #[test]
    fn keys_unfit_for_shards_are_refused() {
        let cases = [
            ("", "pools.shards: 1 to 64", TWO.replace("= 2", "= 65")),
            ("", "pools.shards: 1 to 64", TWO.replace("= 2", "= 0")),
            ("", "pools.shards: each of several shards", TWO.replace("inline", "processes")),
            ("[state]\nkeep = true\n", "state.keep: contexts of several shards", TWO.into()),
            ("[scaling]\nleast = 1\n", "scaling.least: the number of shards", TWO.into()),
            ("[replication]\nmode = \"cold\"\n", "replication: the UEs of a shard", TWO.into()),
            ("[replication]\nack = \"none\"\n", "replication: the UEs of a shard", TWO.into()),
            ("[replication]\nreplicas = 2\n", "replication.replicas: 1 to 1 is allowed with 2", TWO.into()),
            ("[replication]\nreplicas = 0\n", "replication.replicas: 1 to 1 is allowed with 2", TWO.into()),
            ("[cluster]\nhosts = 2\n", "cluster.hosts: several shards", TWO.into()),
            ("[cluster]\nlisten = \"127.0.0.1:7000\"\n", "cluster.listen: several shards", TWO.into()),
            ("[cluster]\ncontroller = \"127.0.0.1:7771\"\n", "cluster.controller: several shards", TWO.into()),
            ("[cluster]\nmachine = \"a\"\n", "cluster.machine: several shards", TWO.into()),
        ];
        for (more, expected, shards) in cases {
            let wrong = load(&format!("{shards}{more}")).unwrap_err();
            assert!(wrong[0].starts_with(expected), "{more}{shards}: {wrong:?}");
        }
        let wrong = load(&format!("{TWO}[state]\nlocation = \"redis\"\n")).unwrap_err();
        assert!(wrong.iter().any(|line| line.starts_with("pools.shards: only contexts in shared memory")), "{wrong:?}");
    }
}
