//! The host: runs steps over UE contexts. It loads a context, lets the engine decide, commits, and only then carries the
//! effects out. One thread, so one event at a time for every UE; whatever a step waits for comes back through the same
//! queue.
//!
//! It knows nothing of sockets: messages come from and go to the balancer by bounded queues.

mod account;
mod directory;
mod nodes;
mod status;
#[cfg(test)]
mod tests;
mod timers;

use crate::api::{Status, StatusFilter};
use crate::balancer::{Command, Outbound};
use crate::metrics::{Metrics, Population, Queue};
use account::{Account, Summary, Totals};
use crossbeam_channel::{Receiver, RecvTimeoutError, Sender, TryRecvError};
use directory::{Directory, Ids};
use nodes::Nodes;
use rand::rngs::StdRng;
use rand::{RngCore, SeedableRng};
use rustc_hash::FxHashMap;
use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use vireo_core::Env;
use vireo_core::config::CoreConfig;
use vireo_core::context::{self, UeContext};
use vireo_core::engine::{self, Event};
use vireo_core::n2::{self, Cause, Fault, Route};
use vireo_core::ran;
use vireo_core::subscription::{AuthenticationError, AuthenticationInfo};
use vireo_core::turn::{Effect, Outcome};
use vireo_store::{ContextStore, Memory, Version};
use vireo_subscribers::Udm;
use vireo_types::{AssocId, Instant, Ltmsi, Seid, Supi, Tmsi};
use vireo_wire::ngap::CauseMisc;

/// Inputs taken in one go before the egress is woken and timers are looked at.
const BATCH: usize = 64;
/// UEs that have not proved who they are, at a time: beyond, new ones are turned away for congestion.
const UNKNOWN_UES: usize = 100_000;

/// What comes to a host.
#[derive(Debug)]
pub enum Input {
    /// An association came up.
    Up {
        /// Which.
        assoc: AssocId,
        /// Its peer.
        peer: SocketAddr,
    },
    /// An association is gone, or its peer has restarted it: what was known of it is void.
    Down {
        /// Which.
        assoc: AssocId,
        /// Whether it is up again at once.
        restarted: bool,
    },
    /// An NGAP message, routed.
    Ngap {
        /// Its association.
        assoc: AssocId,
        /// Where it goes.
        route: Result<Route, Box<Fault>>,
        /// The PDU.
        pdu: Vec<u8>,
    },
    /// The home network's answer for a UE.
    Authentication {
        /// The UE.
        ltmsi: Ltmsi,
        /// The answer.
        answer: Box<Result<AuthenticationInfo, AuthenticationError>>,
    },
    /// A PFCP message for a session.
    Pfcp {
        /// The UPF.
        upf: SocketAddr,
        /// The session.
        seid: Seid,
        /// Whether it is a request, which is owed an answer.
        request: bool,
        /// The message.
        message: Vec<u8>,
    },
    /// A PFCP request for a session got no answer.
    PfcpTimeout {
        /// The session.
        seid: Seid,
    },
    /// A UPF is associated, or is not.
    Upf {
        /// The UPF.
        upf: SocketAddr,
        /// Whether it is.
        up: bool,
    },
    /// A UPF lost its sessions.
    UpfLost {
        /// The UPF.
        upf: SocketAddr,
    },
    /// How the host is.
    Status {
        /// What is asked for.
        filter: StatusFilter,
        /// Where the answer goes.
        reply: Sender<Status>,
    },
    /// The operator wants a UE gone.
    Deregister {
        /// Whose.
        supi: Supi,
        /// Whether it shall register again.
        again: bool,
        /// Whether there was such a UE.
        reply: Sender<bool>,
    },
    /// No more input follows: finish what is there and end.
    Stop,
}

/// A host.
#[derive(Debug)]
pub struct Host {
    /// Dropped before `udm`, whose threads end only when no answer of theirs waits for room here.
    inputs: Receiver<Input>,
    config: Arc<CoreConfig>,
    store: Memory,
    directory: Directory,
    nodes: Nodes,
    timers: timers::Timers,
    udm: Udm,
    rng: StdRng,
    account: Account,
    totals: Totals,
    /// Which UPFs are associated.
    upfs: FxHashMap<SocketAddr, bool>,
    /// Events that steps caused for other UEs or that answers to be had at once are: they go through the same door.
    follow: VecDeque<(Ltmsi, Follow)>,
    egress: Outbound,
    started: std::time::Instant,
    buffer: Vec<u8>,
}

