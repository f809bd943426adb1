//! Redis commands and scripts of records, and the decoding of their answers.

use crate::Version;
use crate::records::{Change, Name, RecordError, StoredRecord};
use redis::{Connection, Pipeline, RedisError, ServerError, ServerErrorKind, Value};
use std::time::Duration;

/// Script that sets fields if the version is as expected, and restarts the lifetime of the record.
///
/// ARGV: the expected version ("" = no record), the next version, "1" to replace all fields, the
/// lifetime in milliseconds, then names and values. It answers 1 if done, 0 for another version, -1
/// if the key holds no record. The key exists from the first write on. A key that a script deletes
/// and creates again would be lost while its slot migrates to another node.
const COMMIT: &str = "local v=redis.call('HGET',KEYS[1],'_version') \
                      if not v and redis.call('EXISTS',KEYS[1])==1 then return -1 end \
                      if (v or '')~=ARGV[1] then return 0 end \
                      redis.call('HSET',KEYS[1],'_version',ARGV[2],unpack(ARGV,5)) \
                      redis.call('PEXPIRE',KEYS[1],ARGV[4]) \
                      if ARGV[3]=='1' and redis.call('HLEN',KEYS[1])~=(#ARGV-2)/2 then \
                        local new={_version=1} for i=5,#ARGV,2 do new[ARGV[i]]=1 end \
                        for _,f in ipairs(redis.call('HKEYS',KEYS[1])) do \
                          if not new[f] then redis.call('HDEL',KEYS[1],f) end end end \
                      return 1";
/// Script that removes a record if its version is as expected.
const REMOVE: &str = "local v=redis.call('HGET',KEYS[1],'_version') \
                      if not v or v~=ARGV[1] then return 0 end \
                      redis.call('UNLINK',KEYS[1]) return 1";
/// Field of the version, in decimal digits.
const VERSION: &str = "_version";
/// Field of the contents of a whole record.
const OCTETS: &str = "_octets";

/// Digests of the loaded scripts, so that commits need not send the script text.
#[derive(Clone, Debug)]
pub(super) struct Scripts {
    commit: String,
    remove: String,
}

impl Scripts {
    /// Loads the scripts into a server.
    pub(super) fn load(connection: &mut Connection) -> Result<Self, RedisError> {
        let mut scripts = redis::pipe();
        scripts.cmd("SCRIPT").arg("LOAD").arg(COMMIT).cmd("SCRIPT").arg("LOAD").arg(REMOVE);
        let (commit, remove) = scripts.query(connection)?;
        Ok(Scripts { commit, remove })
    }
}

/// Keys that a server scans for each SCAN request of a collection listing.
const SCAN_COUNT: u32 = 1000;

/// Key format and lifetime of the records.
#[derive(Clone, Debug)]
pub(super) struct Keys {
    prefix: String,
    /// Lifetime of a record in milliseconds.
    life: u64,
}

impl Keys {
    pub(super) fn new(prefix: &str, life: Duration) -> Self {
        Keys { prefix: prefix.to_owned(), life: u64::try_from(life.as_millis()).unwrap_or(u64::MAX).max(1) }
    }

    /// Returns the Redis key of a record.
    ///
    /// All records of one number are at one node of a cluster, so that a script may access several.
    pub(super) fn key(&self, name: Name) -> String {
        format!("{}:{}:{{{:x}}}", self.prefix, name.collection, name.id)
    }

    /// Lists the numbers of a collection's records at one node, possibly with duplicates.
    pub(super) fn numbers(&self, collection: &str, connection: &mut Connection) -> Result<Vec<u64>, RedisError> {
        let beginning = format!("{}:{collection}:{{", self.prefix);
        let (mut cursor, mut numbers) = (0, Vec::new());
        loop {
            let mut scan = redis::cmd("SCAN");
            scan.arg(cursor).arg("MATCH").arg(pattern(&beginning)).arg("COUNT").arg(SCAN_COUNT);
            let (next, keys): (u64, Vec<String>) = scan.query(connection)?;
            let number = |key: &String| u64::from_str_radix(key.strip_prefix(&beginning)?.strip_suffix('}')?, 16).ok();
            numbers.extend(keys.iter().filter_map(number));
            cursor = next;
            if cursor == 0 {
                return Ok(numbers);
            }
        }
    }

    pub(super) fn load(&self, pipeline: &mut Pipeline, name: Name) {
        pipeline.cmd("HGETALL").arg(self.key(name));
    }

    /// Adds a command that restarts the lifetime of a record: a write that changes no contents.
    pub(super) fn touch(&self, pipeline: &mut Pipeline, name: Name) {
        pipeline.cmd("PEXPIRE").arg(self.key(name)).arg(self.life);
    }

    pub(super) fn change(&self, pipeline: &mut Pipeline, scripts: &Scripts, name: Name, change: &Change<'_>) {
        let key = self.key(name);
        let expected = match change.expected() {
            0 if !change.removes() => String::new(),
            version => version.to_string(),
        };
        if change.removes() {
            pipeline.cmd("EVALSHA").arg(&scripts.remove).arg(1).arg(key).arg(expected);
            return;
        }
        let command = pipeline.cmd("EVALSHA").arg(&scripts.commit).arg(1).arg(key).arg(expected).arg(change.result());
        command.arg(u8::from(change.is_whole())).arg(self.life);
        if let Some(octets) = change.octets() {
            command.arg(OCTETS).arg(octets);
        }
        for part in change.parts() {
            command.arg(part.name).arg(part.octets);
        }
    }
}

