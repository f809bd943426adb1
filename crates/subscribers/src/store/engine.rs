//! SQL that differs between SQLite and PostgreSQL. All other SQL of the store is the same text.

use sqlx::AnyConnection;
use sqlx::any::AnyQueryResult;

/// Kind of a database.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Engine {
    Sqlite,
    Postgres,
}

impl Engine {
    /// Returns the statement that begins a transaction of reads, all of one moment.
    pub(super) fn begin_snapshot(self) -> &'static str {
        match self {
            // With a write-ahead log, the first read fixes what a transaction sees.
            Engine::Sqlite => "BEGIN",
            Engine::Postgres => "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY",
        }
    }

    /// Returns the statement that begins a transaction of the only writer.
    pub(super) fn begin_exclusive(self) -> &'static str {
        match self {
            Engine::Sqlite => "BEGIN IMMEDIATE",
            Engine::Postgres => "BEGIN",
        }
    }

    /// Completes the begin of a transaction of the only writer. Readers go on.
    pub(super) async fn lock(self, connection: &mut AnyConnection) -> Result<(), sqlx::Error> {
        match self {
            Engine::Sqlite => Ok(()),
            Engine::Postgres => execute(connection, "LOCK TABLE sealing IN EXCLUSIVE MODE").await.map(drop),
        }
    }

    /// Returns the query of a number that changes with each change of a subscriber by another
    /// connection. SQLite's own number costs less than a query of the table.
    pub(super) fn data_version(self) -> &'static str {
        match self {
            Engine::Sqlite => "PRAGMA data_version",
            Engine::Postgres => self.last_change(),
        }
    }

    /// Returns the query of the number of the last change.
    pub(super) fn last_change(self) -> &'static str {
        match self {
            Engine::Sqlite => "SELECT coalesce(max(id), 0) FROM changes",
            Engine::Postgres => "SELECT last FROM change_counter",
        }
    }

    /// Announces within a transaction that it seals all secrets again, which is no change of a
    /// subscriber.
    pub(super) async fn announce_rekey(self, connection: &mut AnyConnection) -> Result<(), sqlx::Error> {
        match self {
            // Its trigger does not watch the column.
            Engine::Sqlite => Ok(()),
            Engine::Postgres => execute(connection, "SET LOCAL vireo.rekey = 'on'").await.map(drop),
        }
    }
}

/// Executes a statement without parameters, by the protocol that prepares none.
pub(super) async fn execute(connection: &mut AnyConnection, sql: &str) -> Result<AnyQueryResult, sqlx::Error> {
    sqlx::Executor::execute(connection, sql).await
}
