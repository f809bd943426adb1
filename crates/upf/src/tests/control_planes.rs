//! Binding of Node IDs to control planes, and the sessions of silent ones.

use super::*;
use vireo_types::Network;

const OTHER: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 66);

fn setup(node_id: NodeId, recovery: u32) -> AssociationSetupRequest {
    AssociationSetupRequest {
        node_id,
        recovery_time_stamp: RecoveryTimeStamp(recovery),
        up_function_features: None,
        cp_function_features: None,
        session_retention: None,
    }
}

impl Bench {
    /// Sends a setup request as `from`. Returns the cause of an immediate response.
    fn set_up(&mut self, from: Ipv4Addr, request: &AssociationSetupRequest) -> Option<Cause> {
        let out = self.send_as(from, |out, sequence| request.emit(out, sequence));
        out.first().map(|(_, answer)| cause(answer))
    }

    /// Sends a message as `from`. Returns the messages of the UPF.
    fn send_as(&mut self, from: Ipv4Addr, emit: impl FnOnce(&mut Vec<u8>, u32) -> Result<(), TooLong>) -> Outgoing {
        self.sequence += 1;
        let mut octets = vec![];
        emit(&mut octets, self.sequence).expect("short");
        let before = std::mem::replace(&mut self.from, (from, PORT).into());
        let out = self.deliver(&octets);
        self.from = before;
        out
    }

    fn heartbeat_as(&mut self, from: Ipv4Addr, recovery: u32) -> Outgoing {
        let request = HeartbeatRequest { recovery_time_stamp: RecoveryTimeStamp(recovery) };
        self.send_as(from, |out, sequence| request.emit(out, sequence))
    }

    /// Advances the time by one second at a time. Returns the messages of the UPF.
    fn pass(&mut self, seconds: u64) -> Outgoing {
        let mut out = vec![];
        for _ in 0..seconds {
            self.advance(1);
            self.upf.tick(self.now, &mut out);
            self.upf.upkeep(true, self.now, &mut self.plane, &mut out);
        }
        out
    }
}

/// Returns entries of `upf.control-planes`: addresses that may use a Node ID, or any that no other
/// entry names.
fn list(entries: &[(Option<NodeId>, &[Ipv4Addr])]) -> Vec<ControlPlane> {
    let entry = |(node_id, addresses): &(Option<NodeId>, &[Ipv4Addr])| ControlPlane {
        node_id: node_id.clone(),
        networks: addresses.iter().map(|address| Network::host((*address).into())).collect(),
    };
    entries.iter().map(entry).collect()
}

impl Bench {
    /// Creates an association whose control plane answers a heartbeat, and a session.
    fn supervised(&mut self) -> u64 {
        let (seid, _) = self.session();
        let sent = heartbeats(&self.pass(1));
        assert_eq!(sent.len(), 1, "the first heartbeat does not wait");
        self.answer(SMF, sent[0].1, 1_000);
        seid
    }

    /// Answers a heartbeat as `from`.
    fn answer(&mut self, from: Ipv4Addr, sequence: u32, recovery: u32) {
        let mut octets = vec![];
        let response = HeartbeatResponse { recovery_time_stamp: RecoveryTimeStamp(recovery) };
        response.emit(&mut octets, sequence).expect("short");
        let before = std::mem::replace(&mut self.from, (from, PORT).into());
        assert_eq!(self.deliver(&octets), vec![]);
        self.from = before;
    }
}

fn cause(answer: &[u8]) -> Cause {
    Message::new(answer).expect("sound").need().expect("a cause")
}

fn heartbeats(out: &Outgoing) -> Vec<(SocketAddr, u32)> {
    let of = |(to, octets): &(SocketAddr, Vec<u8>)| {
        let message = Message::new(octets).expect("sound");
        (message.message_type() == MessageType::HEARTBEAT_REQUEST).then(|| (*to, message.sequence()))
    };
    out.iter().filter_map(of).collect()
}

#[test]
fn other_source_and_time_stamp_delete_nothing() {
    let mut b = bench();
    let (seid, teid) = b.session();
    // TS 29.244 6.2.6.2.2 concerns the control plane itself, which sends from its bound address.
    assert_eq!(b.set_up(OTHER, &setup(node(), 2_000)), Some(Cause::REQUEST_REJECTED));
    b.heartbeat_as(OTHER, 3_000);
    b.pass(5);
    assert_eq!(b.upf.sessions(), 1);
    assert_eq!(b.modify(seid, &forward(RAN_TEID)).cause, Cause::REQUEST_ACCEPTED);
    b.uplink(teid, &ipv4(UE, SERVER, 40));
    assert_eq!(b.plane.n6.len(), 1);
}

