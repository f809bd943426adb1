//! Handover (TS 36.413 8.4) by X2 and S1, at source and target.
//!
//! As in [`crate::gnb`], the transparent containers hold no RRC content. They hold the UE's number
//! and its connection number.

use super::{ConnectionId, Enb, Event, HandoverContext, Inbox, Outbox, Tunnel, encode};
use crate::ran::{
    Fault, ForwardingEnd, HandoverOrder, PduRoute, SendError, SourceContainer, Violation, forwarding_teid,
    read_address, source_container,
};
use vireo_types::{EnbKind, RanNodeId, Tai, Teid};
use vireo_wire::s1ap::*;
use vireo_wire::s1ap::{build_s1ap, build_s1ap_ie, extract_s1ap_ies};

/// Stream of messages about a UE that the eNB has not admitted.
const REFUSALS: u16 = 1;

fn undecodable() -> Fault {
    Fault::Peer(Violation::Undecodable)
}

/// Returns the EEA or EIA octet of NAS as an S1AP bit string: EEA0 and EIA0 have no bit (TS 36.413
/// 9.2.1.40).
fn algorithms(octet: u8) -> BitString<'static> {
    BitString::from([octet << 1, 0])
}

impl Enb {
    /// Returns this eNB's context of a UE for the target of an X2 handover.
    pub fn handover_context(&self, id: ConnectionId, capability: (u8, u8)) -> Result<HandoverContext, SendError> {
        let core_id = self.mme_id(id).ok_or(SendError::NoConnection)?.into();
        let owner = self.owner(id).ok_or(SendError::NoConnection)?;
        Ok(HandoverContext { owner, core_id, capability, eutra_capability: (0, 0), tunnels: self.tunnels(id).to_vec() })
    }

    /// Sends PATH SWITCH REQUEST for a UE that arrived by X2. It does not list E-RABs that `accept`
    /// rejects; the MME releases them (8.4.4.2).
    pub fn path_switch(
        &mut self,
        ue: HandoverContext,
        accept: impl Fn(u8) -> bool,
        out: &mut Outbox,
    ) -> Result<ConnectionId, SendError> {
        let id = self.connections.allocate(ue.owner, self.pick_live(0));
        let mut tunnels = ue.tunnels;
        tunnels.retain(|tunnel| accept(tunnel.psi));
        let mut switched = Vec::with_capacity(tunnels.len());
        for tunnel in &mut tunnels {
            tunnel.downlink = self.teid(id, ue.owner, tunnel.psi);
            let teid = GTPTEID(tunnel.downlink.0.to_be_bytes());
            let item = ERABToBeSwitchedDLItem::new(ERABID(tunnel.psi.into()), self.address(), teid, None);
            switched.push(build_s1ap_ie!(REJECT E_RABToBeSwitchedDLItem(item))?);
        }
        let capability = UESecurityCapabilities::new(
            EncryptionAlgorithms(algorithms(ue.capability.0)),
            IntegrityProtectionAlgorithms(algorithms(ue.capability.1)),
            None,
        );
        let request = build_s1ap!(
            InitiatingMessage,
            PathSwitchRequest,
            PathSwitchRequest,
            eNB_UE_S1AP_ID(id.0),
            E_RABToBeSwitchedDLList(ERABToBeSwitchedDLList(switched)),
            SourceMME_UE_S1AP_ID(ue.core_id as u32),
            EUTRAN_CGI(self.cell()?),
            TAI(self.tai()),
            UESecurityCapabilities(capability),
        );
        encode(out, self.stream(id), request)?;
        if let Some(connection) = self.connections.get_mut(id) {
            (connection.core_id, connection.tunnels) = (Some(ue.core_id), tunnels);
        }
        Ok(id)
    }

