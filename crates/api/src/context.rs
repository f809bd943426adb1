//! State that all routes of `/v1` share.

use crate::alarms::{Alarm, Severity};
use crate::audit::{AuditEntry, AuditLog};
use crate::database::Database;
use crate::events::Events;
use crate::imports::{Conflict, Imports, Progress};
use crate::management::{Management, OpenDatabase, Slice};
use crate::overview::{AlarmCounts, Overview};
use crate::page::Cursors;
use crate::problem::Problem;
use crate::tag::Tags;
use crate::time::now;
use crate::watch::Watched;
use std::sync::{Arc, Mutex, PoisonError};
use vireo_ops::api::{Identity, Status, StatusFilter, StatusSource};
use vireo_ops::metrics::Metrics;
use vireo_subscribers::{Store, Subscriber};

/// State of the API.
#[derive(Clone)]
pub(crate) struct Api(Arc<Shared>);

struct Shared {
    source: Arc<dyn StatusSource>,
    metrics: Arc<Metrics>,
    management: Management,
    audit: AuditLog,
    cursors: Cursors,
    tags: Tags,
    watched: Mutex<Watched>,
    database: Option<Database>,
    imports: Imports,
    events: Events,
    /// Held while a change of the configuration is made.
    configuration_turn: tokio::sync::Mutex<()>,
    document: String,
}

impl Api {
    /// Creates the state.
    ///
    /// # Errors
    ///
    /// Returns an error without random numbers.
    pub(crate) fn new(
        source: Arc<dyn StatusSource>,
        metrics: Arc<Metrics>,
        management: Management,
        document: String,
    ) -> Result<Self, getrandom::Error> {
        let audit = AuditLog::open(management.state_directory.as_deref());
        let (cursors, tags) = (Cursors::new()?, Tags::new()?);
        let database = management.subscribers.is_some().then(Database::start).transpose();
        let database = database.unwrap_or_else(|error| {
            tracing::error!(%error, "API has no subscribers: thread not started");
            None
        });
        Ok(Api(Arc::new(Shared {
            source,
            metrics,
            management,
            audit,
            cursors,
            tags,
            watched: Mutex::default(),
            database,
            imports: Imports::default(),
            events: Events::new(now()),
            configuration_turn: tokio::sync::Mutex::default(),
            document,
        })))
    }