/// An event that the host itself causes.
#[derive(Debug)]
enum Follow {
    Authentication(Box<Result<AuthenticationInfo, AuthenticationError>>),
    Superseded,
}

impl Host {
    /// A host without UEs.
    pub fn new(
        config: Arc<CoreConfig>,
        udm: Udm,
        metrics: Arc<Metrics>,
        inputs: Receiver<Input>,
        egress: Outbound,
    ) -> Self {
        let directory = Directory::new(&config, StdRng::from_os_rng());
        Host {
            upfs: config.upfs.iter().map(|u| (u.n4, false)).collect(),
            config,
            store: Memory::new(),
            directory,
            nodes: Nodes::default(),
            timers: timers::Timers::default(),
            udm,
            rng: StdRng::from_os_rng(),
            account: Account::new(metrics),
            totals: Totals::default(),
            follow: VecDeque::new(),
            egress,
            inputs,
            started: std::time::Instant::now(),
            buffer: Vec::new(),
        }
    }

    /// Runs until [`Input::Stop`] or until nobody can send any more.
    pub fn run(mut self) {
        let mut gauges = Instant::default();
        loop {
            let now = clock();
            let wait = self.timers.next().map_or(Duration::from_secs(1), |at| at.since(now).into());
            match self.inputs.recv_timeout(wait.min(Duration::from_secs(1))) {
                Ok(Input::Stop) | Err(RecvTimeoutError::Disconnected) => break,
                Ok(input) => self.input(input),
                Err(RecvTimeoutError::Timeout) => {}
            }
            for _ in 1..BATCH {
                match self.inputs.try_recv() {
                    Ok(Input::Stop) => return self.finish(),
                    Ok(input) => self.input(input),
                    Err(TryRecvError::Empty | TryRecvError::Disconnected) => break,
                }
            }
            self.on_time();
            self.egress.flush();
            if clock().since(gauges) > vireo_types::Duration::from_millis(500) {
                gauges = clock();
                self.gauges();
            }
        }
        self.finish();
    }

    fn finish(mut self) {
        // The contexts go with this process: the RAN lets its UEs go too, instead of finding out one by one.
        let cause = Cause::misc(CauseMisc::om_intervention);
        let nodes: Vec<_> = self.nodes.iter().filter(|(_, n)| n.record.is_some()).map(|(assoc, _)| assoc).collect();
        for assoc in nodes {
            self.egress.send(Command::Ngap { assoc, ue: None, pdu: ran::ng_reset(cause.clone()) });
        }
        self.egress.flush();
        self.gauges();
    }

    fn gauges(&self) {
        let metrics = &self.account.metrics;
        metrics.population(Population::Gnbs, self.nodes.set_up());
        metrics.population(Population::Contexts, self.store.len());
        metrics.population(Population::Registered, self.totals.registered);
        metrics.population(Population::Connected, self.totals.connected);
        metrics.population(Population::Sessions, self.totals.sessions);
        metrics.queue_depth(Queue::N2Inbound, self.inputs.len());
        metrics.queue_depth(Queue::N2Outbound, self.egress.len());
        let load = self.udm.load();
        metrics.queue_depth(Queue::Subscribers, load.deconceal_waiting + load.database_waiting);
    }

