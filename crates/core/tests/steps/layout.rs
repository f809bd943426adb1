//! Stored form of contexts: what a step encodes again, and the size.

use crate::lab;
use std::sync::Arc;
use vireo_core::amf::context::{EncodedContext, Versions};
use vireo_core::config::SliceProfile;
use vireo_emulator::ue;

#[test]
fn service_request_leaves_perpetual_part() {
    let versions = |lab: &lab::Lab| EncodedContext::new(lab.octets()).expect("a record").versions;
    let [(_, mut lab), ..] = lab::in_each_state();
    let before = versions(&lab);
    lab.ue_does(|ue, _, out| ue.service_request(ue::Service::Data, out).expect("a request"));
    let connected = versions(&lab);
    assert_eq!(connected.perpetual, before.perpetual);
    assert!(connected.ephemeral > before.ephemeral);
    lab.idle();
    assert_eq!(versions(&lab).perpetual, before.perpetual);
    lab.ue_does(|ue, p, out| ue.register(p, ue::Registration::Periodic, out).expect("a request"));
    let Versions { perpetual, .. } = versions(&lab);
    assert!(perpetual > before.perpetual, "a new 5G-GUTI is perpetual");
}

/// Returns the encoded size of a registered UE with one session, idle and connected, by slice
/// profile.
fn octets_of(profile: SliceProfile) -> [usize; 2] {
    ["idle", "connected"].map(|state| lab::in_state(state, profile).octets().len())
}

#[test]
fn stored_context_size_is_bounded() {
    let (full, iot) = (octets_of(SliceProfile::Full), octets_of(SliceProfile::Iot));
    assert!(full[0] <= 232 && full[1] <= 264, "{full:?} octets");
    // The difference is KNASint and KNASenc.
    assert_eq!((full[0] - iot[0], full[1] - iot[1]), (32, 32), "{full:?} and {iot:?} octets");
    let registering = lab::in_state("registering", SliceProfile::Full).octets().len();
    assert!(registering < 350, "{registering} octets");
}

/// An IoT UE returns under keys that were not stored, is handed over, and changes to another slice
/// profile and back.
#[test]
fn derived_keys_are_rebuilt_equal() {
    let mut lab = lab::in_state("idle", SliceProfile::Iot);
    let keys = |lab: &lab::Lab| {
        let security = lab.context().and_then(|c| c.security).expect("keys");
        (security.derives_keys, [security.knas_int, security.knas_enc])
    };
    let is_stored = |lab: &lab::Lab, key: &[u8]| lab.octets().windows(16).any(|octets| octets == key);
    let (derived, [integrity, ciphering]) = keys(&lab);
    assert!(derived && !is_stored(&lab, &integrity) && !is_stored(&lab, &ciphering));
    lab.ue_does(|ue, _, out| ue.service_request(ue::Service::Data, out).expect("a request"));
    assert!(lab.context().is_some_and(|c| c.connection.is_some() && c.procedure.is_none()));
    assert_eq!(keys(&lab), (true, [integrity, ciphering]));
    for profile in [SliceProfile::Full, SliceProfile::Iot] {
        // The profile of the slice changes, which does not affect the UE.
        lab.config.slices[0].profile = profile;
        lab.ue_does(|ue, p, out| ue.register(p, ue::Registration::Periodic, out).expect("a request"));
        assert_eq!(keys(&lab), (profile == SliceProfile::Iot, [integrity, ciphering]));
        assert_eq!(is_stored(&lab, &integrity), profile == SliceProfile::Full);
    }
    lab.ue_does(|ue, _, out| ue.release(1, out).expect("a request"));
    assert_eq!(lab.context().map(|c| c.sessions.len()), Some(0), "what the UE says is heard");
}

/// A session keeps its terms when the subscription changes.
#[test]
fn session_survives_its_subscription() {
    let mut lab = lab::in_state("idle", SliceProfile::Full);
    let (before, octets) = (lab.context().expect("a context").sessions, lab.octets().len());
    lab.change(|ue| {
        let slices = ue.subscription.as_mut().map(|all| &mut Arc::make_mut(all).slices);
        slices.expect("a subscription")[0].dnns[0].ambr.uplink_bps = 64_000;
    });
    assert_eq!(lab.context().map(|c| c.sessions), Some(before.clone()));
    assert!(lab.octets().len() > octets + 10, "it says so itself now");
    lab.change(|ue| ue.subscription = None);
    assert_eq!(lab.context().map(|c| c.sessions), Some(before));
}
