//! Sealing of K and OPc at rest, with a key outside the database.
//!
//! The secrets are sealed for each subscriber, so that they cannot be moved to another one.

use super::engine::{Engine, execute};
use super::link::Link;
use super::location::{self, Location};
use super::{RecordFault, StoreError};
use crate::record::Key;
use sqlx::{AnyConnection, Row};
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use vireo_sealing::{KeyFileError, KeySource, OpenError, SealingKey};
use vireo_types::Supi;
use zeroize::Zeroizing;

/// Environment variable with the key, instead of the key file.
pub const KEY_VARIABLE: &str = "VIREO_SUBSCRIBERS_KEY";
/// Environment variable with the new key for [`super::Store::rekey`], if the key comes from the
/// environment.
pub const NEXT_KEY_VARIABLE: &str = "VIREO_SUBSCRIBERS_NEXT_KEY";

/// Content of the proof, which shows whether a key is the right one.
const PROOF: &[u8] = b"the key of this database";
const PROOF_DATA: &[u8] = b"subscribers/proof";
/// Rows that one query seals again.
pub(super) const ROWS: i64 = 500;

/// Key of a database and its source.
#[derive(Debug)]
pub(super) struct Sealing {
    pub(super) key: SealingKey,
    pub(super) source: KeySource,
}

/// Key file of a database that is no file, in the working directory.
const KEY_FILE: &str = "subscribers.key";

/// Returns the source of a database's sealing key: the given file, else the database's file name
/// with `.key` appended, else `subscribers.key`. The environment takes precedence
/// ([`KEY_VARIABLE`]).
pub fn key_source(database: &str, key_file: Option<&Path>) -> KeySource {
    let beside = || match location::parse(database) {
        Ok(Location::File(path)) => PathBuf::from(format!("{path}.key")),
        _ => PathBuf::from(KEY_FILE),
    };
    KeySource { variable: KEY_VARIABLE, file: key_file.map_or_else(beside, Path::to_owned) }
}

/// Returns the associated data of a subscriber's secrets.
pub(super) fn associated_data(imsi: &str) -> Vec<u8> {
    [b"subscribers/", imsi.as_bytes()].concat()
}

impl Sealing {
    /// Creates the key of an in-memory database.
    pub(super) fn in_memory() -> Self {
        let source = KeySource { variable: "", file: PathBuf::new() };
        Sealing { key: SealingKey::generate(), source }
    }

    /// Loads the key of a database, or creates it with a new database. Seals secrets that an
    /// earlier release stored in clear text.
    pub(super) async fn open_key(link: &mut Link, path: &str, source: KeySource) -> Result<Self, StoreError> {
        let failed = |e| StoreError::from_sqlx(path, e);
        let engine = link.engine;
        let (proof, has_clear) =
            link.run(async |c| Ok((proof(c).await?, has_clear(engine, c).await?))).await.map_err(failed)?;
        if proof.is_some() && !has_clear {
            // The usual case: nothing is written.
            let key = right_key(&source, path, proof.as_deref())?;
            return Ok(Sealing { key, source });
        }
        let mut transaction = link.begin_exclusive().await.map_err(failed)?;
        // Another process may have been first.
        let proof = self::proof(&mut transaction).await.map_err(failed)?;
        let key = right_key(&source, path, proof.as_deref())?;
        let sealing = Sealing { key, source };
        if proof.is_none() {
            sealing.store_proof(&mut transaction).await.map_err(failed)?;
        }
        let moved = self::has_clear(engine, &mut transaction).await.map_err(failed)?;
        if moved {
            sealing.seal_clear(&mut transaction, path).await?;
        }
        transaction.commit().await.map_err(failed)?;
        if moved {
            // Remove all traces of the keys from free pages and the write-ahead log.
            for statement in ["VACUUM", "PRAGMA wal_checkpoint(TRUNCATE)"] {
                link.run(async |c| execute(c, statement).await).await.map_err(failed)?;
            }
        }
        Ok(sealing)
    }

    pub(super) async fn store_proof(&self, connection: &mut AnyConnection) -> Result<(), sqlx::Error> {
        put_proof(connection, self.key.seal(PROOF_DATA, PROOF)).await
    }

    /// Seals the rows of a release that stored keys in clear text.
    async fn seal_clear(&self, connection: &mut AnyConnection, path: &str) -> Result<(), StoreError> {
        let failed = |e| StoreError::from_sqlx(path, e);
        let mut after = String::new();
        loop {
            let sql = "SELECT imsi, k, opc FROM subscribers_in_clear WHERE imsi > $1 ORDER BY imsi LIMIT $2";
            let rows = sqlx::query(sql).bind(&after).bind(ROWS).fetch_all(&mut *connection).await.map_err(failed)?;
            let Some(last) = rows.last() else { break };
            after = last.get(0);
            for row in rows {
                let (imsi, k, opc): (&str, &[u8], &[u8]) = (row.get(0), row.get(1), row.get(2));
                let sealed = self.key.seal(&associated_data(imsi), &Zeroizing::new([k, opc].concat()));
                let sql = "INSERT INTO subscribers (imsi, secret, amf, sqn_offset, static_ipv4, subscription) \
                           SELECT imsi, $1, amf, sqn_offset, static_ipv4, subscription FROM subscribers_in_clear \
                           WHERE imsi = $2";
                sqlx::query(sql).bind(sealed).bind(imsi).execute(&mut *connection).await.map_err(failed)?;
            }
        }
        sqlx::query("DROP TABLE subscribers_in_clear").execute(connection).await.map(drop).map_err(failed)
    }

