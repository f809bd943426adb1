//! Claims of subscribers: applies the decisions of `core::placement::replica`.

use super::{EventMessage, Host};
use crate::balancer::Command;
use vireo_core::amf::context::UeContext;
use vireo_core::config::Timers;
use vireo_core::placement::replica::{Claim, ClaimResolution, Claims};
use vireo_core::schedule::kind::NfKind;
use vireo_ops::clock::clock;
use vireo_store::region::{Key, Slot};
use vireo_types::{Instant, Supi};

/// Creates an empty table. A claim lasts until the network abandons a registration that began
/// before.
pub(super) fn claims(timers: &Timers) -> Claims {
    Claims::new(timers.registration_given_up())
}

impl Host {
    /// Binds a subscriber that has registered to its context. Any other context is superseded.
    pub(super) fn bind_supi(&mut self, slot: Slot, supi: Supi, at: Instant) {
        let ue = self.region.ltmsi_of(slot);
        let before = self.region.lookup(Key::Supi, supi.as_u64());
        let bound = before == Some(slot);
        self.supersede(before.filter(|old| *old != slot), supi);
        if let Some(ue) = ue {
            let claim = self.claims.binds(supi, ue, at, clock());
            self.announce_claim(claim);
        }
        if !bound {
            self.bind(slot, Key::Supi, supi.as_u64());
        }
    }

    /// Binds a subscriber after an incomplete registration has ended (TS 24.501 5.5.1.2.8). The
    /// context is superseded if another registration completed since this one began.
    pub(super) fn bind_supi_since(&mut self, slot: Slot, supi: Supi, began: Instant) {
        if !self.still_claims(slot, supi, began) {
            self.supersede(Some(slot), supi);
        }
    }

    /// Announces a claim to the other hosts of a cluster.
    fn announce_claim(&mut self, Claim { supi, ue, at }: Claim) {
        if self.cluster.is_some() {
            self.egress.send(Command::Claim { supi, ue, at });
        }
    }

    /// Supersedes the previous context of a subscriber.
    fn supersede(&mut self, old: Option<Slot>, supi: Supi) {
        if let Some(old) = old {
            self.region.unbind(old, Key::Supi, supi.as_u64());
            self.deliver(old, &EventMessage::Superseded, NfKind::StateManagement);
        }
    }

    /// Applies the claim of another host: the context here is superseded, unless it is the claimed
    /// one and has migrated here since.
    pub(super) fn claimed(&mut self, claim: Claim) {
        if self.claims.on_remote_claim(claim, clock()) {
            let same = self.region.slot_of(claim.ue);
            let here = self.region.lookup(Key::Supi, claim.supi.as_u64());
            self.supersede(here.filter(|here| same != Some(*here)), claim.supi);
        }
    }

    /// Binds the subscriber of a context that came from another host. `claimed` returns the time at
    /// which one of its last commits claimed the subscriber.
    pub(super) fn enter_supi(&mut self, slot: Slot, ue: &UeContext, claimed: impl Fn() -> Option<Instant>) {
        let Some(supi) = ue.identity.supi else { return };
        let region = &self.region;
        let verdict = self.claims.resolve(ue, |ue| region.slot_of(ue) == Some(slot), claimed);
        let here = region.lookup(Key::Supi, supi.as_u64()).filter(|here| *here != slot);
        match (verdict, here) {
            (ClaimResolution::Goes, _) => {
                return self.deliver(slot, &EventMessage::Superseded, NfKind::StateManagement);
            }
            (ClaimResolution::Registers, _) => return,
            (ClaimResolution::Unknown, Some(_)) => {
                return tracing::debug!("two contexts of a subscriber, and no claim says which");
            }
            (ClaimResolution::Stays | ClaimResolution::Unknown, here) => self.supersede(here, supi),
        }
        self.bind(slot, Key::Supi, supi.as_u64());
    }

    /// Repeats a claim that a dead host may have made for a UE that this host took over.
    pub(super) fn claim_again(&mut self, slot: Slot, supi: Supi, at: Instant) {
        // Without the claim the context was superseded when it was entered, or is superseded here.
        if !self.still_claims(slot, supi, at) && self.region.lookup(Key::Supi, supi.as_u64()) == Some(slot) {
            self.supersede(Some(slot), supi);
        }
    }

    /// Claims a subscriber as of an earlier time. Returns true if no newer claim exists.
    fn still_claims(&mut self, slot: Slot, supi: Supi, at: Instant) -> bool {
        let Some(ue) = self.region.ltmsi_of(slot) else { return true };
        let region = &self.region;
        let is_it = |ue| region.slot_of(ue) == Some(slot);
        let Ok(claim) = self.claims.repeat_for_takeover((supi, ue), is_it, at, clock()) else { return false };
        self.announce_claim(claim);
        let here = self.region.lookup(Key::Supi, supi.as_u64()).filter(|here| *here != slot);
        self.supersede(here, supi);
        self.bind(slot, Key::Supi, supi.as_u64());
        true
    }

    /// Announces all claims again, because another balancer forwards them.
    pub(super) fn say_claims_again(&mut self) {
        let is_there = |claim: &Claim| {
            let here = self.region.lookup(Key::Supi, claim.supi.as_u64());
            here.is_some() && here == self.region.slot_of(claim.ue)
        };
        let claims: Vec<Claim> = self.claims.own(clock()).filter(is_there).collect();
        claims.into_iter().for_each(|claim| self.announce_claim(claim));
    }
}
