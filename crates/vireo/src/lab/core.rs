//! The core in the laboratory: `vireo run` as a process of its own with a configuration and subscribers made for it.

mod chain;
mod cluster;
pub(crate) mod etcd;

pub(crate) use cluster::ClusterReadiness;

use super::fabric::{self, NodeRole};
use super::members::{ClusterProcess, HostFault};
use super::process::{self, Process};
use super::{API_TOKEN, CORE, Interrupt, Lab, has_ipv6};
use crate::cli::Failure;
use crate::client::Api;
use crate::slice;
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::time::{Duration, Instant};
use vireo_node::api::{Counts, HostStatus, SlicesStatus, Status, UpfStatus};
use vireo_node::sbi::Encoding;
use vireo_subscribers::{OnExisting, Store, Subscriber, key_source};
use vireo_types::Supi;

/// The first of the lab's subscribers; the others follow it.
pub(crate) const FIRST_IMSI: &str = "999700000000001";
/// K of all of them.
pub(crate) const K: &str = "465B5CE8B199B49FAA5F0A2EE238A6BC";
/// OPc of all of them.
pub(crate) const OPC: &str = "E8ED289DEBA952E4283B54E88E6183CA";
/// Addresses of UEs.
pub(crate) const UE_NETWORKS: [&str; 2] = ["10.45.0.0/16", "fd45::/48"];

/// So many processes that are not optimised may be congested for a moment, and hosts that are dead are given longer: that UEs
/// are told so, and wait for a minute, is right, and not what is looked at.
pub(crate) const UNSHED: &str = "[overload]\nwait = \"10s\"\nstart = 1.0\nregistrations = 1.0\nothers = 1.0\n";

/// A key pair of the home network: the published examples of TS 33.501 C.4, which protect nothing.
#[derive(Debug)]
pub(crate) struct HnKey {
    /// Home network public key identifier.
    pub(crate) id: u8,
    /// `A` or `B`.
    pub(crate) profile: char,
    /// The emulator's scenario whose UEs use it.
    pub(crate) scenario: &'static str,
    private: &'static str,
    /// What UEs have.
    pub(crate) public: &'static str,
}

/// One for each profile.
pub(crate) const HN_KEYS: [HnKey; 2] = [
    HnKey {
        id: 1,
        profile: 'A',
        scenario: "profile-a",
        private: "c53c22208b61860b06c62e5406a7b330c2b577aa5558981510d128247d38bd1d",
        public: "5a8d38864820197c3394b92613b20b91633cbd897119273bf8e4a6f4eec0a650",
    },
    HnKey {
        id: 2,
        profile: 'B',
        scenario: "profile-b",
        private: "f1ab1074477ebcc7f554ea1c5fc368b1616730155e0041ac447d6301975fecda",
        public: "0272da71976234ce833a6907425867b82e074d44ef907dfb4b3e21c1c2256ebcd1",
    },
];

/// In the laboratory's own `/tmp`.
pub(crate) const CONFIG: &str = "/tmp/vireo.toml";
const UPF_CONFIG: &str = "/tmp/vireo-upf.toml";
const DATABASE: &str = "/tmp/vireo.db";
/// Where functions of a chain find what the ones before have left in shared memory, if they keep it there.
pub(crate) const RECORDS: &str = "/tmp/records";
/// What seals them.
pub(crate) const STATE_KEY: &str = "/tmp/vireo-state.key";
pub(crate) const API: &str = "http://127.0.0.1:9090";
/// Where hosts find the balancer.
pub(super) const FABRIC_PORT: u16 = 7770;
/// UEs that are asked for in one go.
const UES: usize = 1000;
const START_WITHIN: Duration = Duration::from_secs(20);
/// Lines of a log that are shown when its process failed.
pub(super) const LAST_WORDS: usize = 15;

/// The slice of a laboratory that says nothing else.
const SLICES: &str = "[slice.default]\nsnssai = { sst = 1 }\n";

