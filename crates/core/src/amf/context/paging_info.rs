//! Parameters of paging: what a UE and its RAN node have said of how the UE is paged.

use super::{Ciot, Reachability, Registration, UeContext};
use crate::config::CoreConfig;
use crate::octets;
use serde::{Deserialize, Serialize};
use std::borrow::Cow;
use vireo_types::{Dialect, Duration, Instant, Tmsi, limits};

/// How an idle UE is paged, and when it listens.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PagingInfo {
    /// Dialect of the RAN node that reported the UE's radio capabilities, whose coding they have.
    pub coding: Dialect,
    /// UE Radio Capability for Paging, opaque (TS 36.413 9.2.1.98; TS 38.413 9.3.1.68, with its
    /// PER encoding).
    #[serde(with = "octets")]
    pub capability: Vec<u8>,
    /// UE specific DRX cycle in one dialect.
    pub drx: Option<(Dialect, DrxCycle)>,
    pub extended_drx: Option<ExtendedDrx>,
    pub power_saving: Option<PowerSaving>,
    /// Optimisations that decide how the UE is served once it responds.
    #[serde(default)]
    pub ciot: Ciot,
    /// UE radio capabilities in the coding of the other dialect.
    #[serde(default)]
    pub other: RadioCapability,
}

/// UE radio capabilities in the coding of one dialect, opaque. Empty = unknown.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RadioCapability {
    /// UE Radio Capability (TS 36.413 9.2.1.27; TS 38.413 9.3.1.74).
    #[serde(with = "octets")]
    pub whole: Vec<u8>,
    /// UE Radio Capability for Paging (TS 36.413 9.2.1.98; TS 38.413 9.3.1.68, with its PER
    /// encoding).
    #[serde(with = "octets")]
    pub paging: Vec<u8>,
}

impl RadioCapability {
    /// Returns the capabilities without those that are too large to be stored, because a part of
    /// one would not decode; and true if there are such.
    pub(crate) fn limited(self) -> (Self, bool) {
        let fits = |octets: &Vec<u8>, limit| octets.len() <= limit;
        let RadioCapability { whole, paging } = self;
        let whole_fits = fits(&whole, limits::UE_CAPABILITY_OCTETS);
        let paging_fits = fits(&paging, limits::PAGING_CAPABILITY_OCTETS);
        let stored = RadioCapability {
            whole: if whole_fits { whole } else { Vec::new() },
            paging: if paging_fits { paging } else { Vec::new() },
        };
        (stored, !whole_fits || !paging_fits)
    }
}

impl PagingInfo {
    /// Returns true if nothing is known of the UE.
    pub fn is_empty(&self) -> bool {
        let PagingInfo { coding, capability, drx, extended_drx, power_saving, ciot, other } = self;
        let none = drx.is_none() && extended_drx.is_none() && power_saving.is_none();
        let none = none && *other == RadioCapability::default();
        none && *coding == Dialect::Nr && capability.is_empty() && *ciot == Ciot::default()
    }

    /// Returns the UE specific DRX cycle in the dialect.
    pub(crate) fn drx_in(&self, dialect: Dialect) -> Option<DrxCycle> {
        self.drx.filter(|(own, _)| *own == dialect).map(|(_, cycle)| cycle)
    }

    /// Returns the UE Radio Capability for Paging, if it has the coding of the dialect.
    pub(crate) fn capability_for(&self, dialect: Dialect) -> Option<&[u8]> {
        let capability = if self.coding == dialect { &self.capability } else { &self.other.paging };
        Some(&capability[..]).filter(|octets| !octets.is_empty())
    }
}

/// DRX cycle in radio frames of 10 ms (TS 24.008 10.5.5.6, TS 24.501 9.11.3.2A).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum DrxCycle {
    Frames32,
    Frames64,
    Frames128,
    Frames256,
}

