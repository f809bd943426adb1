//! E-RABs and the initial context (TS 36.413 8.2, 8.3.1).

use super::{ConnectionId, Enb, Event, Inbox, Outbox, encode};
use crate::ran::{Fault, SendError, Violation};
use crate::ran::{Tunnel, is_reported_capability, read_address};
use std::net::IpAddr;
use vireo_types::Teid;
use vireo_wire::s1ap::*;
use vireo_wire::s1ap::{build_s1ap, build_s1ap_ie, extract_s1ap_ies};

/// Procedure code of E-RAB Setup.
const BEARER_SETUP: u8 = 5;

/// One E-RAB that the MME requests.
struct RequestedBearer<'a> {
    id: ERABID,
    address: TransportLayerAddress<'a>,
    teid: GTPTEID,
    nas: Option<NASPDU<'a>>,
}

/// Results for the E-RABs of one request.
#[derive(Default)]
struct BearerResults {
    /// E-RABs with the eNB's TEIDs.
    up: Vec<(ERABID, GTPTEID)>,
    /// Others with the cause.
    failed: Vec<(ERABID, Cause)>,
}

impl Enb {
    pub(super) fn initial_context_setup(
        &mut self,
        pdu: &S1APPDU<'_>,
        inbox: &mut Inbox,
        out: &mut Outbox,
    ) -> Result<(), Fault> {
        extract_s1ap_ies!(pdu, InitialContextSetupRequest,
            req mme: u32 = MME_UE_S1AP_ID(id),
            req enb: u32 = eNB_UE_S1AP_ID(id),
            req _ambr: UEAggregateMaximumBitrate = UEAggregateMaximumBitrate(ambr) => ambr,
            req _capability: UESecurityCapabilities = UESecurityCapabilities(capability) => capability,
            req key: SecurityKey = SecurityKey(key) => key,
            opt radio: UERadioCapability = UERadioCapability(radio) => radio,
        );
        let bearers = pdu.items::<ie::E_RABToBeSetupListCtxtSUReq>().map(|item| {
            item.map(|item| RequestedBearer {
                id: item.e_rab_id,
                address: item.transport_layer_address,
                teid: item.gtp_teid,
                nas: item.nas_pdu,
            })
        });
        let bearers = bearers.collect::<Result<Vec<_>, Error>>()?;
        let (id, owner) = self.identify(mme, enb)?;
        let key = <[u8; 32]>::try_from(key.0.as_octets()).map_err(|_| Fault::Peer(Violation::Undecodable))?;
        inbox.events.push(Event::ContextSetup { owner, key });
        let is_returned = radio.as_ref().is_some_and(|radio| is_reported_capability(owner, radio.0.as_slice()));
        inbox.events.extend(is_returned.then_some(Event::CapabilityReturned { owner }));
        let results = self.add_bearers(id, owner, &bearers, inbox);
        self.answer_context(mme, id, results, out)?;
        if radio.is_none() {
            self.indicate_capability(mme, id, out)?;
        }
        for nas in bearers.iter().filter_map(|bearer| bearer.nas.as_ref()) {
            inbox.deliver(owner, &nas.0);
        }
        Ok(())
    }

    fn answer_context(
        &self,
        mme: u32,
        id: ConnectionId,
        results: BearerResults,
        out: &mut Outbox,
    ) -> Result<(), SendError> {
        let BearerResults { up, failed } = results;
        if up.is_empty() {
            // At least one E-RAB must be set up (TS 36.413 8.3.1.3).
            let failure = build_s1ap!(
                UnsuccessfulOutcome,
                InitialContextSetup,
                InitialContextSetupFailure,
                MME_UE_S1AP_ID(mme),
                eNB_UE_S1AP_ID(id.0),
                Cause(Cause::protocol(CauseProtocol::semantic_error)),
            );
            return Ok(encode(out, self.stream(id), failure)?);
        }
        let item = |(erab, teid)| {
            let item = ERABSetupItemCtxtSURes::new(erab, self.address(), teid, None);
            build_s1ap_ie!(IGNORE E_RABSetupItemCtxtSURes(item))
        };
        let up = ERABSetupListCtxtSURes(up.into_iter().map(item).collect::<Result<_, _>>()?);
        let mut ies = vec![
            build_s1ap_ie!(InitialContextSetupResponse, MME_UE_S1AP_ID(mme))?,
            build_s1ap_ie!(InitialContextSetupResponse, eNB_UE_S1AP_ID(id.0))?,
            build_s1ap_ie!(InitialContextSetupResponse, E_RABSetupListCtxtSURes(up))?,
        ];
        if !failed.is_empty() {
            let failed = failed_list(failed)?;
            ies.push(build_s1ap_ie!(InitialContextSetupResponse, E_RABFailedToSetupListCtxtSURes(failed))?);
        }
        let message = InitialContextSetupResponse::new(ProtocolIEContainer(ies));
        let answer = S1AP_PDU::of_message(&message, InitialContextSetupResponse::CRITICALITY);
        Ok(encode(out, self.stream(id), answer)?)
    }

