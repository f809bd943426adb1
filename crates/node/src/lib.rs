//! Threads, queues, clocks and effect execution of a running core.
//!
//! `ARCHITECTURE.md` describes the processes and how they work together. The steps themselves are
//! in `vireo_core`.

pub mod api;
pub mod balancer;
mod clock;
pub mod cluster;
pub mod config;
pub mod control;
pub mod controller;
mod database;
mod evicted_claims;
pub mod fabric;
pub mod host;
pub mod identity;
mod log_limit;
pub mod metrics;
pub mod n4;
mod priority_boost;
pub mod privileges;
pub mod reload;
pub mod sbi;
mod shared_record;
pub mod state;
pub mod supervisor;
mod sys;
pub mod udp;
mod ue_peers;
pub mod upf;
pub mod worker;
