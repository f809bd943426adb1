//! Hash function for evenly spread decisions that are the same on every process.

/// Returns a hash of two numbers: the SplitMix64 finaliser of their mixture.
pub(crate) fn hash_pair(a: u64, b: u64) -> u64 {
    let mut x = a.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ b.wrapping_add(1).wrapping_mul(0xd134_2543_de82_ef95);
    x = (x ^ x >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ x >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ x >> 31
}
