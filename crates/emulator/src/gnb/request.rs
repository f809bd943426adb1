//! Procedures that a gNB starts.
//!
//! These are NG SETUP, NAS transport, release requests, NG RESET, configuration updates and error
//! indications.

use super::{ErrorReport, Gnb, Outbox, PduRoute, encode_by};
use crate::ran::SendError;
use vireo_types::{EnbId, EnbKind, Guti, RanNodeId, RanUeNgapId};
use vireo_wire::ngap::build_ngap;
use vireo_wire::ngap::*;

/// Cell of every UE of a gNB.
const CELL: u16 = 1;

impl Gnb {
    pub(super) fn plmn(&self) -> PLMNIdentity {
        PLMNIdentity(self.config.tai.plmn.ngap())
    }

    fn tac(&self) -> [u8; 3] {
        let [_, a, b, c] = self.config.tai.tac.0.to_be_bytes();
        [a, b, c]
    }

    pub(crate) fn location(&self) -> Result<UserLocationInformation<'static>, Error> {
        let (plmn, tai) = (self.plmn(), helpers::tai(self.plmn(), self.tac()));
        match self.config.id {
            RanNodeId::Gnb(id) => {
                let cell = helpers::nr_cgi(plmn, id.id, u32::from(id.bits), CELL)?;
                let location = UserLocationInformationNR::new(cell, tai, None, None);
                Ok(UserLocationInformation::userLocationInformationNR(location))
            }
            RanNodeId::NgEnb(id) | RanNodeId::Enb(id) => {
                // The eNB ID is the leftmost part of the cell identity, of 28 bits (9.3.1.9).
                let cell = u64::from(id.id) << (28 - id.kind.bits().min(28)) | u64::from(CELL);
                let cell = EUTRACGI::new(plmn, EUTRACellIdentity(Bits::low(cell, 28)), None);
                let location = UserLocationInformationEUTRA::new(cell, tai, None, None);
                Ok(UserLocationInformation::userLocationInformationEUTRA(location))
            }
        }
    }

    fn areas(&self) -> SupportedTAList {
        let slices = self.config.slices.iter().map(|slice| {
            let sd = slice.sd.map(crate::ue::sd_octets);
            SliceSupportItem::new(helpers::s_nssai(slice.sst, sd), None)
        });
        let plmns = BroadcastPLMNItem::new(self.plmn(), SliceSupportList(slices.collect()), None);
        let area = SupportedTAItem::new(TAC(self.tac()), BroadcastPLMNList(vec![plmns]), None);
        SupportedTAList(vec![area])
    }

    /// Returns the Global RAN Node ID.
    pub(super) fn global_id(&self) -> Result<GlobalRANNodeID, Error> {
        global_id(self.config.id)
    }

    /// Sends NG SETUP REQUEST on the current association.
    pub(super) fn request_set_up(&self, out: &mut Outbox) -> Result<(), SendError> {
        let request = build_ngap!(
            InitiatingMessage,
            NGSetup,
            NGSetupRequest,
            GlobalRANNodeID(self.global_id()?),
            RANNodeName(self.config.name.as_str()),
            SupportedTAList(self.areas()),
            DefaultPagingDRX(PagingDRX::v128),
        );
        Ok(encode_by(out, PduRoute { by: self.current, stream: 0 }, request)?)
    }

    /// Sends RAN CONFIGURATION UPDATE with the node's name and tracking areas.
    pub fn update_configuration(&mut self, out: &mut Outbox) -> Result<(), SendError> {
        let update = build_ngap!(
            InitiatingMessage,
            RANConfigurationUpdate,
            RANConfigurationUpdate,
            RANNodeName(self.config.name.as_str()),
            SupportedTAList(self.areas()),
        );
        Ok(encode_by(out, self.common(), update)?)
    }

    /// Opens an NG connection with INITIAL UE MESSAGE. It includes the 5G-S-TMSI if the UE sent one
    /// in RRC.
    pub fn initial_ue(
        &mut self,
        owner: u32,
        nas: &[u8],
        guti: Option<Guti>,
        cause: RRCEstablishmentCause,
        out: &mut Outbox,
    ) -> Result<RanUeNgapId, SendError> {
        let ran = self.allocate(owner);
        let route = self.ue_route(ran);
        let location = self.location()?;
        let message = match guti {
            None => build_ngap!(
                InitiatingMessage,
                InitialUEMessage,
                InitialUEMessage,
                RAN_UE_NGAP_ID(ran.0),
                NAS_PDU(NASPDU(nas.into())),
                UserLocationInformation(location),
                RRCEstablishmentCause(cause),
                UEContextRequest(UEContextRequest::requested),
            ),
            Some(guti) => {
                let g = guti.guami;
                let guami = helpers::guami(PLMNIdentity(g.plmn.ngap()), g.region, g.set, g.pointer)?;
                let tmsi = FiveGTMSI(guti.tmsi.0.to_be_bytes());
                let s_tmsi = FiveGSTMSI::new(guami.amf_set_id, guami.amf_pointer, tmsi, None);
                build_ngap!(
                    InitiatingMessage,
                    InitialUEMessage,
                    InitialUEMessage,
                    RAN_UE_NGAP_ID(ran.0),
                    NAS_PDU(NASPDU(nas.into())),
                    UserLocationInformation(location),
                    RRCEstablishmentCause(cause),
                    FiveG_S_TMSI(s_tmsi),
                    UEContextRequest(UEContextRequest::requested),
                )
            }
        };
        encode_by(out, route, message)?;
        Ok(ran)
    }

    /// Sends UPLINK NAS TRANSPORT.
    pub fn uplink_nas(&self, ran: RanUeNgapId, nas: &[u8], out: &mut Outbox) -> Result<(), SendError> {
        let amf = self.amf_id(ran).ok_or(SendError::NoConnection)?;
        let message = build_ngap!(
            InitiatingMessage,
            UplinkNASTransport,
            UplinkNASTransport,
            AMF_UE_NGAP_ID(amf),
            RAN_UE_NGAP_ID(ran.0),
            NAS_PDU(NASPDU(nas.into())),
            UserLocationInformation(self.location()?),
        );
        Ok(encode_by(out, self.ue_route(ran), message)?)
    }

    /// Sends UE CONTEXT RELEASE REQUEST with the UE's PDU sessions.
    pub fn request_release(&self, ran: RanUeNgapId, cause: Cause, out: &mut Outbox) -> Result<(), SendError> {
        let amf = self.amf_id(ran).ok_or(SendError::NoConnection)?;
        let sessions =
            self.tunnels(ran).iter().map(|t| PDUSessionResourceItemCxtRelReq::new(PDUSessionID(t.psi), None));
        let sessions: Vec<_> = sessions.collect();
        let message = if sessions.is_empty() {
            build_ngap!(
                InitiatingMessage,
                UEContextReleaseRequest,
                UEContextReleaseRequest,
                AMF_UE_NGAP_ID(amf),
                RAN_UE_NGAP_ID(ran.0),
                Cause(cause),
            )
        } else {
            build_ngap!(
                InitiatingMessage,
                UEContextReleaseRequest,
                UEContextReleaseRequest,
                AMF_UE_NGAP_ID(amf),
                RAN_UE_NGAP_ID(ran.0),
                PDUSessionResourceListCxtRelReq(PDUSessionResourceListCxtRelReq(sessions)),
                Cause(cause),
            )
        };
        Ok(encode_by(out, self.ue_route(ran), message)?)
    }

    /// Sends NG RESET of the interface (`None`) or of these UEs. Removes their connections at once
    /// and returns the owners.
    pub fn reset(&mut self, ues: Option<&[RanUeNgapId]>, out: &mut Outbox) -> Result<Vec<u32>, SendError> {
        let kind = match ues {
            None => ResetType::nG_Interface(ResetAll::reset_all),
            Some(ues) => {
                let item = |ran: &RanUeNgapId| {
                    let amf = self.amf_id(*ran).map(AMFUENGAPID);
                    UEAssociatedLogicalNGConnectionItem::new(amf, Some(RANUENGAPID(ran.0)), None)
                };
                let list = UEAssociatedLogicalNGConnectionList(ues.iter().map(item).collect());
                ResetType::partOfNG_Interface(list)
            }
        };
        let cause = Cause::radioNetwork(CauseRadioNetwork::release_due_to_ngran_generated_reason);
        let message = build_ngap!(InitiatingMessage, NGReset, NGReset, Cause(cause), ResetType(kind));
        encode_by(out, self.common(), message)?;
        let gone = match ues {
            Some(ues) => ues.iter().filter_map(|ran| self.remove(*ran)).collect(),
            None => self.remove_all(),
        };
        Ok(gone)
    }

    pub(super) fn remove_all(&mut self) -> Vec<u32> {
        self.connections.remove_all()
    }

    /// Sends ERROR INDICATION (TS 38.413 8.7.4).
    pub fn indicate_error(&self, report: ErrorReport, out: &mut Outbox) -> Result<(), SendError> {
        let cause = report.cause.unwrap_or(Cause::protocol(CauseProtocol::unspecified));
        let message = match (report.core_id, report.ran_id) {
            (Some(amf), Some(ran)) => build_ngap!(
                InitiatingMessage,
                ErrorIndication,
                ErrorIndication,
                AMF_UE_NGAP_ID(amf),
                RAN_UE_NGAP_ID(ran),
                Cause(cause),
            ),
            _ => build_ngap!(InitiatingMessage, ErrorIndication, ErrorIndication, Cause(cause)),
        };
        Ok(encode_by(out, self.common(), message)?)
    }
}

