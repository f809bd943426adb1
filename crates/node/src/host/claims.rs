//! Whose context of a subscriber is the one. A host at which a subscriber has registered says so to all others (a *claim*), and
//! a context of the subscriber that one of them has is superseded. Every host knows the last claim of each subscriber for a
//! while, its own and others', so that no crash loses one and none that is old wins:
//!
//! - Whoever takes over from the host that has claimed claims again, because that one may not have been heard.
//! - Whoever takes over the context that was superseded knows of the claim, because the dead host may not have got to it.
//! - When another balancer passes claims on, the last ones are said again to it, because the one before may have died with them.
//!
//! So a claim may come twice, or after a later one: the time of the registration tells which is the last. A host whose clock
//! is behind claims later than what it has heard nevertheless.

use super::{Host, Parcel};
use crate::balancer::Command;
use crate::clock::clock;
use rustc_hash::FxHashMap;
use std::collections::VecDeque;
use vireo_core::schedule::kind::NfKind;
use vireo_store::region::{Key, Slot};
use vireo_types::{Duration, Instant, Ltmsi, Supi};

/// How long a claim is known: longer than it takes to find out that a host or balancer is dead and to take over.
const KNOWN: Duration = Duration::from_secs(10);
/// Claims that are known at most; then the oldest go.
const MOST: usize = 1 << 18;

/// A subscriber has registered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Claim {
    /// Who.
    pub(super) supi: Supi,
    /// The UE that has the context.
    pub(super) ue: Ltmsi,
    /// When it registered.
    pub(super) at: Instant,
}

#[derive(Clone, Copy, Debug)]
struct Known {
    ue: Ltmsi,
    at: Instant,
    /// This host has made it.
    own: bool,
    /// When it came here last.
    came: Instant,
}

/// What becomes of a context that comes to this host, or of the one of the same subscriber that is here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// The one that comes is superseded.
    Goes,
    /// It stays, and supersedes the other.
    Stays,
    /// No claim says.
    Unknown,
}

/// The last claims.
#[derive(Debug, Default)]
pub(super) struct Claims {
    last: FxHashMap<Supi, Known>,
    /// In the order in which they came.
    order: VecDeque<(Instant, Supi)>,
}

impl Claims {
    fn put(&mut self, Claim { supi, ue, at }: Claim, own: bool, now: Instant) {
        self.last.insert(supi, Known { ue, at, own, came: now });
        self.order.push_back((now, supi));
        while let Some((came, supi)) = self.order.front().copied()
            && (now.since(came) > KNOWN || self.order.len() > MOST)
        {
            self.order.pop_front();
            // One that came again has a later place.
            if self.last.get(&supi).is_some_and(|known| known.came == came) {
                self.last.remove(&supi);
            }
        }
    }

    /// A subscriber has registered here: the claim that others are to be told.
    pub(super) fn make(&mut self, supi: Supi, ue: Ltmsi, at: Instant, now: Instant) -> Claim {
        let after = self.last.get(&supi).map_or(0, |known| known.at.0 + 1);
        let claim = Claim { supi, ue, at: Instant(at.0.max(after)) };
        self.put(claim, true, now);
        claim
    }

    /// A host that is dead has claimed, or was about to, what is this host's now: the claim to be told again, or that somebody
    /// has claimed the subscriber since.
    pub(super) fn again(&mut self, supi: Supi, ue: Ltmsi, at: Instant, now: Instant) -> Result<Claim, Verdict> {
        let claim = match self.last.get(&supi) {
            Some(known) if known.ue == ue => Claim { supi, ue, at: known.at.max(at) },
            Some(known) if (known.at, known.ue) > (at, ue) => return Err(Verdict::Goes),
            _ => Claim { supi, ue, at },
        };
        self.put(claim, true, now);
        Ok(claim)
    }

    /// Another host claims. Whether that is news, or as well as before: not if it is older than what is known.
    pub(super) fn hear(&mut self, claim: Claim, now: Instant) -> bool {
        let old = |known: &Known| (known.at, known.ue) > (claim.at, claim.ue);
        if self.last.get(&claim.supi).is_some_and(old) {
            return false;
        }
        self.put(claim, false, now);
        true
    }

    /// A subscriber's context comes to this host: what becomes of it. `is_it` tells whether a UE is that one, by any number
    /// that leads to it.
    pub(super) fn enters(&self, supi: Supi, is_it: impl Fn(Ltmsi) -> bool) -> Verdict {
        match self.last.get(&supi) {
            None => Verdict::Unknown,
            Some(known) if is_it(known.ue) => Verdict::Stays,
            Some(_) => Verdict::Goes,
        }
    }

