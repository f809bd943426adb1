//! In-memory cache of subscriber records.

use super::sqn::{self, SqnClock};
use super::vector::Credentials;
use crate::record::Subscriber;
use std::collections::HashMap;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use vireo_core::subscription::{AuthenticationMethod, Subscription};
use vireo_sealing::{SecretSlab, Slot};
use vireo_types::{Instant, Supi};
use zeroize::Zeroizing;

/// A power of two, several times the number of threads of a large machine, so that two threads
/// rarely use one shard.
const SHARDS: usize = 64;

/// A bounded map from SUPI to the inputs of a vector.
///
/// Each shard has a young and an old generation. A record in use moves to the young one. When that
/// is full, the old one is dropped. This approximates least-recently-used for the cost of a map
/// insertion.
#[derive(Debug)]
pub(super) struct Cache {
    shards: Vec<Mutex<Shard>>,
    /// Maximum of records in one generation of one shard.
    generation: usize,
}

#[derive(Default)]
struct Shard {
    young: HashMap<Supi, Entry>,
    old: HashMap<Supi, Entry>,
    /// K and OPc of both generations.
    secrets: SecretSlab<32>,
    /// Highest last tick of all dropped records. A record that is loaded again continues above it.
    floor: u64,
}

impl std::fmt::Debug for Shard {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Shard({} records)", self.young.len() + self.old.len())
    }
}

struct Entry {
    /// K and OPc, in memory that core dumps exclude.
    secret: Slot,
    amf: [u8; 2],
    method: Option<AuthenticationMethod>,
    sqn_offset: i64,
    /// Tick of the last SQN (see [`SqnClock`]).
    last: u64,
    subscription: Arc<Subscription>,
}

/// Inputs of one vector, copied from the cache so that it is computed without a lock.
pub(super) struct VectorInputs {
    pub(super) credentials: Credentials,
    pub(super) sqn: u64,
    /// Method of the record; `None` = that of the configuration.
    pub(super) method: Option<AuthenticationMethod>,
    pub(super) subscription: Subscription,
}

/// Reasons why there are no vector inputs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Miss {
    /// The record is not in the cache.
    Absent,
    /// The reservation of sequence numbers must first be extended above this tick.
    Reservation(u64),
    /// The SQN offset of the record is out of range.
    Offset,
}

impl Cache {
    /// Creates a cache for about `capacity` records, at least 1,024.
    pub(super) fn new(capacity: usize) -> Self {
        let generation = capacity.max(1024).div_ceil(2 * SHARDS);
        Cache { shards: (0..SHARDS).map(|_| Mutex::default()).collect(), generation }
    }

    /// Allocates the next sequence number of a subscriber, and returns it with the other inputs of
    /// a vector.
    pub(super) fn next(&self, supi: Supi, now: Instant, clock: &SqnClock) -> Result<VectorInputs, Miss> {
        let mut shard = self.shard(supi);
        let (entry, secrets) = shard.touch(supi, self.generation).ok_or(Miss::Absent)?;
        let Some(tick) = clock.next(entry.last, now) else {
            return Err(Miss::Reservation(sqn::ticks(now).max(entry.last + 1)));
        };
        entry.last = tick;
        let sqn = clock.sqn(tick, entry.sqn_offset).ok_or(Miss::Offset)?;
        let (credentials, subscription) = (entry.credentials(secrets), (*entry.subscription).clone());
        Ok(VectorInputs { credentials, sqn, method: entry.method, subscription })
    }

    /// Returns the secrets and the present offset of a record, for a resynchronisation.
    pub(super) fn peek(&self, supi: Supi) -> Option<(Credentials, i64)> {
        let mut shard = self.shard(supi);
        shard.touch(supi, self.generation).map(|(e, secrets)| (e.credentials(secrets), e.sqn_offset))
    }

    /// Returns the subscription of a record.
    pub(super) fn subscription(&self, supi: Supi) -> Option<Subscription> {
        self.shard(supi).touch(supi, self.generation).map(|(entry, _)| (*entry.subscription).clone())
    }

