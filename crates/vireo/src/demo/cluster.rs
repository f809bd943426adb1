//! `--hosts`: the core as a balancer and hosts behind it, and `--fail-host`: one of the hosts dies, or is stopped or cut off
//! until others have its UEs, while the UEs are busy; `--join-after` and `--leave-after`: a host joins, one leaves.

use super::text;
use crate::cli::Failure;
use crate::lab::Lab;
use crate::lab::core::Core;
use crate::lab::members::HostFault;
use clap::ValueEnum;
use std::time::{Duration, Instant};

/// Which commits are copied to another host.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum Replication {
    /// None
    None,
    /// Those that end a procedure
    Cold,
    /// Each
    Hot,
}

/// The tables of the configuration.
pub(super) fn tables(hosts: usize, replication: Replication) -> String {
    match hosts {
        0 => String::new(),
        _ => format!("[replication]\nmode = {:?}\n", text(replication)),
    }
}

/// How long what befell a host lasts: its UEs are others' by then.
const LASTS: Duration = Duration::from_secs(1);

/// Brings about what befalls a host.
#[derive(Debug)]
pub(super) struct HostFailure {
    fate: HostFault,
    due: Instant,
    /// The host, and when that ends.
    failing: Option<(usize, Instant)>,
    /// Hosts that have failed.
    pub(super) failed: u64,
}

impl HostFailure {
    /// A host fails after so long.
    pub(super) fn new(fate: HostFault, after: Duration) -> Self {
        HostFailure { fate, due: Instant::now() + after, failing: None, failed: 0 }
    }

    /// Does it if it is time.
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

/// Lets a host join, and another one leave.
#[derive(Debug)]
pub(super) struct HostChange {
    join: Option<Instant>,
    leave: Option<Instant>,
}

impl HostChange {
    /// Each after so long, if at all.
    pub(super) fn new(join: Option<Duration>, leave: Option<Duration>) -> Self {
        let at = |after: Duration| Instant::now() + after;
        HostChange { join: join.map(at), leave: leave.map(at) }
    }

    /// Does it if it is time. The host with the most UEs leaves.
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
