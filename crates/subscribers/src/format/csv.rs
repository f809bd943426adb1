use super::{
    Amf, FormatError, ImportBatch, Keys, RecordProblem, check, keys, parse_amf, parse_ipv6_prefix, parse_msisdn,
    parse_type, type_name,
};
use crate::record::Subscriber;
use csv::{ReaderBuilder, StringRecord, Trim, WriterBuilder};
use std::io::{Read, Write};
use std::str::FromStr;
use vireo_core::subscription::{
    Ambr, AreaRestrictions, AuthenticationMethod, DnnSubscription, SliceSubscription, Subscription, UpProtection,
    UpSecurity,
};
use vireo_types::{Network, PduSessionType, Snssai};

/// The columns, in the order of an export.
pub const CSV_COLUMNS: [&str; 20] = [
    "imsi",
    "k",
    "opc",
    "amf",
    "sst",
    "sd",
    "dnn",
    "types",
    "uplink_bps",
    "downlink_bps",
    "five_qi",
    "arp_priority",
    "ipv4",
    "ipv6_prefix",
    "framed_routes",
    "up_integrity",
    "up_confidentiality",
    "msisdn",
    "authentication_method",
    "op",
];
/// Number of columns of an export, without OP, which is not stored.
const WRITTEN: usize = 19;

/// Reads CSV. Returns all records, or the errors of all invalid ones.
pub fn read_csv(input: impl Read) -> Result<Vec<Subscriber>, FormatError> {
    let mut reader = ReaderBuilder::new().trim(Trim::All).comment(Some(b'#')).from_reader(input);
    let columns = Columns::from_header(reader.headers().map_err(whole)?)?;
    let mut reading = ImportBatch::default();
    let mut line = StringRecord::new();
    loop {
        match reader.read_record(&mut line) {
            Ok(false) => break,
            Ok(true) => {
                let number = line.position().map_or(0, csv::Position::line);
                if !reading.take("line", number, columns.record(&line)) {
                    break;
                }
            }
            Err(error) => {
                let number = error.position().map_or(0, csv::Position::line);
                let problem = match error.kind() {
                    csv::ErrorKind::UnequalLengths { expected_len, len, .. } => {
                        RecordProblem::Fields { found: *len, expected: *expected_len }
                    }
                    csv::ErrorKind::Utf8 { .. } => RecordProblem::NotText,
                    _ => return Err(whole(error)),
                };
                if !reading.take("line", number, Err(problem)) {
                    break;
                }
            }
        }
    }
    reading.finish()
}

fn whole(error: csv::Error) -> FormatError {
    match error.into_kind() {
        csv::ErrorKind::Io(error) => FormatError::Io(error),
        csv::ErrorKind::Utf8 { .. } => FormatError::File("the header is no text: is this a CSV file?".into()),
        other => FormatError::File(format!("{other:?}")),
    }
}

/// Position of each known column in the file.
struct Columns([Option<usize>; CSV_COLUMNS.len()]);

impl Columns {
    fn from_header(header: &StringRecord) -> Result<Self, FormatError> {
        let mut columns = [None; CSV_COLUMNS.len()];
        for (position, name) in header.iter().enumerate() {
            let name = name.trim_start_matches('\u{feff}').to_ascii_lowercase();
            let Some(known) = CSV_COLUMNS.iter().position(|c| *c == name) else {
                let all = CSV_COLUMNS.join(", ");
                return Err(FormatError::File(format!("line 1: there is no column {name:?}; the columns are {all}")));
            };
            if columns[known].replace(position).is_some() {
                return Err(FormatError::File(format!("line 1: column {name:?} is there twice")));
            }
        }
        let columns = Columns(columns);
        for required in ["imsi", "k"] {
            if columns.position(required).is_none() {
                return Err(FormatError::File(format!("line 1: the header lacks the column {required:?}")));
            }
        }
        if columns.position("opc").or(columns.position("op")).is_none() {
            return Err(FormatError::File("line 1: the header has neither opc nor op".into()));
        }
        Ok(columns)
    }

    fn position(&self, name: &str) -> Option<usize> {
        CSV_COLUMNS.iter().position(|c| *c == name).and_then(|known| self.0[known])
    }

