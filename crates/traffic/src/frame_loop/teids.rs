//! TEIDs of the sessions of a load.

use std::sync::Arc;
use vireo_types::Teid;

/// Generations in one map element (`struct generations` of `bpf/frame_loop.bpf.c`).
pub(super) const TOGETHER: usize = 64;

/// TEIDs of sessions that are numbered from 0. Their indexes are consecutive, like the sessions.
/// Each has an individual generation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Teids {
    /// Index of session 0. Others follow.
    index: u32,
    /// Generation of the sessions with unknown generation.
    generation: u8,
    /// Generation by session; 0 = unknown.
    generations: Arc<Vec<u8>>,
}

impl From<Teid> for Teids {
    /// Creates sessions that all have the generation of the first one.
    fn from(first: Teid) -> Self {
        Teids { index: first.index(), generation: first.generation(), generations: Arc::default() }
    }
}

impl Teids {
    /// Creates the TEIDs from that of one known session.
    pub fn with(session: u32, teid: Teid) -> Self {
        let index = teid.index().wrapping_sub(session);
        let mut teids = Teids { index, generation: teid.generation(), generations: Arc::default() };
        teids.add(session, teid);
        teids
    }

    /// Stores the TEID of a session. Returns true if its index matches those of the others.
    pub fn add(&mut self, session: u32, teid: Teid) -> bool {
        let follows = self.index_of(session) == teid.index();
        if follows {
            let (place, generations) = (session as usize, Arc::make_mut(&mut self.generations));
            if generations.len() <= place {
                generations.resize(place + 1, 0);
            }
            generations[place] = teid.generation();
        }
        follows
    }

    /// Returns the TEID of a session.
    pub fn teid(&self, session: u32) -> Teid {
        let own = self.generations.get(session as usize).copied().filter(|generation| *generation != 0);
        Teid::from_index(self.index_of(session), own.unwrap_or(self.generation))
    }

    fn index_of(&self, session: u32) -> u32 {
        Teid::from_index(self.index.wrapping_add(session), 0).index()
    }

    /// Returns the generations in the layout of the load's programs.
    pub(super) fn stored(&self) -> impl Iterator<Item = [u8; TOGETHER]> {
        self.generations.chunks(TOGETHER).map(|some| {
            let mut together = [0; TOGETHER];
            together[..some.len()].copy_from_slice(some);
            together
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn teids_of_answers_are_given_back() {
        let of = Teid::from_index;
        let mut teids = Teids::with(70, of(75, 9));
        assert!(teids.add(0, of(5, 200)) && teids.add(1, of(6, 3)) && teids.add(70, of(75, 8)));
        assert!(!teids.add(2, of(9, 3)), "its index does not follow");
        assert_eq!([0, 1, 2, 70, 71].map(|n| teids.teid(n)), [of(5, 200), of(6, 3), of(7, 9), of(75, 8), of(76, 9)]);
        let stored: Vec<_> = teids.stored().collect();
        assert_eq!((stored.len(), &stored[0][..3], stored[1][6]), (2, &[200, 3, 0][..], 8));
        let same = Teids::from(of(5, 1));
        assert_eq!((same.teid(3), same.stored().count()), (of(8, 1), 0));
    }
}
