//! What a gNB or ng-eNB learns of a UE beside keys and sessions: mobility restrictions, and the
//! assistance for RRC_INACTIVE (TS 38.413 9.3.1.85, 9.3.1.15).

use super::{plmn_to, tac_octets};
use crate::amf::context::{DrxCycle, UeContext};
use crate::config::CoreConfig;
use crate::subscription::{AreaRestrictions, ServiceArea};
use std::num::NonZeroU16;
use vireo_types::{Dialect, Plmn, Tac, Tai, Tmsi, limits};
use vireo_wire::nas::NasT3512Value;
use vireo_wire::ngap::{self, *};

/// T3512 if its value has no coding (TS 24.501 10.2): 54 minutes.
const DEFAULT_T3512_S: u64 = 54 * 60;

/// Information about a UE for its RAN node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UeInformation {
    pub restrictions: Option<MobilityRestrictions>,
    pub inactive: Option<InactiveAssistance>,
    /// Index to RAT/Frequency Selection Priority; also for an eNB (Subscriber Profile ID).
    pub rfsp: Option<NonZeroU16>,
}

/// Mobility Restriction List, as far as the core has restrictions. Absent, there are none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MobilityRestrictions {
    pub serving: Plmn,
    /// Other served PLMNs, to which the UE may be handed over.
    pub equivalent: Vec<Plmn>,
    /// The subscriber may not use EPC (core network type restriction, TS 23.501 5.3.4.1.1).
    pub is_epc_forbidden: bool,
    /// Areas in each of these PLMNs.
    pub areas: AreaRestrictions,
}

/// Core Network Assistance Information for RRC INACTIVE, with which a RAN node may suspend the
/// connection of the UE and page it by itself (TS 23.501 5.3.3.2.5).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InactiveAssistance {
    pub tmsi: Tmsi,
    pub drx: Option<DrxCycle>,
    /// T3512 value in the coding of NAS.
    pub t3512: u8,
    /// The UE is in MICO mode.
    pub mico: bool,
    /// Registration area, not empty.
    pub area: Vec<Tai>,
}

impl UeInformation {
    /// Returns the information about a UE at a node of this PLMN.
    pub fn from_context(ue: &UeContext, config: &CoreConfig, serving: Plmn) -> Self {
        let is_epc_forbidden = ue.subscription.as_ref().is_some_and(|s| s.only == Some(Dialect::Nr));
        let others = config.plmns.iter().copied().filter(|plmn| *plmn != serving);
        // TS 38.413 9.3.1.85: maxnoofEPLMNs.
        let equivalent: Vec<_> = others.take(15).collect();
        let areas = ue.areas().cloned().unwrap_or_default();
        let restricts = is_epc_forbidden || !equivalent.is_empty() || !areas.is_empty();
        let area = &ue.reachability.area;
        let is_permitted = !config.ran.forbids_rrc_inactive && !area.is_empty();
        let inactive = ue.identity.tmsi.filter(|_| is_permitted).map(|tmsi| InactiveAssistance {
            tmsi,
            drx: ue.reachability.paging.drx_in(Dialect::Nr),
            t3512: t3512(config.timers.t3512.as_secs()),
            mico: ue.reachability.paging.power_saving.is_some(),
            area: area.iter().copied().take(limits::TAIS_PER_LIST).collect(),
        });
        let restrictions = MobilityRestrictions { serving, equivalent, is_epc_forbidden, areas };
        let restrictions = restricts.then_some(restrictions);
        UeInformation { restrictions, inactive, rfsp: ue.rfsp() }
    }
}

/// Returns the octet of a period; 0 = deactivated.
fn t3512(seconds: u64) -> u8 {
    let value = if seconds == 0 { Ok(NasT3512Value::deactivated()) } else { NasT3512Value::from_seconds(seconds) };
    let value = value.or_else(|_| NasT3512Value::from_seconds(DEFAULT_T3512_S));
    value.ok().and_then(|value| value.value.first().copied()).unwrap_or_default()
}

impl MobilityRestrictions {
    /// Returns the list that ends all restrictions of an earlier one.
    pub(crate) fn none(serving: Plmn) -> Self {
        let areas = AreaRestrictions::default();
        MobilityRestrictions { serving, equivalent: Vec::new(), is_epc_forbidden: false, areas }
    }

    fn plmns(&self) -> impl Iterator<Item = PLMNIdentity> {
        [self.serving].into_iter().chain(self.equivalent.iter().copied()).map(plmn_to)
    }

    /// Returns the forbidden areas (9.3.1.85), which are those of each PLMN.
    fn forbidden(&self) -> Option<ForbiddenAreaInformation> {
        let tacs = tacs(&self.areas.forbidden);
        let item = |plmn| ForbiddenAreaInformationItem::new(plmn, ForbiddenTACs(tacs.clone()), None);
        (!tacs.is_empty()).then(|| ForbiddenAreaInformation(self.plmns().map(item).collect()))
    }

    /// Returns the service area (9.3.1.85), which is that of each PLMN.
    fn service(&self) -> Option<ServiceAreaInformation> {
        let service = self.areas.service.as_ref()?;
        let (allowed, other) = match service {
            ServiceArea::Allowed(allowed) => (Some(AllowedTACs(tacs(allowed))), None),
            ServiceArea::NotAllowed(other) => (None, Some(NotAllowedTACs(tacs(other)))),
        };
        let item = |plmn| ServiceAreaInformationItem::new(plmn, allowed.clone(), other.clone(), None);
        Some(ServiceAreaInformation(self.plmns().map(item).collect()))
    }

