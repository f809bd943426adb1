//! Modules of one UPF under the load of `vireo traffic`.
//!
//! Two pairs of interfaces with one N3 address each connect namespaces. The kernel's counters
//! verify the traffic.

mod space;

use serde_json::Value;
use space::{Child, Space, VIREO};
use std::path::Path;
use std::process::Command;

/// RAN, UPF and data network, joined twice.
struct World {
    ran: Space,
    upf: Space,
    dn: Space,
}

impl World {
    /// Creates the namespaces; `None` if root privileges are missing.
    fn new() -> Option<Self> {
        let world = World { ran: Space::new()?, upf: Space::new()?, dn: Space::new()? };
        let World { ran, upf, dn } = &world;
        upf.join("n3a", "192.168.127.1/24", ran, "rana", "192.168.127.2/24");
        upf.join("n3b", "192.168.129.1/24", ran, "ranb", "192.168.129.2/24");
        upf.join("n6a", "192.168.128.1/24", dn, "dna", "192.168.128.2/24");
        upf.join("n6b", "192.168.130.1/24", dn, "dnb", "192.168.130.2/24");
        // The second cell is behind the second module. Each module reaches half of the users of
        // both cells.
        ran.run("ip address add 192.168.127.3/32 dev ranb");
        upf.run("ip route add 192.168.127.3 dev n3b");
        dn.run("ip address add 203.0.113.1/32 dev lo");
        dn.run("ip route add 10.45.0.0/26 via 192.168.128.1");
        dn.run("ip route add 10.45.0.64/26 via 192.168.130.1");
        upf.run("sysctl -q -w net.ipv4.ip_forward=1");
        for (space, far) in [(ran, "rana"), (ran, "ranb"), (dn, "dna"), (dn, "dnb")] {
            // Native XDP on a veth pair requires this of the other end.
            space.run(&format!("ethtool -K {far} gro on tx off"));
            space.run(&format!("sysctl -q -w net.ipv4.conf.{far}.rp_filter=0"));
        }
        for source in ["127", "129"] {
            ran.run(&format!("nft add table ip t{source}"));
            ran.run(&format!("nft add chain ip t{source} in {{ type filter hook input priority 0; }}"));
            ran.run(&format!("nft add rule ip t{source} in ip saddr 192.168.{source}.1 udp dport 2152 counter"));
        }
        Some(world)
    }

    /// Returns the GTP-U packets from the N3 address of a module.
    fn tunnels_of(&self, source: &str) -> u64 {
        let output = self.ran.output(Command::new("nft").args(["list", "table", "ip", &format!("t{source}")]));
        let text = String::from_utf8(output.stdout).unwrap();
        let count = text.split("packets ").nth(1).and_then(|rest| rest.split(' ').next());
        count.unwrap_or_else(|| panic!("{text}")).parse().unwrap()
    }

    fn start_upf(&self, directory: &Path, driver: &str) -> Child {
        let config = directory.join("upf.toml");
        let module = |name: char, n3: u8, n6: u8| {
            format!(
                "[[datapath.module]]\nn3-interface = \"n3{name}\"\nn3-address = \"192.168.{n3}.1\"\nn6-interface = \
                 \"n6{name}\"\nnext-hops = [\"192.168.{n6}.2\"]\ncores = [0]\n"
            )
        };
        let text = format!(
            "[upf]\nn4 = \"192.168.127.1:8805\"\nnat = false\nmax-sessions = 1000\n[dnn.internet]\nipv4-pool = \
             \"10.45.0.0/24\"\n[api]\nlisten = \"127.0.0.1:9090\"\n[log]\nlevel = \"warn\"\n[datapath]\ndriver = \
             \"{driver}\"\n{}{}",
            module('a', 127, 128),
            module('b', 129, 130),
        );
        std::fs::write(&config, text).unwrap();
        self.upf.start_upf(&config)
    }
}