    /// Returns the field of a column, unless it is empty.
    fn field<'l>(&self, line: &'l StringRecord, name: &str) -> Option<&'l str> {
        line.get(self.position(name)?).filter(|text| !text.is_empty())
    }

    fn number<T: FromStr>(&self, line: &StringRecord, field: &'static str, default: T) -> Result<T, RecordProblem> {
        let parsed = self.field(line, field);
        let parsed = parsed.map(|text| text.parse().map_err(|_| RecordProblem::Range { field, text: text.to_owned() }));
        parsed.unwrap_or(Ok(default))
    }

    fn record(&self, line: &StringRecord) -> Result<Subscriber, RecordProblem> {
        let field = |name| self.field(line, name);
        let imsi = field("imsi").ok_or(RecordProblem::Empty("imsi"))?;
        let supi = imsi.parse().map_err(|error| RecordProblem::Imsi { text: imsi.to_owned(), error })?;
        let (k, opc) = keys(field("k").ok_or(RecordProblem::Empty("k"))?, field("opc"), field("op"))?;
        let sd =
            field("sd").map(|t| Snssai::sd_from_hex(t).ok_or_else(|| RecordProblem::SliceDifferentiator(t.to_owned())));
        let ambr = Ambr {
            uplink_bps: self.number(line, "uplink_bps", Ambr::default().uplink_bps)?,
            downlink_bps: self.number(line, "downlink_bps", Ambr::default().downlink_bps)?,
        };
        let session = DnnSubscription {
            types: self.types(line)?,
            ambr,
            five_qi: self.number(line, "five_qi", 9)?,
            arp_priority: self.number(line, "arp_priority", 8)?,
            up_security: self.up_security(line)?,
            ..DnnSubscription::default()
        };
        let dnn = |name: &str| {
            let dnn = name.trim().parse().map_err(|error| RecordProblem::Dnn { text: name.to_owned(), error })?;
            Ok(DnnSubscription { dnn, ..session.clone() })
        };
        let names = field("dnn").unwrap_or("internet").split(';');
        let mut dnns = names.map(dnn).collect::<Result<Vec<_>, RecordProblem>>()?;
        if let Some(first) = dnns.first_mut() {
            first.static_ipv6_prefix = field("ipv6_prefix").map(parse_ipv6_prefix).transpose()?;
            first.framed_routes = field("framed_routes").map_or(Ok(Vec::new()), framed_routes)?;
        }
        let snssai = Snssai::new(self.number(line, "sst", 1)?, sd.transpose()?);
        let ipv4 = field("ipv4").map(|t| t.parse().map_err(|_| RecordProblem::Ipv4(t.to_owned())));
        check(Subscriber {
            msisdn: field("msisdn").map(parse_msisdn).transpose()?,
            amf: field("amf").map_or(Ok(Subscriber::AMF), parse_amf)?,
            method: field("authentication_method").map(parse_method).transpose()?,
            static_ipv4: ipv4.transpose()?,
            subscription: Subscription {
                slices: vec![SliceSubscription { snssai, default: true, dnns }],
                ambr,
                only: None,
                restricts_dcnr: false,
                rfsp: None,
                suspended: false,
                areas: AreaRestrictions::default(),
            },
            ..Subscriber::new(supi, k, opc)
        })
    }

    /// Returns the policy of the columns `up_integrity` and `up_confidentiality`, of which one that
    /// is empty is `preferred`.
    fn up_security(&self, line: &StringRecord) -> Result<Option<UpSecurity>, RecordProblem> {
        let protection = |field: &'static str| match self.field(line, field) {
            None => Ok(None),
            Some("required") => Ok(Some(UpProtection::Required)),
            Some("preferred") => Ok(Some(UpProtection::Preferred)),
            Some("not-needed") => Ok(Some(UpProtection::NotNeeded)),
            Some(text) => Err(RecordProblem::Range { field, text: text.to_owned() }),
        };
        let (integrity, confidentiality) = (protection("up_integrity")?, protection("up_confidentiality")?);
        let is_set = integrity.is_some() || confidentiality.is_some();
        Ok(is_set.then(|| UpSecurity {
            integrity: integrity.unwrap_or(UpProtection::Preferred),
            confidentiality: confidentiality.unwrap_or(UpProtection::Preferred),
        }))
    }

    fn types(&self, line: &StringRecord) -> Result<Vec<PduSessionType>, RecordProblem> {
        match self.field(line, "types") {
            None => Ok(DnnSubscription::default().types),
            Some(list) => list.split(';').map(|t| Ok(parse_type(t.trim())?)).collect(),
        }
    }
}

