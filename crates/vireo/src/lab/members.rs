//! The processes of a cluster in the laboratory, each in a namespace of its own, and what befalls them.

use super::Lab;
use super::core::{CONFIG, CoreOptions, FABRIC_PORT, LAST_WORDS, etcd};
use super::fabric::{NetworkPort, NodeRole, n2};
use super::limit::CpuLimit;
use super::process::{self, Process};
use crate::cli::Failure;
use clap::ValueEnum;
use std::fs::File;
use std::sync::Arc;
use std::time::Duration;
use vireo_node::api::Status;

/// Where each has its status interface.
const API_PORT: u16 = 9090;
/// Where balancers talk to UPFs.
const N4_PORT: u16 = 8805;

/// What befalls a host.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum HostFault {
    /// SIGKILL
    Kill,
    /// SIGSTOP, and SIGCONT when others have its UEs
    Stop,
    /// Its cable is pulled, and put back when others have its UEs
    Cut,
}

impl HostFault {
    /// All of them.
    pub(crate) const ALL: [HostFault; 3] = [HostFault::Kill, HostFault::Stop, HostFault::Cut];

    /// What happened to the host, in a word or two.
    pub(crate) fn past_tense(self) -> &'static str {
        match self {
            HostFault::Kill => "killed",
            HostFault::Stop => "stopped",
            HostFault::Cut => "cut off",
        }
    }
}

/// One of a cluster's processes.
#[derive(Debug)]
pub(super) struct ClusterProcess {
    name: String,
    process: Process,
    seat: Arc<NetworkPort>,
    api: String,
    fate: Option<HostFault>,
    /// It was told to leave: it ends in good order.
    leaves: bool,
    /// The cluster may have it leave.
    may_leave: bool,
    /// After the process: it can only be removed when that has ended.
    _limit: Option<CpuLimit>,
}

impl ClusterProcess {
    /// Starts it on its seat of the laboratory, by the configuration that is there.
    pub(super) fn start(lab: &Lab, place: NodeRole, options: &CoreOptions, log: File) -> Result<Self, Failure> {
        let seat = lab.seat(place)?;
        let address = seat.address;
        let mut command = Process::this_program();
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
        let start = || Process::start(role, &seat.netns, &mut command, Some(log));
        let process = process::on_processors(&options.processors, start)??;
        // At once: it has started nothing yet.
        limit.as_ref().map_or(Ok(()), |limit| limit.take(process.pid()))?;
        let (name, api) = (place.name(), format!("http://{api}"));
        Ok(ClusterProcess {
            name,
            process,
            seat,
            api,
            fate: None,
            leaves: false,
            may_leave: options.idle > 0,
            _limit: limit,
        })
    }

    /// What it is called.
    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// The last lines of its log.
    pub(super) fn last_words(&self, lines: usize) -> String {
        self.process.last_words(lines)
    }

    /// Its status interface.
    pub(super) fn api(&self) -> &str {
        &self.api
    }

    /// Whether nothing has befallen it, and it stays.
    pub(super) fn is_healthy(&self) -> bool {
        self.fate.is_none() && !self.leaves
    }

    /// Tells it to leave.
    pub(super) fn leave(&mut self) -> Result<(), Failure> {
        self.leaves = true;
        Ok(self.process.signal(libc::SIGTERM)?)
    }

    /// It was told to leave by others.
    pub(super) fn is_to_leave(&mut self) {
        self.leaves = true;
    }

    /// Whether this address is its own, with any port.
    pub(super) fn has(&self, address: &str) -> bool {
        address.rsplit_once(':').is_some_and(|(ip, _)| ip == self.seat.address.to_string())
    }

    /// What it says of itself.
    pub(super) fn status(&self) -> Result<Status, Failure> {
        match self.status_with(0) {
            // It has left.
            Err(_) if self.may_leave => Ok(Status::default()),
            status => status,
        }
    }

    /// Whether it answers.
    pub(super) fn is_up(&self) -> bool {
        self.status_with(0).is_ok()
    }

    /// What it says with so many entries of each list.
    pub(super) fn status_with(&self, limit: usize) -> Result<Status, Failure> {
        Ok(serde_json::from_str(&super::api(&self.api)?.fetch(&format!("/status?limit={limit}"))?)?)
    }

    /// CPU time of its processes.
    pub(super) fn cpu(&self) -> Result<Duration, Failure> {
        match self.process.cpu() {
            Err(_) if self.may_leave => Ok(Duration::ZERO),
            cpu => Ok(cpu?),
        }
    }

    /// CPU time of the thread by which a host sends copies to others and keeps theirs.
    pub(super) fn cpu_of_copies(&self) -> Result<Duration, Failure> {
        Ok(self.process.cpu_of_threads("copies")?)
    }

    /// Others are going to take it for dead.
    pub(super) fn is_to_be_given_up(&mut self) {
        self.fate = Some(HostFault::Kill);
    }

    /// Where it is.
    pub(super) fn seat(&self) -> &NetworkPort {
        &self.seat
    }

    /// Brings it about.
    pub(super) fn inject_fault(&mut self, fate: HostFault) -> Result<(), Failure> {
        self.fate = Some(fate);
        match fate {
            HostFault::Kill => Ok(self.process.signal(libc::SIGKILL)?),
            HostFault::Stop => Ok(self.process.signal(libc::SIGSTOP)?),
            HostFault::Cut => Ok(self.seat.pull()?),
        }
    }

    /// Ends what befell it, if that has an end.
    pub(super) fn recover(&mut self) -> Result<(), Failure> {
        match self.fate {
            Some(HostFault::Stop) => Ok(self.process.signal(libc::SIGCONT)?),
            Some(HostFault::Cut) => Ok(self.seat.plug()?),
            Some(HostFault::Kill) | None => Ok(()),
        }
    }

    /// Whether it has ended.
    pub(super) fn has_ended(&mut self) -> Result<bool, Failure> {
        Ok(self.process.ended()?.is_some())
    }

    /// Fails if it has ended although nothing has befallen it.
    pub(super) fn check(&mut self) -> Result<(), Failure> {
        let (befallen, leaves) = (self.fate.is_some(), self.leaves || self.may_leave);
        match self.process.ended()?.filter(|status| !(befallen || leaves && status.success())) {
            None => Ok(()),
            Some(status) => Err(self.failure(&format!("ended early ({status})"))),
        }
    }

    /// Ends it: in good order, if nothing has befallen it.
    pub(super) fn stop(mut self) -> Result<(), Failure> {
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
