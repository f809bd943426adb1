//! Tests of TLS with a Redis server and a Redis Cluster of one node.

use crate::servers::{Redis, free_port, until};
use std::net::IpAddr;
use std::path::Path;
use std::time::Duration;
use vireo_pki::{Authority, Files};
use vireo_store::records::{Change, DatabaseTls, Format, Name, RecordError, StoreUrl, open};

const ONE: Name = Name { collection: "ue", id: 1 };
const HOST: IpAddr = IpAddr::V4(std::net::Ipv4Addr::LOCALHOST);

fn place(url: &str, tls: DatabaseTls) -> StoreUrl {
    let (life, timeout) = (Duration::from_secs(60), Duration::from_secs(5));
    StoreUrl { url: url.into(), prefix: "vireo".into(), life, timeout, format: Format::Binary, confirm: 0, tls }
}

fn by(files: &Files) -> DatabaseTls {
    DatabaseTls {
        authorities: Some(files.authorities.clone()),
        certificate: Some(files.certificate.clone()),
        key: Some(files.key.clone()),
    }
}

fn commit(place: &StoreUrl, octets: &[u8]) -> Result<u32, RecordError> {
    let mut records = open(place)?;
    let version = records.change(&[(ONE, Change::Commit { expected: 0, octets })]).remove(0)?;
    let found = records.load(&[ONE])?.remove(0);
    assert_eq!(found.map(|found| found.octets).as_deref(), Some(octets));
    Ok(version)
}

/// Starts a server that requires client certificates on its TLS port. The port without TLS is for
/// the test.
fn start(files: &Files, more: &[&str]) -> Option<(Redis, u16)> {
    let tls = free_port(true);
    let [certificate, key, authorities] =
        [&files.certificate, &files.key, &files.authorities].map(|file| file.to_str().unwrap().to_owned());
    let port = tls.to_string();
    let own = ["--tls-port", &port, "--tls-cert-file", &certificate, "--tls-key-file", &key];
    let asks = ["--tls-ca-cert-file", &authorities, "--tls-auth-clients", "yes"];
    Some((Redis::start(free_port(true), &[&own[..], &asks, more].concat())?, tls))
}

fn files(authority: &Authority, directory: &Path, name: &str) -> Files {
    authority.member(directory, name, &[&HOST.to_string()]).unwrap()
}

#[test]
fn redis_is_asked_over_mutual_tls() {
    let (directory, authority) = (tempfile::tempdir().unwrap(), Authority::new().unwrap());
    let server = files(&authority, directory.path(), "redis");
    let own = files(&authority, directory.path(), "own");
    let Some((redis, port)) = start(&server, &[]) else { return };
    let url = format!("rediss://{HOST}:{port}");
    assert_eq!(commit(&place(&url, by(&own)), b"x"), Ok(1));
    assert!(redis.query("HGETALL vireo:ue:{1}").is_ok_and(|answer| answer.contains('x')), "it is in this database");

    let refused = |tls: DatabaseTls| commit(&place(&url, tls), b"y").unwrap_err().to_string();
    // No client certificate, and one of another authority.
    let none = DatabaseTls { certificate: None, key: None, ..by(&own) };
    assert!(refused(none).contains("CertificateRequired"));
    let other = Authority::new().unwrap();
    let stranger = files(&other, directory.path(), "stranger");
    let odd = DatabaseTls { authorities: Some(server.authorities.clone()), ..by(&stranger) };
    assert!(refused(odd).contains("UnknownCA"));
    // A server certificate of another authority, or with another name.
    let careful = DatabaseTls { authorities: Some(stranger.authorities.clone()), ..by(&own) };
    assert!(refused(careful).contains("UnknownIssuer"));
    let system = DatabaseTls { authorities: None, ..by(&own) };
    assert!(refused(system).contains("UnknownIssuer"), "the system's authorities have not signed it");
    let named = commit(&place(&format!("rediss://localhost:{port}"), by(&own)), b"y").unwrap_err().to_string();
    assert!(named.contains("not valid for name"), "{named}");
    // Neither end falls back to no TLS.
    for url in [format!("redis://{HOST}:{port}"), format!("rediss://{HOST}:{}", redis.port)] {
        let soon = StoreUrl { timeout: Duration::from_millis(300), ..place(&url, by(&own)) };
        assert!(commit(&soon, b"y").is_err(), "{url}");
    }
    let gone = DatabaseTls { key: Some(directory.path().join("gone")), ..by(&own) };
    assert!(gone.check().unwrap_err().to_string().starts_with("state.tls.key: "));
    let swapped = DatabaseTls { authorities: Some(own.key.clone()), ..by(&own) };
    assert!(refused(swapped).contains("state.tls.authorities: "));
}

#[test]
fn redis_cluster_is_asked_over_tls() {
    let (directory, authority) = (tempfile::tempdir().unwrap(), Authority::new().unwrap());
    let own = files(&authority, directory.path(), "own");
    let at = directory.path().to_str().unwrap();
    let cluster = ["--dir", at, "--cluster-enabled", "yes", "--tls-cluster", "yes"];
    let Some((redis, port)) = start(&own, &cluster) else { return };
    let slots: Vec<_> = (0..16_384).map(|slot: u32| slot.to_string()).collect();
    // The length of a command in one line is limited.
    for slots in slots.chunks(4096) {
        let answer = redis.query(&format!("CLUSTER ADDSLOTS {}", slots.join(" "))).unwrap();
        assert!(answer.starts_with("+OK"), "{answer}");
    }
    until("the cluster works", || redis.query("CLUSTER INFO").is_ok_and(|info| info.contains("cluster_state:ok")));
    assert_eq!(commit(&place(&format!("rediss-cluster://{HOST}:{port}"), by(&own)), b"x"), Ok(1));
    let plain =
        StoreUrl { timeout: Duration::from_millis(300), ..place(&format!("redis-cluster://{HOST}:{port}"), by(&own)) };
    assert!(commit(&plain, b"y").is_err());
}
