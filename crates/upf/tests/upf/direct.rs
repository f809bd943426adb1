use crate::world::*;
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::time::Duration;
use vireo_n4::{Config, Endpoint, Event, SubmitResult};
use vireo_types::{Instant, Seid};
use vireo_wire::pfcp::*;

const CONTROL: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), PORT);

/// Returns the kernel's counter of UDP datagrams received by sockets of this namespace.
fn datagrams(w: &World) -> u64 {
    let snmp = w.run("upf", "cat /proc/net/snmp");
    let line = snmp.lines().filter(|line| line.starts_with("Udp:")).nth(1).expect("values");
    line.split_whitespace().nth(1).and_then(|n| n.parse().ok()).expect("a number")
}

/// Returns the events of an endpoint until there are no more.
fn drain_events(endpoint: &mut Endpoint, now: Instant) -> Vec<String> {
    let mut events = vec![];
    let mut note = |event: Event<'_>| {
        events.push(match event {
            Event::UpfUp { .. } => "up".to_owned(),
            Event::Deliver { seid, request, message, .. } => {
                let kind = Message::new(message).expect("sound").message_type();
                format!("{kind:?} {:#x} {request}", seid.0)
            }
            other => format!("{other:?}"),
        });
    };
    endpoint.poll(now, &mut note).expect("polled");
    events
}

#[test]
fn in_process_control_plane_needs_no_network() {
    let w = World::new();
    let upf = w.start(config()).expect("started");
    let settings = Config::new(CONTROL.ip(), vec![upf.n4()], RecoveryTimeStamp(1), 7);
    let bind = |direct| w.inside("upf", || Endpoint::bind(CONTROL, settings, direct)).expect("bound");
    let mut endpoint = bind(Some(Box::new(upf.direct().expect("no routes in the kernel"))));
    let before = datagrams(&w);
    let now = Instant(1_000_000);
    assert_eq!(drain_events(&mut endpoint, now), ["up"], "within one poll");

    let mut octets = vec![];
    let mut request = establishment(UE, PREFIX);
    request.node_id = NodeId::from(CONTROL.ip());
    request.cp_f_seid = FSeid::new(0x77, CONTROL.ip());
    request.emit(&mut octets, 0, 0).expect("emitted");
    let mut answers = vec![];
    let submitted = endpoint.submit(now, upf.n4(), Some(1), Seid(0x77), &octets, &mut |event| {
        let Event::Deliver { seid, request: false, message, .. } = event else { panic!("{event:?}") };
        let answer = SessionEstablishmentResponse::parse(&Message::new(message).expect("sound")).expect("sound");
        answers.push((seid.0, answer.cause, answer.up_f_seid.is_some()));
    });
    assert!(matches!(submitted, Ok(SubmitResult::Sent)));
    assert_eq!(answers, [(0x77, Cause::REQUEST_ACCEPTED, true)], "before the call returns");
    assert_eq!(datagrams(&w) - before, 0);
    counted(&upf, |stats| stats.sessions == 1);

    // requests of the UPF arrive over the network: downlink data for an idle UE
    let host = w.inside("dn", || UdpSocket::bind((HOST, 0))).expect("bound");
    host.send_to(b"wake up", (UE, 9)).expect("sent");
    for _ in 0..100 {
        let events = drain_events(&mut endpoint, now);
        if !events.is_empty() {
            assert_eq!(events, ["Session Report Request 0x77 true"]);
            assert!(datagrams(&w) > before);
            return;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    panic!("no report");
}
