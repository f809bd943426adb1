//! Checks of the configuration file, and conversion into plain structures.
//!
//! One run finds all problems of the file.

use crate::data_network;
use crate::file::{self, Dnn, File, MAX_TIMER, PacketDriver, SliceId};
use crate::problems::{Problems, addresses, is_domain, unique};
use crate::values::{DurationText, Prefix};
use crate::worker_process::DATA_WORKER;
use crate::{
    Config, SubscribersConfig, Written, access, alarms, cluster, home_network, keep, keys, log, n2, n4, network,
    paging, runtime, s1, shards, slices as user_plane, surfaces, traces,
};
use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use vireo_core::config::{
    Charging, CiotConfig, CoreConfig, DnnConfig, EmergencyNetworks, EpsConfig, KeyLifetime, NodeName, RanConfig,
    SecurityConfig, SliceConfig, SliceProfile, Timers, UpfConfig,
};
use vireo_ops::config::DATA_NETWORKS;
use vireo_ops::supervisor::Program;
use vireo_subscribers::UdmConfig;
use vireo_types::{Duration, PduSessionType, Snssai, Tac};
use vireo_upf::{
    DataSlice, Fanout, FrameIo, FramesConfig, LeanSlice, Locking, Module, Pool, UpfConfig as EmbeddedUpf, XdpConfig,
    XdpMode,
};
use vireo_wire::nas_eps::{NasGprsTimer, NasGprsTimer3};
use vireo_wire::security::{CipheringAlgorithm, IntegrityAlgorithm};

/// Key of user data over NAS.
const CONTROL_PLANE_DATA: &str = "core.ciot.control-plane-data";
/// Upper bound of PLMNs in a PLMN Support List (TS 38.413 9.2.6.2: maxnoofPLMNs).
const PLMNS: usize = 12;
/// Upper bound of slices in a Slice Support List (maxnoofSliceItems).
const SLICES: usize = 1024;
/// Upper bound of served tracking areas.
const TACS: usize = 1024;

/// Returns the checked configuration.
///
/// # Errors
///
/// Returns all problems of the file.
pub(super) fn config(file: &File) -> Result<Config, Vec<String>> {
    let mut problems = Problems::default();
    let written = Written::from_file(file);
    let file = &shards::with_cluster(file, &mut problems);
    let (slices, by_name) = slices(&file.slices(), &mut problems);
    let dnns = dnns(&file.dnns(), &by_name, &mut problems);
    let state = runtime::state(&file.state, &mut problems);
    let mut config = Config {
        n2: n2::n2(&file.n2, &file.s1, &mut problems),
        n4: n4::n4(file, &mut problems),
        api: surfaces::api(&file.api, &mut problems),
        webhook: alarms::webhook(&file.alarms, &mut problems),
        traces: traces::traces(&file.traces, &mut problems),
        slices: runtime::slices(&file.slices(), &slices, &mut problems),
        pools: runtime::pools(&file.pools, &file.steering, (slices.len(), state.location), &mut problems),
        shards: file.pools.shards,
        state_key: keys::state_key(&file.state, &state),
        keep: keep::keep(&file.state, &state, &mut problems),
        state,
        overload: runtime::overload(file, &mut problems),
        sbi: runtime::sbi(&file.sbi, &mut problems),
        cluster: cluster::cluster(file, &mut problems),
        upf: upf(
            &file.upf,
            &file.datapath,
            &user_plane::data(file, &slices, &dnns, &mut problems),
            &user_plane::lean(&slices, &dnns),
            &dnns,
            &mut problems,
        ),
        subscribers: subscribers(file, &mut problems),
        log: log::log(&file.log, &mut problems),
        written,
        core: core(file, slices, dnns, &mut problems),
    };
    shards::set_addresses(config.shards, &mut config.cluster);
    if let Some(upf) = &mut config.upf {
        // Both have UDP port 2152.
        let is_free = !config.core.ciot.control_plane || !upf.n3.contains(&config.core.n4_address);
        problems.check(is_free, CONTROL_PLANE_DATA, "n4.listen and upf.n3 need different addresses for it");
        let ran = [&config.n2.addresses[..], &config.n2.s1.addresses].concat();
        access::complete(file, &ran, upf, &mut problems);
    }
    problems.none_or(config)
}

