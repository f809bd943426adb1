//! EPS bearer contexts of the UE (TS 24.301 6).
//!
//! Each PDN connection has its default bearer. Scenarios name it by a PDU session identity, which
//! it also has in 5G ([`Session::other`]). The network assigns the EPS bearer identity.

use super::attach::encoding;
use super::security::header;
use super::{
    ATTACH_PSI, ATTACH_PTI, Cause, CommandError, Event, LteUe, Profile, Session, SessionState, UeOutput, Violation,
};
use crate::ue::{Address, SessionVariant, UNKNOWN_DATA_NETWORK};
use vireo_types::PduSessionType;
use vireo_wire::nas_eps::{
    EsmCause, NasAccessPointName, NasActivateDefaultEpsBearerContextRequest, NasEpsMessage, NasEsmHeader,
    NasEsmInformationResponse, NasEsmInformationTransferFlag, NasEsmMessage, NasEsmMessageContainer,
    NasLinkedEpsBearerIdentity, NasPdnConnectivityRequest, NasPdnDisconnectRequest, NasPdnType,
    NasProtocolConfigurationOptions, NasRequestType, PdnType, RequestTypeValue,
};

/// EPS bearer identities that the network assigns (TS 24.007 11.2.3.1.5).
const EBIS: std::ops::RangeInclusive<u8> = 5..=15;
/// Message types (TS 24.301 table 9.8.2).
const ACTIVATE_DEFAULT_ACCEPT: u8 = 0xc2;
const MODIFY_ACCEPT: u8 = 0xca;
const DEACTIVATE_ACCEPT: u8 = 0xce;
/// Requests for DNS servers and the link MTU by PPP configuration (TS 24.008 10.5.6.3).
const OPTIONS: [u8; 7] = [0x80, 0x00, 0x0d, 0x00, 0x00, 0x10, 0x00];

/// Returns the PDN CONNECTIVITY REQUEST of an attach. The UE names its APN only under protection
/// (TS 24.301 6.5.1.2).
pub(super) fn connectivity_request(
    p: &Profile,
    kind: PduSessionType,
    is_emergency: bool,
) -> Result<Vec<u8>, CommandError> {
    // The network selects the data network of emergencies (TS 24.301 6.5.1.2).
    let request_type = if is_emergency { RequestTypeValue::Emergency } else { RequestTypeValue::Initial };
    let mut request = request(p, request_type, wire_kind(kind), ATTACH_PSI);
    if p.requests_apn && !is_emergency {
        request.set_esm_information_transfer_flag(NasEsmInformationTransferFlag::from_required(true));
    }
    NasEpsMessage::new_esm(request, 0, ATTACH_PTI).encode().map_err(encoding)
}

fn wire_kind(kind: PduSessionType) -> PdnType {
    match kind {
        PduSessionType::Ipv4 => PdnType::Ipv4,
        PduSessionType::Ipv6 => PdnType::Ipv6,
        PduSessionType::Ipv4v6 => PdnType::Ipv4v6,
    }
}

/// Returns a PDN CONNECTIVITY REQUEST without APN.
fn request(p: &Profile, kind: RequestTypeValue, pdn_type: PdnType, psi: u8) -> NasPdnConnectivityRequest {
    let kind = NasRequestType::from_request_type(kind);
    let mut options = OPTIONS.to_vec();
    if p.interworks {
        // PDU session ID (TS 24.008 10.5.6.3, container 001AH).
        options.extend_from_slice(&[0x00, 0x1a, 1, psi]);
    }
    NasPdnConnectivityRequest::new(kind, NasPdnType::from_pdn_type(pdn_type))
        .with_protocol_configuration_options(NasProtocolConfigurationOptions::new(options))
}

/// Returns an ACTIVATE DEFAULT EPS BEARER CONTEXT ACCEPT.
pub(super) fn activation_accept(ebi: u8) -> [u8; 3] {
    esm(ebi, 0, ACTIVATE_DEFAULT_ACCEPT)
}

/// Returns an ESM message without IEs.
fn esm(ebi: u8, pti: u8, kind: u8) -> [u8; 3] {
    [ebi << 4 | super::security::PD_ESM, pti, kind]
}

