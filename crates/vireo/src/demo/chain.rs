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
pub(super) enum State {
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
pub(super) enum Persist {
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
pub(super) enum Write {
    /// The database has them
    Blocking,
    /// Nothing, but for the SMF's
    NonBlocking,
}

impl Write {
    /// What may be lost with this one, and nothing is wrong then.
    pub(super) fn loses_with(self, victim: Victim) -> Option<&'static str> {
        (self == Write::NonBlocking && matches!(victim, Victim::Amf | Victim::Upf)).then_some(
            "--write non-blocking: what the one that was killed had said and not written is lost with it (docs/state-modes.md)",
        )
    }
}

/// Who is killed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum Victim {
    /// The SMF
    Smf,
    /// The UPF
    Upf,
    /// One of two AMFs
    Amf,
    /// A master of the Redis Cluster
    Master,
}

impl Victim {
    /// AMFs behind a balancer that it takes; 0 = one with N2 itself.
    pub(super) const fn amfs(self) -> u8 {
        match self {
            Victim::Smf | Victim::Upf | Victim::Master => 0,
            Victim::Amf => 2,
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

impl State {
    /// Fails where it cannot be, or has nobody to kill.
    pub(super) fn check(self, kill: Option<Victim>) -> Result<(), Failure> {
        match (self, kill) {
            (State::Shm, Some(Victim::Amf)) => Err(Failure(
                "--kill amf is of two AMFs that go on with each other's UEs, which they find in a database: --state redis".into(),
            )),
            (State::Shm | State::Redis | State::Mongodb, Some(Victim::Master)) => {
                Err(Failure("--kill master is of a database with replicas: --state redis-cluster".into()))
            }
            (State::Mongodb, _) if !HAS_MONGODB => Err(Failure(
                "--state mongodb needs a program with MongoDB's driver: build it with --features mongodb".into(),
            )),
            _ => Ok(()),
        }
    }

    /// Starts what it needs.
    pub(super) fn start(self, lab: &Lab) -> Result<Option<Database>, Failure> {
        Ok(Some(match self {
            State::Shm => return Ok(None),
            State::Redis => Database::Redis(Redis::start(lab, &[])?),
            State::RedisCluster => Database::Cluster(RedisCluster::start(lab)?),
            State::Mongodb => Database::Mongodb(Mongodb::start(lab)?),
        }))
    }

    /// The tables of the configuration.
    pub(super) fn tables(self, persist: Persist, scope: Scope, write: Write) -> String {
        let preset = match (persist, scope) {
            _ if write == Write::NonBlocking => "non-blocking",
            (Persist::Transaction, Scope::Function) => "transactional",
            (Persist::Transaction, Scope::AmfSmf) => "shared-amf-smf",
            (Persist::Transaction, Scope::All) => "shared",
            (Persist::Procedure, _) => "procedural",
        };
        match self {
            // The laboratory's own, which is memory.
            State::Shm => "[state]\npreset = \"shm\"\ndatabase = \"shm:///tmp/records\"\n".to_owned(),
            State::Redis => format!("[state]\npreset = {preset:?}\n"),
            // Who asks waits for longer than an election takes on a busy machine.
            State::RedisCluster => format!(
                "[state]\npreset = {preset:?}\ndatabase = {:?}\nconfirm = 1\n\n[sbi]\ntimeout = \"5s\"\n",
                RedisCluster::url()
            ),
            State::Mongodb => format!("[state]\npreset = {preset:?}\ndatabase = {:?}\n", mongodb::URL),
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
pub(super) struct Kill {
    victim: Victim,
    due: Option<Instant>,
    /// A master was killed then, and nobody is in its place; and when that was asked last.
    vacant: Option<(Instant, Instant)>,
    /// For how long nobody was.
    pub(super) vacancy: Option<Duration>,
}

/// How often it is asked whether a replica is a master.
const ASKED_EVERY: Duration = Duration::from_millis(50);

impl Kill {
    /// One is killed after so long.
    pub(super) fn new(victim: Victim, after: Duration) -> Self {
        Kill { victim, due: Some(Instant::now() + after), vacant: None, vacancy: None }
    }

    /// Does it if it is time.
    pub(super) fn work(&mut self, lab: &Lab, core: &mut Core, database: Option<&mut Database>) -> Result<(), Failure> {
        if self.due.take_if(|due| Instant::now() >= *due).is_some() {
            match (self.victim, database) {
                (Victim::Smf, _) => core.kill_function(lab, "smf")?,
                (Victim::Upf, _) => core.kill_function(lab, "upf")?,
                (Victim::Amf, _) => core.kill_amf()?,
                (Victim::Master, Some(Database::Cluster(cluster))) => {
                    cluster.kill_master()?;
                    self.vacant = Some((Instant::now(), Instant::now()));
                }
                (Victim::Master, _) => return Err(Failure("there is no master".into())),
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
        u64::from(self.is_done() && self.victim == Victim::Amf)
    }
}
