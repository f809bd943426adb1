//! PDU sessions: 5GSM inside UL and DL NAS TRANSPORT (TS 24.501 6.4, 5.4.5).

use super::nas::{self, kind};
use super::registration::sd_octets;
use super::security::header;
use super::{Address, Cause, CommandError, Event, Profile, Session, SessionState, Ue, UeOutput, Violation};
use vireo_types::PduSessionType;
use vireo_wire::nas::{
    Nas5gsMessage, Nas5gsmMessage, NasAlwaysOnPduSessionRequested, NasDlNasTransport, NasDnn,
    NasExtendedProtocolConfigurationOptions, NasIntegrityProtectionMaximumDataRate, NasPayloadContainer,
    NasPayloadContainerType, NasPduSessionEstablishmentAccept, NasPduSessionEstablishmentRequest,
    NasPduSessionIdentity2, NasPduSessionType, NasRequestType, NasSNssai, NasSscMode, NasUlNasTransport,
    PayloadContainerKind, PduSessionTypeValue, RequestTypeValue, SscModeValue,
};

/// How a UE requests a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SessionVariant {
    Usual,
    /// The UE sends its request twice, as after the expiry of T3580.
    Repeated,
    /// The UE sends another request for the session before the answer to the first one.
    Colliding,
    /// The network has a session of this identity, which the UE does not have any more.
    Replacing,
    AlwaysOn,
    /// The subscriber has a static address: the session must have that of the UE's earlier ones.
    StaticAddress,
    /// The UE names a data network to which no subscriber has access.
    UnknownDataNetwork,
    /// The UE names a slice that is not allowed.
    UnknownSlice,
    SscMode2,
    SscMode3,
    Ethernet,
    Unstructured,
}

/// Data network of [`SessionVariant::UnknownDataNetwork`].
pub(crate) const UNKNOWN_DATA_NETWORK: &str = "nowhere";
/// SST of [`SessionVariant::UnknownSlice`].
const UNKNOWN_SST: u8 = 77;

/// Extended PCO of a UE that requests IPv6 and IPv4 DNS servers and the IPv4 link MTU (TS 24.008
/// 10.5.6.3).
const PCO: [u8; 10] = [0x80, 0, 0x03, 0, 0, 0x0d, 0, 0, 0x10, 0];

/// 5GSM message types (TS 24.501 9.7).
const RELEASE_REQUEST: u8 = 0xd1;
const RELEASE_COMPLETE: u8 = 0xd4;
const MODIFICATION_REQUEST: u8 = 0xc9;
const MODIFICATION_COMPLETE: u8 = 0xcc;
const STATUS: u8 = 0xd6;
/// 5GSM cause: invalid PDU session identity.
const NO_SESSION: u8 = 43;

fn wire_kind(kind: PduSessionType) -> PduSessionTypeValue {
    match kind {
        PduSessionType::Ipv4 => PduSessionTypeValue::Ipv4,
        PduSessionType::Ipv6 => PduSessionTypeValue::Ipv6,
        PduSessionType::Ipv4v6 => PduSessionTypeValue::Ipv4v6,
    }
}

impl Ue {
    fn session(&mut self, psi: u8) -> Option<&mut Session> {
        self.sessions.iter_mut().find(|session| session.psi == psi)
    }

    /// Starts the establishment of PDU session `psi`.
    pub fn establish(
        &mut self,
        p: &Profile,
        psi: u8,
        kind: PduSessionType,
        out: &mut UeOutput,
    ) -> Result<(), CommandError> {
        self.establish_as(p, (psi, kind), SessionVariant::Usual, out)
    }

