//! SM contexts that travel (`state.carry = "piggyback"`): what the AMF asks brings one along, each answer and each transfer takes
//! it back as it is then, and between two transactions nothing of it needs to be here.
//!
//! While a procedure is under way an SM context stays in memory, and so does one that has changed since the AMF was given it last.
//! Who dies with one has lost nothing: what the AMF has then is an SM context from which the same follows. It asks again with it;
//! the requests that the UPF may not have got are in it, under their names, and a session that is made anew has the SEID that it
//! had ([`lead`]). A new session's first transfer is taken before its answer leaves: an AMF that has that waits for nothing more, and
//! nobody would say the transfer again. What a UPF reports about an idle UE's session brings no SM context: it is asked for, from the AMF of the SUPI
//! that the SEID leads to, by a question of its own.

use super::*;
use crate::sbi::smf::supi_seid;
use crate::sbi::translate::{self, reply_with_carried, with_carried};
use vireo_core::sba::PiggybackedSmContext;

impl Sessions {
    /// Whether SM contexts travel.
    pub(super) fn carries(&self) -> bool {
        matches!(&self.place, SessionBackend::Database(stored) if stored.carries)
    }

    /// Whether something of an SM context is here.
    pub(super) fn is_held(&self, ltmsi: Ltmsi) -> bool {
        matches!(&self.place, SessionBackend::Database(stored)
            if stored.kept.contains_key(&ltmsi) || stored.lanes.contains_key(&ltmsi))
    }

    /// The version that is in memory.
    fn held_version(&self, ltmsi: Ltmsi) -> Option<Version> {
        let SessionBackend::Database(stored) = &self.place else { return None };
        stored.kept.get(&ltmsi).map(|(_, known)| known.version)
    }

    /// The SM context of a SEID: one that is known here, or that the request has brought.
    ///
    /// # Errors
    ///
    /// The answer, if it is none, or not the latest.
    pub(super) fn find(&mut self, seid: Seid, message: &Message, now: Instant) -> Result<Option<Ltmsi>, Reply> {
        let carried = match self.carries() {
            true => translate::carried(message).map_err(|problem| Reply::problem(&problem))?,
            false => None,
        };
        let Some(PiggybackedSmContext { version, octets }) = carried else { return Ok(self.of(seid)) };
        let session = Session::decode(&octets).filter(|session| session.carried && session.sm.cp_seid == seid);
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
            && entry.given > version
        {
            // The next one counts, whichever it is: the AMF may never have got the later one.
            entry.given = version;
            return Err(wire::stale());
        }
        self.bring(session, version, now);
        Ok(Some(ltmsi))
    }

    /// Whether there is room for the session of a SEID: another one that begins alike is forgotten, unless it is worked at.
    fn make_room(&mut self, seid: Seid) -> bool {
        let ltmsi = seid.ltmsi();
        match self.index.get(&ltmsi) {
            Some(entry) if entry.seid == seid => true,
            Some(_) if self.is_held(ltmsi) => false,
            Some(_) => {
                self.forget(ltmsi);
                true
            }
            None => self.index.len() < CONTEXTS,
        }
    }

    /// An SM context is here. What an SMF that had it before may not have said to the UPF is said again.
    fn bring(&mut self, session: Box<Session>, version: Version, now: Instant) {
        let ltmsi = session.sm.cp_seid.ltmsi();
        if !self.index.contains_key(&ltmsi) {
            self.means.addresses.are_taken(&session.sm.dnn, &session.sm.address);
            for leave in session.again(&self.means.root, now) {
                self.leave(ltmsi, &session, leave);
            }
            self.enter(ltmsi, &session, None);
        }
        if let Some(entry) = self.index.get_mut(&ltmsi) {
            entry.given = version;
        }
        if let SessionBackend::Database(stored) = &mut self.place {
            let mut known = RecordBase::default();
            known.version = version;
            stored.kept.insert(ltmsi, (session, known));
        }
    }

    /// The place of a session that the SMF knows nothing of but its SEID, and of which a UPF reports something.
    pub(super) fn led(&mut self, seid: Seid, message: &[u8]) -> Option<Ltmsi> {
        let kind = pfcp::Message::new(message).map(|message| message.message_type()).ok()?;
        let leads =
            self.carries() && kind == MessageType::SESSION_REPORT_REQUEST && supi_seid::supi_of_seid(seid).is_some();
        (leads && self.make_room(seid)).then(|| seid.ltmsi())
    }

    /// A session is asked for that somebody may have been asked for before. If the AMF has its SM context, UE and RAN have been told
    /// of it, and nothing but the answer was lost.
    pub(super) fn ask_whether_left(
        &mut self,
        ltmsi: Ltmsi,
        turn: SmEvent,
        (key, reply): (Option<String>, ReplyTo),
        now: Instant,
    ) {
        let kind = Transaction::CreateSmContext;
        self.fetch(ltmsi, Task { turn, kind, key, reply: Some(reply), until: None, brought: None }, now);
    }

