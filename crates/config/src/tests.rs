use crate::config::Config;
use crate::file::File;
use crate::load::{environment, parse};
use crate::{ConfigError, check};
use figment::providers::Env;
use std::net::Ipv4Addr;
use std::path::Path;
use vireo_core::amf::ran::admission::Allow;
use vireo_core::config::SliceProfile;
use vireo_core::placement::balance::steer::Preference;
use vireo_core::placement::balancer::Serve;
use vireo_core::schedule::dispatch::Policy;
use vireo_core::schedule::kind::NfKind;
use vireo_ops::config::{
    HalfOpenConfig, OverloadConfig, PoolKey, PoolsConfig, SliceRuntime, StateConfig, StateLocation,
};
use vireo_types::{Duration, PduSessionType, Snssai, Tac};
use vireo_upf::{Fanout, FrameIo, FramesConfig, LeanSlice, Locking, XdpConfig, XdpMode};
use vireo_wire::security::{CipheringAlgorithm, IntegrityAlgorithm};

/// No environment variable has this prefix.
fn nothing() -> Env {
    Env::prefixed("VIREO_TESTS_HAVE_NONE__")
}

fn load(text: &str) -> Result<Config, Vec<String>> {
    parse(text, nothing()).and_then(|file| check::config(&file))
}

fn problem(text: &str) -> String {
    load(text).expect_err(text).join("\n")
}

fn example(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples").join(name);
    std::fs::read_to_string(path).expect("the example is there")
}

#[test]
fn reference_file_equals_defaults() {
    let written = parse(&example("reference.toml"), nothing()).expect("the reference is right");
    let mut defaults = File::default();
    (defaults.slice, defaults.dnn) = (defaults.slices(), defaults.dnns());
    assert_eq!(written, defaults);
    // The reference contains every key: all printed defaults are in it.
    let all: toml::Table = toml::from_str(&toml::to_string(&defaults).expect("printed")).expect("read");
    let reference: toml::Table = toml::from_str(&example("reference.toml")).expect("read");
    assert_eq!(reference, all);
    assert!(load(&example("reference.toml")).is_ok());
}

#[test]
fn lab_example_has_lab_values() {
    let text = example("lab.toml").replace("\"auto\"", "\"192.0.2.10\"");
    let config = load(&text).expect("the example is right");
    assert_eq!(config.core.plmns[0].to_string(), "99970");
    assert_eq!(config.core.tacs, [Tac(1)]);
    assert_eq!(config.core.slices[0].snssai, Snssai { sst: 1, sd: None });
    assert_eq!(config.core.dnns[0].name.as_str(), "internet");
    assert_eq!(config.core.dnns[0].ipv4_pool, Some((Ipv4Addr::new(10, 45, 0, 0), 16)));
    assert_eq!(config.n2.addresses, ["192.0.2.10".parse::<std::net::IpAddr>().expect("an address")]);
    assert_eq!(config.n2.port, 38412);
}

#[test]
fn ran_nodes_are_allowed_by_address_plmn_and_id() {
    let text = "[[n2.allow]]\naddresses = '10.1.0.0/16'\nplmn = '99970'\nnode-ids = [256, 511]\n[[n2.allow]]\naddresses = \
                'fd00::7'\n";
    let config = load(text).expect("it is right");
    let plmn = Some("99970".parse().expect("a PLMN"));
    let first = Allow { network: "10.1.0.0/16".parse().expect("a network"), plmn, ids: Some((256, 511)) };
    let second = Allow { network: "fd00::7".parse().expect("a network"), plmn: None, ids: None };
    assert_eq!(config.n2.allow, [first, second]);
}

#[test]
fn empty_file_is_complete_configuration() {
    let config = load("").expect("defaults are right");
    assert_eq!(config.core.security.integrity[0], IntegrityAlgorithm::NIA2);
    assert_eq!(config.core.security.ciphering.last(), Some(&CipheringAlgorithm::NEA0));
    assert_eq!(config.core.timers.t3512, Duration::from_secs(54 * 60));
    assert_eq!(config.core.dnns[0].types.len(), 3);
    assert_eq!(config.api.listen, Some(([127, 0, 0, 1], 9090).into()));
    let upf = config.upf.expect("the embedded UPF is on");
    assert_eq!((config.core.upfs[0].n4, config.core.upfs.len()), (upf.n4, 1));
    assert_eq!(upf.pools[0].ipv4, config.core.dnns[0].ipv4_pool);
}

#[test]
fn file_values_reach_all_parts() {
    let config = load(
        r#"
        core.plmns = ["00101", "310410"]
        core.amf = { region = 1, set = 1023, pointer = 63 }
        core.security = { integrity = ["NIA3"], ciphering = ["NEA0"] }
        core.timers.t3550 = "1s 500ms"
        slice.phones.snssai = { sst = 1 }
        slice.meters.snssai = { sst = 3, sd = "0000ab" }
        dnn.ims = { ipv6-pool = "2001:db8::/56", slices = ["meters"] }
        dnn.web = { ipv4-pool = "10.1.0.0/24", mtu = 1300, types = ["ipv4"] }
        upf.enabled = false
        external-upf = [{ n4 = "192.0.2.1:8805", dnns = ["web"] }, { name = "edge", n4 = "192.0.2.2:8805" }]
        host = { slot = 31 }
        n4.listen = "192.0.2.9:8805"
        api.listen = "off"
        subscribers.database = "/tmp/x.db"
        subscribers.deconceal-threads = 5
        [[subscribers.home-network-key]]
        id = 9
        profile = "A"
        private = "c53c22208b61860b06c62e5406a7b330c2b577aa5558981510d128247d38bd1d"
        "#,
    )
    .expect("right");
    let core = &config.core;
    assert_eq!((core.amf_region, core.amf_set, core.amf_pointer), (1, 1023, 63));
    assert_eq!(core.timers.t3550, Duration::from_millis(1500));
    assert_eq!((core.security.integrity.len(), core.security.ciphering.len()), (1, 1));
    let (ims, web) = (&core.dnns[0], &core.dnns[1]);
    assert_eq!(
        (ims.types.as_slice(), ims.slices.as_slice()),
        (&[PduSessionType::Ipv6][..], &[Snssai { sst: 3, sd: Some(0xab) }][..])
    );
    assert_eq!((web.types.as_slice(), web.mtu, web.ipv6_pool), (&[PduSessionType::Ipv4][..], 1300, None));
    let names: Vec<_> = core.upfs.iter().map(|upf| upf.name.as_str()).collect();
    assert_eq!((names, core.upfs[0].dnns[0].as_str()), (vec!["192.0.2.1:8805", "edge"], "web"));
    assert_eq!(core.n4_address.to_string(), "192.0.2.9");
    assert_eq!((config.upf.is_none(), config.subscribers.udm.ind), (true, 31));
    assert_eq!((config.api.listen, config.subscribers.database.as_str()), (None, "/tmp/x.db"));
    assert_eq!(config.subscribers.udm.deconceal_threads, 5);
    assert_eq!(config.subscribers.udm.home_network_keys[0].id, 9);
}