#[test]
fn other_source_with_same_time_stamp_is_refused() {
    let mut b = bench();
    let (seid, _) = b.session();
    let answer = b.set_up(OTHER, &setup(node(), 1_000));
    assert!(answer.is_none_or(|cause| !cause.is_accepted()), "the first is not known to be dead: {answer:?}");
    let deletion = b.send_as(OTHER, |out, sequence| SessionDeletionRequest::default().emit(out, seid, sequence));
    assert_eq!(cause(&deletion[0].1), Cause::NO_ESTABLISHED_ASSOCIATION);
    let release = AssociationReleaseRequest { node_id: node() };
    let released = b.send_as(OTHER, |out, sequence| release.emit(out, sequence));
    assert_eq!((cause(&released[0].1), b.upf.sessions()), (Cause::NO_ESTABLISHED_ASSOCIATION, 1));
}

#[test]
fn node_id_moves_when_its_address_is_dead() {
    for (retention, recovery) in [(false, 1_000), (true, 1_000), (true, 2_000)] {
        let mut b = bench();
        let (seid, _) = b.session();
        let mut request = setup(node(), recovery);
        request.session_retention = retention.then(SessionRetentionInformation::default);
        assert_eq!(b.set_up(OTHER, &request), None, "the first is asked");
        assert_eq!(b.set_up(OTHER, &request), None, "the repeat is no other request");
        let out = b.pass(1);
        assert!(heartbeats(&out).iter().all(|(to, _)| *to == Bench::smf()) && !out.is_empty());
        let out = b.pass(1);
        let answers: Vec<_> = out.iter().filter(|(to, _)| to.ip() == IpAddr::from(OTHER)).collect();
        assert_eq!(answers.iter().map(|(_, answer)| cause(answer)).collect::<Vec<_>>(), [Cause::REQUEST_ACCEPTED]);
        let response =
            AssociationSetupResponse::parse(&Message::new(&answers[0].1).expect("sound")).expect("an answer");
        assert_eq!(response.flags.is_some_and(|flags| flags.contains(AsRspFlags::PSREI)), retention);
        b.from = (OTHER, PORT).into();
        assert_eq!(b.modify(seid, &forward(RAN_TEID)).cause, Cause::REQUEST_ACCEPTED, "its sessions are there");
    }
}

#[test]
fn node_id_stays_when_its_address_answers() {
    let mut b = bench();
    let (seid, _) = b.session();
    let mut request = setup(node(), 1_000);
    request.session_retention = Some(SessionRetentionInformation::default());
    assert_eq!(b.set_up(OTHER, &request), None);
    let mut out = vec![];
    b.upf.upkeep(false, b.now, &mut b.plane, &mut out);
    let probes = heartbeats(&out);
    assert_eq!(probes.len(), 1, "asked at once");
    assert!(b.upf.deadline().is_some_and(|at| at <= b.now.instant + Duration::from_millis(500)), "and again soon");
    b.now.instant = b.now.instant + Duration::from_millis(3);
    b.answer(SMF, probes[0].1, 1_000);
    out.clear();
    b.upf.upkeep(false, b.now, &mut b.plane, &mut out);
    assert_eq!(
        out.iter().map(|(to, answer)| (to.ip(), cause(answer))).collect::<Vec<_>>(),
        [(OTHER.into(), Cause::REQUEST_REJECTED)]
    );
    let deletion = b.send_as(OTHER, |out, sequence| SessionDeletionRequest::default().emit(out, seid, sequence));
    assert_eq!(cause(&deletion[0].1), Cause::NO_ESTABLISHED_ASSOCIATION);
    assert_eq!((b.upf.sessions(), b.upf.stats.refused_associations), (1, 1));
}

#[test]
fn listed_addresses_of_a_node_act_for_it_at_once() {
    let mut b = bench();
    b.upf.settings.associations.control_planes = list(&[(Some(node()), &[SMF, OTHER])]);
    let (seid, _) = b.session();
    assert_eq!(b.set_up(OTHER, &setup(node(), 1_000)), Some(Cause::REQUEST_ACCEPTED));
    b.from = (OTHER, PORT).into();
    assert_eq!(b.modify(seid, &forward(RAN_TEID)).cause, Cause::REQUEST_ACCEPTED);
    assert_eq!(b.set_up(SMF, &setup(node(), 5_000)), Some(Cause::REQUEST_ACCEPTED));
    assert_eq!(b.upf.sessions(), 0, "it has restarted, by an address of its own");
}

