//! Tests of the table of RAN nodes.

use super::NodeStepInput;
use super::output::{NodeEvent, NodeOutput};
use super::table::{AssociationLoss, RanNodeEntry, RanNodeTable};
use crate::amf::ran::admission::{Allow, Verdict};
use crate::amf::ran::{RanNode, SupportedArea};
use crate::config::CoreConfig;
use crate::placement::balance::BalancerId;
use crate::placement::message::RanOutput;
use crate::step::Effect;
use std::net::SocketAddr;
use vireo_emulator::gnb::{self, Gnb, GnbConfig, Inbox, NgState};
use vireo_types::{AssocId, Dialect, Duration, EnbId, EnbKind, GnbId, Instant, RanNodeId, RanUeNgapId, Tac, Tai};

/// UEs of a host.
const UES: [u32; 2] = [0, 1];

type Table = RanNodeTable<u32>;
type Output = NodeOutput<u32>;

fn gnb_id(id: u32) -> GnbId {
    GnbId { plmn: "99970".parse().expect("a PLMN"), id, bits: 24 }
}

fn record(id: u32) -> RanNode {
    RanNode { id: gnb_id(id).into(), name: format!("gnb-{id}"), areas: [].into() }
}

/// gNB 7, set up on association 1, with connected UEs.
fn nodes(ues: &[u32]) -> Table {
    let mut nodes = Table::new(Vec::new());
    for assoc in 1..=4 {
        nodes.on_association_up(AssocId(assoc), SocketAddr::from(([10, 0, 0, assoc as u8], 38412)));
    }
    assert!(nodes.begin(AssocId(1), record(7)).is_empty());
    for ue in ues {
        nodes.update_connections(*ue, [None; 2], [Some(AssocId(1)), None]);
    }
    nodes
}

#[test]
fn repeat_by_another_association_is_recognised() {
    let mut nodes = nodes(&[]);
    let (node, now) = (AssocId(1), Instant(9_000_000));
    assert!(!nodes.check_repeat(node, AssocId(1), b"before", now), "the node has one association");
    nodes.bind(AssocId(2), node);
    nodes.bind(AssocId(3), node);
    for pdu in [b"first", b"other"] {
        assert!(!nodes.check_repeat(node, AssocId(1), pdu, now));
        assert!(!nodes.check_repeat(node, AssocId(1), pdu, now), "the association is up");
    }
    assert!(!nodes.check_repeat(node, AssocId(2), b"second", now));
    assert!(matches!(nodes.remove_association(AssocId(1), false), AssociationLoss::Fewer(2)));
    assert!(nodes.check_repeat(node, AssocId(2), b"first", now));
    assert!(!nodes.check_repeat(node, AssocId(2), b"first", now), "once");
    assert!(!nodes.check_repeat(node, AssocId(2), b"second", now), "that was heard by one that is up");
    let late = now + Duration::from_secs(6);
    assert!(!nodes.check_repeat(node, AssocId(2), b"other", late), "that is too long ago");
    assert!(matches!(nodes.remove_association(AssocId(2), true), AssociationLoss::Fewer(1)));
    assert!(nodes.check_repeat(node, AssocId(3), b"second", late));
}

/// A partial NG RESET finds them without reading the UEs of the node.
#[test]
fn prepared_connection_is_found_by_its_id() {
    let mut nodes = nodes(&UES);
    let (node, [ran_id, other]) = (AssocId(1), [7, 8].map(RanUeNgapId));
    nodes.set_prepared(UES[0], None, Some((node, ran_id)));
    assert_eq!([ran_id, other].map(|id| nodes.prepared(node, id)), [Some(UES[0]), None]);
    assert_eq!(nodes.prepared(AssocId(2), ran_id), None, "no node has this number");
    // The node has assigned the identifier again; what ends later is the handover before.
    nodes.set_prepared(UES[1], None, Some((node, ran_id)));
    nodes.set_prepared(UES[0], Some((node, ran_id)), None);
    assert_eq!(nodes.prepared(node, ran_id), Some(UES[1]));
    nodes.set_prepared(UES[1], Some((node, ran_id)), Some((node, other)));
    assert_eq!([ran_id, other].map(|id| nodes.prepared(node, id)), [None, Some(UES[1])]);
}

