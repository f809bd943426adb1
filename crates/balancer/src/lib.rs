//! Balancer: terminates N2 and S1 (SCTP) and N4 (PFCP), and routes messages to hosts.
//!
//! It reads only a shallow view of a message ([`vireo_core::amf::access::peek`]) and has no state
//! of UEs or procedures. One thread polls all sockets. It never blocks on a host: while the host's
//! queue is full, the balancer stops reading, and the SCTP windows throttle the RAN. The host runs
//! in the same process, or several hosts are connected by the fabric ([`Fleet`]).

#![forbid(unsafe_code)]

mod admission;
mod assoc_ids;
mod balancer;
mod fleet;
pub mod hot_restart;
mod ppid;

pub use admission::ENDPOINT_ASSOCIATIONS;
pub use balancer::{Balancer, BalancerParts, StopHandle};
pub use fleet::{Fleet, FleetConfig, FleetStatus, FleetView};
pub use ppid::{PPID_NGAP, PPID_S1AP};
