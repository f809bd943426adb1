//! Restrictions that an eNB learns (TS 36.413 9.2.1.22): forbidden areas of the subscriber,
//! equivalent PLMNs and core networks.

use super::handover::{require, x2};
use super::network::Network;
use super::pdus::ALGORITHMS;
use super::sent;
use super::subscriber::changed;
use vireo_core::amf::context::Procedure;
use vireo_core::subscription::{AreaRestrictions, ServiceArea};
use vireo_types::{Dialect, Tac};
use vireo_wire::nas_eps::*;
use vireo_wire::s1ap::{S1APPDU, S1apPduKind as Pdu, ie, *};

/// Serving and equivalent PLMN, in the coding of S1AP.
const PLMNS: [[u8; 3]; 2] = [[0x99, 0xf9, 0x07], [0x00, 0xf1, 0x10]];

/// Returns a network whose subscriber may not be in a tracking area that has no eNB.
fn network(change: impl FnOnce(&mut Network)) -> Network {
    let mut network = Network::new();
    network.config.tacs.push(Tac(3));
    network.subscription.areas.forbidden = vec![Tac(3), Tac(0x01_0000)];
    change(&mut network);
    network.attach();
    network
}

/// Returns the Handover Restriction List of a PDU.
fn list(pdu: &S1APPDU<'_>) -> Option<HandoverRestrictionList> {
    let list = pdu.ie::<ie::HandoverRestrictionList>()?.expect("a list");
    assert_eq!(list.serving_plmn.0.0, PLMNS[0]);
    Some(list)
}

/// Returns the forbidden areas of a list, each with its PLMN.
fn forbidden(list: HandoverRestrictionList) -> Vec<([u8; 3], Vec<[u8; 2]>)> {
    let items = list.forbidden_tas.map_or(Vec::new(), |areas| areas.0);
    let tacs = |item: &ForbiddenTAsItem| item.forbidden_tacs.0.iter().map(|tac| tac.0).collect();
    items.iter().map(|item| (item.plmn_identity.0.0, tacs(item))).collect()
}

fn forbidden_in(network: &Network, kind: Pdu) -> Vec<([u8; 3], Vec<[u8; 2]>)> {
    forbidden(list(&sent(network, kind)).expect("a list"))
}

/// A tracking area code of more than 16 bits is of 5G alone.
#[test]
fn enb_learns_forbidden_areas() {
    let mut network = network(|_| {});
    let expected = vec![(PLMNS[0], vec![[0, 3]])];
    assert_eq!(forbidden_in(&network, Pdu::Initiating_InitialContextSetup), expected);
    network.idle();
    network.sent.clear();
    network.update(UpdateType::PeriodicUpdating);
    assert_eq!(forbidden_in(&network, Pdu::Initiating_downlinkNASTransport), expected);
    network.service_request();
    assert_eq!(forbidden_in(&network, Pdu::Initiating_InitialContextSetup), expected);
    network.set_up_enb(1);
    require(&mut network, true);
    assert_eq!(forbidden_in(&network, Pdu::Initiating_HandoverResourceAllocation), expected);
}

#[test]
fn path_switch_answer_has_forbidden_areas() {
    let mut network = network(|_| {});
    network.set_up_enb(1);
    x2(&mut network, &[5], ALGORITHMS);
    let expected = vec![(PLMNS[0], vec![[0, 3]])];
    assert_eq!(forbidden_in(&network, Pdu::Successful_PathSwitchRequest), expected);
}

#[test]
fn enb_learns_equivalent_plmns_and_core() {
    let network = network(|network| {
        network.config.plmns.push("00101".parse().expect("a PLMN"));
        network.subscription.only = Some(Dialect::Eps);
    });
    let list = list(&sent(&network, Pdu::Initiating_InitialContextSetup)).expect("a list");
    let equivalent = list.equivalent_plmns.as_ref().expect("PLMNs").0.iter().map(|plmn| plmn.0.0);
    assert_eq!(equivalent.collect::<Vec<_>>(), PLMNS[1..]);
    let [extension] = &list.ie_extensions.as_ref().expect("extensions").0[..] else { panic!("{list:?}") };
    let cores = decode_open_type::<CNTypeRestrictions>(&extension.extension_value).expect("restrictions");
    let cores: Vec<_> = cores.0.iter().map(|item| (item.plmn_identity.0.0, item.cn_type)).collect();
    assert_eq!((extension.id.0, cores), (282, PLMNS.map(|plmn| (plmn, CNType::fiveGCForbidden)).to_vec()));
    assert_eq!(forbidden(list), PLMNS.map(|plmn| (plmn, vec![[0, 3]])));
}

