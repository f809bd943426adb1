//! Tests of the MongoDB protocol with FerretDB on PostgreSQL.
//!
//! They use FerretDB because no distribution has MongoDB.

use crate::load::{self, WriteLog};
use crate::servers::{Process, free_port, until};
use std::net::{Ipv4Addr, TcpStream};
use std::os::unix::fs::chown;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;
use vireo_store::conformance;
use vireo_store::records::{Change, Format, MongoConfig, MongoRecords, Name, RecordError, RecordStore};

const LIFE: Duration = Duration::from_secs(600);
const PATIENCE: Duration = Duration::from_secs(5);
const ONE: Name = Name { collection: "ue", id: 1 };

fn answers(port: u16) -> bool {
    TcpStream::connect((Ipv4Addr::LOCALHOST, port)).is_ok()
}

/// A PostgreSQL server in its own directory. It refuses to run as root.
struct Postgres {
    process: Option<Process>,
    directory: tempfile::TempDir,
    port: u16,
    /// Maximum size of a file in KiB; `None`: unlimited.
    limit: Option<u64>,
}

/// Returns the path of a program of PostgreSQL, which depends on the distribution.
fn program(name: &str) -> PathBuf {
    let versions = std::fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
    let found = versions.map(|version| version.path().join("bin").join(name)).find(|path| path.exists());
    found.expect("PostgreSQL is needed: run `make test-stores`, which installs it")
}

/// Returns a command that runs as a user who may run PostgreSQL, with a limit of file sizes in KiB.
fn unprivileged(program: &Path, limit: Option<u64>) -> Command {
    let mut command = Command::new("sh");
    // The shell counts blocks of 512 bytes.
    let limit = limit.map_or("unlimited".to_owned(), |limit| (limit * 2).to_string());
    command.args(["-c", "ulimit -f $0 && exec \"$@\"", &limit]);
    if number("-u", None) == 0 {
        command.args(["setpriv", "--reuid=postgres", "--regid=postgres", "--clear-groups"]);
    }
    command.arg(program);
    command
}

/// Returns an id of this process's user, or of another user.
fn number(which: &str, user: Option<&str>) -> u32 {
    let output = Command::new("id").arg(which).args(user).output().unwrap();
    String::from_utf8_lossy(&output.stdout).trim().parse().expect("there is such a user")
}

impl Postgres {
    fn start(limit: Option<u64>) -> Self {
        let directory = tempfile::tempdir().unwrap();
        if number("-u", None) == 0 {
            let (user, group) = (number("-u", Some("postgres")), number("-g", Some("postgres")));
            chown(directory.path(), Some(user), Some(group)).unwrap();
        }
        let made = unprivileged(&program("initdb"), None)
            .args(["--no-sync", "-A", "trust", "-U", "postgres", "--wal-segsize=1", "-D"])
            .arg(directory.path().join("data"))
            .current_dir(directory.path())
            .output()
            .unwrap();
        assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
        let mut server = Postgres { process: None, directory, port: free_port(false), limit };
        server.start_again();
        server
    }

    fn start_again(&mut self) {
        let directory = self.directory.path();
        let mut command = unprivileged(&program("postgres"), self.limit);
        command.arg("-D").arg(directory.join("data")).args(["-p", &self.port.to_string()]);
        command.args(["-c", "listen_addresses=127.0.0.1", "-c", "fsync=off", "-c", "logging_collector=off"]);
        command.arg("-c").arg(format!("unix_socket_directories={}", directory.display()));
        command.current_dir(directory).stderr(std::process::Stdio::null());
        let process = Process::start(&mut command).expect("PostgreSQL starts");
        self.process = Some(process);
        // The server listens before it accepts queries ("the database system is starting up").
        until("PostgreSQL is ready", || {
            let mut query = Command::new(program("pg_isready"));
            query.args(["--quiet", "--host=127.0.0.1", "--username=postgres", "--port", &self.port.to_string()]);
            query.status().expect("pg_isready comes with PostgreSQL").success()
        });
    }

    fn stop(&mut self) {
        if let Some(process) = self.process.take() {
            // Immediate shutdown of all its processes: confirmed commits are in its log.
            process.signal("-QUIT");
            process.wait();
        }
    }
}

impl Drop for Postgres {
    fn drop(&mut self) {
        self.stop();
    }
}

/// A FerretDB server and the PostgreSQL server below it.
struct Ferret {
    process: Option<Process>,
    port: u16,
    postgres: Postgres,
}

impl Ferret {
    fn start(limit: Option<u64>) -> Self {
        let mut server = Ferret { process: None, port: free_port(false), postgres: Postgres::start(limit) };
        server.start_again();
        server
    }

