//! Threads, queues, clocks and effect execution of a running core.
//!
//! `ARCHITECTURE.md` describes the processes and how they work together. The steps themselves are
//! in `vireo_core`.

#[cfg(test)]
#[path = "../../vireo/src/pki/authority.rs"]
pub(crate) mod authority;

pub mod api;
pub mod balancer;
mod clock;
pub mod cluster;
pub mod config;
pub mod control;
pub mod controller;
mod database;
mod evicted_claims;
pub mod host;
pub mod metrics;
mod priority_boost;
pub mod privileges;
pub mod reload;
pub mod sbi;
mod shared_record;
pub mod state;
pub mod supervisor;
mod sys;
pub mod upf;
pub mod worker;