#[test]
fn node_stays_until_last_association_is_lost() {
    let ues = UES;
    let mut nodes = nodes(&ues);
    assert_eq!(nodes.node_of(AssocId(2)), None);
    let number = nodes.find(record(7).id).expect("it has set NG up");
    nodes.bind(AssocId(2), number);
    nodes.set_last_association(number, AssocId(2), ues[0]);
    let associations = |nodes: &Table| ues.map(|ue| nodes.association_to(number, Some(ue)));
    assert_eq!(associations(&nodes), [Some(AssocId(2)), Some(AssocId(1))], "by the one that it was heard by");
    let alternatives = |nodes: &Table, gone| ues.map(|ue| nodes.alternative_to(AssocId(gone), Some(ue)));
    assert_eq!(alternatives(&nodes, 1), [Some(AssocId(2)); 2], "the one that ends is up still");
    assert_eq!(nodes.remember_node(AssocId(1)), Some(number));
    assert!(matches!(nodes.remove_association(AssocId(1), false), AssociationLoss::Fewer(1)));
    assert_eq!(alternatives(&nodes, 1), [Some(AssocId(2)); 2]);
    assert_eq!(alternatives(&nodes, 2), [None; 2], "there is no other");
    assert_eq!(alternatives(&nodes, 4), [None; 2], "nobody knows whose it was");
    assert_eq!((nodes.node_of(AssocId(2)), nodes.count()), (Some(AssocId(1)), 1), "it keeps its number");
    assert_eq!(associations(&nodes), [Some(AssocId(2)); 2]);
    assert_eq!(nodes.ues(number).len(), 2);
    assert_eq!(nodes.get(number).map(|node| node.peer.to_string()), Some("10.0.0.2:38412".into()));
    let AssociationLoss::Last(gone) = nodes.remove_association(AssocId(2), false) else { panic!("that was the last") };
    assert_eq!((gone.node, gone.ues.len(), gone.remaining.len()), (AssocId(1), 2, 0));
    assert_eq!((nodes.association_to(number, None), nodes.count()), (None, 0));
    assert!(matches!(nodes.remove_association(AssocId(2), false), AssociationLoss::Nothing));
}

#[test]
fn ue_returns_to_first_association() {
    let ues = UES;
    let mut nodes = nodes(&ues);
    nodes.bind(AssocId(2), AssocId(1));
    nodes.set_last_association(AssocId(1), AssocId(2), ues[0]);
    nodes.set_last_association(AssocId(1), AssocId(1), ues[0]);
    assert_eq!(nodes.association_to(AssocId(1), Some(ues[0])), Some(AssocId(1)));
    nodes.set_last_association(AssocId(1), AssocId(2), ues[1]);
    assert!(matches!(nodes.remove_association(AssocId(2), true), AssociationLoss::Fewer(1)));
    assert_eq!((nodes.association_to(AssocId(1), Some(ues[1])), nodes.node_of(AssocId(2))), (Some(AssocId(1)), None));
    // The association is up again and may be bound again.
    nodes.bind(AssocId(2), AssocId(1));
    assert_eq!(nodes.node_of(AssocId(2)), Some(AssocId(1)));
}

#[test]
fn effects_use_last_association_of_each_node() {
    let ues = UES;
    let mut nodes = nodes(&ues);
    nodes.bind(AssocId(2), AssocId(1));
    nodes.begin(AssocId(3), record(8));
    nodes.set_last_association(AssocId(1), AssocId(2), ues[0]);
    let to = |node| Effect::Ngap { assoc: AssocId(node), pdu: Vec::new() };
    let effects = [to(1), Effect::DeleteContext, to(3), to(1), to(9)];
    let ways = [Some((AssocId(1), AssocId(2))), Some((AssocId(3), AssocId(3)))];
    assert_eq!(nodes.effect_associations(ues[0], &effects), ways);
    assert_eq!(nodes.effect_associations(ues[1], &effects[..2]), [Some((AssocId(1), AssocId(1))), None]);
    // A host that takes the UE over uses the same association if it is up there.
    nodes.restore_association(AssocId(1), AssocId(2), ues[1]);
    nodes.restore_association(AssocId(1), AssocId(4), ues[0]);
    assert_eq!(ues.map(|ue| nodes.association_to(AssocId(1), Some(ue))), [Some(AssocId(2)); 2]);
}

