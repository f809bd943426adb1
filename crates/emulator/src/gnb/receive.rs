//! Handlers of the NGAP PDUs that a gNB receives from the AMF.

use super::{ErrorReport, Event, Gnb, Inbox, NgState, Outbox, encode_by};
use crate::ran::{Fault, SendError, Violation};
use vireo_types::{RanUeNgapId, Tmsi};
use vireo_wire::ngap::*;
use vireo_wire::ngap::{build_ngap, extract_ngap_ies};

impl Gnb {
    /// Handles one NGAP PDU of the first association. Answers go to `out`, events to `inbox`.
    pub fn receive(&mut self, octets: &[u8], inbox: &mut Inbox, out: &mut Outbox) -> Result<(), SendError> {
        self.receive_by(0, octets, inbox, out)
    }

    /// Handles one NGAP PDU of association `by`.
    pub fn receive_by(&mut self, by: u8, octets: &[u8], inbox: &mut Inbox, out: &mut Outbox) -> Result<(), SendError> {
        self.current = by;
        match self.dispatch(octets, inbox, out) {
            Ok(()) => match self.found.take() {
                Some(ran) => self.abandon(ran, out),
                None => Ok(()),
            },
            // The AMF does not know yet that the UE has left.
            Err(Fault::Late) => Ok(()),
            Err(Fault::Own(error)) => Err(error),
            Err(Fault::Peer(violation)) => {
                inbox.events.push(Event::Violation(violation));
                let cause = match violation {
                    Violation::Undecodable => Cause::protocol(CauseProtocol::transfer_syntax_error),
                    Violation::Unexpected(_) => {
                        Cause::protocol(CauseProtocol::message_not_compatible_with_receiver_state)
                    }
                    Violation::UnknownUe => Cause::radioNetwork(CauseRadioNetwork::unknown_local_UE_NGAP_ID),
                };
                self.indicate_error(
                    ErrorReport { core_id: None, ran_id: None, cause: Some(cause), diagnostics: false },
                    out,
                )
            }
        }
    }

    fn dispatch(&mut self, octets: &[u8], inbox: &mut Inbox, out: &mut Outbox) -> Result<(), Fault> {
        use NgapPduKind as Kind;
        let pdu = NGAP_PDU::decode_borrowed(octets)?;
        match pdu.kind() {
            Kind::Initiating_DownlinkNASTransport => self.downlink_nas(&pdu, inbox),
            Kind::Initiating_InitialContextSetup => self.initial_context_setup(&pdu, inbox, out),
            Kind::Initiating_PDUSessionResourceSetup => self.resource_setup(&pdu, inbox, out),
            Kind::Initiating_PDUSessionResourceRelease => self.resource_release(&pdu, inbox, out),
            Kind::Initiating_PDUSessionResourceModify => self.resource_modify(&pdu, inbox, out),
            Kind::Successful_PDUSessionResourceModifyIndication => self.on_modification_confirm(&pdu, inbox),
            Kind::Initiating_DownlinkRANConfigurationTransfer => self.configuration_transfer(&pdu, inbox, out),
            Kind::Initiating_UEContextModification => self.context_modification(&pdu, inbox, out),
            Kind::Initiating_LocationReportingControl => self.on_location_request(&pdu, inbox, out),
            Kind::Successful_PathSwitchRequest => self.on_path_switch_acknowledge(&pdu, inbox),
            Kind::Unsuccessful_PathSwitchRequest => self.on_path_switch_failure(&pdu, inbox),
            Kind::Initiating_HandoverResourceAllocation => self.handover_request(&pdu, inbox, out),
            Kind::Successful_HandoverPreparation => self.handover_command(&pdu, inbox, out),
            Kind::Unsuccessful_HandoverPreparation
            | Kind::Successful_HandoverCancel
            | Kind::Initiating_DownlinkRANStatusTransfer => self.handover_answer(&pdu, inbox),
            Kind::Initiating_UEContextRelease => self.context_release(&pdu, inbox, out),
            Kind::Successful_NGSetup => {
                self.expect_set_up(&pdu)?;
                self.on_setup_answer(true);
                inbox.events.push(Event::Ready);
                Ok(())
            }
            Kind::Unsuccessful_NGSetup => {
                self.expect_set_up(&pdu)?;
                self.on_setup_answer(false);
                extract_ngap_ies!(pdu, NGSetupFailure, req cause: Cause = Cause(cause) => cause,);
                inbox.events.push(Event::SetupFailed(cause));
                Ok(())
            }
            Kind::Initiating_NGReset => self.amf_reset(&pdu, inbox, out),
            Kind::Successful_NGReset => {
                inbox.events.push(Event::ResetDone);
                Ok(())
            }
            Kind::Successful_RANConfigurationUpdate | Kind::Unsuccessful_RANConfigurationUpdate => {
                self.on_update_answer(pdu.kind() == Kind::Successful_RANConfigurationUpdate, inbox);
                Ok(())
            }
            Kind::Initiating_AMFConfigurationUpdate => self.amf_update(&pdu, inbox, out),
            Kind::Initiating_Paging => paging(&pdu, inbox),
            Kind::Initiating_ErrorIndication => error_indication(&pdu, inbox),
            Kind::Initiating_OverloadStart | Kind::Initiating_OverloadStop => {
                inbox.events.push(Event::Overload(pdu.kind() == Kind::Initiating_OverloadStart));
                Ok(())
            }
            Kind::Initiating_AMFStatusIndication => Ok(()),
            _ => Err(Fault::Peer(Violation::Unexpected(pdu.procedure_code()))),
        }
    }

