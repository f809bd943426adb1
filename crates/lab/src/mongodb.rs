//! MongoDB protocol server of the lab: FerretDB on PostgreSQL.
//!
//! No distribution packages MongoDB itself. The servers run in the core's namespace, with data in
//! the lab's own `/tmp`.

use crate::Lab;
use crate::files::create;
use crate::process::Process;
use std::net::{Ipv4Addr, TcpStream};
use std::os::unix::fs::chown;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::{Duration, Instant};
use vireo_config::Failure;

/// URL of the server.
pub(crate) const URL: &str = "mongodb://127.0.0.1:27017/";
const PORT: u16 = 27_017;
const BELOW: u16 = 5432;
const DIRECTORY: &str = "/tmp/mongodb";
const START_WITHIN: Duration = Duration::from_secs(60);

/// Both servers. Dropping them kills them, FerretDB first.
#[derive(Debug)]
pub struct Mongodb {
    _ferretdb: Process,
    _postgresql: Process,
}

impl Mongodb {
    /// Starts the servers and waits until they answer.
    pub fn start(lab: &Lab) -> Result<Self, Failure> {
        let directory = Path::new(DIRECTORY);
        // An earlier start in this lab may have left data.
        let _ = std::fs::remove_dir_all(directory);
        std::fs::create_dir_all(directory)?;
        let (user, group) = (number("-u")?, number("-g")?);
        chown(directory, Some(user), Some(group)).map_err(|e| {
            Failure(format!("PostgreSQL refuses to be root's, so this needs a root that can be others ({e})"))
        })?;
        let data = directory.join("data");
        let mut made = unprivileged(&program("initdb")?);
        made.args(["--no-sync", "-A", "trust", "-U", "postgres", "-D"]).arg(&data).current_dir(directory);
        succeeded("initdb", &lab.core.output(&mut made)?)?;
        let mut command = unprivileged(&program("postgres")?);
        command.arg("-D").arg(&data).args(["-p", &BELOW.to_string(), "-c", "listen_addresses=127.0.0.1"]);
        command.args(["-c", "fsync=off", "-c", "unix_socket_directories=/tmp/mongodb"]).current_dir(directory);
        let postgresql = start(lab, "postgresql", &mut command, BELOW, "install the package postgresql")?;
        // The server listens before it accepts queries.
        let end = Instant::now() + START_WITHIN;
        let mut ready = Command::new(program("pg_isready")?);
        ready.args(["--quiet", "--host=127.0.0.1", "--username=postgres", "--port", &BELOW.to_string()]);
        while !lab.core.output(&mut ready)?.status.success() {
            if Instant::now() > end {
                return Err(Failure("PostgreSQL listens, but takes no questions".into()));
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        let mut command = Command::new("ferretdb");
        command.arg(format!("--listen-addr=127.0.0.1:{PORT}")).args(["--telemetry=disable", "--debug-addr=-"]);
        command.arg(format!("--postgresql-url=postgres://postgres@127.0.0.1:{BELOW}/postgres"));
        command.args(["--log-level=error", "--state-dir", DIRECTORY]);
        let remedy = "run `scripts/setup stores`, which builds it, and name .tools/bin in PATH";
        Ok(Mongodb { _ferretdb: start(lab, "ferretdb", &mut command, PORT, remedy)?, _postgresql: postgresql })
    }
}

fn start(lab: &Lab, name: &'static str, command: &mut Command, port: u16, remedy: &str) -> Result<Process, Failure> {
    let log = create(&Path::new("/tmp").join(format!("{name}.log")))?;
    let started = Process::start(name, &lab.core, command, Some(log));
    let mut process = started.map_err(|error| Failure(format!("{name} does not start ({error}): {remedy}")))?;
    let end = Instant::now() + START_WITHIN;
    while !lab.core.run(|| TcpStream::connect((Ipv4Addr::LOCALHOST, port)).is_ok())? {
        if process.exit_status()?.is_some() || Instant::now() > end {
            let words = process.last_words(5);
            return Err(Failure(format!("{name} does not answer at port {port}; it says:\n{words}")));
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    Ok(process)
}

fn succeeded(name: &str, output: &Output) -> Result<(), Failure> {
    let words = || String::from_utf8_lossy(&output.stderr).trim().to_owned();
    if output.status.success() { Ok(()) } else { Err(Failure(format!("{name} fails: {}", words()))) }
}

/// Returns the path of a PostgreSQL program, wherever the distribution installs it.
fn program(name: &str) -> Result<PathBuf, Failure> {
    let versions = std::fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
    let found = versions.map(|version| version.path().join("bin").join(name)).find(|path| path.exists());
    found
        .ok_or_else(|| Failure("PostgreSQL is not installed: run `scripts/setup stores`, or install postgresql".into()))
}

/// Returns a command that runs as the PostgreSQL user, because PostgreSQL refuses to run as root.
/// The command ends with this program.
fn unprivileged(program: &Path) -> Command {
    let mut command = Command::new("setpriv");
    command.args(["--reuid=postgres", "--regid=postgres", "--clear-groups", "--pdeathsig=QUIT"]).arg(program);
    command
}

/// Returns the ID of PostgreSQL's user or group.
fn number(which: &str) -> Result<u32, Failure> {
    let output = Command::new("id").args([which, "postgres"]).output()?;
    let text = String::from_utf8_lossy(&output.stdout);
    text.trim().parse().map_err(|_| Failure("there is no user postgres: install the package postgresql".into()))
}