#[test]
fn pfcp_peers_are_listed() {
    let text = r#"
        n4 = { listen = "192.0.2.9:8805", allow = ["192.0.2.0/28", "127.0.0.8"] }
        external-upf = [{ n4 = "192.0.2.1:8805" }]
        [upf]
        control-planes = ["198.51.100.0/24", { node-id = "smf.example.org", addresses = ["192.0.2.5", "192.0.2.6"] }]
        associations = { heartbeat-interval = "0s", keep-sessions = "1h" }
    "#;
    let config = load(text).expect("right");
    let upf = config.upf.expect("a UPF").associations;
    assert_eq!(config.n4.allow, ["192.0.2.0/28", "127.0.0.8"].map(|text| text.parse().expect("a network")));
    let named = &upf.control_planes[1];
    assert!(named.node_id.as_ref().is_some_and(|id| id.is_fqdn("smf.example.org")) && named.networks.len() == 2);
    assert_eq!((upf.control_planes[0].node_id.clone(), upf.heartbeat_interval), (None, None));
    assert_eq!((upf.keep_sessions.as_secs(), upf.heartbeat_attempts, upf.max), (3600, 3, 256));
}

#[test]
fn all_balancers_have_one_node_id() {
    let node = |text: &str| load(text).expect("right").core.n4_node.id();
    assert_eq!(node("n4.listen = '192.0.2.9:8805'").address(), Some(Ipv4Addr::new(192, 0, 2, 9).into()));
    for listen in ["192.0.2.9", "192.0.2.10"] {
        let several = format!("n4.listen = '{listen}:8805'\ncluster.controller = '192.0.2.1:7770'");
        assert!(node(&several).is_fqdn("set1.smfset.5gc.mnc070.mcc999.3gppnetwork.org"), "{several}");
        assert!(node(&format!("{several}\nn4.node-id = 'smf.example.org'")).is_fqdn("smf.example.org"));
        let address = node(&format!("{several}\nn4.node-id = '192.0.2.7'")).address();
        assert_eq!(address, Some(Ipv4Addr::new(192, 0, 2, 7).into()));
    }
    for wrong in ["192.0.2.300", "smf..org", "0.0.0.0", "a name"] {
        let text = problem(&format!("n4.node-id = '{wrong}'"));
        assert!(text.starts_with("n4.node-id: an address, a domain name or \"auto\""), "{wrong}: {text}");
    }
}

#[test]
fn data_slices_have_own_workers() {
    let config = load(
        r#"
        slice.phones = { snssai = { sst = 1 }, data-cores = [1, 0] }
        slice.meters = { snssai = { sst = 3 } }
        dnn.web = { ipv4-pool = "10.45.0.0/16" }
        dnn.sensors = { ipv4-pool = "10.46.0.0/16", slices = ["meters"] }
        "#,
    )
    .expect("right");
    let slices = config.upf.expect("one").slices;
    let workers = |n: usize| (slices[n].name.as_str(), slices[n].workers.workers, slices[n].workers.cores.as_slice());
    // A slice without a number has one worker, if another slice has its own.
    assert_eq!((workers(0), workers(1)), (("meters", 1, &[][..]), ("phones", 2, &[1, 0][..])));
    assert_eq!((slices[0].dnns[0].as_str(), slices[1].dnns.len()), ("sensors", 0));
    let config = load("slice.phones = { snssai = { sst = 1 } }").expect("right");
    assert_eq!(config.upf.expect("one").slices, []);
}

#[test]
fn how_the_host_runs_is_what_was_written() {
    let config = load(
        r#"
        slice.phones = { snssai = { sst = 1 }, slo = { service-request = "10ms", all = "50ms" } }
        slice.meters = { snssai = { sst = 3 }, slo = { registration = "1s" }, limit = 0.25, guarantee = 0.125 }
        pools = { key = "wildcard", nfs-per-worker = 1, workers = 3, idle = 0, cores = [1, 0], stuck-after = "1s" }
        steering.intra = "round-robin"
        state = { location = "memory", ues = 1000, packets = 4096 }
        overload = { start = 0.4, back-off = "30s" }
        half-open = { max-ues = 900, max-ues-per-address = 70, max-ues-per-node = 50, min-age = "250ms" }
        "#,
    )
    .expect("right");
    let names: Vec<_> = config.slices.iter().map(|s| s.name.as_str()).collect();
    let known: Vec<_> = config.core.slices.iter().map(|s| s.name.as_str()).collect();
    assert_eq!(names, known, "in the same order");
    let (meters, phones) = (&config.slices[0], &config.slices[1]);
    let of = |slice: &SliceRuntime, kind: NfKind| slice.slo[kind.index()];
    assert_eq!(of(phones, NfKind::ServiceRequest), Duration::from_millis(10));
    assert_eq!(of(phones, NfKind::Handover), Duration::from_millis(50));
    assert_eq!(of(meters, NfKind::Registration), Duration::from_secs(1));
    assert_eq!(of(meters, NfKind::Paging), SliceRuntime::SLO);
    assert_eq!((meters.limit, phones.limit, meters.snssai.sst), (0.25, 1.0, 3));
    assert_eq!((meters.guarantee, phones.guarantee), (0.125, 0.0));
    let pools = &config.pools;
    assert_eq!((pools.key, pools.nfs_per_worker, pools.workers, pools.idle), (PoolKey::Wildcard, 1, 3, 0));
    assert_eq!((pools.cores.as_slice(), pools.intra), (&[1, 0][..], Policy::RoundRobin));
    assert_eq!((pools.stopped_after.as_millis(), pools.stuck_after.as_millis()), (20, 1000));
    assert_eq!((config.state.location, config.state.ues), (StateLocation::Memory, 1000));
    assert_eq!(config.state.bytes, StateConfig::bytes_for(1000, 4096));
    assert_eq!((config.overload.start, config.overload.back_off.as_secs()), (0.4, 30));
    let HalfOpenConfig { ues, ues_per_address, ues_per_node, min_age } = config.overload.half_open;
    assert_eq!((ues, ues_per_address, ues_per_node, min_age.as_millis()), (900, 70, 50, 250));
    let usual = load("").expect("right");
    assert_eq!((&usual.pools, &usual.state), (&PoolsConfig::default(), &StateConfig::default()));
    assert_eq!(usual.overload, OverloadConfig::default());
    assert_eq!(usual.slices, [SliceRuntime::new("default", usual.core.slices[0].snssai)]);
    assert_eq!(load("slice.a = { snssai = { sst = 1 }, limit = 1 }").expect("a whole number").slices[0].limit, 1.0);
}

