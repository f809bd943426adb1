//! Whose context of a subscriber is the one. A host at which a subscriber has registered says so to all others (a *claim*), and
//! a context of the subscriber that one of them has is superseded. Every host knows the last claim of each subscriber for a
//! while, its own and others', so that no crash loses one and none that is old wins:
//!
//! - Whoever takes over from the host that has claimed claims again, because that one may not have been heard.
//! - Whoever takes over the context that was superseded knows of the claim, because the dead host may not have got to it.
//! - When another balancer passes claims on, the last ones are said again to it, because the one before may have died with them.
//! - A host that joins is told the last ones by the balancer that passes them on: a context may come to it that one of them is about.
//! - A context that comes to another host amid a registration is not superseded by the claim of one before: it claims when the
//!   registration is complete.
//! - One whose registration is never completed claims late, when the network gives up (T3550), as of when that registration began. Claims
//!   are known for so long that it is superseded then, if another one was completed meanwhile.
//!
//! So a claim may come twice, or after a later one: the time of the registration tells which is the last. A host whose clock
//! is behind claims later than what it has heard nevertheless.

use crate::context::{Procedure, UeContext};
use rustc_hash::FxHashMap;
use std::collections::VecDeque;
use vireo_types::{Duration, Instant, Ltmsi, Supi};

/// How long a claim is known at least: longer than it takes to find out that a host or balancer is dead and to take over.
const KNOWN: Duration = Duration::from_secs(10);
/// Claims that are known at most; then the oldest go.
const MOST: usize = 1 << 18;

/// A subscriber has registered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Claim {
    /// Who.
    pub supi: Supi,
    /// The UE that has the context.
    pub ue: Ltmsi,
    /// When it registered.
    pub at: Instant,
}

#[derive(Clone, Copy, Debug)]
struct KnownClaim {
    ue: Ltmsi,
    at: Instant,
    /// This host has made it.
    own: bool,
    /// When it came here last.
    came: Instant,
}

/// What becomes of a context that comes to this host, or of the one of the same subscriber that is here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClaimResolution {
    /// The one that comes is superseded.
    Goes,
    /// It stays, and supersedes the other.
    Stays,
    /// It stays, and claims when the registration is complete that it is amid: until then another one may be the subscriber's.
    Registers,
    /// No claim says.
    Unknown,
}

/// The last claims.
#[derive(Debug)]
pub struct Claims {
    last: FxHashMap<Supi, KnownClaim>,
    /// In the order in which they came.
    order: VecDeque<(Instant, Supi)>,
    /// How long each is known.
    known: Duration,
    /// Those that went before that time was over, since that was asked last.
    early: u64,
}

impl Default for Claims {
    fn default() -> Self {
        Claims::new(Duration::default())
    }
}

impl Claims {
    /// None yet, where a registration that is never completed is given up after so long.
    pub fn new(given_up: Duration) -> Self {
        Claims {
            last: FxHashMap::default(),
            order: VecDeque::new(),
            known: Duration(given_up.0.saturating_add(KNOWN.0)),
            early: 0,
        }
    }

    fn put(&mut self, Claim { supi, ue, at }: Claim, own: bool, now: Instant) {
        self.last.insert(supi, KnownClaim { ue, at, own, came: now });
        self.order.push_back((now, supi));
        while let Some((came, supi)) = self.order.front().copied()
            && (now.since(came) > self.known || self.order.len() > MOST)
        {
            self.order.pop_front();
            // One that came again has a later place.
            if self.last.get(&supi).is_some_and(|known| known.came == came) {
                self.last.remove(&supi);
                self.early += u64::from(now.since(came) <= self.known);
            }
        }
    }

