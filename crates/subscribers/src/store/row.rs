use super::StoreError;
use super::sealing::Sealing;
use crate::record::Subscriber;
use sqlx::Row;
use sqlx::sqlite::SqliteRow;

/// Columns of a record, in the order that [`from_row`] reads.
pub(super) const COLUMNS: &str = "imsi, secret, amf, sqn_offset, static_ipv4, subscription";

/// Decodes a row. Every column is checked, because another tool may have written the row.
pub(super) fn from_row(sealing: &Sealing, row: &SqliteRow) -> Result<Subscriber, StoreError> {
    let imsi: String = row.try_get(0).unwrap_or_default();
    read(sealing, &imsi, row).map_err(|cause| StoreError::BadRecord { imsi, cause })
}

fn read(sealing: &Sealing, imsi: &str, row: &SqliteRow) -> Result<Subscriber, String> {
    let octets =
        |column: usize, name: &str| row.try_get::<&[u8], _>(column).map_err(|e| format!("{name}: {}", plain(&e)));
    let (k, opc) = sealing.open(imsi, octets(1, "secret")?)?;
    let ipv4: Option<&str> = row.try_get(4).map_err(|e| plain(&e))?;
    Ok(Subscriber {
        supi: imsi.parse().map_err(|e| format!("{e}"))?,
        k,
        opc,
        amf: octets(2, "amf")?.try_into().map_err(|_| "amf has not 2 octets")?,
        sqn_offset: row.try_get(3).map_err(|e| plain(&e))?,
        static_ipv4: ipv4.map(|t| t.parse().map_err(|_| format!("{t:?} is no IPv4 address"))).transpose()?,
        subscription: serde_json::from_str(row.try_get(5).map_err(|e| plain(&e))?)
            .map_err(|e| format!("subscription: {e}"))?,
    })
}

/// Describes a column error without the name of the library.
fn plain(error: &sqlx::Error) -> String {
    match error {
        sqlx::Error::ColumnDecode { source, .. } => source.to_string(),
        other => other.to_string(),
    }
}