#[test]
fn claim_from_other_address_is_not_bound() {
    let mut nodes = nodes(&[]);
    nodes.on_association_up(AssocId(5), SocketAddr::from(([10, 0, 0, 3], 9)));
    nodes.claim(AssocId(2), record(8).id);
    nodes.claim(AssocId(5), record(8).id);
    nodes.begin(AssocId(3), record(8));
    assert_eq!([2, 3, 5].map(|assoc| nodes.node_of(AssocId(assoc))), [None, Some(AssocId(3)), Some(AssocId(3))]);
}

#[test]
fn identity_at_other_address_is_contested() {
    let mut nodes = nodes(&[]);
    let verdicts = |nodes: &Table| [1, 2].map(|assoc| nodes.setup(AssocId(assoc), record(7).id));
    assert_eq!(verdicts(&nodes), [Verdict::Granted, Verdict::Contested], "NG Setup again begins a life of its own");
    nodes.bind(AssocId(2), AssocId(1));
    assert_eq!(verdicts(&nodes), [Verdict::Granted; 2]);
    assert_eq!(nodes.setup(AssocId(3), record(8).id), Verdict::Granted);
    assert!(!nodes.binds(AssocId(3), AssocId(1), record(7).id));
}

#[test]
fn association_may_precede_its_node() {
    let mut nodes = nodes(&[]);
    nodes.set_allow(vec![Allow { network: "10.0.0.0/24".parse().expect("a network"), plmn: None, ids: None }]);
    nodes.claim(AssocId(2), record(8).id);
    nodes.claim(AssocId(4), record(9).id);
    assert_eq!(nodes.node_of(AssocId(2)), None);
    nodes.begin(AssocId(3), record(8));
    assert_eq!([2, 3, 4].map(|assoc| nodes.node_of(AssocId(assoc))), [Some(AssocId(3)), Some(AssocId(3)), None]);
    assert_eq!(nodes.get(AssocId(3)).map(RanNodeEntry::associations), Some(2));
    // A void association has claimed nothing.
    assert!(matches!(nodes.remove_association(AssocId(4), true), AssociationLoss::Nothing));
    nodes.begin(AssocId(1), record(9));
    assert_eq!(nodes.node_of(AssocId(4)), None);
}

#[test]
fn reported_node_keeps_lifetime_at_ng_setup() {
    let ues = UES;
    let mut nodes = nodes(&[]);
    // The first association of the node is lost, or not known yet.
    assert!(nodes.bind_reported(AssocId(2), AssocId(9), record(8)));
    assert!(!nodes.bind_reported(AssocId(3), AssocId(9), record(8)));
    assert!(!nodes.bind_reported(AssocId(5), AssocId(9), record(8)), "it is not up");
    assert_eq!([2, 3].map(|assoc| nodes.node_of(AssocId(assoc))), [Some(AssocId(9)); 2]);
    nodes.update_connections(ues[0], [None; 2], [Some(AssocId(9)), None]);
    assert_eq!(nodes.association_to(AssocId(9), Some(ues[0])), Some(AssocId(2)));
    nodes.on_association_up(AssocId(9), SocketAddr::from(([10, 0, 0, 9], 38412)));
    assert!(nodes.begin(AssocId(9), record(8)).is_empty(), "the same life: nothing ends");
    assert_eq!((nodes.ues(AssocId(9)).len(), nodes.node_of(AssocId(9))), (1, Some(AssocId(9))));
    assert_eq!(nodes.begin(AssocId(9), record(8)).len(), 1, "now it has set NG up again");
    // This lifetime differs from the known one.
    assert!(!nodes.bind_reported(AssocId(4), AssocId(6), record(7)));
    assert_eq!((nodes.node_of(AssocId(4)), nodes.find(record(7).id)), (None, Some(AssocId(1))));
}

