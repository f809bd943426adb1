//! Valid context of a subscriber: binding, claims, and supersession of other contexts.

use super::io::{HostIo, UeNotice};
use super::machine::HostMachine;
use crate::amf::context::UeContext;
use crate::placement::message::HostNotice;
use crate::placement::replica::{Claim, ClaimResolution, SlotKey};
use vireo_types::{Instant, Supi};

impl<S: SlotKey, P, I, E> HostMachine<S, P, I, E> {
    /// Binds a subscriber that has registered to its context. Any other context is superseded.
    pub fn bind_subscriber<O>(&mut self, (slot, supi): (S, Supi), at: Instant, now: Instant, io: &mut O)
    where
        O: HostIo<Slot = S, Record = P, Event = E>,
    {
        let before = io.slot_of_subscriber(supi);
        self.supersede(before.filter(|before| *before != slot), supi, io);
        if let Some(ue) = io.ltmsi_of(slot) {
            let claim = self.claims.bind(supi, ue, at, now);
            self.announce(claim, io);
        }
        if before != Some(slot) {
            io.bind_subscriber(slot, supi);
        }
    }

    /// Binds a subscriber after an incomplete registration has ended (TS 24.501 5.5.1.2.8). The
    /// context is superseded if another registration completed since this one `began`.
    pub fn bind_subscriber_since<O>(&mut self, (slot, supi): (S, Supi), began: Instant, now: Instant, io: &mut O)
    where
        O: HostIo<Slot = S, Record = P, Event = E>,
    {
        if !self.repeat_claim((slot, supi), began, now, io) {
            self.supersede(Some(slot), supi, io);
        }
    }

    /// Announces a claim to the other hosts of a cluster.
    fn announce<O>(&self, claim: Claim, io: &mut O)
    where
        O: HostIo<Slot = S, Record = P, Event = E>,
    {
        if self.owner.is_some() {
            io.send(HostNotice::Claim(claim).into());
        }
    }

    /// Supersedes the previous context of a subscriber.
    fn supersede<O>(&mut self, before: Option<S>, supi: Supi, io: &mut O)
    where
        O: HostIo<Slot = S, Record = P, Event = E>,
    {
        if let Some(before) = before {
            io.unbind_subscriber(before, supi);
            self.notify(before, UeNotice::Superseded, io);
        }
    }

    /// Applies the claim of another host: the context here is superseded, unless it is the claimed
    /// one and has migrated here since.
    pub(super) fn on_claim<O>(&mut self, claim: Claim, now: Instant, io: &mut O)
    where
        O: HostIo<Slot = S, Record = P, Event = E>,
    {
        if self.claims.on_remote_claim(claim, now) {
            let claimed = io.slot_of(claim.ue);
            let bound = io.slot_of_subscriber(claim.supi);
            self.supersede(bound.filter(|bound| claimed != Some(*bound)), claim.supi, io);
        }
    }

    /// Binds the subscriber of a context that came from another host. `claimed` returns the time at
    /// which one of its last commits claimed the subscriber.
    pub(super) fn enter_subscriber<O>(
        &mut self,
        slot: S,
        ue: &UeContext,
        claimed: impl Fn() -> Option<Instant>,
        io: &mut O,
    ) where
        O: HostIo<Slot = S, Record = P, Event = E>,
    {
        let Some(supi) = ue.identity.supi else { return };
        let resolution = self.claims.resolve(ue, |ue| io.slot_of(ue) == Some(slot), claimed);
        let bound = io.slot_of_subscriber(supi).filter(|bound| *bound != slot);
        match (resolution, bound) {
            (ClaimResolution::Superseded, _) => self.notify(slot, UeNotice::Superseded, io),
            // Without a claim, either of two contexts may be the valid one.
            (ClaimResolution::Registering, _) | (ClaimResolution::Unknown, Some(_)) => {}
            (ClaimResolution::Valid | ClaimResolution::Unknown, bound) => {
                self.supersede(bound, supi, io);
                io.bind_subscriber(slot, supi);
            }
        }
    }

    /// Repeats a claim that a dead host may have made for a UE that this host took over.
    pub(super) fn repeat_claim_of_entered<O>(&mut self, (slot, supi): (S, Supi), at: Instant, now: Instant, io: &mut O)
    where
        O: HostIo<Slot = S, Record = P, Event = E>,
    {
        // A superseded context was notified when it was entered, or is notified here.
        if !self.repeat_claim((slot, supi), at, now, io) && io.slot_of_subscriber(supi) == Some(slot) {
            self.supersede(Some(slot), supi, io);
        }
    }

    /// Claims a subscriber as of an earlier time. Returns true if no newer claim exists.
    fn repeat_claim<O>(&mut self, (slot, supi): (S, Supi), at: Instant, now: Instant, io: &mut O) -> bool
    where
        O: HostIo<Slot = S, Record = P, Event = E>,
    {
        let Some(ue) = io.ltmsi_of(slot) else { return true };
        let is_it = |ue| io.slot_of(ue) == Some(slot);
        let Ok(claim) = self.claims.repeat_for_takeover((supi, ue), is_it, at, now) else { return false };
        self.announce(claim, io);
        let bound = io.slot_of_subscriber(supi).filter(|bound| *bound != slot);
        self.supersede(bound, supi, io);
        io.bind_subscriber(slot, supi);
        true
    }

    /// Announces the claims of this host again, because another balancer forwards them.
    pub(super) fn repeat_claims<O>(&mut self, now: Instant, io: &mut O)
    where
        O: HostIo<Slot = S, Record = P, Event = E>,
    {
        let is_here = |claim: &Claim| {
            let bound = io.slot_of_subscriber(claim.supi);
            bound.is_some() && bound == io.slot_of(claim.ue)
        };
        let claims: Vec<Claim> = self.claims.own_claims(now).filter(is_here).collect();
        claims.into_iter().for_each(|claim| self.announce(claim, io));
    }
}
