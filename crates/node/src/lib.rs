//! Threads, queues, clocks and effect execution of a running core.
//!
//! `ARCHITECTURE.md` describes the processes and how they work together. The steps themselves are
//! in `vireo_core`.

pub mod balancer;
pub mod cluster;
pub mod control;
pub mod host;
mod smf_events;
mod smf_link;
pub mod worker;
