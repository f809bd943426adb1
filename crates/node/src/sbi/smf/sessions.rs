//! The SM contexts of an SMF and what happens to them: requests of AMFs, messages of UPFs and time go in, answers and requests
//! come out. It knows no sockets; one thread owns it.

use super::addresses::Addresses;
use super::wire::{self, Asked};
use rand::RngCore;
use rand::rngs::StdRng;
use rustc_hash::FxHashMap;
use std::collections::BTreeSet;
use std::net::SocketAddr;
use vireo_core::Env;
use vireo_core::chain::{Told, Transferred};
use vireo_core::config::CoreConfig;
use vireo_core::session::{self, Create, Input, N4, Output, SmContext, Stage};
use vireo_core::subscription::Subscription;
use vireo_sbi::common::ProblemDetails;
use vireo_sbi::smf::{self, Operation, Resource, UpCnxState};
use vireo_sbi::{Call, Message, Reply, ReplyTo};
use vireo_types::{Instant, Ltmsi, Seid, Supi};

/// SM contexts at the most.
const CONTEXTS: usize = 4_000_000;

/// What is to be done.
#[derive(Debug)]
pub(super) enum Action {
    /// An AMF is answered.
    Reply(ReplyTo, Reply),
    /// A UPF is told something. `key` names a request.
    Pfcp { upf: SocketAddr, key: u64, seid: Seid, message: Vec<u8> },
    /// The AMF is to transfer something; what comes of it goes to [`Sessions::transferred`].
    Transfer { seid: Seid, supi: Supi, message: Message },
    /// The AMF is told that the SM context has ended.
    Notify { seid: Seid, uri: String, message: Message },
}

/// An answer to the AMF that waits for the UPF (TS 23.502 4.3.2.2.1 step 16, 4.2.6 step 6).
#[derive(Debug)]
struct Pending {
    reply: ReplyTo,
    told: Told,
    state: Option<UpCnxState>,
}

/// An SM context, and who is to be told about it.
#[derive(Debug)]
struct Session {
    sm: SmContext,
    supi: Supi,
    status_uri: String,
    pending: Option<Pending>,
    /// The AMF was asked for the user plane because of a downlink packet, and has not said whether the UE is there.
    calling: bool,
    /// The AMF knows that it ends.
    let_go: bool,
    /// When the time is noted for it.
    due: Option<Instant>,
}

/// What a subscriber may do; an error is that nobody can say.
pub(super) type Lookup<'a> = &'a mut dyn FnMut(Supi) -> Result<Option<Subscription>, String>;

/// All of them.
#[derive(Debug)]
pub(super) struct Sessions {
    config: CoreConfig,
    /// Root of this SMF's URIs.
    root: String,
    contexts: FxHashMap<Ltmsi, Session>,
    by_ue: FxHashMap<(Supi, u8), Ltmsi>,
    addresses: Addresses,
    due: BTreeSet<(Instant, Ltmsi)>,
    next: u32,
    key: u64,
    rng: StdRng,
    actions: Vec<Action>,
}

impl Sessions {
    /// None yet.
    pub(super) fn new(config: CoreConfig, root: String, mut rng: StdRng) -> Self {
        Sessions {
            addresses: Addresses::new(&config),
            config,
            root,
            contexts: FxHashMap::default(),
            by_ue: FxHashMap::default(),
            due: BTreeSet::new(),
            // Not those of the SMF that was here before.
            next: rng.next_u32(),
            key: 0,
            rng,
            actions: Vec::new(),
        }
    }

    /// How many there are.
    pub(super) fn len(&self) -> usize {
        self.contexts.len()
    }

    /// What is to be done, in order.
    pub(super) fn take_actions(&mut self) -> Vec<Action> {
        std::mem::take(&mut self.actions)
    }

    /// When [`Sessions::on_time`] is due.
    pub(super) fn next_due(&self) -> Option<Instant> {
        self.due.first().map(|(at, _)| *at)
    }

