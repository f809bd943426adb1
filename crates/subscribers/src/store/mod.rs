//! Subscriber database: one SQLite file, with migrations embedded in the binary.
//!
//! The queries are portable SQL. Specific to SQLite are the migrations, the options of
//! [`Store::open`], and [`Store::changes_since`].

mod error;
mod import;
mod location;
mod rekey;
mod row;
mod schema;
mod sealing;

use crate::record::Subscriber;
pub use error::{RecordFault, StoreError};
pub use import::OnExisting;
use location::{file_of, prepare_file};
use row::{COLUMNS, from_row};
use sealing::Sealing;
pub use sealing::{KEY_VARIABLE, NEXT_KEY_VARIABLE, key_source};
use sqlx::sqlite::{SqliteConnectOptions, SqliteJournalMode, SqliteRow, SqliteSynchronous};
use sqlx::{ConnectOptions, Connection, Row, SqliteConnection};
use std::time::Duration;
use tokio::runtime::Runtime;
use vireo_sealing::KeySource;
use vireo_types::Supi;

/// Maximum wait for another process's transaction.
const BUSY_TIMEOUT: Duration = Duration::from_millis(if cfg!(test) { 300 } else { 5_000 });

/// A connection to the subscriber database. Its calls block: use it on dedicated threads, not in
/// async tasks.
#[derive(Debug)]
pub struct Store {
    path: String,
    connection: SqliteConnection,
    runtime: Runtime,
    sealing: Sealing,
}

/// Selection of subscribers.
#[derive(Clone, Debug, Default)]
pub struct Filter {
    /// Prefix of the IMSI; empty = all.
    pub prefix: String,
}

/// Page of a list that is ordered by IMSI.
#[derive(Clone, Copy, Debug)]
pub struct Page {
    /// Start after this subscriber.
    pub after: Option<Supi>,
    pub limit: u32,
}

/// Changes by other connections since a change number.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Changes {
    /// The changed subscribers.
    These(Vec<Supi>),
    /// More changes than the database stores.
    Many,
}

impl Store {
    /// Opens the database, or creates it. `location` is a file name, `sqlite:` and a file name, or
    /// `:memory:` for a database that ends with the `Store`. The file is accessible only to its
    /// owner. K and OPc in it are sealed with the key of `source`, which is created with the
    /// database.
    pub fn open(location: &str, source: KeySource) -> Result<Self, StoreError> {
        Self::connect(location, source, true)
    }

    /// Opens an existing database.
    pub fn open_existing(location: &str, source: KeySource) -> Result<Self, StoreError> {
        Self::connect(location, source, false)
    }

    fn connect(location: &str, source: KeySource, create: bool) -> Result<Self, StoreError> {
        let path = file_of(location)?;
        let in_memory = path == ":memory:";
        if !in_memory {
            prepare_file(&path, create)?;
        }
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(|e| StoreError::Open { path: path.clone(), cause: e.to_string() })?;
        let mut options = SqliteConnectOptions::new()
            .filename(&path)
            .busy_timeout(BUSY_TIMEOUT)
            // SQLite overwrites deleted and replaced content.
            .pragma("secure_delete", "ON")
            // A commit must be on disk when it returns, because a vector may be sent right after
            // its SQN offset is stored.
            .synchronous(SqliteSynchronous::Full)
            .row_buffer_size(1024)
            .disable_statement_logging();
        // With a write-ahead log, a provisioning command does not block the core's reads.
        options = if in_memory { options.in_memory(true) } else { options.journal_mode(SqliteJournalMode::Wal) };
        let (connection, sealing) = runtime.block_on(async {
            let mut connection = options.connect().await.map_err(|e| StoreError::from_sqlx(&path, e))?;
            schema::migrate(&mut connection).await.map_err(|e| StoreError::from_migration(&path, e))?;
            let sealing = match in_memory {
                true => Sealing::in_memory(),
                false => Sealing::open_key(&mut connection, &path, source).await?,
            };
            Ok::<_, StoreError>((connection, sealing))
        })?;
        Ok(Store { path, connection, runtime, sealing })
    }

    /// Returns the location of the database.
    pub fn path(&self) -> &str {
        &self.path
    }

    /// Adds a new subscriber.
    pub fn add(&mut self, subscriber: &Subscriber) -> Result<(), StoreError> {
        self.import(std::slice::from_ref(subscriber), OnExisting::Refuse, &mut |_| {}).map(drop)
    }

