//! Whose context of a subscriber is the one: what `core::replica`'s claims decide, carried out.

use super::{Host, Parcel};
use crate::balancer::Command;
use crate::clock::clock;
use vireo_core::context::UeContext;
use vireo_core::replica::{Claim, Verdict};
use vireo_core::schedule::kind::NfKind;
use vireo_store::region::{Key, Slot};
use vireo_types::{Instant, Supi};

impl Host {
    /// The subscriber has registered: the context is theirs, and another one that was goes.
    pub(super) fn bind_supi(&mut self, slot: Slot, supi: Supi, at: Instant) {
        let ue = self.region.ltmsi_of(slot);
        let before = self.region.lookup(Key::Supi, supi.as_u64());
        let bound = before == Some(slot);
        self.supersede(before.filter(|old| *old != slot), supi);
        if let (Some(cluster), Some(ue)) = (self.cluster.as_mut(), ue) {
            // Others may know it by the number that it had before, or not at all.
            let claim = cluster.claims.binds(bound, supi, ue, at, clock());
            claim.into_iter().for_each(|claim| self.say(claim));
        }
        if !bound {
            self.bind(slot, Key::Supi, supi.as_u64());
        }
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

    /// A subscriber's context has come here from another host, and one of its last commits may have claimed the subscriber.
    pub(super) fn enter_supi(&mut self, slot: Slot, ue: &UeContext, claimed: impl Fn() -> Option<Instant>) {
        let Some(supi) = ue.identity.supi else { return };
        let Some(cluster) = self.cluster.as_ref() else { return };
        let region = &self.region;
        let verdict = cluster.claims.enters(ue, |ue| region.slot_of(ue) == Some(slot), claimed);
        let here = region.lookup(Key::Supi, supi.as_u64()).filter(|here| *here != slot);
        match (verdict, here) {
            (Verdict::Goes, _) => return self.deliver(slot, &Parcel::Superseded, NfKind::StateManagement),
            (Verdict::Registers, _) => return,
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
