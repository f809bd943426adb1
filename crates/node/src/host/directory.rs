//! Who is who: the identifiers of the UEs of this host, and the giving out of fresh ones (DESIGN decision 7).

use rand::RngCore;
use rand::rngs::StdRng;
use rustc_hash::{FxHashMap, FxHashSet};
use vireo_core::Identifiers;
use vireo_core::config::CoreConfig;
use vireo_core::pools::AddressPools;
use vireo_core::tmsi::TmsiCipher;
use vireo_types::{Bucket, Dnn, Ltmsi, PduSessionType, SessionAddress, Snssai, Supi, Tmsi};

/// How often a 5G-TMSI is drawn before the bucket counts as full: at half occupancy the chance to miss is 2^-32.
const DRAWS: usize = 32;

/// The identifiers of the UEs of a host.
#[derive(Debug)]
pub(super) struct Directory {
    /// The slice of each bucket: 0 = not known yet, else 1 + its position in the configuration.
    slices: Vec<Snssai>,
    /// The next LTMSI number of each owner of buckets; numbers are used again only after all others, so that a late
    /// message of a UE that is gone does not meet its successor.
    next: Vec<u32>,
    tmsis: FxHashMap<Tmsi, Ltmsi>,
    supis: FxHashMap<Supi, Ltmsi>,
    /// A UE that moved to another LTMSI while its NG connection still has the old one in its AMF-UE-NGAP-ID.
    moved: FxHashMap<Ltmsi, Ltmsi>,
    taken: FxHashSet<Ltmsi>,
    cipher: TmsiCipher,
    pub(super) pools: AddressPools,
    pub(super) rng: StdRng,
}

impl Directory {
    pub(super) fn new(config: &CoreConfig, mut rng: StdRng) -> Self {
        let mut key = [0; 16];
        rng.fill_bytes(&mut key);
        let slices: Vec<_> = config.slices.iter().map(|s| s.snssai).collect();
        Directory {
            next: vec![0; slices.len() + 1],
            slices,
            tmsis: FxHashMap::default(),
            supis: FxHashMap::default(),
            moved: FxHashMap::default(),
            taken: FxHashSet::default(),
            cipher: TmsiCipher::new(&key),
            pools: AddressPools::new(&config.dnns),
            rng,
        }
    }

    /// The owner of a bucket: buckets are dealt to slice 0 and the slices in turn.
    fn owner(&self, bucket: Bucket) -> usize {
        usize::from(bucket.get()) % self.next.len()
    }

    fn draw(&mut self, owner: usize) -> Option<Ltmsi> {
        let owners = self.next.len() as u32;
        let buckets = (u32::from(Bucket::COUNT) - owner as u32).div_ceil(owners);
        // All buckets of the owner in turn, so that each fills evenly.
        for _ in 0..=u16::MAX {
            let n = self.next[owner];
            self.next[owner] = (n + 1) % (buckets << 16);
            let bucket = Bucket::new((owner as u32 + n % buckets * owners) as u16);
            let ltmsi = Ltmsi::new(bucket, (n / buckets) as u16);
            if self.taken.insert(ltmsi) {
                return Some(ltmsi);
            }
        }
        None
    }

    /// A number for a UE that is heard of for the first time, of slice 0.
    pub(super) fn fresh(&mut self) -> Option<Ltmsi> {
        self.draw(0)
    }

    /// The number of a context is nobody's any more.
    pub(super) fn release(&mut self, ltmsi: Ltmsi) {
        self.taken.remove(&ltmsi);
    }

    /// The UE that an identifier of an NG connection or a session means now.
    pub(super) fn resolve(&self, ltmsi: Ltmsi) -> Ltmsi {
        self.moved.get(&ltmsi).copied().unwrap_or(ltmsi)
    }

    /// A UE has another number; the old one leads to it until [`Directory::settle`].
    pub(super) fn moved(&mut self, from: Ltmsi, to: Ltmsi) {
        self.moved.insert(from, to);
    }

    /// Nothing refers to the old number any more.
    pub(super) fn settle(&mut self, old: Ltmsi) {
        if self.moved.remove(&old).is_some() {
            self.release(old);
        }
    }

    pub(super) fn by_tmsi(&self, tmsi: Tmsi) -> Option<Ltmsi> {
        self.tmsis.get(&tmsi).copied()
    }

