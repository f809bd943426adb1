//! Main loop of a campaign: UE turns, a probe, and the received answers.

use super::device::{Device, LIFE, psi};
use super::dice::chance;
use super::good::{GoodIds, summary};
use super::message::{Attackers, Message, depth};
use super::nas;
use super::peer::{NODE, WITH_UES};
use super::report::{Level, Mutations, State};
use crate::dialect::{Cause, Establishment, Inbox, Node, ReleaseReason, TargetBehaviour, nas_head};
use crate::error::Error;
use crate::negative::Answer;
use crate::options::Options;
use crate::progress::{EndpointFactory, Phase, Progress};
use crate::ran::{self, ConnectionId, ErrorReport, Outbox, SendError};
use crate::rat::Rat;
use crate::report::Report;
use crate::ue::security::header;
use crate::ue::{self, CommandError, Registration, Service};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};
use vireo_types::{PduSessionType, RanUeNgapId};

/// Silence that ends a batch.
const QUIET: Duration = Duration::from_micros(700);
/// Maximum number of waits after the answer to the probe.
const WAITS: u32 = 40;
/// Turns until a request counts as unanswered and the UE registers again.
const PATIENCE: u32 = 4;
const GIVEN_UP: u32 = 24;
/// Percentage of batches with a non-UE-associated message.
const OF_NODE: usize = 60;
/// One message is sent alone in every `ALONE` batches.
const ALONE: u64 = 8;
/// Time limit for the answer to a message that is sent alone.
const ANSWERED: Duration = Duration::from_secs(1);

/// Attacking nodes and UEs with the state of the campaign.
pub(super) struct Campaign<'a> {
    own: Attackers<'a>,
    mutations: Mutations,
    /// Node whose probe is unanswered.
    probed: Option<usize>,
    batches: u64,
    /// Node that has sent a message alone and still lacks the required answer.
    watched: Option<usize>,
    begun: Instant,
}

impl<'a> Campaign<'a> {
    /// Sets the nodes up; the UEs are switched off.
    pub(super) fn new(options: &'a Options, open: EndpointFactory<'_>, good_ids: &'a GoodIds) -> Result<Self, Error> {
        let own = Attackers::new(options, open, good_ids)?;
        let mutations = Mutations { seed: options.seed, requested: options.messages, ..Mutations::default() };
        let begun = Instant::now();
        Ok(Campaign { own, mutations, probed: None, batches: 0, watched: None, begun })
    }

    /// Sends all messages, unless the run is stopped or the good UEs have ended.
    pub(super) fn run(&mut self, progress: &mut dyn FnMut(Progress), is_alone: &dyn Fn() -> bool) {
        self.begun = Instant::now();
        self.report_progress(progress);
        while self.mutations.messages < self.mutations.requested {
            let stop = &self.own.nodes.options.stop;
            if stop.as_ref().is_some_and(|stop| stop.load(Ordering::Relaxed)) || is_alone() {
                break;
            }
            if let Err(error) = self.batch() {
                self.mutations.harm.push(error.to_string());
                break;
            }
            self.report_progress(progress);
        }
        self.mutations.seconds = self.begun.elapsed().as_secs_f64();
    }

    /// Returns the report with the good UEs' part, and the SCTP driver.
    pub(super) fn finish(mut self, good: &Report) -> (Mutations, String) {
        self.mutations.good = summary(good);
        let seconds = self.mutations.seconds;
        self.mutations.finish(seconds);
        let driver = self.own.nodes.driver();
        (self.mutations, driver)
    }

    fn report_progress(&self, progress: &mut dyn FnMut(Progress)) {
        progress(Progress {
            phase: Phase::Running,
            ues: self.mutations.requested,
            started: self.mutations.messages,
            done: self.mutations.messages,
            failed: 0,
            registered: self.mutations.registrations,
            sessions: 0,
            procedures: 0,
            lost: 0,
            elapsed: self.begun.elapsed(),
        });
    }

    /// Runs a turn of each UE and perhaps one of a node, then handles the answers.
    fn batch(&mut self) -> Result<(), Error> {
        self.batches += 1;
        if self.batches.is_multiple_of(ALONE) {
            return self.send_alone();
        }
        for index in 0..self.own.devices.len() {
            if self.mutations.messages < self.mutations.requested {
                self.run_device(index)?;
            }
        }
        if chance(&mut self.own.rng, OF_NODE)
            && self.mutations.messages < self.mutations.requested
            && let Some(message) = self.own.make_node_message()
        {
            self.send(&message, 0, State::Node)?;
        }
        self.probe()?;
        self.drain()
    }

