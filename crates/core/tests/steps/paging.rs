//! Paging and pending work of an idle UE.
//!
//! Downlink packets, session release, deregistration; and a UE that does not respond.

use crate::lab::{self, Lab};
use vireo_core::amf::context::{
    DrxCycle, PagingInfo, PendingWork, PowerSaving, Procedure, RadioCapability, Reachability,
};
use vireo_core::amf::engine::Event;
use vireo_core::smf::{RanState, Stage};
use vireo_core::step::{Effect, Kind, Note};
use vireo_emulator::gnb;
use vireo_emulator::ue::{self, Event as UeEvent};
use vireo_types::*;
use vireo_wire::pfcp::{self, Element};

/// Returns a connected UE with session 1.
fn connected() -> Lab {
    let mut lab = Lab::new();
    lab.register();
    lab.session(1);
    lab
}

/// Returns an idle UE with session 1.
fn idle() -> Lab {
    let mut lab = connected();
    lab.idle();
    lab
}

/// Has the UPF report a packet for session 1.
fn downlink_packet(lab: &mut Lab) {
    let seid = lab.context().expect("a context").sessions[0].pfcp.cp_seid;
    let octets = lab::pfcp_report(seid, pfcp::ReportType::DLDR, |report| {
        report.group(pfcp::DownlinkDataReport::ID, |data| {
            data.put(&pfcp::PdrId(2));
        });
    });
    lab.event(Event::Pfcp { seid, message: &octets });
}

fn pages(lab: &Lab) -> usize {
    lab.gnb_events.iter().filter(|e| matches!(e, gnb::Event::Paging(_))).count()
}

fn paged(lab: &Lab) -> (usize, usize) {
    let count = |f: fn(&Note) -> bool| lab.notes.iter().filter(|n| f(n)).count();
    (count(|n| matches!(n, Note::Succeeded(Kind::Paging, _))), count(|n| matches!(n, Note::Failed(Kind::Paging, _))))
}

#[test]
fn downlink_packet_reactivates_idle_ue() {
    let mut lab = idle();
    downlink_packet(&mut lab);
    assert!(matches!(lab.context().and_then(|c| c.procedure), Some(Procedure::Paging(_))));
    lab.settle();
    assert_eq!(pages(&lab), 1, "the gNB of the last connection");
    assert_eq!(paged(&lab), (1, 0));
    assert!(lab.events.contains(&UeEvent::ServiceAccepted));
    let context = lab.context().expect("a context");
    assert!(context.procedure.is_none() && context.pending == PendingWork::default());
    assert!(context.connection.is_some() && context.sessions[0].ran == RanState::Up, "its user plane is back");
    assert!(context.sessions[0].downlink.is_some());
}

#[test]
fn signalling_service_request_gets_pending_path() {
    let mut lab = idle();
    lab.answers_paging = false;
    downlink_packet(&mut lab);
    lab.settle();
    lab.ue_does(|ue, _, out| ue.service_request(ue::Service::Signalling, out).expect("a request"));
    assert_eq!(paged(&lab), (1, 0));
    assert_eq!(lab.context().expect("a context").sessions[0].ran, RanState::Up);
}

#[test]
fn registration_answers_paging() {
    let mut lab = idle();
    lab.answers_paging = false;
    downlink_packet(&mut lab);
    lab.settle();
    lab.at = 1;
    lab.ue_does(|ue, p, out| ue.register(p, ue::Registration::Mobility, out).expect("a request"));
    assert_eq!(paged(&lab), (1, 0));
    assert_eq!(lab.context().expect("a context").sessions[0].ran, RanState::Up);
}