fn check_driver(driver: &str) {
    let Some(world) = World::new() else {
        eprintln!("skipped: only root may make network namespaces here");
        return;
    };
    let directory = tempfile::tempdir().unwrap();
    let _upf = world.start_upf(directory.path(), driver);
    let json = directory.path().join("generate.json");
    let respond = |packets: &str| world.dn.start_mirror(&["--packets", packets, "--duration", "60s"]);
    let counted = || {
        let ran = ["rana", "ranb"].map(|name| world.ran.counters(name));
        let dn = ["dna", "dnb"].map(|name| world.dn.counters(name));
        (ran, dn, ["127", "129"].map(|source| world.tunnels_of(source)))
    };
    let load = |packets: u32, max_loss: u32| {
        let line = format!(
            "traffic generate --gnb 192.168.127.2 --cells 2 --control 192.168.127.2 --n4 192.168.127.1 --ue 10.45.0.2 \
             --users 120 --server 203.0.113.1 --in-flight 16 --packets {packets} --max-loss {max_loss} --json"
        );
        let output = world.ran.output(Command::new(VIREO).args(line.split(' ')).arg(&json));
        assert!(output.status.success(), "{driver}: {}", String::from_utf8_lossy(&output.stderr));
    };
    // The kernel resolves the neighbours, and may drop packets meanwhile.
    let mirror = respond("1000000");
    load(240, 50);
    drop(mirror);
    let mut mirror = respond("6000");
    let before = counted();
    load(6000, 0);
    let after = counted();
    assert!(mirror.wait().unwrap().success());
    let report: Value = serde_json::from_slice(&std::fs::read(&json).unwrap()).unwrap();
    assert_eq!(report["downlink"]["received"], 6000, "{report}");
    for module in 0..2 {
        let ran = (after.0[module].sent - before.0[module].sent, after.0[module].received - before.0[module].received);
        let dn = (after.1[module].sent - before.1[module].sent, after.1[module].received - before.1[module].received);
        // PFCP and echoes use the first module.
        let half = 2900..3450;
        assert!(half.contains(&ran.0) && half.contains(&ran.1), "{driver}: module {module} on N3: {ran:?}");
        assert!(half.contains(&dn.1), "{driver}: uplink of module {module} on N6: {dn:?}");
        let from = after.2[module] - before.2[module];
        match driver {
            // Tunnels begin at the module that receives the downlink packet, as the far end's
            // routes decide.
            "xdp" => {
                assert!(from.abs_diff(dn.0) < 100 && (2500..3500).contains(&from), "module {module}: {from} {dn:?}")
            }
            _ => assert!(from > 1000, "{driver}: module {module}: {from}"),
        }
    }
}

#[test]
fn sessions_take_turns_among_modules_of_xdp() {
    check_driver("xdp");
}

#[test]
fn af_packet_modules_take_sessions_in_turn() {
    check_driver("af-packet");
}

#[test]
fn sessions_take_turns_among_modules_of_af_xdp() {
    check_driver("af-xdp");
}

/// Virtual links have no address filters, and there is no silent fallback.
#[test]
fn unsupported_nic_filter_is_named() {
    let Some(space) = Space::new() else {
        eprintln!("skipped: only root may make network namespaces here");
        return;
    };
    let directory = tempfile::tempdir().unwrap();
    let config = directory.path().join("upf.toml");
    for (queues, expected) in [(1, "n3 receives by one queue"), (2, "n3 takes no filters of address ranges")] {
        let many = format!("numrxqueues {queues} numtxqueues {queues}");
        space.run(&format!("ip link add n3 {many} type veth peer name far {many}"));
        space.run("ip address add 192.168.127.1/24 dev n3");
        let text = "[upf]\nn4 = \"127.0.0.8:8805\"\nn3 = [\"192.168.127.1\"]\nnat = false\n[api]\nlisten = \
                    \"off\"\n[datapath]\ndriver = \"xdp\"\nmode = \"generic\"\ninterfaces = [\"n3\"]\nnic-filters = true\n";
        std::fs::write(&config, text).unwrap();
        let output = space.output(Command::new(VIREO).args(["upf", "--config"]).arg(&config));
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.code() == Some(1) && errors.contains(expected), "{errors}");
        space.run("ip link delete n3");
    }
}
