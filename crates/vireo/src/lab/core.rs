//! Core of the lab: `vireo run`, a cluster or SBA mode, as separate processes.
//!
//! Creates their configuration and subscribers.

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
use vireo_ops::api::{Counts, HostStatus, SlicesStatus, Status, UpfStatus};
use vireo_ops::sbi::Encoding;
use vireo_subscribers::{OnExisting, Store, Subscriber, key_source};
use vireo_types::Supi;

/// IMSI of the first lab subscriber; the others count up from it.
pub(crate) const FIRST_IMSI: &str = "999700000000001";
/// K of all lab subscribers.
pub(crate) const K: &str = "465B5CE8B199B49FAA5F0A2EE238A6BC";
/// OPc of all lab subscribers.
pub(crate) const OPC: &str = "E8ED289DEBA952E4283B54E88E6183CA";
/// Networks of UE addresses, IPv4 and IPv6.
pub(crate) const UE_NETWORKS: [&str; 2] = ["10.45.0.0/16", "fd45::/48"];

/// Configuration that disables load shedding. Many unoptimised processes may be congested for a
/// moment, and detection of dead hosts is slower. Shedding UEs, with a wait of one minute, would be
/// correct then, but is not under test.
pub(crate) const UNSHED: &str = "[overload]\nwait = \"10s\"\nstart = 1.0\nregistrations = 1.0\nothers = 1.0\n";

/// Home network key pair: the published examples of TS 33.501 C.4, which protect nothing.
#[derive(Debug)]
pub(crate) struct HnKey {
    pub(crate) id: u8,
    /// ECIES profile, `A` or `B`.
    pub(crate) profile: char,
    /// Emulator scenario whose UEs use the key.
    pub(crate) scenario: &'static str,
    private: &'static str,
    /// Public key of the UEs.
    pub(crate) public: &'static str,
}

/// One key pair per profile.
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

/// Configuration file in the lab's own `/tmp`.
pub(crate) const CONFIG: &str = "/tmp/vireo.toml";
const UPF_CONFIG: &str = "/tmp/vireo-upf.toml";
const DATABASE: &str = "/tmp/vireo.db";
/// Shared-memory directory of SBA processes. A restarted process finds its predecessor's state
/// there.
pub(crate) const RECORDS: &str = "/tmp/records";
/// Key that seals the records.
pub(crate) const STATE_KEY: &str = "/tmp/vireo-state.key";
pub(crate) const API: &str = "http://127.0.0.1:9090";
/// Port of the balancer for hosts.
pub(super) const FABRIC_PORT: u16 = 7770;
/// UEs per API request.
const UES: usize = 1000;
const START_WITHIN: Duration = Duration::from_secs(20);
/// Lines of a log shown after its process failed.
pub(super) const LAST_WORDS: usize = 15;

/// Slice table of labs that configure no other.
const SLICES: &str = "[slice.default]\nsnssai = { sst = 1 }\n";