    /// Seals K and OPc for storage.
    pub(super) fn seal(&self, supi: Supi, k: &Key, opc: &Key) -> Vec<u8> {
        let plain = Zeroizing::new([*k.octets(), *opc.octets()].concat());
        self.key.seal(&associated_data(&supi.reveal()), &plain)
    }

    /// Opens sealed K and OPc.
    pub(super) fn open(&self, imsi: &str, sealed: &[u8]) -> Result<(Key, Key), RecordFault> {
        let plain = self.key.open(&associated_data(imsi), sealed).map_err(RecordFault::Secret)?;
        let (k, opc) = plain.split_first_chunk::<16>().ok_or(RecordFault::SecretLength)?;
        let opc: [u8; 16] = opc.try_into().map_err(|_| RecordFault::SecretLength)?;
        Ok((Key::new(*k), Key::new(opc)))
    }

    /// Loads the key if another process has changed it. Returns true if it is a new one.
    pub(super) async fn follow(&mut self, connection: &mut AnyConnection, path: &str) -> Result<bool, StoreError> {
        let proof = proof(connection).await.map_err(|e| StoreError::from_sqlx(path, e))?;
        self.follow_proof(proof.as_deref(), path)
    }

    /// Loads the key of a proof, if it is another one. Returns true if so.
    pub(super) fn follow_proof(&mut self, proof: Option<&[u8]>, path: &str) -> Result<bool, StoreError> {
        if self.source.variable.is_empty() {
            return Ok(false);
        }
        let key = right_key(&self.source, path, proof)?;
        let changed = key != self.key;
        self.key = key;
        Ok(changed)
    }
}

/// Returns the file of the next key during a change of keys.
pub(super) fn next_file(file: &Path) -> PathBuf {
    let mut name: OsString = file.as_os_str().to_owned();
    name.push(".next");
    name.into()
}

/// Stores the proof of a key.
pub(super) async fn put_proof(connection: &mut AnyConnection, proof: Vec<u8>) -> Result<(), sqlx::Error> {
    let sql = "INSERT INTO sealing (id, proof) VALUES (1, $1) ON CONFLICT (id) DO UPDATE SET proof = excluded.proof";
    sqlx::query(sql).bind(proof).execute(connection).await.map(drop)
}

/// Returns the proof of the key; `None` for a new database.
pub(super) async fn proof(connection: &mut AnyConnection) -> Result<Option<Vec<u8>>, sqlx::Error> {
    let row = sqlx::query("SELECT proof FROM sealing").fetch_optional(connection).await?;
    Ok(row.map(|row| row.get(0)))
}

/// Returns true if the database has keys in clear, as the first release stored them.
async fn has_clear(engine: Engine, connection: &mut AnyConnection) -> Result<bool, sqlx::Error> {
    if engine == Engine::Postgres {
        return Ok(false);
    }
    let sql = "SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = 'subscribers_in_clear'";
    Ok(sqlx::query(sql).fetch_optional(connection).await?.is_some())
}

/// Returns the key that opens the proof. A database without proof is new; its key may be created.
pub(super) fn right_key(source: &KeySource, path: &str, proof: Option<&[u8]>) -> Result<SealingKey, StoreError> {
    let Some(proof) = proof else { return Ok(source.load_or_create()?) };
    let opens = |key: &SealingKey| key.open(PROOF_DATA, proof).map(drop);
    let wrong = match source.find()? {
        Some(key) => match opens(&key) {
            Ok(()) => return Ok(key),
            Err(error) => Some(error),
        },
        None => None,
    };
    // The process that changes the key has committed but not yet renamed the file, or ended in
    // between.
    if !source.is_variable() {
        let next = KeySource { file: next_file(&source.file), ..source.clone() };
        if let Some(key) = next.find()?.filter(|key| opens(key).is_ok()) {
            return Ok(key);
        }
    }
    let path = path.to_owned();
    match wrong {
        Some(OpenError::OtherKey { sealed, ours }) => {
            let origin = if source.is_variable() { source.variable.into() } else { source.file.display().to_string() };
            Err(StoreError::OtherKey { path, origin, sealed, ours })
        }
        Some(error) => Err(StoreError::Corrupt { path, cause: error.to_string() }),
        None => Err(KeyFileError::Missing { path: source.file.clone(), variable: source.variable }.into()),
    }
}
