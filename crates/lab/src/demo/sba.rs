//! `--chain sba --state ...`: SBA mode with external state, and kills of its parts.
//!
//! AMF, SMF and UPF keep state in shared memory or in a database that the demo starts. `--kill`
//! kills one process in mid-run:
//!
//! - SMF or UPF: restarts at once, as under a supervisor, and continues with the stored state.
//! - AMF: of two AMFs behind a balancer, which terminates N2, the other AMF takes over.
//! - Master: of the Redis Cluster; its replica takes over.
//!
//! With `--scope`, network functions share the records of UEs.

use crate::Lab;
use crate::core::Core;
use crate::mongodb::{self, Mongodb};
use crate::redis::Redis;
use crate::redis_cluster::RedisCluster;
use clap::ValueEnum;
use std::time::{Duration, Instant};
use vireo_config::Failure;
use vireo_ops::sbi::Encoding;
use vireo_ops::state::HAS_MONGODB;

/// Location of the state of AMF, SMF and UPF.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum StateBackend {
    /// Use shared memory: the AMF that of its workers, SMF and UPF files
    Shm,
    /// Use one Redis server
    Redis,
    /// Use a Redis Cluster of three masters with confirming replicas
    ///
    /// Each master has one replica, which confirms commits.
    RedisCluster,
    /// Use FerretDB on PostgreSQL (MongoDB protocol)
    ///
    /// Needs a program built with --features mongodb.
    Mongodb,
}

/// Points at which state is loaded and committed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum PersistMode {
    /// Load and commit at each transaction
    Transaction,
    /// Load at the first and commit at the last transaction of a procedure
    Procedure,
}

/// Network functions that share the record of a UE.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum Scope {
    /// Share no records
    Function,
    /// Share among AMF and SMF: the SMF commits for both
    AmfSmf,
    /// Share among AMF, SMF and UPF: the SMF commits for all
    All,
}

/// Encoding of SBI messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum Sbi {
    /// Encode as JSON, per 3GPP
    Json,
    /// Encode as gRPC
    Grpc,
}

impl From<Sbi> for Encoding {
    fn from(sbi: Sbi) -> Self {
        match sbi {
            Sbi::Json => Encoding::Json,
            Sbi::Grpc => Encoding::Grpc,
        }
    }
}

/// Condition that a commit waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum WriteMode {
    /// Wait until the database has stored the commit
    Blocking,
    /// Do not wait, except for the SMF's commits
    NonBlocking,
}

impl WriteMode {
    /// Returns the loss that is inherent in the mode if `victim` is killed, if any.
    pub(super) fn loses_with(self, victim: KillTarget) -> Option<&'static str> {
        (self == WriteMode::NonBlocking && matches!(victim, KillTarget::Amf | KillTarget::Upf)).then_some(
            "--write non-blocking: what the one that was killed had said and not written is lost with it (docs/state-modes.md)",
        )
    }
}

/// Process to kill.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum KillTarget {
    /// Kill the SMF
    Smf,
    /// Kill the UPF
    Upf,
    /// Kill one of two AMFs
    Amf,
    /// Kill a master of the Redis Cluster
    Master,
}

impl KillTarget {
    /// Returns the number of AMFs behind a balancer; 0 means one AMF that terminates N2.
    pub(super) const fn amfs(self) -> u8 {
        match self {
            KillTarget::Smf | KillTarget::Upf | KillTarget::Master => 0,
            KillTarget::Amf => 2,
        }
    }
}

