//! A session as it is kept in a database: what control planes have said, and what packets had come to when that was written.

use super::{Inactivity, Session};
use crate::upf::addresses::AllocatedAddresses;
use crate::upf::exchange::Answered;
use crate::upf::pdi::AddressChoice;
use crate::upf::persistence::{element, elements};
use crate::upf::rules::{Matching, Pdr, Refused, Rules, TunnelEnd};
use crate::upf::state::Settings;
use serde::{Deserialize, Serialize};
use std::borrow::Cow;
use vireo_store::records::{Codec, Encoded, Format, FormatError, RecordBase, StoredRecord};
use vireo_wire::pfcp::{ApnDnn, Cause, FSeid, FqCsid, NodeId, SessionModificationRequest};

/// What records begin with: another one is of a release that has other fields.
const FORMAT: u8 = 1;

/// Octets that a request may add to what is written with its rules: an owner's name (a Node ID has 255) and address, what is chosen for
/// a PDR, what a URR has counted.
const WHOSE: usize = 320;
const CHOSEN: usize = 64;
const COUNTED: usize = 256;
/// And what is kept of its answer: an answer as such, a Created PDR, a Usage Report.
const ANSWER: usize = 128;
const CREATED: usize = 96;
const REPORT: usize = 256;

/// PDRs for which the UPF chooses something.
fn chosen(rules: &Rules) -> usize {
    let wants = |pdr: &&Pdr| {
        let wanted = matches!(pdr.detection.matching, Matching::Tunnel { end: TunnelEnd::Wanted { .. }, .. });
        wanted || pdr.detection.choose != AddressChoice::default()
    };
    rules.pdrs.iter().filter(wants).count()
}

/// Octets by which what is written of rules may grow as they are carried out.
fn growth(rules: &Rules) -> usize {
    chosen(rules) * CHOSEN + rules.urrs.len() * COUNTED
}

/// What is written: the fields of all, beginning with the format. Fields are the parts of a record that is in parts.
type StoredFields<'a> = (SessionIdentity, Cow<'a, Rules>, SessionExtras<'a>);

/// Whose a session is.
#[derive(Serialize, Deserialize)]
struct SessionIdentity {
    format: u8,
    #[serde(with = "element")]
    cp: FSeid,
    #[serde(with = "element")]
    node: NodeId,
}

/// What there is beside its rules.
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

impl Session {
    /// The session as it is written, with the request about it that was answered last; where that has no room beside it, without.
    pub(in crate::upf) fn encode(
        &self,
        codec: Codec,
        answered: Option<&Answered>,
        most: Option<usize>,
    ) -> Result<Encoded, FormatError> {
        let encoded = codec.encode(&self.written(&self.rules, answered))?;
        match (&encoded, most) {
            // The same request would be carried out again in the next life.
            (Encoded::Whole(octets), Some(most)) if octets.len() > most => {
                codec.encode(&self.written(&self.rules, None))
            }
            _ => Ok(encoded),
        }
    }

    /// The same as octets alone.
    pub(in crate::upf) fn octets(&self, answered: Option<&Answered>) -> Option<Vec<u8>> {
        postcard::to_stdvec(&self.written(&self.rules, answered)).ok()
    }

    /// Refuses rules by which it would be larger than can be kept. What it has with these as it is now, where there is such a bound.
    pub(in crate::upf) fn fits(&self, rules: &Rules, settings: &Settings) -> Result<usize, Refused> {
        let Some(most) = settings.record_octets else { return Ok(0) };
        let octets = postcard::to_stdvec(&self.written(rules, None)).map_or(usize::MAX, |octets| octets.len());
        match octets.saturating_add(WHOSE + growth(rules)) <= most {
            true => Ok(octets),
            false => Err(Refused::cause(Cause::NO_RESOURCES)),
        }
    }

    /// Refuses a change to these rules, with which it has so many octets, while there is no room for all that it may come to with its
    /// answer: once packets go by it, it has to be kept.
    pub(in crate::upf) fn has_room(
        &self,
        octets: usize,
        rules: &Rules,
        request: &SessionModificationRequest,
        settings: &Settings,
    ) -> Result<(), Refused> {
        let Some(room) = &settings.room else { return Ok(()) };
        let whose = if request.node_id.is_some() || request.cp_f_seid.is_some() { WHOSE } else { 0 };
        let reports = (rules.urrs.len() + request.remove_urrs.len()) * REPORT;
        let octets = octets + whose + growth(rules) + ANSWER + chosen(rules) * CREATED + reports;
        // The answer is left out where it does not fit beside the rest.
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

    /// One that was written, without records of the datapath, and what is to be given back with its next commit. `now` is in seconds
    /// since 1900.
    pub(in crate::upf) fn found(
        codec: Codec,
        found: StoredRecord,
        now: u32,
    ) -> Option<(Box<Self>, Option<Answered>, RecordBase)> {
        let read = |codec: Codec, found| {
            let (written, known) = codec.found::<StoredFields<'static>>(found).ok()?;
            let (session, answered) = Session::of(written, now)?;
            Some((session, answered, known))
        };
        // What was written before the format was another.
        let binary = (found.parts.is_empty() && codec.format != Format::Binary).then(|| found.clone());
        read(codec, found).or_else(|| read(Codec::default(), binary?))
    }

    /// One of octets.
    pub(in crate::upf) fn decode(octets: &[u8], now: u32) -> Option<(Box<Self>, Option<Answered>)> {
        Session::of(postcard::from_bytes::<StoredFields<'static>>(octets).ok()?, now)
    }

    fn of((whose, rules, further): StoredFields<'static>, now: u32) -> Option<(Box<Self>, Option<Answered>)> {
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
            look: Default::default(),
        };
        (whose.format == FORMAT).then(|| (Box::new(session), further.answered.map(Cow::into_owned)))
    }

    /// Goes by what was loaded; what packets have come to is this session's. `false`, and as before, if that was other rules than
    /// those that packets go by.
    pub(in crate::upf) fn adopt(&mut self, loaded: Session) -> bool {
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
