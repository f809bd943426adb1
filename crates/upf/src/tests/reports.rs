use super::*;

pub(crate) fn the_report(out: &Outgoing) -> (u32, SessionReportRequest) {
    the_report_of(out, CP_SEID)
}

pub(crate) fn the_report_of(out: &Outgoing, cp_seid: u64) -> (u32, SessionReportRequest) {
    assert_eq!((out.len(), out[0].0), (1, Bench::smf()), "one report, to the control plane's port");
    let message = Message::new(&out[0].1).expect("sound");
    assert_eq!(message.seid(), cp_seid);
    (message.sequence(), SessionReportRequest::parse(&message).expect("a report"))
}

pub(crate) fn answer(b: &mut Bench, sequence: u32, change: impl FnOnce(&mut SessionReportResponse)) {
    let mut response = SessionReportResponse::new(Cause::REQUEST_ACCEPTED);
    change(&mut response);
    let mut octets = vec![];
    response.emit(&mut octets, 1, sequence).expect("short");
    assert_eq!(b.deliver(&octets), vec![]);
}

#[test]
fn packet_for_idle_ue_waits_and_reports_once() {
    let mut b = bench();
    let (seid, _) = b.session();
    let packets = [ipv4(SERVER, UE, 40), ipv4(SERVER, UE, 41)];
    packets.iter().for_each(|packet| b.plane.receive_n6(packet, b.now.instant));
    let out = b.events();
    let (sequence, report) = the_report(&out);
    assert_eq!(report.report_type, ReportType::DLDR);
    let data = report.downlink_data.expect("there");
    let flow = DownlinkDataServiceInformation { qfi: Some(1), paging_policy: None };
    assert_eq!((&data.pdr_ids[..], &data.service_information[..]), (&[PdrId(2)][..], &[flow][..]));
    answer(&mut b, sequence, |_| {});
    assert_eq!(b.upf.deadline().map(|_| ()), Some(()), "the deadline passes without effect");
    let mut again = vec![];
    b.advance(4);
    b.upf.tick(b.now, &mut again);
    assert_eq!(again, vec![], "it was answered");

    b.modify(seid, &forward(RAN_TEID));
    let released: Vec<_> = b.tunnelled().into_iter().map(|(_, packet)| packet).collect();
    assert_eq!(released, packets);
    b.modify(seid, &buffer());
    b.plane.receive_n6(&packets[0], b.now.instant);
    assert_eq!(the_report(&b.events()).1.report_type, ReportType::DLDR);
}

/// The packet was forwarded before its event was handled. A report would page a UE that has become
/// idle since.
#[test]
fn forwarded_packet_is_not_reported() {
    let mut b = bench();
    let (seid, _) = b.session();
    for changes in [vec![forward(RAN_TEID)], vec![forward(RAN_TEID), buffer()]] {
        b.modify(seid, &buffer());
        b.plane.receive_n6(&ipv4(SERVER, UE, 40), b.now.instant);
        for change in &changes {
            b.modify(seid, change);
        }
        assert_eq!(b.events(), vec![]);
    }
    b.plane.receive_n6(&ipv4(SERVER, UE, 41), b.now.instant);
    assert_eq!(the_report(&b.events()).1.report_type, ReportType::DLDR);
}

#[test]
fn report_is_repeated_until_it_expires() {
    let mut b = bench();
    b.session();
    b.plane.receive_n6(&ipv4(SERVER, UE, 40), b.now.instant);
    let first = b.events();
    let mut sent = 1;
    for _ in 0..5 {
        b.advance(3);
        let mut out = vec![];
        b.upf.tick(b.now, &mut out);
        if !out.is_empty() {
            assert_eq!(out, first, "the very same octets");
            sent += 1;
        }
    }
    assert_eq!((sent, b.upf.stats.unanswered), (3, 1));
}

