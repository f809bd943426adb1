//! What a RAN node learns of a UE beside keys and sessions: mobility restrictions, and of 5G the
//! assistance for RRC_INACTIVE (TS 38.413 9.3.1.85, 9.3.1.15). For an eNB, `amf::s1` encodes it.

use super::{eutra_extended_drx, nr_extended_drx, plmn_to, tac_octets};
use crate::amf::context::{DrxCycle, ExtendedDrx, UeContext, hashed_id};
use crate::config::CoreConfig;
use crate::gprs_timer::t3512;
use crate::subscription::{AreaRestrictions, ServiceArea};
use std::num::NonZeroU16;
use vireo_types::{Dialect, Pei, Plmn, Tac, Tai, Tmsi, limits};
use vireo_wire::ngap::{self, *};

/// Information about a UE for its RAN node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UeInformation {
    pub restrictions: Option<MobilityRestrictions>,
    pub inactive: Option<InactiveAssistance>,
    /// Index to RAT/Frequency Selection Priority; Subscriber Profile ID of an eNB.
    pub rfsp: Option<NonZeroU16>,
    /// Model of the UE, for the target of a handover and a node that sets the context up.
    pub masked_imeisv: Option<u64>,
}

/// Mobility Restriction List, or Handover Restriction List of an eNB, as far as the core has
/// restrictions. Absent, there are none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MobilityRestrictions {
    pub serving: Plmn,
    /// Other served PLMNs, to which the UE may be handed over.
    pub equivalent: Vec<Plmn>,
    /// The subscriber may not use EPC, or at an eNB 5GC (core network type restriction, TS 23.501
    /// 5.3.4.1.1).
    pub is_other_core_forbidden: bool,
    /// The UE may not use NR as secondary RAT of an eNB (TS 23.401 4.3.2a).
    pub is_nr_restricted: bool,
    /// Areas in each of these PLMNs.
    pub areas: AreaRestrictions,
}

/// Core Network Assistance Information for RRC INACTIVE, with which a RAN node may suspend the
/// connection of the UE and page it by itself (TS 23.501 5.3.3.2.5).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InactiveAssistance {
    pub tmsi: Tmsi,
    pub drx: Option<DrxCycle>,
    pub extended_drx: Option<ExtendedDrx>,
    /// T3512 value in the coding of NAS.
    pub t3512: u8,
    /// The UE is in MICO mode.
    pub mico: bool,
    /// Registration area, not empty.
    pub area: Vec<Tai>,
}

impl UeInformation {
    /// Returns the information about a UE at a node of this dialect and PLMN.
    pub fn from_context(ue: &UeContext, config: &CoreConfig, (dialect, serving): (Dialect, Plmn)) -> Self {
        let mut areas = ue.areas().cloned().unwrap_or_default();
        if dialect == Dialect::Eps {
            areas = areas.in_eps();
        }
        let restrictions = MobilityRestrictions {
            serving,
            equivalent: config.equivalent_plmns(serving).collect(),
            is_other_core_forbidden: ue.subscription.as_ref().is_some_and(|s| s.only == Some(dialect)),
            is_nr_restricted: dialect == Dialect::Eps && ue.restricts_dcnr(config),
            areas,
        };
        let reachability = ue.reachability_for_page(config);
        let area = &reachability.area;
        let is_permitted = dialect == Dialect::Nr && !config.ran.forbids_rrc_inactive && !area.is_empty();
        let inactive = ue.identity.tmsi.filter(|_| is_permitted).map(|tmsi| InactiveAssistance {
            tmsi,
            drx: reachability.paging.drx_in(Dialect::Nr),
            extended_drx: reachability.paging.extended_drx,
            t3512: t3512(config.timers.t3512.as_secs()),
            mico: reachability.paging.power_saving.is_some(),
            area: area.iter().copied().take(limits::TAIS_PER_LIST).collect(),
        });
        let restrictions = Some(restrictions).filter(|list| *list != MobilityRestrictions::none(serving));
        UeInformation { restrictions, inactive, rfsp: ue.rfsp(), masked_imeisv: ue.identity.pei.map(Pei::masked) }
    }

