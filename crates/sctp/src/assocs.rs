//! Associations of an endpoint, by public identifier and by driver key.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};
use vireo_types::AssocId;

/// Hasher of one integer. This process assigns the keys, so no peer can choose colliding ones.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct IntHasher(u64);

impl Hasher for IntHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.write_u64((self.0 << 8) | u64::from(*byte));
        }
    }

    fn write_u32(&mut self, value: u32) {
        self.write_u64(value.into());
    }

    fn write_u64(&mut self, value: u64) {
        let product = value.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        self.0 = product ^ (product >> 32);
    }
}

pub(crate) type FastMap<K, V> = HashMap<K, V, BuildHasherDefault<IntHasher>>;

/// Returns the next association identifier.
///
/// Identifiers do not repeat during the process, until 2^27 have been assigned ([`AssocId::OWN`]).
/// They also differ from recent ones of a previous process, which other processes may still refer
/// to. So the counter starts from the time.
pub(crate) fn next_id() -> AssocId {
    static NEXT: OnceLock<AtomicU32> = OnceLock::new();
    let next = NEXT.get_or_init(|| {
        let seconds = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
        // This assumes fewer than 16 associations per second on average.
        AtomicU32::new((seconds << 4) as u32)
    });
    AssocId(next.fetch_add(1, Ordering::Relaxed) & AssocId::OWN)
}

/// Associations `T` by identifier and by driver key. [`AssociationMap::remove`] frees the key.
#[derive(Debug)]
pub(crate) struct AssociationMap<T> {
    by_id: FastMap<u32, (u64, T)>,
    by_key: FastMap<u64, AssocId>,
}

impl<T> Default for AssociationMap<T> {
    fn default() -> Self {
        Self { by_id: FastMap::default(), by_key: FastMap::default() }
    }
}

impl<T> AssociationMap<T> {
    pub(crate) fn len(&self) -> usize {
        self.by_id.len()
    }

    pub(crate) fn insert(&mut self, key: u64, value: T) -> AssocId {
        let mut id = next_id();
        // A previous process may have assigned some of the identifiers.
        while self.by_id.contains_key(&id.0) {
            id = next_id();
        }
        self.restore(id, key, value);
        id
    }

    /// Inserts an association under an identifier that existed before.
    pub(crate) fn restore(&mut self, id: AssocId, key: u64, value: T) {
        self.by_id.insert(id.0, (key, value));
        self.by_key.insert(key, id);
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (AssocId, &T)> {
        self.by_id.iter().map(|(id, (_, value))| (AssocId(*id), value))
    }

    pub(crate) fn id(&self, key: u64) -> Option<AssocId> {
        self.by_key.get(&key).copied()
    }

    pub(crate) fn get(&self, id: AssocId) -> Option<&T> {
        self.by_id.get(&id.0).map(|(_, value)| value)
    }

    pub(crate) fn get_mut(&mut self, id: AssocId) -> Option<&mut T> {
        self.by_id.get_mut(&id.0).map(|(_, value)| value)
    }

    pub(crate) fn remove(&mut self, id: AssocId) -> Option<T> {
        let (key, value) = self.by_id.remove(&id.0)?;
        self.by_key.remove(&key);
        Some(value)
    }
}

/// Returns the stream to use when the peer allows `allowed` streams.
///
/// Stream 0 stays 0 (non-UE signalling, TS 38.412 clause 7). The other streams share the remaining
/// ones.
pub(crate) fn stream(wanted: u16, allowed: u16) -> u16 {
    if wanted == 0 || allowed <= 1 { 0 } else { 1 + (wanted - 1) % (allowed - 1) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stream_is_reduced_but_not_to_0() {
        assert_eq!([0, 1, 2, 3, 4].map(|wanted| stream(wanted, 3)), [0, 1, 2, 1, 2]);
        assert_eq!([0, 1, u16::MAX].map(|wanted| stream(wanted, 1)), [0, 0, 0]);
        assert_eq!(stream(u16::MAX, 16), 1 + (u16::MAX - 1) % 15);
    }

    #[test]
    fn association_has_both_keys_until_removed() {
        let mut assocs = AssociationMap::default();
        let first = assocs.insert(9, "first");
        assert_eq!((assocs.id(9), assocs.get(first), assocs.len()), (Some(first), Some(&"first"), 1));
        assert_eq!(assocs.remove(first), Some("first"));
        let second = assocs.insert(9, "second");
        assert_ne!(first, second);
        assert_eq!((assocs.id(9), assocs.get(first)), (Some(second), None));
    }
}
