//! Alarms: conditions that an operator must know of, with hysteresis.
//!
//! [`conditions`] derives conditions from a poll of the core and the machine. An alarm is raised
//! when its condition is bad in so many polls in a row, and cleared when it is good in so many.

pub(crate) mod certificate;
pub(crate) mod conditions;
pub(crate) mod webhook;

use crate::time::rfc3339;
use serde::Serialize;
use std::collections::{BTreeMap, VecDeque};
use utoipa::ToSchema;

/// Alarms that are kept, active ones included.
const MAX_ALARMS: usize = 1000;
/// Objects of one kind that are watched. Further ones are not.
const OBJECTS: usize = 256;

/// Kind of an alarm.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Kind {
    /// A RAN node that was known has no association.
    RanNodeLost,
    /// Too many procedures of a kind are later than their objective.
    ObjectiveMissed,
    /// A host or shard has ended without being drained.
    HostDead,
    /// An address pool is nearly or wholly in use.
    PoolExhausted,
    /// A certificate ends soon, or has ended.
    CertificateExpiring,
    /// The disk of the state directory is nearly full.
    DiskFull,
}

impl Kind {
    /// Returns the polls in a row after which an alarm is raised, and after which it is cleared.
    fn debounce(self) -> (u32, u32) {
        match self {
            Kind::RanNodeLost => (5, 1),
            Kind::ObjectiveMissed => (10, 30),
            Kind::HostDead => (1, 30),
            Kind::PoolExhausted => (3, 10),
            Kind::CertificateExpiring | Kind::DiskFull => (1, 1),
        }
    }
}

/// Severity of an alarm (ITU-T X.733).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Severity {
    Critical,
    Major,
    Minor,
    Warning,
    /// The alarm is over.
    Cleared,
}

/// State of a condition in one poll.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Level {
    Bad(Severity),
    /// Neither bad nor good: an alarm stays as it is.
    Between,
    Good,
}

/// A condition in one poll.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Condition {
    pub(crate) kind: Kind,
    pub(crate) object: String,
    pub(crate) level: Level,
    pub(crate) detail: String,
}

/// An alarm.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub(crate) struct Alarm {
    pub(crate) id: u64,
    pub(crate) kind: Kind,
    pub(crate) severity: Severity,
    raised_at: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    cleared_at: Option<String>,
    /// For example the ID of a RAN node, or a file.
    pub(crate) object: String,
    detail: String,
    /// Name of the token of whom has acknowledged the alarm.
    #[serde(skip_serializing_if = "Option::is_none")]
    acknowledged_by: Option<String>,
}

impl Alarm {
    fn is_active(&self) -> bool {
        self.severity != Severity::Cleared
    }
}

/// Numbers of consecutive polls in which one condition was bad or good.
#[derive(Clone, Copy, Debug, Default)]
struct ConditionHistory {
    bad: u32,
    good: u32,
    /// Number of its active alarm.
    alarm: Option<u64>,
}

/// All alarms.
#[derive(Debug, Default)]
pub(crate) struct Alarms {
    last: u64,
    histories: BTreeMap<(Kind, String), ConditionHistory>,
    /// By number, the oldest first.
    all: VecDeque<Alarm>,
}

impl Alarms {
    /// Evaluates the conditions of a poll. Returns the alarms that are raised, changed or cleared
    /// by it.
    pub(crate) fn evaluate(&mut self, conditions: Vec<Condition>, at: u64) -> Vec<Alarm> {
        let mut changed = Vec::new();
        for condition in conditions {
            let key = (condition.kind, condition.object.clone());
            if !self.histories.contains_key(&key) && (condition.level == Level::Good || self.is_full(condition.kind)) {
                continue;
            }
            let history = self.histories.entry(key.clone()).or_default();
            let (raise, clear) = condition.kind.debounce();
            (history.bad, history.good) = match condition.level {
                Level::Bad(_) => (history.bad.saturating_add(1), 0),
                Level::Between => (0, 0),
                Level::Good => (0, history.good.saturating_add(1)),
            };
            let history = *history;
            match (condition.level, history.alarm) {
                (Level::Bad(severity), Some(id)) => changed.extend(self.update(id, severity, &condition.detail)),
                (Level::Bad(severity), None) if history.bad >= raise => {
                    let alarm = self.raise(condition, severity, at);
                    self.histories.entry(key).or_default().alarm = Some(alarm.id);
                    changed.push(alarm);
                }
                (Level::Good, Some(id)) if history.good >= clear => {
                    changed.extend(self.clear(id, at));
                    self.histories.remove(&key);
                }
                (Level::Good, None) => {
                    self.histories.remove(&key);
                }
                _ => {}
            }
        }
        changed
    }

    /// Returns true if no further object of a kind is watched.
    fn is_full(&self, kind: Kind) -> bool {
        self.histories.keys().filter(|(known, _)| *known == kind).count() >= OBJECTS
    }

    fn raise(&mut self, condition: Condition, severity: Severity, at: u64) -> Alarm {
        self.last += 1;
        let Condition { kind, object, detail, .. } = condition;
        let raised_at = rfc3339(at);
        let alarm =
            Alarm { id: self.last, kind, severity, raised_at, cleared_at: None, object, detail, acknowledged_by: None };
        self.all.push_back(alarm.clone());
        if self.all.len() > MAX_ALARMS {
            // The oldest that is over, else the oldest.
            let over = self.all.iter().position(|alarm| !alarm.is_active()).unwrap_or(0);
            self.all.remove(over);
        }
        alarm
    }