/// Returns cycle and paging time window of an [`ExtendedDrx`] in the types of a codec. NGAP and
/// S1AP have types of their own with the same values, in the order of those of NAS.
macro_rules! extended_drx_values {
    ($drx:expr, $Cycle:ident, $Window:ident) => {{
        const CYCLES: [$Cycle; 14] = [
            $Cycle::hfhalf,
            $Cycle::hf1,
            $Cycle::hf2,
            $Cycle::hf4,
            $Cycle::hf6,
            $Cycle::hf8,
            $Cycle::hf10,
            $Cycle::hf12,
            $Cycle::hf14,
            $Cycle::hf16,
            $Cycle::hf32,
            $Cycle::hf64,
            $Cycle::hf128,
            $Cycle::hf256,
        ];
        const WINDOWS: [$Window; 16] = [
            $Window::s1,
            $Window::s2,
            $Window::s3,
            $Window::s4,
            $Window::s5,
            $Window::s6,
            $Window::s7,
            $Window::s8,
            $Window::s9,
            $Window::s10,
            $Window::s11,
            $Window::s12,
            $Window::s13,
            $Window::s14,
            $Window::s15,
            $Window::s16,
        ];
        let cycle = CYCLES[usize::from($drx.cycle).min(CYCLES.len() - 1)];
        // A cycle of half a hyperframe has no window.
        let window = $drx.hyperframes().map(|_| WINDOWS[usize::from($drx.window & 15)]);
        (cycle, window)
    }};
}
pub(crate) use extended_drx_values;

/// Returns the Paging Priority of a level from 1 to 8 in the type of a codec; `None` for other
/// levels (TS 38.413 9.3.1.78, TS 36.413 9.2.1.78).
macro_rules! paging_priority {
    ($level:expr, $Priority:ident) => {{
        const PRIORITIES: [$Priority; 8] = [
            $Priority::priolevel1,
            $Priority::priolevel2,
            $Priority::priolevel3,
            $Priority::priolevel4,
            $Priority::priolevel5,
            $Priority::priolevel6,
            $Priority::priolevel7,
            $Priority::priolevel8,
        ];
        usize::from($level).checked_sub(1).and_then(|at| PRIORITIES.into_iter().nth(at))
    }};
}
pub(crate) use paging_priority;

/// Extended DRX (TS 24.008 10.5.5.32), of E-UTRA in wideband mode or of NR.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExtendedDrx {
    /// eDRX value: the coding of the cycle, 0 to 15; with [`ExtendedDrx::NR`] it is that of NR.
    pub cycle: u8,
    /// Coding of the paging time window, 0 to 15; with [`ExtendedDrx::LONG`] that of the second
    /// octet of the IE, 0 to 31.
    pub window: u8,
}

impl DrxCycle {
    /// Returns the cycle of a coding whose value for 32 frames is `first`: 6 in S1 mode (TS 24.008
    /// 10.5.5.6), 1 in 5GS (TS 24.501 9.11.3.2A). Other values are no cycle of the UE's own.
    pub(crate) fn from_value(value: u8, first: u8) -> Option<Self> {
        Some(match value.checked_sub(first)? {
            0 => DrxCycle::Frames32,
            1 => DrxCycle::Frames64,
            2 => DrxCycle::Frames128,
            3 => DrxCycle::Frames256,
            _ => return None,
        })
    }
}

impl ExtendedDrx {
    /// Mark of a cycle in the coding of NR.
    pub const NR: u8 = 0x80;
    /// Mark of an extended paging time window of NR, which the second octet of the IE has.
    pub const LONG: u8 = 0x80;

    /// Returns the parameters in the first octet of the IE, in the coding of E-UTRA.
    pub fn from_octet(octet: u8) -> Self {
        ExtendedDrx { cycle: octet & 15, window: octet >> 4 }
    }

    /// Returns the parameters with these codings in NR.
    pub fn in_nr(self) -> Self {
        ExtendedDrx { cycle: self.cycle | ExtendedDrx::NR, ..self }
    }

    /// Returns the parameters with the window in the second octet of the IE, if that is present. In
    /// NR it replaces that of the first octet.
    pub fn with_long_window(self, octet: Option<u8>) -> Self {
        octet.map_or(self, |octet| ExtendedDrx { window: octet & 31 | ExtendedDrx::LONG, ..self })
    }

    /// Returns true if the parameters are those of NR.
    pub fn is_nr(self) -> bool {
        self.cycle & ExtendedDrx::NR != 0
    }