fn core(file: &File, slices: Vec<SliceConfig>, dnns: Vec<DnnConfig>, problems: &mut Problems) -> CoreConfig {
    let core = &file.core;
    problems.check((1..=150).contains(&core.name.len()), "core.name", "1 to 150 characters are allowed");
    let plmns = unique(&core.plmns) && (1..=PLMNS).contains(&core.plmns.len());
    problems.check(plmns, "core.plmns", format!("1 to {PLMNS} different PLMNs are allowed, as in [\"99970\"]"));
    let tacs = unique(&core.tacs) && (1..=TACS).contains(&core.tacs.len());
    problems.check(tacs, "core.tacs", format!("1 to {TACS} different tracking areas are allowed, as in [1, 2]"));
    // TS 23.003 19.4.2.3: 0 and 0xfffffe mean "no TAC".
    let reserved = core.tacs.iter().all(|tac| (1..=0xff_fffd).contains(tac));
    problems.check(reserved, "core.tacs", "a tracking area code is 1 to 16777213");
    problems.check(core.amf.set < 1024, "core.amf.set", "0 to 1023 is allowed");
    problems.check(core.amf.pointer < 64, "core.amf.pointer", "0 to 63 is allowed");
    let listen = file.n4.listen;
    problems.check(
        !listen.ip().is_unspecified(),
        "n4.listen",
        "UPFs need an address of this machine, not 0.0.0.0 or ::",
    );
    problems.check(listen.port() != 0, "n4.listen", "the port is 1 to 65535; PFCP's is 8805");
    let emergency = EmergencyNetworks {
        nr: s1::emergency("n2.emergency-dnn", &file.n2.emergency_dnn, &dnns, problems),
        eps: s1::emergency("s1.emergency-dnn", &file.s1.emergency_dnn, &dnns, problems),
    };
    CoreConfig {
        name: core.name.clone(),
        plmns: core.plmns.clone(),
        tacs: core.tacs.iter().copied().map(Tac).collect(),
        amf_region: core.amf.region,
        amf_set: core.amf.set,
        amf_pointer: core.amf.pointer,
        relative_capacity: core.relative_capacity,
        slices,
        upfs: upfs(file, &dnns, problems),
        dnns,
        security: security(&core.security, problems),
        timers: Timers { t3346: file.overload.back_off.0, ..timers(&core.timers, problems) },
        paging: paging::paging(core, problems),
        ciot: ciot(file, problems),
        n4_address: listen.ip(),
        n4_node: n4_node(file, problems),
        ran: RanConfig {
            n2_endpoints: endpoints(&file.n2.endpoints, problems),
            forbids_rrc_inactive: !file.n2.rrc_inactive,
            requests_location: core.location_reports,
        },
        smf_is_remote: false,
        eps: EpsConfig { interworks: file.s1.is_served(), restricts_dcnr: !file.s1.dcnr, emergency },
        information: network::information(&core.network, problems),
    }
}

/// Returns the Node ID towards UPFs. The default is the address of the endpoint. With a configured
/// controller, several balancers may form one control plane. The default is then the name of their
/// SMF set (TS 29.244 5.22.2, TS 23.003 28.12).
fn n4_node(file: &File, problems: &mut Problems) -> NodeName {
    let address = NodeName::Address(file.n4.listen.ip());
    let named = match (file.n4.node_id.as_str(), file.core.plmns.first()) {
        ("auto", Some(plmn)) if !file.cluster.controller.all().is_empty() => {
            NodeName::domain(&format!("set1.smfset.5gc.mnc{:0>3}.mcc{}.3gppnetwork.org", plmn.mnc(), plmn.mcc()))
        }
        ("auto", _) => Some(address.clone()),
        (text, _) => match text.parse::<IpAddr>() {
            Ok(address) => (!address.is_unspecified()).then_some(NodeName::Address(address)),
            Err(_) => Some(text).filter(|name| is_domain(name)).and_then(NodeName::domain),
        },
    };
    problems.check(
        named.is_some(),
        "n4.node-id",
        "an address, a domain name or \"auto\" is allowed, the same for all balancers and hosts",
    );
    named.unwrap_or(address)
}

fn slices(
    slices: &BTreeMap<String, file::Slice>,
    problems: &mut Problems,
) -> (Vec<SliceConfig>, BTreeMap<String, Snssai>) {
    let mut by_name = BTreeMap::new();
    let mut configs: Vec<SliceConfig> = Vec::new();
    for (name, slice) in slices {
        let snssai = match snssai(&slice.snssai) {
            Ok(snssai) => snssai,
            Err(what) => {
                problems.add(format_args!("slice.{name}.snssai.sd"), what);
                continue;
            }
        };
        if let Some(other) = configs.iter().find(|c| c.snssai == snssai) {
            problems.add(format_args!("slice.{name}.snssai"), format_args!("slice.{} has this S-NSSAI", other.name));
        }
        by_name.insert(name.clone(), snssai);
        let profile = match slice.profile {
            file::Profile::Full => SliceProfile::Full,
            file::Profile::Iot => SliceProfile::Iot,
        };
        let charging = charging(name, slice, problems);
        configs.push(SliceConfig { name: name.clone(), snssai, profile, charging });
    }
    problems.check(configs.len() <= SLICES, "slice", format!("at most {SLICES} slices are allowed"));
    (configs, by_name)
}

