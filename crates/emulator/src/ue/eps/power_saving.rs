//! Power saving mode and extended DRX of the UE (TS 24.301 5.3.11, 5.3.12).

use super::attach::encoding;
use super::{CommandError, LteUe, UeOutput};
use crate::ue::PowerSaving;
use vireo_wire::nas_eps::{NasExtendedDrxParameters, NasGprsTimer2, NasT3412ExtendedValue};

/// T3412 extended value: 10 minutes (TS 24.008 10.5.7.4a).
const PERIODIC: [u8; 1] = [0x01];
const PERIODIC_S: u64 = 600;
/// The shortest cycle of extended DRX with a paging time window, 10.24 s, and a window of 2.56 s
/// (TS 24.008 10.5.5.32).
const EXTENDED_DRX: [u8; 1] = [0x11];

/// IEs of an attach or update.
#[derive(Default)]
pub(super) struct SavingRequest {
    pub(super) t3324: Option<NasGprsTimer2>,
    pub(super) t3412: Option<NasT3412ExtendedValue>,
    pub(super) extended_drx: Option<NasExtendedDrxParameters>,
}

impl LteUe {
    pub(super) fn requested_saving(&self) -> Result<SavingRequest, CommandError> {
        Ok(match self.saving {
            Some(PowerSaving::Mode) => SavingRequest {
                t3324: Some(NasGprsTimer2::from_seconds(PowerSaving::ACTIVE_S).map_err(encoding)?),
                t3412: Some(NasT3412ExtendedValue::new(PERIODIC)),
                extended_drx: None,
            },
            Some(PowerSaving::ExtendedDrx) => SavingRequest {
                extended_drx: Some(NasExtendedDrxParameters::new(EXTENDED_DRX)),
                ..SavingRequest::default()
            },
            None => SavingRequest::default(),
        })
    }

    /// Stores and checks what an accept grants. `timers` are T3324 and T3412 extended value.
    pub(super) fn take_saving(
        &mut self,
        timers: (Option<&NasGprsTimer2>, Option<&NasT3412ExtendedValue>),
        extended_drx: Option<&NasExtendedDrxParameters>,
        out: &mut UeOutput,
    ) {
        self.extended_drx = extended_drx.and_then(|parameters| parameters.value.first()).copied();
        let periodic_s = timers.1.and_then(|timer| timer.to_seconds_with_integrity(true));
        let is_mode = timers.0.is_some() && periodic_s == Some(PERIODIC_S);
        self.check_saving(is_mode, self.extended_drx.is_some(), out);
    }
}
