//! Context, effects and notes of one step of one UE.
//!
//! The state machines change [`StepContext`] in place and append [`Effect`]s and [`Note`]s. Effects
//! are executed only after the commit of the context.

mod effect;
mod note;

pub use effect::Effect;
pub use note::{Kind, Note, RefusedRequest};

use crate::Env;
use crate::amf::access;
use crate::amf::context::{Connection, NasSecurity, RanContext, UeContext};
use crate::amf::n2::Cause;
use serde::{Deserialize, Serialize};
use std::borrow::Cow;
use vireo_types::{AmfUeNgapId, AssocId, Dialect, Instant, Ltmsi};
use vireo_wire::nas::{Nas5gmmMessage, Nas5gsMessage, Nas5gsSecurityHeaderType as Header, NasFGmmCause, NasFGmmStatus};
use vireo_wire::nas_eps::{NasEmmCause, NasEmmMessage, NasEmmStatus, NasEpsMessage};

/// Number of effects of a step that have keys: an [`effect_key`] has 8 bits for the position.
pub const KEYED_EFFECTS: usize = 1 << 8;
/// Bits of an idempotency key for the step number.
const STEP: u64 = (1 << 28) - 1;

/// Returns the idempotency key of a UE's step: LTMSI (28 bits), 4 bits of the effect's position,
/// step number (28), 4 bits of the effect's position.
///
/// The first 16 effects of a step have the keys of release 0.2.0, so hosts of both may take over
/// from each other.
pub fn idempotency_key(ltmsi: Ltmsi, step: u32) -> u64 {
    u64::from(ltmsi.get()) << 36 | (u64::from(step) & STEP) << 4
}

/// Returns the key of an effect by its position among the effects of the step.
///
/// Effects from [`KEYED_EFFECTS`] on have no key (0): a new owner may repeat them. Only messages to
/// RAN nodes may be there, such as pages in a large registration area.
pub fn effect_key(step_key: u64, position: usize) -> u64 {
    if position >= KEYED_EFFECTS {
        return 0;
    }
    let position = position as u64;
    step_key | (position & 0xf) | (position >> 4) << 32
}

/// Returns the [`idempotency_key`] of the step of an effect.
pub fn step_key(effect_key: u64) -> u64 {
    effect_key & !(0xf | 0xf << 32)
}

/// Returns the step number of a key, without the bits that the key omits.
pub fn step_of_key(key: u64) -> u32 {
    (key >> 4 & STEP) as u32
}

/// Returns the LTMSI of an [`idempotency_key`] or [`effect_key`].
pub fn ltmsi_of_key(key: u64) -> Ltmsi {
    Ltmsi::from_raw((key >> 36) as u32)
}

/// Output of a step besides the context.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct StepOutput {
    /// Executed after the commit.
    pub effects: Vec<Effect>,
    pub notes: Vec<Note>,
}

/// Mutable context of one step in progress.
#[derive(Debug)]
pub struct StepContext<'a, 'e> {
    pub ue: &'a mut UeContext,
    pub env: &'a mut Env<'e>,
    pub out: StepOutput,
    /// Cause with which the connection is released at the end of the step.
    pub postponed_release: Option<Cause>,
    /// HASHMME of the request that SECURITY MODE COMMAND is to have (TS 33.401 I.2).
    pub request_hash: Option<[u8; 8]>,
}

impl StepContext<'_, '_> {
    /// Returns the time of the step.
    pub fn now(&self) -> Instant {
        self.env.now
    }

    /// Returns the time at which the core received the input of this step.
    pub fn received_at(&self) -> Instant {
        self.env.arrived
    }

    /// Allocates the AMF-UE-NGAP-ID of the UE's next connection. Its generation starts at a random
    /// value and grows by a random increment. It reveals neither the LTMSI nor an earlier
    /// identifier, and does not recur within 64 connections. The MME-UE-S1AP-ID has a generation of
    /// 4 bits, which does not recur within 4 connections.
    pub fn next_amf_id(&mut self, assoc: AssocId) -> AmfUeNgapId {
        let (last_generation, steps) = match assoc.dialect() {
            Dialect::Nr => (0xfff, 64),
            Dialect::Eps => (0xf, 4),
        };
        let random = u16::from_be_bytes(self.env.random());
        let generation = match self.ue.connections & last_generation {
            0 => random % last_generation,
            last => (last + random % steps) % last_generation,
        };
        self.ue.connections = generation + 1;
        AmfUeNgapId::new(self.ue.ltmsi, self.ue.connections)
    }