    /// A transaction over an SM context that is with the AMF and not here waits until that is here.
    pub(super) fn fetch(&mut self, ltmsi: Ltmsi, task: Task, now: Instant) {
        let reported = match &task.turn {
            SmEvent::Pfcp(_, message) => pfcp::Message::new(message).ok().map(|message| Seid(message.seid())),
            SmEvent::Create(asked) => asked.0.carried.map(|number| supi_seid::seid(asked.0.supi, number)),
            _ => None,
        };
        let seid = self.index.get(&ltmsi).map(|entry| entry.seid).or(reported);
        match (seid.and_then(|seid| Some((seid, supi_seid::supi_of_seid(seid)?))), &mut self.place) {
            (Some((seid, of)), SessionBackend::Database(stored)) => {
                self.actions.push(Action::Fetch { ltmsi, seid, of });
                stored.lanes.entry(ltmsi).or_default().running = Some(Running::Loading(task));
            }
            _ => self.give_up(ltmsi, task, None, now),
        }
    }

    /// The AMF has given an SM context back.
    pub(super) fn fetched(&mut self, ltmsi: Ltmsi, task: Task, session: Box<Session>, known: RecordBase, now: Instant) {
        let is_it = self.index.get(&ltmsi).is_none_or(|entry| entry.seid == session.sm.cp_seid);
        if !is_it || !session.carried || session.sm.cp_seid.ltmsi() != ltmsi {
            tracing::error!("the AMF has another SM context than the one asked for");
            return self.give_up(ltmsi, task, None, now);
        }
        self.bring(session, known.version, now);
        self.begin(ltmsi, task, now);
    }

    /// The number of a session that is asked for by an AMF that keeps SM contexts.
    ///
    /// # Errors
    ///
    /// The answer, if it is there already or has no room now.
    pub(super) fn place_of(&mut self, asked: &wire::CreateRequest, number: u32) -> Result<Ltmsi, Reply> {
        let seid = supi_seid::seid(asked.supi, number);
        let ltmsi = seid.ltmsi();
        if !self.make_room(seid) {
            return Err(wire::congested());
        }
        if let SessionBackend::Database(stored) = &self.place
            && let Some((session, known)) = stored.kept.get(&ltmsi)
            && !session.creating
        {
            // The AMF asks again, by another key.
            let created = wire::created(&self.means.root, seid, asked.psi, asked.snssai);
            return Err(reply_with_carried(created, carried(session, known.version).as_ref()));
        }
        if self.is_held(ltmsi) {
            return Err(wire::congested());
        }
        self.forget(ltmsi);
        Ok(ltmsi)
    }

    /// Gives the SM context to all that a transaction says to the AMF. Whether that says anything.
    pub(super) fn give(&self, ltmsi: Ltmsi, outcome: &mut Outcome, version: Version, asked: bool) -> bool {
        let Some(session) = outcome.session.as_deref().filter(|session| session.carried) else { return false };
        let waits = asked && outcome.own.is_none() || self.waiting.contains_key(&ltmsi);
        let answers =
            asked && outcome.own.is_some() || waits && (outcome.answer.is_some() || outcome.earlier.is_some());
        let transfers = outcome.leaves.iter().any(|leave| matches!(leave, OutgoingMessage::Transfer { .. }));
        if !answers && !transfers {
            return false;
        }
        let carried = carried(session, version);
        let Outcome { own, earlier, answer, after_transfer, .. } = outcome;
        for reply in [own, earlier, answer, after_transfer].into_iter().flatten() {
            *reply = reply_with_carried(std::mem::take(reply), carried.as_ref());
        }
        for leave in &mut outcome.leaves {
            if let OutgoingMessage::Transfer { message, .. } = leave {
                *message = with_carried(std::mem::take(message), carried.as_ref());
            }
        }
        carried.is_some()
    }

    /// Whether an SM context needs to be here between two transactions.
    pub(super) fn stays(&self, ltmsi: Ltmsi, session: &Session, version: Version) -> bool {
        let given = self.index.get(&ltmsi).is_some_and(|entry| entry.given == version);
        !session.carried || !given || session.has_ended() || !session.rests()
    }
}

/// An SM context as it travels.
fn carried(session: &Session, version: Version) -> Option<PiggybackedSmContext> {
    let octets = session.travelling();
    if octets.is_none() {
        tracing::error!("an SM context is too long to travel: it stays in memory; please report it");
    }
    octets.map(|octets| PiggybackedSmContext { version, octets })
}