#[test]
fn paging_repeats_until_given_up() {
    let mut lab = idle();
    lab.answers_paging = false;
    downlink_packet(&mut lab);
    lab.settle();
    downlink_packet(&mut lab);
    lab.settle();
    assert_eq!(pages(&lab), 1, "one paging at a time");
    lab.wait(Duration::from_millis(14_900));
    assert_eq!((pages(&lab), paged(&lab)), (9, (0, 0)), "four times more, in each cell");
    let content = lab.pfcp.len();
    lab.wait(Duration::from_millis(200));
    assert_eq!((pages(&lab), paged(&lab)), (9, (0, 1)));
    let last = pfcp::Message::new(&lab.pfcp[content]).expect("a PFCP message");
    assert_eq!(last.get::<pfcp::SmReqFlags>(), Ok(Some(pfcp::SmReqFlags::DROBU)), "what waits is dropped");
    let context = lab.context().expect("a context");
    assert!(context.is_registered() && context.procedure.is_none() && context.sessions.len() == 1);
    // The next packet starts paging again.
    lab.answers_paging = true;
    downlink_packet(&mut lab);
    lab.settle();
    assert_eq!(paged(&lab), (1, 1));
}

#[test]
fn paging_stops_after_mobile_reachable_timer() {
    let mut lab = idle();
    lab.wait(Duration::from_secs(58 * 60 + 1));
    assert!(lab.context().is_some_and(|c| c.reachability.unreachable && c.is_registered()));
    downlink_packet(&mut lab);
    lab.settle();
    assert_eq!((pages(&lab), paged(&lab)), (0, (0, 1)));
    lab.ue_does(|ue, p, out| ue.register(p, ue::Registration::Periodic, out).expect("a request"));
    assert!(lab.context().is_some_and(|c| !c.reachability.unreachable && c.sessions.len() == 1), "it is back in time");
}

#[test]
fn deregistration_pages_idle_ue() {
    let mut lab = idle();
    lab.event(Event::Deregister { reregister: true, cause: None });
    lab.settle();
    assert_eq!(paged(&lab), (1, 0));
    assert!(lab.events.contains(&UeEvent::DeregisteredByNetwork { cause: None, reregister: true }), "{:?}", lab.events);
    assert!(lab.context().is_some_and(|c| !c.is_registered() && c.sessions.is_empty() && c.connection.is_none()));
}

#[test]
fn unanswered_deregistration_completes() {
    let mut lab = idle();
    lab.answers_paging = false;
    lab.event(Event::Deregister { reregister: false, cause: None });
    lab.wait(Duration::from_secs(14));
    assert!(lab.context().is_some_and(|c| c.is_registered()));
    lab.wait(Duration::from_secs(2));
    assert!(
        lab.context()
            .is_some_and(|c| !c.is_registered() && c.sessions.is_empty() && c.pending == PendingWork::default())
    );
}

/// The UPF loses the session while the UE is idle: the UE is paged and told to release it.
#[test]
fn session_release_pages_idle_ue() {
    let mut lab = idle();
    lose_session(&mut lab);
    lab.settle();
    assert_eq!(paged(&lab), (1, 0));
    assert!(lab.events.contains(&UeEvent::SessionReleased { psi: 1 }), "{:?}", lab.events);
    assert!(lab.context().is_some_and(|c| c.sessions.is_empty()));
}

#[test]
fn session_release_ends_if_ue_unreachable() {
    let mut lab = idle();
    lab.answers_paging = false;
    lose_session(&mut lab);
    assert!(matches!(lab.context().expect("a context").sessions[0].stage, Stage::Releasing { .. }));
    lab.wait(Duration::from_secs(16));
    assert_eq!(paged(&lab), (0, 1));
    assert!(lab.context().is_some_and(|c| c.sessions.is_empty() && c.is_registered()));
}

/// Has the UPF lose the session and refuse to establish it again.
fn lose_session(lab: &mut Lab) {
    lab.upf_answers = false;
    let upf = lab.context().expect("a context").sessions[0].pfcp.upf;
    let seid = lab.context().expect("a context").sessions[0].pfcp.cp_seid;
    lab.event(Event::UpfLost { upf });
    lab.event(Event::PfcpTimeout { seid });
    lab.upf_answers = true;
}

