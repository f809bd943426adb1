//! Request of a UE whose SUCI waits for de-concealment.

use vireo_core::subscription::AuthenticationRequest;
use vireo_store::region::Slot;
use vireo_types::Ltmsi;

/// Request of a UE whose SUCI waits.
#[derive(Debug)]
pub(super) struct ConcealedRequest {
    pub(super) slot: Slot,
    pub(super) ltmsi: Ltmsi,
    pub(super) request: AuthenticationRequest,
}
