//! Record of a session: its PFCP state, and its usage at the time of writing.

use super::{Inactivity, Session};
use crate::machine::addresses::AllocatedAddresses;
use crate::machine::element_serde::{element, elements};
use crate::machine::exchange::Answered;
use crate::machine::pdi::AddressChoice;
use crate::machine::rules::{Matching, Pdr, Refused, Rules, TunnelEnd};
use crate::machine::settings::Settings;
use serde::{Deserialize, Serialize};
use std::borrow::Cow;
use vireo_store::records::{Codec, Encoded, Format, FormatError, RecordBase, StoredRecord};
use vireo_wire::pfcp::{ApnDnn, Cause, FSeid, FqCsid, NodeId, SessionModificationRequest};

/// First byte of a record. Another value belongs to a release with other fields.
const FORMAT: u8 = 1;

/// Maximum growth in bytes of a stored session beyond its rules while a request is executed:
///
/// - the identity (a Node ID has up to 255 bytes, plus an address),
/// - the allocations for a PDR,
/// - the measurement of a URR.
const FIXED_GROWTH_OCTETS: usize = 320;
const CHOSEN: usize = 64;
const COUNTED: usize = 256;
/// Maximum size in bytes of the stored response: the response itself, a Created PDR, a Usage
/// Report.
const ANSWER: usize = 128;
const CREATED: usize = 96;
const REPORT: usize = 256;

/// Returns the number of PDRs for which the UPF allocates something.
fn chosen(rules: &Rules) -> usize {
    let wants = |pdr: &&Pdr| {
        let wanted = matches!(pdr.detection.matching, Matching::Tunnel { end: TunnelEnd::Choose { .. }, .. });
        wanted || pdr.detection.choose != AddressChoice::default()
    };
    rules.pdrs.iter().filter(wants).count()
}

/// Returns the maximum growth in bytes of the stored rules during their execution.
fn growth(rules: &Rules) -> usize {
    chosen(rules) * CHOSEN + rules.urrs.len() * COUNTED
}

/// The stored fields of a session; the format comes first. A record in parts has one part for each
/// field.
type StoredFields<'a> = (SessionIdentity, Cow<'a, Rules>, SessionExtras<'a>);

/// Owner of a session.
#[derive(Serialize, Deserialize)]
struct SessionIdentity {
    format: u8,
    #[serde(with = "element")]
    cp: FSeid,
    #[serde(with = "element")]
    node: NodeId,
}

/// Stored fields beside identity and rules.
#[derive(Serialize, Deserialize)]
struct SessionExtras<'a> {
    chosen: Option<AllocatedAddresses>,
    #[serde(with = "elements")]
    dnn: Vec<ApnDnn>,
    #[serde(with = "elements")]
    sets: Vec<FqCsid>,
    /// User Plane Inactivity Timer, in seconds.
    inactivity: Option<u32>,
    worker: u8,
    simple: bool,
    answered: Option<Cow<'a, Answered>>,
}

/// A session in a stored record.
#[derive(Debug)]
pub(crate) struct FoundSession {
    pub(crate) session: Box<Session>,
    /// Last answered request of the session.
    pub(crate) answered: Option<Answered>,
    /// Base of the next commit.
    pub(crate) known: RecordBase,
}

impl Session {
    /// Encodes the session with its last answered request, for a commit based on `known`. The
    /// request is left out if the record would exceed `most` bytes.
    pub(crate) fn encode(
        &self,
        (codec, known): (Codec, &RecordBase),
        answered: Option<&Answered>,
        most: Option<usize>,
    ) -> Result<Encoded, FormatError> {
        let encoded = codec.encode(known, &self.written(&self.rules, answered))?;
        match (&encoded, most) {
            // Without it, a repeat of the request is executed again after a restart.
            (Encoded::Whole(octets), Some(most)) if octets.len() > most => {
                codec.encode(known, &self.written(&self.rules, None))
            }
            _ => Ok(encoded),
        }
    }

    /// Encodes the session in postcard format, as one byte string.
    pub(crate) fn octets(&self, answered: Option<&Answered>) -> Option<Vec<u8>> {
        postcard::to_stdvec(&self.written(&self.rules, answered)).ok()
    }

