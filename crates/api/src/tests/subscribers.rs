//! Subscribers through the API and through the store.

use super::Running;
use crate::{Management, OpenDatabase};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};
use vireo_ops::api::Role;
use vireo_sealing::KeySource;
use vireo_subscribers::{Store, Subscriber};

const K: &str = "465b5ce8b199b49faa5f0a2ee238a6bc";
const OPC: &str = "e8ed289deba952e4283b54e88e6183ca";
const PATH: &str = "/v1/subscribers/imsi-999700000000001";

fn opener(directory: &Path) -> OpenDatabase {
    let database = directory.join("vireo.db").display().to_string();
    let key = directory.join("vireo.db.key");
    Arc::new(move || Store::open(&database, KeySource { variable: "VIREO_NO_SUCH_KEY", file: key.clone() }))
}

/// Returns a management with a database of one subscriber.
pub(super) fn with_one(directory: &Path) -> Management {
    let open = opener(directory);
    let subscriber = Subscriber::new("999700000000001".parse().unwrap(), K.parse().unwrap(), OPC.parse().unwrap());
    open().unwrap().add(&subscriber).unwrap();
    Management { subscribers: Some(open), ..Management::default() }
}

fn store(running: &Running) -> Store {
    opener(running.directory.path())().unwrap()
}