    /// What an AMF asks.
    pub(super) fn call(&mut self, call: Call, now: Instant, subscription: Lookup<'_>) {
        let Call { path, message, reply } = call;
        if let Some(seid) = wire::unreached(&path) {
            if let Some(ltmsi) = self.of(seid) {
                self.step(ltmsi, Input::Unreachable, now);
            }
            return self.actions.push(Action::Reply(reply, Reply::done()));
        }
        match smf::resource(&path) {
            Some(Resource::All) => {
                let created = self.create(&message, now, subscription);
                let answer = created.unwrap_or_else(|problem| Reply::problem(&problem));
                self.actions.push(Action::Reply(reply, answer));
            }
            Some(Resource::One(reference, operation)) => {
                let Some(ltmsi) = wire::seid_of(reference).and_then(|seid| self.of(seid)) else {
                    let problem = ProblemDetails::new(404, "CONTEXT_NOT_FOUND", "there is no such SM context");
                    return self.actions.push(Action::Reply(reply, Reply::problem(&problem)));
                };
                match operation {
                    Operation::Modify => self.update(ltmsi, &message, reply, now),
                    Operation::Release => self.release(ltmsi, reply, now),
                }
            }
            None => {
                let what = "this SMF has SM contexts, and the callbacks that it has named";
                let problem = ProblemDetails::new(404, "RESOURCE_URI_STRUCTURE_NOT_FOUND", what);
                self.actions.push(Action::Reply(reply, Reply::problem(&problem)));
            }
        }
    }

    fn of(&self, seid: Seid) -> Option<Ltmsi> {
        let ltmsi = seid.ltmsi();
        self.contexts.get(&ltmsi).filter(|session| session.sm.cp_seid == seid).map(|_| ltmsi)
    }

    fn create(&mut self, message: &Message, now: Instant, subscription: Lookup<'_>) -> Result<Reply, ProblemDetails> {
        let Asked { supi, psi, snssai, dnn, n1, status_uri } = wire::create(message)?;
        let denied = |cause, detail: &str| ProblemDetails::new(403, cause, detail);
        let subscription = subscription(supi).map_err(|error| {
            tracing::error!(error, "what a subscriber may do is not known");
            ProblemDetails::new(500, "SYSTEM_FAILURE", "the subscriber database does not answer")
        })?;
        let subscription = subscription.ok_or_else(|| denied("SUBSCRIPTION_DENIED", "no such subscriber"))?;
        let slice = subscription.slices.iter().find(|slice| slice.snssai == snssai);
        let slice = slice.ok_or_else(|| denied("SNSSAI_DENIED", "the slice is not subscribed"))?;
        let network = slice.dnns.iter().find(|network| network.dnn == dnn);
        let network = network.ok_or_else(|| denied("DNN_DENIED", "the data network is not subscribed"))?;
        // The AMF has forgotten the one before (TS 29.502 5.2.2.2.1).
        if let Some(before) = self.by_ue.get(&(supi, psi)).copied() {
            if let Some(session) = self.contexts.get_mut(&before) {
                session.let_go = true;
            }
            self.step(before, Input::ReleaseLocally, now);
        }
        let full =
            || ProblemDetails::new(500, "INSUFFICIENT_RESOURCES_SLICE_DNN", "there is no room for more sessions");
        let ltmsi = self.free_number().ok_or_else(full)?;
        let request = Create { supi, ltmsi, index: 0, psi, n1: &n1, snssai, dnn: &dnn, subscription: network };
        let rng = &mut self.rng;
        let mut random = |octets: &mut [u8]| rng.fill_bytes(octets);
        let mut env =
            Env { now, arrived: now, config: &self.config, random: &mut random, ids: &mut self.addresses, ran: &() };
        let (sm, outputs) = session::create(&request, &mut env);
        let Some(sm) = sm else {
            let n1 = outputs.into_iter().find_map(|output| if let Output::N1(n1) = output { Some(n1) } else { None });
            return Ok(wire::not_created(n1));
        };
        let created = wire::created(&self.root, sm.cp_seid, psi, snssai);
        let session = Session { sm, supi, status_uri, pending: None, calling: false, let_go: false, due: None };
        self.contexts.insert(ltmsi, session);
        self.by_ue.insert((supi, psi), ltmsi);
        self.carry_out(ltmsi, outputs, now);
        Ok(created)
    }

    /// A number that no SM context has.
    fn free_number(&mut self) -> Option<Ltmsi> {
        if self.contexts.len() >= CONTEXTS {
            return None;
        }
        loop {
            self.next = self.next.wrapping_add(1);
            let ltmsi = Ltmsi::from_raw(self.next & 0x0fff_ffff);
            if !self.contexts.contains_key(&ltmsi) {
                return Some(ltmsi);
            }
        }
    }

    fn update(&mut self, ltmsi: Ltmsi, message: &Message, reply: ReplyTo, now: Instant) {
        let said = match wire::update(message) {
            Ok(said) => said,
            Err(problem) => return self.actions.push(Action::Reply(reply, Reply::problem(&problem))),
        };
        let state =
            said.state.map(|state| if state == UpCnxState::Activating { state } else { UpCnxState::Deactivated });
        let pending = Pending { reply, told: Told::default(), state };
        let Some(session) = self.contexts.get_mut(&ltmsi) else { return };
        if let Some(earlier) = session.pending.replace(pending) {
            // An AMF asks about a session once at a time; one that does not is told what there was.
            self.actions.push(Action::Reply(earlier.reply, wire::done(earlier.told, earlier.state)));
        }
        if said.state == Some(UpCnxState::Activating) && std::mem::take(&mut session.calling) {
            // The AMF did not give the RAN what it was sent, but pages the UE: it comes by this.
            self.step_only(ltmsi, Input::Deactivate, now);
        }
        for input in said.inputs() {
            self.step_only(ltmsi, input, now);
        }
        self.settle(ltmsi);
    }

