//! `--churn`: hosts join and are killed in turn, under traffic and with default cluster settings.
//!
//! More hosts join than the UE address pools have partitions (`cluster.address-parts`). The
//! controller therefore reassigns pool partitions of departed hosts. Some UEs stay connected and
//! send without a pause. Some resume from idle repeatedly, by themselves and by paging. Some
//! register again and receive other addresses.
//!
//! With `--shards`, the shards of one process tree are killed in turn, and the core replaces them.

use super::args::Args;
use super::cluster_event::Event;
use crate::emulator::{EmulatorOptions, Load};
use vireo_config::Failure;

/// Path in the lab's own `/tmp`.
const MIX: &str = "/tmp/churn.toml";
/// Interval between packets of a connected UE, in milliseconds.
const SENDS_EVERY_MS: u64 = 200;
/// Share of UEs that register again, in tenths.
const RENEWING: u32 = 1;

/// Returns the events: `count` hosts join, and after each of them one host is killed. Shards are
/// replaced by the core.
pub(super) fn events(count: u16, has_shards: bool) -> Vec<Event> {
    if has_shards {
        return vec![Event::KillShard; count.into()];
    }
    (0..count).flat_map(|_| [Event::Add, Event::Kill]).collect()
}

/// Returns the least number of UEs that are registered at any time. The other UEs may be
/// registering again.
pub(super) fn min_registered(ues: u32) -> u32 {
    ues - (ues * RENEWING).div_ceil(10)
}

/// Returns the device profiles of the UEs.
fn mix() -> String {
    format!(
        "[[profile]]\nname = \"streaming\"\nshare = 5\nstay-connected = true\nechoes = 1\n\
         procedures.data = {{ every = \"{SENDS_EVERY_MS}ms\" }}\n\
         [[profile]]\nname = \"reporting\"\nshare = 4\ndwell = \"300ms\"\nechoes = 1\n\
         procedures.service-request = {{ every = \"4s\" }}\n\
         procedures.paging = {{ every = \"4s\" }}\n\
         [[profile]]\nname = \"renewing\"\nshare = {RENEWING}\ndwell = \"300ms\"\n\
         procedures.registration-session = {{ every = \"4s\" }}\n"
    )
}

/// Returns the emulator options: `common` with the profiles of [`mix`].
pub(super) fn emulator_options(args: &Args, common: EmulatorOptions) -> Result<EmulatorOptions, Failure> {
    std::fs::write(MIX, mix())?;
    let mut more = common.more;
    more.extend(["--mix", MIX, "--echo-tries", "20"].map(str::to_owned));
    let defaults = EmulatorOptions::default();
    Ok(EmulatorOptions { core: defaults.core, ues: args.ues, load: Load::Window(20), more, ..common })
}

#[cfg(test)]
mod tests {
    use super::*;
    use vireo_emulator::mix::Mix;

    #[test]
    fn churn_mix_has_traffic_for_every_ue() {
        let steady = mix().parse::<Mix>().unwrap().steady(100, None, None);
        assert_eq!((steady.fault(100, 1), steady.has_data()), (None, true));
        assert_eq!((steady.sizes(100), min_registered(100)), (vec![50, 40, 10], 90));
        assert_eq!(min_registered(20), 18);
    }

    #[test]
    fn churn_events_alternate() {
        assert_eq!(events(2, true), [Event::KillShard; 2]);
        let events = events(2, false);
        assert!(matches!(events[..], [Event::Add, Event::Kill, Event::Add, Event::Kill]), "{events:?}");
    }
}
