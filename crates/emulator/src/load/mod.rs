//! When procedures are due: arrival processes as pure functions of a seed.
//!
//! Four patterns, named as in the paper whose experiments they are for, which leaves their parameters open:
//!
//! * **T1** constant: evenly spaced.
//! * **T2** ramp: the rate rises linearly from its lowest to its peak and falls again, once per period; evenly spaced
//!   at every moment's rate.
//! * **T3** Markov-modulated Poisson process: Poisson arrivals whose rate depends on a state; each state lasts an
//!   exponentially distributed time and is followed by any other with the same probability.
//! * **T4** Pareto surges: a part of the arrivals is constant, the rest comes in surges that begin as a Poisson process
//!   and whose sizes have a Pareto distribution, cut so that the mean is finite also for shape 1.
//!
//! All have the rate that they are asked for as their mean. They know neither UEs nor procedures, and what the core
//! does changes nothing of them: that is what makes the loop open.

mod parse;
mod process;
mod rng;
#[cfg(test)]
mod tests;

pub use parse::ParsePatternError;
pub use process::Arrivals;
pub use rng::Rng;

/// How the rate of arrivals goes over time. [`std::str::FromStr`] reads what [`Pattern::HELP`] describes.
#[derive(Clone, Debug, PartialEq)]
pub enum Pattern {
    /// T1: constant.
    Constant,
    /// T2: up and down.
    Ramp(Ramp),
    /// T3: Markov-modulated Poisson process; with one state it is a Poisson process.
    Mmpp(Mmpp),
    /// T4: surges.
    Surges(Surges),
}

impl Pattern {
    /// The text form, for help texts.
    pub const HELP: &str = "T1 (constant), T2[:peak=1.8,period=20] (ramp up and down; peak is relative to the mean), \
                            T3[:states=0.5@4/3@1] (Markov-modulated Poisson: relative rate @ mean seconds of each \
                            state), T4[:alpha=2,every=1,width=0.05,share=0.5,cap=100] (Pareto surges: shape, mean \
                            seconds between, seconds that each lasts, share of all arrivals, largest relative to \
                            smallest), poisson";

    /// T3 with one state.
    pub fn poisson() -> Self {
        Pattern::Mmpp(Mmpp { states: vec![State { factor: 1.0, mean_s: 1.0 }] })
    }
}

/// T2: parameters.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Ramp {
    /// The highest rate relative to the mean: more than 1, at most 2. The lowest is as far below the mean.
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
    /// Its rate, relative to the other states'.
    pub factor: f64,
    /// Its mean sojourn time in seconds.
    pub mean_s: f64,
}

/// T3: parameters.
#[derive(Clone, Debug, PartialEq)]
pub struct Mmpp {
    /// The states; the first is the one at the start.
    pub states: Vec<State>,
}

impl Default for Mmpp {
    /// Half the mean rate for four seconds in the mean, three times the mean rate for one.
    fn default() -> Self {
        Mmpp { states: vec![State { factor: 0.5, mean_s: 4.0 }, State { factor: 3.0, mean_s: 1.0 }] }
    }
}

impl Mmpp {
    /// The factors' mean over time. All states follow each other with the same probability, so that each is entered as
    /// often as every other, and the time in it is in proportion to its mean sojourn time.
    fn mean_factor(&self) -> f64 {
        let whole: f64 = self.states.iter().map(|state| state.mean_s).sum();
        self.states.iter().map(|state| state.factor * state.mean_s).sum::<f64>() / whole
    }
}

/// T4: parameters.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Surges {
    /// Shape of the Pareto distribution of a surge's size, typically 1, 2 or 3: the smaller, the heavier the tail.
    pub alpha: f64,
    /// Mean seconds from the start of one surge to the start of the next.
    pub every_s: f64,
    /// Seconds that a surge's arrivals are spread over.
    pub width_s: f64,
    /// The share of all arrivals that come in surges, 0 to 1.
    pub share: f64,
    /// The largest surge relative to the smallest: where the distribution is cut.
    pub cap: f64,
}

impl Default for Surges {
    fn default() -> Self {
        Surges { alpha: 2.0, every_s: 1.0, width_s: 0.05, share: 0.5, cap: 100.0 }
    }
}

impl Surges {
    /// Mean of the bounded Pareto distribution from 1 to `cap`.
    fn mean_size(&self) -> f64 {
        let (a, cap) = (self.alpha, self.cap);
        if (a - 1.0).abs() < 1e-9 {
            return cap.ln() / (1.0 - 1.0 / cap);
        }
        a / (a - 1.0) * (1.0 - cap.powf(1.0 - a)) / (1.0 - cap.powf(-a))
    }

    /// A size from 1 to `cap`, by inversion.
    fn size(&self, rng: &mut Rng) -> f64 {
        let below_cap = 1.0 - self.cap.powf(-self.alpha);
        (1.0 - rng.unit() * below_cap).powf(-1.0 / self.alpha)
    }
}
