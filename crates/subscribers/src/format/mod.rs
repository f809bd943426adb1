//! Text formats of subscriber records: CSV for spreadsheets, JSON for all values.
//!
//! **CSV** has a header line; its columns may come in any order:
//!
//! | column | meaning | if absent or empty |
//! |---|---|---|
//! | `imsi` | 6 to 15 digits | required |
//! | `k` | subscriber key, 32 hexadecimal digits | required |
//! | `opc` or `op` | OPc, or OP from which it is derived; one of the two | required |
//! | `amf` | authentication management field, 4 hexadecimal digits | `8000` |
//! | `sst`, `sd` | the subscribed slice: 0 to 255, and 6 hexadecimal digits | `1`, none |
//! | `dnn` | data networks with `;` between, the default one first | `internet` |
//! | `types` | session types, `;` between, default first: `ipv4`, `ipv6`, `ipv4v6` | all three |
//! | `uplink_bps`, `downlink_bps` | bit rates of the UE and of each session | 1000000000 |
//! | `five_qi`, `arp_priority` | of the default QoS flow: non-GBR, 5 to 255; 1 to 15 | `9`, `8` |
//! | `ipv4`, `ipv6_prefix` | static address and prefix of 64 bits in the first data network | none |
//! | `framed_routes` | networks behind the UE in the first data network, `;` between | none |
//! | `msisdn` | GPSI: 5 to 15 digits, with country code | none |
//! | `up_integrity`, `up_confidentiality` | `required`, `preferred` or `not-needed` | data network |
//! | `authentication_method` | `5g-aka` or `eap-aka-prime` | of the configuration |
//!
//! **JSON** is an array of objects with `imsi`, `k`, `opc` or `op`, and optionally `msisdn`, `amf`,
//! `authentication_method`, `ipv4` and `subscription`. The last has the form of
//! `vireo_core::subscription::Subscription`.
//!
//! A reader accepts all records or none. In the latter case it reports each invalid record, up to
//! [`MAX_ERRORS`]. It never repeats a key in an error.

mod csv;
mod error;
mod fields;
mod json;

use crate::msisdn::Msisdn;
use crate::record::{Key, Subscriber};
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::fmt;
use std::net::Ipv6Addr;
use vireo_core::subscription::{FRAMED_ROUTES, Subscription, is_gbr};
use vireo_types::limits::BIT_RATE;
use vireo_types::{Network, PduSessionType, Supi};

pub use csv::{CSV_COLUMNS, read_csv, write_csv};
pub use error::{AmfError, FormatError, ImportError, Ipv6PrefixError, RecordProblem, SessionTypeError};
pub use json::{read_json, read_record, record_without_keys, write_json};

/// Maximum of errors reported for one file.
pub const MAX_ERRORS: usize = 20;

/// Whether an export contains keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Keys {
    /// Neither K nor OPc.
    Without,
    /// K and OPc in clear text.
    With,
}

/// Records of an import, and the errors of invalid ones.
#[derive(Default)]
struct ImportBatch {
    records: Vec<Subscriber>,
    places: HashMap<Supi, u64>,
    errors: Vec<ImportError>,
}

impl ImportBatch {
    /// Adds a record or its error. Returns false at [`MAX_ERRORS`] errors.
    fn take(&mut self, position: &'static str, number: u64, record: Result<Subscriber, RecordProblem>) -> bool {
        let record = record.and_then(|r| match self.places.entry(r.supi) {
            Entry::Vacant(v) => {
                v.insert(number);
                Ok(r)
            }
            Entry::Occupied(o) => Err(RecordProblem::Duplicate { imsi: r.supi.reveal(), position, number: *o.get() }),
        });
        match record {
            Ok(record) => self.records.push(record),
            Err(problem) => self.errors.push(ImportError { position: format!("{position} {number}"), problem }),
        }
        self.errors.len() < MAX_ERRORS
    }

    fn finish(self) -> Result<Vec<Subscriber>, FormatError> {
        if self.errors.is_empty() { Ok(self.records) } else { Err(FormatError::Records(self.errors)) }
    }
}

/// Parses K and OPc from the fields of a record.
fn keys(k: &str, opc: Option<&str>, op: Option<&str>) -> Result<(Key, Key), RecordProblem> {
    let key = |field, text: &str| text.parse::<Key>().map_err(|error| RecordProblem::Key { field, error });
    let k = key("k", k)?;
    match (opc, op) {
        (Some(opc), None) => Ok((k, key("opc", opc)?)),
        (None, Some(op)) => {
            let opc = Key::opc_of(&k, &key("op", op)?);
            Ok((k, opc))
        }
        (None, None) => Err(RecordProblem::NoOpc),
        (Some(_), Some(_)) => Err(RecordProblem::OpcAndOp),
    }
}

