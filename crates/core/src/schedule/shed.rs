//! What is turned away when there is more to do than can be done: new registrations first, then what UEs that are known
//! want of themselves, emergencies, handovers and what is under way never. And what RAN nodes are asked to keep from us
//! meanwhile (Overload Start, TS 38.413 8.7.7).

use super::kind::NfKind;
use crate::n2::{EstablishmentCause, ShallowView};
use serde::{Deserialize, Serialize};

/// How much of the room for waiting messages is full, 0 to 1, when what begins to be turned away.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Thresholds {
    /// New registrations.
    pub registrations: f64,
    /// Everything but emergencies, handovers and what is under way. Half way from [`Thresholds::registrations`] to it,
    /// updates and service requests without priority.
    pub others: f64,
}

/// What is turned away.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Level {
    /// Nothing.
    #[default]
    Normal,
    /// Registrations of UEs that are not known.
    Registrations,
    /// Registrations, updates and service requests, but of UEs with priority and of those that answer to paging.
    LowPriority,
    /// What begins and is no emergency, handover or deregistration.
    Others,
}

/// How much the room must have emptied before a level is left again, so that levels do not flutter.
const SLACK: f64 = 0.05;

impl Level {
    const ALL: [Level; 4] = [Level::Normal, Level::Registrations, Level::LowPriority, Level::Others];

    /// Where the level begins.
    fn begins(self, thresholds: &Thresholds) -> f64 {
        match self {
            Level::Normal => 0.0,
            Level::Registrations => thresholds.registrations,
            Level::LowPriority => (thresholds.registrations + thresholds.others) / 2.0,
            Level::Others => thresholds.others,
        }
    }

    /// The level now, with the room so full (0 to 1).
    pub fn after(self, fill: f64, thresholds: &Thresholds) -> Self {
        let holds = |level: &Level| {
            let slack = if *level <= self { SLACK } else { 0.0 };
            fill >= (level.begins(thresholds) - slack).max(0.0) || *level == Level::Normal
        };
        Level::ALL.into_iter().rev().find(holds).unwrap_or_default()
    }

    /// Whether a message is let in. `known`: it names a UE that has a context here.
    ///
    /// What is not the first message of a connection always is: it ends something that has begun, or is a handover.
    pub fn admits(self, view: &ShallowView, known: bool) -> bool {
        let Some(establishment) = view.establishment else { return true };
        // A UE that leaves makes room.
        if establishment == EstablishmentCause::Emergency || view.kind == NfKind::Deregistration {
            return true;
        }
        let new = view.kind == NfKind::Registration && !known;
        match self {
            Level::Normal => true,
            Level::Registrations => !new || establishment == EstablishmentCause::Priority,
            Level::LowPriority => {
                establishment <= EstablishmentCause::Terminating && !new
                    || establishment == EstablishmentCause::Priority
            }
            Level::Others => false,
        }
    }
}

/// What RAN nodes are asked to do with UEs that want to come (Overload Action, TS 38.413 9.3.1.105).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum OverloadResponse {
    /// Turn UEs away that come for signalling: to register, above all.
    RejectSignalling,
    /// Turn UEs away that come to send data and have no emergency.
    RejectNonEmergencyData,
    /// Let only emergencies and UEs in that were paged.
    PermitEmergencyAndTerminating,
    /// Let only UEs with priority and UEs in that were paged.
    PermitPriorityAndTerminating,
}

/// What an Overload Start asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OverloadAction {
    /// What is to be turned away.
    pub action: OverloadResponse,
    /// How much of it, in percent, 1 to 99 (AMF Traffic Load Reduction Indication, 9.3.1.106).
    pub percent: u8,
}

