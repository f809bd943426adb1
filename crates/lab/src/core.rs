//! Core of the lab: `vireo run`, a cluster or SBA mode, as separate processes.
//!
//! [`crate::provision`] creates their configuration and subscribers.

mod cluster;
mod metrics_text;
pub(crate) mod sba;
mod shards;

pub(crate) use cluster::ClusterReadiness;

use crate::fabric::NodeRole;
use crate::files::{self, CONFIG, RECORDS, UPF_CONFIG, fetch_status};
use crate::limit::CpuLimit;
use crate::members::{ClusterProcess, HostFault};
use crate::options::{CoreOptions, CpuShare};
use crate::process::{self, LAST_WORDS, Process};
use crate::provision::prepare;
use crate::workers::{self, Worker};
use crate::{Interrupt, Lab};
use sba::SbaProcess;
use std::collections::BTreeMap;
use std::fs::File;
use std::time::{Duration, Instant};
use vireo_client::Api;
use vireo_client::slices;
use vireo_config::Failure;
use vireo_ops::api::{Counts, HostStatus, SlicesStatus, Status, UeStatus, UpfStatus};

pub const API: &str = "http://127.0.0.1:9090";
/// UEs per API request.
const UES: usize = 1000;
const START_WITHIN: Duration = Duration::from_secs(20);

/// Running core.
#[derive(Debug)]
pub struct Core {
    /// Process in the core's namespace: the whole core, the balancer of a cluster, or the user
    /// plane if balancers have their own namespaces.
    pub process: Process,
    /// Balancers with their own namespaces, by network port.
    balancers: Vec<ClusterProcess>,
    controller: Option<ClusterProcess>,
    etcd: Option<ClusterProcess>,
    /// Hosts behind a balancer, by network port.
    hosts: Vec<ClusterProcess>,
    /// Processes of SBA mode besides the AMF.
    sba_processes: Vec<SbaProcess>,
    /// Two hosts that cannot reach each other.
    cut: Option<[usize; 2]>,
    options: CoreOptions,
    log: File,
    /// Declared after the processes: a group can be removed only after they have ended.
    limits: Vec<CpuLimit>,
}