    fn release(&mut self, ltmsi: Ltmsi, reply: ReplyTo, now: Instant) {
        let Some(session) = self.contexts.get_mut(&ltmsi) else { return };
        session.let_go = true;
        let pending = Pending { reply, told: Told::default(), state: None };
        if let Some(earlier) = session.pending.replace(pending) {
            self.actions.push(Action::Reply(earlier.reply, wire::done(earlier.told, earlier.state)));
        }
        self.step(ltmsi, Input::ReleaseLocally, now);
    }

    /// A message of a UPF for a session; whether there is such a one.
    pub(super) fn pfcp(&mut self, seid: Seid, message: &[u8], now: Instant) -> bool {
        let Some(ltmsi) = self.of(seid) else { return false };
        self.step(ltmsi, Input::Pfcp(message), now);
        true
    }

    /// A UPF did not answer.
    pub(super) fn pfcp_timeout(&mut self, seid: Seid, now: Instant) {
        if let Some(ltmsi) = self.of(seid) {
            self.step(ltmsi, Input::PfcpTimeout, now);
        }
    }

    /// A UPF has lost its sessions.
    pub(super) fn upf_lost(&mut self, upf: SocketAddr, now: Instant) {
        let there: Vec<_> = self.contexts.iter().filter(|(_, s)| s.sm.upf == upf).map(|(ltmsi, _)| *ltmsi).collect();
        for ltmsi in there {
            self.step(ltmsi, Input::UpfLost, now);
        }
    }

    /// What became of a transfer.
    pub(super) fn transferred(&mut self, seid: Seid, result: Transferred, now: Instant) {
        let Some(ltmsi) = self.of(seid) else { return };
        let Some(session) = self.contexts.get_mut(&ltmsi) else { return };
        let called = std::mem::take(&mut session.calling);
        match result {
            Transferred::Initiated => {}
            // The RAN was not asked: it is when the UE comes back.
            Transferred::Attempting if called => self.step(ltmsi, Input::Deactivate, now),
            Transferred::Attempting => {}
            Transferred::Unreachable if called => {
                self.step(ltmsi, Input::Deactivate, now);
                self.step(ltmsi, Input::Unreachable, now);
            }
            Transferred::Unreachable => self.step(ltmsi, Input::Unreachable, now),
            Transferred::Unknown => {
                session.let_go = true;
                self.step(ltmsi, Input::ReleaseLocally, now);
            }
        }
    }

    /// What is due by now.
    pub(super) fn on_time(&mut self, now: Instant) {
        while let Some((at, ltmsi)) = self.due.first().copied().filter(|(at, _)| *at <= now) {
            self.due.remove(&(at, ltmsi));
            if let Some(session) = self.contexts.get_mut(&ltmsi) {
                session.due = None;
            }
            self.step(ltmsi, Input::Deadline, now);
        }
    }

    fn step(&mut self, ltmsi: Ltmsi, input: Input<'_>, now: Instant) {
        self.step_only(ltmsi, input, now);
        self.settle(ltmsi);
    }

    /// Steps a session and carries out what it says, but for an answer that may be given by now.
    fn step_only(&mut self, ltmsi: Ltmsi, input: Input<'_>, now: Instant) {
        let outputs = self.run(ltmsi, input, now);
        self.carry_out(ltmsi, outputs, now);
    }

    fn run(&mut self, ltmsi: Ltmsi, input: Input<'_>, now: Instant) -> Vec<Output> {
        let Some(session) = self.contexts.get_mut(&ltmsi) else { return Vec::new() };
        let rng = &mut self.rng;
        let mut random = |octets: &mut [u8]| rng.fill_bytes(octets);
        let config = &self.config;
        let env = Env { now, arrived: now, config, random: &mut random, ids: &mut self.addresses, ran: &() };
        session::step(&mut session.sm, input, &env)
    }

