//! Calls of the system that no safe crate has.

pub(crate) mod policy;
pub(crate) mod refused;
