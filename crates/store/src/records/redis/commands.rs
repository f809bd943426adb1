//! The commands of records, and what their answers come to.

use crate::Version;
use crate::records::{Change, Name, RecordError, StoredRecord};
use redis::{Connection, Pipeline, RedisError, ServerError, ServerErrorKind, Value};
use std::time::Duration;

/// Puts fields where the version is as expected, and has the record's life begin. ARGV: the version that is to be found ("" = no
/// record), the next one, "1" if all that was there goes, milliseconds, names and values. Answers 1; 0 for another version, -1 for
/// what is no record. The key is there from the first write on: one that a script deletes and makes again would be lost where its
/// slot is moving to another node.
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
/// Takes a record out whose version is as expected.
const REMOVE: &str = "local v=redis.call('HGET',KEYS[1],'_version') \
                      if not v or v~=ARGV[1] then return 0 end \
                      redis.call('UNLINK',KEYS[1]) return 1";
/// The field of the version, in decimal digits.
const VERSION: &str = "_version";
/// The field of what a record holds that is a whole.
const OCTETS: &str = "_octets";

/// What a server calls the scripts that it was given, so that they need not be sent with each commit.
#[derive(Clone, Debug)]
pub(super) struct Scripts {
    commit: String,
    remove: String,
}

impl Scripts {
    /// Gives them to a server.
    pub(super) fn load(connection: &mut Connection) -> Result<Self, RedisError> {
        let mut scripts = redis::pipe();
        scripts.cmd("SCRIPT").arg("LOAD").arg(COMMIT).cmd("SCRIPT").arg("LOAD").arg(REMOVE);
        let (commit, remove) = scripts.query(connection)?;
        Ok(Scripts { commit, remove })
    }
}

/// Keys that a database looks through in one go when it is asked for all of a collection.
const LOOKED_THROUGH: u32 = 1000;

/// What the keys of these records are, and how long they live.
#[derive(Clone, Debug)]
pub(super) struct Keys {
    prefix: String,
    /// Milliseconds.
    life: u64,
}

impl Keys {
    pub(super) fn new(prefix: &str, life: Duration) -> Self {
        Keys { prefix: prefix.to_owned(), life: u64::try_from(life.as_millis()).unwrap_or(u64::MAX).max(1) }
    }

    /// What a record is called there. Records of one number are at one node of a cluster, so that a script may have several.
    pub(super) fn key(&self, name: Name) -> String {
        format!("{}:{}:{{{:x}}}", self.prefix, name.collection, name.id)
    }

    /// The numbers of a collection's records at one node; one may be there twice.
    pub(super) fn numbers(&self, collection: &str, connection: &mut Connection) -> Result<Vec<u64>, RedisError> {
        let beginning = format!("{}:{collection}:{{", self.prefix);
        let (mut cursor, mut numbers) = (0, Vec::new());
        loop {
            let mut scan = redis::cmd("SCAN");
            scan.arg(cursor).arg("MATCH").arg(pattern(&beginning)).arg("COUNT").arg(LOOKED_THROUGH);
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

    /// Has the record's life begin anew: a write that changes nothing.
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

/// What finds the keys that begin like this (the patterns of SCAN).
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

/// Names the run of a server and the history of its data: the first is new when the server starts, the second when it follows
/// another server, or a replica has taken its place. Both are the same as long as the server has forgotten no write.
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

/// Each once.
pub(super) fn once(mut numbers: Vec<u64>) -> Vec<u64> {
    numbers.sort_unstable();
    numbers.dedup();
    numbers
}

/// The record that was loaded.
pub(super) fn found(value: Value) -> Result<Option<StoredRecord>, RecordError> {
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

/// What has become of a change.
pub(super) fn changed(answer: Value, change: &Change<'_>) -> Result<Version, RecordError> {
    match answer {
        Value::Int(1) => Ok(change.result()),
        Value::Int(0) => Err(RecordError::Conflict),
        Value::ServerError(error) => Err(refused_by(&error)),
        _ => Err(RecordError::NotARecord),
    }
}

/// What an error of the server comes to; old servers have the code of what a script met in the text.
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

/// What an error of a question as a whole comes to.
pub(super) fn refused(error: &RedisError) -> RecordError {
    match error.code() {
        Some("OOM") => RecordError::Full,
        Some("WRONGTYPE") => RecordError::NotARecord,
        _ => RecordError::Down(error.to_string()),
    }
}

/// Where a node of a cluster sends who asks it for what another has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Redirect {
    /// There for good.
    Moved(String),
    /// There this once, announced by ASKING.
    Ask(String),
    /// Nowhere now: nothing was done.
    TryAgain(String),
}

impl Redirect {
    /// What a server's error says of this; `None` for one that has another reason.
    pub(super) fn of(error: &ServerError, asked: &str) -> Option<Self> {
        let node = || {
            let node = error.details().and_then(|text| text.split(' ').nth(1)).unwrap_or_default();
            // A node that knows no name of the other means: the host that was asked.
            let host = asked.rsplit_once(':').map_or(asked, |(host, _)| host);
            if node.starts_with(':') { format!("{host}{node}") } else { node.to_owned() }
        };
        match error.kind()? {
            ServerErrorKind::Moved => Some(Redirect::Moved(node())),
            ServerErrorKind::Ask => Some(Redirect::Ask(node())),
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
