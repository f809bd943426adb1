//! S1AP message of paging.

use crate::amf::context::Reachability;
use crate::amf::s1;
use vireo_types::{Guti, Supi};

/// Encodes PAGING (TS 36.413 9.1.6) of a UE in its registration area.
pub(super) fn paging(guti: Guti, supi: Option<Supi>, reachability: &Reachability, priority: Option<u8>) -> Vec<u8> {
    let (_, code) = guti.guami.mme();
    // UE Identity Index Value: IMSI mod 1024 (TS 36.304 7.1). A registered UE has an IMSI.
    let index = supi.and_then(|supi| supi.reveal().parse::<u64>().ok()).map_or(0, |imsi| imsi % 1024);
    s1::paging((code, guti.tmsi), index as u16, reachability, priority)
}
