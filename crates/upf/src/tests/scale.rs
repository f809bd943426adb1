//! Cost of sessions: number of timer checks, memory, and time.

use super::*;
use std::time::Instant as Watch;

/// A session with all common features, including thresholds and a period.
fn usual(n: u32) -> SessionEstablishmentRequest {
    let mut request = request();
    request.cp_f_seid.seid = u64::from(n) + 1;
    let ue = Ipv4Addr::from_bits(Ipv4Addr::new(10, 0, 0, 2).to_bits() + n);
    request.create_pdrs[1] = downlink_pdr(2, Some(ue), None);
    request.create_pdrs.iter_mut().for_each(|pdr| pdr.urr_ids.push(UrrId(1)));
    request.create_urrs.push(CreateUrr {
        urr_id: UrrId(1),
        measurement_method: MeasurementMethod::VOLUM,
        reporting_triggers: ReportingTriggers::VOLTH | ReportingTriggers::PERIO,
        volume_threshold: Some(VolumeThreshold { total: Some(1 << 30), ..VolumeThreshold::default() }),
        measurement_period: Some(MeasurementPeriod(3600)),
        ..CreateUrr::default()
    });
    request
}

fn roomy(sessions: usize) -> Bench {
    let mut b = bench();
    let pool = Pool { ipv4: Some((Ipv4Addr::new(10, 0, 0, 0), 8)), mtu: 1400, ..Pool::default() };
    let limits = Limits { records: sessions, ..Limits::default() };
    let settings = Settings { max_sessions: sessions, ..b.upf.settings.clone() };
    b.upf = Upf::new(settings);
    b.plane = plane(pool, limits);
    b.associate();
    b
}

/// Sends a request, and checks only that there is one response.
fn send(b: &mut Bench, octets: &[u8], out: &mut Outgoing) {
    out.clear();
    b.upf.receive(b.from, octets, b.now, &mut b.plane, out);
    assert_eq!(out.len(), 1);
}

#[test]
fn datapath_reports_threshold_at_its_packet() {
    let mut b = roomy(8);
    let (_, teid) = established(&b.establish(&usual(0)));
    let packet = ipv4(Ipv4Addr::new(10, 0, 0, 2), SERVER, 1_400);
    let mut timers = 0;
    let mut sent = 0_u64;
    loop {
        b.uplink(teid, &packet);
        sent += 1_400;
        b.plane.n6.clear();
        timers += b.plane.events.len();
        if !b.events().is_empty() {
            break;
        }
    }
    assert_eq!(sent, (1_u64 << 30).next_multiple_of(1_400), "with the packet that reaches it");
    assert!(timers < 100, "{timers} timers for 767,000 packets");
}

#[test]
fn reports_without_room_are_sent_later() {
    let mut b = roomy(8);
    established(&b.establish(&usual(0)));
    b.advance(3600);
    let mut out = vec![];
    let mut fill = vec![];
    while b.upf.fill_requests(b.now, &mut fill) {}
    b.upf.report_usage(b.now, &mut b.plane, &mut out);
    assert_eq!(out, vec![]);
    b.advance(20);
    // the earlier requests have no attempts left
    (0..4).for_each(|_| {
        b.advance(3);
        while b.upf.deadline().is_some_and(|deadline| deadline <= b.now.instant) {
            b.upf.tick(b.now, &mut vec![]);
        }
    });
    b.upf.report_usage(b.now, &mut b.plane, &mut out);
    assert_eq!(super::reports::the_report_of(&out, 1).1.usage_reports[0].trigger, UsageReportTrigger::PERIO);
}

/// Creates `count` sessions that all report in the same second.
fn with_equal_periods(count: u32) -> (Bench, Vec<u64>) {
    let mut b = roomy(count as usize);
    let mut out = vec![];
    let mut seids = vec![];
    for n in 0..count {
        let mut octets = vec![];
        usual(n).emit(&mut octets, 0, n & 0xff_ffff).expect("short");
        send(&mut b, &octets, &mut out);
        let message = Message::new(&out[0].1).expect("sound");
        let response = SessionEstablishmentResponse::parse(&message).expect("an answer");
        seids.push(response.up_f_seid.expect("accepted").seid);
    }
    (b, seids)
}

/// Answers reports as their control plane. Returns their number.
fn answer_all(b: &mut Bench, out: &Outgoing) -> usize {
    for (_, octets) in out {
        let report = Message::new(octets).expect("sound");
        let request = SessionReportRequest::parse(&report).expect("a report");
        assert_eq!(request.usage_reports[0].trigger, UsageReportTrigger::PERIO);
        let mut answer = vec![];
        SessionReportResponse::new(Cause::REQUEST_ACCEPTED).emit(&mut answer, 1, report.sequence()).expect("short");
        b.upf.receive(b.from, &answer, b.now, &mut b.plane, &mut vec![]);
    }
    out.len()
}

#[test]
fn due_reports_are_sent_in_portions() {
    const SESSIONS: u32 = 1_000;
    let (mut b, seids) = with_equal_periods(SESSIONS);
    // some sessions are deleted before
    let gone = 200;
    seids[..gone].iter().for_each(|seid| drop(b.delete(*seid)));
    b.advance(3599);
    let mut out = vec![];
    // sessions are checked occasionally, in case a volume event of the datapath was lost
    b.upf.report_usage(b.now, &mut b.plane, &mut out);
    while b.upf.is_behind() {
        b.upf.report_usage(b.now, &mut b.plane, &mut out);
    }
    assert!(out.is_empty());
    b.advance(1);
    let (mut told, mut turns) = (0, 0);
    loop {
        b.upf.report_usage(b.now, &mut b.plane, &mut out);
        assert!(out.len() <= 128, "{} at once", out.len());
        told += answer_all(&mut b, &out);
        out.clear();
        turns += 1;
        if !b.upf.is_behind() {
            break;
        }
    }
    assert_eq!(told, SESSIONS as usize - gone);
    assert!((7..12).contains(&turns), "{turns}");
}