/// Returns the Global RAN Node ID of a gNB or ng-eNB (9.3.1.5).
pub(super) fn global_id(id: RanNodeId) -> Result<GlobalRANNodeID, Error> {
    let plmn = PLMNIdentity(id.plmn().ngap());
    match id {
        RanNodeId::Gnb(id) => {
            let id = helpers::global_gnb_id(plmn, id.id, u32::from(id.bits))?;
            Ok(GlobalRANNodeID::globalGNB_ID(id))
        }
        RanNodeId::NgEnb(id) | RanNodeId::Enb(id) => {
            Ok(GlobalRANNodeID::globalNgENB_ID(GlobalNgENBID::new(plmn, ng_enb_id(id), None)))
        }
    }
}

/// Returns the ng-eNB ID, which also names the eNB of a Target eNB ID (9.3.1.8). There is none of a
/// home eNB.
pub(super) fn ng_enb_id(id: EnbId) -> NgENBID {
    let bits = |length| Bits::low(id.id.into(), length);
    match id.kind {
        EnbKind::ShortMacro => NgENBID::shortMacroNgENB_ID(bits(18)),
        EnbKind::LongMacro => NgENBID::longMacroNgENB_ID(bits(21)),
        EnbKind::Macro | EnbKind::Home => NgENBID::macroNgENB_ID(bits(20)),
    }
}
