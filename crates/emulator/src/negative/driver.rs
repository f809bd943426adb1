//! Driver of the negative cases.
//!
//! It has associations for arbitrary messages, and UEs driven step by step.

use super::case::Outcome;
use super::error::CaseError;
use crate::error::Error;
use crate::gnb::{self, Gnb, NgState, Outbox, PPID};
use crate::gnb_set::GnbSet;
use crate::options::Options;
use crate::progress::EndpointFactory;
use crate::ue::{self, MmState, Registration, SessionState, Ue};
use crate::usim::Usim;
use std::time::{Duration, Instant};
use vireo_types::{PduSessionType, RanUeNgapId};
use vireo_wire::ngap::{Cause, NGAP_PDU, NgapPduKind, RRCEstablishmentCause, ie};

/// Maximum wait for a mandatory answer.
pub(super) const ANSWER: Duration = Duration::from_secs(2);
/// Time without messages that counts as silence.
pub(super) const SILENCE: Duration = Duration::from_millis(300);

/// Answer of a core to a bad message.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Answer {
    /// ERROR INDICATION with its cause; true if it has Criticality Diagnostics.
    ErrorIndication(Option<Cause>, bool),
    SetupResponse,
    SetupFailure(Option<Cause>),
    /// NAS for the UE: the message type if it is plain, else `None`.
    Nas(Option<u8>),
    /// UE CONTEXT RELEASE COMMAND was received.
    Release,
    /// Successful outcome of the named procedure.
    Acknowledge(String),
    Other(String),
}

impl Answer {
    /// Classifies a PDU of the core.
    pub(crate) fn read(pdu: &[u8]) -> Answer {
        use NgapPduKind as Kind;
        let Ok(pdu) = NGAP_PDU::decode(pdu) else { return Answer::Other("octets that do not decode".into()) };
        let cause = pdu.ie::<ie::Cause>().and_then(Result::ok);
        match pdu.kind() {
            Kind::Initiating_ErrorIndication => {
                Answer::ErrorIndication(cause, pdu.ie::<ie::CriticalityDiagnostics>().is_some())
            }
            Kind::Successful_NGSetup => Answer::SetupResponse,
            Kind::Unsuccessful_NGSetup => Answer::SetupFailure(cause),
            Kind::Initiating_DownlinkNASTransport => {
                let nas = pdu.ie::<ie::NAS_PDU>().and_then(Result::ok);
                Answer::Nas(nas.filter(|nas| nas.0.get(1) == Some(&0)).and_then(|nas| nas.0.get(2).copied()))
            }
            Kind::Initiating_UEContextRelease => Answer::Release,
            Kind::Successful_NGReset => Answer::Acknowledge("NGReset".into()),
            Kind::Successful_RANConfigurationUpdate => Answer::Acknowledge("RANConfigurationUpdate".into()),
            _ => Answer::Other(pdu.procedure_name().into()),
        }
    }

    /// Returns the name in a report.
    pub(crate) fn name(&self) -> String {
        match self {
            Answer::ErrorIndication(Some(cause), _) => format!("ERROR INDICATION {cause:?}"),
            Answer::ErrorIndication(None, _) => "ERROR INDICATION".into(),
            Answer::SetupResponse => "NG SETUP RESPONSE".into(),
            Answer::SetupFailure(Some(cause)) => format!("NG SETUP FAILURE {cause:?}"),
            Answer::SetupFailure(None) => "NG SETUP FAILURE".into(),
            Answer::Nas(Some(kind)) => format!("NAS {kind:#04x}"),
            Answer::Nas(None) => "protected NAS".into(),
            Answer::Release => "UE CONTEXT RELEASE COMMAND".into(),
            Answer::Acknowledge(name) => format!("{name} acknowledged"),
            Answer::Other(name) => name.clone(),
        }
    }
}

/// UE under the control of a case.
pub(super) struct Device {
    pub(super) ue: Ue,
    pub(super) ran: Option<RanUeNgapId>,
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
        let ue = Ue::new(Usim::new(supi, keys));
        Ok(Device { ue, ran: None, sent: Vec::new(), failure: None, out: ue::UeOutput::default() })
    }

    /// Handles the reset of its NG connection.
    pub(super) fn disconnected(&mut self) {
        self.ran = None;
        self.ue.connection_released();
    }

    /// Returns the REGISTRATION REQUEST of its registration.
    pub(super) fn registration_request(&mut self, options: &Options) -> Result<Vec<u8>, CaseError> {
        self.out.clear();
        self.ue.register(&options.profile, Registration::Fresh, &mut self.out)?;
        self.out.messages().next().map(<[u8]>::to_vec).ok_or(CaseError::NoNas)
    }
}

