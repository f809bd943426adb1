//! Recovery of the stored state of a previous SMF.
//!
//! The state consists of SM contexts and the PFCP recovery time stamp.

use super::session::{RecoveredSession, Session};
use super::storage::{COLLECTION, NODE, SessionStorage, StorageConfig, name};
use vireo_core::config::StateScope;
use vireo_ops::database::{DatabaseError, read_all};
use vireo_ops::shared_record;
use vireo_ops::state::{DurableRecords, RecordsConfig};
use vireo_store::records::{Change, Codec, RecordStore};
use vireo_types::Duration;

/// Stored state at the start of an SMF.
#[derive(Debug)]
pub(super) struct RecoveredState {
    /// Recovery time stamp known to the UPFs.
    pub(super) recovery: u32,
    /// True if there was a previous SMF.
    pub(super) takes_over: bool,
    pub(super) sessions: Vec<RecoveredSession>,
}

/// Opened storage with its content.
pub(super) struct OpenedRecords {
    pub(super) records: Box<dyn RecordStore>,
    pub(super) before: RecoveredState,
    pub(super) storage_kind: SessionStorage,
}

/// Opens the storage and reads its content. `timeout` = maximum wait of a request for the
/// database.
///
/// # Errors
///
/// Returns an error if the storage is not available or has foreign content.
pub(super) fn open(keeping: &DurableRecords, timeout: Duration, recovery: u32) -> Result<OpenedRecords, DatabaseError> {
    let (mut records, codec, storage_kind): (Box<dyn RecordStore>, _, _) = match keeping {
        DurableRecords::Database(config) => {
            let (codec, &RecordsConfig { persist, scope, .. }) = (config.codec(), config);
            let octets = config.octets_format();
            config.prove_key()?;
            (
                config.open()?,
                (codec, scope),
                SessionStorage::Database(StorageConfig { persist, codec, scope, octets, timeout }),
            )
        }
        DurableRecords::Shared(config) => {
            (config.sealed(config.open("smf")?)?, (Codec::default(), StateScope::Function), SessionStorage::Shm)
        }
    };
    let before = load_previous(&mut *records, codec, recovery)?;
    Ok(OpenedRecords { records, before, storage_kind })
}

/// Reads the stored state. The first SMF stores `recovery` as its recovery time stamp.
///
/// # Errors
///
/// Returns an error if the database does not answer or has foreign content.
pub(super) fn load_previous(
    records: &mut dyn RecordStore,
    (codec, scope): (Codec, StateScope),
    recovery: u32,
) -> Result<RecoveredState, DatabaseError> {
    let node = records.load(&[NODE])?.pop().flatten();
    let (version, stamp) = match &node {
        None => (0, recovery),
        Some(found) => {
            let octets = found.octets.as_slice().try_into().map_err(|_| DatabaseError::UnknownFormat)?;
            (found.version, u32::from_be_bytes(octets))
        }
    };
    records.change(&[(NODE, Change::Commit { expected: version, octets: &stamp.to_be_bytes() })]).remove(0)?;
    let mut sessions = Vec::new();
    read_all(records, COLLECTION, |id, found| {
        let session = Session::decode_stored(codec, found);
        let session = session.filter(|(session, _)| name(session.sm.pfcp.cp_seid.ltmsi()).id == id);
        let (session, known) = session.ok_or(DatabaseError::UnknownFormat)?;
        sessions.push(RecoveredSession::new(session, known.version));
        Ok(())
    })?;
    if scope.is_shared() {
        read_all(records, shared_record::COLLECTION, |_, found| {
            for (name, octets) in &found.parts {
                let Some(number) = shared_record::sm_of(name) else { continue };
                let session =
                    Session::from_part(codec.format, octets).filter(|s| s.sm.pfcp.cp_seid.ltmsi().get() == number);
                let session = session.ok_or(DatabaseError::UnknownFormat)?;
                sessions.push(RecoveredSession::new(session, found.version));
            }
            Ok(())
        })?;
    }
    Ok(RecoveredState { recovery: stamp, takes_over: node.is_some(), sessions })
}

#[cfg(test)]
mod tests {
    use super::*;
    use vireo_store::records::{LIFE, MemoryRecords, Name};

    #[test]
    fn recovery_time_stamp_survives_restart() {
        let mut records = MemoryRecords::new(LIFE);
        let first = load_previous(&mut records, (Codec::default(), StateScope::Function), 7).unwrap();
        assert_eq!((first.recovery, first.takes_over, first.sessions.len()), (7, false, 0));
        let second = load_previous(&mut records, (Codec::default(), StateScope::Function), 8).unwrap();
        assert_eq!((second.recovery, second.takes_over), (7, true));
        let stranger = Name { collection: COLLECTION, id: 1 };
        records.change(&[(stranger, Change::Commit { expected: 0, octets: b"x" })]).remove(0).unwrap();
        assert!(matches!(
            load_previous(&mut records, (Codec::default(), StateScope::Function), 8),
            Err(DatabaseError::UnknownFormat)
        ));
    }
}
