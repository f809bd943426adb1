//! Sessions that are parts of their UEs' records, which the SMF commits.
//!
//! The UPF responds before the SMF has committed. After a crash the next incarnation may read the
//! records before that commit. It then misses a session, or has an earlier state of it. It
//! therefore reads the records [again](PersistentUpf::late) when all pending commits must be done.
//! A session that exists in the UPF prevails, because packets use its rules.

use super::*;
use serde::{Deserialize, Serialize};
use vireo_ops::shared_record::{self, UpfPartHeader};
use vireo_store::records::Format;
use vireo_wire::pfcp::FSeid;

/// Parameters of shared records.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SharedRecordConfig {
    /// Name of this UPF in the records. Several UPFs may share them.
    pub(crate) own: String,
    /// Format of the stored octets.
    pub(crate) format: Format,
}

/// A session as a part of a record.
#[derive(Debug, Serialize, Deserialize)]
struct Part {
    head: UpfPartHeader,
    /// Name of the UPF that has the session.
    upf: String,
    #[serde(with = "serde_bytes")]
    session: Vec<u8>,
}

/// Location of a session's part.
#[derive(Clone, Copy, Debug)]
struct PartLocation {
    record: u64,
    number: u32,
    /// Last step that was sent or committed.
    step: u64,
    /// True for a session of a previous incarnation.
    before: bool,
}

/// Locations of the parts of all sessions.
#[derive(Debug, Default)]
pub(crate) struct PartLocations {
    sharing: Option<SharedRecordConfig>,
    by_seid: FxHashMap<u64, PartLocation>,
    /// Sessions of previous incarnations that were removed in this one.
    removed: FxHashSet<u64>,
    /// Lower bound of steps. Those of previous incarnations are lower, also if they were sent and
    /// never committed.
    base: u64,
}

impl PartLocations {
    pub(crate) fn new(sharing: Option<SharedRecordConfig>) -> Self {
        PartLocations { sharing, ..PartLocations::default() }
    }

    /// Returns the part that a request assigns to its session.
    pub(crate) fn assigned_by(&self, datagram: &[u8]) -> Option<(u64, u32)> {
        self.sharing.as_ref().and_then(|_| shared_record::part_name(datagram))
    }

    pub(crate) fn contains(&self, seid: u64) -> bool {
        self.by_seid.contains_key(&seid)
    }

    /// Stores the location that a request names, for an existing or a `new` session.
    pub(crate) fn set_location(&mut self, seid: u64, (record, number): (u64, u32), new: bool) {
        let location = self.by_seid.entry(seid).or_insert(PartLocation { record, number, step: 0, before: !new });
        (location.record, location.number) = (record, number);
    }

    /// Changes the SEID of a session that does not exist yet.
    pub(crate) fn move_to(&mut self, seid: u64, other: u64) {
        if let Some(location) = self.by_seid.remove(&seid) {
            self.by_seid.insert(other, location);
        }
    }

    /// Returns the record that contains the named session.
    pub(crate) fn record(&self, of: Name) -> Name {
        let location = self.by_seid.get(&of.id).filter(|_| of.collection == COLLECTION);
        location.map_or(of, |location| shared_record::name(location.record))
    }

    /// Returns the sessions of this UPF in a record.
    pub(crate) fn load_sessions(&mut self, record: u64, found: &StoredRecord, ntp: u32) -> Vec<Written> {
        let Some(SharedRecordConfig { own, format }) = &self.sharing else { return Vec::new() };
        let mut all = Vec::new();
        for (name, kept) in &found.parts {
            let Some(number) = shared_record::up_of(name) else { continue };
            let part =
                shared_record::decode_octets(*format, kept).and_then(|part| postcard::from_bytes::<Part>(&part).ok());
            let Some(Part { head, upf, session }) = part else {
                error!("part of a record is no session of this release; check state.key");
                continue;
            };
            if upf != *own || self.removed.contains(&head.seid) {
                continue;
            }
            if let Some((session, answered)) = Session::decode(&session, ntp) {
                self.by_seid.entry(head.seid).or_insert(PartLocation { record, number, step: head.step, before: true });
                all.push((head.seid, session, answered));
            }
        }
        all
    }

