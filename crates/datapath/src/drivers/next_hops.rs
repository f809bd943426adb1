//! Next-hop cache of the drivers that write Ethernet headers.
//!
//! Next hops come from the kernel's routes and neighbours. The kernel routes each packet whose next
//! hop is unknown. It thereby resolves the neighbour, and a later query finds the result. A stale
//! neighbour still gets single packets through the kernel, so that the kernel probes it again.

use crate::start_error::StartError;
use crate::sys::netlink::{self, Netlink};
use crate::sys::route::Routes;
use std::io;
use std::net::IpAddr;
use tracing::debug;
use vireo_types::{Duration, Instant};

/// Configured next hops. The kernel resolves their neighbours only on request, because packets
/// bypass it.
#[derive(Debug)]
pub(crate) struct NextHops {
    routes: Routes,
    netlink: Netlink,
    next_hops: Vec<IpAddr>,
}

impl NextHops {
    pub(crate) fn new(next_hops: Vec<IpAddr>) -> io::Result<Self> {
        Ok(NextHops { routes: Routes::open()?, netlink: Netlink::open()?, next_hops })
    }

    /// Asks the kernel to resolve the next hops. An unreachable one may become reachable later.
    pub(crate) fn refresh(&self) {
        for next_hop in &self.next_hops {
            let Some(route) = self.routes.route(*next_hop) else { continue };
            // A request would take away the permanence of a permanent neighbour.
            if self.routes.neighbour(route.interface, route.next_hop).is_some_and(|neighbour| !neighbour.stale) {
                continue;
            }
            if let Err(error) = self.netlink.use_neighbour(route.interface, route.next_hop) {
                debug!("the next hop {next_hop}: {error}");
            }
        }
    }
}

/// Interface, header and MTU of the packets to one destination.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Hop {
    /// Index among the interfaces of the user plane.
    pub(crate) port: usize,
    /// Destination and source of the frame.
    pub(crate) macs: [u8; 12],
    /// Longest IP packet in octets.
    pub(crate) mtu: usize,
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    to: IpAddr,
    expires: Instant,
    hop: Option<Hop>,
}

/// Number of cached destinations, indexed by a hash.
const ENTRIES: usize = 1024;
/// Lifetime of a known next hop.
const KNOWN_LIFETIME: Duration = Duration::from_millis(300);
/// Lifetime of a negative result: about as long as neighbour resolution takes.
const MISSING_LIFETIME: Duration = Duration::from_millis(5);
/// Kernel queries for one batch of packets. The kernel routes the packets that they do not cover.
/// One takes about 5 us.
const QUERIES: u32 = 4;

/// Next-hop cache of one worker.
#[derive(Debug)]
pub(crate) struct Hops {
    /// Kernel routes. `None` = the cache is fixed.
    routes: Option<Routes>,
    /// Names and indexes of the interfaces of the user plane. Packets leave only through these.
    interfaces: Vec<(String, u32)>,
    entries: Box<[Option<Entry>]>,
    queries: u32,
}

impl Hops {
    pub(crate) fn new(interfaces: &[String]) -> Result<Self, StartError> {
        let routes = Routes::open()?;
        let mut found = vec![];
        for name in interfaces {
            let index = netlink::index_of(name).map_err(|_| StartError::FramesInterface(name.clone()))?;
            routes
                .interface(name)
                .map_err(|source| StartError::FramesNotEthernet { interface: name.clone(), source })?;
            found.push((name.clone(), index));
        }
        Ok(Hops { routes: Some(routes), interfaces: found, entries: vec![None; ENTRIES].into(), queries: 0 })
    }

    /// Creates a fixed cache with these next hops.
    pub(crate) fn fixed(known: &[(IpAddr, Hop)]) -> Self {
        let mut entries: Box<[Option<Entry>]> = vec![None; ENTRIES].into();
        for (to, hop) in known {
            entries[slot(*to)] = Some(Entry { to: *to, expires: Instant(u64::MAX), hop: Some(*hop) });
        }
        Hops { routes: None, interfaces: vec![], entries, queries: 0 }
    }

    /// Begins a batch of packets: resets the number of queries.
    pub(crate) fn begin(&mut self) {
        self.queries = QUERIES;
    }

    /// Returns the next hop to an address. Returns `None` if the kernel must route the packet or
    /// the next hop is unknown.
    #[inline]
    pub(crate) fn find(&mut self, to: IpAddr, now: Instant) -> Option<&Hop> {
        let slot = slot(to);
        let known = matches!(&self.entries[slot], Some(entry) if entry.to == to && now < entry.expires);
        if !known && !self.query(slot, to, now) {
            return None;
        }
        self.entries[slot].as_ref()?.hop.as_ref()
    }

    /// Queries the kernel. Returns true if packets may use the result.
    #[cold]
    fn query(&mut self, slot: usize, to: IpAddr, now: Instant) -> bool {
        let Some(remaining) = self.queries.checked_sub(1) else { return false };
        self.queries = remaining;
        let found = self.resolve(to);
        let lifetime = if found.is_some() { KNOWN_LIFETIME } else { MISSING_LIFETIME };
        self.entries[slot] = Some(Entry { to, expires: now + lifetime, hop: found.map(|(hop, _)| hop) });
        // One packet to a stale neighbour takes the kernel's path, so that the kernel probes it.
        found.is_some_and(|(_, stale)| !stale)
    }

    /// Returns the next hop, and true if the kernel should probe it.
    fn resolve(&self, to: IpAddr) -> Option<(Hop, bool)> {
        let routes = self.routes.as_ref()?;
        let route = routes.route(to)?;
        let port = self.interfaces.iter().position(|(_, index)| *index == route.interface)?;
        let neighbour = routes.neighbour(route.interface, route.next_hop)?;
        let interface = routes.interface(&self.interfaces[port].0).ok()?;
        let mut macs = [0; 12];
        macs[..6].copy_from_slice(&neighbour.mac);
        macs[6..].copy_from_slice(&interface.mac);
        let mtu = route.mtu.unwrap_or(u32::MAX).min(interface.mtu) as usize;
        Some((Hop { port, macs, mtu }, neighbour.stale))
    }
}

#[inline]
fn slot(to: IpAddr) -> usize {
    let bits = match to {
        IpAddr::V4(v4) => u64::from(v4.to_bits()),
        IpAddr::V6(v6) => (v6.to_bits() >> 64) as u64 ^ v6.to_bits() as u64,
    };
    (bits.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 54) as usize % ENTRIES
}
