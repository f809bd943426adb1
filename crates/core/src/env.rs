use crate::config::CoreConfig;
use vireo_types::{AssocId, Dnn, GnbId, Instant, Ltmsi, PduSessionType, SessionAddress, Snssai, Tai, Tmsi};

/// Everything a step may know that is not in the context or the event.
pub struct Env<'a> {
    /// The time of this step.
    pub now: Instant,
    /// When what the step is about came to this core: how long a procedure takes counts from then, what waits for it from
    /// `now`.
    pub arrived: Instant,
    /// The configuration, which does not change while a step runs.
    pub config: &'a CoreConfig,
    /// Fills a buffer with random octets: from the system in the core, from a seed in tests and the simulator.
    pub random: &'a mut dyn FnMut(&mut [u8]),
    /// Gives out identifiers that are unique in the cluster.
    pub ids: &'a mut dyn Identifiers,
    /// The RAN nodes that have NG set up.
    pub ran: &'a dyn RanNodes,
}

impl std::fmt::Debug for Env<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Env").field("now", &self.now).finish_non_exhaustive()
    }
}

impl Env<'_> {
    /// `N` random octets.
    pub fn random<const N: usize>(&mut self) -> [u8; N] {
        let mut octets = [0; N];
        (self.random)(&mut octets);
        octets
    }
}

/// Fresh identifiers. What a step takes and then does not commit is given back by the caller that ran the step; what
/// a context holds is given back by an effect of the step that drops it.
pub trait Identifiers {
    /// A 5G-TMSI that names `ltmsi`, unlinkable to any earlier one (TS 33.501 6.12.3).
    fn tmsi(&mut self, ltmsi: Ltmsi) -> Option<Tmsi>;

    /// An LTMSI in a bucket of the slice for the UE that is `current`; `None` if its bucket is the slice's already or
    /// none is free.
    fn rekey(&mut self, current: Ltmsi, slice: Snssai) -> Option<Ltmsi>;

    /// Addresses of the data network's pools; `None` when a pool that is needed is used up.
    fn address(&mut self, dnn: &Dnn, kind: PduSessionType) -> Option<SessionAddress>;
}

/// The RAN nodes that have NG set up, as far as a step over a UE must find them.
pub trait RanNodes {
    /// The associations of the nodes that serve one of these tracking areas, each once.
    fn serving(&self, areas: &[Tai]) -> Vec<AssocId>;

    /// The association of the node of a Global gNB ID.
    fn find(&self, id: GnbId) -> Option<AssocId>;
}

/// No RAN node.
impl RanNodes for () {
    fn serving(&self, _: &[Tai]) -> Vec<AssocId> {
        Vec::new()
    }

    fn find(&self, _: GnbId) -> Option<AssocId> {
        None
    }
}
