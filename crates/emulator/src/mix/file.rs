//! Mix files: device profiles with their procedures and frequencies.

use super::{Activity, Data, Group, RestState, Steady, Stream, UePick, WeightedActivity};
use crate::load::Pattern;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::str::FromStr;
use std::time::Duration;

/// Built-in profiles, which a mix file may name without further settings.
const BUILT_IN: &str = include_str!("profiles.toml");

/// Reason for which a mix file is invalid.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct MixError(String);

fn wrong<T>(what: impl Into<String>) -> Result<T, MixError> {
    Err(MixError(what.into()))
}

/// Frequency of an activity of a profile.
#[derive(Clone, Debug, PartialEq)]
pub enum Frequency {
    /// Once per UE in this period, each UE in turn.
    Every(Duration),
    /// Mean rate per second over all UEs of the profile, with this pattern. Any UE may serve an
    /// arrival.
    Rate(f64, Pattern),
}

impl Frequency {
    /// Returns the rate of one UE, per second.
    fn per_second(&self) -> f64 {
        match self {
            Frequency::Every(period) => 1.0 / period.as_secs_f64(),
            Frequency::Rate(rate, _) => *rate,
        }
    }
}

/// One kind of device.
#[derive(Clone, Debug, PartialEq)]
pub struct Profile {
    pub name: String,
    /// Share of the UEs, relative to the other profiles.
    pub share: f64,
    /// State of its UEs between procedures.
    pub home: RestState,
    /// Time that a UE stays connected after a procedure.
    pub dwell: Duration,
    /// Data that a UE sends when its user plane is available.
    pub data: Data,
    /// Activities with their frequencies.
    pub procedures: BTreeMap<Activity, Frequency>,
}

/// Set of device profiles.
#[derive(Clone, Debug, PartialEq)]
pub struct Mix {
    pub profiles: Vec<Profile>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct MixFile {
    profile: Vec<ProfileTable>,
}

#[derive(Clone, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct ProfileTable {
    name: String,
    share: Option<f64>,
    stay_connected: Option<bool>,
    dwell: Option<String>,
    echoes: Option<u32>,
    octets: Option<u16>,
    procedures: Option<BTreeMap<String, OftenTable>>,
}

#[derive(Clone, Deserialize)]
#[serde(deny_unknown_fields)]
struct OftenTable {
    every: Option<String>,
    rate: Option<f64>,
    pattern: Option<String>,
}

impl FromStr for Mix {
    type Err = MixError;

    /// Parses a mix file. A profile with the name of a built-in one inherits its missing settings.
    fn from_str(text: &str) -> Result<Self, MixError> {
        let parse = |text: &str| toml::from_str::<MixFile>(text).map_err(|error| MixError(error.to_string()));
        let built_in = parse(BUILT_IN)?.profile;
        let named = |name: &str| built_in.iter().find(|known| known.name == name);
        let read = |table: &ProfileTable| profile(table, named(&table.name));
        let profiles: Vec<_> = parse(text)?.profile.iter().map(read).collect::<Result<_, _>>()?;
        if profiles.is_empty() || profiles.len() > 200 {
            return wrong("a mix has 1 to 200 profiles");
        }
        if profiles.iter().map(|profile| profile.share).sum::<f64>() <= 0.0 {
            return wrong("one of the profiles must have a share above 0");
        }
        Ok(Mix { profiles })
    }
}

fn profile(table: &ProfileTable, built_in: Option<&ProfileTable>) -> Result<Profile, MixError> {
    let name = &table.name;
    let own = table.procedures.as_ref().or(built_in.and_then(|known| known.procedures.as_ref()));
    let Some(own) = own.filter(|own| !own.is_empty()) else {
        return wrong(format!("profile {name:?} has no procedures, and there is no built-in profile of that name"));
    };
    let mut procedures = BTreeMap::new();
    for (activity, often) in own {
        let activity = activity.parse().map_err(|why| MixError(format!("profile {name:?}: {why}")))?;
        let often =
            self::often(often).map_err(|MixError(why)| MixError(format!("profile {name:?}, {activity}: {why}")))?;
        procedures.insert(activity, often);
    }
    let share = table.share.unwrap_or(1.0);
    if !share.is_finite() || share < 0.0 {
        return wrong(format!("profile {name:?}: share must be 0 or more"));
    }
    let dwell = table.dwell.as_ref().or(built_in.and_then(|known| known.dwell.as_ref()));
    let connected = table.stay_connected.or(built_in.and_then(|known| known.stay_connected)).unwrap_or(false);
    let data = Data {
        echoes: table.echoes.or(built_in.and_then(|known| known.echoes)).unwrap_or(0),
        octets: table.octets.or(built_in.and_then(|known| known.octets)).unwrap_or(0),
    };
    Ok(Profile {
        name: name.clone(),
        share,
        home: if connected { RestState::Connected } else { RestState::Idle },
        dwell: dwell.map_or(Ok(Duration::from_secs(1)), |dwell| span("dwell", dwell))?,
        data,
        procedures,
    })
}

fn span(key: &str, text: &str) -> Result<Duration, MixError> {
    humantime::parse_duration(text).map_err(|error| MixError(format!("{key} = {text:?}: {error} (\"15m\", \"500ms\")")))
}

fn often(table: &OftenTable) -> Result<Frequency, MixError> {
    match (&table.every, table.rate, &table.pattern) {
        (Some(every), None, None) => {
            let every = span("every", every)?;
            if every.is_zero() { wrong("every must be more than 0") } else { Ok(Frequency::Every(every)) }
        }
        (None, Some(rate), pattern) if rate.is_finite() && rate >= 0.0 => {
            let pattern = pattern.as_deref().map_or(Ok(Pattern::poisson()), str::parse);
            Ok(Frequency::Rate(rate, pattern.map_err(|error| MixError(error.to_string()))?))
        }
        _ => wrong("give { every = \"15m\" }, or { rate = 0.01 } (times in a second of each UE) and perhaps a pattern"),
    }
}

impl Mix {
    /// Returns the built-in profiles.
    pub fn built_in() -> Result<Self, MixError> {
        BUILT_IN.parse()
    }

    /// Returns the load of `ues` UEs. `rate` scales all procedures to this total per second.
    /// `pattern` applies to all activities that are not periodic.
    pub fn steady(&self, ues: u32, rate: Option<f64>, pattern: Option<&Pattern>) -> Steady {
        let group = |profile: &Profile| Group {
            name: profile.name.clone(),
            share: profile.share,
            home: profile.home,
            dwell: profile.dwell,
            data: profile.data,
        };
        let mut steady = Steady { groups: self.profiles.iter().map(group).collect(), streams: Vec::new() };
        let sizes = steady.sizes(ues);
        for ((profile, size), group) in self.profiles.iter().zip(sizes).zip(0u8..) {
            for (activity, often) in &profile.procedures {
                let choices = vec![WeightedActivity { activity: *activity, group, weight: 1.0 }];
                let (pattern, pick) = match often {
                    Frequency::Every(_) => (Pattern::Constant, UePick::Longest),
                    Frequency::Rate(_, own) => (pattern.unwrap_or(own).clone(), UePick::Any),
                };
                let rate = often.per_second() * f64::from(size);
                if rate > 0.0 {
                    steady.streams.push(Stream { pattern, rate, pick, choices });
                }
            }
        }
        if let Some(rate) = rate {
            let factor = rate / steady.rate();
            steady.streams.iter_mut().for_each(|stream| stream.rate *= factor);
        }
        steady
    }
}
