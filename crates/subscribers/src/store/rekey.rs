//! Change of the sealing key.

use super::sealing::{NEXT_KEY_VARIABLE, ROWS, Sealing, associated_data, next_file, proof};
use super::{RecordFault, Store, StoreError};
use sqlx::{AnyConnection, Row};
use vireo_sealing::{KeyFileError, KeySource, SealingKey, write_key_file};

impl Store {
    /// Seals all secrets with a new key, in one transaction, and returns the number of subscribers.
    /// The new key is random and replaces the key file. If the key comes from the environment, the
    /// new one is in [`NEXT_KEY_VARIABLE`]. Running cores load the new key.
    ///
    /// # Errors
    ///
    /// Returns an error if the change fails. Key and secrets are then unchanged.
    pub fn rekey(&mut self) -> Result<u64, StoreError> {
        let (path, source) = (self.path.clone(), self.sealing.source.clone());
        let failed = |e| StoreError::from_sqlx(&path, e);
        let next = KeySource { variable: NEXT_KEY_VARIABLE, file: next_file(&source.file) };
        let Store { link, runtime, sealing: current, .. } = self;
        let engine = link.engine;
        let outcome = runtime.block_on(async {
            let mut transaction = link.begin_exclusive().await.map_err(failed)?;
            engine.announce_rekey(&mut transaction).await.map_err(failed)?;
            current.follow(&mut transaction, &path).await?;
            let key = match source.is_variable() {
                true => next.load()?,
                false => {
                    let key = SealingKey::generate();
                    // The key must be on disk before anything is sealed with it. Only one process
                    // has this transaction.
                    write_key_file(&next.file, &key)?;
                    key
                }
            };
            let sealing = Sealing { key, source: source.clone() };
            let count = reseal(&mut transaction, &path, current, &sealing).await?;
            sealing.store_proof(&mut transaction).await.map_err(failed)?;
            transaction.commit().await.map_err(failed)?;
            Ok::<_, StoreError>((count, sealing))
        });
        let (count, sealing) = self.close_if_lost(outcome)?;
        if !source.is_variable() {
            std::fs::rename(&next.file, &source.file)
                .map_err(|error| KeyFileError::Io { path: source.file.clone(), source: error })?;
        }
        self.sealing = sealing;
        Ok(count)
    }

    /// Loads the key if another process has changed it. Returns true if it is a new one.
    pub(super) fn follow_key(&mut self) -> Result<bool, StoreError> {
        let proof = self.run(async |c| proof(c).await)?;
        self.sealing.follow_proof(proof.as_deref(), &self.path)
    }
}

async fn reseal(connection: &mut AnyConnection, path: &str, old: &Sealing, new: &Sealing) -> Result<u64, StoreError> {
    let failed = |e| StoreError::from_sqlx(path, e);
    let (mut after, mut count) = (String::new(), 0);
    loop {
        let sql = "SELECT imsi, secret FROM subscribers WHERE imsi > $1 ORDER BY imsi LIMIT $2";
        let rows = sqlx::query(sql).bind(&after).bind(ROWS).fetch_all(&mut *connection).await.map_err(failed)?;
        let Some(last) = rows.last() else { return Ok(count) };
        after = last.get(0);
        for row in rows {
            let (imsi, secret): (&str, &[u8]) = (row.get(0), row.get(1));
            let bad = |error| StoreError::BadRecord { imsi: imsi.to_owned(), cause: RecordFault::Rekey(error) };
            let plain = old.key.open(&associated_data(imsi), secret).map_err(bad)?;
            let sealed = new.key.seal(&associated_data(imsi), &plain);
            let update = sqlx::query("UPDATE subscribers SET secret = $1 WHERE imsi = $2").bind(sealed).bind(imsi);
            update.execute(&mut *connection).await.map_err(failed)?;
            count += 1;
        }
    }
}
