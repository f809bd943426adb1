//! State modes: axes of how UE state is stored, and presets that set all axes.
//!
//! The presets are the modes of "The Cost of Stateless Network Functions in 5G", and modes of
//! Vireo.

use serde::{Deserialize, Serialize};

/// Location of the UE contexts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum StateLocation {
    /// Memory shared by all workers of the host: any worker runs any UE's next step. In SBA mode,
    /// SMF and UPF store contexts in shared-memory files if a directory is configured, else in
    /// their own memory.
    #[default]
    Shm,
    /// Memory of one worker, lost with the worker: the stateful baseline.
    Memory,
    /// Redis or Redis Cluster, accessed at each step, or at the first and last step of a procedure
    /// ([`StatePersist`]).
    Redis,
    /// MongoDB or a database with its protocol, accessed like [`StateLocation::Redis`].
    Mongodb,
}

impl StateLocation {
    /// Returns true if contexts are in a database.
    pub const fn is_database(self) -> bool {
        matches!(self, StateLocation::Redis | StateLocation::Mongodb)
    }

    /// Returns the location that a URL names; `None` for an unknown scheme.
    pub fn from_url(url: &str) -> Option<Self> {
        let begins = |schemes: &[&str]| schemes.iter().any(|scheme| url.starts_with(scheme));
        if begins(&["redis://", "rediss://", "redis+unix://", "unix://", "redis-cluster://", "rediss-cluster://"]) {
            Some(StateLocation::Redis)
        } else if begins(&["mongodb://"]) {
            Some(StateLocation::Mongodb)
        } else if begins(&["shm:///"]) {
            Some(StateLocation::Shm)
        } else {
            None
        }
    }
}

/// Times at which contexts are loaded from the database and committed to it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum StatePersist {
    /// At each transaction. The failure of a process loses no state.
    #[default]
    Transaction,
    /// Loaded at the first transaction of a procedure and committed at its last. If the network
    /// function fails, its procedures in progress are lost, and the UEs start them again.
    Procedure,
}

/// Method of changing a database record.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum StateChange {
    /// Writes the whole record.
    #[default]
    Replace,
    /// Writes only the changed parts.
    Update,
    /// Deletes the record and creates it again. If the process fails between the two, the record is
    /// lost; the AMF therefore updates its own records.
    DeleteCreate,
}

/// Encoding of a database record.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum StateFormat {
    /// Binary encoding without field names and tags.
    #[default]
    Binary,
    /// JSON; in MongoDB, BSON.
    Json,
    Protobuf,
}

/// What a commit to a database waits for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum StateWrite {
    /// Effects are executed after the database has stored the record.
    #[default]
    Blocking,
    /// Write-behind: the commit does not wait, and the next load of the record waits for the
    /// writers. Pending writes are lost with the AMF's host or with the UPF. An SMF always blocks.
    NonBlocking,
}

/// Location of SM contexts in SBA mode between two requests of the AMF.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum StateCarry {
    /// The SMF's own state location.
    #[default]
    None,
    /// Piggybacked: the SMF returns the SM context with each response, and receives it with the
    /// AMF's next request. The AMF commits it with the UE context; the SMF neither loads nor
    /// commits. If the AMF does not support this, the SMF keeps its SM contexts in its own memory.
    Piggyback,
}

/// In SBA mode, what the AMF accepts as the SMF's response to a create request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum StateAnswer {
    /// The SMF's create response.
    #[default]
    Explicit,
    /// The first N1N2 transfer of the session, which the SMF sends once the UPF has the session. It
    /// names the SM context, so that the AMF needs no transaction for the create response. Other
    /// outcomes of the request still get a response.
    Implied,
}

/// Network functions of SBA mode that share the database record of a UE.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum StateScope {
    /// None: each network function has its own records.
    #[default]
    Function,
    /// AMF and SMF. If an event only causes a request to the SMF, the AMF sends its own changes
    /// with that request. The SMF commits both in one write.
    AmfSmf,
    /// AMF, SMF and UPF. In addition, the PFCP response carries the changes of the UPF, and the SMF
    /// commits them with its own changes.
    All,
}

