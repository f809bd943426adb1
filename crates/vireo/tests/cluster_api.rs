//! `/v1` of the processes of a real cluster: UEs at their hosts, events, cordon, and alarms of
//! hosts; scaling by the API server of Kubernetes.

#[path = "../../controller/src/kubernetes/api_server.rs"]
mod api_server;
mod members;
mod ports;
mod space;

use api_server::ApiServer;
use members::{IMSI, K, Member, Members, OPC, WITHIN};
use rustix::process::Signal;
use serde_json::Value;
use space::{Space, VIREO};
use std::collections::BTreeSet;
use std::io::BufRead;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

const UES: u64 = 12;

/// Returns the items of a list.
fn items(member: &Member, path: &str) -> Vec<Value> {
    let list = member.get(path).unwrap_or_else(|| panic!("{path}: {:?}", member.request("GET", path)));
    list["items"].as_array().expect("a list").clone()
}

/// Returns the objects of active alarms of a kind.
fn alarms(member: &Member, kind: &str) -> Vec<String> {
    let all = items(member, "/v1/alarms?active=true");
    let of_kind = all.iter().filter(|alarm| alarm["kind"] == kind);
    of_kind.filter_map(|alarm| Some(alarm["object"].as_str()?.to_owned())).collect()
}

#[test]
fn ue_is_found_at_its_host_by_each_identity() {
    let Some(space) = Space::new() else {
        eprintln!("skipped: only root may make network namespaces here");
        return;
    };
    space.enter();
    let members = Members::start("");
    let mut emulator = members.emulate("session", (0, UES), &[]);
    let status = emulator.wait().expect("it ends");
    assert!(status.success(), "{}\n{}", members.output("session", 0), members.logs());
    let mut found = BTreeSet::new();
    for (at, host) in members.hosts.iter().enumerate() {
        let other = &members.hosts[1 - at];
        for ue in items(host, "/v1/ues?limit=1000") {
            let supi = ue["supi"].as_str().expect("a SUPI");
            assert!(found.insert(supi.to_owned()), "{supi} is at two hosts");
            let detail = host.get(&format!("/v1/ues/{supi}")).expect("the UE");
            let address = detail["sessions"][0]["address"].as_str().expect("an address").to_owned();
            let guti = ue["guti"].as_str().expect("a GUTI");
            for query in [format!("supi={supi}"), format!("address={address}"), format!("guti={guti}")] {
                let path = format!("/v1/ues?{query}");
                let named: Vec<_> = items(host, &path).iter().map(|ue| ue["supi"].clone()).collect();
                assert_eq!(named, [supi], "{path}");
                assert!(items(other, &path).is_empty(), "{path} at a host that has not the UE");
            }
            assert_eq!(other.request("GET", &format!("/v1/ues/{supi}")).map(|(status, _)| status), Some(404));
        }
    }
    let all: BTreeSet<_> = (0..UES).map(|n| format!("imsi-{}", IMSI + n)).collect();
    assert_eq!(found, all, "each UE is at one host");
}

#[test]
fn registrations_are_events_at_their_host() {
    let Some(space) = Space::new() else {
        eprintln!("skipped: only root may make network namespaces here");
        return;
    };
    space.enter();
    let members = Members::start("");
    let mut streams: Vec<_> = members.hosts.iter().map(|host| host.stream("/v1/events")).collect();
    // A host observes its UEs from the first look with a reader on, once a second.
    for stream in &mut streams {
        (0..3).for_each(|_| drop(next_event(stream, &["overview"])));
    }
    let mut emulator = members.emulate("session", (0, UES), &[]);
    let status = emulator.wait().expect("it ends");
    assert!(status.success(), "{}\n{}", members.output("session", 0), members.logs());
    for (host, stream) in members.hosts.iter().zip(&mut streams) {
        let at_host: BTreeSet<_> =
            items(host, "/v1/ues?limit=1000").iter().filter_map(|ue| Some(ue["supi"].as_str()?.to_owned())).collect();
        let (mut registered, mut with_session) = (BTreeSet::new(), BTreeSet::new());
        while registered != at_host || with_session != at_host {
            // The stream has a time limit.
            let (kind, data) = next_event(stream, &["ue", "session"]);
            let supi = data["supi"].as_str().expect("a SUPI").to_owned();
            match &kind[..] {
                "ue" if data["state"] == "registered" => registered.insert(supi),
                "session" if data["sessions"][0]["address"].is_string() => with_session.insert(supi),
                _ => false,
            };
        }
    }

    // The MSISDN leads to the UE at its host.
    let (imsi, database) = (IMSI.to_string(), members.directory.path().join("subscribers.db"));
    let mut add = Command::new(VIREO);
    add.args(["subscriber", "--database"]).arg(database).args(["add", "--imsi", &imsi, "--k", K, "--opc", OPC]);
    let added = add.args(["--msisdn", "4915112345678", "--replace"]).output().expect("vireo subscriber runs");
    assert!(added.status.success(), "{}", String::from_utf8_lossy(&added.stderr));
    let found = members.hosts.iter().flat_map(|host| items(host, "/v1/ues?gpsi=msisdn-4915112345678"));
    let found: Vec<_> = found.map(|ue| ue["supi"].clone()).collect();
    assert_eq!(found, [format!("imsi-{IMSI}")]);
}

