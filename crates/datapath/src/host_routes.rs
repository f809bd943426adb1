//! Routes of single UEs to the TUN device: what brings a UE's packets to this user plane where several of one machine have
//! its pool, and what a routing daemon tells the routers where they are on several machines.
//!
//! A route gets a lower metric than the one that there is for the UE: of two user planes that have its session, as when it
//! moves from one to the other, the later one gets its packets, and the earlier one again if the later one lets it go. All
//! of them go with the device.

use crate::sys::netlink::{self, Netlink};
use std::io;
use std::net::IpAddr;
use std::sync::{Mutex, PoisonError};
use tracing::warn;
use vireo_types::SessionAddress;

/// The metric of a UE's first route; each of another user plane has one less.
const METRIC: u32 = 1 << 31;

/// The routes that this user plane has in the kernel.
#[derive(Debug)]
pub(crate) struct HostRoutes {
    kernel: Mutex<Netlink>,
    index: u32,
    mtu: u32,
}

impl HostRoutes {
    /// To the device of this name, for packets of at most `mtu` octets.
    pub(crate) fn new(device: &str, mtu: u32) -> io::Result<Self> {
        Ok(HostRoutes { kernel: Mutex::new(Netlink::open()?), index: netlink::index_of(device)?, mtu })
    }

    /// Brings a UE's packets here from now on, or not any more.
    pub(crate) fn set(&self, ue: SessionAddress, here: bool) {
        let v4 = ue.ipv4.map(|v4| (IpAddr::V4(v4), 32));
        let v6 = ue.ipv6_prefix.map(|v6| (IpAddr::V6(v6), 64));
        let kernel = self.kernel.lock().unwrap_or_else(PoisonError::into_inner);
        for (address, length) in v4.into_iter().chain(v6) {
            let done = match here {
                true => {
                    let before = kernel.metric((address, length));
                    let metric = before.map_or(METRIC, |before| before.saturating_sub(1).max(1));
                    kernel.add_metric_route(self.index, (address, length), self.mtu, metric)
                }
                false => kernel.remove_route(self.index, (address, length)),
            };
            if let Err(error) = done {
                let what = if here { "led here" } else { "led elsewhere" };
                warn!("{address}/{length} cannot be {what}: {error}; see `ip route`");
            }
        }
    }
}
