//! What registered UEs do in a steady load: which procedures, how often, and where they rest between them.
//!
//! A [`Steady`] load has *groups* of UEs and *streams* of arrivals. Each arrival of a stream is a procedure that a free
//! UE of a group carries out; nothing that the core does changes when the next one is due. A stream is made from
//! weights ([`Steady::weighted`]) or from the profiles of a [`Mix`].

mod activity;
mod file;

pub(crate) use activity::SECOND_PSI;
pub use activity::{Activity, RestState};
pub use file::{Frequency, Mix, MixError, Profile};

use crate::load::Pattern;
use std::time::Duration;

/// UEs that rest in the same state and do the same things.
#[derive(Clone, Debug, PartialEq)]
pub struct Group {
    /// Its name in errors.
    pub name: String,
    /// Its share of all UEs, relative to the other groups'.
    pub share: f64,
    /// Where its UEs are between procedures.
    pub home: RestState,
    /// How long a UE stays connected after a procedure before it goes home.
    pub dwell: Duration,
    /// What is sent when a UE is connected with its user plane, if the run has echo targets.
    pub data: Data,
}

/// The user data of a procedure that brings the user plane up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Data {
    /// Echoes on each session; with none there is no data.
    pub echoes: u32,
    /// Octets of payload of each; 0 takes the run's.
    pub octets: u16,
}

/// One kind of work that an arrival may be.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct WeightedActivity {
    /// What is done.
    pub activity: Activity,
    /// Index of the group whose UEs do it.
    pub group: u8,
    /// How often, relative to the stream's other choices.
    pub weight: f64,
}

/// Which of the free UEs does it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UePick {
    /// The one that has been free for the longest time: with even arrivals, each UE in its turn.
    Longest,
    /// Any, at random.
    Any,
}

/// A stream of arrivals.
#[derive(Clone, Debug, PartialEq)]
pub struct Stream {
    /// How its rate goes over time.
    pub pattern: Pattern,
    /// Procedures in a second, in the mean.
    pub rate: f64,
    /// Who does them.
    pub pick: UePick,
    /// What they are.
    pub choices: Vec<WeightedActivity>,
}

/// What registered UEs do.
#[derive(Clone, Debug, PartialEq)]
pub struct Steady {
    /// The UEs.
    pub groups: Vec<Group>,
    /// What they do.
    pub streams: Vec<Stream>,
}

impl Steady {
    /// One stream of `rate` procedures in a second whose kinds are chosen by weight. Each kind is done by UEs that rest
    /// where it begins ([`Activity::home`]): a handover by UEs that stay connected. These groups are as large as their
    /// kinds' weights.
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
            // there are three homes, hence three groups at the most
            choices.push(WeightedActivity { activity: *activity, group: index as u8, weight: *weight });
        }
        Steady { groups, streams: vec![Stream { pattern, rate, pick: UePick::Any, choices }] }
    }

    /// Whether its UEs go from gNB to gNB.
    pub fn moves(&self) -> bool {
        self.choices().any(|choice| choice.activity.moves())
    }

    /// Whether its UEs send data where there is a target.
    pub fn has_data(&self) -> bool {
        self.groups.iter().any(|group| group.data.echoes > 0)
    }

    /// Whether its UEs are paged.
    pub(crate) fn pages(&self) -> bool {
        self.choices().any(|choice| choice.activity == Activity::Paging)
    }

    /// Procedures in a second, in the mean.
    pub fn rate(&self) -> f64 {
        self.streams.iter().map(|stream| stream.rate).sum()
    }

    fn choices(&self) -> impl Iterator<Item = &WeightedActivity> {
        self.streams.iter().flat_map(|stream| &stream.choices)
    }

    /// How many UEs each group has, by the largest remainders; a group that has a share has at least one, as far as
    /// there are UEs for all.
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

    /// What is wrong with it for a run with so many UEs on so many threads.
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