impl StateScope {
    /// Returns true if AMF and SMF share a UE's record.
    pub const fn is_shared(self) -> bool {
        !matches!(self, StateScope::Function)
    }

    /// Returns true if the UPF shares the record, too.
    pub const fn includes_upf(self) -> bool {
        matches!(self, StateScope::All)
    }
}

/// Preset: a named choice of all axes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum StatePreset {
    /// Contexts are in the memory of the process that uses them, and are lost with it.
    Stateful,
    /// Each procedure loads from a database and commits to it; JSON, writing only the changed
    /// parts.
    Procedural,
    /// As `Procedural`, for each transaction.
    Transactional,
    /// As `Transactional`; AMF, SMF and UPF share the record of a UE.
    Shared,
    /// As `Transactional`; AMF and SMF share the record of a UE.
    SharedAmfSmf,
    /// As `Transactional`; only an SMF waits for writes.
    NonBlocking,
    /// As `Transactional`; records are deleted and created again.
    DeleteCreate,
    /// Minimal cost per transaction: binary records and piggybacked SM contexts. AMF and SMF need
    /// one record per UE, which only the AMF loads and commits.
    Lean,
    /// Contexts are in shared memory of the host, without a database.
    Shm,
}

/// Value of each axis.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct StateMode {
    pub location: StateLocation,
    /// Applies to databases only.
    pub persist: StatePersist,
    /// Applies to databases only.
    pub change: StateChange,
    /// Applies to databases only.
    pub format: StateFormat,
    /// Applies to databases in SBA mode only.
    pub scope: StateScope,
    /// Applies to SBA mode only.
    pub carry: StateCarry,
    pub write: StateWrite,
    /// Applies to SBA mode only.
    pub answer: StateAnswer,
}

/// Axes set explicitly in the configuration; `None` = not set.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StateAxes {
    pub location: Option<StateLocation>,
    /// Type of the configured database; used where the preset only needs some database.
    pub named: Option<StateLocation>,
    pub persist: Option<StatePersist>,
    pub change: Option<StateChange>,
    pub format: Option<StateFormat>,
    pub scope: Option<StateScope>,
    pub carry: Option<StateCarry>,
    pub write: Option<StateWrite>,
    pub answer: Option<StateAnswer>,
}

impl From<StatePreset> for StateMode {
    fn from(preset: StatePreset) -> Self {
        let paper = StateMode {
            location: StateLocation::Redis,
            change: StateChange::Update,
            format: StateFormat::Json,
            ..StateMode::default()
        };
        match preset {
            StatePreset::Stateful => StateMode { location: StateLocation::Memory, ..StateMode::default() },
            StatePreset::Procedural => StateMode { persist: StatePersist::Procedure, ..paper },
            StatePreset::Transactional => paper,
            StatePreset::Shared => StateMode { scope: StateScope::All, ..paper },
            StatePreset::SharedAmfSmf => StateMode { scope: StateScope::AmfSmf, ..paper },
            StatePreset::NonBlocking => StateMode { write: StateWrite::NonBlocking, ..paper },
            StatePreset::DeleteCreate => StateMode { change: StateChange::DeleteCreate, ..paper },
            StatePreset::Lean => {
                StateMode { location: StateLocation::Redis, carry: StateCarry::Piggyback, ..StateMode::default() }
            }
            StatePreset::Shm => StateMode::default(),
        }
    }
}

