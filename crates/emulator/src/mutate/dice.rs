//! Random choices of a campaign.

use crate::load::Rng;

/// Returns true with a probability of `percent` %.
pub(super) fn chance(rng: &mut Rng, percent: usize) -> bool {
    rng.below(100) < percent
}

/// Returns a random element of a slice that is not empty.
pub(super) fn pick<'a, T>(rng: &mut Rng, from: &'a [T]) -> &'a T {
    &from[rng.below(from.len())]
}
