//! 5G-TMSIs as a keyed permutation.
//!
//! The permuted value is bucket 12 | random 20. The core reads the bucket of a UE from its 5G-TMSI;
//! without the key, two 5G-TMSIs of a UE cannot be linked (TS 33.501 6.12.3).

use vireo_types::{Bucket, Tmsi};
use vireo_wire::permutation::Permutation32;

/// Cipher that creates and reads 5G-TMSIs under one key.
#[derive(Debug)]
pub struct TmsiCipher(Permutation32);

/// Number of random bits of a 5G-TMSI within its bucket.
pub const RANDOM_BITS: u32 = 20;

impl TmsiCipher {
    /// Returns the cipher of a key. The AMF Pointer identifies the epoch of the key.
    pub fn new(key: &[u8; 16]) -> Self {
        TmsiCipher(Permutation32::new(key))
    }

    /// Returns the 5G-TMSI of a bucket and the low 20 bits of `random`. Returns `None` instead of
    /// `0xffff_ffff`, which means "none" to UEs (TS 23.003 2.4); the caller then draws another
    /// random number.
    pub fn seal(&self, bucket: Bucket, random: u32) -> Option<Tmsi> {
        let plain = u32::from(bucket.get()) << RANDOM_BITS | random & ((1 << RANDOM_BITS) - 1);
        let tmsi = self.0.seal(plain);
        (tmsi != u32::MAX).then_some(Tmsi(tmsi))
    }

    /// Returns the bucket of a 5G-TMSI.
    pub fn bucket(&self, tmsi: Tmsi) -> Bucket {
        Bucket::new((self.0.open(tmsi.0) >> RANDOM_BITS) as u16)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tmsi_with_key_yields_bucket() {
        let cipher = TmsiCipher::new(&[7; 16]);
        for n in 0..Bucket::COUNT {
            let bucket = Bucket::new(n);
            let tmsi = cipher.seal(bucket, u32::from(n).wrapping_mul(0x9e37_79b9)).expect("not the reserved one");
            assert_eq!(cipher.bucket(tmsi), bucket);
        }
    }
}
