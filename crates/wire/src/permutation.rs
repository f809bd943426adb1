//! Keyed permutations of 32-bit and 16-bit numbers over AES-128.
//!
//! FF1 (NIST SP 800-38G, 10 rounds) is used with strings of 32 bits and an empty tweak. It is
//! standardised format-preserving encryption: a temporary identifier is too short for a cipher
//! block.

use aes::Aes128Enc;
use cipher::{BlockCipherEncrypt, KeyInit};

/// Number of rounds of FF1.
const ROUNDS: u8 = 10;

/// P of FF1's step 5: version, method, addition; radix 2, rounds, u = 16, n = 32, no tweak.
const P: [u8; 16] = [1, 2, 1, 0, 0, 2, ROUNDS, 16, 0, 0, 0, 32, 0, 0, 0, 0];

/// The permutation of one key.
///
/// Sealing or opening a number takes ten AES blocks, about 180 ns with AES-NI. The key schedule is
/// computed once, as is the first block of each round's PRF, which is the same for all rounds.
pub struct Permutation32 {
    cipher: Aes128Enc,
    /// Encryption of [`P`] with AES.
    first: [u8; 16],
}

impl std::fmt::Debug for Permutation32 {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Permutation32(..)")
    }
}

impl Permutation32 {
    /// Creates the permutation of a key.
    pub fn new(key: &[u8; 16]) -> Self {
        let cipher = Aes128Enc::new(key.into());
        let mut first = P.into();
        cipher.encrypt_block(&mut first);
        Permutation32 { cipher, first: first.into() }
    }

    /// Returns the image of `n`.
    pub fn seal(&self, n: u32) -> u32 {
        let (mut a, mut b) = halves(n);
        for round in 0..ROUNDS {
            (a, b) = (b, a.wrapping_add(self.y(round, b)));
        }
        whole(a, b)
    }

    /// Returns the preimage of `n`.
    pub fn open(&self, n: u32) -> u32 {
        let (mut a, mut b) = halves(n);
        for round in (0..ROUNDS).rev() {
            (a, b) = (b.wrapping_sub(self.y(round, a)), a);
        }
        whole(a, b)
    }

    /// Returns y of a round modulo 2^16: the last two of the first d = 8 octets of PRF(P || Q). Q
    /// is 13 zeros, the round and the half.
    #[inline]
    fn y(&self, round: u8, half: u16) -> u16 {
        let mut block = self.first;
        let [high, low] = half.to_be_bytes();
        block[13] ^= round;
        block[14] ^= high;
        block[15] ^= low;
        let mut block = block.into();
        self.cipher.encrypt_block(&mut block);
        u16::from_be_bytes([block[6], block[7]])
    }
}

/// Keyed permutations of 16-bit numbers, one for each tweak.
///
/// A Feistel network as FF1, whose domain NIST SP 800-38G makes larger than 16 bits. It hides the
/// order of numbers, and protects no secret. Sealing a number takes ten AES blocks. The first octet
/// of each block differs from that of [`Permutation32`], so that both may have the same key.
pub struct Permutation16(Aes128Enc);

impl std::fmt::Debug for Permutation16 {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Permutation16(..)")
    }
}

impl Permutation16 {
    /// Creates the permutations of a key.
    pub fn new(key: &[u8; 16]) -> Self {
        Permutation16(Aes128Enc::new(key.into()))
    }

    /// Returns the image of `n` in the permutation of a tweak.
    pub fn seal(&self, tweak: u16, n: u16) -> u16 {
        let [t0, t1] = tweak.to_be_bytes();
        let [mut a, mut b] = n.to_be_bytes();
        for round in 0..ROUNDS {
            let mut block = [2, t0, t1, round, b, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0].into();
            self.0.encrypt_block(&mut block);
            (a, b) = (b, a.wrapping_add(block[0]));
        }
        u16::from_be_bytes([a, b])
    }
}

fn halves(n: u32) -> (u16, u16) {
    ((n >> 16) as u16, n as u16)
}