/// Running database. Dropping it kills its processes.
#[derive(Debug)]
pub(super) enum Database {
    Redis(#[expect(dead_code, reason = "it is there as long as this is")] Redis),
    Cluster(RedisCluster),
    Mongodb(#[expect(dead_code, reason = "it is there as long as this is")] Mongodb),
}

impl StateBackend {
    /// Returns an error if the backend is unavailable or has no such process to kill.
    pub(super) fn check(self, kill: Option<KillTarget>) -> Result<(), Failure> {
        match (self, kill) {
            (StateBackend::Shm, Some(KillTarget::Amf)) => Err(Failure(
                "--kill amf is of two AMFs that go on with each other's UEs, which they find in a database: --state redis".into(),
            )),
            (StateBackend::Shm | StateBackend::Redis | StateBackend::Mongodb, Some(KillTarget::Master)) => {
                Err(Failure("--kill master is of a database with replicas: --state redis-cluster".into()))
            }
            (StateBackend::Mongodb, _) if !HAS_MONGODB => Err(Failure(
                "--state mongodb needs a program with MongoDB's driver: build it with --features mongodb".into(),
            )),
            _ => Ok(()),
        }
    }

    /// Starts the database of the backend, if it has one.
    pub(super) fn start(self, lab: &Lab) -> Result<Option<Database>, Failure> {
        Ok(Some(match self {
            StateBackend::Shm => return Ok(None),
            StateBackend::Redis => Database::Redis(Redis::start(lab, &[])?),
            StateBackend::RedisCluster => Database::Cluster(RedisCluster::start(lab)?),
            StateBackend::Mongodb => Database::Mongodb(Mongodb::start(lab)?),
        }))
    }

    /// Returns the configuration tables of the backend.
    pub(super) fn tables(self, persist: PersistMode, scope: Scope, write: WriteMode) -> String {
        let preset = match (persist, scope) {
            _ if write == WriteMode::NonBlocking => "non-blocking",
            (PersistMode::Transaction, Scope::Function) => "transactional",
            (PersistMode::Transaction, Scope::AmfSmf) => "shared-amf-smf",
            (PersistMode::Transaction, Scope::All) => "shared",
            (PersistMode::Procedure, _) => "procedural",
        };
        match self {
            // The lab's own `/tmp`, which is in memory.
            StateBackend::Shm => "[state]\npreset = \"shm\"\ndatabase = \"shm:///tmp/records\"\n".to_owned(),
            StateBackend::Redis => format!("[state]\npreset = {preset:?}\n"),
            // Clients wait longer than an election takes on a busy machine.
            StateBackend::RedisCluster => format!(
                "[state]\npreset = {preset:?}\ndatabase = {:?}\nconfirm = 1\n\n[sbi]\ntimeout = \"5s\"\n",
                RedisCluster::url()
            ),
            StateBackend::Mongodb => format!("[state]\npreset = {preset:?}\ndatabase = {:?}\n", mongodb::URL),
        }
    }
}

/// Adds further keys to the `[state]` table.
pub(super) fn with_axes(tables: String, axes: &str) -> String {
    let state = "[state]\n";
    let rest = tables.strip_prefix(state).unwrap_or(&tables);
    if axes.is_empty() { tables } else { format!("{state}{axes}{rest}") }
}

/// Kills one process at a given time.
#[derive(Debug)]
pub(super) struct KillPlan {
    victim: KillTarget,
    due: Option<Instant>,
    /// Time at which a master was killed, until a replica is promoted, and time of the last check.
    vacant: Option<(Instant, Instant)>,
    /// Time without a master.
    pub(super) vacancy: Option<Duration>,
}

/// Interval between checks for a promoted replica.
const ASKED_EVERY: Duration = Duration::from_millis(50);

impl KillPlan {
    /// Creates a plan that kills after `after`.
    pub(super) fn new(victim: KillTarget, after: Duration) -> Self {
        KillPlan { victim, due: Some(Instant::now() + after), vacant: None, vacancy: None }
    }

    /// Kills the process if due, or checks for a promoted replica.
    pub(super) fn work(&mut self, lab: &Lab, core: &mut Core, database: Option<&mut Database>) -> Result<(), Failure> {
        if self.due.take_if(|due| Instant::now() >= *due).is_some() {
            match (self.victim, database) {
                (KillTarget::Smf, _) => core.kill_sba_process(lab, "smf")?,
                (KillTarget::Upf, _) => core.kill_sba_process(lab, "upf")?,
                (KillTarget::Amf, _) => core.kill_amf()?,
                (KillTarget::Master, Some(Database::Cluster(cluster))) => {
                    cluster.kill_master()?;
                    self.vacant = Some((Instant::now(), Instant::now()));
                }
                (KillTarget::Master, _) => return Err(Failure("there is no master".into())),
            }
        } else if let Some((since, asked)) = &mut self.vacant
            && asked.elapsed() > ASKED_EVERY
        {
            *asked = Instant::now();
            let waited = since.elapsed();
            if RedisCluster::is_replaced(lab)? {
                (self.vacant, self.vacancy) = (None, Some(waited));
            }
        }
        Ok(())
    }

    /// Returns true if the kill has happened.
    pub(super) fn is_done(&self) -> bool {
        self.due.is_none()
    }

    /// Returns the number of killed AMFs whose UEs other AMFs took over.
    pub(super) fn amfs(&self) -> u64 {
        u64::from(self.is_done() && self.victim == KillTarget::Amf)
    }
}
