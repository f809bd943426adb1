//! Paging of idle UEs, and power saving that they may request.

use crate::file;
use crate::problems::Problems;
use vireo_core::config::{PagingConfig, PowerSavingConfig, PowerSavingMode};
use vireo_types::{Duration, Instant};

/// Returns the checked `[core.paging]` and `[core.power-saving]`.
pub(super) fn paging(core: &file::Core, problems: &mut Problems) -> PagingConfig {
    let file::Paging { last_node_first, priority_levels } = core.paging;
    problems.check(priority_levels <= 8, "core.paging.priority-levels", "0 to 8 is allowed");
    PagingConfig { last_node_first, priority_levels, power_saving: power_saving(&core.power_saving, problems) }
}

fn power_saving(saving: &file::PowerSaving, problems: &mut Problems) -> PowerSavingConfig {
    let active = (Duration(0)..=Duration::from_secs(11_160)).contains(&saving.active_time.0);
    problems.check(active, "core.power-saving.active-time", "0s to 3h 6m is allowed");
    let periodic = (Duration::from_secs(60)..=Duration::from_secs(413 * 86_400)).contains(&saving.periodic_update.0);
    problems.check(periodic, "core.power-saving.periodic-update", "1m to 413days is allowed");
    let epoch = saving.hyperframe_epoch <= 1 << 32;
    problems.check(epoch, "core.power-saving.hyperframe-epoch", "a Unix time in seconds is allowed, 0 to 4294967296");
    let mode = PowerSavingMode { active_time: saving.active_time.0, periodic_update: saving.periodic_update.0 };
    let epoch = Instant(saving.hyperframe_epoch.saturating_mul(1_000_000));
    PowerSavingConfig { mode: saving.psm.then_some(mode), extended_drx: saving.extended_drx.then_some(epoch) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wrong_priority_levels_are_a_problem() {
        let problem = |priority_levels| {
            let mut problems = Problems::default();
            let paging = file::Paging { priority_levels, ..file::Paging::default() };
            let read = super::paging(&file::Core { paging, ..file::Core::default() }, &mut problems);
            (read.priority_levels, problems.none_or(()).err().unwrap_or_default().join(","))
        };
        assert_eq!(problem(8), (8, String::new()));
        assert_eq!(problem(9).1, "core.paging.priority-levels: 0 to 8 is allowed");
    }
}
