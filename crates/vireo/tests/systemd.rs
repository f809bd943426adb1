//! systemd units of the package, and notifications to the service manager.
//!
//! A datagram socket of the test is the service manager. `systemd-analyze` judges the units.

mod ports;

use ports::{free_address, free_port};
use rustix::process::{Pid, Signal, kill_process};
use std::fs;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

const VIREO: &str = env!("CARGO_BIN_EXE_vireo");
const WITHIN: Duration = Duration::from_secs(60);
/// Exposure of a unit with packet interfaces by `systemd-analyze security`, in tenths, at most.
const EXPOSURE: &str = "45";

/// Core under a service manager; it is killed on drop.
struct Service {
    process: Child,
    socket: UnixDatagram,
}

impl Drop for Service {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

impl Service {
    /// Starts a core that notifies `socket`, named `name`. Its watchdog has a limit of 3 s.
    fn start(directory: &Path, socket: UnixDatagram, name: &str) -> Self {
        let (n2, n4) = (free_port(), free_port());
        let config = format!(
            "[n4]\nlisten = \"127.0.0.1:{n4}\"\n[api]\nlisten = \"{}\"\n[upf]\nenabled = false\n\
             [[external-upf]]\nn4 = \"127.0.0.1:{}\"\n[subscribers]\ndatabase = \"{}\"\n\
             [pools]\nkey = \"wildcard\"\nworkers = 1\nidle = 0\n[state]\nues = 1000\n\
             [n2]\ndriver = \"userspace-udp\"\nudp-port = {n2}\n",
            free_address(),
            free_port(),
            directory.join("subscribers.db").display(),
        );
        let path = directory.join("vireo.toml");
        fs::write(&path, config).expect("a configuration");
        let mut command = Command::new(VIREO);
        command.arg("run").arg("--config").arg(path).env("VIREO_STATE__KEEP", "false");
        command.env("NOTIFY_SOCKET", name).env("WATCHDOG_USEC", "3000000").env_remove("WATCHDOG_PID");
        let process = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("a core");
        socket.set_read_timeout(Some(WITHIN)).expect("a limit");
        Service { process, socket }
    }

    fn receive(&self) -> String {
        let mut octets = [0; 256];
        let length = self.socket.recv(&mut octets).expect("a notification");
        String::from_utf8_lossy(&octets[..length]).into_owned()
    }

    /// Returns the next notification that is not of the watchdog.
    fn next_state(&self) -> String {
        let states = std::iter::repeat_with(|| self.receive());
        states.take(100).find(|state| state != "WATCHDOG=1").expect("a state")
    }

    /// Returns the thread with this name. A thread sets its name after its start.
    fn thread(&self, name: &str) -> String {
        let threads = PathBuf::from(format!("/proc/{}/task", self.process.id()));
        let deadline = Instant::now() + WITHIN;
        loop {
            let ids = fs::read_dir(&threads).expect("its threads").flatten().map(|entry| entry.file_name());
            let mut ids = ids.filter_map(|id| id.into_string().ok());
            let own = |id: &String| fs::read_to_string(threads.join(id).join("comm")).unwrap_or_default();
            if let Some(id) = ids.find(|id| own(id).trim() == name) {
                return id;
            }
            assert!(Instant::now() < deadline, "there is no thread {name}");
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.process), signal).expect("its process");
    }
}

#[test]
fn core_notifies_the_service_manager() {
    let directory = tempfile::tempdir().expect("a directory");
    let name = directory.path().join("notify");
    let socket = UnixDatagram::bind(&name).expect("a socket");
    let mut service = Service::start(directory.path(), socket, name.to_str().expect("a name"));
    assert_eq!(service.receive(), "READY=1");
    let ready = Instant::now();
    assert_eq!([service.receive(), service.receive()], ["WATCHDOG=1"; 2]);
    assert!(ready.elapsed() < Duration::from_secs(15), "{:?}", ready.elapsed());

    service.signal(Signal::HUP);
    let reloading = service.next_state();
    assert!(reloading.starts_with("RELOADING=1\nMONOTONIC_USEC="), "{reloading}");
    assert_eq!(service.next_state(), "READY=1");

    // A process that hangs sends nothing.
    service.signal(Signal::STOP);
    service.socket.set_read_timeout(Some(Duration::from_millis(100))).expect("a limit");
    while service.socket.recv(&mut [0; 256]).is_ok() {}
    service.socket.set_read_timeout(Some(Duration::from_secs(4))).expect("a limit");
    assert!(service.socket.recv(&mut [0; 256]).is_err(), "a stopped process has notified");
    service.signal(Signal::CONT);
    service.socket.set_read_timeout(Some(WITHIN)).expect("a limit");
    assert_eq!(service.receive(), "WATCHDOG=1");

    service.signal(Signal::TERM);
    assert_eq!(service.next_state(), "STOPPING=1");
    assert_eq!(service.process.wait().expect("its status").code(), Some(0));
}