#[test]
fn cordoned_host_gets_no_new_ues() {
    let Some(space) = Space::new() else {
        eprintln!("skipped: only root may make network namespaces here");
        return;
    };
    space.enter();
    let members = Members::start("");
    let cordon = |number: u16, is_cordoned: bool| {
        let verb = if is_cordoned { "cordon" } else { "uncordon" };
        let path = format!("/v1/hosts/{number}/{verb}");
        let (status, body) = members.controller.request("POST", &path).expect("the controller answers");
        assert_eq!(status, 202, "{body}");
        members.controller.wait_for("the cordon", |controller| {
            let hosts = items(controller, "/v1/hosts");
            let host = hosts.iter().find(|host| host["id"] == number)?;
            (host["cordoned"] == is_cordoned).then_some(())
        });
        // The balancer has the list with the next heartbeat.
        thread::sleep(Duration::from_millis(500));
    };
    let register = |first: u64| {
        let mut emulator = members.emulate("register", (first, UES), &[]);
        let status = emulator.wait().expect("it ends");
        assert!(status.success(), "{}\n{}", members.output("register", first), members.logs());
        let mut counts: Vec<_> = members.hosts.iter().map(|host| items(host, "/v1/ues?limit=1000").len()).collect();
        counts.sort_unstable();
        counts
    };
    // Without a cordon, these few UEs would all go to one host.
    cordon(0, true);
    assert_eq!(register(0), [0, UES as usize]);
    cordon(1, true);
    cordon(0, false);
    assert_eq!(register(UES), [UES as usize; 2]);
}

/// Reads up to an event of one of these kinds.
fn next_event(stream: &mut impl BufRead, kinds: &[&str]) -> (String, Value) {
    let mut kind = String::new();
    loop {
        let mut line = String::new();
        assert_ne!(stream.read_line(&mut line).expect("an event in time"), 0, "the stream has ended");
        match line.trim_end().split_once(": ") {
            Some(("event", value)) => kind = value.to_owned(),
            Some(("data", value)) if kinds.contains(&&kind[..]) => {
                return (kind, serde_json::from_str(value).expect("JSON"));
            }
            _ => {}
        }
    }
}

/// Waits until the StatefulSet has so many replicas.
fn wait_for_replicas(server: &ApiServer, members: &Members, count: usize) {
    let deadline = Instant::now() + WITHIN;
    while server.cluster().replicas != count {
        assert!(Instant::now() < deadline, "not {count}: {:?}\n{}", server.cluster(), members.logs());
        thread::sleep(Duration::from_millis(20));
    }
}

/// The test plays the kubelet: processes are the pods of the StatefulSet.
#[test]
fn controller_scales_stateful_set() {
    let Some(space) = Space::new() else {
        eprintln!("skipped: only root may make network namespaces here");
        return;
    };
    space.enter();
    let server = ApiServer::start(2);
    let [token, authorities] = ["token", "ca.crt"].map(|name| server.file(name));
    let mut members = Members::start(&format!(
        "[scaling]\nleast = 2\nmost = 3\nidle = 1\n[scaling.kubernetes]\nstateful-set = \"vireo-host\"\n\
         server = \"{}\"\ntoken-file = {token:?}\nauthorities = {authorities:?}\n",
        server.url()
    ));
    let joined = |members: &Members| {
        let last = members.hosts.last().expect("a host");
        last.wait_for("the join", |host| host.request("GET", "/healthz").filter(|(status, _)| *status == 200));
    };
    // Two hosts serve, and one waits.
    wait_for_replicas(&server, &members, 3);
    members.add_host(&[]);
    joined(&members);
    // A host too many: the operator has raised the number.
    server.cluster().replicas = 4;
    members.add_host(&[]);
    joined(&members);
    wait_for_replicas(&server, &members, 3);
    let last = members.hosts.last_mut().expect("a host");
    last.signal(Signal::TERM);
    let status = last.process.wait().expect("it ends");
    assert!(status.success(), "{status}\n{}", members.logs());
    members.hosts.pop();
    members.wait_for_hosts(2);

    // The token is replaced, and the old one is not valid any more.
    server.write_token("second");
    server.cluster().token = "second".into();
    // A pod dies: an idle host serves in its place, and Kubernetes starts the pod again.
    members.hosts.remove(0).signal(Signal::KILL);
    members.add_host(&[]);
    joined(&members);
    members.wait_for_hosts(2);
    server.cluster().replicas = 1;
    wait_for_replicas(&server, &members, 3);
    assert!(server.cluster().requests.len() < 60, "{:?}", server.cluster().requests);
}

#[test]
fn only_a_dead_host_raises_an_alarm() {
    let Some(space) = Space::new() else {
        eprintln!("skipped: only root may make network namespaces here");
        return;
    };
    space.enter();
    let mut members = Members::start("");
    members.add_host(&[]);
    members.wait_for_hosts(3);
    // The watchers have seen all three with buckets.
    thread::sleep(Duration::from_millis(1500));
    // Without UEs the host drains and leaves between two looks.
    let (status, body) = members.controller.request("POST", "/v1/hosts/0/drain").expect("it answers");
    assert_eq!(status, 202, "{body}");
    members.wait_for_hosts(2);
    thread::sleep(Duration::from_millis(2500));
    for member in [&members.controller, &members.balancer] {
        assert_eq!(alarms(member, "host_dead"), Vec::<String>::new());
    }
    // Numbers are in the order in which the processes joined.
    let living = members.hosts.iter_mut().position(|host| host.process.try_wait().expect("it is ours").is_none());
    let victim = &members.hosts[living.expect("two of three")];
    victim.signal(Signal::KILL);
    members.wait_for_hosts(1);
    for member in [&members.controller, &members.balancer] {
        let dead = member.wait_for("an alarm", |member| {
            let dead = alarms(member, "host_dead");
            (!dead.is_empty()).then_some(dead)
        });
        assert!(dead.len() == 1 && dead[0].starts_with("host ") && dead[0] != "host 0", "{dead:?}");
    }
}
