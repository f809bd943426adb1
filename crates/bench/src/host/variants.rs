//! Configurations of NFs and workers that the host benchmark compares.

/// A configuration of the host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Variant {
    pub(super) name: &'static str,
    /// Tables of the configuration file.
    pub(super) tables: &'static str,
}

/// Disables overload rejection while capacity remains. The load is bounded, and stalls of the
/// machine are not measured.
pub(crate) const UNSHED: &str = "\n[overload]\nstart = 1.0\nregistrations = 1.0\nothers = 1.0\n";

/// Default configuration: NFs by slice and procedure, one worker per slice, contexts in shared
/// memory.
pub(super) const POOLS: Variant = Variant { name: "pools", tables: "" };

/// Default configuration with eight NFs per worker.
pub(super) const EIGHT: Variant = Variant { name: "8 NFs in a worker", tables: "[pools]\nnfs-per-worker = 8\n" };

/// Default configuration with one process per NF.
pub(super) const PROCESSES: Variant = Variant { name: "process per NF", tables: "[pools]\nnfs-per-worker = 1\n" };

/// Default NFs on the thread of the host, without worker processes.
pub(super) const INLINE: Variant = Variant { name: "inline", tables: "[pools]\nworker-model = \"inline\"\n" };

/// One NF for all procedures in one worker, contexts in shared memory.
pub(super) const SHARED: Variant =
    Variant { name: "unified, shared memory", tables: "[pools]\nkey = \"wildcard\"\nworkers = 1\n" };

/// One NF in one worker with the contexts in the worker's memory: the baseline for the cost of
/// commits.
pub(super) const STATEFUL: Variant = Variant {
    name: "unified, stateful",
    tables: "[pools]\nkey = \"wildcard\"\nworkers = 1\n\n[state]\nlocation = \"memory\"\n",
};

#[cfg(test)]
mod tests {
    use super::*;
    use vireo_config::Config;
    use vireo_lab::options::CoreOptions;
    use vireo_lab::provision::config;
    use vireo_ops::config::{PoolKey, StateLocation, WorkerModel};

    #[test]
    fn every_variant_configuration_is_accepted() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("vireo.toml");
        let read = |variant: Variant| {
            let options = CoreOptions { tables: format!("{}{UNSHED}", variant.tables), ..CoreOptions::default() };
            std::fs::write(&path, config(&options)).unwrap();
            Config::load(Some(&path)).unwrap_or_else(|e| panic!("{}: {e}", variant.name))
        };
        assert_eq!((read(POOLS).pools.key, read(POOLS).pools.nfs_per_worker), (PoolKey::SliceProcedure, 16));
        assert_eq!(read(EIGHT).pools.nfs_per_worker, 8);
        assert_eq!(read(PROCESSES).pools.nfs_per_worker, 1);
        assert_eq!(read(INLINE).pools.worker_model, WorkerModel::Inline);
        let (shared, stateful) = (read(SHARED), read(STATEFUL));
        assert_eq!(shared.pools, stateful.pools);
        assert_eq!((shared.pools.key, shared.pools.workers), (PoolKey::Wildcard, 1));
        assert_eq!((shared.state.location, stateful.state.location), (StateLocation::Shm, StateLocation::Memory));
    }
}
