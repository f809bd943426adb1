//! Piggybacked SM contexts (`state.carry = "piggyback"`).
//!
//! A request of the AMF contains the SM context. Each response and transfer returns its new
//! version. Between transactions the SMF needs to keep nothing.
//!
//! An SM context stays in memory during a procedure, and while the AMF lacks its newest version. If
//! the SMF dies, nothing is lost: the AMF has a version from which the same results follow, and
//! repeats its request with that version.
//!
//! - The SM context contains the PFCP requests that the UPF may lack, with their keys.
//! - A session that is created again has the same SEID ([`supi_seid`]).
//! - The create response follows the AMF's reply to the first transfer. An AMF that has the
//!   response repeats nothing, and no other SMF would repeat the transfer.
//! - A UPF's report about an idle UE's session comes without an SM context. The SMF fetches it from
//!   the AMF by the SUPI, which the SEID contains.

use super::*;
use crate::supi_seid;
use vireo_core::sba::PiggybackedSmContext;
use vireo_ops::sbi::translate::{self, reply_with_piggyback, with_piggyback};

impl Sessions {
    /// Returns true if SM contexts are piggybacked.
    pub(super) fn piggybacks(&self) -> bool {
        matches!(&self.backend, SessionBackend::Database(stored) if stored.piggybacks)
    }

    /// Returns true if an SM context is in memory or has a transaction in progress.
    pub(super) fn is_held(&self, ltmsi: Ltmsi) -> bool {
        matches!(&self.backend, SessionBackend::Database(stored)
            if stored.in_memory.contains_key(&ltmsi) || stored.lanes.contains_key(&ltmsi))
    }

    /// Returns the version in memory.
    fn held_version(&self, ltmsi: Ltmsi) -> Option<Version> {
        let SessionBackend::Database(stored) = &self.backend else { return None };
        stored.in_memory.get(&ltmsi).map(|(_, known)| known.version)
    }

    /// Returns the number of the SM context with a SEID, either known here or contained in the
    /// request.
    ///
    /// # Errors
    ///
    /// Returns the response if the SM context is invalid or not the newest version.
    pub(super) fn find(&mut self, seid: Seid, message: &Message, now: Instant) -> Result<Option<Ltmsi>, Reply> {
        let carried = match self.piggybacks() {
            true => translate::piggybacked(message).map_err(|problem| Reply::problem(&problem))?,
            false => None,
        };
        let Some(PiggybackedSmContext { version, octets }) = carried else { return Ok(self.ltmsi_of(seid)) };
        let session =
            Session::decode(&octets).filter(|session| session.is_piggybacked() && session.sm.pfcp.cp_seid == seid);
        let wrong = "the SM context is another session's, or none of this release";
        let session = session.ok_or_else(|| Reply::problem(&ProblemDetails::incorrect(wrong)))?;
        if !self.make_room(seid) {
            return Err(wire::congested());
        }
        let ltmsi = seid.ltmsi();
        let held = self.held_version(ltmsi);
        if held.is_some_and(|held| held >= version) || held.is_none() && self.is_held(ltmsi) {
            return Ok(Some(ltmsi));
        }
        if let (None, Some(entry)) = (held, self.index.get_mut(&ltmsi))
            && entry.sent_version > version
        {
            // The next request is accepted with any version: the AMF may never have received the
            // later one.
            entry.sent_version = version;
            return Err(wire::stale());
        }
        self.add_to_memory(session, version, now);
        Ok(Some(ltmsi))
    }

    /// Makes room for the session of a SEID. Another session with the same number is removed,
    /// unless it is in use. Returns false if there is no room.
    fn make_room(&mut self, seid: Seid) -> bool {
        let ltmsi = seid.ltmsi();
        match self.index.get(&ltmsi) {
            Some(entry) if entry.seid == seid => true,
            Some(_) if self.is_held(ltmsi) => false,
            Some(_) => {
                self.forget(ltmsi);
                true
            }
            None => self.index.len() < MAX_CONTEXTS,
        }
    }

    /// Adds an SM context to memory. Repeats messages to the UPF that a previous SMF may not have
    /// sent.
    fn add_to_memory(&mut self, session: Box<Session>, version: Version, now: Instant) {
        let ltmsi = session.sm.pfcp.cp_seid.ltmsi();
        if !self.index.contains_key(&ltmsi) {
            self.env.addresses.mark_in_use(&session.sm.terms.dnn, &session.sm.address);
            for leave in session.pending_messages(&self.env.root, now) {
                self.emit(ltmsi, &session, leave);
            }
            self.enter(ltmsi, &session, None);
        }
        if let Some(entry) = self.index.get_mut(&ltmsi) {
            entry.sent_version = version;
        }
        if let SessionBackend::Database(stored) = &mut self.backend {
            let mut known = RecordBase::default();
            known.version = version;
            stored.in_memory.insert(ltmsi, (session, known));
        }
    }

    /// Returns the number of a session that a UPF reports and that this SMF does not know.
    pub(super) fn ltmsi_of_unknown(&mut self, seid: Seid, message: &[u8]) -> Option<Ltmsi> {
        let kind = pfcp::Message::new(message).map(|message| message.message_type()).ok()?;
        let leads =
            self.piggybacks() && kind == MessageType::SESSION_REPORT_REQUEST && supi_seid::supi_of_seid(seid).is_some();
        (leads && self.make_room(seid)).then(|| seid.ltmsi())
    }

