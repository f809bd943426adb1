//! Record of a UE as AMFs store it in a database, and the AMF's part of a shared record.
//!
//! The transfer form is binary in every format: the state region and requests to the SMF use it. A
//! record in JSON or protocol buffers is a document of named fields ([`UeDocument`]), to which the
//! committing network function converts the transfer form.

use serde::{Deserialize, Serialize};
use vireo_core::amf::context::{self, UeContext};
use vireo_core::placement::replica;
use vireo_core::sba::{N1N2TransferResult, PiggybackedSmContext, SessionNumber, SmfRequest};
use vireo_store::records::{Format, RecordBase};
use vireo_types::Instant;

/// Version of the fields beside the context: grows with each change of them.
const FIELDS: u8 = 2;

/// Maximum number of remembered outboxes, and of remembered transfer results.
const MAX_ENTRIES: usize = 16;
/// Maximum number of remembered open requests. Beyond it every response is accepted.
const MAX_OPEN_REQUESTS: usize = 256;

/// A record of a UE has another format or layout.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the record is not a UE of this release")]
pub struct UnknownUeRecord;

/// Layout of a record: [`FIELDS`] and the layout version of the context.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Layout(u16);

impl Default for Layout {
    /// Returns the layout that this release writes.
    fn default() -> Self {
        Layout(u16::from_be_bytes([FIELDS, context::LAYOUT_VERSION]))
    }
}

impl Layout {
    /// Returns true if this release reads the layout.
    fn is_readable(self) -> bool {
        let [fields, context] = self.0.to_be_bytes();
        fields == FIELDS && (context::OLDEST_LAYOUT..=context::LAYOUT_VERSION).contains(&context)
    }
}

/// Outbox of a step that is not known to be sent.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PendingOutbox {
    /// Time of the step.
    pub at: Instant,
    /// Encoded outbox of the step.
    #[serde(with = "octets")]
    pub outbox: Vec<u8>,
}

/// An SMF request without response.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PendingSmfRequest {
    /// Idempotency key: the SMF recognises a repeat by it.
    pub key: u64,
    pub number: SessionNumber,
    pub request: SmfRequest,
    /// Piggybacked SM context (`state.carry = "piggyback"`).
    pub sm_context: Option<PiggybackedSmContext>,
}

/// State of a UE besides its context that a takeover needs.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RecoveryLog {
    /// Outboxes of the last steps in commit order. Effects of several steps may be unsent.
    pub outboxes: Vec<PendingOutbox>,
    /// SMF requests without a response.
    pub requests: Vec<PendingSmfRequest>,
    /// Keys and results of the last transfers.
    pub transfers: Vec<(u64, N1N2TransferResult)>,
}

impl RecoveryLog {
    /// Adds the outbox of a step. Removes old outboxes, whose effects were sent.
    pub fn add_outbox(&mut self, at: Instant, outbox: &[u8], shared: bool) {
        if shared {
            self.outboxes.retain(|outbox| at.since(outbox.at) <= replica::REEXECUTION_WINDOW);
            let over = (self.outboxes.len() + 1).saturating_sub(MAX_ENTRIES);
            self.outboxes.drain(..over);
        } else {
            self.outboxes.clear();
        }
        self.outboxes.push(PendingOutbox { at, outbox: outbox.to_vec() });
    }

    /// Adds an SMF request.
    pub fn add_request(&mut self, request: PendingSmfRequest) {
        if self.requests.len() < MAX_OPEN_REQUESTS {
            self.requests.push(request);
        }
    }

    /// Removes an answered request. Returns true if this is its first response.
    pub fn complete_request(&mut self, key: u64) -> bool {
        let before = self.requests.len();
        self.requests.retain(|request| request.key != key);
        self.requests.len() < before || before >= MAX_OPEN_REQUESTS
    }

    /// Returns true if the request is open.
    pub fn has_request(&self, key: u64) -> bool {
        self.requests.len() >= MAX_OPEN_REQUESTS || self.requests.iter().any(|request| request.key == key)
    }