fn parse_method(text: &str) -> Result<AuthenticationMethod, RecordProblem> {
    text.parse().map_err(|_| RecordProblem::Range { field: "authentication_method", text: text.to_owned() })
}

fn framed_routes(list: &str) -> Result<Vec<Network>, RecordProblem> {
    list.split(';').map(|text| text.trim().parse().map_err(RecordProblem::FramedRoute)).collect()
}

/// Returns the name of a protection of user data.
fn protection_name(protection: UpProtection) -> String {
    let name = match protection {
        UpProtection::Required => "required",
        UpProtection::Preferred => "preferred",
        UpProtection::NotNeeded => "not-needed",
    };
    name.to_owned()
}

/// Writes CSV and returns the number of records. Stops with an error at the first record that CSV
/// cannot represent. `next` returns the records one by one.
pub fn write_csv(
    output: impl Write,
    keys: Keys,
    next: &mut dyn FnMut() -> Option<Subscriber>,
) -> Result<u64, FormatError> {
    let mut writer = WriterBuilder::new().from_writer(output);
    let shown = |name: &&str| keys == Keys::With || !matches!(*name, "k" | "opc");
    writer.write_record(CSV_COLUMNS[..WRITTEN].iter().filter(|c| shown(c))).map_err(whole)?;
    let mut count = 0;
    while let Some(subscriber) = next() {
        let fields = flat(&subscriber).ok_or_else(|| {
            let imsi = subscriber.supi.reveal();
            FormatError::File(format!(
                "{imsi} has more slices, data networks or restrictions than CSV can hold: export as JSON"
            ))
        })?;
        let columns = CSV_COLUMNS[..WRITTEN].iter().zip(fields);
        writer.write_record(columns.filter(|(c, _)| shown(c)).map(|(_, field)| field)).map_err(whole)?;
        count += 1;
    }
    writer.flush()?;
    Ok(count)
}

/// Returns the fields of a record; `None` if one line cannot represent it.
fn flat(s: &Subscriber) -> Option<[String; WRITTEN]> {
    let [slice] = s.subscription.slices.as_slice() else { return None };
    let first = slice.dnns.first()?;
    // Only the first data network has the columns of static addresses.
    let shared = DnnSubscription { static_ipv6_prefix: None, framed_routes: Vec::new(), ..first.clone() };
    let is_alike = |d: &DnnSubscription| DnnSubscription { dnn: first.dnn.clone(), ..d.clone() } == shared;
    let alike = slice.dnns.iter().skip(1).all(is_alike) && first.static_ipv4.is_none();
    let Subscription { only, restricts_dcnr, suspended, rfsp, .. } = s.subscription;
    let restricted =
        only.is_some() || restricts_dcnr || suspended || rfsp.is_some() || !s.subscription.areas.is_empty();
    if !alike || first.ambr != s.subscription.ambr || !slice.default || restricted {
        return None;
    }
    let names: Vec<_> = slice.dnns.iter().map(|d| d.dnn.as_str()).collect();
    let types: Vec<_> = first.types.iter().map(|t| type_name(*t)).collect();
    Some([
        s.supi.reveal(),
        s.k.reveal(),
        s.opc.reveal(),
        Amf(s.amf).to_string(),
        slice.snssai.sst.to_string(),
        slice.snssai.sd.map(|sd| format!("{sd:06x}")).unwrap_or_default(),
        names.join(";"),
        types.join(";"),
        first.ambr.uplink_bps.to_string(),
        first.ambr.downlink_bps.to_string(),
        first.five_qi.to_string(),
        first.arp_priority.to_string(),
        s.static_ipv4.map(|a| a.to_string()).unwrap_or_default(),
        first.static_ipv6_prefix.map(|a| a.to_string()).unwrap_or_default(),
        first.framed_routes.iter().map(Network::to_string).collect::<Vec<_>>().join(";"),
        first.up_security.map(|policy| protection_name(policy.integrity)).unwrap_or_default(),
        first.up_security.map(|policy| protection_name(policy.confidentiality)).unwrap_or_default(),
        s.msisdn.as_ref().map(|msisdn| msisdn.reveal().to_owned()).unwrap_or_default(),
        s.method.map(|method| method.to_string()).unwrap_or_default(),
    ])
}
