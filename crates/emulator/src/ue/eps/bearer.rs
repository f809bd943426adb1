//! EPS bearer contexts of the UE (TS 24.301 6).

use super::attach::encoding;
use super::{Cause, CommandError, Event, LteUe, Profile, Session, SessionState, UeOutput, Violation};
use crate::ue::Address;
use vireo_types::PduSessionType;
use vireo_wire::nas_eps::{
    NasAccessPointName, NasActivateDefaultEpsBearerContextRequest, NasEpsMessage, NasEsmHeader,
    NasEsmInformationResponse, NasEsmInformationTransferFlag, NasEsmMessage, NasEsmMessageContainer,
    NasPdnConnectivityRequest, NasPdnType, NasProtocolConfigurationOptions, NasRequestType, PdnType, RequestTypeValue,
};

/// Procedure transaction identity of the PDN connectivity request in an attach.
pub(super) const PTI: u8 = 1;
/// That of a request outside an attach.
const LATER_PTI: u8 = 2;
/// That of a disconnect request.
const DISCONNECT_PTI: u8 = 3;
/// PDU session identity of the default bearer in 5G.
const PSI: u8 = 1;
/// Message types (TS 24.301 table 9.8.2).
const ACTIVATE_DEFAULT_ACCEPT: u8 = 0xc2;
const MODIFY_ACCEPT: u8 = 0xca;
const DEACTIVATE_ACCEPT: u8 = 0xce;
const DISCONNECT: u8 = 0xd2;
/// Requests for DNS servers and the link MTU by PPP configuration (TS 24.008 10.5.6.3).
const OPTIONS: [u8; 7] = [0x80, 0x00, 0x0d, 0x00, 0x00, 0x10, 0x00];

/// Returns the PDN CONNECTIVITY REQUEST of an attach. The UE names its APN only under protection
/// (TS 24.301 6.5.1.2).
pub(super) fn connectivity_request(p: &Profile, kind: PduSessionType, pti: u8) -> Result<Vec<u8>, CommandError> {
    let kind = NasPdnType::from_pdn_type(match kind {
        PduSessionType::Ipv4 => PdnType::Ipv4,
        PduSessionType::Ipv6 => PdnType::Ipv6,
        PduSessionType::Ipv4v6 => PdnType::Ipv4v6,
    });
    let request = NasRequestType::from_request_type(RequestTypeValue::Initial);
    let mut request = NasPdnConnectivityRequest::new(request, kind);
    if p.requests_apn && pti == PTI {
        request.set_esm_information_transfer_flag(NasEsmInformationTransferFlag::from_required(true));
    }
    let mut options = OPTIONS.to_vec();
    if p.interworks {
        // PDU session ID (TS 24.008 10.5.6.3, container 001AH).
        options.extend_from_slice(&[0x00, 0x1a, 1, PSI]);
    }
    request.set_protocol_configuration_options(NasProtocolConfigurationOptions::new(options));
    NasEpsMessage::new_esm(request, 0, pti).encode().map_err(encoding)
}

/// Returns a PDN DISCONNECT REQUEST (TS 24.301 8.3.22).
pub(super) fn disconnect_request(ebi: u8) -> [u8; 4] {
    [super::security::PD_ESM, DISCONNECT_PTI, DISCONNECT, ebi]
}

/// Returns an ACTIVATE DEFAULT EPS BEARER CONTEXT ACCEPT.
pub(super) fn activation_accept(ebi: u8) -> [u8; 3] {
    esm(ebi, 0, ACTIVATE_DEFAULT_ACCEPT)
}

/// Returns an ESM message without IEs.
fn esm(ebi: u8, pti: u8, kind: u8) -> [u8; 3] {
    [ebi << 4 | super::security::PD_ESM, pti, kind]
}

impl LteUe {
    /// Requests a PDN connection of this type outside an attach.
    pub fn establish(&mut self, p: &Profile, kind: PduSessionType, out: &mut UeOutput) -> Result<(), CommandError> {
        self.own.requested = kind;
        let request = connectivity_request(p, kind, LATER_PTI)?;
        self.connect(&request, out)
    }

