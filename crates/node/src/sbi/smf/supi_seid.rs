//! SEIDs that lead to the subscriber: of sessions whose SM contexts travel, an SMF that has only just started knows nothing but
//! the SEID by which a UPF reports something. From it follow the SUPI, by which the AMF is asked for the SM context, and, the same
//! each time, the SEID of a session that is asked for again.

use vireo_sbi::amf::NUMBER_BITS;
use vireo_types::{Seid, Supi};

/// An odd number, and its inverse among the numbers of 64 bits: they spread what would begin alike.
const SPREAD: u64 = 0x9e37_79b9_7f4a_7c15;
const GATHER: u64 = inverse(SPREAD);

/// By Newton's iteration, each step of which doubles the bits that are right.
const fn inverse(odd: u64) -> u64 {
    let mut x = odd;
    let mut step = 0;
    while step < 5 {
        x = x.wrapping_mul(2u64.wrapping_sub(odd.wrapping_mul(x)));
        step += 1;
    }
    x
}

/// How many SUPIs have fewer digits than these.
fn shorter(digits: u32) -> u64 {
    (6..digits).map(|digits| 10u64.pow(digits)).sum()
}

/// The SEID of a UE's session, by the AMF's number for that.
pub(super) fn seid(supi: Supi, number: u32) -> Seid {
    // Its number of digits, and their value (vireo_types::Supi).
    let (digits, value) = ((supi.as_u64() >> 56) as u32, supi.as_u64() & (u64::MAX >> 8));
    let place = shorter(digits) + value;
    let low = u64::from(number) & ((1 << NUMBER_BITS) - 1);
    let x = (place << NUMBER_BITS | low).wrapping_mul(SPREAD);
    Seid((x ^ x >> 32).wrapping_mul(SPREAD))
}

/// The SUPI of a SEID, and the end of the AMF's number for the session; `None` if it is none of these. All SUPIs have room in the
/// bits that these numbers leave.
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
    fn a_seid_leads_to_its_subscriber() {
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
        // Most numbers are nobody's.
        let nobody = (0..1000).filter(|n| supi_of_seid(Seid(0x1234_5678_9abc_def0 ^ n << 40)).is_none()).count();
        assert!(nobody > 0, "some numbers are no SUPI's");
    }
}