/// `cargo test --release -p vireo-upf --lib -- --ignored --nocapture usage_of_250_000_sessions`
#[test]
#[ignore = "a measurement"]
fn usage_of_250_000_sessions() {
    const ALL: u32 = 250_000;
    let (mut b, seids) = with_equal_periods(ALL);
    let mut number = 0;
    let mut out = vec![];
    // a control plane that continues to work
    let mut modify = |b: &mut Bench, count: usize| {
        let watch = Watch::now();
        for _ in 0..count {
            let mut octets = vec![];
            number += 1;
            let seid = seids[(number as usize * 7919) % seids.len()];
            forward(Teid(number)).emit(&mut octets, seid, number & 0x7f_ffff | 0x80_0000).expect("short");
            send(b, &octets, &mut out);
        }
        watch.elapsed().as_secs_f64()
    };
    let alone = modify(&mut b, 50_000) / 50_000.0;
    b.advance(3600);
    let (mut told, mut out, mut turns) = (0, vec![], vec![]);
    let (mut requests, mut asked) = (0.0, 0);
    let whole = Watch::now();
    loop {
        let watch = Watch::now();
        b.upf.report_usage(b.now, &mut b.plane, &mut out);
        turns.push(watch.elapsed().as_secs_f64() * 1e6);
        told += answer_all(&mut b, &out);
        out.clear();
        requests += modify(&mut b, 32);
        asked += 32;
        if !b.upf.is_behind() {
            break;
        }
    }
    let whole = whole.elapsed().as_secs_f64();
    assert_eq!(told, ALL as usize);
    turns.sort_by(f64::total_cmp);
    eprintln!(
        "{ALL} sessions report in {} turns: {:.2} us a session, a turn {:.0} us (median), {:.0} us (99%), {:.0} us (longest); all, with \
         answers and {asked} requests, {:.0} ms; a request {:.2} us meanwhile, {:.2} us before",
        turns.len(),
        turns.iter().sum::<f64>() / f64::from(ALL),
        turns[turns.len() / 2],
        turns[turns.len() * 99 / 100],
        turns[turns.len() - 1],
        whole * 1e3,
        requests / f64::from(asked) * 1e6,
        alone * 1e6,
    );
}

/// Returns the resident memory of this process in bytes.
fn resident() -> u64 {
    let text = std::fs::read_to_string("/proc/self/statm").expect("Linux");
    text.split_whitespace().nth(1).and_then(|pages| pages.parse::<u64>().ok()).expect("a number") * 4096
}

/// `cargo test --release -p vireo-upf --lib -- --ignored --nocapture one_million_sessions_fit`
#[test]
#[ignore = "a measurement"]
fn one_million_sessions_fit() {
    const ALL: u32 = 1_000_000;
    const STEP: u32 = 125_000;
    let before = resident();
    let mut b = roomy(ALL as usize);
    let mut seids = Vec::with_capacity(ALL as usize);
    let mut out = vec![];
    let seid_of = |out: &Outgoing| {
        let message = Message::new(&out[0].1).expect("sound");
        let response = SessionEstablishmentResponse::parse(&message).expect("an answer");
        response.up_f_seid.expect("accepted").seid
    };
    for first in (0..ALL).step_by(STEP as usize) {
        let mut messages = vec![];
        for n in first..first + STEP {
            let mut octets = vec![];
            usual(n).emit(&mut octets, 0, n & 0xff_ffff).expect("short");
            messages.push(octets);
        }
        let watch = Watch::now();
        let mut new = vec![];
        for octets in &messages {
            send(&mut b, octets, &mut out);
            new.push(out.pop().expect("an answer"));
        }
        let established = watch.elapsed();
        seids.extend(new.into_iter().map(|answer| seid_of(&vec![answer])));
        let mut messages = vec![];
        for n in first..first + STEP {
            let mut octets = vec![];
            let seid = seids[n as usize];
            forward(Teid(n + 1)).emit(&mut octets, seid, n & 0xff_ffff | 0x80_0000).expect("short");
            messages.push(octets);
        }
        let watch = Watch::now();
        messages.iter().for_each(|octets| send(&mut b, octets, &mut out));
        let modified = watch.elapsed();
        b.advance(30);
        let watch = Watch::now();
        b.upf.report_usage(b.now, &mut b.plane, &mut vec![]);
        eprintln!(
            "{:>9} sessions: {:.2} us to establish, {:.2} us to modify, {:.1} ms to look through, {} octets each",
            first + STEP,
            established.as_secs_f64() * 1e6 / f64::from(STEP),
            modified.as_secs_f64() * 1e6 / f64::from(STEP),
            watch.elapsed().as_secs_f64() * 1e3,
            (resident() - before - u64::from(STEP) * 100) / u64::from(first + STEP),
        );
    }
    let watch = Watch::now();
    for (n, seid) in seids.iter().enumerate() {
        let mut octets = vec![];
        (SessionDeletionRequest {}).emit(&mut octets, *seid, n as u32 & 0xff_ffff).expect("short");
        send(&mut b, &octets, &mut out);
    }
    eprintln!("{:.2} us to delete", watch.elapsed().as_secs_f64() * 1e6 / f64::from(ALL));
    assert_eq!(b.upf.sessions(), 0);
}
