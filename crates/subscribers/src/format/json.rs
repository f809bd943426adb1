use super::fields::{SUBSCRIPTION, unknown_field};
use super::{Amf, FormatError, ImportBatch, Keys, RecordProblem, check, keys, parse_amf, parse_msisdn};
use crate::record::{Subscriber, lab_subscription};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::io::{Read, Write};
use std::net::Ipv4Addr;
use vireo_core::subscription::{AuthenticationMethod, Subscription};

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct JsonSubscriber {
    imsi: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    msisdn: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    k: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    opc: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    op: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    amf: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    authentication_method: Option<AuthenticationMethod>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    ipv4: Option<Ipv4Addr>,
    #[serde(default = "lab_subscription")]
    subscription: Subscription,
}

/// Reads JSON. Returns all records, or the errors of all invalid ones.
pub fn read_json(input: impl Read) -> Result<Vec<Subscriber>, FormatError> {
    let values: Vec<Value> = serde_json::from_reader(std::io::BufReader::new(input)).map_err(|error| {
        if let Some(kind) = error.io_error_kind() {
            return FormatError::Io(kind.into());
        }
        let place = format!("line {} column {}", error.line(), error.column());
        FormatError::File(format!("{place}: this is no JSON array of subscribers"))
    })?;
    let mut reading = ImportBatch::default();
    for (n, value) in values.into_iter().enumerate() {
        if !reading.take("record", n as u64 + 1, read_record(value, None)) {
            break;
        }
    }
    reading.finish()
}

/// Reads one record from a JSON value. Without keys in it, the record has those of `present`, if
/// there is one.
///
/// # Errors
///
/// Returns the problem of the value, which repeats no key.
pub fn read_record(value: Value, present: Option<&Subscriber>) -> Result<Subscriber, RecordProblem> {
    let subscription = value.get("subscription");
    if let Some(name) = subscription.and_then(|value| unknown_field(value, &SUBSCRIPTION)) {
        return Err(RecordProblem::UnknownField(name.to_owned()));
    }
    let area = subscription.and_then(|value| value.get("service_area")).and_then(Value::as_object);
    if area.is_some_and(|lists| lists.len() != 1) {
        return Err(RecordProblem::ServiceArea);
    }
    // Keys are strings. So an error about a wrong type can repeat a value only if it is a number,
    // which is not a key.
    let record: JsonSubscriber =
        serde_json::from_value(value).map_err(|error| RecordProblem::Json(error.to_string()))?;
    let supi = record.imsi.parse().map_err(|error| RecordProblem::Imsi { text: record.imsi, error })?;
    let has_no_key = record.k.is_none() && record.opc.is_none() && record.op.is_none();
    let (k, opc) = match present.filter(|_| has_no_key) {
        Some(present) => (present.k.clone(), present.opc.clone()),
        None => {
            let k = record.k.ok_or(RecordProblem::Missing("k"))?;
            keys(&k, record.opc.as_deref(), record.op.as_deref())?
        }
    };
    check(Subscriber {
        msisdn: record.msisdn.as_deref().map(parse_msisdn).transpose()?,
        amf: record.amf.as_deref().map_or(Ok(Subscriber::AMF), parse_amf)?,
        method: record.authentication_method,
        static_ipv4: record.ipv4,
        subscription: record.subscription,
        ..Subscriber::new(supi, k, opc)
    })
}

fn json(s: Subscriber, keys: Keys) -> JsonSubscriber {
    let secret = |key: String| (keys == Keys::With).then_some(key);
    JsonSubscriber {
        imsi: s.supi.reveal(),
        msisdn: s.msisdn.as_ref().map(|msisdn| msisdn.reveal().to_owned()),
        k: secret(s.k.reveal()),
        opc: secret(s.opc.reveal()),
        op: None,
        amf: Some(Amf(s.amf).to_string()),
        authentication_method: s.method,
        ipv4: s.static_ipv4,
        subscription: s.subscription,
    }
}

/// Returns one record as JSON value, without keys.
pub fn record_without_keys(subscriber: &Subscriber) -> Value {
    // Plain data with string keys always has a JSON form.
    serde_json::to_value(json(subscriber.clone(), Keys::Without)).unwrap_or_default()
}

/// Writes a JSON array and returns the number of records. `next` returns the records one by one.
pub fn write_json(
    mut output: impl Write,
    keys: Keys,
    next: &mut dyn FnMut() -> Option<Subscriber>,
) -> Result<u64, FormatError> {
    let mut count = 0;
    while let Some(subscriber) = next() {
        output.write_all(if count == 0 { b"[\n" } else { b",\n" })?;
        serde_json::to_writer(&mut output, &json(subscriber, keys)).map_err(std::io::Error::from)?;
        count += 1;
    }
    output.write_all(if count == 0 { b"[]\n" } else { b"\n]\n" })?;
    output.flush()?;
    Ok(count)
}
