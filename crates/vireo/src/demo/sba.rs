//! `--chain sba --state shm|redis|redis-cluster|mongodb`: the functions of a service-based chain keep their state in shared memory, or in
//! a database, which is started for it, and `--kill`: one of them is killed amid the run. An SMF is started again at once, as whoever supervises it
//! would, and goes on with what is there; of two AMFs behind a balancer, which has N2, the other one goes on. Or a master of
//! the database is killed, and its replica follows it. With `--scope` functions share the records of UEs.

use crate::cli::Failure;
use crate::lab::Lab;
use crate::lab::core::Core;
use crate::lab::mongodb::{self, Mongodb};
use crate::lab::redis::Redis;
use crate::lab::redis_cluster::RedisCluster;
use clap::ValueEnum;
use std::time::{Duration, Instant};
use vireo_node::sbi::Encoding;
use vireo_node::state::HAS_MONGODB;

/// Where the functions keep their state.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum StateBackend {
    /// In shared memory: the AMF in that of its workers, SMF and UPF in files
    Shm,
    /// In a Redis
    Redis,
    /// In a Redis Cluster of three masters, each with a replica that confirms what is committed
    RedisCluster,
    /// In FerretDB on PostgreSQL, which speaks MongoDB's protocol; of a program built with --features mongodb
    Mongodb,
}

/// When they load it from there and commit it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum PersistMode {
    /// At each transaction
    Transaction,
    /// At the first and the last of a procedure
    Procedure,
}

/// Which functions share the record of a UE.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum Scope {
    /// None
    Function,
    /// AMF and SMF: the SMF commits for both
    AmfSmf,
    /// AMF, SMF and UPF: the SMF commits for all
    All,
}

/// How the functions say what they ask each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum Sbi {
    /// JSON, as 3GPP has it
    Json,
    /// gRPC
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

/// What their commits wait for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum WriteMode {
    /// The database has them
    Blocking,
    /// Nothing, but for the SMF's
    NonBlocking,
}

impl WriteMode {
    /// What may be lost with this one, and nothing is wrong then.
    pub(super) fn loses_with(self, victim: KillTarget) -> Option<&'static str> {
        (self == WriteMode::NonBlocking && matches!(victim, KillTarget::Amf | KillTarget::Upf)).then_some(
            "--write non-blocking: what the one that was killed had said and not written is lost with it (docs/state-modes.md)",
        )
    }
}

/// Who is killed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum KillTarget {
    /// The SMF
    Smf,
    /// The UPF
    Upf,
    /// One of two AMFs
    Amf,
    /// A master of the Redis Cluster
    Master,
}

impl KillTarget {
    /// AMFs behind a balancer that it takes; 0 = one with N2 itself.
    pub(super) const fn amfs(self) -> u8 {
        match self {
            KillTarget::Smf | KillTarget::Upf | KillTarget::Master => 0,
            KillTarget::Amf => 2,
        }
    }
}

/// A database that runs. Dropping it kills it.
#[derive(Debug)]
pub(super) enum Database {
    Redis(#[expect(dead_code, reason = "it is there as long as this is")] Redis),
    Cluster(RedisCluster),
    Mongodb(#[expect(dead_code, reason = "it is there as long as this is")] Mongodb),
}

impl StateBackend {
    /// Fails where it cannot be, or has nobody to kill.
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

    /// Starts what it needs.
    pub(super) fn start(self, lab: &Lab) -> Result<Option<Database>, Failure> {
        Ok(Some(match self {
            StateBackend::Shm => return Ok(None),
            StateBackend::Redis => Database::Redis(Redis::start(lab, &[])?),
            StateBackend::RedisCluster => Database::Cluster(RedisCluster::start(lab)?),
            StateBackend::Mongodb => Database::Mongodb(Mongodb::start(lab)?),
        }))
    }

    /// The tables of the configuration.
    pub(super) fn tables(self, persist: PersistMode, scope: Scope, write: WriteMode) -> String {
        let preset = match (persist, scope) {
            _ if write == WriteMode::NonBlocking => "non-blocking",
            (PersistMode::Transaction, Scope::Function) => "transactional",
            (PersistMode::Transaction, Scope::AmfSmf) => "shared-amf-smf",
            (PersistMode::Transaction, Scope::All) => "shared",
            (PersistMode::Procedure, _) => "procedural",
        };
        match self {
            // The laboratory's own, which is memory.
            StateBackend::Shm => "[state]\npreset = \"shm\"\ndatabase = \"shm:///tmp/records\"\n".to_owned(),
            StateBackend::Redis => format!("[state]\npreset = {preset:?}\n"),
            // Who asks waits for longer than an election takes on a busy machine.
            StateBackend::RedisCluster => format!(
                "[state]\npreset = {preset:?}\ndatabase = {:?}\nconfirm = 1\n\n[sbi]\ntimeout = \"5s\"\n",
                RedisCluster::url()
            ),
            StateBackend::Mongodb => format!("[state]\npreset = {preset:?}\ndatabase = {:?}\n", mongodb::URL),
        }
    }
}

/// The tables with further axes of the state.
pub(super) fn with_axes(tables: String, axes: &str) -> String {
    let state = "[state]\n";
    let rest = tables.strip_prefix(state).unwrap_or(&tables);
    if axes.is_empty() { tables } else { format!("{state}{axes}{rest}") }
}

/// Kills somebody.
#[derive(Debug)]
pub(super) struct KillPlan {
    victim: KillTarget,
    due: Option<Instant>,
    /// A master was killed then, and nobody is in its place; and when that was asked last.
    vacant: Option<(Instant, Instant)>,
    /// For how long nobody was.
    pub(super) vacancy: Option<Duration>,
}

/// How often it is asked whether a replica is a master.
const ASKED_EVERY: Duration = Duration::from_millis(50);

impl KillPlan {
    /// One is killed after so long.
    pub(super) fn new(victim: KillTarget, after: Duration) -> Self {
        KillPlan { victim, due: Some(Instant::now() + after), vacant: None, vacancy: None }
    }

    /// Does it if it is time.
    pub(super) fn work(&mut self, lab: &Lab, core: &mut Core, database: Option<&mut Database>) -> Result<(), Failure> {
        if self.due.take_if(|due| Instant::now() >= *due).is_some() {
            match (self.victim, database) {
                (KillTarget::Smf, _) => core.kill_function(lab, "smf")?,
                (KillTarget::Upf, _) => core.kill_function(lab, "upf")?,
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

    /// Whether it was done.
    pub(super) fn is_done(&self) -> bool {
        self.due.is_none()
    }

    /// AMFs that were killed, and that others went on for.
    pub(super) fn amfs(&self) -> u64 {
        u64::from(self.is_done() && self.victim == KillTarget::Amf)
    }
}