    /// Sends one message alone and checks the answer if one is required.
    fn send_alone(&mut self) -> Result<(), Error> {
        let index = self.own.rng.below(self.own.devices.len());
        let device = &self.own.devices[index];
        let state = device.state();
        if device.at.is_none_or(|at| !self.own.is_known(at)) {
            return Ok(());
        }
        let (mut message, mut must) = (None, None);
        // Many mutations yield a message that a receiver may ignore.
        for _ in 0..8 {
            let level = if chance(&mut self.own.rng, 75) { Level::Asn1 } else { Level::Byte };
            message = self.own.make_at(index, state, level);
            must = message.as_ref().and_then(|message| self.own.nodes.protocol().answered_because(&message.octets));
            if must.is_some() {
                break;
            }
        }
        let Some(message) = message else { return Ok(()) };
        self.watched = must.map(|_| message.peer);
        self.send(&message, index, state)?;
        self.probe()?;
        self.drain()?;
        let Some(why) = must else { return Ok(()) };
        let deadline = Instant::now() + ANSWERED;
        while self.watched.is_some() && Instant::now() < deadline {
            self.take_in(Duration::from_millis(20))?;
        }
        *self.mutations.watched.entry(why.into()).or_default() += 1;
        if self.watched.take().is_some() {
            *self.mutations.silent.entry(why.into()).or_default() += 1;
            self.mutations.show(why, &message.octets);
        }
        Ok(())
    }

    /// Sends a message that requires an answer.
    fn probe(&mut self) -> Result<(), Error> {
        let peer = (self.mutations.probes % WITH_UES as u64) as usize;
        self.own.nodes.outbox.clear();
        let outbox = &mut self.own.nodes.outbox;
        self.own.nodes.peers[peer].node.update_configuration(outbox).map_err(|error| internal(&error))?;
        self.probed = Some(peer);
        self.own.nodes.flush(peer)
    }

    /// Receives until the probe is answered and the core is silent.
    fn drain(&mut self) -> Result<(), Error> {
        let deadline = Instant::now() + self.own.nodes.options.timeout;
        let mut waits = 0;
        while self.probed.is_some() || waits < WAITS {
            let wait = if self.probed.is_some() { Duration::from_millis(20) } else { QUIET };
            let came = self.take_in(wait)?;
            if self.probed.is_none() {
                waits += 1;
                if came == 0 {
                    break;
                }
            }
            if Instant::now() > deadline {
                let timeout = self.own.nodes.options.timeout;
                return Err(Error::Options(format!("the core has not answered a CONFIGURATION UPDATE in {timeout:?}")));
            }
        }
        Ok(())
    }

    /// Waits at most `wait` and handles the received messages. Returns their number.
    fn take_in(&mut self, wait: Duration) -> Result<usize, Error> {
        let came = self.own.nodes.pump(wait)?;
        for peer in 0..self.own.nodes.peers.len() {
            while let Some(pdu) = self.own.nodes.next(peer) {
                self.receive(peer, &pdu)?;
            }
            self.mend(peer)?;
        }
        Ok(came)
    }

    /// Reconnects a node whose association has ended.
    fn mend(&mut self, peer: usize) -> Result<(), Error> {
        if self.own.nodes.is_up(peer) {
            return Ok(());
        }
        self.mutations.associations_lost += 1;
        self.mutations.answer("association ended".into());
        self.probed.take_if(|probed| *probed == peer);
        let here = |device: &&mut Device| [device.at, device.target].iter().flatten().any(|(at, _)| *at == peer);
        self.own.devices.iter_mut().filter(here).for_each(Device::disconnected);
        self.own.nodes.revive(peer)
    }

    fn receive(&mut self, peer: usize, pdu: &[u8]) -> Result<(), Error> {
        let answer = Answer::read(self.own.nodes.rat, pdu);
        let is_probe =
            self.probed == Some(peer) && answer == Answer::Acknowledge(self.own.nodes.protocol().update.into());
        if is_probe {
            self.mutations.probes += 1;
            self.probed = None;
            return Ok(());
        }
        self.watched.take_if(|watched| *watched == peer);
        if answer != Answer::Nas(None) {
            self.mutations.answer(answer.name(self.own.nodes.rat));
        }
        if peer == NODE {
            return Ok(());
        }
        self.own.library.keep(pdu);
        let outbox = &mut self.own.nodes.outbox;
        // A mutated message may leave the UE in a state that does not encode.
        let inbox: Inbox = self.own.nodes.peers[peer].node.receive(pdu, outbox).unwrap_or_default();
        for event in &inbox.events {
            self.on_event(peer, event, &inbox.nas)?;
        }
        self.flush(peer)
    }

