//! What is asked of etcd (3.4 and later), by its JSON gateway: one request a connection, few of them, and none that anything
//! waits for. Leases, and transactions that hold only while a key is what it was.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

/// How long an answer may take.
const TIMEOUT: Duration = Duration::from_millis(500);
/// Octets of an answer at most.
const MOST: u64 = 4 << 20;

/// Why there is no answer to go by.
#[derive(Debug, thiserror::Error)]
pub enum EtcdError {
    /// Nobody there.
    #[error("etcd does not answer: {0}; check cluster.etcd")]
    Io(#[from] std::io::Error),
    /// It is no HTTP, or none that is finished.
    #[error("what answers does not speak etcd's HTTP; check cluster.etcd")]
    Stranger,
    /// It refuses.
    #[error("etcd refuses: {0}")]
    Refused(String),
    /// It answers something else than it is documented to.
    #[error("etcd answers what this release does not understand: {0}")]
    Answer(String),
}

/// A lease that was granted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Lease {
    pub(super) id: i64,
    /// How long it lasts without being asked for again.
    pub(super) lasts: Duration,
}

/// Since which revision a key is there, and the value of another, if that has one.
pub(super) type Claimed = (i64, Option<Vec<u8>>);

/// An etcd, by all its addresses.
#[derive(Debug)]
pub(super) struct Etcd {
    addresses: Vec<SocketAddr>,
    /// The one that answered last.
    at: usize,
}

