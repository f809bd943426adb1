//! One step over one UE: the context it changes, what it may know, and what it wants done once that is committed.

use crate::Env;
use crate::context::{Connection, NasSecurity, RanContext, UeContext, octets};
use crate::n2::{self, Cause};
use crate::sba::{N1N2TransferResult, PiggybackedSmContext, SessionNumber, SmfRequest};
use crate::subscription::AuthenticationRequest;
use serde::{Deserialize, Serialize};
use std::borrow::Cow;
use std::net::SocketAddr;
use vireo_types::{AmfUeNgapId, AssocId, Dnn, Instant, Ltmsi, RanUeNgapId, SessionAddress, SessionIndex, Supi, Tmsi};
use vireo_wire::nas::{Nas5gmmMessage, Nas5gsMessage, Nas5gsSecurityHeaderType as Header, NasFGmmCause, NasFGmmStatus};

/// What is done after a step's commit, in order, and never before it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Effect {
    /// An NGAP PDU about the UE to a RAN node.
    Ngap {
        /// The RAN node's association.
        assoc: AssocId,
        /// The encoded PDU.
        #[serde(with = "octets")]
        pdu: Vec<u8>,
    },
    /// Has a RAN node release a UE-associated logical connection that it has and this context has not (TS 38.413 10.6): by
    /// it the UE would never be served. It goes to this node alone, and to nobody if there are too many of the kind.
    ReleaseStale {
        /// The RAN node's association.
        assoc: AssocId,
        /// The AMF-UE-NGAP-ID that the node has used.
        amf_id: AmfUeNgapId,
        /// The node's own number.
        ran_id: RanUeNgapId,
    },
    /// A PFCP message to a UPF; the N4 endpoint fills the sequence number of a request in.
    Pfcp {
        /// The UPF.
        upf: SocketAddr,
        /// The session it is about.
        session: SessionIndex,
        /// The encoded message.
        #[serde(with = "octets")]
        message: Vec<u8>,
    },
    /// A question to the home network; the answer is an event.
    Authenticate(AuthenticationRequest),
    /// This 5G-TMSI names the UE.
    BindTmsi(Tmsi),
    /// This 5G-TMSI names nobody any more.
    FreeTmsi(Tmsi),
    /// This context is the subscriber's: another one that was is superseded.
    BindSupi(Supi),
    /// So it is by a registration that began then and was never completed: unless another one was completed since.
    BindSupiSince(Supi, Instant),
    /// These addresses go back to the pool.
    FreeAddress(Dnn, SessionAddress),
    /// Nothing is left to remember: the context goes.
    Forget,
    /// A question to the SMF about a session that it has; the answer is an event. Questions about one session are asked one
    /// after the other.
    SmfRequest {
        /// The session.
        number: SessionNumber,
        /// The question.
        ask: SmfRequest,
        /// The SM context, if it travels.
        carried: Option<PiggybackedSmContext>,
    },
    /// What becomes of a message that an SMF has asked to be transferred.
    N1N2TransferReply {
        /// The request.
        token: u64,
        /// That.
        result: N1N2TransferResult,
        /// The SM context, if the SMF wanted that back.
        carried: Option<PiggybackedSmContext>,
    },
}

impl Effect {
    /// Whose context it makes the UE's, and as of when, where it was committed at some time.
    pub fn claims_subscriber(&self, at: Instant) -> Option<(Supi, Instant)> {
        match self {
            Effect::BindSupi(supi) => Some((*supi, at)),
            Effect::BindSupiSince(supi, began) => Some((*supi, *began)),
            _ => None,
        }
    }
}

/// A procedure, for counters and latencies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Kind {
    /// Initial registration, from the request to Registration Complete.
    Registration,
    /// PDU session establishment, from the request to the user plane being there.
    Session,
    /// PDU session release.
    SessionRelease,
    /// The user plane of a session that was there, from the service request to the UPF forwarding again.
    Activation,
    /// Service request, from the request to the answer of the RAN.
    ServiceRequest,
    /// Deregistration.
    Deregistration,
    /// AN release.
    Release,
    /// Xn handover, from Path Switch Request to its answer.
    PathSwitch,
    /// N2 handover, from Handover Required to Handover Notify.
    Handover,
    /// Paging, from the first page to the UE's answer.
    Paging,
    /// Mobility or periodic registration update, from the request to Registration Complete.
    Mobility,
    /// A session's move to another UPF, from the order to the end of what the UPF before had.
    Relocation,
}

