//! Claims: which of several contexts of a subscriber is valid.
//!
//! A host at which a subscriber has registered announces that to all others (a *claim*), and a
//! context of the subscriber at another host is superseded. Every host knows the last claim of each
//! subscriber for a limited time, both its own and remote ones. No crash loses a claim, and no old
//! claim wins:
//!
//! - The host that takes over from a host that has claimed repeats the claim, because the first
//!   announcement may be lost.
//! - The host that takes over the superseded context knows the claim, because the dead host may not
//!   have executed it.
//! - When another balancer starts to distribute claims, hosts repeat their recent claims to it,
//!   because they may have been lost with the previous balancer.
//! - A joining host receives the recent claims from the balancer that distributes them: one of them
//!   may concern a context that later arrives there.
//! - A context that arrives at another host may overtake its claim. Before that host supersedes it,
//!   all balancers answer a barrier ([`super::BucketOwner::hold_back`]).
//! - A context that arrives at another host during its registration is not superseded by an earlier
//!   claim: it claims when the registration is complete.
//! - A registration that is never completed claims late, when the network gives up (T3550), with
//!   the time at which it began. Claims are kept long enough for it to be superseded if another
//!   registration was completed meanwhile.
//!
//! A claim may therefore arrive twice, or after a later one; the time of the registration decides
//! which is the last. A host whose clock is behind uses a time later than that of the known claim.

use crate::amf::context::{Procedure, UeContext};
use rustc_hash::FxHashMap;
use serde::{Deserialize, Serialize};
use std::collections::VecDeque;
use vireo_types::{Duration, Instant, Ltmsi, Supi};

/// Minimum time for which a claim is known: longer than failure detection of a host or balancer
/// plus takeover.
const CLAIM_RETENTION: Duration = Duration::from_secs(10);
/// Maximum number of known claims; beyond it the oldest are evicted.
const MAX_CLAIMS: usize = 1 << 18;

/// Announcement that a subscriber has registered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Claim {
    pub supi: Supi,
    /// UE that has the context.
    pub ue: Ltmsi,
    /// Time of the registration.
    pub at: Instant,
}

#[derive(Clone, Copy, Debug)]
struct KnownClaim {
    ue: Ltmsi,
    at: Instant,
    /// True if this host made the claim.
    own: bool,
    /// Time of the last arrival at this host.
    received_at: Instant,
}

/// Decision on a context that arrives at this host, or on the context of the same subscriber that
/// is already there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClaimResolution {
    /// The arriving context is superseded.
    Superseded,
    /// The arriving context stays and supersedes the other one.
    Valid,
    /// The arriving context stays. It claims when its registration is complete; until then another
    /// context may be the subscriber's.
    Registering,
    /// No claim is known.
    Unknown,
}

/// Last claim of each subscriber.
#[derive(Debug)]
pub struct Claims {
    last: FxHashMap<Supi, KnownClaim>,
    /// Arrivals in order of time.
    order: VecDeque<(Instant, Supi)>,
    /// Retention time of a claim.
    known: Duration,
    /// Number of claims evicted before their retention time was over, since the last query.
    early: u64,
}

impl Default for Claims {
    fn default() -> Self {
        Claims::new(Duration::default())
    }
}

impl Claims {
    /// Creates an empty table. `registration_timeout` is the time after which an uncompleted
    /// registration is abandoned.
    pub fn new(registration_timeout: Duration) -> Self {
        Claims {
            last: FxHashMap::default(),
            order: VecDeque::new(),
            known: Duration(registration_timeout.0.saturating_add(CLAIM_RETENTION.0)),
            early: 0,
        }
    }

    fn put(&mut self, Claim { supi, ue, at }: Claim, own: bool, now: Instant) {
        self.last.insert(supi, KnownClaim { ue, at, own, received_at: now });
        self.order.push_back((now, supi));
        while let Some((received_at, supi)) = self.order.front().copied()
            && (now.since(received_at) > self.known || self.order.len() > MAX_CLAIMS)
        {
            self.order.pop_front();
            // A claim that arrived again has a later entry.
            if self.last.get(&supi).is_some_and(|known| known.received_at == received_at) {
                self.last.remove(&supi);
                self.early += u64::from(now.since(received_at) <= self.known);
            }
        }
    }

