use super::row::StoredSubscription;
use super::sealing::Sealing;
use super::{Store, StoreError, gpsi};
use crate::record::Subscriber;
use sqlx::{AnyConnection, Row};
use std::collections::HashSet;

/// Rows in one INSERT. The overhead of a call is then negligible, and 6 parameters per row stay far
/// below the limits (SQLite 32,766, PostgreSQL 65,535).
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
        let Store { link, runtime, sealing, .. } = self;
        let engine = link.engine;
        let imported = runtime.block_on(async {
            let mut transaction = link.begin_exclusive().await.map_err(failed)?;
            // Another process may have changed the key since this one read it.
            sealing.follow(&mut transaction, &path).await?;
            let mut subscribers = subscribers.into_iter();
            let mut done = 0;
            loop {
                let batch: Vec<&Subscriber> = subscribers.by_ref().take(ROWS).collect();
                if batch.is_empty() {
                    break;
                }
                let inserting = insert(&mut transaction, sealing, &batch, existing);
                if let Some(conflict) = engine.limit(inserting).await.map_err(failed)? {
                    return Err(conflict);
                }
                done += batch.len() as u64;
                progress(done);
            }
            engine.limit(transaction.commit()).await.map_err(failed)?;
            Ok(done)
        });
        self.close_if_lost(imported)
    }
}

/// Inserts a batch. Returns the conflict of the first subscriber that the database already has, or
/// that occurs twice in the batch, unless existing ones are replaced; or of the first one whose
/// MSISDN another subscriber has.
async fn insert(
    connection: &mut AnyConnection,
    sealing: &Sealing,
    batch: &[&Subscriber],
    existing: OnExisting,
) -> Result<Option<StoreError>, sqlx::Error> {
    let rows = match existing {
        OnExisting::Refuse => batch.to_vec(),
        OnExisting::Replace => last_of_each(batch),
    };
    let mut sql =
        String::from("INSERT INTO subscribers (imsi, secret, amf, sqn_offset, static_ipv4, subscription) VALUES ");
    for row in 0..rows.len() {
        let n = row * 6;
        let comma = if row == 0 { "" } else { "," };
        let places = [1, 2, 3, 4, 5, 6].map(|i| format!("${}", n + i)).join(",");
        sql.push_str(&format!("{comma}({places})"));
    }
    sql.push_str(match existing {
        // Not an error of the database, after which PostgreSQL would answer no question about it.
        OnExisting::Refuse => " ON CONFLICT (imsi) DO NOTHING RETURNING imsi",
        OnExisting::Replace => {
            " ON CONFLICT (imsi) DO UPDATE SET secret = excluded.secret, amf = excluded.amf, \
             static_ipv4 = excluded.static_ipv4, subscription = excluded.subscription RETURNING imsi"
        }
    });
    let query = rows.iter().fold(sqlx::query(&sql), |query, s| {
        // A subscription is plain data with string keys, which always has a JSON form.
        let stored = StoredSubscription { subscription: &s.subscription, authentication_method: s.method };
        let subscription = serde_json::to_string(&stored).unwrap_or_default();
        query
            .bind(s.supi.reveal())
            .bind(sealing.seal(s.supi, &s.k, &s.opc))
            .bind(s.amf.to_vec())
            .bind(s.sqn_offset)
            .bind(s.static_ipv4.map(|a| a.to_string()))
            .bind(subscription)
    });
    let stored = query.fetch_all(&mut *connection).await?;
    if stored.len() == rows.len() {
        return Ok(gpsi::replace(connection, &rows).await?.map(StoreError::MsisdnTaken));
    }
    let mut stored: HashSet<String> = stored.iter().map(|row| row.get(0)).collect();
    Ok(rows.iter().map(|s| s.supi).find(|supi| !stored.remove(&supi.reveal())).map(StoreError::Exists))
}

/// Returns the last record of each subscriber, because one statement cannot replace a row twice.
fn last_of_each<'a>(batch: &[&'a Subscriber]) -> Vec<&'a Subscriber> {
    let mut seen = HashSet::with_capacity(batch.len());
    batch.iter().rev().copied().filter(|s| seen.insert(s.supi)).collect()
}
