//! One SM context, who is to be told about it, and what a transaction does to it. What a transaction wants to leave is part of
//! what it leaves behind: whoever finds the SM context later can do it again.

mod legacy;

use super::addresses::Addresses;
use super::supi_seid;
use super::wire::{self, CreateRequest, ResponseState, UpdateRequest};
use crate::shared_record;
use crate::worker::outbox;
use rand::RngCore;
use rand::rngs::StdRng;
use serde::{Deserialize, Serialize};
use std::net::SocketAddr;
use vireo_core::config::CoreConfig;
use vireo_core::sba::{CARRIED_OCTETS, N1N2Content, N1N2TransferResult};
use vireo_core::session::{self, Create, HandoverRefusal, Input, N2Sm, N4State, Output, RanState, SmContext, Stage};
use vireo_core::subscription::DnnSubscription;
use vireo_core::{Env, Identifiers};
use vireo_sbi::amf::CreatedSmContext;
use vireo_sbi::smf::{HoState, UpCnxState};
use vireo_sbi::{Message, Reply};
use vireo_store::records::{Codec, Format, RecordBase, StoredRecord};
use vireo_types::{Dnn, Duration, Instant, Ltmsi, Seid, SessionAddress, Supi};
use vireo_wire::pfcp::{self, MessageType};

/// Which fields stored SM contexts have: another one is of another release, of which the two before are read ([`before`]).
const FORMAT: u8 = 6;
/// How long what is for the AMF is said again by who finds an SM context: longer than the one before would have gone on asking.
const SAID_AGAIN: Duration = Duration::from_secs(10);

/// An answer to the AMF that waits for the UPF (TS 23.502 4.3.2.2.1 step 16, 4.2.6 step 6).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct PendingAnswer {
    /// By what the request is known when it comes again.
    key: Option<String>,
    told: N1N2Content,
    says: ResponseState,
    /// The RAN wants the path switched.
    switches: bool,
}

/// A request that the UPF has not answered.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct PendingPfcpRequest {
    upf: SocketAddr,
    key: u64,
    #[serde(with = "serde_bytes")]
    message: Vec<u8>,
}

/// What the AMF is to transfer, and has not said to have taken, as far as is known here.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct PendingTransfer {
    number: u32,
    at: Instant,
    /// It is for a downlink packet.
    calls: bool,
    told: N1N2Content,
}

/// What the AMF takes for the answer to its request.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Implied {
    /// The AMF's number for the session.
    number: u32,
    /// The transfer that it is; `None` before there is one.
    by: Option<u32>,
}

/// An SM context, and who is to be told about it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Session {
    /// [`FORMAT`]. First, so that what cannot be read otherwise begins with it.
    format: u8,
    pub(super) sm: SmContext,
    pub(super) supi: Supi,
    status_uri: String,
    /// The key of the request that has made it.
    made_by: Option<String>,
    pending: Option<PendingAnswer>,
    /// The request that was answered last, and how.
    answered: Option<(String, N1N2Content, ResponseState)>,
    /// The AMF was asked for the user plane because of a downlink packet, and has not said whether the UE is there.
    calling: bool,
    /// The AMF knows that it ends.
    let_go: bool,
    /// It has ended, and the AMF is to be told.
    ended: bool,
    /// The name of what left last.
    last: u32,
    to_upf: Vec<PendingPfcpRequest>,
    to_amf: Vec<PendingTransfer>,
    /// The record of the UE that it is in, if it has none of its own.
    pub(super) record: Option<u64>,
    /// It travels: the AMF keeps it.
    pub(super) carried: bool,
    /// Of one that travels, or whose first transfer is the answer: the AMF has no answer yet. It gets it when the UPF has the
    /// session: whoever dies before is asked again, and afterwards the AMF has all that there is.
    pub(super) creating: bool,
    /// Of an AMF that takes the first transfer for its answer: that.
    implied: Option<Implied>,
    /// The request by which a handover by N2 was completed last. Whatever has come after it, it is not done again: the target's tunnel
    /// is taken once, and a session without one has stayed behind.
    completed: Option<String>,
}