    /// Registers that a subscriber has registered at this host, and returns the claim to announce.
    /// This is also needed if the context was already the subscriber's: another context, of an
    /// uncompleted registration that began since then, may be at any host.
    pub fn bind(&mut self, supi: Supi, ue: Ltmsi, at: Instant, now: Instant) -> Claim {
        let after = self.last.get(&supi).map_or(0, |known| known.at.0 + 1);
        let claim = Claim { supi, ue, at: Instant(at.0.max(after)) };
        self.put(claim, true, now);
        claim
    }

    /// Repeats a claim and returns it for announcement. This is needed in two cases:
    ///
    /// - after a takeover, where the dead host has claimed or was about to;
    /// - at the end, without completion, of a registration that began at `at`.
    ///
    /// `is_same_ue` returns true if an LTMSI belongs to this UE, by any of its numbers.
    ///
    /// # Errors
    ///
    /// Returns an error if the subscriber was claimed since: the context is superseded.
    pub fn repeat_for_takeover(
        &mut self,
        (supi, ue): (Supi, Ltmsi),
        is_same_ue: impl Fn(Ltmsi) -> bool,
        at: Instant,
        now: Instant,
    ) -> Result<Claim, ClaimResolution> {
        let claim = match self.last.get(&supi) {
            Some(known) if known.ue == ue || is_same_ue(known.ue) => Claim { supi, ue, at: known.at.max(at) },
            Some(known) if (known.at, known.ue) > (at, ue) => return Err(ClaimResolution::Superseded),
            _ => Claim { supi, ue, at },
        };
        self.put(claim, true, now);
        Ok(claim)
    }

    /// Handles the claim of another host. Returns false if a newer claim is known, else true.
    pub fn on_remote_claim(&mut self, claim: Claim, now: Instant) -> bool {
        let old = |known: &KnownClaim| (known.at, known.ue) > (claim.at, claim.ue);
        if self.last.get(&claim.supi).is_some_and(old) {
            return false;
        }
        self.put(claim, false, now);
        true
    }

    /// Decides on a context that arrives at this host. `is_same_ue` returns true if an LTMSI
    /// belongs to that UE, by any of its numbers. `claimed` returns the time at which one of its
    /// last commits has claimed the subscriber: that claim may not have arrived here.
    pub fn resolve(
        &self,
        ue: &UeContext,
        is_same_ue: impl Fn(Ltmsi) -> bool,
        claimed: impl Fn() -> Option<Instant>,
    ) -> ClaimResolution {
        let later = |known: &KnownClaim| claimed().is_some_and(|at| (at, ue.ltmsi) >= (known.at, known.ue));
        match ue.identity.supi.and_then(|supi| self.last.get(&supi)) {
            Some(known) if is_same_ue(known.ue) || later(known) => ClaimResolution::Valid,
            // Whether a claim is known or not: a host that has just joined knows none.
            _ if matches!(ue.procedure, Some(Procedure::Registration(_))) => ClaimResolution::Registering,
            None => ClaimResolution::Unknown,
            Some(_) => ClaimResolution::Superseded,
        }
    }

    /// Returns the number of claims evicted early since the last call, because the table was full.
    /// Two contexts of such a subscriber may both stay.
    pub fn take_evicted(&mut self) -> u64 {
        std::mem::take(&mut self.early)
    }

    /// Returns the UE that the last claim names.
    pub fn by_supi(&self, supi: Supi) -> Option<Ltmsi> {
        self.last.get(&supi).map(|known| known.ue)
    }

    /// Returns all known claims, which a balancer sends to a joining host.
    pub fn recent(&self, now: Instant) -> impl Iterator<Item = Claim> {
        let recent = self.last.iter().filter(move |(_, known)| now.since(known.received_at) <= self.known);
        recent.map(|(supi, known)| Claim { supi: *supi, ue: known.ue, at: known.at })
    }

    /// Returns the recent claims of this host, which may have been lost with a balancer.
    pub fn own_claims(&self, now: Instant) -> impl Iterator<Item = Claim> {
        let own =
            self.last.iter().filter(move |(_, known)| known.own && now.since(known.received_at) <= CLAIM_RETENTION);
        own.map(|(supi, known)| Claim { supi: *supi, ue: known.ue, at: known.at })
    }
}

#[cfg(test)]
mod tests;
