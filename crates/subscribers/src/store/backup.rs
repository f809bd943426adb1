//! Content of the database as lines of JSON, the same for SQLite and PostgreSQL.
//!
//! The first line is the header, the last one the end. Between them are the reservations of
//! sequence numbers and the subscribers. K and OPc stay sealed: only the key, which is not in the
//! lines, opens them.

use super::engine::execute;
use super::link::Link;
use super::row::COLUMNS;
use super::sealing::{Sealing, proof, put_proof, right_key};
use super::{StoreError, location, runtime, schema};
use crate::store::Store;
use serde::{Deserialize, Serialize};
use sqlx::{AnyConnection, Row};
use std::io::{BufRead, Write};
use vireo_sealing::KeySource;

/// Version of the schema that this release reads and writes.
pub const SCHEMA: i64 = schema::VERSION;
/// Version of the lines.
const FORMAT: u32 = 1;
/// Rows of one query.
const ROWS: i64 = 1000;
/// Name of the backup in errors about its key.
const BACKUP: &str = "of the backup";

/// First line of a backup.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BackupHeader {
    /// Version of the lines.
    pub format: u32,
    /// Version of the schema of the database that was written.
    pub schema: i64,
    /// Identifier of the key that seals K and OPc.
    pub key: String,
    /// Octets that only this key opens, in hexadecimal digits.
    pub proof: String,
}

/// A line of a backup. Octets are hexadecimal digits.
#[derive(Debug, Serialize, Deserialize)]
#[serde(tag = "line", rename_all = "kebab-case", deny_unknown_fields)]
enum Line {
    Header(BackupHeader),
    SqnReservation { ind: i64, seq: i64 },
    Subscriber(Columns),
    End { subscribers: u64 },
}

/// Columns of a subscriber, as the database has them.
#[derive(Debug, Serialize, Deserialize)]
struct Columns {
    imsi: String,
    secret: String,
    amf: String,
    sqn_offset: i64,
    static_ipv4: Option<String>,
    subscription: String,
    /// Absent in backups of earlier releases, which do not read it either.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    msisdn: Option<String>,
}

/// Reasons why a backup cannot be written or restored.
#[derive(Debug, thiserror::Error)]
pub enum BackupError {
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error("the backup cannot be read or written: {0}")]
    Io(#[from] std::io::Error),
    /// A line is not what this release reads.
    #[error("line {line} of the backup's subscribers is damaged ({cause}): use another backup")]
    Line { line: u64, cause: String },
    /// The lines end too early.
    #[error("the backup's subscribers are incomplete ({found} found): use another backup")]
    Incomplete { found: u64 },
    /// A later release has written the backup.
    #[error("the backup was written by a newer Vireo (format {format}, schema {schema}): restore it by that release")]
    Newer { format: u32, schema: i64 },
    /// The database has subscribers.
    #[error(
        "the subscriber database {path} has {count} subscribers already: give --replace to replace them all, \
         or name another database"
    )]
    NotEmpty { path: String, count: i64 },
}

