//! Handlers of the S1AP PDUs that an eNB receives from the MME.

use super::{ConnectionId, Enb, ErrorReport, Event, Inbox, Outbox, S1State, encode};
use crate::ran::{Fault, SendError, Violation};
use vireo_types::Tmsi;
use vireo_wire::s1ap::*;
use vireo_wire::s1ap::{build_s1ap, extract_s1ap_ies};

impl Enb {
    /// Handles one S1AP PDU of the only MME. Answers go to `out`, events to `inbox`.
    pub fn receive(&mut self, octets: &[u8], inbox: &mut Inbox, out: &mut Outbox) -> Result<(), SendError> {
        self.receive_by(0, octets, inbox, out)
    }

    /// Handles one S1AP PDU of an association.
    pub fn receive_by(&mut self, by: u8, octets: &[u8], inbox: &mut Inbox, out: &mut Outbox) -> Result<(), SendError> {
        self.current = by;
        match self.dispatch(octets, inbox, out) {
            Ok(()) => match self.found.take() {
                Some(id) => self.abandon(id, out),
                None => Ok(()),
            },
            // The MME does not know yet that the UE has left.
            Err(Fault::Late) => Ok(()),
            Err(Fault::Own(error)) => Err(error),
            Err(Fault::Peer(violation)) => {
                inbox.events.push(Event::Violation(violation));
                let cause = match violation {
                    Violation::Undecodable => Cause::protocol(CauseProtocol::transfer_syntax_error),
                    Violation::Unexpected(_) => {
                        Cause::protocol(CauseProtocol::message_not_compatible_with_receiver_state)
                    }
                    Violation::UnknownUe => Cause::radioNetwork(CauseRadioNetwork::unknown_enb_ue_s1ap_id),
                };
                self.indicate_error(
                    ErrorReport { core_id: None, ran_id: None, cause: Some(cause), diagnostics: false },
                    out,
                )
            }
        }
    }

    fn dispatch(&mut self, octets: &[u8], inbox: &mut Inbox, out: &mut Outbox) -> Result<(), Fault> {
        use S1apPduKind as Kind;
        let pdu = S1AP_PDU::decode_borrowed(octets)?;
        match pdu.kind() {
            Kind::Initiating_downlinkNASTransport => self.downlink_nas(&pdu, inbox),
            Kind::Initiating_InitialContextSetup => self.initial_context_setup(&pdu, inbox, out),
            Kind::Initiating_E_RABSetup => self.bearer_setup(&pdu, inbox, out),
            Kind::Initiating_E_RABModify => self.bearer_modify(&pdu, inbox, out),
            Kind::Initiating_E_RABRelease => self.bearer_release(&pdu, inbox, out),
            Kind::Successful_PathSwitchRequest => self.on_path_switch_acknowledge(&pdu, inbox),
            Kind::Unsuccessful_PathSwitchRequest => self.on_path_switch_failure(&pdu, inbox),
            Kind::Initiating_HandoverResourceAllocation => self.handover_request(&pdu, inbox, out),
            Kind::Successful_HandoverPreparation => self.handover_command(&pdu, inbox, out),
            Kind::Unsuccessful_HandoverPreparation
            | Kind::Successful_HandoverCancel
            | Kind::Initiating_MMEStatusTransfer => self.handover_answer(&pdu, inbox),
            Kind::Initiating_UEContextRelease => self.context_release(&pdu, inbox, out),
            Kind::Successful_S1Setup => {
                self.expect_set_up(&pdu)?;
                self.on_setup_response(&pdu)?;
                inbox.events.push(Event::Ready);
                Ok(())
            }
            Kind::Unsuccessful_S1Setup => {
                self.expect_set_up(&pdu)?;
                self.association(self.current).state = S1State::Down;
                extract_s1ap_ies!(pdu, S1SetupFailure, req cause: Cause = Cause(cause) => cause,);
                inbox.events.push(Event::SetupFailed(cause));
                Ok(())
            }
            Kind::Initiating_Reset => self.mme_reset(&pdu, inbox, out),
            Kind::Successful_Reset => {
                inbox.events.push(Event::ResetDone);
                Ok(())
            }
            Kind::Successful_ENBConfigurationUpdate | Kind::Unsuccessful_ENBConfigurationUpdate => {
                let taken = pdu.kind() == Kind::Successful_ENBConfigurationUpdate;
                inbox.events.push(Event::ConfigurationUpdated(taken));
                Ok(())
            }
            Kind::Initiating_MMEConfigurationUpdate => {
                let answer = build_s1ap!(SuccessfulOutcome, MMEConfigurationUpdate, MMEConfigurationUpdateAcknowledge,);
                Ok(encode(out, self.common(), answer)?)
            }
            Kind::Successful_E_RABModificationIndication => self.on_modification_confirm(&pdu, inbox),
            Kind::Initiating_MMEConfigurationTransfer => self.configuration_transfer(&pdu, inbox, out),
            Kind::Initiating_Paging => paging(&pdu, inbox),
            Kind::Initiating_UEContextModification => self.context_modification(&pdu, inbox, out),
            Kind::Initiating_LocationReportingControl => self.on_location_request(&pdu, inbox, out),
            Kind::Initiating_ErrorIndication => error_indication(&pdu, inbox),
            Kind::Initiating_OverloadStart | Kind::Initiating_OverloadStop => {
                inbox.events.push(Event::Overload(pdu.kind() == Kind::Initiating_OverloadStart));
                Ok(())
            }
            _ => Err(Fault::Peer(Violation::Unexpected(pdu.procedure_code()))),
        }
    }

