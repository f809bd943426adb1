//! Reasons why a file or a record of an import is refused.

use super::MAX_ERRORS;
use crate::msisdn::MsisdnError;
use crate::record::KeyError;
use std::io;
use vireo_core::subscription::{FORBIDDEN_AREAS, SERVICE_AREA};
use vireo_types::limits::BIT_RATE;
use vireo_types::{Dnn, DnnError, NetworkError, SupiError};

/// Error of one record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ImportError {
    /// Position in the file: "line 7" or "record 3".
    pub position: String,
    pub problem: RecordProblem,
}

/// Reason why a record is refused. It never repeats a key.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RecordProblem {
    /// An earlier record of the file has the same IMSI.
    #[error("IMSI {imsi} is in {position} {number} already")]
    Duplicate {
        imsi: String,
        /// "line" in CSV, "record" in JSON.
        position: &'static str,
        /// Number of the earlier record.
        number: u64,
    },
    #[error("{0} is empty")]
    Empty(&'static str),
    #[error("{0} is missing")]
    Missing(&'static str),
    #[error("imsi: {text:?}: {error}")]
    Imsi { text: String, error: SupiError },
    #[error("msisdn: {text:?}: {error}")]
    Msisdn { text: String, error: MsisdnError },
    /// `field` is k, opc or op.
    #[error("{field}: {error}")]
    Key { field: &'static str, error: KeyError },
    #[error("neither opc nor op is there")]
    NoOpc,
    #[error("both opc and op are there: give one")]
    OpcAndOp,
    #[error("amf: {0}")]
    Amf(#[from] AmfError),
    #[error("sd: {0:?} is no slice differentiator: six hexadecimal digits")]
    SliceDifferentiator(String),
    #[error("a slice differentiator has 24 bits")]
    LongSliceDifferentiator,
    #[error("{field}: {text:?} is out of range")]
    Range { field: &'static str, text: String },
    #[error("dnn: {text:?}: {error}")]
    Dnn { text: String, error: DnnError },
    #[error("types: {0}")]
    SessionType(#[from] SessionTypeError),
    #[error("ipv4: {0:?} is no IPv4 address")]
    Ipv4(String),
    #[error("ipv6_prefix: {0}")]
    Ipv6Prefix(#[from] Ipv6PrefixError),
    #[error("framed_routes: {0}")]
    FramedRoute(NetworkError),
    #[error("data network {0}: static_ipv6_prefix has bits behind its first 64")]
    LongIpv6Prefix(Dnn),
    #[error("data network {0}: at most 8 framed_routes are allowed, IPv4 /8 to /32 or IPv6 /16 to /64")]
    FramedRoutes(Dnn),
    #[error(
        "forbidden_areas has at most {} and service_area 1 to {} tracking area codes, of 24 bits",
        FORBIDDEN_AREAS,
        SERVICE_AREA
    )]
    Areas,
    #[error("service_area: give either allowed or not_allowed")]
    ServiceArea,
    /// Messages to RAN nodes have no higher rate, and stored contexts no room for one.
    #[error("uplink_bps and downlink_bps are at most {} bit/s", BIT_RATE)]
    BitRates,
    #[error("the subscription has no slice")]
    NoSlice,
    #[error("data network {0} has no session type")]
    NoSessionType(Dnn),
    #[error("data network {0}: five_qi is 1 to 255, arp_priority 1 to 15")]
    Qos(Dnn),
    /// A default QoS flow has no guaranteed bit rate (TS 23.501 5.7.2.7).
    #[error("data network {0}: five_qi {1} is that of a GBR flow; set a non-GBR one, for example 5 to 9")]
    Gbr(Dnn, u8),
    /// A CSV line has another number of fields than the header.
    #[error("{found} fields where the header has {expected}")]
    Fields { found: u64, expected: u64 },
    /// A CSV line is not UTF-8.
    #[error("this is no text")]
    NotText,
    /// The JSON value of the subscription has a field of another name.
    #[error("subscription: there is no field {0:?}; correct or remove the name")]
    UnknownField(String),
    /// The JSON value has not the fields of a record.
    #[error("{0}")]
    Json(String),
}

/// The text is no AMF field that 5G can use.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AmfError {
    #[error("{0:?} is no AMF field: four hexadecimal digits")]
    Syntax(String),
    /// TS 33.501 6.1.3.2 requires the separation bit.
    #[error("{0:?} lacks the separation bit, which 5G needs: 8000 is usual")]
    SeparationBit(String),
}

/// The text names no session type.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is no session type: ipv4, ipv6 or ipv4v6")]
pub struct SessionTypeError(pub String);

/// The text is no IPv6 prefix of 64 bits.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is no IPv6 prefix of 64 bits")]
pub struct Ipv6PrefixError(pub String);

/// Reasons why a file is refused.
#[derive(Debug, thiserror::Error)]
pub enum FormatError {
    /// Some records are invalid. No record is imported.
    #[error("{}", list(.0))]
    Records(Vec<ImportError>),
    /// The file does not have the expected format.
    #[error("{0}")]
    File(String),
    /// The file cannot be read or written.
    #[error(transparent)]
    Io(#[from] io::Error),
}

fn list(errors: &[ImportError]) -> String {
    let lines: Vec<_> = errors.iter().map(|e| format!("{}: {}", e.position, e.problem)).collect();
    let more = if errors.len() < MAX_ERRORS { "" } else { "\n(and perhaps more)" };
    format!("nothing is imported, as these records are wrong:\n{}{more}", lines.join("\n"))
}
