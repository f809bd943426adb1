//! SM contexts in UE records that SMF and AMF share (`state.scope`).
//!
//! A request of the AMF contains the AMF's part of the record, and one write commits both parts.
//! The SMF reads only the header of the AMF's part. If UPFs share the records too, the UPF's part
//! arrives with its response and is committed in the same way.
//!
//! The AMF and transactions on other SM contexts of the UE commit to the same record. On a
//! conflict, a transaction loads the record and runs again. None of its effects has been executed
//! by then.

use super::*;
use vireo_ops::sbi::translate;
use vireo_ops::shared_record::{self, AmfPartHeader, DelegatedCommit, UpfPartHeader};
use vireo_ops::ue_record::stored_part;

/// The commit that an AMF delegates with a request.
#[derive(Debug)]
pub(super) struct AmfCommitRequest {
    /// Number of the UE record.
    pub(super) record: u64,
    /// The AMF's part to commit: its header, and its stored form.
    part: Option<(AmfPartHeader, Vec<u8>)>,
}

/// Part of the AMF that a request delegates.
struct AmfPart<'a> {
    part: &'a [u8],
    own: AmfPartHeader,
    /// Header of the part in the record.
    stored: AmfPartHeader,
}

impl AmfPart<'_> {
    /// Returns true if the record has another owner: the AMF of the request was taken over.
    fn is_fenced(&self) -> bool {
        self.own.owner != self.stored.owner
    }
}

impl Sessions {
    /// Returns the delegated commit of a request, if records are shared with the AMF.
    ///
    /// # Errors
    ///
    /// Returns an error if the part is invalid.
    pub(super) fn brought(&self, message: &Message) -> Result<Option<AmfCommitRequest>, ProblemDetails> {
        let travels = match &self.backend {
            SessionBackend::Database(stored) if stored.shares.is_some() => translate::delegated_commit(message)?,
            _ => None,
        };
        let kept = |part: Vec<u8>| Some((AmfPartHeader::decode(&part)?, stored_part(self.format(), &part)?));
        let brought = |DelegatedCommit { record, part }| {
            let part = part.map(|part| kept(part).ok_or_else(translate::invalid_part)).transpose()?;
            Ok(AmfCommitRequest { record, part })
        };
        travels.map(brought).transpose()
    }

    /// Returns the number of the UE record that contains the SM context; `None` = it has its own
    /// record.
    pub(super) fn record_of(&self, ltmsi: Ltmsi, task: &Task) -> Option<u64> {
        match self.index.get(&ltmsi) {
            Some(entry) => entry.record,
            None => task.brought.as_ref().map(|brought| brought.record),
        }
    }

    /// Takes the loaded shared record, for the transaction that continues with it.
    pub(super) fn loaded_record(&mut self, ltmsi: Ltmsi) -> Option<StoredRecord> {
        let SessionBackend::Database(stored) = &mut self.backend else { return None };
        stored.lanes.get_mut(&ltmsi)?.record.take()
    }

    fn format(&self) -> Format {
        if let SessionBackend::Database(stored) = &self.backend { stored.codec.format } else { Format::default() }
    }

    /// Returns the format of the UPF parts.
    fn octets(&self) -> Format {
        if let SessionBackend::Database(stored) = &self.backend {
            stored.shares.unwrap_or_default()
        } else {
            Format::default()
        }
    }