#[test]
fn records_are_kept_as_they_are_said_to_be() {
    use vireo_ops::config::{StateAnswer, StateCarry, StateChange, StateFormat, StateScope};
    let state = |text: &str| load(text).expect("right").state;
    let cluster = state("state.location = 'redis'\nstate.database = 'redis-cluster://a:1,b:2'");
    assert_eq!((cluster.confirm, cluster.format, cluster.change), (1, StateFormat::Binary, StateChange::Replace));
    let paper = state("state.preset = 'transactional'\nstate.format = 'protobuf'");
    assert_eq!((paper.confirm, paper.format, paper.change), (0, StateFormat::Protobuf, StateChange::Update));
    let lean = state("state.preset = 'lean'\nstate.answer = 'implied'");
    assert_eq!((lean.carry, lean.format), (StateCarry::Piggyback, StateFormat::Binary));
    assert_eq!((lean.answer, paper.answer), (StateAnswer::Implied, StateAnswer::Explicit));
    let shared = state("state.preset = 'shared-amf-smf'\nstate.format = 'binary'");
    assert_eq!((shared.scope, shared.change), (StateScope::AmfSmf, StateChange::Update));
    let mongodb = "state.preset = 'transactional'\nstate.database = 'mongodb://a:1'";
    if vireo_ops::state::HAS_MONGODB {
        assert_eq!(state(mongodb).location, StateLocation::Mongodb);
        assert!(problem(&format!("{mongodb}\nstate.key = 'a.b'")).contains("state.key: it begins the names"));
        assert_eq!(state("state.location = 'mongodb'").database, "mongodb://127.0.0.1:27017");
    } else {
        assert!(problem(mongodb).contains("state.database: this program was built without MongoDB's driver"));
    }
    let shared = state("state.preset = 'shm'\nstate.database = 'shm:///dev/shm'");
    assert_eq!((shared.location, &*shared.database), (StateLocation::Shm, "shm:///dev/shm"));
}

#[test]
fn there_are_workers_for_every_nf() {
    let slices: String = (1..=40).map(|n| format!("slice.s{n}.snssai.sst = {n}\n")).collect();
    let (few, enough) = ("pools.nfs-per-worker = 1\n", "pools.nfs-per-worker = 2\n");
    let expected = "pools.nfs-per-worker: 40 slices have 328 NFs, for which there must be at least 2 in a worker";
    assert_eq!(problem(&format!("{few}{slices}")), expected);
    assert!(load(&format!("{enough}{slices}")).is_ok());
}

#[test]
fn every_example_is_right() {
    for name in ["lab.toml", "lab-4g.toml", "upf.toml", "slices.toml"] {
        load(&example(name).replace("\"auto\"", "\"192.0.2.10\"")).expect(name);
    }
}

#[test]
fn unknown_key_error_lists_known_keys() {
    for (text, expected) in [
        ("core.tac = [1]", "core.tac: there is no such key; allowed here: name, plmns, tacs, "),
        ("foo = 1", "foo: there is no such key; allowed here: core, slice, "),
        ("slice.a.snssai = { sst = 1, x = 2 }", "slice.a.snssai.x: there is no such key; allowed here: sst, sd"),
        ("[[external-upf]]\nn4 = '1.2.3.4:5'\ny = 1", "y: there is no such key; allowed here: name, n4, dnns"),
        ("[slice.a]", "slice.a.snssai: the key is missing"),
    ] {
        assert!(problem(text).contains(expected), "{}", problem(text));
    }
}

#[test]
fn upf_names_and_counted_sessions_are_checked() {
    for (text, expected) in [
        ("external-upf = [{ name = 'embedded', n4 = '1.2.3.4:8805' }]", "external-upf.0.name: another UPF"),
        ("external-upf = [{ name = 'a&b', n4 = '1.2.3.4:8805' }]", "external-upf.0.name: letters"),
        ("slice.a = { snssai = { sst = 1 }, profile = 'iot', session-quota = 9 }", "slice.a.profile: sessions of"),
        ("slice.a = { snssai = { sst = 1 }, report-every = '1500ms' }", "slice.a.report-every: whole seconds"),
        ("upf = { nat = true, host-routes = true }", "upf.host-routes: address translation"),
    ] {
        assert!(problem(text).contains(expected), "{text}\n{}\n{expected}", problem(text));
    }
}

