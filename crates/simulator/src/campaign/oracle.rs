//! What must hold, judged by all that leaves the cluster.

use super::host::{Emission, State};
use std::collections::HashMap;

/// What broke.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Broken {
    /// A downlink NAS COUNT has left with two contents.
    #[error("UE {0}: the downlink NAS COUNT {1} was used twice")]
    Count(usize, u32),
    /// An NH has left for two purposes.
    #[error("UE {0}: NH number {1} was used twice")]
    NextHop(usize, u32),
    /// An uplink NAS COUNT was taken twice, or an older one after it.
    #[error("UE {0}: the uplink NAS COUNT {1} was taken again")]
    Replay(usize, u32),
    /// What has left does not follow on what had left before.
    #[error("UE {0}: step {1} has left with another past than it had before")]
    Past(usize, u32),
    /// A UE gets no answer although the network is whole.
    #[error("UE {0}: it is lost, or its procedure is stuck")]
    Stuck(usize),
}

/// Of one UE.
#[derive(Debug, Default)]
struct Seen {
    counts: HashMap<u32, u64>,
    hops: HashMap<u32, u64>,
    uplinks: HashMap<u32, u32>,
    /// A hash of the past of each step.
    pasts: HashMap<u32, u64>,
}

/// All that has left.
#[derive(Debug, Default)]
pub(super) struct Oracle {
    seen: HashMap<usize, Seen>,
    pub(super) broken: Option<Broken>,
}

impl Oracle {
    /// A state of a UE was released, by which its outbox leaves.
    pub(super) fn released(&mut self, ue: usize, state: &State) {
        let seen = self.seen.entry(ue).or_default();
        let mut broken = None;
        for emission in &state.outbox {
            match *emission {
                Emission::Downlink { count, content } => {
                    let differs = *seen.counts.entry(count).or_insert(content) != content;
                    broken = broken.or(differs.then_some(Broken::Count(ue, count)));
                }
                Emission::NextHop { number, content } => {
                    let differs = *seen.hops.entry(number).or_insert(content) != content;
                    broken = broken.or(differs.then_some(Broken::NextHop(ue, number)));
                }
                Emission::Done => (),
            }
        }
        if let Some(count) = state.taken {
            let differs = *seen.uplinks.entry(count).or_insert(state.steps) != state.steps;
            broken = broken.or(differs.then_some(Broken::Replay(ue, count)));
        }
        let differs = *seen.pasts.entry(state.steps).or_insert(state.past) != state.past;
        broken = broken.or(differs.then_some(Broken::Past(ue, state.steps)));
        self.broken = self.broken.or(broken);
    }
}
