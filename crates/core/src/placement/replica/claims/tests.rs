//! Claims under crashes.
//!
//! A subscriber registers at one host while another has a context of it, and a crash occurs at
//! every possible moment.

use super::*;
use std::collections::{BTreeMap, BTreeSet};

const NOW: Instant = Instant(1_000_000_000);

fn supi() -> Supi {
    Supi::from_digits("999700000000001").unwrap()
}

/// Existing context at host 1, and new context at host 0. Host 2 has copies of both.
const OLD: Ltmsi = Ltmsi::from_raw(1);
const NEW: Ltmsi = Ltmsi::from_raw(2);

/// State of one host for the subscriber, as in the state region.
#[derive(Default)]
struct Host {
    claims: Claims,
    contexts: BTreeSet<Ltmsi>,
    bound: Option<Ltmsi>,
}

fn context(ltmsi: Ltmsi) -> UeContext {
    let mut ue = UeContext::new(ltmsi);
    ue.identity.supi = Some(supi());
    ue
}

impl Host {
    /// Binds a subscriber as a host does when its UE registers.
    fn bind(&mut self, ue: Ltmsi, at: Instant) -> Claim {
        let old = self.bound.replace(ue).filter(|old| *old != ue);
        self.contexts.retain(|ue| Some(*ue) != old);
        self.claims.bind(supi(), ue, at, NOW)
    }

    /// Loads a context whose last commit may have claimed the subscriber at a time.
    fn take_over(&mut self, ue: Ltmsi, claimed: Option<Instant>) -> Option<Claim> {
        self.contexts.insert(ue);
        let verdict = self.claims.resolve(&context(ue), |claimed| claimed == ue, || claimed);
        match (verdict, self.bound) {
            (ClaimResolution::Superseded, _) => {
                self.contexts.remove(&ue);
                return None;
            }
            (ClaimResolution::Registering, _) | (ClaimResolution::Unknown, Some(_)) => {}
            (ClaimResolution::Valid | ClaimResolution::Unknown, other) => {
                self.contexts.retain(|own| *own == ue || Some(*own) != other);
                self.bound = Some(ue);
            }
        }
        match self.claims.repeat_for_takeover((supi(), ue), |_| false, claimed?, NOW) {
            Ok(claim) => {
                let old = self.bound.replace(ue).filter(|old| *old != ue);
                self.contexts.retain(|ue| Some(*ue) != old);
                self.contexts.insert(ue);
                Some(claim)
            }
            Err(_) => {
                self.contexts.remove(&ue);
                None
            }
        }
    }

    fn receive(&mut self, claim: Claim) {
        if self.claims.on_remote_claim(claim, NOW) && self.bound.is_some_and(|bound| bound != claim.ue) {
            self.contexts.remove(&self.bound.take().unwrap());
        }
    }

    fn repeat_claims(&self) -> Vec<Claim> {
        self.claims.own_claims(NOW).filter(|claim| self.bound == Some(claim.ue)).collect()
    }
}

/// Live hosts, and claims in transit to each, all through one balancer.
struct World {
    hosts: BTreeMap<usize, Host>,
    in_transit: Vec<(usize, Claim)>,
    /// True if the new context is committed, and so copied.
    committed: bool,
    /// Host 1 dies before it commits that its context is superseded, if the claim has arrived.
    slow: bool,
}

impl World {
    /// `lately`: the old context was claimed so recently that all hosts know the claim.
    fn new(slow: bool, lately: bool) -> Self {
        let mut hosts: BTreeMap<usize, Host> = (0..3).map(|n| (n, Host::default())).collect();
        if lately {
            let before = Claim { supi: supi(), ue: OLD, at: Instant(NOW.0 - 1) };
            hosts.values_mut().for_each(|host| assert!(host.claims.on_remote_claim(before, NOW)));
        }
        let old = hosts.get_mut(&1).unwrap();
        (old.contexts, old.bound) = (BTreeSet::from([OLD]), Some(OLD));
        World { hosts, in_transit: Vec::new(), committed: false, slow }
    }

    fn announce(&mut self, from: usize, claim: Claim) {
        let others: Vec<usize> = self.hosts.keys().copied().filter(|host| *host != from).collect();
        self.in_transit.extend(others.into_iter().map(|host| (host, claim)));
    }