#[test]
fn wrong_value_error_names_key_and_allowed() {
    for (text, expected) in [
        ("core.plmns = []", "core.plmns: 1 to 12 different PLMNs"),
        ("core.plmns = ['9997']", "core.plmns.0: \"9997\": a PLMN is five or six decimal digits"),
        ("core.tacs = [16777214]", "core.tacs: a tracking area code is 1 to 16777213"),
        ("core.tacs = 'x'", "core.tacs: found string \"x\", expected a sequence"),
        (
            "core.amf = { region = 1, set = 1024, pointer = 64 }",
            "core.amf.set: 0 to 1023 is allowed\ncore.amf.pointer: 0 to 63",
        ),
        ("core.amf = { region = 256, set = 1, pointer = 0 }", "core.amf.region: "),
        ("core.ciot.control-plane-data = true\nupf.n3 = ['127.0.0.1']", "n4.listen and upf.n3 need different"),
        ("core.ciot.control-plane-data = true\nn4.listen = '[::1]:1'", "n4.listen needs an IPv4 address"),
        ("core.security.key-lifetime = '1ms'", "core.security.key-lifetime: 0s, or 1s"),
        ("core.security.nas-count-limit = 99", "core.security.nas-count-limit: 100 to"),
        ("core.security.integrity = ['NIA0']", "core.security.integrity: NIA0 is refused"),
        ("core.security.integrity = []", "core.security.integrity: NIA2, NIA1 and NIA3 are allowed"),
        ("core.security.ciphering = ['AES']", "core.security.ciphering: \"AES\": NEA2, NEA1, NEA3 and NEA0"),
        ("core.timers.t3550 = 6", "core.timers.t3550: found signed int `6`"),
        ("core.timers.t3550 = '6'", "core.timers.t3550: \"6\" is no span of time"),
        ("core.timers.t3512 = '1s'", "core.timers.t3512: 0s, or 2s and more, is allowed"),
        ("core.timers.t3447 = '63s'", "core.timers.t3447: 0s to 310h is allowed"),
        ("core.timers.t3447 = '320h'", "core.timers.t3447: 0s to 310h is allowed"),
        ("core.timers.t3550 = '2h'", "core.timers.t3550: 100ms to 1h is allowed"),
        ("slice.a.snssai = { sst = 1, sd = 'ffffff' }", "slice.a.snssai.sd: \"ffffff\" is not allowed: six hex"),
        ("slice.a.snssai.sst = 1\nslice.b.snssai.sst = 1", "slice.b.snssai: slice.a has this S-NSSAI"),
        ("dnn.x = {}", "dnn.x.ipv4-pool: give this pool, or ipv6-pool, or both"),
        ("dnn.x.ipv4-pool = '10.0.0.1/8'", "dnn.x.ipv4-pool: \"10.0.0.1/8\" has bits after its prefix"),
        ("dnn.x.ipv4-pool = '10.0.0.0/31'", "dnn.x.ipv4-pool: /8 to /30 is allowed"),
        ("dnn.x.ipv6-pool = 'fd00::/80'", "dnn.x.ipv6-pool: /16 to /64 is allowed"),
        ("dnn.x = { ipv4-pool = '10.0.0.0/8', types = ['ipv6'] }", "dnn.x.types: \"ipv4\" needs ipv4-pool"),
        (
            "dnn.x = { ipv4-pool = '10.0.0.0/8', types = ['ppp'] }",
            "dnn.x.types.0: \"ppp\" is not allowed; allowed: ipv4, ipv6, ipv4v6",
        ),
        ("dnn.x = { ipv4-pool = '10.0.0.0/8', slices = ['s'] }", "dnn.x.slices: there is no [slice.s]"),
        ("dnn.x.ipv4-pool = '10.0.0.0/8'\ndnn.y.ipv4-pool = '10.9.0.0/16'", "dnn.y.ipv4-pool: overlaps that of dnn.x"),
        ("dnn.'a b'.ipv4-pool = '10.0.0.0/8'", "dnn.a b: a DNN is labels"),
        (
            "slice.a = { snssai = { sst = 1 }, slo = { calls = '1s' } }",
            "slice.a.slo.calls: there is no such kind; allow",
        ),
        ("slice.a = { snssai = { sst = 1 }, slo = { paging = '0s' } }", "slice.a.slo.paging: 1ms to 1m is allowed"),
        ("slice.a = { snssai = { sst = 1 }, limit = 0.0 }", "slice.a.limit: a part of a core is allowed"),
        (
            "slice.a = { snssai = { sst = 1 }, data-workers = 2, data-cores = [0] }",
            "slice.a.data-cores: as many processors as data-workers",
        ),
        ("slice.a = { snssai = { sst = 1 }, data-cores = [0, 0] }", "slice.a.data-cores: a processor is there twice"),
        ("slice.a = { snssai = { sst = 1 }, data-workers = 65 }", "slice.a.data-workers: all slices together have at"),
        (
            "slice.a = { snssai = { sst = 1 }, data-workers = 1 }\ndatapath.workers = 2",
            "slice.a.data-workers: the workers of slices take the place of datapath.workers",
        ),
        (
            "slice.a = { snssai = { sst = 1 }, data-workers = 1 }\ndatapath = { driver = 'xdp', interfaces = ['a'] }",
            "slice.a.data-workers: driver = \"xdp\" runs on processors",
        ),
        (
            "slice.a = { snssai = { sst = 1 }, data-cores = [0] }\ndatapath = { driver = 'af-xdp', interfaces = ['a'] }",
            "slice.a.data-workers: driver = \"af-xdp\" hands no packets",
        ),
        ("pools.key = 'slice'", "pools.key: \"slice\" is not allowed; allowed: slice,procedure, wildcard"),
        ("pools.nfs-per-worker = 65", "pools.nfs-per-worker: 1 to 64 is allowed"),
        ("pools.workers = 2", "pools.workers: only pools.key = \"wildcard\" has a number"),
        ("pools = { key = 'wildcard', workers = 250 }", "pools.workers: 1 to 249"),
        ("pools.idle = 17", "pools.idle: 0 to 16"),
        ("pools.cores = [0, 0]", "pools.cores: a processor is there twice"),
        ("pools.cores = [1024]", "pools.cores: numbers of processors are 0 to 1023"),
        ("pools.stopped-after = '1ms'", "pools.stopped-after: 5ms to 10000ms is allowed"),
        ("pools.stopped-after = '1s'", "pools.stuck-after: it is not less than pools.stopped-after"),
        ("steering.intra = 'maglev'", "steering.intra: \"maglev\" is not allowed; allowed: optimal, shortest-queue, "),
        ("state.ues = 0", "state.ues: 1 to 16777216 is allowed"),
        ("state.bytes = 1000", "state.bytes: so many UEs and packets need at least "),
        ("state.packets = 1", "state.packets: 256 to 524288 is allowed"),
        ("overload.start = 1.5", "overload.start: a part of the room is allowed: 0 to 1"),
        ("overload.stop = 0.5", "overload.stop: it is less than overload.start"),
        ("overload.others = 0.3", "overload.others: it is not less than overload.registrations"),
        ("overload.wait = '1ms'", "overload.wait: 10ms to 10s is allowed"),
        ("overload.back-off = '1s'", "overload.back-off: 2s to 186m is allowed"),
        ("host.slot = 32", "host.slot: 0 to 31 is allowed"),
        ("subscribers.cache-records = 1", "subscribers.cache-records: 1024 to 100000000 is allowed"),
        (
            "[[subscribers.home-network-key]]\nid = 1\nprofile = 'A'\nprivate = 'aa'",
            "subscribers.home-network-key.0: private: write 64 hex",
        ),
        ("api.listen = '9090'", "api.listen: \"9090\" is no address with a port"),
        ("core.plmns = [", "the file: TOML parse error at line 1, column 15: "),
    ] {
        assert!(problem(text).contains(expected), "{text}\n{}\n{expected}", problem(text));
    }
}