#[test]
fn report_response_drops_packets_or_session() {
    let mut b = bench();
    let (seid, _) = b.session();
    b.plane.receive_n6(&ipv4(SERVER, UE, 40), b.now.instant);
    let (sequence, _) = the_report(&b.events());
    assert!(b.plane.tables.buffered_octets() > 0);
    answer(&mut b, sequence, |response| response.flags = Some(SrRspFlags::DROBU));
    assert_eq!(b.plane.tables.buffered_octets(), 0);

    b.modify(seid, &buffer());
    b.plane.receive_n6(&ipv4(SERVER, UE, 40), b.now.instant);
    let (sequence, _) = the_report(&b.events());
    answer(&mut b, sequence, |response| response.cause = Cause::SESSION_CONTEXT_NOT_FOUND);
    assert!(b.upf.sessions() == 0 && b.plane.tables.is_empty());
}

#[test]
fn error_indication_of_ran_is_reported() {
    let mut b = bench();
    let (seid, _) = b.session();
    b.modify(seid, &forward(RAN_TEID));
    let mut buffer = [0; gtpu::SIGNALLING_OCTETS];
    let indication = gtpu::error_indication_message(&mut buffer, 0, RAN_TEID, GNB.into()).expect("room").to_vec();
    b.plane.receive_n3((GNB, 2152).into(), &indication, b.now.instant);
    let (_, report) = the_report(&b.events());
    assert_eq!(report.report_type, ReportType::ERIR);
    let remote = report.error_indication.expect("there").remote_f_teids[0];
    assert_eq!((remote.teid(), remote.address()), (Some(RAN_TEID), Some(GNB.into())));
}

pub(crate) fn counted(b: &mut Bench, urr: CreateUrr) -> (u64, Teid) {
    b.associate();
    let mut request = request();
    request.create_pdrs.iter_mut().for_each(|pdr| pdr.urr_ids.push(urr.urr_id));
    request.create_urrs.push(urr);
    let (seid, teid) = established(&b.establish(&request));
    b.modify(seid, &forward(RAN_TEID));
    (seid, teid)
}

pub(crate) fn volume(report: &UsageReport) -> (Option<u64>, Option<u64>, Option<u64>) {
    let volume = report.volume.expect("a volume");
    (volume.total, volume.uplink, volume.downlink)
}

#[test]
fn usage_is_told_on_demand_and_at_the_end() {
    let mut b = bench();
    let urr = CreateUrr {
        urr_id: UrrId(3),
        measurement_method: MeasurementMethod::VOLUM | MeasurementMethod::DURAT,
        measurement_information: Some(MeasurementInformation::MNOP),
        ..CreateUrr::default()
    };
    let (seid, teid) = counted(&mut b, urr);
    b.uplink(teid, &ipv4(UE, SERVER, 100));
    b.plane.receive_n6(&ipv4(SERVER, UE, 60), b.now.instant);
    b.plane.receive_n6(&ipv4(SERVER, UE, 60), b.now.instant);
    b.advance(10);
    let mut query = SessionModificationRequest::default();
    query.query_urrs.push(QueryUrr { urr_id: UrrId(3) });
    let reports = b.modify(seid, &query).usage_reports;
    let report = &reports[0].0;
    assert_eq!((report.urr_id, report.ur_seqn, report.trigger), (UrrId(3), UrSeqn(0), UsageReportTrigger::IMMER));
    assert_eq!(volume(report), (Some(220), Some(100), Some(120)));
    let packets = report.volume.expect("there");
    assert_eq!((packets.uplink_packets, packets.downlink_packets), (Some(1), Some(2)));
    assert_eq!(report.duration, Some(DurationMeasurement(10)));

    // a replaced tunnel does not change the measurement
    b.uplink(teid, &ipv4(UE, SERVER, 100));
    let mut change = SessionModificationRequest::default();
    let mut pdr = uplink_pdr(7, CHOOSE);
    pdr.urr_ids.push(UrrId(3));
    change.create_pdrs.push(pdr);
    change.remove_pdrs.push(RemovePdr { pdr_id: PdrId(1) });
    let response = b.modify(seid, &change);
    let teid = response.created_pdrs[0].f_teid.and_then(|f_teid| f_teid.teid()).expect("chosen");
    b.uplink(teid, &ipv4(UE, SERVER, 50));
    let reports = b.delete(seid).usage_reports;
    let report = &reports[0].0;
    assert_eq!((report.ur_seqn, report.trigger), (UrSeqn(1), UsageReportTrigger::TERMR));
    assert_eq!(volume(report), (Some(150), Some(150), Some(0)));
}