    /// Checks that the session with these rules does not exceed the maximum record size. Returns
    /// its present size with them, or 0 without such a bound.
    pub(crate) fn check_record_size(&self, rules: &Rules, settings: &Settings) -> Result<usize, Refused> {
        let Some(most) = settings.record_octets else { return Ok(0) };
        let octets = postcard::to_stdvec(&self.written(rules, None)).map_or(usize::MAX, |octets| octets.len());
        match octets.saturating_add(FIXED_GROWTH_OCTETS + growth(rules)) <= most {
            true => Ok(octets),
            false => Err(Refused::cause(Cause::NO_RESOURCES)),
        }
    }

    /// Checks that the store has room for this change, including growth and response; `octets` is
    /// the size with these rules. It runs before the change: once packets use the rules, the
    /// session must be stored.
    pub(crate) fn check_room(
        &self,
        octets: usize,
        rules: &Rules,
        request: &SessionModificationRequest,
        settings: &Settings,
    ) -> Result<(), Refused> {
        let Some(room) = &settings.room else { return Ok(()) };
        let whose = if request.node_id.is_some() || request.cp_f_seid.is_some() { FIXED_GROWTH_OCTETS } else { 0 };
        let reports = (rules.urrs.len() + request.remove_urrs.len()) * REPORT;
        let octets = octets + whose + growth(rules) + ANSWER + chosen(rules) * CREATED + reports;
        // The response is left out if it does not fit.
        match room.has(settings.record_octets.map_or(octets, |most| octets.min(most))) {
            true => Ok(()),
            false => Err(Refused::cause(Cause::NO_RESOURCES)),
        }
    }

    fn written<'a>(&'a self, rules: &'a Rules, answered: Option<&'a Answered>) -> StoredFields<'a> {
        let whose = SessionIdentity { format: FORMAT, cp: self.cp, node: self.node.clone() };
        let further = SessionExtras {
            chosen: self.chosen,
            dnn: self.dnn.iter().map(|dnn| (**dnn).clone()).collect(),
            sets: self.sets.to_vec(),
            inactivity: self.inactivity.limit,
            worker: self.worker,
            simple: self.simple,
            answered: answered.map(Cow::Borrowed),
        };
        (whose, Cow::Borrowed(rules), further)
    }

    /// Decodes a stored session, which has no datapath entries yet. `now` is in seconds since 1900.
    pub(crate) fn decode_stored(codec: Codec, found: StoredRecord, now: u32) -> Option<FoundSession> {
        let read = |codec: Codec, found| {
            let (written, known) = codec.decode_stored::<StoredFields<'static>>(found).ok()?;
            let (session, answered) = Session::from_fields(written, now)?;
            Some(FoundSession { session, answered, known })
        };
        // Records that were written before the format changed are binary.
        let binary = (found.parts.is_empty() && codec.format != Format::Binary).then(|| found.clone());
        read(codec, found).or_else(|| read(Codec::default(), binary?))
    }

    /// Decodes a session in postcard format.
    pub(crate) fn decode(octets: &[u8], now: u32) -> Option<(Box<Self>, Option<Answered>)> {
        Session::from_fields(postcard::from_bytes::<StoredFields<'static>>(octets).ok()?, now)
    }

    fn from_fields((whose, rules, further): StoredFields<'static>, now: u32) -> Option<(Box<Self>, Option<Answered>)> {
        let session = Session {
            cp: whose.cp,
            node: whose.node,
            rules: rules.into_owned(),
            records: Default::default(),
            chosen: further.chosen,
            dnn: further.dnn.into_iter().next().map(Box::new),
            sets: further.sets.into(),
            inactivity: Inactivity { limit: further.inactivity, since: now, ..Inactivity::default() },
            worker: further.worker,
            simple: further.simple,
            timer: Default::default(),
        };
        (whose.format == FORMAT).then(|| (Box::new(session), further.answered.map(Cow::into_owned)))
    }

    /// Adopts a loaded session but keeps the usage of this one. Returns false, and changes nothing,
    /// if the loaded rules differ from those in effect.
    pub(crate) fn adopt(&mut self, loaded: Session) -> bool {
        let Session { cp, node, mut rules, dnn, sets, .. } = loaded;
        for urr in &mut rules.urrs {
            if let Some(own) = self.rules.urrs.iter().find(|own| own.id == urr.id) {
                urr.clone_from(own);
            }
        }
        let same = rules == self.rules;
        if same {
            (self.cp, self.node, self.rules, self.dnn, self.sets) = (cp, node, rules, dnn, sets);
        }
        same
    }
}