    pub(super) fn on_path_switch_acknowledge(&mut self, pdu: &S1APPDU<'_>, inbox: &mut Inbox) -> Result<(), Fault> {
        extract_s1ap_ies!(pdu, PathSwitchRequestAcknowledge,
            req mme: u32 = MME_UE_S1AP_ID(id),
            req enb: u32 = eNB_UE_S1AP_ID(id),
            req context: SecurityContext = SecurityContext(context) => context,
        );
        let changed = pdu.items::<ie::E_RABToBeSwitchedULList>().collect::<Result<Vec<_>, Error>>()?;
        let released = pdu.ie::<ie::E_RABToBeReleasedList>().transpose()?;
        let released = released.map_or(0, |list| list.0.len());
        let (id, owner) = self.identify(mme, enb)?;
        if released > 0 {
            let gone = pdu.items::<ie::E_RABToBeReleasedList>().collect::<Result<Vec<_>, Error>>()?;
            if let Some(connection) = self.connections.get_mut(id) {
                let is_gone = |tunnel: &Tunnel| gone.iter().any(|item| item.e_rab_id.0 == u64::from(tunnel.psi));
                connection.tunnels.retain(|tunnel| !is_gone(tunnel));
            }
        }
        for item in changed {
            let end = read_address(&item.transport_layer_address.0).ok_or_else(undecodable)?;
            let tunnels = self.connections.get_mut(id).map(|connection| &mut connection.tunnels);
            let same = |tunnel: &&mut Tunnel| u64::from(tunnel.psi) == item.e_rab_id.0;
            if let Some(tunnel) = tunnels.and_then(|all| all.iter_mut().find(same)) {
                (tunnel.upf, tunnel.uplink) = (end, Teid(u32::from_be_bytes(item.gtp_teid.0)));
            }
        }
        let (key, chaining) = next_hop(&context)?;
        inbox.events.push(Event::PathSwitched { owner, key, chaining, renewed: false });
        Ok(())
    }

    pub(super) fn on_path_switch_failure(&mut self, pdu: &S1APPDU<'_>, inbox: &mut Inbox) -> Result<(), Fault> {
        let (_, owner) = self.identify_pair(pdu)?;
        inbox.events.push(Event::PathSwitchFailed { owner });
        Ok(())
    }

    fn identify_pair(&mut self, pdu: &S1APPDU<'_>) -> Result<(ConnectionId, u32), Fault> {
        let mme = pdu.ie::<ie::MME_UE_S1AP_ID>().and_then(Result::ok);
        let enb = pdu.ie::<ie::eNB_UE_S1AP_ID>().and_then(Result::ok);
        let (Some(mme), Some(enb)) = (mme, enb) else { return Err(undecodable()) };
        self.identify(mme.0, enb.0)
    }

    /// Sends HANDOVER REQUIRED towards a gNB or ng-eNB. The emulator's gNB refuses the handover if
    /// `refused`.
    pub fn require_system_handover(
        &self,
        id: ConnectionId,
        (target, area): (RanNodeId, Tai),
        refused: bool,
        out: &mut Outbox,
    ) -> Result<(), SendError> {
        self.require_handover(id, HandoverOrder { target, area, refused, direct: false }, out)
    }

