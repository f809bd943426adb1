//! Inputs of a step, and the lookup of RAN nodes that the caller provides.

use crate::config::CoreConfig;
use crate::ids::Identifiers;
use vireo_types::{AssocId, Instant, RanNodeId, Snssai, Tai};

/// Inputs of a step other than the context and the event.
pub struct Env<'a> {
    pub now: Instant,
    /// Time at which the core received the input of this step. Procedure latencies count from it;
    /// deadlines count from `now`.
    pub arrived: Instant,
    /// Does not change while a step runs.
    pub config: &'a CoreConfig,
    /// Fills a buffer with random bytes: from the operating system in the core, from a seed in
    /// tests and the simulator.
    pub random: &'a mut dyn FnMut(&mut [u8]),
    /// Allocates identifiers that are unique in the cluster.
    pub ids: &'a mut dyn Identifiers,
    /// RAN nodes that have completed NG Setup.
    pub ran: &'a dyn RanNodes,
}

impl std::fmt::Debug for Env<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Env").field("now", &self.now).finish_non_exhaustive()
    }
}

impl Env<'_> {
    /// Returns `N` random bytes.
    pub fn random<const N: usize>(&mut self) -> [u8; N] {
        let mut octets = [0; N];
        (self.random)(&mut octets);
        octets
    }
}

/// Lookup of RAN nodes that have completed NG Setup, for steps of a UE.
pub trait RanNodes {
    /// Returns the associations of the RAN nodes that serve one of these tracking areas, without
    /// duplicates.
    fn serving(&self, areas: &[Tai]) -> Vec<AssocId>;

    /// Returns the association of the RAN node with this Global RAN Node ID.
    fn find(&self, id: RanNodeId) -> Option<AssocId>;

    /// Returns the slices that a RAN node of 5GS supports in a tracking area; `None` if they are
    /// not known.
    fn slices(&self, node: AssocId, tai: Tai) -> Option<Vec<Snssai>>;

    /// Returns true if most RAN nodes of 5GS in the tracking area lack one of the slices there.
    fn misses(&self, tai: Tai, slices: &[Snssai]) -> bool;

    /// Returns true if the RAN node is an ng-eNB, whose UEs use E-UTRA.
    fn is_ng_enb(&self, node: AssocId) -> bool;
}

/// A set without RAN nodes.
impl RanNodes for () {
    fn serving(&self, _: &[Tai]) -> Vec<AssocId> {
        Vec::new()
    }

    fn find(&self, _: RanNodeId) -> Option<AssocId> {
        None
    }

    fn slices(&self, _: AssocId, _: Tai) -> Option<Vec<Snssai>> {
        None
    }

    fn misses(&self, _: Tai, _: &[Snssai]) -> bool {
        false
    }

    fn is_ng_enb(&self, _: AssocId) -> bool {
        false
    }
}