/// Parses an AMF field of four hexadecimal digits. Refuses one without the separation bit, which 5G
/// AKA needs (TS 33.501 6.1.3.2).
pub fn parse_amf(text: &str) -> Result<[u8; 2], AmfError> {
    let mut amf = [0; 2];
    hex::decode_to_slice(text, &mut amf).map_err(|_| AmfError::Syntax(text.to_owned()))?;
    if amf[0] & 0x80 == 0 {
        return Err(AmfError::SeparationBit(text.to_owned()));
    }
    Ok(amf)
}

/// Parses an MSISDN, with or without `msisdn-`.
fn parse_msisdn(text: &str) -> Result<Msisdn, RecordProblem> {
    text.parse().map_err(|error| RecordProblem::Msisdn { text: text.to_owned(), error })
}

/// Parses the name of a session type.
pub fn parse_type(text: &str) -> Result<PduSessionType, SessionTypeError> {
    match text.to_ascii_lowercase().as_str() {
        "ipv4" => Ok(PduSessionType::Ipv4),
        "ipv6" => Ok(PduSessionType::Ipv6),
        "ipv4v6" => Ok(PduSessionType::Ipv4v6),
        _ => Err(SessionTypeError(text.to_owned())),
    }
}

/// Parses an IPv6 prefix of 64 bits, with or without `/64`. It may have further bits, which
/// [`check`] refuses.
pub fn parse_ipv6_prefix(text: &str) -> Result<Ipv6Addr, Ipv6PrefixError> {
    text.strip_suffix("/64").unwrap_or(text).parse().map_err(|_| Ipv6PrefixError(text.to_owned()))
}

/// Returns the name of a session type.
fn type_name(kind: PduSessionType) -> &'static str {
    match kind {
        PduSessionType::Ipv4 => "ipv4",
        PduSessionType::Ipv6 => "ipv6",
        PduSessionType::Ipv4v6 => "ipv4v6",
    }
}

struct Amf([u8; 2]);

impl fmt::Display for Amf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:02x}{:02x}", self.0[0], self.0[1])
    }
}

/// Refuses records that no UE could use, in any format.
///
/// # Errors
///
/// Returns the first problem.
pub fn check(record: Subscriber) -> Result<Subscriber, RecordProblem> {
    if record.subscription.slices.is_empty() {
        return Err(RecordProblem::NoSlice);
    }
    if !record.subscription.areas.is_valid() {
        return Err(RecordProblem::Areas);
    }
    if !has_valid_rates(&record.subscription) {
        return Err(RecordProblem::BitRates);
    }
    for slice in &record.subscription.slices {
        if slice.snssai.sd.is_some_and(|sd| sd > 0xff_ffff) {
            return Err(RecordProblem::LongSliceDifferentiator);
        }
        for dnn in &slice.dnns {
            if dnn.types.is_empty() {
                return Err(RecordProblem::NoSessionType(dnn.dnn.clone()));
            }
            if !(1..=15).contains(&dnn.arp_priority) || dnn.five_qi == 0 {
                return Err(RecordProblem::Qos(dnn.dnn.clone()));
            }
            if is_gbr(dnn.five_qi) {
                return Err(RecordProblem::Gbr(dnn.dnn.clone(), dnn.five_qi));
            }
            if dnn.static_ipv6_prefix.is_some_and(|prefix| prefix.to_bits() as u64 != 0) {
                return Err(RecordProblem::LongIpv6Prefix(dnn.dnn.clone()));
            }
            let is_route = |network: &Network| match network.is_ipv4() {
                true => network.length() >= 8,
                false => (16..=64).contains(&network.length()),
            };
            if dnn.framed_routes.len() > FRAMED_ROUTES || !dnn.framed_routes.iter().all(is_route) {
                return Err(RecordProblem::FramedRoutes(dnn.dnn.clone()));
            }
        }
    }
    Ok(record)
}

/// Returns true if messages to RAN nodes can have the bit rates.
fn has_valid_rates(subscription: &Subscription) -> bool {
    let sessions = subscription.slices.iter().flat_map(|slice| &slice.dnns).map(|dnn| dnn.ambr);
    sessions.chain([subscription.ambr]).all(|ambr| ambr.uplink_bps.max(ambr.downlink_bps) <= BIT_RATE)
}

#[cfg(test)]
mod tests;