    /// Handles a repeated create request. If the AMF stores the SM context, UE and RAN have been
    /// informed, and only the response was lost.
    pub(super) fn fetch_before_create(
        &mut self,
        ltmsi: Ltmsi,
        turn: SmEvent,
        (key, reply): (Option<String>, ReplyTo),
        now: Instant,
    ) {
        let kind = Transaction::CreateSmContext;
        self.fetch(ltmsi, Task { turn, kind, key, reply: Some(reply), deadline: None, brought: None }, now);
    }

    /// Starts a transaction on an SM context that only the AMF stores, by fetching it.
    pub(super) fn fetch(&mut self, ltmsi: Ltmsi, task: Task, now: Instant) {
        let reported = match &task.turn {
            SmEvent::Pfcp(_, message) => pfcp::Message::new(message).ok().map(|message| Seid(message.seid())),
            SmEvent::Create(asked) => asked.0.piggyback.map(|number| supi_seid::seid(asked.0.supi, number)),
            _ => None,
        };
        let seid = self.index.get(&ltmsi).map(|entry| entry.seid).or(reported);
        match (seid.and_then(|seid| Some((seid, supi_seid::supi_of_seid(seid)?))), &mut self.backend) {
            (Some((seid, of)), SessionBackend::Database(stored)) => {
                self.actions.push(Action::Fetch { ltmsi, seid, of });
                stored.lanes.entry(ltmsi).or_default().running = Some(Running::Loading(task));
            }
            _ => self.abandon(ltmsi, task, None, now),
        }
    }

    /// Handles the SM context fetched from the AMF.
    pub(super) fn on_fetched(
        &mut self,
        ltmsi: Ltmsi,
        task: Task,
        session: Box<Session>,
        known: RecordBase,
        now: Instant,
    ) {
        let is_it = self.index.get(&ltmsi).is_none_or(|entry| entry.seid == session.sm.pfcp.cp_seid);
        if !is_it || !session.is_piggybacked() || session.sm.pfcp.cp_seid.ltmsi() != ltmsi {
            tracing::error!("AMF has another SM context than the requested one");
            return self.abandon(ltmsi, task, None, now);
        }
        self.add_to_memory(session, known.version, now);
        self.begin(ltmsi, task, now);
    }

    /// Returns the SM context number for a create request of an AMF that stores SM contexts.
    ///
    /// # Errors
    ///
    /// Returns the response if the session already exists, or its number is in use.
    pub(super) fn place_of(&mut self, asked: &wire::CreateRequest, number: u32) -> Result<Ltmsi, Reply> {
        let seid = supi_seid::seid(asked.supi, number);
        let ltmsi = seid.ltmsi();
        if !self.make_room(seid) {
            return Err(wire::congested());
        }
        if let SessionBackend::Database(stored) = &self.backend
            && let Some((session, known)) = stored.in_memory.get(&ltmsi)
            && !session.is_creating()
        {
            // The AMF repeats the request with another key.
            let created = wire::create_reply(&self.env.root, seid, asked.psi, asked.snssai);
            return Err(reply_with_piggyback(created, piggybacked(session, known.version).as_ref()));
        }
        if self.is_held(ltmsi) {
            return Err(wire::congested());
        }
        self.forget(ltmsi);
        Ok(ltmsi)
    }

    /// Adds the SM context to all messages of a transaction to the AMF. Returns true if there is
    /// such a message.
    pub(super) fn add_piggyback(&self, ltmsi: Ltmsi, outcome: &mut Outcome, version: Version, asked: bool) -> bool {
        let Some(session) = outcome.session.as_deref().filter(|session| session.is_piggybacked()) else { return false };
        let waits = asked && outcome.own.is_none() || self.waiting.contains_key(&ltmsi);
        let answers =
            asked && outcome.own.is_some() || waits && (outcome.answer.is_some() || outcome.earlier.is_some());
        let transfers = outcome.leaves.iter().any(|leave| matches!(leave, OutgoingMessage::Transfer { .. }));
        if !answers && !transfers {
            return false;
        }
        let carried = piggybacked(session, version);
        let Outcome { own, earlier, answer, after_transfer, .. } = outcome;
        for reply in [own, earlier, answer, after_transfer].into_iter().flatten() {
            *reply = reply_with_piggyback(std::mem::take(reply), carried.as_ref());
        }
        for leave in &mut outcome.leaves {
            if let OutgoingMessage::Transfer { message, .. } = leave {
                *message = with_piggyback(std::mem::take(message), carried.as_ref());
            }
        }
        carried.is_some()
    }

    /// Returns true if an SM context must stay in memory after a transaction.
    pub(super) fn must_stay_in_memory(&self, ltmsi: Ltmsi, session: &Session, version: Version) -> bool {
        let given = self.index.get(&ltmsi).is_some_and(|entry| entry.sent_version == version);
        !session.is_piggybacked() || !given || session.has_ended() || !session.rests()
    }
}

/// Encodes an SM context for piggybacking.
fn piggybacked(session: &Session, version: Version) -> Option<PiggybackedSmContext> {
    let octets = session.encode_for_piggyback();
    if octets.is_none() {
        tracing::error!("bug: SM context too long for piggyback; kept in memory");
    }
    octets.map(|octets| PiggybackedSmContext { version, octets })
}