#[test]
fn ng_setup_ends_every_earlier_life_of_the_node() {
    let ues = UES;
    let mut nodes = nodes(&ues);
    nodes.bind(AssocId(2), AssocId(1));
    let ended = nodes.begin(AssocId(3), record(7));
    assert_eq!(ended.len(), 1);
    assert_eq!((ended[0].node, ended[0].ues.len()), (AssocId(1), 2));
    assert_eq!(ended[0].remaining, [AssocId(1), AssocId(2)]);
    assert_eq!([1, 2, 3].map(|assoc| nodes.node_of(AssocId(assoc))), [None, None, Some(AssocId(3))]);
    // NG Setup on a further association: only the old first association is left.
    nodes.bind(AssocId(4), AssocId(3));
    let ended = nodes.begin(AssocId(4), record(7));
    assert_eq!((ended[0].node, ended[0].remaining.as_slice()), (AssocId(3), &[AssocId(3)][..]));
    // NG Setup again on the same association: the number stays, the UEs do not.
    nodes.update_connections(ues[0], [None; 2], [Some(AssocId(4)), None]);
    let ended = nodes.begin(AssocId(4), record(8));
    assert_eq!((ended[0].node, ended[0].ues.len(), ended[0].remaining.len()), (AssocId(4), 1, 0));
    assert!(nodes.ues(AssocId(4)).is_empty());
    assert_eq!((nodes.find(record(7).id), nodes.find(record(8).id)), (None, Some(AssocId(4))));
}

/// A host that joins may receive the message by which an association names its node before another
/// balancer's report of the node. If the association stays unbound, the host sends the effects of a
/// UE that it takes over by another one.
#[test]
fn claimed_association_joins_reported_node() {
    let mut nodes = nodes(&[]);
    let peer = SocketAddr::from(([10, 0, 0, 2], 38412));
    nodes.on_association_up(AssocId(5), peer);
    nodes.claim(AssocId(5), record(8).id);
    assert!(nodes.bind_reported(AssocId(2), AssocId(9), record(8)));
    assert_eq!([2, 5].map(|assoc| nodes.node_of(AssocId(assoc))), [Some(AssocId(9)); 2]);
    let path = [Some((AssocId(9), AssocId(5))), None];
    assert_eq!(nodes.effect_association(path, AssocId(9), Some(UES[0])), Some(AssocId(5)));
}

/// gNB 7 of the emulator.
fn gnb() -> Gnb {
    let id = gnb_id(7);
    let tai = Tai { plmn: id.plmn, tac: Tac(1) };
    let slices = CoreConfig::lab().slices.iter().map(|slice| slice.snssai).collect();
    let config = GnbConfig { id: id.into(), name: "gnb-7".into(), tai, slices, n3: [127, 0, 0, 1].into() };
    Gnb::new(config)
}

/// Passes what a gNB sends to the table, and the answers to the gNB. Returns the other outputs.
fn exchange(nodes: &mut Table, gnb: &mut Gnb, out: &gnb::Outbox, association: impl Fn(u8) -> u32) -> Vec<Output> {
    let (config, now) = (CoreConfig::lab(), Instant(1_000));
    let mut others = Vec::new();
    for (route, pdu) in out.routes() {
        let input = NodeStepInput { config: &config, now, answers: true, number: 0 };
        for output in nodes.on_message(AssocId(association(route.by)), pdu, input) {
            match output {
                NodeOutput::Send(RanOutput::Ngap { pdu, .. }) => {
                    let (mut inbox, mut answers) = (Inbox::default(), gnb::Outbox::default());
                    gnb.receive_by(route.by, &pdu, &mut inbox, &mut answers).expect("an answer");
                }
                NodeOutput::Event(_) => {}
                output => others.push(output),
            }
        }
    }
    others
}

