//! Cluster processes of the lab, each in its own namespace, and their faults.

use crate::Lab;
use crate::etcd;
use crate::fabric::FABRIC_PORT;
use crate::fabric::{NetworkPort, NodeRole, n2};
use crate::files::{CONFIG, api, fetch_status};
use crate::limit::CpuLimit;
use crate::options::CoreOptions;
use crate::process::LAST_WORDS;
use crate::process::{self, Process};
use clap::ValueEnum;
use std::fs::File;
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::time::Duration;
use vireo_config::Failure;
use vireo_ops::api::Status;

/// API port of each process.
const API_PORT: u16 = 9090;
/// UEs per API request.
const UES: usize = 1000;
/// Port on which balancers communicate with UPFs.
const N4_PORT: u16 = 8805;

/// Fault of a host
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum HostFault {
    /// Send SIGKILL
    Kill,
    /// Send SIGSTOP, and SIGCONT after other hosts took over the UEs
    Stop,
    /// Pull the network cable, and plug it in after the takeover
    Cut,
}

impl HostFault {
    /// All faults.
    pub const ALL: [HostFault; 3] = [HostFault::Kill, HostFault::Stop, HostFault::Cut];

    /// Returns the fault as a past participle.
    pub fn past_tense(self) -> &'static str {
        match self {
            HostFault::Kill => "killed",
            HostFault::Stop => "stopped",
            HostFault::Cut => "cut off",
        }
    }
}

/// Process of a cluster.
#[derive(Debug)]
pub(crate) struct ClusterProcess {
    name: String,
    process: Process,
    port: Arc<NetworkPort>,
    api: String,
    fate: Option<HostFault>,
    /// Whether the process was asked to leave. It then ends with exit code 0.
    leaves: bool,
    /// Whether the cluster may remove the process.
    may_leave: bool,
    /// Declared after the process: the group can be removed only after the process has ended.
    _limit: Option<CpuLimit>,
}

/// Returns a path of an open program that child processes can execute in any mount namespace.
fn program_path(program: &File) -> String {
    format!("/proc/self/fd/{}", program.as_raw_fd())
}

impl ClusterProcess {
    /// Starts the process in its namespace, with the existing configuration file.
    pub(crate) fn start(lab: &Lab, place: NodeRole, options: &CoreOptions, log: File) -> Result<Self, Failure> {
        let port = lab.connect(place)?;
        let address = port.address;
        let is_joining = matches!(place, NodeRole::Host(n) if usize::from(n) >= options.hosts + options.idle);
        let mut command = match options.joining_program.as_ref().filter(|_| is_joining) {
            Some(program) => Process::program(&program_path(program)),
            None => Process::this_program(),
        };
        let (mut api, mut limit) = (format!("{address}:{API_PORT}"), None);
        let role = match place {
            NodeRole::Host(number) => {
                command.env("VIREO_CLUSTER__LISTEN", format!("{address}:0"));
                limit = options.host_part.map(|part| CpuLimit::new(&format!("host-{number}"), part)).transpose()?;
                "host"
            }
            NodeRole::Balancer(number) => {
                command.env("VIREO_CLUSTER__BALANCER", format!("{address}:{FABRIC_PORT}"));
                command.env("VIREO_N2__ADDRESSES", format!("[\"{}\"]", n2(number)));
                if options.has_s1() {
                    command.env("VIREO_S1__ADDRESSES", format!("[\"{}\"]", n2(number)));
                }
                command.env("VIREO_N4__LISTEN", format!("{address}:{N4_PORT}"));
                "balancer"
            }
            NodeRole::Controller => "controller",
            NodeRole::Etcd => {
                (command, api) = (etcd::command(), etcd::ADDRESS.to_string());
                "etcd"
            }
        };
        if place != NodeRole::Etcd {
            command.args([role, "--config", CONFIG]).env("VIREO_API__LISTEN", &api);
        }
        let start = || Process::start(role, &port.netns, &mut command, Some(log));
        let process = process::on_processors(&options.processors, start)??;
        // The process has no children yet, so all of them will be in the group.
        limit.as_ref().map_or(Ok(()), |limit| limit.take(process.pid()))?;
        let (name, api) = (place.name(), format!("http://{api}"));
        Ok(ClusterProcess {
            name,
            process,
            port,
            api,
            fate: None,
            leaves: false,
            may_leave: options.idle > 0,
            _limit: limit,
        })
    }

    /// Returns the name of the process.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// Returns the last lines of its log.
    pub(crate) fn last_words(&self, lines: usize) -> String {
        self.process.last_words(lines)
    }

    /// Returns the URL of its API.
    pub(crate) fn api(&self) -> &str {
        &self.api
    }

    /// Returns true if the process has no injected fault and is not leaving.
    pub(crate) fn is_healthy(&self) -> bool {
        self.fate.is_none() && !self.leaves
    }