    /// Takes one input, and all that follows from it.
    pub(crate) fn input(&mut self, input: Input) {
        match input {
            Input::Up { assoc, peer } => self.nodes.up(assoc, peer),
            Input::Down { assoc, restarted } => self.association_lost(assoc, restarted),
            Input::Ngap { assoc, route, pdu } => self.ngap(assoc, route, &pdu),
            Input::Authentication { ltmsi, answer } => self.event(ltmsi, Event::Authentication(*answer)),
            Input::Pfcp { upf, seid, request, message } => {
                if request && !self.has_session(seid) {
                    self.account.fault("pfcp-unknown-session", clock(), format_args!("UPF {upf}"));
                    self.egress.send(Command::RefuseReport { upf, message });
                } else {
                    self.session(seid, Event::Pfcp { seid, message: &message });
                }
            }
            Input::PfcpTimeout { seid } => self.session(seid, Event::PfcpTimeout { seid }),
            Input::Upf { upf, up } => {
                self.upfs.insert(upf, up);
            }
            Input::UpfLost { upf } => self.upf_lost(upf),
            Input::Status { filter, reply } => {
                // Whoever asked may have given up meanwhile.
                let _ = reply.try_send(self.status(&filter));
            }
            Input::Deregister { supi, again, reply } => {
                let ltmsi = self.directory.by_supi(supi);
                let _ = reply.try_send(ltmsi.is_some());
                if let Some(ltmsi) = ltmsi {
                    self.event(ltmsi, Event::Deregister { again });
                }
            }
            Input::Stop => {}
        }
        self.follow();
    }

    /// Deadlines that have passed.
    pub(crate) fn on_time(&mut self) {
        let now = clock();
        if self.timers.sweep_due(now) {
            let timers = &mut self.timers;
            self.store.each(&mut |ltmsi, stored| {
                stored.deadline.inspect(|deadline| timers.schedule(ltmsi, *deadline, now));
                true
            });
        }
        while let Some(ltmsi) = self.timers.due(now) {
            match self.store.load(ltmsi).and_then(|s| s.deadline) {
                Some(deadline) if deadline <= now => {
                    self.event(ltmsi, Event::Deadline);
                    self.follow();
                }
                // It was moved further off since it was entered.
                Some(deadline) => self.timers.schedule(ltmsi, deadline, now),
                None => {}
            }
        }
    }

    /// Events that steps caused.
    fn follow(&mut self) {
        while let Some((ltmsi, follow)) = self.follow.pop_front() {
            match follow {
                Follow::Authentication(answer) => self.event(ltmsi, Event::Authentication(*answer)),
                Follow::Superseded => self.event(ltmsi, Event::Superseded),
            }
        }
    }

    fn ngap(&mut self, assoc: AssocId, route: Result<Route, Box<Fault>>, pdu: &[u8]) {
        match route {
            Ok(Route::Ue(amf_id)) if self.nodes.is_set_up(assoc) => {
                let ltmsi = self.directory.resolve(amf_id.ltmsi());
                if self.store.load(ltmsi).is_some() {
                    self.event(ltmsi, Event::Ngap { assoc, amf_id, pdu });
                } else if let Some(fault) = engine::unknown_ue(pdu) {
                    self.fault(assoc, &fault);
                }
            }
            Ok(Route::Initial { s_tmsi, .. }) if self.nodes.is_set_up(assoc) => self.initial(assoc, s_tmsi, pdu),
            // Before NG Setup every message is the node's affair, and at fault there.
            Ok(_) => self.node_message(assoc, pdu),
            Err(fault) => self.fault(assoc, &fault),
        }
    }

    fn fault(&mut self, assoc: AssocId, fault: &Fault) {
        self.account.fault(fault.kind, clock(), format_args!("gNB on association {}", assoc.0));
        if let Some(pdu) = fault.answer() {
            self.egress.send(Command::Ngap { assoc, ue: None, pdu });
        }
    }

    /// The first message of an NG connection: to the context of the UE that it names and proves to be, else to a new one.
    fn initial(&mut self, assoc: AssocId, s_tmsi: Option<(u16, u8, Tmsi)>, pdu: &[u8]) {
        let message = match n2::ue_message(pdu) {
            Ok((_, n2::UeMessage::Initial(message))) => message,
            Ok(_) => return,
            Err(fault) => return self.fault(assoc, &fault),
        };
        let ours = |(set, pointer, tmsi): (u16, u8, Tmsi)| {
            (set == self.config.amf_set && pointer == self.config.amf_pointer).then_some(tmsi)
        };
        let named = s_tmsi.and_then(ours).or_else(|| engine::named_tmsi(&message.nas, &self.config));
        let known = named.and_then(|tmsi| self.directory.by_tmsi(tmsi)).filter(|ltmsi| {
            let ue = self.store.load(*ltmsi).and_then(|s| context::decode(s.octets).ok());
            ue.is_some_and(|ue| engine::is_authentic(&ue, &message.nas))
        });
        if let Some(ltmsi) = known {
            return self.event(ltmsi, Event::Initial { assoc, message });
        }
        let Some(ltmsi) = self.directory.fresh() else {
            return self.account.fault("limit", clock(), "a new UE: no number is free");
        };
        let mut ue = UeContext::new(ltmsi);
        let congested = self.totals.unknown >= UNKNOWN_UES;
        if congested {
            self.account.fault("limit", clock(), "a new UE: too many have not authenticated");
        }
        let event = if congested { Event::Congested { assoc, message } } else { Event::Initial { assoc, message } };
        self.step(&mut ue, 0, None, event);
    }