#[test]
fn configuration_transfer_goes_to_named_enb_only() {
    use vireo_wire::s1ap::helpers::{EnbKind as WireKind, global_enb_id, plmn, tai};
    use vireo_wire::s1ap::*;
    let enb = |n: u32| AssocId(n).with_dialect(Dialect::Eps);
    let mut nodes = Table::new(Vec::new());
    for n in 1..=2 {
        nodes.on_association_up(enb(n), SocketAddr::from(([10, 0, 0, n as u8], 36412)));
        let id = EnbId { plmn: "99970".parse().expect("a PLMN"), kind: EnbKind::Macro, id: n };
        nodes.begin(enb(n), RanNode { id: id.into(), name: format!("enb-{n}"), areas: [].into() });
    }
    let network = plmn("999", "70").expect("a PLMN");
    let id = |id| global_enb_id(network, WireKind::Macro, id).expect("20 bits");
    let config = CoreConfig::lab();
    for (target, answers, receiver) in [(2, true, Some(2)), (2, false, None), (3, true, None)] {
        let (to, from) = (TargeteNBID::new(id(target), tai(network, [0, 1]), None), id(1));
        let from = SourceeNBID::new(from, tai(network, [0, 1]), None);
        let information = SONInformation::sONInformationRequest(SONInformationRequest::x2TNL_Configuration_Info);
        let son = SONConfigurationTransfer::new(to, from, information, None);
        let pdu = build_s1ap!(
            InitiatingMessage,
            eNBConfigurationTransfer,
            ENBConfigurationTransfer,
            SONConfigurationTransferECT(son),
        );
        let pdu = pdu.and_then(|pdu| pdu.encode()).expect("it encodes");
        let input = NodeStepInput { config: &config, now: Instant(1_000), answers, number: 0 };
        let outputs = nodes.on_message(enb(1), &pdu, input);
        let sent = outputs.iter().find_map(|output| match output {
            NodeOutput::Send(RanOutput::Ngap { assoc, .. }) => Some(*assoc),
            _ => None,
        });
        assert_eq!(sent, receiver.map(enb), "{target} {answers}");
        let faults = outputs.iter().filter(|output| matches!(output, NodeOutput::Event(NodeEvent::Fault { .. })));
        assert_eq!(faults.count(), usize::from(target == 3));
    }
}

/// Returns two RAN nodes at different balancers, the second of which the golden transfer names.
fn source_and_target() -> (Table, [AssocId; 2]) {
    let plmn = "99970".parse().expect("a PLMN");
    let ng_enb = RanNodeId::NgEnb(EnbId { plmn, kind: EnbKind::Macro, id: 0x1_2345 });
    let (from, to) = (AssocId::at(0, 1), AssocId::at(1, 1));
    let mut nodes = Table::new(Vec::new());
    for (assoc, id) in [(from, GnbId { plmn, id: 0x102, bits: 24 }.into()), (to, ng_enb)] {
        nodes.on_association_up(assoc, SocketAddr::from(([10, 0, 0, assoc.balancer() + 1], 38412)));
        nodes.begin(assoc, RanNode { id, name: String::new(), areas: [].into() });
    }
    (nodes, [from, to])
}

/// One RAN node could otherwise send another one more than it can read.
#[test]
fn transfers_to_a_node_are_limited() {
    let (mut nodes, [from, to]) = source_and_target();
    let uplink = crate::golden::nr("UplinkRANConfigurationTransfer");
    let config = CoreConfig::lab();
    let mut transfer = |now| {
        let input = NodeStepInput { config: &config, now, answers: true, number: 0 };
        match &nodes.on_message(from, &uplink, input)[..] {
            [NodeOutput::Send(RanOutput::Ngap { assoc, pdu, .. })] if *assoc == to => Some(pdu.len()),
            [NodeOutput::Event(NodeEvent::Fault { label: "limit", .. })] => None,
            outputs => panic!("{outputs:?}"),
        }
    };
    let octets: usize = std::iter::from_fn(|| transfer(Instant(1_000))).take(100_000).sum();
    assert!((1_000_000..=1 << 20).contains(&octets), "{octets}");
    assert!(transfer(Instant(11_000)).is_some(), "10 ms later there is room again");
}