    /// Sends the node's messages and stores them for later mutation.
    fn flush(&mut self, peer: usize) -> Result<(), Error> {
        let library = &mut self.own.library;
        self.own.nodes.flush_to(peer, |pdu| library.keep(pdu))
    }

    fn on_event(&mut self, peer: usize, event: &ran::Event<Cause>, nas: &[u8]) -> Result<(), Error> {
        if let ran::Event::ErrorIndication(report) = event {
            self.on_unknown_connection(peer, report);
            return Ok(());
        }
        let Some(index) = event.owner().map(|owner| owner as usize).filter(|index| *index < self.own.devices.len())
        else {
            return Ok(());
        };
        let device = &mut self.own.devices[index];
        (device.unanswered, device.pending) = (false, 0);
        match event {
            ran::Event::Nas { range, .. } => {
                device.out.clear();
                device.ue.receive(self.own.nodes.options, &nas[range.clone()], &mut device.out);
                self.count_nas(index, &nas[range.clone()]);
                // The node's own answer goes first.
                self.flush(peer)?;
                self.speak(index)
            }
            ran::Event::Released { .. } => {
                self.check_connection(index);
                Ok(())
            }
            ran::Event::HandoverPrepared { target, .. } => {
                device.target = Some((peer, *target));
                Ok(())
            }
            ran::Event::HandoverRefused { .. } | ran::Event::HandoverCancelled { .. } => {
                device.target = None;
                Ok(())
            }
            _ => Ok(()),
        }
    }

    /// Counts a NAS message for the UE by type.
    fn count_nas(&mut self, index: usize, nas: &[u8]) {
        let mut named = false;
        let registration = if self.own.nodes.rat == Rat::Nr { "REGISTRATION" } else { "ATTACH OR TAU" };
        let state = self.own.devices[index].state();
        for event in &self.own.devices[index].out.events {
            let name = match event {
                ue::Event::Status(cause) => format!("NAS STATUS {cause}"),
                ue::Event::RegistrationRejected { cause, .. } => format!("{registration} REJECT #{cause}"),
                ue::Event::ServiceRejected { cause, .. } => format!("SERVICE REJECT #{cause}"),
                ue::Event::SessionRejected { cause, .. } => format!("PDU SESSION REJECT {cause}"),
                ue::Event::Registered { .. } => format!("{registration} ACCEPT"),
                ue::Event::ServiceAccepted => "SERVICE ACCEPT".into(),
                ue::Event::SessionUp { .. } => "PDU SESSION ESTABLISHMENT ACCEPT".into(),
                ue::Event::SessionReleased { .. } => "PDU SESSION RELEASE COMMAND".into(),
                ue::Event::Secured { .. } => "SECURITY MODE COMMAND".into(),
                ue::Event::Violation(violation) => {
                    self.mutations.show(&format!("{violation}, {state:?}"), nas);
                    format!("NAS that does not fit: {violation}")
                }
                _ => continue,
            };
            named = true;
            self.mutations.answer(name);
        }
        if !named {
            self.mutations.answer("other NAS".into());
        }
    }

    /// Handles an ERROR INDICATION for an unknown UE connection.
    fn on_unknown_connection(&mut self, peer: usize, report: &ErrorReport<Cause>) {
        let (Some(core), Some(ran)) = (report.core_id, report.ran_id) else { return };
        let ran = RanUeNgapId(ran);
        if self.own.node(peer).core_id(ran) != Some(core) {
            return;
        }
        let Some(owner) = self.own.node(peer).owner(ran) else { return };
        if let Some(device) = self.own.devices.get_mut(owner as usize) {
            (device.unanswered, device.pending) = (false, 0);
        }
        if report.cause.as_ref().is_some_and(Cause::is_unknown_ue) {
            self.own.node(peer).forget(ran);
            if let Some(index) = usize::try_from(owner).ok().filter(|index| *index < self.own.devices.len()) {
                self.check_connection(index);
            }
        }
    }

    /// Updates the UE after the end of a connection.
    fn check_connection(&mut self, index: usize) {
        let device = &self.own.devices[index];
        let is_there =
            |(peer, ran): (usize, ConnectionId)| self.own.nodes.peers[peer].node.owner(ran) == Some(index as u32);
        let (at, target) = (device.at.is_some_and(is_there), device.target.is_some_and(is_there));
        let device = &mut self.own.devices[index];
        if !target {
            device.target = None;
        }
        if !at && device.at.is_some() {
            device.disconnected();
        }
    }