    fn expect_set_up(&self, pdu: &S1APPDU<'_>) -> Result<(), Fault> {
        match self.association_state(self.current) {
            S1State::SettingUp => Ok(()),
            _ => Err(Fault::Peer(Violation::Unexpected(pdu.procedure_code()))),
        }
    }

    /// Checks the two identifiers of UE-associated signalling. Returns the connection and its
    /// owner.
    pub(super) fn identify(&mut self, mme: u32, enb: u32) -> Result<(ConnectionId, u32), Fault> {
        let id = vireo_types::RanUeNgapId(enb);
        let (owner, found) = self.connections.identify(mme.into(), id)?;
        self.found = found.then_some(id);
        Ok((id, owner))
    }

    fn downlink_nas(&mut self, pdu: &S1APPDU<'_>, inbox: &mut Inbox) -> Result<(), Fault> {
        extract_s1ap_ies!(pdu, DownlinkNASTransport,
            req mme: u32 = MME_UE_S1AP_ID(id),
            req enb: u32 = eNB_UE_S1AP_ID(id),
            req nas: NASPDU = NAS_PDU(nas) => nas,
        );
        let (_, owner) = self.identify(mme, enb)?;
        inbox.deliver(owner, &nas.0);
        Ok(())
    }

    fn context_release(&mut self, pdu: &S1APPDU<'_>, inbox: &mut Inbox, out: &mut Outbox) -> Result<(), Fault> {
        extract_s1ap_ies!(pdu, UEContextReleaseCommand,
            req ids: UES1APIDs = UE_S1AP_IDs(ids) => ids,
            req cause: Cause = Cause(cause) => cause,
        );
        let (mme, enb) = match ids {
            UES1APIDs::uE_S1AP_ID_pair(pair) => (pair.mme_ue_s1ap_id.0, pair.enb_ue_s1ap_id.0),
            UES1APIDs::mME_UE_S1AP_ID(mme) => {
                // The only message that may identify the UE by the MME's identifier alone.
                let id = self.connections.by_core_id(mme.0.into());
                (mme.0, id.ok_or(Fault::Peer(Violation::UnknownUe))?.0)
            }
            _ => return Err(Fault::Peer(Violation::Undecodable)),
        };
        let (id, owner) = match self.identify(mme, enb) {
            Err(Fault::Peer(Violation::UnknownUe))
                if self.connections.is_released(mme.into(), vireo_types::RanUeNgapId(enb)) =>
            {
                // Not a last message (TS 36.413 10.6): it is answered, and is no violation.
                let cause = Some(Cause::radioNetwork(CauseRadioNetwork::unknown_pair_ue_s1ap_id));
                let (core_id, ran_id) = (Some(mme.into()), Some(enb));
                return Ok(self.indicate_error(ErrorReport { core_id, ran_id, cause, diagnostics: false }, out)?);
            }
            identified => identified?,
        };
        let answer = build_s1ap!(
            SuccessfulOutcome,
            UEContextRelease,
            UEContextReleaseComplete,
            MME_UE_S1AP_ID(mme),
            eNB_UE_S1AP_ID(id.0),
        );
        encode(out, self.stream(id), answer)?;
        self.connections.release(mme.into(), id);
        self.found = None;
        inbox.events.push(Event::Released { owner, cause });
        Ok(())
    }

    /// Confirms a change of the UE context, such as another UE-AMBR or another key.
    fn context_modification(&mut self, pdu: &S1APPDU<'_>, inbox: &mut Inbox, out: &mut Outbox) -> Result<(), Fault> {
        extract_s1ap_ies!(pdu, UEContextModificationRequest,
            req mme: u32 = MME_UE_S1AP_ID(id),
            req enb: u32 = eNB_UE_S1AP_ID(id),
            opt key: SecurityKey = SecurityKey(key) => key,
        );
        let (id, owner) = self.identify(mme, enb)?;
        if let Some(key) = key {
            let key = <[u8; 32]>::try_from(key.0.as_octets()).map_err(|_| Fault::Peer(Violation::Undecodable))?;
            inbox.events.push(Event::ContextSetup { owner, key });
        }
        let answer = build_s1ap!(
            SuccessfulOutcome,
            UEContextModification,
            UEContextModificationResponse,
            MME_UE_S1AP_ID(mme),
            eNB_UE_S1AP_ID(id.0),
        );
        encode(out, self.stream(id), answer)?;
        Ok(())
    }

