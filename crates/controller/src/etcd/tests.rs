//! Tests of the client with a real etcd, with and without TLS.

use super::super::leader_store::{LeaderEvent, LeaderStore};
use super::*;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::process::{Child, Command, Stdio};
use std::time::Instant;
use vireo_core::placement::cluster::{DurableState, Secrets};
use vireo_pki::{Authority, Files};
use vireo_sctp::Waker;

const WITHIN: Duration = Duration::from_secs(30);

/// etcd process that ends with its test.
struct Server {
    process: Child,
    address: SocketAddr,
    directory: tempfile::TempDir,
}

fn free() -> SocketAddr {
    TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap().local_addr().unwrap()
}

impl Server {
    /// Starts etcd, with TLS if there are files; `None` if it is not installed.
    fn start(files: Option<&Files>) -> Option<Self> {
        Server::start_at(free(), tempfile::tempdir().unwrap(), files)
    }

    fn start_at(address: SocketAddr, directory: tempfile::TempDir, files: Option<&Files>) -> Option<Self> {
        let mut command = Command::new("etcd");
        let scheme = if files.is_some() { "https" } else { "http" };
        let (clients, peers) = (format!("{scheme}://{address}"), format!("http://{}", free()));
        command.args(["--name", "one", "--logger", "zap", "--log-level", "error", "--data-dir"]).arg(directory.path());
        command.args(["--listen-client-urls", &clients, "--advertise-client-urls", &clients]);
        command.args(["--listen-peer-urls", &peers, "--initial-advertise-peer-urls", &peers]);
        command.args(["--initial-cluster", &format!("one={peers}"), "--unsafe-no-fsync"]);
        if let Some(Files { certificate, key, authorities }) = files {
            command.arg("--cert-file").arg(certificate).arg("--key-file").arg(key);
            command.arg("--client-cert-auth").arg("--trusted-ca-file").arg(authorities);
        }
        // Older releases lack this flag, which avoids waiting for the disk.
        if !Command::new("etcd").arg("--help").output().is_ok_and(|help| is_known(&help.stdout, "unsafe-no-fsync")) {
            command = without(&command, "--unsafe-no-fsync");
        }
        let spawned = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn();
        let Ok(process) = spawned else {
            eprintln!("skipped: etcd does not start; install the package etcd-server");
            return None;
        };
        let server = Server { process, address, directory };
        let until = Instant::now() + WITHIN;
        while std::net::TcpStream::connect(address).is_err() {
            assert!(Instant::now() < until, "etcd does not listen");
            std::thread::sleep(Duration::from_millis(10));
        }
        Some(server)
    }

    fn signal(&self, name: &str) {
        assert!(Command::new("kill").args([name, &self.process.id().to_string()]).status().unwrap().success());
    }

    fn client(&self) -> Etcd {
        Etcd::new(vec![self.address.into()], None).unwrap()
    }
}

fn is_known(help: &[u8], option: &str) -> bool {
    String::from_utf8_lossy(help).contains(option)
}