    /// Sends HANDOVER REQUIRED towards another eNB or a gNB. The target refuses if the order says
    /// so.
    pub(crate) fn require_handover(
        &self,
        id: ConnectionId,
        order: HandoverOrder,
        out: &mut Outbox,
    ) -> Result<(), SendError> {
        let HandoverOrder { target, area, refused, direct } = order;
        let plmn = PLMNidentity(TBCDSTRING(target.plmn().ngap()));
        let [_, first, high, low] = area.tac.0.to_be_bytes();
        let (kind, target) = match target {
            RanNodeId::Enb(enb) => {
                let enb = helpers::global_enb_id(plmn, helpers::EnbKind::Macro, enb.id)?;
                let target = TargeteNBID::new(enb, helpers::tai(plmn, [high, low]), None);
                (HandoverType::intralte, TargetID::targeteNB_ID(target))
            }
            RanNodeId::Gnb(_) | RanNodeId::NgEnb(_) => {
                let tai = FiveGSTAI::new(plmn, FiveGSTAC([first, high, low]), None);
                let target = TargetNgRanNodeID::new(ng_ran_node(target)?, tai, None);
                (HandoverType::eps_to_5gs, TargetID::targetgNgRanNode_ID(target))
            }
        };
        let mme = self.mme_id(id).ok_or(SendError::NoConnection)?;
        let owner = self.owner(id).ok_or(SendError::NoConnection)?;
        let container = source_container(owner, id, refused);
        let mut ies = vec![
            build_s1ap_ie!(HandoverRequired, MME_UE_S1AP_ID(mme))?,
            build_s1ap_ie!(HandoverRequired, eNB_UE_S1AP_ID(id.0))?,
            build_s1ap_ie!(HandoverRequired, HandoverType(kind))?,
            build_s1ap_ie!(
                HandoverRequired,
                Cause(Cause::radioNetwork(CauseRadioNetwork::handover_desirable_for_radio_reason))
            )?,
            build_s1ap_ie!(HandoverRequired, TargetID(target))?,
        ];
        if direct {
            let path = DirectForwardingPathAvailability::directPathAvailable;
            ies.push(build_s1ap_ie!(HandoverRequired, Direct_Forwarding_Path_Availability(path))?);
        }
        let container = SourceToTargetTransparentContainer(container.into());
        ies.push(build_s1ap_ie!(HandoverRequired, Source_ToTarget_TransparentContainer(container))?);
        let message = HandoverRequired::new(ProtocolIEContainer(ies));
        Ok(encode(out, self.stream(id), S1AP_PDU::of_message(&message, HandoverRequired::CRITICALITY))?)
    }

    /// Handles HANDOVER REQUEST: allocates a connection and answers, or refuses if so configured.
    pub(super) fn handover_request(
        &mut self,
        pdu: &S1APPDU<'_>,
        inbox: &mut Inbox,
        out: &mut Outbox,
    ) -> Result<(), Fault> {
        extract_s1ap_ies!(pdu, HandoverRequest,
            req mme: u32 = MME_UE_S1AP_ID(id),
            req kind: HandoverType = HandoverType(kind) => kind,
            req _ambr: UEAggregateMaximumBitrate = UEAggregateMaximumBitrate(ambr) => ambr,
            req container: SourceToTargetTransparentContainer = Source_ToTarget_TransparentContainer(c) => c,
            req _capability: UESecurityCapabilities = UESecurityCapabilities(capability) => capability,
            req context: SecurityContext = SecurityContext(context) => context,
        );
        let bearers = pdu.items::<ie::E_RABToBeSetupListHOReq>().collect::<Result<Vec<_>, Error>>()?;
        let container = SourceContainer::read(container.0.as_slice()).ok_or_else(undecodable)?;
        let SourceContainer { owner, source, refused } = container;
        let mapped = kind == HandoverType::fivegs_to_eps;
        let (key, chaining) = next_hop(&context)?;
        if refused || bearers.is_empty() {
            let cause = Cause::radioNetwork(CauseRadioNetwork::no_radio_resources_available_in_target_cell);
            let failure = build_s1ap!(
                UnsuccessfulOutcome,
                HandoverResourceAllocation,
                HandoverFailure,
                MME_UE_S1AP_ID(mme),
                Cause(cause),
            );
            return Ok(encode(out, PduRoute { by: self.current, stream: REFUSALS }, failure)?);
        }
        let id = self.connections.allocate(owner, self.current);
        let (mut tunnels, mut admitted) = (Vec::new(), Vec::new());
        for bearer in &bearers {
            let psi = u8::try_from(bearer.e_rab_id.0).map_err(|_| undecodable())?;
            let upf = read_address(&bearer.transport_layer_address.0).ok_or_else(undecodable)?;
            let (uplink, downlink) = (Teid(u32::from_be_bytes(bearer.gtp_teid.0)), self.teid(id, owner, psi));
            let teid = GTPTEID(downlink.0.to_be_bytes());
            let (forward, end) = (Some(self.address()), GTPTEID(forwarding_teid(downlink).0.to_be_bytes()));
            let end = Some(end);
            let item = ERABAdmittedItem::new(bearer.e_rab_id, self.address(), teid, forward, end, None, None, None);
            admitted.push(build_s1ap_ie!(IGNORE E_RABAdmittedItem(item))?);
            tunnels.push(Tunnel { psi, qfi: None, upf, uplink, downlink });
        }
        let container = TargetToSourceTransparentContainer(id.0.to_be_bytes().to_vec().into());
        let answer = build_s1ap!(
            SuccessfulOutcome,
            HandoverResourceAllocation,
            HandoverRequestAcknowledge,
            MME_UE_S1AP_ID(mme),
            eNB_UE_S1AP_ID(id.0),
            E_RABAdmittedList(ERABAdmittedList(admitted)),
            Target_ToSource_TransparentContainer(container),
        );
        encode(out, self.stream(id), answer)?;
        if let Some(connection) = self.connections.get_mut(id) {
            (connection.core_id, connection.tunnels) = (Some(mme.into()), tunnels);
        }
        inbox.events.push(Event::HandoverPrepared { owner, source, target: id, key, chaining, mapped });
        Ok(())
    }

