//! The host that works for a UE: how it becomes that, and which effects may leave.

use super::{Ack, Ballot, Copy, Membership, Offer, Promise, Version};
use crate::balance::HostId;
use crate::balance::map::Owners;
use smallvec::SmallVec;
use std::collections::VecDeque;

/// How far a host is that wants to hold a UE.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Taking {
    /// Not enough have promised.
    Asking,
    /// It holds the UE. What this host's copy had is the newest that was released, or this one's, whose record came with its
    /// promise.
    Holds {
        /// Who has the newest.
        newest: HostId,
        /// What it is.
        version: Version,
    },
}

/// A commit whose effects have not left.
#[derive(Clone, Debug)]
struct Waiting {
    version: Version,
    last: bool,
    accepted: SmallVec<[HostId; 4]>,
}

/// A host that holds a UE, or is about to.
#[derive(Clone, Debug)]
pub struct Holder {
    me: HostId,
    ballot: Ballot,
    membership: Membership,
    ack: Ack,
    /// What a first commit is based on that nobody was asked for.
    base: Option<Version>,
    /// Whether enough have accepted the first commit that no other host can have begun as well.
    decided: bool,
    promised: SmallVec<[(HostId, Version); 8]>,
    holds: bool,
    commits: u64,
    waiting: VecDeque<Waiting>,
    released: Option<Version>,
    settled: Option<Version>,
    gone: SmallVec<[HostId; 4]>,
    lost: Option<Ballot>,
}

impl Holder {
    fn new(me: HostId, ballot: Ballot, membership: Membership, ack: Ack) -> Self {
        Holder {
            me,
            ballot,
            membership,
            ack,
            base: None,
            decided: true,
            promised: SmallVec::new(),
            holds: false,
            commits: 0,
            waiting: VecDeque::new(),
            released: None,
            settled: None,
            gone: SmallVec::new(),
            lost: None,
        }
    }

    /// Holds a UE for the next procedure without asking, if this host's copy is free. The first commit is offered to
    /// [`Holder::first`] alone until that has accepted it, and to this host's own copy only then; `None` if the UE must be
    /// taken by [`Holder::take`].
    pub fn next(me: HostId, copy: &Copy, membership: Membership, ack: Ack) -> Option<Self> {
        let settled = membership.before.is_none() && membership.owners.has(me);
        if !copy.is_free() || !settled {
            return None;
        }
        let ballot = copy.version().ballot.after(membership.epoch, me, false);
        let mut holder = Holder::new(me, ballot, membership, ack);
        (holder.base, holder.decided, holder.holds) = (Some(copy.version()), false, true);
        Some(holder)
    }

    /// Begins to take a UE whose holder is gone, by a ballot that is later than `known`. All of [`Holder::asks`] are asked, this
    /// host's own copy among them.
    pub fn take(me: HostId, known: Ballot, membership: Membership, ack: Ack) -> Self {
        Holder::new(me, known.after(membership.epoch, me, true), membership, ack)
    }

    /// Its ballot.
    pub fn ballot(&self) -> Ballot {
        self.ballot
    }