    /// Returns the octets of the IE. It has a second one if the UE has sent one.
    pub fn octets(self) -> Vec<u8> {
        let window = self.window_value();
        let mut octets = vec![window.min(15) << 4 | self.cycle & 15];
        octets.extend((self.window & ExtendedDrx::LONG != 0).then_some(window));
        octets
    }

    /// Returns the value of the window, 0 to 31: 1.28 s for 0, and as much for each further one.
    pub(crate) fn window_value(self) -> u8 {
        match self.window & ExtendedDrx::LONG {
            0 => self.window & 15,
            _ => self.window & 31,
        }
    }

    /// Returns the cycle in hyperframes of 10.24 s; `None` for a cycle without paging hyperframe:
    /// 5.12 s in E-UTRA (TS 36.304 7.3), up to 10.24 s in NR (TS 38.304 7.4).
    pub fn hyperframes(self) -> Option<u64> {
        // TS 24.008 table 10.5.5.32.
        if self.is_nr() {
            // From 2.56 s on, each value doubles the cycle; 13 to 15 are read as 0.
            return Some(self.cycle & 15).filter(|value| (3..=12).contains(value)).map(|value| 1 << (value - 2));
        }
        match self.cycle {
            0 => None,
            1 => Some(1),
            2 => Some(2),
            3 => Some(4),
            4 => Some(6),
            5 => Some(8),
            6 => Some(10),
            7 => Some(12),
            8 => Some(14),
            9 => Some(16),
            10 => Some(32),
            11 => Some(64),
            12 => Some(128),
            // 14 and 15 are read as 13 (note 6).
            _ => Some(256),
        }
    }

    /// Returns the paging time window.
    pub fn window(self) -> Duration {
        Duration::from_millis((u64::from(self.window_value()) + 1) * 1280)
    }
}

/// Returns the Hashed ID of a UE, from which its paging hyperframes follow: the frame check
/// sequence of the 32 low bits of the S-TMSI (TS 36.304 7.3, TS 38.304 7.4).
pub(crate) fn hashed_id(tmsi: Tmsi) -> u32 {
    !tmsi.0.to_be_bytes().into_iter().fold(u32::MAX, |crc, octet| {
        (0..8).fold(crc ^ u32::from(octet) << 24, |crc, _| crc << 1 ^ if crc >> 31 == 1 { 0x04c1_1db7 } else { 0 })
    })
}

/// Power saving mode (TS 24.301 5.3.11).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PowerSaving {
    /// T3324 in seconds: the UE is reachable so long after it becomes idle.
    pub active_s: u32,
    /// T3412 extended value in seconds; `None` = T3412 has its usual value.
    pub periodic_s: Option<u32>,
}

impl UeContext {
    /// Stores radio capabilities that a RAN node reports, in the coding of its dialect and, as far
    /// as it knows them, in that of the other dialect.
    pub(crate) fn store_radio_capability(&mut self, coding: Dialect, own: RadioCapability, other: RadioCapability) {
        let info = &mut self.reachability.paging;
        if info.coding != coding {
            std::mem::swap(&mut self.radio_capability, &mut info.other.whole);
            std::mem::swap(&mut info.capability, &mut info.other.paging);
            info.coding = coding;
        }
        (self.radio_capability, info.capability) = (own.whole, own.paging);
        if !other.whole.is_empty() {
            info.other.whole = other.whole;
        }
        if !other.paging.is_empty() {
            info.other.paging = other.paging;
        }
    }

    /// Deletes the radio capability, so that the RAN node asks the UE (TS 23.401 5.11.2, TS 23.501
    /// 5.4.4.1).
    pub(crate) fn delete_radio_capability(&mut self) {
        self.radio_capability = Vec::new();
        self.reachability.paging.capability = Vec::new();
        self.reachability.paging.other = RadioCapability::default();
        self.reachability.paging.coding = Dialect::default();
    }

    /// Returns the UE Radio Capability in the coding of the dialect; nothing if it is unknown, and
    /// the RAN node asks the UE.
    pub(crate) fn radio_capability_for(&self, dialect: Dialect) -> &[u8] {
        let info = &self.reachability.paging;
        if info.coding == dialect { &self.radio_capability } else { &info.other.whole }
    }
}

