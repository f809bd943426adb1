//! `--migrate`: users are moved between two slices of the user plane while they are busy, or between two UPFs. Who is left
//! to chance; how often is not.

use super::kill::Rate;
use crate::cli::Failure;
use crate::lab::core::Core;
use rand::seq::IndexedMutRandom;
use std::collections::HashMap;
use std::time::{Duration, Instant};

/// The slices of a demo whose users move: all UEs are of the first by their S-NSSAI.
pub(super) fn slices() -> String {
    let last = std::thread::available_parallelism().map_or(1, usize::from).min(2) - 1;
    format!(
        "[slice.default]\nsnssai = {{ sst = 1 }}\ndata-cores = [0]\n\n[slice.second]\nsnssai = {{ sst = 2 }}\ndata-cores = \
         [{last}]\n"
    )
}

/// Slices, and UPFs, that users are moved between.
const SLICES: [&str; 2] = ["default", "second"];
const UPFS: [&str; 2] = ["embedded", super::second_upf::NAME];

/// What users are moved between.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Between {
    /// Workers of one user plane.
    Slices,
    /// User planes.
    Upfs,
}

/// How often it asks who is there.
const LOOK: Duration = Duration::from_millis(500);

/// Moves users, one after the other.
#[derive(Debug)]
pub(super) struct Migrator {
    between: Between,
    every: Duration,
    due: Instant,
    /// When it asks again who is there, and from which UE on.
    look: Instant,
    offset: usize,
    /// Addresses of sessions, or SUPIs, and where each goes to next.
    users: Vec<(String, usize)>,
    /// How many it has moved; between UPFs, how many it has ordered to be.
    pub(super) migrations: u64,
}

impl Migrator {
    /// Begins now: the first one is moved after one interval.
    pub(super) fn new(rate: Rate, between: Between) -> Self {
        let now = Instant::now();
        Migrator { between, every: rate.0, due: now + rate.0, look: now, offset: 0, users: vec![], migrations: 0 }
    }

    /// Moves as many as are due. While there is nobody it is behind, and does not make up for it.
    pub(super) fn work(&mut self, core: &Core) -> Result<(), Failure> {
        let now = Instant::now();
        if now >= self.look {
            self.look = now + LOOK;
            self.find(core)?;
        }
        while self.due <= now {
            self.due += self.every;
            let Some((address, next)) = self.users.choose_mut(&mut rand::rng()) else { continue };
            let moved = match self.between {
                Between::Slices => core.move_user(address, SLICES[*next])?,
                Between::Upfs => core.relocate(address, UPFS[*next])?.then_some(true),
            };
            match moved {
                Some(moved) => {
                    self.migrations += u64::from(moved);
                    *next = 1 - *next;
                }
                // its session has ended meanwhile
                None => {
                    let gone = std::mem::take(address);
                    self.users.retain(|(address, _)| *address != gone && !address.is_empty());
                }
            }
        }
        Ok(())
    }

    /// Asks who is there. Those that were there before go on from where they are.
    fn find(&mut self, core: &Core) -> Result<(), Failure> {
        let status = core.ues(self.offset)?;
        let last = self.offset + status.ues.len();
        self.offset = if last < status.counts.ues { last } else { 0 };
        let before: HashMap<String, usize> = self.users.drain(..).collect();
        if self.between == Between::Upfs {
            let sessions = status.ues.into_iter().filter_map(|ue| Some((ue.supi, ue.sessions.into_iter().next()?)));
            let next = |upf: &str| usize::from(upf == UPFS[0]);
            self.users = sessions.filter(|(_, s)| !s.moves).map(|(supi, s)| (supi, next(&s.upf))).collect();
            return Ok(());
        }
        let addresses = status.ues.into_iter().flat_map(|ue| ue.sessions).filter_map(|session| session.ipv4);
        self.users = addresses.map(|one| (before.get(&one).copied().unwrap_or(1), one)).map(|(n, a)| (a, n)).collect();
        Ok(())
    }
}
