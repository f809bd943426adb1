//! APN-AMBR and extended APN-AMBR (TS 24.301 9.9.4.2, 9.9.4.29).

use vireo_wire::nas_eps::{ExtendedApnAmbr, NasApnAggregateMaximumBitRate};

/// Highest rate of the APN-AMBR, in kbit/s.
const HIGHEST: u64 = 65_280_000;
/// Units of the extended APN-AMBR: 4 Mbit/s to 256 Pbit/s.
const UNITS: std::ops::RangeInclusive<u8> = 3..=0x15;

/// Returns the APN-AMBR: exact if possible, else rounded up. A rate above the highest is that one.
pub(super) fn apn_ambr(downlink_bps: u64, uplink_bps: u64) -> Option<NasApnAggregateMaximumBitRate> {
    NasApnAggregateMaximumBitRate::from_kbps(encodable_kbps(downlink_bps), encodable_kbps(uplink_bps)).ok()
}

/// Returns the extended APN-AMBR, rounded up, if a rate is above the highest of the APN-AMBR.
pub(super) fn extended_apn_ambr(downlink_bps: u64, uplink_bps: u64) -> Option<ExtendedApnAmbr> {
    let rates = [downlink_bps, uplink_bps].map(|bps| bps.div_ceil(1000));
    if rates.iter().all(|kbps| *kbps <= HIGHEST) {
        return None;
    }
    let [(dl_unit, dl_value), (ul_unit, ul_value)] = rates.map(extended_code);
    Some(ExtendedApnAmbr { dl_unit, dl_value, ul_unit, ul_value })
}

/// Returns unit and value of the lowest encodable rate that is not below `kbps`.
fn extended_code(kbps: u64) -> (u8, u16) {
    let code = |unit: u8| {
        let one = ExtendedApnAmbr { dl_unit: unit, dl_value: 1, ul_unit: unit, ul_value: 1 };
        Some((unit, u16::try_from(kbps.div_ceil(one.downlink_kbps()?)).ok()?))
    };
    UNITS.filter_map(code).next().unwrap_or((*UNITS.end(), u16::MAX))
}

/// Returns the lowest rate in kbit/s that the IE encodes and that is not below `bps`.
fn encodable_kbps(bps: u64) -> u64 {
    /// Steps of the coding, in kbit/s.
    const STEPS: [u64; 7] = [1, 8, 64, 100, 1_000, 2_000, 256_000];
    let kbps = bps.div_ceil(1000).clamp(1, HIGHEST);
    let rounded = STEPS.into_iter().map(|step| kbps.next_multiple_of(step));
    let encodable = |rate: &u64| NasApnAggregateMaximumBitRate::from_kbps(*rate, *rate).is_ok();
    rounded.filter(encodable).min().unwrap_or(HIGHEST)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn apn_rate_code_is_never_below_subscribed() {
        for (bps, kbps) in [
            (0, 1),
            (64_000, 64),
            (8_640_000, 8_640),
            (100_000_000, 100_000),
            (1_000_000_000, 1_000_000),
            (u64::MAX, 65_280_000),
        ] {
            assert_eq!(encodable_kbps(bps), kbps, "{bps}");
        }
        for bps in [999, 123_456_789, 7_777_777_777] {
            let coded = encodable_kbps(bps);
            assert!(coded * 1000 >= bps && coded * 1000 <= bps.max(1000) * 3 / 2, "{bps} is coded as {coded} kbit/s");
            assert!(apn_ambr(bps, bps).is_some());
        }
    }

    /// Units 3, 4 and 7 are 4 Mbit/s, 16 Mbit/s and 1 Gbit/s (table 9.9.4.29.1).
    #[test]
    fn rates_above_highest_are_extended() {
        assert_eq!(extended_apn_ambr(65_280_000_000, 1), None);
        let extended = extended_apn_ambr(100_000_000_000, 65_280_000_001).expect("above the highest");
        assert_eq!(extended.to_bytes(), [3, 0x61, 0xa8, 3, 0x3f, 0xc1]);
        for (bps, code) in [
            (0, (3, 0)),
            (262_140_000_000, (3, 65_535)),
            (262_140_000_001, (4, 16_384)),
            (4_000_000_000_001, (5, 62_501)),
            (u64::MAX, (0x11, 18_447)),
        ] {
            assert_eq!(extended_code(u64::div_ceil(bps, 1000)), code, "{bps}");
        }
    }
}
