//! Records in a Redis Cluster.
//!
//! Each master has a connection of its own. WAIT can thus follow the commits of a pipeline on the
//! same connection. A commit counts when the configured number of replicas have it; it then
//! survives the failure of its master. (The cluster connection of the `redis` crate sends WAIT
//! separately, and repeats unacknowledged commits.)
//!
//! A node may report an operation as not done: another node has the slot, or the cluster is
//! electing a master. Such an operation is retried with growing pauses until the timeout. A load is
//! also retried after a lost connection. A commit fails with [`RecordError::OutcomeUnknown`] if its
//! answer is lost or too few replicas confirm it. The next load of that record then waits for the
//! replicas like a commit. So its result cannot be rolled back either.

use super::commands::{self, Keys, Redirect};
use super::link::{LinkConfig, RedisConnection};
use super::map::SlotMap;
use crate::Version;
use crate::records::backoff::FIRST_PAUSE;
use crate::records::{Change, DatabaseTls, Name, Operations, RecordError, RecordStore, StoredRecord};
use redis::Value;
use rustc_hash::{FxHashMap, FxHashSet};
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// Maximum pause between two attempts.
const MAX_PAUSE: Duration = Duration::from_millis(200);
/// Interval of slot map requests while a master has too few replicas.
const REPLICA_POLL_INTERVAL: Duration = Duration::from_secs(1);
/// Maximum number of records whose unconfirmed commit is remembered.
const UNSURE: usize = 65_536;

/// Address of a cluster, and the condition for a commit to count.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RedisClusterConfig {
    /// `HOST:PORT` of some of its nodes; they report the others.
    pub nodes: Vec<String>,
    /// Timeout of an operation, including all its attempts.
    pub timeout: Duration,
    /// Number of replicas that must have a commit before it counts (WAIT).
    pub confirm: u16,
    /// True to accept fewer replicas if the cluster reports fewer for the master, as after a
    /// failure. If false, the outcome of commits is unknown until there are enough replicas again.
    pub accepts_fewer: bool,
    /// TLS of the connections to all nodes; `None`: no TLS.
    pub tls: Option<DatabaseTls>,
}

impl RedisClusterConfig {
    /// Returns the connection options of a node.
    fn link(&self, node: &str, timeout: Duration) -> LinkConfig {
        let scheme = if self.tls.is_some() { "rediss" } else { "redis" };
        LinkConfig { url: format!("{scheme}://{node}"), timeout, tls: self.tls.clone().unwrap_or_default() }
    }
}

/// Handle of the records in a Redis Cluster.
#[derive(Debug)]
pub struct RedisCluster {
    config: RedisClusterConfig,
    keys: Keys,
    map: SlotMap,
    /// True if the slot map must be requested before the next attempt.
    stale: bool,
    /// Time of the last slot map request.
    map_requested_at: Option<Instant>,
    /// Index of the node that answered the last slot map request.
    turn: usize,
    links: FxHashMap<String, RedisConnection>,
    /// Connections for slot map requests, with a shorter timeout.
    scouts: FxHashMap<String, RedisConnection>,
    unsure: UnconfirmedRecords,
    operations: Operations,
}

/// Records whose current contents might not survive a failure of their master.
#[derive(Debug, Default)]
struct UnconfirmedRecords {
    names: FxHashSet<Name>,
    /// True if there were too many names: every record counts as unconfirmed.
    all: bool,
}

impl UnconfirmedRecords {
    fn add(&mut self, name: Name) {
        if self.names.len() < UNSURE {
            self.names.insert(name);
        } else {
            self.all = true;
        }
    }

    fn has(&self, name: Name) -> bool {
        self.all || self.names.contains(&name)
    }
}

/// An operation on a record.
#[derive(Clone, Copy, Debug)]
enum Operation<'a> {
    Load,
    Change(&'a Change<'a>),
}

/// Result of an operation.
#[derive(Clone, Debug)]
enum Answer {
    Found(Option<StoredRecord>),
    Version(Version),
}

/// An operation and its progress.
#[derive(Debug)]
struct Item<'a> {
    name: Name,
    operation: Operation<'a>,
    /// Node of the last redirection, and whether ASKING must precede the request.
    sent_to: Option<(String, bool)>,
    done: Option<Result<Answer, RecordError>>,
    /// Failure of the last attempt.
    reason: RecordError,
}

impl<'a> Item<'a> {
    fn new(name: Name, operation: Operation<'a>) -> Self {
        let reason = RecordError::Down("no node of the cluster has answered".into());
        Item { name, operation, sent_to: None, done: None, reason }
    }
}

impl RedisCluster {
    /// Creates a handle for records with this key prefix and lifetime.
    pub fn new(config: RedisClusterConfig, prefix: &str, life: Duration) -> Self {
        RedisCluster {
            config,
            keys: Keys::new(prefix, life),
            map: SlotMap::default(),
            stale: true,
            map_requested_at: None,
            turn: 0,
            links: FxHashMap::default(),
            scouts: FxHashMap::default(),
            unsure: UnconfirmedRecords::default(),
            operations: Operations::default(),
        }
    }