    /// Confirms a change of the UE context, such as another UE-AMBR or another key.
    fn context_modification(&mut self, pdu: &NGAPPDU<'_>, inbox: &mut Inbox, out: &mut Outbox) -> Result<(), Fault> {
        extract_ngap_ies!(pdu, UEContextModificationRequest,
            req amf: u64 = AMF_UE_NGAP_ID(id),
            req ran: u32 = RAN_UE_NGAP_ID(id),
            opt key: SecurityKey = SecurityKey(key) => key,
        );
        let (ran, owner) = self.identify(amf, ran)?;
        if let Some(key) = key {
            let key = <[u8; 32]>::try_from(key.0.as_octets()).map_err(|_| Fault::Peer(Violation::Undecodable))?;
            inbox.events.push(Event::ContextSetup { owner, key });
        }
        let answer = build_ngap!(
            SuccessfulOutcome,
            UEContextModification,
            UEContextModificationResponse,
            AMF_UE_NGAP_ID(amf),
            RAN_UE_NGAP_ID(ran.0),
        );
        Ok(encode_by(out, self.ue_route(ran), answer)?)
    }

    fn expect_set_up(&self, pdu: &NGAPPDU<'_>) -> Result<(), Fault> {
        match self.state {
            NgState::SettingUp => Ok(()),
            _ => Err(Fault::Peer(Violation::Unexpected(pdu.procedure_code()))),
        }
    }

    /// Checks the two identifiers of UE-associated signalling. Stores the AMF's identifier from its
    /// first message (TS 38.413 10.6).
    pub(super) fn identify(&mut self, amf: u64, ran: u32) -> Result<(RanUeNgapId, u32), Fault> {
        let ran = RanUeNgapId(ran);
        let (owner, found) = self.connections.identify(amf, ran).map_err(Fault::from)?;
        self.rebind(ran);
        self.found = found.then_some(ran);
        Ok((ran, owner))
    }

    fn downlink_nas(&mut self, pdu: &NGAPPDU<'_>, inbox: &mut Inbox) -> Result<(), Fault> {
        extract_ngap_ies!(pdu, DownlinkNASTransport,
            req amf: u64 = AMF_UE_NGAP_ID(id),
            req ran: u32 = RAN_UE_NGAP_ID(id),
            req nas: NASPDU = NAS_PDU(nas) => nas,
        );
        let (_, owner) = self.identify(amf, ran)?;
        inbox.deliver(owner, &nas.0);
        Ok(())
    }