/// What happens to an SM context.
#[derive(Debug)]
pub(super) enum SmEvent {
    /// It is asked for.
    Create(Box<(CreateRequest, DnnSubscription)>),
    /// The AMF says something.
    Update(UpdateRequest),
    /// The AMF wants it no more.
    Release,
    /// What the AMF was given has not reached the UE.
    Unreached,
    /// The AMF has forgotten it: it asks for the same session anew.
    Forgotten,
    /// A message of a UPF.
    Pfcp(SocketAddr, Vec<u8>),
    /// The UPF did not answer.
    PfcpTimeout,
    /// The UPF has lost its sessions.
    UpfLost,
    /// What became of a transfer.
    Transferred(N1N2TransferResult),
    /// The AMF knows that it has ended, or cannot be told.
    Notified,
    /// Time passes.
    Deadline,
}

/// What leaves when the transaction is committed.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum OutgoingMessage {
    /// A UPF is told something. `key` names a request.
    Pfcp { upf: SocketAddr, key: u64, message: Vec<u8> },
    /// The AMF is to transfer something.
    Transfer { number: u32, calls: bool, message: Message },
    /// The AMF is told that the SM context has ended.
    Notify { uri: String, message: Message },
    /// Nobody has these any more.
    Free(Dnn, SessionAddress),
}

/// What a transaction comes to.
#[derive(Debug, Default)]
pub(super) struct Outcome {
    /// The SM context as it is then; `None`: there is none.
    pub(super) session: Option<Box<Session>>,
    /// Whether it is other than before.
    pub(super) changed: bool,
    pub(super) leaves: Vec<OutgoingMessage>,
    /// For who asks by this transaction, at once; who gets nothing waits.
    pub(super) own: Option<Reply>,
    /// For who waits from before, and is not waited for any more when another does.
    pub(super) earlier: Option<Reply>,
    /// For who waits then.
    pub(super) answer: Option<Reply>,
    /// The same, when the AMF has said what becomes of the transfer that leaves; where that is the answer, for the case that the AMF
    /// does not take it.
    pub(super) after_transfer: Option<Reply>,
}

/// What transactions need besides.
#[derive(Debug)]
pub(super) struct TransactionEnv {
    pub(super) config: CoreConfig,
    /// Root of this SMF's URIs.
    pub(super) root: String,
    pub(super) addresses: Addresses,
    pub(super) rng: StdRng,
    /// Whether SM contexts are found by others later: then what is for them is kept.
    pub(super) stored: bool,
    /// Whether these others may know nothing of other sessions.
    pub(super) carries: bool,
    /// Whether UPFs have parts of the records of UEs.
    pub(super) with_upf: bool,
}

impl Session {
    /// Where the AMF that has asked for it hears of its end.
    pub(super) fn status_uri(&self) -> &str {
        &self.status_uri
    }

    /// What is stored, if it is one of this release or the two before, and what is given back with its next commit.
    pub(super) fn found(codec: Codec, found: StoredRecord) -> Option<(Box<Self>, RecordBase)> {
        legacy::found(codec, found)
    }

    /// Of a part of a record that functions share, if it is one of these.
    pub(super) fn of_part(format: Format, octets: &[u8]) -> Option<Box<Self>> {
        legacy::decoded(format, octets)
    }

    /// As it travels: what is for the AMF is with what brings it there.
    pub(super) fn travelling(&self) -> Option<Vec<u8>> {
        let (creating, implied) = (false, None);
        let session = Session { pending: None, answered: None, to_amf: Vec::new(), creating, implied, ..self.clone() };
        postcard::to_stdvec(&session).ok().filter(|octets| octets.len() <= CARRIED_OCTETS)
    }

    /// Of what has travelled, if it is one of these.
    pub(super) fn decode(octets: &[u8]) -> Option<Box<Self>> {
        legacy::decoded(Format::Binary, octets)
    }

    /// Whether it has ended, and is there only to be told of.
    pub(super) fn has_ended(&self) -> bool {
        self.ended
    }

    /// Whether no procedure is under way over it.
    pub(super) fn rests(&self) -> bool {
        let sm = &self.sm;
        let settled =
            sm.n4 == N4State::Told && sm.stage == Stage::Established && matches!(sm.ran, RanState::Idle | RanState::Up);
        self.ended || settled && self.pending.is_none() && !self.calling
    }

