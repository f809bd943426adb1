//! Model of a machine's control plane: threads that a procedure passes, and cores for them.
//!
//! A procedure needs a fixed CPU time in each stage. Threads of a stage share nothing, so that a
//! stage with `n` threads serves `n` times as many procedures. A core runs one thread.

/// Stage of a procedure.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Stage {
    /// Threads of the stage, as the page names them.
    pub(crate) name: &'static str,
    /// CPU time of a procedure in microseconds.
    pub(crate) us: f64,
}

/// Cores of a machine by stage.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Division {
    /// Threads of each stage.
    pub(crate) threads: Vec<u32>,
    /// Procedures per second at which the first stage is saturated.
    pub(crate) rate: f64,
    /// Position of that stage.
    pub(crate) limit: usize,
}

impl Division {
    fn new(stages: &[Stage], threads: Vec<u32>) -> Option<Self> {
        let rates = stages.iter().zip(&threads).map(|(stage, threads)| f64::from(*threads) * 1e6 / stage.us);
        let (limit, rate) = rates.enumerate().min_by(|a, b| a.1.total_cmp(&b.1))?;
        Some(Division { threads, rate, limit })
    }

    /// Returns the number of cores in use.
    pub(crate) fn cores(&self) -> u32 {
        self.threads.iter().sum()
    }
}

/// Returns the division of so many cores with the highest rate, with at most `first` threads in the
/// first stage. Cores that the saturated first stage cannot use are left over. `None`: there are
/// fewer cores than stages.
pub(crate) fn divide(stages: &[Stage], cores: u32, first: u32) -> Option<Division> {
    let spare = cores.checked_sub(stages.len() as u32)?;
    let mut best = Division::new(stages, vec![1; stages.len()])?;
    // Only another thread of the saturated stage raises the rate.
    for _ in 0..spare {
        if best.limit == 0 && best.threads[0] >= first {
            break;
        }
        let mut threads = best.threads.clone();
        threads[best.limit] += 1;
        best = Division::new(stages, threads)?;
    }
    Some(best)
}

#[cfg(test)]
mod tests {
    use super::*;

    const STAGES: [(&str, f64); 3] = [("balancer", 10.0), ("host", 20.0), ("workers", 30.0)];

    fn stages() -> Vec<Stage> {
        STAGES.map(|(name, us)| Stage { name, us }).into()
    }

    #[test]
    fn cores_go_to_saturated_stage() {
        let best = divide(&stages(), 6, u32::MAX).unwrap();
        assert_eq!((best.threads.clone(), best.rate.round(), best.cores()), (vec![1, 2, 3], 100_000.0, 6));
        let twelve = divide(&stages(), 12, u32::MAX).unwrap();
        assert_eq!((twelve.threads, twelve.rate.round()), (vec![2, 4, 6], 200_000.0));
        assert_eq!(divide(&stages(), 2, u32::MAX), None, "each stage needs a thread");
    }

    #[test]
    fn no_other_division_is_better() {
        for cores in 3..20 {
            let best = divide(&stages(), cores, u32::MAX).unwrap();
            for a in 1..cores - 1 {
                for b in 1..cores - a {
                    let other = Division::new(&stages(), vec![a, b, cores - a - b]).unwrap();
                    assert!(other.rate <= best.rate + 1e-6, "{cores}: {other:?} {best:?}");
                }
            }
        }
    }

    #[test]
    fn one_balancer_thread_leaves_cores_idle() {
        let one = divide(&stages(), 64, 1).unwrap();
        assert_eq!((one.threads.clone(), one.limit, one.cores()), (vec![1, 2, 3], 0, 6));
    }
}
