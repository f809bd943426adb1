//! Records in Redis: one hash for each record.
//!
//! The fields of a hash are the version, and the contents of a whole record or the parts. A commit
//! is one script that compares and sets. Several operations are sent in one pipeline.

mod cluster;
mod commands;
mod link;
mod map;

pub use cluster::{RedisCluster, RedisClusterConfig};
pub use link::{LinkConfig, RedisConnection};

use super::{Change, Name, Operations, RecordError, RecordStore, StoredRecord};
use crate::Version;
use commands::Keys;
use redis::Value;
use std::time::Duration;

/// Records in one Redis server.
#[derive(Debug)]
pub struct RedisRecords {
    link: RedisConnection,
    keys: Keys,
    operations: Operations,
}

impl RedisRecords {
    /// Creates a handle for records with this key prefix and lifetime.
    pub fn new(config: LinkConfig, prefix: &str, life: Duration) -> Self {
        RedisRecords {
            link: RedisConnection::new(config),
            keys: Keys::new(prefix, life),
            operations: Operations::default(),
        }
    }
}

impl RecordStore for RedisRecords {
    fn load(&mut self, names: &[Name]) -> Result<Vec<Option<StoredRecord>>, RecordError> {
        let mut pipeline = redis::pipe();
        pipeline.ignore_errors();
        names.iter().for_each(|name| self.keys.load(&mut pipeline, *name));
        self.operations.reads += names.len() as u64;
        self.operations.round_trips += 1;
        let values: Vec<Value> = self.link.request(|connection| pipeline.query(connection))?;
        values.into_iter().map(commands::decode_record).collect()
    }

    fn change(&mut self, changes: &[(Name, Change<'_>)]) -> Vec<Result<Version, RecordError>> {
        self.operations.changed(changes);
        self.operations.round_trips += 1;
        let keys = &self.keys;
        let answers = self.link.request_with_scripts(|connection, scripts| {
            let mut pipeline = redis::pipe();
            // The result of one change does not affect the others.
            pipeline.ignore_errors();
            changes.iter().for_each(|(name, change)| keys.change(&mut pipeline, scripts, *name, change));
            pipeline.query(connection)
        });
        let answers = match answers {
            Ok(answers) => answers,
            Err(error) => return changes.iter().map(|_| Err(error.clone())).collect(),
        };
        answers.into_iter().zip(changes).map(|(answer, (_, change))| commands::changed(answer, change)).collect()
    }

    fn list_ids(&mut self, collection: &'static str) -> Result<Vec<u64>, RecordError> {
        self.operations.round_trips += 1;
        let keys = &self.keys;
        self.link.request(|connection| keys.numbers(collection, connection)).map(commands::once)
    }

    fn incarnation(&mut self) -> Result<Option<String>, RecordError> {
        self.operations.round_trips += 1;
        self.link.request(commands::incarnation)
    }

    fn operations(&self) -> Operations {
        self.operations
    }
}
