//! User plane function (UPF, TS 23.501 6.2.3): its side of N4 and its datapath.
//!
//! `machine` is a pure state machine for PFCP (TS 29.244); it changes the tables of the datapath.
//! `server` adds a UDP socket, a clock and the packet drivers. `persistence` stores the sessions in
//! a database or in shared memory. The UPF has no SMF logic, holds no subscriber data and knows the
//! RAN only by tunnels.
//!
//! The UPF refuses rules that need a feature it does not implement:
//!
//! - applications and predefined rules,
//! - traffic endpoints,
//! - Ethernet,
//! - duplication,
//! - usage thresholds that change at a monitoring time.

mod config;
mod machine;
mod persistence;
mod server;

#[cfg(test)]
mod tests;

pub use config::{DataSlice, LeanSlice, Pool, UpfConfig};
pub use machine::PfcpStats;
pub use machine::control_planes::{AssociationConfig, ControlPlane};
pub use server::direct::InProcessN4;
pub use server::standalone::StandaloneStatus;
pub use server::{UpfError, UpfHandle, UpfStats, start, start_stored};
pub use vireo_datapath::{
    Access, Fanout, FrameIo, FramesConfig, Locking, Module, SLICE_WORKERS, SliceWorkers, XdpConfig, XdpMode,
};