/// 64-bit numbers are texts in this JSON, and zeros are left out.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Granted {
    #[serde(rename = "ID")]
    id: String,
    #[serde(rename = "TTL")]
    ttl: String,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct KeptAlive {
    result: Granted,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Header {
    revision: String,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Transacted {
    header: Header,
    succeeded: bool,
    responses: Vec<Response>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Response {
    response_range: Option<Range>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Range {
    kvs: Vec<Pair>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Pair {
    value: String,
}

impl Etcd {
    pub(super) fn new(addresses: Vec<SocketAddr>) -> Self {
        Etcd { addresses, at: 0 }
    }

    /// A lease of so many seconds, or of the fewest that it grants.
    pub(super) fn grant(&mut self, seconds: u64) -> Result<Lease, EtcdError> {
        lease(&self.ask("/v3/lease/grant", &json!({ "TTL": seconds.to_string() }))?)
    }

    /// The lease goes on, if it has not ended.
    pub(super) fn keep_alive(&mut self, lease: Lease) -> Result<bool, EtcdError> {
        let kept: KeptAlive = self.ask("/v3/lease/keepalive", &json!({ "ID": lease.id.to_string() }))?;
        Ok(number(&kept.result.ttl).is_some_and(|seconds| seconds > 0))
    }

    /// The lease ends, and what was put by it goes.
    pub(super) fn revoke(&mut self, lease: Lease) -> Result<(), EtcdError> {
        self.ask::<Value>("/v3/lease/revoke", &json!({ "ID": lease.id.to_string() })).map(|_| ())
    }

    /// Whether there is a key.
    pub(super) fn has(&mut self, key: &str) -> Result<bool, EtcdError> {
        let range: Range = self.ask("/v3/kv/range", &json!({ "key": text(key), "keys_only": true }))?;
        Ok(!range.kvs.is_empty())
    }

    /// Makes a key by a lease if there is none: since which revision it is there, and the value of another key.
    pub(super) fn claim(
        &mut self,
        key: &str,
        name: &str,
        lease: Lease,
        other: &str,
    ) -> Result<Option<Claimed>, EtcdError> {
        let transacted: Transacted = self.ask(
            "/v3/kv/txn",
            &json!({
                "compare": [{ "target": "CREATE", "result": "EQUAL", "key": text(key), "create_revision": "0" }],
                "success": [
                    { "request_put": { "key": text(key), "value": text(name), "lease": lease.id.to_string() } },
                    { "request_range": { "key": text(other) } },
                ],
            }),
        )?;
        if !transacted.succeeded {
            return Ok(None);
        }
        let revision = number(&transacted.header.revision).ok_or_else(|| EtcdError::Answer("no revision".into()))?;
        let mut ranges = transacted.responses.into_iter().filter_map(|response| response.response_range);
        let value = match ranges.next().and_then(|range| range.kvs.into_iter().next()) {
            Some(pair) => Some(STANDARD.decode(pair.value).map_err(|error| EtcdError::Answer(error.to_string()))?),
            None => None,
        };
        Ok(Some((revision, value)))
    }

    /// Puts a value if another key is there since a revision. Whether it is.
    pub(super) fn put_if(&mut self, (claimed, since): (&str, i64), key: &str, value: &[u8]) -> Result<bool, EtcdError> {
        let since = since.to_string();
        let transacted: Transacted = self.ask(
            "/v3/kv/txn",
            &json!({
                "compare": [{ "target": "CREATE", "result": "EQUAL", "key": text(claimed), "create_revision": since }],
                "success": [{ "request_put": { "key": text(key), "value": STANDARD.encode(value) } }],
            }),
        )?;
        Ok(transacted.succeeded)
    }

    /// Asks whoever answered last, else the others in turn.
    fn ask<T: DeserializeOwned>(&mut self, path: &str, question: &Value) -> Result<T, EtcdError> {
        let mut last = EtcdError::Stranger;
        for n in 0..self.addresses.len() {
            let at = (self.at + n) % self.addresses.len();
            match exchange(self.addresses[at], path, question) {
                Err(error @ EtcdError::Io(_)) => last = error,
                answered => {
                    self.at = at;
                    return serde_json::from_slice(&answered?).map_err(|error| EtcdError::Answer(error.to_string()));
                }
            }
        }
        Err(last)
    }
}

fn text(text: &str) -> String {
    STANDARD.encode(text)
}

fn number(text: &str) -> Option<i64> {
    text.parse().ok()
}

fn lease(granted: &Granted) -> Result<Lease, EtcdError> {
    match (number(&granted.id), number(&granted.ttl)) {
        (Some(id), Some(ttl @ 1..)) => Ok(Lease { id, lasts: Duration::from_secs(ttl as u64) }),
        _ => Err(EtcdError::Answer("no lease".into())),
    }
}

/// One question and its answer.
fn exchange(address: SocketAddr, path: &str, question: &impl Serialize) -> Result<Vec<u8>, EtcdError> {
    let question = serde_json::to_vec(question).map_err(|error| EtcdError::Answer(error.to_string()))?;
    let mut stream = TcpStream::connect_timeout(&address, TIMEOUT)?;
    stream.set_read_timeout(Some(TIMEOUT))?;
    stream.set_write_timeout(Some(TIMEOUT))?;
    // HTTP/1.0: the answer comes whole and the connection ends with it.
    let head = format!(
        "POST {path} HTTP/1.0\r\nHost: {address}\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n",
        question.len()
    );
    stream.write_all(head.as_bytes())?;
    stream.write_all(&question)?;
    let mut answer = Vec::new();
    stream.take(MOST).read_to_end(&mut answer)?;
    body(&answer).map(<[u8]>::to_vec)
}

/// The body of an answer that says that all is well.
///
/// # Errors
///
/// When it says something else, or is no HTTP.
pub fn body(answer: &[u8]) -> Result<&[u8], EtcdError> {
    let end = answer.windows(4).position(|octets| octets == b"\r\n\r\n").ok_or(EtcdError::Stranger)?;
    let (head, body) = (&answer[..end], &answer[end + 4..]);
    let line = head.split(|octet| *octet == b'\r').next().unwrap_or_default();
    let mut words = line.split(|octet| *octet == b' ');
    if !words.next().is_some_and(|version| version.starts_with(b"HTTP/1.")) {
        return Err(EtcdError::Stranger);
    }
    if words.next() != Some(b"200") {
        let said = String::from_utf8_lossy(&body[..body.len().min(200)]);
        return Err(EtcdError::Refused(format!("{} {}", String::from_utf8_lossy(line), said.trim())));
    }
    Ok(body)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_taken_apart() {
        assert_eq!(body(b"HTTP/1.0 200 OK\r\nA: b\r\n\r\n{}").unwrap(), b"{}");
        assert!(
            matches!(body(b"HTTP/1.0 412 No\r\n\r\n{\"error\":1}"), Err(EtcdError::Refused(why)) if why.contains("412"))
        );
        for odd in [&b""[..], b"SSH-2.0\r\n\r\n", b"HTTP/1.0 200 OK\r\n"] {
            assert!(matches!(body(odd), Err(EtcdError::Stranger)));
        }
        // As etcd 3.4 writes them.
        let granted: Granted = serde_json::from_str(r#"{"header":{"revision":"7"},"ID":"7587","TTL":"2"}"#).unwrap();
        assert_eq!(lease(&granted).unwrap(), Lease { id: 7587, lasts: Duration::from_secs(2) });
        assert!(lease(&Granted::default()).is_err());
        let transacted = r#"{"header":{"revision":"9"},"succeeded":true,"responses":[{"response_put":{"header":{}}},
            {"response_range":{"kvs":[{"key":"YQ==","value":"Yg=="}],"count":"1"}}]}"#;
        let transacted: Transacted = serde_json::from_str(transacted).unwrap();
        assert_eq!((transacted.succeeded, number(&transacted.header.revision)), (true, Some(9)));
    }
}
