//! Reversible mapping between a SEID and SUPI plus session number.
//!
//! With piggybacked SM contexts, a new SMF knows only the SEID of a UPF's report. The SEID gives
//! the SUPI, with which the SMF fetches the SM context from the AMF. A repeated create request
//! gives the same SEID.

use vireo_sbi::amf::NUMBER_BITS;
use vireo_types::{Seid, Supi};

/// An odd number and its inverse modulo 2^64. Multiplication spreads similar values.
const SPREAD: u64 = 0x9e37_79b9_7f4a_7c15;
const GATHER: u64 = inverse(SPREAD);

/// Computes the inverse by Newton's iteration. Each step doubles the number of correct bits.
const fn inverse(odd: u64) -> u64 {
    let mut x = odd;
    let mut step = 0;
    while step < 5 {
        x = x.wrapping_mul(2u64.wrapping_sub(odd.wrapping_mul(x)));
        step += 1;
    }
    x
}

/// Returns the number of SUPIs with fewer digits.
fn shorter(digits: u32) -> u64 {
    (6..digits).map(|digits| 10u64.pow(digits)).sum()
}

/// Returns the SEID of a UE's session. `number` is the AMF's session number.
pub(super) fn seid(supi: Supi, number: u32) -> Seid {
    // Number of digits, and their value (`vireo_types::Supi`).
    let (digits, value) = ((supi.as_u64() >> 56) as u32, supi.as_u64() & (u64::MAX >> 8));
    let place = shorter(digits) + value;
    let low = u64::from(number) & ((1 << NUMBER_BITS) - 1);
    let x = (place << NUMBER_BITS | low).wrapping_mul(SPREAD);
    Seid((x ^ x >> 32).wrapping_mul(SPREAD))
}

/// Returns the SUPI of a SEID and the low bits of the AMF's session number; `None` if [`seid`] does
/// not return this SEID. All SUPIs fit into the bits that the session numbers leave.
pub(super) fn supi_of_seid(seid: Seid) -> Option<(Supi, u32)> {
    let x = seid.0.wrapping_mul(GATHER);
    let x = (x ^ x >> 32).wrapping_mul(GATHER);
    let place = x >> NUMBER_BITS;
    let digits = (6..=15).rev().find(|digits| place >= shorter(*digits))?;
    let supi = Supi::from_u64(u64::from(digits) << 56 | (place - shorter(digits)))?;
    Some((supi, (x & ((1 << NUMBER_BITS) - 1)) as u32))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn seid_leads_to_its_subscriber() {
        for digits in
            ["000000", "999999", "0000000", "12345678", "999700000000001", "000000000000000", "999999999999999"]
        {
            let subscriber = Supi::from_digits(digits).unwrap();
            for number in [0, 1, 16_383] {
                assert_eq!(supi_of_seid(seid(subscriber, number)), Some((subscriber, number)), "{digits}");
            }
            assert_ne!(seid(subscriber, 0), seid(subscriber, 1));
        }
    }

    #[test]
    fn subscribers_one_after_the_other_are_spread() {
        let first = Supi::from_digits("999700000000001").unwrap();
        let of = |n| seid(first.offset(n).unwrap(), 0).ltmsi();
        let different: HashSet<_> = (0..1000).map(of).collect();
        assert!(different.len() > 990, "{} of 1000", different.len());
        // Most numbers are not SEIDs of this mapping.
        let nobody = (0..1000).filter(|n| supi_of_seid(Seid(0x1234_5678_9abc_def0 ^ n << 40)).is_none()).count();
        assert!(nobody > 0, "some numbers are no SUPI's");
    }
}
