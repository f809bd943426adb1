//! Sequence of the arrivals of a pattern.

use super::{Mmpp, Pattern, Ramp, Rng, Surges};

/// Arrival times in seconds since the start, ascending and endless. Two instances with the same
/// pattern, rate and seed yield the same times.
#[derive(Clone, Debug)]
pub struct Arrivals {
    rng: Rng,
    rate: f64,
    kind: Kind,
}

#[derive(Clone, Debug)]
enum Kind {
    Constant {
        count: u64,
    },
    Ramp {
        ramp: Ramp,
        count: u64,
    },
    Mmpp {
        mmpp: Mmpp,
        /// Rate per unit of the state factor.
        scale: f64,
        state: usize,
        /// End of the current state.
        ends_s: f64,
        now: f64,
    },
    Surges {
        surges: Surges,
        steady: u64,
        next_surge: f64,
        /// Fractional arrivals still due from the surges so far.
        rest: f64,
        in_progress: Vec<Surge>,
    },
}

/// Surge in progress.
#[derive(Clone, Copy, Debug)]
struct Surge {
    next: f64,
    gap: f64,
    remaining: u64,
}

impl Arrivals {
    /// Creates the arrivals of a pattern with a mean `rate` per second. A rate that is not above 0
    /// yields none.
    pub fn new(pattern: &Pattern, rate: f64, seed: u64) -> Self {
        let mut rng = Rng::new(seed);
        let kind = match pattern {
            Pattern::Constant => Kind::Constant { count: 0 },
            Pattern::Ramp(ramp) => Kind::Ramp { ramp: *ramp, count: 0 },
            Pattern::Mmpp(mmpp) => {
                let ends_s = mmpp.states.first().map_or(f64::INFINITY, |state| rng.exponential(state.mean_s));
                Kind::Mmpp { mmpp: mmpp.clone(), scale: rate / mmpp.mean_factor(), state: 0, ends_s, now: 0.0 }
            }
            Pattern::Surges(surges) => Kind::Surges {
                surges: *surges,
                steady: 0,
                next_surge: if surges.share > 0.0 { rng.exponential(surges.every_s) } else { f64::INFINITY },
                rest: 0.0,
                in_progress: Vec::new(),
            },
        };
        Arrivals { rng, rate, kind }
    }

    /// Returns the time of the next arrival, in seconds since the start.
    pub fn next_s(&mut self) -> f64 {
        if self.rate <= 0.0 {
            return f64::INFINITY;
        }
        let (rate, rng) = (self.rate, &mut self.rng);
        match &mut self.kind {
            Kind::Constant { count } => {
                *count += 1;
                (*count - 1) as f64 / rate
            }
            Kind::Ramp { ramp, count } => {
                *count += 1;
                ramp.time(rate, (*count - 1) as f64)
            }
            Kind::Mmpp { mmpp, scale, state, ends_s, now } => loop {
                // The rest of an exponential time is exponential, so each state starts afresh.
                let gap = match mmpp.states[*state].factor * *scale {
                    rate if rate > 0.0 => rng.exponential(1.0 / rate),
                    _ => f64::INFINITY,
                };
                if *now + gap <= *ends_s || mmpp.states.len() == 1 {
                    *now += gap;
                    return *now;
                }
                *now = *ends_s;
                let other = rng.below(mmpp.states.len() - 1);
                *state = if other < *state { other } else { other + 1 };
                *ends_s = *now + rng.exponential(mmpp.states[*state].mean_s);
            },
            Kind::Surges { surges, steady, next_surge, rest, in_progress } => {
                let steady_rate = rate * (1.0 - surges.share);
                let constant = if steady_rate > 0.0 { *steady as f64 / steady_rate } else { f64::INFINITY };
                loop {
                    let first = in_progress.iter().enumerate().min_by(|a, b| a.1.next.total_cmp(&b.1.next));
                    let first = first.map(|(index, surge)| (index, surge.next));
                    let soonest = first.map_or(constant, |(_, next)| next.min(constant));
                    if *next_surge < soonest {
                        let begins = *next_surge;
                        *next_surge = begins + rng.exponential(surges.every_s);
                        in_progress.extend(surges.begin(begins, rate, rng, rest));
                        continue;
                    }
                    let Some((index, _)) = first.filter(|(_, next)| *next < constant) else {
                        *steady += 1;
                        return constant;
                    };
                    let surge = &mut in_progress[index];
                    surge.next += surge.gap;
                    surge.remaining -= 1;
                    if surge.remaining == 0 {
                        in_progress.swap_remove(index);
                    }
                    return soonest;
                }
            }
        }
    }
}

impl Ramp {
    /// Returns the time of arrival number `count` at the mean rate: the time at which the integral
    /// of the rate reaches it.
    fn time(&self, rate: f64, count: f64) -> f64 {
        let (half, low) = (self.period_s / 2.0, (2.0 - self.peak) * rate);
        let slope = 2.0 * (self.peak - 1.0) * rate / half;
        let each = rate * self.period_s;
        let (whole, within) = ((count / each).floor(), count % each);
        // Rising half: low t + slope t^2 / 2; the falling half mirrors it.
        let up = |n: f64| (2.0 * n) / (low + (low * low + 2.0 * slope * n).sqrt());
        let t = match within {
            n if n <= 0.0 => 0.0,
            n if n <= each / 2.0 => up(n),
            n => self.period_s - up((each - n).max(f64::MIN_POSITIVE)),
        };
        whole * self.period_s + t
    }
}

impl Surges {
    /// Starts a surge at `now`. The next surge compensates the rounding of its size.
    fn begin(&self, now: f64, rate: f64, rng: &mut Rng, rest: &mut f64) -> Option<Surge> {
        let size = self.size(rng) / self.mean_size() * rate * self.share * self.every_s + *rest;
        let remaining = size.floor();
        *rest = size - remaining;
        (remaining >= 1.0).then(|| Surge { next: now, gap: self.width_s / remaining, remaining: remaining as u64 })
    }
}