#[test]
fn wrong_peer_value_error_names_key_and_allowed() {
    for (text, expected) in [
        ("n2.driver = 'udp'", "n2.driver: \"udp\" is not allowed; allowed: auto, kernel, userspace-ip, userspace-udp"),
        ("n2.addresses = ['x']", "n2.addresses.0: \"x\" is no IP address"),
        ("n2.addresses = []", "n2.addresses: 1 to 8 addresses"),
        ("n2.port = 0", "n2.port: 1 to 65535 is allowed"),
        ("s1.port = 0", "s1.port: 1 to 65535 is allowed"),
        ("s1.udp-port = 9899", "s1.udp-port: a port other than n2.udp-port is allowed"),
        ("n2.max-associations-per-address = 0", "n2.max-associations-per-address: 1 to 4096 is allowed"),
        ("n2.setup-within = '0s'", "n2.setup-within: \"1s\" to \"1h\" is allowed"),
        ("n2.allow = [{ addresses = '10.0.0.1/8' }]", "n2.allow.0.addresses: \"10.0.0.1/8\" has bits behind"),
        (
            "n2.allow = [{ addresses = '10.0.0.0/33' }]",
            "n2.allow.0.addresses: \"10.0.0.0/33\" is no address or network",
        ),
        ("n2.allow = [{ addresses = '10.0.0.1', node-ids = [2, 1] }]", "n2.allow.0.node-ids: the first is greater"),
        ("n4.listen = '0.0.0.0:8805'", "n4.listen: UPFs need an address"),
        ("n4.allow = ['192.0.2.0/24']", "n4.allow: the UPF at 127.0.0.8:8805 is not in it: add its address"),
        ("n4.allow = ['192.0.2.1/24']", "n4.allow: \"192.0.2.1/24\" has bits behind its prefix"),
        ("upf.control-planes = ['smf']", "upf.control-planes.0: \"smf\" is no address or network"),
        ("upf.control-planes = [7]", "upf.control-planes.0: an address, a network, or { node-id"),
        (
            "upf.control-planes = [{ node-id = 'a b', addresses = ['192.0.2.1'] }]",
            "upf.control-planes.0.node-id: an address or a domain name is allowed",
        ),
        (
            "upf.control-planes = [{ node-id = 'smf', addresses = [] }]",
            "upf.control-planes.0.addresses: give the addresses",
        ),
        ("upf.associations.heartbeat-interval = '500ms'", "upf.associations.heartbeat-interval: 1s to 1h is allowed"),
        ("upf.associations.heartbeat-attempts = 0", "upf.associations.heartbeat-attempts: 1 to 10 is allowed"),
        ("upf.associations.keep-sessions = '40days'", "upf.associations.keep-sessions: 0s to 30days is allowed"),
        ("upf.associations.max = 0", "upf.associations.max: 1 to 4096 is allowed"),
        ("upf.associations.max-per-address = 300", "upf.associations.max-per-address: 1 to upf.associations.max"),
        ("upf.path-check = '5s'", "upf.path-check: \"60s\" or more"),
        ("upf.framed-routes = ['10.0.0.1/8']", "upf.framed-routes: networks like"),
        ("upf.framed-routes = ['10.0.0.0/31']", "upf.framed-routes: networks like"),
        ("upf.enabled = false", "upf.enabled: without an [[external-upf]]"),
        ("external-upf = [{ n4 = '1.2.3.4:8805', dnns = ['x'] }]", "external-upf.0.dnns: there is no [dnn.x]"),
    ] {
        assert!(problem(text).contains(expected), "{text}\n{}\n{expected}", problem(text));
    }
}

#[test]
fn half_open_limit_out_of_range_is_refused() {
    for (text, expected) in [
        ("half-open.max-ues = 0", "half-open.max-ues: 1 to 1000000 is allowed"),
        ("half-open.max-ues-per-address = 0", "half-open.max-ues-per-address: 1 to 1000000 is allowed"),
        ("half-open.max-ues-per-node = 1000001", "half-open.max-ues-per-node: 1 to 1000000 is allowed"),
        ("half-open.min-age = '99ms'", "half-open.min-age: 100ms to 60s is allowed"),
    ] {
        assert!(problem(text).contains(expected), "{text}\n{}\n{expected}", problem(text));
    }
}

#[test]
fn wrong_surface_key_is_refused() {
    for (text, expected) in [
        ("api.socket = 'run/a.sock'", "api.socket: \"auto\", \"off\" or an absolute path of at most 107"),
        (
            "state.database = 'redis://a:1'\nstate.tls = { authorities = 'ca' }",
            "state.tls: only connections to \"rediss",
        ),
        (
            "state.database = 'rediss://a:1'\nstate.tls = { key = 'k' }",
            "state.tls: certificate and key are needed, or neit",
        ),
        ("state.database = 'rediss://a:1/#insecure'", "state.database: a URL without a fragment (#) is allowed"),
        (
            "cluster.controller = '127.0.0.1:1'\ncluster.etcd = ['127.0.0.1:2']\ncluster.etcd-tls = { key = 'k' }",
            "cluster.etcd-tls: authorities are needed",
        ),
        ("cluster.etcd-tls = { authorities = 'ca' }", "cluster.etcd-tls: without cluster.etcd there is no etcd"),
        ("api.token-file = ''", "api.token-file: \"auto\" or a file is allowed"),
        ("api.host-names = ['core:9090']", "api.host-names: up to 16 host names without ports are allowed"),
    ] {
        assert!(problem(text).contains(expected), "{text}\n{}\n{expected}", problem(text));
    }
}

