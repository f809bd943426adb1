//! Periods that GPRS timers encode (TS 24.008 10.5.7.3, 10.5.7.4, 10.5.7.4a).

/// Units of GPRS timer and GPRS timer 2 in seconds.
pub(crate) const TIMER_2: &[u64] = &[2, 60, 360];
/// Units of GPRS timer 3 in seconds, as T3512 and T3412 extended value.
pub(crate) const TIMER_3: &[u64] = &[2, 30, 60, 600, 3600, 36_000, 1_152_000];
/// Codings of [`TIMER_3`].
const CODES: [u8; 7] = [3, 4, 5, 0, 1, 2, 6];
/// Highest count of a unit.
const LARGEST: u64 = 31;
/// Octet of GPRS timer 3 that means that the timer is deactivated.
const DEACTIVATED: u8 = 0b111_00000;

/// Returns the longest period in seconds that a timer of these units encodes, at most this one.
pub(crate) fn at_most(seconds: u64, units: &[u64]) -> u64 {
    units.iter().map(|unit| (seconds / unit).min(LARGEST) * unit).max().unwrap_or(0)
}

/// Encodes a period as GPRS timer 3; `None` if it has no encoding.
pub(crate) fn timer_3(seconds: u64) -> Option<u8> {
    let exact = |(unit, code): (&u64, u8)| {
        let value = seconds / unit;
        (value * unit == seconds && value <= LARGEST).then_some(code << 5 | value as u8)
    };
    TIMER_3.iter().zip(CODES).find_map(exact)
}

/// Encodes the period of periodic registrations (T3512) as GPRS timer 3: the longest one that is
/// not longer, since a UE that updates later would be deregistered. 0 = none.
pub(crate) fn t3512(seconds: u64) -> u8 {
    let period = at_most(seconds, TIMER_3);
    timer_3(period).filter(|_| period > 0).unwrap_or(DEACTIVATED)
}

#[cfg(test)]
mod tests {
    use super::*;
    use vireo_wire::nas::{NasGprsTimer2, NasT3512Value};
    use vireo_wire::nas_eps::NasT3412ExtendedValue;

    #[test]
    fn periods_are_encodable_and_not_longer() {
        for period in [0, 1, 2, 61, 62, 63, 100, 1861, 3599, 11_160, 11_161, 100_000, 1_116_000, 35_712_000, u64::MAX] {
            let (short, long) = (at_most(period, TIMER_2), at_most(period, TIMER_3));
            assert!(short <= period && long <= period, "{short} {long}");
            assert_eq!(NasGprsTimer2::from_seconds(short).expect("a value").to_seconds(), Some(short));
            let timer = timer_3(long).map(|octet| NasT3412ExtendedValue::new(vec![octet]));
            let seconds = timer.expect("a value").to_seconds_with_integrity(true);
            assert_eq!(seconds.unwrap_or_default(), long);
        }
        assert_eq!((at_most(7200, TIMER_2), at_most(3599, TIMER_3)), (7200, 3000));
    }

    /// The default of the specification, 54 minutes, has no coding (TS 24.501 table 10.2.1).
    #[test]
    fn ues_update_no_later_than_configured() {
        for (configured, sent) in
            [(54 * 60, Some(50 * 60)), (61, Some(60)), (3600, Some(3600)), (2, Some(2)), (0, None)]
        {
            let value = NasT3512Value::new(vec![t3512(configured)]);
            assert_eq!(value.to_seconds(), sent, "{configured} s");
        }
    }
}
