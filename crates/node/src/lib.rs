//! The threads, queues, clocks and effects of a running core. See ARCHITECTURE.md.

pub mod api;
pub mod balancer;
mod clock;
pub mod cluster;
pub mod config;
pub mod control;
pub mod controller;
pub mod crew;
mod database;
pub mod fabric;
mod forgotten;
pub mod host;
pub mod identity;
mod log_limit;
pub mod metrics;
pub mod n4;
pub mod nf;
pub mod privileges;
mod punctual;
pub mod reload;
pub mod sbi;
mod shared;
pub mod state;
mod sys;
pub mod udp;
mod ue_peers;
pub mod upf;
