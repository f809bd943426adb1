//! The package of Debian in a clean root: install, start, traffic, upgrade, removal, purge. The
//! files of the OCI image.
//!
//! `make test-package` runs them: `VIREO_PACKAGE` is the package, `VIREO_IMAGE` the image,
//! `VIREO_ROOT` an archive of a minimal Debian. systemd does not run: the test starts the command
//! of the unit as systemd would, with user, capabilities, directories and environment of the unit.

mod space;

use serde_json::Value;
use space::{Child, Space, VIREO};
use std::collections::HashMap;
use std::env;
use std::fs::{self, File};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::{Duration, Instant};

const K: &str = "465B5CE8B199B49FAA5F0A2EE238A6BC";
const OPC: &str = "E8ED289DEBA952E4283B54E88E6183CA";
const IMSI: &str = "999700000000001";
const WITHIN: Duration = Duration::from_secs(60);
/// Longest time from the package to the first traffic.
const GOAL: Duration = Duration::from_secs(60);
const CONFIG: &str = "etc/vireo/vireo.toml";

/// Prepares the file systems of the root, in a mount namespace of its own, and runs a command
/// there. The mode of `/dev/net/tun` is that of Debian's rules for devices.
const IN_ROOT: &str = "\
    set -e; root=$1; shm=$2; shift 2
    mount -t proc proc $root/proc; mount -t sysfs sysfs $root/sys
    mount -t tmpfs tmpfs $root/dev; mkdir $root/dev/net $root/dev/shm
    for device in null zero full random urandom tty; do
        touch $root/dev/$device; mount --bind /dev/$device $root/dev/$device
    done
    mknod -m 0666 $root/dev/net/tun c 10 200
    mount --bind $shm $root/dev/shm
    exec chroot $root \"$@\"";

/// RAN, core and data network, and the root of the core's machine.
struct World {
    ran: Space,
    core: Space,
    dn: Space,
    directory: tempfile::TempDir,
    /// Directory in memory: the core keeps its contexts there.
    shm: tempfile::TempDir,
    root: PathBuf,
    package: PathBuf,
}

impl World {
    /// Unpacks the root and joins the namespaces.
    fn new(package: PathBuf, archive: &Path) -> Self {
        let space = || Space::new().expect("root privileges");
        let (directory, shm) = (tempfile::tempdir().unwrap(), tempfile::tempdir_in("/dev/shm").unwrap());
        let root = directory.path().join("root");
        fs::create_dir(&root).unwrap();
        fs::set_permissions(shm.path(), fs::Permissions::from_mode(0o1777)).unwrap();
        fs::set_permissions(directory.path(), fs::Permissions::from_mode(0o755)).unwrap();
        // Devices are those of this machine.
        let mut tar = Command::new("tar");
        let output = tar.args(["--exclude=./dev/*", "-C"]).arg(&root).arg("-xf").arg(archive).output().unwrap();
        assert!(output.status.success(), "{}", text(&output.stderr));
        let world = World { ran: space(), core: space(), dn: space(), directory, shm, root, package };
        let World { ran, core, dn, .. } = &world;
        core.join("n2", "192.168.127.1/24", ran, "ran0", "192.168.127.2/24");
        core.join("n6", "192.168.128.1/24", dn, "dn0", "192.168.128.2/24");
        // The addresses "auto" of the configuration are those towards the default route. The data
        // network has no route to UEs: their packets come with the address of the core's machine.
        core.run("ip route add default via 192.168.127.2");
        world
    }

    /// Returns a command in the root.
    fn command(&self, words: &[&str]) -> Command {
        let mut command = Command::new("unshare");
        command.args(["--mount", "sh", "-c", IN_ROOT, "sh"]).arg(&self.root).arg(self.shm.path()).args(words);
        command.env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin").env("LC_ALL", "C");
        command
    }

    fn output(&self, words: &[&str]) -> Output {
        self.core.output(&mut self.command(words))
    }

