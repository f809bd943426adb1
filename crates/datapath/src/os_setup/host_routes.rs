//! Host routes of single UEs to the TUN device.
//!
//! They steer a UE's packets to this user plane where several user planes on one machine share the
//! pool. On several machines a routing daemon announces them to the routers.
//!
//! A new route gets a lower metric than the existing route of the UE. While two user planes have
//! its session, as during a relocation, the later one gets the packets. If the later one removes
//! its route, the earlier one gets them again. All routes disappear with the device.

use crate::sys::netlink::{self, Netlink};
use std::io;
use std::net::IpAddr;
use std::sync::{Mutex, PoisonError};
use tracing::warn;
use vireo_types::SessionAddress;

/// Metric of the first route of a UE. The route of each further user plane has one less.
const METRIC: u32 = 1 << 31;

/// Host routes of this user plane in the kernel.
#[derive(Debug)]
pub(crate) struct HostRoutes {
    kernel: Mutex<Netlink>,
    index: u32,
    mtu: u32,
}

impl HostRoutes {
    /// Creates the set of routes to the device, for packets of at most `mtu` octets.
    pub(crate) fn new(device: &str, mtu: u32) -> io::Result<Self> {
        Ok(HostRoutes { kernel: Mutex::new(Netlink::open()?), index: netlink::index_of(device)?, mtu })
    }

    /// Adds the routes of a UE if `present` is true, otherwise removes them.
    pub(crate) fn set(&self, ue: SessionAddress, present: bool) {
        let v4 = ue.ipv4.map(|v4| (IpAddr::V4(v4), 32));
        let v6 = ue.ipv6_prefix.map(|v6| (IpAddr::V6(v6), 64));
        let kernel = self.kernel.lock().unwrap_or_else(PoisonError::into_inner);
        for (address, length) in v4.into_iter().chain(v6) {
            let done = match present {
                true => {
                    let before = kernel.metric((address, length));
                    let metric = before.map_or(METRIC, |before| before.saturating_sub(1).max(1));
                    kernel.add_metric_route(self.index, (address, length), self.mtu, metric)
                }
                false => kernel.remove_route(self.index, (address, length)),
            };
            if let Err(error) = done {
                let what = if present { "led here" } else { "led elsewhere" };
                warn!("{address}/{length} cannot be {what}: {error}; see `ip route`");
            }
        }
    }
}
