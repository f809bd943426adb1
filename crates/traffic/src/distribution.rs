//! Distributions of packet lengths and users.

use crate::packets::{IPV4_HEADER, UDP_HEADER};
use crate::stamp::STAMP;
use rand::Rng;
use rand_distr::{Distribution, Zipf};
use std::fmt;
use std::str::FromStr;

/// Minimum packet length in octets, including the IP header: the packet carries a stamp.
pub const SHORTEST: u16 = (IPV4_HEADER + UDP_HEADER + STAMP) as u16;
/// Maximum packet length in octets.
pub const LONGEST: u16 = 9000;
/// Maximum number of lengths in a distribution.
const SIZES: usize = 64;
/// Maximum weight of a length.
const WEIGHT: u32 = 1_000_000;

/// Packet lengths in octets, including the IP header, with weights.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SizeDistribution {
    /// Lengths, each with the sum of the weights up to it.
    entries: Vec<(u16, u32)>,
}

/// The text or the values are no distribution of packet lengths.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SizeError {
    /// A length in octets.
    #[error("packets of {0} octets cannot be: take {SHORTEST} to {LONGEST}")]
    Length(u16),
    #[error("a weight of {0} cannot be: take 1 to {WEIGHT}")]
    Weight(u32),
    /// The number of lengths is zero or too large.
    #[error("give 1 to {SIZES} sizes")]
    Count,
    #[error("{0:?} is neither a size (128), nor imix, nor sizes with weights (128:9,1400:1)")]
    Syntax(String),
}

/// The text is no distribution of users.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not a distribution of users: take round-robin, uniform or zipf:S with S 0 to 10")]
pub struct UserDistributionError(String);

impl SizeDistribution {
    /// Creates a distribution with a single length.
    pub fn fixed(length: u16) -> Option<Self> {
        SizeDistribution::new(&[(length, 1)]).ok()
    }

    fn new(weighted: &[(u16, u32)]) -> Result<Self, SizeError> {
        let mut sum = 0;
        let mut entries = vec![];
        for &(length, weight) in weighted {
            if !(SHORTEST..=LONGEST).contains(&length) {
                return Err(SizeError::Length(length));
            }
            if weight == 0 || weight > WEIGHT {
                return Err(SizeError::Weight(weight));
            }
            sum += weight;
            entries.push((length, sum));
        }
        if entries.is_empty() || entries.len() > SIZES {
            return Err(SizeError::Count);
        }
        Ok(SizeDistribution { entries })
    }

    /// Returns the maximum length.
    pub fn longest(&self) -> u16 {
        self.entries.iter().map(|(length, _)| *length).max().unwrap_or(SHORTEST)
    }

    /// Returns the length of the next packet.
    pub fn pick(&self, random: &mut impl Rng) -> u16 {
        let [.., (last, sum)] = *self.entries.as_slice() else { return SHORTEST };
        if self.entries.len() == 1 {
            return last;
        }
        let at = random.random_range(0..sum);
        self.entries.iter().find(|(_, up_to)| at < *up_to).map_or(last, |(length, _)| *length)
    }
}

impl FromStr for SizeDistribution {
    type Err = SizeError;

    fn from_str(text: &str) -> Result<Self, SizeError> {
        if text.eq_ignore_ascii_case("imix") {
            // The simple IMIX. Its lengths are adapted: a stamp fits the shortest, and the longest
            // fits a tunnel with an MTU of 1,500.
            return SizeDistribution::new(&[(64, 7), (576, 4), (1400, 1)]);
        }
        let wrong = || SizeError::Syntax(text.to_owned());
        let entry = |word: &str| {
            let (length, weight) = word.split_once(':').unwrap_or((word, "1"));
            Some((length.trim().parse().ok()?, weight.trim().parse().ok()?))
        };
        let weighted: Option<Vec<(u16, u32)>> = text.split(',').map(entry).collect();
        SizeDistribution::new(&weighted.ok_or_else(wrong)?)
    }
}

/// Distribution of packets among users.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum UserDistribution {
    /// Users in turn, with an equal number of packets each.
    RoundRobin,
    /// Random users with equal weights.
    Uniform,
    /// Random users. The n-th user of a cell has the weight `1 / n^s`.
    Zipf(f64),
}