    fn carry_out(&mut self, ltmsi: Ltmsi, outputs: Vec<Output>, now: Instant) {
        let mut told = Told::default();
        let (mut gone, mut data) = (false, false);
        for output in outputs {
            match output {
                Output::N1(message) => {
                    // At most one N2 goes with an N1: an earlier N1 goes on its own.
                    if let Some(earlier) = told.n1.replace(message) {
                        self.transfer(ltmsi, Told { n1: Some(earlier), n2: None });
                    }
                }
                Output::N2(kind, transfer) => told.n2 = Some((kind, transfer)),
                Output::Pfcp { upf, message } => {
                    self.key += 1;
                    let seid = self.contexts.get(&ltmsi).map(|s| s.sm.cp_seid).unwrap_or_default();
                    self.actions.push(Action::Pfcp { upf, key: self.key, seid, message });
                }
                Output::FreeAddress(dnn, address) => self.addresses.give_back(&dnn, &address),
                Output::Gone => gone = true,
                Output::DownlinkData => data = true,
                // Counted by the AMF, as far as it sees them; sessions are not moved between UPFs here.
                Output::Established
                | Output::Activated
                | Output::Carried { .. }
                | Output::Relocated(_)
                | Output::NotRelocated => {}
            }
        }
        self.tell(ltmsi, told);
        if gone {
            return self.forget(ltmsi);
        }
        if data {
            self.call_ue(ltmsi, now);
        }
        self.schedule(ltmsi);
    }

    /// Tells UE and RAN: by the answer that the AMF waits for, if it does and that has room, else by a transfer.
    fn tell(&mut self, ltmsi: Ltmsi, told: Told) {
        if told == Told::default() {
            return;
        }
        let Some(session) = self.contexts.get_mut(&ltmsi) else { return };
        match &mut session.pending {
            Some(pending) if pending.told == Told::default() => pending.told = told,
            _ => self.transfer(ltmsi, told),
        }
    }

    fn transfer(&mut self, ltmsi: Ltmsi, told: Told) {
        let Some(session) = self.contexts.get(&ltmsi) else { return };
        let (seid, supi) = (session.sm.cp_seid, session.supi);
        let message = wire::transfer(&self.root, (seid, session.sm.psi, session.sm.snssai), told);
        self.actions.push(Action::Transfer { seid, supi, message });
    }

    /// A packet waits for an idle UE (TS 23.502 4.2.3.3 step 3a): the AMF gets what the RAN needs, and pages the UE if that is
    /// idle.
    fn call_ue(&mut self, ltmsi: Ltmsi, now: Instant) {
        let outputs = self.run(ltmsi, Input::Activate, now);
        let Some(session) = self.contexts.get_mut(&ltmsi) else { return };
        session.calling = true;
        for output in outputs {
            if let Output::N2(kind, octets) = output {
                self.transfer(ltmsi, Told { n1: None, n2: Some((kind, octets)) });
            }
        }
    }

    /// Notes when something is due.
    fn schedule(&mut self, ltmsi: Ltmsi) {
        let Some(session) = self.contexts.get_mut(&ltmsi) else { return };
        let due = session::deadline(&session.sm);
        if due != session.due {
            if let Some(at) = session.due.take() {
                self.due.remove(&(at, ltmsi));
            }
            self.due.extend(due.map(|at| (at, ltmsi)));
            session.due = due;
        }
    }

    /// Gives the AMF its answer as soon as the UPF has what it was told.
    fn settle(&mut self, ltmsi: Ltmsi) {
        let Some(session) = self.contexts.get_mut(&ltmsi) else { return };
        if matches!(session.sm.n4, N4::Telling { .. } | N4::Deleting) {
            return;
        }
        // Nobody but the UPF is waited for by one that is released.
        if session.let_go && session.sm.stage == Stage::Ended && session.sm.n4 != N4::Deleted {
            return;
        }
        if let Some(Pending { reply, told, state }) = session.pending.take() {
            // It is not coming back where nothing is to be set up.
            let state = state.map(|state| if told.n2.is_none() { UpCnxState::Deactivated } else { state });
            self.actions.push(Action::Reply(reply, wire::done(told, state)));
        }
    }

    /// The SM context is gone: whoever waits for that is told, else the AMF by itself.
    fn forget(&mut self, ltmsi: Ltmsi) {
        let Some(session) = self.contexts.remove(&ltmsi) else { return };
        if let Some(at) = session.due {
            self.due.remove(&(at, ltmsi));
        }
        let ue = (session.supi, session.sm.psi);
        if self.by_ue.get(&ue) == Some(&ltmsi) {
            self.by_ue.remove(&ue);
        }
        if let Some(Pending { reply, told, state }) = session.pending {
            self.actions.push(Action::Reply(reply, wire::done(told, state)));
        }
        if !session.let_go {
            let (seid, uri) = (session.sm.cp_seid, session.status_uri);
            self.actions.push(Action::Notify { seid, uri, message: wire::released() });
        }
    }
}

#[cfg(test)]
mod tests;