    pub(super) fn bearer_setup(&mut self, pdu: &S1APPDU<'_>, inbox: &mut Inbox, out: &mut Outbox) -> Result<(), Fault> {
        extract_s1ap_ies!(pdu, ERABSetupRequest,
            req mme: u32 = MME_UE_S1AP_ID(id),
            req enb: u32 = eNB_UE_S1AP_ID(id),
        );
        let bearers = pdu.items::<ie::E_RABToBeSetupListBearerSUReq>().map(|item| {
            item.map(|item| RequestedBearer {
                id: item.e_rab_id,
                address: item.transport_layer_address,
                teid: item.gtp_teid,
                nas: Some(item.nas_pdu),
            })
        });
        let bearers = bearers.collect::<Result<Vec<_>, Error>>()?;
        let (id, owner) = self.identify(mme, enb)?;
        let BearerResults { up, failed } = self.add_bearers(id, owner, &bearers, inbox);
        let mut ies = vec![
            build_s1ap_ie!(ERABSetupResponse, MME_UE_S1AP_ID(mme))?,
            build_s1ap_ie!(ERABSetupResponse, eNB_UE_S1AP_ID(id.0))?,
        ];
        if !up.is_empty() {
            let item = |(erab, teid)| {
                let item = ERABSetupItemBearerSURes::new(erab, self.address(), teid, None);
                build_s1ap_ie!(IGNORE E_RABSetupItemBearerSURes(item))
            };
            let up = ERABSetupListBearerSURes(up.into_iter().map(item).collect::<Result<_, _>>()?);
            ies.push(build_s1ap_ie!(ERABSetupResponse, E_RABSetupListBearerSURes(up))?);
        }
        if !failed.is_empty() {
            let failed = failed_list(failed)?;
            ies.push(build_s1ap_ie!(ERABSetupResponse, E_RABFailedToSetupListBearerSURes(failed))?);
        }
        let message = ERABSetupResponse::new(ProtocolIEContainer(ies));
        encode(out, self.stream(id), S1AP_PDU::of_message(&message, ERABSetupResponse::CRITICALITY))?;
        for nas in bearers.iter().filter_map(|bearer| bearer.nas.as_ref()) {
            inbox.deliver(owner, &nas.0);
        }
        Ok(())
    }

    /// Applies other QoS to E-RABs (TS 36.413 8.2.2).
    pub(super) fn bearer_modify(
        &mut self,
        pdu: &S1APPDU<'_>,
        inbox: &mut Inbox,
        out: &mut Outbox,
    ) -> Result<(), Fault> {
        extract_s1ap_ies!(pdu, ERABModifyRequest,
            req mme: u32 = MME_UE_S1AP_ID(id),
            req enb: u32 = eNB_UE_S1AP_ID(id),
        );
        let bearers = pdu.items::<ie::E_RABToBeModifiedListBearerModReq>().collect::<Result<Vec<_>, Error>>()?;
        let (id, owner) = self.identify(mme, enb)?;
        let (mut modified, mut failed, mut nas) = (Vec::new(), Vec::new(), Vec::new());
        for bearer in &bearers {
            let is_it = |tunnel: &Tunnel| u64::from(tunnel.psi) == bearer.e_rab_id.0;
            match self.tunnels(id).iter().find(|tunnel| is_it(tunnel)) {
                Some(tunnel) => {
                    inbox.events.push(Event::QosModified { owner, psi: tunnel.psi });
                    nas.push(&bearer.nas_pdu.0);
                    let item = ERABModifyItemBearerModRes::new(bearer.e_rab_id, None);
                    modified.push(build_s1ap_ie!(IGNORE E_RABModifyItemBearerModRes(item))?);
                }
                None => {
                    let cause = Cause::radioNetwork(CauseRadioNetwork::unknown_E_RAB_ID);
                    failed.push((bearer.e_rab_id, cause));
                }
            }
        }
        let mut ies = vec![
            build_s1ap_ie!(ERABModifyResponse, MME_UE_S1AP_ID(mme))?,
            build_s1ap_ie!(ERABModifyResponse, eNB_UE_S1AP_ID(id.0))?,
        ];
        if !modified.is_empty() {
            let list = ERABModifyListBearerModRes(modified);
            ies.push(build_s1ap_ie!(ERABModifyResponse, E_RABModifyListBearerModRes(list))?);
        }
        if !failed.is_empty() {
            ies.push(build_s1ap_ie!(ERABModifyResponse, E_RABFailedToModifyList(failed_list(failed)?))?);
        }
        let message = ERABModifyResponse::new(ProtocolIEContainer(ies));
        encode(out, self.stream(id), S1AP_PDU::of_message(&message, ERABModifyResponse::CRITICALITY))?;
        // The UE gets no message of a bearer that is not modified.
        for nas in nas {
            inbox.deliver(owner, nas);
        }
        Ok(())
    }

