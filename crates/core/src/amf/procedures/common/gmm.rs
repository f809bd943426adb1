//! Parts of 5GMM messages that several procedures use (TS 24.501 9.11.3).

use super::areas;
use crate::amf::n2::{sd_octets, tac_octets};
use crate::step::StepContext;
use vireo_types::{Guti, Snssai, Tai};
use vireo_wire::nas::*;

/// Encodes an S-NSSAI (9.11.2.8).
pub fn snssai(snssai: Snssai) -> NasSNssai {
    NasSNssai::from_sst_sd(snssai.sst, snssai.sd.map(sd_octets))
}

/// Encodes an NSSAI (9.11.3.37); `None` if it is empty.
pub fn nssai(slices: &[Snssai]) -> Option<NasNssai> {
    let slices: Vec<_> = slices.iter().map(|slice| snssai(*slice)).collect();
    NasNssai::from_snssais(&slices).ok()
}

/// Encodes the 5G-GUTI as a mobile identity (TS 24.501 figure 9.11.3.4.1).
pub fn mobile_identity(guti: Guti) -> NasFGsMobileIdentity {
    let g = guti.guami;
    let mut octets = vec![0xf2];
    octets.extend_from_slice(&g.plmn.nas());
    octets.push(g.region);
    octets.extend_from_slice(&(g.set << 6 | u16::from(g.pointer & 0x3f)).to_be_bytes());
    octets.extend_from_slice(&guti.tmsi.0.to_be_bytes());
    NasFGsMobileIdentity::new(octets)
}

/// Returns the cause for those of these sessions, one bit each, whose user plane is not activated
/// because the UE is in a non-allowed area (9.11.3.43; 5.5.1.3.4, 5.6.1.4.1).
pub fn restricted_sessions(
    ctx: &StepContext<'_, '_>,
    failed: u16,
) -> Option<NasPduSessionReactivationResultErrorCause> {
    let restricted = failed & !areas::permitted_sessions(ctx, failed);
    let entry = |psi: u8| (psi, GmmCause::RestrictedServiceArea);
    let entries: Vec<_> = (1..16).filter(|psi| restricted >> psi & 1 == 1).map(entry).collect();
    NasPduSessionReactivationResultErrorCause::from_entries(&entries).ok()
}

/// Encodes the registration area as TAI list of one PLMN (TS 24.501 9.11.3.9, type 00).
pub fn tai_list(area: &[Tai]) -> Option<NasFGsTrackingAreaIdentityList> {
    let mut octets = vec![(area.len().checked_sub(1)?) as u8];
    octets.extend_from_slice(&area[0].plmn.nas());
    for tai in area {
        octets.extend_from_slice(&tac_octets(tai.tac));
    }
    Some(NasFGsTrackingAreaIdentityList::new(octets))
}
