//! Records in Redis: a key for each, its value the version in four octets and what the record holds. A commit is one script that
//! compares and sets; several operations go in one pipeline.

use super::{Change, Found, Name, Operations, RecordError, Records, next_version};
use crate::Version;
use redis::{Client, Connection, ErrorKind, RedisError, ServerErrorKind, Value};
use std::time::{Duration, Instant};

/// How long after a failure the database is asked again; doubled with each further one.
const AGAIN_AFTER: Duration = Duration::from_millis(20);
/// The longest of these times.
const AGAIN_AT_LAST: Duration = Duration::from_secs(2);

/// Sets a record whose version is as expected, and has its life begin. ARGV: the version's octets as they are to be found ("" =
/// no record), the new value, milliseconds.
const COMMIT: &str = "if redis.call('GETRANGE',KEYS[1],0,3)~=ARGV[1] then return 0 end \
                      redis.call('SET',KEYS[1],ARGV[2],'PX',ARGV[3]) return 1";
/// Takes a record out whose version is as expected.
const REMOVE: &str = "if redis.call('GETRANGE',KEYS[1],0,3)~=ARGV[1] then return 0 end \
                      redis.call('UNLINK',KEYS[1]) return 1";

/// How a database is reached.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LinkConfig {
    /// `redis://HOST:PORT` or `redis+unix:///PATH`.
    pub url: String,
    /// How long an answer is waited for.
    pub patience: Duration,
}

/// A connection that is made when it is needed, and again after an error, with growing pauses in between.
pub struct Link {
    config: LinkConfig,
    connection: Option<Connection>,
    /// After a failure: when it is tried again, and the pause after the next one.
    pause: Option<(Instant, Duration)>,
}

impl std::fmt::Debug for Link {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Link").field("connected", &self.connection.is_some()).finish_non_exhaustive()
    }
}

impl Link {
    /// A way that is not taken yet.
    pub fn new(config: LinkConfig) -> Self {
        Link { config, connection: None, pause: None }
    }

    fn connect(&self) -> Result<Connection, RedisError> {
        let patience = self.config.patience;
        let connection = Client::open(self.config.url.as_str())?.get_connection_with_timeout(patience)?;
        connection.set_read_timeout(Some(patience))?;
        connection.set_write_timeout(Some(patience))?;
        Ok(connection)
    }

    /// Asks by a connection.
    ///
    /// # Errors
    ///
    /// [`RecordError::Down`] without asking, for a moment after a failure.
    pub fn ask<T>(&mut self, ask: impl FnOnce(&mut Connection) -> Result<T, RedisError>) -> Result<T, RecordError> {
        let now = Instant::now();
        if let Some((until, _)) = self.pause.filter(|(until, _)| *until > now) {
            let left = until.duration_since(now).as_millis();
            return Err(RecordError::Down(format!("it is asked again in {left} ms")));
        }
        let mut connection = match self.connection.take() {
            Some(connection) => connection,
            None => self.connect().map_err(|error| self.failed(RecordError::Down(error.to_string())))?,
        };
        match ask(&mut connection) {
            Ok(answer) => {
                (self.connection, self.pause) = (Some(connection), None);
                Ok(answer)
            }
            // The connection is sound, and whatever it was asked was refused.
            Err(error) if error.kind() != ErrorKind::Io && !error.is_connection_dropped() => {
                self.connection = Some(connection);
                Err(refused(&error))
            }
            // What was under way on it may come yet: it is not used any more.
            Err(error) => Err(self.failed(RecordError::Silent(error.to_string()))),
        }
    }

    /// The database is left alone for a moment.
    fn failed(&mut self, error: RecordError) -> RecordError {
        let pause = self.pause.map_or(AGAIN_AFTER, |(_, pause)| (pause * 2).min(AGAIN_AT_LAST));
        self.pause = Some((Instant::now() + pause, pause));
        error
    }
}

/// What an error of the database comes to.
fn refused(error: &RedisError) -> RecordError {
    match error.code() {
        Some("OOM") => RecordError::Full,
        Some("WRONGTYPE") => RecordError::Stranger,
        _ if error.kind() == ErrorKind::Server(ServerErrorKind::ResponseError) => RecordError::Down(error.to_string()),
        _ => RecordError::Down(error.to_string()),
    }
}

