//! Selection of the NF for a procedure (MMLite, Algorithm 2), and other policies.

use super::estimate::{ServiceTime, completion};
use crate::hash::hash_pair;
use serde::{Deserialize, Serialize};
use vireo_types::Duration;

/// Load of an NF at this moment.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct NfLoad {
    /// Procedures that wait or run.
    pub queue: u32,
    /// Part of a core.
    pub share: f64,
    /// Stable identifier of the NF.
    pub id: u64,
}

/// Policy of NF selection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Policy {
    /// `argmin Q_i / C_i` over instantaneous values.
    #[default]
    Optimal,
    /// `argmin Q_i`: used in slice 0, whose procedures are of one kind.
    ShortestQueue,
    /// Each NF in turn.
    RoundRobin,
    /// Consistent hashing of the UE (rendezvous: the highest hash of UE and NF). A UE changes its
    /// NF only when that NF is removed, or when a new NF has the highest hash.
    Hash,
}

impl Policy {
    /// All policies.
    pub const ALL: [Policy; 4] = [Policy::Optimal, Policy::ShortestQueue, Policy::RoundRobin, Policy::Hash];

    /// Returns the name in the configuration (`steering.intra`).
    pub const fn name(self) -> &'static str {
        match self {
            Policy::Optimal => "optimal",
            Policy::ShortestQueue => "shortest-queue",
            Policy::RoundRobin => "round-robin",
            Policy::Hash => "hash",
        }
    }

    /// Returns the policy with this name.
    pub fn from_name(name: &str) -> Option<Self> {
        Policy::ALL.into_iter().find(|policy| policy.name() == name)
    }
}

/// Selected NF with its estimate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NfSelection {
    /// Index of the NF in its pool.
    pub nf: usize,
    /// Estimated completion time at that NF.
    pub estimate: Duration,
    /// True if the estimate exceeds the SLO; it is then reported to the NF scaler.
    pub violation: bool,
}

/// Selects an NF for one procedure; `None` for an empty pool. `turn` grows with each selection, and
/// `key` is a number of the UE.
pub fn select_nf(
    policy: Policy,
    pool: &[NfLoad],
    time: ServiceTime,
    slo: Duration,
    turn: u64,
    key: u64,
) -> Option<NfSelection> {
    let count = pool.len() as u64;
    let least = |cost: &dyn Fn(&NfLoad) -> f64| {
        let costs = pool.iter().map(cost).enumerate();
        costs.min_by(|(_, a), (_, b)| a.total_cmp(b)).map(|(nf, _)| nf)
    };
    let nf = match policy {
        Policy::Optimal => least(&|l| if l.share > 0.0 { f64::from(l.queue) / l.share } else { f64::INFINITY })?,
        Policy::ShortestQueue => least(&|l| f64::from(l.queue))?,
        Policy::RoundRobin => turn.checked_rem(count)? as usize,
        Policy::Hash => {
            let weights = pool.iter().map(|l| hash_pair(key, l.id)).enumerate();
            weights.max_by_key(|(_, weight)| *weight)?.0
        }
    };
    let estimate = completion(pool[nf].queue, pool[nf].share, time);
    Some(NfSelection { nf, estimate, violation: estimate > slo })
}

#[cfg(test)]
mod tests {
    use super::*;

    const POOL: [NfLoad; 3] = [
        NfLoad { queue: 2, share: 0.2, id: 1 },
        NfLoad { queue: 3, share: 0.6, id: 2 },
        NfLoad { queue: 1, share: 0.05, id: 3 },
    ];

    fn to(policy: Policy, turn: u64, key: u64) -> usize {
        let slo = Duration::from_millis(10);
        select_nf(policy, &POOL, ServiceTime::new(1_000_000), slo, turn, key).expect("a pool").nf
    }

    #[test]
    fn each_policy_chooses_its_own_way() {
        assert_eq!(to(Policy::Optimal, 0, 0), 1, "3 / 0.6 is the least wait");
        assert_eq!(to(Policy::ShortestQueue, 0, 0), 2);
        assert_eq!(to(Policy::RoundRobin, 4, 0), 1);
        for policy in Policy::ALL {
            assert_eq!(Policy::from_name(policy.name()), Some(policy));
            assert_eq!(select_nf(policy, &[], ServiceTime::new(1), Duration(1), 7, 7), None);
        }
    }

    #[test]
    fn estimate_beyond_objective_is_violation() {
        let time = ServiceTime::new(1_000_000);
        let choice = |slo| select_nf(Policy::Optimal, &POOL, time, Duration::from_millis(slo), 0, 0).expect("a pool");
        assert_eq!((choice(6).estimate, choice(6).violation), (Duration::from_millis(6), false));
        assert!(choice(5).violation);
    }

    #[test]
    fn nfs_without_a_share_come_last() {
        let pool = [NfLoad { queue: 0, share: 0.0, id: 1 }, NfLoad { queue: 50, share: 0.1, id: 2 }];
        let choice = select_nf(Policy::Optimal, &pool, ServiceTime::new(1), Duration(1), 0, 0).expect("a pool");
        assert_eq!(choice.nf, 1);
    }

    #[test]
    fn hashing_is_even_and_moves_only_whom_it_must() {
        let choose = |pool: &[NfLoad], key| {
            let slo = Duration::from_millis(10);
            let choice = select_nf(Policy::Hash, pool, ServiceTime::new(1), slo, 0, key).expect("a pool");
            pool[choice.nf].id
        };
        let mut counts = [0; 4];
        for key in 0..30_000 {
            let before = choose(&POOL, key);
            counts[before as usize] += 1;
            let without: Vec<NfLoad> = POOL.iter().copied().filter(|l| l.id != 2).collect();
            let after = choose(&without, key);
            assert!(before == 2 || before == after, "a UE of NF {before} went to {after} although its NF is there");
        }
        assert!(counts[1..].iter().all(|n| (9_500..10_500).contains(n)), "{counts:?}");
    }
}
