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
mod alone;
mod config;
mod control_planes;
mod detect;
mod direct;
mod exchange;
mod flows;
mod looks;
mod metrics;
mod paths;
mod plan;
mod rebalance;
mod rules;
mod server;
mod session;
mod slices;
mod state;
mod stored;
mod turns;
mod usage;

#[cfg(test)]
mod tests;

pub use alone::Alone;
pub use config::{Pool, UpfConfig};
pub use control_planes::{AssociationConfig, ControlPlane};
pub use direct::Direct;
pub use metrics::UpfMetrics;
pub use server::{UpfError, UpfHandle, UpfStats, start, start_stored};
pub use slices::{DataSlice, LeanSlice};
pub use state::PfcpStats;
pub use vireo_datapath::{
    Access, Fanout, FrameIo, FramesConfig, Locking, Module, SLICE_WORKERS, SliceWorkers, XdpConfig, XdpMode,
};