    /// Executes the next `steps` events.
    fn advance(&mut self, steps: usize) {
        for _ in 0..steps {
            if !self.committed {
                let Some(host) = self.hosts.get_mut(&0) else { continue };
                self.committed = true;
                host.contexts.insert(NEW);
            } else if let Some(host) =
                self.hosts.get_mut(&0).filter(|host| host.bound.is_none() && host.claims.by_supi(supi()) != Some(NEW))
            {
                let claim = host.bind(NEW, NOW);
                self.announce(0, claim);
            } else if !self.in_transit.is_empty() {
                let (to, claim) = self.in_transit.remove(0);
                self.hosts.get_mut(&to).into_iter().for_each(|host| host.receive(claim));
            }
        }
    }

    /// Kills a host: host 2 takes over the copies of its contexts and their effects.
    fn kill(&mut self, host: usize) {
        let Some(mut dead) = self.hosts.remove(&host) else { return };
        if self.slow && host == 1 {
            dead.contexts.insert(OLD);
        }
        for ue in dead.contexts {
            let successor = self.hosts.get_mut(&2).unwrap();
            let claim = successor.take_over(ue, (ue == NEW).then_some(NOW));
            claim.into_iter().for_each(|claim| self.announce(2, claim));
        }
    }

    /// Kills the balancer with all claims in transit.
    fn kill_balancer(&mut self) {
        self.in_transit.clear();
        let repeated: Vec<(usize, Claim)> =
            self.hosts.iter().flat_map(|(n, host)| host.repeat_claims().into_iter().map(|claim| (*n, claim))).collect();
        repeated.into_iter().for_each(|(from, claim)| self.announce(from, claim));
    }

    /// Checks that one context remains, and that the subscriber leads to it.
    fn assert_one_context(mut self, what: &str) {
        self.advance(10);
        let contexts: Vec<Ltmsi> = self.hosts.values().flat_map(|host| host.contexts.iter().copied()).collect();
        let bound: Vec<Ltmsi> = self.hosts.values().filter_map(|host| host.bound).collect();
        let one = if self.committed { NEW } else { OLD };
        assert_eq!((contexts, bound), (vec![one], vec![one]), "{what}");
    }
}

#[test]
fn crash_at_any_step_keeps_the_new_context() {
    World::new(false, false).assert_one_context("nobody dies");
    let cases = [(false, false), (true, false), (false, true), (true, true)];
    for (steps, (slow, lately)) in (0..6).flat_map(|steps| cases.map(|case| (steps, case))) {
        for dead in [&[0][..], &[1], &[0, 1], &[1, 0]] {
            let mut world = World::new(slow, lately);
            world.advance(steps);
            dead.iter().for_each(|host| world.kill(*host));
            world.assert_one_context(&format!("{dead:?} after {steps} steps"));
        }
        for dead in [None, Some(0), Some(1)] {
            let mut world = World::new(slow, lately);
            world.advance(steps);
            world.kill_balancer();
            dead.into_iter().for_each(|host| world.kill(host));
            world.assert_one_context(&format!("the balancer and {dead:?} after {steps} steps"));
            let mut world = World::new(slow, lately);
            world.advance(steps);
            dead.into_iter().for_each(|host| world.kill(host));
            world.kill_balancer();
            world.assert_one_context(&format!("{dead:?} and the balancer after {steps} steps"));
        }
    }
}

#[test]
fn late_claim_changes_nothing() {
    let later = Instant(NOW.0 + 5);
    let (first, second) = (Claim { supi: supi(), ue: OLD, at: NOW }, Claim { supi: supi(), ue: NEW, at: later });
    let mut claims = Claims::default();
    assert!(
        claims.on_remote_claim(second, NOW)
            && !claims.on_remote_claim(first, NOW)
            && claims.on_remote_claim(second, NOW)
    );
    assert_eq!(claims.by_supi(supi()), Some(NEW));
    assert_eq!(
        claims.repeat_for_takeover((supi(), OLD), |_| false, NOW, NOW),
        Err(ClaimResolution::Superseded),
        "who takes the older one over"
    );
    // A host whose clock is behind registers the subscriber after all that.
    let third = claims.bind(supi(), OLD, NOW, NOW);
    assert!(third.at > later);
    let mut other = Claims::default();
    assert!(
        other.on_remote_claim(second, NOW) && other.on_remote_claim(third, NOW) && !other.on_remote_claim(second, NOW)
    );
    // The repeated claim is unchanged, also after a takeover.
    assert_eq!(other.repeat_for_takeover((supi(), OLD), |_| false, NOW, NOW), Ok(third));
    assert_eq!(other.own_claims(NOW).collect::<Vec<_>>(), [third]);
    assert!(!other.on_remote_claim(second, NOW));
}

