//! Actions by time and volume: quotas, thresholds, timers and buffering.

use super::reports::{answer, counted, the_report, volume};
use super::*;
use vireo_datapath::DropReason;

fn urr(triggers: ReportingTriggers) -> CreateUrr {
    CreateUrr {
        urr_id: UrrId(3),
        measurement_method: MeasurementMethod::VOLUM,
        reporting_triggers: triggers,
        ..CreateUrr::default()
    }
}

fn usage(b: &mut Bench) -> Vec<UsageReport> {
    let mut out = b.events();
    b.upf.report_usage(b.now, &mut b.plane, &mut out);
    if out.is_empty() { vec![] } else { the_report(&out).1.usage_reports }
}

/// Returns the triggers of the only report.
fn trigger(b: &mut Bench) -> Option<UsageReportTrigger> {
    let reports = usage(b);
    assert!(reports.len() <= 1, "{reports:?}");
    reports.first().map(|report| report.trigger)
}

fn total(octets: u64) -> VolumeQuota {
    VolumeQuota { total: Some(octets), ..VolumeQuota::default() }
}

fn grant(octets: u64) -> SessionModificationRequest {
    let mut request = SessionModificationRequest::default();
    let volume_quota = Some(total(octets));
    request.update_urrs.push(UpdateUrr { urr_id: UrrId(3), volume_quota, ..UpdateUrr::default() });
    request
}

#[test]
fn volume_quota_stops_packets_until_next_grant() {
    let mut b = bench();
    let quota = CreateUrr { volume_quota: Some(total(300)), ..urr(ReportingTriggers::VOLQU) };
    let (seid, teid) = counted(&mut b, quota);
    (0..5).for_each(|_| b.uplink(teid, &ipv4(UE, SERVER, 100)));
    assert_eq!((b.plane.n6.len(), b.plane.stats.dropped(DropReason::QuotaSpent)), (3, 2), "to the packet");
    let reports = usage(&mut b);
    assert_eq!((reports[0].trigger, volume(&reports[0]).0), (UsageReportTrigger::VOLQU, Some(300)));
    b.plane.receive_n6(&ipv4(SERVER, UE, 100), b.now.instant);
    assert_eq!((b.tunnelled(), usage(&mut b)), (vec![], vec![]), "told once");
    // a query before the quota is exhausted does not consume it
    assert_eq!(b.modify(seid, &grant(250)).cause, Cause::REQUEST_ACCEPTED);
    b.uplink(teid, &ipv4(UE, SERVER, 100));
    let mut query = SessionModificationRequest::default();
    query.query_urrs.push(QueryUrr { urr_id: UrrId(3) });
    assert_eq!(volume(&b.modify(seid, &query).usage_reports[0].0).0, Some(100));
    (0..5).for_each(|_| b.uplink(teid, &ipv4(UE, SERVER, 100)));
    assert_eq!(b.plane.n6.len(), 3 + 3);
    assert_eq!(volume(&usage(&mut b)[0]).0, Some(200));
    assert_eq!(volume(&b.delete(seid).usage_reports[0].0).0, Some(0));
}

#[test]
fn far_of_quota_decides_on_packets_beyond_it() {
    let mut b = bench();
    b.associate();
    let mut request = request();
    request.create_pdrs.iter_mut().for_each(|pdr| pdr.urr_ids.push(UrrId(3)));
    let redirect = FarId(9);
    request.create_fars.push(CreateFar {
        far_id: redirect,
        apply_action: ApplyAction::FORW,
        forwarding_parameters: Some(ForwardingParameters {
            destination_interface: DestinationInterface::CORE,
            outer_header_creation: Some(OuterHeaderCreation::gtpu(Teid(0x9), SMF.into())),
            ..ForwardingParameters::default()
        }),
        bar_id: None,
    });
    let quota = Some(total(100));
    let far = Some(redirect);
    request.create_urrs.push(CreateUrr {
        volume_quota: quota,
        far_id_for_quota_action: far,
        ..urr(ReportingTriggers::VOLQU)
    });
    let (_, teid) = established(&b.establish(&request));
    b.uplink(teid, &ipv4(UE, SERVER, 100));
    assert_eq!(trigger(&mut b), Some(UsageReportTrigger::VOLQU));
    b.uplink(teid, &ipv4(UE, SERVER, 100));
    assert_eq!((b.plane.n6.len(), b.plane.n3.len(), b.plane.n3[0].0.ip()), (1, 1, SMF.into()));
}

