//! Sealing keys and the format of sealed bytes.

use ring::aead::{AES_256_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use ring::digest::{SHA256, digest};
use ring::hkdf::{HKDF_SHA256, Salt};
use ring::rand::{SecureRandom, SystemRandom};
use rustc_hash::FxHashMap;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock};
use zeroize::Zeroizing;

/// Bytes of a key.
const KEY: usize = 32;
/// First byte of sealed bytes: the format version.
const FORM: u8 = 1;
const SALT: usize = 16;
const TAG: usize = 16;
/// Format 1, key identity 4, salt 16, counter 8.
const HEADER: usize = 1 + 4 + SALT + 8;

/// Bytes that sealing adds.
pub const OVERHEAD: usize = HEADER + TAG;

/// Maximum number of cached keys of other salts.
///
/// Each process that seals has one salt. So this is the number of processes whose sealed bytes one
/// process opens at a time. Beyond it, keys are derived again (1 us each).
const MAX_FOREIGN_KEYS: usize = 256;

/// Identity of a key: the first bytes of a hash of it, which reveal nothing of the key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct KeyId([u8; 4]);

impl fmt::Display for KeyId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&hex::encode(self.0))
    }
}

/// Reason that sealed bytes do not open.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OpenError {
    /// The bytes are not sealed, or were sealed by a release with another format.
    #[error("the octets are not sealed")]
    NotSealed,
    /// Another key has sealed the bytes.
    #[error("sealed with key {sealed}, and the key in use is {ours}")]
    OtherKey {
        /// Key that sealed the bytes.
        sealed: KeyId,
        /// Key that was tried.
        ours: KeyId,
    },
    /// The bytes were changed, or were sealed for another place.
    #[error("the sealed octets are damaged or belong elsewhere")]
    Damaged,
}

/// A 256-bit key that seals bytes with AES-256-GCM (NIST SP 800-38D). `Debug` shows only its
/// identity.
///
/// Nonces never repeat: each process derives its own key from a random salt (HKDF, RFC 5869) and
/// counts. So two limits do not apply: the 2^32 messages of one key with random nonces, and the
/// restart of a process.
pub struct SealingKey {
    octets: Zeroizing<[u8; KEY]>,
    id: KeyId,
    /// Salt and derived key of this process.
    own: ([u8; SALT], LessSafeKey),
    counter: AtomicU64,
    /// Derived keys of the salts of other processes.
    foreign_keys: RwLock<FxHashMap<[u8; SALT], Arc<LessSafeKey>>>,
}

impl fmt::Debug for SealingKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SealingKey({})", self.id)
    }
}

impl PartialEq for SealingKey {
    fn eq(&self, other: &Self) -> bool {
        self.octets == other.octets
    }
}

impl Eq for SealingKey {}

/// Length of a derived key, for `ring`.
struct Length;

impl ring::hkdf::KeyType for Length {
    fn len(&self) -> usize {
        KEY
    }
}

/// Returns random bytes.
fn random<const N: usize>() -> [u8; N] {
    let mut octets = [0; N];
    // Linux provides random bytes to every process (getrandom(2)). A system without them must not
    // seal.
    SystemRandom::new().fill(&mut octets).expect("bug: the system gives no random octets");
    octets
}

fn derive(octets: &[u8; KEY], salt: &[u8; SALT]) -> LessSafeKey {
    let mut derived = Zeroizing::new([0; KEY]);
    let pseudo_random = Salt::new(HKDF_SHA256, salt).extract(octets);
    let filled = pseudo_random.expand(&[b"vireo sealing 1"], Length).and_then(|okm| okm.fill(&mut *derived));
    filled.expect("bug: HKDF-SHA256 gives 32 octets");
    let key = UnboundKey::new(&AES_256_GCM, &*derived).expect("bug: AES-256 takes 32 octets");
    LessSafeKey::new(key)
}

fn nonce(counter: u64) -> Nonce {
    let mut octets = [0; NONCE_LEN];
    octets[NONCE_LEN - 8..].copy_from_slice(&counter.to_be_bytes());
    Nonce::assume_unique_for_key(octets)
}

impl SealingKey {
    /// Creates the key of these bytes, with a new random salt.
    pub fn new(octets: [u8; KEY]) -> Self {
        let octets = Zeroizing::new(octets);
        let hash = digest(&SHA256, &*octets);
        let id = KeyId(hash.as_ref()[..4].try_into().unwrap_or_default());
        let salt = random();
        let own = (salt, derive(&octets, &salt));
        SealingKey { octets, id, own, counter: AtomicU64::new(0), foreign_keys: RwLock::default() }
    }

    /// Generates a random key.
    pub fn generate() -> Self {
        SealingKey::new(random())
    }

    /// Returns the bytes of the key, for a key file or for worker processes of this process.
    pub fn octets(&self) -> &[u8; KEY] {
        &self.octets
    }

    /// Returns the identity of the key.
    pub fn id(&self) -> KeyId {
        self.id
    }

