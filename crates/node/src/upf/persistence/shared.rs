//! Sessions that are parts of their UEs' records, which the SMF commits with its own: where they are, and what goes there.
//!
//! The UPF answers before the SMF has committed. If it dies then, the next life may look at the records before that, and miss a
//! session or have an earlier one of it: it looks [again](Stored::late) when all that was on its way is committed. What it has
//! itself holds, as packets go by it.

use super::*;
use crate::shared_record::{self, UpfPartHeader};
use serde::{Deserialize, Serialize};
use vireo_store::records::Format;
use vireo_wire::pfcp::FSeid;

/// With whom records are shared.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::upf) struct SharedRecordConfig {
    /// What this UPF is called there: there may be others.
    pub(in crate::upf) own: String,
    /// What octets are kept as.
    pub(in crate::upf) format: Format,
}

/// A session, as its part has it.
#[derive(Debug, Serialize, Deserialize)]
struct Part {
    head: UpfPartHeader,
    /// Whose it is.
    upf: String,
    #[serde(with = "serde_bytes")]
    session: Vec<u8>,
}

/// Where a session's part is.
#[derive(Clone, Copy, Debug)]
struct PartLocation {
    record: u64,
    number: u32,
    /// The last that was given away or committed.
    step: u64,
    /// Whether the session is of a life before.
    before: bool,
}

/// Those of sessions.
#[derive(Debug, Default)]
pub(super) struct PartLocations {
    sharing: Option<SharedRecordConfig>,
    of: FxHashMap<u64, PartLocation>,
    /// Sessions of the lives before that have gone in this one.
    gone: FxHashSet<u64>,
    /// What steps do: those of the lives before are lower, also those that were given away and not committed.
    base: u64,
}

impl PartLocations {
    pub(super) fn new(sharing: Option<SharedRecordConfig>) -> Self {
        PartLocations { sharing, ..PartLocations::default() }
    }

    /// Which part a request wants its session to be.
    pub(super) fn of(&self, datagram: &[u8]) -> Option<(u64, u32)> {
        self.sharing.as_ref().and_then(|_| shared_record::place(datagram))
    }

    pub(super) fn has(&self, seid: u64) -> bool {
        self.of.contains_key(&seid)
    }

    /// A request about a session, or for a `new` one, has said where its part is.
    pub(super) fn enter(&mut self, seid: u64, (record, number): (u64, u32), new: bool) {
        let place = self.of.entry(seid).or_insert(PartLocation { record, number, step: 0, before: !new });
        (place.record, place.number) = (record, number);
    }

    /// A session gets another number before it is there.
    pub(super) fn move_to(&mut self, seid: u64, other: u64) {
        if let Some(place) = self.of.remove(&seid) {
            self.of.insert(other, place);
        }
    }

    /// The record that has what this is the name of.
    pub(super) fn record(&self, of: Name) -> Name {
        let place = self.of.get(&of.id).filter(|_| of.collection == COLLECTION);
        place.map_or(of, |place| shared_record::name(place.record))
    }

    /// The sessions of this UPF in a record.
    pub(super) fn found(&mut self, record: u64, found: &StoredRecord, ntp: u32) -> Vec<Written> {
        let Some(SharedRecordConfig { own, format }) = &self.sharing else { return Vec::new() };
        let mut all = Vec::new();
        for (name, kept) in &found.parts {
            let Some(number) = shared_record::up_of(name) else { continue };
            let part = shared_record::opened(*format, kept).and_then(|part| postcard::from_bytes::<Part>(&part).ok());
            let Some(Part { head, upf, session }) = part else {
                error!("a part of a record is no session of this release: is state.key another program's too?");
                continue;
            };
            if upf != *own || self.gone.contains(&head.seid) {
                continue;
            }
            if let Some((session, answered)) = Session::decode(&session, ntp) {
                self.of.entry(head.seid).or_insert(PartLocation { record, number, step: head.step, before: true });
                all.push((head.seid, session, answered));
            }
        }
        all
    }

    /// The next part of a session, as it is given away.
    fn next(&mut self, seid: u64, session: Vec<u8>) -> Option<Vec<u8>> {
        let place = self.of.get_mut(&seid)?;
        place.step = place.step.max(self.base) + 1;
        let (head, upf) = (UpfPartHeader { seid, step: place.step }, self.sharing.as_ref()?.own.clone());
        postcard::to_stdvec(&Part { head, upf, session }).ok()
    }

    /// A life begins.
    pub(super) fn begin(&mut self, ntp: u32) {
        self.base = u64::from(ntp) << 24;
    }

