//! Storage of SM contexts: its kind, and the names of the records.

use vireo_core::config::{StatePersist, StateScope};
use vireo_store::records::{Codec, Format, Name};
use vireo_types::{Duration, Ltmsi};

/// Collection of the SM contexts' records.
pub(super) const COLLECTION: &str = "smf";
/// Record of the PFCP recovery time stamp.
pub(super) const NODE: Name = Name { collection: "smf-node", id: 0 };

/// Returns the record name of an SM context.
pub(super) fn name(ltmsi: Ltmsi) -> Name {
    Name { collection: COLLECTION, id: ltmsi.get().into() }
}

/// Returns the SM context number of a record name.
pub(super) fn ltmsi(name: Name) -> Ltmsi {
    Ltmsi::from_raw(name.id as u32)
}

/// Place where SM contexts are stored.
#[derive(Clone, Copy, Debug)]
pub(super) enum SessionStorage {
    Memory,
    Database(StorageConfig),
    /// In records that this thread commits itself (`Sessions::use_shm_records`).
    Shm,
    /// At the AMF (piggyback), with the maximum wait of a request.
    Amf(Duration),
}

impl SessionStorage {
    /// Returns true if a later SMF can continue with the SM contexts.
    pub(super) fn is_persistent(self) -> bool {
        !matches!(self, SessionStorage::Memory)
    }
}

/// Database storage of SM contexts.
#[derive(Clone, Copy, Debug)]
pub(super) struct StorageConfig {
    pub(super) persist: StatePersist,
    pub(super) codec: Codec,
    /// Whether AMF, SMF and UPF share the record of a UE.
    pub(super) scope: StateScope,
    /// Format of the UPF parts in shared records.
    pub(super) octets: Format,
    /// Maximum wait of a request for the database.
    pub(super) timeout: Duration,
}