    /// Starts the establishment of PDU session `psi` in this way.
    pub fn establish_as(
        &mut self,
        p: &Profile,
        (psi, kind): (u8, PduSessionType),
        variant: SessionVariant,
        out: &mut UeOutput,
    ) -> Result<(), CommandError> {
        if variant == SessionVariant::Replacing {
            self.forget_session(psi);
        }
        if variant == SessionVariant::Colliding {
            self.establish_as(p, (psi, kind), SessionVariant::Usual, out)?;
            // TS 24.501 7.3.1: no procedure of the UE has its PTI any more.
            self.own.former_pti = self.session(psi).map(|session| session.pti);
            self.forget_session(psi);
        }
        let pti = self.begin_session(psi)?;
        let encoding = |e: &dyn std::fmt::Display| CommandError::Encoding(e.to_string());
        let requested = match variant {
            SessionVariant::Ethernet => PduSessionTypeValue::Ethernet,
            SessionVariant::Unstructured => PduSessionTypeValue::Unstructured,
            _ => wire_kind(kind),
        };
        let mode = match variant {
            SessionVariant::SscMode2 => SscModeValue::Ssc2,
            SessionVariant::SscMode3 => SscModeValue::Ssc3,
            _ => SscModeValue::Ssc1,
        };
        let mut request = NasPduSessionEstablishmentRequest::new(NasIntegrityProtectionMaximumDataRate::new(0xffff))
            .with_pdu_session_type(NasPduSessionType::from_session_type(requested))
            .with_ssc_mode(NasSscMode::from_mode(mode))
            .with_extended_protocol_configuration_options(NasExtendedProtocolConfigurationOptions::new(&PCO[..]));
        let is_always_on = variant == SessionVariant::AlwaysOn;
        if is_always_on {
            request.set_always_on_pdu_session_requested(NasAlwaysOnPduSessionRequested::from_apsr(true));
        }
        let request = Nas5gsMessage::new_5gsm(request, psi, pti).encode().map_err(|e| encoding(&e))?;
        let snssai = match variant {
            SessionVariant::UnknownSlice => NasSNssai::from_sst_sd(UNKNOWN_SST, None),
            _ => NasSNssai::from_sst_sd(p.snssai.sst, p.snssai.sd.map(sd_octets)),
        };
        let dnn = match variant {
            SessionVariant::UnknownDataNetwork => UNKNOWN_DATA_NETWORK,
            _ => p.dnn.as_str(),
        };
        let transport = uplink_transport(&request, psi);
        let transport = match self.own.is_emergency {
            // The network selects slice and data network (TS 24.501 6.4.1.2).
            true => transport
                .with_request_type(NasRequestType::from_request_type(RequestTypeValue::InitialEmergencyRequest)),
            false => transport
                .with_request_type(NasRequestType::from_request_type(RequestTypeValue::InitialRequest))
                .with_s_nssai(snssai)
                .with_dnn(NasDnn::from_string(dnn).map_err(|e| encoding(&e))?),
        };
        let transport = nas::encode(transport)?;
        for _ in 0..if variant == SessionVariant::Repeated { 2 } else { 1 } {
            self.send(header::CIPHERED, &transport, out)?;
        }
        self.own.always_on = is_always_on.then_some(psi);
        self.own.has_static_address = variant == SessionVariant::StaticAddress;
        self.add_session(Session { psi, ..Session::pending(pti, kind) });
        Ok(())
    }

    /// Starts the release of PDU session `psi`.
    pub fn release(&mut self, psi: u8, out: &mut UeOutput) -> Result<(), CommandError> {
        let pti = self.begin_transaction()?;
        let session = self.session(psi).ok_or(CommandError::Session(psi))?;
        (session.state, session.pti) = (SessionState::Releasing, pti);
        self.send_5gsm(psi, &[0x2e, psi, pti, RELEASE_REQUEST], out)
    }

    /// Requests the modification of PDU session `psi`, without changes.
    pub fn request_modification(&mut self, psi: u8, out: &mut UeOutput) -> Result<(), CommandError> {
        let pti = self.begin_transaction()?;
        let session = self.session(psi).ok_or(CommandError::Session(psi))?;
        session.pti = pti;
        self.send_5gsm(psi, &[0x2e, psi, pti, MODIFICATION_REQUEST], out)
    }

    fn send_5gsm(&mut self, psi: u8, message: &[u8], out: &mut UeOutput) -> Result<(), CommandError> {
        let transport = nas::encode(uplink_transport(message, psi))?;
        self.send(header::CIPHERED, &transport, out)
    }

    pub(super) fn downlink_transport(
        &mut self,
        transport: &NasDlNasTransport,
        out: &mut UeOutput,
    ) -> Result<(), Violation> {
        let incomplete = Violation::Incomplete(kind::DL_NAS_TRANSPORT);
        if transport.payload_container_type.kind() != Some(PayloadContainerKind::N1SmInformation) {
            return Err(Violation::Unexpected(kind::DL_NAS_TRANSPORT));
        }
        if let Some(cause) = &transport.fgmm_cause {
            // The network returns the payload unsent (TS 24.501 5.4.5.3.1 case a).
            let psi = transport.pdu_session_id.as_ref().map(|id| id.pdu_session_id()).ok_or(incomplete)?;
            self.sessions.retain(|session| session.psi != psi || session.state == SessionState::Active);
            out.events.push(Event::SessionRejected { psi, cause: Cause::Mm(cause.value) });
            return Ok(());
        }
        match Nas5gsMessage::decode(&transport.payload_container.value) {
            Ok(Nas5gsMessage::Gsm(head, message)) => {
                let (psi, pti) = (head.pdu_session_identity, head.procedure_transaction_identity);
                self.receive_5gsm(psi, pti, message, head.message_type.as_u8(), out)
            }
            _ => Err(Violation::Undecodable),
        }
    }