    /// Handles LOCATION REPORTING CONTROL: reports the cell of the UE (TS 36.413 8.11.1, 8.11.3).
    fn on_location_request(&mut self, pdu: &S1APPDU<'_>, inbox: &mut Inbox, out: &mut Outbox) -> Result<(), Fault> {
        extract_s1ap_ies!(pdu, LocationReportingControl,
            req mme: u32 = MME_UE_S1AP_ID(id),
            req enb: u32 = eNB_UE_S1AP_ID(id),
            req kind: RequestType = RequestType(kind) => kind,
        );
        let (id, owner) = self.identify(mme, enb)?;
        let report = build_s1ap!(
            InitiatingMessage,
            LocationReport,
            LocationReport,
            MME_UE_S1AP_ID(mme),
            eNB_UE_S1AP_ID(id.0),
            EUTRAN_CGI(self.cell()?),
            TAI(self.tai()),
            RequestType(kind),
        );
        encode(out, self.stream(id), report)?;
        inbox.events.push(Event::LocationRequested { owner });
        Ok(())
    }

    fn mme_reset(&mut self, pdu: &S1APPDU<'_>, inbox: &mut Inbox, out: &mut Outbox) -> Result<(), Fault> {
        extract_s1ap_ies!(pdu, Reset,
            req cause: Cause = Cause(cause) => cause,
            req kind: ResetType = ResetType(kind) => kind,
        );
        let released = |owner| Event::Released { owner, cause: cause.clone() };
        let answer = match kind {
            ResetType::s1_Interface(_) => {
                inbox.events.extend(self.connections.remove_by(self.current).into_iter().map(released));
                build_s1ap!(SuccessfulOutcome, Reset, ResetAcknowledge,)
            }
            ResetType::partOfS1_Interface(list) => {
                let mut items = Vec::with_capacity(list.0.len());
                for item in list.0 {
                    let connection: UEAssociatedLogicalS1ConnectionItem = decode_open_type(&item.value)?;
                    let id = match (connection.enb_ue_s1ap_id, connection.mme_ue_s1ap_id) {
                        (Some(enb), _) => Some(vireo_types::RanUeNgapId(enb.0)),
                        (None, Some(mme)) => self.connections.by_core_id(mme.0.into()),
                        (None, None) => None,
                    };
                    inbox.events.extend(id.and_then(|id| self.connections.remove(id)).map(released));
                    items.push(ProtocolIEField::new(item.id.0, Criticality::ignore, item.value));
                }
                let list = UEAssociatedLogicalS1ConnectionListResAck(items);
                build_s1ap!(
                    SuccessfulOutcome,
                    Reset,
                    ResetAcknowledge,
                    UE_associatedLogicalS1_ConnectionListResAck(list),
                )
            }
            _ => return Err(Fault::Peer(Violation::Undecodable)),
        };
        Ok(encode(out, self.common(), answer)?)
    }
}

fn paging(pdu: &S1APPDU<'_>, inbox: &mut Inbox) -> Result<(), Fault> {
    extract_s1ap_ies!(pdu, Paging,
        req id: UEPagingID = UEPagingID(id) => id,
        opt drx: PagingEDRXInformation = Paging_eDRXInformation(drx) => drx,
    );
    // A UE paged with its IMSI attaches again (TS 24.301 5.6.2.2.2): no procedure of this emulator.
    if let UEPagingID::s_TMSI(id) = id {
        let tmsi = Tmsi(u32::from_be_bytes(id.m_tmsi.0));
        inbox.events.push(match drx {
            // The values of cycle and window have the order of those of NAS.
            Some(drx) => {
                let window = drx.paging_time_window.map_or(0, |window| window as u8);
                Event::ExtendedPaging(tmsi, window << 4 | drx.paging_edrx_cycle as u8)
            }
            None => Event::Paging(tmsi),
        });
    }
    Ok(())
}

fn error_indication(pdu: &S1APPDU<'_>, inbox: &mut Inbox) -> Result<(), Fault> {
    extract_s1ap_ies!(pdu, ErrorIndication,
        opt mme: u32 = MME_UE_S1AP_ID(id),
        opt ran_id: u32 = eNB_UE_S1AP_ID(id),
        opt cause: Cause = Cause(cause) => cause,
        opt diagnostics: bool = CriticalityDiagnostics(_d) => true,
    );
    let (core_id, diagnostics) = (mme.map(u64::from), diagnostics.is_some());
    inbox.events.push(Event::ErrorIndication(ErrorReport { core_id, ran_id, cause, diagnostics }));
    Ok(())
}