    /// Runs words in the root; they must succeed. Returns their output.
    fn run(&self, words: &[&str]) -> String {
        let output = self.output(words);
        assert!(output.status.success(), "{words:?}: {}{}", text(&output.stdout), text(&output.stderr));
        text(&output.stdout)
    }

    /// Installs the package, or installs it over itself. Returns the output of its scripts.
    fn install(&self) -> String {
        fs::copy(&self.package, self.root.join("tmp/vireo.deb")).unwrap();
        self.run(&["dpkg", "--install", "/tmp/vireo.deb"])
    }

    /// Starts the unit's command and waits until the service manager is notified.
    fn start(&self, unit: &Unit) -> Child {
        fs::create_dir_all(self.root.join("run/notify")).unwrap();
        let name = self.root.join("run/notify/socket");
        let _ = fs::remove_file(&name);
        let manager = UnixDatagram::bind(&name).unwrap();
        fs::set_permissions(&name, fs::Permissions::from_mode(0o777)).unwrap();
        manager.set_read_timeout(Some(Duration::from_millis(100))).unwrap();
        let log = File::options().create(true).append(true).open(self.log()).unwrap();
        let words = unit.command();
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        let mut command = Command::new("nsenter");
        // Unlike in `Space::start`, the API has its default paths.
        command.arg("--net").arg(format!("--target={}", self.core.holder()));
        let inner = self.command(&words);
        command.arg(inner.get_program()).args(inner.get_args()).env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin");
        command.stdout(log.try_clone().unwrap()).stderr(log);
        let mut child = Child::new(command.spawn().unwrap());
        let (mut octets, deadline) = ([0; 64], Instant::now() + WITHIN);
        let length = loop {
            match manager.recv(&mut octets) {
                Ok(length) => break length,
                Err(_) => assert!(child.try_wait().unwrap().is_none() && Instant::now() < deadline, "{}", self.words()),
            }
        };
        assert_eq!(&octets[..length], b"READY=1");
        child
    }

    fn log(&self) -> PathBuf {
        self.directory.path().join("log")
    }

    fn words(&self) -> String {
        fs::read_to_string(self.log()).unwrap()
    }

    /// Runs UEs with echoes to the data network. Returns the emulator's results.
    fn emulate(&self) -> Value {
        let results = self.directory.path().join("results.json");
        let line = format!(
            "emulate --core 192.168.127.1 --scenario full --ues 1 --imsi {IMSI} --k {K} --opc {OPC} \
             --echo-v4 192.168.128.2 --quiet --json {}",
            results.display()
        );
        let output = self.ran.output(Command::new(VIREO).args(line.split(' ')));
        assert!(output.status.success(), "{}{}\n{}", text(&output.stdout), text(&output.stderr), self.words());
        serde_json::from_slice(&fs::read(results).unwrap()).unwrap()
    }

    fn has(&self, path: &str) -> bool {
        self.root.join(path).symlink_metadata().is_ok()
    }
}

/// Settings of an installed unit.
struct Unit(HashMap<String, String>);

impl Unit {
    fn read(path: &Path) -> Self {
        let text = fs::read_to_string(path).unwrap();
        let settings = text.lines().filter(|line| !line.starts_with('#')).filter_map(|line| line.split_once('='));
        Unit(settings.map(|(key, value)| (key.to_owned(), value.to_owned())).collect())
    }

    fn get(&self, key: &str) -> &str {
        &self.0[key]
    }

    /// Returns the unit's capabilities as `setpriv` names them, or as `+name` list.
    fn capabilities(&self) -> String {
        let names = self.get("AmbientCapabilities").split_whitespace();
        names.fold("-all".to_owned(), |all, name| format!("{all},+{}", name.trim_start_matches("CAP_").to_lowercase()))
    }