    /// A subscriber has registered here: the claim that others are to be told. Also where the context was theirs before: another one, of
    /// a registration that began since then and is not completed, may be anywhere.
    pub fn binds(&mut self, supi: Supi, ue: Ltmsi, at: Instant, now: Instant) -> Claim {
        let after = self.last.get(&supi).map_or(0, |known| known.at.0 + 1);
        let claim = Claim { supi, ue, at: Instant(at.0.max(after)) };
        self.put(claim, true, now);
        claim
    }

    /// A host that is dead has claimed, or was about to, what is this host's now; or a registration has come to its end here that
    /// began at that time and was never completed. The claim to be told, or that somebody has claimed the subscriber since. `is_it` tells
    /// whether a UE is this one, by any number that leads to it.
    ///
    /// # Errors
    ///
    /// When somebody has: the context is superseded.
    pub fn repeat_for_takeover(
        &mut self,
        (supi, ue): (Supi, Ltmsi),
        is_it: impl Fn(Ltmsi) -> bool,
        at: Instant,
        now: Instant,
    ) -> Result<Claim, ClaimResolution> {
        let claim = match self.last.get(&supi) {
            Some(known) if known.ue == ue || is_it(known.ue) => Claim { supi, ue, at: known.at.max(at) },
            Some(known) if (known.at, known.ue) > (at, ue) => return Err(ClaimResolution::Goes),
            _ => Claim { supi, ue, at },
        };
        self.put(claim, true, now);
        Ok(claim)
    }

    /// Another host claims. Whether that is news, or as well as before: not if it is older than what is known.
    pub fn on_remote_claim(&mut self, claim: Claim, now: Instant) -> bool {
        let old = |known: &KnownClaim| (known.at, known.ue) > (claim.at, claim.ue);
        if self.last.get(&claim.supi).is_some_and(old) {
            return false;
        }
        self.put(claim, false, now);
        true
    }

    /// A subscriber's context comes to this host: what becomes of it. `is_it` tells whether a UE is that one, by any number
    /// that leads to it, and `claimed` when one of its last commits has claimed the subscriber, which may not have been heard
    /// here.
    pub fn resolve(
        &self,
        ue: &UeContext,
        is_it: impl Fn(Ltmsi) -> bool,
        claimed: impl Fn() -> Option<Instant>,
    ) -> ClaimResolution {
        let later = |known: &KnownClaim| claimed().is_some_and(|at| (at, ue.ltmsi) >= (known.at, known.ue));
        match ue.identity.supi.and_then(|supi| self.last.get(&supi)) {
            Some(known) if is_it(known.ue) || later(known) => ClaimResolution::Stays,
            // Whether or not a claim is known: a host that has only just joined knows none.
            _ if matches!(ue.procedure, Some(Procedure::Registration(_))) => ClaimResolution::Registers,
            None => ClaimResolution::Unknown,
            Some(_) => ClaimResolution::Goes,
        }
    }

    /// How many were forgotten before their time since this was asked last, as there were more than can be known: of two contexts of such
    /// a subscriber both may stay.
    pub fn forgotten_early(&mut self) -> u64 {
        std::mem::take(&mut self.early)
    }

    /// The UE that the last claim names.
    pub fn of(&self, supi: Supi) -> Option<Ltmsi> {
        self.last.get(&supi).map(|known| known.ue)
    }

    /// All that are known: what a host that joins is told by who passes them on.
    pub fn recent(&self, now: Instant) -> impl Iterator<Item = Claim> {
        let recent = self.last.iter().filter(move |(_, known)| now.since(known.came) <= self.known);
        recent.map(|(supi, known)| Claim { supi: *supi, ue: known.ue, at: known.at })
    }

    /// This host's own that came lately, which a balancer may have died with.
    pub fn own(&self, now: Instant) -> impl Iterator<Item = Claim> {
        let own = self.last.iter().filter(move |(_, known)| known.own && now.since(known.came) <= KNOWN);
        own.map(|(supi, known)| Claim { supi: *supi, ue: known.ue, at: known.at })
    }
}

#[cfg(test)]
mod tests;
