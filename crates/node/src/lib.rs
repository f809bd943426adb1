//! Composition of a running core: starts the parts, connects them and stops them.
//!
//! `ARCHITECTURE.md` describes the processes and how they work together. A core is one process
//! ([`control`]), or a cluster of balancers, hosts and a controller ([`cluster`]), which may be one
//! process tree ([`shards`]).

pub mod cluster;
pub mod control;
pub mod shards;

pub use vireo_amf::HostConfig;
