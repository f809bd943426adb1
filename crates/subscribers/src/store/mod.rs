//! Subscriber database: one SQLite file, or PostgreSQL. The migrations are embedded in the binary.
//!
//! Both have the same SQL, besides the migrations and [`engine`]. [`link`] opens connections.

mod backup;
mod engine;
mod error;
mod gpsi;
mod import;
mod link;
mod location;
mod rekey;
mod row;
mod schema;
mod sealing;

use crate::msisdn::Msisdn;
use crate::record::Subscriber;
pub use backup::{BackupError, BackupHeader, SCHEMA, restore};
pub use error::{RecordFault, StoreError};
pub use import::OnExisting;
use link::Link;
use location::Location;
pub use location::{check_location, is_shared_location, shown_location};
use row::{COLUMNS, from_row};
use sealing::Sealing;
pub use sealing::{KEY_VARIABLE, NEXT_KEY_VARIABLE, key_source};
use sqlx::any::AnyRow;
use sqlx::{AnyConnection, Row};
use std::path::Path;
use tokio::runtime::Runtime;
use vireo_sealing::{KeyId, KeySource};
use vireo_types::Supi;

/// A connection to the subscriber database. Its calls block: use it on dedicated threads, not in
/// async tasks.
///
/// A `Store` of PostgreSQL outlives its connection. A call fails while the server does not answer,
/// and a later call connects again.
#[derive(Debug)]
pub struct Store {
    path: String,
    link: Link,
    runtime: Runtime,
    sealing: Sealing,
}

