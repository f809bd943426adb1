//! The fault campaign: a whole cluster on a simulated network and clock. Controller (`core::cluster`), balancer (`core::balance`,
//! `core::replica`), hosts (`core::replica` and the steps of `core::engine` with real NAS security) and the emulator's gNBs and UEs
//! decide as they do in a running cluster; only sockets, threads and stores are simulated. Hosts crash, are stopped, cut off,
//! drained and started; the controller crashes; connections break, messages are slow, uplink messages are said twice by somebody who listens,
//! and clocks are wrong. A seed is a world, and the same seed is the same world.
//!
//! What must hold, whatever happens, is in [`Violation`]. Faults of hosts come one at a time, when all copies are there again: more
//! would take all copies that acknowledged a commit. The balancer does not fail: with the only one the RAN's associations go.
//! That the campaign finds what it is for is shown by faults that are put in, [`Mutation`].

mod balancer;
mod controller;
mod host;
mod message;
mod network;
mod oracle;
mod ran;
mod simulation;
mod ues;

pub use oracle::Violation;

use vireo_core::replica::Ack;

/// A fault that is put into the hosts or the balancer, for the campaign to find.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mutation {
    /// Effects leave before copies are acknowledged.
    EffectsBeforeAcknowledgement,
    /// Who is not in the map goes on, and is heard.
    FenceIgnored,
    /// A commit does not say which downlink COUNTs were used.
    CountNotReserved,
    /// Nor which uplink COUNT was taken.
    UplinkNotCounted,
    /// Nor which NH was given away.
    NextHopNotTaken,
    /// What a dead host has had sent is sent once more.
    RepeatsSent,
    /// Who takes over does not enter the copies.
    CopiesForgotten,
    /// Hosts go on with UEs whose RAN nodes they do not know, as if these were gone, and own UEs before they know any.
    NodesNotAwaited,
}

impl Mutation {
    /// All of them.
    pub const ALL: [Mutation; 8] = [
        Mutation::EffectsBeforeAcknowledgement,
        Mutation::FenceIgnored,
        Mutation::CountNotReserved,
        Mutation::UplinkNotCounted,
        Mutation::NextHopNotTaken,
        Mutation::RepeatsSent,
        Mutation::CopiesForgotten,
        Mutation::NodesNotAwaited,
    ];
}

/// What is run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Setup {
    /// What effects wait for.
    pub ack: Ack,
    /// The fault that is put in.
    pub mutation: Option<Mutation>,
}

/// What a world came to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Campaign {
    /// The seed.
    pub seed: u64,
    /// Procedures that have ended.
    pub procedures: u64,
    /// What has failed.
    pub faults: u64,
    /// Hosts that were taken for dead.
    pub failures: u64,
    /// Maps.
    pub epochs: u64,
    /// UEs that were taken over from dead hosts, and that hosts which live have handed over.
    pub taken: u64,
    /// See `taken`.
    pub handed: u64,
    /// What has failed, and when: microseconds since the beginning.
    pub story: Vec<(u64, String)>,
    /// What broke, if something did, and when.
    pub broken: Option<(u64, Violation)>,
}

