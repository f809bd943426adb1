//! Simulations of clusters on a virtual clock, with the core's own decisions.
//!
//! * [`cluster`]: placement and latency of procedures
//! * [`campaign`]: failing hosts
//!
//! This crate starts no core, reads no clock and decodes no messages of a real run.

#![forbid(unsafe_code)]

pub mod campaign;
pub mod cluster;