    fn session(&mut self, seid: Seid, event: Event<'_>) {
        self.event(self.directory.resolve(seid.ltmsi()), event);
    }

    fn has_session(&self, seid: Seid) -> bool {
        let stored = self.store.load(self.directory.resolve(seid.ltmsi()));
        let ue = stored.and_then(|s| context::decode(s.octets).ok());
        ue.is_some_and(|ue| ue.sessions.iter().any(|s| s.cp_seid == seid))
    }

    /// Every UE may have a session there: contexts that have are told, one by one.
    fn upf_lost(&mut self, upf: SocketAddr) {
        let mut affected = Vec::new();
        self.store.each(&mut |ltmsi, stored| {
            let ue = context::decode(stored.octets);
            if ue.is_ok_and(|ue| ue.sessions.iter().any(|s| s.upf == upf)) {
                affected.push(ltmsi);
            }
            true
        });
        for ltmsi in affected {
            self.event(ltmsi, Event::UpfLost { upf });
        }
    }

    /// An event for a UE that is known; for one that is not any more, it is nothing.
    pub(crate) fn event(&mut self, ltmsi: Ltmsi, event: Event<'_>) {
        let Some(stored) = self.store.load(ltmsi) else { return };
        let version = stored.version;
        match context::decode(stored.octets) {
            Ok(mut ue) => {
                let before = Summary::of(&ue);
                self.step(&mut ue, version, Some(before), event);
            }
            Err(error) => tracing::error!(%ltmsi, %error, "a stored context does not decode: its UE is left alone"),
        }
    }

    /// Load is done; decide, commit, then act.
    fn step(&mut self, ue: &mut UeContext, version: Version, before: Option<Summary>, event: Event<'_>) {
        let now = clock();
        let (from, old_references) = (ue.ltmsi, references(ue));
        ue.sequence += 1;
        let rng = &mut self.rng;
        let mut random = |octets: &mut [u8]| rng.fill_bytes(octets);
        let mut ids = Ids(&mut self.directory);
        let mut env = Env { now, config: &self.config, random: &mut random, ids: &mut ids, ran: &self.nodes };
        let outcome = engine::step(ue, event, &mut env);
        if self.commit(ue, from, version, &outcome, now).is_err() {
            tracing::error!(ltmsi = %from, "a context was changed by somebody else: the step is void");
            return;
        }
        let forgotten = outcome.effects.contains(&Effect::Forget);
        let after = (!forgotten).then(|| Summary::of(ue));
        self.totals.change(before, after);
        let associations = |s: Option<Summary>| s.map(|s| s.associations()).unwrap_or_default();
        self.nodes.moved(from, associations(before), ue.ltmsi, associations(after));
        for old in old_references {
            if forgotten || !references(ue).contains(&old) {
                self.directory.settle(old);
            }
        }
        for note in &outcome.notes {
            self.account.note(note, now, format_args!("UE {}", ue.ltmsi));
        }
        self.act(ue, now, outcome);
    }