#[test]
fn time_quota_closes_session() {
    let mut b = bench();
    let quota = CreateUrr { time_quota: Some(TimeQuota(30)), ..urr(ReportingTriggers::TIMQU) };
    let (seid, teid) = counted(&mut b, quota);
    b.advance(29);
    assert_eq!(trigger(&mut b), None);
    b.uplink(teid, &ipv4(UE, SERVER, 100));
    b.advance(1);
    assert_eq!(trigger(&mut b), Some(UsageReportTrigger::TIMQU));
    b.uplink(teid, &ipv4(UE, SERVER, 100));
    assert_eq!((b.plane.n6.len(), b.plane.stats.dropped(DropReason::GateClosed)), (1, 1));
    let mut more = SessionModificationRequest::default();
    let time_quota = Some(TimeQuota(30));
    more.update_urrs.push(UpdateUrr { urr_id: UrrId(3), time_quota, ..UpdateUrr::default() });
    b.modify(seid, &more);
    b.uplink(teid, &ipv4(UE, SERVER, 100));
    assert_eq!((b.plane.n6.len(), trigger(&mut b)), (2, None));
}

#[test]
fn quota_ends_with_its_validity_time() {
    let mut b = bench();
    let validity = Some(QuotaValidityTime(30));
    let volume_quota = Some(total(10_000));
    let quota = CreateUrr { volume_quota, quota_validity_time: validity, ..urr(ReportingTriggers::QUVTI) };
    let (seid, teid) = counted(&mut b, quota);
    b.uplink(teid, &ipv4(UE, SERVER, 100));
    b.advance(29);
    assert_eq!(trigger(&mut b), None);
    b.advance(1);
    assert_eq!(trigger(&mut b), Some(UsageReportTrigger::QUVTI));
    b.uplink(teid, &ipv4(UE, SERVER, 100));
    assert_eq!((b.plane.n6.len(), b.plane.stats.dropped(DropReason::GateClosed)), (1, 1));
    assert_eq!(b.modify(seid, &grant(10_000)).cause, Cause::REQUEST_ACCEPTED);
    b.uplink(teid, &ipv4(UE, SERVER, 100));
    assert_eq!((b.plane.n6.len(), trigger(&mut b)), (2, None));
}

#[test]
fn times_are_told_when_they_are_reached() {
    let mut b = bench();
    let start_and_stop = ReportingTriggers::START | ReportingTriggers::STOPT | ReportingTriggers::TIMTH;
    let timers = CreateUrr {
        time_threshold: Some(TimeThreshold(100)),
        inactivity_detection_time: Some(InactivityDetectionTime(10)),
        ..urr(start_and_stop)
    };
    let (_, teid) = counted(&mut b, timers);
    assert_eq!(trigger(&mut b), None);
    b.uplink(teid, &ipv4(UE, SERVER, 100));
    let reports = usage(&mut b);
    assert_eq!((reports[0].trigger, volume(&reports[0]).0), (UsageReportTrigger::START, Some(100)));
    assert_eq!(reports[0].time_of_first_packet, Some(TimeOfFirstPacket(b.now.ntp)));
    b.advance(9);
    assert_eq!(trigger(&mut b), None);
    b.advance(1);
    assert_eq!(trigger(&mut b), Some(UsageReportTrigger::STOPT));
    b.advance(5);
    assert_eq!(trigger(&mut b), None, "it has stopped already");
    b.uplink(teid, &ipv4(UE, SERVER, 100));
    assert_eq!(trigger(&mut b), Some(UsageReportTrigger::START));
    b.advance(1);
    b.uplink(teid, &ipv4(UE, SERVER, 100));
    assert_eq!(trigger(&mut b), None);
    b.advance(100);
    assert_eq!(trigger(&mut b), Some(UsageReportTrigger::TIMTH | UsageReportTrigger::STOPT));
}

#[test]
fn linked_urr_reports_with_the_other() {
    let mut b = bench();
    b.associate();
    let mut request = request();
    request.create_pdrs.iter_mut().for_each(|pdr| pdr.urr_ids.extend([UrrId(3), UrrId(4)]));
    let threshold = Some(VolumeThreshold { uplink: Some(150), ..VolumeThreshold::default() });
    request.create_urrs.push(CreateUrr { volume_threshold: threshold, ..urr(ReportingTriggers::VOLTH) });
    let linked = CreateUrr { urr_id: UrrId(4), ..urr(ReportingTriggers::LIUSA) };
    let linked = CreateUrr { linked_urr_ids: std::iter::once(LinkedUrrId(3)).collect(), ..linked };
    request.create_urrs.push(linked);
    let (_, teid) = established(&b.establish(&request));
    (0..2).for_each(|_| b.uplink(teid, &ipv4(UE, SERVER, 100)));
    let reports: Vec<_> = usage(&mut b).iter().map(|report| (report.urr_id.0, report.trigger)).collect();
    assert_eq!(reports, [(3, UsageReportTrigger::VOLTH), (4, UsageReportTrigger::LIUSA)]);
}

