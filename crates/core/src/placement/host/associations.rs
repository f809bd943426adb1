//! Associations of a balancer, as far as a host knows them.
//!
//! The end of the connection to a balancer does not tell the host whether the balancer is dead or
//! alive. A balancer that is alive does not accept the host again, and reports it to the
//! controller. So either the next map lacks this host, or the balancer's associations are lost: the
//! map lacks the balancer, or another process has its ID and serves the host.

use std::collections::BTreeSet;
use vireo_types::AssocId;

/// Associations of one balancer.
#[derive(Debug, Default)]
pub struct BalancerAssociations {
    /// Associations that the balancer has reported on the present connection.
    up: BTreeSet<AssocId>,
    /// Associations of earlier connections.
    unreachable: BTreeSet<AssocId>,
}

impl BalancerAssociations {
    /// Handles a report that an association is up.
    pub fn on_up(&mut self, assoc: AssocId) {
        self.up.insert(assoc);
    }

    /// Handles a report that an association has ended.
    pub fn on_down(&mut self, assoc: AssocId) {
        self.up.remove(&assoc);
    }

    /// Handles the end of the connection. Returns the associations, which are unreachable.
    pub fn on_disconnect(&mut self) -> BTreeSet<AssocId> {
        self.unreachable.extend(&self.up);
        std::mem::take(&mut self.up)
    }

    /// Returns the associations that are lost: a map lacks the balancer, or it serves this host on
    /// another connection, on which it reports the associations that it has.
    pub fn take_lost(&mut self) -> BTreeSet<AssocId> {
        std::mem::take(&mut self.unreachable)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn associations_are_lost_after_their_connection() {
        let (mut balancer, [one, two]) = (BalancerAssociations::default(), [1, 2].map(AssocId));
        [one, two].into_iter().for_each(|assoc| balancer.on_up(assoc));
        balancer.on_down(two);
        assert_eq!(balancer.take_lost(), BTreeSet::new(), "the balancer is connected");
        assert_eq!(balancer.on_disconnect(), BTreeSet::from([one]));
        assert_eq!(balancer.on_disconnect(), BTreeSet::new(), "the next attempt fails");
        balancer.on_up(two);
        assert_eq!(balancer.take_lost(), BTreeSet::from([one]));
        assert_eq!(balancer.take_lost(), BTreeSet::new());
        assert_eq!(balancer.on_disconnect(), BTreeSet::from([two]));
    }
}
