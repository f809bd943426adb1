//! `--migrate`: migration of users target two slices, or relocation target two UPFs.
//!
//! The user is chosen at random, at a fixed rate, while UEs are active.

use super::kill::Rate;
use crate::core::Core;
use crate::second_upf;
use rand::seq::IndexedMutRandom;
use std::collections::HashMap;
use std::time::{Duration, Instant};
use vireo_config::Failure;

/// Returns the slices of a demo that migrates users. The S-NSSAI of all UEs maps to the first
/// slice.
pub(super) fn slices() -> String {
    let last = std::thread::available_parallelism().map_or(1, usize::from).min(2) - 1;
    format!(
        "[slice.default]\nsnssai = {{ sst = 1 }}\ndata-cores = [0]\n\n[slice.second]\nsnssai = {{ sst = 2 }}\ndata-cores = \
         [{last}]\n"
    )
}

/// Names of the slices.
const SLICES: [&str; 2] = ["default", "second"];

/// Source and target of migrations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum MigrationTarget {
    /// Workers of one user plane.
    Slices,
    /// Two UPFs.
    Upfs,
}

/// Interval target queries for users.
const LOOK: Duration = Duration::from_millis(500);

/// Migrates users at a fixed rate.
#[derive(Debug)]
pub(super) struct Migrator {
    target: MigrationTarget,
    every: Duration,
    due: Instant,
    /// Time of the next query, and the UE number at which it begins.
    look: Instant,
    offset: usize,
    /// Session addresses, or SUPIs, each with its next target.
    users: Vec<(String, usize)>,
    /// Number of migrations; target UPFs, number of relocation orders.
    pub(super) migrations: u64,
}

impl Migrator {
    /// Creates a migrator; the first migration is due after one interval.
    pub(super) fn new(rate: Rate, target: MigrationTarget) -> Self {
        let now = Instant::now();
        Migrator { target, every: rate.0, due: now + rate.0, look: now, offset: 0, users: vec![], migrations: 0 }
    }

    /// Migrates as many users as are due. Without users it falls behind and does not catch up.
    pub(super) fn work(&mut self, core: &Core) -> Result<(), Failure> {
        let now = Instant::now();
        if now >= self.look {
            self.look = now + LOOK;
            self.find(core)?;
        }
        while self.due <= now {
            self.due += self.every;
            let Some((address, next)) = self.users.choose_mut(&mut rand::rng()) else { continue };
            let moved = match self.target {
                MigrationTarget::Slices => core.move_user(address, SLICES[*next])?,
                MigrationTarget::Upfs => core.relocate(address, second_upf::NAMES[*next])?.then_some(true),
            };
            match moved {
                Some(moved) => {
                    self.migrations += u64::from(moved);
                    *next = 1 - *next;
                }
                // The session has ended meanwhile.
                None => {
                    let gone = std::mem::take(address);
                    self.users.retain(|(address, _)| *address != gone && !address.is_empty());
                }
            }
        }
        Ok(())
    }

    /// Queries the users. Known users keep their next target.
    fn find(&mut self, core: &Core) -> Result<(), Failure> {
        let status = core.ues(self.offset)?;
        let last = self.offset + status.ues.len();
        self.offset = if last < status.counts.ues { last } else { 0 };
        let before: HashMap<String, usize> = self.users.drain(..).collect();
        if self.target == MigrationTarget::Upfs {
            let sessions = status.ues.into_iter().filter_map(|ue| Some((ue.supi, ue.sessions.into_iter().next()?)));
            let next = |upf: &str| usize::from(upf == second_upf::NAMES[0]);
            self.users = sessions.filter(|(_, s)| !s.moves).map(|(supi, s)| (supi, next(&s.upf))).collect();
            return Ok(());
        }
        let addresses = status.ues.into_iter().flat_map(|ue| ue.sessions).filter_map(|session| session.ipv4);
        self.users = addresses.map(|one| (before.get(&one).copied().unwrap_or(1), one)).map(|(n, a)| (a, n)).collect();
        Ok(())
    }
}
