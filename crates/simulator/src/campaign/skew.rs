//! Skewed load of buckets, in the seeds whose controller weights hosts by their load.
//!
//! The four UEs of a simulation are no measure of load. Each bucket therefore has a random load and
//! each host a random speed, by which hosts report a CPU use. Both use a separate random stream:
//! the other seeds run as without it.

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use vireo_core::placement::balance::HostId;
use vireo_core::placement::balance::map::{BUCKETS, BucketMap};
use vireo_types::Bucket;

/// Distinguishes the random stream from that of the network.
const STREAM: u64 = 0x5eed_10ad;
/// Probability that a seed has skewed load.
const PROBABILITY: f64 = 0.25;
/// Mean CPU use of hosts of speed 1 if there are as many as at the start.
const MEAN: f32 = 0.4;
/// Number of different speeds.
const SPEEDS: usize = 16;

/// Load of each bucket, and speed of each host.
#[derive(Debug)]
pub(super) struct Skew {
    loads: Vec<f32>,
    /// Speed of hosts by the remainder of their ID.
    speeds: Vec<f32>,
    /// Number of successive buckets with the same factor, and the range of these factors.
    pub(super) run: usize,
    pub(super) factor: f32,
}

impl Skew {
    /// Draws the load of a seed; `None` if it has none.
    pub(super) fn draw(seed: u64, hosts: usize) -> Option<Self> {
        let mut random = StdRng::seed_from_u64(seed ^ STREAM);
        if !random.random_bool(PROBABILITY) {
            return None;
        }
        let run = 1 << random.random_range(0..9);
        let factor = random.random_range(2.0..20.0_f32);
        let mut loads: Vec<f32> = Vec::with_capacity(BUCKETS);
        while loads.len() < BUCKETS {
            // Few buckets have most of the load.
            let load = factor.powf(random.random_range(0.0..1.0_f32).powi(3));
            loads.resize((loads.len() + run).min(BUCKETS), load);
        }
        let scale = MEAN * hosts as f32 / loads.iter().sum::<f32>();
        loads.iter_mut().for_each(|load| *load *= scale);
        let speeds = (0..SPEEDS).map(|_| random.random_range(0.5..2.0_f32)).collect();
        Some(Skew { loads, speeds, run, factor })
    }

    /// Returns the CPU use of a host by a map.
    pub(super) fn cpu(&self, map: &BucketMap, host: HostId) -> f32 {
        let owns = |n: u16| map.owners(Bucket::new(n)).owner() == Some(host);
        let load: f32 = (0..).zip(&self.loads).filter(|(n, _)| owns(*n)).map(|(_, load)| load).sum();
        load / self.speeds[host.index() % SPEEDS]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn some_seeds_have_skewed_load() {
        let seeds: Vec<u64> = (1..=200).filter(|seed| Skew::draw(*seed, 4).is_some()).collect();
        assert!((30..70).contains(&seeds.len()), "{seeds:?}");
        let skew = Skew::draw(seeds[0], 4).expect("one of them");
        assert!((skew.loads.iter().sum::<f32>() - 4.0 * MEAN).abs() < 0.01);
    }
}
