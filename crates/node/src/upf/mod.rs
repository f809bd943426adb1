//! The user plane function (TS 23.501 6.2.3): its end of N4 (PFCP, TS 29.244), and the datapath that follows it.
//!
//! The decisions are a pure state machine (`state`), which changes the datapath's tables; [`start`] puts a UDP socket,
//! a clock and the sockets driver around it. It knows nothing of SMF logic, subscribers or the RAN beyond its tunnels.
//!
//! Rules become one record of the datapath for each tunnel and each UE address (`plan`); what records do not hold
//! (filters, quotas, packets that go on to another UPF, routes behind the UE) becomes further rules beside them (`flows`).
//! What is not served refuses the rule: applications and predefined rules, traffic endpoints, Ethernet, duplication,
//! usage thresholds that change at a monitoring time.

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
pub use metrics::UpfMetrics;
pub use server::{UpfError, UpfHandle, UpfStats, start, start_stored};
pub use slices::{DataSlice, LeanSlice};
pub use standalone::StandaloneStatus;
pub use state::PfcpStats;
pub use vireo_datapath::{
    Access, Fanout, FrameIo, FramesConfig, Locking, Module, SLICE_WORKERS, SliceWorkers, XdpConfig, XdpMode,
};
