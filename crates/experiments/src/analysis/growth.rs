//! Growth of a measured quantity that should stay constant.

/// Straight line fitted to the points (least squares).
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Growth {
    /// Value of the line at the first point.
    pub(crate) from: f64,
    /// Value of the line at the last point.
    pub(crate) to: f64,
}

impl Growth {
    /// Returns the growth relative to the first value; 0 if the value was and stayed 0.
    pub(crate) fn share(&self) -> f64 {
        if self.from.abs() < f64::EPSILON && self.to.abs() < f64::EPSILON {
            return 0.0;
        }
        (self.to - self.from) / self.from.abs().max(1.0)
    }
}

/// Returns the growth over points of (time, value). The caller should exclude the warm-up.
pub(crate) fn growth(points: &[(f64, f64)]) -> Growth {
    let n = points.len() as f64;
    let (Some(first), Some(last)) = (points.first(), points.last()) else { return Growth::default() };
    let (mean_x, mean_y) = (points.iter().map(|p| p.0).sum::<f64>() / n, points.iter().map(|p| p.1).sum::<f64>() / n);
    let (mut above, mut below) = (0.0, 0.0);
    for (x, y) in points {
        above += (x - mean_x) * (y - mean_y);
        below += (x - mean_x) * (x - mean_x);
    }
    let slope = if below > 0.0 { above / below } else { 0.0 };
    let at = |x: f64| mean_y + slope * (x - mean_x);
    Growth { from: at(first.0), to: at(last.0) }
}

/// Returns the lasting growth relative to the first value: twice the smaller growth of the first
/// and the second half. A leak grows in both halves. A single larger allocation grows in one.
pub(crate) fn lasting(points: &[(f64, f64)]) -> f64 {
    let (first, second) = points.split_at(points.len() / 2);
    2.0 * growth(first).share().min(growth(second).share())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn leak_is_found_in_noise() {
        let noise = |n: u32| if n.is_multiple_of(3) { 5.0 } else { -2.5 };
        let of = |slope: f64| -> Vec<(f64, f64)> {
            (0..301).map(|n| (f64::from(n), 100.0 + slope * f64::from(n) + noise(n))).collect()
        };
        assert!(growth(&of(0.0)).share().abs() < 0.01, "{:?}", growth(&of(0.0)));
        let leak = growth(&of(0.1));
        assert!((leak.share() - 0.3).abs() < 0.02, "{leak:?}");
        assert!(growth(&of(-0.1)).share() < -0.25);
    }

    #[test]
    fn one_step_is_no_leak() {
        let of = |value: fn(u32) -> f64| -> Vec<(f64, f64)> { (0..300).map(|n| (f64::from(n), value(n))).collect() };
        for at in [40.0, 75.0, 150.0, 200.0, 260.0] {
            let step: Vec<_> = (0..300).map(f64::from).map(|n| (n, if n < at { 100.0 } else { 143.0 })).collect();
            assert!(lasting(&step) < 0.01, "a step at {at}: {}", lasting(&step));
        }
        assert!((lasting(&of(|n| 100.0 + 0.1 * f64::from(n))) - 0.28).abs() < 0.03);
        assert!(lasting(&of(|n| 100.0 + f64::from(n / 50) * 8.0)) > 0.2, "steps that go on are one");
        assert!(lasting(&[(0.0, 1.0)]).abs() < f64::EPSILON);
    }

    #[test]
    fn few_points_are_no_trouble() {
        assert_eq!(growth(&[]).share(), 0.0);
        assert_eq!(growth(&[(1.0, 4.0)]), Growth { from: 4.0, to: 4.0 });
        assert_eq!(growth(&[(0.0, 0.0), (1.0, 0.0)]).share(), 0.0);
        assert_eq!(growth(&[(0.0, 0.0), (1.0, 8.0)]).share(), 8.0);
    }
}
