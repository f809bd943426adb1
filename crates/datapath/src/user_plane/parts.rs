//! Parts of a user plane that start before its workers: tables, kernel programs, devices.

use super::config::UserPlaneConfig;
use crate::drivers::slice_steering::{self, SliceSteering};
use crate::drivers::xdp::{Xdp, XdpSetup};
use crate::engine::tables::Tables;
use crate::os_setup::host_routes::HostRoutes;
use crate::os_setup::nat::Nat;
use crate::os_setup::{forwarding, tun};
use crate::start_error::StartError;
use crate::sys::tun::Tun;
use crate::sys::udp::Socket;
use crate::workers::process::{self, TableFds};
use crate::workers::slices;
use std::io;
use std::os::fd::AsFd;
use std::sync::Arc;

/// The tables, with the kernel program that reads them or the programs that distribute packets to
/// slices, and with the memory that other processes map.
pub(super) struct TableParts {
    pub(super) tables: Tables,
    pub(super) xdp: Option<Xdp>,
    pub(super) steering: Option<SliceSteering>,
    pub(super) memory: Option<TableFds>,
}

impl TableParts {
    /// Creates the tables, and loads the programs that the configuration needs.
    pub(super) fn load(config: &UserPlaneConfig, workers: usize) -> Result<Self, StartError> {
        let UserPlaneConfig { n3, tun, pools, limits, nat, .. } = config;
        if let Some(xdp) = &config.xdp {
            let (limits, nat, pools, processors) = (*limits, *nat, pools.clone(), slices::processors(&config.slices));
            if nat {
                forwarding::check_reverse_path(&xdp.interfaces)?;
            }
            let setup = XdpSetup { n3, pools, limits, tun, nat, processors: &processors };
            let (xdp, tables) = Xdp::load(xdp, setup)?;
            return Ok(TableParts { tables, xdp: Some(xdp), steering: None, memory: None });
        }
        let (mut tables, memory) = match config.processes {
            Some(_) => {
                let (tables, memory) = process::tables(pools.clone(), *limits, workers)?;
                (tables, Some(memory))
            }
            None => (Tables::new(pools.clone(), *limits), None),
        };
        let mut steering = None;
        if !config.slices.is_empty() {
            let (programs, worker_map) = slice_steering::load(n3, pools, *limits)?;
            tables.set_worker_map(worker_map);
            steering = Some(programs);
        }
        Ok(TableParts { tables, xdp: None, steering, memory })
    }
}

/// Device, routes and address translation in the operating system.
pub(super) struct SystemParts {
    /// Queues of the TUN device, one for each socket worker.
    pub(super) queues: Vec<Tun>,
    pub(super) routes: Option<Arc<HostRoutes>>,
    pub(super) nat: Option<Nat>,
}

impl SystemParts {
    /// Creates the TUN device with `queues` queues, enables forwarding, and installs or removes
    /// address translation.
    pub(super) fn set_up(config: &UserPlaneConfig, queues: usize) -> Result<Self, StartError> {
        if config.nat && config.host_routes {
            return Err(StartError::HostRoutesNat);
        }
        let queues = tun::create(&config.tun, queues, &config.pools, config.host_routes)?;
        let mtu = config.pools.iter().map(|pool| pool.mtu).max().unwrap_or(1400);
        let routes = config.host_routes.then(|| HostRoutes::new(&config.tun, mtu.into())).transpose()?;
        forwarding::enable(&config.pools);
        let nat = match config.nat {
            true => Some(Nat::install(&config.tun, &config.pools)?),
            false if config.host_routes => None,
            false => {
                Nat::remove_leftover();
                None
            }
        };
        Ok(SystemParts { queues, routes: routes.map(Arc::new), nat })
    }
}

/// Makes the kernel distribute packets on these sockets and the TUN device to the workers of
/// slices.
pub(super) fn steer_to_slices(steering: &SliceSteering, sockets: &[Socket], tun: &Tun) -> Result<(), StartError> {
    let refused = |error: io::Error| StartError::Slices(error.to_string());
    sockets.iter().try_for_each(|socket| socket.set_program(steering.datagrams.as_fd())).map_err(refused)?;
    tun.set_program(steering.packets.as_fd()).map_err(refused)
}
