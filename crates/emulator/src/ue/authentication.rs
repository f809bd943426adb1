//! 5G-AKA and security mode control of the UE (TS 24.501 5.4.1.3, 5.4.2). `eap` has EAP-AKA'.

use super::nas::{self, kind};
use super::registration::capability;
use super::security::{HEADER, NasSecurity, SecurityContext};
use super::{AHEAD, Event, Fault, MmState, Profile, Ue, UeOutput, Violation};
use crate::usim::{Answer, Challenge};
use vireo_wire::nas::{
    GmmCause, KeySetIdentifier, Nas5gmmMessage, Nas5gsMessage, NasAuthenticationFailure,
    NasAuthenticationFailureParameter, NasAuthenticationRequest, NasFGmmCause, NasMessageContainer,
    NasSecurityModeCommand, NasSecurityModeComplete,
};
use vireo_wire::security::{CipheringAlgorithm, IntegrityAlgorithm};

/// Returns an AUTHENTICATION RESPONSE: header, then RES* as IEI 0x2d of 16 octets.
fn response(res_star: &[u8; 16]) -> [u8; 21] {
    let mut octets = [0; 21];
    octets[..5].copy_from_slice(&[0x7e, 0, 0x57, 0x2d, 16]);
    octets[5..].copy_from_slice(res_star);
    octets
}

impl Ue {
    pub(super) fn authentication_request(
        &mut self,
        p: &Profile,
        request: &NasAuthenticationRequest,
        out: &mut UeOutput,
    ) -> Result<(), Violation> {
        let incomplete = Violation::Incomplete(kind::AUTHENTICATION_REQUEST);
        let KeySetIdentifier::Native(ksi) = request.ngksi.key_set_identifier() else { return Err(incomplete) };
        if let Some(message) = &request.eap_message {
            return self.eap_request(p, (request, &message.value), ksi, out);
        }
        if self.own.requires_eap {
            return Err(incomplete);
        }
        self.own.conversation = None;
        let octets = |value: Option<&[u8]>| <[u8; 16]>::try_from(value?).ok();
        let rand =
            octets(request.authentication_parameter_rand.as_ref().map(|v| v.value.as_ref())).ok_or(incomplete)?;
        let autn =
            octets(request.authentication_parameter_autn.as_ref().map(|v| v.value.as_ref())).ok_or(incomplete)?;
        let pending = self.pending.get_or_insert_default();
        if let Some((known, res_star)) = &pending.challenge
            && *known == rand
        {
            // TS 24.501 5.4.1.3.2: a retransmitted challenge gets the same response.
            let again = response(res_star);
            return self.answer(&again, out);
        }
        let fault = self.fault.take();
        if fault == Some(Fault::KeySetInUse) || self.security.as_ref().is_some_and(|s| s.ksi() == ksi) {
            return self.authentication_failure(GmmCause::NgKsiAlreadyInUse, None, out);
        }
        match fault {
            Some(Fault::MacFailure) => return self.authentication_failure(GmmCause::MacFailure, None, out),
            Some(Fault::SynchFailure) => self.usim.run_ahead(AHEAD),
            Some(Fault::RepeatedSynchFailure) => {
                self.usim.run_ahead(AHEAD);
                self.fault = fault;
            }
            _ => {}
        }
        let challenge = Challenge { rand, autn };
        let answer = self.usim.answer(&challenge, p.network_name(), &request.abba.value).map_err(|_| incomplete)?;
        match answer {
            Answer::Accepted { mut res, key } => {
                if fault == Some(Fault::WrongResponse) {
                    res[0] ^= 0xff;
                }
                let pending = self.pending.get_or_insert_default();
                pending.challenge = Some((rand, res));
                (pending.key, pending.is_mapped) = (Some((key, ksi)), false);
                self.answer(&response(&res), out)
            }
            Answer::MacFailure => self.authentication_failure(GmmCause::MacFailure, None, out),
            Answer::SynchFailure(auts) => self.authentication_failure(GmmCause::SynchFailure, Some(auts), out),
            Answer::NoSeparation => {
                self.authentication_failure(GmmCause::NonFiveGAuthenticationUnacceptable, None, out)
            }
        }
    }

    pub(super) fn authentication_failure(
        &mut self,
        cause: GmmCause,
        auts: Option<[u8; 14]>,
        out: &mut UeOutput,
    ) -> Result<(), Violation> {
        let mut failure = NasAuthenticationFailure::new(NasFGmmCause::from_cause(cause));
        if let Some(auts) = auts {
            failure.set_authentication_failure_parameter(NasAuthenticationFailureParameter::from_auts(auts));
        }
        let failure = nas::encode(failure).map_err(|_| Violation::Incomplete(kind::AUTHENTICATION_REQUEST))?;
        out.events.push(Event::AuthenticationFailed { cause: cause as u8 });
        self.answer(&failure, out)
    }

