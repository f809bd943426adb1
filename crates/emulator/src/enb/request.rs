//! Procedures that an eNB starts.
//!
//! These are S1 SETUP, NAS transport, release requests, RESET, configuration updates and error
//! indications.

use super::association::mme_code;
use super::{ConnectionId, Enb, ErrorReport, Outbox, S1State, SendError, encode};
use crate::ran::{PduRoute, radio_capability};
use vireo_types::Guti;
use vireo_wire::s1ap::*;
use vireo_wire::s1ap::{build_s1ap, build_s1ap_ie};

/// Cell of every UE of an eNB.
const CELL: u16 = 1;

/// Radio capability of every UE after its attach. The MME stores it and does not read it (TS 23.401
/// 5.11.2).
const RADIO_CAPABILITY: [u8; 32] = [0xa5; 32];

impl Enb {
    fn plmn(&self) -> PLMNidentity {
        PLMNidentity(TBCDSTRING(self.config.tai.plmn.ngap()))
    }

    fn tac(&self) -> [u8; 2] {
        let [.., high, low] = self.config.tai.tac.0.to_be_bytes();
        [high, low]
    }

    pub(crate) fn tai(&self) -> TAI {
        helpers::tai(self.plmn(), self.tac())
    }

    pub(crate) fn cell(&self) -> Result<EUTRANCGI, Error> {
        helpers::eutran_cgi(self.plmn(), helpers::EnbKind::Macro, self.config.id, CELL)
    }

    /// Returns the Global eNB ID.
    pub(super) fn global_id(&self) -> Result<GlobalENBID, Error> {
        helpers::global_enb_id(self.plmn(), helpers::EnbKind::Macro, self.config.id)
    }

    fn areas(&self) -> SupportedTAs {
        SupportedTAs(vec![SupportedTAsItem::new(TAC(self.tac()), BPLMNs(vec![self.plmn()]), None)])
    }

    /// Sends S1 SETUP REQUEST on an association with this number of outbound streams.
    pub fn set_up(&mut self, streams: u16, out: &mut Outbox) -> Result<(), SendError> {
        self.on_association_lost();
        self.attach(0, streams, out)
    }

    pub(super) fn request_set_up(&self, out: &mut Outbox) -> Result<(), SendError> {
        let request = build_s1ap!(
            InitiatingMessage,
            S1Setup,
            S1SetupRequest,
            Global_ENB_ID(self.global_id()?),
            eNBname(self.config.name.as_str()),
            SupportedTAs(self.areas()),
            DefaultPagingDRX(PagingDRX::v128),
        );
        Ok(encode(out, self.common(), request)?)
    }

    /// Sends ENB CONFIGURATION UPDATE with the node's name and tracking areas.
    pub fn update_configuration(&mut self, out: &mut Outbox) -> Result<(), SendError> {
        let update = build_s1ap!(
            InitiatingMessage,
            ENBConfigurationUpdate,
            ENBConfigurationUpdate,
            eNBname(self.config.name.as_str()),
            SupportedTAs(self.areas()),
        );
        Ok(encode(out, self.common(), update)?)
    }

    /// Opens an S1 connection with INITIAL UE MESSAGE. It includes the S-TMSI if the UE sent one in
    /// RRC.
    pub fn initial_ue(
        &mut self,
        owner: u32,
        nas: &[u8],
        guti: Option<Guti>,
        cause: RRCEstablishmentCause,
        out: &mut Outbox,
    ) -> Result<ConnectionId, SendError> {
        let by = self.choose(owner, guti);
        let id = self.connections.allocate(owner, by);
        let mut ies = vec![
            build_s1ap_ie!(InitialUEMessage, eNB_UE_S1AP_ID(id.0))?,
            build_s1ap_ie!(InitialUEMessage, NAS_PDU(NASPDU(nas.into())))?,
            build_s1ap_ie!(InitialUEMessage, TAI(self.tai()))?,
            build_s1ap_ie!(InitialUEMessage, EUTRAN_CGI(self.cell()?))?,
            build_s1ap_ie!(InitialUEMessage, RRC_Establishment_Cause(cause))?,
        ];
        if let Some(guti) = guti {
            let s_tmsi = STMSI::new(MMECode([mme_code(guti)]), MTMSI(guti.tmsi.0.to_be_bytes()), None);
            ies.push(build_s1ap_ie!(InitialUEMessage, S_TMSI(s_tmsi))?);
        }
        let message = InitialUEMessage::new(ProtocolIEContainer(ies));
        encode(out, self.stream(id), S1AP_PDU::of_message(&message, InitialUEMessage::CRITICALITY))?;
        Ok(id)
    }

    /// Sends UPLINK NAS TRANSPORT.
    pub fn uplink_nas(&self, id: ConnectionId, nas: &[u8], out: &mut Outbox) -> Result<(), SendError> {
        let mme = self.mme_id(id).ok_or(SendError::NoConnection)?;
        let message = build_s1ap!(
            InitiatingMessage,
            uplinkNASTransport,
            UplinkNASTransport,
            MME_UE_S1AP_ID(mme),
            eNB_UE_S1AP_ID(id.0),
            NAS_PDU(NASPDU(nas.into())),
            EUTRAN_CGI(self.cell()?),
            TAI(self.tai()),
        );
        Ok(encode(out, self.stream(id), message)?)
    }

