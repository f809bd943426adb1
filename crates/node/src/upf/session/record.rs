//! A session as it is kept in a database: what control planes have said, and what packets had come to when that was written.

use super::{Inactivity, Session};
use crate::upf::addresses::Chosen;
use crate::upf::exchange::Answered;
use crate::upf::rules::{Refused, Rules};
use crate::upf::state::Settings;
use crate::upf::stored::{element, elements};
use serde::{Deserialize, Serialize};
use std::borrow::Cow;
use vireo_wire::pfcp::{ApnDnn, Cause, FSeid, FqCsid, NodeId};

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
    /// The session as it is written, with the request about it that was answered last; where that has no room beside it, without.
    pub(in crate::upf) fn encode(&self, answered: Option<&Answered>, most: Option<usize>) -> Option<Vec<u8>> {
        let encoded = |answered| postcard::to_extend(&self.record(&self.rules, answered), vec![FORMAT]).ok();
        let octets = encoded(answered)?;
        // The same request would be carried out again in the next life.
        if most.is_some_and(|most| octets.len() > most) { encoded(None) } else { Some(octets) }
    }

    /// Refuses rules by which it would be larger than can be kept. Tunnel ends that are chosen and what URRs count take some more.
    pub(in crate::upf) fn fits(&self, rules: &Rules, settings: &Settings) -> Result<(), Refused> {
        let Some(most) = settings.record_octets else { return Ok(()) };
        let more = 512 + rules.pdrs.len() * 8 + rules.urrs.len() * 128;
        let octets = postcard::to_extend(&self.record(rules, None), Vec::new());
        match octets.is_ok_and(|octets| octets.len() + more <= most) {
            true => Ok(()),
            false => Err(Refused::cause(Cause::NO_RESOURCES)),
        }
    }

    fn record<'a>(&'a self, rules: &'a Rules, answered: Option<&'a Answered>) -> Record<'a> {
        Record {
            cp: self.cp,
            node: self.node.clone(),
            rules: Cow::Borrowed(rules),
            chosen: self.chosen,
            dnn: self.dnn.iter().map(|dnn| (**dnn).clone()).collect(),
            sets: self.sets.to_vec(),
            inactivity: self.inactivity.limit,
            worker: self.worker,
            simple: self.simple,
            answered: answered.map(Cow::Borrowed),
        }
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