    /// The key of the request that has made it.
    pub(super) fn made_by(&self) -> Option<&str> {
        self.made_by.as_deref()
    }

    /// Whether its first transfer is the answer to that.
    pub(super) fn is_implied(&self) -> bool {
        self.implied.is_some()
    }

    /// What somebody who finds it does again: it may not have left. Peers know what is said twice by its name.
    pub(super) fn again(&self, root: &str, now: Instant) -> Vec<OutgoingMessage> {
        let pfcp = |PendingPfcpRequest { upf, key, message }: &PendingPfcpRequest| OutgoingMessage::Pfcp {
            upf: *upf,
            key: *key,
            message: message.clone(),
        };
        let new = |to_amf: &&PendingTransfer| now.since(to_amf.at) <= SAID_AGAIN;
        let transfers = self.to_amf.iter().filter(new).map(|PendingTransfer { number, calls, told, .. }| {
            OutgoingMessage::Transfer {
                number: *number,
                calls: *calls,
                message: self.transfer_message(root, *number, told.clone()),
            }
        });
        let notify = || OutgoingMessage::Notify { uri: self.status_uri.clone(), message: wire::released() };
        self.to_upf.iter().map(pfcp).chain(transfers).chain(self.ended.then(notify)).collect()
    }

    /// These have reached the AMF: up to that number.
    pub(super) fn taken(&mut self, number: u32) {
        self.to_amf.retain(|to_amf| to_amf.number > number);
    }

    fn transfer_message(&self, root: &str, name: u32, told: N1N2Content) -> Message {
        let message = wire::transfer(root, (self.sm.cp_seid, self.sm.psi, self.sm.snssai), told);
        self.with_created(name, message)
    }

    /// A transfer of that name; if it is the answer to who has asked for the SM context, with that.
    fn with_created(&self, name: u32, message: Message) -> Message {
        match (&self.implied, &self.made_by) {
            (Some(Implied { number, by: Some(by) }), Some(key)) if *by == name => {
                let (key, sm_context_ref) = (key.clone(), wire::reference(self.sm.cp_seid));
                wire::with_created(message, CreatedSmContext { key, number: *number, sm_context_ref })
            }
            _ => message,
        }
    }

    /// The answer that a request gets that was here before: by then, or when there is one.
    fn repeats(&self, key: Option<&str>) -> Option<Option<Reply>> {
        let key = key?;
        if self.pending.as_ref().is_some_and(|pending| pending.key.as_deref() == Some(key)) {
            return Some(None);
        }
        if let Some((_, told, says)) = self.answered.as_ref().filter(|(answered, ..)| answered == key) {
            return Some(Some(wire::done(told.clone(), *says)));
        }
        let says = ResponseState { state: None, handover: Some(HoState::Completed) };
        (self.completed.as_deref() == Some(key)).then(|| Some(wire::done(N1N2Content::default(), says)))
    }
}

/// Carries a transaction out. `key` is its asker's, if somebody asks.
pub(super) fn carry_out(
    session: Option<Box<Session>>,
    turn: &SmEvent,
    (ltmsi, key): (Ltmsi, Option<&str>),
    now: Instant,
    means: &mut TransactionEnv,
) -> Outcome {
    match (session, turn) {
        (None, SmEvent::Create(asked)) => create(asked, (ltmsi, key), now, means),
        (Some(session), turn) => SmTransaction { session, means, now, out: Outcome::default() }.run(turn, key),
        (None, _) => Outcome { own: Some(wire::unknown()), ..Outcome::default() },
    }
}