/// What differs between laboratories.
#[derive(Clone, Debug)]
pub(crate) struct CoreOptions {
    /// Subscribers to provision.
    pub(crate) subscribers: u64,
    /// NAS ciphering algorithms, the preferred first.
    pub(crate) ciphering: Vec<String>,
    /// The tables of the slices, as the configuration has them.
    pub(crate) slices: String,
    /// Further tables of the configuration.
    pub(crate) tables: String,
    /// Further keys of `[upf]`.
    pub(crate) upf: String,
    /// IPv4 addresses of UEs. The data network has a way back only to those of [`UE_NETWORKS`].
    pub(crate) ipv4_pool: &'static str,
    /// The processors that it runs on; empty = all.
    pub(crate) processors: Vec<usize>,
    /// From which subscriber on they are in another slice than SST 1, and its SST.
    pub(crate) other_slice: Option<(u64, u8)>,
    /// Hosts behind a balancer; 0 = the whole core as one process.
    pub(crate) hosts: usize,
    /// Further hosts, which are joined and wait; such a cluster's hosts leave when they are needed no more.
    pub(crate) idle: usize,
    /// The part of a processor that each host has at the most.
    pub(crate) host_part: Option<f64>,
    /// Balancers of a cluster as an operator runs one: each in a namespace of its own, with a controller and etcd; the core's
    /// namespace is that of a user plane that is a process of its own. 0 = one, in the core's, which is the controller, too.
    pub(crate) balancers: u8,
    /// AMF, SMF and UPF as processes of their own, which talk over the service-based interface and N4.
    pub(crate) chain: bool,
    /// AMFs of such a chain behind a balancer; 0 = one, with N2 itself.
    pub(crate) amfs: u8,
    /// The UPF's database, where that is not the others'.
    pub(crate) database_of_upf: Option<String>,
    /// How its functions say what they ask each other.
    pub(crate) encoding: Encoding,
    /// Whether they do so in TLS, by certificates that are made for that.
    pub(crate) secured: bool,
}

impl Default for CoreOptions {
    fn default() -> Self {
        CoreOptions {
            subscribers: 1,
            ciphering: vec!["NEA2".into()],
            slices: SLICES.into(),
            tables: String::new(),
            upf: String::new(),
            ipv4_pool: UE_NETWORKS[0],
            processors: Vec::new(),
            other_slice: None,
            hosts: 0,
            idle: 0,
            host_part: None,
            balancers: 0,
            chain: false,
            amfs: 0,
            database_of_upf: None,
            encoding: Encoding::default(),
            secured: false,
        }
    }
}

/// A running core.
#[derive(Debug)]
pub(crate) struct Core {
    /// The process in its namespace: the whole core, or the balancer of a cluster, or the user plane of one whose balancers
    /// have namespaces of their own.
    pub(crate) process: Process,
    /// These balancers, by their seats, with their controller and its etcd.
    balancers: Vec<ClusterProcess>,
    controller: Option<ClusterProcess>,
    etcd: Option<ClusterProcess>,
    /// The hosts behind a balancer, by their seats.
    hosts: Vec<ClusterProcess>,
    /// Of a service-based chain: those besides the AMF.
    functions: Vec<chain::Function>,
    /// Two of them that have no link.
    cut: Option<[usize; 2]>,
    options: CoreOptions,
    log: File,
}