    /// Returns the information that replaces what a node has of a UE: with a list even if there are
    /// no restrictions any more.
    pub fn replacing(ue: &UeContext, config: &CoreConfig, node: (Dialect, Plmn)) -> Self {
        let mut information = UeInformation::from_context(ue, config, node);
        information.restrictions.get_or_insert_with(|| MobilityRestrictions::none(node.1));
        information
    }
}

impl MobilityRestrictions {
    /// Returns the list that ends all restrictions of an earlier one.
    pub(crate) fn none(serving: Plmn) -> Self {
        MobilityRestrictions {
            serving,
            equivalent: Vec::new(),
            is_other_core_forbidden: false,
            is_nr_restricted: false,
            areas: AreaRestrictions::default(),
        }
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
        let epc = CNTypeRestrictionsForServing::epc_forbidden;
        let epc = self.is_other_core_forbidden.then(|| extension(ID_CNTYPE_RESTRICTIONS_FOR_SERVING, &epc)).flatten();
        let extensions = container(epc.into_iter().collect());
        let (forbidden, service) = (self.forbidden(), self.service());
        MobilityRestrictionList::new(plmn_to(self.serving), equivalent, None, forbidden, service, extensions)
    }
}

/// Builds an item of an extension container with criticality ignore (TS 38.413 9.4).
fn extension(id: ProtocolIEID, value: &impl aper::Encode) -> Option<ProtocolExtensionField<'static>> {
    let value = encode_open_type(value).ok()?;
    Some(ProtocolExtensionField::new(ProtocolExtensionID(id.0), Criticality::ignore, value))
}

/// Returns the container of these items, which is absent without any.
fn container(items: Vec<ProtocolExtensionField<'static>>) -> Option<ProtocolExtensionContainer<'static>> {
    (!items.is_empty()).then_some(ProtocolExtensionContainer(items))
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
            container(self.extended()),
        )
    }

    /// Returns the IEs of extended DRX. In NR, the window follows from 13 bits of the Hashed ID (TS
    /// 38.304 7.4).
    fn extended(&self) -> Vec<ProtocolExtensionField<'static>> {
        let Some(drx) = self.extended_drx else { return Vec::new() };
        if !drx.is_nr() {
            return extension(ID_EUTRA_PAGINGE_DRXINFORMATION, &eutra_extended_drx(drx)).into_iter().collect();
        }
        let hashed = HashedUEIdentityIndexValue(aper::Bits::low(u64::from(hashed_id(self.tmsi) >> 19), 13).into());
        let fields = [
            extension(ID_NR_PAGINGE_DRXINFORMATION, &nr_extended_drx(drx)),
            extension(ID_HASHED_UEIDENTITY_INDEX_VALUE, &hashed),
        ];
        fields.into_iter().flatten().collect()
    }
}

/// Converts to Masked IMEISV (9.3.1.54).
pub(crate) fn masked_imeisv(bits: u64) -> MaskedIMEISV {
    MaskedIMEISV(aper::Bits::low(bits, 64))
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
            is_other_core_forbidden: true,
            ..MobilityRestrictions::none(home)
        };
        assert_eq!(pdu.ie::<ie::MobilityRestrictionList>(), Some(Ok(restrictions.encode())));
        let inactive = InactiveAssistance {
            tmsi: Tmsi(0xdead_beef),
            drx: Some(DrxCycle::Frames64),
            extended_drx: None,
            t3512: t3512(3600),
            mico: true,
            area: vec![Tai { plmn: home, tac: Tac(1) }],
        };
        assert_eq!(pdu.ie::<ie::CoreNetworkAssistanceInformationForInactive>(), Some(Ok(inactive.encode())));
        assert_eq!(pdu.ie::<ie::IndexToRFSP>(), Some(Ok(IndexToRFSP(256))));
        for (name, drx) in [("eutra", ExtendedDrx::from_octet(0x35)), ("nr", ExtendedDrx::from_octet(0xfc).in_nr())] {
            let octets = golden(&format!("InitialContextSetupRequest-extended-drx-{name}"));
            let pdu = NGAP_PDU::decode_borrowed(&octets).expect("a PDU");
            let with_drx = InactiveAssistance { extended_drx: Some(drx), mico: false, ..inactive.clone() };
            let ie = pdu.ie::<ie::CoreNetworkAssistanceInformationForInactive>();
            assert_eq!(ie, Some(Ok(with_drx.encode())), "{name}");
        }
    }
}
