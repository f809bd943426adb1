//! Copies of a UE's context on several hosts, and who may change it: what makes a host's death, stop or cut-off lose nothing
//! and let no two hosts speak for a UE (DESIGN decisions 5 and 6). Pure: messages, records and time are the caller's.
//!
//! The hosts of a UE's bucket ([`Owners`]) each keep a [`Copy`]. One of them at a time is the UE's [`Holder`] and carries out its
//! procedures, under a [`Ballot`] that no other host has. A commit goes like this:
//!
//! 1. The step is run on the context; [`Holder::commit`] gives the [`Offer`] that goes with the encoded context and its outbox to
//!    all owners, the host itself among them.
//! 2. Each owner asks its copy, [`Copy::offered`]: it is accepted and stored, or refused because another holder is newer, or the
//!    epoch is old.
//! 3. Answers go to [`Holder::accepted`] and [`Holder::refused`]. The effects of all commits up to [`Holder::released`] may leave,
//!    and no others: as many copies have it as [`Ack`] asks for, and of a procedure's last commit all that live.
//! 4. A holder that has lost ([`Holder::has_lost`]) forgets what was not released, sends nothing of it, and hands the event on.
//!
//! When all that live have a procedure's last commit, [`Holder::settled`] says so, the owners are told, and the UE is *free*. Whichever owner has the next one takes it in one round trip
//! ([`Holder::next`]): its first commit says what it is based on, and the primary, asked first, accepts it from one host only.
//! Where a holder has died, or the primary does not answer, the UE is taken by asking ([`Holder::take`]): enough copies promise
//! to refuse older holders and say what they have that at least one of them knows each commit that was ever released. The
//! newest is adopted, outbox and all: what of it had left already is dropped by whoever receives it twice (decision 4).
//!
//! With `W` copies to a commit and `N` owners, `N - W + 1` must promise. Where so many do not live any more, a commit may be lost
//! whose copies are all gone; the UE's keys may not be used again then, and it is authenticated anew.

mod copy;
mod holder;
#[cfg(test)]
mod tests;

pub use copy::{Answer, Copy, Offer, Promise};
pub use holder::{Holder, Taking};

use crate::balance::HostId;
use crate::balance::map::Owners;

/// What a holder changes a UE's context under. Later ones are greater; no two hosts have the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ballot {
    /// The epoch of the bucket map by which it was taken.
    pub epoch: u64,
    /// Counts who has held the UE in the epoch.
    pub turn: u32,
    /// Whether promises were asked for. Of the same turn it is later then: what a host has begun without asking, and was never
    /// decided, must not look newer than what was.
    pub asked: bool,
    /// The holder.
    pub host: HostId,
}

impl Ballot {
    /// Before any.
    pub const NONE: Ballot = Ballot { epoch: 0, turn: 0, asked: false, host: HostId(0) };

    /// One of a host that is greater than this, in an epoch or this one's if that is later.
    fn after(self, epoch: u64, host: HostId, asked: bool) -> Self {
        let turn = if epoch > self.epoch { 1 } else { self.turn.saturating_add(1) };
        Ballot { epoch: epoch.max(self.epoch), turn, asked, host }
    }
}

/// A state of a UE's context.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Version {
    /// Whose commit it is.
    pub ballot: Ballot,
    /// Counts the commits of the ballot, from 1.
    pub commit: u64,
}

impl Version {
    /// Before any.
    pub const NONE: Version = Version { ballot: Ballot::NONE, commit: 0 };
}

/// How many copies of a commit are waited for before its effects leave.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Ack {
    /// None but the holder's own: a host's death may lose what was sent last.
    None,
    /// The holder's and one other.
    #[default]
    One,
    /// Those of all owners that live.
    All,
}

impl Ack {
    /// All of them.
    pub const ALL: [Ack; 3] = [Ack::None, Ack::One, Ack::All];

    /// Its name in the configuration (`replication.ack`).
    pub const fn name(self) -> &'static str {
        match self {
            Ack::None => "none",
            Ack::One => "one",
            Ack::All => "all",
        }
    }

    /// That of a name.
    pub fn from_name(name: &str) -> Option<Self> {
        Ack::ALL.into_iter().find(|ack| ack.name() == name)
    }

    /// How many of so many copies must have a commit, whichever live. [`Ack::All`] means those that live, of which there may be
    /// few; what it may be relied on for is two.
    fn copies(self, owners: usize) -> usize {
        match self {
            Ack::None => 1,
            Ack::One | Ack::All => owners.min(2),
        }
    }

    /// How many owners must promise, so that each commit that was released is known to one of them. With [`Ack::None`] that
    /// cannot be, and it is as many as with one.
    fn promises(self, owners: usize) -> usize {
        owners + 1 - Ack::One.copies(owners)
    }
}

/// Who must promise: owners by the map, and by the one before it as long as not all UEs of the bucket have been committed since.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Membership {
    /// The epoch.
    pub epoch: u64,
    /// Who keeps copies by it.
    pub owners: Owners,
    /// Who kept them before, if that is not over.
    pub before: Option<Owners>,
}