#[test]
fn unrestricted_ue_has_no_list() {
    let service = Some(ServiceArea::NotAllowed(vec![Tac(1)]));
    // EPS has no service areas.
    for areas in [AreaRestrictions::default(), AreaRestrictions { forbidden: Vec::new(), service }] {
        let network = network(|network| network.subscription.areas = areas);
        assert_eq!(list(&sent(&network, Pdu::Initiating_InitialContextSetup)), None);
    }
}

/// Returns the tracking area codes in the last GUTI REALLOCATION COMMAND.
fn reallocated(network: &Network) -> Vec<u8> {
    let command = network.ue.received.iter().rev().find_map(|message| match message {
        NasEmmMessage::GutiReallocationCommand(command) => command.tai_list.as_ref(),
        _ => None,
    });
    // One list of type 00: number of elements, PLMN, TACs (TS 24.301 9.9.3.33).
    command.expect("a command").value[4..].chunks(2).map(|tac| tac[1]).collect()
}

/// The UE gets its tracking areas and the eNB the restrictions, also after they have ended.
#[test]
fn changed_areas_reach_ue_and_enb() {
    let mut network = network(|network| network.subscription.areas = AreaRestrictions::default());
    let guti = network.ue.guti.clone();
    network.subscription.areas.forbidden = vec![Tac(2)];
    changed(&mut network);
    assert_eq!(reallocated(&network), [1, 3]);
    let restrictions = |network: &Network| forbidden_in(network, Pdu::Initiating_downlinkNASTransport);
    assert_eq!(restrictions(&network), vec![(PLMNS[0], vec![[0, 2]])]);
    assert_eq!(network.ue.guti, guti);
    assert!(network.context().is_some_and(|context| context.procedure.is_none() && !context.pending.areas));
    network.sent.clear();
    network.subscription.areas.service = Some(ServiceArea::NotAllowed(vec![Tac(1)]));
    changed(&mut network);
    assert!(network.sent.is_empty(), "EPS has no service areas");
    network.subscription.areas = AreaRestrictions::default();
    changed(&mut network);
    assert_eq!(restrictions(&network), vec![]);
}

/// An idle UE is not paged for it (T3450 as in TS 24.301 5.4.1.6).
#[test]
fn idle_ue_gets_areas_on_next_connection() {
    let mut network = network(|network| network.subscription.areas = AreaRestrictions::default());
    network.idle();
    network.sent.clear();
    network.subscription.areas.forbidden = vec![Tac(2)];
    changed(&mut network);
    assert!(network.sent.is_empty(), "no page");
    network.ue.silent = true;
    network.service_request();
    let expected = vec![(PLMNS[0], vec![[0, 2]])];
    assert_eq!(forbidden_in(&network, Pdu::Initiating_InitialContextSetup), expected);
    assert_eq!(reallocated(&network), [1, 3]);
    assert!(matches!(network.context().and_then(|c| c.procedure), Some(Procedure::ConfigurationUpdate(_))));
    // The connection ends before the UE has answered: it gets them on the next one.
    network.idle();
    network.ue.silent = false;
    network.ue.received.clear();
    network.service_request();
    assert_eq!(reallocated(&network), [1, 3]);
    assert!(network.context().is_some_and(|context| !context.pending.areas));
}

/// An update whose accept has the tracking areas leaves the eNB with the restrictions that it had.
#[test]
fn update_leaves_restrictions_to_next_command() {
    let mut network = network(|_| {});
    network.change(|context| context.pending.areas = true);
    network.subscription.areas = AreaRestrictions::default();
    network.change(|context| {
        let subscription = context.subscription.as_mut().map(std::sync::Arc::make_mut);
        subscription.expect("a subscription").areas = AreaRestrictions::default();
    });
    network.sent.clear();
    network.update(UpdateType::TaUpdating);
    assert_eq!(forbidden_in(&network, Pdu::Initiating_downlinkNASTransport), vec![]);
    assert!(network.context().is_some_and(|context| context.procedure.is_none() && !context.pending.areas));
}