    pub(super) fn authentication_rejected(&mut self, protected: bool, out: &mut UeOutput) {
        self.mm = MmState::Deregistered;
        (self.pending, self.fault) = (None, None);
        self.sessions.clear();
        // TS 24.501 5.4.1.3.5: the UE deletes identity and keys; it has refused an unprotected
        // message in secure exchange.
        debug_assert!(protected || !self.secured);
        (self.guti, self.security) = (None, None);
        out.events.push(Event::AuthenticationRejected);
    }

    /// Handles SECURITY MODE COMMAND. It is not ciphered, and integrity protected with the context
    /// that it activates.
    pub(super) fn security_mode_command(
        &mut self,
        p: &Profile,
        message: &[u8],
        out: &mut UeOutput,
    ) -> Result<(), Violation> {
        let plain = message.get(HEADER..).ok_or(Violation::Undecodable)?;
        let command = match Nas5gsMessage::decode(plain) {
            Ok(Nas5gsMessage::Gmm(_, Nas5gmmMessage::SecurityModeCommand(command))) => command,
            Ok(_) => return Err(Violation::Unexpected(plain.get(2).copied().unwrap_or(0))),
            Err(_) => return Err(Violation::Undecodable),
        };
        let is_new = self.take_context(&command, message)?;
        let acceptable = command.replayed_ue_security_capabilities == capability(p);
        let offered = self.has_offered(p);
        if !acceptable || !offered {
            let cause = if acceptable { 24 } else { 23 };
            self.answer(&[0x7e, 0, 0x5f, cause], out)?;
            return Err(Violation::SecurityMode);
        }
        self.secured = true;
        self.security_mode_complete(&command, is_new, out)
    }

    /// Selects the context that the command names and verifies the command's MAC with it. Returns
    /// true if the command activates that context or other algorithms.
    fn take_context(&mut self, command: &NasSecurityModeCommand, message: &[u8]) -> Result<bool, Violation> {
        let algorithms = command.selected_nas_security_algorithms.value;
        let ciphering = CipheringAlgorithm::try_from(algorithms >> 4).map_err(|_| Violation::SecurityMode)?;
        let integrity = IntegrityAlgorithm::try_from(algorithms & 0xf).map_err(|_| Violation::SecurityMode)?;
        let (ksi, is_mapped) = match command.ngksi.key_set_identifier() {
            KeySetIdentifier::Native(ksi) => (ksi, false),
            KeySetIdentifier::Mapped(ksi) => (ksi, true),
            _ => return Err(Violation::SecurityMode),
        };
        let pending = self.pending.as_mut().filter(|pending| pending.is_mapped == is_mapped);
        let fresh = pending.and_then(|pending| pending.key.take_if(|(_, fresh)| *fresh == ksi)).map(|(k_amf, _)| {
            let mut security = NasSecurity::new(k_amf, ksi, ciphering, integrity);
            security.set_mapped(is_mapped);
            security
        });
        if fresh.is_some() {
            self.check_eap_success(command)?;
        }
        self.own.eps_algorithms = command.selected_eps_nas_security_algorithms.as_ref().map(|selected| selected.value);
        let is_named = |security: &NasSecurity| security.ksi() == ksi && security.is_mapped() == is_mapped;
        self.activate(fresh, is_named, (ciphering, integrity), message)
    }

    fn security_mode_complete(
        &mut self,
        command: &NasSecurityModeCommand,
        is_new: bool,
        out: &mut UeOutput,
    ) -> Result<(), Violation> {
        let violation = Violation::Incomplete(kind::SECURITY_MODE_COMMAND);
        let mut complete = NasSecurityModeComplete::new();
        if command.imeisv_request.as_ref().is_some_and(|request| request.value & 7 == 1) {
            complete.set_imeisv(self.imeisv().ok_or(violation)?);
        }
        // TS 24.501 4.4.6: the whole initial message, which was sent in part or without protection.
        if let Some(pending) = self.pending.as_mut().filter(|pending| !pending.request.is_empty()) {
            complete.set_nas_message_container(NasMessageContainer::new(pending.request.as_slice()));
        }
        let complete = nas::encode(complete).map_err(|_| violation)?;
        self.complete_security_mode(&complete, is_new, out)
    }
}
