//! NGAP message of paging.

use crate::amf::n2::{self, plmn_to, tac_octets};
use vireo_types::{Guami, Tai, Tmsi};
use vireo_wire::ngap::*;

/// Encodes PAGING (TS 38.413 9.2.4.1) of a UE in its registration area.
pub fn paging(guami: Guami, tmsi: Tmsi, area: &[Tai]) -> Vec<u8> {
    n2::encode(try_paging(guami, tmsi, area))
}

fn try_paging<'a>(guami: Guami, tmsi: Tmsi, area: &[Tai]) -> Result<NGAPPDU<'a>, Error> {
    let amf = helpers::guami(plmn_to(guami.plmn), guami.region, guami.set, guami.pointer)?;
    let s_tmsi = FiveGSTMSI::new(amf.amf_set_id, amf.amf_pointer, FiveGTMSI(tmsi.0.to_be_bytes()), None);
    let item = |tai: &Tai| TAIListForPagingItem::new(helpers::tai(plmn_to(tai.plmn), tac_octets(tai.tac)), None);
    let areas = TAIListForPaging(area.iter().map(item).collect());
    build_ngap!(
        InitiatingMessage,
        Paging,
        Paging,
        UEPagingIdentity(UEPagingIdentity::fiveG_S_TMSI(s_tmsi)),
        TAIListForPaging(areas),
    )
}