impl StateMode {
    /// Combines a preset with explicitly set axes.
    ///
    /// # Errors
    ///
    /// Returns an error if the axes contradict each other or the preset.
    pub fn choose(preset: Option<StatePreset>, axes: StateAxes) -> Result<Self, &'static str> {
        let StateAxes { location, named, persist, change, format, scope, carry, write, answer } = axes;
        let chosen = preset.map_or_else(StateMode::default, StateMode::from);
        let any = if chosen.location.is_database() { named } else { None };
        let scope_is = scope.unwrap_or(chosen.scope);
        let usual = if scope_is.is_shared() { StateChange::Update } else { chosen.change };
        let mode = StateMode {
            location: location.or(any).unwrap_or(chosen.location),
            persist: persist.unwrap_or(chosen.persist),
            change: change.unwrap_or(usual),
            format: format.unwrap_or(chosen.format),
            scope: scope_is,
            carry: carry.unwrap_or(chosen.carry),
            write: write.unwrap_or(chosen.write),
            answer: answer.unwrap_or(chosen.answer),
        };
        let has_record_axes =
            persist.is_some() || change.is_some() || format.is_some() || scope.is_some() || write.is_some();
        match preset {
            Some(StatePreset::Stateful) if mode.location != StateLocation::Memory => {
                Err("\"stateful\" stores contexts in the memory of workers; set state.location = \"memory\"")
            }
            Some(StatePreset::Shm) if mode.location != StateLocation::Shm => {
                Err("\"shm\" stores contexts in shared memory; set state.location = \"shm\"")
            }
            Some(_) if chosen.location.is_database() && !mode.location.is_database() => {
                Err("this preset stores contexts in a database; set state.location = \"redis\" or \"mongodb\"")
            }
            _ if has_record_axes && !mode.location.is_database() => {
                Err("without a database (state.location), state.persist, change, format, scope and write have no \
                 effect; remove these keys")
            }
            Some(StatePreset::Lean) if mode.carry != StateCarry::Piggyback || mode.format != StateFormat::Binary => {
                Err("\"lean\" has binary records and piggybacked SM contexts; remove state.carry and format")
            }
            _ if mode.scope.is_shared() && mode.carry != StateCarry::None => {
                Err("the AMF's records already contain piggybacked SM contexts; remove state.scope or carry")
            }
            Some(StatePreset::SharedAmfSmf) if mode.scope != StateScope::AmfSmf => {
                Err("with \"shared-amf-smf\" AMF and SMF share a record; set state.scope = \"amf-smf\"")
            }
            Some(StatePreset::Shared) if mode.scope != StateScope::All => {
                Err("with \"shared\" AMF, SMF and UPF share a record; set state.scope = \"all\"")
            }
            _ if mode.scope.is_shared() && mode.persist != StatePersist::Transaction => {
                Err("shared records are committed at each transaction; set state.persist = \"transaction\"")
            }
            _ if mode.scope.is_shared() && mode.change != StateChange::Update => {
                Err("network functions with a shared record write only their parts; set state.change = \"update\"")
            }
            Some(StatePreset::Procedural) if mode.persist != StatePersist::Procedure => {
                Err("\"procedural\" commits at the end of a procedure; set state.persist = \"procedure\"")
            }
            Some(
                StatePreset::Transactional | StatePreset::NonBlocking | StatePreset::DeleteCreate | StatePreset::Lean,
            ) if mode.persist != StatePersist::Transaction => {
                Err("this preset commits at each transaction; set state.persist = \"transaction\"")
            }
            _ if mode.write == StateWrite::NonBlocking && mode.scope.is_shared() => {
                Err("network functions with a shared record wait for its commits; set state.scope = \"function\"")
            }
            _ if mode.write == StateWrite::NonBlocking && mode.carry == StateCarry::Piggyback => {
                Err("the AMF waits for the write of piggybacked SM contexts; set state.write = \"blocking\"")
            }
            _ if mode.write == StateWrite::NonBlocking && mode.persist != StatePersist::Transaction => {
                Err("non-blocking writes need a commit at each transaction; set state.persist = \"transaction\"")
            }
            Some(StatePreset::NonBlocking) if mode.write != StateWrite::NonBlocking => {
                Err("\"non-blocking\" does not wait for writes; set state.write = \"non-blocking\"")
            }
            Some(StatePreset::DeleteCreate) if mode.change != StateChange::DeleteCreate => {
                Err("\"delete-create\" deletes and creates records; set state.change = \"delete-create\"")
            }
            _ => Ok(mode),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(location: Option<StateLocation>) -> StateAxes {
        StateAxes { location, ..StateAxes::default() }
    }

    #[test]
    fn axes_go_before_presets_unless_they_contradict() {
        use StateLocation::{Memory, Redis, Shm};
        let chosen = |preset, location| StateMode::choose(preset, at(location)).map(|mode| mode.location);
        assert_eq!(chosen(None, None), Ok(Shm));
        assert_eq!(chosen(None, Some(Memory)), Ok(Memory));
        assert_eq!(chosen(Some(StatePreset::Transactional), None), Ok(Redis));
        assert_eq!(chosen(Some(StatePreset::Stateful), Some(Memory)), Ok(Memory));
        for (preset, wrong) in [
            (StatePreset::Transactional, Shm),
            (StatePreset::DeleteCreate, Memory),
            (StatePreset::Stateful, Redis),
            (StatePreset::Shm, Memory),
        ] {
            assert!(chosen(Some(preset), Some(wrong)).is_err(), "{preset:?}");
        }
        use StatePersist::{Procedure, Transaction};
        let when = |preset, location, persist| {
            StateMode::choose(preset, StateAxes { persist, ..at(location) }).map(|mode| mode.persist)
        };
        assert_eq!(when(Some(StatePreset::Procedural), None, None), Ok(Procedure));
        assert_eq!(when(Some(StatePreset::Transactional), None, None), Ok(Transaction));
        assert_eq!(when(None, Some(Redis), Some(Procedure)), Ok(Procedure));
        assert!(when(None, None, Some(Procedure)).is_err(), "nothing is in a database");
        assert!(when(Some(StatePreset::Procedural), None, Some(Transaction)).is_err());
        assert!(when(Some(StatePreset::Transactional), None, Some(Procedure)).is_err());
    }

    #[test]
    fn paper_presets_use_json_and_default_is_binary() {
        use StatePreset::{DeleteCreate, NonBlocking, Procedural, Transactional};
        let choose = |preset, axes| StateMode::choose(preset, axes);
        let plain = choose(None, at(Some(StateLocation::Redis))).unwrap();
        assert_eq!((plain.format, plain.change), (StateFormat::Binary, StateChange::Replace));
        for preset in [Procedural, Transactional, NonBlocking] {
            let mode = choose(Some(preset), StateAxes::default()).unwrap();
            assert_eq!((mode.format, mode.change), (StateFormat::Json, StateChange::Update), "{preset:?}");
            assert_eq!(mode.write == StateWrite::NonBlocking, preset == NonBlocking);
        }
        let binary = StateAxes { format: Some(StateFormat::Binary), ..StateAxes::default() };
        let mode = choose(Some(DeleteCreate), binary).unwrap();
        assert_eq!((mode.format, mode.change), (StateFormat::Binary, StateChange::DeleteCreate));
        assert!(choose(None, binary).is_err(), "nothing is in a database");
        let update = StateAxes { change: Some(StateChange::Update), ..StateAxes::default() };
        assert!(choose(Some(DeleteCreate), update).is_err());
        let blocking = StateAxes { write: Some(StateWrite::Blocking), ..StateAxes::default() };
        assert!(choose(Some(NonBlocking), blocking).is_err());
        let behind = StateAxes { write: Some(StateWrite::NonBlocking), ..StateAxes::default() };
        assert!(choose(Some(Procedural), behind).is_err(), "what is kept for a procedure waits anyway");
        assert_eq!(choose(Some(Transactional), behind).map(|mode| mode.write), Ok(StateWrite::NonBlocking));
    }

    #[test]
    fn lean_is_binary_and_travels() {
        let lean = |axes| StateMode::choose(Some(StatePreset::Lean), axes);
        let mode = lean(StateAxes::default()).unwrap();
        assert_eq!((mode.location, mode.carry), (StateLocation::Redis, StateCarry::Piggyback));
        assert_eq!((mode.format, mode.change), (StateFormat::Binary, StateChange::Replace));
        for wrong in [
            StateAxes { carry: Some(StateCarry::None), ..StateAxes::default() },
            StateAxes { format: Some(StateFormat::Json), ..StateAxes::default() },
            StateAxes { scope: Some(StateScope::AmfSmf), ..StateAxes::default() },
            StateAxes { persist: Some(StatePersist::Procedure), ..StateAxes::default() },
            at(Some(StateLocation::Memory)),
        ] {
            assert!(lean(wrong).is_err(), "{wrong:?}");
        }
        let carried = StateAxes { carry: Some(StateCarry::Piggyback), ..at(Some(StateLocation::Memory)) };
        assert_eq!(StateMode::choose(None, carried).map(|mode| mode.carry), Ok(StateCarry::Piggyback));
    }

    #[test]
    fn answers_may_be_implied_wherever_state_is() {
        let implied = StateAxes { answer: Some(StateAnswer::Implied), ..StateAxes::default() };
        for preset in [StatePreset::Transactional, StatePreset::Shared, StatePreset::Lean, StatePreset::Stateful] {
            let given = StateMode::choose(Some(preset), StateAxes::default()).unwrap();
            assert_eq!(given.answer, StateAnswer::Explicit, "{preset:?}");
            let mode = StateMode::choose(Some(preset), implied);
            assert_eq!(mode, Ok(StateMode { answer: StateAnswer::Implied, ..given }), "{preset:?}");
        }
    }

    #[test]
    fn shared_record_modes_parse_by_part_and_commit() {
        use StateLocation::Redis;
        let shared = StateAxes { scope: Some(StateScope::AmfSmf), ..at(Some(Redis)) };
        let mode = StateMode::choose(None, shared).unwrap();
        assert_eq!(
            (mode.scope, mode.change, mode.format),
            (shared.scope.unwrap(), StateChange::Update, StateFormat::Binary)
        );
        let preset = StateMode::choose(Some(StatePreset::SharedAmfSmf), StateAxes::default()).unwrap();
        assert_eq!((preset.scope, preset.change, preset.format), (mode.scope, StateChange::Update, StateFormat::Json));
        let whole = StateAxes { change: Some(StateChange::Replace), ..shared };
        let procedure = StateAxes { persist: Some(StatePersist::Procedure), ..shared };
        let nowhere = StateAxes { location: None, ..shared };
        for wrong in [whole, procedure, nowhere] {
            assert!(StateMode::choose(None, wrong).is_err(), "{wrong:?}");
        }
        let all = StateMode::choose(Some(StatePreset::Shared), StateAxes::default()).unwrap();
        assert_eq!((all.scope, all.change, all.format), (StateScope::All, StateChange::Update, StateFormat::Json));
        assert!(StateMode::choose(Some(StatePreset::Shared), StateAxes { location: None, ..shared }).is_err());
        let own = StateAxes { scope: Some(StateScope::Function), ..StateAxes::default() };
        assert!(StateMode::choose(Some(StatePreset::SharedAmfSmf), own).is_err());
        assert!(StateMode::choose(Some(StatePreset::DeleteCreate), shared).is_err());
    }

    #[test]
    fn database_follows_url_scheme() {
        use StateLocation::{Mongodb, Redis, Shm};
        for (url, location) in [
            ("redis://a:1", Some(Redis)),
            ("redis-cluster://a:1,b:2", Some(Redis)),
            ("rediss://a:1", Some(Redis)),
            ("rediss-cluster://a:1,b:2", Some(Redis)),
            ("mongodb://a:1", Some(Mongodb)),
            ("shm:///dev/shm", Some(Shm)),
            ("shm://relative", None),
            ("postgres://a", None),
        ] {
            assert_eq!(StateLocation::from_url(url), location, "{url}");
        }
        let named = StateAxes { named: Some(Mongodb), ..StateAxes::default() };
        let location = |preset, axes| StateMode::choose(preset, axes).map(|mode| mode.location);
        assert_eq!(location(Some(StatePreset::Transactional), named), Ok(Mongodb));
        assert_eq!(location(None, named), Ok(Shm), "naming one is not choosing it");
        let said = StateAxes { location: Some(Redis), ..named };
        assert_eq!(location(None, said), Ok(Redis));
    }
}
