use super::sealing::Sealing;
use super::{RecordFault, StoreError};
use crate::record::Subscriber;
use serde::{Deserialize, Serialize};
use sqlx::Row;
use sqlx::any::AnyRow;
use vireo_core::subscription::{AuthenticationMethod, Subscription};

/// Content of the column `subscription`. Release 0.2.0 ignores the authentication method, so that
/// the version of the schema stays.
#[derive(Serialize, Deserialize)]
pub(super) struct StoredSubscription<S> {
    #[serde(flatten)]
    pub(super) subscription: S,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) authentication_method: Option<AuthenticationMethod>,
}

/// Columns of a record, in the order that [`from_row`] reads.
pub(super) const COLUMNS: &str = "imsi, secret, amf, sqn_offset, static_ipv4, subscription, \
                                  (SELECT msisdn FROM gpsis WHERE gpsis.imsi = subscribers.imsi)";

/// Decodes a row. Every column is checked, because another tool may have written the row.
pub(super) fn from_row(sealing: &Sealing, row: &AnyRow) -> Result<Subscriber, StoreError> {
    let imsi: String = row.try_get(0).unwrap_or_default();
    read(sealing, &imsi, row).map_err(|cause| StoreError::BadRecord { imsi, cause })
}

fn read(sealing: &Sealing, imsi: &str, row: &AnyRow) -> Result<Subscriber, RecordFault> {
    let octets = |column: usize, name: &'static str| {
        row.try_get::<&[u8], _>(column).map_err(|error| RecordFault::Octets { name, error })
    };
    let (k, opc) = sealing.open(imsi, octets(1, "secret")?)?;
    let ipv4: Option<&str> = row.try_get(4).map_err(RecordFault::Column)?;
    let parse_ipv4 = |text: &str| text.parse().map_err(|_| RecordFault::StaticIpv4(text.to_owned()));
    let msisdn: Option<&str> = row.try_get(6).map_err(RecordFault::Column)?;
    let mut subscriber = Subscriber {
        supi: imsi.parse().map_err(RecordFault::Imsi)?,
        msisdn: msisdn.map(str::parse).transpose().map_err(RecordFault::Msisdn)?,
        k,
        opc,
        amf: octets(2, "amf")?.try_into().map_err(|_| RecordFault::Amf)?,
        method: None,
        sqn_offset: row.try_get(3).map_err(RecordFault::Column)?,
        static_ipv4: ipv4.map(parse_ipv4).transpose()?,
        subscription: Subscription::default(),
    };
    let stored: StoredSubscription<Subscription> =
        serde_json::from_str(row.try_get(5).map_err(RecordFault::Column)?).map_err(RecordFault::Subscription)?;
    (subscriber.method, subscriber.subscription) = (stored.authentication_method, stored.subscription);
    Ok(subscriber)
}
