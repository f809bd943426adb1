//! Parts of EMM messages that several procedures use (TS 24.301 9.9).

use crate::config::CoreConfig;
use crate::gprs_timer::{TIMER_2, at_most};
use vireo_types::{Dialect, Guti, Tai};
use vireo_wire::nas::GmmCause;
use vireo_wire::nas_eps::*;

/// Returns the EMM cause for a cause of the core. Most values are equal in both dialects (TS 24.501
/// 9.11.3.2, TS 24.301 9.9.3.9).
pub fn cause(cause: GmmCause) -> EmmCause {
    match cause {
        // Diameter "user unknown" of the HSS (TS 29.272 annex A).
        GmmCause::IllegalUe => EmmCause::EpsServicesAndNonEpsServicesNotAllowed,
        // The default slices of the subscriber are not served here: another tracking area may.
        GmmCause::NoNetworkSlicesAvailable => EmmCause::NoSuitableCellsInTrackingArea,
        other => EmmCause::from_u8(other.as_u8()).unwrap_or(EmmCause::ProtocolErrorUnspecified),
    }
}

/// Returns the value of a cause as the dialect encodes it.
pub fn cause_value(dialect: Dialect, value: GmmCause) -> u8 {
    match dialect {
        Dialect::Nr => value.as_u8(),
        Dialect::Eps => cause(value).as_u8(),
    }
}

/// Encodes the GUTI of a UE (9.9.3.12).
pub fn guti(guti: Guti) -> NasEpsMobileIdentity {
    let Guti { guami, tmsi } = guti;
    let (group, code) = guami.mme();
    let mut octets = vec![0xf6];
    octets.extend_from_slice(&guami.plmn.nas());
    octets.extend_from_slice(&group.to_be_bytes());
    octets.push(code);
    octets.extend_from_slice(&tmsi.0.to_be_bytes());
    NasEpsMobileIdentity::new(octets)
}

/// Encodes the tracking areas that EPS has, of one PLMN, as TAI list of type 00, which has at most
/// 16 (9.9.3.33).
pub fn tai_list(area: &[Tai]) -> Option<NasTrackingAreaIdentityList> {
    let codes: Vec<[u8; 2]> = area.iter().filter_map(|tai| tai.tac.eps()).take(16).collect();
    let mut octets = vec![codes.len().checked_sub(1)? as u8];
    octets.extend_from_slice(&area.first()?.plmn.nas());
    octets.extend(codes.into_iter().flatten());
    Some(NasTrackingAreaIdentityList::new(octets))
}

/// Encodes T3412 (9.9.3.16): the longest period that is not longer than that of the configuration.
pub fn t3412(config: &CoreConfig) -> NasT3412Value {
    let period = at_most(config.timers.t3512.as_secs(), TIMER_2);
    let timer = NasT3412Value::from_seconds(period).ok().filter(|_| period > 0);
    timer.unwrap_or_else(NasT3412Value::deactivated)
}