    pub fn effect(&mut self, effect: Effect) {
        self.out.effects.push(effect);
    }

    /// Notes for the log why a request of the UE is refused.
    pub(crate) fn note_refusal(&mut self, procedure: Kind, cause: u8, reason: impl Into<Cow<'static, str>>) {
        let supi = self.ue.identity.supi;
        self.note(Note::Refused(Box::new(RefusedRequest { supi, procedure, cause, reason: reason.into() })));
    }

    pub fn note(&mut self, note: Note) {
        self.out.notes.push(note);
    }

    /// Sends an NGAP or S1AP PDU on the UE's connection.
    pub fn send(&mut self, build: impl FnOnce(&Connection) -> Vec<u8>) {
        if let Some(connection) = self.ue.connection {
            self.effect(Effect::Ngap { assoc: connection.assoc, pdu: build(&connection) });
        }
    }

    /// Sends an encoded NAS message. It sends nothing on a connection that is being released: the
    /// RAN node has no UE context there.
    pub fn send_encoded_nas(&mut self, nas: Vec<u8>) {
        if !self.is_being_released() {
            self.send(|c| access::downlink_nas_transport(c, nas));
        }
    }

    /// Returns true if the AMF has sent UE CONTEXT RELEASE COMMAND on the connection.
    pub fn is_being_released(&self) -> bool {
        self.ue.connection.is_some_and(|c| matches!(c.ran, RanContext::Releasing { .. }))
    }

    /// Encodes a NAS message, protected by the UE's security context if there is one.
    pub fn nas(&mut self, message: Nas5gmmMessage) -> Option<Vec<u8>> {
        let plain = self.plain(message)?;
        self.protect(plain)
    }

    /// Returns a plain NAS message of the UE's dialect protected by its security context, or as it
    /// is if there is none of this dialect.
    pub fn protect(&mut self, plain: Vec<u8>) -> Option<Vec<u8>> {
        let dialect = self.ue.dialect();
        match self.ue.security.as_mut().filter(|security| security.dialect() == dialect) {
            None => Some(plain),
            Some(security) => {
                let nas = protect(security, &plain, Header::IntegrityProtectedAndCiphered, &mut self.out);
                self.secure_exchange();
                nas
            }
        }
    }

    /// Returns true if messages to the UE are protected: it has a security context of its dialect.
    pub fn has_keys(&self) -> bool {
        let dialect = self.ue.dialect();
        self.ue.security.as_ref().is_some_and(|security| security.dialect() == dialect)
    }

    /// Marks the secure exchange of NAS messages as established on the connection (TS 24.501
    /// 4.4.2.5). From then on the UE protects and ciphers its messages.
    pub fn secure_exchange(&mut self) {
        if let Some(connection) = &mut self.ue.connection
            && connection.ran == RanContext::None
        {
            connection.ran = RanContext::Secured;
        }
    }

    /// Encodes a NAS message without protection, for use before a security context exists.
    pub fn plain(&mut self, message: Nas5gmmMessage) -> Option<Vec<u8>> {
        let encoded = Nas5gsMessage::new_5gmm(message).encode();
        if encoded.is_err() {
            self.note(Note::fault("nas-encode"));
        }
        encoded.ok()
    }

    /// Encodes an EMM message without protection.
    pub fn emm(&mut self, message: impl Into<NasEmmMessage>) -> Option<Vec<u8>> {
        let encoded = NasEpsMessage::new_emm(message).encode();
        if encoded.is_err() {
            self.note(Note::fault("nas-encode"));
        }
        encoded.ok()
    }

    /// Sends an EMM message, protected if the UE has a security context.
    pub fn send_emm(&mut self, message: impl Into<NasEmmMessage>) {
        if let Some(nas) = self.emm(message).and_then(|plain| self.protect(plain)) {
            self.send_encoded_nas(nas);
        }
    }

