//! Driver of the negative cases.
//!
//! It has associations for arbitrary messages, and UEs driven step by step.

use super::answer::Answer;
use super::case::Outcome;
use super::error::CaseError;
use crate::dialect::{Device as AnyUe, Establishment, Node};
use crate::error::Error;
use crate::node_set::NodeSet;
use crate::options::Options;
use crate::progress::EndpointFactory;
use crate::ran::{self, ConnectionId, Outbox, SendError};
use crate::rat::Rat;
use crate::ue::{self, MmState, Registration, SessionState};
use crate::usim::Usim;
use std::time::{Duration, Instant};
use vireo_types::PduSessionType;

/// Maximum wait for a mandatory answer.
pub(super) const ANSWER: Duration = Duration::from_secs(2);
/// Time without messages that counts as silence.
pub(super) const SILENCE: Duration = Duration::from_millis(300);

/// UE under the control of a case.
pub(super) struct Device {
    pub(super) ue: AnyUe,
    pub(super) ran: Option<ConnectionId>,
    /// NAS messages sent, newest last.
    pub(super) sent: Vec<Vec<u8>>,
    failure: Option<CaseError>,
    out: ue::UeOutput,
}

impl Device {
    /// Creates the UE of subscriber `index`, or of the last one if there are fewer.
    pub(super) fn new(options: &Options, index: u32) -> Result<Self, Error> {
        let subscriber = options.subscribers.get(index).or_else(|| options.subscribers.get(0));
        let (supi, keys) = subscriber.ok_or_else(|| Error::Options("there are no subscribers".into()))?;
        let ue = AnyUe::new(options.rats.list()[0], Usim::new(supi, keys));
        Ok(Device { ue, ran: None, sent: Vec::new(), failure: None, out: ue::UeOutput::default() })
    }

    /// Handles the reset of its connection.
    pub(super) fn disconnected(&mut self) {
        self.ran = None;
        self.ue.connection_released();
    }

    /// Returns the REGISTRATION REQUEST or ATTACH REQUEST of its registration.
    pub(super) fn registration_request(&mut self, options: &Options) -> Result<Vec<u8>, CaseError> {
        self.out.clear();
        self.ue.register(options, Registration::Fresh, &mut self.out)?;
        self.out.messages().next().map(<[u8]>::to_vec).ok_or(CaseError::NoNas)
    }
}

/// The nodes of a case.
pub(super) struct CaseDriver<'a> {
    pub(super) nodes: NodeSet<'a>,
}

impl<'a> CaseDriver<'a> {
    pub(super) fn new(options: &'a Options, open: EndpointFactory<'_>) -> Result<Self, Error> {
        Ok(CaseDriver { nodes: NodeSet::new(options, open)? })
    }

