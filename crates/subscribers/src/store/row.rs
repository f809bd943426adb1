use super::StoreError;
use crate::record::{Key, Subscriber};
use sqlx::Row;
use sqlx::sqlite::SqliteRow;

/// The columns of a record, in the order in which [`from_row`] reads them.
pub(super) const COLUMNS: &str = "imsi, k, opc, amf, sqn_offset, static_ipv4, subscription";

/// The record of a row. Rows are read with care: a person with another tool may have written them.
pub(super) fn from_row(row: &SqliteRow) -> Result<Subscriber, StoreError> {
    let imsi: String = row.try_get(0).unwrap_or_default();
    read(&imsi, row).map_err(|cause| StoreError::BadRecord { imsi, cause })
}

fn read(imsi: &str, row: &SqliteRow) -> Result<Subscriber, String> {
    let octets =
        |column: usize, name: &str| row.try_get::<&[u8], _>(column).map_err(|e| format!("{name}: {}", plain(&e)));
    let key = |column, name: &str| {
        let octets: Result<[u8; 16], _> = octets(column, name)?.try_into();
        octets.map(Key::new).map_err(|_| format!("{name} has not 16 octets"))
    };
    let ipv4: Option<&str> = row.try_get(5).map_err(|e| plain(&e))?;
    Ok(Subscriber {
        supi: imsi.parse().map_err(|e| format!("{e}"))?,
        k: key(1, "k")?,
        opc: key(2, "opc")?,
        amf: octets(3, "amf")?.try_into().map_err(|_| "amf has not 2 octets")?,
        sqn_offset: row.try_get(4).map_err(|e| plain(&e))?,
        static_ipv4: ipv4.map(|t| t.parse().map_err(|_| format!("{t:?} is no IPv4 address"))).transpose()?,
        subscription: serde_json::from_str(row.try_get(6).map_err(|e| plain(&e))?)
            .map_err(|e| format!("subscription: {e}"))?,
    })
}

/// What went wrong with a column, without the name of the library.
fn plain(error: &sqlx::Error) -> String {
    match error {
        sqlx::Error::ColumnDecode { source, .. } => source.to_string(),
        other => other.to_string(),
    }
}
