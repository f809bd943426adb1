//! Evaluation of experiments, and simulations of clusters.
//!
//! * [`results`]: the output of an experiment (summary, tables, plots)
//! * [`analysis`]: figures from measurements
//! * [`capacity`]: the capacity model of packet figures
//! * [`cluster`]: hosts on a virtual clock
//! * [`campaign`]: failing hosts on a virtual clock
//!
//! This crate starts no core, reads no clock and decodes no messages of a real run. `vireo
//! experiment` runs the real core and passes its observations.

#![forbid(unsafe_code)]

pub mod analysis;
pub mod campaign;
pub mod capacity;
pub mod cluster;
pub mod faults;
pub mod results;