#[test]
fn claims_expire_and_are_bounded() {
    let mut claims = Claims::default();
    let claim =
        |n: u64| Claim { supi: Supi::from_digits(&(999_700_000_000_000 + n).to_string()).unwrap(), ue: NEW, at: NOW };
    claims.on_remote_claim(claim(1), NOW);
    claims.on_remote_claim(claim(2), NOW + Duration::from_secs(6));
    claims.on_remote_claim(claim(1), NOW + Duration::from_secs(7));
    claims.on_remote_claim(claim(3), NOW + Duration::from_secs(12));
    assert!((1..=3).all(|n| claims.by_supi(claim(n).supi) == Some(NEW)), "1 came again");
    claims.on_remote_claim(claim(4), NOW + Duration::from_secs(18));
    assert_eq!([1, 2, 3, 4].map(|n| claims.by_supi(claim(n).supi).is_some()), [false, false, true, true]);
    assert_eq!(claims.take_evicted(), 0, "their time was over");
    (5..MAX_CLAIMS as u64 + 10).for_each(|n| assert!(claims.on_remote_claim(claim(n), NOW + Duration::from_secs(19))));
    assert_eq!((claims.last.len(), claims.order.len()), (MAX_CLAIMS, MAX_CLAIMS));
    // Claims 3 to 9 were evicted.
    assert_eq!((claims.take_evicted(), claims.take_evicted()), (7, 0));
}

/// An uncompleted registration ends after `registration_timeout`; the subscriber has completed
/// another one meanwhile.
#[test]
fn claim_outlives_registration_timeout() {
    let registration_timeout = Duration::from_secs(30);
    let other = Supi::from_digits("999700000000002").unwrap();
    for (known, expected) in [(registration_timeout, Err(ClaimResolution::Superseded)), (Duration::default(), Ok(NEW))]
    {
        let mut claims = Claims::new(known);
        let (began, completed) = (NOW, NOW + Duration::from_secs(4));
        // The completed registration updates a context that was claimed before.
        claims.on_remote_claim(Claim { supi: supi(), ue: OLD, at: Instant(NOW.0 - 1) }, NOW);
        let claim = claims.bind(supi(), OLD, completed, completed);
        assert_eq!((claim.ue, claim.at), (OLD, completed), "others are told, though they know whose context it is");
        let ends = began + registration_timeout;
        claims.bind(other, NEW, ends, ends);
        let claimed = claims.repeat_for_takeover((supi(), NEW), |_| false, began, ends).map(|claim| claim.ue);
        assert_eq!(claimed, expected, "known for {known:?} more");
        // Only claims that may have been lost are repeated.
        assert!(claims.own_claims(ends).all(|claim| claim.supi == other || claim.ue == NEW));
    }
    // A former LTMSI names the same context.
    let mut claims = Claims::default();
    claims.bind(supi(), OLD, NOW + Duration::from_secs(4), NOW);
    let claim = claims.repeat_for_takeover((supi(), NEW), |ue| ue == OLD, NOW, NOW).expect("its own");
    assert_eq!((claim.ue, claim.at), (NEW, NOW + Duration::from_secs(4)));
}

/// A context registers again at a host that joined since it was claimed, or was claimed elsewhere.
/// Other hosts know the old claim under the context's former LTMSI, and would drop the context at a
/// takeover because of it.
#[test]
fn reregistration_at_new_host_repeats_claim() {
    let (mut joined, mut other) = (Claims::default(), Claims::default());
    let first = Claim { supi: supi(), ue: OLD, at: NOW };
    other.on_remote_claim(first, NOW);
    let later = NOW + Duration::from_secs(5);
    let gone = |other: &Claims| other.resolve(&context(NEW), |claimed| claimed == NEW, || None);
    assert_eq!(gone(&other), ClaimResolution::Superseded, "as long as nobody says more");
    let claim = joined.bind(supi(), NEW, later, later);
    assert!(other.on_remote_claim(claim, later));
    assert_eq!(gone(&other), ClaimResolution::Valid);
    // A host that received the recent claims when it joined knows this one too.
    let recent: Vec<Claim> = other.recent(later).collect();
    assert_eq!(recent, [claim]);
    assert_eq!(other.recent(later + Duration::from_secs(11)).count(), 0);
}
