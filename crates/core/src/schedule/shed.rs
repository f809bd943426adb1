//! Load shedding: admission of messages during overload.
//!
//! New registrations are rejected first, then requests of known UEs on their own initiative.
//! Emergencies, handovers and procedures in progress are never rejected. RAN nodes are meanwhile
//! asked to reduce signalling (Overload Start, TS 38.413 8.7.7).

use super::kind::NfKind;
use crate::amf::n2::{EstablishmentCause, ShallowView};
use serde::{Deserialize, Serialize};

/// Fill levels of the message queues, 0 to 1, at which rejection starts.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Thresholds {
    /// Threshold for new registrations.
    pub registrations: f64,
    /// Threshold for everything but emergencies, handovers and procedures in progress. Updates and
    /// service requests without priority are rejected from half way between
    /// [`Thresholds::registrations`] and this value.
    pub new_procedures: f64,
}

/// Overload level: the messages that are rejected.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum OverloadLevel {
    /// No message is rejected.
    #[default]
    Normal,
    /// Registrations of unknown UEs.
    Registrations,
    /// Registrations, updates and service requests, except those of UEs with priority or in
    /// response to paging.
    LowPriority,
    /// All new procedures except emergencies, handovers and deregistrations.
    NewProcedures,
}

/// Hysteresis: the fill level must fall this much below a threshold before the level is left.
const SLACK: f64 = 0.05;

impl OverloadLevel {
    const ALL: [OverloadLevel; 4] =
        [OverloadLevel::Normal, OverloadLevel::Registrations, OverloadLevel::LowPriority, OverloadLevel::NewProcedures];

    /// Returns the fill level at which the level starts.
    fn begins(self, thresholds: &Thresholds) -> f64 {
        match self {
            OverloadLevel::Normal => 0.0,
            OverloadLevel::Registrations => thresholds.registrations,
            OverloadLevel::LowPriority => (thresholds.registrations + thresholds.new_procedures) / 2.0,
            OverloadLevel::NewProcedures => thresholds.new_procedures,
        }
    }

    /// Returns the next level at this fill level (0 to 1).
    pub fn after(self, fill: f64, thresholds: &Thresholds) -> Self {
        let holds = |level: &OverloadLevel| {
            let slack = if *level <= self { SLACK } else { 0.0 };
            fill >= (level.begins(thresholds) - slack).max(0.0) || *level == OverloadLevel::Normal
        };
        OverloadLevel::ALL.into_iter().rev().find(holds).unwrap_or_default()
    }

    /// Returns true if a message is admitted. `known` is true if it names a UE that has a context
    /// here.
    ///
    /// A message that is not the first one of a connection is always admitted: it belongs to a
    /// procedure in progress, or is a handover.
    pub fn admits(self, view: &ShallowView, known: bool) -> bool {
        let Some(establishment) = view.establishment else { return true };
        // A deregistering UE frees resources.
        if establishment == EstablishmentCause::Emergency || view.kind == NfKind::Deregistration {
            return true;
        }
        let new = view.kind == NfKind::Registration && !known;
        match self {
            OverloadLevel::Normal => true,
            OverloadLevel::Registrations => !new || establishment == EstablishmentCause::Priority,
            OverloadLevel::LowPriority => {
                establishment <= EstablishmentCause::Terminating && !new
                    || establishment == EstablishmentCause::Priority
            }
            OverloadLevel::NewProcedures => false,
        }
    }
}

/// Requested behaviour of RAN nodes towards new connections (Overload Action, TS 38.413 9.3.1.105).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum OverloadResponse {
    /// Reject UEs that connect for signalling, mainly registrations.
    RejectSignalling,
    /// Reject UEs that connect for non-emergency data.
    RejectNonEmergencyData,
    /// Admit only emergencies and UEs that were paged.
    PermitEmergencyAndTerminating,
    /// Admit only UEs with priority and UEs that were paged.
    PermitPriorityAndTerminating,
}

/// Contents of OVERLOAD START.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OverloadAction {
    pub action: OverloadResponse,
    /// Percentage of this traffic to reject, 1 to 99 (AMF Traffic Load Reduction Indication,
    /// 9.3.1.106).
    pub percent: u8,
}