impl Core {
    /// Provisions, configures and starts the core, and waits until it is ready. The log goes to
    /// `log`.
    pub fn start(lab: &Lab, options: &CoreOptions, log: File, interrupt: &Interrupt) -> Result<Self, Failure> {
        prepare(options)?;
        let (role, file) = match (options.hosts, options.balancers) {
            (0, _) if options.amfs > 0 => ("balancer", CONFIG),
            (0, _) if options.sba => ("amf", CONFIG),
            (0, _) => ("run", CONFIG),
            (_, 0) => ("balancer", CONFIG),
            _ => ("upf", UPF_CONFIG),
        };
        if options.hosts > 0 {
            // The first network port creates the lab switch, on which processes of the core's
            // namespace listen.
            lab.connect(NodeRole::Host(0))?;
        }
        let sba_processes = if options.sba { SbaProcess::start_all(lab, options, &log)? } else { Vec::new() };
        let mut command = Process::this_program();
        command.args([role, "--config", file]).env("VIREO_API__LISTEN", address(API));
        // The core begins without contexts, because the lab creates the directory.
        command.env("VIREO_STATE__KEEP_DIRECTORY", RECORDS);
        command.args((options.amfs > 0).then_some("--n2-only"));
        command.envs(sba::environment(options, role));
        let output = log.try_clone()?;
        let start = || Process::start("core", &lab.core, &mut command, Some(output));
        let process = process::on_processors(&options.processors, start)??;
        // The process has no children yet, so all of them will be in the group.
        let limits = match options.share {
            Some(CpuShare::Whole(part) | CpuShare::Apart { host: part, .. }) => {
                vec![CpuLimit::around("core", part, [process.pid()])?]
            }
            None => Vec::new(),
        };
        let (balancers, hosts, options) = (Vec::new(), Vec::new(), options.clone());
        let (controller, etcd, cut) = (None, None, None);
        let mut core = Core { process, balancers, controller, etcd, hosts, sba_processes, cut, options, log, limits };
        match core.start_members(lab, interrupt).and_then(|()| core.separate_workers()) {
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

    /// Moves the workers to a group of their own, if they have a share of their own.
    fn separate_workers(&mut self) -> Result<(), Failure> {
        if let Some(CpuShare::Apart { workers, .. }) = self.options.share {
            let pids = Worker::nf_workers(&self.process)?.into_iter().map(|worker| worker.pid);
            self.limits.push(CpuLimit::around("workers", workers, pids)?);
        }
        Ok(())
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
    pub fn add_host(&mut self, lab: &Lab) -> Result<usize, Failure> {
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
    pub fn let_host_leave(&mut self, host: usize) -> Result<(), Failure> {
        self.hosts.get_mut(host).ok_or_else(|| Failure("there is no such host".into()))?.send_term()
    }

    /// Returns the number of registered UEs that the core reports.
    pub fn registered(&self) -> Result<usize, Failure> {
        Ok(self.counts()?.registered)
    }

    /// Returns true if the core can serve RAN nodes.
    fn is_ready(&self, hosts: usize) -> bool {
        let serve = |status: &Status| {
            let serving = status.shards.iter().filter(|shard| shard.copied).count();
            status.hosts.len() == hosts && serving == usize::from(self.options.shards)
        };
        self.overview().is_ok_and(|status| serve(&status))
            && self.hosts.iter().all(ClusterProcess::is_up)
            && self.is_sba_ready()
    }

    /// Returns the CPU time of all processes, except failed and departed members.
    pub fn cpu(&self) -> Result<Duration, Failure> {
        let mut cpu = self.process.cpu()? + self.cpu_of_sba_processes()?;
        for member in self.members().filter(|member| member.is_healthy()) {
            cpu += member.cpu()?;
        }
        Ok(cpu)
    }

    /// Returns the CPU time of each host, including its workers.
    pub fn cpu_by_host(&self) -> Result<Vec<Duration>, Failure> {
        self.hosts.iter().map(ClusterProcess::cpu).collect()
    }

    /// Returns the CPU time of the hosts' replication threads, which send and store copies.
    pub fn cpu_of_copies(&self) -> Result<Duration, Failure> {
        self.hosts.iter().map(ClusterProcess::cpu_of_copies).sum()
    }

    /// Returns the counts of the core, in a cluster the sum over healthy hosts. RAN nodes are not
    /// summed, because all hosts know them.
    pub fn counts(&self) -> Result<Counts, Failure> {
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

    /// Returns the resident memory of the core's process and its children, in bytes.
    pub fn resident_bytes(&self) -> Result<u64, Failure> {
        let children = workers::children(self.process.pid())?;
        let of = |pid: u32| process::resident_bytes_of(pid).unwrap_or(0);
        Ok(self.process.resident_bytes()? + children.into_iter().map(of).sum::<u64>())
    }

    /// Returns all UEs of a core without hosts.
    pub fn all_ues(&self) -> Result<Vec<UeStatus>, Failure> {
        let mut all = Vec::new();
        loop {
            let page = self.ues(all.len())?.ues;
            let is_last = page.len() < UES;
            all.extend(page);
            if is_last {
                return Ok(all);
            }
        }
    }

    /// Returns the subscribers whose contexts each host owns, as IMSIs.
    pub fn subscribers_by_host(&self) -> Result<Vec<Vec<String>>, Failure> {
        if self.hosts.is_empty() {
            return Ok(vec![self.all_ues()?.into_iter().map(|ue| ue.supi).collect()]);
        }
        self.hosts.iter().map(ClusterProcess::subscribers).collect()
    }

    /// Returns the number of hosts that serve UEs.
    pub fn hosts_at_work(&self) -> Result<usize, Failure> {
        Ok(self.overview()?.hosts.len())
    }

    /// Returns the host with the most UEs.
    pub fn busiest_host(&self) -> Result<usize, Failure> {
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
    pub fn fail_host(&mut self, host: usize, fate: HostFault) -> Result<(), Failure> {
        self.host(host)?.inject_fault(fate)
    }

    /// Ends the fault of a host, if it can end.
    pub fn recover_host(&mut self, host: usize) -> Result<(), Failure> {
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
        let status = self.sba_user_plane().unwrap_or_else(|| self.overview())?;
        status.upfs.into_iter().next().ok_or_else(|| Failure("the core has no UPF".into()))
    }

    /// Waits until all UPFs are associated.
    pub fn wait_for_upfs(&self, interrupt: &Interrupt) -> Result<(), Failure> {
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
    pub fn relocate(&self, supi: &str, upf: &str) -> Result<bool, Failure> {
        slices::relocate(&self.api()?, supi, upf)
    }

    /// Returns the number of relocations that are complete, with the session deleted at the source
    /// UPF.
    pub fn completed_relocations(&self) -> Result<u64, Failure> {
        self.labelled(r#"vireo_procedures_completed_total{procedure="relocation",result="success",cause=""}"#)
    }

    /// Returns the number of sessions with changed QoS that UPF and UE have confirmed.
    pub(crate) fn modified_sessions(&self) -> Result<u64, Failure> {
        self.labelled(r#"vireo_procedures_completed_total{procedure="session_modification",result="success",cause=""}"#)
    }

    /// Returns the bytes of all sessions, uplink and downlink, as the UPFs have reported them.
    pub fn session_bytes(&self) -> Result<[u64; 2], Failure> {
        let of = |direction| self.labelled(&format!("vireo_session_bytes_total{{direction={direction:?}}}"));
        Ok([of("uplink")?, of("downlink")?])
    }

    fn labelled(&self, name: &str) -> Result<u64, Failure> {
        Ok(series(&self.metrics_text()?, name))
    }

    /// Returns the procedures that each host's UEs have completed, by the role of the serving host.
    /// `None` for hosts that do not answer any more.
    pub fn procedures_served(&self) -> Result<Vec<Option<ServedProcedures>>, Failure> {
        let of =
            |host: &ClusterProcess| host.metrics_text().map(|text| text.as_deref().map(ServedProcedures::from_metrics));
        self.hosts.iter().map(of).collect()
    }

    /// Returns the sum of a series of the metrics over all healthy hosts.
    pub fn sum_over_hosts(&self, name: &str) -> Result<u64, Failure> {
        self.hosts.iter().map(|host| Ok(host.metrics_text()?.map_or(0, |text| series(&text, name)))).sum()
    }

    /// Returns the API URL of the core; in a cluster, that of its balancer.
    fn url(&self) -> &str {
        self.balancers.iter().find(|balancer| balancer.is_healthy()).map_or(API, ClusterProcess::api)
    }

    fn api(&self) -> Result<Api, Failure> {
        files::api(self.url())
    }

    /// Returns the status of the core; in a cluster, that of its balancer.
    fn overview(&self) -> Result<Status, Failure> {
        self.overview_with(0)
    }

    /// Returns the status with up to `limit` entries per list.
    fn overview_with(&self, limit: usize) -> Result<Status, Failure> {
        fetch_status(&self.api()?, &format!("/status?limit={limit}"))
    }

    /// Returns the metrics, where the series of shards lack their label.
    fn metrics_text(&self) -> Result<String, Failure> {
        let text = self.api()?.fetch("/metrics")?;
        Ok(if self.options.shards > 0 { metrics_text::without_shards(&text) } else { text })
    }

    /// Returns up to [`UES`] UEs from `offset` on, and the total count.
    pub fn ues(&self, offset: usize) -> Result<Status, Failure> {
        let page = format!("/status?offset={offset}&limit={UES}&reveal_supi=true");
        fetch_status(&self.api()?, &page)
    }

    /// Migrates a user to a slice. Returns true if its worker changed, or `None` if no user has the
    /// address.
    pub(crate) fn move_user(&self, address: &str, to: &str) -> Result<Option<bool>, Failure> {
        Ok(slices::move_user(&self.api()?, address, to)?.map(|moved| moved.moved > 0))
    }

    /// Returns the slices of the user plane.
    pub fn slices(&self) -> Result<SlicesStatus, Failure> {
        slices::list(&self.api()?)
    }

    /// Returns the metrics without labels, by name.
    pub fn metrics(&self) -> Result<BTreeMap<String, f64>, Failure> {
        Ok(plain_metrics(&self.metrics_text()?))
    }

    /// Returns an error if a process has ended unexpectedly.
    pub fn check(&mut self) -> Result<(), Failure> {
        self.sba_processes.iter_mut().try_for_each(SbaProcess::check)?;
        let parts = self.controller.iter_mut().chain(&mut self.etcd);
        self.hosts.iter_mut().chain(&mut self.balancers).chain(parts).try_for_each(ClusterProcess::check)?;
        match self.process.exit_status()? {
            None => Ok(()),
            Some(status) => {
                let words = self.process.last_words(LAST_WORDS);
                Err(Failure(format!("the core ended early ({status}); its last words:\n{words}")))
            }
        }
    }

    /// Stops all processes with SIGTERM. Returns an error unless each exits with code 0.
    pub fn stop(mut self) -> Result<(), Failure> {
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
            return std::mem::take(&mut self.sba_processes).into_iter().rev().try_for_each(SbaProcess::stop);
        }
        let words = self.process.last_words(LAST_WORDS);
        Err(Failure(format!("the core did not end in good order ({status}); its last words:\n{words}")))
    }
}

/// Number of procedures by the role of the host that served them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ServedProcedures {
    pub by_owner: u64,
    pub by_replica: u64,
}

impl ServedProcedures {
    fn from_metrics(text: &str) -> Self {
        let of = |role: &str| series(text, &format!("vireo_procedures_served_total{{role={role:?}}}"));
        ServedProcedures { by_owner: of("owner"), by_replica: of("replica") }
    }
}

impl std::iter::Sum for ServedProcedures {
    fn sum<I: Iterator<Item = Self>>(all: I) -> Self {
        all.fold(ServedProcedures::default(), |sum, served| ServedProcedures {
            by_owner: sum.by_owner + served.by_owner,
            by_replica: sum.by_replica + served.by_replica,
        })
    }
}

/// Returns the sum of a series in a Prometheus text, or 0 without that series.
pub fn series(text: &str, name: &str) -> u64 {
    text.lines().filter_map(|line| line.strip_prefix(name)?.trim().parse::<u64>().ok()).sum()
}

/// Returns the address in a URL.
fn address(url: &str) -> &str {
    url.trim_start_matches("http://")
}

/// Returns the metrics without labels in a Prometheus text.
pub fn plain_metrics(text: &str) -> BTreeMap<String, f64> {
    let plain = text.lines().filter(|line| !line.starts_with('#') && !line.contains('{'));
    let mut sums = BTreeMap::new();
    for (name, value) in plain.filter_map(|line| line.split_once(' ')) {
        if let Ok(value) = value.trim().parse::<f64>() {
            *sums.entry(name.to_owned()).or_default() += value;
        }
    }
    sums
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metrics_without_labels_are_read() {
        let text = "# HELP a b\nvireo_ues 4\nvireo_messages{kind=\"x\"} 9\nvireo_part 0.25\n";
        assert_eq!(plain_metrics(text), BTreeMap::from([("vireo_ues".into(), 4.0), ("vireo_part".into(), 0.25)]));
    }
}