/// Returns the usage reporting of a slice's sessions.
fn charging(name: &str, slice: &file::Slice, problems: &mut Problems) -> Charging {
    let every_s = slice.report_every.0.as_micros() / 1_000_000;
    let charging = Charging {
        every_s: u32::try_from(every_s).unwrap_or(u32::MAX),
        counted: slice.count_sessions,
        quota: Some(slice.session_quota).filter(|octets| *octets > 0),
    };
    let whole = slice.report_every.0.as_micros().is_multiple_of(1_000_000);
    problems.check(whole, &format!("slice.{name}.report-every"), "whole seconds are allowed, and \"0s\" for never");
    let simple = slice.profile == file::Profile::Iot && charging.is_on();
    problems.check(
        !simple,
        &format!("slice.{name}.profile"),
        "sessions of \"iot\" are not counted one by one: remove count-sessions, report-every and session-quota",
    );
    charging
}

/// The text is not a Slice Differentiator.
#[derive(Debug, thiserror::Error)]
#[error("{0:?} is not allowed: six hexadecimal digits, \"ffffff\" excepted; leave sd out for none")]
struct SdError(String);

fn snssai(id: &SliceId) -> Result<Snssai, SdError> {
    let Some(sd) = &id.sd else { return Ok(Snssai { sst: id.sst, sd: None }) };
    match Snssai::sd_from_hex(sd) {
        // TS 23.003 28.4.2: all ones mean that there is no SD.
        Some(value) if value != Snssai::NO_SD => Ok(Snssai { sst: id.sst, sd: Some(value) }),
        _ => Err(SdError(sd.clone())),
    }
}

fn dnns(dnns: &BTreeMap<String, Dnn>, slices: &BTreeMap<String, Snssai>, problems: &mut Problems) -> Vec<DnnConfig> {
    let mut configs: Vec<DnnConfig> = Vec::new();
    problems.check(dnns.len() <= DATA_NETWORKS, "dnn", format!("at most {DATA_NETWORKS} data networks are allowed"));
    for (name, dnn) in dnns {
        let key = |k: &str| format!("dnn.{name}.{k}");
        let parsed = match name.parse() {
            Ok(parsed) => parsed,
            Err(e) => {
                problems.add(format_args!("dnn.{name}"), e);
                continue;
            }
        };
        let (v4, v6) = (dnn.ipv4_pool.map(|n| (n.0, n.1)), dnn.ipv6_pool.map(|n| (n.0, n.1)));
        problems.check(v4.is_none_or(|(_, p)| (8..=30).contains(&p)), &key("ipv4-pool"), "/8 to /30 is allowed");
        problems.check(v6.is_none_or(|(_, p)| (16..=64).contains(&p)), &key("ipv6-pool"), "/16 to /64 is allowed");
        problems.check(v4.is_some() || v6.is_some(), &key("ipv4-pool"), "give this pool, or ipv6-pool, or both");
        problems.check((1280..=9000).contains(&dnn.mtu), &key("mtu"), "1280 to 9000 octets are allowed");
        for (what, servers) in [("dns", &dnn.dns), ("p-cscf", &dnn.p_cscf)] {
            problems.check(servers.len() <= 8, &key(what), "at most 8 servers are allowed");
        }
        let slices = dnn.slices.iter().filter_map(|s| {
            let found = slices.get(s).copied();
            if found.is_none() {
                problems.add(key("slices"), format_args!("there is no [slice.{s}]"));
            }
            found
        });
        let slices = slices.collect();
        let types = types(dnn, &key("types"), problems);
        configs.push(DnnConfig {
            name: parsed,
            slices,
            types,
            ipv4_pool: v4,
            ipv6_pool: v6,
            dns: dnn.dns.clone(),
            p_cscf: dnn.p_cscf.clone(),
            mtu: dnn.mtu,
            static_pools: data_network::static_pools(dnn, &key, problems),
            up_security: data_network::up_security(dnn),
        });
    }
    overlaps(dnns, problems);
    configs
}

/// Returns the session types: by default all that the pools allow, dual stack first.
fn types(dnn: &Dnn, key: &str, problems: &mut Problems) -> Vec<PduSessionType> {
    use PduSessionType::{Ipv4, Ipv4v6, Ipv6};
    let possible = match (dnn.ipv4_pool, dnn.ipv6_pool) {
        (Some(_), Some(_)) => vec![Ipv4v6, Ipv4, Ipv6],
        (Some(_), None) => vec![Ipv4],
        (None, _) => vec![Ipv6],
    };
    if dnn.types.is_empty() {
        return possible;
    }
    problems.check(unique(&dnn.types), key, "a type is there twice");
    let good = dnn.types.iter().all(|t| possible.contains(t));
    problems.check(good, key, "\"ipv4\" needs ipv4-pool, \"ipv6\" needs ipv6-pool, \"ipv4v6\" needs both");
    dnn.types.clone()
}

