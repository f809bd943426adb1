//! GPSIs of subscribers, in a table of their own.
//!
//! An earlier release does not know the table and uses the database all the same, so the version of
//! the schema stays. The database removes a GPSI with its subscriber, whichever release removes
//! that.

use super::engine::{Engine, execute};
use crate::msisdn::Msisdn;
use crate::record::Subscriber;
use sqlx::{AnyConnection, Connection, Row};
use std::collections::HashSet;
use vireo_types::Supi;

const SQLITE: &str = "
    CREATE TABLE gpsis (imsi TEXT NOT NULL PRIMARY KEY, msisdn TEXT NOT NULL UNIQUE) WITHOUT ROWID;
    CREATE TRIGGER gpsi_removed AFTER DELETE ON subscribers BEGIN
        DELETE FROM gpsis WHERE imsi = OLD.imsi;
    END;";

const POSTGRES: &str = r#"
    CREATE TABLE gpsis (
        imsi   TEXT COLLATE "C" NOT NULL PRIMARY KEY REFERENCES subscribers (imsi) ON DELETE CASCADE,
        msisdn TEXT COLLATE "C" NOT NULL UNIQUE
    );"#;

/// Creates the table unless it exists.
pub(super) async fn create_table(connection: &mut AnyConnection, engine: Engine) -> Result<(), sqlx::Error> {
    if exists(connection, engine).await? {
        return Ok(());
    }
    // Another process may create it at the same time.
    let mut transaction = connection.begin_with(engine.begin_exclusive()).await?;
    engine.limit(engine.lock(&mut transaction)).await?;
    if !exists(&mut transaction, engine).await? {
        let create = match engine {
            Engine::Sqlite => SQLITE,
            Engine::Postgres => POSTGRES,
        };
        engine.limit(execute(&mut transaction, create)).await?;
    }
    engine.limit(transaction.commit()).await
}

async fn exists(connection: &mut AnyConnection, engine: Engine) -> Result<bool, sqlx::Error> {
    let sql = match engine {
        Engine::Sqlite => "SELECT count(*) FROM sqlite_master WHERE type = 'table' AND name = 'gpsis'",
        Engine::Postgres => "SELECT CASE WHEN to_regclass('gpsis') IS NULL THEN 0::BIGINT ELSE 1::BIGINT END",
    };
    Ok(sqlx::query(sql).fetch_one(connection).await?.get::<i64, _>(0) > 0)
}

/// Replaces the GPSIs of stored subscribers. Returns the first subscriber whose MSISDN another one
/// has.
pub(super) async fn replace(
    connection: &mut AnyConnection,
    subscribers: &[&Subscriber],
) -> Result<Option<Supi>, sqlx::Error> {
    let places = |count: usize| (1..=count).map(|n| format!("${n}")).collect::<Vec<_>>().join(",");
    if subscribers.is_empty() {
        return Ok(None);
    }
    let sql = format!("DELETE FROM gpsis WHERE imsi IN ({})", places(subscribers.len()));
    let query = subscribers.iter().fold(sqlx::query(&sql), |query, subscriber| query.bind(subscriber.supi.reveal()));
    query.execute(&mut *connection).await?;
    let with: Vec<(Supi, &Msisdn)> =
        subscribers.iter().filter_map(|subscriber| Some((subscriber.supi, subscriber.msisdn.as_ref()?))).collect();
    if with.is_empty() {
        return Ok(None);
    }
    let rows: Vec<String> = (0..with.len()).map(|row| format!("(${},${})", row * 2 + 1, row * 2 + 2)).collect();
    // Not an error of the database, after which PostgreSQL would answer no question about it.
    let sql =
        format!("INSERT INTO gpsis (imsi, msisdn) VALUES {} ON CONFLICT DO NOTHING RETURNING imsi", rows.join(","));
    let query = with
        .iter()
        .fold(sqlx::query(&sql), |query, (supi, msisdn)| query.bind(supi.reveal()).bind(msisdn.reveal().to_owned()));
    let stored: HashSet<String> = query.fetch_all(connection).await?.iter().map(|row| row.get(0)).collect();
    Ok(with.iter().map(|(supi, _)| *supi).find(|supi| !stored.contains(&supi.reveal())))
}