    /// Seals bytes for a place and appends the result, [`OVERHEAD`] bytes longer, to `out`.
    pub fn seal_into(&self, place: &[u8], plain: &[u8], out: &mut Vec<u8>) {
        let counter = self.counter.fetch_add(1, Ordering::Relaxed);
        out.reserve(plain.len() + OVERHEAD);
        out.push(FORM);
        out.extend_from_slice(&self.id.0);
        out.extend_from_slice(&self.own.0);
        out.extend_from_slice(&counter.to_be_bytes());
        let begin = out.len();
        out.extend_from_slice(plain);
        let tag = self.own.1.seal_in_place_separate_tag(nonce(counter), Aad::from(place), &mut out[begin..]);
        // AES-GCM refuses only messages longer than 64 GiB.
        out.extend_from_slice(tag.expect("bug: octets too long to seal").as_ref());
    }

    /// Seals bytes for a place.
    pub fn seal(&self, place: &[u8], plain: &[u8]) -> Vec<u8> {
        let mut out = Vec::new();
        self.seal_into(place, plain, &mut out);
        out
    }

    /// Opens bytes that were sealed for this place.
    ///
    /// # Errors
    ///
    /// Returns an [`OpenError`] if the bytes are not sealed, are damaged, or need another key or
    /// place.
    pub fn open(&self, place: &[u8], sealed: &[u8]) -> Result<Zeroizing<Vec<u8>>, OpenError> {
        let (header, ciphered) = sealed.split_at_checked(HEADER).ok_or(OpenError::NotSealed)?;
        let [FORM, a, b, c, d, rest @ ..] = header else { return Err(OpenError::NotSealed) };
        let id = KeyId([*a, *b, *c, *d]);
        if id != self.id {
            return Err(OpenError::OtherKey { sealed: id, ours: self.id });
        }
        let (salt, counter) = rest.split_at(SALT);
        let salt: [u8; SALT] = salt.try_into().map_err(|_| OpenError::NotSealed)?;
        let counter = u64::from_be_bytes(counter.try_into().map_err(|_| OpenError::NotSealed)?);
        let mut plain = Zeroizing::new(ciphered.to_vec());
        let place = Aad::from(place);
        let opened = match salt == self.own.0 {
            true => self.own.1.open_in_place(nonce(counter), place, &mut plain).map(|plain| plain.len()),
            false => self.key_for(salt).open_in_place(nonce(counter), place, &mut plain).map(|plain| plain.len()),
        };
        plain.truncate(opened.map_err(|_| OpenError::Damaged)?);
        Ok(plain)
    }

    /// Returns the derived key of another process's salt.
    fn key_for(&self, salt: [u8; SALT]) -> Arc<LessSafeKey> {
        if let Some(key) = self.foreign_keys.read().unwrap_or_else(PoisonError::into_inner).get(&salt) {
            return Arc::clone(key);
        }
        let key = Arc::new(derive(&self.octets, &salt));
        let mut foreign_keys = self.foreign_keys.write().unwrap_or_else(PoisonError::into_inner);
        // Salts come from storage that others can write to, so the cache is bounded.
        if foreign_keys.len() >= MAX_FOREIGN_KEYS {
            foreign_keys.clear();
        }
        foreign_keys.insert(salt, Arc::clone(&key));
        key
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sealed_octets_open_in_their_place_alone() {
        let key = SealingKey::new([7; 32]);
        let sealed = key.seal(b"amf/9", b"secret");
        assert_eq!(sealed.len(), b"secret".len() + OVERHEAD);
        assert!(!sealed.windows(6).any(|w| w == b"secret"));
        let next_process = SealingKey::new([7; 32]);
        assert_eq!(next_process.open(b"amf/9", &sealed).unwrap()[..], b"secret"[..]);
        assert_eq!(key.open(b"amf/9", &sealed).unwrap()[..], b"secret"[..]);
        assert_eq!(key.open(b"amf/8", &sealed), Err(OpenError::Damaged));
        let other = SealingKey::new([8; 32]);
        let (ours, theirs) = (other.id(), key.id());
        assert_eq!(other.open(b"amf/9", &sealed), Err(OpenError::OtherKey { sealed: theirs, ours }));
    }

    #[test]
    fn damaged_octets_do_not_open() {
        let key = SealingKey::generate();
        let sealed = key.seal(b"", b"secret");
        for n in 5..sealed.len() {
            let mut bad = sealed.clone();
            bad[n] ^= 1;
            assert_eq!(key.open(b"", &bad), Err(OpenError::Damaged), "octet {n}");
        }
        for n in 0..HEADER {
            assert_eq!(key.open(b"", &sealed[..n]), Err(OpenError::NotSealed), "{n} octets");
        }
        assert_eq!(key.open(b"", &sealed[..HEADER + 1]), Err(OpenError::Damaged));
        assert_eq!(key.open(b"", &[0; 64]), Err(OpenError::NotSealed));
    }

    #[test]
    fn equal_octets_are_never_sealed_equally() {
        let key = SealingKey::generate();
        let sealed: std::collections::HashSet<_> = (0..1000).map(|_| key.seal(b"p", b"same")).collect();
        assert_eq!(sealed.len(), 1000);
    }

    #[test]
    fn debug_shows_no_key() {
        let key = SealingKey::new([0xab; 32]);
        assert_eq!(format!("{key:?}").len(), "SealingKey(01234567)".len());
    }
}