#[test]
fn update_keeps_sessions_and_changes_guti() {
    let mut lab = idle();
    let (guti, allowed) = (lab.ue.guti(), lab.context().expect("a context").allowed);
    lab.ue_does(|ue, p, out| ue.register(p, ue::Registration::Periodic, out).expect("a request"));
    let context = lab.context().expect("a context");
    assert!(
        context.connection.is_none() && context.reachability.expires.is_some(),
        "released: the UE had nothing more to say"
    );
    assert_eq!((context.sessions.len(), context.sessions[0].ran), (1, RanState::Idle));
    assert_eq!(context.allowed, allowed);
    assert_ne!(lab.ue.guti(), guti);
    assert_eq!(context.reachability.area.len(), 2);

    lab.at = 1;
    lab.ue_does(|ue, p, out| ue.register(p, ue::Registration::Mobility, out).expect("a request"));
    let context = lab.context().expect("a context");
    assert_eq!(context.reachability.area.first().map(|tai| tai.tac), Some(Tac(2)), "the area it is in comes first");
    assert_eq!(
        (context.sessions.len(), context.sessions[0].ran),
        (1, RanState::Up),
        "with uplink data: its user plane"
    );
    assert!(context.connection.is_some_and(|c| c.assoc == AssocId(lab::ASSOC.0 + 1)));
}

#[test]
fn update_ends_sessions_unknown_to_ue() {
    let mut lab = idle();
    // The context has a session 2 that the UE has lost.
    lab.change(|context| {
        let mut lost = context.sessions[0].clone();
        (lost.psi, lost.index) = (2, 9);
        context.sessions.push(lost);
    });
    lab.ue_does(|ue, p, out| ue.register(p, ue::Registration::Periodic, out).expect("a request"));
    let live: Vec<_> =
        lab.context().expect("a context").sessions.iter().filter(|s| s.is_live()).map(|s| s.psi).collect();
    assert_eq!(live, [1]);
}

#[test]
fn rejected_page_answer_stops_paging() {
    let mut lab = idle();
    lab.congested = true;
    downlink_packet(&mut lab);
    lab.settle();
    assert_eq!(pages(&lab), 1);
    assert!(lab.events.iter().any(|e| matches!(e, UeEvent::ServiceRejected { cause: 22, .. })), "{:?}", lab.events);
    let context = lab.context().expect("a context");
    assert!(context.procedure.is_none() && context.pending == PendingWork::default() && context.connection.is_none());
    let last = pfcp::Message::new(lab.pfcp.last().expect("a message")).expect("a PFCP message");
    assert_eq!(last.get::<pfcp::SmReqFlags>(), Ok(Some(pfcp::SmReqFlags::DROBU)), "what waited is dropped");
}

/// MICO mode with an active time (TS 24.501 5.3.6): packets wait for the next request of the UE.
#[test]
fn packets_of_sleeping_ue_wait_for_request() {
    let mut lab = Lab::new();
    lab.register();
    lab.session(1);
    lab.change(|ue| ue.reachability.paging.power_saving = Some(PowerSaving { active_s: 10, periodic_s: None }));
    lab.idle();
    lab.wait(Duration::from_secs(11));
    downlink_packet(&mut lab);
    lab.settle();
    lab.wait(Duration::from_secs(60));
    assert_eq!((pages(&lab), paged(&lab)), (0, (0, 0)));
    lab.ue_does(|ue, _, out| ue.service_request(ue::Service::Signalling, out).expect("a request"));
    assert_eq!(lab.context().expect("a context").sessions[0].ran, RanState::Up);
}