fn without(command: &Command, option: &str) -> Command {
    let mut other = Command::new(command.get_program());
    other.args(command.get_args().filter(|argument| *argument != option));
    other
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Retries a request while etcd may still elect its leader.
fn soon<T>(mut request: impl FnMut() -> Result<T, EtcdError>) -> T {
    let until = Instant::now() + WITHIN;
    loop {
        match request() {
            Ok(answer) => return answer,
            Err(error) => assert!(Instant::now() < until, "{error}"),
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn is_one_sentence(error: &EtcdError) -> String {
    let text = error.to_string();
    assert!(!text.contains('\n') && text.len() < 400, "{text}");
    text
}

#[test]
fn keys_are_claimed_by_leases_and_held() {
    let Some(server) = Server::start(None) else { return };
    // The first address has no listener.
    let name = format!("localhost:{}", server.address.port());
    let mut etcd = Etcd::new(vec![free().into(), name.parse().unwrap()], None).unwrap();
    assert!(!soon(|| etcd.contains_key("leader")));
    let lease = etcd.grant(2).unwrap();
    assert!(lease.lasts >= Duration::from_secs(2));
    let (since, record) = etcd.campaign("leader", "me", lease, "record").unwrap().expect("it is free");
    assert_eq!(record, None);
    assert!(etcd.contains_key("leader").unwrap());
    assert_eq!(etcd.campaign("leader", "another", lease, "record").unwrap(), None, "it is taken");
    assert!(etcd.put_if(("leader", since), "record", &[0, 255, 7]).unwrap());
    assert!(!etcd.put_if(("leader", since + 1), "record", b"another's").unwrap());
    assert!(etcd.keep_alive(lease).unwrap());
    etcd.revoke(lease).unwrap();
    assert!(!etcd.keep_alive(lease).unwrap(), "it has ended");
    assert!(!etcd.put_if(("leader", since), "record", b"late").unwrap(), "who leads no longer writes nothing");
    let next = etcd.grant(2).unwrap();
    let (later, record) = etcd.campaign("leader", "next", next, "record").unwrap().expect("it is free again");
    assert!(later > since && record.as_deref() == Some(&[0, 255, 7][..]));
    let unknown = Lease { id: 1, lasts: Duration::from_secs(1) };
    let refused = etcd.revoke(unknown).unwrap_err();
    assert!(matches!(refused, EtcdError::Refused { .. }) && is_one_sentence(&refused).contains("lease not found"));
}

#[test]
fn silence_and_return_of_etcd_are_seen() {
    let Some(server) = Server::start(None) else { return };
    let mut etcd = server.client();
    assert!(!soon(|| etcd.contains_key("key")));
    server.signal("-STOP");
    let begun = Instant::now();
    let error = etcd.contains_key("key").unwrap_err();
    assert!(matches!(error, EtcdError::Silent { .. }) && is_one_sentence(&error).contains("check cluster.etcd"));
    assert!(begun.elapsed() < Duration::from_secs(5));
    server.signal("-CONT");
    assert!(!soon(|| etcd.contains_key("key")));
    // Kills etcd and restarts it with its data.
    let lease = etcd.grant(60).unwrap();
    let (since, _) = etcd.campaign("leader", "me", lease, "record").unwrap().unwrap();
    let address = server.address;
    let kept = tempfile::tempdir().unwrap();
    server.signal("-KILL");
    assert!(etcd.contains_key("leader").is_err());
    std::fs::rename(server.directory.path().join("member"), kept.path().join("member")).unwrap();
    drop(server);
    let Some(_server) = Server::start_at(address, kept, None) else { return };
    assert!(soon(|| etcd.put_if(("leader", since), "record", b"x")), "the key is there since the same revision");
}

#[test]
fn connections_are_mutual_tls() {
    let (directory, authority) = (tempfile::tempdir().unwrap(), Authority::new().unwrap());
    let member = |authority: &Authority, name: &str| authority.member(directory.path(), name, &["127.0.0.1"]).unwrap();
    let (files, own) = (member(&authority, "etcd"), member(&authority, "own"));
    let Some(server) = Server::start(Some(&files)) else { return };
    let tls = |authorities: &Files, own: Option<&Files>| EtcdTls {
        authorities: authorities.authorities.clone(),
        own: own.map(|own| (own.certificate.clone(), own.key.clone())),
    };
    let client = |tls| Etcd::new(vec![server.address.into()], tls).unwrap();
    let mut good = client(Some(tls(&own, Some(&own))));
    assert!(!soon(|| good.contains_key("key")));
    let lease = good.grant(2).unwrap();
    assert!(good.campaign("key", "me", lease, "record").unwrap().is_some() && good.keep_alive(lease).unwrap());

    let refused = |tls| match client(tls).contains_key("key").unwrap_err() {
        error @ EtcdError::Silent { .. } => is_one_sentence(&error),
        error => panic!("{error}"),
    };
    let other = Authority::new().unwrap();
    let stranger = member(&other, "stranger");
    let text = refused(Some(tls(&stranger, Some(&own))));
    assert!(text.contains("UnknownIssuer"), "etcd's certificate is of another authority: {text}");
    refused(Some(tls(&own, Some(&stranger))));
    refused(Some(tls(&own, None)));
    refused(None);
    // A missing file, and one with other content.
    let gone = EtcdTls { authorities: directory.path().join("gone"), own: None };
    let error = Etcd::new(vec![server.address.into()], Some(gone)).unwrap_err();
    assert!(is_one_sentence(&error).starts_with("cluster.etcd-tls.authorities: "));
    let swapped = EtcdTls { own: Some((own.key.clone(), own.key.clone())), ..tls(&own, None) };
    assert!(is_one_sentence(&check_tls(&swapped).unwrap_err()).starts_with("cluster.etcd-tls.certificate: "));
}

#[test]
fn one_of_two_controllers_leads_at_a_time() {
    let Some(server) = Server::start(None) else { return };
    assert!(!soon(|| server.client().contains_key("key")));
    let keeper = |name: &str| {
        let waker = Waker::new().unwrap();
        LeaderStore::start(server.client(), "cluster", name.to_owned(), waker).unwrap()
    };
    let leads = |keeper: &LeaderStore| match keeper.events.recv_timeout(WITHIN) {
        Ok(LeaderEvent::Leads(record)) => record.map(|record| record.secrets.recovery),
        news => panic!("{news:?}"),
    };
    let first = keeper("one");
    assert_eq!(leads(&first), None);
    let second = keeper("two");
    first.write(DurableState::new(Secrets { tmsi_key: [7; 16], recovery: 9 }, None));
    assert!(matches!(first.events.recv_timeout(WITHIN), Ok(LeaderEvent::Written(_))), "before it holds");
    assert!(second.events.try_recv().is_err(), "it stands by");
    drop(first);
    let begun = Instant::now();
    assert_eq!(leads(&second), Some(9), "it goes on from the record");
    assert!(begun.elapsed() < Duration::from_secs(10));
    // Without etcd the controller stops leading when its lease may have expired.
    server.signal("-STOP");
    match second.events.recv_timeout(WITHIN) {
        Ok(LeaderEvent::Deposed(cause)) => assert!(cause.contains("lease"), "{cause}"),
        news => panic!("{news:?}"),
    }
    server.signal("-CONT");
    assert_eq!(leads(&second), Some(9));
}
