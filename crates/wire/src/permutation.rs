//! A keyed permutation of 32-bit numbers: RC5 with words of 16 bits, 16 rounds and a key of 16 octets, a block cipher
//! whose block is just what a temporary identifier has.

use cipher::consts::U16;
use cipher::{BlockCipherDecrypt, BlockCipherEncrypt, KeyInit};
use rc5::RC5;

/// The permutation of one key; about 30 ns a number.
pub struct Permutation32(RC5<u16, U16, U16>);

impl std::fmt::Debug for Permutation32 {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Permutation32(..)")
    }
}

impl Permutation32 {
    /// The permutation of a key.
    pub fn new(key: &[u8; 16]) -> Self {
        Permutation32(RC5::new(key.into()))
    }

    /// The number that `n` becomes.
    pub fn seal(&self, n: u32) -> u32 {
        let mut block = n.to_be_bytes().into();
        self.0.encrypt_block(&mut block);
        u32::from_be_bytes(block.into())
    }

    /// The number that became `n`.
    pub fn open(&self, n: u32) -> u32 {
        let mut block = n.to_be_bytes().into();
        self.0.decrypt_block(&mut block);
        u32::from_be_bytes(block.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_a_permutation_that_the_key_decides() {
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
}
