//! A host's copy of one UE: what it accepts, refuses and promises. The record itself is the caller's.

use super::{Ballot, Version};

/// What a holder wants its owners to store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Offer {
    /// What it is.
    pub version: Version,
    /// The free version that a holder has begun with who has not asked for promises; only with its first commit.
    pub base: Option<Version>,
}

/// What a copy says to an offer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// The record is stored now, or was.
    Accepted(Version),
    /// It is not, because of this ballot.
    Refused {
        /// What was offered.
        offered: Version,
        /// The newest holder that this copy knows of; one that wants the UE must be newer.
        promised: Ballot,
    },
}

/// What a copy says to who wants to hold the UE.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Promise {
    /// The ballot that was asked for: older ones are refused from now on.
    pub ballot: Ballot,
    /// What this copy has; the record goes with the promise.
    pub version: Version,
}

/// A copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Copy {
    promised: Ballot,
    version: Version,
    free: bool,
}

impl Default for Copy {
    fn default() -> Self {
        Copy { promised: Ballot::NONE, version: Version::NONE, free: true }
    }
}

impl Copy {
    /// What is stored.
    pub const fn version(&self) -> Version {
        self.version
    }

    /// The newest holder that it knows of.
    pub const fn promised(&self) -> Ballot {
        self.promised
    }

    /// A procedure has ended with this version, which all owners that live have: another of them may hold the UE next.
    pub fn settled(&mut self, version: Version) {
        self.free |= self.version == version;
    }

    /// Whether no procedure runs, as far as this copy knows.
    pub fn is_free(&self) -> bool {
        self.free && self.promised <= self.version.ballot
    }

    /// A holder's offer: if it is accepted, the caller stores the record in the same step. `epoch` is that of the host's map.
    pub fn offered(&mut self, offer: &Offer, epoch: u64) -> Answer {
        let Offer { version, base } = *offer;
        if version == self.version {
            return Answer::Accepted(version);
        }
        let unchanged = |base: Version| {
            // nobody has held the UE since, as far as this copy knows
            self.version <= base && self.promised <= base.ballot
        };
        let newer = version > self.version && version.ballot >= self.promised;
        if version.ballot.epoch < epoch || !newer || !base.is_none_or(unchanged) {
            return Answer::Refused { offered: version, promised: self.newest(epoch) };
        }
        *self = Copy { promised: version.ballot, version, free: false };
        Answer::Accepted(version)
    }

    /// The newest ballot that is known of; that of a later epoch stands for whoever holds by it.
    fn newest(&self, epoch: u64) -> Ballot {
        self.promised.max(self.version.ballot).max(Ballot { epoch, ..Ballot::NONE })
    }

    /// Somebody wants to hold the UE: older holders are refused from now on. `Err` names the ballot that is in the way.
    pub fn asked(&mut self, ballot: Ballot, epoch: u64) -> Result<Promise, Ballot> {
        // the same host may ask again; a turn that somebody has had is nobody else's
        let had = (ballot.epoch, ballot.turn) <= (self.version.ballot.epoch, self.version.ballot.turn);
        if ballot.epoch < epoch || ballot < self.promised || had {
            return Err(self.newest(epoch));
        }
        self.promised = ballot;
        Ok(Promise { ballot, version: self.version })
    }
}