    fn add_bearers(
        &mut self,
        id: ConnectionId,
        owner: u32,
        bearers: &[RequestedBearer<'_>],
        inbox: &mut Inbox,
    ) -> BearerResults {
        let mut results = BearerResults::default();
        for bearer in bearers {
            let address = read_address(&bearer.address.0);
            let (Some(upf), Ok(psi @ 5..=15)) = (address, u8::try_from(bearer.id.0)) else {
                inbox.events.push(Event::Violation(Violation::Undecodable));
                results.failed.push((bearer.id, Cause::protocol(CauseProtocol::semantic_error)));
                continue;
            };
            if self.tunnels(id).iter().any(|known| known.psi == psi) {
                // TS 36.413 8.2.1.3.
                inbox.events.push(Event::Violation(Violation::Unexpected(BEARER_SETUP)));
                let cause = Cause::radioNetwork(CauseRadioNetwork::multiple_E_RAB_ID_instances);
                results.failed.push((bearer.id, cause));
                continue;
            }
            let (uplink, downlink) = (Teid(u32::from_be_bytes(bearer.teid.0)), self.teid(id, owner, psi));
            let Some(connection) = self.connections.get_mut(id) else { continue };
            connection.tunnels.reserve_exact(1);
            connection.tunnels.push(Tunnel { psi, qfi: None, upf, uplink, downlink });
            results.up.push((bearer.id, GTPTEID(downlink.0.to_be_bytes())));
            inbox.events.push(Event::TunnelUp { owner, psi });
        }
        results
    }

    pub(super) fn bearer_release(
        &mut self,
        pdu: &S1APPDU<'_>,
        inbox: &mut Inbox,
        out: &mut Outbox,
    ) -> Result<(), Fault> {
        extract_s1ap_ies!(pdu, ERABReleaseCommand,
            req mme: u32 = MME_UE_S1AP_ID(id),
            req enb: u32 = eNB_UE_S1AP_ID(id),
            opt nas: NASPDU = NAS_PDU(nas) => nas,
        );
        let bearers = pdu.items::<ie::E_RABToBeReleasedList>().collect::<Result<Vec<_>, Error>>()?;
        let (id, owner) = self.identify(mme, enb)?;
        let mut released = Vec::with_capacity(bearers.len());
        for bearer in bearers {
            if let Some(connection) = self.connections.get_mut(id) {
                connection.tunnels.retain(|tunnel| u64::from(tunnel.psi) != bearer.e_rab_id.0);
            }
            inbox.events.push(Event::TunnelDown { owner, psi: bearer.e_rab_id.0 as u8 });
            let item = ERABReleaseItemBearerRelComp::new(bearer.e_rab_id, None);
            released.push(build_s1ap_ie!(IGNORE E_RABReleaseItemBearerRelComp(item))?);
        }
        let answer = build_s1ap!(
            SuccessfulOutcome,
            E_RABRelease,
            ERABReleaseResponse,
            MME_UE_S1AP_ID(mme),
            eNB_UE_S1AP_ID(id.0),
            E_RABReleaseListBearerRelComp(ERABReleaseListBearerRelComp(released)),
        );
        encode(out, self.stream(id), answer)?;
        if let Some(nas) = nas {
            inbox.deliver(owner, &nas.0);
        }
        Ok(())
    }

    pub(super) fn address(&self) -> TransportLayerAddress<'static> {
        match self.config.s1u {
            IpAddr::V4(v4) => TransportLayerAddress(v4.octets().into()),
            IpAddr::V6(v6) => TransportLayerAddress(v6.octets().into()),
        }
    }
}

fn failed_list(failed: Vec<(ERABID, Cause)>) -> Result<ERABList<'static>, Error> {
    let item = |(erab, cause)| {
        let item = ERABItem::new(erab, cause, None);
        build_s1ap_ie!(IGNORE E_RABItem(item))
    };
    Ok(ERABList(failed.into_iter().map(item).collect::<Result<_, _>>()?))
}