/// TS 38.413 8.5.1, 8.14.1.
#[test]
fn page_of_5g_has_drx_cycle_and_capability() {
    use vireo_core::amf::n2::{self, UeMessage};
    use vireo_core::amf::procedures::paging::nr;
    use vireo_wire::ngap::*;
    let eutra = UERadioCapabilityForPagingOfEUTRA(vec![8; 9].into());
    let paging =
        UERadioCapabilityForPaging::new(Some(UERadioCapabilityForPagingOfNR(vec![7; 9].into())), Some(eutra), None);
    let report = build_ngap!(
        InitiatingMessage,
        UERadioCapabilityInfoIndication,
        UERadioCapabilityInfoIndication,
        AMF_UE_NGAP_ID(1u64),
        RAN_UE_NGAP_ID(2u32),
        UERadioCapability(vec![0xa5; 65_536]),
        UERadioCapabilityForPaging(paging.clone()),
        UERadioCapability_EUTRA_Format(vec![0xa4; 300]),
    );
    let report = report.and_then(|pdu| pdu.encode()).expect("it encodes");
    let Ok((_, UeMessage::RadioCapability { own, other })) = n2::ue_message(&report) else { panic!("{report:02x?}") };
    assert_eq!(own.whole, vec![0xa5; 65_536]);
    assert_eq!(other, RadioCapability { whole: vec![0xa4; 300], paging: vec![8; 9] });
    let tai = Tai { plmn: "99970".parse().expect("digits"), tac: Tac(7) };
    let guami = Guami { plmn: tai.plmn, region: 2, set: 1, pointer: 0 };
    for (coding, expected) in [(Dialect::Nr, Some(paging)), (Dialect::Eps, None)] {
        let drx = Some((Dialect::Nr, DrxCycle::Frames256));
        let info = PagingInfo { coding, capability: own.paging.clone(), drx, ..PagingInfo::default() };
        let reachability = Reachability { area: [tai].into_iter().collect(), paging: info, ..Reachability::default() };
        let page = nr::paging(guami, Tmsi(7), &reachability, nr::Page::default());
        let page = NGAP_PDU::decode(&page).expect("a PDU");
        assert_eq!(page.check().expect("it decodes"), vec![]);
        assert_eq!(page.ie::<ie::PagingDRX>().and_then(Result::ok), Some(PagingDRX::v256));
        let found = page.ie::<ie::UERadioCapabilityForPaging>().map(|ie| ie.expect("it decodes").into_owned());
        assert_eq!(found, expected);
    }
}

/// Returns the associations of the pages, and the priority of the last one.
fn paged_nodes(lab: &Lab) -> (Vec<u32>, Option<u8>) {
    use vireo_wire::ngap::{NGAP_PDU, NgapPduKind, ie};
    let (mut nodes, mut priority) = (Vec::new(), None);
    for effect in &lab.effects {
        let Effect::Ngap { assoc, pdu } = effect else { continue };
        let pdu = NGAP_PDU::decode_borrowed(pdu).expect("a PDU");
        if pdu.kind() == NgapPduKind::Initiating_Paging {
            assert_eq!(pdu.check().expect("it decodes"), vec![]);
            nodes.push(assoc.0 - lab::ASSOC.0);
            priority = pdu.ie::<ie::PagingPriority>().map(|ie| ie.expect("a priority") as u8 + 1);
        }
    }
    (nodes, priority)
}

/// The UE has moved to the other cell, and answers there (TS 23.501 5.4.3.1).
#[test]
fn last_node_pages_before_registration_area() {
    let mut lab = idle();
    assert_eq!(lab.context().and_then(|ue| ue.reachability.last_node), Some(lab::ASSOC));
    lab.at = 1;
    downlink_packet(&mut lab);
    lab.settle();
    assert_eq!(paged_nodes(&lab).0, [0]);
    lab.wait(Duration::from_millis(3100));
    assert_eq!(paged_nodes(&lab).0, [0, 0, 1]);
    assert_eq!(paged(&lab), (1, 0));
    assert!(lab.context().is_some_and(|ue| ue.reachability.last_node.is_none() && ue.connection.is_some()));
    lab.idle();
    downlink_packet(&mut lab);
    lab.settle();
    assert_eq!(paged_nodes(&lab).0, [0, 0, 1, 1], "the other one is the last now");
}

/// The whole area at once: by configuration, without a further page, and without the last node.
#[test]
fn area_is_paged_without_usable_last_node() {
    type Change = fn(&mut Lab);
    let cases: [Change; 3] = [
        |lab| lab.config.paging.last_node_first = false,
        |lab| lab.config.timers.retransmissions = 0,
        |lab| lab.change(|ue| ue.reachability.last_node = Some(AssocId(77))),
    ];
    for change in cases {
        let mut lab = Lab::new();
        lab.register();
        lab.session(1);
        change(&mut lab);
        lab.idle();
        change(&mut lab);
        downlink_packet(&mut lab);
        assert_eq!(paged_nodes(&lab).0, [0, 1]);
    }
}