    pub(super) fn bind_tmsi(&mut self, tmsi: Tmsi, ltmsi: Ltmsi) {
        self.tmsis.insert(tmsi, ltmsi);
    }

    /// Moves a 5G-TMSI along with its UE.
    pub(super) fn rebind_tmsi(&mut self, tmsi: Tmsi, from: Ltmsi, to: Ltmsi) {
        if let Some(of) = self.tmsis.get_mut(&tmsi)
            && *of == from
        {
            *of = to;
        }
    }

    pub(super) fn free_tmsi(&mut self, tmsi: Tmsi) {
        self.tmsis.remove(&tmsi);
    }

    /// The context is the subscriber's; another one that was until now.
    pub(super) fn bind_supi(&mut self, supi: Supi, ltmsi: Ltmsi) -> Option<Ltmsi> {
        self.supis.insert(supi, ltmsi).filter(|old| *old != ltmsi)
    }

    /// Moves a subscriber along with its context.
    pub(super) fn rebind_supi(&mut self, supi: Supi, from: Ltmsi, to: Ltmsi) {
        if let Some(of) = self.supis.get_mut(&supi)
            && *of == from
        {
            *of = to;
        }
    }

    pub(super) fn by_supi(&self, supi: Supi) -> Option<Ltmsi> {
        self.supis.get(&supi).copied()
    }

    /// The context of a subscriber is gone, if it was the one.
    pub(super) fn free_supi(&mut self, supi: Supi, ltmsi: Ltmsi) {
        if self.supis.get(&supi) == Some(&ltmsi) {
            self.supis.remove(&supi);
        }
    }
}

/// The identifiers that a step may take, with randomness kept apart so that both can be lent at once.
#[derive(Debug)]
pub(super) struct Ids<'a>(pub(super) &'a mut Directory);

impl Identifiers for Ids<'_> {
    fn tmsi(&mut self, ltmsi: Ltmsi) -> Option<Tmsi> {
        for _ in 0..DRAWS {
            let random = self.0.rng.next_u32();
            if let Some(tmsi) = self.0.cipher.seal(ltmsi.bucket(), random)
                && !self.0.tmsis.contains_key(&tmsi)
            {
                return Some(tmsi);
            }
        }
        None
    }

    fn rekey(&mut self, current: Ltmsi, slice: Snssai) -> Option<Ltmsi> {
        let home = 1 + self.0.slices.iter().position(|s| *s == slice)?;
        if self.0.owner(current.bucket()) == home { None } else { self.0.draw(home) }
    }

    fn address(&mut self, dnn: &Dnn, kind: PduSessionType) -> Option<SessionAddress> {
        self.0.pools.allocate(dnn, kind)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::SeedableRng;

    fn config(slices: usize) -> CoreConfig {
        let mut config = crate::host::tests::lab();
        config.slices = (0..slices)
            .map(|n| vireo_core::config::SliceConfig {
                name: format!("s{n}"),
                snssai: Snssai { sst: n as u8 + 1, sd: None },
            })
            .collect();
        config
    }

    #[test]
    fn numbers_are_of_their_slice_and_unique() {
        let mut directory = Directory::new(&config(2), StdRng::seed_from_u64(1));
        let mut seen = std::collections::HashSet::new();
        for _ in 0..10_000 {
            let fresh = directory.fresh().expect("there are plenty");
            assert_eq!(directory.owner(fresh.bucket()), 0);
            let home = Ids(&mut directory).rekey(fresh, Snssai { sst: 2, sd: None }).expect("another slice's");
            assert_eq!(directory.owner(home.bucket()), 2);
            assert!(seen.insert(fresh) && seen.insert(home));
            assert_eq!(Ids(&mut directory).rekey(home, Snssai { sst: 2, sd: None }), None, "it is at home");
        }
    }

    #[test]
    fn a_number_that_moved_leads_on_until_it_is_settled() {
        let mut directory = Directory::new(&config(1), StdRng::seed_from_u64(1));
        let old = directory.fresh().expect("a number");
        let new = Ids(&mut directory).rekey(old, Snssai { sst: 1, sd: None }).expect("a number");
        directory.moved(old, new);
        assert_eq!(directory.resolve(old), new);
        directory.settle(old);
        assert_eq!(directory.resolve(old), old);
    }
}