/// Returns the action to request from RAN nodes at this fill level. It starts at `start` and ends
/// below `stop`; in between, the previous state continues. The percentage grows with the fill
/// level. A caller should send an update only for a significant change.
pub fn relief(
    before: Option<OverloadAction>,
    fill: f64,
    level: OverloadLevel,
    start: f64,
    stop: f64,
) -> Option<OverloadAction> {
    let is_overloaded = if before.is_some() { fill >= stop } else { fill >= start };
    if !is_overloaded {
        return None;
    }
    let action = match level {
        OverloadLevel::Normal | OverloadLevel::Registrations => OverloadResponse::RejectSignalling,
        OverloadLevel::LowPriority => OverloadResponse::RejectNonEmergencyData,
        OverloadLevel::NewProcedures => OverloadResponse::PermitEmergencyAndTerminating,
    };
    let over = (fill - stop) / (1.0 - stop).max(f64::EPSILON);
    // Tens of percent: a finer value would change all the time.
    let percent = ((over * 10.0).ceil() * 10.0).clamp(10.0, 99.0) as u8;
    Some(OverloadAction { action, percent })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::amf::n2::Route;
    use vireo_types::{AmfUeNgapId, RanUeNgapId};

    const THRESHOLDS: Thresholds = Thresholds { registrations: 0.6, new_procedures: 0.8 };

    fn first(kind: NfKind, establishment: EstablishmentCause) -> ShallowView {
        let route = Route::Initial { ran_id: RanUeNgapId(1), s_tmsi: None, nas_identity: None };
        ShallowView { route, ran_id: None, kind, establishment: Some(establishment) }
    }

    #[test]
    fn fuller_queue_admits_less() {
        use EstablishmentCause::*;
        use NfKind::{Deregistration, Mobility, Registration, ServiceRequest};
        // Levels that admit the message, from Normal to Others.
        let cases = [
            (first(Registration, Originating), false, "1000"),
            (first(Registration, Originating), true, "1100"),
            (first(Registration, Terminating), false, "1000"),
            (first(Registration, Priority), false, "1110"),
            (first(Registration, Emergency), false, "1111"),
            (first(Mobility, Originating), true, "1100"),
            (first(Mobility, Terminating), true, "1110"),
            (first(Mobility, Priority), true, "1110"),
            (first(ServiceRequest, Originating), true, "1100"),
            (first(ServiceRequest, Terminating), true, "1110"),
            (first(ServiceRequest, Emergency), true, "1111"),
            (first(Deregistration, Originating), true, "1111"),
        ];
        for (view, known, expected) in cases {
            let seen: String =
                OverloadLevel::ALL.iter().map(|l| if l.admits(&view, known) { '1' } else { '0' }).collect();
            assert_eq!(seen, expected, "{view:?} known {known}");
        }
    }

    #[test]
    fn running_procedures_and_handovers_are_admitted() {
        let route = Route::Ue(AmfUeNgapId::default());
        for kind in NfKind::ALL {
            let view = ShallowView { route, ran_id: None, kind, establishment: None };
            assert!(OverloadLevel::ALL.iter().all(|level| level.admits(&view, true)));
        }
    }

    #[test]
    fn levels_follow_the_room_without_fluttering() {
        let mut level = OverloadLevel::Normal;
        let mut at = |fill: f64| {
            level = level.after(fill, &THRESHOLDS);
            level
        };
        assert_eq!([0.0, 0.59, 0.6, 0.56, 0.54].map(&mut at).map(|l| l as u8), [0, 0, 1, 1, 0]);
        assert_eq!([0.71, 0.66, 0.64, 1.0, 0.76, 0.74, 0.0].map(&mut at).map(|l| l as u8), [2, 2, 1, 3, 3, 2, 0]);
        let always = Thresholds { registrations: 0.0, new_procedures: 0.0 };
        assert_eq!(OverloadLevel::Normal.after(0.0, &always), OverloadLevel::NewProcedures);
        assert_eq!(OverloadLevel::Normal.after(f64::NAN, &THRESHOLDS), OverloadLevel::Normal);
    }

    #[test]
    fn ran_nodes_are_asked_for_more_the_fuller_it_is() {
        let decide = |before, fill, level| relief(before, fill, level, 0.5, 0.25);
        assert_eq!(decide(None, 0.4, OverloadLevel::Normal), None);
        let action = decide(None, 0.5, OverloadLevel::Normal);
        assert_eq!(action, Some(OverloadAction { action: OverloadResponse::RejectSignalling, percent: 40 }));
        assert_eq!(decide(action, 0.39, OverloadLevel::Normal).map(|r| r.percent), Some(20));
        assert_eq!(decide(action, 0.25, OverloadLevel::Normal).map(|r| r.percent), Some(10));
        assert_eq!(decide(action, 0.24, OverloadLevel::Normal), None);
        let full = OverloadAction { action: OverloadResponse::PermitEmergencyAndTerminating, percent: 99 };
        assert_eq!(decide(action, 1.0, OverloadLevel::NewProcedures), Some(full));
        assert_eq!(decide(None, 2.0, OverloadLevel::LowPriority).map(|r| r.percent), Some(99));
    }
}