/// Returns PDN type and address of a default bearer, if they fit the requested type and APN (TS
/// 24.301 6.5.1.3). `None` in place of the profile: the UE has requested no APN.
fn activated(
    p: Option<&Profile>,
    requested: PduSessionType,
    request: &NasActivateDefaultEpsBearerContextRequest,
) -> Option<(PduSessionType, Address)> {
    let assigned = &request.pdn_address;
    let address = Address { ipv4: assigned.ipv4().map(Into::into), interface: assigned.ipv6_interface_id() };
    let kind = match (address.ipv4, address.interface) {
        (Some(_), None) => PduSessionType::Ipv4,
        (None, Some(_)) => PduSessionType::Ipv6,
        (Some(_), Some(_)) => PduSessionType::Ipv4v6,
        (None, None) => return None,
    };
    // The network says why a UE gets one address of two.
    let cause = request.esm_cause.as_ref().and_then(|cause| cause.cause());
    let is_explained = matches!(
        cause,
        Some(
            EsmCause::PdnTypeIpv4OnlyAllowed
                | EsmCause::PdnTypeIpv6OnlyAllowed
                | EsmCause::SingleAddressBearersOnlyAllowed
        )
    );
    let fits = kind == requested || requested == PduSessionType::Ipv4v6 && is_explained;
    // The name may have an operator identifier (TS 23.003 9.1).
    let apn = request.access_point_name.as_string()?;
    let is_it = |dnn: &str| apn.strip_prefix(dnn).is_some_and(|rest| rest.is_empty() || rest.starts_with(".mnc"));
    let is_named = p.is_none_or(|p| !p.requests_apn || is_it(p.dnn.as_str()));
    // The QCI is never 0 (TS 24.301 9.9.4.3).
    let has_class = request.eps_qos.value.first().is_some_and(|class| *class != 0);
    (fits && is_named && has_class).then_some((kind, address))
}

impl LteUe {
    /// Returns true if the session with this PDU session identity is active.
    pub(crate) fn is_active(&self, psi: u8) -> bool {
        self.sessions.iter().any(|session| session.other == psi && session.state == SessionState::Active)
    }

    /// Starts the establishment of a further PDN connection, session `psi`, in this way. Slices,
    /// SSC modes and always-on sessions are those of 5G.
    pub fn establish_as(
        &mut self,
        p: &Profile,
        (psi, kind): (u8, PduSessionType),
        variant: SessionVariant,
        out: &mut UeOutput,
    ) -> Result<(), CommandError> {
        let pdn_type = match variant {
            SessionVariant::Ethernet => PdnType::Ethernet,
            SessionVariant::Unstructured => PdnType::NonIp,
            SessionVariant::Usual | SessionVariant::Repeated | SessionVariant::UnknownDataNetwork => wire_kind(kind),
            _ => return Err(CommandError::Session(psi)),
        };
        let apn = match variant {
            SessionVariant::UnknownDataNetwork => Some(UNKNOWN_DATA_NETWORK),
            _ => p.requests_apn.then_some(p.dnn.as_str()),
        };
        let pti = self.begin_session(psi)?;
        let mut request = request(p, RequestTypeValue::Initial, pdn_type, psi);
        if let Some(apn) = apn {
            request.set_access_point_name(NasAccessPointName::from_string(apn).map_err(encoding)?);
        }
        let request = NasEpsMessage::new_esm(request, 0, pti).encode().map_err(encoding)?;
        for _ in 0..if variant == SessionVariant::Repeated { 2 } else { 1 } {
            self.send(header::CIPHERED, &request, out)?;
        }
        self.add_session(Session { other: psi, ..Session::pending(pti, kind) });
        Ok(())
    }

    /// Starts the disconnect of the PDN connection of session `psi`.
    pub fn release(&mut self, psi: u8, out: &mut UeOutput) -> Result<(), CommandError> {
        let pti = self.begin_transaction()?;
        let active = |session: &&mut Session| session.other == psi && session.state == SessionState::Active;
        let session = self.sessions.iter_mut().find(active).ok_or(CommandError::Session(psi))?;
        (session.state, session.pti) = (SessionState::Releasing, pti);
        let request = NasPdnDisconnectRequest::new(NasLinkedEpsBearerIdentity::new(session.psi));
        let request = NasEpsMessage::new_esm(request, 0, pti).encode().map_err(encoding)?;
        self.send(header::CIPHERED, &request, out)
    }