/// Freezer cgroup (version 1, which freezes single threads); it is thawed and removed on drop.
struct Freezer(PathBuf);

impl Freezer {
    fn new() -> Option<Self> {
        let freezer = Freezer(PathBuf::from(format!("/sys/fs/cgroup/freezer/vireo-{}", std::process::id())));
        fs::create_dir(&freezer.0).ok()?;
        Some(freezer)
    }

    fn freeze(&self, thread: &str) {
        fs::write(self.0.join("tasks"), thread).expect("root privileges");
        fs::write(self.0.join("freezer.state"), "FROZEN").expect("root privileges");
    }

    fn thaw(&self) {
        let _ = fs::write(self.0.join("freezer.state"), "THAWED");
        for thread in fs::read_to_string(self.0.join("tasks")).unwrap_or_default().lines() {
            let _ = fs::write("/sys/fs/cgroup/freezer/tasks", thread);
        }
    }
}

impl Drop for Freezer {
    fn drop(&mut self) {
        self.thaw();
        let _ = fs::remove_dir(&self.0);
    }
}

#[test]
fn hung_thread_stops_watchdog_notifications() {
    let Some(freezer) = Freezer::new() else {
        println!("SKIPPED: there is no freezer cgroup of version 1");
        return;
    };
    let directory = tempfile::tempdir().expect("a directory");
    let name = directory.path().join("notify");
    let socket = UnixDatagram::bind(&name).expect("a socket");
    let service = Service::start(directory.path(), socket, name.to_str().expect("a name"));
    assert_eq!(service.receive(), "READY=1");
    for hung in ["balancer", "host"] {
        freezer.freeze(&service.thread(hung));
        // One notification may count an iteration before the freeze.
        std::thread::sleep(Duration::from_secs(2));
        service.socket.set_read_timeout(Some(Duration::from_millis(10))).expect("a limit");
        while service.socket.recv(&mut [0; 256]).is_ok() {}
        service.socket.set_read_timeout(Some(Duration::from_secs(4))).expect("a limit");
        assert!(service.socket.recv(&mut [0; 256]).is_err(), "{hung} is frozen");
        freezer.thaw();
        service.socket.set_read_timeout(Some(WITHIN)).expect("a limit");
        assert_eq!(service.receive(), "WATCHDOG=1", "{hung}");
    }
}

#[test]
fn abstract_socket_is_notified() {
    let directory = tempfile::tempdir().expect("a directory");
    let name = format!("vireo-test-{}", std::process::id());
    let address = SocketAddr::from_abstract_name(&name).expect("an address");
    let socket = UnixDatagram::bind_addr(&address).expect("a socket");
    let service = Service::start(directory.path(), socket, &format!("@{name}"));
    assert_eq!(service.receive(), "READY=1");
}

/// Copies the units to a directory. Their program is the one under test, and templates have the
/// instance `1`.
fn instantiate(directory: &Path) -> Vec<PathBuf> {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../packaging/systemd");
    let mut units = Vec::new();
    for entry in fs::read_dir(source).expect("the units") {
        let path = entry.expect("a unit").path();
        let name = path.file_name().and_then(|name| name.to_str()).expect("a name").replace("@.", "@1.");
        let text = fs::read_to_string(&path).expect("a unit").replace("/usr/bin/vireo ", &format!("{VIREO} "));
        units.push(directory.join(name));
        fs::write(units.last().expect("the unit"), text).expect("written");
    }
    units
}

#[test]
fn units_are_valid_and_confined() {
    let directory = tempfile::tempdir().expect("a directory");
    let units = instantiate(directory.path());
    assert_eq!(units.len(), 5);
    let analyze = |words: &[&str], units: &[PathBuf]| Command::new("systemd-analyze").args(words).args(units).output();
    let Ok(output) = analyze(&["verify", "--man=no"], &units) else {
        println!("SKIPPED: systemd-analyze is missing");
        return;
    };
    let words = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && words.trim().is_empty(), "{words}");
    for unit in units {
        let threshold = format!("--threshold={EXPOSURE}");
        let words = ["security", "--offline=true", "--no-pager", &threshold];
        let output = analyze(&words, std::slice::from_ref(&unit)).expect("it was there before");
        assert!(output.status.success(), "{}: {}", unit.display(), String::from_utf8_lossy(&output.stdout));
    }
}

#[test]
fn commands_of_units_exist() {
    let directory = tempfile::tempdir().expect("a directory");
    for unit in instantiate(directory.path()) {
        let text = fs::read_to_string(&unit).expect("a unit");
        let line = text.lines().find_map(|line| line.strip_prefix("ExecStart=")).expect("a command");
        let words: Vec<_> = line.split(' ').collect();
        assert_eq!(words[0], VIREO);
        let help = Command::new(words[0]).args(&words[1..words.len() - 2]).arg("--help").output().expect("help");
        assert!(help.status.success() && words[words.len() - 2] == "--config", "{line}");
    }
}
