//! EPS-AKA and security mode control of the UE (TS 24.301 5.4.2, 5.4.3).

use super::attach::{additional, capability};
use super::nas::{self, kind};
use super::security::{EpsSecurity, HEADER, SecurityContext};
use super::{Event, Fault, LteUe, Profile, UeOutput, Violation};
use crate::ue::AHEAD;
use crate::usim::{Answer, Challenge};
use vireo_wire::nas_eps::{
    EmmCause, KeySetIdentifier, NasAuthenticationFailure, NasAuthenticationFailureParameter, NasAuthenticationRequest,
    NasEmmCause, NasEmmMessage, NasEpsMessage, NasReplayedNasMessageContainer, NasSecurityModeCommand,
    NasSecurityModeComplete,
};
use vireo_wire::security::nas_eps::compute_hash_mme;
use vireo_wire::security::{CipheringAlgorithm, IntegrityAlgorithm};

/// Returns an AUTHENTICATION RESPONSE: header, then RES of 8 octets.
fn response(res: &[u8; 8]) -> [u8; 11] {
    let mut octets = [0; 11];
    octets[..3].copy_from_slice(&[0x07, 0x53, 8]);
    octets[3..].copy_from_slice(res);
    octets
}

impl LteUe {
    pub(super) fn authentication_request(
        &mut self,
        p: &Profile,
        request: &NasAuthenticationRequest,
        out: &mut UeOutput,
    ) -> Result<(), Violation> {
        let incomplete = Violation::Incomplete(kind::AUTHENTICATION_REQUEST);
        let identifier = request.nas_key_set_identifier_asme.key_set_identifier();
        let KeySetIdentifier::Native(ksi) = identifier else { return Err(incomplete) };
        let rand = *request.authentication_parameter_rand.rand().ok_or(incomplete)?;
        let autn = *request.authentication_parameter_autn.autn().ok_or(incomplete)?;
        let pending = self.pending.get_or_insert_default();
        if let Some((known, res)) = &pending.challenge
            && *known == rand
        {
            // TS 24.301 5.4.2.3: a retransmitted challenge gets the same response.
            let again = response(res);
            return self.answer(&again, out);
        }
        let fault = self.fault.take();
        match fault {
            Some(Fault::MacFailure) => return self.authentication_failure(EmmCause::MacFailure, None, out),
            Some(Fault::SynchFailure) => self.usim.run_ahead(AHEAD),
            Some(Fault::RepeatedSynchFailure) => {
                self.usim.run_ahead(AHEAD);
                self.fault = fault;
            }
            _ => {}
        }
        let answer = self.usim.answer_eps(&Challenge { rand, autn }, p.plmn).map_err(|_| incomplete)?;
        match answer {
            Answer::Accepted { mut res, key } => {
                if fault == Some(Fault::WrongResponse) {
                    res[0] ^= 0xff;
                }
                let pending = self.pending.get_or_insert_default();
                pending.challenge = Some((rand, res));
                pending.key = Some((key, ksi));
                self.answer(&response(&res), out)
            }
            Answer::MacFailure => self.authentication_failure(EmmCause::MacFailure, None, out),
            Answer::SynchFailure(auts) => self.authentication_failure(EmmCause::SynchFailure, Some(auts), out),
            Answer::NoSeparation => self.authentication_failure(EmmCause::NonEpsAuthenticationUnacceptable, None, out),
        }
    }

    fn authentication_failure(
        &mut self,
        cause: EmmCause,
        auts: Option<[u8; 14]>,
        out: &mut UeOutput,
    ) -> Result<(), Violation> {
        let mut failure = NasAuthenticationFailure::new(NasEmmCause::from_cause(cause));
        if let Some(auts) = auts {
            failure.set_authentication_failure_parameter(NasAuthenticationFailureParameter::from_auts(auts));
        }
        let failure = nas::encode(failure).map_err(|_| Violation::Incomplete(kind::AUTHENTICATION_REQUEST))?;
        out.events.push(Event::AuthenticationFailed { cause: cause as u8 });
        self.answer(&failure, out)
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
        let command = match NasEpsMessage::decode(plain) {
            Ok(NasEpsMessage::Emm(_, NasEmmMessage::SecurityModeCommand(command))) => command,
            Ok(_) => return Err(Violation::Unexpected(plain.get(1).copied().unwrap_or(0))),
            Err(_) => return Err(Violation::Undecodable),
        };
        let is_new = self.take_context(&command, message)?;
        let replayed = command.replayed_ue_security_capabilities.matches_ue_network_capability(&capability(p));
        // An MME that does not know the additional capability does not repeat it (TS 24.301
        // 5.4.3.3).
        let more = &command.replayed_ue_additional_security_capability;
        let replayed = replayed && more.as_ref().is_none_or(|more| p.interworks && *more == additional(p));
        let offered = self.has_offered(p);
        if !replayed || !offered {
            let cause = if replayed { 24 } else { 23 };
            self.answer(&[0x07, 0x5f, cause], out)?;
            return Err(Violation::SecurityMode);
        }
        self.secured = true;
        self.security_mode_complete(&command, is_new, out)
    }

    /// Selects the context that the command names and verifies the command's MAC with it. Returns
    /// true if the command activates that context or other algorithms.
    fn take_context(&mut self, command: &NasSecurityModeCommand, message: &[u8]) -> Result<bool, Violation> {
        let algorithms = command.selected_nas_security_algorithms.value;
        let ciphering = CipheringAlgorithm::try_from(algorithms >> 4 & 7).map_err(|_| Violation::SecurityMode)?;
        let integrity = IntegrityAlgorithm::try_from(algorithms & 7).map_err(|_| Violation::SecurityMode)?;
        let identifier = command.nas_key_set_identifier.key_set_identifier();
        let KeySetIdentifier::Native(ksi) = identifier else { return Err(Violation::SecurityMode) };
        let fresh = self.pending.as_mut().and_then(|pending| pending.key.take_if(|(_, fresh)| *fresh == ksi));
        let fresh = fresh.map(|(k_asme, _)| EpsSecurity::new(k_asme, ksi, ciphering, integrity));
        self.activate(fresh, |security| security.ksi() == ksi, (ciphering, integrity), message)
    }

    fn security_mode_complete(
        &mut self,
        command: &NasSecurityModeCommand,
        is_new: bool,
        out: &mut UeOutput,
    ) -> Result<(), Violation> {
        let violation = Violation::Incomplete(kind::SECURITY_MODE_COMMAND);
        let mut complete = NasSecurityModeComplete::new();
        if command.imeisv_request.as_ref().is_some_and(|request| request.is_requested()) {
            complete.set_imeisv(self.imeisv().ok_or(violation)?);
        }
        // TS 24.301 5.4.3.3: the MME received another request than the UE sent.
        if let (Some(hash), Some(pending)) = (&command.hash_mme, &self.pending)
            && hash.value[..] != compute_hash_mme(&pending.request)
        {
            complete.set_replayed_nas_message_container(NasReplayedNasMessageContainer::new(&pending.request[..]));
        }
        let complete = nas::encode(complete).map_err(|_| violation)?;
        self.complete_security_mode(&complete, is_new, out)
    }
}