/// TS 38.413 9.3.1.78: the priority level of the ARP, if the operator has given it a priority.
#[test]
fn page_has_priority_of_session() {
    for (levels, arp_priority, expected) in [(0, 1, None), (3, 3, Some(3)), (3, 4, None), (8, 8, Some(8))] {
        let mut lab = Lab::new();
        lab.config.paging.priority_levels = levels;
        lab.subscription.slices[0].dnns[0].arp_priority = arp_priority;
        lab.register();
        lab.session(1);
        lab.idle();
        downlink_packet(&mut lab);
        assert_eq!(paged_nodes(&lab), (vec![0], expected), "{levels} {arp_priority}");
    }
    // A page for signalling has none.
    let mut lab = Lab::new();
    lab.config.paging.priority_levels = 8;
    lab.register();
    lab.session(1);
    lab.idle();
    lab.event(Event::Deregister { reregister: false, cause: None });
    assert_eq!(paged_nodes(&lab), (vec![0], None));
}

/// Returns a network that grants extended DRX, and a registered UE at a gNB or ng-eNB. Messages are
/// not ciphered.
fn with_extended_drx(is_ng_enb: bool) -> Lab {
    let mut lab = Lab::new();
    lab.config.security.ciphering = vec![vireo_wire::security::CipheringAlgorithm::NEA0];
    lab.config.paging.power_saving.extended_drx = Some(Instant(0));
    if is_ng_enb {
        let plmn = lab.gnbs[0].config().tai.plmn;
        let id = RanNodeId::NgEnb(EnbId { plmn, kind: EnbKind::Macro, id: 1 });
        lab.nodes.0[0].1.as_mut().expect("a node").id = id;
    }
    lab.register();
    lab
}

/// TS 24.501 5.3.16: granted in E-UTRA and NR. The page waits for the window of the RAT, and has
/// its cycle and window.
#[test]
fn extended_drx_delays_page() {
    use vireo_core::amf::context::ExtendedDrx;
    use vireo_wire::ngap::*;
    for is_ng_enb in [true, false] {
        let mut lab = with_extended_drx(is_ng_enb);
        lab.session(1);
        let tmsi = lab.context().and_then(|ue| ue.identity.tmsi).expect("a 5G-TMSI");
        let guti = [&[0, 11, 0xf2, 0x99, 0xf9, 0x07, 2, 0, 0x40][..], &tmsi.0.to_be_bytes()].concat();
        // A cycle of 8 hyperframes, and a window of 5.12 s.
        let update = [&[0x7e, 0, 0x41, 0x0a][..], &guti, &[0x2e, 2, 0xf0, 0x70, 0x6e, 1, 0x35]].concat();
        let keys = lab.context().and_then(|ue| ue.security).expect("keys");
        lab.reachable = false;
        lab.inject(&lab::nas::protected(&keys, lab::nas::CIPHERED, &update));
        let granted = lab.context().and_then(|ue| ue.reachability.paging.extended_drx);
        let values = ExtendedDrx { cycle: 5, window: 3 };
        assert_eq!(granted, Some(if is_ng_enb { values } else { values.in_nr() }));
        let accept = lab.sent.iter().rev().find_map(|pdu| {
            let pdu = NGAP_PDU::decode_borrowed(pdu).expect("a PDU");
            Some(pdu.ie::<ie::NAS_PDU>()?.expect("octets").0[7..].to_vec())
        });
        let accept = accept.expect("an accept");
        assert!(accept.windows(3).any(|octets| octets == [0x6e, 1, 0x35]), "negotiated: {accept:02x?}");
        lab.event(Event::ConnectionLost { assoc: lab::ASSOC });
        // The window of NR is open first, and closed half a cycle later.
        lab.wait(Duration::from_secs(if is_ng_enb { 0 } else { 41 }));
        downlink_packet(&mut lab);
        assert!(paged_nodes(&lab).0.is_empty(), "the window is not open");
        lab.wait(Duration::from_secs(82));
        let pdus = lab.sent.iter().rev().map(|pdu| NGAP_PDU::decode_borrowed(pdu).expect("a PDU"));
        let mut pages = pdus.filter(|pdu| pdu.kind() == NgapPduKind::Initiating_Paging);
        let page = pages.next().expect("a page");
        let drx = page.ie::<ie::EUTRA_PagingeDRXInformation>().map(|ie| ie.expect("it decodes"));
        let values = drx.map(|drx| (drx.eutra_paging_edrx_cycle, drx.eutra_paging_time_window));
        let expected = (EUTRAPagingEDRXCycle::hf8, Some(EUTRAPagingTimeWindow::s4));
        assert_eq!(values, is_ng_enb.then_some(expected));
        let drx = page.ie::<ie::NR_PagingeDRXInformation>().map(|ie| ie.expect("it decodes"));
        let values = drx.map(|drx| (drx.nr_paging_edrx_cycle, drx.nr_paging_time_window));
        let expected = (NRPagingEDRXCycle::hf8, Some(NRPagingTimeWindow::s4));
        assert_eq!(values, (!is_ng_enb).then_some(expected));
    }
}