#[test]
fn urr_without_usable_trigger_is_refused() {
    let mut b = bench();
    b.associate();
    let mut refused = |change: &dyn Fn(&mut CreateUrr)| {
        let mut request = request();
        let mut urr = urr(ReportingTriggers::default());
        change(&mut urr);
        request.create_urrs.push(urr);
        let response = b.establish(&request);
        (response.cause, response.offending_ie.map(|ie| ie.0), response.failed_rule_id)
    };
    let missing = |ie| (Cause::CONDITIONAL_IE_MISSING, Some(ie), None);
    let failed = (Cause::RULE_FAILURE, None, Some(FailedRuleId::Urr(3)));
    assert_eq!(refused(&|urr| urr.reporting_triggers = ReportingTriggers::VOLTH), missing(VolumeThreshold::ID));
    assert_eq!(refused(&|urr| urr.reporting_triggers = ReportingTriggers::VOLQU), missing(VolumeQuota::ID));
    assert_eq!(refused(&|urr| urr.reporting_triggers = ReportingTriggers::STOPT), missing(InactivityDetectionTime::ID));
    assert_eq!(refused(&|urr| urr.reporting_triggers = ReportingTriggers::DROTH), failed);
    assert_eq!(refused(&|urr| urr.measurement_method = MeasurementMethod::EVENT), failed);
    let unsupported = (Cause::SERVICE_NOT_SUPPORTED, Some(MonitoringTime::ID), None);
    assert_eq!(refused(&|urr| urr.monitoring_time = Some(MonitoringTime(1))), unsupported);
}

#[test]
fn bar_limits_buffer_and_delays_report() {
    let mut b = bench();
    b.associate();
    let mut request = request();
    request.create_fars[1].bar_id = Some(BarId(1));
    request.create_bars.push(CreateBar {
        bar_id: BarId(1),
        downlink_data_notification_delay: Some(DownlinkDataNotificationDelay(40)),
        suggested_buffering_packets_count: Some(SuggestedBufferingPacketsCount(2)),
    });
    let (seid, _) = established(&b.establish(&request));
    (0..3).for_each(|_| b.plane.receive_n6(&ipv4(SERVER, UE, 60), b.now.instant));
    assert_eq!((b.plane.stats.buffered, b.plane.stats.dropped(DropReason::BufferFull)), (2, 1));
    assert_eq!(b.events(), vec![], "not yet");
    let tick = |b: &mut Bench| {
        let mut out = vec![];
        b.upf.tick(b.now, &mut out);
        out
    };
    b.advance(1);
    assert_eq!(tick(&mut b), vec![]);
    b.advance(1);
    let (sequence, report) = the_report(&tick(&mut b));
    assert_eq!(report.report_type, ReportType::DLDR);
    // the response changes the BAR
    answer(&mut b, sequence, |response| {
        response.update_bar = Some(UpdateBarInReport {
            bar_id: BarId(1),
            dl_buffering_suggested_packet_count: Some(DlBufferingSuggestedPacketCount(3)),
            ..UpdateBarInReport::default()
        });
    });
    (0..2).for_each(|_| b.plane.receive_n6(&ipv4(SERVER, UE, 60), b.now.instant));
    assert_eq!(b.plane.stats.buffered, 3);
    // a UE that returns before the delay has passed is not paged
    b.modify(seid, &buffer());
    b.plane.receive_n6(&ipv4(SERVER, UE, 60), b.now.instant);
    assert_eq!(b.events(), vec![]);
    b.modify(seid, &forward(RAN_TEID));
    b.advance(3);
    assert_eq!((tick(&mut b), b.upf.deadline()), (vec![], None));
}

#[test]
fn inactive_session_is_reported_once() {
    let mut b = bench();
    b.associate();
    let mut request = request();
    request.user_plane_inactivity_timer = Some(UserPlaneInactivityTimer(20));
    let (seid, teid) = established(&b.establish(&request));
    let inactive = |b: &mut Bench| {
        let mut out = vec![];
        b.upf.report_usage(b.now, &mut b.plane, &mut out);
        !out.is_empty() && the_report(&out).1.report_type == ReportType::UPIR
    };
    b.advance(15);
    b.uplink(teid, &ipv4(UE, SERVER, 60));
    assert!(!inactive(&mut b));
    b.advance(19);
    assert!(!inactive(&mut b));
    b.advance(1);
    assert!(inactive(&mut b));
    b.advance(60);
    assert!(!inactive(&mut b), "told once");
    b.uplink(teid, &ipv4(UE, SERVER, 60));
    b.advance(2);
    assert!(!inactive(&mut b), "it is looked every eighth of the time");
    b.advance(20);
    assert!(inactive(&mut b));
    let user_plane_inactivity_timer = Some(UserPlaneInactivityTimer(0));
    let change = SessionModificationRequest { user_plane_inactivity_timer, ..SessionModificationRequest::default() };
    b.modify(seid, &change);
    b.uplink(teid, &ipv4(UE, SERVER, 60));
    b.advance(100);
    assert!(!inactive(&mut b));
}