    /// Adds a subscriber, or replaces its record except the SQN offset, which belongs to the USIM.
    pub fn upsert(&mut self, subscriber: &Subscriber) -> Result<(), StoreError> {
        self.import(std::slice::from_ref(subscriber), OnExisting::Replace, &mut |_| {}).map(drop)
    }

    /// Returns the record of a subscriber.
    pub fn get(&mut self, supi: Supi) -> Result<Option<Subscriber>, StoreError> {
        let sql = format!("SELECT {COLUMNS} FROM subscribers WHERE imsi = $1");
        let query = sqlx::query(&sql).bind(supi.reveal());
        let row = self.runtime.block_on(query.fetch_optional(&mut self.connection));
        let row = row.map_err(|e| StoreError::from_sqlx(&self.path, e))?;
        row.map(|row| self.record(&row)).transpose()
    }

    /// Returns the existing records of `supis`, in any order. Passes the error of an invalid record
    /// to `bad`, so that it does not hide the others.
    pub fn get_many(&mut self, supis: &[Supi], bad: &mut dyn FnMut(StoreError)) -> Result<Vec<Subscriber>, StoreError> {
        let mut found = Vec::with_capacity(supis.len());
        for chunk in supis.chunks(256) {
            // The number of parameters is a power of two, with the last one repeated, so that nine
            // prepared statements suffice.
            let width = chunk.len().next_power_of_two();
            let places = (1..=width).map(|n| format!("${n}")).collect::<Vec<_>>().join(",");
            let sql = format!("SELECT {COLUMNS} FROM subscribers WHERE imsi IN ({places})");
            let padded = chunk.iter().chain(std::iter::repeat(&chunk[chunk.len() - 1])).take(width);
            let query = padded.fold(sqlx::query(&sql), |q, supi| q.bind(supi.reveal()));
            let rows = self.runtime.block_on(query.fetch_all(&mut self.connection));
            for row in rows.map_err(|e| StoreError::from_sqlx(&self.path, e))? {
                match self.record(&row) {
                    Ok(record) => found.push(record),
                    Err(e) => bad(e),
                }
            }
        }
        Ok(found)
    }

    /// Returns a page of subscribers.
    pub fn list(&mut self, filter: &Filter, page: Page) -> Result<Vec<Subscriber>, StoreError> {
        let sql = format!(
            "SELECT {COLUMNS} FROM subscribers WHERE imsi >= $1 AND imsi < $2 AND imsi > $3 ORDER BY imsi LIMIT $4"
        );
        let after = page.after.map(Supi::reveal).unwrap_or_default();
        let query = sqlx::query(&sql).bind(&filter.prefix).bind(filter.end()).bind(after).bind(i64::from(page.limit));
        let rows = self.runtime.block_on(query.fetch_all(&mut self.connection));
        let rows = rows.map_err(|e| StoreError::from_sqlx(&self.path, e))?;
        rows.iter().map(|row| self.record(row)).collect()
    }

    /// Decodes the record of a row, also if another process has sealed it with a new key since.
    fn record(&mut self, row: &SqliteRow) -> Result<Subscriber, StoreError> {
        match from_row(&self.sealing, row) {
            Err(StoreError::BadRecord { .. }) if self.follow_key()? => from_row(&self.sealing, row),
            record => record,
        }
    }

    /// Passes all subscribers of the filter to `sink`, ordered by IMSI, until it returns false.
    pub fn export(&mut self, filter: &Filter, sink: &mut dyn FnMut(Subscriber) -> bool) -> Result<(), StoreError> {
        let mut after = None;
        loop {
            let page = self.list(filter, Page { after, limit: 1000 })?;
            let Some(last) = page.last() else { return Ok(()) };
            after = Some(last.supi);
            for subscriber in page {
                if !sink(subscriber) {
                    return Ok(());
                }
            }
        }
    }

    /// Returns the number of subscribers.
    pub fn count(&mut self, filter: &Filter) -> Result<u64, StoreError> {
        let query = sqlx::query("SELECT count(*) FROM subscribers WHERE imsi >= $1 AND imsi < $2")
            .bind(&filter.prefix)
            .bind(filter.end());
        let row = self.runtime.block_on(query.fetch_one(&mut self.connection));
        let row = row.map_err(|e| StoreError::from_sqlx(&self.path, e))?;
        Ok(u64::try_from(row.get::<i64, _>(0)).unwrap_or(0))
    }