    /// Asks the core, on a thread that may wait.
    pub(crate) async fn core<T: Send + 'static>(
        &self,
        query: impl FnOnce(&dyn StatusSource) -> T + Send + 'static,
    ) -> Result<T, Problem> {
        let source = Arc::clone(&self.0.source);
        blocking(move || query(source.as_ref())).await
    }

    /// Asks the core for its status.
    pub(crate) async fn status(&self, filter: StatusFilter) -> Result<Status, Problem> {
        self.core(move |source| source.status(&filter)).await?.ok_or_else(Problem::no_answer)
    }

    /// Runs a request on the thread of the subscriber database.
    pub(crate) async fn store<T: Send + 'static>(
        &self,
        act: impl FnOnce(&mut Store) -> Result<T, Problem> + Send + 'static,
    ) -> Result<T, Problem> {
        let (database, open) = self.subscribers()?;
        database.run(open, act).await
    }

    fn subscribers(&self) -> Result<(&Database, OpenDatabase), Problem> {
        let open = self.0.management.subscribers.clone();
        let none = "this process has no subscriber database: ask a host or the core";
        self.0.database.as_ref().zip(open).ok_or_else(|| Problem::not_found(none))
    }

    /// Begins to import subscribers. The end is a line in the audit log.
    pub(crate) fn begin_import(
        &self,
        identity: &Identity,
        records: Vec<Subscriber>,
        conflict: Conflict,
    ) -> Result<u64, Problem> {
        let (_, open) = self.subscribers()?;
        let (shared, identity, rows) = (Arc::clone(&self.0), identity.clone(), records.len());
        self.0.imports.begin(open, records, conflict, move |result| {
            let object = format!("{rows} records");
            shared.audit.write(AuditEntry::new(&identity, "subscribers.import", &object, result.err()));
        })
    }

    /// Returns the progress of an import.
    pub(crate) fn import(&self, id: u64) -> Option<Progress> {
        self.0.imports.progress(id)
    }

    pub(crate) fn cursors(&self) -> &Cursors {
        &self.0.cursors
    }

    pub(crate) fn tags(&self) -> &Tags {
        &self.0.tags
    }

    pub(crate) fn management(&self) -> &Management {
        &self.0.management
    }

    pub(crate) fn document(&self) -> &str {
        &self.0.document
    }

    /// Returns the configured slices, with the objectives in force.
    pub(crate) fn slices(&self) -> Vec<Slice> {
        self.0.management.slices.all()
    }

    /// Acts on what the watcher knows.
    pub(crate) fn watched<T>(&self, act: impl FnOnce(&mut Watched) -> T) -> T {
        act(&mut self.0.watched.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Returns the time from which on a RAN node is known.
    pub(crate) fn known_since(&self, node: &str) -> Option<u64> {
        self.watched(|watched| watched.since(node))
    }

    /// Returns the overview of a status.
    pub(crate) fn overview(&self, status: &Status) -> Overview {
        let rate = self.watched(|watched| watched.procedures_per_second());
        Overview::new(status, rate, self.alarm_counts())
    }

    fn alarm_counts(&self) -> AlarmCounts {
        self.watched(|watched| AlarmCounts {
            critical: watched.alarms.count(Severity::Critical),
            major: watched.alarms.count(Severity::Major),
            minor: watched.alarms.count(Severity::Minor),
            warning: watched.alarms.count(Severity::Warning),
        })
    }

    /// Updates the metric of active alarms.
    pub(crate) fn count_alarms(&self) {
        let AlarmCounts { critical, major, minor, warning } = self.alarm_counts();
        self.0.metrics.alarms([critical, major, minor, warning]);
    }

    pub(crate) fn events(&self) -> &Events {
        &self.0.events
    }

    /// Publishes and logs an alarm that is raised, changed or cleared.
    pub(crate) fn announce(&self, alarm: &Alarm) {
        let Alarm { id, kind, severity, object, .. } = alarm;
        tracing::warn!(alarm = id, ?kind, ?severity, object, "alarm");
        self.0.events.publish("alarm", serde_json::to_string(alarm).unwrap_or_default());
    }

    /// Acknowledges an alarm. Returns false if there is none of this number.
    pub(crate) fn acknowledge(&self, id: u64, by: &str) -> bool {
        let cleared = self.watched(|watched| {
            let cleared = watched.alarms.acknowledge(id, by, now())?;
            if let Some(alarm) = &cleared {
                watched.memory.forget(alarm.kind, &alarm.object);
            }
            Some(cleared)
        });
        if let Some(alarm) = cleared.as_ref().and_then(Option::as_ref) {
            self.announce(alarm);
        }
        cleared.is_some()
    }

    /// Waits for the turn to change the configuration.
    pub(crate) async fn configuration_turn(&self) -> tokio::sync::MutexGuard<'_, ()> {
        self.0.configuration_turn.lock().await
    }

    /// Writes a change and its result to the audit log, and returns the result.
    pub(crate) async fn record<T>(
        &self,
        identity: &Identity,
        action: &str,
        object: &str,
        result: Result<T, Problem>,
    ) -> Result<T, Problem> {
        let failure = result.as_ref().err().map(|problem| problem.detail().to_owned());
        let entry = AuditEntry::new(identity, action, object, failure);
        let shared = Arc::clone(&self.0);
        blocking(move || shared.audit.write(entry)).await?;
        result
    }

    /// Returns entries of the audit log before number `before`, the newest first.
    pub(crate) async fn audit(&self, before: Option<u64>, limit: usize) -> Result<Vec<AuditEntry>, Problem> {
        let shared = Arc::clone(&self.0);
        blocking(move || shared.audit.read(before, limit)).await
    }
}

/// Runs a call that waits on a thread of its own.
pub(crate) async fn blocking<T: Send + 'static>(call: impl FnOnce() -> T + Send + 'static) -> Result<T, Problem> {
    tokio::task::spawn_blocking(call).await.map_err(|_| Problem::unavailable("the request was not executed: try again"))
}