    /// Sends the UE's messages, except those that would leave its target state.
    fn speak(&mut self, index: usize) -> Result<(), Error> {
        let messages: Vec<Vec<u8>> = self.own.devices[index].out.messages().map(<[u8]>::to_vec).collect();
        for nas in messages {
            if self.own.devices[index].holds(&nas) {
                self.own.devices[index].deferred.push(nas);
                continue;
            }
            self.deliver(index, &nas)?;
        }
        Ok(())
    }

    /// Sends a NAS message of the UE on its connection or on a new one.
    fn deliver(&mut self, index: usize, nas: &[u8]) -> Result<(), Error> {
        let device = &mut self.own.devices[index];
        device.remember(nas);
        let peer = device.at.map_or(index % WITH_UES, |(peer, _)| peer);
        let node = &mut self.own.nodes.peers[peer].node;
        let sent = match device.at {
            Some((_, ran)) => node.uplink_nas(ran, nas, &mut self.own.nodes.outbox),
            None => {
                let (guti, cause) = (device.ue.access_guti(), Establishment::Signalling);
                let opened = node.initial_ue(index as u32, nas, guti, cause, &mut self.own.nodes.outbox);
                opened.map(|ran| device.at = Some((peer, ran)))
            }
        };
        match sent {
            Ok(()) | Err(SendError::NoConnection) => self.flush(peer),
            Err(error) => Err(internal(&error)),
        }
    }

    /// Sends a mutated message in the UE's target state, or moves the UE towards that state.
    fn run_device(&mut self, index: usize) -> Result<(), Error> {
        let device = &self.own.devices[index];
        // The core has not answered the first message of this connection.
        if let Some(at) = device.at
            && !self.own.is_known(at)
            && device.pending == 0
        {
            self.own.node(at.0).forget(at.1);
            self.own.devices[index].disconnected();
        }
        let device = &self.own.devices[index];
        if device.goal == State::NoContext && (device.at.is_some() || device.state() != State::NoContext) {
            return self.abandon(index);
        }
        let state = device.state();
        if state != device.goal {
            return self.approach(index, state);
        }
        if device.remaining == 0 || device.life > LIFE {
            return self.move_on(index);
        }
        let Some(message) = self.own.make(index, state) else { return Ok(()) };
        let device = &mut self.own.devices[index];
        device.remaining -= 1;
        device.life += 1;
        (device.waited, device.pending) = (0, 0);
        if std::mem::replace(&mut device.unanswered, true) {
            self.mutations.answer("none".into());
        }
        self.send(&message, index, state)
    }

    fn send(&mut self, message: &Message, index: usize, state: State) -> Result<(), Error> {
        self.mutations.count(message.level, depth(self.own.nodes.protocol(), message), state);
        let stream = self.own.nodes.stream(message.peer, index as u32);
        let stream = if state == State::Node { 0 } else { stream };
        self.own.nodes.send(message.peer, stream, &message.octets)
    }

    /// Ends the UE's stay in this state after its last message.
    fn move_on(&mut self, index: usize) -> Result<(), Error> {
        let rng = &mut self.own.rng;
        let device = &mut self.own.devices[index];
        let ends = device.life > LIFE || device.spoiled && device.state() == State::SecurityMode;
        let deferred = std::mem::take(&mut device.deferred);
        let state = device.state();
        device.choose(rng);
        if ends || state == State::Deregistering || state == State::Registering && chance(rng, 40) {
            return self.abandon(index);
        }
        for nas in deferred {
            // A COUNT after that of the deferred message may have been used.
            let complete = nas_head(self.own.nodes.rat, &nas).is_some_and(|head| head.0 == header::CIPHERED);
            let again = if complete { self.protect_complete(index) } else { Some(nas) };
            if let Some(nas) = again {
                self.own.devices[index].pending = 1;
                self.deliver(index, &nas)?;
            }
        }
        self.own.devices[index].spoiled = false;
        Ok(())
    }

    fn protect_complete(&mut self, index: usize) -> Option<Vec<u8>> {
        let rat = self.own.nodes.rat;
        self.own.devices[index].ue.protect(header::CIPHERED, &nas::complete(rat, psi(rat)))
    }

    /// Drops the UE without signalling; it registers again.
    fn abandon(&mut self, index: usize) -> Result<(), Error> {
        let device = &mut self.own.devices[index];
        let connections = [device.at.take(), device.target.take()];
        device.forget();
        device.set_out();
        for (peer, ran) in connections.into_iter().flatten() {
            let outbox = &mut self.own.nodes.outbox;
            let _ = self.own.nodes.peers[peer].node.abandon(ran, outbox);
            self.flush(peer)?;
        }
        Ok(())
    }

