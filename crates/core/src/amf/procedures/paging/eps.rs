//! S1AP message of paging.

use crate::RanNodes;
use crate::amf::context::Reachability;
use crate::amf::s1::{self, Page};
use vireo_types::{AssocId, Guti, Supi};
use vireo_wire::s1ap::{
    InformationOnRecommendedCellsAndENBsForPaging, MMEPagingTarget, RecommendedENBItem, decode_open_type,
};

/// Returns what the last eNB has recommended.
pub(super) fn recommended(reachability: &Reachability) -> Option<InformationOnRecommendedCellsAndENBsForPaging<'_>> {
    let octets = Some(&reachability.recommended).filter(|octets| !octets.is_empty())?;
    decode_open_type(octets).ok()
}

/// Returns the recommended eNBs that the core knows, and those of recommended tracking areas.
pub(super) fn nodes(
    information: &InformationOnRecommendedCellsAndENBsForPaging<'_>,
    ran: &dyn RanNodes,
) -> Vec<AssocId> {
    let items = information.recommend_enbs_for_paging.recommended_enb_list.0.iter();
    let items = items.filter_map(|item| decode_open_type::<RecommendedENBItem>(&item.value).ok());
    let node = |item: RecommendedENBItem| match item.mme_paging_target {
        MMEPagingTarget::global_ENB_ID(id) => s1::enb_of(&id).and_then(|id| ran.find(id.into())).into_iter().collect(),
        MMEPagingTarget::tAI(tai) => ran.serving(&[s1::tai_of(&tai)]),
        _ => Vec::new(),
    };
    items.flat_map(node).collect()
}

/// Encodes PAGING (TS 36.413 9.1.6) of a UE in its registration area.
pub(super) fn paging(guti: Guti, supi: Option<Supi>, reachability: &Reachability, page: Page<'_>) -> Vec<u8> {
    let (_, code) = guti.guami.mme();
    // UE Identity Index Value: IMSI mod 1024 (TS 36.304 7.1). A registered UE has an IMSI.
    let index = supi.and_then(|supi| supi.reveal().parse::<u64>().ok()).map_or(0, |imsi| imsi % 1024);
    s1::paging((code, guti.tmsi), index as u16, reachability, page)
}