/// What a step says to counters and logs; never acted on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Note {
    /// A procedure began.
    Started(Kind),
    /// It came to its end, having begun then.
    Succeeded(Kind, Instant),
    /// It failed with this 5GMM or 5GSM cause, or 0 for none.
    Failed(Kind, u8),
    /// A session has carried so many octets, as its UPF reports.
    UsageReported {
        /// From the UE.
        uplink: u64,
        /// To the UE.
        downlink: u64,
    },
    /// A message was at fault or out of place; the word labels a counter.
    Fault(Cow<'static, str>),
    /// It failed because the UE has not proved who it is: an Authentication Failure, or a wrong RES*. A wrong K or OPc
    /// of a USIM or of the subscriber's record shows as this.
    NotAuthenticated(Kind),
}

impl Note {
    /// A message was at fault or out of place.
    pub const fn fault(word: &'static str) -> Self {
        Note::Fault(Cow::Borrowed(word))
    }
}

/// What a step leaves behind it beside the context.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct StepOutput {
    /// What to do after the commit.
    pub effects: Vec<Effect>,
    /// What to count.
    pub notes: Vec<Note>,
}

/// A step in progress.
#[derive(Debug)]
pub struct StepContext<'a, 'e> {
    /// The UE.
    pub ue: &'a mut UeContext,
    /// What the step may know.
    pub env: &'a mut Env<'e>,
    /// What it leaves.
    pub out: StepOutput,
}

impl StepContext<'_, '_> {
    /// The time of the step.
    pub fn now(&self) -> Instant {
        self.env.now
    }

    /// When what the step is about came to this core.
    pub fn received_at(&self) -> Instant {
        self.env.arrived
    }

    /// Gives the UE's next connection its AMF-UE-NGAP-ID. Its generation is random at first and grows by a random step, so
    /// that neither the LTMSI nor an earlier identifier tells it, and none comes again within 64 connections.
    pub fn next_amf_id(&mut self) -> AmfUeNgapId {
        const STEPS: u16 = 64;
        let random = u16::from_be_bytes(self.env.random());
        let generation = match self.ue.connections & 0xfff {
            0 => random % 0xfff,
            last => (last + random % STEPS) % 0xfff,
        };
        self.ue.connections = generation + 1;
        AmfUeNgapId::new(self.ue.ltmsi, self.ue.connections)
    }

    /// Adds an effect.
    pub fn effect(&mut self, effect: Effect) {
        self.out.effects.push(effect);
    }

    /// Adds a note.
    pub fn note(&mut self, note: Note) {
        self.out.notes.push(note);
    }

    /// Sends an NGAP PDU on the UE's connection.
    pub fn send(&mut self, build: impl FnOnce(&Connection) -> Vec<u8>) {
        if let Some(connection) = self.ue.connection {
            self.effect(Effect::Ngap { assoc: connection.assoc, pdu: build(&connection) });
        }
    }

    /// Sends a NAS message that is ready. Not on a connection that is being released: the RAN node has no UE there any more.
    pub fn send_encoded_nas(&mut self, nas: Vec<u8>) {
        if !self.is_being_released() {
            self.send(|c| n2::downlink_nas_transport(c, nas));
        }
    }

    /// Whether the RAN node has been told to let the connection go.
    pub fn is_being_released(&self) -> bool {
        self.ue.connection.is_some_and(|c| matches!(c.ran, RanContext::Releasing { .. }))
    }

    /// A NAS message as octets: protected by the UE's security context where it has one.
    pub fn nas(&mut self, message: Nas5gmmMessage) -> Option<Vec<u8>> {
        let plain = self.plain(message)?;
        match &mut self.ue.security {
            None => Some(plain),
            Some(security) => {
                let nas = protect(security, &plain, Header::IntegrityProtectedAndCiphered, &mut self.out);
                self.secure_exchange();
                nas
            }
        }
    }