/// What RAN nodes are asked for while the room is so full: nothing below `start`; once asked, until it is below `stop`.
/// Above `start` the percentage grows with the room. Who is told anew when it has changed does well to wait for a change
/// that is worth a message.
pub fn relief(
    before: Option<OverloadAction>,
    fill: f64,
    level: Level,
    start: f64,
    stop: f64,
) -> Option<OverloadAction> {
    let asked = if before.is_some() { fill >= stop } else { fill >= start };
    if !asked {
        return None;
    }
    let action = match level {
        Level::Normal | Level::Registrations => OverloadResponse::RejectSignalling,
        Level::LowPriority => OverloadResponse::RejectNonEmergencyData,
        Level::Others => OverloadResponse::PermitEmergencyAndTerminating,
    };
    let over = (fill - stop) / (1.0 - stop).max(f64::EPSILON);
    // Tens: a finer figure would be another one all the time.
    let percent = ((over * 10.0).ceil() * 10.0).clamp(10.0, 99.0) as u8;
    Some(OverloadAction { action, percent })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::n2::Route;
    use vireo_types::{AmfUeNgapId, RanUeNgapId};

    const THRESHOLDS: Thresholds = Thresholds { registrations: 0.6, others: 0.8 };

    fn first(kind: NfKind, establishment: EstablishmentCause) -> ShallowView {
        let route = Route::Initial { ran_id: RanUeNgapId(1), s_tmsi: None };
        ShallowView { route, kind, establishment: Some(establishment) }
    }

    #[test]
    fn the_fuller_the_less_is_let_in() {
        use EstablishmentCause::*;
        use NfKind::{Deregistration, Mobility, Registration, ServiceRequest};
        // Which levels let it in, from Normal to Others.
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
            let seen: String = Level::ALL.iter().map(|l| if l.admits(&view, known) { '1' } else { '0' }).collect();
            assert_eq!(seen, expected, "{view:?} known {known}");
        }
    }

    #[test]
    fn what_is_under_way_and_handovers_are_always_let_in() {
        let route = Route::Ue(AmfUeNgapId::default());
        for kind in NfKind::ALL {
            let view = ShallowView { route, kind, establishment: None };
            assert!(Level::ALL.iter().all(|level| level.admits(&view, true)));
        }
    }

    #[test]
    fn levels_follow_the_room_without_fluttering() {
        let mut level = Level::Normal;
        let mut at = |fill: f64| {
            level = level.after(fill, &THRESHOLDS);
            level
        };
        assert_eq!([0.0, 0.59, 0.6, 0.56, 0.54].map(&mut at).map(|l| l as u8), [0, 0, 1, 1, 0]);
        assert_eq!([0.71, 0.66, 0.64, 1.0, 0.76, 0.74, 0.0].map(&mut at).map(|l| l as u8), [2, 2, 1, 3, 3, 2, 0]);
        let always = Thresholds { registrations: 0.0, others: 0.0 };
        assert_eq!(Level::Normal.after(0.0, &always), Level::Others);
        assert_eq!(Level::Normal.after(f64::NAN, &THRESHOLDS), Level::Normal);
    }

    #[test]
    fn ran_nodes_are_asked_for_more_the_fuller_it_is() {
        let ask = |before, fill, level| relief(before, fill, level, 0.5, 0.25);
        assert_eq!(ask(None, 0.4, Level::Normal), None);
        let asked = ask(None, 0.5, Level::Normal);
        assert_eq!(asked, Some(OverloadAction { action: OverloadResponse::RejectSignalling, percent: 40 }));
        assert_eq!(ask(asked, 0.39, Level::Normal).map(|r| r.percent), Some(20));
        assert_eq!(ask(asked, 0.25, Level::Normal).map(|r| r.percent), Some(10));
        assert_eq!(ask(asked, 0.24, Level::Normal), None);
        let full = OverloadAction { action: OverloadResponse::PermitEmergencyAndTerminating, percent: 99 };
        assert_eq!(ask(asked, 1.0, Level::Others), Some(full));
        assert_eq!(ask(None, 2.0, Level::LowPriority).map(|r| r.percent), Some(99));
    }
}