#[test]
fn transfer_reaches_node_of_other_balancer() {
    use vireo_wire::ngap::{NGAP_PDU, NgapPduKind};
    let (mut nodes, [from, to]) = source_and_target();
    let uplink = crate::golden::nr("UplinkRANConfigurationTransfer");
    let config = CoreConfig::lab();
    let mut exchange = |answers| {
        let input = NodeStepInput { config: &config, now: Instant(1_000), answers, number: 0 };
        nodes.on_message(from, &uplink, input)
    };
    let outputs = exchange(true);
    let [NodeOutput::Send(RanOutput::Ngap { assoc, pdu, .. })] = &outputs[..] else { panic!("{outputs:?}") };
    let kind = NGAP_PDU::decode(pdu).expect("a PDU").kind();
    assert_eq!((*assoc, kind), (to, NgapPduKind::Initiating_DownlinkRANConfigurationTransfer));
    assert_eq!(exchange(false), []);
    // A target that is not set up: no answer (the procedure has none), and a counted fault.
    nodes.on_association_lost(to, false);
    let input = NodeStepInput { config: &config, now: Instant(1_000), answers: true, number: 0 };
    let outputs = nodes.on_message(from, &uplink, input);
    let [NodeOutput::Event(NodeEvent::Fault { label, .. })] = &outputs[..] else { panic!("{outputs:?}") };
    assert_eq!(*label, "configuration-transfer-to-unknown-node");
}

#[test]
fn further_association_joins_its_node() {
    let mut table = nodes(&[]);
    table.on_association_lost(AssocId(1), false);
    let peer = SocketAddr::from(([10, 0, 0, 1], 38412));
    [5, 6].into_iter().for_each(|assoc| _ = table.on_association_up(AssocId(assoc), peer));
    let (mut gnb, mut out) = (gnb(), gnb::Outbox::default());
    gnb.set_up(4, &mut out).expect("NG Setup");
    let outputs = exchange(&mut table, &mut gnb, &out, |_| 5);
    assert_eq!(outputs, [NodeOutput::Changed, NodeOutput::Begun { assoc: AssocId(5) }]);
    out.clear();
    gnb.attach(1, 4, &mut out).expect("RAN Configuration Update");
    let outputs = exchange(&mut table, &mut gnb, &out, |_| 6);
    let [NodeOutput::Report(owner)] = &outputs[..] else { panic!("{outputs:?}") };
    assert_eq!((owner.assoc, owner.node, owner.record.id), (AssocId(6), AssocId(5), record(7).id));
    assert_eq!([5, 6].map(|assoc| gnb.association_state(assoc - 5)), [NgState::Up; 2]);
    table.update_connections(UES[0], [None; 2], [Some(AssocId(5)), None]);
    // The balancer of the first association is lost: the other one carries the node.
    assert!(table.on_balancer_unreachable([AssocId(5)], &[], true).iter().all(|of| matches!(of, NodeOutput::Event(_))));
    assert_eq!(table.alternative_to(AssocId(5), Some(UES[0])), Some(AssocId(6)));
    assert_eq!(table.node_of(AssocId(6)), Some(AssocId(5)));
    // That of the last one is lost, too.
    table.on_balancer_unreachable([AssocId(6)], &[], true);
    let outputs = table.on_associations_lost([5, 6].map(AssocId));
    let node = AssocId(5);
    assert!(outputs.contains(&NodeOutput::Disconnect { node, ues: vec![UES[0]], at_once: false }));
    assert_eq!(table.alternative_to(AssocId(6), None), None);
}

#[test]
fn restarted_node_aborts_associations_of_before() {
    let mut table = Table::new(Vec::new());
    let peer = SocketAddr::from(([10, 0, 0, 1], 38412));
    [5, 6].into_iter().for_each(|assoc| _ = table.on_association_up(AssocId(assoc), peer));
    for assoc in [5, 6] {
        let (mut gnb, mut out) = (gnb(), gnb::Outbox::default());
        gnb.set_up(4, &mut out).expect("NG Setup");
        let outputs = exchange(&mut table, &mut gnb, &out, |_| assoc);
        if assoc == 5 {
            table.update_connections(UES[1], [None; 2], [Some(AssocId(5)), None]);
            continue;
        }
        let (node, ues) = (AssocId(5), vec![UES[1]]);
        let ends = [
            NodeOutput::Ended { node },
            NodeOutput::Disconnect { node, ues, at_once: false },
            NodeOutput::Send(RanOutput::Abort { assoc: node }),
        ];
        assert_eq!(outputs[..3], ends);
    }
    assert_eq!((table.is_up(AssocId(5)), table.node_of(AssocId(6))), (false, Some(AssocId(6))));
}

