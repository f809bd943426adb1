//! Transactions on an SM context: a create request, or an event on an existing SM context.

use super::{
    AmfState, FORMAT, ImpliedCreate, Location, MAX_REPEAT_AGE, Outcome, OutgoingMessage, PendingAnswer,
    PendingPfcpRequest, PendingTransfer, Session, SmEvent, TransactionEnv,
};
use crate::supi_seid;
use crate::wire::{self, CreateRequest, ResponseState, UpdateRequest};
use rand::RngCore;
use std::net::SocketAddr;
use vireo_core::sba::{N1N2Content, N1N2TransferResult};
use vireo_core::smf::{self, Create, HandoverRefusal, Input, N2Sm, N4State, Output, RanState, Stage};
use vireo_core::step::idempotency_key;
use vireo_core::subscription::DnnSubscription;
use vireo_core::{Env, Identifiers};
use vireo_ops::shared_record;
use vireo_sbi::Reply;
use vireo_sbi::smf::{HoState, UpCnxState};
use vireo_types::{Dialect, Instant, Ltmsi, Seid};
use vireo_wire::pfcp::{self, MessageType};

/// Runs a transaction. `key` is the idempotency key of its request, if there is one.
pub(crate) fn carry_out(
    session: Option<Box<Session>>,
    turn: &SmEvent,
    (ltmsi, key): (Ltmsi, Option<&str>),
    now: Instant,
    env: &mut TransactionEnv,
) -> Outcome {
    match (session, turn) {
        (None, SmEvent::Create(asked)) => create(asked, (ltmsi, key), now, env),
        (Some(session), turn) => SmTransaction { session, env, now, out: Outcome::default() }.run(turn, key),
        (None, _) => Outcome { own: Some(wire::unknown()), ..Outcome::default() },
    }
}

fn create(
    (asked, subscription): &(CreateRequest, DnnSubscription),
    (ltmsi, key): (Ltmsi, Option<&str>),
    now: Instant,
    env: &mut TransactionEnv,
) -> Outcome {
    let CreateRequest { supi, psi, snssai, dnn, n1, status_uri, piggyback, record, implied } = asked;
    // With piggyback, SEID and address search depend only on the request. A repeated create
    // replaces a session that an SMF created before it died.
    let seid = piggyback.map(|number| supi_seid::seid(*supi, number));
    let index = seid.map_or(0, Seid::session);
    // The service-based interface has no PDN connections of EPS.
    let dialect = Dialect::Nr;
    let request = Create { supi: *supi, ltmsi, index, psi: *psi, dialect, n1, snssai: *snssai, dnn, subscription };
    if let Some(seid) = seid {
        env.addresses.set_search_start(seid.0);
    }
    let rng = &mut env.rng;
    let last = rng.next_u32() >> 4;
    let mut random = |octets: &mut [u8]| match (seid, octets.len()) {
        (Some(seid), 4) => octets.copy_from_slice(&seid.generation().to_be_bytes()),
        _ => rng.fill_bytes(octets),
    };
    let (config, ids) = (&env.config, &mut env.addresses);
    let mut step_env = Env { now, arrived: now, config, random: &mut random, ids, ran: &() };
    let (sm, outputs) = smf::create(&request, &mut step_env);
    let Some(sm) = sm else {
        let n1 = outputs.into_iter().find_map(|output| if let Output::N1(n1) = output { Some(n1) } else { None });
        return Outcome { own: Some(wire::not_created(n1)), ..Outcome::default() };
    };
    // The AMF finds the answered request by its key.
    let implied = implied.filter(|_| key.is_some()).map(|number| ImpliedCreate { number, by: None });
    let creating = piggyback.is_some() || implied.is_some();
    let location = match (piggyback, record) {
        (Some(_), _) => Location::Amf,
        (None, Some(record)) => Location::UeRecord(*record),
        (None, None) => Location::Own,
    };
    let own = (!creating).then(|| wire::create_reply(&env.root, sm.pfcp.cp_seid, *psi, *snssai));
    let session = Session {
        format: FORMAT,
        sm,
        supi: *supi,
        status_uri: status_uri.clone(),
        made_by: key.map(str::to_owned),
        pending: None,
        answered: None,
        amf: if creating { AmfState::Creating } else { AmfState::Active },
        last,
        to_upf: Vec::new(),
        to_amf: Vec::new(),
        location,
        implied,
        completed: None,
    };
    let mut work = SmTransaction { session: Box::new(session), env, now, out: Outcome { own, ..Outcome::default() } };
    let gone = work.carry_out(outputs);
    work.end(gone)
}

/// A transaction in progress.
struct SmTransaction<'a> {
    session: Box<Session>,
    env: &'a mut TransactionEnv,
    now: Instant,
    out: Outcome,
}

