//! `--chain sba --state redis`: the functions of a service-based chain keep their state in a database, and `--kill`: one of them
//! is killed amid the run. An SMF is started again at once, as whoever supervises it would, and goes on with what the database has;
//! of two AMFs behind a balancer, which has N2, the other one goes on.

use crate::cli::Failure;
use crate::lab::Lab;
use crate::lab::core::Core;
use crate::lab::redis::Redis;
use clap::ValueEnum;
use std::time::{Duration, Instant};

/// Where the functions keep their state.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum State {
    /// In a Redis, started for it
    Redis,
}

/// When they load it from there and commit it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum Persist {
    /// At each transaction
    Transaction,
    /// At the first and the last of a procedure
    Procedure,
}

/// A function that is killed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum Victim {
    /// The SMF
    Smf,
    /// The UPF
    Upf,
    /// One of two AMFs
    Amf,
}

impl Victim {
    /// AMFs behind a balancer that it takes; 0 = one with N2 itself.
    pub(super) const fn amfs(self) -> u8 {
        match self {
            Victim::Smf | Victim::Upf => 0,
            Victim::Amf => 2,
        }
    }
}

impl State {
    /// Starts what it needs.
    pub(super) fn start(self, lab: &Lab) -> Result<Redis, Failure> {
        match self {
            State::Redis => Redis::start(lab, &[]),
        }
    }

    /// The table of the configuration.
    pub(super) const fn table(self, persist: Persist) -> &'static str {
        match (self, persist) {
            (State::Redis, Persist::Transaction) => "[state]\npreset = \"transactional\"\n",
            (State::Redis, Persist::Procedure) => "[state]\npreset = \"procedural\"\n",
        }
    }
}

/// Kills a function.
#[derive(Debug)]
pub(super) struct Kill {
    victim: Victim,
    due: Option<Instant>,
}

impl Kill {
    /// One is killed after so long.
    pub(super) fn new(victim: Victim, after: Duration) -> Self {
        Kill { victim, due: Some(Instant::now() + after) }
    }

    /// Does it if it is time.
    pub(super) fn work(&mut self, lab: &Lab, core: &mut Core) -> Result<(), Failure> {
        if self.due.take_if(|due| Instant::now() >= *due).is_none() {
            return Ok(());
        }
        match self.victim {
            Victim::Smf => core.kill_function(lab, "smf"),
            Victim::Upf => core.kill_function(lab, "upf"),
            Victim::Amf => core.kill_amf(),
        }
    }

    /// Whether it was done.
    pub(super) fn is_done(&self) -> bool {
        self.due.is_none()
    }

    /// AMFs that were killed, and that others went on for.
    pub(super) fn amfs(&self) -> u64 {
        u64::from(self.is_done() && self.victim == Victim::Amf)
    }
}