/// Configuration that differs between labs.
#[derive(Clone, Debug)]
pub(crate) struct CoreOptions {
    /// Number of subscribers to provision.
    pub(crate) subscribers: u64,
    /// NAS ciphering algorithms, the preferred one first.
    pub(crate) ciphering: Vec<String>,
    /// Slice tables of the configuration.
    pub(crate) slices: String,
    /// Further tables of the configuration.
    pub(crate) tables: String,
    /// Further keys of `[upf]`.
    pub(crate) upf: String,
    /// IPv4 pool of UE addresses. The data network has return routes only to [`UE_NETWORKS`].
    pub(crate) ipv4_pool: &'static str,
    /// Processors of the core; empty means all.
    pub(crate) processors: Vec<usize>,
    /// Subscriber number from which subscribers have a slice other than SST 1, and its SST.
    pub(crate) other_slice: Option<(u64, u8)>,
    /// Number of hosts behind a balancer; 0 means the whole core as one process.
    pub(crate) hosts: usize,
    /// Further hosts that join and wait. The hosts of such a cluster leave when they are not
    /// needed.
    pub(crate) idle: usize,
    /// Upper bound of each host's share of a processor.
    pub(crate) host_part: Option<f64>,
    /// Number of balancers, each in its own namespace with a controller and etcd, as an operator
    /// runs a cluster. The core's namespace then holds a separate user-plane process. 0 means one
    /// balancer in the core's namespace, which is also the controller.
    pub(crate) balancers: u8,
    /// Runs AMF, SMF and UPF as separate processes over SBI and N4 (SBA mode).
    pub(crate) chain: bool,
    /// Number of AMFs behind a balancer in SBA mode; 0 means one AMF that terminates N2.
    pub(crate) amfs: u8,
    /// Database of the UPF, if different from that of the others.
    pub(crate) database_of_upf: Option<String>,
    /// Encoding of SBI messages.
    pub(crate) encoding: Encoding,
    /// Uses TLS on the SBI, with certificates created by the lab.
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

/// Running core.
#[derive(Debug)]
pub(crate) struct Core {
    /// Process in the core's namespace: the whole core, the balancer of a cluster, or the user
    /// plane if balancers have their own namespaces.
    pub(crate) process: Process,
    /// Balancers with their own namespaces, by network port.
    balancers: Vec<ClusterProcess>,
    controller: Option<ClusterProcess>,
    etcd: Option<ClusterProcess>,
    /// Hosts behind a balancer, by network port.
    hosts: Vec<ClusterProcess>,
    /// Processes of SBA mode besides the AMF.
    functions: Vec<chain::Function>,
    /// Two hosts that cannot reach each other.
    cut: Option<[usize; 2]>,
    options: CoreOptions,
    log: File,
}

impl Core {
    /// Provisions, configures and starts the core, and waits until it is ready. The log goes to
    /// `log`.
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
            // The first network port creates the lab switch, on which processes of the core's
            // namespace listen.
            lab.seat(NodeRole::Host(0))?;
        }
        let functions = if options.chain { chain::Function::start_all(lab, options, &log)? } else { Vec::new() };
        let mut command = Process::this_program();
        command.args([role, "--config", file]).env("VIREO_API__LISTEN", address(API));
        // The core begins without contexts, because the lab creates the directory.
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

    /// Waits until a condition holds.
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

    /// Starts one more host and waits until its API answers. Returns its lab number. The host joins
    /// the cluster some time later.
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

    /// Makes a host leave its cluster (SIGTERM).
    pub(crate) fn let_host_leave(&mut self, host: usize) -> Result<(), Failure> {
        self.hosts.get_mut(host).ok_or_else(|| Failure("there is no such host".into()))?.leave()
    }

    /// Returns the number of registered UEs that the core reports.
    pub(crate) fn registered(&self) -> Result<usize, Failure> {
        Ok(self.counts()?.registered)
    }

    /// Returns true if the core can serve RAN nodes.
    fn is_ready(&self, hosts: usize) -> bool {
        self.overview().is_ok_and(|status| status.hosts.len() == hosts)
            && self.hosts.iter().all(ClusterProcess::is_up)
            && self.is_chain_ready()
    }

    /// Returns the CPU time of all processes, except failed and departed members.
    pub(crate) fn cpu(&self) -> Result<Duration, Failure> {
        let mut cpu = self.process.cpu()? + self.cpu_of_functions()?;
        for member in self.members().filter(|member| member.is_healthy()) {
            cpu += member.cpu()?;
        }
        Ok(cpu)
    }

    /// Returns the CPU time of each host, including its workers.
    pub(crate) fn cpu_by_host(&self) -> Result<Vec<Duration>, Failure> {
        self.hosts.iter().map(ClusterProcess::cpu).collect()
    }

    /// Returns the CPU time of the hosts' replication threads, which send and store copies.
    pub(crate) fn cpu_of_copies(&self) -> Result<Duration, Failure> {
        self.hosts.iter().map(ClusterProcess::cpu_of_copies).sum()
    }

