//! A session as it is kept in a database: what control planes have said, and what packets had come to when that was written.

use super::{Inactivity, Session};
use crate::upf::addresses::Chosen;
use crate::upf::exchange::Answered;
use crate::upf::rules::Rules;
use crate::upf::stored::{element, elements};
use serde::{Deserialize, Serialize};
use std::borrow::Cow;
use vireo_wire::pfcp::{ApnDnn, FSeid, FqCsid, NodeId};

/// What records begin with: another one is of a release that has other fields.
const FORMAT: u8 = 1;

/// What is written.
#[derive(Serialize, Deserialize)]
struct Record<'a> {
    #[serde(with = "element")]
    cp: FSeid,
    #[serde(with = "element")]
    node: NodeId,
    rules: Cow<'a, Rules>,
    chosen: Option<Chosen>,
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
    /// The session as it is written, with the request about it that was answered last.
    pub(in crate::upf) fn encode(&self, answered: Option<&Answered>) -> Option<Vec<u8>> {
        let record = Record {
            cp: self.cp,
            node: self.node.clone(),
            rules: Cow::Borrowed(&self.rules),
            chosen: self.chosen,
            dnn: self.dnn.iter().map(|dnn| (**dnn).clone()).collect(),
            sets: self.sets.to_vec(),
            inactivity: self.inactivity.limit,
            worker: self.worker,
            simple: self.simple,
            answered: answered.map(Cow::Borrowed),
        };
        postcard::to_extend(&record, vec![FORMAT]).ok()
    }

    /// One that was written, without records of the datapath. `now` is in seconds since 1900.
    pub(in crate::upf) fn decode(octets: &[u8], now: u32) -> Option<(Box<Self>, Option<Answered>)> {
        let (&FORMAT, octets) = octets.split_first()? else { return None };
        let record: Record<'_> = postcard::from_bytes(octets).ok()?;
        let session = Session {
            cp: record.cp,
            node: record.node,
            rules: record.rules.into_owned(),
            records: Default::default(),
            chosen: record.chosen,
            dnn: record.dnn.into_iter().next().map(Box::new),
            sets: record.sets.into(),
            inactivity: Inactivity { limit: record.inactivity, since: now, ..Inactivity::default() },
            worker: record.worker,
            simple: record.simple,
            look: Default::default(),
        };
        Some((Box::new(session), record.answered.map(Cow::into_owned)))
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
