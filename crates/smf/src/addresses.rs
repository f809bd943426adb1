//! UE address allocation of the SMF.
//!
//! Each data network's pools are allocated round robin, so that a released address is reused as
//! late as possible.

use vireo_core::Identifiers;
use vireo_core::config::CoreConfig;
use vireo_core::ids::address_pool::Range;
use vireo_types::{Dnn, Ltmsi, PduSessionType, SessionAddress, Snssai, Tmsi};

/// Allocation state of one pool.
#[derive(Debug)]
struct Pool {
    range: Range,
    /// One bit for each number.
    used: Vec<u64>,
    count: u32,
    /// Number at which the next search starts.
    next: u32,
}

impl Pool {
    fn new(range: Range) -> Self {
        Pool { range, used: vec![0; range.size().div_ceil(64) as usize], count: 0, next: 0 }
    }

    fn take(&mut self) -> Option<u32> {
        if self.count >= self.range.size() {
            return None;
        }
        loop {
            let number = self.next;
            self.next = (self.next + 1) % self.range.size();
            let (word, bit) = (&mut self.used[number as usize / 64], 1 << (number % 64));
            if *word & bit == 0 {
                *word |= bit;
                self.count += 1;
                return Some(number);
            }
        }
    }

    fn mark_in_use(&mut self, number: u32) {
        let (word, bit) = (&mut self.used[number as usize / 64], 1 << (number % 64));
        self.count += u32::from(*word & bit == 0);
        *word |= bit;
    }

    fn release(&mut self, number: u32) {
        let (word, bit) = (&mut self.used[number as usize / 64], 1 << (number % 64));
        self.count -= u32::from(*word & bit != 0);
        *word &= !bit;
    }
}

/// The address pools of all data networks.
#[derive(Debug)]
pub(super) struct Addresses(Vec<(Dnn, [Option<Pool>; 2])>);

impl Addresses {
    /// Returns the pools of a configuration, with all addresses free.
    pub(super) fn new(config: &CoreConfig) -> Self {
        Addresses(
            config
                .dnns
                .iter()
                .map(|dnn| (dnn.name.clone(), dnn.address_ranges().map(|range| range.map(Pool::new))))
                .collect(),
        )
    }

    /// Sets the start of the next search in each pool. A repeated create request passes the same
    /// value, and so tries the same addresses.
    pub(super) fn set_search_start(&mut self, at: u64) {
        for pool in self.0.iter_mut().flat_map(|(_, pools)| pools.iter_mut().flatten()) {
            pool.next = (at % u64::from(pool.range.size().max(1))) as u32;
        }
    }

    fn pools(&mut self, dnn: &Dnn) -> Option<&mut [Option<Pool>; 2]> {
        self.0.iter_mut().find(|(name, _)| name == dnn).map(|(_, pools)| pools)
    }

    /// Marks addresses as in use.
    pub(super) fn mark_in_use(&mut self, dnn: &Dnn, address: &SessionAddress) {
        let Some([ipv4, ipv6]) = self.pools(dnn) else { return };
        if let (Some(pool), Some(address)) = (ipv4, address.ipv4)
            && let Some(number) = pool.range.index_of_ipv4(address)
        {
            pool.mark_in_use(number);
        }
        if let (Some(pool), Some(prefix)) = (ipv6, address.ipv6_prefix)
            && let Some(number) = pool.range.index_of_ipv6(prefix)
        {
            pool.mark_in_use(number);
        }
    }

    /// Frees addresses.
    pub(super) fn release(&mut self, dnn: &Dnn, address: &SessionAddress) {
        let Some([ipv4, ipv6]) = self.pools(dnn) else { return };
        if let (Some(pool), Some(address)) = (ipv4, address.ipv4)
            && let Some(number) = pool.range.index_of_ipv4(address)
        {
            pool.release(number);
        }
        if let (Some(pool), Some(prefix)) = (ipv6, address.ipv6_prefix)
            && let Some(number) = pool.range.index_of_ipv6(prefix)
        {
            pool.release(number);
        }
    }
}

impl Identifiers for Addresses {
    /// Returns `None`: the AMF allocates the 5G-TMSI.
    fn tmsi(&mut self, _: Ltmsi) -> Option<Tmsi> {
        None
    }

    /// Returns `None`: the AMF allocates the LTMSI.
    fn rekey(&mut self, _: Ltmsi, _: Snssai) -> Option<Ltmsi> {
        None
    }

    fn address(&mut self, dnn: &Dnn, kind: PduSessionType) -> Option<SessionAddress> {
        let [ipv4, ipv6] = self.pools(dnn)?;
        let mut address = SessionAddress::default();
        if kind != PduSessionType::Ipv6 {
            let pool = ipv4.as_mut()?;
            let number = pool.take()?;
            address.ipv4 = Some(pool.range.ipv4_at(number));
        }
        if kind != PduSessionType::Ipv4 {
            let prefix = |pool: &mut Pool| pool.take().map(|number| pool.range.ipv6_at(number));
            address.ipv6_prefix = ipv6.as_mut().and_then(prefix);
            if address.ipv6_prefix.is_none() {
                // Allocate both addresses or none.
                self.release(dnn, &address);
                return None;
            }
        }
        Some(address)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::Ipv4Addr;

    #[test]
    fn addresses_are_unique_and_reused_when_free() {
        let dnn: Dnn = "internet".parse().unwrap();
        let pool = Pool::new(Range::ipv4(Ipv4Addr::new(10, 45, 0, 0), 28));
        let prefixes = Pool::new(Range::ipv6("fd45::".parse().unwrap(), 62));
        let mut addresses = Addresses(vec![(dnn.clone(), [Some(pool), Some(prefixes)])]);
        let all: Vec<_> = std::iter::from_fn(|| addresses.address(&dnn, PduSessionType::Ipv4)).collect();
        assert_eq!(all.len(), 13);
        assert!(all.iter().enumerate().all(|(n, a)| !all[..n].contains(a)));
        assert_eq!(addresses.address(&dnn, PduSessionType::Ipv4v6), None);
        addresses.release(&dnn, &all[5]);
        addresses.release(&dnn, &all[5]);
        let both = addresses.address(&dnn, PduSessionType::Ipv4v6).unwrap();
        assert_eq!(both.ipv4, all[5].ipv4);
        // An address marked as in use twice.
        addresses.release(&dnn, &all[7]);
        addresses.mark_in_use(&dnn, &all[7]);
        addresses.mark_in_use(&dnn, &all[7]);
        assert_eq!(addresses.address(&dnn, PduSessionType::Ipv4), None);
        // If the second kind is exhausted, the first address is freed.
        let taken: Vec<_> = std::iter::from_fn(|| addresses.address(&dnn, PduSessionType::Ipv6)).collect();
        assert_eq!(taken.len(), 2);
        addresses.release(&dnn, &SessionAddress { ipv6_prefix: None, ..both });
        assert_eq!(addresses.address(&dnn, PduSessionType::Ipv4v6), None);
        assert!(addresses.address(&dnn, PduSessionType::Ipv4).is_some());
    }
}