    /// Returns the counts of the core, in a cluster the sum over healthy hosts. RAN nodes are not
    /// summed, because all hosts know them.
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

    /// Returns the registered UEs of each host, or of each AMF.
    pub(crate) fn registered_by_host(&self) -> Result<Vec<usize>, Failure> {
        if self.options.amfs > 0 {
            return Ok(self.counts_of_amfs()?.into_iter().map(|counts| counts.registered).collect());
        }
        let of = |host: &ClusterProcess| Ok(if host.is_healthy() { host.status()?.counts.registered } else { 0 });
        self.hosts.iter().map(of).collect()
    }

    /// Returns the number of hosts that serve UEs.
    pub(crate) fn hosts_at_work(&self) -> Result<usize, Failure> {
        Ok(self.overview()?.hosts.len())
    }

    /// Returns the host with the most UEs.
    pub(crate) fn busiest_host(&self) -> Result<usize, Failure> {
        let all = self.registered_by_host()?;
        let most = all.iter().enumerate().max_by_key(|(_, ues)| **ues);
        most.map(|(host, _)| host).ok_or_else(|| Failure("the core is one process: it has no hosts".into()))
    }

    /// Returns the controller's status of a host, or `None` if the host is not in the cluster map.
    pub(crate) fn host_status(&self, host: usize) -> Result<Option<HostStatus>, Failure> {
        let Some(host) = self.hosts.get(host) else { return Ok(None) };
        Ok(self.map()?.hosts.into_iter().find(|entry| host.has(&entry.address)))
    }

    /// Injects a fault into a host. The host does not count as healthy afterwards.
    pub(crate) fn fail_host(&mut self, host: usize, fate: HostFault) -> Result<(), Failure> {
        self.host(host)?.inject_fault(fate)
    }

    /// Ends the fault of a host, if it can end.
    pub(crate) fn recover_host(&mut self, host: usize) -> Result<(), Failure> {
        self.host(host)?.recover()
    }

    /// Returns true if the process of the host has ended.
    pub(crate) fn has_host_ended(&mut self, host: usize) -> Result<bool, Failure> {
        self.host(host)?.has_ended()
    }

    fn host(&mut self, host: usize) -> Result<&mut ClusterProcess, Failure> {
        self.hosts.get_mut(host).ok_or_else(|| Failure("there is no such host".into()))
    }

    /// Returns the counters of the user plane.
    pub(crate) fn user_plane(&self) -> Result<UpfStatus, Failure> {
        let status = self.user_plane_of_chain().unwrap_or_else(|| self.overview())?;
        status.upfs.into_iter().next().ok_or_else(|| Failure("the core has no UPF".into()))
    }

    /// Waits until all UPFs are associated.
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

    /// Orders the relocation of a subscriber's sessions to another UPF. Returns true if the UE
    /// exists.
    pub(crate) fn relocate(&self, supi: &str, upf: &str) -> Result<bool, Failure> {
        slice::order_relocation(&self.api()?, supi, upf)
    }