#[test]
fn usage_is_reported_at_threshold_or_period() {
    let mut b = bench();
    let urr = CreateUrr {
        urr_id: UrrId(3),
        measurement_method: MeasurementMethod::VOLUM,
        reporting_triggers: ReportingTriggers::VOLTH | ReportingTriggers::PERIO,
        volume_threshold: Some(VolumeThreshold { total: Some(1_000), ..VolumeThreshold::default() }),
        measurement_period: Some(MeasurementPeriod(60)),
        ..CreateUrr::default()
    };
    let (_, teid) = counted(&mut b, urr);
    let look = |b: &mut Bench| {
        let mut out = b.events();
        b.upf.report_usage(b.now, &mut b.plane, &mut out);
        out
    };
    b.uplink(teid, &ipv4(UE, SERVER, 999));
    assert_eq!(look(&mut b), vec![]);
    b.uplink(teid, &ipv4(UE, SERVER, 30));
    let (_, report) = the_report(&look(&mut b));
    assert_eq!((report.report_type, report.usage_reports[0].trigger), (ReportType::USAR, UsageReportTrigger::VOLTH));
    assert_eq!(volume(&report.usage_reports[0]).0, Some(1_029));
    assert_eq!(look(&mut b), vec![]);
    b.advance(60);
    let (_, report) = the_report(&look(&mut b));
    assert_eq!(
        (report.usage_reports[0].trigger, volume(&report.usage_reports[0]).0),
        (UsageReportTrigger::PERIO, Some(0))
    );
}

#[test]
fn silent_gtpu_peer_is_reported() {
    let mut b = bench();
    let (seid, _) = b.session();
    b.modify(seid, &forward(RAN_TEID));
    let second = |b: &mut Bench| {
        let mut out = vec![];
        b.upf.check_paths(b.now, &mut b.plane, &mut out);
        b.advance(1);
        out
    };
    assert_eq!(second(&mut b), vec![]);
    let request = Packet::parse(&b.plane.n3[0].1).expect("sound");
    assert_eq!((b.plane.n3.len(), request.kind), (1, gtpu::MessageType::EchoRequest));
    let mut buffer = [0; gtpu::SIGNALLING_OCTETS];
    let response = gtpu::echo_response(&mut buffer, request.sequence.expect("there")).expect("room").to_vec();
    b.plane.receive_n3((GNB, 2152).into(), &response, b.now.instant);
    assert_eq!(b.events(), vec![], "nothing new");
    let node_report = |out: &Outgoing| {
        assert_eq!((out.len(), out[0].0), (1, Bench::smf()));
        let message = Message::new(&out[0].1).expect("sound");
        (message.sequence(), NodeReportRequest::parse(&message).expect("a node report"))
    };
    let reports: Vec<_> = (0..75).map(|_| second(&mut b)).filter(|out| !out.is_empty()).collect();
    assert_eq!(reports.len(), 1, "once");
    let (sequence, report) = node_report(&reports[0]);
    let peers = report.path_failure.expect("there").remote_peers;
    assert_eq!((report.report_type, &peers[..]), (NodeReportType::UPFR, &[RemoteGtpuPeer(GNB.into())][..]));
    let taken = NodeReportResponse { node_id: node(), cause: Cause::REQUEST_ACCEPTED, offending_ie: None };
    let mut octets = vec![];
    taken.emit(&mut octets, sequence).expect("short");
    assert_eq!(b.deliver(&octets), vec![]);
    let mut again = vec![];
    b.advance(9);
    b.upf.tick(b.now, &mut again);
    assert_eq!((again, b.upf.stats.unanswered), (vec![], 0), "it was answered");
    b.plane.receive_n3((GNB, 2152).into(), &response, b.now.instant);
    let (_, report) = node_report(&b.events());
    assert_eq!((report.report_type, report.path_recovery.is_some()), (NodeReportType::UPRR, true));
    // a peer of no session receives no Echo Request
    b.delete(seid);
    b.plane.n3.clear();
    b.advance(200);
    assert_eq!((second(&mut b), b.plane.n3.len()), (vec![], 0));
}