/// TS 24.008 10.5.5.32: a cycle of 32 hyperframes, and a window of 32.00 s in the second octet,
/// which an ng-eNB does not use.
#[test]
fn long_window_of_nr_is_granted() {
    use vireo_core::amf::context::ExtendedDrx;
    use vireo_wire::ngap::*;
    for is_ng_enb in [true, false] {
        let mut lab = with_extended_drx(is_ng_enb);
        let tmsi = lab.context().and_then(|ue| ue.identity.tmsi).expect("a 5G-TMSI");
        let guti = [&[0, 11, 0xf2, 0x99, 0xf9, 0x07, 2, 0, 0x40][..], &tmsi.0.to_be_bytes()].concat();
        let update = [&[0x7e, 0, 0x41, 0x0a][..], &guti, &[0x2e, 2, 0xf0, 0x70, 0x6e, 2, 0x37, 0x18]].concat();
        let keys = lab.context().and_then(|ue| ue.security).expect("keys");
        lab.reachable = false;
        lab.inject(&lab::nas::protected(&keys, lab::nas::CIPHERED, &update));
        let granted = lab.context().and_then(|ue| ue.reachability.paging.extended_drx).expect("extended DRX");
        let accept: &[u8] = if is_ng_enb { &[0x6e, 1, 0x37] } else { &[0x6e, 2, 0xf7, 0x18] };
        let nas = lab.sent.iter().rev().find_map(|pdu| {
            let pdu = NGAP_PDU::decode_borrowed(pdu).expect("a PDU");
            Some(pdu.ie::<ie::NAS_PDU>()?.expect("octets").0[7..].to_vec())
        });
        assert!(nas.expect("an accept").windows(accept.len()).any(|octets| octets == accept), "{granted:?}");
        assert_eq!(granted.window(), Duration::from_millis(if is_ng_enb { 5_120 } else { 32_000 }));
        assert_eq!(granted == ExtendedDrx { cycle: 7, window: 3 }, is_ng_enb);
    }
}

/// PAGING of pycrate, with a priority and extended DRX of E-UTRA or NR.
#[test]
fn page_equals_golden() {
    use vireo_core::amf::context::ExtendedDrx;
    use vireo_core::amf::procedures::paging::nr;
    let tai = Tai { plmn: "99970".parse().expect("digits"), tac: Tac(1) };
    let guami = Guami { plmn: tai.plmn, region: 2, set: 1, pointer: 3 };
    let drx = Some((Dialect::Nr, DrxCycle::Frames128));
    let extended_drx = Some(ExtendedDrx { cycle: 5, window: 3 });
    let paging = PagingInfo { drx, extended_drx, ..PagingInfo::default() };
    let reachability = Reachability { area: [tai].into_iter().collect(), paging, ..Reachability::default() };
    let page = |reachability: &Reachability, page| nr::paging(guami, Tmsi(0xdead_beef), reachability, page);
    let with_priority = nr::Page { priority: Some(3), ..nr::Page::default() };
    assert_eq!(page(&reachability, with_priority), crate::golden::nr("Paging-extended-drx"));
    let extended_drx = extended_drx.map(ExtendedDrx::in_nr);
    let with_drx =
        Reachability { paging: PagingInfo { drx, extended_drx, ..PagingInfo::default() }, ..reachability.clone() };
    assert_eq!(page(&with_drx, nr::Page::default()), crate::golden::nr("Paging-extended-drx-nr"));
    // The recommended cells of pycrate's UE CONTEXT RELEASE COMPLETE.
    let complete = crate::golden::nr("UEContextReleaseComplete-recommended");
    let message = vireo_core::amf::n2::ue_message(&complete).map(|(_, message)| message);
    let Ok(vireo_core::amf::n2::UeMessage::ReleaseComplete { recommended }) = message else { panic!("{message:?}") };
    let paging = PagingInfo { drx, ..PagingInfo::default() };
    let reachability = Reachability { paging, recommended, ..reachability };
    let recommended = nr::recommended(&reachability);
    let second = nr::Page { attempts: (2, 5), recommended: recommended.as_ref(), ..nr::Page::default() };
    assert_eq!(page(&reachability, second), crate::golden::nr("Paging-assistance"));
}

