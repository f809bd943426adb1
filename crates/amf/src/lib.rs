//! AMF: a host with its worker processes, and the link to an SMF.
//!
//! [`Host`] is the forwarder, the egress and the owner of per-host state. Worker processes
//! ([`run_worker`]) run the steps of `vireo_core` over the UE contexts in the state region. The
//! crate has no sockets of N2 and N4: a balancer exchanges inputs and commands with the host
//! (`vireo_cluster`).

#![forbid(unsafe_code)]

mod host;
mod smf_events;
mod smf_link;
mod worker;

pub use host::{Host, HostBuilder, HostConfig, HostError, KeepError, Membership, RegionUsage};
pub use worker::{SetLogLevel, WorkerError, run as run_worker};