#[test]
fn unlisted_address_is_refused_without_state() {
    let mut b = bench();
    let third = Ipv4Addr::new(192, 0, 2, 67);
    b.upf.settings.associations.control_planes = list(&[(Some(node()), &[SMF]), (None, &[third])]);
    let (seid, _) = b.session();
    assert_eq!(b.set_up(OTHER, &setup(NodeId::Ipv4(OTHER), 7)), Some(Cause::REQUEST_REJECTED));
    assert_eq!(b.heartbeat_as(OTHER, 7), vec![]);
    let deletion = |out: &mut Vec<u8>, sequence| SessionDeletionRequest::default().emit(out, seid, sequence);
    assert_eq!(b.send_as(OTHER, deletion), vec![]);
    assert_eq!((b.upf.stats.unlisted, b.upf.associations(), b.upf.sessions()), (3, 1, 1));
    // A listed address may not use the Node ID of another entry.
    assert_eq!(b.set_up(third, &setup(node(), 1_000)), Some(Cause::REQUEST_REJECTED));
    assert_eq!(b.set_up(third, &setup(NodeId::Ipv4(third), 7)), Some(Cause::REQUEST_ACCEPTED));
    assert_eq!(cause(&b.send_as(third, deletion)[0].1), Cause::SESSION_CONTEXT_NOT_FOUND);
}

#[test]
fn silent_control_plane_keeps_sessions_a_while() {
    let mut b = bench();
    b.supervised();
    // 10 s to the next heartbeat, three of 3 s, and 600 s.
    let sent = heartbeats(&b.pass(20));
    assert_eq!(sent.len(), 3, "{sent:?}");
    assert!(sent.iter().all(|(to, sequence)| (*to, *sequence) == (Bench::smf(), sent[0].1)), "repeats: {sent:?}");
    assert!(!heartbeats(&b.pass(570)).is_empty(), "it is asked on");
    assert_eq!(b.upf.sessions(), 1);
    b.pass(40);
    assert_eq!((b.upf.sessions(), b.upf.associations(), b.upf.stats.released), (0, 0, 1));
    assert!(b.plane.tables.is_empty());
    assert_eq!(b.establish(&request()).cause, Cause::NO_ESTABLISHED_ASSOCIATION);
}

#[test]
fn returning_control_plane_has_its_sessions() {
    let mut b = bench();
    let seid = b.supervised();
    b.pass(500);
    assert_eq!(b.modify(seid, &forward(RAN_TEID)).cause, Cause::REQUEST_ACCEPTED);
    b.pass(500);
    assert_eq!(b.upf.sessions(), 1, "the time began anew");
    b.upf.settings.associations.keep_sessions = std::time::Duration::ZERO;
    b.pass(700);
    assert_eq!(b.upf.sessions(), 0);
}

#[test]
fn silence_without_earlier_answer_is_ignored() {
    let mut b = bench();
    b.session();
    // Responses of other addresses, and to other requests, do not count for this control plane.
    let sent = heartbeats(&b.pass(1));
    b.answer(OTHER, sent[0].1, 1_000);
    b.answer(SMF, sent[0].1 + 1, 1_000);
    b.pass(5_000);
    assert_eq!((b.upf.sessions(), b.upf.stats.released), (1, 0), "it may answer no heartbeats at all");
    b.upf.settings.associations.heartbeat_interval = None;
    assert_eq!(heartbeats(&b.pass(100)), [], "turned off");
}

#[test]
fn heartbeat_answer_tells_of_a_restart() {
    let mut b = bench();
    b.session();
    let sent = heartbeats(&b.pass(1));
    b.answer(SMF, sent[0].1, 999);
    assert_eq!(b.upf.sessions(), 1, "an older one was overtaken");
    let sent = heartbeats(&b.pass(11));
    b.answer(SMF, sent[0].1, 1_001);
    assert_eq!((b.upf.sessions(), b.upf.associations()), (0, 0));
}

#[test]
fn heartbeat_of_neighbour_deletes_nothing() {
    let mut b = bench();
    b.session();
    // Two control planes at one address: a heartbeat names neither.
    assert_eq!(b.set_up(SMF, &setup(NodeId::Ipv4(OTHER), 2_000)), Some(Cause::REQUEST_ACCEPTED));
    b.heartbeat_as(SMF, 2_000);
    assert_eq!(b.upf.sessions(), 1, "the other one has started later");
}

#[test]
fn upf_sends_heartbeats_to_its_control_planes() {
    let mut b = bench();
    b.associate();
    let sent = heartbeats(&b.pass(60));
    assert!(!sent.is_empty() && sent.iter().all(|(to, _)| *to == Bench::smf()), "{sent:?}");
}