/// The gNBs of a case.
pub(super) struct CaseDriver<'a> {
    pub(super) gnbs: GnbSet<'a>,
}

impl<'a> CaseDriver<'a> {
    pub(super) fn new(options: &'a Options, open: EndpointFactory<'_>) -> Result<Self, Error> {
        Ok(CaseDriver { gnbs: GnbSet::new(options, open)? })
    }

    pub(super) fn options(&self) -> &'a Options {
        self.gnbs.options
    }

    /// Opens an association without NG Setup. Returns the index of the peer.
    pub(super) fn connect(&mut self, gnb_id: u32) -> Result<usize, Error> {
        let options = self.options();
        let mut config = options.gnb_config(0);
        config.id.id = gnb_id & 0x00ff_ffff;
        config.name = format!("gnb-{gnb_id}");
        let index = self.gnbs.add(config)?;
        self.gnbs.wait_until_up(index, gnb_id, Instant::now() + options.timeout)?;
        Ok(index)
    }

    /// Performs NG Setup of a well-behaved gNB.
    pub(super) fn set_up(&mut self, peer: usize) -> Result<(), Error> {
        let streams = self.gnbs.peers[peer].streams;
        let core = self.gnbs.options.core[0];
        let failed = |why: String| Error::NgSetup { core, gnb: 0, why };
        self.gnbs.outbox.clear();
        self.gnbs.peers[peer].gnb.set_up(streams, &mut self.gnbs.outbox).map_err(|error| failed(error.to_string()))?;
        self.flush(peer).map_err(|error| failed(error.to_string()))?;
        let deadline = Instant::now() + self.gnbs.options.timeout;
        while self.gnbs.peers[peer].gnb.state() != NgState::Up {
            if Instant::now() > deadline || !self.gnbs.peers[peer].up {
                return Err(failed("NG SETUP was not answered".into()));
            }
            self.gnbs.pump(Duration::from_millis(20))?;
            self.take_in(peer, None).map_err(|error| failed(error.to_string()))?;
        }
        Ok(())
    }

    pub(super) fn gnb(&mut self, peer: usize) -> &mut Gnb {
        &mut self.gnbs.peers[peer].gnb
    }

    /// Sends octets unchanged. Messages that a full association does not accept are lost.
    pub(super) fn send(&mut self, peer: usize, stream: u16, ppid: u32, octets: &[u8], outcome: &mut Outcome) {
        outcome.sent += 1;
        for _ in 0..200 {
            match self.gnbs.send_octets(peer, stream, ppid, octets) {
                Err(vireo_sctp::SendError::Full) => {
                    let _ = self.gnbs.pump(Duration::from_millis(10));
                }
                _ => return,
            }
        }
    }

    fn flush(&mut self, peer: usize) -> Result<(), CaseError> {
        let mut outbox = std::mem::take(&mut self.gnbs.outbox);
        for (stream, pdu) in outbox.pdus() {
            self.gnbs.send_octets(peer, stream, PPID, pdu)?;
        }
        outbox.clear();
        self.gnbs.outbox = outbox;
        Ok(())
    }

    /// Returns the next answer within `wait` and records it in the outcome.
    pub(super) fn answer(&mut self, peer: usize, wait: Duration, outcome: &mut Outcome) -> Option<Answer> {
        let deadline = Instant::now() + wait;
        loop {
            if let Some(pdu) = self.gnbs.peers[peer].received.pop_front() {
                let answer = Answer::read(&pdu);
                *outcome.answers.entry(answer.name()).or_default() += 1;
                return Some(answer);
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() && wait.is_zero() {
                // Polls once without waiting.
                self.gnbs.pump(Duration::ZERO).ok()?;
                let pdu = self.gnbs.peers[peer].received.pop_front()?;
                let answer = Answer::read(&pdu);
                *outcome.answers.entry(answer.name()).or_default() += 1;
                return Some(answer);
            }
            if left.is_zero()
                || !self.gnbs.peers[peer].up
                || self.gnbs.pump(left.min(Duration::from_millis(50))).is_err()
            {
                return None;
            }
        }
    }

    /// Returns all answers until [`SILENCE`] has passed without one.
    pub(super) fn answers(&mut self, peer: usize, outcome: &mut Outcome) -> Vec<Answer> {
        std::iter::from_fn(|| self.answer(peer, SILENCE, outcome)).take(1_000_000).collect()
    }

    /// Passes received PDUs to the gNB and their NAS for the UE to the device.
    fn take_in(&mut self, peer: usize, mut device: Option<&mut Device>) -> Result<(), CaseError> {
        while let Some(pdu) = self.gnbs.peers[peer].received.pop_front() {
            self.gnbs.inbox.clear();
            let gnb = &mut self.gnbs.peers[peer].gnb;
            gnb.receive(&pdu, &mut self.gnbs.inbox, &mut self.gnbs.outbox)?;
            for event in &self.gnbs.inbox.events {
                match (event, &mut device) {
                    (gnb::Event::SetupFailed(cause), _) => return Err(CaseError::SetupFailed(cause.clone())),
                    (gnb::Event::Nas { range, .. }, Some(device)) => {
                        device.out.clear();
                        device.ue.receive(
                            &self.gnbs.options.profile,
                            &self.gnbs.inbox.nas[range.clone()],
                            &mut device.out,
                        );
                        speak(gnb, device, &mut self.gnbs.outbox)?;
                    }
                    (gnb::Event::Released { .. }, Some(device)) => {
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
        let deadline = Instant::now() + self.gnbs.options.timeout;
        loop {
            self.take_in(peer, Some(device))?;
            if let Some(failure) = device.failure.take() {
                return Err(failure);
            }
            if done(device) {
                return Ok(());
            }
            if Instant::now() > deadline {
                return Err(CaseError::Timeout(self.gnbs.options.timeout));
            }
            self.gnbs.pump(Duration::from_millis(20))?;
        }
    }

    /// Sends the messages of the device's last command.
    pub(super) fn speak(&mut self, peer: usize, device: &mut Device) -> Result<(), CaseError> {
        speak(&mut self.gnbs.peers[peer].gnb, device, &mut self.gnbs.outbox)?;
        self.flush(peer)
    }

    pub(super) fn register(&mut self, peer: usize, device: &mut Device) -> Result<(), CaseError> {
        device.out.clear();
        device.ue.register(&self.gnbs.options.profile, Registration::Fresh, &mut device.out)?;
        self.speak(peer, device)?;
        self.drive(peer, device, |device| device.ue.mm() == MmState::Registered)
    }

    /// Reconnects an idle device by a mobility registration update; it then stays connected.
    pub(super) fn update(&mut self, peer: usize, device: &mut Device) -> Result<(), CaseError> {
        device.out.clear();
        device.ue.register(&self.gnbs.options.profile, Registration::Mobility, &mut device.out)?;
        self.speak(peer, device)?;
        self.drive(peer, device, |device| device.ue.mm() == MmState::Registered)
    }

    /// Lets the gNB start one of its procedures.
    pub(super) fn start(
        &mut self,
        peer: usize,
        act: impl FnOnce(&mut Gnb, &mut Outbox) -> Result<(), gnb::SendError>,
    ) -> Result<(), CaseError> {
        act(&mut self.gnbs.peers[peer].gnb, &mut self.gnbs.outbox)?;
        self.flush(peer)
    }

    pub(super) fn establish(&mut self, peer: usize, device: &mut Device) -> Result<(), CaseError> {
        device.out.clear();
        device.ue.establish(&self.gnbs.options.profile, 1, PduSessionType::Ipv4, &mut device.out)?;
        self.speak(peer, device)?;
        self.drive(peer, device, |d| d.ue.sessions().iter().any(|s| s.psi == 1 && s.state == SessionState::Active))
    }

    /// Deregisters the device, ignoring errors.
    pub(super) fn deregister(&mut self, peer: usize, device: &mut Device) {
        device.out.clear();
        if device.ue.deregister(&self.gnbs.options.profile, true, &mut device.out).is_ok()
            && self.speak(peer, device).is_ok()
        {
            let _ = self.drive(peer, device, |device| device.ran.is_none());
        }
    }
}

fn speak(gnb: &mut Gnb, device: &mut Device, outbox: &mut Outbox) -> Result<(), CaseError> {
    for nas in device.out.messages() {
        device.sent.push(nas.to_vec());
        let sent = match device.ran {
            Some(ran) => gnb.uplink_nas(ran, nas, outbox),
            None => {
                let cause = RRCEstablishmentCause::mo_Signalling;
                gnb.initial_ue(0, nas, device.ue.guti(), cause, outbox).map(|ran| device.ran = Some(ran))
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