    /// Allocates a tick of a record, for a resynchronisation.
    pub(super) fn tick(&self, supi: Supi, now: Instant, clock: &SqnClock) -> Result<u64, Miss> {
        let mut shard = self.shard(supi);
        let (entry, _) = shard.touch(supi, self.generation).ok_or(Miss::Absent)?;
        match clock.next(entry.last, now) {
            Some(tick) => {
                entry.last = tick;
                Ok(tick)
            }
            None => Err(Miss::Reservation(sqn::ticks(now).max(entry.last + 1))),
        }
    }

    /// Sets the offset that results from a resynchronisation.
    pub(super) fn set_offset(&self, supi: Supi, offset: i64) {
        if let Some((entry, _)) = self.shard(supi).touch(supi, self.generation) {
            entry.sqn_offset = offset;
        }
    }

    /// Adds a record from the database, unless it is already in the cache.
    ///
    /// # Errors
    ///
    /// Returns an error if the system has no memory for secrets.
    pub(super) fn insert(&self, record: &Subscriber, subscription: Arc<Subscription>) -> io::Result<()> {
        let mut shard = self.shard(record.supi);
        if shard.touch(record.supi, self.generation).is_some() {
            return Ok(());
        }
        let mut both = Zeroizing::new([0; 32]);
        both[..16].copy_from_slice(record.k.octets());
        both[16..].copy_from_slice(record.opc.octets());
        let secret = shard.secrets.insert(&both)?;
        let (amf, method, sqn_offset, last) = (record.amf, record.method, record.sqn_offset, shard.floor);
        shard.put(record.supi, Entry { secret, amf, method, sqn_offset, last, subscription }, self.generation);
        Ok(())
    }

    /// Removes a record.
    pub(super) fn remove(&self, supi: Supi) {
        let shard = &mut *self.shard(supi);
        let gone = shard.young.remove(&supi).or_else(|| shard.old.remove(&supi));
        if let Some(gone) = gone {
            shard.forget(gone);
        }
    }

    /// Removes all records.
    pub(super) fn clear(&self) {
        for shard in &self.shards {
            let shard = &mut *lock_shard(shard);
            let gone = [std::mem::take(&mut shard.young), std::mem::take(&mut shard.old)];
            gone.into_iter().flat_map(HashMap::into_values).for_each(|entry| shard.forget(entry));
        }
    }

    /// Returns the number of records.
    pub(super) fn len(&self) -> usize {
        self.shards.iter().map(|s| lock_shard(s)).map(|s| s.young.len() + s.old.len()).sum()
    }

    fn shard(&self, supi: Supi) -> MutexGuard<'_, Shard> {
        // IMSIs are dense in their low digits. A multiplication spreads them over the high bits.
        let hash = supi.as_u64().wrapping_mul(0x9e37_79b9_7f4a_7c15);
        lock_shard(&self.shards[(hash >> 58) as usize % SHARDS])
    }
}

/// Locks a shard. The lock is never poisoned: no code panics while it holds a shard, and records
/// are always complete.
fn lock_shard(shard: &Mutex<Shard>) -> MutexGuard<'_, Shard> {
    shard.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Shard {
    /// Moves a record to the young generation. Returns it with the store of its secrets.
    fn touch(&mut self, supi: Supi, generation: usize) -> Option<(&mut Entry, &SecretSlab<32>)> {
        if !self.young.contains_key(&supi) {
            let entry = self.old.remove(&supi)?;
            self.put(supi, entry, generation);
        }
        self.young.get_mut(&supi).map(|entry| (entry, &self.secrets))
    }

    fn put(&mut self, supi: Supi, entry: Entry, generation: usize) {
        if self.young.len() >= generation {
            let dropped = std::mem::replace(&mut self.old, std::mem::take(&mut self.young));
            dropped.into_values().for_each(|entry| self.forget(entry));
        }
        self.young.insert(supi, entry);
    }

    /// Removes the secrets of a record that is in neither generation.
    fn forget(&mut self, entry: Entry) {
        self.floor = self.floor.max(entry.last);
        self.secrets.remove(entry.secret);
    }
}

impl Entry {
    fn credentials(&self, secrets: &SecretSlab<32>) -> Credentials {
        let secret = secrets.get(&self.secret);
        let (mut k, mut opc) = ([0; 16], [0; 16]);
        k.copy_from_slice(&secret[..16]);
        opc.copy_from_slice(&secret[16..]);
        Credentials { k, opc, amf: self.amf }
    }
}