    /// Sends UE CAPABILITY INFO INDICATION with the capability that each UE has after its attach.
    pub(super) fn indicate_capability(&self, mme: u32, id: ConnectionId, out: &mut Outbox) -> Result<(), SendError> {
        self.send_capability(mme, id, RADIO_CAPABILITY[..].into(), out)
    }

    /// Sends UE CAPABILITY INFO INDICATION with [`radio_capability`].
    pub fn report_capability(&self, id: ConnectionId, out: &mut Outbox) -> Result<(), SendError> {
        let mme = self.mme_id(id).ok_or(SendError::NoConnection)?;
        let owner = self.owner(id).ok_or(SendError::NoConnection)?;
        self.send_capability(mme, id, radio_capability(owner), out)
    }

    fn send_capability(
        &self,
        mme: u32,
        id: ConnectionId,
        capability: Vec<u8>,
        out: &mut Outbox,
    ) -> Result<(), SendError> {
        let message = build_s1ap!(
            InitiatingMessage,
            UECapabilityInfoIndication,
            UECapabilityInfoIndication,
            MME_UE_S1AP_ID(mme),
            eNB_UE_S1AP_ID(id.0),
            UERadioCapability(capability),
        );
        Ok(encode(out, self.stream(id), message)?)
    }

    /// Sends UE CONTEXT RELEASE REQUEST.
    pub fn request_release(&self, id: ConnectionId, cause: Cause, out: &mut Outbox) -> Result<(), SendError> {
        let mme = self.mme_id(id).ok_or(SendError::NoConnection)?;
        let message = build_s1ap!(
            InitiatingMessage,
            UEContextReleaseRequest,
            UEContextReleaseRequest,
            MME_UE_S1AP_ID(mme),
            eNB_UE_S1AP_ID(id.0),
            Cause(cause),
        );
        Ok(encode(out, self.stream(id), message)?)
    }

    /// Sends RESET of the interface with each MME (`None`), or of these UEs. Removes their
    /// connections at once and returns the owners.
    pub fn reset(&mut self, ues: Option<&[ConnectionId]>, out: &mut Outbox) -> Result<Vec<u32>, SendError> {
        let mut owners = Vec::new();
        for by in 0..self.associations.len() as u8 {
            let is_here = |id: &&ConnectionId| self.connections.get(**id).is_some_and(|connection| connection.by == by);
            let ues: Option<Vec<ConnectionId>> = ues.map(|ues| ues.iter().filter(is_here).copied().collect());
            if self.association_state(by) == S1State::Up && ues.as_ref().is_none_or(|ues| !ues.is_empty()) {
                owners.extend(self.reset_by(by, ues.as_deref(), out)?);
            }
        }
        Ok(owners)
    }

    fn reset_by(&mut self, by: u8, ues: Option<&[ConnectionId]>, out: &mut Outbox) -> Result<Vec<u32>, SendError> {
        let kind = match ues {
            None => ResetType::s1_Interface(ResetAll::reset_all),
            Some(ues) => {
                let item = |id: &ConnectionId| {
                    let mme = self.mme_id(*id).map(MMEUES1APID);
                    let item = UEAssociatedLogicalS1ConnectionItem::new(mme, Some(ENBUES1APID(id.0)), None);
                    build_s1ap_ie!(REJECT UE_associatedLogicalS1_ConnectionItem(item))
                };
                let items = ues.iter().map(item).collect::<Result<_, _>>()?;
                ResetType::partOfS1_Interface(UEAssociatedLogicalS1ConnectionListRes(items))
            }
        };
        let cause = Cause::radioNetwork(CauseRadioNetwork::release_due_to_eutran_generated_reason);
        let way = PduRoute { by, stream: 0 };
        encode(out, way, build_s1ap!(InitiatingMessage, Reset, Reset, Cause(cause), ResetType(kind)))?;
        // Messages of the MME may cross the RESET: they are no violation.
        self.connections.abandon_by(by, ues);
        Ok(match ues {
            Some(ues) => ues.iter().filter_map(|id| self.connections.remove(*id)).collect(),
            None => self.connections.remove_by(by),
        })
    }

    /// Sends ERROR INDICATION (TS 36.413 8.7.2).
    pub fn indicate_error(&self, report: ErrorReport, out: &mut Outbox) -> Result<(), SendError> {
        let cause = report.cause.unwrap_or(Cause::protocol(CauseProtocol::unspecified));
        let message = match (report.core_id.and_then(|id| u32::try_from(id).ok()), report.ran_id) {
            (Some(mme), Some(enb)) => build_s1ap!(
                InitiatingMessage,
                ErrorIndication,
                ErrorIndication,
                MME_UE_S1AP_ID(mme),
                eNB_UE_S1AP_ID(enb),
                Cause(cause),
            ),
            _ => build_s1ap!(InitiatingMessage, ErrorIndication, ErrorIndication, Cause(cause)),
        };
        Ok(encode(out, self.common(), message)?)
    }
}