/// Checks that the address pools of data networks do not overlap.
fn overlaps(dnns: &BTreeMap<String, Dnn>, problems: &mut Problems) {
    let bits = |net: Prefix<std::net::Ipv4Addr>, prefix: u8| u64::from(u32::from(net.0)) >> (32 - prefix.min(32));
    let bits6 = |net: Prefix<std::net::Ipv6Addr>, prefix: u8| u128::from(net.0) >> (128 - prefix.clamp(1, 128));
    let all: Vec<_> = dnns.iter().collect();
    for (n, (name, a)) in all.iter().enumerate() {
        for (other, b) in &all[..n] {
            let v4 = a.ipv4_pool.zip(b.ipv4_pool).is_some_and(|(x, y)| bits(x, x.1.min(y.1)) == bits(y, x.1.min(y.1)));
            let v6 =
                a.ipv6_pool.zip(b.ipv6_pool).is_some_and(|(x, y)| bits6(x, x.1.min(y.1)) == bits6(y, x.1.min(y.1)));
            for (overlap, pool) in [(v4, "ipv4-pool"), (v6, "ipv6-pool")] {
                if overlap {
                    problems.add(format_args!("dnn.{name}.{pool}"), format_args!("overlaps that of dnn.{other}"));
                }
            }
        }
    }
}

/// Name of the embedded UPF.
const EMBEDDED: &str = "embedded";

fn upfs(file: &File, dnns: &[DnnConfig], problems: &mut Problems) -> Vec<UpfConfig> {
    let mut upfs = Vec::new();
    if file.upf.enabled {
        let n3_ipv6 = data_network::has_ipv6_n3(file);
        upfs.push(UpfConfig { name: EMBEDDED.to_owned(), n4: file.upf.n4, dnns: Vec::new(), n3_ipv6 });
    }
    for (n, upf) in file.external_upf.iter().enumerate() {
        let mut names = Vec::new();
        for name in &upf.dnns {
            match dnns.iter().find(|d| d.name.as_str() == name) {
                Some(dnn) => names.push(dnn.name.clone()),
                None => problems.add(format_args!("external-upf.{n}.dnns"), format_args!("there is no [dnn.{name}]")),
            }
        }
        let name = upf.name.clone().unwrap_or_else(|| upf.n4.to_string());
        let taken = upfs.iter().any(|other: &UpfConfig| other.name == name);
        problems.check(!taken, &format!("external-upf.{n}.name"), "another UPF has this name");
        let sound = name.chars().all(|c| c.is_ascii_alphanumeric() || "-_.:[]".contains(c)) && !name.is_empty();
        problems.check(sound, &format!("external-upf.{n}.name"), "letters, digits, -, _ and . are allowed");
        upfs.push(UpfConfig { name, n4: upf.n4, dnns: names, n3_ipv6: upf.n3_ipv6 });
    }
    let any = !upfs.is_empty();
    problems.check(any, "upf.enabled", "without an [[external-upf]] the embedded one must be enabled");
    upfs
}

fn security(security: &file::Security, problems: &mut Problems) -> SecurityConfig {
    let (key, what) = ("core.security.integrity", "NIA2, NIA1 and NIA3 are allowed, at least one, each once");
    let mut integrity = Vec::new();
    for name in &security.integrity {
        match name.as_str() {
            "NIA1" => integrity.push(IntegrityAlgorithm::NIA1),
            "NIA2" => integrity.push(IntegrityAlgorithm::NIA2),
            "NIA3" => integrity.push(IntegrityAlgorithm::NIA3),
            "NIA0" => problems.add(key, "NIA0 is refused: it protects nothing (TS 33.501 5.5.2)"),
            other => problems.add(key, format_args!("{other:?}: {what}")),
        }
    }
    problems.check(!security.integrity.is_empty() && unique(&security.integrity), key, what);
    let (key, what) = ("core.security.ciphering", "NEA2, NEA1, NEA3 and NEA0 are allowed, at least one, each once");
    let mut ciphering = Vec::new();
    for name in &security.ciphering {
        match name.as_str() {
            "NEA0" => ciphering.push(CipheringAlgorithm::NEA0),
            "NEA1" => ciphering.push(CipheringAlgorithm::NEA1),
            "NEA2" => ciphering.push(CipheringAlgorithm::NEA2),
            "NEA3" => ciphering.push(CipheringAlgorithm::NEA3),
            other => problems.add(key, format_args!("{other:?}: {what}")),
        }
    }
    problems.check(!security.ciphering.is_empty() && unique(&security.ciphering), key, what);
    SecurityConfig { integrity, ciphering, key_lifetime: key_lifetime(security, problems) }
}

