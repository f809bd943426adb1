//! Cluster of the lab: etcd, controller, balancers and hosts in own namespaces.
//!
//! The layout is that of an operator.

use super::Core;
use crate::fabric::NodeRole;
use crate::files::api;
use crate::members::{ClusterProcess, HostFault};
use crate::{Interrupt, Lab};
use std::fs::File;
use std::io::Write;
use std::path::PathBuf;
use vireo_client::Answer;
use vireo_config::Failure;
use vireo_ops::api::Status;

/// Upper bound of RAN nodes in a lab.
const NODES: usize = 64;

/// State of a cluster, as its members report it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct ClusterReadiness {
    /// Epoch of the controller's cluster map.
    pub epoch: u64,
    /// Hosts of the map that have buckets.
    pub hosts: usize,
    /// Balancers of the map.
    pub balancers: usize,
    /// UEs registered at hosts; the next field holds the copies that hosts store for others.
    pub registered: usize,
    pub copies: usize,
    /// Associations of all RAN nodes, from the host that knows the fewest.
    pub associations: usize,
    /// Number of associated UPFs.
    pub upfs: usize,
}

impl Core {
    /// Starts etcd, the controller and the balancers. Each waits for the previous one, because the
    /// first balancer communicates with the UPFs.
    pub(super) fn start_balancers(&mut self, lab: &Lab, interrupt: &Interrupt) -> Result<(), Failure> {
        self.etcd = Some(ClusterProcess::start(lab, NodeRole::Etcd, &self.options, self.log_of(NodeRole::Etcd)?)?);
        let is_there = |member: &ClusterProcess| api(member.api()).is_ok_and(|etcd| etcd.fetch("/health").is_ok());
        self.wait(interrupt, "etcd does not answer", |core| core.etcd.as_ref().is_some_and(is_there))?;
        self.start_controller(lab)?;
        let is_up = |member: &ClusterProcess| member.status().is_ok();
        self.wait(interrupt, "the controller does not answer", |core| core.controller.as_ref().is_some_and(is_up))?;
        for number in 0..self.options.balancers {
            let place = NodeRole::Balancer(number);
            self.balancers.push(ClusterProcess::start(lab, place, &self.options, self.log_of(place)?)?);
            self.wait(interrupt, "a balancer has not joined", |core| core.balancers.last().is_some_and(is_up))?;
        }
        Ok(())
    }

    /// Starts or restarts the controller.
    pub(crate) fn start_controller(&mut self, lab: &Lab) -> Result<(), Failure> {
        self.controller =
            Some(ClusterProcess::start(lab, NodeRole::Controller, &self.options, self.log_of(NodeRole::Controller)?)?);
        Ok(())
    }

    /// Kills the controller.
    pub(crate) fn kill_controller(&mut self) -> Result<(), Failure> {
        self.controller.as_mut().ok_or_else(|| Failure("there is no controller".into()))?.inject_fault(HostFault::Kill)
    }

    /// Restarts a balancer that was killed.
    pub(crate) fn start_balancer(&mut self, lab: &Lab, balancer: usize) -> Result<(), Failure> {
        let place = NodeRole::Balancer(u8::try_from(balancer)?);
        let member = ClusterProcess::start(lab, place, &self.options, self.log_of(place)?)?;
        if let Some(entry) = self.balancers.get_mut(balancer) {
            *entry = member;
        }
        Ok(())
    }

    /// Kills the balancer with the PFCP associations, or one without. Returns its lab number.
    pub(crate) fn kill_balancer(&mut self, holds_n4: bool) -> Result<usize, Failure> {
        let said = self.map()?.balancers;
        let is_it = |member: &ClusterProcess| said.iter().any(|b| b.holds_n4 == holds_n4 && member.has(&b.address));
        let balancer =
            self.balancers.iter().position(is_it).ok_or_else(|| Failure("there is no such balancer".into()))?;
        self.balancers[balancer].inject_fault(HostFault::Kill)?;
        Ok(balancer)
    }

    /// Makes the controller drain a host, as an operator would.
    pub(crate) fn drain_host(&mut self, host: usize) -> Result<(), Failure> {
        let Some(entry) = self.host_status(host)? else {
            return Err(Failure(format!("host {host} is not in the map")));
        };
        let path = format!("/cluster/drain?host={}", entry.host);
        match api(self.api_of_map())?.request("POST", &path)? {
            Answer { status: 202, .. } => self.host(host).map(ClusterProcess::mark_leaving),
            Answer { line, body, .. } => Err(Failure(format!("the controller answers '{line}' {}", body.trim()))),
        }
    }

