//! EAP-AKA' of the UE (TS 24.501 5.4.1.2, TS 33.501 6.1.3.1, RFC 9048).

use super::nas::{self, kind};
use super::security::SecurityContext;
use super::{AHEAD, EapConversation, Event, Fault, Profile, Ue, UeOutput, Violation};
use crate::usim::{Answer, Challenge};
use vireo_wire::eap::{self, Attributes, Body, Code, Packet, Subtype};
use vireo_wire::nas::{
    GmmCause, NasAuthenticationReject, NasAuthenticationRequest, NasAuthenticationResponse, NasEapMessage,
    NasSecurityModeCommand,
};

/// Returns the attributes of EAP-Request/AKA'-Challenge with its identifier.
fn read(packet: &[u8]) -> Option<(u8, Attributes<'_>)> {
    let Ok(Packet { code: Code::Request, identifier, body: Body::AkaPrime(message) }) = Packet::parse(packet) else {
        return None;
    };
    let attributes = message.attributes().ok().filter(|_| message.subtype == Some(Subtype::Challenge))?;
    Some((identifier, attributes))
}

impl Ue {
    /// Makes each further 5G AKA a deviation of the network.
    pub fn require_eap(&mut self) {
        self.own.requires_eap = true;
    }

    /// Handles AUTHENTICATION REQUEST with an EAP message and this ngKSI.
    pub(super) fn eap_request(
        &mut self,
        p: &Profile,
        (request, packet): (&NasAuthenticationRequest, &[u8]),
        ksi: u8,
        out: &mut UeOutput,
    ) -> Result<(), Violation> {
        let incomplete = Violation::Incomplete(kind::AUTHENTICATION_REQUEST);
        // RFC 3748 4.1: a retransmitted request gets the same response.
        if let Some(former) = self.own.conversation.take_if(|former| former.request == packet) {
            let answered = self.answer(&former.answer, out);
            self.own.conversation = Some(former);
            return answered;
        }
        let fault = self.fault.take();
        if fault == Some(Fault::KeySetInUse) || self.security.as_ref().is_some_and(|s| s.ksi() == ksi) {
            return self.authentication_failure(GmmCause::NgKsiAlreadyInUse, None, out);
        }
        if matches!(fault, Some(Fault::SynchFailure | Fault::RepeatedSynchFailure)) {
            self.usim.run_ahead(AHEAD);
            self.fault = fault.filter(|fault| *fault == Fault::RepeatedSynchFailure);
        }
        let (identifier, attributes) = read(packet).ok_or(incomplete)?;
        let (Some(rand), Some(autn), Some(mac_at)) = (attributes.rand, attributes.autn, attributes.mac_at) else {
            return Err(incomplete);
        };
        // The name binds the keys to the serving network.
        if attributes.network_name != Some(p.network_name()) || attributes.kdf != Some(eap::KDF) {
            return Err(incomplete);
        }
        let challenge = Challenge { rand: *rand, autn: *autn };
        let verdict =
            self.usim.answer_eap(&challenge, p.network_name(), &request.abba.value).map_err(|_| incomplete)?;
        let failed = |cause: GmmCause| Some(Event::AuthenticationFailed { cause: cause as u8 });
        let (answer, event) = match verdict {
            _ if fault == Some(Fault::MacFailure) => {
                (eap::authentication_reject(identifier), failed(GmmCause::MacFailure))
            }
            _ if fault == Some(Fault::EapClientError) => (eap::client_error(identifier, 0), None),
            Answer::MacFailure => (eap::authentication_reject(identifier), failed(GmmCause::MacFailure)),
            Answer::NoSeparation => {
                let cause = GmmCause::NonFiveGAuthenticationUnacceptable;
                (eap::authentication_reject(identifier), failed(cause))
            }
            Answer::SynchFailure(auts) => {
                (eap::synchronization_failure(identifier, &auts), failed(GmmCause::SynchFailure))
            }
            Answer::Accepted { key: (session, _), .. } if !eap::has_mac(packet, mac_at, session.k_aut()) => {
                return Err(Violation::WrongMac);
            }
            Answer::Accepted { mut res, key: (session, k_amf) } => {
                if fault == Some(Fault::WrongResponse) {
                    res[0] ^= 0xff;
                }
                let mut answer = eap::response(identifier, &res, session.k_aut());
                if let (Some(Fault::WrongEapMac), Some(last)) = (fault, answer.last_mut()) {
                    *last ^= 0xff;
                }
                let pending = self.pending.get_or_insert_default();
                (pending.key, pending.is_mapped) = (Some((k_amf, ksi)), false);
                (answer, None)
            }
        };
        let message = NasAuthenticationResponse::new().with_eap_message(NasEapMessage::new(answer));
        let answer = nas::encode(message).map_err(|_| incomplete)?;
        out.events.extend(event);
        self.answer(&answer, out)?;
        self.own.conversation = Some(Box::new(EapConversation { request: packet.to_vec(), answer, identifier }));
        Ok(())
    }

    /// Checks that SECURITY MODE COMMAND takes the keys of an EAP conversation into use with
    /// EAP-Success, and other keys without (TS 24.501 5.4.2.2).
    pub(super) fn check_eap_success(&mut self, command: &NasSecurityModeCommand) -> Result<(), Violation> {
        let expected = self.own.conversation.take().map(|conversation| eap::success(conversation.identifier));
        let received = command.eap_message.as_ref().map(|message| &message.value[..]);
        match received == expected.as_ref().map(|packet| &packet[..]) {
            true if expected.is_none() || command.abba.is_some() => Ok(()),
            _ => Err(Violation::SecurityMode),
        }
    }

    /// Checks that AUTHENTICATION REJECT ends an EAP conversation with EAP-Failure (TS 24.501
    /// 5.4.1.2.1), and has none otherwise.
    pub(super) fn check_eap_failure(&mut self, reject: &NasAuthenticationReject) -> Result<(), Violation> {
        let expected = self.own.conversation.take().map(|conversation| eap::failure(conversation.identifier));
        let received = reject.eap_message.as_ref().map(|message| &message.value[..]);
        match received == expected.as_ref().map(|packet| &packet[..]) {
            true => Ok(()),
            false => Err(Violation::Incomplete(kind::AUTHENTICATION_REJECT)),
        }
    }
}
