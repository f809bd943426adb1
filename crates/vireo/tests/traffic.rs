//! `vireo traffic` through a real UPF between namespaces.
//!
//! The kernel's counters verify the traffic.

mod space;

use serde_json::{Value, json};
use space::{Child, Space, VIREO};
use std::collections::BTreeSet;
use std::net::UdpSocket;
use std::path::Path;
use std::process::{Command, Output};
use std::time::{Duration, Instant};

/// RAN, UPF and data network in a row.
struct World {
    ran: Space,
    upf: Space,
    dn: Space,
}

impl World {
    /// Creates the namespaces; `None` if root privileges are missing.
    fn new() -> Option<Self> {
        let world = World { ran: Space::new()?, upf: Space::new()?, dn: Space::new()? };
        world.upf.join("n3", "192.168.127.1/24", &world.ran, "ran", "192.168.127.2/24");
        world.upf.join("n6", "192.168.128.1/24", &world.dn, "dn", "192.168.128.2/24");
        world.ran.run("ip address add 192.168.127.3/24 dev ran");
        world.dn.run("ip route add 10.45.0.0/16 via 192.168.128.1");
        world.upf.run("sysctl -q -w net.ipv4.ip_forward=1");
        // Native XDP on a veth pair requires this of the other end.
        world.ran.run("ethtool -K ran gro on tx off");
        world.dn.run("ethtool -K dn gro on tx off");
        Some(world)
    }

    fn start_upf(&self, directory: &Path, datapath: &str) -> Child {
        let config = directory.join("upf.toml");
        let text = "[upf]\nn4 = \"192.168.127.1:8805\"\nn3 = [\"192.168.127.1\"]\nnat = false\nmax-sessions = 1000\n\
                    [dnn.internet]\nipv4-pool = \"10.45.0.0/16\"\n[api]\nlisten = \"127.0.0.1:9090\"\n[log]\nlevel = \
                    \"warn\"\n";
        std::fs::write(&config, format!("{text}{datapath}")).unwrap();
        self.upf.start_upf(&config)
    }

    fn generate(&self, json: &Path, more: &str) -> Output {
        let line = format!("traffic generate --gnb 192.168.127.2 --ue 10.45.0.2 --server 192.168.128.2 {more} --json");
        self.ran.output(Command::new(VIREO).args(line.split(' ')).arg(json))
    }
}

fn read(json: &Path) -> Value {
    serde_json::from_slice(&std::fs::read(json).unwrap()).unwrap()
}

