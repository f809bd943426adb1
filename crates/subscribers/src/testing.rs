//! PostgreSQL servers of tests.

use std::io::Write;
use std::net::{Ipv4Addr, TcpListener};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, chown};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// User whose password the server checks.
pub const USER: &str = "vireo";
/// Password of [`USER`].
pub const PASSWORD: &str = "se@cret/1";
/// [`PASSWORD`] as a URL has it.
pub const URL_PASSWORD: &str = "se%40cret%2F1";

/// Order of texts in the databases: not that of octets, which the store must not depend on.
const ORDER: &str = "LOCALE_PROVIDER icu ICU_LOCALE 'en-US'";

/// A PostgreSQL server with a directory of its own. Both end with this value, and with this
/// process.
#[derive(Debug)]
pub struct PostgresServer {
    directory: PathBuf,
    port: u16,
    has_tls: bool,
    /// A shell that ends the server when its standard input ends.
    shell: Option<Child>,
}

/// Script of the shell: directory, log and the server's command.
const SCRIPT: &str = r#"
directory=$1 log=$2
shift 2
"$@" </dev/null >>"$log" 2>&1 &
server=$!
cat >/dev/null
# Immediate shutdown of all its processes: confirmed commits are in its log.
kill -QUIT $server 2>/dev/null
wait $server
[ -e "$directory/keep" ] || rm -rf "$directory"
"#;

impl PostgresServer {
    /// Returns the server that the tests of this process share.
    pub fn shared() -> &'static Self {
        static SERVER: OnceLock<PostgresServer> = OnceLock::new();
        SERVER.get_or_init(Self::start)
    }

    /// Starts a server. [`USER`] owns its databases and needs a password; `postgres` needs none.
    pub fn start() -> Self {
        Self::start_with(&format!("host all {USER} 127.0.0.1/32 scram-sha-256\n"), None)
    }

    /// Starts a server that accepts [`USER`] over TLS only, and only with a certificate of the
    /// authorities.
    pub fn start_tls(files: TlsFiles<'_>) -> Self {
        Self::start_with(&format!("hostssl all {USER} 127.0.0.1/32 scram-sha-256 clientcert=verify-ca\n"), Some(files))
    }

    fn start_with(rule: &str, tls: Option<TlsFiles<'_>>) -> Self {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let directory = std::env::temp_dir().join(format!("vireo-postgres-{}-{number}", std::process::id()));
        std::fs::DirBuilder::new().mode(0o700).create(&directory).expect("a directory for PostgreSQL");
        give_to_server(&directory);
        let data = directory.join("data");
        let mut make = unprivileged(&program("initdb"));
        make.args(["--no-sync", "-A", "trust", "-U", "postgres", "--wal-segsize=1", "--locale=C.UTF-8", "-D"]);
        succeeded(make.arg(&data).current_dir(&directory));
        let access = format!("{rule}host all postgres 127.0.0.1/32 trust\n");
        std::fs::write(data.join("pg_hba.conf"), access).expect("the rules of access");
        tls.iter().for_each(|files| files.write(&data));
        let port = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).and_then(|l| l.local_addr()).expect("a port").port();
        let mut server = PostgresServer { directory, port, has_tls: tls.is_some(), shell: None };
        server.start_again();
        server.psql("postgres", &format!("CREATE ROLE {USER} LOGIN PASSWORD '{PASSWORD}'"));
        server
    }

    /// Starts the server after [`PostgresServer::stop`], with its databases.
    pub fn start_again(&mut self) {
        let _ = std::fs::remove_file(self.directory.join("keep"));
        let mut server = unprivileged(&program("postgres"));
        server.arg("-D").arg(self.directory.join("data")).args(["-p", &self.port.to_string()]);
        server.args(["-c", "listen_addresses=127.0.0.1", "-c", "fsync=off", "-c", "logging_collector=off"]);
        if self.has_tls {
            // The names of files in the directory of the data.
            for setting in ["ssl=on", "ssl_cert_file=server.crt", "ssl_key_file=server.key", "ssl_ca_file=root.crt"] {
                server.args(["-c", setting]);
            }
        }
        server.arg("-c").arg(format!("unix_socket_directories={}", self.directory.display()));
        let mut shell = Command::new("sh");
        shell.args(["-c", SCRIPT, "shell"]).arg(&self.directory).arg(self.directory.join("log"));
        shell.arg(server.get_program()).args(server.get_args());
        let shell = shell.current_dir(&self.directory).stdin(Stdio::piped()).spawn();
        self.shell = Some(shell.expect("a shell"));
        // The server listens before it accepts queries ("the database system is starting up").
        let end = Instant::now() + Duration::from_secs(60);
        while !self.client("pg_isready", &["--quiet"]).status().expect("pg_isready").success() {
            assert!(Instant::now() < end, "PostgreSQL does not start: see {}", self.directory.display());
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Stops the server as a crash does. Its databases stay.
    pub fn stop(&mut self) {
        std::fs::File::create(self.directory.join("keep")).expect("written");
        self.end();
    }

    /// Restarts the server with another certificate.
    pub fn replace_certificate(&mut self, files: TlsFiles<'_>) {
        self.stop();
        files.write(&self.directory.join("data"));
        self.start_again();
    }

    /// Stops the processes of the server for a time, as a network without connection does.
    pub fn signal(&self, signal: &str) {
        let first = std::fs::read_to_string(self.directory.join("data/postmaster.pid")).expect("the server runs");
        let pid = first.lines().next().unwrap_or_default().to_owned();
        let children = Command::new("pgrep").args(["-P", &pid]).output().expect("pgrep");
        let children = String::from_utf8_lossy(&children.stdout).into_owned();
        for pid in children.split_whitespace().chain([pid.as_str()]) {
            succeeded(Command::new("kill").args([signal, pid]));
        }
    }

    /// Creates a database. Returns its URL, with the password.
    pub fn database(&self) -> String {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let name = format!("t{}", NUMBER.fetch_add(1, Ordering::Relaxed));
        self.psql("postgres", &format!("CREATE DATABASE {name} OWNER {USER} TEMPLATE template0 {ORDER}"));
        format!("postgres://{USER}:{URL_PASSWORD}@127.0.0.1:{}/{name}", self.port)
    }

    /// Returns the port of the server.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Runs SQL as the superuser, with PostgreSQL's own client: an independent witness. `database`
    /// is a name or a URL. Returns the rows, columns separated by `|`.
    pub fn psql(&self, database: &str, sql: &str) -> String {
        let name = database.rsplit('/').next().unwrap_or(database);
        let output = succeeded(
            &mut self.client("psql", &["-X", "-q", "-A", "-t", "-v", "ON_ERROR_STOP=1", "-d", name, "-c", sql]),
        );
        String::from_utf8_lossy(&output.stdout).trim().to_owned()
    }

    fn client(&self, name: &str, arguments: &[&str]) -> Command {
        let mut command = Command::new(program(name));
        command.args(["-h", "127.0.0.1", "-U", "postgres", "-p", &self.port.to_string()]).args(arguments);
        command
    }

    fn end(&mut self) {
        if let Some(mut shell) = self.shell.take() {
            // Its end of input is the signal.
            drop(shell.stdin.take().map(|mut input| input.flush()));
            let _ = shell.wait();
        }
    }
}

impl Drop for PostgresServer {
    fn drop(&mut self) {
        self.end();
    }
}

/// Files of a server with TLS, in PEM.
#[derive(Clone, Copy, Debug)]
pub struct TlsFiles<'a> {
    pub certificate: &'a str,
    pub key: &'a str,
    /// Authorities of certificates of clients.
    pub authorities: &'a str,
}

