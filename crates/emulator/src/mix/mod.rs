//! Steady load of registered UEs: procedures, rates and rest states.
//!
//! A [`Steady`] load has *groups* of UEs and *streams* of arrivals. A free UE of a group executes
//! the procedure of each arrival. Arrival times do not depend on the behaviour of the core. A
//! stream is made from weights ([`Steady::weighted`]) or from the profiles of a [`Mix`].

mod activity;
mod file;

pub(crate) use activity::SECOND_PSI;
pub use activity::{Activity, ActivityError, RestState};
pub use file::{Frequency, Mix, MixError, Profile};

use crate::load::Pattern;
use std::time::Duration;

/// UEs with the same rest state and the same activities.
#[derive(Clone, Debug, PartialEq)]
pub struct Group {
    /// Name in error texts.
    pub name: String,
    /// Share of all UEs, relative to the other groups.
    pub share: f64,
    /// State of its UEs between procedures.
    pub home: RestState,
    /// Time that a UE stays connected after a procedure before it returns to its rest state.
    pub dwell: Duration,
    /// Data that a UE sends once its user plane is available, if the run has echo targets.
    pub data: Data,
}

/// User data of a procedure that activates the user plane.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Data {
    /// Number of echoes on each session; 0 means no data.
    pub echoes: u32,
    /// Payload of each echo in bytes; 0 means the value of the run.
    pub octets: u16,
}

/// Possible activity of an arrival.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct WeightedActivity {
    pub activity: Activity,
    /// Index of the group whose UEs execute the activity.
    pub group: u8,
    /// Weight relative to the stream's other choices.
    pub weight: f64,
}

/// Rule that selects one of the free UEs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UePick {
    /// The UE that has been free for the longest time. With even arrivals each UE has its turn.
    Longest,
    Any,
}

/// Stream of arrivals.
#[derive(Clone, Debug, PartialEq)]
pub struct Stream {
    /// Arrival rate over time.
    pub pattern: Pattern,
    /// Mean rate in procedures per second.
    pub rate: f64,
    pub pick: UePick,
    pub choices: Vec<WeightedActivity>,
}

/// Steady load of registered UEs.
#[derive(Clone, Debug, PartialEq)]
pub struct Steady {
    pub groups: Vec<Group>,
    pub streams: Vec<Stream>,
}

impl Steady {
    /// Creates one stream of `rate` procedures per second whose kinds are chosen by weight. UEs
    /// that rest in the initial state of a kind ([`Activity::home`]) execute it; a handover needs
    /// UEs that stay connected. Group sizes are proportional to the weights of their kinds.
    pub fn weighted(kinds: &[(Activity, f64)], rate: f64, pattern: Pattern, dwell: Duration) -> Self {
        let mut groups: Vec<Group> = Vec::new();
        let mut choices = Vec::new();
        for (activity, weight) in kinds {
            let home = activity.home();
            let known = groups.iter().position(|group| group.home == home);
            let index = known.unwrap_or_else(|| {
                let name = home.name().into();
                groups.push(Group { name, share: 0.0, home, dwell, data: Data::default() });
                groups.len() - 1
            });
            groups[index].share += weight;
            // There are three rest states, hence at most three groups.
            choices.push(WeightedActivity { activity: *activity, group: index as u8, weight: *weight });
        }
        Steady { groups, streams: vec![Stream { pattern, rate, pick: UePick::Any, choices }] }
    }

    /// Returns true if its UEs move between gNBs.
    pub fn moves(&self) -> bool {
        self.choices().any(|choice| choice.activity.moves())
    }

    /// Returns true if its UEs send data when there is a target.
    pub fn has_data(&self) -> bool {
        self.groups.iter().any(|group| group.data.echoes > 0)
    }

    /// Returns true if its UEs are paged.
    pub(crate) fn pages(&self) -> bool {
        self.choices().any(|choice| choice.activity == Activity::Paging)
    }

    /// Returns the mean rate in procedures per second.
    pub fn rate(&self) -> f64 {
        self.streams.iter().map(|stream| stream.rate).sum()
    }

    fn choices(&self) -> impl Iterator<Item = &WeightedActivity> {
        self.streams.iter().flat_map(|stream| &stream.choices)
    }

    /// Returns the number of UEs of each group, by the largest remainders. A group with a share has
    /// at least one UE if there are enough.
    pub fn sizes(&self, ues: u32) -> Vec<u32> {
        let whole: f64 = self.groups.iter().map(|group| group.share).sum();
        let exact = |group: &Group| if whole > 0.0 { f64::from(ues) * group.share / whole } else { 0.0 };
        let mut sizes: Vec<u32> = self.groups.iter().map(|group| exact(group).floor() as u32).collect();
        let mut order: Vec<usize> = (0..sizes.len()).collect();
        let rest = |index: usize| exact(&self.groups[index]).fract();
        order.sort_by(|a, b| rest(*b).total_cmp(&rest(*a)));
        let missing = ues.saturating_sub(sizes.iter().sum()) as usize;
        for index in order.iter().cycle().take(if order.is_empty() { 0 } else { missing }) {
            sizes[*index] += 1;
        }
        for index in 0..sizes.len() {
            let largest = (0..sizes.len()).max_by_key(|index| sizes[*index]).unwrap_or(index);
            if sizes[index] == 0 && self.groups[index].share > 0.0 && sizes[largest] > 1 {
                sizes[index] += 1;
                sizes[largest] -= 1;
            }
        }
        sizes
    }

    /// Returns the reason for which the load is invalid with this number of UEs and threads.
    pub fn fault(&self, ues: u32, threads: u32) -> Option<String> {
        let nothing = |stream: &Stream| stream.choices.iter().all(|choice| choice.weight <= 0.0);
        if self.streams.iter().any(nothing) || self.rate() <= 0.0 {
            return Some("the load has no procedures: give --rate, and procedures with a weight above 0".into());
        }
        let sizes = self.sizes(ues);
        let silent = |choice: &WeightedActivity| {
            let group = self.groups.get(usize::from(choice.group));
            let needs = matches!(choice.activity, Activity::Data | Activity::Paging);
            needs && group.is_none_or(|group| group.data.echoes == 0)
        };
        if self.choices().any(silent) {
            return Some("data and paging are of profiles with echoes: use --mix, and set echoes there".into());
        }
        for choice in self.choices().filter(|choice| choice.weight > 0.0) {
            let Some(group) = self.groups.get(usize::from(choice.group)) else {
                return Some("a procedure of the load belongs to no UEs".into());
            };
            if sizes[usize::from(choice.group)] < threads {
                let name = &group.name;
                return Some(format!("too few UEs ({name}) for {}: give more UEs or fewer threads", choice.activity));
            }
        }
        None
    }
}

#[cfg(test)]
mod tests;