impl Core {
    /// Provisions, configures and starts it, and waits until it is ready. Its log goes to `log`.
    pub(crate) fn start(lab: &Lab, options: &CoreOptions, log: File, interrupt: &Interrupt) -> Result<Self, Failure> {
        prepare(options)?;
        let (role, file) = match (options.hosts, options.balancers) {
            (0, _) if options.amfs > 0 => ("balancer", CONFIG),
            (0, _) if options.chain => ("amf", CONFIG),
            (0, _) => ("run", CONFIG),
            (_, 0) => ("balancer", CONFIG),
            _ => ("upf", UPF_CONFIG),
        };
        if options.hosts > 0 {
            // The fabric comes with the first seat, and whoever is in the core's namespace listens on it.
            lab.seat(NodeRole::Host(0))?;
        }
        let functions = if options.chain { chain::Function::start_all(lab, options, &log)? } else { Vec::new() };
        let mut command = Process::this_program();
        command.args([role, "--config", file]).env("VIREO_API__LISTEN", address(API));
        // It begins without contexts, as the directory is made anew.
        command.env("VIREO_STATE__KEEP_DIRECTORY", RECORDS);
        command.args((options.amfs > 0).then_some("--n2-only"));
        command.envs(chain::environment(options, role));
        let output = log.try_clone()?;
        let start = || Process::start("core", &lab.core, &mut command, Some(output));
        let process = process::on_processors(&options.processors, start)??;
        let (balancers, hosts, options) = (Vec::new(), Vec::new(), options.clone());
        let mut core =
            Core { process, balancers, controller: None, etcd: None, hosts, functions, cut: None, options, log };
        match core.start_members(lab, interrupt) {
            Ok(()) => Ok(core),
            Err(error) => Err(Failure(format!("{error}\n{}", core.last_words(LAST_WORDS)))),
        }
    }

    fn start_members(&mut self, lab: &Lab, interrupt: &Interrupt) -> Result<(), Failure> {
        if self.options.balancers > 0 {
            self.start_balancers(lab, interrupt)?;
        }
        for _ in 0..self.options.hosts + self.options.idle {
            self.start_host(lab)?;
        }
        self.start_amfs(lab)?;
        let hosts = self.options.hosts.max(self.options.amfs.into());
        self.wait(interrupt, "the core is not ready", |core| core.is_ready(hosts))
    }