#[test]
fn unimplemented_values_are_refused_by_name() {
    for (text, key) in [
        ("pools.key = 'function'", "pools.key: \"function\" is not implemented in this release; allowed: \"slice,pro"),
        ("state.database = 'localhost'", "state.database: a URL is allowed"),
        (
            "state.location = 'redis-cluster'",
            "state.location: \"redis-cluster\" is not allowed; allowed: shm, memory, ",
        ),
        ("state.location = 'redis'\nstate.database = 'mongodb://a:1'", "state.database: it is of something else than"),
        ("state.preset = 'stateful'\nstate.database = 'shm:///x'", "state.database: it is of something else than"),
        ("state.preset = 'transactional'\nstate.database = 'shm:///x'", "state.preset: this preset stores contexts"),
        ("state.database = 'shm://x'", "state.database: a URL is allowed"),
        (
            "state.location = 'redis'\nstate.database = 'redis-cluster://'",
            "state.database: some nodes of the cluster are",
        ),
        ("state.location = 'redis'\nstate.confirm = 1", "state.confirm: only a Redis Cluster (state.database) has"),
        (
            "state.location = 'redis'\nstate.database = 'redis-cluster://a:1'\nstate.confirm = 6",
            "state.confirm: 0 to 5 is allowed",
        ),
        ("state.format = 'json'", "state.preset: without a database (state.location)"),
        ("state.preset = 'delete-create'\nstate.change = 'update'", "state.preset: \"delete-create\" deletes and"),
        (
            "state.location = 'redis'\nstate.scope = 'amf-smf'\nstate.carry = 'piggyback'",
            "state.preset: the AMF's records already contain",
        ),
        ("state.preset = 'shared-amf-smf'\nstate.change = 'replace'", "state.preset: network functions with a shared"),
        ("state.write = 'non-blocking'", "state.preset: without a database (state.location)"),
        (
            "state.preset = 'non-blocking'\nstate.persist = 'procedure'",
            "state.preset: this preset commits at each transaction",
        ),
        ("state.preset = 'procedural'\nstate.write = 'non-blocking'", "state.preset: non-blocking writes need a"),
        ("state.preset = 'non-blocking'\nstate.carry = 'piggyback'", "state.preset: the AMF waits for the write of"),
        ("state.preset = 'shared'\nstate.write = 'non-blocking'", "state.preset: network functions with a shared"),
        ("state.persist = 'procedure'", "state.preset: without a database (state.location)"),
        ("state.preset = 'transactional'\nstate.location = 'shm'", "state.preset: this preset stores contexts"),
        ("sbi.amf = []", "sbi.amf: 1 to 64 are allowed, each once"),
        ("sbi.listen = '127.0.0.1:1'", "sbi.listen: one of sbi.amf is allowed"),
        ("sbi.amf = ['127.0.0.1:1', '127.0.0.19:7777']", "sbi.smf: it is another address than sbi.amf"),
        ("state.key = 'a:b'", "state.key: 1 to 64 of the characters a-z"),
        ("replication.mode = 'warm'", "replication.mode: \"warm\" is not allowed; allowed: none, cold, hot"),
        ("replication.replicas = 3", "replication.replicas: 0 to 2 is allowed"),
        (
            "replication.mode = 'hot'\nstate.location = 'memory'",
            "replication.mode: contexts that are not in shared memory",
        ),
        ("steering.inter = 'best'", "steering.inter: \"best\" is not allowed; allowed: skewed-ch, consistent-hash, "),
        ("cluster.balancer = '0.0.0.0:7770'", "cluster.balancer: hosts find the balancer by it"),
        ("cluster.handover = 'balancer.sock'", "cluster.handover: an absolute path of 107 octets at most is allowed"),
        (
            "cluster.handover = '/b'\ncluster.tls = { certificate = 'c', key = 'k', authorities = 'a' }",
            "cluster.handover: connections with TLS end with their process",
        ),
        ("cluster.hosts = 17", "cluster.hosts: 1 to cluster.address-parts is allowed"),
        ("scaling.least = 4\nscaling.most = 2", "scaling.most: scaling.least and cluster.hosts to cluster.address-p"),
        ("scaling.least = 1\nscaling.low = 0.8", "scaling.high: above scaling.low to 1 is allowed"),
        ("scaling.least = 1\nstate.location = 'memory'", "scaling.least: hosts whose contexts are not in shared"),
        ("cluster.tls.key = 'k.pem'", "cluster.tls: certificate, key and authorities are needed, or none of them"),
        ("cluster.misses = 1", "cluster.misses: 2 to 100 is allowed"),
        ("cluster.misses = 41", "effects of the last 3s (2.05s, at most 2s is allowed); reduce one of both"),
        ("cluster.heartbeat = '501ms'", "cluster.misses: with cluster.heartbeat a dead host is detected too late to"),
        ("cluster.moves-at-once = 0", "cluster.moves-at-once: 1 to 4096 is allowed"),
        ("cluster.rebalance = 'even'", "cluster.rebalance: \"even\" is not allowed; allowed: equal, load"),
        (
            "cluster.rebalance = 'load'\nstate.location = 'memory'",
            "cluster.rebalance: hosts whose contexts are not in shared memory",
        ),
        (
            "cluster.rebalance = 'load'\ncluster.report = '1s'",
            "cluster.report: with cluster.rebalance = \"load\" at most 500ms",
        ),
        ("cluster.heartbeat = '1ms'", "cluster.heartbeat: 5ms to 10000ms is allowed"),
        ("slice.a = { snssai = { sst = 1 }, replicas = 3 }", "slice.a.replicas: 0 to 2 is allowed"),
        (
            "datapath.driver = 'memory'",
            "datapath.driver: \"memory\" is not implemented in this release; allowed: \"sock",
        ),
    ] {
        assert!(problem(text).contains(key), "{}", problem(text));
    }
    assert!(load("datapath.driver = 'sockets'").is_ok());
    assert!(load("cluster.misses = 40").is_ok(), "2 s until a host is declared dead");
}

#[test]
fn machine_label_has_no_spaces() {
    let machine = |text: &str| load(text).expect("sound").cluster.machine;
    assert_eq!(machine("cluster.machine = 'rack1-a'").map(String::from), Some("rack1-a".into()));
    assert_eq!((machine(""), machine("cluster.machine = ''")), (None, None));
    let expected = "cluster.machine: 1 to 64 printable ASCII characters without spaces are allowed, or \"\" for none";
    for label in ["rack 1".to_owned(), "m".repeat(65)] {
        let found = problem(&format!("cluster.machine = '{label}'"));
        assert!(found.contains(expected), "{found}");
    }
}