    /// Executes operations in one or more attempts.
    fn run<'a>(&mut self, mut items: Vec<Item<'a>>) -> Vec<Result<Answer, RecordError>> {
        let until = Instant::now() + self.config.timeout;
        let (mut pause, mut sent_on) = (FIRST_PAUSE, 0);
        loop {
            self.refresh_map();
            self.attempt(&mut items);
            if items.iter().all(|item| item.done.is_some()) {
                break;
            }
            // Redirected operations are repeated at once in the first four attempts; later attempts
            // pause first.
            let waits = items.iter().any(|item| item.done.is_none() && item.sent_to.is_none());
            sent_on += 1;
            if waits || sent_on > 4 {
                if Instant::now() + pause >= until {
                    break;
                }
                std::thread::sleep(pause);
                pause = (pause * 2).min(MAX_PAUSE);
            }
        }
        items.into_iter().map(|item| item.done.unwrap_or(Err(item.reason))).collect()
    }

    /// Makes one attempt of all pending operations, node by node.
    fn attempt(&mut self, items: &mut [Item<'_>]) {
        let mut nodes: BTreeMap<String, Vec<usize>> = BTreeMap::new();
        for (index, item) in items.iter_mut().enumerate().filter(|(_, item)| item.done.is_none()) {
            let node = match &item.sent_to {
                Some((node, _)) => Some(node.clone()),
                None => self.map.master(&self.keys.key(item.name)).map(|(node, _)| node.to_owned()),
            };
            match node {
                Some(node) => nodes.entry(node).or_default().push(index),
                None => self.stale = true,
            }
        }
        for (node, indexes) in nodes {
            self.attempt_at(&node, &indexes, items);
        }
    }

    /// Returns the number of replicas of a node that a commit waits for.
    fn required_replicas(&self, node: &str) -> u16 {
        let there = if self.config.accepts_fewer { self.map.replicas(node) } else { u16::MAX };
        self.config.confirm.min(there)
    }

    fn attempt_at(&mut self, node: &str, indexes: &[usize], items: &mut [Item<'_>]) {
        let sent = || indexes.iter().map(|index| &items[*index]);
        let unsure = |item: &Item<'_>| matches!(item.operation, Operation::Load) && self.unsure.has(item.name);
        let writes = sent().any(|item| matches!(item.operation, Operation::Change(_)) || unsure(item));
        let required_replicas = if writes { self.required_replicas(node) } else { 0 };
        self.operations.round_trips += 1;
        let config = self.config.link(node, self.config.timeout);
        let link = self.links.entry(node.to_owned()).or_insert_with(|| RedisConnection::new(config));
        let answers = link.request_with_scripts(|connection, scripts| {
            let mut pipeline = redis::pipe();
            pipeline.ignore_errors();
            for item in sent() {
                if item.sent_to.as_ref().is_some_and(|(_, asking)| *asking) {
                    pipeline.cmd("ASKING").ignore();
                }
                if unsure(item) {
                    self.keys.touch(&mut pipeline, item.name);
                    pipeline.ignore();
                }
                match item.operation {
                    Operation::Load => self.keys.load(&mut pipeline, item.name),
                    Operation::Change(change) => self.keys.change(&mut pipeline, scripts, item.name, change),
                }
            }
            if required_replicas > 0 {
                // WAIT must end before the timeout of the answer.
                let wait = (self.config.timeout * 3 / 4).as_millis().max(1) as u64;
                pipeline.cmd("WAIT").arg(required_replicas).arg(wait);
            }
            pipeline.query(connection)
        });
        match answers {
            Ok(mut answers) => {
                let confirmed = required_replicas == 0
                    || matches!(answers.pop(), Some(Value::Int(n)) if n >= i64::from(required_replicas));
                self.stale |= !confirmed;
                for (index, answer) in indexes.iter().zip(answers) {
                    self.on_answer(&mut items[*index], answer, node, confirmed);
                }
            }
            Err(error) => {
                self.stale = true;
                indexes.iter().for_each(|index| self.on_failure(&mut items[*index], &error));
            }
        }
    }

    /// Handles the answer of a node to an operation.
    fn on_answer(&mut self, item: &mut Item<'_>, answer: Value, node: &str, confirmed: bool) {
        item.sent_to = None;
        if let Value::ServerError(error) = &answer {
            match Redirect::from_error(error, node) {
                Some(Redirect::Moved(to)) => {
                    (item.sent_to, self.stale) = (Some((to, false)), true);
                    return;
                }
                Some(Redirect::Once(to)) => {
                    item.sent_to = Some((to, true));
                    return;
                }
                Some(Redirect::TryAgain(reason)) => {
                    (item.reason, self.stale) = (RecordError::Down(reason), true);
                    return;
                }
                None => {}
            }
        }
        let done = match item.operation {
            Operation::Load => commands::decode_record(answer).map(Answer::Found),
            Operation::Change(change) => commands::changed(answer, change).map(Answer::Version),
        };
        let matters = matches!(item.operation, Operation::Change(_)) || self.unsure.has(item.name);
        item.done = Some(match done {
            Ok(_) if matters && !confirmed => {
                self.unsure.add(item.name);
                let text = "fewer replicas than are wanted have confirmed it";
                Err(RecordError::OutcomeUnknown(text.into()))
            }
            Ok(answer) => {
                self.unsure.names.remove(&item.name);
                Ok(answer)
            }
            Err(error) => Err(error),
        });
    }

    /// Handles a failed request to a node.
    fn on_failure(&mut self, item: &mut Item<'_>, error: &RecordError) {
        item.sent_to = None;
        item.reason = error.clone();
        if let (Operation::Change(_), RecordError::OutcomeUnknown(_)) = (item.operation, error) {
            self.unsure.add(item.name);
            item.done = Some(Err(error.clone()));
        }
    }

    /// Requests the slot map if it is outdated, or if missing replicas may be back.
    fn refresh_map(&mut self) {
        let missing = self.config.confirm > 0
            && self.map.nodes.iter().any(|node| self.map.lacks_replicas(node, self.config.confirm));
        let due = self.map_requested_at.is_none_or(|at| at.elapsed() > REPLICA_POLL_INTERVAL);
        if !(self.stale || (missing && due)) {
            return;
        }
        self.map_requested_at = Some(Instant::now());
        let known = self.map.nodes.iter().chain(&self.config.nodes).cloned().collect::<Vec<_>>();
        for _ in 0..known.len() {
            self.turn = (self.turn + 1) % known.len();
            let node = &known[self.turn];
            let config = self.config.link(node, self.config.timeout / 4);
            let scout = self.scouts.entry(node.clone()).or_insert_with(|| RedisConnection::new(config));
            let mut question = redis::cmd("CLUSTER");
            let answer = scout.request(|connection| question.arg("SLOTS").query::<Value>(connection));
            if let Some(map) = answer.ok().and_then(|answer| SlotMap::parse(&answer, node)) {
                (self.map, self.stale) = (map, false);
                let nodes = &self.map.nodes;
                self.links.retain(|node, _| nodes.contains(node));
                self.scouts.retain(|node, _| nodes.contains(node) || self.config.nodes.contains(node));
                return;
            }
        }
    }
}

impl RecordStore for RedisCluster {
    fn load(&mut self, names: &[Name]) -> Result<Vec<Option<StoredRecord>>, RecordError> {
        self.operations.reads += names.len() as u64;
        let found = |answer| match answer {
            Ok(Answer::Found(found)) => Ok(found),
            Ok(Answer::Version(_)) => Err(RecordError::NotARecord),
            Err(error) => Err(error),
        };
        self.run(names.iter().map(|name| Item::new(*name, Operation::Load)).collect()).into_iter().map(found).collect()
    }

    fn change(&mut self, changes: &[(Name, Change<'_>)]) -> Vec<Result<Version, RecordError>> {
        self.operations.changed(changes);
        let version = |answer| match answer {
            Ok(Answer::Version(version)) => Ok(version),
            Ok(Answer::Found(_)) => Err(RecordError::NotARecord),
            Err(error) => Err(error),
        };
        let items = changes.iter().map(|(name, change)| Item::new(*name, Operation::Change(change))).collect();
        self.run(items).into_iter().map(version).collect()
    }

    /// Lists the records of all masters. Records in a migrating slot may be missed, so the scan is
    /// repeated if the slot map has changed meanwhile.
    fn list_ids(&mut self, collection: &'static str) -> Result<Vec<u64>, RecordError> {
        let until = Instant::now() + self.config.timeout;
        loop {
            self.stale = true;
            self.refresh_map();
            let (before, mut numbers) = (self.map.clone(), Vec::new());
            for node in before.masters() {
                self.operations.round_trips += 1;
                let config = self.config.link(node, self.config.timeout);
                let link = self.links.entry(node.to_owned()).or_insert_with(|| RedisConnection::new(config));
                let keys = &self.keys;
                numbers.extend(link.request(|connection| keys.numbers(collection, connection))?);
            }
            self.stale = true;
            self.refresh_map();
            if !self.stale && self.map == before {
                return Ok(commands::once(numbers));
            }
            if Instant::now() >= until {
                return Err(RecordError::Down("the nodes of the cluster do not agree who has what".into()));
            }
            std::thread::sleep(FIRST_PAUSE);
        }
    }

    /// Returns the incarnations of all masters: an elected master may lack the last commits of its
    /// predecessor.
    fn incarnation(&mut self) -> Result<Option<String>, RecordError> {
        self.stale = true;
        self.refresh_map();
        if self.stale {
            return Err(RecordError::Down("no node of the cluster has answered".into()));
        }
        let masters: Vec<String> = self.map.masters().map(str::to_owned).collect();
        let mut all = Vec::with_capacity(masters.len());
        for node in masters {
            self.operations.round_trips += 1;
            let config = self.config.link(&node, self.config.timeout);
            let link = self.links.entry(node).or_insert_with(|| RedisConnection::new(config));
            match link.request(commands::incarnation)? {
                Some(incarnation) => all.push(incarnation),
                None => return Ok(None),
            }
        }
        all.sort_unstable();
        Ok(Some(all.join(" ")))
    }

    fn operations(&self) -> Operations {
        self.operations
    }
}