    fn receive_5gsm(
        &mut self,
        psi: u8,
        pti: u8,
        message: Nas5gsmMessage,
        kind: u8,
        out: &mut UeOutput,
    ) -> Result<(), Violation> {
        let sent = |sent: Result<(), CommandError>| sent.map_err(|_| Violation::NoContext);
        let is_always_on = self.own.always_on == Some(psi);
        let former = self.own.former_pti;
        let known = self.own.static_address.filter(|_| self.own.has_static_address);
        let Some(session) = self.session(psi) else {
            // The network has not received the completion of the release and repeats the command
            // (TS 24.501 6.3.3.5, 7.3.2).
            if matches!(message, Nas5gsmMessage::PduSessionReleaseCommand(_)) {
                return sent(self.send_5gsm(psi, &[0x2e, psi, pti, STATUS, NO_SESSION], out));
            }
            return Err(Violation::Unexpected(kind));
        };
        if former == Some(pti) {
            return Ok(());
        }
        let answers = session.pti == pti && session.state == SessionState::Pending;
        match message {
            Nas5gsmMessage::PduSessionEstablishmentAccept(accept) if answers => {
                // The network grants it, and no other UE has it (TS 24.501 6.4.1.3).
                let granted = accept.always_on_pdu_session_indication.as_ref().is_some_and(|ie| ie.apsi());
                let address = addresses(session.kind, &accept).filter(|_| granted == is_always_on);
                let is_known = |address: &Address| known.is_none_or(|known| address.ipv4 == Some(known));
                let address = address.filter(is_known).ok_or(Violation::Incomplete(kind))?;
                (session.state, session.address) = (SessionState::Active, address);
                let mapped = accept.mapped_eps_bearer_contexts.as_ref().and_then(|contexts| contexts.contexts());
                session.other = mapped.and_then(|contexts| Some(contexts.first()?.eps_bearer_id)).unwrap_or(0);
                if self.own.has_static_address {
                    self.own.static_address = address.ipv4;
                }
                out.events.push(Event::SessionUp { psi, address });
                Ok(())
            }
            Nas5gsmMessage::PduSessionEstablishmentReject(reject) if answers => {
                self.sessions.retain(|session| session.psi != psi);
                out.events.push(Event::SessionRejected { psi, cause: Cause::Sm(reject.fgsm_cause.value) });
                Ok(())
            }
            Nas5gsmMessage::PduSessionModificationReject(reject) if session.pti == pti => {
                out.events.push(Event::SessionRejected { psi, cause: Cause::Sm(reject.fgsm_cause.value) });
                Ok(())
            }
            Nas5gsmMessage::PduSessionReleaseReject(reject) if session.pti == pti => {
                session.state = SessionState::Active;
                out.events.push(Event::SessionRejected { psi, cause: Cause::Sm(reject.fgsm_cause.value) });
                Ok(())
            }
            Nas5gsmMessage::PduSessionReleaseCommand(_) => {
                self.sessions.retain(|session| session.psi != psi);
                sent(self.send_5gsm(psi, &[0x2e, psi, pti, RELEASE_COMPLETE], out))?;
                out.events.push(Event::SessionReleased { psi });
                Ok(())
            }
            Nas5gsmMessage::PduSessionModificationCommand(_) => {
                sent(self.send_5gsm(psi, &[0x2e, psi, pti, MODIFICATION_COMPLETE], out))
            }
            Nas5gsmMessage::FiveGsmStatus(status) => {
                out.events.push(Event::Status(Cause::Sm(status.fgsm_cause.value)));
                Ok(())
            }
            _ => Err(Violation::Unexpected(kind)),
        }
    }
}

fn uplink_transport(message: &[u8], psi: u8) -> NasUlNasTransport {
    let kind = NasPayloadContainerType::from_kind(PayloadContainerKind::N1SmInformation);
    NasUlNasTransport::new(kind, NasPayloadContainer::new(message))
        .with_pdu_session_id(NasPduSessionIdentity2::from_pdu_session_id(psi))
}

/// Returns the addresses of an accept, if they match the request (TS 24.501 6.4.1.3) and the accept
/// has QoS rules.
fn addresses(asked: PduSessionType, accept: &NasPduSessionEstablishmentAccept) -> Option<Address> {
    let selected = accept.selected_pdu_session_type.session_type()?;
    let fits = match asked {
        PduSessionType::Ipv4v6 => {
            matches!(selected, PduSessionTypeValue::Ipv4 | PduSessionTypeValue::Ipv6 | PduSessionTypeValue::Ipv4v6)
        }
        kind => wire_kind(kind) == selected,
    };
    let told = accept.pdu_address.as_ref()?;
    let (v4, v6) = (selected != PduSessionTypeValue::Ipv6, selected != PduSessionTypeValue::Ipv4);
    let address = Address {
        ipv4: told.ipv4().filter(|_| v4).map(Into::into),
        interface: told.ipv6_interface_id().filter(|_| v6),
    };
    let complete = address.ipv4.is_some() == v4 && address.interface.is_some() == v6;
    (fits && complete && !accept.authorized_qos_rules.value.is_empty()).then_some(address)
}