    /// Makes the process leave (SIGTERM).
    pub(crate) fn send_term(&mut self) -> Result<(), Failure> {
        self.leaves = true;
        Ok(self.process.signal(libc::SIGTERM)?)
    }

    /// Notes that the controller was asked to drain the process.
    pub(crate) fn mark_leaving(&mut self) {
        self.leaves = true;
    }

    /// Returns true if the process has this address, with any port.
    pub(crate) fn has(&self, address: &str) -> bool {
        address.rsplit_once(':').is_some_and(|(ip, _)| ip == self.port.address.to_string())
    }

    /// Returns the status of the process.
    pub(crate) fn status(&self) -> Result<Status, Failure> {
        match self.status_with(0) {
            // The process has left the cluster.
            Err(_) if self.may_leave => Ok(Status::default()),
            status => status,
        }
    }

    /// Returns the metrics of the process, or `None` if it has a fault, is leaving, or may have
    /// left.
    pub(crate) fn metrics_text(&self) -> Result<Option<String>, Failure> {
        if !self.is_healthy() {
            return Ok(None);
        }
        match api(&self.api)?.fetch("/metrics") {
            Err(_) if self.may_leave => Ok(None),
            text => Ok(Some(text?)),
        }
    }

    /// Returns the subscribers whose contexts the process has, as IMSIs.
    pub(crate) fn subscribers(&self) -> Result<Vec<String>, Failure> {
        let mut all = Vec::new();
        loop {
            let page = format!("/status?offset={}&limit={UES}&reveal_supi=true", all.len());
            let status = fetch_status(&api(&self.api)?, &page)?;
            all.extend(status.ues.iter().map(|ue| ue.supi.clone()));
            if status.ues.len() < UES {
                return Ok(all);
            }
        }
    }

    /// Returns true if the API of the process answers.
    pub(crate) fn is_up(&self) -> bool {
        self.status_with(0).is_ok()
    }

    /// Returns the status with up to `limit` entries per list.
    pub(crate) fn status_with(&self, limit: usize) -> Result<Status, Failure> {
        fetch_status(&api(&self.api)?, &format!("/status?limit={limit}"))
    }

    /// Returns the CPU time of the process and its children.
    pub(crate) fn cpu(&self) -> Result<Duration, Failure> {
        match self.process.cpu() {
            Err(_) if self.may_leave => Ok(Duration::ZERO),
            cpu => Ok(cpu?),
        }
    }

    /// Returns the CPU time of the replication thread, which sends and stores copies.
    pub(crate) fn cpu_of_copies(&self) -> Result<Duration, Failure> {
        Ok(self.process.cpu_of_threads("copies")?)
    }

    /// Notes that the cluster will declare the process dead.
    pub(crate) fn expect_declared_dead(&mut self) {
        self.fate = Some(HostFault::Kill);
    }

    /// Returns the network port of the process.
    pub(crate) fn port(&self) -> &NetworkPort {
        &self.port
    }

    /// Injects a fault.
    pub(crate) fn inject_fault(&mut self, fate: HostFault) -> Result<(), Failure> {
        self.fate = Some(fate);
        match fate {
            HostFault::Kill => Ok(self.process.signal(libc::SIGKILL)?),
            HostFault::Stop => Ok(self.process.signal(libc::SIGSTOP)?),
            HostFault::Cut => Ok(self.port.pull()?),
        }
    }

    /// Ends the fault, if it can end.
    pub(crate) fn recover(&mut self) -> Result<(), Failure> {
        match self.fate {
            Some(HostFault::Stop) => Ok(self.process.signal(libc::SIGCONT)?),
            Some(HostFault::Cut) => Ok(self.port.plug()?),
            Some(HostFault::Kill) | None => Ok(()),
        }
    }

    /// Returns true if the process has ended.
    pub(crate) fn has_ended(&mut self) -> Result<bool, Failure> {
        Ok(self.process.exit_status()?.is_some())
    }

    /// Returns an error if the process has ended without an injected fault.
    pub(crate) fn check(&mut self) -> Result<(), Failure> {
        let (befallen, leaves) = (self.fate.is_some(), self.leaves || self.may_leave);
        match self.process.exit_status()?.filter(|status| !(befallen || leaves && status.success())) {
            None => Ok(()),
            Some(status) => Err(self.failure(&format!("ended early ({status})"))),
        }
    }

    /// Stops the process. Expects exit code 0 unless a fault was injected.
    pub(crate) fn stop(mut self) -> Result<(), Failure> {
        if self.fate.is_some() {
            return Ok(());
        }
        let status = self.process.terminate()?;
        if status.success() { Ok(()) } else { Err(self.failure(&format!("did not end in good order ({status})"))) }
    }

    fn failure(&self, what: &str) -> Failure {
        let words = self.process.last_words(LAST_WORDS);
        Failure(format!("{} {what}; its last words:\n{words}", self.name))
    }
}