#[test]
fn wrong_share_or_worker_model_is_refused() {
    for (text, key) in [
        (
            "pools.worker-model = 'inline'\nstate.location = 'redis'",
            "pools.worker-model: only contexts in shared memory (state.location = \"shm\")",
        ),
        (
            "pools = { worker-model = 'inline', key = 'wildcard', workers = 2 }",
            "pools.workers: pools.worker-model = \"inline\" has no worker processes",
        ),
        (
            "pools = { worker-model = 'inline', cores = [0] }",
            "pools.cores: pools.worker-model = \"inline\" has no worker processes",
        ),
        (
            "slice.a = { snssai = { sst = 1 }, limit = 0.1, guarantee = 0.2 }",
            "slice.a.guarantee: 0 to slice.a.limit is allowed",
        ),
        (
            "slice.a = { snssai = { sst = 1 }, guarantee = 0.6 }\nslice.b = { snssai = { sst = 2 }, guarantee = 0.5 }",
            "slice: the guarantees of all slices exceed one core",
        ),
    ] {
        assert!(problem(text).contains(key), "{}", problem(text));
    }
}

#[test]
fn serving_hosts_are_chosen_as_configured() {
    let cluster = |text: &str| load(text).expect("sound").cluster;
    let chosen = cluster("steering = { serve = 'procedure', prefer = 'most-loaded' }\nreplication.mode = 'hot'");
    assert_eq!((chosen.serve, chosen.prefer), (Serve::Procedure, Preference::MostLoaded));
    let owner = cluster("steering.serve = 'owner'\nreplication.mode = 'hot'");
    assert_eq!((owner.serve, owner.prefer), (Serve::Owner, Preference::Spare));
    assert_eq!(cluster("replication.mode = 'hot'").serve, Serve::Procedure, "the default");
    let cannot = ["", "replication = { mode = 'hot', ack = 'none' }", "replication = { mode = 'hot', replicas = 0 }"];
    cannot.into_iter().for_each(|text| assert_eq!(cluster(text).serve, Serve::Owner, "replicas cannot serve: {text}"));
    for (text, key) in [
        ("steering.prefer = 'best'", "steering.prefer: \"best\" is not allowed; allowed: spare, most-loaded"),
        ("steering.serve = 'replica'", "steering.serve: \"replica\" is not allowed; allowed: procedure, owner"),
        (
            "steering.serve = 'procedure'",
            "(replication.mode = \"none\"); write \"hot\" and run a cluster, or write steering",
        ),
        (
            "steering.serve = 'procedure'\nreplication.mode = 'cold'",
            "steering.serve: replicas lack commits of procedures",
        ),
        (
            "steering.serve = 'procedure'\nreplication = { mode = 'hot', ack = 'none' }",
            "(replication.ack = \"none\"); write \"one\" or \"all\", or write steering.serve = \"owner\"",
        ),
        (
            "steering.serve = 'procedure'\nreplication = { mode = 'hot', replicas = 0 }",
            "steering.serve: no host has copies (replication.replicas = 0); write 1 or 2, or write steering.serve",
        ),
        (
            "steering.serve = 'procedure'\nstate.preset = 'transactional'",
            "steering.serve: contexts outside shared memory",
        ),
    ] {
        assert!(problem(text).contains(key), "{}", problem(text));
    }
}

#[test]
fn iot_slice_reaches_core_and_user_plane() {
    let text = "[slice.meters]\nsnssai = { sst = 3 }\nprofile = 'iot'\nreplicas = 0\n[slice.phones]\nsnssai = { sst = 1 }\n\
                [dnn.internet]\nipv4-pool = '10.45.0.0/16'\n[dnn.meters]\nipv4-pool = '10.46.0.0/16'\nslices = ['meters']";
    let config = load(text).expect("sound");
    assert_eq!(config.slices.iter().map(|slice| slice.replicas).collect::<Vec<_>>(), [0, 2], "as many as there are");
    let profiles: Vec<_> = config.core.slices.iter().map(|slice| (slice.name.as_str(), slice.profile)).collect();
    assert_eq!(profiles, [("meters", SliceProfile::Iot), ("phones", SliceProfile::Full)]);
    let meters = Some(Snssai { sst: 3, sd: None });
    let lean = LeanSlice { snssai: meters, dnns: vec!["meters".parse().expect("a DNN")], is_only_slice: false };
    assert_eq!(config.upf.expect("the embedded UPF").lean, [lean]);
    let alone = load("slice.a = { snssai = { sst = 3 }, profile = 'iot' }").expect("sound");
    assert_eq!(
        alone.upf.expect("the embedded UPF").lean,
        [LeanSlice { snssai: meters, dnns: vec![], is_only_slice: true }]
    );
    let toy = problem("slice.a = { snssai = { sst = 1 }, profile = 'toy' }");
    assert!(toy.contains("toy") && toy.contains("iot"), "{toy}");
}