    /// The secure exchange of NAS messages is established on the connection (TS 24.501 4.4.2.5): from now on the UE
    /// protects and ciphers what it sends.
    pub fn secure_exchange(&mut self) {
        if let Some(connection) = &mut self.ue.connection
            && connection.ran == RanContext::None
        {
            connection.ran = RanContext::Secured;
        }
    }

    /// A NAS message without protection, for what comes before a security context.
    pub fn plain(&mut self, message: Nas5gmmMessage) -> Option<Vec<u8>> {
        let encoded = Nas5gsMessage::new_5gmm(message).encode();
        if encoded.is_err() {
            self.note(Note::fault("nas-encode"));
        }
        encoded.ok()
    }

    /// Sends a NAS message, protected where possible.
    pub fn send_nas(&mut self, message: Nas5gmmMessage) {
        if let Some(nas) = self.nas(message) {
            self.send_encoded_nas(nas);
        }
    }

    /// Sends a message of identification or authentication: without protection, until the secure exchange of NAS messages
    /// is established on the connection (TS 24.501 4.4.4.2).
    pub fn send_early(&mut self, message: Nas5gmmMessage) {
        let is_none = self.ue.connection.is_none_or(|c| c.ran == RanContext::None);
        if let Some(nas) = if is_none { self.plain(message) } else { self.nas(message) } {
            self.send_encoded_nas(nas);
        }
    }

    /// Sends a NAS message under a security context that is not in use yet.
    pub fn send_new_context(&mut self, security: &mut NasSecurity, message: Nas5gmmMessage) {
        let header = Header::IntegrityProtectedWithNewFiveGNasSecurityContext;
        let nas = self.plain(message).and_then(|plain| protect(security, &plain, header, &mut self.out));
        if let Some(nas) = nas {
            self.send_encoded_nas(nas);
        }
    }

    /// A message that the state does not foresee, and that UEs may send without protection (TS 24.501 4.4.4.3): it may be a replay,
    /// so nobody is answered.
    pub fn on_unexpected_message(&mut self) {
        self.note(Note::fault("nas-out-of-place"));
    }

    /// Answers a message that the state does not foresee with 5GMM STATUS #98 (TS 24.501 7.4). Not on a connection that is
    /// being released: the RAN node has no UE there any more, and it may be a replay.
    pub fn send_status_98(&mut self) {
        self.on_unexpected_message();
        if self.is_being_released() {
            return;
        }
        let status = NasFGmmStatus::new(NasFGmmCause::new(98));
        self.send_nas(status.into());
    }

    /// Begins the release of the NG connection: the RAN is told, its answer awaited. It is told once.
    pub fn release(&mut self, cause: Cause) {
        if self.is_being_released() {
            return;
        }
        let deadline = self.now() + self.env.config.timers.ran_response;
        self.send(|c| n2::context_release_command(c, cause));
        if let Some(connection) = &mut self.ue.connection {
            connection.ran = RanContext::Releasing { deadline };
            self.note(Note::Started(Kind::Release));
        }
    }

    /// The UE's number.
    pub fn ltmsi(&self) -> Ltmsi {
        self.ue.ltmsi
    }
}

fn protect(security: &mut NasSecurity, plain: &[u8], header: Header, out: &mut StepOutput) -> Option<Vec<u8>> {
    let protected = security.protect(plain, header);
    if protected.is_err() {
        out.notes.push(Note::fault("nas-count-exhausted"));
    }
    protected.ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_outcome_survives_its_binary_encoding() {
        let outcome = StepOutput {
            effects: vec![Effect::BindTmsi(Tmsi(7)), Effect::Ngap { assoc: AssocId(1), pdu: vec![1, 2] }],
            notes: vec![
                Note::fault("nas-bad-mac"),
                Note::Succeeded(Kind::Paging, Instant(9)),
                Note::Failed(Kind::Session, 26),
            ],
        };
        let octets = postcard::to_allocvec(&outcome).expect("it encodes");
        assert_eq!(postcard::from_bytes(&octets), Ok(outcome));
    }
}