fn key_lifetime(security: &file::Security, problems: &mut Problems) -> KeyLifetime {
    let (time, nas_count) = (security.key_lifetime.0, security.nas_count_limit);
    let fits = time == Duration(0) || (Duration::from_secs(1)..=MAX_TIMER).contains(&time);
    problems.check(fits, "core.security.key-lifetime", "0s, or 1s to 310h is allowed");
    let most = KeyLifetime::NAS_COUNT;
    let fits = (100..=most).contains(&nas_count);
    problems.check(fits, "core.security.nas-count-limit", format_args!("100 to {most} is allowed"));
    KeyLifetime { time, nas_count }
}

fn timers(t: &file::Timers, problems: &mut Problems) -> Timers {
    let mut span = |key: &str, span: DurationText, least: Duration, most: Duration| {
        let show = |d: Duration| humantime::format_duration(d.into()).to_string();
        let good = (least..=most).contains(&span.0);
        problems.check(
            good,
            &format!("core.timers.{key}"),
            format_args!("{} to {} is allowed", show(least), show(most)),
        );
        span.0
    };
    let (tick, hour) = (Duration::from_millis(100), Duration::from_secs(3600));
    let timers = Timers {
        t3512: span("t3512", t.t3512, Duration(0), MAX_TIMER),
        t3550: span("t3550", t.t3550, tick, hour),
        t3560: span("t3560", t.t3560, tick, hour),
        t3570: span("t3570", t.t3570, tick, hour),
        t3522: span("t3522", t.t3522, tick, hour),
        t3513: span("t3513", t.t3513, tick, hour),
        t3592: span("t3592", t.t3592, tick, hour),
        retransmissions: t.retransmissions,
        ran_response: span("ran-response", t.ran_response, tick, hour),
        implicit_deregistration: span("implicit-deregistration", t.implicit_deregistration, Duration(0), MAX_TIMER),
        t3402: t.t3402.0,
        t3447: t.t3447.0,
        ..Timers::default()
    };
    let is_sent = timers.t3512 == Duration(0) || timers.t3512 >= Duration::from_secs(2);
    problems.check(is_sent, "core.timers.t3512", "0s, or 2s and more, is allowed");
    check_t3402(timers.t3402, problems);
    check_t3447(timers.t3447, problems);
    problems.check(t.retransmissions <= 10, "core.timers.retransmissions", "0 to 10 is allowed");
    timers
}

/// Checks that GPRS timer encodes T3402 (TS 24.008 10.5.7.3).
fn check_t3402(span: Duration, problems: &mut Problems) {
    let seconds = span.as_secs();
    let exact = NasGprsTimer::from_seconds(seconds).is_ok() && span == Duration::from_secs(seconds);
    let what = "2s to 3h 6m is allowed: 1 to 31 times 2s, 1m or 6m";
    problems.check(exact && seconds > 0, "core.timers.t3402", what);
}

/// Checks that GPRS timer 3 encodes T3447 (TS 24.008 10.5.7.4a).
fn check_t3447(span: Duration, problems: &mut Problems) {
    let seconds = span.as_secs();
    let exact = NasGprsTimer3::from_seconds(seconds).is_ok() && span == Duration::from_secs(seconds);
    let what = "0s to 310h is allowed: 0 to 31 times 2s, 30s, 1m, 10m, 1h or 10h";
    problems.check(exact, "core.timers.t3447", what);
}

fn ciot(file: &File, problems: &mut Problems) -> CiotConfig {
    let file::Ciot { attach_without_pdn, control_plane_data } = file.core.ciot;
    let is_possible = !control_plane_data || file.n4.listen.is_ipv4();
    problems.check(is_possible, CONTROL_PLANE_DATA, "n4.listen needs an IPv4 address for it");
    CiotConfig { without_pdn: attach_without_pdn, control_plane: control_plane_data }
}

/// Returns the addresses announced to RAN nodes (TS 38.413 9.2.6.7: at most 32).
fn endpoints(addresses: &[IpAddr], problems: &mut Problems) -> Vec<IpAddr> {
    let usable = addresses.iter().all(|address| !address.is_unspecified() && !address.is_multicast());
    let good = usable && unique(addresses) && addresses.len() <= 32;
    let what = "up to 32 different addresses are allowed, at which RAN nodes reach this AMF on port 38412";
    problems.check(good, "n2.endpoints", what);
    addresses.to_vec()
}

const DEVICE_NAME: &str = "a network device name of 1 to 15 characters without / : and space is allowed";

