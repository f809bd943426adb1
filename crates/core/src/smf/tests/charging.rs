use super::*;
use vireo_wire::pfcp::{Cause, Element, MessageType as Kind};

const QUOTA: u64 = 1_000_000;

fn counted() -> Bench {
    let mut bench = Bench::new();
    bench.config.slices[0].charging = Charging { every_s: 60, counted: true, quota: Some(QUOTA) };
    bench
}

fn active() -> Bench {
    let mut bench = counted();
    bench.create(REQUEST);
    bench.established();
    bench.ran_up(0x201);
    bench.modified();
    bench
}

/// Returns a message of the UPF with a report of so many octets.
fn message(kind: Kind, seid: Seid, uplink: u64, downlink: u64, trigger: pfcp::UsageReportTrigger) -> Vec<u8> {
    let volume = pfcp::VolumeMeasurement {
        total: Some(uplink + downlink),
        uplink: Some(uplink),
        downlink: Some(downlink),
        ..pfcp::VolumeMeasurement::default()
    };
    let report =
        pfcp::UsageReport { urr_id: pfcp::UrrId(1), trigger, volume: Some(volume), ..pfcp::UsageReport::default() };
    let mut octets = Vec::new();
    let mut message = pfcp::Builder::new(&mut octets, kind, Some(seid.0), 7);
    match kind {
        Kind::SESSION_REPORT_REQUEST => message.put(&pfcp::ReportType::USAR).put(&report),
        Kind::SESSION_MODIFICATION_RESPONSE => {
            message.put(&Cause::REQUEST_ACCEPTED).put(&pfcp::UsageReportInModification(report))
        }
        _ => message.put(&Cause::REQUEST_ACCEPTED).put(&pfcp::UsageReportInDeletion(report)),
    };
    message.finish().expect("a short message");
    octets
}

/// Returns the quota that the outputs grant, in a new or changed rule.
fn granted(out: &[Output]) -> Option<u64> {
    let quota = |octets: &Vec<u8>| {
        let message = pfcp::Message::new(octets).expect("a PFCP message");
        let create = message.get::<pfcp::CreateUrr>().expect("sound").and_then(|urr| urr.volume_quota);
        let update = message.get::<pfcp::UpdateUrr>().expect("sound").and_then(|urr| urr.volume_quota);
        create.or(update)?.total
    };
    out.iter().find_map(|o| if let Output::Pfcp { message, .. } = o { quota(message) } else { None })
}

#[test]
fn usage_reports_add_up() {
    let mut bench = counted();
    let out = bench.create(REQUEST);
    assert_eq!(granted(&out), Some(QUOTA));
    let [Output::Pfcp { message: octets, .. }] = &out[..] else { panic!("{out:?}") };
    let request = pfcp::SessionEstablishmentRequest::parse(&pfcp::Message::new(octets).expect("sound")).expect("sound");
    assert!(request.create_pdrs.iter().all(|pdr| pdr.urr_ids.iter().any(|id| id.0 == 1)), "both directions");
    assert_eq!(request.create_urrs[0].measurement_period, Some(pfcp::MeasurementPeriod(60)));
    bench.established();
    bench.ran_up(0x201);
    bench.modified();
    let report =
        message(Kind::SESSION_REPORT_REQUEST, bench.sm().pfcp.cp_seid, 300, 500, pfcp::UsageReportTrigger::PERIO);
    let out = bench.step(Input::Pfcp(&report));
    assert_eq!(out[0], Output::UsageReported { uplink: 300, downlink: 500 });
    assert_eq!(brief(&out[1..]), "report-response");
    assert_eq!((bench.sm().usage.uplink, bench.sm().usage.downlink), (300, 500));
    bench.step(Input::ReleaseLocally);
    let last = message(Kind::SESSION_DELETION_RESPONSE, bench.sm().pfcp.cp_seid, 1, 2, pfcp::UsageReportTrigger::TERMR);
    assert_eq!(bench.step(Input::Pfcp(&last))[0], Output::UsageReported { uplink: 1, downlink: 2 });
}