    /// The UE that the last claim names.
    pub(super) fn of(&self, supi: Supi) -> Option<Ltmsi> {
        self.last.get(&supi).map(|known| known.ue)
    }

    /// This host's own, which a balancer may have died with.
    pub(super) fn own(&self) -> impl Iterator<Item = Claim> {
        let own = self.last.iter().filter(|(_, known)| known.own);
        own.map(|(supi, known)| Claim { supi: *supi, ue: known.ue, at: known.at })
    }
}

impl Host {
    /// The subscriber has registered: the context is theirs, and another one that was goes.
    pub(super) fn bind_supi(&mut self, slot: Slot, supi: Supi, at: Instant) {
        let ue = self.region.ltmsi_of(slot);
        let before = self.region.lookup(Key::Supi, supi.as_u64());
        if before == Some(slot) {
            // Others may know it by the number that it had before.
            let known = self.cluster.as_ref().and_then(|cluster| cluster.claims.of(supi));
            if known.is_none() || known == ue {
                return;
            }
        }
        self.supersede(before.filter(|old| *old != slot), supi);
        if let (Some(cluster), Some(ue)) = (self.cluster.as_mut(), ue) {
            let claim = cluster.claims.make(supi, ue, at, clock());
            self.say(claim);
        }
        self.bind(slot, Key::Supi, supi.as_u64());
    }

    fn say(&mut self, Claim { supi, ue, at }: Claim) {
        self.egress.send(Command::Claim { supi, ue, at });
    }

    /// Another context is the subscriber's now.
    fn supersede(&mut self, old: Option<Slot>, supi: Supi) {
        if let Some(old) = old {
            self.region.unbind(old, Key::Supi, supi.as_u64());
            self.deliver(old, &Parcel::Superseded, NfKind::StateManagement);
        }
    }

    /// The subscriber has registered at another host: the context here is superseded, unless it is that one, handed over
    /// since.
    pub(super) fn claimed(&mut self, claim: Claim) {
        let Some(cluster) = self.cluster.as_mut() else { return };
        if cluster.claims.hear(claim, clock()) {
            let same = self.region.slot_of(claim.ue);
            let here = self.region.lookup(Key::Supi, claim.supi.as_u64());
            self.supersede(here.filter(|here| same != Some(*here)), claim.supi);
        }
    }

    /// A subscriber's context has come here from another host.
    pub(super) fn enter_supi(&mut self, slot: Slot, supi: Supi) {
        let Some(cluster) = self.cluster.as_ref() else { return };
        let region = &self.region;
        let verdict = cluster.claims.enters(supi, |ue| region.slot_of(ue) == Some(slot));
        let here = region.lookup(Key::Supi, supi.as_u64()).filter(|here| *here != slot);
        match (verdict, here) {
            (Verdict::Goes, _) => return self.deliver(slot, &Parcel::Superseded, NfKind::StateManagement),
            (Verdict::Unknown, Some(_)) => {
                return tracing::debug!("two contexts of a subscriber, and no claim says which");
            }
            (Verdict::Stays | Verdict::Unknown, here) => self.supersede(here, supi),
        }
        self.bind(slot, Key::Supi, supi.as_u64());
    }

    /// What a dead host may have claimed for a UE that is this host's now.
    pub(super) fn claim_again(&mut self, slot: Slot, supi: Supi, at: Instant) {
        let (Some(cluster), Some(ue)) = (self.cluster.as_mut(), self.region.ltmsi_of(slot)) else { return };
        match cluster.claims.again(supi, ue, at, clock()) {
            Ok(claim) => {
                self.say(claim);
                let here = self.region.lookup(Key::Supi, supi.as_u64());
                self.supersede(here.filter(|here| *here != slot), supi);
                self.bind(slot, Key::Supi, supi.as_u64());
            }
            // It was told so when it was entered, or is now.
            Err(_) if self.region.lookup(Key::Supi, supi.as_u64()) != Some(slot) => {}
            Err(_) => self.supersede(Some(slot), supi),
        }
    }

    /// Another balancer passes claims on from now on.
    pub(super) fn say_claims_again(&mut self) {
        let Some(cluster) = self.cluster.as_ref() else { return };
        let is_there = |claim: &Claim| {
            let here = self.region.lookup(Key::Supi, claim.supi.as_u64());
            here.is_some() && here == self.region.slot_of(claim.ue)
        };
        let claims: Vec<Claim> = cluster.claims.own().filter(is_there).collect();
        claims.into_iter().for_each(|claim| self.say(claim));
    }
}

#[cfg(test)]
mod tests;
