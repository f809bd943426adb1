//! Fault campaign: a whole cluster on a simulated network and clock.
//!
//! These parts decide as in a running cluster:
//!
//! * the controller (`core::placement::cluster::machine`),
//! * one or two balancers (`core::placement::balancer`),
//! * hosts (`core::placement::host` and the steps of `core::amf::engine` with real NAS security),
//! * the emulator's gNBs, eNBs and UEs ([`Setup::rats`]). With both technologies and one balancer,
//!   connected UEs are handed over between gNBs and eNBs.
//!
//! Only sockets, threads and stores are simulated. Hosts crash, stop, become isolated, lose all
//! connections, drain and start. The controller crashes with and without its store. A balancer is
//! replaced by a hot restart. Of two balancers, one crashes, stops, is isolated from some or all
//! members, or is slow. Connections break, messages of some connections are slow, an attacker
//! replays uplink messages, and clocks are wrong. In a quarter of the seeds the load of buckets is
//! skewed, and the controller weights hosts by it. In some seeds hosts share machines, and all
//! hosts of a machine crash at once. Messages of one connection keep their order,
//! those of different connections overtake each other. A seed determines the whole simulation.
//!
//! Where hosts serve procedures ([`Setup::serve`]), the owner and the replicas of a UE execute its
//! procedures in turn. UEs then have 0 to 2 replicas, the UPF sends reports during procedures,
//! timers expire, and some hosts are slow for a time. Without replicas no host fails.
//!
//! [`Violation`] lists the invariants. Host faults occur one at a time, when all copies exist
//! again. More faults could destroy all copies that acknowledged a commit. An only balancer does
//! not fail, since the RAN's associations end with it; [`Setup::has_two_balancers`] adds another.
//! Injected faults ([`Mutation`]) show that the campaign detects violations.

mod balancer;
mod controller;
mod host;
mod labels;
mod message;
mod mutation;
mod network;
mod oracle;
mod ran;
mod simulation;
mod skew;
mod ues;

pub use mutation::Mutation;
pub use oracle::{NodeViolation, Violation};
pub(crate) use ran::config;

use vireo_core::placement::balancer::Serve;
use vireo_core::placement::replica::Ack;
use vireo_emulator::Rats;

/// Configuration of a campaign.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Setup {
    /// Acknowledgements that effects wait for.
    pub ack: Ack,
    /// Hosts that serve procedures. [`Serve::Procedure`] takes the owner and the replicas in turn.
    pub serve: Serve,
    /// True for two balancers, of which one may fail. Only with [`Serve::Procedure`].
    pub has_two_balancers: bool,
    /// Radio access technologies of RAN nodes and UEs.
    pub rats: Rats,
    /// Injected fault, if any.
    pub mutation: Option<Mutation>,
}

/// Result of one simulation.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Campaign {
    pub seed: u64,
    pub procedures: u64,
    /// Handovers of UEs between 4G and 5G.
    pub moves: u64,
    pub faults: u64,
    /// Hosts that were declared dead.
    pub failures: u64,
    pub epochs: u64,
    /// Steps of serving hosts that owners have committed, and that they have refused.
    pub proposals: (u64, u64),
    /// UEs that were taken over from dead hosts.
    pub taken_over: u64,
    /// UEs that living hosts have migrated.
    pub migrated: u64,
    /// Changes of the hosts' weights by their load.
    pub rebalances: u64,
    /// Faults with their times in microseconds since the start.
    pub story: Vec<(u64, String)>,
    /// First violation with its time, if any.
    pub violation: Option<(u64, Violation)>,
}

/// Runs the simulation of a seed.
pub fn campaign(seed: u64, setup: Setup) -> Campaign {
    simulation::Simulation::new(seed, setup).run()
}

