//! Connection to the database, which is opened again after PostgreSQL was away.

use super::engine::{Engine, execute};
use super::location::{Location, prepare_file};
use super::{StoreError, gpsi, schema};
use sqlx::any::AnyConnectOptions;
use sqlx::{Any, AnyConnection, ConnectOptions, Connection, Row, Transaction};
use std::fs::File;
use std::future::Future;
use std::io;
use std::time::{Duration, Instant};

/// Maximum wait for another process's transaction.
const BUSY_TIMEOUT: Duration = Duration::from_millis(if cfg!(test) { 300 } else { 5_000 });
/// Maximum time to connect to PostgreSQL.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(3);
/// Maximum time of one statement in PostgreSQL. It is longer than [`BUSY_TIMEOUT`].
const STATEMENT_TIMEOUT: Duration = Duration::from_millis(if cfg!(test) { 1_000 } else { 10_000 });
/// Time after a failed connection in which no other one is tried, so that requests are refused at
/// once.
const CONNECT_PAUSE: Duration = Duration::from_millis(500);
/// Advisory lock that running cores share and a restore has alone: "vireo" in ASCII.
const IN_USE: i64 = 0x76_6972_656f;

/// A connection, or what is needed to open it again.
pub(super) struct Link {
    location: Location,
    options: AnyConnectOptions,
    pub(super) engine: Engine,
    connection: Option<AnyConnection>,
    /// True if a statement has succeeded on the connection. Its loss is then worth another try.
    is_proven: bool,
    /// End of the pause, and the error that began it.
    pause: Option<(Instant, String)>,
    /// True for a running core in PostgreSQL, which takes an advisory lock with each connection.
    marks: bool,
    /// Lock of a running core beside a database of SQLite.
    lock: Option<File>,
}

impl std::fmt::Debug for Link {
    /// Prints no URL, which may contain a password.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Link({})", self.location.shown())
    }
}

impl Link {
    /// Opens the database, or creates it if permitted. Migrates it to this release's schema.
    pub(super) async fn open(location: Location, create: bool) -> Result<Self, StoreError> {
        sqlx::any::install_default_drivers();
        let path = location.shown();
        let engine = match &location {
            Location::Postgres(_) => Engine::Postgres,
            Location::Memory | Location::File(_) => Engine::Sqlite,
        };
        if let Location::File(path) = &location {
            prepare_file(path, create)?;
        }
        let options: AnyConnectOptions = location.url().parse().map_err(|_| StoreError::Location(path.clone()))?;
        let options = options.disable_statement_logging();
        let (connection, is_proven, pause, marks, lock) = (None, false, None, false, None);
        let mut link = Link { location, options, engine, connection, is_proven, pause, marks, lock };
        let connection = link.connection().await.map_err(|e| StoreError::from_sqlx(&path, e))?;
        if engine == Engine::Postgres && !create {
            let there = "SELECT to_regclass('subscribers') IS NOT NULL";
            let row = sqlx::query(there).fetch_one(&mut *connection).await;
            if !row.map_err(|e| StoreError::from_sqlx(&path, e))?.get::<bool, _>(0) {
                return Err(StoreError::Missing { path });
            }
        }
        schema::migrate(connection, engine).await.map_err(|e| StoreError::from_migration(&path, e))?;
        gpsi::create_table(connection, engine).await.map_err(|e| StoreError::from_sqlx(&path, e))?;
        Ok(link)
    }

    /// Returns the connection, opened again if it was lost.
    pub(super) async fn connection(&mut self) -> Result<&mut AnyConnection, sqlx::Error> {
        if self.connection.is_none() {
            if let Some((end, cause)) = &self.pause
                && Instant::now() < *end
            {
                return Err(sqlx::Error::Io(io::Error::new(io::ErrorKind::NotConnected, cause.clone())));
            }
            self.is_proven = false;
            match self.connect().await {
                Ok(connection) => (self.connection, self.pause) = (Some(connection), None),
                Err(error) => {
                    self.pause = Some((Instant::now() + CONNECT_PAUSE, error.to_string()));
                    return Err(error);
                }
            }
        }
        self.connection.as_mut().ok_or(sqlx::Error::PoolClosed)
    }

    async fn connect(&self) -> Result<AnyConnection, sqlx::Error> {
        let opening = async {
            let mut connection = self.options.connect().await?;
            for statement in self.session() {
                execute(&mut connection, &statement).await?;
            }
            if self.marks {
                lock_as_core(&mut connection).await?;
            }
            Ok(connection)
        };
        match self.engine {
            Engine::Sqlite => opening.await,
            Engine::Postgres => within(CONNECT_TIMEOUT, opening).await,
        }
    }

    /// Returns the settings of a connection.
    fn session(&self) -> Vec<String> {
        let busy = BUSY_TIMEOUT.as_millis();
        let pragma = |text: String| format!("PRAGMA {text}");
        match &self.location {
            Location::Postgres(_) => vec![
                format!("SET lock_timeout = {busy}"),
                // Its notices are of no use: "relation exists, skipping".
                "SET client_min_messages = 'error'".to_owned(),
            ],
            location => {
                let mut all = vec![
                    pragma(format!("busy_timeout = {busy}")),
                    // SQLite overwrites deleted and replaced content.
                    pragma("secure_delete = ON".into()),
                    // A commit must be on disk when it returns, because a vector may be sent right
                    // after its SQN offset is stored.
                    pragma("synchronous = FULL".into()),
                ];
                if *location != Location::Memory {
                    // A provisioning command then does not block the core's reads.
                    all.push(pragma("journal_mode = WAL".into()));
                }
                all
            }
        }
    }