    /// Returns the command by which systemd's settings are applied.
    fn command(&self) -> Vec<String> {
        let (user, capabilities) = (self.get("User"), self.capabilities());
        let directories = [("/var/lib", "StateDirectory"), ("/run", "RuntimeDirectory")];
        let made: Vec<String> = directories
            .iter()
            .map(|(parent, key)| {
                let mode = self.get(&format!("{key}Mode"));
                format!("install -d -m {mode} -o {user} -g {user} {parent}/{}", self.get(key))
            })
            .collect();
        let script = format!(
            "set -e; {}; cd {}; umask {}; exec setpriv --reuid={user} --regid={} --clear-groups --inh-caps={capabilities} \
             --ambient-caps={capabilities} --bounding-set={capabilities} --no-new-privs env -i STATE_DIRECTORY=/var/lib/{} \
             RUNTIME_DIRECTORY=/run/{} NOTIFY_SOCKET=/run/notify/socket PATH=/usr/sbin:/usr/bin:/sbin:/bin {}",
            made.join("; "),
            self.get("WorkingDirectory"),
            self.get("UMask"),
            self.get("Group"),
            self.get("StateDirectory"),
            self.get("RuntimeDirectory"),
            self.get("ExecStart"),
        );
        vec!["sh".into(), "-c".into(), script]
    }
}

fn text(octets: &[u8]) -> String {
    String::from_utf8_lossy(octets).into_owned()
}

/// Stops a core as systemd does.
fn stop(mut core: Child) {
    let pid = rustix::process::Pid::from_raw(core.id().cast_signed()).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
    assert_eq!(core.wait().unwrap().code(), Some(0));
}

/// Checks user and privileges of the running service by the kernel's words.
fn check_privileges(core: &Child, world: &World) {
    let status = fs::read_to_string(format!("/proc/{}/status", core.id())).unwrap();
    let field = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(":\t"));
        line.unwrap().split('\t').next().unwrap().to_owned()
    };
    let user = world.run(&["id", "-u", "vireo"]);
    assert_eq!(field("Uid"), user.trim());
    // CAP_NET_ADMIN (12), CAP_NET_RAW (13), CAP_SYS_NICE (23), CAP_BPF (39).
    let expected = format!("{:016x}", 1u64 << 12 | 1 << 13 | 1 << 23 | 1 << 39);
    for set in ["CapEff", "CapPrm", "CapBnd", "CapAmb"] {
        assert_eq!(field(set), expected, "{set}");
    }
    assert_eq!(field("NoNewPrivs"), "1");
}