#[test]
fn slice_without_charging_requests_no_reports() {
    let mut bench = Bench::new();
    let out = bench.create(REQUEST);
    let [Output::Pfcp { message, .. }] = &out[..] else { panic!("{out:?}") };
    let request = pfcp::SessionEstablishmentRequest::parse(&pfcp::Message::new(message).expect("sound"));
    assert!(request.expect("sound").create_urrs.iter().next().is_none());
}

#[test]
fn remaining_quota_is_granted_and_no_more() {
    let mut bench = active();
    let spent = pfcp::UsageReportTrigger::VOLQU;
    let report = message(Kind::SESSION_REPORT_REQUEST, bench.sm().pfcp.cp_seid, 100_000, 500_000, spent);
    let out = bench.step(Input::Pfcp(&report));
    assert_eq!(granted(&out), Some(QUOTA - 600_000), "another UPF may have had a part");
    assert_eq!(bench.modified(), [], "nothing of the session has changed");
    let report = message(Kind::SESSION_REPORT_REQUEST, bench.sm().pfcp.cp_seid, 400_000, 0, spent);
    assert_eq!(granted(&bench.step(Input::Pfcp(&report))), None, "nothing is left");
}

#[test]
fn relocated_session_divides_remaining_quota() {
    let mut bench = active();
    let there = "127.0.0.6:8805".parse().expect("an address");
    let seid = seid(Ltmsi::new(Bucket::new(7), 1234), 3, 0x222);
    let out = bench.step(Input::Relocate(there, seid));
    assert_eq!((brief(&out), granted(&out)), ("modification-request".into(), None), "first it is asked");
    let trigger = pfcp::UsageReportTrigger::IMMER;
    let source = bench.sm().pfcp.cp_seid;
    let answer = message(Kind::SESSION_MODIFICATION_RESPONSE, source, 100_000, 100_000, trigger);
    let out = bench.step(Input::Pfcp(&answer));
    let kept = granted(&out).expect("a part");
    assert_eq!(kept, (QUOTA - 200_000) / 2);
    let answer = message(Kind::SESSION_MODIFICATION_RESPONSE, source, 1_000, 0, trigger);
    let out = bench.step(Input::Pfcp(&answer));
    assert_eq!(brief(&out[1..]), "establishment-request");
    assert_eq!(granted(&out), Some(QUOTA - 201_000 - kept));
    // The target uses up its part before the source has released its own: it waits for the rest of
    // the source.
    let mut octets = Vec::new();
    let mut up = pfcp::Builder::new(&mut octets, Kind::SESSION_ESTABLISHMENT_RESPONSE, Some(seid.0), 1);
    up.put(&Cause::REQUEST_ACCEPTED).put(&pfcp::FSeid::new(9, Ipv4Addr::LOCALHOST.into()));
    up.group(pfcp::CreatedPdr::ID, |pdr| {
        pdr.put(&pfcp::PdrId(1)).put(&pfcp::FTeid::new(Teid(9), Ipv4Addr::LOCALHOST.into()));
    });
    up.finish().expect("a short message");
    bench.step(Input::PfcpFromTarget(&octets));
    let ended = message(Kind::SESSION_MODIFICATION_RESPONSE, source, 0, 0, trigger);
    bench.step(Input::PfcpFromTarget(&ended));
    bench.modified();
    let spent = pfcp::UsageReportTrigger::VOLQU;
    let target = QUOTA - 201_000 - kept;
    let report = message(Kind::SESSION_REPORT_REQUEST, seid, target, 0, spent);
    assert_eq!(granted(&bench.step(Input::Pfcp(&report))), None);
    bench.step(Input::N2(N2Sm::ModifyResponse, &[]));
    bench.wait(Duration::from_secs(1));
    bench.step(Input::Deadline);
    let last = message(Kind::SESSION_DELETION_RESPONSE, source, 5_000, 0, pfcp::UsageReportTrigger::TERMR);
    let out = bench.step(Input::PfcpFromTarget(&last));
    assert_eq!(granted(&out), Some(kept - 5_000));
    assert_eq!(bench.sm().usage.uplink + bench.sm().usage.downlink, QUOTA - kept + 5_000);
}