/// Returns the SCAN pattern of keys with this prefix.
fn pattern(beginning: &str) -> String {
    let mut pattern = String::with_capacity(beginning.len() + 1);
    for c in beginning.chars() {
        if matches!(c, '*' | '?' | '[' | ']' | '\\') {
            pattern.push('\\');
        }
        pattern.push(c);
    }
    pattern + "*"
}

/// Returns the identity of a server's run and of its data history.
///
/// The run changes when the server starts. The history changes when the server follows another
/// server, or a replica is promoted. While both stay the same, the server has lost no write.
pub(super) fn incarnation(connection: &mut Connection) -> Result<Option<String>, RedisError> {
    let (mut run, mut history) = (None, None);
    for section in ["server", "replication"] {
        let info: String = redis::cmd("INFO").arg(section).query(connection)?;
        let value = |field: &str| info.lines().find_map(|line| Some(line.strip_prefix(field)?.trim().to_owned()));
        run = run.or_else(|| value("run_id:"));
        history = history.or_else(|| value("master_replid:"));
    }
    Ok(run.zip(history).map(|(run, history)| format!("{run}/{history}")))
}

/// Sorts the numbers and removes duplicates.
pub(super) fn once(mut numbers: Vec<u64>) -> Vec<u64> {
    numbers.sort_unstable();
    numbers.dedup();
    numbers
}

/// Decodes the answer to a load.
pub(super) fn decode_record(value: Value) -> Result<Option<StoredRecord>, RecordError> {
    if let Value::ServerError(error) = &value {
        return Err(refused_by(error));
    }
    let fields: Vec<(String, Vec<u8>)> = redis::from_redis_value(value).map_err(|_| RecordError::NotARecord)?;
    if fields.is_empty() {
        return Ok(None);
    }
    let mut found = StoredRecord::default();
    for (name, octets) in fields {
        match &name[..] {
            VERSION => found.version = version(&octets).ok_or(RecordError::NotARecord)?,
            OCTETS => found.octets = octets,
            _ => found.parts.push((name, octets)),
        }
    }
    if found.version == 0 { Err(RecordError::NotARecord) } else { Ok(Some(found)) }
}

fn version(digits: &[u8]) -> Option<Version> {
    std::str::from_utf8(digits).ok()?.parse().ok()
}

/// Decodes the answer to a change.
pub(super) fn changed(answer: Value, change: &Change<'_>) -> Result<Version, RecordError> {
    match answer {
        Value::Int(1) => Ok(change.result()),
        Value::Int(0) => Err(RecordError::Conflict),
        Value::ServerError(error) => Err(refused_by(&error)),
        _ => Err(RecordError::NotARecord),
    }
}

/// Converts an error of the server. Old servers have the error code of a script only in the text.
pub(super) fn refused_by(error: &ServerError) -> RecordError {
    let says = |word: &str| error.code() == word || error.details().is_some_and(|text| text.contains(word));
    if says("OOM") {
        RecordError::Full
    } else if says("WRONGTYPE") {
        RecordError::NotARecord
    } else {
        RecordError::Down(error.to_string())
    }
}

/// Converts an error of a whole request.
pub(super) fn refused(error: &RedisError) -> RecordError {
    match error.code() {
        Some("OOM") => RecordError::Full,
        Some("WRONGTYPE") => RecordError::NotARecord,
        _ => RecordError::Down(error.to_string()),
    }
}

/// Redirection by a cluster node that does not serve the key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Redirect {
    /// MOVED: permanently, to this node.
    Moved(String),
    /// ASK: for this request only, to this node, preceded by ASKING.
    Once(String),
    /// No node serves the key at present. Nothing was done.
    TryAgain(String),
}

impl Redirect {
    /// Returns the redirection of a server error; `None` for other errors.
    pub(super) fn from_error(error: &ServerError, sent_to: &str) -> Option<Self> {
        let node = || {
            let node = error.details().and_then(|text| text.split(' ').nth(1)).unwrap_or_default();
            // An empty host in the answer means the host of the asked node.
            let host = sent_to.rsplit_once(':').map_or(sent_to, |(host, _)| host);
            if node.starts_with(':') { format!("{host}{node}") } else { node.to_owned() }
        };
        match error.kind()? {
            ServerErrorKind::Moved => Some(Redirect::Moved(node())),
            ServerErrorKind::Ask => Some(Redirect::Once(node())),
            ServerErrorKind::TryAgain
            | ServerErrorKind::ClusterDown
            | ServerErrorKind::MasterDown
            | ServerErrorKind::ReadOnly
            | ServerErrorKind::NoScript
            | ServerErrorKind::BusyLoading => Some(Redirect::TryAgain(error.to_string())),
            _ => None,
        }
    }
}