#[test]
#[ignore = "needs a package and a root: make test-package"]
fn package_serves_and_leaves_no_file() {
    let path =
        |name: &str| PathBuf::from(env::var_os(name).unwrap_or_else(|| panic!("{name}: make test-package sets it")));
    let world = World::new(path("VIREO_PACKAGE"), &path("VIREO_ROOT"));
    let began = Instant::now();
    let next = world.install();
    // The commands that the package prints.
    world.run(&["vireo", "config", "check", "--config", "/etc/vireo/vireo.toml"]);
    assert!(next.contains("vireo config check --config /etc/vireo/vireo.toml"), "{next}");
    assert!(next.contains("systemctl enable --now vireo"), "{next}");
    let add = next.lines().find(|line| line.contains("subscriber")).expect("a command");
    let add = add.replace("IMSI", IMSI).replace("--k K", &format!("--k {K}")).replace("OPC", OPC);
    let unit = Unit::read(&world.root.join("usr/lib/systemd/system/vireo.service"));
    let core = world.start(&unit);
    world.run(&add.split_whitespace().collect::<Vec<_>>());
    let before = world.dn.counters("dn0").received;
    let results = world.emulate();
    println!("{:.1} s from the package to the first traffic", began.elapsed().as_secs_f64());
    assert!(began.elapsed() < GOAL);
    assert!(world.dn.counters("dn0").received > before, "{results}");
    check_privileges(&core, &world);
    for file in ["subscribers.db", "subscribers.key", "state.key", "api.token"] {
        let metadata = world.root.join("var/lib/vireo").join(file).metadata().expect(file);
        assert_eq!(metadata.permissions().mode() & 0o7, 0, "{file}");
    }

    // Upgrade: changes of the configuration and the state stay.
    let config = world.root.join(CONFIG);
    let changed = fs::read_to_string(&config).unwrap() + "# a change\n";
    fs::write(&config, &changed).unwrap();
    let words = world.install();
    assert!(!words.contains("Next:"), "{words}");
    assert_eq!(fs::read_to_string(&config).unwrap(), changed);
    stop(core);
    let core = world.start(&unit);
    world.emulate();
    stop(core);

    assert_has_licences(&world.root);

    // Removal keeps configuration and state, a purge does not.
    world.run(&["dpkg", "--remove", "vireo"]);
    assert!(!world.has("usr/bin/vireo") && !world.has("usr/lib/systemd/system/vireo.service"));
    assert!(world.has(CONFIG) && world.has("var/lib/vireo/subscribers.db"));
    assert!(fs::read_dir(world.shm.path()).unwrap().count() > 0, "kept contexts");
    // A file of the operator stays.
    let own = world.root.join("etc/vireo/tls/own.pem");
    fs::create_dir_all(own.parent().unwrap()).unwrap();
    fs::write(&own, "a certificate").unwrap();
    world.run(&["dpkg", "--purge", "vireo"]);
    assert!(own.exists() && !world.has(CONFIG));
    fs::remove_dir_all(world.root.join("etc/vireo")).unwrap();
    let left =
        world.run(&["find", "/", "-xdev", "-name", "*vireo*", "-not", "-path", "/proc/*", "-not", "-path", "/tmp/*"]);
    assert_eq!(left, "");
    assert_eq!(fs::read_dir(world.shm.path()).unwrap().count(), 0);
    assert!(!world.output(&["dpkg", "--status", "vireo"]).status.success());
}

#[test]
#[ignore = "needs an image: make test-package"]
fn image_has_program_and_its_libraries() {
    let archive = env::var_os("VIREO_IMAGE").expect("VIREO_IMAGE: make test-package sets it");
    let directory = tempfile::tempdir().unwrap();
    let run = |command: &mut Command| {
        let output = command.output().unwrap();
        assert!(output.status.success(), "{command:?}: {}{}", text(&output.stdout), text(&output.stderr));
        text(&output.stdout)
    };
    let (layout, bundle) = (directory.path().join("layout"), directory.path().join("bundle"));
    fs::create_dir(&layout).unwrap();
    run(Command::new("tar").arg("-C").arg(&layout).arg("-xf").arg(archive));
    let version = env!("CARGO_PKG_VERSION");
    run(Command::new("umoci").args(["unpack", "--image"]).arg(format!("{}:{version}", layout.display())).arg(&bundle));
    let root = bundle.join("rootfs");
    assert_eq!(root.join("var/lib/vireo").metadata().unwrap().uid(), 999);
    assert_eq!(root.join("usr/bin/vireo").metadata().unwrap().uid(), 0);
    let mut vireo = Command::new("chroot");
    vireo.arg("--userspec=999:999").arg(&root).arg("/usr/bin/vireo").args(["config", "check", "--config"]);
    assert_eq!(run(vireo.arg("/etc/vireo/vireo.toml")), "the configuration is right\n");
    let runtime: Value = serde_json::from_slice(&fs::read(bundle.join("config.json")).unwrap()).unwrap();
    let expected = ["/usr/bin/vireo", "run", "--config", "/etc/vireo/vireo.toml"];
    assert_eq!(runtime["process"]["args"], serde_json::json!(expected));
    assert_eq!(runtime["process"]["user"]["uid"], 999);
    assert_has_licences(&root);
}

/// Checks that the licence texts of crates are there.
fn assert_has_licences(root: &Path) {
    let text = fs::read_to_string(root.join("usr/share/doc/vireo/licences.txt")).unwrap();
    for expected in ["\n  tokio 1.", "\n  ring 0.17", "Apache License", "Permission is hereby granted"] {
        assert!(text.contains(expected), "{expected}");
    }
}
