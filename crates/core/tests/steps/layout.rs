//! Stored form of contexts across releases.
//!
//! Contexts of the previous release are decoded and used, and a step encodes again only what it has
//! changed.

use crate::lab;
use std::sync::Arc;
use vireo_core::amf::context::{self, CodecError, EncodedContext, LAYOUT_VERSION, Versions};
use vireo_core::config::SliceProfile;
use vireo_emulator::ue;

/// Contexts that a build with layout 4 has stored, in the states of [`lab::in_each_state`].
const LAYOUT_4: &str = include_str!("data/layout-4.txt");

fn of_layout_4(state: &str) -> Vec<u8> {
    let line = LAYOUT_4.lines().find_map(|line| line.strip_prefix(state)).expect("the state is in the file");
    hex::decode(line.trim()).expect("hexadecimal digits")
}

#[test]
fn what_the_release_before_stored_is_what_this_one_would() {
    for (state, lab) in lab::in_each_state() {
        let octets = of_layout_4(state);
        assert_eq!(octets[0], 4);
        let (mut old, mut new) = (context::decode(&octets).expect("it decodes"), lab.context().expect("a context"));
        if let (Some(old), Some(new)) = (&mut old.security, &mut new.security) {
            // Layout 4 stores the start of an NH chain as its KgNB.
            assert_eq!(old.advance(), new.advance(), "{state}");
        }
        assert_eq!(old, new, "{state}");
        assert_eq!(EncodedContext::new(&octets), Err(CodecError::Version(4)));
        assert_eq!(context::decode(&octets[..octets.len() - 1]), Err(CodecError::Damaged));
    }
}

#[test]
fn a_ue_goes_on_across_an_upgrade() {
    for (state, mut lab) in lab::in_each_state() {
        lab.store(of_layout_4(state));
        match state {
            "idle" => lab.ue_does(|ue, _, out| ue.service_request(ue::Service::Data, out).expect("a request")),
            "connected" => lab.ue_does(|ue, _, out| ue.release(1, out).expect("a request")),
            _ => {
                // The lost Authentication Request is retransmitted.
                lab.reachable = true;
                lab.wait(vireo_types::Duration::from_secs(7));
                assert_eq!(lab.ue.mm(), ue::MmState::Registered);
            }
        }
        let context = lab.context().expect("a context");
        assert!(context.is_registered() && context.procedure.is_none() && context.connection.is_some(), "{state}");
        assert_eq!(context.sessions.len(), usize::from(state == "idle"), "{state}");
        assert_eq!(lab.octets()[0], LAYOUT_VERSION);
    }
}

#[test]
fn a_service_request_leaves_the_perpetual_part_alone() {
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
fn a_ue_s_stored_form_is_small_and_smaller_for_simple_devices() {
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
fn keys_that_are_not_stored_are_the_same_again() {
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
fn a_session_outlives_the_subscription_that_it_is_of() {
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