    /// Returns the AMF's part to commit, if there is one.
    fn amf_part<'a>(&self, ltmsi: Ltmsi, task: &'a Task, there: &StoredRecord) -> Option<AmfPart<'a>> {
        let record = self.record_of(ltmsi, task);
        let brought = task.brought.as_ref().filter(|brought| Some(brought.record) == record)?;
        let (own, part) = brought.part.as_ref()?;
        Some(AmfPart { part, own: *own, stored: AmfPartHeader::from_record(self.format(), there)? })
    }

    /// Handles the loaded record.
    pub(super) fn loaded_part(&mut self, ltmsi: Ltmsi, task: Task, found: Option<StoredRecord>, now: Instant) {
        let Some(there) = found else {
            // The UE is deleted with all its sessions.
            self.actions.extend(task.reply.map(|reply| Action::Reply(reply, wire::unknown())));
            self.forget(ltmsi);
            return self.next(ltmsi, now);
        };
        if there.part(shared_record::AMF).is_some() && AmfPartHeader::from_record(self.format(), &there).is_none() {
            tracing::error!(
                "the AMF's part of a record is of another release or format: do AMF and SMF have the same state.format?"
            );
            return self.abandon(ltmsi, task, None, now);
        }
        if self.amf_part(ltmsi, &task, &there).is_some_and(|part| part.is_fenced()) {
            self.actions.extend(task.reply.map(|reply| Action::Reply(reply, wire::overtaken())));
            return self.next(ltmsi, now);
        }
        let own = there.part(&shared_record::sm_context_part_name(ltmsi.get()));
        let session = own.map(|own| Session::from_part(self.format(), own));
        match session {
            Some(None) => {
                tracing::error!("part of a record is no SM context of this release; check state.key");
                return self.abandon(ltmsi, task, None, now);
            }
            None if !matches!(task.turn, SmEvent::Create(_)) => {
                self.actions.extend(task.reply.map(|reply| Action::Reply(reply, wire::unknown())));
                self.forget(ltmsi);
                return self.next(ltmsi, now);
            }
            _ => {}
        }
        if let SessionBackend::Database(stored) = &mut self.backend {
            stored.lanes.entry(ltmsi).or_default().record = Some(there);
        }
        self.carry_out(ltmsi, task, session.flatten(), RecordBase::default(), now);
    }

    /// Returns the parts of AMF and UPF that a transaction stores, and the part that it removes.
    fn other_parts(&self, ltmsi: Ltmsi, task: &Task, there: &StoredRecord) -> (Vec<(String, Vec<u8>)>, Option<String>) {
        let (format, mut put, mut out) = (self.octets(), Vec::new(), None);
        if let Some(AmfPart { part, own, stored }) = self.amf_part(ltmsi, task, there)
            && own.follows(stored)
        {
            put.push((shared_record::AMF.to_owned(), part.to_vec()));
        }
        let of_upf = if let SmEvent::Pfcp(_, message) = &task.turn { shared_record::part(message) } else { None };
        let name = shared_record::upf_part_name(ltmsi.get());
        let before = there.part(&name);
        match of_upf.map(|part| (part, UpfPartHeader::decode(part))) {
            Some((part, Some(own))) => {
                let before =
                    before.and_then(|kept| UpfPartHeader::decode(&shared_record::decode_octets(format, kept)?));
                if own.follows(before) {
                    put.push((name, shared_record::encode_octets(format, part.to_vec())));
                }
            }
            Some((_, None)) => out = before.map(|_| name),
            None => {}
        }
        (put, out)
    }

    /// Commits the result of a transaction together with the parts of AMF and UPF.
    pub(super) fn commit_part(
        &mut self,
        ltmsi: Ltmsi,
        task: Task,
        outcome: Outcome,
        there: StoredRecord,
        now: Instant,
    ) {
        let (mut put, out) = self.other_parts(ltmsi, &task, &there);
        let mut out = Vec::from_iter(out);
        let name = shared_record::sm_context_part_name(ltmsi.get());
        match &outcome.session {
            Some(session) if outcome.changed => match self.format().encode(session) {
                Ok(octets) => put.push((name, octets)),
                Err(error) => {
                    tracing::error!(%error, "bug: SM context does not encode");
                    return self.abandon(ltmsi, task, Some(outcome), now);
                }
            },
            Some(_) => {}
            // The UPF's part of the session is removed too.
            None => {
                let gone = shared_record::upf_part_name(ltmsi.get());
                put.retain(|(put, _)| *put != gone);
                out = [name, gone].into_iter().filter(|name| there.part(name).is_some()).collect();
            }
        }
        if put.is_empty() && out.is_empty() {
            return self.complete(ltmsi, task, outcome, None, now);
        }
        let (expected, whole) = (there.version, !out.is_empty());
        if whole {
            let stays = |(name, _): &(String, Vec<u8>)| !out.contains(name) && put.iter().all(|(put, _)| put != name);
            let others: Vec<_> = there.parts.into_iter().filter(stays).collect();
            put.extend(others);
        }
        let is_amf = |(name, octets): &(String, Vec<u8>)| {
            name == shared_record::AMF && self.format().decode::<AmfPartHeader>(octets).is_ok_and(|head| head.removed)
        };
        let operation = match whole && put.iter().all(is_amf) {
            true => DatabaseOperation::Remove { expected },
            false => DatabaseOperation::Parts { expected, parts: put, whole },
        };
        self.put(ltmsi, operation, Running::Committing(Box::new(Commit { task, outcome })));
    }

    /// Handles the record loaded after a commit conflict: completes the transaction if it is
    /// stored, else runs it again.
    pub(super) fn checked_part(&mut self, ltmsi: Ltmsi, commit: Commit, found: Option<StoredRecord>, now: Instant) {
        let Commit { task, mut outcome } = commit;
        let is_this = found.as_ref().is_some_and(|there| {
            let own = there
                .part(&shared_record::sm_context_part_name(ltmsi.get()))
                .map(|own| Session::from_part(self.format(), own));
            let is_own = match (own, &outcome.session) {
                (Some(Some(own)), Some(session)) => own == *session,
                (own, session) => own.is_none() && session.is_none(),
            };
            let foreign = self.amf_part(ltmsi, &task, there).is_some_and(|part| part.is_fenced());
            let (put, out) = self.other_parts(ltmsi, &task, there);
            is_own && !foreign && put.is_empty() && out.is_none()
        });
        if is_this {
            return self.complete(ltmsi, task, outcome, None, now);
        }
        if let SmEvent::Create(_) = task.turn {
            self.release(&mut outcome);
        }
        self.loaded_part(ltmsi, task, found, now);
    }
}