    /// Runs work that may run twice: again if the connection was lost since it was last used.
    pub(super) async fn run<T>(
        &mut self,
        mut work: impl AsyncFnMut(&mut AnyConnection) -> Result<T, sqlx::Error>,
    ) -> Result<T, sqlx::Error> {
        loop {
            let (engine, was_proven) = (self.engine, self.is_proven);
            let connection = self.connection().await?;
            let done = engine.limit(work(connection)).await;
            match done {
                Err(error) if engine == Engine::Postgres && is_lost(&error) => {
                    self.connection = None;
                    if !was_proven || is_timeout(&error) {
                        return Err(error);
                    }
                }
                done => {
                    self.is_proven = true;
                    return done;
                }
            }
        }
    }

    /// Begins a transaction of the only writer.
    pub(super) async fn begin_exclusive(&mut self) -> Result<Transaction<'_, Any>, sqlx::Error> {
        self.check().await?;
        let engine = self.engine;
        let connection = self.connection().await?;
        let mut transaction = connection.begin_with(engine.begin_exclusive()).await?;
        engine.limit(engine.lock(&mut transaction)).await?;
        Ok(transaction)
    }

    /// Begins a transaction of reads, all of one moment.
    pub(super) async fn begin_snapshot(&mut self) -> Result<Transaction<'_, Any>, sqlx::Error> {
        self.check().await?;
        let begin = self.engine.begin_snapshot();
        self.connection().await?.begin_with(begin).await
    }

    /// Opens a lost connection again, before work that must not run twice.
    async fn check(&mut self) -> Result<(), sqlx::Error> {
        match self.engine {
            Engine::Sqlite => Ok(()),
            Engine::Postgres => self.run(async |connection| connection.ping().await).await,
        }
    }

    /// Closes a connection that was lost.
    pub(super) fn close(&mut self) {
        self.connection = None;
    }

    /// Marks the database as used by a running core, as long as the link exists.
    pub(super) async fn mark_in_use(&mut self) -> Result<(), StoreError> {
        match &self.location {
            Location::Memory => Ok(()),
            Location::File(_) if self.lock.is_some() => Ok(()),
            Location::File(path) => {
                let file = lock_file(path)?;
                file.try_lock_shared().map_err(|_| StoreError::Restoring { path: path.clone() })?;
                self.lock = Some(file);
                Ok(())
            }
            Location::Postgres(_) => {
                self.marks = true;
                let path = self.location.shown();
                self.run(lock_as_core).await.map_err(|e| StoreError::from_sqlx(&path, e))
            }
        }
    }

    /// Excludes running cores from the database, as long as the result and the link exist.
    pub(super) async fn exclude_cores(&mut self) -> Result<Option<File>, StoreError> {
        let path = self.location.shown();
        match &self.location {
            Location::Memory => Ok(None),
            Location::File(file) => {
                let file = lock_file(file)?;
                file.try_lock().map_err(|_| StoreError::InUse { path })?;
                Ok(Some(file))
            }
            Location::Postgres(_) => {
                let sql = format!("SELECT pg_try_advisory_lock({IN_USE})");
                let free = self.run(async |c| Ok(sqlx::query(&sql).fetch_one(c).await?.get::<bool, _>(0))).await;
                match free.map_err(|e| StoreError::from_sqlx(&path, e))? {
                    true => Ok(None),
                    false => Err(StoreError::InUse { path }),
                }
            }
        }
    }
}

impl Engine {
    /// Runs a statement with the time limit of the database.
    pub(super) async fn limit<T>(self, work: impl Future<Output = Result<T, sqlx::Error>>) -> Result<T, sqlx::Error> {
        match self {
            Engine::Sqlite => work.await,
            Engine::Postgres => within(STATEMENT_TIMEOUT, work).await,
        }
    }
}

/// Takes the advisory lock of a running core.
async fn lock_as_core(connection: &mut AnyConnection) -> Result<(), sqlx::Error> {
    let sql = format!("SELECT pg_try_advisory_lock_shared({IN_USE})");
    match sqlx::query(&sql).fetch_one(connection).await?.get::<bool, _>(0) {
        true => Ok(()),
        false => Err(sqlx::Error::Io(io::Error::new(io::ErrorKind::ResourceBusy, "a backup is being restored"))),
    }
}

/// Opens the file beside a database of SQLite whose lock shows that a core runs.
fn lock_file(database: &str) -> Result<File, StoreError> {
    use std::os::unix::fs::OpenOptionsExt;
    let path = format!("{database}.lock");
    let opened = File::options().write(true).create(true).truncate(false).mode(0o600).open(&path);
    opened.map_err(|e| StoreError::Open { path, cause: e.to_string() })
}

async fn within<T>(limit: Duration, work: impl Future<Output = Result<T, sqlx::Error>>) -> Result<T, sqlx::Error> {
    match tokio::time::timeout(limit, work).await {
        Ok(done) => done,
        Err(_) => Err(sqlx::Error::Io(io::Error::new(io::ErrorKind::TimedOut, format!("no answer within {limit:?}")))),
    }
}

/// Returns true if a connection to PostgreSQL is of no use after this error.
fn is_lost(error: &sqlx::Error) -> bool {
    match error {
        sqlx::Error::Io(_) | sqlx::Error::Tls(_) | sqlx::Error::Protocol(_) => true,
        // Class 57P: the server stops (PostgreSQL, appendix A). 25P02 and 25006: the connection is
        // in a failed or a read-only transaction, as after a switch to a standby.
        _ => error.as_database_error().and_then(|e| e.code()).is_some_and(|code| {
            code.starts_with("57P") || code.starts_with("08") || code == "25P02" || code == "25006"
        }),
    }
}

fn is_timeout(error: &sqlx::Error) -> bool {
    matches!(error, sqlx::Error::Io(error) if error.kind() == io::ErrorKind::TimedOut)
}