#[test]
fn answers_to_strangers_are_not_kept() {
    let mut b = bench();
    b.associate();
    let mut octets = vec![];
    request().emit(&mut octets, 0, 4711).expect("short");
    let first = b.deliver(&octets);
    // More refusals than stored responses.
    for n in 0..70_000 {
        b.sequence = n;
        b.send_as(OTHER, |out, sequence| SessionDeletionRequest::default().emit(out, 9, sequence));
    }
    assert_eq!((b.deliver(&octets), b.upf.sessions()), (first, 1), "a repeat is answered as before");
    assert_eq!(b.upf.stats.repeated, 1);
}

#[test]
fn associations_of_one_address_are_limited() {
    let mut b = bench();
    b.associate();
    let node = |n: u32| NodeId::Ipv4(Ipv4Addr::from(0x0a00_0000 + n));
    let causes: Vec<_> = (0..300).filter_map(|n| b.set_up(OTHER, &setup(node(n), 7))).collect();
    let accepted = causes.iter().filter(|cause| cause.is_accepted()).count();
    assert!(causes.len() == 300 && accepted <= 16, "{accepted} accepted");
    assert_eq!(causes.last(), Some(&Cause::NO_RESOURCES));
    let third = Ipv4Addr::new(192, 0, 2, 67);
    let accepted = Some(Cause::REQUEST_ACCEPTED);
    assert_eq!(b.set_up(third, &setup(NodeId::Ipv4(third), 7)), accepted, "there is room for others");
}

#[test]
fn unused_associations_make_room_for_others() {
    let mut b = bench();
    b.upf.settings.associations.max = 3;
    b.session();
    let address = |n: u8| Ipv4Addr::new(198, 51, 100, n);
    let next = |b: &mut Bench, n: u8| b.set_up(address(n), &setup(NodeId::Ipv4(address(n)), 7));
    let (accepted, no_resources) = (Some(Cause::REQUEST_ACCEPTED), Some(Cause::NO_RESOURCES));
    assert_eq!([1, 2, 3].map(|n| next(&mut b, n)), [accepted, accepted, no_resources]);
    b.pass(61);
    assert_eq!([3, 4, 5].map(|n| next(&mut b, n)), [accepted, accepted, no_resources]);
    assert_eq!((b.upf.associations(), b.upf.sessions()), (3, 1), "the one with a session stays");
}

#[test]
fn reports_go_to_the_control_plane_alone() {
    let mut b = bench();
    b.associate();
    let mut asked = request();
    // A report sent there would look as if it concerned a session of that control plane.
    asked.cp_f_seid = FSeid::new(CP_SEID, OTHER.into());
    let (seid, _) = established(&b.establish(&asked));
    let mut out = vec![];
    let tunnel = vireo_datapath::Tunnel { teid: RAN_TEID, address: GNB.into() };
    b.upf.event(vireo_datapath::Event::TunnelError { session: seid, tunnel }, b.now, &mut b.plane, &mut out);
    assert_eq!(out.iter().map(|(to, _)| to.ip()).collect::<Vec<_>>(), [IpAddr::from(SMF)]);
}

#[test]
fn sessions_are_not_given_to_others() {
    let mut b = bench();
    let (seid, _) = b.session();
    assert_eq!(b.set_up(OTHER, &setup(NodeId::Ipv4(OTHER), 7)), Some(Cause::REQUEST_ACCEPTED));
    // Otherwise the other control plane would receive reports with a SEID that this one has chosen.
    let change = SessionModificationRequest { node_id: Some(NodeId::Ipv4(OTHER)), ..forward(RAN_TEID) };
    assert_eq!(b.modify(seid, &change).cause, Cause::NO_ESTABLISHED_ASSOCIATION);
    assert_eq!(b.set_up(SMF, &setup(NodeId::Ipv4(SERVER), 7)), Some(Cause::REQUEST_ACCEPTED));
    let change = SessionModificationRequest { node_id: Some(NodeId::Ipv4(SERVER)), ..forward(RAN_TEID) };
    assert_eq!(b.modify(seid, &change).cause, Cause::REQUEST_ACCEPTED, "both are at one address");
}

#[test]
fn seids_do_not_follow_from_each_other() {
    let mut b = bench();
    b.associate();
    let mut nth = |n: u8| {
        let mut request = request();
        request.create_pdrs[1] = downlink_pdr(2, Some(Ipv4Addr::new(10, 45, 0, n)), None);
        established(&b.establish(&request)).0
    };
    let seids = [3, 4, 5, 6].map(&mut nth);
    let upper: std::collections::HashSet<u64> = seids.iter().map(|seid| seid >> 32).collect();
    assert_eq!(upper.len(), 4, "{seids:x?}");
    assert!(!upper.contains(&u64::from(STARTED)), "the time of the start is known to everybody");
}