    /// Handles HANDOVER COMMAND: the source sends its bearer status, and the UE leaves.
    pub(super) fn handover_command(
        &mut self,
        pdu: &S1APPDU<'_>,
        inbox: &mut Inbox,
        out: &mut Outbox,
    ) -> Result<(), Fault> {
        extract_s1ap_ies!(pdu, HandoverCommand,
            req mme: u32 = MME_UE_S1AP_ID(id),
            req enb: u32 = eNB_UE_S1AP_ID(id),
            req kind: HandoverType = HandoverType(kind) => kind,
            req container: TargetToSourceTransparentContainer = Target_ToSource_TransparentContainer(c) => c,
        );
        let (id, owner) = self.identify(mme, enb)?;
        let forwarding = self.forwarding_ends(id, pdu)?;
        let (octets, nas) = container.0.as_slice().split_first_chunk::<4>().ok_or_else(undecodable)?;
        let target = vireo_types::RanUeNgapId(u32::from_be_bytes(*octets));
        if kind == HandoverType::eps_to_5gs {
            // The bearers have no status at the target; the UE learns its NAS container.
            inbox.events.push(Event::HandoverCommand { owner, target, nas: nas.to_vec(), forwarding });
            return Ok(());
        }
        let message = build_s1ap!(
            InitiatingMessage,
            eNBStatusTransfer,
            ENBStatusTransfer,
            MME_UE_S1AP_ID(mme),
            eNB_UE_S1AP_ID(id.0),
            eNB_StatusTransfer_TransparentContainer(self.bearer_status(id)?),
        );
        encode(out, self.stream(id), message)?;
        inbox.events.push(Event::HandoverCommand { owner, target, nas: Vec::new(), forwarding });
        Ok(())
    }

    /// Returns the tunnels of HANDOVER COMMAND for packets that arrive after the UE has left.
    fn forwarding_ends(&self, id: ConnectionId, pdu: &S1APPDU<'_>) -> Result<Vec<ForwardingEnd>, Fault> {
        let mut ends = Vec::new();
        for item in pdu.items::<ie::E_RABSubjecttoDataForwardingList>() {
            let item = item?;
            let tunnel = self.tunnels(id).iter().find(|tunnel| u64::from(tunnel.psi) == item.e_rab_id.0);
            let to = item.dl_transport_layer_address.and_then(|address| read_address(&address.0));
            let teid = item.dl_gtp_teid.map(|teid| Teid(u32::from_be_bytes(teid.0)));
            ends.extend(tunnel.zip(to.zip(teid)).map(|(tunnel, (to, teid))| ForwardingEnd {
                tunnel: *tunnel,
                to,
                teid,
            }));
        }
        Ok(ends)
    }

