//! Tests of the patterns against their parameters.

use super::*;

/// Counts the arrivals per window of `window` seconds over `length` seconds.
fn counts(pattern: &Pattern, rate: f64, seed: u64, length: f64, window: f64) -> Vec<f64> {
    let mut counts = vec![0.0; (length / window).round() as usize];
    let mut arrivals = Arrivals::new(pattern, rate, seed);
    let mut last = 0.0;
    loop {
        let at = arrivals.next_s();
        assert!(at >= last, "{pattern}: {at} after {last}");
        last = at;
        let Some(count) = counts.get_mut((at / window) as usize) else { return counts };
        *count += 1.0;
    }
}

fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len() as f64
}

/// Returns variance divided by mean: 0 for even spacing, 1 for a Poisson process.
fn dispersion(values: &[f64]) -> f64 {
    let mean = mean(values);
    values.iter().map(|value| (value - mean).powi(2)).sum::<f64>() / values.len() as f64 / mean
}

fn pattern(text: &str) -> Pattern {
    text.parse().expect(text)
}

#[test]
fn every_pattern_has_requested_rate() {
    for text in ["T1", "T2", "T3", "T4:alpha=1", "T4", "T4:alpha=3", "poisson"] {
        for rate in [3.0, 250.0] {
            let counts = counts(&pattern(text), rate, 42, 20_000.0, 20.0);
            let mean = mean(&counts) / 20.0;
            assert!((mean / rate - 1.0).abs() < 0.05, "{text}: {mean} instead of {rate}");
        }
    }
}

#[test]
fn same_seed_gives_same_load() {
    for text in ["T1", "T2", "T3", "T4"] {
        let times = |seed| {
            let mut arrivals = Arrivals::new(&pattern(text), 100.0, seed);
            (0..1000).map(|_| arrivals.next_s()).collect::<Vec<_>>()
        };
        assert_eq!(times(1), times(1));
        assert_eq!(times(1) == times(2), ["T1", "T2"].contains(&text), "{text}");
    }
}

#[test]
fn constant_is_even() {
    let mut arrivals = Arrivals::new(&Pattern::Constant, 8.0, 1);
    assert_eq!((0..5).map(|_| arrivals.next_s()).collect::<Vec<_>>(), [0.0, 0.125, 0.25, 0.375, 0.5]);
    assert_eq!(dispersion(&counts(&Pattern::Constant, 100.0, 1, 100.0, 1.0)), 0.0);
}

#[test]
fn ramp_goes_up_to_its_peak_and_down_again() {
    let counts = counts(&pattern("T2:peak=1.6,period=10"), 1000.0, 1, 20.0, 1.0);
    // 400/s at 0 s, 1,600/s at 5 s: the first second has 400 + 240 / 2.
    let expected = [520.0, 760.0, 1000.0, 1240.0, 1480.0, 1480.0, 1240.0, 1000.0, 760.0, 520.0];
    for (second, count) in counts.iter().enumerate() {
        assert!((count - expected[second % 10]).abs() <= 2.0, "second {second}: {count}");
    }
}

#[test]
fn dispersion_matches_theory() {
    let poisson = dispersion(&counts(&Pattern::poisson(), 100.0, 3, 5_000.0, 1.0));
    assert!((poisson - 1.0).abs() < 0.1, "{poisson}");
    // Two states with rates a, b and sojourn times u, v. In windows much longer than both, variance
    // / mean tends to 1 + 2 (a - b)^2 (uv)^2 / (u + v)^3 / mean rate.
    let counts = counts(&pattern("T3:states=0.5@0.4/3@0.1"), 100.0, 3, 100_000.0, 20.0);
    let expected = 1.0 + 2.0 * 250.0f64.powi(2) * 0.04f64.powi(2) / 0.5f64.powi(3) / 100.0;
    let is = dispersion(&counts);
    assert!((is / expected - 1.0).abs() < 0.1, "{is} instead of {expected}");
}

#[test]
fn state_duration_has_configured_mean() {
    // A mean of 3 s of silence, then 1,000/s for a mean of 1 s: every pause above 100 ms is a
    // silence.
    let mut arrivals = Arrivals::new(&pattern("T3:states=0@3/1@1"), 250.0, 9);
    let times: Vec<f64> = std::iter::from_fn(|| Some(arrivals.next_s())).take_while(|at| *at < 40_000.0).collect();
    let silences: Vec<f64> = times.windows(2).map(|pair| pair[1] - pair[0]).filter(|gap| *gap > 0.1).collect();
    let expected = 40_000.0 / 4.0 * (-0.1f64 / 3.0).exp();
    assert!((silences.len() as f64 / expected - 1.0).abs() < 0.05, "{} {expected}", silences.len());
    // The distribution is memoryless: the time beyond 100 ms has again a mean of 3 s.
    assert!((mean(&silences) - 3.1).abs() < 0.15, "{}", mean(&silences));
}

#[test]
fn surges_have_a_tail_of_their_shape() {
    // Without other arrivals and with one arrival per smallest surge, sizes equal the counts of
    // bursts.
    let sizes = |alpha: f64| {
        let surges = Surges { alpha, every_s: 10.0, width_s: 1e-6, share: 1.0, cap: 1000.0 };
        let rate = 100.0 * surges.mean_size() / surges.every_s;
        let mut arrivals = Arrivals::new(&Pattern::Surges(surges), rate, 11);
        let mut sizes: Vec<f64> = Vec::new();
        let mut last = f64::NEG_INFINITY;
        while sizes.len() < 5_000 {
            let at = arrivals.next_s();
            if at - last > 1e-5 {
                sizes.push(0.0);
            }
            last = at;
            *sizes.last_mut().expect("was pushed") += 1.0 / 100.0;
        }
        sizes.pop();
        sizes
    };
    for alpha in [1.0, 2.0, 3.0] {
        let sizes = sizes(alpha);
        for size in [2.0f64, 5.0] {
            // P(X > x) of a Pareto distribution from 1; the cut at 1,000 hardly changes it.
            let (expected, is) = (size.powf(-alpha), sizes.iter().filter(|s| **s > size).count() as f64 / 5_000.0);
            let tolerance = 4.0 * (expected / 5_000.0).sqrt() + 0.02 * expected;
            assert!((is - expected).abs() < tolerance, "alpha {alpha}: P(X > {size}) = {is}, not {expected}");
        }
        let largest = sizes.iter().fold(0.0f64, |a, b| a.max(*b));
        assert!(largest <= 1010.0, "{largest}");
    }
}

#[test]
fn heavier_tails_are_burstier() {
    let dispersions: Vec<f64> = [1, 2, 3]
        .map(|alpha| dispersion(&counts(&pattern(&format!("T4:alpha={alpha}")), 200.0, 5, 20_000.0, 1.0)))
        .to_vec();
    assert!(dispersions.is_sorted_by(|a, b| *a > 1.5 * *b), "{dispersions:?}");
    let counts = counts(&pattern("T4"), 200.0, 5, 2_000.0, 1.0);
    assert!(counts.iter().all(|count| *count >= 99.0), "the constant half is always there");
}

#[test]
fn no_rate_no_arrivals() {
    assert_eq!(Arrivals::new(&Pattern::Constant, 0.0, 1).next_s(), f64::INFINITY);
}
