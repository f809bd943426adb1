//! Cluster-wide association IDs: the balancer ID and a number of this balancer.

use vireo_core::placement::balance::BalancerId;
use vireo_types::AssocId;

/// Mapping between the SCTP driver's association IDs and the cluster's.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct AssocIdMap {
    balancer: BalancerId,
    /// Offset of this process's numbers. Contexts may still name associations of an earlier process
    /// of this balancer, which must not be mistaken for present ones.
    first: u32,
}

impl AssocIdMap {
    /// Creates the map of a balancer of a cluster. `first` is an arbitrary offset, for example
    /// random.
    pub(super) fn new(balancer: BalancerId, first: u32) -> Self {
        AssocIdMap { balancer, first: first & AssocId::OWN }
    }

    /// Returns the offset of the numbers.
    pub(super) fn first(self) -> u32 {
        self.first
    }

    /// Returns the cluster-wide ID of a driver's association, which has the same dialect.
    #[inline]
    pub(super) fn to_cluster(self, driver: AssocId) -> AssocId {
        let own = (driver.0 & AssocId::OWN).wrapping_add(self.first);
        AssocId::at(self.balancer.0, own).with_dialect(driver.dialect())
    }

    /// Returns the driver's ID of an association; `None` if it belongs to another balancer.
    #[inline]
    pub(super) fn to_driver(self, assoc: AssocId) -> Option<AssocId> {
        let own = (assoc.0 & AssocId::OWN).wrapping_sub(self.first) & AssocId::OWN;
        (assoc.balancer() == self.balancer.0).then_some(AssocId(own).with_dialect(assoc.dialect()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use vireo_types::Dialect;

    #[test]
    fn association_id_maps_back_at_own_balancer() {
        for (balancer, first) in [(0, 0), (3, 77), (15, u32::MAX)] {
            let edge = AssocIdMap::new(BalancerId(balancer), first);
            let numbers = [1, 2, AssocId::OWN].map(AssocId);
            for driver in numbers.into_iter().chain(numbers.map(|driver| driver.with_dialect(Dialect::Eps))) {
                assert_eq!(edge.to_cluster(driver).balancer(), balancer);
                assert_eq!(edge.to_cluster(driver).dialect(), driver.dialect());
                assert_eq!(edge.to_driver(edge.to_cluster(driver)), Some(driver));
                let other = AssocIdMap::new(BalancerId((balancer + 1) % BalancerId::COUNT), first);
                assert_eq!(other.to_driver(edge.to_cluster(driver)), None);
            }
        }
        assert_eq!(AssocIdMap::default().to_cluster(AssocId(9)), AssocId(9), "without a cluster they are the driver's");
    }
}