    /// Returns the next step of a session's part, encoded.
    fn next(&mut self, seid: u64, session: Vec<u8>) -> Option<Vec<u8>> {
        let location = self.by_seid.get_mut(&seid)?;
        location.step = location.step.max(self.base) + 1;
        let (head, upf) = (UpfPartHeader { seid, step: location.step }, self.sharing.as_ref()?.own.clone());
        postcard::to_stdvec(&Part { head, upf, session }).ok()
    }

    /// Starts an incarnation.
    pub(crate) fn begin(&mut self, ntp: u32) {
        self.base = u64::from(ntp) << 24;
    }

    /// Removes the location of a removed session.
    pub(crate) fn forget(&mut self, seid: u64) {
        if self.by_seid.remove(&seid).is_some_and(|location| location.before) {
            self.removed.insert(seid);
        }
    }

    /// Adds the resulting session to the response of a request. Returns true if it did.
    pub(crate) fn attach(
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
        // The repeat of an answered establishment names no session.
        let made = Message::new(datagram).ok().and_then(|message| message.get::<FSeid>().ok().flatten());
        let seid = made.map_or(seid, |made| made.seid);
        let part = match upf.sessions.get(&seid) {
            Some(session) => {
                let octets = session.octets(upf.stored_response(to, sequence).as_ref());
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
    /// Removes the location of a session that is gone and has no transaction in progress.
    pub(crate) fn forget_if_removed(&mut self, upf: &Upf, name: Name) {
        let committing = self.lanes.get(&name).is_some_and(|lane| lane.running.is_some());
        if name.collection == COLLECTION && !committing && !upf.sessions.contains_key(&name.id) {
            self.locations.forget(name.id);
        }
    }

    /// Returns the part of a record that is the session, with the record's version. A session with
    /// its own record is returned unchanged.
    pub(crate) fn part_of(&mut self, name: Name, found: Option<StoredRecord>) -> Option<StoredRecord> {
        if name.collection != COLLECTION || !self.locations.contains(name.id) {
            return found;
        }
        let location = self.locations.by_seid.get(&name.id)?;
        let found = found?;
        let format = self.locations.sharing.as_ref()?.format;
        let kept = found.part(&shared_record::upf_part_name(location.number));
        let part =
            kept.and_then(|kept| postcard::from_bytes::<Part>(&shared_record::decode_octets(format, kept)?).ok());
        let version = found.version;
        self.lanes.entry(name).or_default().record = found;
        let part = part.filter(|part| part.head.seid == name.id)?;
        Some(StoredRecord { version, octets: part.session, parts: Vec::new() })
    }

    /// Returns the operation that commits a session, or its removal, as a part of the loaded
    /// record.
    pub(crate) fn part(&mut self, name: Name, expected: Version, session: Option<&[u8]>) -> DatabaseOperation {
        let location = self.locations.by_seid.get(&name.id).map_or(0, |location| location.number);
        let own = shared_record::upf_part_name(location);
        let loaded = std::mem::take(&mut self.lanes.entry(name).or_default().record);
        let format = self.locations.sharing.as_ref().map_or(Format::default(), |sharing| sharing.format);
        match session.and_then(|session| self.locations.next(name.id, session.to_vec())) {
            Some(part) => {
                let parts = vec![(own, shared_record::encode_octets(format, part))];
                DatabaseOperation::Parts { expected, parts, whole: false }
            }
            None => {
                let parts = loaded.parts.into_iter().filter(|(name, _)| *name != own).collect();
                DatabaseOperation::Parts { expected, parts, whole: true }
            }
        }
    }

    /// Handles a record that was read again. Sessions that were committed late are restored.
    pub(crate) fn late<P: TablesAccess>(
        &mut self,
        on: &mut TransactionContext<'_, P>,
        record: u64,
        found: &StoredRecord,
    ) {
        for written in self.locations.load_sessions(record, found, on.now.ntp) {
            if !on.upf.sessions.contains_key(&written.0) {
                warn!("session of the former process committed late; establishing it");
                on.upf.adopt(written, on.now, on.plane);
            }
        }
        // The restored sessions equal their records.
        on.upf.take_changed();
    }
}
