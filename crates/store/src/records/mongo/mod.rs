//! Records in MongoDB, or in a database with its protocol.
//!
//! A record is a document in the collection of its name, with the version, the expiry and the parts
//! as fields. JSON parts are stored as BSON of the same structure, which an operator can read and
//! query. A commit is one update whose filter contains the version.
//!
//! A document counts as removed after its expiry, by the clock of the client. A TTL index deletes
//! it later. Where a server has no TTL index, the clients delete it when they write.
//!
//! MongoDB applies an update of a document atomically. FerretDB 1 reads and writes in two steps.
//! There, several concurrent commits of one record may all be reported as successful (measured: 200
//! of 73). It is suitable where a record has one writer at a time, as a UE has except during a
//! takeover, and for experiments.

mod document;
mod errors;

use super::backoff::Backoff;
use super::{Change, Format, Name, Operations, RecordError, RecordStore, StoredRecord};
use crate::Version;
use document::{Shape, key};
use errors::Failure;
use mongodb::bson::{DateTime, Document, doc};
use mongodb::options::{Acknowledgment, ClientOptions, IndexOptions};
use mongodb::{Client, Collection, Database, IndexModel};
use rustc_hash::FxHashMap;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};
use tokio::runtime::{Builder, Runtime};

/// Interval at which a client deletes expired documents, where the server does not.
const SWEEP: Duration = Duration::from_secs(60);

/// Maximum number of concurrent changes.
const MAX_CONCURRENT: usize = 32;

/// Address and options of a database.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MongoConfig {
    /// `mongodb://HOST:PORT,HOST:PORT/?OPTIONS`; the options include the write concern.
    pub url: String,
    /// Database that contains the collections.
    pub database: String,
    /// Timeout of an operation.
    pub timeout: Duration,
    /// Encoding of the parts: JSON is stored as BSON, other formats as bytes.
    pub format: Format,
}

/// Records in MongoDB. Further handles ([`MongoRecords::another`]) share its connections.
#[derive(Debug)]
pub struct MongoRecords {
    runtime: Arc<Runtime>,
    database: Database,
    timeout: Duration,
    life: Duration,
    shape: Shape,
    /// Prepared collections, with the time of the last sweep where the server has no TTL index.
    known: FxHashMap<&'static str, Option<Instant>>,
    pause: Backoff,
    operations: Operations,
}

/// Command of a change to its collection.
enum MongoCommand {
    Remove {
        there: Document,
    },
    Update {
        there: Document,
        update: Document,
    },
    /// Replaces the matching document, or inserts one if `is_new`.
    Put {
        there: Document,
        whole: Document,
        is_new: bool,
    },
}

impl MongoCommand {
    /// Executes the command. Returns the number of additional requests, and whether a document
    /// matched.
    async fn execute(self, collection: &Collection<Document>) -> (u64, Result<bool, Failure>) {
        let mut more = 0;
        let done = match self {
            MongoCommand::Remove { there } => collection.delete_one(there).await.map(|done| done.deleted_count),
            MongoCommand::Update { there, update } => {
                collection.update_one(there, update).await.map(|done| done.matched_count)
            }
            MongoCommand::Put { there, whole, is_new } => {
                if is_new {
                    let inserted = collection.insert_one(&whole).await.map(|_| true).map_err(errors::from_change);
                    if !matches!(inserted, Err(Failure::Exists)) {
                        return (more, inserted);
                    }
                    // The existing document may have expired.
                    more += 1;
                }
                collection.replace_one(there, whole).await.map(|done| done.matched_count)
            }
        };
        (more, done.map(|count| count == 1).map_err(errors::from_change))
    }
}

/// Returns the runtime, whose thread serves all connections of the process.
fn runtime() -> std::io::Result<Arc<Runtime>> {
    static RUNTIME: OnceLock<Arc<Runtime>> = OnceLock::new();
    if let Some(runtime) = RUNTIME.get() {
        return Ok(runtime.clone());
    }
    let runtime = Builder::new_multi_thread().worker_threads(1).thread_name("mongodb").enable_all().build()?;
    Ok(RUNTIME.get_or_init(|| Arc::new(runtime)).clone())
}

impl MongoRecords {
    /// Creates a handle for the records of a database, with the lifetime `life`. It sends no
    /// request.
    ///
    /// # Errors
    ///
    /// Returns [`RecordError::Down`] if the URL is invalid.
    pub fn new(config: &MongoConfig, life: Duration) -> Result<Self, RecordError> {
        let down = |error: &dyn std::fmt::Display| RecordError::Down(error.to_string());
        let runtime = runtime().map_err(|e| down(&e))?;
        let client = runtime.block_on(async {
            let mut options = ClientOptions::parse(&config.url).await?;
            options.server_selection_timeout = Some(config.timeout);
            options.connect_timeout = Some(config.timeout);
            // The caller handles lost answers, because it compares versions.
            options.retry_writes = Some(false);
            Client::with_options(options)
        });
        let database = client.map_err(|e| down(&e))?.database(&config.database);
        Ok(MongoRecords {
            runtime,
            database,
            timeout: config.timeout,
            life,
            shape: Shape { format: config.format },
            known: FxHashMap::default(),
            pause: Backoff::default(),
            operations: Operations::default(),
        })
    }

