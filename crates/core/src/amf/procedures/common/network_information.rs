//! Name and local time of the network, which a UE displays (TS 24.501 5.4.4, TS 24.301 5.4.5).

use crate::config::NetworkInformation;
use crate::step::StepContext;
use vireo_types::{Dialect, Instant};
use vireo_wire::nas::{NasConfigurationUpdateCommand, NasNetworkName, NasTimeZone, NasTimeZoneAndTime};
use vireo_wire::nas_eps::NasEmmInformation;

/// Sends what is configured: CONFIGURATION UPDATE COMMAND without acknowledgement, or EMM
/// INFORMATION.
pub fn send(ctx: &mut StepContext<'_, '_>) {
    let information = &ctx.env.config.information;
    let name = |name: &String| (!name.is_empty()).then(|| NasNetworkName::from_name(name, false));
    let (full, short) = (name(&information.full_name), name(&information.short_name));
    let time = information.time_zone.and_then(|zone| time(ctx.now(), zone));
    if *information == NetworkInformation::default() {
        return;
    }
    match ctx.ue.dialect() {
        Dialect::Nr => {
            let mut command = NasConfigurationUpdateCommand::new();
            (command.full_name_for_network, command.short_name_for_network) = (full, short);
            command.universal_time_and_local_time_zone = time;
            ctx.send_nas(command.into());
        }
        Dialect::Eps => {
            let mut message = NasEmmInformation::new();
            (message.full_name_for_network, message.short_name_for_network) = (full, short);
            message.universal_time_and_local_time_zone = time;
            ctx.send_emm(message);
        }
    }
}

/// Encodes a time in UTC, with the offset of local time in quarters of an hour (TS 24.008
/// 10.5.3.9).
fn time(now: Instant, zone: i8) -> Option<NasTimeZoneAndTime> {
    const DAY: u64 = 24 * 3600;
    let seconds = now.0 / 1_000_000;
    let (days, rest) = (seconds / DAY, seconds % DAY);
    let [year, month, day] = date(days);
    let fields = [year % 100, month, day, rest / 3600, rest / 60 % 60, rest % 60];
    // Digits are swapped: the units are in the upper half.
    let digits = fields.map(|field| (field % 10) as u8 * 16 + (field / 10) as u8);
    let zone = NasTimeZone::from_quarter_hours(zone).ok()?;
    Some(NasTimeZoneAndTime::new([&digits[..], &[zone.raw()]].concat()))
}

/// Returns year, month and day of a number of days since 1 January 1970. Years begin in March, so
/// that the leap day is the last day of one.
fn date(days: u64) -> [u64; 3] {
    /// Days from 1 March of year 0 to 1 January 1970.
    const EPOCH: u64 = 719_468;
    const ERA: u64 = 146_097;
    let days = days + EPOCH;
    let (era, day) = (days / ERA, days % ERA);
    let year = (day - day / 1_460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153;
    let of_month = day - (153 * month + 2) / 5 + 1;
    let (month, carry) = if month < 10 { (month + 3, 0) } else { (month - 9, 1) };
    [era * 400 + year + carry, month, of_month]
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The numbers are of `date -u -d TEXT +%s`.
    #[test]
    fn time_has_swapped_digits_and_zone() {
        let octets = |seconds: u64, zone| time(Instant(seconds * 1_000_000), zone).map(|time| time.value.to_vec());
        for (seconds, zone, digits) in [
            (0, 0, "07101000000000"),
            (951_825_599, 8, "00209211959580"),
            (1_709_251_199, -14, "42209232959549"),
            (1_795_964_645, 4, "62119251405040"),
        ] {
            assert_eq!(octets(seconds, zone).map(hex::encode).as_deref(), Some(digits), "{seconds}");
        }
        assert_eq!(octets(0, 80), None);
    }
}