    /// Returns the result of a repeated transfer.
    pub fn transfer_result(&self, key: u64) -> Option<N1N2TransferResult> {
        self.transfers.iter().find(|(other, _)| *other == key).map(|(_, result)| *result)
    }

    /// Adds the result of a transfer.
    pub fn add_transfer(&mut self, key: u64, result: N1N2TransferResult) {
        let over = (self.transfers.len() + 1).saturating_sub(MAX_ENTRIES);
        self.transfers.drain(..over);
        self.transfers.push((key, result));
    }
}

/// A UE as stored in the database.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct UeRecord {
    /// Owner number of the UE's host.
    pub owner: u64,
    /// Version of the record: number of commits of the UE.
    pub step: u64,
    /// True if the context is removed. These three fields come first
    /// ([`crate::shared_record::AmfPartHeader`]).
    pub removed: bool,
    pub layout: Layout,
    /// Last processed input in the owner's numbering; 0: none since it took the UE over.
    pub consumed: u64,
    pub deadline: Option<Instant>,
    pub pin: u64,
    pub recovery: RecoveryLog,
    /// Empty if the context is removed.
    #[serde(with = "serde_bytes")]
    pub context: Vec<u8>,
    /// Content of the loaded record: equal fields are not written again.
    #[serde(skip)]
    pub known: RecordBase,
}

impl UeRecord {
    /// Returns the outbox of the last step.
    pub fn outbox(&self) -> &[u8] {
        self.recovery.outboxes.last().map_or(&[], |last| &last.outbox)
    }

    /// Decodes the transfer form.
    ///
    /// # Errors
    ///
    /// Returns an error for another format or layout.
    pub fn decode(octets: &[u8]) -> Result<Self, UnknownUeRecord> {
        // The decoder of earlier fields is a branch here.
        match postcard::from_bytes::<UeRecord>(octets) {
            Ok(record) if record.layout.is_readable() => Ok(UeRecord { layout: Layout::default(), ..record }),
            _ => Err(UnknownUeRecord),
        }
    }

    /// Returns the transfer form.
    ///
    /// # Errors
    ///
    /// Returns an error if the record cannot be encoded: a bug of this build.
    pub fn encode(&self) -> Result<Vec<u8>, UnknownUeRecord> {
        postcard::to_stdvec(self).map_err(|_| UnknownUeRecord)
    }

    /// Returns the AMF's part of a shared record in this format.
    ///
    /// # Errors
    ///
    /// Returns an error if the record cannot be encoded: a bug of this build.
    pub fn to_part(&self, format: Format) -> Result<Vec<u8>, UnknownUeRecord> {
        if format == Format::Binary {
            return self.encode();
        }
        let (document, ue) = UeDocument::from_record(self)?;
        let document = UeDocument { context: ue.map(Box::new), ..document };
        format.encode(&document).map_err(|_| UnknownUeRecord)
    }

    /// Decodes the AMF's part of a shared record in this format.
    ///
    /// # Errors
    ///
    /// Returns an error for another format or layout.
    pub fn from_part(format: Format, part: &[u8]) -> Result<Self, UnknownUeRecord> {
        if format == Format::Binary {
            return UeRecord::decode(part);
        }
        let mut document: UeDocument = format.decode(part).map_err(|_| UnknownUeRecord)?;
        let ue = document.context.take().map(|ue| *ue);
        document.into_record(ue)
    }
}

/// Fields of a document beside those of the context. Their names differ from the context's.
#[derive(Debug, Serialize, Deserialize)]
pub struct UeDocument {
    /// These three fields come first ([`crate::shared_record::AmfPartHeader`]).
    owner: u64,
    step: u64,
    removed: bool,
    layout: Layout,
    consumed: u64,
    deadline: Option<Instant>,
    pin: u64,
    /// Outboxes of the last steps ([`RecoveryLog`]).
    outboxes: Vec<PendingOutbox>,
    requests: Vec<PendingSmfRequest>,
    transfers: Vec<(u64, N1N2TransferResult)>,
    /// Field of the NAS security context that is no field of a context's document. The binary form
    /// encodes it differently.
    derives_keys: bool,
    /// As `derives_keys`; absent in documents of release 0.2.0.
    #[serde(default)]
    agreed_at: Instant,
    /// Only in a document of one part: the context, unless it is removed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    context: Option<Box<UeContext>>,
}

