//! Machine labels of hosts, in some of the seeds.
//!
//! Labels use a separate random stream: the other seeds run as without labels.

use super::mutation::Mutation;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use vireo_core::placement::cluster::MachineLabel;

/// Distinguishes the random stream from that of the network. With this value, the recorded seeds
/// have no labels and still show what they have found.
const STREAM: u64 = 0x1abe_156a;
/// Probability that a seed has labels.
const PROBABILITY: f64 = 0.15;
/// Probability that a host fails with its machine.
const MACHINE_FAILS: f64 = 0.8;
/// Number of machines.
const MACHINES: usize = 3;

/// Machines of the hosts of a simulation.
#[derive(Debug)]
pub(super) struct Labels {
    random: StdRng,
    /// Machines of the first hosts; later ones are drawn.
    first: std::vec::IntoIter<usize>,
}

impl Labels {
    /// Draws the labels of a seed; `None` if it has none.
    pub(super) fn draw(seed: u64, mutation: Option<Mutation>) -> Option<Self> {
        let mut random = StdRng::seed_from_u64(seed ^ STREAM);
        let has_labels = random.random_bool(PROBABILITY);
        // Two hosts share a machine, and the other two do or do not.
        let first = vec![0, 0, 1, random.random_range(1..MACHINES)].into_iter();
        (has_labels || mutation == Some(Mutation::LabelsIgnored)).then_some(Labels { random, first })
    }

    /// Returns the machine of the next host.
    pub(super) fn next(&mut self) -> MachineLabel {
        let machine = self.first.next().unwrap_or_else(|| self.random.random_range(0..MACHINES));
        MachineLabel::try_from(format!("machine-{machine}")).expect("a label")
    }

    /// Draws whether a host fails with its machine.
    pub(super) fn machine_fails(&mut self) -> bool {
        self.random.random_bool(MACHINE_FAILS)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn some_seeds_have_labels() {
        let seeds = (1..=300).filter(|seed| Labels::draw(*seed, None).is_some()).count();
        assert!((25..70).contains(&seeds), "{seeds}");
        let mut labels = Labels::draw(1, Some(Mutation::LabelsIgnored)).expect("always");
        let [one, other, third] = [labels.next(), labels.next(), labels.next()];
        assert!(one == other && one != third);
    }
}
