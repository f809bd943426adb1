//! NGAP message of paging.

use crate::RanNodes;
use crate::amf::context::{Reachability, paging_priority};
use crate::amf::n2::{self, plmn_to, tac_octets};
use vireo_types::{AssocId, Dialect, Guami, Tai, Tmsi};
use vireo_wire::ngap::*;

/// One page of a UE.
#[derive(Clone, Copy, Debug, Default)]
pub struct Page<'r> {
    /// Paging Priority, 1 to 8.
    pub priority: Option<u8>,
    /// Number of this page, from 1 on, and of all that are intended.
    pub attempts: (u8, u8),
    /// What the last RAN node has recommended.
    pub recommended: Option<&'r InfoOnRecommendedCellsAndRANNodesForPaging>,
}

/// Returns what the last RAN node has recommended.
pub fn recommended(reachability: &Reachability) -> Option<InfoOnRecommendedCellsAndRANNodesForPaging> {
    let octets = Some(&reachability.recommended).filter(|octets| !octets.is_empty())?;
    decode_open_type(octets).ok()
}

/// Returns the recommended RAN nodes that the core knows, and those of recommended tracking areas.
pub(super) fn nodes(information: &InfoOnRecommendedCellsAndRANNodesForPaging, ran: &dyn RanNodes) -> Vec<AssocId> {
    let node = |item: &RecommendedRANNodeItem| match &item.amf_paging_target {
        AMFPagingTarget::globalRANNodeID(id) => {
            n2::ran_node_of(id).ok().and_then(|id| ran.find(id)).into_iter().collect()
        }
        AMFPagingTarget::tAI(tai) => ran.serving(&[n2::tai_of(tai)]),
        AMFPagingTarget::choice_Extensions(_) => Vec::new(),
    };
    information.recommend_ran_nodes_for_paging.recommended_ran_node_list.0.iter().flat_map(node).collect()
}

/// Returns Assistance Data for Paging (9.3.1.69) with the recommended cells.
fn assistance(page: Page<'_>) -> Option<AssistanceDataForPaging> {
    // PagingAttemptCount, IntendedNumberOfPagingAttempts: 1 to 16 (9.3.1.72).
    let [attempt, intended] = [page.attempts.0, page.attempts.1].map(|count| u64::from(count).clamp(1, 16));
    let cells = page.recommended?.recommended_cells_for_paging.clone();
    let attempts = PagingAttemptInformation::new(
        PagingAttemptCount(attempt),
        IntendedNumberOfPagingAttempts(intended),
        None,
        None,
    );
    let cells = AssistanceDataForRecommendedCells::new(cells, None);
    Some(AssistanceDataForPaging::new(Some(cells), Some(attempts), None))
}

/// Encodes PAGING (TS 38.413 9.2.4.1) of a UE in its registration area.
pub fn paging(guami: Guami, tmsi: Tmsi, reachability: &Reachability, page: Page<'_>) -> Vec<u8> {
    n2::encode(try_paging(guami, tmsi, reachability, page))
}

fn try_paging<'a>(guami: Guami, tmsi: Tmsi, reachability: &Reachability, page: Page<'_>) -> Result<NGAPPDU<'a>, Error> {
    let amf = helpers::guami(plmn_to(guami.plmn), guami.region, guami.set, guami.pointer)?;
    let s_tmsi = FiveGSTMSI::new(amf.amf_set_id, amf.amf_pointer, FiveGTMSI(tmsi.0.to_be_bytes()), None);
    let item = |tai: &Tai| TAIListForPagingItem::new(helpers::tai(plmn_to(tai.plmn), tac_octets(tai.tac)), None);
    let areas = TAIListForPaging(reachability.area.iter().map(item).collect());
    let info = &reachability.paging;
    let mut ies = vec![build_ngap_ie!(Paging, UEPagingIdentity(UEPagingIdentity::fiveG_S_TMSI(s_tmsi)))?];
    if let Some(drx) = info.drx_in(Dialect::Nr) {
        ies.push(build_ngap_ie!(Paging, PagingDRX(n2::paging_drx(drx)))?);
    }
    ies.push(build_ngap_ie!(Paging, TAIListForPaging(areas))?);
    if let Some(priority) = page.priority.and_then(|level| paging_priority!(level, PagingPriority)) {
        ies.push(build_ngap_ie!(Paging, PagingPriority(priority))?);
    }
    // The octets are those of a RAN node, encoded again.
    let capability = info.capability_for(Dialect::Nr).map(decode_open_type::<UERadioCapabilityForPaging<'_>>);
    if let Some(Ok(capability)) = capability {
        ies.push(build_ngap_ie!(Paging, UERadioCapabilityForPaging(capability))?);
    }
    if let Some(assistance) = assistance(page) {
        ies.push(build_ngap_ie!(Paging, AssistanceDataForPaging(assistance))?);
    }
    if let Some(drx) = info.extended_drx {
        ies.push(match drx.is_nr() {
            true => build_ngap_ie!(Paging, NR_PagingeDRXInformation(n2::nr_extended_drx(drx)))?,
            false => build_ngap_ie!(Paging, EUTRA_PagingeDRXInformation(n2::eutra_extended_drx(drx)))?,
        });
    }
    let message = Paging::new(ProtocolIEContainer(ies));
    NGAP_PDU::of_message(&message, Paging::CRITICALITY)
}