    /// Returns PDCP counts for each E-RAB.
    fn bearer_status(&self, id: ConnectionId) -> Result<ENBStatusTransferTransparentContainer<'static>, Error> {
        let count = |sn| COUNTvalue::new(PDCPSN(sn), HFN(0), None);
        let item = |tunnel: &Tunnel| {
            let erab = ERABID(tunnel.psi.into());
            let item = BearersSubjectToStatusTransferItem::new(erab, count(3), count(5), None, None);
            build_s1ap_ie!(IGNORE Bearers_SubjectToStatusTransfer_Item(item))
        };
        let items = self.tunnels(id).iter().map(item).collect::<Result<_, _>>()?;
        Ok(ENBStatusTransferTransparentContainer::new(BearersSubjectToStatusTransferList(items), None))
    }

    pub(super) fn handover_answer(&mut self, pdu: &S1APPDU<'_>, inbox: &mut Inbox) -> Result<(), Fault> {
        let (_, owner) = self.identify_pair(pdu)?;
        inbox.events.push(match pdu.kind() {
            S1apPduKind::Unsuccessful_HandoverPreparation => {
                let cause = pdu.ie::<ie::Cause>().and_then(Result::ok).ok_or_else(undecodable)?;
                Event::HandoverRefused { owner, cause }
            }
            S1apPduKind::Successful_HandoverCancel => Event::HandoverCancelled { owner },
            _ => Event::StatusTransfer { owner },
        });
        Ok(())
    }

    /// Sends HANDOVER NOTIFY for a UE that has arrived.
    pub fn notify(&self, id: ConnectionId, out: &mut Outbox) -> Result<(), SendError> {
        let mme = self.mme_id(id).ok_or(SendError::NoConnection)?;
        let message = build_s1ap!(
            InitiatingMessage,
            HandoverNotification,
            HandoverNotify,
            MME_UE_S1AP_ID(mme),
            eNB_UE_S1AP_ID(id.0),
            EUTRAN_CGI(self.cell()?),
            TAI(self.tai()),
        );
        Ok(encode(out, self.stream(id), message)?)
    }

    /// Sends HANDOVER CANCEL: the UE stays at the source.
    pub fn cancel_handover(&self, id: ConnectionId, out: &mut Outbox) -> Result<(), SendError> {
        let mme = self.mme_id(id).ok_or(SendError::NoConnection)?;
        let message = build_s1ap!(
            InitiatingMessage,
            HandoverCancel,
            HandoverCancel,
            MME_UE_S1AP_ID(mme),
            eNB_UE_S1AP_ID(id.0),
            Cause(Cause::radioNetwork(CauseRadioNetwork::handover_cancelled)),
        );
        Ok(encode(out, self.stream(id), message)?)
    }
}

fn next_hop(context: &SecurityContext<'_>) -> Result<([u8; 32], u8), Fault> {
    let key = <[u8; 32]>::try_from(context.next_hop_parameter.0.as_octets());
    Ok((key.map_err(|_| undecodable())?, context.next_hop_chaining_count))
}

/// Returns the identity of a gNB or ng-eNB in a Target NG-RAN Node ID (TS 36.413 9.2.1.6).
fn ng_ran_node(id: RanNodeId) -> Result<GlobalRANNODEID, Error> {
    let plmn = PLMNidentity(TBCDSTRING(id.plmn().ngap()));
    Ok(match id {
        RanNodeId::Gnb(gnb) => {
            let bits = Bits::low(gnb.id.into(), gnb.bits.into());
            let id = GlobalGNBID::new(plmn, GNBIdentity::gNB_ID(GNBID(bits)), None);
            GlobalRANNODEID::gNB(GNB::new(id, None))
        }
        RanNodeId::NgEnb(enb) | RanNodeId::Enb(enb) => {
            let kind = match enb.kind {
                EnbKind::Macro => helpers::EnbKind::Macro,
                EnbKind::Home => helpers::EnbKind::Home,
                EnbKind::ShortMacro => helpers::EnbKind::ShortMacro,
                EnbKind::LongMacro => helpers::EnbKind::LongMacro,
            };
            GlobalRANNODEID::ng_eNB(NGENB::new(helpers::global_enb_id(plmn, kind, enb.id)?, None))
        }
    })
}
