//! `--hosts`: a balancer and hosts behind it, with host failures and changes.
//!
//! `--fail-host` kills, stops or isolates one host while UEs are active. A stopped or isolated host
//! recovers after other hosts have taken over its UEs. `--join-after` adds a host, `--leave-after`
//! removes one.

use super::args::{Replication, text};
use crate::Lab;
use crate::core::Core;
use crate::members::HostFault;
use std::time::{Duration, Instant};
use vireo_config::Failure;

/// Returns the configuration tables of a cluster.
pub(super) fn tables(hosts: usize, replication: Replication) -> String {
    match hosts {
        0 => String::new(),
        _ => format!("[replication]\nmode = {:?}\n", text(replication)),
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

    /// Injects the fault into the host with the most UEs if it is due, and ends the fault when its
    /// time is over.
    pub(super) fn work(&mut self, core: &mut Core) -> Result<(), Failure> {
        let now = Instant::now();
        if self.failed == 0 && now >= self.due {
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