    /// Sends a NAS message, protected if the UE has a security context.
    pub fn send_nas(&mut self, message: Nas5gmmMessage) {
        if let Some(nas) = self.nas(message) {
            self.send_encoded_nas(nas);
        }
    }

    /// Sends a message of identification or authentication. It is unprotected until the secure
    /// exchange of NAS messages is established on the connection (TS 24.501 4.4.4.2).
    pub fn send_early(&mut self, message: Nas5gmmMessage) {
        if let Some(plain) = self.plain(message) {
            self.send_early_octets(plain);
        }
    }

    /// As [`StepContext::send_early`], for an EMM message (TS 24.301 4.4.4.2).
    pub fn send_early_emm(&mut self, message: impl Into<NasEmmMessage>) {
        if let Some(plain) = self.emm(message) {
            self.send_early_octets(plain);
        }
    }

    fn send_early_octets(&mut self, plain: Vec<u8>) {
        let is_none = self.ue.connection.is_none_or(|c| c.ran == RanContext::None);
        if let Some(nas) = if is_none { Some(plain) } else { self.protect(plain) } {
            self.send_encoded_nas(nas);
        }
    }

    /// Sends an encoded NAS message under a security context that is not in use yet.
    pub fn send_new_context(&mut self, security: &mut NasSecurity, plain: Option<Vec<u8>>) {
        let header = Header::IntegrityProtectedWithNewFiveGNasSecurityContext;
        let nas = plain.and_then(|plain| protect(security, &plain, header, &mut self.out));
        if let Some(nas) = nas {
            self.send_encoded_nas(nas);
        }
    }

    /// Counts a message that is not valid in this state and that UEs may send without protection
    /// (TS 24.501 4.4.4.3). It sends no answer, because the message may be a replay.
    pub fn on_unexpected_message(&mut self) {
        self.note(Note::fault("nas-out-of-place"));
    }

    /// Answers a message that is not valid in this state with 5GMM STATUS or EMM STATUS #98 (TS
    /// 24.501 7.4, TS 24.301 7.4). It sends nothing on a connection that is being released: the RAN
    /// node has no UE context there, and the message may be a replay.
    pub fn send_status_98(&mut self) {
        self.on_unexpected_message();
        if self.is_being_released() {
            return;
        }
        match self.ue.dialect() {
            Dialect::Nr => self.send_nas(NasFGmmStatus::new(NasFGmmCause::new(98)).into()),
            // A UE discards it without protection (TS 24.301 4.4.4.2).
            Dialect::Eps if !self.has_keys() => {}
            Dialect::Eps => self.send_emm(NasEmmStatus::new(NasEmmCause::new(98))),
        }
    }

    /// Starts the release of the NG connection: sends UE CONTEXT RELEASE COMMAND and waits for the
    /// response. Repeated calls do nothing.
    pub fn release(&mut self, cause: Cause) {
        if self.is_being_released() {
            return;
        }
        let deadline = self.now() + self.env.config.timers.ran_response;
        self.send(|c| access::context_release_command(c, cause));
        if let Some(connection) = &mut self.ue.connection {
            connection.ran = RanContext::Releasing { deadline };
            self.note(Note::Started(Kind::Release));
        }
    }

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
    use vireo_types::{AssocId, Tmsi};

    #[test]
    fn outcome_binary_roundtrip_is_exact() {
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

    #[test]
    fn effect_keys_differ_within_step_and_between() {
        let ltmsi = Ltmsi::from_raw(0x0abc_1234);
        let mut keys = std::collections::HashSet::new();
        for step in [0, 1, 0x0fff_ffff] {
            let step_id = idempotency_key(ltmsi, step);
            for position in 0..KEYED_EFFECTS {
                let key = effect_key(step_id, position);
                assert!(keys.insert(key), "effect {position} of step {step}");
                assert_eq!((step_key(key), step_of_key(key), ltmsi_of_key(key)), (step_id, step, ltmsi));
            }
        }
        // The keys of release 0.2.0.
        assert_eq!(effect_key(idempotency_key(ltmsi, 77), 15), 0x0abc_1234 << 36 | 77 << 4 | 15);
        assert_eq!(effect_key(idempotency_key(ltmsi, 77), KEYED_EFFECTS), 0, "no key");
    }
}