fn whole(a: u16, b: u16) -> u32 {
    u32::from(a) << 16 | u32::from(b)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns FF1.Encrypt as specified, for any radix, of strings of at most 128 bits.
    fn ff1(key: &[u8; 16], radix: u32, tweak: &[u8], x: &[u32]) -> Vec<u32> {
        let aes = Aes128Enc::new(key.into());
        let num = |x: &[u32]| x.iter().fold(0u128, |n, digit| n * u128::from(radix) + u128::from(*digit));
        let n = x.len();
        let (u, v) = (n / 2, n - n / 2);
        let bits = (v as f64 * f64::from(radix).log2()).ceil() as usize;
        let b = bits.div_ceil(8);
        let d = 4 * b.div_ceil(4) + 4;
        let mut p = vec![1, 2, 1];
        p.extend_from_slice(&radix.to_be_bytes()[1..]);
        p.extend_from_slice(&[10, u as u8]);
        p.extend_from_slice(&(n as u32).to_be_bytes());
        p.extend_from_slice(&(tweak.len() as u32).to_be_bytes());
        let (mut left, mut right) = (x[..u].to_vec(), x[u..].to_vec());
        for round in 0..10u8 {
            let mut q = tweak.to_vec();
            let zeros = (16 - (tweak.len() + b + 1) % 16) % 16;
            q.extend(std::iter::repeat_n(0, zeros));
            q.push(round);
            q.extend_from_slice(&num(&right).to_be_bytes()[16 - b..]);
            // PRF: CBC-MAC without an initialisation vector.
            let mut r = [0u8; 16];
            for block in [&p[..], &q[..]].concat().chunks(16) {
                r.iter_mut().zip(block).for_each(|(r, octet)| *r ^= octet);
                let mut sealed = r.into();
                aes.encrypt_block(&mut sealed);
                r = sealed.into();
            }
            assert!(d <= 16);
            let y = r[..d].iter().fold(0u128, |y, octet| y << 8 | u128::from(*octet));
            let m = if round % 2 == 0 { u } else { v };
            let modulus = u128::from(radix).pow(m as u32);
            let mut c = (num(&left) + y % modulus) % modulus;
            let mut digits = vec![0; m];
            for digit in digits.iter_mut().rev() {
                (*digit, c) = ((c % u128::from(radix)) as u32, c / u128::from(radix));
            }
            (left, right) = (right, digits);
        }
        [left, right].concat()
    }

    fn text(radix: u32, digits: &[u32]) -> String {
        digits.iter().map(|digit| char::from_digit(*digit, radix).expect("a digit")).collect()
    }

    /// Checks the reference against samples 1 to 3 of NIST's "FF1 samples" with intermediate values
    /// for AES-128.
    #[test]
    fn reference_agrees_with_nist_samples() {
        let key = [0x2b, 0x7e, 0x15, 0x16, 0x28, 0xae, 0xd2, 0xa6, 0xab, 0xf7, 0x15, 0x88, 0x09, 0xcf, 0x4f, 0x3c];
        let decimal: Vec<u32> = (0..10).collect();
        let other: Vec<u32> = (0..19).collect();
        assert_eq!(text(10, &ff1(&key, 10, &[], &decimal)), "2433477484");
        assert_eq!(text(10, &ff1(&key, 10, b"9876543210", &decimal)), "6124200773");
        assert_eq!(text(36, &ff1(&key, 36, b"7777pqrs777", &other)), "a9tv40mll9kdu509eum");
    }

    #[test]
    fn permutation_agrees_with_reference() {
        for n in 0..500u32 {
            let (n, key) = (n.wrapping_mul(0x9e37_79b9), [n as u8; 16]);
            let bits: Vec<u32> = (0..32).rev().map(|bit| n >> bit & 1).collect();
            let sealed = ff1(&key, 2, &[], &bits).into_iter().fold(0, |n, bit| n << 1 | bit);
            let permutation = Permutation32::new(&key);
            assert_eq!((permutation.seal(n), permutation.open(sealed)), (sealed, n));
        }
    }

    #[test]
    fn permutation_depends_on_key() {
        let (a, b) = (Permutation32::new(&[1; 16]), Permutation32::new(&[2; 16]));
        let sealed: std::collections::HashSet<u32> = (0..100_000).map(|n| a.seal(n)).collect();
        assert_eq!(sealed.len(), 100_000, "no two numbers become the same");
        assert!((0..100_000).all(|n| a.open(a.seal(n)) == n));
        let same = (0..100_000).filter(|n| a.seal(*n) == b.seal(*n)).count();
        assert!(same < 5, "another key is another permutation");
        // Neighbours differ in about half of their bits.
        let flips: u32 = (0..10_000u32).map(|n| (a.seal(n) ^ a.seal(n + 1)).count_ones()).sum();
        assert!((150_000..170_000).contains(&flips), "{flips}");
    }

    /// `cargo test --release -p vireo-wire --lib -- --ignored --nocapture permutation`
    #[test]
    #[ignore = "a measurement"]
    fn cost_of_a_number() {
        let permutation = Permutation32::new(&[7; 16]);
        let count = 5_000_000u32;
        for (what, act) in [("seal", Permutation32::seal as fn(&_, u32) -> u32), ("open", Permutation32::open)] {
            let begun = std::time::Instant::now();
            let last = (0..count).fold(0, |n, _| act(&permutation, std::hint::black_box(n)));
            println!("{what}: {} ns ({last})", begun.elapsed().as_nanos() / u128::from(count));
        }
    }

    #[test]
    fn number_has_one_image_for_each_tweak() {
        let permutation = Permutation16::new(&[7; 16]);
        let mut images = [[false; 1 << 16]; 2];
        let (mut same, mut next) = (0, 0);
        for n in 0..=u16::MAX {
            let image = [0, 1].map(|tweak| permutation.seal(tweak, n));
            for (images, image) in images.iter_mut().zip(image) {
                assert!(!std::mem::replace(&mut images[usize::from(image)], true), "{n} and another one: {image}");
            }
            same += u32::from(image[0] == image[1]);
            next += u32::from(permutation.seal(0, n.wrapping_add(1)) == image[0].wrapping_add(1));
        }
        // Of random permutations, one each is expected.
        assert!(same < 10 && next < 10, "{same} {next}");
        assert_ne!(permutation.seal(0, 5), Permutation16::new(&[8; 16]).seal(0, 5));
    }
}
