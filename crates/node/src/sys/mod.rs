//! System calls that no safe crate provides.

pub(crate) mod policy;
pub(crate) mod refused;
