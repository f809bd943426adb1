//! gNBs with several associations (TS 38.412 clause 7, TS 38.413 8.7.2 and 8.7.3).
//!
//! The tests cover their binding and the loss of one of them.

use crate::assert_serves_another;
use crate::core::{Core, SCTP_PORT};
use crate::device::{Device, registration};
use crate::messages::{self, error_cause};
use crate::ran::Ran;
use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;
use vireo_emulator::load::Pattern;
use vireo_emulator::mix::{Activity, Steady};
use vireo_emulator::scenario::Scenario;
use vireo_emulator::{Options, Retry};
use vireo_sctp::Driver;
use vireo_wire::ngap::*;

fn is_updated(pdu: &NGAPPDU<'_>) -> bool {
    pdu.kind() == NgapPduKind::Successful_RANConfigurationUpdate
}

/// Opens a further association of gNB `gnb`.
fn open_further_association(core: &Core, gnb: u32) -> Ran {
    let mut ran = Ran::connect(core);
    ran.send(0, &messages::further_association(gnb));
    ran.expect("a further association", is_updated);
    ran
}

#[test]
fn ues_stay_while_gnb_has_association() {
    let mut core = Core::start_with(8, "endpoints = [\"127.0.0.1\", \"192.0.2.7\"]\n", "");
    let mut first = Ran::set_up(&core, 7);
    let update = first.expect("further addresses", |pdu| pdu.kind() == NgapPduKind::Initiating_AMFConfigurationUpdate);
    let list = update.ie::<ie::AMF_TNLAssociationToAddList>().and_then(Result::ok).expect("a list");
    let address = |item: &AMFTNLAssociationToAddItem<'_>| match &item.amf_tnl_association_address {
        CPTransportLayerInformation::endpointIPAddress(address) => address.0.as_octets().to_vec(),
        other => panic!("{other:?}"),
    };
    assert_eq!(list.0.iter().map(address).collect::<Vec<_>>(), [[127, 0, 0, 1], [192, 0, 2, 7]]);

    // An unbound association transports nothing, and gNB 8 is not set up.
    let mut second = Ran::connect(&core);
    second.send(1, &messages::initial_ue(1, &registration(3).encode().expect("octets"), None));
    error_cause(&second.expect("a UE on an association of no gNB", |_| true));
    second.send(0, &messages::further_association(8));
    let refused = second.expect("of no gNB", |p| p.kind() == NgapPduKind::Unsuccessful_RANConfigurationUpdate);
    assert!(refused.ie::<ie::TimeToWait>().is_some(), "it may try again");
    second.send(0, &messages::further_association(7));
    second.expect("of gNB 7", is_updated);
    assert_eq!(core.count("gnbs"), 1);

    let mut device = Device::new(1);
    device.register(&mut first);
    device.assert_served(&mut first, "where it has registered");
    device.assert_served(&mut second, "by the other association");
    drop(first);
    device.assert_served(&mut second, "when the first is lost");
    assert_eq!([core.count("gnbs"), core.count("connected")], [1, 1]);
    let mut other = Device::new(2);
    other.register(&mut second);
    other.assert_served(&mut second, "who has come since");

    let mut third = open_further_association(&core, 7);
    device.assert_served(&mut third, "by one that is set up again");
    drop(third);
    drop(second);
    core.wait_for_count("gnbs", 0);
    core.wait_for_count("connected", 0);
    assert_serves_another(&mut core, 4);
}

#[test]
fn ng_setup_on_one_association_ends_the_others() {
    let mut core = Core::start(8, "");
    let mut first = Ran::set_up(&core, 9);
    let mut second = open_further_association(&core, 9);
    let mut device = Device::new(1);
    device.register(&mut first);
    // Its last message has arrived: associations do not wait for each other.
    device.assert_served(&mut first, "where it has registered");
    device.assert_served(&mut second, "by the other association");
    // The gNB has restarted and has no UE.
    second.send(0, &messages::ng_setup(9));
    second.expect("NG Setup", |pdu| pdu.kind() == NgapPduKind::Successful_NGSetup);
    core.wait_for_count("connected", 0);
    first.assert_down("the association of the earlier life");
    assert_eq!(core.count("gnbs"), 1);
    device.guti = None;
    let mut again = Device::new(2);
    again.register(&mut second);
    again.assert_served(&mut second, "after the restart");
    assert_serves_another(&mut core, 3);
}

#[test]
fn no_ue_is_lost_with_association_under_load() {
    let core = Core::start(60, "");
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, SCTP_PORT));
    let mut options = Options::lab(address, Scenario::find("session").expect("is listed"));
    (options.driver, options.n2) = (Driver::UserspaceUdp, vec![Ipv4Addr::LOCALHOST.into()]);
    options.sctp_udp_ports = (0, core.udp_port);
    (options.gnbs, options.ues, options.tnl_associations) = (2, 60, 2);
    // Registrations need no UPF.
    let kinds = [(Activity::Registration, 1.0)];
    options.steady = Some(Steady::weighted(&kinds, 100.0, Pattern::Constant, Duration::from_millis(20)));
    options.duration = Some(Duration::from_secs(3));
    options.drop_association = Some(Duration::from_millis(400));
    options.retry = Retry::After { retry: Duration::from_millis(300), reattach: Duration::from_secs(8) };
    let report = vireo_emulator::run(&options, &mut |_| {}).expect("the core is there");
    assert!(report.associations_lost >= 6, "{report}");
    let steady = &report.steady;
    assert_eq!((steady.procedures, steady.lost), (300, 0), "{report}\n{}", core.log());
    // Messages that SCTP had acknowledged and the core had not read when an association ended are
    // not resent. Only the UE's timers, longer than this run, would repeat them; this is rare. The
    // other association resends about six messages per run.
    assert!(steady.completed >= 298, "{report}\n{}", core.log());
}
