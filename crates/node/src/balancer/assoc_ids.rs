//! How an association is called in a cluster: by its balancer's number and one of this balancer's own.

use vireo_core::balance::BalancerId;
use vireo_types::AssocId;

/// A balancer's way from the SCTP driver's numbers to the cluster's, and back.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct AssocIdMap {
    balancer: BalancerId,
    /// Where the numbers of this process begin: contexts may still name associations of a balancer's life before, and
    /// these must not be found again.
    first: u32,
}

impl AssocIdMap {
    /// That of a balancer of a cluster, whose numbers begin anywhere.
    pub(super) fn new(balancer: BalancerId, first: u32) -> Self {
        AssocIdMap { balancer, first: first & AssocId::OWN }
    }

    /// Where its numbers begin.
    pub(super) fn first(self) -> u32 {
        self.first
    }

    /// The cluster's name of an association.
    #[inline]
    pub(super) fn to_cluster(self, driver: AssocId) -> AssocId {
        AssocId::at(self.balancer.0, driver.0.wrapping_add(self.first))
    }

    /// The driver's name of an association; `None` if it is another balancer's.
    #[inline]
    pub(super) fn to_driver(self, assoc: AssocId) -> Option<AssocId> {
        let own = (assoc.0 & AssocId::OWN).wrapping_sub(self.first) & AssocId::OWN;
        (assoc.balancer() == self.balancer.0).then_some(AssocId(own))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_association_is_found_again_at_its_own_balancer_alone() {
        for (balancer, first) in [(0, 0), (3, 77), (15, u32::MAX)] {
            let edge = AssocIdMap::new(BalancerId(balancer), first);
            for driver in [1, 2, AssocId::OWN].map(AssocId) {
                assert_eq!(edge.to_cluster(driver).balancer(), balancer);
                assert_eq!(edge.to_driver(edge.to_cluster(driver)), Some(driver));
                let other = AssocIdMap::new(BalancerId((balancer + 1) % BalancerId::COUNT), first);
                assert_eq!(other.to_driver(edge.to_cluster(driver)), None);
            }
        }
        assert_eq!(AssocIdMap::default().to_cluster(AssocId(9)), AssocId(9), "without a cluster they are the driver's");
    }
}