    pub(super) fn options(&self) -> &'a Options {
        self.nodes.options
    }

    /// Opens an association without NG or S1 Setup. Returns the index of the peer.
    pub(super) fn connect(&mut self, id: u32) -> Result<usize, Error> {
        let options = self.options();
        let index = self.nodes.add(id)?;
        self.nodes.wait_until_up(index, id, Instant::now() + options.timeout)?;
        Ok(index)
    }

    /// Performs NG or S1 Setup of a well-behaved node.
    pub(super) fn set_up(&mut self, peer: usize) -> Result<(), Error> {
        let streams = self.nodes.peers[peer].streams;
        self.nodes.outbox.clear();
        let sent = self.nodes.peers[peer].node.set_up(streams, &mut self.nodes.outbox);
        sent.map_err(|error| self.nodes.refused(0, error.to_string()))?;
        self.flush(peer).map_err(|error| self.nodes.refused(0, error.to_string()))?;
        let deadline = Instant::now() + self.nodes.options.timeout;
        while !self.nodes.peers[peer].node.is_up() {
            if Instant::now() > deadline || !self.nodes.peers[peer].up {
                return Err(self.nodes.refused(0, "SETUP was not answered".into()));
            }
            self.nodes.pump(Duration::from_millis(20))?;
            self.take_in(peer, None).map_err(|error| self.nodes.refused(0, error.to_string()))?;
        }
        Ok(())
    }

    pub(super) fn rat(&self) -> Rat {
        self.nodes.rat
    }

    pub(super) fn node(&mut self, peer: usize) -> &mut Node {
        &mut self.nodes.peers[peer].node
    }

    /// Sends octets unchanged. Messages that a full association does not accept are lost.
    pub(super) fn send(&mut self, peer: usize, stream: u16, ppid: u32, octets: &[u8], outcome: &mut Outcome) {
        outcome.sent += 1;
        for _ in 0..200 {
            match self.nodes.send_octets(peer, stream, ppid, octets) {
                Err(vireo_sctp::SendError::Full) => {
                    let _ = self.nodes.pump(Duration::from_millis(10));
                }
                _ => return,
            }
        }
    }

    /// Sends octets unchanged with the payload protocol identifier of the dialect.
    pub(super) fn send_own(&mut self, peer: usize, stream: u16, octets: &[u8], outcome: &mut Outcome) {
        let ppid = self.nodes.peers[peer].node.ppid();
        self.send(peer, stream, ppid, octets, outcome);
    }

    fn flush(&mut self, peer: usize) -> Result<(), CaseError> {
        let mut outbox = std::mem::take(&mut self.nodes.outbox);
        for (stream, pdu) in outbox.pdus() {
            self.nodes.send_octets(peer, stream, self.nodes.peers[peer].node.ppid(), pdu)?;
        }
        outbox.clear();
        self.nodes.outbox = outbox;
        Ok(())
    }

    /// Returns the next answer within `wait` and records it in the outcome.
    pub(super) fn answer(&mut self, peer: usize, wait: Duration, outcome: &mut Outcome) -> Option<Answer> {
        let deadline = Instant::now() + wait;
        loop {
            if let Some(pdu) = self.nodes.peers[peer].received.pop_front() {
                let answer = Answer::read(self.nodes.rat, &pdu);
                *outcome.answers.entry(answer.name(self.nodes.rat)).or_default() += 1;
                return Some(answer);
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() && wait.is_zero() {
                // Polls once without waiting.
                self.nodes.pump(Duration::ZERO).ok()?;
                let pdu = self.nodes.peers[peer].received.pop_front()?;
                let answer = Answer::read(self.nodes.rat, &pdu);
                *outcome.answers.entry(answer.name(self.nodes.rat)).or_default() += 1;
                return Some(answer);
            }
            if left.is_zero()
                || !self.nodes.peers[peer].up
                || self.nodes.pump(left.min(Duration::from_millis(50))).is_err()
            {
                return None;
            }
        }
    }

    /// Returns all answers until [`SILENCE`] has passed without one.
    pub(super) fn answers(&mut self, peer: usize, outcome: &mut Outcome) -> Vec<Answer> {
        std::iter::from_fn(|| self.answer(peer, SILENCE, outcome)).take(1_000_000).collect()
    }

    /// Passes received PDUs to the node and their NAS for the UE to the device.
    fn take_in(&mut self, peer: usize, mut device: Option<&mut Device>) -> Result<(), CaseError> {
        while let Some(pdu) = self.nodes.peers[peer].received.pop_front() {
            let node = &mut self.nodes.peers[peer].node;
            let inbox = node.receive(&pdu, &mut self.nodes.outbox)?;
            for event in &inbox.events {
                match (event, &mut device) {
                    (ran::Event::SetupFailed(cause), _) => return Err(CaseError::SetupFailed(cause.clone())),
                    (ran::Event::Nas { range, .. }, Some(device)) => {
                        device.out.clear();
                        device.ue.receive(self.nodes.options, &inbox.nas[range.clone()], &mut device.out);
                        speak(node, device, &mut self.nodes.outbox)?;
                    }
                    (ran::Event::Released { .. }, Some(device)) => {
                        device.ran = None;
                        device.ue.connection_released();
                    }
                    _ => {}
                }
            }
            self.flush(peer)?;
        }
        Ok(())
    }

    /// Drives the device until `done` returns true.
    pub(super) fn drive(
        &mut self,
        peer: usize,
        device: &mut Device,
        done: fn(&Device) -> bool,
    ) -> Result<(), CaseError> {
        let deadline = Instant::now() + self.nodes.options.timeout;
        loop {
            self.take_in(peer, Some(device))?;
            if let Some(failure) = device.failure.take() {
                return Err(failure);
            }
            if done(device) {
                return Ok(());
            }
            if Instant::now() > deadline {
                return Err(CaseError::Timeout(self.nodes.options.timeout));
            }
            self.nodes.pump(Duration::from_millis(20))?;
        }
    }

    /// Sends the messages of the device's last command.
    pub(super) fn speak(&mut self, peer: usize, device: &mut Device) -> Result<(), CaseError> {
        speak(&mut self.nodes.peers[peer].node, device, &mut self.nodes.outbox)?;
        self.flush(peer)
    }

    pub(super) fn register(&mut self, peer: usize, device: &mut Device) -> Result<(), CaseError> {
        device.out.clear();
        device.ue.register(self.nodes.options, Registration::Fresh, &mut device.out)?;
        self.speak(peer, device)?;
        self.drive(peer, device, |device| device.ue.mm() == MmState::Registered)
    }

    /// Reconnects an idle device by a mobility registration update; it then stays connected.
    pub(super) fn update(&mut self, peer: usize, device: &mut Device) -> Result<(), CaseError> {
        device.out.clear();
        device.ue.register(self.nodes.options, Registration::Mobility, &mut device.out)?;
        self.speak(peer, device)?;
        self.drive(peer, device, |device| device.ue.mm() == MmState::Registered)
    }

    /// Lets the node start one of its procedures.
    pub(super) fn start(
        &mut self,
        peer: usize,
        act: impl FnOnce(&mut Node, &mut Outbox) -> Result<(), SendError>,
    ) -> Result<(), CaseError> {
        act(&mut self.nodes.peers[peer].node, &mut self.nodes.outbox)?;
        self.flush(peer)
    }

    pub(super) fn establish(&mut self, peer: usize, device: &mut Device) -> Result<(), CaseError> {
        device.out.clear();
        // An attach has established the session.
        device.ue.establish(self.nodes.options, 1, Some(PduSessionType::Ipv4), &mut device.out)?;
        self.speak(peer, device)?;
        self.drive(peer, device, |device| device.ue.sessions().iter().any(|s| s.state == SessionState::Active))
    }

    /// Checks that the core serves a registered device: by a session, or by a detach in EPS.
    pub(super) fn check_served(&mut self, peer: usize, device: &mut Device) -> Result<(), CaseError> {
        if self.rat() == Rat::Nr {
            return self.establish(peer, device);
        }
        device.out.clear();
        device.ue.deregister(self.nodes.options, false, &mut device.out)?;
        self.speak(peer, device)?;
        self.drive(peer, device, |device| device.ue.mm() == MmState::Deregistered)
    }

    /// Deregisters the device, ignoring errors.
    pub(super) fn deregister(&mut self, peer: usize, device: &mut Device) {
        device.out.clear();
        if device.ue.deregister(self.nodes.options, true, &mut device.out).is_ok() && self.speak(peer, device).is_ok() {
            let _ = self.drive(peer, device, |device| device.ran.is_none());
        }
    }
}

fn speak(node: &mut Node, device: &mut Device, outbox: &mut Outbox) -> Result<(), CaseError> {
    for nas in device.out.messages() {
        device.sent.push(nas.to_vec());
        let sent = match device.ran {
            Some(ran) => node.uplink_nas(ran, nas, outbox),
            None => {
                let cause = Establishment::Signalling;
                node.initial_ue(0, nas, device.ue.access_guti(), cause, outbox).map(|ran| device.ran = Some(ran))
            }
        };
        sent?;
    }
    for event in device.out.events.drain(..) {
        device.failure = match event {
            ue::Event::RegistrationRejected { cause, .. } => Some(CaseError::RegistrationRejected(cause)),
            ue::Event::AuthenticationRejected => Some(CaseError::AuthenticationRejected),
            ue::Event::SessionRejected { cause, .. } => Some(CaseError::SessionRejected(cause)),
            ue::Event::Violation(violation) => Some(CaseError::Violation(violation)),
            _ => device.failure.take(),
        };
    }
    Ok(())
}