impl Store {
    /// Writes all that the database has at one moment, also while cores use it. Returns the number
    /// of subscribers.
    pub fn backup(&mut self, out: &mut dyn Write) -> Result<u64, BackupError> {
        let Store { path, link, runtime, sealing } = self;
        let failed = |e| StoreError::from_sqlx(path, e);
        let written = runtime.block_on(async {
            let mut transaction = link.begin_snapshot().await.map_err(failed)?;
            let proof = proof(&mut transaction).await.map_err(failed)?;
            sealing.follow_proof(proof.as_deref(), path)?;
            let header = BackupHeader {
                format: FORMAT,
                schema: SCHEMA,
                key: sealing.key.id().to_string(),
                proof: hex::encode(proof.unwrap_or_default()),
            };
            put(out, &Line::Header(header))?;
            let sql = "SELECT ind, seq FROM sqn_reservations ORDER BY ind";
            for row in sqlx::query(sql).fetch_all(&mut *transaction).await.map_err(failed)? {
                put(out, &Line::SqnReservation { ind: row.get(0), seq: row.get(1) })?;
            }
            let (mut after, mut subscribers) = (String::new(), 0);
            loop {
                let sql = format!("SELECT {COLUMNS} FROM subscribers WHERE imsi > $1 ORDER BY imsi LIMIT $2");
                let query = sqlx::query(&sql).bind(&after).bind(ROWS).fetch_all(&mut *transaction);
                let rows = query.await.map_err(failed)?;
                let Some(last) = rows.last() else { break };
                after = last.get(0);
                for row in rows {
                    subscribers += 1;
                    let record = Columns {
                        imsi: row.get(0),
                        secret: hex::encode(row.get::<&[u8], _>(1)),
                        amf: hex::encode(row.get::<&[u8], _>(2)),
                        sqn_offset: row.get(3),
                        static_ipv4: row.get(4),
                        subscription: row.get(5),
                        msisdn: row.get(6),
                    };
                    put(out, &Line::Subscriber(record))?;
                }
            }
            put(out, &Line::End { subscribers })?;
            transaction.rollback().await.map_err(failed)?;
            Ok::<_, BackupError>(subscribers)
        });
        if matches!(written, Err(BackupError::Store(StoreError::Unreachable { .. }))) {
            self.link.close();
        }
        written
    }
}

/// Restores the lines of a backup into a database, completely or not at all. Creates the database
/// if it does not exist. Returns the number of subscribers.
///
/// # Errors
///
/// Returns an error if the database has subscribers and `replace` is false, if a running core uses
/// it, if the key of `source` is not that of the backup, or if a line is damaged.
pub fn restore(database: &str, source: &KeySource, lines: &mut dyn BufRead, replace: bool) -> Result<u64, BackupError> {
    let location = location::parse(database)?;
    let path = location.shown();
    let mut lines = Lines { input: lines, number: 0 };
    let header = match lines.next()? {
        Some(Line::Header(header)) => header,
        _ => return Err(lines.bad("it is no header")),
    };
    let proof = hex::decode(&header.proof).map_err(|e| lines.bad(e))?;
    let key = right_key(source, BACKUP, Some(&proof))?;
    let sealing = Sealing { key, source: source.clone() };
    let failed = |e| StoreError::from_sqlx(&path, e);
    runtime(&path)?.block_on(async {
        let mut link = Link::open(location, true).await?;
        let alone = link.exclude_cores().await?;
        let engine = link.engine;
        let mut transaction = link.begin_exclusive().await.map_err(failed)?;
        let count = sqlx::query("SELECT count(*) FROM subscribers").fetch_one(&mut *transaction).await;
        let count = count.map_err(failed)?.get(0);
        if count > 0 && !replace {
            return Err(BackupError::NotEmpty { path: path.clone(), count });
        }
        execute(&mut transaction, "DELETE FROM subscribers").await.map_err(failed)?;
        put_proof(&mut transaction, proof).await.map_err(failed)?;
        let mut restored = 0;
        loop {
            match lines.next()? {
                Some(Line::Subscriber(row)) => {
                    let row = check_row(&sealing, row).map_err(|cause| lines.bad(cause))?;
                    engine.limit(insert(&mut transaction, row)).await.map_err(failed)?;
                    restored += 1;
                }
                Some(Line::SqnReservation { ind, seq }) => {
                    engine.limit(keep_higher(&mut transaction, ind, seq)).await.map_err(failed)?;
                }
                Some(Line::End { subscribers }) if subscribers == restored => break,
                Some(Line::End { .. }) | None => return Err(BackupError::Incomplete { found: restored }),
                Some(Line::Header(_)) => return Err(lines.bad("a second header")),
            }
        }
        transaction.commit().await.map_err(failed)?;
        drop(alone);
        Ok(restored)
    })
}

/// Columns of a subscriber, for the database.
struct Checked {
    row: Columns,
    secret: Vec<u8>,
    amf: Vec<u8>,
}