    /// Creates a further handle of the same store.
    pub fn another(&self) -> Self {
        MongoRecords {
            runtime: self.runtime.clone(),
            database: self.database.clone(),
            known: self.known.clone(),
            pause: Backoff::default(),
            operations: Operations::default(),
            ..*self
        }
    }

    fn collection(&self, name: &str) -> Collection<Document> {
        self.database.collection(name)
    }

    /// Executes a request with a time limit.
    fn request<T>(&mut self, until: Instant, question: impl Future<Output = Result<T, Failure>>) -> Result<T, Failure> {
        self.pause.check().map_err(Failure::Record)?;
        self.operations.round_trips += 1;
        let left = until.saturating_duration_since(Instant::now());
        // Created inside the runtime, which the timer needs.
        let request = async { tokio::time::timeout(left, question).await };
        let answer = self.runtime.block_on(request).unwrap_or_else(|_| {
            Err(Failure::Record(RecordError::OutcomeUnknown("it takes longer than is waited for".into())))
        });
        match &answer {
            Err(Failure::Record(RecordError::Down(_) | RecordError::OutcomeUnknown(_))) => self.pause.extend(),
            _ => self.pause.reset(),
        }
        answer
    }

    /// Has expired documents deleted: by a TTL index, or periodically by this client where the
    /// server has none.
    fn sweep(&mut self, name: &'static str, until: Instant) -> Result<(), RecordError> {
        let collection = self.collection(name);
        match self.known.get(name) {
            Some(Some(last)) if last.elapsed() > SWEEP => {
                let ended = doc! { document::EXPIRES: { "$lte": DateTime::now() } };
                let swept =
                    self.request(until, async { collection.delete_many(ended).await.map_err(errors::from_load) });
                swept.map_err(Failure::record)?;
                self.known.insert(name, Some(Instant::now()));
            }
            Some(_) => {}
            None => {
                let options = IndexOptions::builder().expire_after(Duration::ZERO).build();
                let index = IndexModel::builder().keys(doc! { document::EXPIRES: 1 }).options(options).build();
                let made =
                    self.request(until, async { collection.create_index(index).await.map_err(errors::from_load) });
                let sweeps = match made {
                    Ok(_) => None,
                    Err(Failure::Unknown) => Some(Instant::now()),
                    Err(failure) => return Err(failure.record()),
                };
                self.known.insert(name, sweeps);
            }
        }
        Ok(())
    }

    /// Returns the end of a lifetime that begins now.
    fn end_of_life(&self) -> DateTime {
        let life = i64::try_from(self.life.as_millis()).unwrap_or(i64::MAX);
        DateTime::from_millis(DateTime::now().timestamp_millis().saturating_add(life))
    }

    /// Returns the command of a change.
    fn question(&mut self, until: Instant, name: Name, change: &Change<'_>) -> Result<MongoCommand, RecordError> {
        self.sweep(name.collection, until)?;
        self.pause.check()?;
        let (id, expires) = (key(name), self.end_of_life());
        let there = document::filter(id, change.expected());
        Ok(match change {
            Change::Remove { .. } => MongoCommand::Remove { there },
            Change::Update { expected: 1.., parts } => {
                let fields = document::set(self.shape.fields(parts)?, change.result(), expires);
                MongoCommand::Update { there, update: doc! { "$set": fields } }
            }
            _ => {
                let whole = self.shape.whole(id, change, expires)?;
                MongoCommand::Put { there, whole, is_new: change.expected() == 0 }
            }
        })
    }

