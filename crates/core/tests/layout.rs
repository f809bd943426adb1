//! The stored form of contexts over time: what the release before has written is read and gone on with, and a step stores
//! only what it has changed.

#[allow(dead_code, reason = "a part of what the procedures' tests use")]
mod lab;

use vireo_core::context::{self, CodecError, LAYOUT_VERSION, Record, Versions};
use vireo_emulator::ue;

/// Contexts that a build of layout 3 has stored, in the states of [`lab::in_each_state`].
const LAYOUT_3: &str = include_str!("data/layout-3.txt");

fn of_layout_3(state: &str) -> Vec<u8> {
    let line = LAYOUT_3.lines().find_map(|line| line.strip_prefix(state)).expect("the state is in the file");
    hex::decode(line.trim()).expect("hexadecimal digits")
}

#[test]
fn what_the_release_before_stored_is_what_this_one_would() {
    for (state, lab) in lab::in_each_state() {
        let octets = of_layout_3(state);
        assert_eq!(octets[0], 3);
        let (mut old, mut new) = (context::decode(&octets).expect("it decodes"), lab.context().expect("a context"));
        if let (Some(old), Some(new)) = (&mut old.security, &mut new.security) {
            // An idle UE had a next hop then, and the first one of a connection was derived at once.
            old.next_hop = old.next_hop.filter(|_| state != "idle");
            assert_eq!(old.advance(), new.advance(), "{state}");
        }
        assert_eq!(old, new, "{state}");
        assert_eq!(Record::new(&octets), Err(CodecError::Version(3)));
        assert_eq!(context::decode(&octets[..octets.len() - 1]), Err(CodecError::Damaged));
    }
}

#[test]
fn a_ue_goes_on_across_an_upgrade() {
    for (state, mut lab) in lab::in_each_state() {
        lab.store(of_layout_3(state));
        match state {
            "idle" => lab.ue_does(|ue, _, out| ue.service_request(ue::Service::Data, out).expect("a request")),
            "connected" => lab.ue_does(|ue, _, out| ue.release(1, out).expect("a request")),
            _ => {
                // The challenge that was lost is repeated.
                lab.reachable = true;
                lab.wait(vireo_types::Duration::from_secs(7));
                assert_eq!(lab.ue.mm(), ue::Mm::Registered);
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
    let versions = |lab: &lab::Lab| Record::new(lab.octets()).expect("a record").versions;
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

#[test]
fn a_ue_s_stored_form_is_small() {
    for (state, lab) in lab::in_each_state() {
        let octets = lab.octets().len();
        assert!(octets < 350, "{state}: {octets} octets");
    }
}