#[test]
fn reset_ends_only_earlier_connections() {
    let (mut nodes, [first, second]) = (nodes(&UES), UES);
    let (node, input) = (AssocId(1), |balancer: u8, own| BalancerId(balancer).input(own));
    nodes.on_connected(first, input(1, 7));
    nodes.on_connected(second, input(1, 9));
    assert_eq!(nodes.begin_reset(node, input(1, 8)), [first]);
    assert_eq!(nodes.begin_reset(node, input(1, 8)), [], "the first one is on its way to the UE");
    assert!(!nodes.begin_reset_of(node, input(1, 8), first) && nodes.begin_reset_of(node, input(1, 8), second));
    assert_eq!(nodes.begin_reset(node, input(2, 8)).len(), 2, "inputs of different balancers have no order");
    assert_eq!(nodes.begin_reset(node, 0).len(), 2, "no balancer numbers the reset");
    nodes.update_connections(second, [Some(node), None], [None; 2]);
    nodes.update_connections(second, [None; 2], [Some(node), None]);
    assert_eq!(nodes.begin_reset(node, input(1, 8)).len(), 2, "both are connected anew");
}

#[test]
fn enb_is_one_node_for_each_mme() {
    let enb = |balancer| AssocId::at(balancer, 1).with_dialect(Dialect::Eps);
    let id = EnbId { plmn: "99970".parse().expect("a PLMN"), kind: EnbKind::Macro, id: 7 };
    let tai = Tai { plmn: id.plmn, tac: Tac(1) };
    let areas = [SupportedArea { tai, slices: Vec::new() }].into();
    let record = RanNode { id: id.into(), name: "enb-7".into(), areas };
    let mut nodes = nodes(&[]);
    for balancer in [0, 1] {
        nodes.on_association_up(enb(balancer), SocketAddr::from(([10, 0, 0, 9], 36412)));
        assert_eq!(nodes.setup(enb(balancer), id.into()), Verdict::Granted);
        assert!(nodes.begin(enb(balancer), record.clone()).is_empty());
        nodes.update_connections(u32::from(balancer), [None; 2], [Some(enb(balancer)), None]);
    }
    assert_eq!(crate::RanNodes::serving(&nodes, &[tai]), [enb(0)], "a UE is paged once in its cells");
    // Another S1 Setup with the same MME ends the first, as after a restart of the eNB.
    let again = AssocId::at(1, 2).with_dialect(Dialect::Eps);
    nodes.on_association_up(again, SocketAddr::from(([10, 0, 0, 9], 36412)));
    let ended = nodes.begin(again, record);
    assert_eq!(ended.iter().map(|ended| ended.node).collect::<Vec<_>>(), [enb(1)]);
    nodes.update_connections(1, [None; 2], [Some(again), None]);
    let unreachable = nodes.on_balancer_unreachable([again], &[], true);
    assert!(unreachable.iter().all(|output| !matches!(output, NodeOutput::Disconnect { .. })), "{unreachable:?}");
    assert_eq!((nodes.ues(again), nodes.alternative_to(again, Some(1))), (vec![1], None));
    let lost = nodes.on_associations_lost([again]);
    assert!(matches!(lost[..], [NodeOutput::Event(_), NodeOutput::Disconnect { .. }, NodeOutput::Changed]), "{lost:?}");
    assert_eq!((nodes.ues(enb(0)), nodes.alternative_to(again, Some(1))), (vec![0], None));
}

/// Returns true if one of the outputs ends the connections of UEs.
fn disconnects(outputs: &[Output]) -> bool {
    outputs.iter().any(|output| matches!(output, NodeOutput::Disconnect { .. }))
}