fn is_device_name(name: &str) -> bool {
    (1..16).contains(&name.len()) && !name.contains(['/', ' ', ':'])
}

/// Checks the two-level tables (hot and cold) of users.
fn hot_users(datapath: &file::Datapath, problems: &mut Problems) {
    const KEY: &str = "datapath.hot-users";
    let file::Datapath { driver, locking, hot_users, .. } = datapath;
    if *hot_users == 0 {
        return;
    }
    problems.check(*hot_users <= 1 << 24, KEY, "0 (one level) to 16777216 is allowed");
    problems.check(
        *driver != PacketDriver::Xdp,
        KEY,
        "the program of driver = \"xdp\" reads users where they are: remove the key, or choose another driver",
    );
    let fine = *locking == file::Locking::Fine;
    problems.check(fine, KEY, "users move between levels with locking = \"fine\" alone: remove one of the keys");
}

/// Returns the program of data worker processes, if workers are processes.
fn processes(datapath: &file::Datapath, problems: &mut Problems) -> Option<Program> {
    const KEY: &str = "datapath.placement";
    if datapath.placement == file::Placement::Threads {
        return None;
    }
    let refused = match datapath.driver {
        PacketDriver::Xdp => Some(
            "with driver = \"xdp\" the data workers are a program in the kernel, which no process holds: only \"threads\" is \
             allowed",
        ),
        PacketDriver::AfXdp => Some(
            "the frames of driver = \"af-xdp\" lie in memory that ends with its process: only \"threads\" is allowed",
        ),
        _ if datapath.locking != file::Locking::Fine => {
            Some("a lock that a killed worker holds is held for ever: locking = \"fine\" alone goes with \"processes\"")
        }
        _ if datapath.hot_users > 0 => {
            Some("the hot level of users is not shared with processes: hot-users = 0 alone goes with \"processes\"")
        }
        PacketDriver::Sockets | PacketDriver::AfPacket => None,
    };
    problems.check(refused.is_none(), KEY, refused.unwrap_or_default());
    Some(Program::this([DATA_WORKER]))
}

/// Returns the configuration of the packet driver.
fn driver(datapath: &file::Datapath, problems: &mut Problems) -> (Option<XdpConfig>, Option<FramesConfig>) {
    const KEY: &str = "datapath.interfaces";
    let file::Datapath { driver, interfaces, mode, next_hops, fanout, workers, nic_filters, module, locking, .. } =
        datapath;
    hot_users(datapath, problems);
    problems.check(
        *driver != PacketDriver::Xdp || *locking == file::Locking::Fine,
        "datapath.locking",
        "the program of driver = \"xdp\" takes no locks: remove the key",
    );
    problems.check((1..=64).contains(workers), "datapath.workers", "1 to 64 is allowed");
    let other = *fanout == file::Fanout::Queue && *driver != PacketDriver::AfPacket;
    problems.check(!other, "datapath.fanout", "only driver = \"af-packet\" divides frames by it: remove the key");
    let nic_filters = *nic_filters;
    let by_queue = match driver {
        PacketDriver::Sockets => false,
        PacketDriver::AfPacket => *fanout == file::Fanout::Queue,
        PacketDriver::Xdp | PacketDriver::AfXdp => true,
    };
    problems.check(
        !nic_filters || by_queue,
        "datapath.nic-filters",
        "only \"xdp\", \"af-xdp\", and \"af-packet\" with fanout = \"queue\" go by the queues of network cards: remove the key",
    );
    if *driver == PacketDriver::Sockets {
        problems.check(interfaces.is_empty(), KEY, "driver = \"sockets\" has no interfaces: remove the key");
        let none = next_hops.is_empty();
        problems.check(none, "datapath.next-hops", "driver = \"sockets\" has no next hops: remove the key");
        problems.check(
            module.is_empty(),
            "datapath.module",
            "driver = \"sockets\" has no modules: choose another driver",
        );
        return (None, None);
    }
    let modules = modules(datapath, problems);
    let number = (1..=16).contains(&interfaces.len()) || !modules.is_empty();
    problems.check(number, KEY, "this driver needs the interfaces of N3 and N6, 1 to 16 names");
    problems.check(interfaces.iter().all(|name| is_device_name(name)), KEY, DEVICE_NAME);
    next_hops_of("datapath.next-hops", next_hops, problems);
    let of_modules = || modules.iter().flat_map(|module| module.interfaces.iter().cloned()).collect();
    let interfaces = if modules.is_empty() { interfaces.clone() } else { of_modules() };
    let next_hops = next_hops.clone();
    let mode = match mode {
        file::XdpMode::Native => XdpMode::Native,
        file::XdpMode::Generic => XdpMode::Generic,
    };
    let fanout = match fanout {
        file::Fanout::Hash => Fanout::Hash,
        file::Fanout::Queue => Fanout::Queue,
    };
    let io = match driver {
        PacketDriver::Xdp => return (Some(XdpConfig { interfaces, mode, next_hops, modules, nic_filters }), None),
        PacketDriver::AfXdp => FrameIo::AfXdp(mode),
        PacketDriver::AfPacket | PacketDriver::Sockets => FrameIo::AfPacket(fanout),
    };
    (None, Some(FramesConfig { interfaces, next_hops, io, modules, nic_filters }))
}

