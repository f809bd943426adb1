//! Identifiers and addresses that the core assigns to UEs.

pub mod address_pool;
pub mod tmsi;

use vireo_types::{Dnn, Ltmsi, PduSessionType, SessionAddress, Snssai, Tmsi};

/// Allocator of identifiers and addresses.
///
/// If the step is not committed, the caller of the step releases its identifiers. If a later step
/// drops an identifier from the context, an effect of that step releases it.
pub trait Identifiers {
    /// Allocates a 5G-TMSI for `ltmsi` that cannot be linked to an earlier one (TS 33.501 6.12.3).
    fn tmsi(&mut self, ltmsi: Ltmsi) -> Option<Tmsi>;

    /// Allocates an LTMSI in a bucket of the slice for the UE with LTMSI `current`. Returns `None`
    /// if the bucket of `current` belongs to the slice already, or if no LTMSI is free.
    fn rekey(&mut self, current: Ltmsi, slice: Snssai) -> Option<Ltmsi>;

    /// Allocates addresses from the address pools of the data network. Returns `None` if a required
    /// pool is exhausted.
    fn address(&mut self, dnn: &Dnn, kind: PduSessionType) -> Option<SessionAddress>;
}