impl SmTransaction<'_> {
    fn run(mut self, turn: &SmEvent, key: Option<&str>) -> Outcome {
        if self.session.has_ended() {
            return self.on_event_after_end(turn);
        }
        if let SmEvent::Update(_) | SmEvent::Release = turn
            && let Some(own) = self.session.repeats(key)
        {
            // The previous SMF has not answered the request, or its response was lost.
            return Outcome { session: Some(self.session), own, ..self.out };
        }
        let gone = match turn {
            // A previous request has created the SM context.
            SmEvent::Create(_) => {
                self.out.own = Some(self.create_reply());
                false
            }
            SmEvent::Update(said) => self.update(said, key),
            SmEvent::Release => {
                self.wait(key, ResponseState::default(), false);
                self.on_end_at_amf();
                self.step(Input::ReleaseLocally)
            }
            SmEvent::Unreached => {
                self.out.own = Some(Reply::done());
                self.step(Input::Unreachable)
            }
            SmEvent::Forgotten => {
                self.on_end_at_amf();
                self.step(Input::ReleaseLocally)
            }
            // With piggyback, the UPF of the session was unknown before the SM context arrived.
            SmEvent::Pfcp(upf, message) if *upf != self.session.sm.pfcp.upf => {
                self.refuse(*upf, message);
                false
            }
            SmEvent::Pfcp(_, message) => {
                self.remove_pending_request(message);
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
            SmEvent::Transferred(result) => self.on_transfer_result(*result),
            SmEvent::Notified => false,
            SmEvent::Deadline => self.step(Input::Deadline),
        };
        self.end(gone)
    }

    /// Handles an event after the end, while the notification of the AMF is pending.
    fn on_event_after_end(mut self, turn: &SmEvent) -> Outcome {
        self.out.own = match turn {
            SmEvent::Update(_) | SmEvent::Release => Some(wire::unknown()),
            SmEvent::Unreached => Some(Reply::done()),
            _ => None,
        };
        let known = matches!(turn, SmEvent::Release | SmEvent::Forgotten | SmEvent::Notified);
        if let SmEvent::Notified = turn
            && let Some(said) = self.take_response()
        {
            self.out.answer = Some(wire::completed_reply(said.content, said.response_state));
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
        if said.state == Some(UpCnxState::Activating) && self.end_reachability_wait() {
            // The AMF has not passed the transfer to the RAN but paged the UE, which responds by
            // this request.
            gone |= self.step(Input::Deactivate);
        }
        for input in said.inputs() {
            gone |= self.step(input);
        }
        if let Some(wanted) = said.handover_content() {
            self.refuse_missing_handover_content(wanted);
        }
        gone
    }

    /// Replaces the pending N2 content by a refusal, if it is not what the N2 handover needs. The
    /// replaced content goes in a transfer.
    fn refuse_missing_handover_content(&mut self, wanted: N2Sm) {
        let Some(pending) = &mut self.session.pending else { return };
        if pending.content.n2.as_ref().is_some_and(|(kind, _)| *kind == wanted) {
            return;
        }
        let refusal = (N2Sm::HandoverPreparationUnsuccessful, smf::refusal(HandoverRefusal::Preparation));
        if let Some(other) = pending.content.n2.replace(refusal) {
            self.transfer(N1N2Content { n1: None, n2: Some(other) }, false);
        }
    }

    /// Makes the request wait for its response.
    fn wait(&mut self, key: Option<&str>, response_state: ResponseState, switches: bool) {
        // An AMF sends one request at a time about a session. If one is pending anyway, it is
        // answered first.
        self.out.earlier =
            self.take_response().map(|earlier| wire::completed_reply(earlier.content, earlier.response_state));
        let key = key.map(str::to_owned);
        self.session.pending = Some(PendingAnswer { key, content: N1N2Content::default(), response_state, switches });
    }

    /// Takes the pending response. Adds the path switch acknowledgement if the RAN has requested
    /// the switch. Other N2 content then goes in a transfer.
    fn take_response(&mut self) -> Option<PendingAnswer> {
        let mut pending = self.session.pending.take()?;
        if pending.switches
            && let Some(other) = pending.content.n2.replace(smf::path_switch_answer(&mut self.session.sm, self.now))
        {
            self.transfer(N1N2Content { n1: None, n2: Some(other) }, false);
        }
        Some(pending)
    }

    /// Handles the result of a transfer.
    fn on_transfer_result(&mut self, result: N1N2TransferResult) -> bool {
        if result == N1N2TransferResult::Idle {
            // The RAN has nothing to release, unless the user plane was activated again meanwhile.
            return matches!(self.session.sm.ran, RanState::Releasing { .. }) && self.step(Input::Deactivate);
        }
        let called = self.end_reachability_wait();
        match result {
            N1N2TransferResult::Initiated | N1N2TransferResult::Idle => false,
            // The AMF pages the UE. The RAN receives the content after the UE's service request.
            N1N2TransferResult::Attempting => called && self.step(Input::Deactivate),
            N1N2TransferResult::Unreachable => {
                let gone = called && self.step(Input::Deactivate);
                self.step(Input::Unreachable) || gone
            }
            N1N2TransferResult::Unknown => {
                self.on_end_at_amf();
                self.step(Input::ReleaseLocally)
            }
        }
    }

    /// Ends the wait for the UE's reachability. Returns true if there was one.
    fn end_reachability_wait(&mut self) -> bool {
        let awaited = self.session.amf == AmfState::AwaitingReachability;
        if awaited {
            self.session.amf = AmfState::Active;
        }
        awaited
    }

    /// Handles that the AMF has released the SM context or does not have it. An unanswered create
    /// request is answered first.
    fn on_end_at_amf(&mut self) {
        if self.session.is_creating() {
            self.out.earlier = Some(self.create_reply());
        }
        self.session.amf = AmfState::Releasing;
    }

    fn create_reply(&self) -> Reply {
        let sm = &self.session.sm;
        wire::create_reply(&self.env.root, sm.pfcp.cp_seid, sm.psi, sm.terms.snssai)
    }

    /// Removes the pending PFCP request that a response answers.
    fn remove_pending_request(&mut self, message: &[u8]) {
        let kind = |octets: &[u8]| pfcp::Message::new(octets).map(|message| message.message_type()).ok();
        let Some(answer) = kind(message).filter(|kind| kind.is_response()) else { return };
        self.session.to_upf.retain(|to_upf| kind(&to_upf.message).and_then(MessageType::response) != Some(answer));
    }

    /// Returns a new establishment request if the UPF rejects the address as used. A previous SMF
    /// has allocated that address; it now stays marked as used.
    fn other_address(&mut self, message: &[u8]) -> Option<Output> {
        let TransactionEnv { config, addresses, piggybacks: true, .. } = &mut *self.env else { return None };
        let sm = &mut self.session.sm;
        let dnn = config.dnn(&sm.terms.dnn, sm.terms.snssai)?;
        // A static address is not replaced by another one.
        if !smf::address_is_taken(sm, message) || dnn.has_static(&sm.address) {
            return None;
        }
        let address = addresses.address(&sm.terms.dnn, sm.kind)?;
        Some(smf::establish_with(sm, address, config))
    }

    /// Runs a step of the session and executes its outputs. Returns true if the SM context is
    /// released.
    fn step(&mut self, input: Input<'_>) -> bool {
        let outputs = self.outputs(input);
        self.carry_out(outputs)
    }

    fn outputs(&mut self, input: Input<'_>) -> Vec<Output> {
        let TransactionEnv { config, addresses, rng, .. } = &mut *self.env;
        let mut random = |octets: &mut [u8]| rng.fill_bytes(octets);
        let now = self.now;
        let env = Env { now, arrived: now, config, random: &mut random, ids: addresses, ran: &() };
        smf::step(&mut self.session.sm, input, &env)
    }

    fn carry_out(&mut self, outputs: Vec<Output>) -> bool {
        let mut content = N1N2Content::default();
        let (mut gone, mut data) = (false, false);
        for output in outputs {
            match output {
                Output::N1(message) => {
                    // A message has one N1 and one N2 part: an earlier N1 goes in its own transfer.
                    if let Some(earlier) = content.n1.replace(message) {
                        self.transfer(N1N2Content { n1: Some(earlier), n2: None }, false);
                    }
                }
                Output::N2(kind, transfer) => content.n2 = Some((kind, transfer)),
                Output::Pfcp { upf, message } => self.pfcp(upf, message),
                Output::FreeAddress(dnn, address) => self.out.leaves.push(OutgoingMessage::Free(*dnn, address)),
                Output::Released => gone = true,
                Output::DownlinkData => data = true,
                // The AMF counts these as far as it observes them. In SBA mode sessions are not
                // relocated, and there is no EPS.
                Output::Established
                | Output::Activated
                | Output::UsageReported { .. }
                | Output::QosFlowsNotified { .. }
                | Output::Relocated(_)
                | Output::NotRelocated
                | Output::Modified(_)
                | Output::NotModified(_)
                | Output::ReleaseConnection => {}
            }
        }
        self.send_content(content);
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
        let key = idempotency_key(self.session.sm.pfcp.cp_seid.ltmsi(), self.name());
        let request = pfcp::Message::new(&message).is_ok_and(|message| message.message_type().is_request());
        if let Some(record) = self.session.record().filter(|_| request && self.env.with_upf) {
            shared_record::with_part_name(&mut message, (record, self.session.sm.pfcp.cp_seid.ltmsi().get()));
        }
        if request && self.env.stored {
            self.session.to_upf.push(PendingPfcpRequest { upf, key, message: message.clone() });
        }
        self.out.leaves.push(OutgoingMessage::Pfcp { upf, key, message });
    }

    /// Rejects a report of a UPF that does not have the session.
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

    /// Sends content to UE and RAN: in the pending response if that is empty, else by a transfer.
    fn send_content(&mut self, content: N1N2Content) {
        if content == N1N2Content::default() {
            return;
        }
        match &mut self.session.pending {
            Some(pending) if pending.content == N1N2Content::default() => pending.content = content,
            _ => self.transfer(content, false),
        }
    }

    fn transfer(&mut self, content: N1N2Content, calls: bool) {
        let (number, at) = (self.name(), self.now);
        if self.env.stored {
            self.session.to_amf.push(PendingTransfer { number, at, calls, content: content.clone() });
        }
        let message = self.session.transfer_message(&self.env.root, number, content);
        self.out.leaves.push(OutgoingMessage::Transfer { number, calls, message });
    }

    /// Handles a downlink packet for an idle UE (TS 23.502 4.2.3.3 step 3a): transfers the N2
    /// content to the AMF, which pages the UE if it is idle.
    fn call_ue(&mut self) {
        let outputs = self.outputs(Input::Activate);
        if self.session.amf == AmfState::Active {
            self.session.amf = AmfState::AwaitingReachability;
        }
        for output in outputs {
            if let Output::N2(kind, octets) = output {
                self.transfer(N1N2Content { n1: None, n2: Some((kind, octets)) }, true);
            }
        }
    }

    /// Ends the transaction. Sends the response once the UPF has answered, and handles a released
    /// SM context.
    fn end(mut self, gone: bool) -> Outcome {
        let now = self.now;
        self.session.to_amf.retain(|to_amf| now.since(to_amf.at) <= MAX_REPEAT_AGE);
        if self.session.is_creating() && (gone || self.session.sm.n4 != N4State::Establishing) {
            let created = Some(self.create_reply());
            self.session.amf = AmfState::Active;
            // With piggyback, the response follows the first transfer too. After it the AMF repeats
            // nothing.
            let transfers = self.out.leaves.iter().any(|leave| matches!(leave, OutgoingMessage::Transfer { .. }));
            match !gone && (self.implies() || self.session.is_piggybacked() && transfers) {
                true => self.out.after_transfer = created,
                false => self.out.answer = created,
            }
        }
        if gone {
            return self.forget();
        }
        let sm = &self.session.sm;
        let waits_for_upf = matches!(sm.n4, N4State::Updating { .. } | N4State::Deleting);
        // A released session waits only for the UPF.
        let ends = self.session.amf == AmfState::Releasing && sm.stage == Stage::Ended && sm.n4 != N4State::Deleted;
        if !waits_for_upf && !ends {
            self.reply();
        }
        Outcome { session: Some(self.session), changed: true, ..self.out }
    }

    /// Marks the first transfer as create response, if the AMF accepts that. Returns true if there
    /// is such a transfer.
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
        let Some(PendingAnswer { key, content, mut response_state, .. }) = self.take_response() else { return };
        // Without N2 content there is nothing to set up, so the user plane stays deactivated.
        response_state.state =
            response_state.state.map(|state| if content.n2.is_none() { UpCnxState::Deactivated } else { state });
        if self.env.stored {
            self.session.answered = key.map(|key| (key, content.clone(), response_state));
        }
        self.out.answer = Some(wire::completed_reply(content, response_state));
    }

    /// Ends a released SM context: answers the waiting request, else notifies the AMF.
    fn forget(mut self) -> Outcome {
        let is_end_known = self.session.amf == AmfState::Releasing;
        // With piggyback, the response follows the notification: no other SMF would repeat the
        // notification.
        if (is_end_known || !self.session.is_piggybacked())
            && let Some(said) = self.take_response()
        {
            self.out.answer = Some(wire::completed_reply(said.content, said.response_state));
        }
        if is_end_known {
            return Outcome { session: None, changed: true, ..self.out };
        }
        let uri = self.session.status_uri.clone();
        self.out.leaves.push(OutgoingMessage::Notify { uri, message: wire::released() });
        self.session.amf = AmfState::Ended;
        self.session.to_amf.clear();
        let session = self.env.stored.then_some(self.session);
        Outcome { session, changed: true, ..self.out }
    }
}