impl FromStr for UserDistribution {
    type Err = UserDistributionError;

    fn from_str(text: &str) -> Result<Self, UserDistributionError> {
        let zipf = |s: &str| s.parse::<f64>().ok().filter(|s| s.is_finite() && (0.0..=10.0).contains(s));
        match text {
            "round-robin" => Ok(UserDistribution::RoundRobin),
            "uniform" => Ok(UserDistribution::Uniform),
            _ => text
                .strip_prefix("zipf:")
                .and_then(zipf)
                .map(UserDistribution::Zipf)
                .ok_or_else(|| UserDistributionError(text.to_owned())),
        }
    }
}

impl fmt::Display for UserDistribution {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            UserDistribution::RoundRobin => f.write_str("round-robin"),
            UserDistribution::Uniform => f.write_str("uniform"),
            UserDistribution::Zipf(s) => write!(f, "zipf:{s}"),
        }
    }
}

/// Generator of the next user in a cell.
#[derive(Debug)]
pub(crate) struct Users {
    count: u32,
    next: u32,
    pick: UserDistribution,
    zipf: Option<Zipf<f64>>,
}

impl Users {
    /// Creates a generator for `count` users, at least one.
    pub(crate) fn new(count: u32, pick: UserDistribution) -> Self {
        let zipf = match pick {
            UserDistribution::Zipf(s) => Zipf::new(f64::from(count.max(1)), s).ok(),
            UserDistribution::RoundRobin | UserDistribution::Uniform => None,
        };
        Users { count: count.max(1), next: 0, pick, zipf }
    }

    /// Returns the next user.
    pub(crate) fn next(&mut self, random: &mut impl Rng) -> u32 {
        match (self.pick, &self.zipf) {
            (UserDistribution::Zipf(_), Some(zipf)) => (zipf.sample(random) as u32).clamp(1, self.count) - 1,
            (UserDistribution::RoundRobin, _) => {
                let user = self.next;
                self.next = if user + 1 >= self.count { 0 } else { user + 1 };
                user
            }
            _ => random.random_range(0..self.count),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::SeedableRng;
    use rand::rngs::SmallRng;

    #[test]
    fn sizes_come_by_their_weights() {
        let mut random = SmallRng::seed_from_u64(1);
        let imix: SizeDistribution = "imix".parse().unwrap();
        assert_eq!(imix.longest(), 1400);
        let picked: Vec<u16> = (0..12_000).map(|_| imix.pick(&mut random)).collect();
        let share = |length: u16| picked.iter().filter(|picked| **picked == length).count();
        assert!((6_700..7_300).contains(&share(64)) && (3_700..4_300).contains(&share(576)), "{}", share(64));
        assert_eq!(share(64) + share(576) + share(1400), picked.len());
        assert_eq!("128".parse::<SizeDistribution>().unwrap(), SizeDistribution::fixed(128).unwrap());
        for text in ["59", "9001", "128:0", "x", "", "128:1,", "128:1000001"] {
            assert!(text.parse::<SizeDistribution>().is_err(), "{text}");
        }
    }

    #[test]
    fn users_are_picked_as_asked() {
        let mut random = SmallRng::seed_from_u64(1);
        let mut counts = |pick| {
            let (mut users, mut counts) = (Users::new(4, pick), [0; 4]);
            (0..4_000).for_each(|_| counts[users.next(&mut random) as usize] += 1);
            counts
        };
        assert_eq!(counts(UserDistribution::RoundRobin), [1_000; 4]);
        assert!(counts(UserDistribution::Uniform).iter().all(|count| (850..1_150).contains(count)));
        // Weights 1, 1/2, 1/3, 1/4 of 25/12.
        let zipf = counts("zipf:1".parse().unwrap());
        assert!((1_820..2_020).contains(&zipf[0]) && (400..560).contains(&zipf[3]), "{zipf:?}");
        for text in ["zipf", "zipf:-1", "zipf:nan", "random"] {
            assert!(text.parse::<UserDistribution>().is_err(), "{text}");
        }
    }
}