/// Checks that there is at most one next hop of each family.
fn next_hops_of(key: &str, next_hops: &[IpAddr], problems: &mut Problems) {
    let v4 = next_hops.iter().filter(|address| address.is_ipv4()).count();
    let unusable = next_hops.iter().any(|address| address.is_unspecified());
    let one = v4 < 2 && next_hops.len() - v4 < 2 && !unusable;
    problems.check(one, key, "one address of each family is allowed");
}

/// Returns the modules of the datapath.
fn modules(datapath: &file::Datapath, problems: &mut Problems) -> Vec<Module> {
    const KEY: &str = "datapath.module";
    let file::Datapath { interfaces, next_hops, workers, module, .. } = datapath;
    if module.is_empty() {
        return vec![];
    }
    let alone = interfaces.is_empty() && next_hops.is_empty() && *workers == 1;
    problems.check(
        alone,
        KEY,
        "modules have interfaces, next hops and cores of their own: remove `interfaces`, `next-hops` and `workers`",
    );
    problems.check(module.len() <= 8, KEY, "1 to 8 modules are allowed");
    for (number, one) in module.iter().enumerate() {
        let key = |name: &str| format!("{KEY}.{number}.{name}");
        let names = [("n3-interface", &one.n3_interface), ("n6-interface", &one.n6_interface)];
        for (name, interface) in names {
            problems.check(is_device_name(interface), &key(name), DEVICE_NAME);
        }
        next_hops_of(&key("next-hops"), &one.next_hops, problems);
        problems.check(one.cores.len() <= 64, &key("cores"), "up to 64 processors are allowed");
        let alike = one.n3_address.is_ipv4() == module[0].n3_address.is_ipv4();
        problems.check(
            alike,
            &key("n3-address"),
            "addresses of one family are allowed: a session may be of any module",
        );
        let before = || module[..number].iter();
        let own = before().all(|other| {
            let theirs = [&other.n3_interface, &other.n6_interface];
            other.n3_address != one.n3_address && names.iter().all(|(_, name)| !theirs.contains(name))
        });
        problems.check(own, &key("n3-interface"), "interfaces and an N3 address that no other module has are allowed");
    }
    let each = |one: &file::Module| {
        let mut interfaces = vec![one.n3_interface.clone(), one.n6_interface.clone()];
        interfaces.dedup();
        Module { n3: one.n3_address, interfaces, next_hops: one.next_hops.clone(), cores: one.cores.clone() }
    };
    module.iter().map(each).collect()
}