    /// Partitions the newest host of the map from the oldest one. The controller is expected to
    /// declare the newest one dead. Returns its lab number.
    pub(crate) fn cut_link(&mut self) -> Result<usize, Failure> {
        // Host IDs follow the order of joining, not of starting.
        let mut well = Vec::new();
        for host in (0..self.hosts.len()).filter(|host| self.hosts[*host].is_healthy()) {
            well.extend(self.host_status(host)?.map(|entry| (entry.host, host)));
        }
        well.sort_unstable();
        let [(_, oldest), .., (_, youngest)] = well[..] else { return Err(Failure("there are no two hosts".into())) };
        self.hosts[oldest].port().block(self.hosts[youngest].port())?;
        self.hosts[youngest].port().block(self.hosts[oldest].port())?;
        self.hosts[youngest].expect_declared_dead();
        self.cut = Some([oldest, youngest]);
        Ok(youngest)
    }

    /// Ends the partition.
    pub(crate) fn mend_link(&mut self) -> Result<(), Failure> {
        let Some([one, two]) = self.cut.take() else { return Ok(()) };
        self.hosts[one].port().unblock(self.hosts[two].port())?;
        Ok(self.hosts[two].port().unblock(self.hosts[one].port())?)
    }

    /// Returns the API that has the cluster map: the controller's if it is healthy.
    fn api_of_map(&self) -> &str {
        self.controller
            .as_ref()
            .filter(|controller| controller.is_healthy())
            .map_or_else(|| self.url(), ClusterProcess::api)
    }

    /// Returns the hosts and balancers of the cluster map.
    pub(super) fn map(&self) -> Result<Status, Failure> {
        Ok(serde_json::from_str(&api(self.api_of_map())?.fetch("/status?limit=0")?)?)
    }

    /// Returns the state of all members.
    ///
    /// # Errors
    ///
    /// Returns an error if a member does not answer, as directly after a restart.
    pub(crate) fn standing(&self) -> Result<ClusterReadiness, Failure> {
        if self.options.shards > 0 {
            return self.standing_of_shards();
        }
        let map = self.map()?;
        let mut standing = ClusterReadiness {
            epoch: map.hosts.first().map_or(0, |host| host.epoch),
            hosts: map.hosts.iter().filter(|host| host.buckets > 0).count(),
            balancers: map.balancers.len(),
            associations: usize::MAX,
            ..ClusterReadiness::default()
        };
        for host in self.hosts.iter().filter(|host| host.is_healthy()) {
            let status = host.status_with(NODES)?;
            standing.registered += status.counts.registered;
            standing.copies += status.copies;
            let associations = status.gnbs.iter().map(|gnb| gnb.associations).sum();
            standing.associations = standing.associations.min(associations);
        }
        let holder = |member: &&ClusterProcess| map.balancers.iter().any(|b| b.holds_n4 && member.has(&b.address));
        let associated = |status: &Status| status.upfs.iter().filter(|upf| upf.associated).count();
        standing.upfs = match self.balancers.iter().find(holder) {
            Some(holder) => associated(&holder.status()?),
            // The only balancer is the core's own process.
            None if self.balancers.is_empty() => associated(&map),
            None => 0,
        };
        Ok(standing)
    }

    /// Returns the number of hosts without faults that are not leaving, or of shards.
    pub(crate) fn hosts_there(&self) -> usize {
        if self.options.shards > 0 {
            return self.options.shards.into();
        }
        self.hosts.iter().filter(|host| host.is_healthy()).count()
    }

    /// Returns all processes except the one in the core's namespace.
    pub(super) fn members(&self) -> impl Iterator<Item = &ClusterProcess> {
        self.etcd.iter().chain(&self.controller).chain(&self.balancers).chain(&self.hosts)
    }

    /// Returns the log of a member: the core's log, or the member's own file if balancers have
    /// their own namespaces. A restarted member appends to its file.
    pub(super) fn log_of(&self, place: NodeRole) -> Result<File, Failure> {
        if self.options.balancers == 0 {
            return Ok(self.log.try_clone()?);
        }
        let path = log_file(&place.name());
        let opened = File::options().read(true).append(true).create(true).open(&path);
        opened.map_err(|error| Failure(format!("{}: {error}", path.display())))
    }

    /// Returns the last lines of all logs, each under its name.
    pub fn last_words(&self, lines: usize) -> String {
        let mut text = format!("-- core\n{}\n", self.process.last_words(lines));
        for member in self.members().filter(|_| self.options.balancers > 0) {
            text += &format!("-- {}\n{}\n", member.name(), member.last_words(lines));
        }
        text
    }

    /// Appends the logs of all members to the core's log.
    pub(crate) fn gather_logs(&mut self) -> Result<(), Failure> {
        let names: Vec<String> = self.members().map(|member| member.name().to_owned()).collect();
        for name in names.into_iter().filter(|_| self.options.balancers > 0) {
            writeln!(self.log, "-- {name}")?;
            std::io::copy(&mut File::open(log_file(&name))?, &mut self.log)?;
        }
        Ok(())
    }
}

/// Returns the path of a log in the lab's own `/tmp`.
fn log_file(name: &str) -> PathBuf {
    format!("/tmp/{name}.log").into()
}
