//! Contexts in a database that all workers share (`state.location = "redis"`): the core with a central store that the design
//! is compared with (seed 1, section 7.1; transactional statelessness of seed 3). Each step reads its UE's context from
//! there and writes it there before its effects leave; nothing is kept in between.
//!
//! The region still says of each UE which input was carried out last, and holds what that wants done. A worker that dies
//! between the two writes is found out by the next one: the database is ahead of the region, and what is stored there is
//! what has to be done.
//!
//! With [`StatePersist::Procedure`] that is at the first and the last step of a procedure, and the worker keeps the context in
//! between: if it dies then, the procedure is lost with it, and the UE goes on from what it was before, or begins anew.

use serde::{Deserialize, Serialize};
use std::time::Duration;
use vireo_core::config::StatePersist;
use vireo_store::records::{Link, LinkConfig, RecordError};
use vireo_store::region::Slot;
use vireo_types::Instant;

/// What the region has in the place of a context that is in the database.
pub(crate) const ELSEWHERE: &[u8] = &[0xff];

/// How long a worker waits for the database before its step is void.
const PATIENCE: Duration = Duration::from_secs(1);

/// Where it is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct CentralConfig {
    /// A URL.
    pub(crate) database: String,
    /// The key of the hash that has this host's UEs by their slots.
    pub(crate) key: String,
    /// When.
    pub(crate) persist: StatePersist,
}

/// A UE as the database has it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Stored {
    /// The input that was carried out last.
    pub(super) consumed: u64,
    pub(super) deadline: Option<Instant>,
    pub(super) pin: u64,
    /// What it wants done.
    #[serde(with = "serde_bytes")]
    pub(super) outbox: Vec<u8>,
    /// Empty: the context is gone.
    #[serde(with = "serde_bytes")]
    pub(super) context: Vec<u8>,
}

/// Why a context is not to be had, or not stored.
#[derive(Debug, thiserror::Error)]
pub enum CentralError {
    /// The database.
    #[error("the database of contexts (state.database) does not answer: {0}")]
    Database(#[from] RecordError),
    /// What it has.
    #[error(
        "the database of contexts (state.database) has something else than a context: is it another program's too?"
    )]
    Stranger,
    /// It has not what was stored.
    #[error(
        "the database of contexts (state.database) has lost a UE: was it emptied, or does it let go of what is old?"
    )]
    Lost,
}

/// A worker's way to the database.
pub(super) struct Central {
    config: CentralConfig,
    link: Link,
}

impl std::fmt::Debug for Central {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Central").field("config", &self.config).finish_non_exhaustive()
    }
}

/// A way that gives up in time.
fn link(config: &CentralConfig) -> Link {
    Link::new(LinkConfig { url: config.database.clone(), patience: PATIENCE })
}

/// Whether the database answers.
pub(crate) fn check(config: &CentralConfig) -> Result<(), CentralError> {
    let _: String = link(config).ask(|connection| redis::cmd("PING").query(connection))?;
    Ok(())
}

/// The host ends: its contexts go.
pub(crate) fn clear(config: &CentralConfig) -> Result<(), CentralError> {
    let _: u64 = link(config).ask(|connection| redis::cmd("UNLINK").arg(&config.key).query(connection))?;
    Ok(())
}

impl Central {
    pub(super) fn new(config: CentralConfig) -> Self {
        Central { link: link(&config), config }
    }

    fn ask<T: redis::FromRedisValue>(&mut self, command: &redis::Cmd) -> Result<T, RecordError> {
        self.link.ask(|connection| command.query(connection))
    }

    /// What there is of a UE.
    pub(super) fn read(&mut self, slot: Slot) -> Result<Option<Stored>, CentralError> {
        let command = command("HGET", &self.config, slot);
        let octets: Option<Vec<u8>> = self.ask(&command)?;
        let stored = |octets: Vec<u8>| postcard::from_bytes(&octets).map_err(|_| CentralError::Stranger);
        octets.map(stored).transpose()
    }

    /// Stores a UE.
    pub(super) fn write(&mut self, slot: Slot, stored: &Stored) -> Result<(), CentralError> {
        let octets = postcard::to_stdvec(stored).map_err(|_| CentralError::Stranger)?;
        let mut command = command("HSET", &self.config, slot);
        let _: u64 = self.ask(command.arg(octets))?;
        Ok(())
    }

    /// Lets a UE go.
    pub(super) fn forget(&mut self, slot: Slot) -> Result<(), CentralError> {
        let command = command("HDEL", &self.config, slot);
        let _: u64 = self.ask(&command)?;
        Ok(())
    }
}

fn command(name: &str, config: &CentralConfig, slot: Slot) -> redis::Cmd {
    let mut command = redis::cmd(name);
    command.arg(&config.key).arg(slot.number());
    command
}