    /// A session is gone.
    pub(super) fn forget(&mut self, seid: u64) {
        if self.of.remove(&seid).is_some_and(|place| place.before) {
            self.gone.insert(seid);
        }
    }

    /// Has the answer to a request take along what its session is then. Whether it does.
    pub(super) fn attach(
        &mut self,
        upf: &Upf,
        (to, sequence): (SocketAddr, u32),
        seid: u64,
        out: &mut Outgoing,
    ) -> bool {
        let is_it = |message: &Message<'_>| message.message_type().is_response() && message.sequence() == sequence;
        let of = |datagram: &[u8]| Message::new(datagram).ok().filter(is_it).map(|message| message.message_type());
        let answer = out.iter_mut().filter(|(peer, _)| *peer == to).find_map(|(_, datagram)| {
            let kind = of(datagram)?;
            Some((kind, datagram))
        });
        let Some((kind, datagram)) = answer else { return false };
        // An establishment that was answered before names no session.
        let made = Message::new(datagram).ok().and_then(|message| message.get::<FSeid>().ok().flatten());
        let seid = made.map_or(seid, |made| made.seid);
        let part = match upf.sessions.get(&seid) {
            Some(session) => {
                let octets = session.octets(upf.answered(to, sequence).as_ref());
                octets
                    .and_then(|octets| self.next(seid, octets))
                    .filter(|part| part.len() <= shared_record::PART_OCTETS)
            }
            None if kind == MessageType::SESSION_DELETION_RESPONSE => {
                self.forget(seid);
                Some(Vec::new())
            }
            None => None,
        };
        part.is_some_and(|part| shared_record::with_part(datagram, &part))
    }
}

impl PersistentUpf {
    /// Where a session's part is needs not be known when it is gone, and nothing of that is under way.
    pub(super) fn look_whether_gone(&mut self, upf: &Upf, name: Name) {
        let committing = self.lanes.get(&name).is_some_and(|lane| lane.running.is_some());
        if name.collection == COLLECTION && !committing && !upf.sessions.contains_key(&name.id) {
            self.places.forget(name.id);
        }
    }

    /// What a record has of a session; where that is a part, with the record's version.
    pub(super) fn part_of(&mut self, name: Name, found: Option<StoredRecord>) -> Option<StoredRecord> {
        if name.collection != COLLECTION || !self.places.has(name.id) {
            return found;
        }
        let place = self.places.of.get(&name.id)?;
        let found = found?;
        let format = self.places.sharing.as_ref()?.format;
        let kept = found.part(&shared_record::upf_part_name(place.number));
        let part = kept.and_then(|kept| postcard::from_bytes::<Part>(&shared_record::opened(format, kept)?).ok());
        let version = found.version;
        self.lanes.entry(name).or_default().record = found;
        let part = part.filter(|part| part.head.seid == name.id)?;
        Some(StoredRecord { version, octets: part.session, parts: Vec::new() })
    }

    /// The change that commits a session, or that it is gone, as a part of the record that was loaded.
    pub(super) fn part(&mut self, name: Name, expected: Version, session: Option<&[u8]>) -> DatabaseOperation {
        let place = self.places.of.get(&name.id).map_or(0, |place| place.number);
        let own = shared_record::upf_part_name(place);
        let loaded = std::mem::take(&mut self.lanes.entry(name).or_default().record);
        let format = self.places.sharing.as_ref().map_or(Format::default(), |sharing| sharing.format);
        match session.and_then(|session| self.places.next(name.id, session.to_vec())) {
            Some(part) => {
                let parts = vec![(own, shared_record::kept(format, part))];
                DatabaseOperation::Parts { expected, parts, whole: false }
            }
            None => {
                let parts = loaded.parts.into_iter().filter(|(name, _)| *name != own).collect();
                DatabaseOperation::Parts { expected, parts, whole: true }
            }
        }
    }

    /// What a record has that was looked at once more: sessions that were committed late are set up.
    pub(super) fn late<P: TablesAccess>(
        &mut self,
        on: &mut TransactionContext<'_, P>,
        record: u64,
        found: &StoredRecord,
    ) {
        for written in self.places.found(record, found, on.now.ntp) {
            if !on.upf.sessions.contains_key(&written.0) {
                warn!("a session that was answered for in the life before was committed late: it is set up again");
                on.upf.adopt(written, on.now, on.plane);
            }
        }
        // What is there is as it was loaded.
        on.upf.take_changed();
    }
}