#[test]
fn packet_driver_keys_are_converted() {
    let xdp = |text: &str| load(text).map(|config| config.upf.expect("the embedded UPF").xdp);
    assert_eq!(xdp(""), Ok(None));
    let config =
        xdp("datapath = { driver = 'xdp', interfaces = ['eth0', 'eth1'], mode = 'generic', next-hops = ['1.2.3.4'] }");
    let expected = XdpConfig {
        interfaces: vec!["eth0".into(), "eth1".into()],
        mode: XdpMode::Generic,
        next_hops: vec![Ipv4Addr::new(1, 2, 3, 4).into()],
        modules: vec![],
        nic_filters: false,
    };
    assert_eq!(config, Ok(Some(expected)));
    let config = load("datapath = { driver = 'af-packet', interfaces = ['a', 'b'], workers = 3, fanout = 'queue' }");
    let upf = config.expect("sound").upf.expect("the embedded UPF");
    let interfaces = vec!["a".into(), "b".into()];
    let expected = FramesConfig { interfaces, io: FrameIo::AfPacket(Fanout::Queue), ..FramesConfig::default() };
    assert_eq!((upf.frames, upf.workers, upf.xdp), (Some(expected), 3, None));
    let config = load("datapath = { driver = 'af-xdp', interfaces = ['a'], mode = 'generic', next-hops = ['::1'] }");
    let frames = config.expect("sound").upf.expect("the embedded UPF").frames.expect("a driver of frames");
    assert_eq!(frames.io, FrameIo::AfXdp(XdpMode::Generic));
    let upf = load("datapath.locking = 'shared-writer'").expect("sound").upf.expect("the embedded UPF");
    assert_eq!((upf.locking, upf.hot_users), (Locking::SharedWriter, 0));
    let upf = load("datapath.hot-users = 1000").expect("sound").upf.expect("the embedded UPF");
    assert_eq!(upf.hot_users, 1000);
    for (text, key) in [
        (
            "datapath.driver = 'xdp'",
            "datapath.interfaces: this driver needs the interfaces of N3 and N6, 1 to 16 names",
        ),
        ("datapath.interfaces = ['eth0']", "datapath.interfaces: driver = \"sockets\" has no interfaces"),
        ("datapath = { driver = 'xdp', interfaces = ['a/b'] }", "datapath.interfaces: a network device name"),
        ("datapath.next-hops = ['::1']", "datapath.next-hops: driver = \"sockets\" has no next hops"),
        (
            "datapath = { driver = 'xdp', interfaces = ['a'], next-hops = ['1.2.3.4', '1.2.3.5'] }",
            "datapath.next-hops: one address of each family",
        ),
        ("datapath.workers = 0", "datapath.workers: 1 to 64 is allowed"),
        (
            "datapath = { driver = 'xdp', interfaces = ['a'], locking = 'coarse' }",
            "datapath.locking: the program of driver = \"xdp\" takes no locks",
        ),
        (
            "datapath = { driver = 'xdp', interfaces = ['a'], hot-users = 9 }",
            "datapath.hot-users: the program of driver = \"xdp\" reads users where they are",
        ),
        ("datapath = { hot-users = 9, locking = 'coarse' }", "datapath.hot-users: users move between levels"),
        ("datapath.hot-users = 99999999", "datapath.hot-users: 0 (one level) to"),
        (
            "datapath = { driver = 'xdp', interfaces = ['a'], placement = 'processes' }",
            "datapath.placement: with driver = \"xdp\" the data workers are a program in the kernel",
        ),
        (
            "datapath = { driver = 'af-xdp', interfaces = ['a'], placement = 'processes' }",
            "datapath.placement: the frames of driver = \"af-xdp\"",
        ),
        ("datapath = { placement = 'processes', locking = 'coarse' }", "datapath.placement: a lock that a killed"),
        ("datapath = { placement = 'processes', hot-users = 9 }", "datapath.placement: the hot level"),
        ("datapath.rebalance = true", "datapath.rebalance: users go between the workers of their slice"),
        ("datapath.fanout = 'queue'", "datapath.fanout: only driver = \"af-packet\""),
        ("datapath = { driver = 'af-packet', interfaces = ['a'], nic-filters = true }", "datapath.nic-filters: only"),
        (
            "upf.nat = true\ndatapath = { driver = 'af-packet', interfaces = ['a'] }",
            "upf.nat: only \"sockets\" and \"xdp\"",
        ),
        (
            "upf.nat = true\ndatapath = { driver = 'xdp', interfaces = ['a'], next-hops = ['192.0.2.1'] }",
            "datapath.next-hops: with upf.nat",
        ),
    ] {
        assert!(problem(text).contains(key), "{}", problem(text));
    }
}

#[test]
fn modules_have_all_to_themselves() {
    let module = |number: usize, address: &str| {
        format!(
            "[[datapath.module]]\nn3-interface = 'n3-{number}'\nn3-address = '{address}'\nn6-interface = 'n6-{number}'\n\
             next-hops = ['198.51.100.{number}']\ncores = [{number}]\n"
        )
    };
    let two = module(0, "192.0.2.1") + &module(1, "192.0.2.2");
    let upf = load(&format!("datapath.driver = 'xdp'\n{two}")).expect("sound").upf.expect("the embedded UPF");
    assert_eq!(upf.n3, [Ipv4Addr::new(192, 0, 2, 1), Ipv4Addr::new(192, 0, 2, 2)]);
    let xdp = upf.xdp.expect("the driver");
    assert_eq!(xdp.interfaces, ["n3-0", "n6-0", "n3-1", "n6-1"]);
    assert_eq!((xdp.modules[1].interfaces.len(), &xdp.modules[1].cores[..]), (2, &[1][..]));
    for (text, key) in [
        (format!("datapath.driver = 'sockets'\n{two}"), "datapath.module: driver = \"sockets\" has no modules"),
        (format!("datapath.driver = 'xdp'\ndatapath.workers = 2\n{two}"), "datapath.module: modules have interfaces"),
        (format!("datapath.driver = 'xdp'\nupf.n3 = ['192.0.2.7']\n{two}"), "upf.n3: modules have N3 addresses"),
        (format!("datapath.driver = 'xdp'\nupf.nat = true\n{two}"), "datapath.next-hops: with upf.nat"),
        (format!("datapath.driver = 'xdp'\n{two}{}", module(1, "192.0.2.3")), "datapath.module.2.n3-interface: interf"),
        (
            format!("datapath.driver = 'xdp'\n{two}{}", module(2, "::1")),
            "datapath.module.2.n3-address: addresses of one",
        ),
    ] {
        assert!(problem(&text).contains(key), "{}", problem(&text));
    }
}

#[test]
fn all_problems_are_reported_at_once() {
    let text = "n2.port = 0\nhost.slot = 77\ncore.tacs = [0]";
    assert_eq!(load(text).expect_err("wrong").len(), 3);
    let error = ConfigError { source: "x.toml".into(), problems: load(text).expect_err("wrong") };
    assert!(error.to_string().starts_with("x.toml is wrong in 3 places:\n  n2.port: "), "{error}");
}

#[test]
#[allow(clippy::result_large_err, reason = "figment's")]
fn environment_overrides_file() {
    figment::Jail::expect_with(|jail| {
        jail.set_env("VIREO_CORE__TACS", "[5]");
        jail.set_env("VIREO_LOG__REVEAL_SUPI", "true");
        jail.set_env("VIREO_SOMETHING", "else");
        let file = parse("core.tacs = [1]\ncore.name = 'x'", environment()).expect("right");
        assert_eq!((file.core.tacs.as_slice(), file.core.name.as_str(), file.log.reveal_supi), (&[5][..], "x", true));
        jail.set_env("VIREO_CORE__TYPO", "1");
        assert!(parse("", environment()).expect_err("unknown")[0].contains("core.typo: there is no such key"));
        Ok(())
    });
}

#[test]
fn named_file_must_exist() {
    let error = Config::load(Some(Path::new("/no/such/vireo.toml"))).expect_err("absent").to_string();
    assert!(error.starts_with("/no/such/vireo.toml: the file cannot be read"), "{error}");
}