    /// Changes severity and detail. Only another severity is news.
    fn update(&mut self, id: u64, severity: Severity, detail: &str) -> Option<Alarm> {
        let alarm = self.all.iter_mut().find(|alarm| alarm.id == id)?;
        detail.clone_into(&mut alarm.detail);
        let is_news = alarm.severity != severity;
        alarm.severity = severity;
        is_news.then(|| alarm.clone())
    }

    fn clear(&mut self, id: u64, at: u64) -> Option<Alarm> {
        let alarm = self.all.iter_mut().find(|alarm| alarm.id == id && alarm.is_active())?;
        (alarm.severity, alarm.cleared_at) = (Severity::Cleared, Some(rfc3339(at)));
        Some(alarm.clone())
    }

    /// Acknowledges an alarm. Returns `None` if there is none of this number; else the alarm if it
    /// is cleared by that: a RAN node or a host that does not come back.
    pub(crate) fn acknowledge(&mut self, id: u64, by: &str, at: u64) -> Option<Option<Alarm>> {
        let alarm = self.all.iter_mut().find(|alarm| alarm.id == id)?;
        alarm.acknowledged_by = Some(by.to_owned());
        if !matches!(alarm.kind, Kind::RanNodeLost | Kind::HostDead) {
            return Some(None);
        }
        let key = (alarm.kind, alarm.object.clone());
        self.histories.remove(&key);
        Some(self.clear(id, at))
    }

    /// Returns all alarms, the newest first.
    pub(crate) fn list(&self, active: Option<bool>) -> Vec<Alarm> {
        self.all.iter().rev().filter(|alarm| active.is_none_or(|active| alarm.is_active() == active)).cloned().collect()
    }

    /// Returns the number of active alarms of a severity.
    pub(crate) fn count(&self, severity: Severity) -> usize {
        self.all.iter().filter(|alarm| alarm.severity == severity).count()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn evaluate(alarms: &mut Alarms, kind: Kind, level: Level) -> Vec<Severity> {
        let condition = Condition { kind, object: "x".into(), level, detail: String::new() };
        alarms.evaluate(vec![condition], 100).into_iter().map(|alarm| alarm.severity).collect()
    }

    #[test]
    fn alarm_needs_consecutive_polls() {
        let (mut alarms, kind) = (Alarms::default(), Kind::PoolExhausted);
        let bad = Level::Bad(Severity::Major);
        for level in [bad, bad, Level::Good, bad, bad, Level::Between, bad, bad] {
            assert!(evaluate(&mut alarms, kind, level).is_empty());
        }
        assert_eq!(evaluate(&mut alarms, kind, bad), [Severity::Major]);
        assert!(evaluate(&mut alarms, kind, bad).is_empty(), "once");
        assert_eq!(evaluate(&mut alarms, kind, Level::Bad(Severity::Critical)), [Severity::Critical]);
        for _ in 0..9 {
            assert!(evaluate(&mut alarms, kind, Level::Good).is_empty());
        }
        // A value between the thresholds begins the row again.
        assert!(evaluate(&mut alarms, kind, Level::Between).is_empty());
        for _ in 0..9 {
            assert!(evaluate(&mut alarms, kind, Level::Good).is_empty());
        }
        assert_eq!(evaluate(&mut alarms, kind, Level::Good), [Severity::Cleared]);
        let [alarm] = &alarms.list(None)[..] else { panic!() };
        assert_eq!(alarm.cleared_at.as_deref(), Some("1970-01-01T00:01:40Z"));
        assert!(alarms.list(Some(true)).is_empty());
    }

    #[test]
    fn acknowledged_loss_is_over() {
        let mut alarms = Alarms::default();
        (0..5).for_each(|_| drop(evaluate(&mut alarms, Kind::RanNodeLost, Level::Bad(Severity::Major))));
        assert_eq!(alarms.count(Severity::Major), 1);
        assert_eq!(alarms.acknowledge(9, "ops", 0), None);
        let cleared = alarms.acknowledge(1, "ops", 0).flatten().map(|alarm| alarm.acknowledged_by);
        assert_eq!(cleared, Some(Some("ops".into())));
        assert_eq!(alarms.count(Severity::Major), 0);
        // That of a disk stays until there is room.
        evaluate(&mut alarms, Kind::DiskFull, Level::Bad(Severity::Warning));
        assert_eq!(alarms.acknowledge(2, "ops", 0), Some(None));
        assert_eq!(alarms.count(Severity::Warning), 1);
    }

    #[test]
    fn memory_of_alarms_is_bounded() {
        let mut alarms = Alarms::default();
        for n in 0..5000 {
            let object = format!("host {n}");
            let condition =
                |level| Condition { kind: Kind::DiskFull, object: object.clone(), level, detail: String::new() };
            alarms.evaluate(vec![condition(Level::Bad(Severity::Minor))], 0);
            if n >= 100 {
                alarms.evaluate(vec![condition(Level::Good)], 0);
            }
        }
        assert_eq!((alarms.all.len(), alarms.count(Severity::Minor)), (MAX_ALARMS, 100), "active ones stay");
        for n in 0..5000 {
            let (object, level) = (format!("new {n}"), Level::Bad(Severity::Minor));
            alarms.evaluate(vec![Condition { kind: Kind::DiskFull, object, level, detail: String::new() }], 0);
        }
        assert_eq!(alarms.histories.len(), OBJECTS);
    }
}
