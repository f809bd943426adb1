//! N4 endpoint of a control plane: its settings and socket from the configuration.

use crate::config::N4Config;
use rand::RngCore;
use std::io;
use std::net::SocketAddr;
use vireo_core::config::CoreConfig;
use vireo_n4::{Config, Endpoint, InProcess};
use vireo_types::Instant;
use vireo_wire::pfcp::RecoveryTimeStamp;

/// Identity of a control plane towards UPFs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct N4Identity {
    /// Recovery Time Stamp in seconds since 1900 (TS 29.244 8.2.65).
    pub recovery: u32,
    /// True if other endpoints may have the same Node ID.
    pub is_shared: bool,
}

/// The N4 endpoint cannot be bound.
#[derive(Debug, thiserror::Error)]
#[error("N4 does not start: {address}: {error}; check n4.listen and that no other control plane runs there")]
pub struct N4BindError {
    pub address: SocketAddr,
    pub error: io::Error,
}

/// Returns the PFCP Recovery Time Stamp of a control plane that starts at `now`: seconds since 1900
/// (TS 29.244 8.2.65, RFC 5905).
pub fn recovery_time_stamp(now: Instant) -> u32 {
    (now.as_micros() / 1_000_000 + 2_208_988_800) as u32
}

/// Binds the N4 endpoint. `in_process` is the access to the UPF of this process, if there is one.
///
/// # Errors
///
/// Returns an error if the socket cannot be bound.
pub fn bind(
    core: &CoreConfig,
    config: &N4Config,
    identity: N4Identity,
    in_process: Option<Box<dyn InProcess>>,
) -> Result<Endpoint, N4BindError> {
    let address = config.listen;
    if config.allow.is_empty() && !vireo_types::is_inside(address.ip()) {
        tracing::warn!(n4 = %address, "PFCP is read from any address; list those of the UPFs in n4.allow");
    }
    let in_process = in_process.filter(|_| config.direct);
    Endpoint::bind(address, settings(core, config, identity), in_process)
        .map_err(|error| N4BindError { address, error })
}

/// Returns the settings of the N4 endpoint.
pub fn settings(core: &CoreConfig, config: &N4Config, identity: N4Identity) -> Config {
    let upfs = core.upfs.iter().map(|upf| upf.n4).collect();
    let first_sequence = rand::rng().next_u32() & 0x00ff_ffff;
    let ue_pools = vireo_n4::ue_peers::pools(&core.dnns);
    let stamp = RecoveryTimeStamp(identity.recovery);
    let own = Config::new(config.listen.ip(), upfs, stamp, first_sequence);
    Config {
        node_id: core.n4_node.id(),
        shared: identity.is_shared,
        allow: config.allow.clone(),
        ue_pools,
        // eNBs are not served in SBA mode.
        user_data: core.ciot.control_plane && core.eps.interworks && !core.smf_is_remote,
        ..own
    }
}