/// Records in a Redis.
#[derive(Debug)]
pub struct RedisRecords {
    link: Link,
    /// What the keys of these records begin with.
    prefix: String,
    /// Milliseconds.
    life: u64,
    operations: Operations,
}

impl RedisRecords {
    /// The records of a database whose keys begin like this, and that live so long.
    pub fn new(config: LinkConfig, prefix: &str, life: Duration) -> Self {
        let life = u64::try_from(life.as_millis()).unwrap_or(u64::MAX).max(1);
        RedisRecords { link: Link::new(config), prefix: prefix.to_owned(), life, operations: Operations::default() }
    }

    /// What a record is called there. Records of one number are at one node of a cluster.
    fn key(&self, name: Name) -> String {
        format!("{}:{}:{{{:x}}}", self.prefix, name.collection, name.id)
    }
}

/// The version's octets as a value has them; none is a record's that is not there.
fn version_octets(version: Version) -> Vec<u8> {
    if version == 0 { Vec::new() } else { version.to_be_bytes().to_vec() }
}

fn found(value: Vec<u8>) -> Result<Found, RecordError> {
    let (version, octets) = value.split_first_chunk().ok_or(RecordError::Stranger)?;
    Ok(Found { version: Version::from_be_bytes(*version), octets: octets.to_vec() })
}

impl Records for RedisRecords {
    fn load(&mut self, names: &[Name]) -> Result<Vec<Option<Found>>, RecordError> {
        let mut pipeline = redis::pipe();
        for name in names {
            pipeline.cmd("GET").arg(self.key(*name));
        }
        self.operations.reads += names.len() as u64;
        self.operations.round_trips += 1;
        let values: Vec<Option<Vec<u8>>> = self.link.ask(|connection| pipeline.query(connection))?;
        values.into_iter().map(|value| value.map(found).transpose()).collect()
    }

    fn change(&mut self, changes: &[(Name, Change<'_>)]) -> Vec<Result<Version, RecordError>> {
        let mut pipeline = redis::pipe();
        // What becomes of one says nothing of the others.
        pipeline.ignore_errors();
        for (name, change) in changes {
            let key = self.key(*name);
            match change {
                Change::Commit { expected, octets } => {
                    let value = [&next_version(*expected).to_be_bytes()[..], octets].concat();
                    let command = pipeline.cmd("EVAL").arg(COMMIT).arg(1).arg(key);
                    command.arg(version_octets(*expected)).arg(value).arg(self.life);
                    self.operations.writes += 1;
                }
                Change::Remove { expected } => {
                    // Nothing has version 0: it is never found.
                    let expected = if *expected == 0 { vec![0; 4] } else { version_octets(*expected) };
                    pipeline.cmd("EVAL").arg(REMOVE).arg(1).arg(key).arg(expected);
                    self.operations.removals += 1;
                }
            }
        }
        self.operations.round_trips += 1;
        let answers: Vec<Value> = match self.link.ask(|connection| pipeline.query(connection)) {
            Ok(answers) => answers,
            Err(error) => return changes.iter().map(|_| Err(error.clone())).collect(),
        };
        let of = |(answer, (_, change)): (Value, &(Name, Change<'_>))| match answer {
            Value::Int(1) => Ok(match change {
                Change::Commit { expected, .. } => next_version(*expected),
                Change::Remove { .. } => 0,
            }),
            Value::Int(_) => Err(RecordError::Conflict),
            Value::ServerError(error)
                if error.details().is_some_and(|text| text.contains("OOM")) || error.code() == "OOM" =>
            {
                Err(RecordError::Full)
            }
            Value::ServerError(error) if error.code() == "WRONGTYPE" => Err(RecordError::Stranger),
            Value::ServerError(error) => Err(RecordError::Down(format!("{error:?}"))),
            _ => Err(RecordError::Stranger),
        };
        answers.into_iter().zip(changes).map(of).collect()
    }

    fn operations(&self) -> Operations {
        self.operations
    }
}