#[test]
fn unreachable_node_keeps_ues_before_loss() {
    let (mut nodes, node) = (nodes(&UES), AssocId(1));
    let areas = [SupportedArea { tai: Tai { plmn: gnb_id(7).plmn, tac: Tac(1) }, slices: Vec::new() }];
    nodes.record(node, RanNode { areas: areas.clone().into(), ..record(7) });
    // Association 2 has no RAN node, and ends.
    let outputs = nodes.on_balancer_unreachable([1, 2].map(AssocId), &[[192, 0, 2, 1].into()], true);
    assert!(!disconnects(&outputs) && !outputs.iter().any(|output| matches!(output, NodeOutput::Send(_))));
    assert!(outputs.contains(&NodeOutput::Event(NodeEvent::Unreachable { assoc: node, name: "gnb-7".into() })));
    assert!(outputs.contains(&NodeOutput::Changed), "workers do not use the node");
    assert_eq!((nodes.ues(node).len(), nodes.is_reachable(node), nodes.is_up(AssocId(2))), (2, false, false));
    assert_eq!(crate::RanNodes::serving(&nodes, &[areas[0].tai]), [], "it cannot page");
    assert_eq!(crate::RanNodes::find(&nodes, record(7).id), None, "no handover goes there");
    assert_eq!(nodes.alternative_to(node, Some(UES[0])), None);
    // The map lacks the balancer.
    let outputs = nodes.on_associations_lost([1, 2].map(AssocId));
    let lost = outputs.iter().find_map(|output| match output {
        NodeOutput::Disconnect { node, ues, at_once: false } => Some((*node, ues.len())),
        _ => None,
    });
    assert_eq!((lost, nodes.count()), (Some((node, 2)), 0));
    assert_eq!(nodes.on_associations_lost([node]), [], "once");
}

#[test]
fn unreachable_node_continues_elsewhere() {
    let (mut nodes, node) = (nodes(&UES), AssocId(1));
    nodes.on_balancer_unreachable([node], &[], true);
    assert!(nodes.bind(AssocId(2), node), "it is reachable again");
    assert!(!nodes.bind(AssocId(4), node), "it was reachable");
    assert_eq!((nodes.is_reachable(node), nodes.is_up(node)), (true, false));
    assert_eq!(UES.map(|ue| nodes.association_to(node, Some(ue))), [Some(AssocId(2)); 2]);
    assert_eq!(nodes.alternative_to(node, Some(UES[0])), Some(AssocId(2)), "for messages in transit");
    assert_eq!(nodes.on_associations_lost([node]), [], "the map lacks the balancer");
    assert_eq!(nodes.ues(node).len(), 2);
}

#[test]
fn setup_elsewhere_ends_unreachable_node() {
    let mut nodes = nodes(&UES);
    assert_eq!(nodes.setup(AssocId(3), record(7).id), Verdict::Contested, "it comes from another address");
    nodes.on_balancer_unreachable([AssocId(1)], &[], true);
    assert_eq!(nodes.setup(AssocId(3), record(7).id), Verdict::Granted, "nothing would answer a probe");
    let ended = nodes.begin(AssocId(3), record(7));
    assert_eq!(ended.iter().map(|ended| (ended.node, ended.ues.len())).collect::<Vec<_>>(), [(AssocId(1), 2)]);
    assert_eq!(nodes.on_associations_lost([AssocId(1)]), []);
}

#[test]
fn unreachable_association_is_not_resumed() {
    let (mut nodes, node) = (nodes(&UES), AssocId(1));
    let peer = SocketAddr::from(([10, 0, 0, 1], 38412));
    assert_eq!(nodes.on_association_up(AssocId(5), peer), []);
    nodes.on_balancer_unreachable([node], &[], true);
    // Another process has the ID of the balancer, and counts its associations from the beginning.
    let outputs = nodes.on_association_up(node, peer);
    assert!(disconnects(&outputs), "{outputs:?}");
    assert!(nodes.begin(node, record(7)).is_empty());
    nodes.update_connections(UES[0], [None; 2], [Some(node), None]);
    assert_eq!(nodes.on_associations_lost([node]), [], "that is about the earlier association");
    assert_eq!((nodes.ues(node), nodes.is_reachable(node)), (vec![UES[0]], true));
}