    /// Returns the Mobility Restriction List.
    pub(crate) fn encode(&self) -> MobilityRestrictionList<'static> {
        let equivalent = self.equivalent.iter().map(|plmn| plmn_to(*plmn)).collect::<Vec<_>>();
        let equivalent = (!equivalent.is_empty()).then_some(EquivalentPLMNs(equivalent));
        let extension = || {
            let value = encode_open_type(&CNTypeRestrictionsForServing::epc_forbidden).ok()?;
            let id = ProtocolExtensionID(ID_CNTYPE_RESTRICTIONS_FOR_SERVING.0);
            let field = ProtocolExtensionField::new(id, Criticality::ignore, value);
            Some(ProtocolExtensionContainer(vec![field]))
        };
        let extensions = if self.is_epc_forbidden { extension() } else { None };
        let (forbidden, service) = (self.forbidden(), self.service());
        MobilityRestrictionList::new(plmn_to(self.serving), equivalent, None, forbidden, service, extensions)
    }
}

fn tacs(tacs: &[Tac]) -> Vec<TAC> {
    tacs.iter().map(|tac| TAC(tac_octets(*tac))).collect()
}

impl InactiveAssistance {
    /// Returns the Core Network Assistance Information for RRC INACTIVE.
    pub(crate) fn encode(&self) -> CoreNetworkAssistanceInformationForInactive {
        // 5G-S-TMSI mod 1024 (TS 38.304 7.1).
        let index = UEIdentityIndexValue::indexLength10(aper::Bits::low(self.tmsi.0.into(), 10));
        let item = |tai: &Tai| {
            let tai = ngap::helpers::tai(plmn_to(tai.plmn), tac_octets(tai.tac));
            TAIListForInactiveItem::new(tai, None)
        };
        CoreNetworkAssistanceInformationForInactive::new(
            index,
            self.drx.map(paging_drx),
            PeriodicRegistrationUpdateTimer(aper::Bits::low(self.t3512.into(), 8)),
            self.mico.then_some(MICOModeIndication::R_true),
            TAIListForInactive(self.area.iter().map(item).collect()),
            None,
            None,
        )
    }
}

/// Converts a DRX cycle to Paging DRX (9.3.1.90).
pub(crate) fn paging_drx(drx: DrxCycle) -> PagingDRX {
    match drx {
        DrxCycle::Frames32 => PagingDRX::v32,
        DrxCycle::Frames64 => PagingDRX::v64,
        DrxCycle::Frames128 => PagingDRX::v128,
        DrxCycle::Frames256 => PagingDRX::v256,
    }
}

/// Encodes UE Radio Capability for Paging (9.3.1.68) of the octets that an eNB has for NR and
/// E-UTRA; empty octets are unknown.
pub(crate) fn paging_capability(nr: &[u8], eutra: &[u8]) -> Vec<u8> {
    let known = |octets: &[u8]| (!octets.is_empty()).then(|| octets.to_vec().into());
    let capability = UERadioCapabilityForPaging::new(
        known(nr).map(UERadioCapabilityForPagingOfNR),
        known(eutra).map(UERadioCapabilityForPagingOfEUTRA),
        None,
    );
    // Nothing but memory limits the encoding.
    encode_open_type(&capability).map(|octets| octets.to_vec()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::golden::nr as golden;
    use vireo_types::Tac;

    /// The IEs equal those of pycrate's Downlink NAS Transport.
    #[test]
    fn areas_equal_golden() {
        let octets = golden("DownlinkNASTransport-information");
        let pdu = NGAP_PDU::decode_borrowed(&octets).expect("a PDU");
        let service = Some(ServiceArea::NotAllowed(vec![Tac(7)]));
        let areas = AreaRestrictions { forbidden: vec![Tac(2), Tac(0xff_ffff)], service };
        let home = "99970".parse().expect("a PLMN");
        let restrictions = MobilityRestrictions { areas, ..MobilityRestrictions::none(home) };
        assert_eq!(pdu.ie::<ie::MobilityRestrictionList>(), Some(Ok(restrictions.encode())));
    }

    /// The IEs equal those of pycrate's Initial Context Setup Request.
    #[test]
    fn ue_information_equals_golden() {
        let [home, other] = ["99970", "00101"].map(|plmn| plmn.parse().expect("a PLMN"));
        let octets = golden("InitialContextSetupRequest-information");
        let pdu = NGAP_PDU::decode_borrowed(&octets).expect("a PDU");
        let restrictions = MobilityRestrictions {
            equivalent: vec![other],
            is_epc_forbidden: true,
            ..MobilityRestrictions::none(home)
        };
        assert_eq!(pdu.ie::<ie::MobilityRestrictionList>(), Some(Ok(restrictions.encode())));
        let inactive = InactiveAssistance {
            tmsi: Tmsi(0xdead_beef),
            drx: Some(DrxCycle::Frames64),
            t3512: t3512(3600),
            mico: true,
            area: vec![Tai { plmn: home, tac: Tac(1) }],
        };
        assert_eq!(pdu.ie::<ie::CoreNetworkAssistanceInformationForInactive>(), Some(Ok(inactive.encode())));
        assert_eq!(pdu.ie::<ie::IndexToRFSP>(), Some(Ok(IndexToRFSP(256))));
        // TS 24.008 table 10.5.163a: 6 times 10 minutes, and deactivated.
        assert_eq!((t3512(3600), t3512(0), t3512(54 * 60)), (0x06, 0xe0, t3512(1 << 40)));
    }
}