/// Runs the world of a seed.
pub fn campaign(seed: u64, setup: Setup) -> Campaign {
    simulation::Simulation::new(seed, setup).run()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(ack: Ack) -> Setup {
        Setup { ack, mutation: None }
    }

    /// Seeds beyond the first hundred that have found something in what hosts run. 886: a host that came to keep copies in another's
    /// place had an older one than it was taken to have, and went on from it. 647: what a host which lives had had sent for a UE was
    /// sent again when the next one died. 148, 288, 367, 376, 515, 903, 938: a replay of what is not protected was answered. The
    /// rest: a UE was spoken to on a connection that was being released. Of the first hundred, 37 and 68 have found that a map in
    /// between dropped copies which were sent by the next one, and 62 that a context which had registered was superseded. 1855, 2754,
    /// 2907, 3869: a registration that was under way when its context came to a host which had only just joined was never claimed, and
    /// the subscriber's context before it won when it was taken over. 1182, 2624, 2729: a session was set up on a connection that was
    /// being released. 2637: a UE that its owner had told the second replica alone of was gone on with there, when the owner and the next one
    /// had died.
    const FOUND: [u64; 27] = [
        128, 148, 160, 288, 367, 376, 515, 569, 637, 647, 648, 699, 719, 865, 886, 903, 929, 938, 1000, 1182, 1855,
        2624, 2637, 2729, 2754, 2907, 3869,
    ];

    /// Nothing breaks in these worlds, and enough happens there.
    fn nothing_breaks(seeds: impl IntoIterator<Item = u64>) {
        let all: Vec<Campaign> = seeds.into_iter().map(|seed| campaign(seed, with(Ack::One))).collect();
        let broken: Vec<&Campaign> = all.iter().filter(|campaign| campaign.broken.is_some()).collect();
        assert!(broken.is_empty(), "{broken:#?}");
        let least = all.len() as u64;
        let sum = |of: fn(&Campaign) -> u64| all.iter().map(of).sum::<u64>();
        let (procedures, failures) = (sum(|c| c.procedures), sum(|c| c.failures));
        let (taken, handed) = (sum(|c| c.taken), sum(|c| c.handed));
        assert!(procedures > 150 * least && failures > least / 2, "{procedures} procedures, {failures} dead hosts");
        assert!(taken > least && handed > least, "{taken} taken over, {handed} handed over");
    }

    // A hundred in all, in parts that run side by side; `make faults` runs a thousand.

    #[test]
    fn nothing_breaks_in_the_first_worlds() {
        nothing_breaks(1..=33);
    }

    #[test]
    fn nor_in_more_of_them() {
        nothing_breaks(34..=66);
    }

    #[test]
    fn nor_in_the_last_of_a_hundred_and_those_that_have_found_something() {
        nothing_breaks((67..=100).chain(FOUND));
    }

    #[test]
    fn nothing_breaks_where_all_acknowledge_either_and_a_seed_is_a_world() {
        let one = campaign(101, with(Ack::All));
        assert_eq!(one.broken, None, "{:#?}", one.story);
        assert_eq!(one, campaign(101, with(Ack::All)));
        assert_ne!(one.story, campaign(102, with(Ack::All)).story);
    }

    /// Whether something breaks in one of these worlds. They are other worlds when hosts say other things to each other, so after those
    /// that have broken soon when this was written come the first.
    fn breaks(known: &[u64], first: u64, setup: Setup) -> bool {
        known.iter().copied().chain(1..=first).any(|seed| campaign(seed, setup).broken.is_some())
    }

    /// The campaign sees what it is for.
    #[test]
    fn faults_that_are_put_in_are_found() {
        for mutation in Mutation::ALL {
            let known = match mutation {
                // 14 of the first 120 worlds break; by the others at least every other one does.
                Mutation::EffectsBeforeAcknowledgement => [30, 109, 18],
                Mutation::FenceIgnored => [35, 64, 52],
                Mutation::CountNotReserved => [38, 61, 16],
                Mutation::UplinkNotCounted => [61, 62, 15],
                Mutation::NextHopNotTaken => [14, 33, 3],
                Mutation::RepeatsSent => [3, 66, 35],
                Mutation::CopiesForgotten => [76, 74, 32],
                Mutation::NodesNotAwaited => [31, 50, 51],
            };
            assert!(
                breaks(&known, 40, Setup { mutation: Some(mutation), ..with(Ack::One) }),
                "{mutation:?} is not found"
            );
        }
    }

    #[test]
    fn without_acknowledgements_something_breaks() {
        // Seldom: in 8 of the first 300.
        assert!(breaks(&[38, 76, 85], 120, with(Ack::None)));
    }
}
