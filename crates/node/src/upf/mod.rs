//! The user plane function (TS 23.501 6.2.3): its end of N4 (PFCP, TS 29.244), and the datapath that follows it.
//!
//! The decisions are a pure state machine (`state`), which changes the datapath's tables; [`start`] puts a UDP socket,
//! a clock and the sockets driver around it. It knows nothing of SMF logic, subscribers or the RAN beyond its tunnels.
//!
//! What it serves in this form: one treatment for each tunnel and each UE address, without packet filters (a PDR with
//! one that does not match everything is refused with Rule creation/modification Failure), towards one data network.

mod alone;
mod config;
mod exchange;
mod metrics;
mod plan;
mod rules;
mod server;
mod session;
mod state;
mod usage;

#[cfg(test)]
mod tests;

pub use alone::Alone;
pub use config::{Pool, UpfConfig};
pub use metrics::UpfMetrics;
pub use server::{UpfError, UpfHandle, UpfStats, start};
pub use state::PfcpStats;