impl<'a> TlsFiles<'a> {
    fn named(&self) -> [(&'static str, &'a str); 3] {
        [("server.crt", self.certificate), ("server.key", self.key), ("root.crt", self.authorities)]
    }

    /// Writes the files to a directory, for the user of the server.
    fn write(&self, directory: &Path) {
        for (name, text) in self.named() {
            let path = directory.join(name);
            let file = std::fs::OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&path);
            file.and_then(|mut file| file.write_all(text.as_bytes())).expect("written");
            give_to_server(&path);
        }
    }
}

/// Makes the user of the server the owner of a file, if this process may.
fn give_to_server(path: &Path) {
    if id("-u", None) == 0 {
        chown(path, Some(id("-u", Some("postgres"))), Some(id("-g", Some("postgres")))).expect("given away");
    }
}

/// Returns the path of a program of PostgreSQL, which depends on the distribution.
fn program(name: &str) -> PathBuf {
    let versions = std::fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
    let found = versions.map(|version| version.path().join("bin").join(name)).find(|path| path.exists());
    found.expect("PostgreSQL is needed: run `scripts/setup test`, or install the package postgresql")
}

/// Returns a command of a user who may run PostgreSQL, which refuses to run as root.
fn unprivileged(program: &Path) -> Command {
    if id("-u", None) != 0 {
        return Command::new(program);
    }
    let mut command = Command::new("setpriv");
    command.args(["--reuid=postgres", "--regid=postgres", "--clear-groups"]).arg(program);
    command
}

/// Returns an ID of this process's user, or of another user.
fn id(which: &str, user: Option<&str>) -> u32 {
    let output = Command::new("id").arg(which).args(user).output().expect("id");
    String::from_utf8_lossy(&output.stdout).trim().parse().expect("there is such a user")
}

fn succeeded(command: &mut Command) -> Output {
    let output = command.output().expect("the program is installed");
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
    output
}