impl UeDocument {
    /// Splits a UE into document and context.
    ///
    /// # Errors
    ///
    /// Returns an error if the context has another layout.
    pub fn from_record(stored: &UeRecord) -> Result<(Self, Option<UeContext>), UnknownUeRecord> {
        let ue = match &stored.context[..] {
            [] => None,
            octets => Some(context::decode(octets).map_err(|_| UnknownUeRecord)?),
        };
        let &UeRecord { owner, step, consumed, deadline, pin, .. } = stored;
        let RecoveryLog { outboxes, requests, transfers } = stored.recovery.clone();
        let security = ue.as_ref().and_then(|ue| ue.security.as_ref());
        let derives_keys = security.is_some_and(|keys| keys.derives_keys);
        let agreed_at = security.map(|keys| keys.agreed_at).unwrap_or_default();
        let document = UeDocument {
            owner,
            step,
            removed: ue.is_none(),
            layout: Layout::default(),
            consumed,
            deadline,
            pin,
            outboxes,
            requests,
            transfers,
            derives_keys,
            agreed_at,
            context: None,
        };
        Ok((document, ue))
    }

    /// Joins document and context to a UE.
    ///
    /// # Errors
    ///
    /// Returns an error for another layout, or if only one of both says that the UE is removed.
    pub fn into_record(self, ue: Option<UeContext>) -> Result<UeRecord, UnknownUeRecord> {
        if !self.layout.is_readable() || self.removed != ue.is_none() {
            return Err(UnknownUeRecord);
        }
        let mut octets = Vec::new();
        if let Some(mut ue) = ue {
            if let Some(keys) = &mut ue.security {
                (keys.derives_keys, keys.agreed_at) = (self.derives_keys, self.agreed_at);
            }
            octets = context::encode(&ue, octets).map_err(|_| UnknownUeRecord)?;
        }
        let UeDocument { owner, step, removed, consumed, deadline, pin, outboxes, requests, transfers, .. } = self;
        let recovery = RecoveryLog { outboxes, requests, transfers };
        Ok(UeRecord {
            owner,
            step,
            removed,
            layout: Layout::default(),
            consumed,
            deadline,
            pin,
            recovery,
            context: octets,
            known: RecordBase::default(),
        })
    }
}

/// Returns the stored form of the AMF's part from its transfer form; `None` for another release.
pub fn stored_part(format: Format, part: &[u8]) -> Option<Vec<u8>> {
    match format {
        Format::Binary => Some(part.to_vec()),
        Format::Json | Format::Protobuf => UeRecord::decode(part).ok()?.to_part(format).ok(),
    }
}

/// Serde module for octet strings: hexadecimal digits in human-readable formats.
mod octets {
    use serde::de::Error;
    use serde::{Deserialize, Deserializer, Serializer};