    /// Waits until something is so.
    fn wait(&mut self, interrupt: &Interrupt, not: &str, is_so: impl Fn(&Core) -> bool) -> Result<(), Failure> {
        let deadline = Instant::now() + START_WITHIN;
        while !is_so(self) {
            self.check()?;
            interrupt.check()?;
            if Instant::now() > deadline {
                return Err(Failure(format!("{not} after {START_WITHIN:?}")));
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        Ok(())
    }

    fn start_host(&mut self, lab: &Lab) -> Result<usize, Failure> {
        let number = self.hosts.len();
        let place = NodeRole::Host(u8::try_from(number)?);
        self.hosts.push(ClusterProcess::start(lab, place, &self.options, self.log_of(place)?)?);
        Ok(number)
    }

    /// Starts one more host, which joins some time later, and waits until it can be asked how it is; its number here.
    pub(crate) fn add_host(&mut self, lab: &Lab) -> Result<usize, Failure> {
        let number = self.start_host(lab)?;
        let deadline = Instant::now() + START_WITHIN;
        while self.host(number)?.status().is_err() {
            self.check()?;
            if Instant::now() > deadline {
                return Err(Failure(format!("a host that was added is not ready after {START_WITHIN:?}")));
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        Ok(number)
    }

    /// Tells a host of a cluster to leave it.
    pub(crate) fn let_host_leave(&mut self, host: usize) -> Result<(), Failure> {
        self.hosts.get_mut(host).ok_or_else(|| Failure("there is no such host".into()))?.leave()
    }

    /// How many UEs it holds registered, as it says itself.
    pub(crate) fn registered(&self) -> Result<usize, Failure> {
        Ok(self.counts()?.registered)
    }

    /// Whether RAN nodes are served.
    fn is_ready(&self, hosts: usize) -> bool {
        self.overview().is_ok_and(|status| status.hosts.len() == hosts)
            && self.hosts.iter().all(ClusterProcess::is_up)
            && self.is_chain_ready()
    }

    /// CPU time of all its processes that are there.
    pub(crate) fn cpu(&self) -> Result<Duration, Failure> {
        let mut cpu = self.process.cpu()? + self.cpu_of_functions()?;
        for member in self.members().filter(|member| member.is_healthy()) {
            cpu += member.cpu()?;
        }
        Ok(cpu)
    }

    /// CPU time of each host of a cluster, its workers' among it.
    pub(crate) fn cpu_by_host(&self) -> Result<Vec<Duration>, Failure> {
        self.hosts.iter().map(ClusterProcess::cpu).collect()
    }

    /// CPU time of the threads by which a cluster's hosts send copies to each other and keep others'.
    pub(crate) fn cpu_of_copies(&self) -> Result<Duration, Failure> {
        self.hosts.iter().map(ClusterProcess::cpu_of_copies).sum()
    }

    /// How many of everything it holds; in a cluster of each host that is there, but RAN nodes, which all hosts know.
    pub(crate) fn counts(&self) -> Result<Counts, Failure> {
        if self.hosts.is_empty() && self.options.amfs == 0 {
            return Ok(self.overview()?.counts);
        }
        let mut all = self.counts_of_amfs()?;
        for host in self.hosts.iter().filter(|host| host.is_healthy()) {
            all.push(host.status()?.counts);
        }
        let mut sum = Counts::default();
        for Counts { gnbs, ues, registered, connected, sessions } in all {
            sum.gnbs = sum.gnbs.max(gnbs);
            sum.ues += ues;
            sum.registered += registered;
            sum.connected += connected;
            sum.sessions += sessions;
        }
        Ok(sum)
    }

    /// UEs that each host of a cluster holds registered, or each of several AMFs.
    pub(crate) fn registered_by_host(&self) -> Result<Vec<usize>, Failure> {
        if self.options.amfs > 0 {
            return Ok(self.counts_of_amfs()?.into_iter().map(|counts| counts.registered).collect());
        }
        let of = |host: &ClusterProcess| Ok(if host.is_healthy() { host.status()?.counts.registered } else { 0 });
        self.hosts.iter().map(of).collect()
    }

    /// Hosts of a cluster that have a part in its work.
    pub(crate) fn hosts_at_work(&self) -> Result<usize, Failure> {
        Ok(self.overview()?.hosts.len())
    }

    /// The host of a cluster that holds the most UEs.
    pub(crate) fn busiest_host(&self) -> Result<usize, Failure> {
        let all = self.registered_by_host()?;
        let most = all.iter().enumerate().max_by_key(|(_, ues)| **ues);
        most.map(|(host, _)| host).ok_or_else(|| Failure("the core is one process: it has no hosts".into()))
    }

    /// What a cluster's controller says of a host, while it is in the map.
    pub(crate) fn host_status(&self, host: usize) -> Result<Option<HostStatus>, Failure> {
        let Some(host) = self.hosts.get(host) else { return Ok(None) };
        Ok(self.map()?.hosts.into_iter().find(|entry| host.has(&entry.address)))
    }

    /// Lets something befall a host of a cluster; from then on it is not counted on.
    pub(crate) fn fail_host(&mut self, host: usize, fate: HostFault) -> Result<(), Failure> {
        self.host(host)?.inject_fault(fate)
    }

    /// Ends what befell a host, if that has an end.
    pub(crate) fn recover_host(&mut self, host: usize) -> Result<(), Failure> {
        self.host(host)?.recover()
    }

    /// Whether a host has ended.
    pub(crate) fn has_host_ended(&mut self, host: usize) -> Result<bool, Failure> {
        self.host(host)?.has_ended()
    }

    fn host(&mut self, host: usize) -> Result<&mut ClusterProcess, Failure> {
        self.hosts.get_mut(host).ok_or_else(|| Failure("there is no such host".into()))
    }

    /// What its user plane has counted.
    pub(crate) fn user_plane(&self) -> Result<UpfStatus, Failure> {
        let status = self.user_plane_of_chain().unwrap_or_else(|| self.overview())?;
        status.upfs.into_iter().next().ok_or_else(|| Failure("the core has no UPF".into()))
    }

    /// Waits until all its UPFs are associated.
    pub(crate) fn wait_for_upfs(&self, interrupt: &Interrupt) -> Result<(), Failure> {
        let deadline = Instant::now() + START_WITHIN;
        loop {
            if self.overview()?.upfs.iter().all(|upf| upf.associated) {
                return Ok(());
            }
            interrupt.check()?;
            if Instant::now() > deadline {
                return Err(Failure(format!("a UPF is not associated after {START_WITHIN:?}")));
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// Orders the move of a subscriber's sessions to another UPF; whether there is such a UE.
    pub(crate) fn relocate(&self, supi: &str, upf: &str) -> Result<bool, Failure> {
        slice::order_relocation(&self.api()?, supi, upf)
    }

    /// Sessions that have come to another UPF and been let go by the one before.
    pub(crate) fn relocated(&self) -> Result<u64, Failure> {
        self.labelled(r#"vireo_procedure_total{procedure="relocation",result="success",cause=""}"#)
    }

    /// Octets that sessions have carried, uplink and downlink, as its UPFs have reported.
    pub(crate) fn carried(&self) -> Result<[u64; 2], Failure> {
        let of = |direction| self.labelled(&format!("vireo_session_octets_total{{direction={direction:?}}}"));
        Ok([of("uplink")?, of("downlink")?])
    }

    fn labelled(&self, name: &str) -> Result<u64, Failure> {
        let text = self.api()?.fetch("/metrics")?;
        Ok(text.lines().find_map(|line| line.strip_prefix(name)?.trim().parse().ok()).unwrap_or(0))
    }

    /// Its status interface; of a cluster, its balancer's.
    fn url(&self) -> &str {
        self.balancers.iter().find(|balancer| balancer.is_healthy()).map_or(API, ClusterProcess::api)
    }

    fn api(&self) -> Result<Api, Failure> {
        super::api(self.url())
    }

    /// What it says of itself; of a cluster, what its balancer does.
    fn overview(&self) -> Result<Status, Failure> {
        Ok(serde_json::from_str(&self.api()?.fetch("/status?limit=0")?)?)
    }

    /// Some of its UEs, from a number on, and how many it has in all.
    pub(crate) fn ues(&self, offset: usize) -> Result<Status, Failure> {
        let page = format!("/status?offset={offset}&limit={UES}&reveal_supi=true");
        Ok(serde_json::from_str(&self.api()?.fetch(&page)?)?)
    }

    /// Has a user moved; whether it had another worker before. `None` if nobody has the address any more.
    pub(crate) fn move_user(&self, address: &str, to: &str) -> Result<Option<bool>, Failure> {
        Ok(slice::move_user(&self.api()?, address, to)?.map(|moved| moved.moved > 0))
    }

    /// The slices of its user plane.
    pub(crate) fn slices(&self) -> Result<SlicesStatus, Failure> {
        slice::slices(&self.api()?)
    }

    /// Its metrics without labels, by name.
    pub(crate) fn metrics(&self) -> Result<BTreeMap<String, f64>, Failure> {
        Ok(plain_metrics(&self.api()?.fetch("/metrics")?))
    }

    /// Fails if it has ended.
    pub(crate) fn check(&mut self) -> Result<(), Failure> {
        self.functions.iter_mut().try_for_each(chain::Function::check)?;
        let parts = self.controller.iter_mut().chain(&mut self.etcd);
        self.hosts.iter_mut().chain(&mut self.balancers).chain(parts).try_for_each(ClusterProcess::check)?;
        match self.process.ended()? {
            None => Ok(()),
            Some(status) => {
                let words = self.process.last_words(LAST_WORDS);
                Err(Failure(format!("the core ended early ({status}); its last words:\n{words}")))
            }
        }
    }

    /// Ends it in good order; anything but exit code 0 is a failure.
    pub(crate) fn stop(mut self) -> Result<(), Failure> {
        self.check()?;
        std::mem::take(&mut self.hosts).into_iter().try_for_each(ClusterProcess::stop)?;
        std::mem::take(&mut self.balancers).into_iter().try_for_each(ClusterProcess::stop)?;
        if self.options.amfs > 0 {
            self.stop_amfs()?;
        }
        // etcd is killed in the end: it keeps nothing.
        self.controller.take().map_or(Ok(()), ClusterProcess::stop)?;
        let status = self.process.terminate()?;
        if status.success() {
            // After the AMF; the UPF after the SMF.
            return std::mem::take(&mut self.functions).into_iter().rev().try_for_each(chain::Function::stop);
        }
        let words = self.process.last_words(LAST_WORDS);
        Err(Failure(format!("the core did not end in good order ({status}); its last words:\n{words}")))
    }
}

/// Where the user plane has N4 that is a process of its own.
fn upf_n4() -> String {
    format!("{}:8805", fabric::CORE)
}

/// The balancers, which are one control plane, of the Node ID that `n4.node-id = "auto"` gives them.
fn control_planes() -> String {
    let all: Vec<_> = (0..8).map(|seat| NodeRole::Balancer(seat).address().to_string()).collect();
    format!("[{{ node-id = \"set1.smfset.5gc.mnc070.mcc999.3gppnetwork.org\", addresses = {all:?} }}]")
}

fn ipv6_pool() -> String {
    if has_ipv6() { format!("ipv6-pool = {:?}", UE_NETWORKS[1]) } else { String::new() }
}

/// What a URL leads to.
fn address(url: &str) -> &str {
    url.trim_start_matches("http://")
}

/// The metrics without labels of a text in Prometheus' format.
pub(crate) fn plain_metrics(text: &str) -> BTreeMap<String, f64> {
    let plain = text.lines().filter(|line| !line.starts_with('#') && !line.contains('{'));
    let pairs = plain.filter_map(|line| line.split_once(' '));
    pairs.filter_map(|(name, value)| Some((name.to_owned(), value.trim().parse().ok()?))).collect()
}

/// Makes the subscribers and [`CONFIG`].
pub(crate) fn prepare(options: &CoreOptions) -> Result<(), Failure> {
    provision(options)?;
    // Nobody was before.
    if fs::exists(RECORDS)? {
        fs::remove_dir_all(RECORDS)?;
    }
    fs::create_dir(RECORDS)?;
    if options.balancers > 0 {
        let pools = format!("ipv4-pool = {:?}\n{}", UE_NETWORKS[0], ipv6_pool());
        let (n4, peers) = (upf_n4(), control_planes());
        let upf = format!("[upf]\nn4 = {n4:?}\nn3 = [\"{CORE}\"]\ncontrol-planes = {peers}\n");
        fs::write(UPF_CONFIG, format!("{upf}\n[dnn.internet]\n{pools}\n"))?;
    }
    if options.secured {
        chain::certify()?;
    }
    Ok(fs::write(CONFIG, config(options))?)
}

fn provision(options: &CoreOptions) -> Result<(), Failure> {
    let first: Supi = FIRST_IMSI.parse()?;
    let one = Subscriber::new(first, K.parse()?, OPC.parse()?);
    let subscriber = |n: u64| {
        let mut subscriber = Subscriber { supi: first.offset(n)?, ..one.clone() };
        if let Some((_, sst)) = options.other_slice.filter(|(from, _)| n >= *from) {
            subscriber.subscription.slices.iter_mut().for_each(|slice| slice.snssai.sst = sst);
        }
        Ok(subscriber)
    };
    let all: Vec<Subscriber> = (0..options.subscribers).map(subscriber).collect::<Result<_, Failure>>()?;
    Store::open(DATABASE, key_source(DATABASE, None))?.import(&all, OnExisting::Replace, &mut |_| ())?;
    Ok(())
}

/// The configuration of a core, as a file has it.
pub(crate) fn config(options: &CoreOptions) -> String {
    let ciphering: Vec<String> = options.ciphering.iter().map(|c| format!("{c:?}")).collect();
    let apart = options.balancers > 0;
    let (n2, balancer) = match apart {
        true => (fabric::n2(0), NodeRole::Balancer(0).address()),
        false => (CORE, fabric::CORE),
    };
    let mut text = format!(
        r#"[core]
plmns = ["99970"]
tacs = [1]
security = {{ ciphering = [{}] }}

{}
[dnn.internet]
ipv4-pool = "{}"
{}

[n2]
addresses = ["{n2}"]

{}
[api]
socket = "off"
token-file = "{API_TOKEN}"

[subscribers]
database = "{DATABASE}"
"#,
        ciphering.join(", "),
        options.slices,
        options.ipv4_pool,
        ipv6_pool(),
        match apart {
            true => format!(
                "[upf]\nenabled = false\n\n[n4]\nlisten = \"{balancer}:8805\"\n\n[[external-upf]]\nname = \"upf\"\nn4 = {:?}\n",
                upf_n4()
            ),
            false => format!("[upf]\nn3 = [\"{CORE}\"]\n{}\n", options.upf),
        },
    );
    for key in &HN_KEYS {
        text.push_str(&format!(
            "\n[[subscribers.home-network-key]]\nid = {}\nprofile = \"{}\"\nprivate = \"{}\"\n",
            key.id, key.profile, key.private
        ));
    }
    if options.hosts > 0 {
        let hosts = options.hosts;
        // The switch is the laboratory's own.
        text.push_str(&format!(
            "\n[cluster]\nbalancer = \"{balancer}:{FABRIC_PORT}\"\nhosts = {hosts}\ninsecure = true\n"
        ));
        if cfg!(debug_assertions) {
            // Many processes that are not optimised: nobody is dead for being slow.
            text.push_str("misses = 20\n");
        }
        if apart {
            let controller = NodeRole::Controller.address();
            text.push_str(&format!("controller = \"{controller}:{FABRIC_PORT}\"\netcd = [\"{}\"]\n", etcd::ADDRESS));
        }
    }
    if options.amfs > 0 {
        text.push('\n');
        text.push_str(&chain::tables(options.amfs));
    }
    text.push('\n');
    text.push_str(&options.tables);
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Config;

    #[test]
    fn metrics_without_labels_are_read() {
        let text = "# HELP a b\nvireo_ues 4\nvireo_messages{kind=\"x\"} 9\nvireo_part 0.25\n";
        assert_eq!(plain_metrics(text), BTreeMap::from([("vireo_ues".into(), 4.0), ("vireo_part".into(), 0.25)]));
    }

    #[test]
    fn the_configuration_is_accepted() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("vireo.toml");
        let options = CoreOptions {
            slices: "[slice.meters]\nsnssai = { sst = 3 }\n".into(),
            tables: "[log]\nlevel = \"warn\"\n".into(),
            hosts: 2,
            ..CoreOptions::default()
        };
        fs::write(&path, config(&options)).unwrap();
        let config = Config::load(Some(&path)).unwrap();
        assert_eq!(config.n2.addresses, [std::net::IpAddr::from(CORE)]);
        assert_eq!(config.subscribers.database, DATABASE);
        assert_eq!((config.cluster.hosts, config.cluster.balancer.ip()), (2, fabric::CORE.into()));
        fs::write(&path, super::config(&CoreOptions { balancers: 2, ..options.clone() })).unwrap();
        let apart = Config::load(Some(&path)).unwrap();
        assert!(apart.upf.is_none() && apart.core.upfs.len() == 1);
        assert_eq!(apart.cluster.balancer.ip(), NodeRole::Balancer(0).address());
        assert_eq!(apart.cluster.etcd, [etcd::ADDRESS]);
        assert_eq!(apart.cluster.controllers[0].ip(), NodeRole::Controller.address());
        assert_eq!((config.core.slices[0].snssai.sst, config.log.level.as_str()), (3, "warn"));
        let mut wrong = options.clone();
        wrong.ciphering = vec!["NEA9".into()];
        fs::write(&path, super::config(&wrong)).unwrap();
        assert!(Config::load(Some(&path)).is_err());
    }
}
