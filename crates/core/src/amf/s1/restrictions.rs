//! Handover Restriction List (TS 36.413 9.2.1.22): where and how an eNB may serve a UE.

use super::{extension, plmn_to};
use crate::amf::n2::MobilityRestrictions;
use vireo_wire::s1ap::{self, *};

/// IEs in its extension container.
const NR_RESTRICTION: u16 = 261;
const CN_TYPE_RESTRICTIONS: u16 = 282;

/// Returns the Handover Restriction List. Forbidden areas are those of each PLMN. EPS has no
/// service areas.
pub(crate) fn handover_restrictions(
    restrictions: &MobilityRestrictions,
) -> Result<HandoverRestrictionList, s1ap::Error> {
    let equivalent: Vec<_> = restrictions.equivalent.iter().copied().map(plmn_to).collect();
    let plmns = || [restrictions.serving].into_iter().chain(restrictions.equivalent.iter().copied()).map(plmn_to);
    let tacs: Vec<_> = restrictions.areas.forbidden.iter().filter_map(|tac| tac.eps()).map(TAC).collect();
    let areas = |plmn| ForbiddenTAsItem::new(plmn, ForbiddenTACs(tacs.clone()), None);
    let forbidden = (!tacs.is_empty()).then(|| ForbiddenTAs(plmns().map(areas).collect()));
    let mut extensions = Vec::new();
    if restrictions.is_nr_restricted {
        let restricted = NRrestrictioninEPSasSecondaryRAT::nRrestrictedinEPSasSecondaryRAT;
        extensions.push(extension(NR_RESTRICTION, &restricted)?);
    }
    if restrictions.is_other_core_forbidden {
        let item = |plmn| CNTypeRestrictionsItem::new(plmn, CNType::fiveGCForbidden, None);
        let cores = CNTypeRestrictions(plmns().map(item).collect());
        extensions.push(extension(CN_TYPE_RESTRICTIONS, &cores)?);
    }
    Ok(HandoverRestrictionList::new(
        plmn_to(restrictions.serving),
        (!equivalent.is_empty()).then_some(EPLMNs(equivalent)),
        forbidden,
        None,
        None,
        (!extensions.is_empty()).then_some(ProtocolExtensionContainer(extensions)),
    ))
}