/// A UE is first paged by its last gNB and the recommended ones; each page has the recommended
/// cells. They are those of the last connection alone.
#[test]
fn recommended_nodes_and_cells_are_paged() {
    use vireo_wire::ngap::*;
    let mut lab = connected();
    let plmn = || PLMNIdentity([0x99, 0xf9, 0x07]);
    let global = helpers::global_gnb_id(plmn(), 2, 24).expect("a gNB ID");
    let target = AMFPagingTarget::globalRANNodeID(GlobalRANNodeID::globalGNB_ID(global));
    let cell = helpers::nr_cgi(plmn(), 2, 24, 7).expect("a cell");
    let cell = RecommendedCellItem::new(NGRANCGI::nR_CGI(cell), Some(9), None);
    let cells = RecommendedCellsForPaging::new(RecommendedCellList(vec![cell]), None);
    let nodes = RecommendedRANNodeList(vec![RecommendedRANNodeItem::new(target, None)]);
    let nodes = RecommendedRANNodesForPaging::new(nodes, None);
    let information = InfoOnRecommendedCellsAndRANNodesForPaging::new(cells, nodes, None);
    let connection = lab.context().and_then(|ue| ue.connection).expect("a connection");
    lab.slow = Some(NgapPduKind::Successful_UEContextRelease);
    let cause = Cause::radioNetwork(CauseRadioNetwork::user_inactivity);
    lab.gnb_does(|gnb, ran, out| gnb.request_release(ran, cause, out).expect("a request"));
    (lab.slow, lab.ran) = (None, None);
    lab.late.clear();
    let complete = build_ngap!(
        SuccessfulOutcome,
        UEContextRelease,
        UEContextReleaseComplete,
        AMF_UE_NGAP_ID(connection.amf_id.get()),
        RAN_UE_NGAP_ID(connection.ran_id.0),
        InfoOnRecommendedCellsAndRANNodesForPaging(information),
    );
    lab.take_from_gnb(0, &complete.and_then(|pdu| pdu.encode()).expect("it encodes"));
    lab.answers_paging = false;
    downlink_packet(&mut lab);
    lab.settle();
    assert_eq!(paged_nodes(&lab).0, [0, 1], "the last one, and the recommended one");
    let page = lab.sent.last().map(|pdu| NGAP_PDU::decode_borrowed(pdu).expect("a PDU")).expect("a page");
    let assistance = page.ie::<ie::AssistanceDataForPaging>().expect("an IE").expect("a value");
    let cells = assistance.assistance_data_for_recommended_cells.expect("cells").recommended_cells_for_paging;
    assert_eq!(cells.recommended_cell_list.0[0].time_stayed_in_cell, Some(9));
    let attempts = assistance.paging_attempt_information.expect("attempts");
    assert_eq!((attempts.paging_attempt_count.0, attempts.intended_number_of_paging_attempts.0), (1, 5));
    lab.ue_does(|ue, _, out| ue.service_request(ue::Service::Paged, out).expect("a request"));
    lab.idle();
    assert!(lab.context().is_some_and(|ue| ue.reachability.recommended.is_empty()));
}

