//! System calls that no safe crate provides.

pub mod policy;
pub(crate) mod refused;