/// Sequence numbers that one process has for itself: from `start` up to, but not including, `end`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SqnClaim {
    pub start: u64,
    pub end: u64,
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
    /// Opens the database, or creates it. `location` is a file name, `sqlite:` and a file name, a
    /// URL of PostgreSQL, or `:memory:` for a database that ends with the `Store`. A file is
    /// accessible only to its owner. K and OPc are sealed with the key of `source`, which is
    /// created with the database.
    pub fn open(location: &str, source: KeySource) -> Result<Self, StoreError> {
        Self::connect(location, source, true)
    }

    /// Opens an existing database.
    pub fn open_existing(location: &str, source: KeySource) -> Result<Self, StoreError> {
        Self::connect(location, source, false)
    }

    fn connect(location: &str, source: KeySource, create: bool) -> Result<Self, StoreError> {
        let location = location::parse(location)?;
        let path = location.shown();
        let in_memory = location == Location::Memory;
        let runtime = runtime(&path)?;
        let (link, sealing) = runtime.block_on(async {
            let mut link = Link::open(location, create).await?;
            let sealing = match in_memory {
                true => Sealing::in_memory(),
                false => Sealing::open_key(&mut link, &path, source).await?,
            };
            Ok::<_, StoreError>((link, sealing))
        })?;
        Ok(Store { path, link, runtime, sealing })
    }

    /// Returns the location of the database, without password.
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
        let imsi = supi.reveal();
        let row = self.run(async |c| sqlx::query(&sql).bind(&imsi).fetch_optional(c).await)?;
        row.map(|row| self.record(&row)).transpose()
    }

    /// Returns the subscriber with an MSISDN.
    pub fn find_msisdn(&mut self, msisdn: &Msisdn) -> Result<Option<Supi>, StoreError> {
        let sql = "SELECT imsi FROM gpsis WHERE msisdn = $1";
        let row = self.run(async |c| sqlx::query(sql).bind(msisdn.reveal().to_owned()).fetch_optional(c).await)?;
        // An invalid IMSI was entered by hand, and no UE has it.
        Ok(row.and_then(|row| row.get::<&str, _>(0).parse().ok()))
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
            let rows = self.run(async |c| {
                let padded = chunk.iter().chain(std::iter::repeat(&chunk[chunk.len() - 1])).take(width);
                padded.fold(sqlx::query(&sql), |q, supi| q.bind(supi.reveal())).fetch_all(c).await
            })?;
            for row in rows {
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
        let rows = self.run(async |c| {
            let query = sqlx::query(&sql).bind(&filter.prefix).bind(filter.end());
            query.bind(&after).bind(i64::from(page.limit)).fetch_all(c).await
        })?;
        rows.iter().map(|row| self.record(row)).collect()
    }

    /// Decodes the record of a row, also if another process has sealed it with a new key since.
    fn record(&mut self, row: &AnyRow) -> Result<Subscriber, StoreError> {
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
        let sql = "SELECT count(*) FROM subscribers WHERE imsi >= $1 AND imsi < $2";
        let row = self.run(async |c| sqlx::query(sql).bind(&filter.prefix).bind(filter.end()).fetch_one(c).await)?;
        Ok(u64::try_from(row.get::<i64, _>(0)).unwrap_or(0))
    }

    /// Removes subscribers in one transaction. Returns the number of those that existed.
    pub fn remove(&mut self, supis: impl IntoIterator<Item = Supi>) -> Result<u64, StoreError> {
        let Store { link, runtime, .. } = self;
        let engine = link.engine;
        let removed = runtime.block_on(async {
            let mut transaction = link.begin_exclusive().await?;
            let mut removed = 0;
            for supi in supis {
                let query = sqlx::query("DELETE FROM subscribers WHERE imsi = $1").bind(supi.reveal());
                removed += engine.limit(query.execute(&mut *transaction)).await?.rows_affected();
            }
            engine.limit(transaction.commit()).await?;
            Ok(removed)
        });
        self.close_if_lost(removed.map_err(|e| StoreError::from_sqlx(&self.path, e)))
    }

    /// Stores the result of a resynchronisation. It is on disk when the function returns.
    pub fn set_sqn_offset(&mut self, supi: Supi, offset: i64) -> Result<(), StoreError> {
        let imsi = supi.reveal();
        let sql = "UPDATE subscribers SET sqn_offset = $1 WHERE imsi = $2";
        self.run(async |c| sqlx::query(sql).bind(offset).bind(&imsi).execute(c).await).map(drop)
    }

    /// Returns a sequence number that no vector of this host slot has reached; 0 if there was no
    /// vector.
    pub fn sqn_reservation(&mut self, ind: u8) -> Result<u64, StoreError> {
        let sql = "SELECT seq FROM sqn_reservations WHERE ind = $1";
        let row = self.run(async |c| sqlx::query(sql).bind(i64::from(ind)).fetch_optional(c).await)?;
        Ok(row.map_or(0, |row| number(&row)))
    }

    /// Claims sequence numbers of a host slot up to `wanted.end` for this process, which has those
    /// below `wanted.start`, as its last claim or [`Store::sqn_reservation`] returned.
    ///
    /// If another process with this slot has claimed numbers since, the claim is as long and begins
    /// above these. So two processes never have a number in common. The claim is on disk when the
    /// function returns.
    pub fn reserve_sqn(&mut self, ind: u8, wanted: SqnClaim) -> Result<SqnClaim, StoreError> {
        let SqnClaim { start, end } = wanted;
        let length = end.saturating_sub(start);
        let [stored_start, stored_end, room] = [start, end, length].map(stored_number);
        // One statement, so that nothing comes between comparison and change.
        let sql = "INSERT INTO sqn_reservations (ind, seq) VALUES ($1, $2) \
                   ON CONFLICT (ind) DO UPDATE SET seq = CASE \
                   WHEN sqn_reservations.seq <= $3 THEN $2 ELSE sqn_reservations.seq + $4 END RETURNING seq";
        let row = self.run(async |c| {
            let query = sqlx::query(sql).bind(i64::from(ind)).bind(stored_end);
            query.bind(stored_start).bind(room).fetch_one(c).await
        })?;
        let end = number(&row);
        Ok(SqnClaim { start: end.saturating_sub(length), end })
    }

    /// Returns what is left of the last claim, at a clean stop: no vector has reached `next`.
    /// Changes nothing if another process has claimed numbers since.
    pub fn release_sqn(&mut self, ind: u8, next: u64, claimed: u64) -> Result<(), StoreError> {
        let sql = "UPDATE sqn_reservations SET seq = $1 WHERE ind = $2 AND seq = $3";
        self.run(async |c| {
            let query = sqlx::query(sql).bind(stored_number(next)).bind(i64::from(ind));
            query.bind(stored_number(claimed)).execute(c).await
        })
        .map(drop)
    }

    /// Returns a number that changes when another connection has changed the database.
    pub fn data_version(&mut self) -> Result<i64, StoreError> {
        let sql = self.link.engine.data_version();
        Ok(self.run(async |c| sqlx::query(sql).fetch_one(c).await)?.get(0))
    }

    /// Returns the number of the last change of any subscriber.
    pub fn last_change(&mut self) -> Result<i64, StoreError> {
        let sql = self.link.engine.last_change();
        Ok(self.run(async |c| sqlx::query(sql).fetch_one(c).await)?.get(0))
    }

    /// Returns the subscribers that changed after change number `last`, and the number of the last
    /// change.
    pub fn changes_since(&mut self, last: i64) -> Result<(Changes, i64), StoreError> {
        let sql = "SELECT id, imsi FROM changes WHERE id > $1 ORDER BY id";
        let rows = self.run(async |c| sqlx::query(sql).bind(last).fetch_all(c).await)?;
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

    /// Marks the database as used by a running core, as long as the `Store` exists. A restore then
    /// refuses it.
    pub fn mark_in_use(&mut self) -> Result<(), StoreError> {
        self.runtime.block_on(self.link.mark_in_use())
    }

    /// Returns the identifier of the key that seals K and OPc.
    pub fn key_id(&self) -> KeyId {
        self.sealing.key.id()
    }

    /// Writes the key that seals K and OPc to a file of mode 0600.
    pub fn write_key(&self, file: &Path) -> Result<(), StoreError> {
        Ok(vireo_sealing::write_key_file(file, &self.sealing.key)?)
    }

    /// Runs statements that may run twice.
    fn run<T>(&mut self, work: impl AsyncFnMut(&mut AnyConnection) -> Result<T, sqlx::Error>) -> Result<T, StoreError> {
        self.runtime.block_on(self.link.run(work)).map_err(|e| StoreError::from_sqlx(&self.path, e))
    }

    /// Closes the connection if it was lost in a transaction.
    fn close_if_lost<T>(&mut self, outcome: Result<T, StoreError>) -> Result<T, StoreError> {
        if matches!(outcome, Err(StoreError::Unreachable { .. })) {
            self.link.close();
        }
        outcome
    }
}

/// Returns the runtime of one connection.
fn runtime(path: &str) -> Result<Runtime, StoreError> {
    let built = tokio::runtime::Builder::new_current_thread().enable_all().build();
    built.map_err(|e| StoreError::Open { path: path.to_owned(), cause: e.to_string() })
}

/// Returns a sequence number as the database stores it.
fn stored_number(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

/// Returns the sequence number of a row.
fn number(row: &AnyRow) -> u64 {
    u64::try_from(row.get::<i64, _>(0)).unwrap_or(0)
}

impl Filter {
    /// Returns the first string after all with the prefix. IMSIs are digits, and `:` follows `9`.
    fn end(&self) -> String {
        format!("{}:", self.prefix)
    }
}

#[cfg(test)]
pub(crate) mod tests;