    /// Removes subscribers in one transaction. Returns the number of those that existed.
    pub fn remove(&mut self, supis: impl IntoIterator<Item = Supi>) -> Result<u64, StoreError> {
        let work = async {
            let mut transaction = self.connection.begin().await?;
            let mut removed = 0;
            for supi in supis {
                let query = sqlx::query("DELETE FROM subscribers WHERE imsi = $1").bind(supi.reveal());
                removed += query.execute(&mut *transaction).await?.rows_affected();
            }
            transaction.commit().await?;
            Ok(removed)
        };
        self.runtime.block_on(work).map_err(|e| StoreError::from_sqlx(&self.path, e))
    }

    /// Stores the result of a resynchronisation. It is on disk when the function returns.
    pub fn set_sqn_offset(&mut self, supi: Supi, offset: i64) -> Result<(), StoreError> {
        let query =
            sqlx::query("UPDATE subscribers SET sqn_offset = $1 WHERE imsi = $2").bind(offset).bind(supi.reveal());
        let done = self.runtime.block_on(query.execute(&mut self.connection));
        done.map(drop).map_err(|e| StoreError::from_sqlx(&self.path, e))
    }

    /// Returns a sequence number that no vector of this host slot has reached; 0 if there was no
    /// vector.
    pub fn sqn_reservation(&mut self, ind: u8) -> Result<u64, StoreError> {
        let query = sqlx::query("SELECT seq FROM sqn_reservations WHERE ind = $1").bind(i64::from(ind));
        let row = self.runtime.block_on(query.fetch_optional(&mut self.connection));
        let row = row.map_err(|e| StoreError::from_sqlx(&self.path, e))?;
        Ok(row.and_then(|r| u64::try_from(r.get::<i64, _>(0)).ok()).unwrap_or(0))
    }

    /// Stores that no vector of this host slot reaches this sequence number before the next
    /// reservation.
    pub fn reserve_sqn(&mut self, ind: u8, seq: u64) -> Result<(), StoreError> {
        let sql = "INSERT INTO sqn_reservations (ind, seq) VALUES ($1, $2) \
                   ON CONFLICT (ind) DO UPDATE SET seq = excluded.seq";
        let query = sqlx::query(sql).bind(i64::from(ind)).bind(i64::try_from(seq).unwrap_or(i64::MAX));
        let done = self.runtime.block_on(query.execute(&mut self.connection));
        done.map(drop).map_err(|e| StoreError::from_sqlx(&self.path, e))
    }

    /// Returns a number that changes when another connection has changed the database.
    pub fn data_version(&mut self) -> Result<i64, StoreError> {
        let query = sqlx::query("PRAGMA data_version");
        let row = self.runtime.block_on(query.fetch_one(&mut self.connection));
        Ok(row.map_err(|e| StoreError::from_sqlx(&self.path, e))?.get(0))
    }

    /// Returns the number of the last change of any subscriber.
    pub fn last_change(&mut self) -> Result<i64, StoreError> {
        let query = sqlx::query("SELECT coalesce(max(id), 0) FROM changes");
        let row = self.runtime.block_on(query.fetch_one(&mut self.connection));
        Ok(row.map_err(|e| StoreError::from_sqlx(&self.path, e))?.get(0))
    }

    /// Returns the subscribers that changed after change number `last`, and the number of the last
    /// change.
    pub fn changes_since(&mut self, last: i64) -> Result<(Changes, i64), StoreError> {
        let query = sqlx::query("SELECT id, imsi FROM changes WHERE id > $1 ORDER BY id").bind(last);
        let rows = self.runtime.block_on(query.fetch_all(&mut self.connection));
        let rows = rows.map_err(|e| StoreError::from_sqlx(&self.path, e))?;
        let (Some(first), Some(newest)) = (rows.first(), rows.last()) else {
            return Ok((Changes::These(Vec::new()), last));
        };
        let newest = newest.get(0);
        if first.get::<i64, _>(0) != last + 1 {
            return Ok((Changes::Many, newest));
        }
        // An invalid IMSI was entered by hand, and no UE has it.
        let supis = rows.iter().filter_map(|r| r.get::<&str, _>(1).parse().ok()).collect();
        Ok((Changes::These(supis), newest))
    }
}

impl Filter {
    /// Returns the first string after all with the prefix. IMSIs are digits, and `:` follows `9`.
    fn end(&self) -> String {
        format!("{}:", self.prefix)
    }
}

#[cfg(test)]
mod tests;
