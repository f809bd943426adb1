//! How the state of UEs is kept, as data: axes that are chosen one by one, and presets that name choices of all of them (the
//! modes of "Analyzing the cost of statelessness in 5G", and ours).

use serde::{Deserialize, Serialize};

/// Where the contexts of UEs are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum StateLocation {
    /// In memory that all workers of the host share: any of them runs any UE's next step, and none is needed. SMF and UPF of a
    /// service-based chain have theirs in files there, where a directory is named, else in their own memory.
    #[default]
    Shm,
    /// In the memory of one worker, with which they end: the stateful baseline.
    Memory,
    /// In a database, which is asked at each step, or at the first and the last of a procedure ([`StatePersist`]): a Redis, or a
    /// Redis Cluster.
    Redis,
    /// The same in MongoDB, or what speaks its protocol.
    Mongodb,
}

impl StateLocation {
    /// Whether it is a database.
    pub const fn is_database(self) -> bool {
        matches!(self, StateLocation::Redis | StateLocation::Mongodb)
    }

    /// What a URL is of, if it is of one of these.
    pub fn of_url(url: &str) -> Option<Self> {
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

/// How a record of a database is changed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum StateChange {
    /// All of it is written.
    #[default]
    Replace,
    /// The parts are written that have changed.
    Update,
    /// It is taken out and put in again: what is under way between the two is lost with whoever does it, so the AMF updates its own.
    DeleteCreate,
}

/// What a record of a database is encoded as.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum StateFormat {
    /// Octets without names and tags.
    #[default]
    Binary,
    /// JSON; in MongoDB, BSON.
    Json,
    /// Protocol buffers.
    Protobuf,
}

/// What a commit to a database waits for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum StateWrite {
    /// The database has it before anything leaves.
    #[default]
    Blocking,
    /// Nothing: writers have it, and the next load of that record waits for them. What these have not done is lost with the host of
    /// an AMF, and with a UPF. An SMF always blocks.
    NonBlocking,
}

/// Where the SM contexts of a service-based chain are between two of the AMF's asks about them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum StateCarry {
    /// Where the SMF keeps its state.
    #[default]
    None,
    /// They travel: the SMF gives an SM context to the AMF with each answer, and gets it back with what the AMF asks next. The
    /// AMF commits it with its own; the SMF neither loads nor commits anything. With an AMF that does not know it the SMF
    /// keeps its SM contexts in its own memory.
    Piggyback,
}

/// What a service-based chain's AMF takes for the SMF's answer when it has asked for an SM context.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum StateAnswer {
    /// The answer.
    #[default]
    Explicit,
    /// The first transfer of the session, which the SMF sends when the UPF has it: it names the SM context, so that nothing is left
    /// for an answer to say, and no transaction of the AMF for that. Whatever else becomes of the request is answered.
    Implied,
}

/// Which functions of a service-based chain share the record of a UE in a database.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum StateScope {
    /// None: each function has records of its own.
    #[default]
    Function,
    /// AMF and SMF: where an event of a UE is a question to the SMF and nothing else, what it changes at the AMF goes there with
    /// the question, and the SMF commits both in one write.
    AmfSmf,
    /// AMF, SMF and UPF: besides, what a PFCP request changes at the UPF comes with its answer, and the SMF commits it with what
    /// the answer changes there.
    All,
}

impl StateScope {
    /// Whether AMF and SMF have one record of a UE.
    pub const fn is_shared(self) -> bool {
        !matches!(self, StateScope::Function)
    }

    /// Whether the UPF has a part of that, too.
    pub const fn is_of_all(self) -> bool {
        matches!(self, StateScope::All)
    }
}

/// A name for a choice of all axes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum StatePreset {
    /// Contexts are where they are worked on, and end with that.
    Stateful,
    /// Each procedure loads from a database and commits to it; JSON, of which the parts are written that have changed.
    Procedural,
    /// Each transaction does.
    Transactional,
    /// As `Transactional`, and AMF, SMF and UPF share the record of a UE.
    Shared,
    /// As `Transactional`, and AMF and SMF do.
    SharedAmfSmf,
    /// The same, and nobody but an SMF waits for writes.
    NonBlocking,
    /// As `Transactional`, and records are taken out and put in again.
    DeleteCreate,
    /// Each transaction, with as little as can be: binary records, and SM contexts that travel, so that one record of a UE is what
    /// AMF and SMF have and the AMF alone loads and commits it.
    Lean,
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
    /// How they are changed there.
    pub change: StateChange,
    /// What they are there.
    pub format: StateFormat,
    /// Who shares a record there.
    pub scope: StateScope,
    /// Of a chain: where SM contexts are between two of the AMF's asks.
    pub carry: StateCarry,
    /// What commits wait for.
    pub write: StateWrite,
    /// Of a chain: what the AMF takes for the SMF's answer.
    pub answer: StateAnswer,
}