fn output_text(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// Runs a closed and an open loop through the UPF. `past` is true if packets bypass the kernel's
/// stack.
fn check_datapath(datapath: &str, past: bool) {
    let Some(world) = World::new() else {
        eprintln!("skipped: only root may make network namespaces here");
        return;
    };
    let directory = tempfile::tempdir().unwrap();
    let upf = world.start_upf(directory.path(), datapath);
    let (ours, mirrored) = (directory.path().join("generate.json"), directory.path().join("respond.json"));
    let words =
        ["--listen", "192.168.128.2", "--packets", "6100", "--duration", "60s", "--json", mirrored.to_str().unwrap()];
    let mut mirror = world.dn.start_mirror(&words);
    let before = (world.dn.counters("dn"), world.ran.counters("ran"), world.upf.counters("vireo0"));

    let closed = "--n4 192.168.127.1 --users 100 --cells 2 --threads 2 --in-flight 16 --packets 3000 --size 128:9,1000:1 \
                  --max-loss 0";
    let output = world.generate(&ours, closed);
    assert!(output.status.success(), "{}", output_text(&output));
    let report = read(&ours);
    let count = |report: &Value, way: &str, what: &str| report[way][what].as_u64().unwrap();
    assert_eq!([count(&report, "uplink", "sent"), count(&report, "uplink", "received")], [3000; 2], "{report}");
    assert_eq!([count(&report, "downlink", "received"), count(&report, "downlink", "lost")], [3000, 0], "{report}");
    let mean = count(&report, "uplink", "octets") / 3000;
    assert!((128..400).contains(&mean), "one in ten is of 1,000 octets, the others of 128: {mean}");
    assert!(report["latency_us"]["p50"].as_f64().unwrap() > 1.0 && report["sessions_per_second"].is_f64(), "{report}");
    assert_eq!(report["astray"], 0, "{report}");

    let open = "--n4 192.168.127.1 --users 50 --rate 3000 --packets 3000 --pick zipf:1 --max-loss 1";
    let output = world.generate(&ours, open);
    assert!(output.status.success(), "{}", output_text(&output));
    let report = read(&ours);
    assert_eq!((count(&report, "uplink", "sent"), &report["offered_pps"]), (3000, &Value::from(3000.0)), "{report}");
    assert!((0.9..1.5).contains(&report["seconds"].as_f64().unwrap()), "{report}");

    let chosen = "--n4 192.168.127.1 --n3 192.168.127.1 --teid 70000 --users 3 --packets 100 --max-loss 0";
    let output = world.generate(&ours, chosen);
    assert!(output.status.success(), "tunnels that the control plane chooses: {}", output_text(&output));

    assert!(mirror.wait().unwrap().success());
    assert_eq!(read(&mirrored)["packets"], 6100);
    let after = (world.dn.counters("dn"), world.ran.counters("ran"), world.upf.counters("vireo0"));
    let few = 6100..6400;
    let [n6_in, n6_out] = [after.0.received - before.0.received, after.0.sent - before.0.sent];
    assert!(few.contains(&n6_in) && few.contains(&n6_out), "on N6: {n6_in} {n6_out}");
    let n3_in = after.1.received - before.1.received;
    assert!((6100..6700).contains(&n3_in), "on N3 with PFCP: {n3_in}");
    let tun = after.2.received - before.2.received;
    assert!(if past { tun < 500 } else { few.contains(&tun) }, "through the TUN: {tun}");

    // The sessions ended with their control plane.
    let output = world.generate(&ours, "--n3 192.168.127.1 --teid 256 --packets 5 --timeout 200ms");
    assert_eq!(output.status.code(), Some(1));
    assert!(output_text(&output).contains("does not know their tunnels"), "{}", output_text(&output));
    drop(upf);
}

#[test]
fn load_returns_through_sockets() {
    check_datapath("", false);
}

#[test]
fn load_returns_through_xdp() {
    check_datapath("[datapath]\ndriver = \"xdp\"\ninterfaces = [\"n3\", \"n6\"]\nmode = \"native\"\n", true);
}

/// A malicious control plane and addresses without an association send invalid messages. The
/// sessions of another control plane stay and forward packets, as the mirror counts them. The UPF's
/// memory does not grow.
#[test]
fn mutated_pfcp_harms_no_other_control_plane() {
    let Some(world) = World::new() else {
        eprintln!("skipped: only root may make network namespaces here");
        return;
    };
    (4..=6).for_each(|n| world.ran.run(&format!("ip address add 192.168.127.{n}/24 dev ran")));
    let directory = tempfile::tempdir().unwrap();
    let upf = world.start_upf(directory.path(), "");
    let (ours, mirrored) = (directory.path().join("mutate.json"), directory.path().join("respond.json"));
    let words = ["--listen", "192.168.128.2", "--duration", "120s", "--json", mirrored.to_str().unwrap()];
    let mirror = world.dn.start_mirror(&words);
    let before = world.dn.counters("dn");
    let line = format!(
        "traffic mutate --n4 192.168.127.1 --control 192.168.127.2 --attacker 192.168.127.4 --stranger 192.168.127.5 \
         --stranger 192.168.127.6 --gnb 192.168.127.3 --ue 10.45.0.2 --server 192.168.128.2 --sessions 20 --count 4000 \
         --seed 7 --pid {} --json",
        upf.id()
    );
    let output = world.ran.output(Command::new(VIREO).args(line.split_whitespace()).arg(&ours));
    assert!(output.status.success(), "{}", output_text(&output));
    let report = read(&ours);
    assert_eq!([&report["messages"], &report["sessions"]["found"]], [4000, 20], "{report}");
    assert!(report["decoded"].as_f64().unwrap() >= 0.3, "{report}");
    let sum = |counts: &Value| counts.as_object().unwrap().values().filter_map(Value::as_u64).sum::<u64>();
    for state in ["associated", "without association"] {
        let sessions = &report["states"][state];
        assert!(sessions["foreign"].as_u64().unwrap() > 100, "{report}");
        assert!(sum(sessions) > 500, "{report}");
    }
    assert!(report["states"]["associated"]["own"].as_u64().unwrap() > 300, "{report}");
    let causes: BTreeSet<&String> =
        report["answers"].as_object().unwrap().values().flat_map(|all| all.as_object().unwrap().keys()).collect();
    assert!(causes.len() >= 10, "{causes:?}");
    let sent = |part: &str| report["traffic"][part]["uplink"]["sent"].as_u64().unwrap();
    let packets = sent("before") + sent("meanwhile") + sent("after");
    let after = world.dn.counters("dn");
    let mirrored = after.sent - before.sent;
    assert!((packets..packets + 300).contains(&mirrored), "{mirrored} of {packets} packets on N6");
    drop((upf, mirror));
}

/// Configuration of `vireo run` for the campaign of mutated NGAP and NAS; PATH is its directory.
const CORE: &str = r#"
[core]
plmns = ["99970"]
tacs = [1]
[n2]
addresses = ["192.168.127.1"]
[s1]
addresses = ["192.168.127.1"]
[slice.default]
snssai = { sst = 1 }
[dnn.internet]
ipv4-pool = "10.45.0.0/16"
[upf]
n3 = ["192.168.127.1"]
nat = false
[subscribers]
database = "PATH/subscribers.db"
[api]
listen = "127.0.0.1:9091"
[state]
ues = 5000
keep = false
[half-open]
max-ues = 400
max-ues-per-address = 300
max-ues-per-node = 200
"#;

#[test]
fn mutated_ngap_and_nas_harm_no_good_ue() {
    let of_nr = ["registered", "handover"];
    campaign("nr", &of_nr);
}

#[test]
fn mutated_s1ap_and_nas_harm_no_good_ue() {
    campaign("eps", &[]);
}

/// Attacking nodes and UEs send mutated and misplaced messages. The core serves the UEs of another
/// node and answers as required. No worker process ends, and memory does not grow. UEs visit the
/// states that both dialects have, and `states`.
fn campaign(rat: &str, states: &[&str]) {
    let (Some(core), Some(ran)) = (Space::new(), Space::new()) else {
        eprintln!("skipped: only root may make network namespaces here");
        return;
    };
    core.join("n2", "192.168.127.1/24", &ran, "ran", "192.168.127.2/24");
    ran.run("ip address add 192.168.127.3/24 dev ran");
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name);
    std::fs::write(path("vireo.toml"), CORE.replace("PATH", &directory.path().to_string_lossy())).unwrap();
    let keys = "--k 465B5CE8B199B49FAA5F0A2EE238A6BC --opc E8ED289DEBA952E4283B54E88E6183CA";
    let add = format!("add --imsi 999700000000001 --count 40 {keys}");
    let mut provision = Command::new(VIREO);
    provision.args(["subscriber", "--database"]).arg(path("subscribers.db")).args(add.split(' '));
    assert!(provision.output().unwrap().status.success());
    let log = std::fs::File::create(path("log")).unwrap();
    let mut process = core.start_logged(Command::new(VIREO).args(["run", "--config"]).arg(path("vireo.toml")), log);
    let log_text = || std::fs::read_to_string(path("log")).unwrap_or_default();
    let status = || core.output(Command::new(VIREO).args(["status", "--json", "--api", "http://127.0.0.1:9091"]));
    let deadline = Instant::now() + Duration::from_secs(30);
    while !status().status.success() {
        assert_eq!(process.try_wait().unwrap(), None, "the core ended\n{}", log_text());
        assert!(Instant::now() < deadline, "the core does not come up\n{}", log_text());
        std::thread::sleep(Duration::from_millis(50));
    }

    let workers = || -> BTreeSet<u64> {
        let status: Value = serde_json::from_slice(&status().stdout).unwrap();
        status["workers"].as_array().unwrap().iter().filter_map(|worker| worker["pid"].as_u64()).collect()
    };
    let before = workers();
    let line = format!(
        "emulate --rat {rat} --core 192.168.127.1 --n2 192.168.127.2 --n2 192.168.127.3 --n3 192.168.127.2 --ues 6 --idle 50 --quiet \
         --scenario mutate --seed 11 --count 10000 --pid {} --max-growth 32768 --json",
        process.id()
    );
    let output = ran.output(Command::new(VIREO).args(line.split_whitespace()).arg(path("mutate.json")));
    assert!(output.status.success(), "{}\n{}", output_text(&output), log_text());
    let report = read(&path("mutate.json"));
    let mutations = &report["mutations"];
    assert_eq!([&mutations["messages"], &mutations["associations_lost"]], [10000, 0], "{mutations}");
    assert_eq!((&mutations["silent"], &mutations["harm"]), (&json!({}), &json!([])), "{mutations}");
    for share in ["decoded", "protected"] {
        assert!(mutations[share].as_f64().unwrap() >= 0.3, "{mutations}");
    }
    let count = |value: &Value| value.as_object().unwrap().values().filter_map(Value::as_u64).sum::<u64>();
    for level in ["byte", "asn1", "nas", "protected", "order"] {
        assert!(count(&mutations["levels"][level]) > 100, "{level}: {mutations}");
    }
    let common = ["no-context", "authenticating", "security-mode", "accepted", "session", "idle"];
    for state in common.iter().chain(states) {
        assert!(count(&mutations["states"][state]) > 20, "{state}: {mutations}");
    }
    assert!(count(&mutations["watched"]) > 20, "{mutations}");
    let good = &mutations["good"];
    assert_eq!([&good["failed"], &good["back_offs"]], [0, 0], "{mutations}");
    assert!(good["registrations"].as_u64().unwrap() > 20 && report["violations"] == json!({}), "{report}");
    assert_eq!(process.try_wait().unwrap(), None, "the core ended\n{}", log_text());
    assert!(!before.is_empty() && before.is_subset(&workers()), "a worker process ended:\n{}", log_text());
    assert!(!log_text().contains("please report it") && !log_text().contains("bug: "), "{}", log_text());
    assert!(log_text().len() < 1 << 20, "{} octets of log", log_text().len());
}