    /// Returns the number of relocations that are complete, with the session deleted at the source
    /// UPF.
    pub(crate) fn relocated(&self) -> Result<u64, Failure> {
        self.labelled(r#"vireo_procedures_completed_total{procedure="relocation",result="success",cause=""}"#)
    }

    /// Returns the bytes of all sessions, uplink and downlink, as the UPFs have reported them.
    pub(crate) fn carried(&self) -> Result<[u64; 2], Failure> {
        let of = |direction| self.labelled(&format!("vireo_session_bytes_total{{direction={direction:?}}}"));
        Ok([of("uplink")?, of("downlink")?])
    }

    fn labelled(&self, name: &str) -> Result<u64, Failure> {
        let text = self.api()?.fetch("/metrics")?;
        Ok(text.lines().find_map(|line| line.strip_prefix(name)?.trim().parse().ok()).unwrap_or(0))
    }

    /// Returns the API URL of the core; in a cluster, that of its balancer.
    fn url(&self) -> &str {
        self.balancers.iter().find(|balancer| balancer.is_healthy()).map_or(API, ClusterProcess::api)
    }

    fn api(&self) -> Result<Api, Failure> {
        super::api(self.url())
    }

    /// Returns the status of the core; in a cluster, that of its balancer.
    fn overview(&self) -> Result<Status, Failure> {
        Ok(serde_json::from_str(&self.api()?.fetch("/status?limit=0")?)?)
    }

    /// Returns up to [`UES`] UEs from `offset` on, and the total count.
    pub(crate) fn ues(&self, offset: usize) -> Result<Status, Failure> {
        let page = format!("/status?offset={offset}&limit={UES}&reveal_supi=true");
        Ok(serde_json::from_str(&self.api()?.fetch(&page)?)?)
    }

    /// Migrates a user to a slice. Returns true if its worker changed, or `None` if no user has the
    /// address.
    pub(crate) fn move_user(&self, address: &str, to: &str) -> Result<Option<bool>, Failure> {
        Ok(slice::move_user(&self.api()?, address, to)?.map(|moved| moved.moved > 0))
    }

    /// Returns the slices of the user plane.
    pub(crate) fn slices(&self) -> Result<SlicesStatus, Failure> {
        slice::slices(&self.api()?)
    }

    /// Returns the metrics without labels, by name.
    pub(crate) fn metrics(&self) -> Result<BTreeMap<String, f64>, Failure> {
        Ok(plain_metrics(&self.api()?.fetch("/metrics")?))
    }

    /// Returns an error if a process has ended unexpectedly.
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

    /// Stops all processes with SIGTERM. Returns an error unless each exits with code 0.
    pub(crate) fn stop(mut self) -> Result<(), Failure> {
        self.check()?;
        std::mem::take(&mut self.hosts).into_iter().try_for_each(ClusterProcess::stop)?;
        std::mem::take(&mut self.balancers).into_iter().try_for_each(ClusterProcess::stop)?;
        if self.options.amfs > 0 {
            self.stop_amfs()?;
        }
        // Dropping etcd kills it; its data are not needed.
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

/// Returns the N4 address of a separate user-plane process.
fn upf_n4() -> String {
    format!("{}:8805", fabric::CORE)
}

/// Returns the configured control planes: the balancers, which are one control plane with the Node
/// ID of `n4.node-id = "auto"`.
fn control_planes() -> String {
    let all: Vec<_> = (0..8).map(|seat| NodeRole::Balancer(seat).address().to_string()).collect();
    format!("[{{ node-id = \"set1.smfset.5gc.mnc070.mcc999.3gppnetwork.org\", addresses = {all:?} }}]")
}

fn ipv6_pool() -> String {
    if has_ipv6() { format!("ipv6-pool = {:?}", UE_NETWORKS[1]) } else { String::new() }
}

/// Returns the address in a URL.
fn address(url: &str) -> &str {
    url.trim_start_matches("http://")
}

/// Returns the metrics without labels in a Prometheus text.
pub(crate) fn plain_metrics(text: &str) -> BTreeMap<String, f64> {
    let plain = text.lines().filter(|line| !line.starts_with('#') && !line.contains('{'));
    let pairs = plain.filter_map(|line| line.split_once(' '));
    pairs.filter_map(|(name, value)| Some((name.to_owned(), value.trim().parse().ok()?))).collect()
}

/// Creates the subscribers and [`CONFIG`].
pub(crate) fn prepare(options: &CoreOptions) -> Result<(), Failure> {
    provision(options)?;
    // No process has used the directory before.
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

/// Returns the configuration file of a core.
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
        // The lab switch is private to the lab.
        text.push_str(&format!(
            "\n[cluster]\nbalancer = \"{balancer}:{FABRIC_PORT}\"\nhosts = {hosts}\ninsecure = true\n"
        ));
        if cfg!(debug_assertions) {
            // Many unoptimised processes are slow; slowness must not count as death.
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
