//! Whose context of a subscriber is the one: what `core::replica`'s claims decide, carried out.

use super::{EventMessage, Host};
use crate::balancer::Command;
use crate::clock::clock;
use vireo_core::config::Timers;
use vireo_core::context::UeContext;
use vireo_core::replica::{Claim, ClaimResolution, Claims};
use vireo_core::schedule::kind::NfKind;
use vireo_store::region::{Key, Slot};
use vireo_types::{Instant, Supi};

/// None yet: claims are known until the network gives a registration up that began before.
pub(super) fn claims(timers: &Timers) -> Claims {
    Claims::new(timers.registration_given_up())
}

impl Host {
    /// The subscriber has registered: the context is theirs, and another one that was goes.
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

    /// A registration that was never completed has come to its end: the context is the subscriber's (TS 24.501 5.5.1.2.8), unless
    /// another one was completed since it began.
    pub(super) fn bind_supi_since(&mut self, slot: Slot, supi: Supi, began: Instant) {
        if !self.still_claims(slot, supi, began) {
            self.supersede(Some(slot), supi);
        }
    }

    /// Tells the other hosts of a cluster.
    fn announce_claim(&mut self, Claim { supi, ue, at }: Claim) {
        if self.cluster.is_some() {
            self.egress.send(Command::Claim { supi, ue, at });
        }
    }

    /// Another context is the subscriber's now.
    fn supersede(&mut self, old: Option<Slot>, supi: Supi) {
        if let Some(old) = old {
            self.region.unbind(old, Key::Supi, supi.as_u64());
            self.deliver(old, &EventMessage::Superseded, NfKind::StateManagement);
        }
    }

    /// The subscriber has registered at another host: the context here is superseded, unless it is that one, handed over
    /// since.
    pub(super) fn claimed(&mut self, claim: Claim) {
        if self.claims.on_remote_claim(claim, clock()) {
            let same = self.region.slot_of(claim.ue);
            let here = self.region.lookup(Key::Supi, claim.supi.as_u64());
            self.supersede(here.filter(|here| same != Some(*here)), claim.supi);
        }
    }

    /// A subscriber's context has come here from another host, and one of its last commits may have claimed the subscriber.
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

    /// What a dead host may have claimed for a UE that is this host's now.
    pub(super) fn claim_again(&mut self, slot: Slot, supi: Supi, at: Instant) {
        // If it is not, it was told so when it was entered, or is now.
        if !self.still_claims(slot, supi, at) && self.region.lookup(Key::Supi, supi.as_u64()) == Some(slot) {
            self.supersede(Some(slot), supi);
        }
    }

    /// Claims a subscriber as of an earlier time; whether nobody else has since.
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

    /// Another balancer passes claims on from now on.
    pub(super) fn say_claims_again(&mut self) {
        let is_there = |claim: &Claim| {
            let here = self.region.lookup(Key::Supi, claim.supi.as_u64());
            here.is_some() && here == self.region.slot_of(claim.ue)
        };
        let claims: Vec<Claim> = self.claims.own(clock()).filter(is_there).collect();
        claims.into_iter().for_each(|claim| self.announce_claim(claim));
    }
}