#[test]
fn errors_name_the_remedy() {
    let bound = UdpSocket::bind("127.9.8.7:2152").unwrap();
    let cases = [
        ("--gnb 192.0.2.77 --n3 192.0.2.1 --teid 1", "no interface here has the address 192.0.2.77"),
        ("--gnb 127.9.8.7 --n3 192.0.2.1 --teid 1", "UDP port 2152 of 127.9.8.7 is in use"),
        ("--gnb 127.9.8.6 --n3 127.9.8.5 --teid 1", "does not answer GTP-U from 127.9.8.6"),
        ("--gnb 127.9.8.4 --n4 127.9.8.5 --control 127.9.8.3", "127.9.8.5:8805 does not answer PFCP"),
        ("--gnb 127.9.8.2 --cells 3 --n3 192.0.2.1 --teid 1", "need at least as many users"),
    ];
    let runs: Vec<_> = cases
        .map(|(line, expected)| {
            let line = format!("traffic generate --ue 10.45.0.2 --server 127.9.8.5 {line}");
            (std::thread::spawn(move || Command::new(VIREO).args(line.split(' ')).output().unwrap()), expected)
        })
        .into_iter()
        .collect();
    for (run, text) in runs {
        let output = run.join().unwrap();
        assert_eq!(output.status.code(), Some(1), "{text}");
        assert!(
            output_text(&output).contains(text) && output.stderr.ends_with(b"\n"),
            "{text}: {}",
            output_text(&output)
        );
    }
    drop(bound);
    let output = Command::new(VIREO).args(["traffic", "respond", "--listen", "192.0.2.77"]).output().unwrap();
    assert!(output_text(&output).contains("ip address add 192.0.2.77/32"), "{}", output_text(&output));
}