fn updates(lab: &Lab) -> (usize, usize) {
    let count = |f: fn(&Note) -> bool| lab.notes.iter().filter(|n| f(n)).count();
    (
        count(|n| matches!(n, Note::Succeeded(Kind::ConfigurationUpdate, _))),
        count(|n| matches!(n, Note::Failed(Kind::ConfigurationUpdate, _))),
    )
}

/// TS 33.501 6.12.3.
#[test]
fn paged_ue_gets_another_5g_guti() {
    let mut lab = idle();
    let before = lab.ue.guti();
    downlink_packet(&mut lab);
    lab.settle();
    let context = lab.context().expect("a context");
    assert_eq!((context.procedure, context.identity.old_tmsi), (None, None));
    assert_eq!(context.identity.tmsi, lab.ue.guti().map(|guti| guti.tmsi));
    assert_ne!(lab.ue.guti(), before);
    assert_eq!(updates(&lab), (1, 0));
    // Neither a service request of its own nor a registration needs the procedure.
    lab.idle();
    lab.ue_does(|ue, _, out| ue.service_request(ue::Service::Signalling, out).expect("a request"));
    assert_eq!(updates(&lab), (1, 0));
}

#[test]
fn registration_needs_no_configuration_update() {
    let mut lab = idle();
    lab.answers_paging = false;
    downlink_packet(&mut lab);
    lab.settle();
    lab.ue_does(|ue, p, out| ue.register(p, ue::Registration::Mobility, out).expect("a request"));
    assert_eq!(updates(&lab), (0, 0));
    assert!(lab.context().is_some_and(|c| !c.pending.reallocate));
}

/// T3555 (TS 24.501 5.4.4.6 a).
#[test]
fn unanswered_configuration_update_repeats() {
    let mut lab = idle();
    lab.answers_paging = false;
    downlink_packet(&mut lab);
    lab.settle();
    let before = lab.context().and_then(|c| c.identity.tmsi);
    lab.slow = Some(vireo_wire::ngap::NgapPduKind::Initiating_UplinkNASTransport);
    lab.ue_does(|ue, _, out| ue.service_request(ue::Service::Paged, out).expect("a request"));
    assert!(matches!(lab.context().and_then(|c| c.procedure), Some(Procedure::ConfigurationUpdate(_))));
    lab.wait(Duration::from_millis(29_900));
    assert_eq!(lab.late.len(), 5, "the UE answers each command");
    assert_eq!(updates(&lab), (0, 0));
    lab.wait(Duration::from_millis(200));
    assert_eq!(updates(&lab), (0, 1));
    let context = lab.context().expect("a context");
    assert!(context.procedure.is_none() && context.connection.is_some());
    assert_eq!(context.identity.old_tmsi, before, "both are valid");
    // A late answer changes nothing; a message under the new 5G-GUTI confirms it.
    lab.slow = None;
    for (n, pdu) in std::mem::take(&mut lab.late) {
        lab.take_from_gnb(n, &pdu);
    }
    lab.settle();
    lab.idle();
    lab.ue_does(|ue, _, out| ue.service_request(ue::Service::Signalling, out).expect("a request"));
    assert_eq!(lab.context().and_then(|c| c.identity.old_tmsi), None);
}

/// The connection ends during the update: both 5G-GUTIs stay valid, and the UE is not paged for it.
#[test]
fn lost_connection_ends_configuration_update() {
    let mut lab = idle();
    lab.answers_paging = false;
    downlink_packet(&mut lab);
    lab.settle();
    lab.slow = Some(vireo_wire::ngap::NgapPduKind::Initiating_UplinkNASTransport);
    lab.ue_does(|ue, _, out| ue.service_request(ue::Service::Paged, out).expect("a request"));
    let pages_before = pages(&lab);
    lab.idle();
    assert_eq!((updates(&lab), pages(&lab)), ((0, 1), pages_before));
    let context = lab.context().expect("a context");
    assert!(context.procedure.is_none() && context.identity.old_tmsi.is_some() && !context.pending.is_due());
}