    /// Moves the UE one step towards its target state.
    fn approach(&mut self, index: usize, state: State) -> Result<(), Error> {
        let device = &mut self.own.devices[index];
        device.waited += 1;
        if device.waited > GIVEN_UP {
            device.choose(&mut self.own.rng);
            return self.abandon(index);
        }
        if device.pending > 0 && device.pending < PATIENCE {
            device.pending += 1;
            return Ok(());
        }
        device.pending = 1;
        device.out.clear();
        let goal = device.goal;
        let early = matches!(goal, State::Authenticating | State::SecurityMode | State::Accepted);
        let commanded = match (state, goal) {
            (State::NoContext, _) => {
                self.mutations.registrations += 1;
                let fresh = early || goal == State::NoContext;
                let kind = if fresh { Registration::Fresh } else { device.registration(&mut self.own.rng) };
                device.life = 0;
                device.ue.register(self.own.nodes.options, kind, &mut device.out)
            }
            (State::Registering | State::Serving | State::Deregistering, _) => return Ok(()),
            (State::Authenticating | State::SecurityMode | State::Accepted, _) => return self.move_on(index),
            (_, State::Authenticating | State::SecurityMode | State::Accepted) => return self.abandon(index),
            (State::Handover, _) => return self.end_handover(index),
            (State::Idle, _) => self.reconnect(index),
            (_, State::Deregistering) => device.ue.deregister(self.own.nodes.options, false, &mut device.out),
            (State::Registered, State::Session | State::Handover) => {
                let psi = psi(device.ue.rat());
                device.ue.forget_session(psi);
                let kind = Some(PduSessionType::Ipv4);
                device.ue.establish(self.own.nodes.options, psi, kind, &mut device.out)
            }
            (State::Session, State::Registered) => device.ue.release(psi(device.ue.rat()), &mut device.out),
            (_, State::Idle) => {
                return self.start_procedure(index, |node, ran, _, out| {
                    node.request_release(ran, ReleaseReason::Inactivity, out)
                });
            }
            (State::Session, State::Handover) => return self.require_handover(index),
            _ => return self.abandon(index),
        };
        match commanded {
            Ok(()) => self.speak(index),
            Err(_) => self.abandon(index),
        }
    }

    fn reconnect(&mut self, index: usize) -> Result<(), CommandError> {
        let (device, options) = (&mut self.own.devices[index], self.own.nodes.options);
        match self.own.rng.below(10) {
            0..=3 => device.ue.service_request(Service::Data, &mut device.out),
            4 | 5 => device.ue.service_request(Service::Signalling, &mut device.out),
            6 | 7 => device.ue.register(options, Registration::Mobility, &mut device.out),
            _ => {
                device.forget();
                device.ue.register(options, Registration::Initial, &mut device.out)
            }
        }
    }

    /// Starts a procedure of the UE's node.
    fn start_procedure(
        &mut self,
        index: usize,
        what: impl FnOnce(&mut Node, ConnectionId, &Node, &mut Outbox) -> Result<(), SendError>,
    ) -> Result<(), Error> {
        let Some((peer, ran)) = self.own.devices[index].at else { return Ok(()) };
        let other = self.own.nodes.peers[(peer + 1) % WITH_UES].node.twin();
        let unanswered = what(&mut self.own.nodes.peers[peer].node, ran, &other, &mut self.own.nodes.outbox);
        if unanswered.is_err() {
            self.own.nodes.outbox.clear();
            return self.abandon(index);
        }
        self.flush(peer)
    }

    fn require_handover(&mut self, index: usize) -> Result<(), Error> {
        self.start_procedure(index, |node, ran, other, out| {
            node.require_handover(ran, other, TargetBehaviour::Admits, out)
        })
    }

    /// Completes or cancels the UE's handover.
    fn end_handover(&mut self, index: usize) -> Result<(), Error> {
        let device = &mut self.own.devices[index];
        let Some(target) = device.target.take() else { return Ok(()) };
        if chance(&mut self.own.rng, 30) {
            return self.start_procedure(index, |node, ran, _, out| node.cancel_handover(ran, out));
        }
        self.own.devices[index].at = Some(target);
        self.start_procedure(index, |node, ran, _, out| node.notify(ran, out))
    }
}

fn internal(error: &dyn std::fmt::Display) -> Error {
    Error::Options(format!("bug: a message of an attacking node does not encode: {error}"))
}
