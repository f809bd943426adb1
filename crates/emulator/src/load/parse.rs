//! Text form of patterns: `T4:alpha=1,share=0.8`.

use super::{Mmpp, Pattern, Ramp, State, Surges};
use std::fmt;
use std::str::FromStr;

/// Reason for which a text is not a valid pattern.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}; patterns are {help}", help = Pattern::HELP)]
pub struct ParsePatternError(String);

/// Parses a numeric parameter from `least` to `most`.
fn number(key: &str, value: &str, least: f64, most: f64) -> Result<f64, ParsePatternError> {
    let number = value.parse().ok().filter(|number| (least..=most).contains(number));
    number.ok_or_else(|| ParsePatternError(format!("{key}={value:?} must be a number from {least} to {most}")))
}

fn state(text: &str) -> Result<State, ParsePatternError> {
    let (factor, mean) = text
        .split_once('@')
        .ok_or_else(|| ParsePatternError(format!("the state {text:?} must be RELATIVE_RATE@MEAN_SECONDS")))?;
    Ok(State { factor: number("states", factor, 0.0, 1e6)?, mean_s: number("states", mean, 1e-3, 1e6)? })
}

impl FromStr for Pattern {
    type Err = ParsePatternError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (name, parameters) = text.split_once(':').unwrap_or((text, ""));
        let mut pattern = match name.to_ascii_lowercase().as_str() {
            "t1" => Pattern::Constant,
            "t2" => Pattern::Ramp(Ramp::default()),
            "t3" => Pattern::Mmpp(Mmpp::default()),
            "t4" => Pattern::Surges(Surges::default()),
            "poisson" => Pattern::poisson(),
            _ => return Err(ParsePatternError(format!("there is no pattern {name:?}"))),
        };
        for parameter in parameters.split(',').filter(|parameter| !parameter.is_empty()) {
            let (key, value) = parameter.split_once('=').unwrap_or((parameter, ""));
            let get = |least, most| number(key, value, least, most);
            match (&mut pattern, key) {
                (Pattern::Ramp(ramp), "peak") => ramp.peak = get(1.001, 2.0)?,
                (Pattern::Ramp(ramp), "period") => ramp.period_s = get(1e-3, 1e6)?,
                (Pattern::Mmpp(mmpp), "states") if name != "poisson" => {
                    mmpp.states = value.split('/').map(state).collect::<Result<_, _>>()?;
                    if mmpp.states.iter().all(|state| state.factor <= 0.0) {
                        return Err(ParsePatternError("one of the states must have a rate above 0".into()));
                    }
                }
                (Pattern::Surges(surges), "alpha") => surges.alpha = get(0.1, 100.0)?,
                (Pattern::Surges(surges), "every") => surges.every_s = get(1e-3, 1e6)?,
                (Pattern::Surges(surges), "width") => surges.width_s = get(1e-6, 1e6)?,
                (Pattern::Surges(surges), "share") => surges.share = get(0.0, 1.0)?,
                (Pattern::Surges(surges), "cap") => surges.cap = get(1.001, 1e9)?,
                _ => return Err(ParsePatternError(format!("{name} has no parameter {key:?}"))),
            }
        }
        Ok(pattern)
    }
}

impl fmt::Display for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Pattern::Constant => f.write_str("T1"),
            Pattern::Ramp(ramp) => write!(f, "T2:peak={},period={}", ramp.peak, ramp.period_s),
            Pattern::Mmpp(mmpp) if *self == Pattern::poisson() && mmpp.states.len() == 1 => f.write_str("poisson"),
            Pattern::Mmpp(mmpp) => {
                let states: Vec<_> =
                    mmpp.states.iter().map(|state| format!("{}@{}", state.factor, state.mean_s)).collect();
                write!(f, "T3:states={}", states.join("/"))
            }
            Pattern::Surges(s) => {
                let Surges { alpha, every_s, width_s, share, cap } = s;
                write!(f, "T4:alpha={alpha},every={every_s},width={width_s},share={share},cap={cap}")
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn written_pattern_parses_back() {
        for text in [
            "T1",
            "T2:peak=1.5,period=4",
            "T3:states=0@1/1@0.5/7@2",
            "T4:alpha=1,every=2,width=0.1,share=0.9,cap=50",
            "poisson",
        ] {
            assert_eq!(text.parse::<Pattern>().expect(text).to_string(), text);
        }
        assert_eq!("t4:alpha=3".parse(), Ok(Pattern::Surges(Surges { alpha: 3.0, ..Surges::default() })));
        assert_eq!("T3".parse(), Ok(Pattern::Mmpp(Mmpp::default())));
    }

    #[test]
    fn invalid_pattern_is_refused() {
        for (text, why) in [
            ("T5", "T1 (constant)"),
            ("T2:peak=3", "from 1.001 to 2"),
            ("T1:peak=1.5", "no parameter"),
            ("T3:states=1", "RELATIVE_RATE@MEAN_SECONDS"),
            ("T3:states=0@1", "above 0"),
            ("T4:alpha=x", "number"),
            ("T4:cap=NaN", "number"),
            ("poisson:states=1@1", "no parameter"),
        ] {
            let error = text.parse::<Pattern>().expect_err(text).to_string();
            assert!(error.contains(why), "{text}: {error}");
        }
    }
}