/// Checks that a line is a record that cores can read.
fn check_row(sealing: &Sealing, row: Columns) -> Result<Checked, String> {
    let secret = hex::decode(&row.secret).map_err(|e| format!("secret: {e}"))?;
    let amf = hex::decode(&row.amf).map_err(|e| format!("amf: {e}"))?;
    sealing.open(&row.imsi, &secret).map_err(|e| e.to_string())?;
    let check = |good: bool, what: &str| if good { Ok(()) } else { Err(what.to_owned()) };
    check(row.imsi.parse::<vireo_types::Supi>().is_ok(), "imsi: it is no IMSI")?;
    check(amf.len() == 2, "amf: it has not 2 octets")?;
    let is_msisdn = |text: &str| text.parse::<crate::msisdn::Msisdn>().is_ok_and(|msisdn| msisdn.reveal() == text);
    check(row.msisdn.as_deref().is_none_or(is_msisdn), "msisdn: it is no MSISDN")?;
    let ipv4 = row.static_ipv4.as_deref().is_none_or(|text| text.parse::<std::net::Ipv4Addr>().is_ok());
    check(ipv4, "static_ipv4: it is no IPv4 address")?;
    let subscription = serde_json::from_str::<vireo_core::subscription::Subscription>(&row.subscription);
    subscription.map_err(|e| format!("subscription: {e}"))?;
    Ok(Checked { row, secret, amf })
}

async fn insert(connection: &mut AnyConnection, record: Checked) -> Result<(), sqlx::Error> {
    let Checked { row, secret, amf } = record;
    let sql = "INSERT INTO subscribers (imsi, secret, amf, sqn_offset, static_ipv4, subscription) \
               VALUES ($1, $2, $3, $4, $5, $6)";
    let query = sqlx::query(sql).bind(row.imsi.clone()).bind(secret).bind(amf);
    let query = query.bind(row.sqn_offset).bind(row.static_ipv4).bind(row.subscription);
    query.execute(&mut *connection).await?;
    let Some(msisdn) = row.msisdn else { return Ok(()) };
    let sql = "INSERT INTO gpsis (imsi, msisdn) VALUES ($1, $2)";
    sqlx::query(sql).bind(row.imsi).bind(msisdn).execute(connection).await.map(drop)
}

/// Stores a reservation, unless the database has a higher one: numbers must not be used twice.
async fn keep_higher(connection: &mut AnyConnection, ind: i64, seq: i64) -> Result<(), sqlx::Error> {
    let sql = "INSERT INTO sqn_reservations (ind, seq) VALUES ($1, $2) ON CONFLICT (ind) DO UPDATE \
               SET seq = excluded.seq WHERE sqn_reservations.seq < excluded.seq";
    sqlx::query(sql).bind(ind).bind(seq).execute(connection).await.map(drop)
}

/// Writes a line.
fn put(out: &mut dyn Write, line: &Line) -> std::io::Result<()> {
    serde_json::to_writer(&mut *out, line)?;
    out.write_all(b"\n")
}

/// Reader of lines.
struct Lines<'a> {
    input: &'a mut dyn BufRead,
    number: u64,
}

impl Lines<'_> {
    /// Returns the next line. The first one must be of this release or an earlier one.
    fn next(&mut self) -> Result<Option<Line>, BackupError> {
        let mut text = String::new();
        self.number += 1;
        if self.input.read_line(&mut text)? == 0 {
            return Ok(None);
        }
        let value: serde_json::Value = serde_json::from_str(&text).map_err(|e| self.bad(e))?;
        if self.number == 1 {
            // Before the rest is read, which may be of another form in a later release.
            let number = |name: &str| value.get(name).and_then(serde_json::Value::as_i64).unwrap_or_default();
            let (format, schema) = (u32::try_from(number("format")).unwrap_or(u32::MAX), number("schema"));
            if format > FORMAT || schema > SCHEMA {
                return Err(BackupError::Newer { format, schema });
            }
        }
        serde_json::from_value(value).map(Some).map_err(|e| self.bad(e))
    }

    fn bad(&self, cause: impl std::fmt::Display) -> BackupError {
        BackupError::Line { line: self.number, cause: cause.to_string() }
    }
}