/// The axes that are said by themselves.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StateAxes {
    /// Where contexts are.
    pub location: Option<StateLocation>,
    /// The database that is named: it is that one where any will do.
    pub named: Option<StateLocation>,
    /// When they are committed.
    pub persist: Option<StatePersist>,
    /// How they are changed.
    pub change: Option<StateChange>,
    /// What they are.
    pub format: Option<StateFormat>,
    /// Who shares a record.
    pub scope: Option<StateScope>,
    /// Where SM contexts are between two asks.
    pub carry: Option<StateCarry>,
    /// What commits wait for.
    pub write: Option<StateWrite>,
    /// What the AMF takes for an answer.
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
    /// The choice of a preset and of axes that are said by themselves.
    ///
    /// # Errors
    ///
    /// Why it cannot be.
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
        let of_records =
            persist.is_some() || change.is_some() || format.is_some() || scope.is_some() || write.is_some();
        match preset {
            Some(StatePreset::Stateful) if mode.location != StateLocation::Memory => {
                Err("\"stateful\" is of contexts in the workers' memory: state.location is \"memory\" then")
            }
            Some(StatePreset::Shm) if mode.location != StateLocation::Shm => {
                Err("\"shm\" is of contexts in shared memory: state.location is \"shm\" then")
            }
            Some(_) if chosen.location.is_database() && !mode.location.is_database() => {
                Err("this preset is of contexts in a database: state.location is \"redis\" or \"mongodb\" then")
            }
            _ if of_records && !mode.location.is_database() => Err(
                "contexts that are not in a database (state.location) are no records of one: remove state.persist, change, format, \
                 scope and write",
            ),
            Some(StatePreset::Lean) if mode.carry != StateCarry::Piggyback || mode.format != StateFormat::Binary => {
                Err("\"lean\" is of binary records and SM contexts that travel: remove state.carry and format")
            }
            _ if mode.scope.is_shared() && mode.carry != StateCarry::None => {
                Err("SM contexts that travel are in the AMF's records as they are: remove one of state.scope and carry")
            }
            Some(StatePreset::SharedAmfSmf) if mode.scope != StateScope::AmfSmf => {
                Err("\"shared-amf-smf\" is of a record that AMF and SMF share: state.scope is \"amf-smf\" then")
            }
            Some(StatePreset::Shared) if mode.scope != StateScope::All => {
                Err("\"shared\" is of a record that AMF, SMF and UPF share: state.scope is \"all\" then")
            }
            _ if mode.scope.is_shared() && mode.persist != StatePersist::Transaction => Err(
                "a record that functions share is committed at each transaction: state.persist is \"transaction\" then",
            ),
            _ if mode.scope.is_shared() && mode.change != StateChange::Update => {
                Err("who shares a record changes a part of it: state.change is \"update\" then")
            }
            Some(StatePreset::Procedural) if mode.persist != StatePersist::Procedure => {
                Err("\"procedural\" is each procedure: state.persist is \"procedure\" then")
            }
            Some(
                StatePreset::Transactional | StatePreset::NonBlocking | StatePreset::DeleteCreate | StatePreset::Lean,
            ) if mode.persist != StatePersist::Transaction => {
                Err("this preset is of each transaction: state.persist is \"transaction\" then")
            }
            _ if mode.write == StateWrite::NonBlocking && mode.scope.is_shared() => {
                Err("who shares a record waits for what others commit there: state.scope is \"function\" then")
            }
            _ if mode.write == StateWrite::NonBlocking && mode.carry == StateCarry::Piggyback => Err(
                "SM contexts that travel are the AMF's to write, which waits for it: state.write is \"blocking\" then",
            ),
            _ if mode.write == StateWrite::NonBlocking && mode.persist != StatePersist::Transaction => {
                Err("writes that nobody waits for are of each transaction: state.persist is \"transaction\" then")
            }
            Some(StatePreset::NonBlocking) if mode.write != StateWrite::NonBlocking => {
                Err("\"non-blocking\" waits for no write: state.write is \"non-blocking\" then")
            }
            Some(StatePreset::DeleteCreate) if mode.change != StateChange::DeleteCreate => {
                Err("\"delete-create\" changes records so: state.change is \"delete-create\" then")
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
    fn the_presets_of_the_paper_are_json_and_a_database_is_binary_by_itself() {
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
    fn a_record_is_shared_part_by_part_and_transaction_by_transaction() {
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
    fn the_database_is_the_one_that_is_named() {
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
            assert_eq!(StateLocation::of_url(url), location, "{url}");
        }
        let named = StateAxes { named: Some(Mongodb), ..StateAxes::default() };
        let location = |preset, axes| StateMode::choose(preset, axes).map(|mode| mode.location);
        assert_eq!(location(Some(StatePreset::Transactional), named), Ok(Mongodb));
        assert_eq!(location(None, named), Ok(Shm), "naming one is not choosing it");
        let said = StateAxes { location: Some(Redis), ..named };
        assert_eq!(location(None, said), Ok(Redis));
    }
}