    fn context_release(&mut self, pdu: &NGAPPDU<'_>, inbox: &mut Inbox, out: &mut Outbox) -> Result<(), Fault> {
        extract_ngap_ies!(pdu, UEContextReleaseCommand,
            req ids: UENGAPIDs = UE_NGAP_IDs(ids) => ids,
            req cause: Cause = Cause(cause) => cause,
        );
        let (amf, ran) = match ids {
            UENGAPIDs::uE_NGAP_ID_pair(pair) => (pair.amf_ue_ngap_id.0, RanUeNgapId(pair.ran_ue_ngap_id.0)),
            UENGAPIDs::aMF_UE_NGAP_ID(amf) => {
                // The only message that may identify the UE by the AMF's identifier alone.
                (amf.0, self.connections.by_core_id(amf.0).ok_or(Fault::Peer(Violation::UnknownUe))?)
            }
            _ => return Err(Fault::Peer(Violation::Undecodable)),
        };
        let (ran, owner) = match self.identify(amf, ran.0) {
            Err(Fault::Peer(Violation::UnknownUe)) if self.connections.is_released(amf, ran) => {
                // Not a last message (TS 38.413 10.6): it is answered, and is no violation.
                let cause = Some(Cause::radioNetwork(CauseRadioNetwork::unknown_local_UE_NGAP_ID));
                let (core_id, ran_id) = (Some(amf), Some(ran.0));
                return Ok(self.indicate_error(ErrorReport { core_id, ran_id, cause, diagnostics: false }, out)?);
            }
            identified => identified?,
        };
        let route = self.ue_route(ran);
        let sessions =
            self.tunnels(ran).iter().map(|t| PDUSessionResourceItemCxtRelCpl::new(PDUSessionID(t.psi), None));
        let sessions: Vec<_> = sessions.collect();
        let answer = if sessions.is_empty() {
            build_ngap!(
                SuccessfulOutcome,
                UEContextRelease,
                UEContextReleaseComplete,
                AMF_UE_NGAP_ID(amf),
                RAN_UE_NGAP_ID(ran.0),
            )
        } else {
            build_ngap!(
                SuccessfulOutcome,
                UEContextRelease,
                UEContextReleaseComplete,
                AMF_UE_NGAP_ID(amf),
                RAN_UE_NGAP_ID(ran.0),
                PDUSessionResourceListCxtRelCpl(PDUSessionResourceListCxtRelCpl(sessions)),
            )
        };
        encode_by(out, route, answer)?;
        self.connections.release(amf, ran);
        inbox.events.push(Event::Released { owner, cause: cause.clone() });
        Ok(())
    }

    fn amf_reset(&mut self, pdu: &NGAPPDU<'_>, inbox: &mut Inbox, out: &mut Outbox) -> Result<(), Fault> {
        extract_ngap_ies!(pdu, NGReset,
            req cause: Cause = Cause(cause) => cause,
            req kind: ResetType = ResetType(kind) => kind,
        );
        let answer = match kind {
            ResetType::nG_Interface(_) => {
                let gone = self.remove_all();
                inbox.events.extend(gone.into_iter().map(|owner| Event::Released { owner, cause: cause.clone() }));
                build_ngap!(SuccessfulOutcome, NGReset, NGResetAcknowledge,)
            }
            ResetType::partOfNG_Interface(list) => {
                for item in &list.0 {
                    let ran = item.ran_ue_ngap_id.map(|id| RanUeNgapId(id.0));
                    if let Some(owner) = ran.and_then(|ran| self.remove(ran)) {
                        inbox.events.push(Event::Released { owner, cause: cause.clone() });
                    }
                }
                build_ngap!(SuccessfulOutcome, NGReset, NGResetAcknowledge, UE_associatedLogicalNG_connectionList(list),)
            }
            _ => return Err(Fault::Peer(Violation::Undecodable)),
        };
        Ok(encode_by(out, self.common(), answer)?)
    }
}

fn paging(pdu: &NGAPPDU<'_>, inbox: &mut Inbox) -> Result<(), Fault> {
    extract_ngap_ies!(pdu, Paging,
        req id: UEPagingIdentity = UEPagingIdentity(id) => id,
        opt drx: NRPagingeDRXInformation = NR_PagingeDRXInformation(drx) => drx,
    );
    let UEPagingIdentity::fiveG_S_TMSI(id) = id else { return Err(Fault::Peer(Violation::Undecodable)) };
    let tmsi = Tmsi(u32::from_be_bytes(id.five_g_tmsi.0));
    inbox.events.push(match drx {
        // The values of cycle and window have the order of those of NAS.
        Some(drx) => {
            let window = drx.nr_paging_time_window.map_or(0, |window| window as u8);
            Event::ExtendedPaging(tmsi, window << 4 | drx.nr_paging_edrx_cycle as u8)
        }
        None => Event::Paging(tmsi),
    });
    Ok(())
}

fn error_indication(pdu: &NGAPPDU<'_>, inbox: &mut Inbox) -> Result<(), Fault> {
    extract_ngap_ies!(pdu, ErrorIndication,
        opt core_id: u64 = AMF_UE_NGAP_ID(id),
        opt ran_id: u32 = RAN_UE_NGAP_ID(id),
        opt cause: Cause = Cause(cause) => cause,
        opt diagnostics: bool = CriticalityDiagnostics(_d) => true,
    );
    let diagnostics = diagnostics.is_some();
    inbox.events.push(Event::ErrorIndication(ErrorReport { core_id, ran_id, cause, diagnostics }));
    Ok(())
}