fn create(
    (asked, subscription): &(CreateRequest, DnnSubscription),
    (ltmsi, key): (Ltmsi, Option<&str>),
    now: Instant,
    means: &mut TransactionEnv,
) -> Outcome {
    let CreateRequest { supi, psi, snssai, dnn, n1, status_uri, carried, record, implied } = asked;
    // Of one that travels, the SEID and where an address is looked for follow from who asks: where it is asked for again, it takes
    // the place of the one that was made before and that nobody knows of.
    let seid = carried.map(|number| supi_seid::seid(*supi, number));
    let index = seid.map_or(0, Seid::session);
    let request = Create { supi: *supi, ltmsi, index, psi: *psi, n1, snssai: *snssai, dnn, subscription };
    if let Some(seid) = seid {
        means.addresses.look_from(seid.0);
    }
    let rng = &mut means.rng;
    let last = rng.next_u32() >> 4;
    let mut random = |octets: &mut [u8]| match (seid, octets.len()) {
        (Some(seid), 4) => octets.copy_from_slice(&seid.generation().to_be_bytes()),
        _ => rng.fill_bytes(octets),
    };
    let (config, ids) = (&means.config, &mut means.addresses);
    let mut env = Env { now, arrived: now, config, random: &mut random, ids, ran: &() };
    let (sm, outputs) = session::create(&request, &mut env);
    let Some(sm) = sm else {
        let n1 = outputs.into_iter().find_map(|output| if let Output::N1(n1) = output { Some(n1) } else { None });
        return Outcome { own: Some(wire::not_created(n1)), ..Outcome::default() };
    };
    // By its key the AMF knows which of its requests is answered.
    let implied = implied.filter(|_| key.is_some()).map(|number| Implied { number, by: None });
    let creating = carried.is_some() || implied.is_some();
    let own = (!creating).then(|| wire::created(&means.root, sm.cp_seid, *psi, *snssai));
    let session = Session {
        format: FORMAT,
        sm,
        supi: *supi,
        status_uri: status_uri.clone(),
        made_by: key.map(str::to_owned),
        pending: None,
        answered: None,
        calling: false,
        let_go: false,
        ended: false,
        last,
        to_upf: Vec::new(),
        to_amf: Vec::new(),
        record: *record,
        carried: carried.is_some(),
        creating,
        implied,
        completed: None,
    };
    let mut work = SmTransaction { session: Box::new(session), means, now, out: Outcome { own, ..Outcome::default() } };
    let gone = work.carry_out(outputs);
    work.end(gone)
}

/// A transaction under way.
struct SmTransaction<'a> {
    session: Box<Session>,
    means: &'a mut TransactionEnv,
    now: Instant,
    out: Outcome,
}