    fn commit(
        &mut self,
        ue: &UeContext,
        from: Ltmsi,
        version: Version,
        outcome: &Outcome,
        now: Instant,
    ) -> Result<(), ()> {
        if outcome.effects.contains(&Effect::Forget) {
            self.directory.release(from);
            if let Some(supi) = ue.identity.supi {
                self.directory.free_supi(supi, from);
            }
            return if version == 0 { Ok(()) } else { self.store.remove(from, version).map_err(drop) };
        }
        let mut buffer = std::mem::take(&mut self.buffer);
        buffer.clear();
        let octets = context::encode(ue, buffer).map_err(drop)?;
        let deadline = ue.deadline();
        if ue.ltmsi == from {
            self.store.commit(from, version, &octets, deadline).map_err(drop)?;
        } else {
            self.store.commit(ue.ltmsi, 0, &octets, deadline).map_err(drop)?;
            if version != 0 {
                self.store.remove(from, version).map_err(drop)?;
            }
            self.directory.moved(from, ue.ltmsi);
            for tmsi in [ue.identity.tmsi, ue.identity.old_tmsi].into_iter().flatten() {
                self.directory.rebind_tmsi(tmsi, from, ue.ltmsi);
            }
            if let Some(supi) = ue.identity.supi {
                self.directory.rebind_supi(supi, from, ue.ltmsi);
            }
        }
        self.buffer = octets;
        if let Some(deadline) = deadline {
            self.timers.schedule(ue.ltmsi, deadline, now);
        }
        Ok(())
    }

    /// Carries the effects of a committed step out.
    fn act(&mut self, ue: &UeContext, now: Instant, outcome: Outcome) {
        // The key of a PFCP request: a repeat of the same step's request is the same request (DESIGN decision 4).
        let key = u64::from(ue.ltmsi.get()) << 36 | (ue.sequence & 0xffff_ffff) << 4;
        for (n, effect) in outcome.effects.into_iter().enumerate() {
            match effect {
                Effect::Ngap { assoc, pdu } => {
                    self.egress.send(Command::Ngap { assoc, ue: Some(ue.ltmsi), pdu });
                }
                Effect::Pfcp { upf, session, message } => {
                    let seid = ue.sessions.iter().find(|s| s.index == session).map(|s| s.cp_seid);
                    self.egress.send(Command::Pfcp { upf, key: key | n as u64 & 0xf, seid, message });
                }
                Effect::Authenticate(request) => {
                    let mut rand = [0; 16];
                    self.rng.fill_bytes(&mut rand);
                    let answer = match self.udm.try_now(&request, now, rand) {
                        Some(answer) => Some(answer),
                        None => self.udm.submit(u64::from(ue.ltmsi.get()), request, now, rand).err().map(Err),
                    };
                    if let Some(answer) = answer {
                        self.follow.push_back((ue.ltmsi, Follow::Authentication(Box::new(answer))));
                    }
                }
                Effect::BindTmsi(tmsi) => self.directory.bind_tmsi(tmsi, ue.ltmsi),
                Effect::FreeTmsi(tmsi) => self.directory.free_tmsi(tmsi),
                Effect::BindSupi(supi) => {
                    if let Some(old) = self.directory.bind_supi(supi, ue.ltmsi) {
                        self.follow.push_back((old, Follow::Superseded));
                    }
                }
                Effect::FreeAddress(dnn, address) => {
                    self.directory.pools.free(&dnn, &address);
                }
                Effect::Forget => {}
            }
        }
    }
}

/// The numbers other than its own that a context is still reached by.
fn references(ue: &UeContext) -> Vec<Ltmsi> {
    let connection = ue.connection.map(|c| c.amf_id.ltmsi());
    let target = ue.handover.as_ref().and_then(|h| h.target()).map(|m| m.amf_id.ltmsi());
    let sessions = ue.sessions.iter().map(|s| s.cp_seid.ltmsi());
    connection.into_iter().chain(target).chain(sessions).filter(|l| *l != ue.ltmsi).collect()
}

/// Microseconds since the Unix epoch, never going back while the process runs.
pub(crate) fn clock() -> Instant {
    use std::sync::OnceLock;
    use std::time::{Instant as Monotonic, SystemTime, UNIX_EPOCH};
    static START: OnceLock<(Monotonic, u64)> = OnceLock::new();
    let (start, epoch) = START.get_or_init(|| {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        (Monotonic::now(), u64::try_from(since.as_micros()).unwrap_or(u64::MAX))
    });
    Instant(epoch.saturating_add(u64::try_from(start.elapsed().as_micros()).unwrap_or(0)))
}
