//! Records in the real server, started on a port of its own and stopped by the test.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use vireo_store::conformance;
use vireo_store::records::{Change, LinkConfig, Name, RecordError, Records, RedisRecords};

/// A server, killed when it is dropped.
struct Server {
    child: Child,
    port: u16,
}

impl Server {
    /// Starts one that keeps nothing on disk; `None` where it is not installed.
    fn start(arguments: &[&str]) -> Option<Self> {
        let port = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap().local_addr().unwrap().port();
        Server::start_at(port, arguments)
    }

    fn start_at(port: u16, arguments: &[&str]) -> Option<Self> {
        let mut command = Command::new("redis-server");
        command.args(["--bind", "127.0.0.1", "--port", &port.to_string(), "--save", "", "--appendonly", "no"]);
        let child = match command.args(arguments).stdout(Stdio::null()).spawn() {
            Ok(child) => child,
            Err(error) => {
                eprintln!("skipped: redis-server does not start ({error}); install the package redis-server");
                return None;
            }
        };
        let server = Server { child, port };
        let until = Instant::now() + Duration::from_secs(10);
        while !server.answers() {
            assert!(Instant::now() < until, "redis-server does not answer");
            std::thread::sleep(Duration::from_millis(5));
        }
        Some(server)
    }

    fn answers(&self) -> bool {
        let ask = || -> std::io::Result<bool> {
            let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, self.port))?;
            stream.write_all(b"PING\r\n")?;
            let mut answer = [0; 5];
            stream.read_exact(&mut answer)?;
            Ok(&answer == b"+PONG")
        };
        ask().unwrap_or(false)
    }

    fn records(&self, life: Duration) -> RedisRecords {
        records(self.port, life)
    }

    fn signal(&self, name: &str) {
        let sent = Command::new("kill").args([name, &self.child.id().to_string()]).status();
        assert!(sent.unwrap().success());
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn records(port: u16, life: Duration) -> RedisRecords {
    let config = LinkConfig { url: format!("redis://127.0.0.1:{port}"), patience: Duration::from_millis(200) };
    RedisRecords::new(config, "vireo", life)
}

const LIFE: Duration = Duration::from_secs(60);
const ONE: Name = Name { collection: "ue", id: 1 };

fn commit(store: &mut RedisRecords, octets: &[u8]) -> Result<u32, RecordError> {
    store.change(&[(ONE, Change::Commit { expected: 0, octets })]).remove(0)
}

#[test]
fn redis_keeps_the_contract() {
    let Some(server) = Server::start(&[]) else { return };
    conformance::records(&mut server.records(LIFE), &mut server.records(LIFE));
    let life = Duration::from_millis(200);
    conformance::lives(&mut server.records(life), life);
}

#[test]
fn a_database_that_is_down_slow_or_back_is_told() {
    let Some(server) = Server::start(&[]) else { return };
    let mut store = server.records(LIFE);
    assert!(store.load(&[ONE]).is_ok());
    // Stopped: nobody knows what becomes of a commit.
    server.signal("-STOP");
    let begun = Instant::now();
    let silent = commit(&mut store, b"x");
    assert!(matches!(silent, Err(RecordError::Silent(_))), "{silent:?}");
    assert!(begun.elapsed() < Duration::from_secs(2), "nobody waits longer than is wanted");
    // It is not asked again for a moment: the answer comes without it.
    let unasked = |_| matches!(store.load(&[ONE]), Err(RecordError::Down(_)));
    assert!((0..10).any(unasked), "who has just waited in vain is not kept waiting again");
    server.signal("-CONT");
    let found = soon(|| store.load(&[ONE]).ok()).remove(0);
    assert!(found.is_none_or(|found| found.octets == b"x"), "done or not, never in part");
    // Killed, and there again some time later, with nothing in it.
    let port = server.port;
    drop(server);
    assert!(store.load(&[ONE]).is_err_and(|error| error.passes()));
    let Some(_server) = Server::start_at(port, &[]) else { return };
    soon(|| (store.load(&[ONE]) == Ok(vec![None])).then_some(()));
}

/// What there is within some seconds.
fn soon<T>(mut there: impl FnMut() -> Option<T>) -> T {
    let until = Instant::now() + Duration::from_secs(10);
    loop {
        if let Some(found) = there() {
            return found;
        }
        assert!(Instant::now() < until, "never");
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn a_full_database_refuses_and_changes_nothing() {
    let Some(server) = Server::start(&["--maxmemory", "3mb", "--maxmemory-policy", "noeviction"]) else { return };
    let mut store = server.records(LIFE);
    let octets = vec![7; 100_000];
    let results: Vec<_> = (0..100)
        .map(|id| {
            let name = Name { collection: "ue", id };
            store.change(&[(name, Change::Commit { expected: 0, octets: &octets })]).remove(0)
        })
        .collect();
    assert!(results[0].is_ok() && results.contains(&Err(RecordError::Full)), "{results:?}");
    for (id, result) in (0..).zip(&results) {
        let found = store.load(&[Name { collection: "ue", id }]).unwrap().remove(0);
        assert_eq!(found.is_some(), result.is_ok(), "record {id}");
    }
}

#[test]
fn what_is_no_record_is_told() {
    let Some(server) = Server::start(&[]) else { return };
    let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, server.port)).unwrap();
    stream.write_all(b"SET vireo:ue:{1} abc\r\n").unwrap();
    stream.read_exact(&mut [0; 5]).unwrap();
    let mut store = server.records(LIFE);
    assert_eq!(store.load(&[ONE]), Err(RecordError::Stranger));
    assert_eq!(commit(&mut store, b"x"), Err(RecordError::Conflict));
}
