//! The fault campaign: hosts that keep copies of UEs by the core's own `replica` and `balance`, on a simulated network and clock
//! with crashes, stops, cut-offs, delays, doubled, lost and overtaking messages, and clocks that go wrong. A seed is a world, and
//! the same seed is the same world.
//!
//! What must hold, whatever happens ([`Broken`]): no NAS COUNT and no NH leaves with two contents, no uplink COUNT is taken twice,
//! what leaves goes forward only, no UE is lost, and no procedure is stuck once the network is whole. Faults come one host at a
//! time, with time for its UEs to have their copies again: more would take all copies that acknowledged a commit.
//!
//! The UE's context is cut down to what can be broken (COUNTs, NH, the procedure that runs, the outbox), and its procedure to two
//! messages each way: the steps of `core::procedures` are not in it. The controller and the balancer do not fail, and that a
//! bucket's UEs have all been committed in an epoch is known to everybody at once.

mod host;
mod oracle;
mod world;

pub use oracle::Broken;

use vireo_core::replica::Ack;

/// What a world came to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Campaign {
    /// The seed.
    pub seed: u64,
    /// Procedures that have ended.
    pub procedures: u64,
    /// Hosts that were taken out of the map.
    pub failures: u64,
    /// UEs that were taken by asking other hosts.
    pub takeovers: u64,
    /// What broke, if something did, and when: microseconds since the beginning.
    pub broken: Option<(u64, Broken)>,
}

/// Runs the world of a seed: of hosts that release what as many copies as this have acknowledged.
pub fn campaign(seed: u64, ack: Ack) -> Campaign {
    world::World::new(seed, ack).run()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_breaks_in_a_hundred_worlds() {
        let all: Vec<Campaign> = (1..=100).map(|seed| campaign(seed, Ack::One)).collect();
        for campaign in &all {
            assert_eq!(campaign.broken, None, "seed {}", campaign.seed);
        }
        let sum = |of: fn(&Campaign) -> u64| all.iter().map(of).sum::<u64>();
        let (procedures, failures, takeovers) = (sum(|c| c.procedures), sum(|c| c.failures), sum(|c| c.takeovers));
        assert!(procedures > 5_000 && failures > 100 && takeovers > 500, "{procedures} {failures} {takeovers}");
    }

    #[test]
    fn nothing_breaks_where_all_acknowledge_either() {
        for seed in 1..=20 {
            assert_eq!(campaign(seed, Ack::All).broken, None, "seed {seed}");
        }
    }

    /// The oracle sees what goes wrong: without acknowledgements a host's death takes what has left with it.
    #[test]
    fn without_acknowledgements_counts_are_used_twice() {
        let broken: Vec<Broken> =
            (1..=60).filter_map(|seed| campaign(seed, Ack::None).broken).map(|(_, b)| b).collect();
        assert!(broken.iter().any(|broken| !matches!(broken, Broken::Stuck(_))), "{broken:?}");
    }

    #[test]
    fn a_seed_is_a_world() {
        assert_eq!(campaign(3, Ack::One), campaign(3, Ack::One));
        assert_ne!(campaign(3, Ack::One).procedures, campaign(4, Ack::One).procedures);
    }
}
