//! How the state of UEs is kept, as data: axes that are chosen one by one, and presets that name choices of all of them (the
//! modes of "Analyzing the cost of statelessness in 5G", and ours).

use serde::{Deserialize, Serialize};

/// Where the contexts of UEs are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum StateLocation {
    /// In memory that all workers of the host share: any of them runs any UE's next step, and none is needed. The SMF of a
    /// service-based chain has one worker, and its contexts in its own memory then.
    #[default]
    Shm,
    /// In the memory of one worker, with which they end: the stateful baseline.
    Memory,
    /// In a database, which is asked at each step, or at the first and the last of a procedure ([`StatePersist`]).
    Redis,
}

impl StateLocation {
    /// Whether it is a database.
    pub const fn is_database(self) -> bool {
        matches!(self, StateLocation::Redis)
    }
}

/// When contexts that are in a database are loaded from there and committed to it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum StatePersist {
    /// At each transaction: nothing is lost with whoever carries it out.
    #[default]
    Transaction,
    /// They are loaded at the first transaction of a procedure and committed at its last: a procedure that is under way when
    /// its function dies is lost, and the UE begins it anew.
    Procedure,
}

/// A name for a choice of all axes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum StatePreset {
    /// Contexts are where they are worked on, and end with that.
    Stateful,
    /// Each procedure loads from a database and commits to it.
    Procedural,
    /// Each transaction does.
    Transactional,
    /// Shared memory: Vireo's own.
    Shm,
}

/// A choice of all axes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct StateMode {
    /// Where contexts are.
    pub location: StateLocation,
    /// When they are committed, if that is a database.
    pub persist: StatePersist,
}

impl From<StatePreset> for StateMode {
    fn from(preset: StatePreset) -> Self {
        let (location, persist) = match preset {
            StatePreset::Stateful => (StateLocation::Memory, StatePersist::Transaction),
            StatePreset::Procedural => (StateLocation::Redis, StatePersist::Procedure),
            StatePreset::Transactional => (StateLocation::Redis, StatePersist::Transaction),
            StatePreset::Shm => (StateLocation::Shm, StatePersist::Transaction),
        };
        StateMode { location, persist }
    }
}

impl StateMode {
    /// The choice of a preset and of axes that are said by themselves.
    ///
    /// # Errors
    ///
    /// Why it cannot be.
    pub fn choose(
        preset: Option<StatePreset>,
        (location, persist): (Option<StateLocation>, Option<StatePersist>),
    ) -> Result<Self, &'static str> {
        let chosen = preset.map_or_else(StateMode::default, StateMode::from);
        let mode =
            StateMode { location: location.unwrap_or(chosen.location), persist: persist.unwrap_or(chosen.persist) };
        match preset {
            Some(StatePreset::Procedural | StatePreset::Transactional) if !mode.location.is_database() => Err(
                "\"procedural\" and \"transactional\" are of contexts in a database: state.location is \"redis\" then",
            ),
            Some(StatePreset::Stateful) if mode.location != StateLocation::Memory => {
                Err("\"stateful\" is of contexts in the workers' memory: state.location is \"memory\" then")
            }
            Some(StatePreset::Shm) if mode.location != StateLocation::Shm => {
                Err("\"shm\" is of contexts in shared memory: state.location is \"shm\" then")
            }
            _ if persist.is_some() && !mode.location.is_database() => Err(
                "contexts that are not in a database (state.location) are not lost with a procedure: remove state.persist",
            ),
            Some(StatePreset::Transactional) if mode.persist != StatePersist::Transaction => {
                Err("\"transactional\" is each transaction: state.persist is \"transaction\" then")
            }
            Some(StatePreset::Procedural) if mode.persist != StatePersist::Procedure => {
                Err("\"procedural\" is each procedure: state.persist is \"procedure\" then")
            }
            _ => Ok(mode),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn axes_go_before_presets_unless_they_contradict() {
        use StateLocation::{Memory, Redis, Shm};
        let chosen = |preset, location| StateMode::choose(preset, (location, None)).map(|mode| mode.location);
        assert_eq!(chosen(None, None), Ok(Shm));
        assert_eq!(chosen(None, Some(Memory)), Ok(Memory));
        assert_eq!(chosen(Some(StatePreset::Transactional), None), Ok(Redis));
        assert_eq!(chosen(Some(StatePreset::Stateful), Some(Memory)), Ok(Memory));
        for (preset, wrong) in
            [(StatePreset::Transactional, Shm), (StatePreset::Stateful, Redis), (StatePreset::Shm, Memory)]
        {
            assert!(chosen(Some(preset), Some(wrong)).is_err(), "{preset:?}");
        }
        use StatePersist::{Procedure, Transaction};
        let when = |preset, location, persist| StateMode::choose(preset, (location, persist)).map(|mode| mode.persist);
        assert_eq!(when(Some(StatePreset::Procedural), None, None), Ok(Procedure));
        assert_eq!(when(Some(StatePreset::Transactional), None, None), Ok(Transaction));
        assert_eq!(when(None, Some(Redis), Some(Procedure)), Ok(Procedure));
        assert!(when(None, None, Some(Procedure)).is_err(), "nothing is in a database");
        assert!(when(Some(StatePreset::Procedural), None, Some(Transaction)).is_err());
        assert!(when(Some(StatePreset::Transactional), None, Some(Procedure)).is_err());
    }
}
