//! Weighted deficit round robin among the NFs of a worker.
//!
//! Each NF receives time in proportion to its share, and is charged the measured time of its
//! procedures, so that long procedures gain nothing.

/// Time of all NFs together per round, in nanoseconds. A round runs several procedures, and no NF
/// waits noticeably for the others.
const ROUND_NANOS: f64 = 1_000_000.0;
/// Maximum credit of an NF, in rounds.
const SAVED_ROUNDS: f64 = 2.0;

/// Maximum debt of an NF in nanoseconds. A procedure that took longer was delayed by the machine
/// and is charged no more.
const DEBT_NANOS: f64 = 100_000_000.0;

/// Round robin state of one worker.
#[derive(Clone, Debug, Default)]
pub struct Deficit {
    credit: Vec<f64>,
    at: usize,
}

impl Deficit {
    /// Returns the NF that runs next: one with work and credit; `None` if none has work. `shares`
    /// and `waiting` are in the same order.
    pub fn next(&mut self, shares: &[f64], waiting: impl Fn(usize) -> bool) -> Option<usize> {
        let count = shares.len();
        self.credit.resize(count, 0.0);
        if !(0..count).any(&waiting) {
            // An NF without work accumulates no credit.
            self.credit.fill(0.0);
            return None;
        }
        loop {
            for step in 0..count {
                let nf = (self.at + step) % count;
                if waiting(nf) && self.credit[nf] > 0.0 {
                    self.at = nf;
                    return Some(nf);
                }
            }
            self.refill(shares, &waiting);
        }
    }

    /// Starts a new round: every NF with work receives its part.
    fn refill(&mut self, shares: &[f64], waiting: &impl Fn(usize) -> bool) {
        let total: f64 = (0..shares.len()).filter(|nf| waiting(*nf)).map(|nf| shares[nf].max(0.0)).sum();
        for (nf, credit) in self.credit.iter_mut().enumerate() {
            if !waiting(nf) {
                *credit = 0.0;
                continue;
            }
            // If all shares are zero, they count as equal, so that no work is left undone.
            let part = if total > 0.0 { (shares[nf].max(0.0) / total).max(1e-3) } else { 1.0 };
            *credit = (*credit + part * ROUND_NANOS).min(part * ROUND_NANOS * SAVED_ROUNDS);
        }
        self.at = (self.at + 1) % shares.len().max(1);
    }

    /// Charges the NF the time that it ran, in nanoseconds.
    pub fn ran(&mut self, nf: usize, nanos: u64) {
        if let Some(credit) = self.credit.get_mut(nf) {
            *credit = (*credit - nanos as f64).max(-DEBT_NANOS);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns each NF's part of the time when all NFs always have work of these lengths.
    fn parts<const N: usize>(shares: [f64; N], lengths: [u64; N]) -> [f64; N] {
        let (mut deficit, mut time) = (Deficit::default(), [0u64; N]);
        while time.iter().sum::<u64>() < 1_000_000_000 {
            let nf = deficit.next(&shares, |_| true).expect("there is work");
            deficit.ran(nf, lengths[nf]);
            time[nf] += lengths[nf];
        }
        time.map(|t| t as f64 / time.iter().sum::<u64>() as f64)
    }

    #[test]
    fn deficit_time_follows_shares_at_any_cost() {
        for lengths in [[20_000, 20_000, 20_000], [200_000, 5_000, 20_000], [1_000, 3_000_000, 10_000]] {
            let got = parts([0.5, 0.3, 0.2], lengths);
            for (got, wanted) in got.iter().zip([0.5, 0.3, 0.2]) {
                assert!((got - wanted).abs() < 0.02, "{got} instead of {wanted} with {lengths:?}");
            }
        }
    }

    #[test]
    fn idle_slice_accumulates_no_deficit() {
        let mut deficit = Deficit::default();
        for _ in 0..100 {
            let nf = deficit.next(&[0.9, 0.1], |nf| nf == 1).expect("there is work");
            deficit.ran(nf, 500_000);
            assert_eq!(nf, 1, "the only one with work has the whole core");
        }
        assert_eq!(deficit.next(&[0.9, 0.1], |_| false), None);
        let first: Vec<_> = (0..20)
            .map(|_| {
                let nf = deficit.next(&[0.9, 0.1], |_| true).expect("there is work");
                deficit.ran(nf, 50_000);
                nf
            })
            .collect();
        assert!(first.iter().filter(|nf| **nf == 1).count() >= 1, "{first:?}");
    }

    #[test]
    fn no_share_is_still_some_service() {
        let got = parts([1.0, 0.0], [10_000, 10_000]);
        assert!(got[1] > 0.0 && got[1] < 0.01, "{got:?}");
        assert_eq!(parts([0.0, 0.0], [10_000, 10_000]).map(|p| (p * 10.0).round()), [5.0, 5.0]);
    }
}