    /// Whom to ask for promises: all owners, those before the last change of the map too.
    pub fn asks(&self) -> impl Iterator<Item = HostId> + '_ {
        let before = self.membership.before.unwrap_or_default();
        let more: SmallVec<[HostId; 4]> = before.all().filter(|host| !self.membership.owners.has(*host)).collect();
        self.membership.owners.all().chain(more)
    }

    /// Whom the first commit is offered to before all others, if the UE was taken without asking.
    pub fn first(&self) -> Option<HostId> {
        let primary = self.membership.owners.primary()?;
        let asked = self.waiting.front().is_none_or(|first| !first.accepted.contains(&primary));
        (!self.decided && asked).then_some(primary)
    }

    /// A copy has promised.
    pub fn promised(&mut self, from: HostId, promise: Promise) -> Taking {
        if promise.ballot == self.ballot && !self.promised.iter().any(|(host, _)| *host == from) {
            self.promised.push((from, promise.version));
        }
        let enough = |owners: Owners| {
            let have = owners.all().filter(|owner| self.promised.iter().any(|(host, _)| host == owner)).count();
            have >= self.ack.promises(owners.all().count())
        };
        let all = enough(self.membership.owners) && self.membership.before.is_none_or(enough);
        // of equals this host's own, whose record needs not come from elsewhere
        let newest = self.promised.iter().copied().max_by_key(|(host, version)| (*version, *host == self.me));
        match newest {
            Some((newest, version)) if all && self.lost.is_none() => {
                self.holds = true;
                Taking::Holds { newest, version }
            }
            _ => Taking::Asking,
        }
    }

    /// Whether steps may be run.
    pub fn holds(&self) -> bool {
        self.holds && self.lost.is_none()
    }

    /// The offer of a commit, `last` if the procedure ends with it: for all owners, but see [`Holder::first`]. `None` if it does
    /// not hold the UE, or its first commit is not decided yet.
    pub fn commit(&mut self, last: bool) -> Option<Offer> {
        if !self.holds() || !self.decided && self.commits > 0 {
            return None;
        }
        self.commits += 1;
        let version = Version { ballot: self.ballot, commit: self.commits };
        let base = self.base.filter(|_| self.commits == 1);
        self.waiting.push_back(Waiting { version, last, accepted: SmallVec::new() });
        Some(Offer { version, base })
    }

    /// An owner has stored a commit: the effects of those up to [`Holder::released`] may leave.
    pub fn accepted(&mut self, from: HostId, version: Version) {
        if version.ballot != self.ballot || self.lost.is_some() {
            return;
        }
        // who has stored a commit of this ballot needs none before it
        for waiting in self.waiting.iter_mut().filter(|waiting| waiting.version <= version) {
            if !waiting.accepted.contains(&from) {
                waiting.accepted.push(from);
            }
        }
        self.release();
    }

    /// An owner does not live any more, by the controller's word: nothing is waited for from it.
    pub fn gone(&mut self, host: HostId) {
        if !self.gone.contains(&host) {
            self.gone.push(host);
        }
        self.release();
    }

    fn release(&mut self) {
        while let Some(first) = self.waiting.front() {
            let owners = self.membership.owners;
            let all = owners.all().all(|host| first.accepted.contains(&host) || self.gone.contains(&host));
            let decided = self.decided_now(first);
            let enough = match self.ack {
                Ack::None => true,
                Ack::One => all || !first.last,
                Ack::All => all,
            };
            let Waiting { version, last, .. } = *first;
            self.decided |= decided;
            if !decided || !enough {
                return;
            }
            (self.released, self.settled) = (Some(version), last.then_some(version));
            self.waiting.pop_front();
        }
    }

    /// Whether a commit has the copies that it needs whoever lives.
    fn decided_now(&self, waiting: &Waiting) -> bool {
        let owners = self.membership.owners;
        let have = owners.all().filter(|host| waiting.accepted.contains(host)).count();
        waiting.accepted.contains(&self.me) && have >= self.ack.copies(owners.all().count())
    }

    /// An owner has refused: if another holder is newer, this one has lost.
    pub fn refused(&mut self, offered: Version, promised: Ballot) {
        if offered.ballot == self.ballot && (promised > self.ballot || !self.decided) {
            self.lost = self.lost.max(Some(promised.max(self.ballot)));
        }
    }

    /// A copy did not promise because of this ballot.
    pub fn denied(&mut self, promised: Ballot) {
        if !self.holds {
            self.lost = self.lost.max(Some(promised.max(self.ballot)));
        }
    }

    /// The ballot that it has lost to: nothing more may leave, and whoever wants the UE must take it by a later one.
    pub fn has_lost(&self) -> Option<Ballot> {
        self.lost
    }

    /// The newest commit whose effects may leave.
    pub fn released(&self) -> Option<Version> {
        self.released
    }

    /// The commit with which the procedure has ended, once all owners that live have it: they are told so ([`Copy::settled`]), and
    /// the host holds the UE no more. Where that message is lost the UE is taken by asking.
    pub fn settled(&self) -> Option<Version> {
        self.settled
    }

    /// The newest commit that still waits: it is offered again to who has not answered.
    pub fn pending(&self) -> Option<Version> {
        self.waiting.back().map(|waiting| waiting.version)
    }
}