    /// Executes changes concurrently and returns their results.
    fn change_together(&mut self, changes: &[(Name, Change<'_>)]) -> Vec<Result<Version, RecordError>> {
        let until = Instant::now() + self.timeout;
        let mut request = Vec::with_capacity(changes.len());
        for (name, change) in changes {
            let question = self.question(until, *name, change);
            let collection = self.collection(name.collection);
            let left = until.saturating_duration_since(Instant::now());
            // Created inside the runtime, which the timer needs.
            request.push(question.map(|question| {
                self.runtime.spawn(async move { tokio::time::timeout(left, question.execute(&collection)).await })
            }));
        }
        let mut works = None;
        let mut results = Vec::with_capacity(changes.len());
        for (task, (_, change)) in request.into_iter().zip(changes) {
            results.push(task.and_then(|task| {
                self.operations.round_trips += 1;
                let silent = |text: &str| Failure::Record(RecordError::OutcomeUnknown(text.into()));
                let answer = match self.runtime.block_on(task) {
                    Ok(Ok((more, answer))) => {
                        self.operations.round_trips += more;
                        answer
                    }
                    Ok(Err(_)) => Err(silent("it takes longer than is waited for")),
                    Err(_) => Err(silent("its driver has failed")),
                };
                let lost =
                    matches!(&answer, Err(Failure::Record(RecordError::Down(_) | RecordError::OutcomeUnknown(_))));
                works = Some(works.unwrap_or(true) && !lost);
                match answer {
                    Ok(true) => Ok(change.result()),
                    Ok(false) => Err(RecordError::Conflict),
                    Err(failure) => Err(failure.record()),
                }
            }));
        }
        match works {
            Some(true) => self.pause.reset(),
            Some(false) => self.pause.extend(),
            None => {}
        }
        results
    }

    /// Returns the documents of a collection that match a filter.
    fn find(&mut self, until: Instant, name: &str, filter: Document, most: u32) -> Result<Vec<Document>, RecordError> {
        let collection = self.collection(name);
        let found = self.request(until, async {
            let mut cursor = collection.find(filter).batch_size(most).await.map_err(errors::from_load)?;
            let mut found = Vec::new();
            while cursor.advance().await.map_err(errors::from_load)? {
                found.push(cursor.deserialize_current().map_err(errors::from_load)?);
            }
            Ok(found)
        });
        found.map_err(Failure::record)
    }
}

impl RecordStore for MongoRecords {
    fn load(&mut self, names: &[Name]) -> Result<Vec<Option<StoredRecord>>, RecordError> {
        self.operations.reads += names.len() as u64;
        let until = Instant::now() + self.timeout;
        let mut found: Vec<Option<StoredRecord>> = names.iter().map(|_| None).collect();
        let mut collections: Vec<&'static str> = names.iter().map(|name| name.collection).collect();
        collections.sort_unstable();
        collections.dedup();
        for collection in collections {
            let ids: Vec<i64> =
                names.iter().filter(|name| name.collection == collection).map(|name| key(*name)).collect();
            let most = ids.len() as u32 + 1;
            for document in self.find(until, collection, document::not_expired_filter(&ids), most)? {
                let (id, record) = self.shape.decode_record(document)?;
                for (name, place) in names.iter().zip(&mut found) {
                    if name.collection == collection && key(*name) == id {
                        *place = Some(record.clone());
                    }
                }
            }
        }
        Ok(found)
    }

    /// Sends one request for each change, some of them concurrently.
    fn change(&mut self, changes: &[(Name, Change<'_>)]) -> Vec<Result<Version, RecordError>> {
        self.operations.changed(changes);
        changes.chunks(MAX_CONCURRENT).flat_map(|part| self.change_together(part)).collect()
    }

    fn list_ids(&mut self, collection: &'static str) -> Result<Vec<u64>, RecordError> {
        let until = Instant::now() + self.timeout;
        let collection = self.collection(collection);
        let found = self.request(until, async {
            let find = collection.find(document::all_living()).projection(document::only_key());
            let mut cursor = find.await.map_err(errors::from_load)?;
            let mut numbers = Vec::new();
            while cursor.advance().await.map_err(errors::from_load)? {
                numbers.push(document::number(&cursor.deserialize_current().map_err(errors::from_load)?));
            }
            Ok(numbers)
        });
        found.map_err(Failure::record)?.into_iter().map(|number| number.ok_or(RecordError::NotARecord)).collect()
    }

    /// Returns a constant if each commit waits for the journals of a majority: no commit is lost
    /// then. With another write concern the client cannot tell.
    fn incarnation(&mut self) -> Result<Option<String>, RecordError> {
        let concern = self.database.write_concern();
        let is_lasting = concern.is_some_and(|concern| {
            concern.journal == Some(true) && matches!(concern.w, Some(Acknowledgment::Majority))
        });
        Ok(is_lasting.then(|| "journals of the majority".to_owned()))
    }

    fn operations(&self) -> Operations {
        self.operations
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lasting_commits_need_journals_of_the_majority() {
        let lasts = |options: &str| {
            let url = format!("mongodb://127.0.0.1:1/?{options}");
            let (timeout, database) = (Duration::from_millis(100), "vireo".to_owned());
            let config = MongoConfig { url, database, timeout, format: Format::Json };
            let mut records = MongoRecords::new(&config, Duration::from_secs(60)).unwrap();
            records.incarnation().unwrap().is_some()
        };
        assert!(lasts("w=majority&journal=true"));
        for options in ["", "w=majority", "w=1&journal=true", "w=majority&journal=false"] {
            assert!(!lasts(options), "{options}");
        }
    }
}