fn record(imsi: u64) -> String {
    format!(r#"{{"imsi": "{imsi}", "k": "{K}", "opc": "{OPC}"}}"#)
}

#[test]
fn keys_are_written_and_never_read() {
    let running = Running::with(with_one);
    let created = running.request(Some(Role::Admin), "POST", "/v1/subscribers", Some(&record(999_700_000_000_002)));
    assert_eq!((created.status, created.header("location")), (201, Some("/v1/subscribers/imsi-999700000000002")));
    for answer in [created, running.get(Role::Admin, PATH), running.get(Role::Admin, "/v1/subscribers")] {
        let body = answer.body.to_lowercase();
        assert!(!body.contains(&K[..8]) && !body.contains(&OPC[..8]) && !body.contains("\"k\""), "{body}");
    }
    let stored = store(&running).get("999700000000002".parse().unwrap()).unwrap().unwrap();
    assert_eq!((stored.k.reveal(), stored.opc.reveal()), (K.into(), OPC.into()));
    let again = running.request(Some(Role::Admin), "POST", "/v1/subscribers", Some(&record(999_700_000_000_002)));
    assert_eq!(again.status, 409);
    let log = running.get(Role::Admin, "/v1/audit").body;
    assert!(log.contains("subscriber.create") && !log.contains(&K[..8]));
}

#[test]
fn change_needs_the_present_tag() {
    let running = Running::with(with_one);
    let read = running.get(Role::Admin, PATH);
    let tag = read.header("etag").unwrap().to_owned();
    let mut record = read.json();
    record["subscription"]["ambr"]["uplink_bps"] = 5_000_000.into();
    let put = |tag: &str| {
        let header = format!("If-Match: {tag}\r\n");
        running.request_with(Some(Role::Admin), "PUT", PATH, Some(&record.to_string()), &header)
    };
    let changed = put(&tag);
    assert_eq!(changed.status, 200);
    let next = changed.header("etag").unwrap().to_owned();
    assert_ne!(next, tag);
    assert_eq!(put(&tag).status, 412, "the first tag is of the past");
    let stored = store(&running).get("999700000000001".parse().unwrap()).unwrap().unwrap();
    assert_eq!((stored.subscription.ambr.uplink_bps, stored.k.reveal()), (5_000_000, K.into()), "the key stays");
    // Other keys are another state, though no answer shows them.
    let mut with_key = record.clone();
    (with_key["k"], with_key["opc"]) = (OPC.into(), K.into());
    let header = format!("If-Match: {next}\r\n");
    let keyed = running.request_with(Some(Role::Admin), "PUT", PATH, Some(&with_key.to_string()), &header);
    assert_ne!(keyed.header("etag"), Some(next.as_str()));
    let delete = |tag: &str| {
        running.request_with(Some(Role::Admin), "DELETE", PATH, None, &format!("If-Match: {tag}\r\n")).status
    };
    assert_eq!(delete(&next), 412);
    assert_eq!(delete(keyed.header("etag").unwrap()), 204);
    assert_eq!(running.get(Role::Admin, PATH).status, 404);
}

#[test]
fn ue_and_subscriber_are_found_by_gpsi() {
    let running = Running::with(with_one);
    let read = running.get(Role::Admin, PATH);
    let mut record = read.json();
    record["msisdn"] = "msisdn-4915112345678".into();
    let header = format!("If-Match: {}\r\n", read.header("etag").unwrap());
    let put = running.request_with(Some(Role::Admin), "PUT", PATH, Some(&record.to_string()), &header);
    assert_eq!((put.status, put.json()["msisdn"].as_str()), (200, Some("4915112345678")));
    assert_ne!(put.header("etag"), read.header("etag"));
    for list in ["/v1/ues", "/v1/subscribers"] {
        let found = |role, gpsi: &str| {
            let found = running.get(role, &format!("{list}?gpsi={gpsi}")).json();
            (found["total"].as_u64(), found["items"].as_array().map_or(0, Vec::len), found["items"][0].clone())
        };
        for gpsi in ["4915112345678", "msisdn-4915112345678"] {
            let (total, count, item) = found(Role::Operate, gpsi);
            assert_eq!((total, count), (Some(1), 1), "{list} {gpsi}");
            assert!(item["supi"] == "imsi-999700000000001" || item["imsi"] == "999700000000001", "{item}");
        }
        assert!(!found(Role::Read, "4915112345678").2.to_string().contains("12345678"), "masked");
        assert_eq!(found(Role::Operate, "4915112345679").1, 0, "{list}");
        for wrong in ["+4915112345678", "1234", "4915112345678&supi=999700000000001&guti=1"] {
            let status = running.get(Role::Operate, &format!("{list}?gpsi={wrong}")).status;
            assert!(status == 400 || list == "/v1/subscribers" && wrong.contains('&'), "{list} {wrong}: {status}");
        }
    }
    // The UE itself has it, too.
    for (role, msisdn) in [(Role::Operate, "4915112345678"), (Role::Read, "4915*********")] {
        assert_eq!(running.get(role, "/v1/ues/imsi-999700000000001").json()["msisdn"], msisdn);
    }
    // No second subscriber has it.
    let body = format!(r#"{{"imsi": "999700000000005", "k": "{K}", "opc": "{OPC}", "msisdn": "4915112345678"}}"#);
    let taken = running.request(Some(Role::Admin), "POST", "/v1/subscribers", Some(&body));
    assert_eq!((taken.status, taken.body.contains("another subscriber has this MSISDN")), (409, true));
    assert_eq!(running.get(Role::Admin, "/v1/subscribers").json()["total"], 1);
    // A UE without MSISDN, and a process without subscribers.
    assert!(running.get(Role::Operate, "/v1/ues/imsi-999700000000002").json()["msisdn"].is_null());
    assert_eq!(Running::start().get(Role::Operate, "/v1/ues?gpsi=4915112345678").status, 404);
}

#[test]
fn wrong_record_names_its_field() {
    let running = Running::with(with_one);
    for (body, pointer) in [
        (r#"{"imsi": "12"}"#, "/imsi"),
        (r#"{"imsi": "999700000000005"}"#, "/k"),
        (r#"{"imsi": "999700000000005", "k": "zz", "opc": "zz"}"#, "/k"),
        (
            r#"{"imsi": "999700000000005", "k": "465b5ce8b199b49faa5f0a2ee238a6bc",
                "opc": "e8ed289deba952e4283b54e88e6183ca", "msisdn": "+49151"}"#,
            "/msisdn",
        ),
        (r#"{"imsi": "999700000000005", "who": 1}"#, ""),
        ("[]", ""),
        ("null", ""),
    ] {
        let answer = running.request(Some(Role::Admin), "POST", "/v1/subscribers", Some(body));
        assert_eq!((answer.status, answer.json()["errors"][0]["pointer"].as_str()), (422, Some(pointer)), "{body}");
    }
    // The schema refuses these, too.
    for (name, value, pointer) in [
        ("service_area", "{}", "/subscription/service_area"),
        ("service_area", r#"{"allowed": [1], "not_allowed": [2]}"#, "/subscription/service_area"),
        ("service_area", r#"{"allowed": []}"#, "/subscription"),
        ("suspnded", "true", "/subscription"),
        ("ambr", r#"{"uplink_bps": 4000000000001, "downlink_bps": 1}"#, "/subscription"),
        ("suspended", "null", ""),
    ] {
        let mut record: serde_json::Value = serde_json::from_str(&record(999_700_000_000_005)).unwrap();
        record["subscription"] = running.get(Role::Admin, PATH).json()["subscription"].clone();
        record["subscription"][name] = serde_json::from_str(value).unwrap();
        let answer = running.request(Some(Role::Admin), "POST", "/v1/subscribers", Some(&record.to_string()));
        let found = (answer.status, answer.json()["errors"][0]["pointer"].clone());
        assert_eq!(found, (422, pointer.into()), "{name}: {value}");
    }
    let other = running.get(Role::Admin, PATH);
    // A refused record is a failed change.
    let log = running.get(Role::Admin, "/v1/audit").json();
    let last = ["action", "result"].map(|key| log["items"][0][key].as_str().unwrap_or_default());
    assert_eq!(last, ["subscriber.create", "failed"]);
    let header = format!("If-Match: {}\r\n", other.header("etag").unwrap());
    let moved = running.request_with(Some(Role::Admin), "PUT", PATH, Some(&record(999_700_000_000_009)), &header);
    assert_eq!(moved.status, 422, "the IMSI cannot be changed");
}

fn csv(from: u64, count: u64) -> String {
    let rows = (from..from + count).map(|imsi| format!("{imsi},{K},{OPC}\n"));
    format!("imsi,k,opc\n{}", rows.collect::<String>())
}

fn import(running: &Running, query: &str, body: &str) -> super::Answer {
    let path = format!("/v1/subscribers/import{query}");
    running.request_with(Some(Role::Admin), "POST", &path, Some(body), "Content-Type: text/csv\r\n")
}

/// Waits for the end of an import, and returns its state and detail.
fn ended(running: &Running, id: u64) -> (String, String) {
    let deadline = Instant::now() + Duration::from_secs(30);
    loop {
        let progress = running.get(Role::Admin, &format!("/v1/imports/{id}")).json();
        let state = progress["state"].as_str().unwrap().to_owned();
        if state != "running" {
            return (state, progress["detail"].as_str().unwrap_or_default().to_owned());
        }
        assert!(Instant::now() < deadline);
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn dry_run_lists_errors_by_line() {
    let running = Running::with(with_one);
    let file = format!("imsi,k,opc\n999700000000010,{K},{OPC}\nx,{K},{OPC}\n999700000000011,zz,{OPC}\n");
    let checked = import(&running, "?dry_run=true", &file).json();
    assert_eq!(checked["valid"], false);
    let lines: Vec<_> = checked["errors"].as_array().unwrap().iter().map(|error| error["line"].as_u64()).collect();
    assert_eq!(lines, [Some(3), Some(4)]);
    assert!(!checked.to_string().contains(&K[..8]));
    let checked = import(&running, "?dry_run=true", &csv(999_700_000_000_001, 5)).json();
    assert_eq!((&checked["valid"], &checked["rows"], &checked["existing"]), (&false.into(), &5.into(), &1.into()));
    let checked = import(&running, "?dry_run=true&conflict=skip", &csv(999_700_000_000_001, 5)).json();
    assert_eq!(checked["valid"], true);
    assert_eq!(store(&running).count(&Default::default()).unwrap(), 1, "nothing was imported");
    assert_eq!(import(&running, "?conflict=maybe", &csv(1, 1)).status, 400);
    assert_eq!(import(&running, "", "no csv").status, 422);
}

#[test]
fn import_is_whole_or_nothing() {
    let running = Running::with(with_one);
    let begun = import(&running, "", &csv(999_700_000_000_001, 300));
    assert_eq!((begun.status, begun.header("location")), (202, Some("/v1/imports/1")));
    let (state, detail) = ended(&running, 1);
    assert!(state == "failed" && detail.contains("999700000000001"), "{state} {detail}");
    assert_eq!(store(&running).count(&Default::default()).unwrap(), 1);
    assert_eq!(import(&running, "?conflict=skip", &csv(999_700_000_000_001, 300)).status, 202);
    assert_eq!(ended(&running, 2).0, "done");
    assert_eq!(store(&running).count(&Default::default()).unwrap(), 300);
    let log = running.get(Role::Admin, "/v1/audit").json();
    let results: Vec<_> = log["items"].as_array().unwrap().iter().map(|item| item["result"].clone()).collect();
    assert_eq!(results, ["ok", "failed"]);
    assert_eq!(running.get(Role::Admin, "/v1/imports/3").status, 404);
}

#[test]
fn list_is_filtered_and_masked() {
    let running = Running::with(with_one);
    import(&running, "", &csv(999_700_000_000_100, 20));
    ended(&running, 1);
    let list = |role, query: &str| running.get(role, &format!("/v1/subscribers?{query}")).json();
    assert_eq!(list(Role::Operate, "supi_prefix=9997000000001")["total"], 20);
    assert_eq!(list(Role::Read, "limit=1")["items"][0]["imsi"], "99970**********");
    // A filter reveals no masked digit.
    assert_eq!(list(Role::Read, "supi_prefix=99970")["total"], 21);
    for prefix in ["999700", "999700000000001"] {
        let refused = running.get(Role::Read, &format!("/v1/subscribers?supi_prefix={prefix}"));
        assert_eq!(refused.status, 403, "{}", refused.body);
    }
    for (filter, count) in [("dnn=internet", 21), ("dnn=ims", 0), ("slice=1", 21), ("slice=1-0000ab", 0)] {
        assert_eq!(list(Role::Read, filter)["items"].as_array().unwrap().len(), count, "{filter}");
    }
    let (mut path, mut seen) = ("limit=8".to_owned(), Vec::new());
    loop {
        let page = list(Role::Operate, &path);
        seen.extend(page["items"].as_array().unwrap().iter().map(|item| item["imsi"].as_str().unwrap().to_owned()));
        let Some(next) = page["next"].as_str() else { break };
        assert!(!next.contains("9997"), "a cursor reveals no SUPI");
        path = format!("limit=8&after={next}");
    }
    seen.dedup();
    assert_eq!(seen.len(), 21);
    for bad in ["supi_prefix=x", "slice=none", "limit=0", "limit=1001", "limit=x", "after=00"] {
        assert_eq!(running.get(Role::Read, &format!("/v1/subscribers?{bad}")).status, 400, "{bad}");
    }
}