/// Returns the embedded UPF, which has the address pools of every data network.
fn upf(
    upf: &file::Upf,
    datapath: &file::Datapath,
    slices: &[DataSlice],
    lean: &[LeanSlice],
    dnns: &[DnnConfig],
    problems: &mut Problems,
) -> Option<EmbeddedUpf> {
    if !upf.enabled {
        return None;
    }
    let (xdp, frames) = driver(datapath, problems);
    let past =
        "only \"sockets\" and \"xdp\" go by the kernel's address translation: only false is allowed with other drivers";
    problems.check(!upf.nat || frames.is_none(), "upf.nat", past);
    let none = |xdp: &XdpConfig| xdp.next_hops.is_empty() && xdp.modules.iter().all(|one| one.next_hops.is_empty());
    let by_routes = !upf.nat || xdp.as_ref().is_none_or(none);
    problems.check(
        by_routes,
        "datapath.next-hops",
        "with upf.nat packets go by the kernel's routes: only [] is allowed",
    );
    problems.check(
        !(upf.nat && upf.host_routes),
        "upf.host-routes",
        "address translation is of one UPF of a machine: only false is allowed with upf.nat",
    );
    let n3 = match &datapath.module[..] {
        [] => addresses("upf.n3", &upf.n3, problems),
        modules => {
            let default = upf.n3 == file::Upf::default().n3;
            problems.check(default, "upf.n3", "modules have N3 addresses of their own: remove the key");
            modules.iter().map(|module| module.n3_address).collect()
        }
    };
    problems.check(is_device_name(&upf.tun), "upf.tun", DEVICE_NAME);
    problems.check(!upf.n4.ip().is_unspecified(), "upf.n4", "one address of this machine is allowed, not all of them");
    let sessions = (1..=1 << 24).contains(&upf.max_sessions);
    problems.check(sessions, "upf.max-sessions", "1 to 16777216 is allowed");
    // TS 29.281 7.2.1: Echo Requests at most once in 60 s.
    let seldom = upf.path_check.0 == Duration::from_secs(0) || upf.path_check.0 >= Duration::from_secs(60);
    problems.check(seldom, "upf.path-check", "\"60s\" or more is allowed, and \"0s\" for never");
    let pool = |d: &DnnConfig| Pool {
        dnn: d.name.clone(),
        ipv4: d.ipv4_pool,
        ipv6: d.ipv6_pool,
        mtu: d.mtu,
        dns: d.dns.clone(),
        isolated: false,
    };
    problems.check(
        !datapath.rebalance || !slices.is_empty(),
        "datapath.rebalance",
        "users go between the workers of their slice: give a slice data-workers, or remove the key",
    );
    Some(EmbeddedUpf {
        n4: upf.n4,
        n3,
        tun: upf.tun.clone(),
        pools: dnns.iter().map(pool).collect(),
        nat: upf.nat,
        host_routes: upf.host_routes,
        max_sessions: upf.max_sessions,
        framed: upf.framed_routes.iter().filter_map(|text| parse_framed_route(text, problems)).collect(),
        associations: n4::associations(upf, problems),
        path_check: (upf.path_check.0 != Duration::from_secs(0)).then(|| upf.path_check.0.into()),
        xdp,
        frames,
        locking: match datapath.locking {
            file::Locking::Fine => Locking::Fine,
            file::Locking::Coarse => Locking::Coarse,
            file::Locking::SharedWriter => Locking::SharedWriter,
        },
        hot_users: datapath.hot_users,
        workers: datapath.workers,
        processes: processes(datapath, problems),
        slices: slices.to_vec(),
        rebalance: datapath.rebalance,
        lean: lean.to_vec(),
        ..EmbeddedUpf::default()
    })
}

/// Parses a network behind a UE (framed route).
fn parse_framed_route(text: &str, problems: &mut Problems) -> Option<(IpAddr, u8)> {
    let network = match text.parse::<Prefix<Ipv4Addr>>() {
        Ok(Prefix(address, length)) => Some((address.into(), length)).filter(|_| (8..=30).contains(&length)),
        Err(_) => {
            let v6 = text.parse::<Prefix<Ipv6Addr>>().ok().filter(|net| (16..=64).contains(&net.1));
            v6.map(|Prefix(address, length)| (address.into(), length))
        }
    };
    let what =
        "networks like \"192.168.0.0/16\" are allowed: IPv4 /8 to /30, IPv6 /16 to /64, no bits after the prefix";
    problems.check(network.is_some(), "upf.framed-routes", what);
    network
}

fn subscribers(file: &File, problems: &mut Problems) -> SubscribersConfig {
    problems.check(file.host.slot < 32, "host.slot", "0 to 31 is allowed");
    let s = &file.subscribers;
    if let Err(what) = vireo_subscribers::check_location(&s.database) {
        problems.add("subscribers.database", what);
    }
    let records = (1024..=100_000_000).contains(&s.cache_records);
    problems.check(records, "subscribers.cache-records", "1024 to 100000000 is allowed");
    problems.check((1..=1_000_000).contains(&s.queue), "subscribers.queue", "1 to 1000000 is allowed");
    let threads = s.deconceal_threads.or(UdmConfig::default().deconceal_threads);
    problems.check(threads <= 1024, "subscribers.deconceal-threads", "1 to 1024 or \"auto\" is allowed");
    let (mut keys, mut key_files, mut seen) = (Vec::new(), Vec::new(), BTreeSet::new());
    for (n, entry) in s.home_network_key.iter().enumerate() {
        let place = format!("subscribers.home-network-key.{n}");
        match home_network::key(entry) {
            Ok(_) if !seen.insert((entry.id, entry.profile.to_ascii_uppercase())) => {
                problems.add(place, "another key has this id and profile");
            }
            Ok(Some(key)) => keys.push(key),
            Ok(None) => key_files.push((place, entry.clone())),
            Err(what) => problems.add(place, what),
        }
    }
    let udm = UdmConfig {
        cache_records: s.cache_records,
        preload: s.preload,
        deconceal_threads: threads,
        queue: s.queue,
        ind: file.host.slot & 31,
        home_network_keys: keys,
        authentication_method: s.authentication_method,
    };
    let key_file = (!s.key_file.is_empty()).then(|| s.key_file.clone().into());
    SubscribersConfig { database: s.database.clone(), key_file, udm, key_files }
}
