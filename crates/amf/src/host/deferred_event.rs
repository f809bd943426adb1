//! Events of UEs that wait for room.

use vireo_core::schedule::kind::NfKind;
use vireo_store::region::Slot;
use vireo_types::Ltmsi;

/// An event for a UE that could not be posted at once.
#[derive(Debug)]
pub(super) struct DeferredEvent {
    pub(super) slot: Slot,
    pub(super) ltmsi: Ltmsi,
    pub(super) kind: NfKind,
    pub(super) octets: Vec<u8>,
}
