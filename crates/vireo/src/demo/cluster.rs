//! `--hosts`: the core as a balancer and hosts behind it, and `--fail-host`: one of the hosts dies, or is stopped and wakes
//! when others have its UEs, while the UEs are busy; `--join-after` and `--leave-after`: a host joins, one leaves.

use super::text;
use crate::cli::Failure;
use crate::lab::Lab;
use crate::lab::core::Core;
use clap::ValueEnum;
use std::fs::File;
use std::time::{Duration, Instant};

/// What befalls a host.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum Fate {
    /// SIGKILL
    Kill,
    /// SIGSTOP, and SIGCONT a second later: its UEs are others' by then
    Stop,
}

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
        _ => format!("[cluster]\nhosts = {hosts}\n[replication]\nmode = {:?}\n", text(replication)),
    }
}

/// How long a stopped host sleeps.
const STOPPED: Duration = Duration::from_secs(1);

/// Brings about what befalls a host.
#[derive(Debug)]
pub(super) struct Doom {
    fate: Fate,
    due: Instant,
    /// The host, and when it wakes.
    stopped: Option<(usize, Instant)>,
    /// Hosts that have failed.
    pub(super) failed: u64,
}

impl Doom {
    /// A host fails after so long.
    pub(super) fn new(fate: Fate, after: Duration) -> Self {
        Doom { fate, due: Instant::now() + after, stopped: None, failed: 0 }
    }

    /// Does it if it is time.
    pub(super) fn work(&mut self, core: &mut Core) -> Result<(), Failure> {
        let now = Instant::now();
        if self.failed == 0 && now >= self.due {
            let host = core.busiest_host()?;
            match self.fate {
                Fate::Kill => core.signal_host(host, libc::SIGKILL)?,
                Fate::Stop => {
                    core.signal_host(host, libc::SIGSTOP)?;
                    self.stopped = Some((host, now + STOPPED));
                }
            }
            self.failed = 1;
        }
        if let Some((host, _)) = self.stopped.take_if(|(_, until)| now >= *until) {
            core.signal_host(host, libc::SIGCONT)?;
        }
        Ok(())
    }
}

/// Lets a host join, and another one leave.
#[derive(Debug)]
pub(super) struct Change {
    join: Option<Instant>,
    leave: Option<Instant>,
    log: File,
}

impl Change {
    /// Each after so long, if at all; the host that joins writes to `log`.
    pub(super) fn new(join: Option<Duration>, leave: Option<Duration>, log: File) -> Self {
        let at = |after: Duration| Instant::now() + after;
        Change { join: join.map(at), leave: leave.map(at), log }
    }

    /// Does it if it is time. The host with the most UEs leaves.
    pub(super) fn work(&mut self, lab: &Lab, core: &mut Core) -> Result<(), Failure> {
        let now = Instant::now();
        if self.join.take_if(|due| now >= *due).is_some() {
            core.add_host(lab, self.log.try_clone()?)?;
        }
        if self.leave.take_if(|due| now >= *due).is_some() {
            let host = core.busiest_host()?;
            core.let_host_leave(host)?;
        }
        Ok(())
    }
}
