//! Which NF of a pool a procedure goes to (seed 1, Algorithm 2), and the policies it is compared with.

use super::estimate::{ServiceTime, completion};
use vireo_types::Duration;

/// What is known of an NF at this instant.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Load {
    /// Procedures that wait or run.
    pub queue: u32,
    /// Its part of a core.
    pub share: f64,
}

/// A policy.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Policy {
    /// `argmin Q_i / C_i` over instantaneous values.
    #[default]
    Optimal,
    /// `argmin Q_i`: what slice 0 has, whose procedures are of one kind.
    ShortestQueue,
    /// Each in turn.
    RoundRobin,
    /// By a hash of the UE.
    Hash,
}

/// Where a procedure goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Choice {
    /// The NF's position in its pool.
    pub nf: usize,
    /// When the procedure would be complete there.
    pub estimate: Duration,
    /// Whether that is beyond the objective: the NF controller is told.
    pub violation: bool,
}

/// Chooses for one procedure. `turn` is a number that grows with each choice, `key` one of the UE.
///
/// `None` for an empty pool.
pub fn choose(policy: Policy, pool: &[Load], time: ServiceTime, slo: Duration, turn: u64, key: u64) -> Option<Choice> {
    let count = pool.len() as u64;
    let least = |cost: &dyn Fn(&Load) -> f64| {
        let costs = pool.iter().map(cost).enumerate();
        costs.min_by(|(_, a), (_, b)| a.total_cmp(b)).map(|(nf, _)| nf)
    };
    let nf = match policy {
        Policy::Optimal => least(&|l| if l.share > 0.0 { f64::from(l.queue) / l.share } else { f64::INFINITY })?,
        Policy::ShortestQueue => least(&|l| f64::from(l.queue))?,
        Policy::RoundRobin => turn.checked_rem(count)? as usize,
        Policy::Hash => key.checked_rem(count)? as usize,
    };
    let estimate = completion(pool[nf].queue, pool[nf].share, time);
    Some(Choice { nf, estimate, violation: estimate > slo })
}

#[cfg(test)]
mod tests {
    use super::*;

    const POOL: [Load; 3] =
        [Load { queue: 2, share: 0.2 }, Load { queue: 3, share: 0.6 }, Load { queue: 1, share: 0.05 }];

    fn to(policy: Policy, turn: u64, key: u64) -> usize {
        let slo = Duration::from_millis(10);
        choose(policy, &POOL, ServiceTime::new(1_000_000), slo, turn, key).expect("a pool").nf
    }

    #[test]
    fn each_policy_chooses_its_own_way() {
        assert_eq!(to(Policy::Optimal, 0, 0), 1, "3 / 0.6 is the least wait");
        assert_eq!(to(Policy::ShortestQueue, 0, 0), 2);
        assert_eq!((to(Policy::RoundRobin, 4, 0), to(Policy::Hash, 4, 5)), (1, 2));
        for policy in [Policy::Optimal, Policy::ShortestQueue, Policy::RoundRobin, Policy::Hash] {
            assert_eq!(choose(policy, &[], ServiceTime::new(1), Duration(1), 7, 7), None);
        }
    }

    #[test]
    fn an_estimate_beyond_the_objective_is_a_violation() {
        let time = ServiceTime::new(1_000_000);
        let choice = |slo| choose(Policy::Optimal, &POOL, time, Duration::from_millis(slo), 0, 0).expect("a pool");
        assert_eq!((choice(6).estimate, choice(6).violation), (Duration::from_millis(6), false));
        assert!(choice(5).violation);
    }

    #[test]
    fn nfs_without_a_share_come_last() {
        let pool = [Load { queue: 0, share: 0.0 }, Load { queue: 50, share: 0.1 }];
        let choice = choose(Policy::Optimal, &pool, ServiceTime::new(1), Duration(1), 0, 0).expect("a pool");
        assert_eq!(choice.nf, 1);
    }
}