    /// Returns the bearer that the network activates in an ATTACH ACCEPT.
    pub(super) fn default_bearer(&self, container: &NasEsmMessageContainer) -> Option<Session> {
        let NasEpsMessage::Esm(head, message) = container.decode_as_esm_message().ok()? else { return None };
        let NasEsmMessage::ActivateDefaultEpsBearerContextRequest(request) = message else { return None };
        self.activated(&head, &request, PTI)
    }

    /// Returns the bearer of an activation that answers the request with this PTI.
    fn activated(
        &self,
        head: &NasEsmHeader,
        request: &NasActivateDefaultEpsBearerContextRequest,
        pti: u8,
    ) -> Option<Session> {
        let psi = Some(head.eps_bearer_identity).filter(|ebi| *ebi >= 5)?;
        let is_over_nas = request.control_plane_only_indication.as_ref().is_some_and(|indication| indication.cpoi());
        if head.procedure_transaction_identity != pti || is_over_nas != self.own.over_nas {
            return None;
        }
        let assigned = &request.pdn_address;
        let address = Address { ipv4: assigned.ipv4().map(Into::into), interface: assigned.ipv6_interface_id() };
        let kind = match (address.ipv4, address.interface) {
            (Some(_), None) => PduSessionType::Ipv4,
            (None, Some(_)) => PduSessionType::Ipv6,
            (Some(_), Some(_)) => PduSessionType::Ipv4v6,
            (None, None) => return None,
        };
        let fits = self.own.requested == PduSessionType::Ipv4v6 || self.own.requested == kind;
        fits.then_some(Session { psi, pti: 0, kind, state: SessionState::Active, address, other: PSI })
    }

    /// Handles an ESM message outside of an attach.
    pub(super) fn bearer_message(
        &mut self,
        p: &Profile,
        kind: u8,
        head: NasEsmHeader,
        message: NasEsmMessage,
        out: &mut UeOutput,
    ) -> Result<(), Violation> {
        let (ebi, pti) = (head.eps_bearer_identity, head.procedure_transaction_identity);
        let known = self.sessions.iter().any(|session| session.psi == ebi);
        match message {
            NasEsmMessage::EsmInformationRequest(_) if pti == PTI && self.pending.is_some() => {
                let incomplete = Violation::Incomplete(kind);
                let apn = NasAccessPointName::from_string(p.dnn.as_str()).map_err(|_| incomplete)?;
                let response = NasEsmInformationResponse::new().with_access_point_name(apn);
                let response = NasEpsMessage::new_esm(response, 0, pti).encode().map_err(|_| incomplete)?;
                self.answer(&response, out)
            }
            NasEsmMessage::ActivateDefaultEpsBearerContextRequest(request) if !known => {
                let session = self.activated(&head, &request, LATER_PTI).ok_or(Violation::Incomplete(kind))?;
                self.sessions.push(session);
                self.answer(&activation_accept(ebi), out)?;
                out.events.push(Event::SessionUp { psi: ebi, address: session.address });
                Ok(())
            }
            NasEsmMessage::EsmDataTransport(data) if known && self.own.over_nas => {
                out.packets.push(data.user_data_container.value.to_vec());
                out.events.push(Event::Data { psi: ebi });
                Ok(())
            }
            NasEsmMessage::ModifyEpsBearerContextRequest(_) if known => self.answer(&esm(ebi, 0, MODIFY_ACCEPT), out),
            NasEsmMessage::DeactivateEpsBearerContextRequest(_) if known => {
                self.sessions.retain(|session| session.psi != ebi);
                self.answer(&esm(ebi, 0, DEACTIVATE_ACCEPT), out)?;
                out.events.push(Event::SessionReleased { psi: ebi });
                Ok(())
            }
            NasEsmMessage::PdnConnectivityReject(reject) => {
                let cause = Cause::Esm(reject.esm_cause.value);
                out.events.push(Event::SessionRejected { psi: ebi, cause });
                Ok(())
            }
            NasEsmMessage::EsmStatus(status) => {
                out.events.push(Event::Status(Cause::Esm(status.esm_cause.value)));
                Ok(())
            }
            _ => Err(Violation::Unexpected(kind)),
        }
    }
}
