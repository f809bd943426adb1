//! Arrival processes of procedures, as pure functions of a seed.
//!
//! The four patterns have the names of the paper whose experiments use them. The paper leaves their
//! parameters open:
//!
//! * **T1** constant: evenly spaced.
//! * **T2** ramp: the rate rises linearly from its lowest value to its peak and falls again, once
//!   per period. Arrivals are evenly spaced at every moment's rate.
//! * **T3** Markov-modulated Poisson process: Poisson arrivals whose rate depends on a state. Each
//!   state lasts an exponentially distributed time; any other state follows with the same
//!   probability.
//! * **T4** Pareto surges: a part of the arrivals is constant, the rest comes in surges. Surges
//!   begin as a Poisson process. Their sizes have a Pareto distribution with a cut, so that the
//!   mean is finite also for shape 1.
//!
//! The mean rate of each pattern is the requested rate. Patterns do not depend on UEs, procedures
//! or the behaviour of the core. The loop is therefore open.

mod parse;
mod process;
mod rng;
#[cfg(test)]
mod tests;

pub use parse::ParsePatternError;
pub use process::Arrivals;
pub use rng::Rng;

/// Arrival rate over time. [`std::str::FromStr`] parses the syntax of [`Pattern::HELP`].
#[derive(Clone, Debug, PartialEq)]
pub enum Pattern {
    /// T1: constant rate.
    Constant,
    /// T2: ramp up and down.
    Ramp(Ramp),
    /// T3: Markov-modulated Poisson process. With one state it is a Poisson process.
    Mmpp(Mmpp),
    /// T4: constant rate with surges.
    Surges(Surges),
}

impl Pattern {
    /// Syntax of the text form, for help texts.
    pub const HELP: &str = "T1 (constant), T2[:peak=1.8,period=20] (ramp up and down; peak is relative to the mean), \
                            T3[:states=0.5@4/3@1] (Markov-modulated Poisson: relative rate @ mean seconds of each \
                            state), T4[:alpha=2,every=1,width=0.05,share=0.5,cap=100] (Pareto surges: shape, mean \
                            seconds between, seconds that each lasts, share of all arrivals, largest relative to \
                            smallest), poisson";

    /// Returns T3 with one state.
    pub fn poisson() -> Self {
        Pattern::Mmpp(Mmpp { states: vec![State { factor: 1.0, mean_s: 1.0 }] })
    }
}

/// Parameters of T2.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Ramp {
    /// Highest rate relative to the mean: more than 1, at most 2. The lowest rate is equally far
    /// below the mean.
    pub peak: f64,
    /// Seconds from one lowest rate to the next.
    pub period_s: f64,
}

impl Default for Ramp {
    fn default() -> Self {
        Ramp { peak: 1.8, period_s: 20.0 }
    }
}

/// One state of T3.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct State {
    /// Rate relative to the other states.
    pub factor: f64,
    /// Mean sojourn time in seconds.
    pub mean_s: f64,
}

/// Parameters of T3.
#[derive(Clone, Debug, PartialEq)]
pub struct Mmpp {
    /// States; the process starts in the first one.
    pub states: Vec<State>,
}

impl Default for Mmpp {
    /// Returns two states: half the mean rate for a mean of four seconds, three times the mean rate
    /// for a mean of one second.
    fn default() -> Self {
        Mmpp { states: vec![State { factor: 0.5, mean_s: 4.0 }, State { factor: 3.0, mean_s: 1.0 }] }
    }
}

impl Mmpp {
    /// Returns the mean of the factors over time. Every state is entered equally often, since all
    /// transitions have the same probability. The time share of a state is thus proportional to its
    /// mean sojourn time.
    fn mean_factor(&self) -> f64 {
        let whole: f64 = self.states.iter().map(|state| state.mean_s).sum();
        self.states.iter().map(|state| state.factor * state.mean_s).sum::<f64>() / whole
    }
}

/// Parameters of T4.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Surges {
    /// Shape of the Pareto distribution of surge sizes, typically 1, 2 or 3. A smaller shape has a
    /// heavier tail.
    pub alpha: f64,
    /// Mean seconds from the start of one surge to the start of the next.
    pub every_s: f64,
    /// Seconds over which the arrivals of a surge are spread.
    pub width_s: f64,
    /// Share of all arrivals that come in surges, 0 to 1.
    pub share: f64,
    /// Largest surge relative to the smallest: the cut of the distribution.
    pub cap: f64,
}

impl Default for Surges {
    fn default() -> Self {
        Surges { alpha: 2.0, every_s: 1.0, width_s: 0.05, share: 0.5, cap: 100.0 }
    }
}

impl Surges {
    /// Returns the mean of the bounded Pareto distribution from 1 to `cap`.
    fn mean_size(&self) -> f64 {
        let (a, cap) = (self.alpha, self.cap);
        if (a - 1.0).abs() < 1e-9 {
            return cap.ln() / (1.0 - 1.0 / cap);
        }
        a / (a - 1.0) * (1.0 - cap.powf(1.0 - a)) / (1.0 - cap.powf(-a))
    }

    /// Draws a size from 1 to `cap` by inversion.
    fn size(&self, rng: &mut Rng) -> f64 {
        let below_cap = 1.0 - self.cap.powf(-self.alpha);
        (1.0 - rng.unit() * below_cap).powf(-1.0 / self.alpha)
    }
}