    /// Returns the bearer that the network activates in an ATTACH ACCEPT.
    pub(super) fn default_bearer(&self, p: &Profile, container: &NasEsmMessageContainer) -> Option<Session> {
        let NasEpsMessage::Esm(head, message) = container.decode_as_esm_message().ok()? else { return None };
        let NasEsmMessage::ActivateDefaultEpsBearerContextRequest(request) = message else { return None };
        let psi = Some(head.eps_bearer_identity).filter(|ebi| EBIS.contains(ebi))?;
        let is_over_nas = request.control_plane_only_indication.as_ref().is_some_and(|indication| indication.cpoi());
        if head.procedure_transaction_identity != ATTACH_PTI || is_over_nas != self.own.over_nas {
            return None;
        }
        let (kind, address) = activated(Some(p).filter(|_| !self.own.is_emergency), self.own.requested, &request)?;
        // The subscriber has a static address: each attach gets it.
        if self.own.has_static_address && self.own.static_address.is_some_and(|own| address.ipv4 != Some(own)) {
            return None;
        }
        Some(Session { psi, pti: ATTACH_PTI, kind, state: SessionState::Active, address, other: ATTACH_PSI })
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
        let known = EBIS.contains(&ebi) && self.sessions.iter().any(|session| session.psi == ebi);
        match message {
            NasEsmMessage::EsmInformationRequest(_) if pti == ATTACH_PTI && self.pending.is_some() => {
                let incomplete = Violation::Incomplete(kind);
                let apn = NasAccessPointName::from_string(p.dnn.as_str()).map_err(|_| incomplete)?;
                let response = NasEsmInformationResponse::new().with_access_point_name(apn);
                let response = NasEpsMessage::new_esm(response, 0, pti).encode().map_err(|_| incomplete)?;
                self.answer(&response, out)
            }
            NasEsmMessage::ActivateDefaultEpsBearerContextRequest(request) => {
                self.activation_requested(p, kind, head, &request, out)
            }
            NasEsmMessage::EsmDataTransport(data) if known && self.own.over_nas => {
                out.packets.push(data.user_data_container.value.to_vec());
                out.events.push(Event::Data { psi: ebi });
                Ok(())
            }
            NasEsmMessage::ModifyEpsBearerContextRequest(_) if known => self.answer(&esm(ebi, 0, MODIFY_ACCEPT), out),
            NasEsmMessage::DeactivateEpsBearerContextRequest(_) if EBIS.contains(&ebi) => {
                self.deactivation_requested(kind, (ebi, pti), out)
            }
            NasEsmMessage::PdnConnectivityReject(reject) => {
                let session = self.transaction(pti, SessionState::Pending).ok_or(Violation::Unexpected(kind))?;
                let psi = session.other;
                self.sessions.retain(|session| session.other != psi);
                out.events.push(Event::SessionRejected { psi, cause: Cause::Esm(reject.esm_cause.value) });
                Ok(())
            }
            NasEsmMessage::PdnDisconnectReject(reject) => {
                let session = self.transaction(pti, SessionState::Releasing).ok_or(Violation::Unexpected(kind))?;
                session.state = SessionState::Active;
                let (psi, cause) = (session.psi, Cause::Esm(reject.esm_cause.value));
                out.events.push(Event::SessionRejected { psi, cause });
                Ok(())
            }
            NasEsmMessage::EsmStatus(status) => {
                out.events.push(Event::Status(Cause::Esm(status.esm_cause.value)));
                Ok(())
            }
            _ => Err(Violation::Unexpected(kind)),
        }
    }

    /// Returns the session in this state whose procedure has this transaction identity.
    fn transaction(&mut self, pti: u8, state: SessionState) -> Option<&mut Session> {
        self.sessions.iter_mut().find(|session| session.pti == pti && session.state == state)
    }

    /// Handles the activation of the default bearer of a further PDN connection. A repeat is
    /// answered again (TS 24.301 6.4.1.6, 7.3.1).
    fn activation_requested(
        &mut self,
        p: &Profile,
        kind: u8,
        head: NasEsmHeader,
        request: &NasActivateDefaultEpsBearerContextRequest,
        out: &mut UeOutput,
    ) -> Result<(), Violation> {
        let (ebi, pti) = (head.eps_bearer_identity, head.procedure_transaction_identity);
        let incomplete = Violation::Incomplete(kind);
        let is_repeat =
            |session: &Session| session.psi == ebi && session.pti == pti && session.state == SessionState::Active;
        if !self.sessions.iter().any(is_repeat) {
            let is_taken = |session: &Session, address: Address| {
                session.psi == ebi || session.address.ipv4.is_some() && session.address.ipv4 == address.ipv4
            };
            let requested = self.transaction(pti, SessionState::Pending).ok_or(Violation::Unexpected(kind))?.kind;
            let (kind, address) = activated(Some(p), requested, request).ok_or(incomplete)?;
            if !EBIS.contains(&ebi) || self.sessions.iter().any(|session| is_taken(session, address)) {
                return Err(incomplete);
            }
            if let Some(session) = self.transaction(pti, SessionState::Pending) {
                *session = Session { psi: ebi, kind, state: SessionState::Active, address, ..*session };
                out.events.push(Event::SessionUp { psi: ebi, address });
            }
        }
        self.answer(&activation_accept(ebi), out)
    }

    /// Handles the deactivation of a bearer. The UE accepts it, too, for a bearer that it does not
    /// have (TS 24.301 7.3.2).
    fn deactivation_requested(&mut self, kind: u8, (ebi, pti): (u8, u8), out: &mut UeOutput) -> Result<(), Violation> {
        let session = self.sessions.iter().find(|session| session.psi == ebi).copied();
        // The network names a transaction only if it is that of the UE's request.
        let answers = |session: &Session| session.state == SessionState::Releasing && session.pti == pti;
        if pti != 0 && session.is_some_and(|session| !answers(&session)) {
            return Err(Violation::Unexpected(kind));
        }
        self.sessions.retain(|session| session.psi != ebi);
        self.answer(&esm(ebi, 0, DEACTIVATE_ACCEPT), out)?;
        out.events.extend(session.map(|_| Event::SessionReleased { psi: ebi }));
        Ok(())
    }
}
