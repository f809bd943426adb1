//! A sealing key, and the form of what it seals.

use ring::aead::{AES_256_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use ring::digest::{SHA256, digest};
use ring::hkdf::{HKDF_SHA256, Salt};
use ring::rand::{SecureRandom, SystemRandom};
use rustc_hash::FxHashMap;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock};
use zeroize::Zeroizing;

/// Octets of a key.
const KEY: usize = 32;
/// The first octet of sealed octets: their form.
const FORM: u8 = 1;
const SALT: usize = 16;
const TAG: usize = 16;
/// Form 1, key identity 4, salt 16, counter 8.
const HEADER: usize = 1 + 4 + SALT + 8;

/// By how many octets sealed octets are longer than what they hold.
pub const OVERHEAD: usize = HEADER + TAG;

/// Keys of other salts that are remembered. Each process that seals has one salt, so this is the number of processes whose
/// octets one process opens at a time; beyond, keys are derived again (1 us each).
const REMEMBERED: usize = 256;

/// Tells keys apart without telling anything of the key: the first octets of a hash of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct KeyId([u8; 4]);

impl fmt::Display for KeyId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&hex::encode(self.0))
    }
}

/// Why sealed octets do not open.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OpenError {
    /// The octets are not sealed, or by a release with another form.
    #[error("the octets are not sealed")]
    NotSealed,
    /// Another key has sealed them.
    #[error("sealed with key {sealed}, and the key in use is {ours}")]
    OtherKey {
        /// The key that they need.
        sealed: KeyId,
        /// The key that was tried.
        ours: KeyId,
    },
    /// The octets were changed, or were sealed for another place.
    #[error("the sealed octets are damaged or belong elsewhere")]
    Damaged,
}

/// A 256-bit key that seals octets with AES-256-GCM (NIST SP 800-38D). `Debug` shows its identity alone.
///
/// Nonces never repeat: each process derives a key of its own from a random salt (HKDF, RFC 5869) and counts. So neither
/// the 2^32 messages of one key with random nonces nor a process that starts again limit how much is sealed.
pub struct SealingKey {
    octets: Zeroizing<[u8; KEY]>,
    id: KeyId,
    /// The salt and key of this process.
    own: ([u8; SALT], LessSafeKey),
    counter: AtomicU64,
    /// Keys of the salts of others.
    others: RwLock<FxHashMap<[u8; SALT], Arc<LessSafeKey>>>,
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

/// The length of a derived key.
struct Length;

impl ring::hkdf::KeyType for Length {
    fn len(&self) -> usize {
        KEY
    }
}

/// Fills octets at random.
fn random<const N: usize>() -> [u8; N] {
    let mut octets = [0; N];
    // Linux gives random octets to every process (getrandom(2)); a system that does not must not seal anything.
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
    /// The key of these octets.
    pub fn new(octets: [u8; KEY]) -> Self {
        let octets = Zeroizing::new(octets);
        let hash = digest(&SHA256, &*octets);
        let id = KeyId(hash.as_ref()[..4].try_into().unwrap_or_default());
        let salt = random();
        let own = (salt, derive(&octets, &salt));
        SealingKey { octets, id, own, counter: AtomicU64::new(0), others: RwLock::default() }
    }

    /// A random key.
    pub fn generate() -> Self {
        SealingKey::new(random())
    }

    /// The key's octets: for a key file, and for worker processes of this one.
    pub fn octets(&self) -> &[u8; KEY] {
        &self.octets
    }

    /// Which key this is.
    pub fn id(&self) -> KeyId {
        self.id
    }

    /// Seals octets for a place and appends them to `out`; [`OVERHEAD`] more than there were.
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
        // AES-GCM refuses only what is longer than 64 GiB.
        out.extend_from_slice(tag.expect("bug: octets too long to seal").as_ref());
    }

    /// Seals octets for a place.
    pub fn seal(&self, place: &[u8], plain: &[u8]) -> Vec<u8> {
        let mut out = Vec::new();
        self.seal_into(place, plain, &mut out);
        out
    }

    /// Opens what was sealed for this place.
    ///
    /// # Errors
    ///
    /// [`OpenError`].
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
            false => self.of(salt).open_in_place(nonce(counter), place, &mut plain).map(|plain| plain.len()),
        };
        plain.truncate(opened.map_err(|_| OpenError::Damaged)?);
        Ok(plain)
    }

    /// The key of another process's salt.
    fn of(&self, salt: [u8; SALT]) -> Arc<LessSafeKey> {
        if let Some(key) = self.others.read().unwrap_or_else(PoisonError::into_inner).get(&salt) {
            return Arc::clone(key);
        }
        let key = Arc::new(derive(&self.octets, &salt));
        let mut others = self.others.write().unwrap_or_else(PoisonError::into_inner);
        // Salts come from a place that others write, too: what is remembered is bounded.
        if others.len() >= REMEMBERED {
            others.clear();
        }
        others.insert(salt, Arc::clone(&key));
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
