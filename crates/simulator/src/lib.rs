//! Evaluation: what an experiment comes to. [`results`] is what it leaves behind (summary, tables, plots), [`analysis`]
//! how that is drawn from what was measured, [`capacity`] the model that figures of packets are planned with, [`cluster`] hosts
//! on a virtual clock, [`campaign`] hosts that fail on one.
//!
//! Nothing here starts a core, reads a clock or knows a message: `vireo experiment` runs the real core and hands in what
//! it saw.

#![forbid(unsafe_code)]

pub mod analysis;
pub mod campaign;
pub mod capacity;
pub mod cluster;
pub mod faults;
pub mod results;
