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
    /// Same logic as `node::host::claims`.
    fn binds(&mut self, ue: Ltmsi, at: Instant) -> Claim {
        let old = self.bound.replace(ue).filter(|old| *old != ue);
        self.contexts.retain(|ue| Some(*ue) != old);
        self.claims.binds(supi(), ue, at, NOW)
    }

    /// Loads a context whose last commit may have claimed the subscriber at a time.
    fn takes_over(&mut self, ue: Ltmsi, claimed: Option<Instant>) -> Option<Claim> {
        self.contexts.insert(ue);
        let verdict = self.claims.resolve(&context(ue), |claimed| claimed == ue, || claimed);
        match (verdict, self.bound) {
            (ClaimResolution::Goes, _) => {
                self.contexts.remove(&ue);
                return None;
            }
            (ClaimResolution::Registers, _) | (ClaimResolution::Unknown, Some(_)) => {}
            (ClaimResolution::Stays | ClaimResolution::Unknown, other) => {
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

    fn hears(&mut self, claim: Claim) {
        if self.claims.on_remote_claim(claim, NOW) && self.bound.is_some_and(|bound| bound != claim.ue) {
            self.contexts.remove(&self.bound.take().unwrap());
        }
    }

    fn says_again(&self) -> Vec<Claim> {
        self.claims.own(NOW).filter(|claim| self.bound == Some(claim.ue)).collect()
    }
}

/// Live hosts, and claims in transit to each, all through one balancer.
struct World {
    hosts: BTreeMap<usize, Host>,
    under_way: Vec<(usize, Claim)>,
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
        World { hosts, under_way: Vec::new(), committed: false, slow }
    }

    fn tells(&mut self, from: usize, claim: Claim) {
        let others: Vec<usize> = self.hosts.keys().copied().filter(|host| *host != from).collect();
        self.under_way.extend(others.into_iter().map(|host| (host, claim)));
    }

    /// Executes the next `steps` events.
    fn goes_on(&mut self, steps: usize) {
        for _ in 0..steps {
            if !self.committed {
                let Some(host) = self.hosts.get_mut(&0) else { continue };
                self.committed = true;
                host.contexts.insert(NEW);
            } else if let Some(host) =
                self.hosts.get_mut(&0).filter(|host| host.bound.is_none() && host.claims.of(supi()) != Some(NEW))
            {
                let claim = host.binds(NEW, NOW);
                self.tells(0, claim);
            } else if !self.under_way.is_empty() {
                let (to, claim) = self.under_way.remove(0);
                self.hosts.get_mut(&to).into_iter().for_each(|host| host.hears(claim));
            }
        }
    }

    /// Kills a host: host 2 takes over the copies of its contexts and their effects.
    fn dies(&mut self, host: usize) {
        let Some(mut dead) = self.hosts.remove(&host) else { return };
        if self.slow && host == 1 {
            dead.contexts.insert(OLD);
        }
        for ue in dead.contexts {
            let taken = self.hosts.get_mut(&2).unwrap();
            let claim = taken.takes_over(ue, (ue == NEW).then_some(NOW));
            claim.into_iter().for_each(|claim| self.tells(2, claim));
        }
    }

    /// Kills the balancer with all claims in transit.
    fn balancer_dies(&mut self) {
        self.under_way.clear();
        let again: Vec<(usize, Claim)> =
            self.hosts.iter().flat_map(|(n, host)| host.says_again().into_iter().map(|claim| (*n, claim))).collect();
        again.into_iter().for_each(|(from, claim)| self.tells(from, claim));
    }

    /// Checks that one context remains, and that the subscriber leads to it.
    fn ends(mut self, what: &str) {
        self.goes_on(10);
        let contexts: Vec<Ltmsi> = self.hosts.values().flat_map(|host| host.contexts.iter().copied()).collect();
        let bound: Vec<Ltmsi> = self.hosts.values().filter_map(|host| host.bound).collect();
        let one = if self.committed { NEW } else { OLD };
        assert_eq!((contexts, bound), (vec![one], vec![one]), "{what}");
    }
}

#[test]
fn whoever_dies_and_whenever_one_context_is_left_and_it_is_the_new_one() {
    World::new(false, false).ends("nobody dies");
    let ways = [(false, false), (true, false), (false, true), (true, true)];
    for (steps, (slow, lately)) in (0..6).flat_map(|steps| ways.map(|way| (steps, way))) {
        for dead in [&[0][..], &[1], &[0, 1], &[1, 0]] {
            let mut world = World::new(slow, lately);
            world.goes_on(steps);
            dead.iter().for_each(|host| world.dies(*host));
            world.ends(&format!("{dead:?} after {steps} steps"));
        }
        for dead in [None, Some(0), Some(1)] {
            let mut world = World::new(slow, lately);
            world.goes_on(steps);
            world.balancer_dies();
            dead.into_iter().for_each(|host| world.dies(host));
            world.ends(&format!("the balancer and {dead:?} after {steps} steps"));
            let mut world = World::new(slow, lately);
            world.goes_on(steps);
            dead.into_iter().for_each(|host| world.dies(host));
            world.balancer_dies();
            world.ends(&format!("{dead:?} and the balancer after {steps} steps"));
        }
    }
}

#[test]
fn a_claim_that_comes_after_a_later_one_changes_nothing() {
    let later = Instant(NOW.0 + 5);
    let (first, second) = (Claim { supi: supi(), ue: OLD, at: NOW }, Claim { supi: supi(), ue: NEW, at: later });
    let mut claims = Claims::default();
    assert!(
        claims.on_remote_claim(second, NOW)
            && !claims.on_remote_claim(first, NOW)
            && claims.on_remote_claim(second, NOW)
    );
    assert_eq!(claims.of(supi()), Some(NEW));
    assert_eq!(
        claims.repeat_for_takeover((supi(), OLD), |_| false, NOW, NOW),
        Err(ClaimResolution::Goes),
        "who takes the older one over"
    );
    // A host whose clock is behind registers the subscriber after all that.
    let third = claims.binds(supi(), OLD, NOW, NOW);
    assert!(third.at > later);
    let mut other = Claims::default();
    assert!(
        other.on_remote_claim(second, NOW) && other.on_remote_claim(third, NOW) && !other.on_remote_claim(second, NOW)
    );
    // The repeated claim is unchanged, also after a takeover.
    assert_eq!(other.repeat_for_takeover((supi(), OLD), |_| false, NOW, NOW), Ok(third));
    assert_eq!(other.own(NOW).collect::<Vec<_>>(), [third]);
    assert!(!other.on_remote_claim(second, NOW));
}

#[test]
fn claims_are_known_for_a_while_and_not_without_bound() {
    let mut claims = Claims::default();
    let claim =
        |n: u64| Claim { supi: Supi::from_digits(&(999_700_000_000_000 + n).to_string()).unwrap(), ue: NEW, at: NOW };
    claims.on_remote_claim(claim(1), NOW);
    claims.on_remote_claim(claim(2), NOW + Duration::from_secs(6));
    claims.on_remote_claim(claim(1), NOW + Duration::from_secs(7));
    claims.on_remote_claim(claim(3), NOW + Duration::from_secs(12));
    assert!((1..=3).all(|n| claims.of(claim(n).supi) == Some(NEW)), "1 came again");
    claims.on_remote_claim(claim(4), NOW + Duration::from_secs(18));
    assert_eq!([1, 2, 3, 4].map(|n| claims.of(claim(n).supi).is_some()), [false, false, true, true]);
    assert_eq!(claims.forgotten_early(), 0, "their time was over");
    (5..MOST as u64 + 10).for_each(|n| assert!(claims.on_remote_claim(claim(n), NOW + Duration::from_secs(19))));
    assert_eq!((claims.last.len(), claims.order.len()), (MOST, MOST));
    // Claims 3 to 9 were evicted.
    assert_eq!((claims.forgotten_early(), claims.forgotten_early()), (7, 0));
}

/// An uncompleted registration ends after `given_up`; the subscriber has completed another one
/// meanwhile.
#[test]
fn a_claim_is_known_until_a_registration_that_began_before_it_is_given_up() {
    let given_up = Duration::from_secs(30);
    let other = Supi::from_digits("999700000000002").unwrap();
    for (known, expected) in [(given_up, Err(ClaimResolution::Goes)), (Duration::default(), Ok(NEW))] {
        let mut claims = Claims::new(known);
        let (began, completed) = (NOW, NOW + Duration::from_secs(4));
        // The completed registration updates a context that was claimed before.
        claims.on_remote_claim(Claim { supi: supi(), ue: OLD, at: Instant(NOW.0 - 1) }, NOW);
        let claim = claims.binds(supi(), OLD, completed, completed);
        assert_eq!((claim.ue, claim.at), (OLD, completed), "others are told, though they know whose context it is");
        let ends = began + given_up;
        claims.binds(other, NEW, ends, ends);
        let claimed = claims.repeat_for_takeover((supi(), NEW), |_| false, began, ends).map(|claim| claim.ue);
        assert_eq!(claimed, expected, "known for {known:?} more");
        // Only claims that may have been lost are repeated.
        assert!(claims.own(ends).all(|claim| claim.supi == other || claim.ue == NEW));
    }
    // A former LTMSI names the same context.
    let mut claims = Claims::default();
    claims.binds(supi(), OLD, NOW + Duration::from_secs(4), NOW);
    let claim = claims.repeat_for_takeover((supi(), NEW), |ue| ue == OLD, NOW, NOW).expect("its own");
    assert_eq!((claim.ue, claim.at), (NEW, NOW + Duration::from_secs(4)));
}

/// A context registers again at a host that joined since it was claimed, or was claimed elsewhere.
/// Other hosts know the old claim under the context's former LTMSI, and would drop the context at a
/// takeover because of it.
#[test]
fn a_context_that_registers_again_where_nothing_is_known_of_it_is_claimed_again() {
    let (mut joined, mut other) = (Claims::default(), Claims::default());
    let first = Claim { supi: supi(), ue: OLD, at: NOW };
    other.on_remote_claim(first, NOW);
    let later = NOW + Duration::from_secs(5);
    let gone = |other: &Claims| other.resolve(&context(NEW), |claimed| claimed == NEW, || None);
    assert_eq!(gone(&other), ClaimResolution::Goes, "as long as nobody says more");
    let claim = joined.binds(supi(), NEW, later, later);
    assert!(other.on_remote_claim(claim, later));
    assert_eq!(gone(&other), ClaimResolution::Stays);
    // A host that received the recent claims when it joined knows this one too.
    let recent: Vec<Claim> = other.recent(later).collect();
    assert_eq!(recent, [claim]);
    assert_eq!(other.recent(later + Duration::from_secs(11)).count(), 0);
}
