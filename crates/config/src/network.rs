//! Name and time zone of the network, which UEs display.

use crate::file;
use crate::problems::Problems;
use vireo_core::config::NetworkInformation;

/// Most characters of a name: in UCS2 they fit into its IE.
const NAME: usize = 100;

/// Returns the checked `[core.network]`.
pub(super) fn information(network: &file::Network, problems: &mut Problems) -> NetworkInformation {
    let file::Network { full_name, short_name, time_zone } = network;
    for (key, name) in [("core.network.full-name", full_name), ("core.network.short-name", short_name)] {
        let is_short = name.encode_utf16().count() <= NAME;
        problems.check(is_short, key, format_args!("0 to {NAME} characters are allowed"));
    }
    let zone = quarter_hours(time_zone);
    let what = "\"\" or an offset from UTC like \"+05:30\" is allowed, in quarters of an hour up to 19:45";
    problems.check(zone.is_some() || time_zone.is_empty(), "core.network.time-zone", what);
    NetworkInformation { full_name: full_name.clone(), short_name: short_name.clone(), time_zone: zone }
}

/// Reads an offset from UTC: sign, hours and minutes.
fn quarter_hours(text: &str) -> Option<i8> {
    let (hours, minutes) = text.strip_prefix(['+', '-'])?.split_once(':')?;
    let two_digits = |text: &str| (text.len() == 2).then(|| text.parse::<u8>().ok()).flatten();
    let (hours, minutes) = (two_digits(hours)?, two_digits(minutes)?);
    let quarters = i8::try_from(u16::from(hours) * 4 + u16::from(minutes) / 15).ok()?;
    let is_sound = quarters < 80 && minutes < 60 && minutes.is_multiple_of(15);
    is_sound.then_some(if text.starts_with('-') { -quarters } else { quarters })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn offsets_are_quarters_of_an_hour() {
        for (text, expected) in [
            ("+00:00", Some(0)),
            ("+05:30", Some(22)),
            ("-03:30", Some(-14)),
            ("+19:45", Some(79)),
            ("-20:00", None),
            ("+99:00", None),
            ("+01:10", None),
            ("+01:60", None),
            ("01:00", None),
            ("+1:00", None),
            ("+01", None),
        ] {
            assert_eq!(quarter_hours(text), expected, "{text}");
        }
    }

    #[test]
    fn wrong_names_and_zones_are_problems() {
        let problems = |name: &str, zone: &str| {
            let mut problems = Problems::default();
            let network = file::Network { full_name: name.into(), time_zone: zone.into(), ..Default::default() };
            let information = information(&network, &mut problems);
            (information.time_zone, problems.none_or(()).err().unwrap_or_default().join(","))
        };
        assert_eq!(problems("Vireo", "+01:00"), (Some(4), String::new()));
        assert_eq!(problems("", ""), (None, String::new()));
        assert!(problems("", "x").1.starts_with("core.network.time-zone: "));
        assert!(problems(&"x".repeat(101), "").1.starts_with("core.network.full-name: "));
    }
}
