//! `--hosts`: a balancer and hosts behind it, with host failures and changes.
//!
//! `--fail-host` kills, stops or isolates one host while UEs are active. A stopped or isolated host
//! recovers after other hosts have taken over its UEs. `--join-after` adds a host, `--leave-after`
//! removes one.

use super::args::{Replication, Serve, text};
use crate::Lab;
use crate::core::{Core, ServedProcedures};
use crate::members::HostFault;
use std::time::{Duration, Instant};
use vireo_config::Failure;

/// Returns the configuration tables of a cluster.
pub(super) fn tables(hosts: usize, replication: Replication, serve: Option<Serve>) -> String {
    let serve = serve.map_or(String::new(), |serve| format!("[steering]\nserve = {:?}\n", text(serve)));
    match hosts {
        0 => String::new(),
        _ => format!("[replication]\nmode = {:?}\n{serve}", text(replication)),
    }
}

/// Interval between readings of [`Procedures`].
const READ_EVERY: Duration = Duration::from_millis(500);

/// Number of procedures that each host's UEs have completed, by the role of the serving host.
/// Procedures of a failed host count as of its last reading.
#[derive(Debug)]
pub(super) struct Procedures {
    by_host: Vec<ServedProcedures>,
    read_at: Instant,
}

impl Default for Procedures {
    fn default() -> Self {
        Procedures { by_host: Vec::new(), read_at: Instant::now() }
    }
}

impl Procedures {
    /// Reads the numbers if they are older than [`READ_EVERY`], or if a host is about to fail.
    pub(super) fn work(&mut self, core: &Core, is_failing: bool) -> Result<(), Failure> {
        if is_failing || self.read_at.elapsed() > READ_EVERY { self.read(core) } else { Ok(()) }
    }

    /// Reads the numbers of all healthy hosts. Returns the sum over all hosts.
    pub(super) fn total(&mut self, core: &Core) -> Result<ServedProcedures, Failure> {
        self.read(core)?;
        Ok(self.by_host.iter().copied().sum())
    }

    fn read(&mut self, core: &Core) -> Result<(), Failure> {
        self.read_at = Instant::now();
        let now = core.procedures_served()?;
        self.by_host.resize(now.len(), ServedProcedures::default());
        self.by_host.iter_mut().zip(now).for_each(|(known, now)| *known = now.unwrap_or(*known));
        Ok(())
    }
}

/// Duration of a host fault. Other hosts have taken over the UEs by then.
const LASTS: Duration = Duration::from_secs(1);

/// Injects one fault into a host at a given time.
#[derive(Debug)]
pub(super) struct HostFailure {
    fate: HostFault,
    due: Instant,
    /// Failed host, and the time of its recovery.
    failing: Option<(usize, Instant)>,
    /// Number of hosts that have failed.
    pub(super) failed: u64,
}

impl HostFailure {
    /// Creates a fault that is due after `after`.
    pub(super) fn new(fate: HostFault, after: Duration) -> Self {
        HostFailure { fate, due: Instant::now() + after, failing: None, failed: 0 }
    }

    /// Returns true if the next call of [`HostFailure::work`] injects the fault.
    pub(super) fn is_due(&self) -> bool {
        self.failed == 0 && Instant::now() >= self.due
    }

    /// Injects the fault into the host with the most UEs if it is due, and ends the fault when its
    /// time is over.
    pub(super) fn work(&mut self, core: &mut Core) -> Result<(), Failure> {
        let now = Instant::now();
        if self.is_due() {
            let host = core.busiest_host()?;
            core.fail_host(host, self.fate)?;
            self.failing = Some((host, now + LASTS));
            self.failed = 1;
        }
        if let Some((host, _)) = self.failing.take_if(|(_, until)| now >= *until) {
            core.recover_host(host)?;
        }
        Ok(())
    }
}

/// Adds and removes a host at given times.
#[derive(Debug)]
pub(super) struct HostChange {
    join: Option<Instant>,
    leave: Option<Instant>,
}

impl HostChange {
    /// Creates a change with the times of each part, if requested.
    pub(super) fn new(join: Option<Duration>, leave: Option<Duration>) -> Self {
        let at = |after: Duration| Instant::now() + after;
        HostChange { join: join.map(at), leave: leave.map(at) }
    }

    /// Adds or removes a host if due. The host with the most UEs leaves.
    pub(super) fn work(&mut self, lab: &Lab, core: &mut Core) -> Result<(), Failure> {
        let now = Instant::now();
        if self.join.take_if(|due| now >= *due).is_some() {
            core.add_host(lab)?;
        }
        if self.leave.take_if(|due| now >= *due).is_some() {
            let host = core.busiest_host()?;
            core.let_host_leave(host)?;
        }
        Ok(())
    }
}