    pub(super) fn serialize<S: Serializer>(octets: &[u8], s: S) -> Result<S::Ok, S::Error> {
        if s.is_human_readable() { s.serialize_str(&hex::encode(octets)) } else { s.serialize_bytes(octets) }
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(d: D) -> Result<Vec<u8>, D::Error> {
        if d.is_human_readable() {
            let digits = String::deserialize(d)?;
            return hex::decode(&*digits).map_err(D::Error::custom);
        }
        serde_bytes::deserialize(d)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn recovery_log_has_recent_outboxes_and_requests() {
        let mut log = RecoveryLog::default();
        for n in 0..2 * MAX_ENTRIES as u64 {
            log.add_outbox(Instant(n), &[n as u8], true);
        }
        assert_eq!((log.outboxes.len(), log.outboxes[0].outbox[0]), (MAX_ENTRIES, MAX_ENTRIES as u8));
        log.add_outbox(Instant(10_000_000), b"late", true);
        assert_eq!(log.outboxes.len(), 1, "the others are too old");
        log.add_outbox(Instant(10_000_000), b"later", false);
        assert_eq!(log.outboxes[0].outbox, b"later", "the region knows the earlier ones");
        let request = SmfRequest::Release { reference: "x".into() };
        log.add_request(PendingSmfRequest { key: 3, number: 1, request, sm_context: None });
        assert_eq!([3, 4].map(|key| log.has_request(key)), [true, false]);
        assert_eq!([3, 3, 4].map(|key| log.complete_request(key)), [true, false, false]);
        assert!(!log.has_request(3));
        log.add_transfer(5, N1N2TransferResult::Initiated);
        assert_eq!((log.transfer_result(5), log.transfer_result(6)), (Some(N1N2TransferResult::Initiated), None));
        (0..100).for_each(|key| log.add_transfer(100 + key, N1N2TransferResult::Initiated));
        assert_eq!((log.transfers.len(), log.transfer_result(5)), (MAX_ENTRIES, None));
    }

    /// Releases whose records are read.
    const RELEASES: [&str; 1] = ["0.2.0"];

    fn fixture(release: &str) -> std::path::PathBuf {
        let fixtures = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures");
        fixtures.join(release).join("ue_records.txt")
    }

    fn ue() -> UeContext {
        let mut ue = UeContext::new(vireo_types::Ltmsi::from_raw(0x0123_4567));
        ue.identity.supi = Some("999700000000001".parse().unwrap());
        ue.sequence = 17;
        ue
    }

    fn record() -> UeRecord {
        let mut recovery = RecoveryLog::default();
        recovery.add_outbox(Instant(u64::MAX), &[0, 255, 17], true);
        let sm_context = Some(PiggybackedSmContext { version: 3, octets: vec![0, 255] });
        let request = SmfRequest::Release { reference: "x".into() };
        recovery.add_request(PendingSmfRequest { key: u64::MAX, number: 1, request, sm_context });
        recovery.add_transfer(9, N1N2TransferResult::Attempting);
        let (deadline, context) = (Some(Instant(77)), context::encode(&ue(), Vec::new()).unwrap());
        UeRecord { owner: u64::MAX, step: 2, consumed: 7, deadline, pin: 4, recovery, context, ..UeRecord::default() }
    }

    #[test]
    fn record_of_earlier_release_is_read() {
        for release in RELEASES {
            let text = std::fs::read_to_string(fixture(release)).unwrap();
            assert_eq!(text.lines().count(), 2, "{release}");
            for line in text.lines() {
                let (format, content) = line.split_once(' ').unwrap();
                let mut found = match format {
                    "binary" => UeRecord::decode(&hex::decode(content).unwrap()),
                    _ => UeRecord::from_part(Format::Json, content.as_bytes()),
                }
                .unwrap();
                assert_eq!(context::decode(&std::mem::take(&mut found.context)), Ok(ue()), "{release} {format}");
                assert_eq!(found, UeRecord { context: Vec::new(), ..record() }, "{release} {format}");
            }
        }
    }

    #[test]
    fn record_of_other_layout_is_refused() {
        let octets = UeRecord { layout: Layout(FIELDS.into()), ..record() }.encode().unwrap();
        assert_eq!(UeRecord::decode(&octets), Err(UnknownUeRecord));
    }

    #[test]
    #[ignore = "writes the fixture of this release"]
    fn fixtures_of_this_release_are_written() {
        let json = String::from_utf8(record().to_part(Format::Json).unwrap()).unwrap();
        let path = fixture(env!("CARGO_PKG_VERSION"));
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, format!("binary {}\njson {json}\n", hex::encode(record().encode().unwrap()))).unwrap();
    }
}
