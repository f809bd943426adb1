//! Lab on one machine: core, RAN and data network in joined network namespaces.
//!
//! ```text
//!   ran ----- n2 -----  core  ----- n6 ----- dn
//!  emulator  N2, N3   vireo run             echo
//! ```
//!
//! Veth pairs connect the namespaces. The hosts of a cluster have their own namespaces, connected
//! to the core's by a switch ([`fabric`]).
//!
//! `vireo demo` ([`demo`]), `vireo bench` and `vireo experiment` use the lab. The lab starts the
//! programs and reads the kernel's counters. It does not interpret the messages between programs.

pub mod addresses;
mod capture;
pub mod core;
pub mod demo;
pub mod emulator;
mod etcd;
pub mod fabric;
pub mod files;
mod interrupt;
mod limit;
pub mod members;
pub mod mongodb;
mod namespaces;
pub mod netns;
pub mod options;
pub mod process;
pub mod provision;
pub mod redis;
mod redis_cluster;
pub mod second_upf;
pub mod timeline;
pub mod upf;
pub mod workers;

pub use interrupt::Interrupt;
pub use limit::PERIOD as QUOTA_PERIOD;
pub use namespaces::Lab;