/// Returns the first simulation of these seeds that violates an invariant.
pub fn first_violation(seeds: impl IntoIterator<Item = u64>, setup: Setup) -> Option<Campaign> {
    seeds.into_iter().map(|seed| campaign(seed, setup)).find(|campaign| campaign.violation.is_some())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(ack: Ack) -> Setup {
        Setup { ack, ..Setup::default() }
    }

    /// Seeds that have found faults in code that hosts run.
    ///
    /// * 886: a new replica in another's place had an older copy than assumed, and continued from
    ///   it.
    /// * 647: effects that a living host had sent for a UE were sent again when the next host died.
    /// * 148, 288, 367, 376, 515, 903, 938: a replay of an unprotected message was answered.
    /// * 1855, 2754, 2907, 3869: a registration was in progress when its context reached a host
    ///   that had just joined. It was never claimed, and the subscriber's older context won at
    ///   takeover.
    /// * 1182, 2624, 2729: a session was set up on a connection in release.
    /// * 2637: an owner had sent a UE only to the second replica, which continued the UE when the
    ///   owner and the next host had died.
    /// * 3598: the handoff of a UE overtook its claim, and the earlier claim superseded the UE.
    /// * 4508: a late copy of the previous owner restored a UE that the new owner had renumbered.
    /// * 37, 68: an intermediate map dropped copies of the next map.
    /// * 62: a registered context was superseded.
    /// * The others: the core sent to a UE on a connection in release.
    const FOUND: [u64; 32] = [
        37, 62, 68, 128, 148, 160, 288, 367, 376, 515, 569, 637, 647, 648, 699, 719, 865, 886, 903, 929, 938, 1000,
        1182, 1855, 2624, 2637, 2729, 2754, 2907, 3598, 3869, 4508,
    ];

    /// Checks that no invariant is violated with these seeds, and that enough events happen.
    fn assert_no_violation(seeds: impl IntoIterator<Item = u64>) {
        let all: Vec<Campaign> = seeds.into_iter().map(|seed| campaign(seed, with(Ack::One))).collect();
        let violations: Vec<&Campaign> = all.iter().filter(|campaign| campaign.violation.is_some()).collect();
        assert!(violations.is_empty(), "{violations:#?}");
        let least = all.len() as u64;
        let sum = |of: fn(&Campaign) -> u64| all.iter().map(of).sum::<u64>();
        let (procedures, failures) = (sum(|c| c.procedures), sum(|c| c.failures));
        let (taken_over, migrated) = (sum(|c| c.taken_over), sum(|c| c.migrated));
        assert!(procedures > 150 * least && failures > least / 2, "{procedures} procedures, {failures} dead hosts");
        assert!(taken_over > least && migrated > least, "{taken_over} taken over, {migrated} migrated");
    }

    // Fifty seeds and the recorded ones, in parallel parts; `make faults` runs a thousand.

    #[test]
    fn no_violation_in_first_seeds() {
        assert_no_violation(1..=25);
    }

    #[test]
    fn no_violation_in_further_seeds() {
        assert_no_violation(26..=50);
    }

    #[test]
    fn no_violation_in_recorded_seeds() {
        assert_no_violation(FOUND);
    }

    #[test]
    fn full_acknowledgement_holds_and_seeds_repeat() {
        let one = campaign(101, with(Ack::All));
        assert_eq!(one.violation, None, "{:#?}", one.story);
        assert_eq!(one, campaign(101, with(Ack::All)));
        assert_ne!(one.story, campaign(102, with(Ack::All)).story);
    }

    #[test]
    fn serving_hosts_violate_nothing() {
        let (mut committed, mut refused) = (0, 0);
        for seed in 1..=20 {
            let result = campaign(seed, Setup { serve: Serve::Procedure, ..with(Ack::One) });
            assert!(result.violation.is_none(), "seed {seed}: {:?}\n{:#?}", result.violation, result.story);
            (committed, refused) = (committed + result.proposals.0, refused + result.proposals.1);
        }
        assert!(committed > 500 && refused > 0, "{committed} proposals committed, {refused} refused");
    }

    #[test]
    fn balancer_failures_violate_nothing() {
        let mut faults = 0;
        // In 404 the owner loses its connections to both balancers, which are alive.
        for seed in (1..=10).chain([404]) {
            let setup = Setup { serve: Serve::Procedure, has_two_balancers: true, ..with(Ack::One) };
            let result = campaign(seed, setup);
            assert!(result.violation.is_none(), "seed {seed}: {:?}\n{:#?}", result.violation, result.story);
            faults += result.story.iter().filter(|(_, fault)| fault.starts_with("BalancerId")).count();
        }
        assert!(faults > 2, "{faults} balancers failed");
    }

    #[test]
    fn enbs_and_their_ues_violate_nothing() {
        for (rats, has_two_balancers) in [(Rats::Eps, false), (Rats::Both, false), (Rats::Eps, true)] {
            let (mut sum, mut moves) = ((0, 0), 0);
            for seed in 1..=6 {
                let setup = Setup { serve: Serve::Procedure, has_two_balancers, rats, ..with(Ack::One) };
                let result = campaign(seed, setup);
                assert!(result.violation.is_none(), "seed {seed}: {:?}\n{:#?}", result.violation, result.story);
                sum = (sum.0 + result.procedures, sum.1 + result.faults);
                moves += result.moves;
            }
            assert!(rats != Rats::Both || moves > 50, "{moves} moves between 4G and 5G");
            assert!(sum.0 > 1_500 && sum.1 > 6, "{rats:?}: {sum:?} procedures and faults");
        }
    }

    #[test]
    fn injected_faults_are_found_in_eps() {
        for mutation in [
            Mutation::FenceIgnored,
            Mutation::CountNotReserved,
            Mutation::UplinkNotCounted,
            Mutation::CopiesForgotten,
            Mutation::BaseNotChecked,
            Mutation::RefusalIgnored,
            Mutation::ServingHostSends,
        ] {
            let serve = mutation.serve();
            let setup = Setup { mutation: Some(mutation), serve, rats: Rats::Eps, ..with(Ack::One) };
            assert!(is_violated(&[], 60, setup), "{mutation:?} is not found");
        }
    }

    #[test]
    fn machine_failures_violate_nothing() {
        let labelled = (1..=160).filter(|seed| labels::Labels::draw(*seed, None).is_some());
        let mut machines = 0;
        for (seed, serve) in labelled.zip([Serve::Owner, Serve::Procedure].into_iter().cycle()) {
            let result = campaign(seed, Setup { serve, ..with(Ack::One) });
            assert!(result.violation.is_none(), "seed {seed}: {:?}\n{:#?}", result.violation, result.story);
            machines += result.story.iter().filter(|(_, fault)| fault.starts_with("the machine of")).count();
        }
        assert!(machines > 5, "{machines} machines failed");
    }

    /// Returns true if one of these seeds violates an invariant. A change of the messages changes
    /// the simulation of a seed, so the known seeds come first and others follow.
    fn is_violated(known: &[u64], first: u64, setup: Setup) -> bool {
        first_violation(known.iter().copied().chain(1..=first), setup).is_some()
    }

    /// The campaign detects the injected faults.
    #[test]
    fn injected_faults_are_found() {
        for mutation in Mutation::ALL {
            let known = match mutation {
                // 14 of the first 120 seeds fail; with the other faults at least every second one
                // does.
                Mutation::EffectsBeforeAcknowledgement => [30, 109, 18],
                Mutation::FenceIgnored => [35, 64, 52],
                Mutation::CountNotReserved => [38, 61, 16],
                Mutation::UplinkNotCounted => [61, 62, 15],
                Mutation::NextHopNotTaken => [14, 33, 3],
                Mutation::RepeatsSent => [3, 66, 35],
                Mutation::CopiesForgotten => [76, 74, 32],
                Mutation::NodesNotAwaited => [31, 50, 51],
                Mutation::LabelsIgnored => [1, 2, 5],
                // Few seeds find these four: `vireo simulate --self-check` searches for them.
                Mutation::EpochNotChecked
                | Mutation::ProposalKept
                | Mutation::IdentifierKept
                | Mutation::RoleNotChecked => continue,
                // Most seeds find the others.
                Mutation::BaseNotChecked => [1, 2, 3],
                Mutation::FirstReplicaNotAwaited => [1, 2, 3],
                Mutation::ProposalForgotten => [7, 8, 61],
                Mutation::RefusalIgnored => [1, 2, 3],
                Mutation::RefusalLost => [1, 2, 3],
                Mutation::InputRepeated => [1, 2, 3],
                Mutation::HintKept => [6, 8, 22],
                Mutation::DeadlineAtReplica => [1, 2, 3],
                Mutation::ServingHostSends => [1, 2, 3],
                Mutation::UnsentForgotten => [1, 2, 3],
                Mutation::RequestsForgotten => [1, 2, 3],
            };
            let setup = Setup { mutation: Some(mutation), serve: mutation.serve(), ..with(Ack::One) };
            assert!(is_violated(&known, 40, setup), "{mutation:?} is not found");
        }
    }

    #[test]
    fn missing_acknowledgements_are_found() {
        // Rare: 8 of the first 300 seeds.
        assert!(is_violated(&[38, 76, 85], 120, with(Ack::None)));
    }
}