impl UeContext {
    /// Returns how an idle UE is paged: with the parameters that it and its RAN node have sent. A
    /// UE with an emergency session does not use extended DRX (TS 24.301 5.3.12, TS 24.501
    /// 5.3.16).
    pub(crate) fn reachability_for_page(&self, config: &CoreConfig) -> Cow<'_, Reachability> {
        if self.reachability.paging.extended_drx.is_none() || !self.has_emergency_session(config) {
            return Cow::Borrowed(&self.reachability);
        }
        let mut reachability = self.reachability.clone();
        reachability.paging.extended_drx = None;
        Cow::Owned(reachability)
    }

    /// Starts the timer of a registered UE that becomes idle: the active timer in power saving
    /// mode, else the mobile reachable timer (TS 24.501 5.3.7; TS 24.301 5.3.5, 5.3.11). The latter
    /// is T3512 if the UE is registered for emergency services. A UE with an emergency session
    /// stays reachable.
    pub(crate) fn begin_idle(&mut self, config: &CoreConfig, now: Instant) {
        let saving = self.power_saving_now(config);
        let reachability = &mut self.reachability;
        reachability.unreachable = false;
        match saving {
            Some(PowerSaving { active_s: 0, .. }) => reachability.begin_sleep(config, now),
            Some(PowerSaving { active_s, .. }) => {
                reachability.expires = Some(now + Duration::from_secs(active_s.into()));
            }
            None => {
                let timers = config.timers;
                let is_emergency = self.registration == Registration::Emergency;
                let grace = if is_emergency { Duration::default() } else { timers.implicit_deregistration };
                let periodic = reachability.periodic(config);
                reachability.expires = (periodic.as_micros() > 0).then(|| now + periodic + grace);
            }
        }
    }

    /// Handles the expiry of the timer of a registered UE. Returns false if the UE is to be
    /// deregistered.
    pub(crate) fn on_reachability_expiry(&mut self, config: &CoreConfig, now: Instant) -> bool {
        if self.reachability.unreachable || self.registration == Registration::Emergency {
            return false;
        }
        if self.power_saving_now(config).is_some() {
            self.reachability.begin_sleep(config, now);
        } else {
            // Mobile reachable timer: paging ends, and the implicit deregistration timer starts (TS
            // 24.501 5.3.7).
            self.reachability.unreachable = true;
            self.reachability.expires = Some(now + config.timers.implicit_deregistration);
        }
        true
    }

    /// Returns the power saving of a UE that becomes idle; `None` while it has an emergency session
    /// (TS 24.301 5.3.11).
    fn power_saving_now(&self, config: &CoreConfig) -> Option<PowerSaving> {
        self.reachability.paging.power_saving.filter(|_| !self.has_emergency_session(config))
    }
}

impl Reachability {
    /// Returns true if the UE is in power saving mode: it is reachable again after its next
    /// request.
    pub fn sleeps(&self) -> bool {
        self.unreachable && self.paging.power_saving.is_some()
    }

    /// Ends the reachability of a UE whose active timer expires at `now`. The mobile reachable
    /// timer has the same effect as the active timer, and is followed by the implicit
    /// deregistration timer: both are one time here.
    fn begin_sleep(&mut self, config: &CoreConfig, now: Instant) {
        let active = self.paging.power_saving.map_or(0, |saving| saving.active_s.into());
        let periodic = self.periodic(config);
        let rest = Duration(periodic.as_micros().saturating_sub(Duration::from_secs(active).as_micros()));
        let grace = config.timers.implicit_deregistration;
        self.unreachable = true;
        self.expires = (periodic.as_micros() > 0).then(|| now + rest + grace + grace);
    }

    /// Returns the period of the UE's updates: T3412 extended value, or T3512.
    fn periodic(&self, config: &CoreConfig) -> Duration {
        let extended = self.paging.power_saving.and_then(|saving| saving.periodic_s);
        extended.map_or(config.timers.t3512, |seconds| Duration::from_secs(seconds.into()))
    }
}
