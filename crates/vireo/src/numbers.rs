//! Numbers of the command line.

/// Parses a number of the command line that `fits`; `what` describes such numbers.
pub(crate) fn number(text: &str, fits: fn(f64) -> bool, what: &str) -> Result<f64, String> {
    let number = text.trim().parse::<f64>().ok().filter(|number| number.is_finite() && fits(*number));
    number.ok_or_else(|| format!("{text:?} is not {what}"))
}

/// Parses a number above 0.
pub(crate) fn amount(text: &str) -> Result<f64, String> {
    number(text, |n| n > 0.0 && n <= 1e9, "a number above 0 and up to 1e9")
}
