//! What ends the keys of a handover between 4G and 5G without HANDOVER NOTIFY, and what they leave
//! as it is.

use super::*;
use crate::lab::pfcp_report;
use vireo_core::amf::context::Registration;
use vireo_wire::pfcp::{self, Element};

/// Returns a UE that was commanded to the eNB, which was then lost, and its first message there.
fn commanded_to_lost_enb() -> (Phone, Vec<u8>) {
    let mut phone = in_5g();
    let old = phone.context().security.expect("keys");
    require_4g(&mut phone, ENB_ID);
    let mme = requested_mme_id(&phone);
    phone.lab.take_from_enb(&pdus::acknowledged_by_enb(mme, &[5]));
    let nas = first_message(&mut phone, &old);
    (phone, nas)
}

/// Returns the update of a UE that has arrived at the eNB.
fn first_message(phone: &mut Phone, old: &NasSecurity) -> Vec<u8> {
    let update = phone.update_request(BEARER, true);
    let header = NasEpsSecurityHeaderType::IntegrityProtected;
    handed_to_4g(old).protect(&update, header, Direction::Uplink).expect("it encodes")
}

#[test]
fn cancellation_after_command_drops_keys() {
    let (mut phone, nas) = commanded_to_lost_enb();
    cancel_by_gnb(&mut phone, 0);
    assert!(phone.context().handover.is_none() && !is_authentic(&phone.context(), &nas));
}

#[test]
fn deregistration_drops_unconfirmed_keys() {
    let (mut phone, nas) = commanded_to_lost_enb();
    phone.lab.event(Event::ConnectionLost { assoc: ENB });
    assert!(is_authentic(&phone.context(), &nas));
    phone.lab.change(|ue| ue.registration = Registration::Deregistered);
    phone.lab.event(Event::Deadline);
    assert!(phone.lab.context().is_none_or(|context| context.handover.is_none() && !is_authentic(&context, &nas)));
}

/// The source has the UE still, and requires the handover again.
#[test]
fn handover_follows_unconfirmed_one() {
    let (mut phone, _) = commanded_to_lost_enb();
    phone.lab.event(Event::ConnectionLost { assoc: ENB });
    phone.lab.set_up_enb(&pdus::s1_setup(ENB_ID));
    phone.lab.to_enb.clear();
    require_4g(&mut phone, ENB_ID);
    let mme = requested_mme_id(&phone);
    phone.lab.take_from_enb(&pdus::acknowledged_by_enb(mme, &[5]));
    phone.lab.take_from_enb(&pdus::notified_by_enb(mme));
    assert!(phone.is_all_of(Dialect::Eps));
    assert_eq!(succeeded(&phone, Kind::Handover), 1);
}

/// A lost tunnel releases a UE that stays connected at its eNB: no handover is in progress.
#[test]
fn lost_tunnel_releases_unconfirmed_ue() {
    let mut phone = in_4g();
    require_5g(&mut phone, GNB_ID);
    let amf = requested_amf_id(&phone);
    phone.lab.take_from_gnb(0, &pdus::acknowledged_by_gnb(amf, &[3]));
    phone.lab.event(Event::ConnectionLost { assoc: ASSOC });
    let session = phone.context().sessions[0].clone();
    let tunnel = session.downlink.expect("a tunnel");
    let report = pfcp_report(session.pfcp.cp_seid, pfcp::ReportType::ERIR, |report| {
        report.group(pfcp::ErrorIndicationReport::ID, |error| {
            error.put(&pfcp::FTeid::new(tunnel.teid, tunnel.address));
        });
    });
    assert!(to_enb(&phone, S1apPduKind::Initiating_UEContextRelease).is_none());
    phone.lab.event(Event::Pfcp { seid: session.pfcp.cp_seid, message: &report });
    assert!(to_enb(&phone, S1apPduKind::Initiating_UEContextRelease).is_some());
}
