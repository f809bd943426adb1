//! Alarms and events through the API.

use super::Running;
use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};
use vireo_ops::api::{Role, UeChange};

/// Opens a stream of events.
fn stream(running: &Running, headers: &str) -> BufReader<TcpStream> {
    stream_for(running, Role::Read, headers)
}

fn stream_for(running: &Running, role: Role, headers: &str) -> BufReader<TcpStream> {
    let mut stream = TcpStream::connect(running.address()).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    let (address, token) = (running.address(), &running.tokens[role as usize]);
    write!(stream, "GET /v1/events HTTP/1.1\r\nHost: {address}\r\nAuthorization: Bearer {token}\r\n{headers}\r\n")
        .unwrap();
    BufReader::new(stream)
}

/// Reads up to an event of this kind. Returns its ID and data.
fn next(reader: &mut BufReader<TcpStream>, kind: &str) -> (u64, serde_json::Value) {
    let (mut name, mut id) = (String::new(), 0);
    loop {
        let mut line = String::new();
        assert_ne!(reader.read_line(&mut line).unwrap(), 0, "the stream has ended");
        match line.trim_end().split_once(": ") {
            Some(("event", value)) => name = value.to_owned(),
            Some(("id", value)) => id = value.parse().unwrap(),
            Some(("data", value)) if name == kind => return (id, serde_json::from_str(value).unwrap()),
            _ => {}
        }
    }
}

#[test]
fn exhausted_pool_is_an_alarm_and_an_event() {
    let running = Running::start();
    let mut events = stream(&running, "");
    let (first, overview) = next(&mut events, "overview");
    assert_eq!(overview["alarms"]["critical"], 0);
    *running.core.pool_used.lock().unwrap() = 99;
    let (_, alarm) = next(&mut events, "alarm");
    assert_eq!((&alarm["kind"], &alarm["severity"]), (&"pool_exhausted".into(), &"critical".into()));
    assert_eq!(alarm["object"], "internet 10.45.0.0/16");
    let listed = running.get(Role::Read, "/v1/alarms?active=true").json();
    assert_eq!(listed["items"][0], alarm);
    assert_eq!(running.get(Role::Read, "/v1/overview").json()["alarms"]["critical"], 1);
    let path = format!("/v1/alarms/{}/acknowledge", alarm["id"]);
    assert_eq!(running.request(Some(Role::Operate), "POST", &path, None).status, 204);
    assert_eq!(running.get(Role::Read, "/v1/alarms").json()["items"][0]["acknowledged_by"], "operate");
    // Another reader gets what came after the first event.
    let mut again = stream(&running, &format!("Last-Event-ID: {first}\r\n"));
    assert_eq!(next(&mut again, "alarm").1, alarm);
    let begun = Instant::now();
    *running.core.pool_used.lock().unwrap() = 1;
    assert_eq!(next(&mut events, "alarm").1["severity"], "cleared");
    assert!(begun.elapsed() > Duration::from_secs(5), "not at the first good poll");
}

#[test]
fn changed_ues_are_events_by_role() {
    let running = Running::start();
    let mut streams = [Role::Read, Role::Operate].map(|role| stream_for(&running, role, ""));
    streams.iter_mut().for_each(|events| drop(next(events, "overview")));
    *running.core.changed.lock().unwrap() = Some(UeChange { registration: true, sessions: true });
    for (events, supi) in streams.iter_mut().zip(["imsi-99970**********", "imsi-999700000000001"]) {
        let ue = next(events, "ue").1;
        assert_eq!((&ue["supi"], &ue["state"], &ue["sessions"]), (&supi.into(), &"registered".into(), &1.into()));
        let session = next(events, "session").1;
        assert_eq!((&session["supi"], &session["sessions"][0]["dnn"]), (&supi.into(), &"internet".into()));
        let omitted = next(events, "ue").1;
        assert!(omitted["omitted"] == 7 && omitted["at"].is_string(), "{omitted}");
    }
}

#[test]
fn new_nodes_and_hosts_are_events() {
    let running = Running::start();
    let mut events = stream(&running, "");
    next(&mut events, "overview");
    running.core.further_nodes.lock().unwrap().push("99970-2".into());
    assert_eq!(next(&mut events, "ran_node").1, serde_json::json!({ "id": "99970-2", "state": "up" }));
    let node = &running.get(Role::Read, "/v1/ran-nodes").json()["items"][1];
    assert!(node["id"] == "99970-2" && node["since"].is_string(), "{node}");
    running.core.hosts.lock().unwrap().push(9);
    assert_eq!(next(&mut events, "host").1, serde_json::json!({ "id": 9, "state": "up" }));
}