impl SmTransaction<'_> {
    fn run(mut self, turn: &SmEvent, key: Option<&str>) -> Outcome {
        if self.session.ended {
            return self.ended(turn);
        }
        if let SmEvent::Update(_) | SmEvent::Release = turn
            && let Some(own) = self.session.repeats(key)
        {
            // The one before has not answered it, or its answer was lost.
            return Outcome { session: Some(self.session), own, ..self.out };
        }
        let gone = match turn {
            // It is there: somebody before has made it.
            SmEvent::Create(_) => {
                let sm = &self.session.sm;
                self.out.own = Some(wire::created(&self.means.root, sm.cp_seid, sm.psi, sm.snssai));
                false
            }
            SmEvent::Update(said) => self.update(said, key),
            SmEvent::Release => {
                self.session.let_go = true;
                self.wait(key, ResponseState::default(), false);
                self.step(Input::ReleaseLocally)
            }
            SmEvent::Unreached => {
                self.out.own = Some(Reply::done());
                self.step(Input::Unreachable)
            }
            SmEvent::Forgotten => {
                self.session.let_go = true;
                self.step(Input::ReleaseLocally)
            }
            // Whose it is was not known before the SM context was here.
            SmEvent::Pfcp(upf, message) if *upf != self.session.sm.upf => {
                self.refuse(*upf, message);
                false
            }
            SmEvent::Pfcp(_, message) => {
                self.answered(message);
                match self.other_address(message) {
                    Some(asked) => self.carry_out(vec![asked]),
                    None => self.step(Input::Pfcp(message)),
                }
            }
            SmEvent::PfcpTimeout => {
                self.session.to_upf.clear();
                self.step(Input::PfcpTimeout)
            }
            SmEvent::UpfLost => {
                self.session.to_upf.clear();
                self.step(Input::UpfLost)
            }
            SmEvent::Transferred(result) => self.transferred(*result),
            SmEvent::Notified => false,
            SmEvent::Deadline => self.step(Input::Deadline),
        };
        self.end(gone)
    }

    /// It is there only until the AMF knows of its end.
    fn ended(mut self, turn: &SmEvent) -> Outcome {
        self.out.own = match turn {
            SmEvent::Update(_) | SmEvent::Release => Some(wire::unknown()),
            SmEvent::Unreached => Some(Reply::done()),
            _ => None,
        };
        let known = matches!(turn, SmEvent::Release | SmEvent::Forgotten | SmEvent::Notified);
        if let SmEvent::Notified = turn
            && let Some(said) = self.say()
        {
            self.out.answer = Some(wire::done(said.told, said.says));
        }
        Outcome { session: (!known).then_some(self.session), changed: known, ..self.out }
    }

    fn update(&mut self, said: &UpdateRequest, key: Option<&str>) -> bool {
        let state =
            said.state.map(|state| if state == UpCnxState::Activating { state } else { UpCnxState::Deactivated });
        self.wait(key, ResponseState { state, handover: said.handover }, said.switches());
        if said.handover == Some(HoState::Completed) {
            self.session.completed = key.map(str::to_owned);
        }
        let mut gone = false;
        if said.state == Some(UpCnxState::Activating) && std::mem::take(&mut self.session.calling) {
            // The AMF did not give the RAN what it was sent, but pages the UE: it comes by this.
            gone |= self.step(Input::Deactivate);
        }
        for input in said.inputs() {
            gone |= self.step(input);
        }
        if let Some(wanted) = said.hands_over() {
            self.hand_over(wanted);
        }
        gone
    }

    /// Of a session that is not handed over by N2 the RAN is told that, in the place of what it wants.
    fn hand_over(&mut self, wanted: N2Sm) {
        let Some(pending) = &mut self.session.pending else { return };
        if pending.told.n2.as_ref().is_some_and(|(kind, _)| *kind == wanted) {
            return;
        }
        let refusal = (N2Sm::HandoverPreparationUnsuccessful, session::refusal(HandoverRefusal::Preparation));
        if let Some(other) = pending.told.n2.replace(refusal) {
            self.transfer(N1N2Content { n1: None, n2: Some(other) }, false);
        }
    }

    /// Whoever asks waits for the answer.
    fn wait(&mut self, key: Option<&str>, says: ResponseState, switches: bool) {
        // An AMF asks about a session once at a time; one that does not is told what there was.
        self.out.earlier = self.say().map(|earlier| wire::done(earlier.told, earlier.says));
        let key = key.map(str::to_owned);
        self.session.pending = Some(PendingAnswer { key, told: N1N2Content::default(), says, switches });
    }

    /// What whoever waits is told, if somebody does: with what the RAN needs if it wants the path switched. What else there is for
    /// the RAN then goes by itself.
    fn say(&mut self) -> Option<PendingAnswer> {
        let mut pending = self.session.pending.take()?;
        if pending.switches
            && let Some(other) = pending.told.n2.replace(session::switched(&mut self.session.sm, self.now))
        {
            self.transfer(N1N2Content { n1: None, n2: Some(other) }, false);
        }
        Some(pending)
    }

    /// What became of a transfer.
    fn transferred(&mut self, result: N1N2TransferResult) -> bool {
        if result == N1N2TransferResult::Idle {
            // There is nothing to be released, unless it has been asked for meanwhile.
            return matches!(self.session.sm.ran, RanState::Releasing { .. }) && self.step(Input::Deactivate);
        }
        let called = std::mem::take(&mut self.session.calling);
        match result {
            N1N2TransferResult::Initiated | N1N2TransferResult::Idle => false,
            // The RAN was not asked: it is when the UE comes back.
            N1N2TransferResult::Attempting => called && self.step(Input::Deactivate),
            N1N2TransferResult::Unreachable => {
                let gone = called && self.step(Input::Deactivate);
                self.step(Input::Unreachable) || gone
            }
            N1N2TransferResult::Unknown => {
                self.session.let_go = true;
                self.step(Input::ReleaseLocally)
            }
        }
    }

    /// The UPF has answered the request of that kind.
    fn answered(&mut self, message: &[u8]) {
        let kind = |octets: &[u8]| pfcp::Message::new(octets).map(|message| message.message_type()).ok();
        let Some(answer) = kind(message).filter(|kind| kind.is_response()) else { return };
        self.session.to_upf.retain(|to_upf| kind(&to_upf.message).and_then(MessageType::response) != Some(answer));
    }

    /// The UPF is asked once more, if it says that the address is another session's: one that an SMF before this one has given,
    /// which is known now.
    fn other_address(&mut self, message: &[u8]) -> Option<Output> {
        let TransactionEnv { config, addresses, carries: true, .. } = &mut *self.means else { return None };
        let sm = &mut self.session.sm;
        if !session::address_is_taken(sm, message) {
            return None;
        }
        let address = addresses.address(&sm.dnn, sm.kind)?;
        Some(session::establish_with(sm, address, config))
    }

    /// Steps the session and takes what it says; whether it is gone by that.
    fn step(&mut self, input: Input<'_>) -> bool {
        let outputs = self.outputs(input);
        self.carry_out(outputs)
    }

    fn outputs(&mut self, input: Input<'_>) -> Vec<Output> {
        let TransactionEnv { config, addresses, rng, .. } = &mut *self.means;
        let mut random = |octets: &mut [u8]| rng.fill_bytes(octets);
        let now = self.now;
        let env = Env { now, arrived: now, config, random: &mut random, ids: addresses, ran: &() };
        session::step(&mut self.session.sm, input, &env)
    }

    fn carry_out(&mut self, outputs: Vec<Output>) -> bool {
        let mut told = N1N2Content::default();
        let (mut gone, mut data) = (false, false);
        for output in outputs {
            match output {
                Output::N1(message) => {
                    // At most one N2 goes with an N1: an earlier N1 goes on its own.
                    if let Some(earlier) = told.n1.replace(message) {
                        self.transfer(N1N2Content { n1: Some(earlier), n2: None }, false);
                    }
                }
                Output::N2(kind, transfer) => told.n2 = Some((kind, transfer)),
                Output::Pfcp { upf, message } => self.pfcp(upf, message),
                Output::FreeAddress(dnn, address) => self.out.leaves.push(OutgoingMessage::Free(*dnn, address)),
                Output::Released => gone = true,
                Output::DownlinkData => data = true,
                // Counted by the AMF, as far as it sees them; sessions are not moved between UPFs here.
                Output::Established
                | Output::Activated
                | Output::UsageReported { .. }
                | Output::Relocated(_)
                | Output::NotRelocated => {}
            }
        }
        self.tell(told);
        if data && !gone {
            self.call_ue();
        }
        gone
    }

    fn name(&mut self) -> u32 {
        self.session.last = self.session.last.wrapping_add(1);
        self.session.last
    }

    fn pfcp(&mut self, upf: SocketAddr, mut message: Vec<u8>) {
        let key = outbox::key(self.session.sm.cp_seid.ltmsi(), self.name());
        let request = pfcp::Message::new(&message).is_ok_and(|message| message.message_type().is_request());
        if let Some(record) = self.session.record.filter(|_| request && self.means.with_upf) {
            shared_record::with_place(&mut message, (record, self.session.sm.cp_seid.ltmsi().get()));
        }
        if request && self.means.stored {
            self.session.to_upf.push(PendingPfcpRequest { upf, key, message: message.clone() });
        }
        self.out.leaves.push(OutgoingMessage::Pfcp { upf, key, message });
    }

    /// Refuses a report of a UPF that does not have the session.
    fn refuse(&mut self, upf: SocketAddr, report: &[u8]) {
        let sequence = pfcp::Message::new(report).map(|report| report.sequence());
        let error = pfcp::Error { cause: pfcp::Cause::SESSION_CONTEXT_NOT_FOUND, offending_ie: None };
        let mut message = Vec::new();
        if let Ok(sequence) = sequence
            && pfcp::SessionReportResponse::from(error).emit(&mut message, 0, sequence).is_ok()
        {
            self.pfcp(upf, message);
        }
    }

    /// Tells UE and RAN: by the answer that the AMF waits for, if it does and that has room, else by a transfer.
    fn tell(&mut self, told: N1N2Content) {
        if told == N1N2Content::default() {
            return;
        }
        match &mut self.session.pending {
            Some(pending) if pending.told == N1N2Content::default() => pending.told = told,
            _ => self.transfer(told, false),
        }
    }

    fn transfer(&mut self, told: N1N2Content, calls: bool) {
        let (number, at) = (self.name(), self.now);
        if self.means.stored {
            self.session.to_amf.push(PendingTransfer { number, at, calls, told: told.clone() });
        }
        let message = self.session.transfer_message(&self.means.root, number, told);
        self.out.leaves.push(OutgoingMessage::Transfer { number, calls, message });
    }

    /// A packet waits for an idle UE (TS 23.502 4.2.3.3 step 3a): the AMF gets what the RAN needs, and pages the UE if that is
    /// idle.
    fn call_ue(&mut self) {
        let outputs = self.outputs(Input::Activate);
        self.session.calling = true;
        for output in outputs {
            if let Output::N2(kind, octets) = output {
                self.transfer(N1N2Content { n1: None, n2: Some((kind, octets)) }, true);
            }
        }
    }

    /// Gives the AMF its answer as soon as the UPF has what it was told, and lets go of what is gone.
    fn end(mut self, gone: bool) -> Outcome {
        let now = self.now;
        self.session.to_amf.retain(|to_amf| now.since(to_amf.at) <= SAID_AGAIN);
        if self.session.creating && (gone || self.session.sm.n4 != N4State::Establishing) {
            let sm = &self.session.sm;
            let created = Some(wire::created(&self.means.root, sm.cp_seid, sm.psi, sm.snssai));
            self.session.creating = false;
            // Of one that travels, too, the answer comes after the first transfer: from then on the AMF asks for nothing again.
            let transfers = self.out.leaves.iter().any(|leave| matches!(leave, OutgoingMessage::Transfer { .. }));
            match !gone && (self.implies() || self.session.carried && transfers) {
                true => self.out.after_transfer = created,
                false => self.out.answer = created,
            }
        }
        if gone {
            return self.forget();
        }
        let sm = &self.session.sm;
        let waits_for_upf = matches!(sm.n4, N4State::Telling { .. } | N4State::Deleting);
        // Nobody but the UPF is waited for by one that is released.
        let ends = self.session.let_go && sm.stage == Stage::Ended && sm.n4 != N4State::Deleted;
        if !waits_for_upf && !ends {
            self.reply();
        }
        Outcome { session: Some(self.session), changed: true, ..self.out }
    }

    /// Has the first transfer say that the SM context has come into being, if the AMF takes that for its answer. Whether there is one.
    fn implies(&mut self) -> bool {
        let SmTransaction { session, out, .. } = self;
        let transfer = out.leaves.iter_mut().find_map(|leave| match leave {
            OutgoingMessage::Transfer { number, message, .. } => Some((*number, message)),
            _ => None,
        });
        let (Some(implied), Some((number, message))) = (&mut session.implied, transfer) else { return false };
        implied.by = Some(number);
        *message = session.with_created(number, std::mem::take(message));
        true
    }

    fn reply(&mut self) {
        let Some(PendingAnswer { key, told, mut says, .. }) = self.say() else { return };
        // It is not coming back where nothing is to be set up.
        says.state = says.state.map(|state| if told.n2.is_none() { UpCnxState::Deactivated } else { state });
        if self.means.stored {
            self.session.answered = key.map(|key| (key, told.clone(), says));
        }
        self.out.answer = Some(wire::done(told, says));
    }

    /// The SM context is gone: whoever waits for that is told, else the AMF by itself.
    fn forget(mut self) -> Outcome {
        // Where it travels, the answer comes after the AMF knows: nobody else would say it.
        if (self.session.let_go || !self.session.carried)
            && let Some(said) = self.say()
        {
            self.out.answer = Some(wire::done(said.told, said.says));
        }
        if self.session.let_go {
            return Outcome { session: None, changed: true, ..self.out };
        }
        let uri = self.session.status_uri.clone();
        self.out.leaves.push(OutgoingMessage::Notify { uri, message: wire::released() });
        self.session.ended = true;
        self.session.to_amf.clear();
        let session = self.means.stored.then_some(self.session);
        Outcome { session, changed: true, ..self.out }
    }
}
