//! `/v1` of the processes of a real cluster: UEs at their hosts, and alarms of hosts.

mod members;
mod ports;
mod space;

use members::{IMSI, Member, Members};
use rustix::process::Signal;
use serde_json::Value;
use space::Space;
use std::collections::BTreeSet;
use std::thread;
use std::time::Duration;

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
