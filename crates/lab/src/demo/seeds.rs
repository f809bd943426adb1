//! Seeds of random runs.

use std::str::FromStr;

/// Seeds `from..=to` of the runs: `7`, or `1..20`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Seeds {
    pub(super) from: u64,
    pub(super) to: u64,
}

impl FromStr for Seeds {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = "write a number, or two as in 1..20";
        let (from, to) = text.split_once("..").unwrap_or((text, text));
        let number = |text: &str| text.trim_start_matches('=').parse().map_err(|_| wrong.to_owned());
        let seeds = Seeds { from: number(from)?, to: number(to)? };
        if seeds.from <= seeds.to { Ok(seeds) } else { Err(wrong.into()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seeds_are_number_or_range() {
        assert_eq!("7".parse(), Ok(Seeds { from: 7, to: 7 }));
        assert_eq!("1..20".parse(), Ok(Seeds { from: 1, to: 20 }));
        for wrong in ["", "2..1", "a", "1..b", "-1"] {
            assert!(wrong.parse::<Seeds>().is_err(), "{wrong}");
        }
    }
}