    fn start_again(&mut self) {
        let below = format!("postgres://postgres@127.0.0.1:{}/postgres", self.postgres.port);
        let mut command = Command::new("ferretdb");
        command.arg(format!("--listen-addr=127.0.0.1:{}", self.port)).arg(format!("--postgresql-url={below}"));
        command.args(["--telemetry=disable", "--debug-addr=-", "--log-level=error"]);
        command.arg("--state-dir").arg(self.postgres.directory.path());
        let process = Process::start(command.stderr(std::process::Stdio::null()));
        self.process = Some(process.expect("FerretDB is needed: run `make test-stores`, which builds it"));
        until("FerretDB's answer", || answers(self.port));
    }

    fn records(&self, format: Format, timeout: Duration, life: Duration) -> MongoRecords {
        let url = format!("mongodb://127.0.0.1:{}/", self.port);
        let config = MongoConfig { url, database: "vireo".into(), timeout, format };
        MongoRecords::new(&config, life).unwrap()
    }

    fn signal(&self, name: &str) {
        self.process.as_ref().unwrap().signal(name);
    }
}

#[test]
#[ignore = "make test-stores"]
fn mongodb_keeps_the_contract() {
    let server = Ferret::start(None);
    // Values in JSON are stored as BSON; a binary part may hold any bytes.
    for (format, values) in [(Format::Json, &[Format::Json][..]), (Format::Binary, &conformance::FORMATS)] {
        let mut one = server.records(format, PATIENCE, LIFE);
        let mut other = one.another();
        conformance::records(&mut one, &mut other);
        conformance::values(&mut one, values);
    }
    // Without `concurrency_suite`: `records::mongo` describes concurrent commits in FerretDB 1.
    let life = Duration::from_secs(2);
    conformance::expiry_suite(&mut server.records(Format::Binary, PATIENCE, life), life);
}

#[test]
#[ignore = "make test-stores"]
fn mongodb_outage_is_reported() {
    let mut server = Ferret::start(None);
    let mut store = server.records(Format::Json, Duration::from_secs(1), LIFE);
    let commit = |store: &mut MongoRecords, expected, octets: &[u8]| {
        store.change(&[(ONE, Change::Commit { expected, octets })]).remove(0)
    };
    until("the first commit", || commit(&mut store, 0, b"x").is_ok());
    server.signal("-STOP");
    let silent = commit(&mut store, 1, b"y");
    assert!(matches!(silent, Err(RecordError::OutcomeUnknown(_))), "{silent:?}");
    server.signal("-CONT");
    let mut version = 0;
    let back = |store: &mut MongoRecords, version: &mut u32| {
        until("the database is back", || {
            let found = store.load(&[ONE]).map(|mut found| found.remove(0).expect("it was committed"));
            found.as_ref().inspect(|found| *version = found.version).is_ok()
        });
    };
    back(&mut store, &mut version);
    assert!((1..=2).contains(&version), "done or not");
    // FerretDB is killed and restarted with all its data.
    server.process = None;
    assert!(store.load(&[ONE]).is_err_and(|error| error.is_retryable()));
    assert!(commit(&mut store, version, b"z").is_err_and(|error| error.is_retryable()));
    server.start_again();
    back(&mut store, &mut version);
    // PostgreSQL below it is stopped and restarted.
    server.postgres.stop();
    assert!(commit(&mut store, version, b"z").is_err_and(|error| error.is_retryable()));
    server.postgres.start_again();
    back(&mut store, &mut version);
    until("commits go on", || {
        back(&mut store, &mut version);
        commit(&mut store, version, b"z").is_ok()
    });
}

#[test]
#[ignore = "make test-stores"]
fn mongodb_death_keeps_confirmed_commits() {
    let server = Ferret::start(None);
    let first = server.records(Format::Json, Duration::from_secs(2), LIFE);
    let stores = (0..8).map(|_| Box::new(first.another()) as Box<dyn RecordStore>).collect();
    let (log, server) = (WriteLog::default(), std::cell::RefCell::new(server));
    let counts = load::write_through(stores, &log, || {
        server.borrow_mut().process = None;
        server.borrow_mut().start_again();
    });
    let mut store = first.another();
    load::check(&mut store, &counts);
    load::report(&counts, &log);
}

#[test]
#[ignore = "make test-stores"]
fn full_mongodb_refuses_and_changes_nothing() {
    let server = Ferret::start(Some(2048));
    let mut store = server.records(Format::Binary, PATIENCE, LIFE);
    // Bytes that do not compress.
    let mut state = 1u64;
    let octets: Vec<u8> = std::iter::repeat_with(|| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 56) as u8
    })
    .take(100_000)
    .collect();
    let results: Vec<_> = (0..40)
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
