use super::sealing::Sealing;
use super::{Store, StoreError};
use crate::record::Subscriber;
use sqlx::{Connection, SqliteConnection};
use vireo_types::Supi;

/// Rows in one INSERT. The overhead of a call is then negligible, and 6 parameters per row stay far
/// below SQLite's limit of 32,766.
const ROWS: usize = 128;

/// Handling of IMSIs that already exist.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnExisting {
    /// The import fails and changes nothing.
    Refuse,
    /// The import replaces the record, except its SQN offset.
    Replace,
}

impl Store {
    /// Adds subscribers in one transaction: all of them or, on any error, none. Calls `progress`
    /// from time to time with the number of added ones. Returns their number.
    pub fn import<'a>(
        &mut self,
        subscribers: impl IntoIterator<Item = &'a Subscriber>,
        existing: OnExisting,
        progress: &mut dyn FnMut(u64),
    ) -> Result<u64, StoreError> {
        let path = self.path.clone();
        let failed = |e| StoreError::from_sqlx(&path, e);
        let (connection, sealing) = (&mut self.connection, &mut self.sealing);
        self.runtime.block_on(async {
            let mut transaction = connection.begin_with("BEGIN IMMEDIATE").await.map_err(failed)?;
            // Another process may have changed the key since this one read it.
            sealing.follow(&mut transaction, &path).await?;
            let mut subscribers = subscribers.into_iter();
            let mut done = 0;
            loop {
                let batch: Vec<&Subscriber> = subscribers.by_ref().take(ROWS).collect();
                if batch.is_empty() {
                    break;
                }
                if let Err(error) = insert(&mut transaction, sealing, &batch, existing).await {
                    let duplicate = error.as_database_error().is_some_and(|e| e.is_unique_violation());
                    let culprit = if duplicate { already_there(&mut transaction, &batch).await } else { None };
                    return Err(culprit.map_or_else(|| failed(error), StoreError::Exists));
                }
                done += batch.len() as u64;
                progress(done);
            }
            transaction.commit().await.map_err(failed)?;
            Ok(done)
        })
    }
}

async fn insert(
    connection: &mut SqliteConnection,
    sealing: &Sealing,
    batch: &[&Subscriber],
    existing: OnExisting,
) -> Result<(), sqlx::Error> {
    let mut sql =
        String::from("INSERT INTO subscribers (imsi, secret, amf, sqn_offset, static_ipv4, subscription) VALUES ");
    for row in 0..batch.len() {
        let n = row * 6;
        let comma = if row == 0 { "" } else { "," };
        let places = [1, 2, 3, 4, 5, 6].map(|i| format!("${}", n + i)).join(",");
        sql.push_str(&format!("{comma}({places})"));
    }
    if existing == OnExisting::Replace {
        sql.push_str(
            " ON CONFLICT (imsi) DO UPDATE SET secret = excluded.secret, amf = excluded.amf, \
             static_ipv4 = excluded.static_ipv4, subscription = excluded.subscription",
        );
    }
    let query = batch.iter().fold(sqlx::query(&sql), |query, s| {
        // A subscription is plain data with string keys, which always has a JSON form.
        let subscription = serde_json::to_string(&s.subscription).unwrap_or_default();
        query
            .bind(s.supi.reveal())
            .bind(sealing.seal(s.supi, &s.k, &s.opc))
            .bind(s.amf.to_vec())
            .bind(s.sqn_offset)
            .bind(s.static_ipv4.map(|a| a.to_string()))
            .bind(subscription)
    });
    query.execute(connection).await.map(drop)
}

/// Returns the first subscriber of the batch that the database already has, or that occurs twice in
/// the batch.
async fn already_there(connection: &mut SqliteConnection, batch: &[&Subscriber]) -> Option<Supi> {
    let mut seen = std::collections::HashSet::new();
    for subscriber in batch {
        let query = sqlx::query("SELECT 1 FROM subscribers WHERE imsi = $1").bind(subscriber.supi.reveal());
        let there = query.fetch_optional(&mut *connection).await.ok()?.is_some();
        if there || !seen.insert(subscriber.supi) {
            return Some(subscriber.supi);
        }
    }
    None
}
