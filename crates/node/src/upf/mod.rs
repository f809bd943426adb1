//! User plane function (UPF, TS 23.501 6.2.3): its side of N4 and its datapath.
//!
//! `state` is a pure state machine for PFCP (TS 29.244); it changes the tables of the datapath.
//! [`start`] adds a UDP socket, a clock and the sockets driver. The UPF has no SMF logic, holds no
//! subscriber data and knows the RAN only by tunnels.
//!
//! `compile` turns PFCP rules into one datapath entry for each tunnel and each UE address. `flows`
//! adds flow rules for what an entry cannot hold: filters, quotas, forwarding to another UPF, and
//! routes behind the UE.
//!
//! The UPF refuses rules that need a feature it does not implement:
//!
//! - applications and predefined rules,
//! - traffic endpoints,
//! - Ethernet,
//! - duplication,
//! - usage thresholds that change at a monitoring time.

mod addresses;
mod compile;
mod config;
mod control_planes;
mod direct;
mod exchange;
mod flows;
mod metrics;
mod path_monitor;
mod pdi;
mod persistence;
mod rebalance;
mod rules;
mod server;
mod session;
mod slice_queues;
mod slices;
mod standalone;
mod state;
mod timer_wheel;
mod usage;

#[cfg(test)]
mod tests;

pub use config::{Pool, UpfConfig};
pub use control_planes::{AssociationConfig, ControlPlane};
pub use direct::InProcessN4;
pub use server::{UpfError, UpfHandle, UpfStats, start, start_stored};
pub use slices::{DataSlice, LeanSlice};
pub use standalone::StandaloneStatus;
pub use state::PfcpStats;
pub use vireo_datapath::{
    Access, Fanout, FrameIo, FramesConfig, Locking, Module, SLICE_WORKERS, SliceWorkers, XdpConfig, XdpMode,
};
