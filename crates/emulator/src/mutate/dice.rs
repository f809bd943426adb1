//! Random choices of a campaign.

use crate::load::Rng;

/// Returns true in so many of 100 cases.
pub(super) fn chance(rng: &mut Rng, percent: usize) -> bool {
    rng.below(100) < percent
}

/// Returns one of several, which must not be none.
pub(super) fn pick<'a, T>(rng: &mut Rng, from: &'a [T]) -> &'a T {
    &from[rng.below(from.len())]
}
