//! Next hops by the kernel's routes and neighbours, remembered for a moment, for drivers that write Ethernet headers
//! themselves.
//!
//! What is not known is left to the kernel: it routes the packet and asks for the neighbour, and we find it in its table
//! the next time. A neighbour that the kernel has not heard of for a while gets one packet by the kernel now and then,
//! so that it is asked again.

use crate::os_setup::StartError;
use crate::sys::netlink::{self, Netlink};
use crate::sys::route::Routes;
use std::io;
use std::net::IpAddr;
use tracing::debug;
use vireo_types::{Duration, Instant};

/// Configured next hops, which the kernel knows the neighbours of only if somebody asks it to: packets do not.
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

    /// Has the kernel know them. One that is out of reach now may come back.
    pub(crate) fn keep(&self) {
        for next_hop in &self.next_hops {
            let Some(route) = self.routes.route(*next_hop) else { continue };
            // to be asked for takes a permanent neighbour's permanence away
            if self.routes.neighbour(route.interface, route.next_hop).is_some_and(|neighbour| !neighbour.stale) {
                continue;
            }
            if let Err(error) = self.netlink.use_neighbour(route.interface, route.next_hop) {
                debug!("the next hop {next_hop}: {error}");
            }
        }
    }
}

/// How a packet leaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Hop {
    /// The place of the interface among ours.
    pub(crate) port: usize,
    /// Destination and source of the frame.
    pub(crate) macs: [u8; 12],
    /// Octets of the longest IP packet.
    pub(crate) mtu: usize,
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    to: IpAddr,
    until: Instant,
    hop: Option<Hop>,
}

/// How many destinations are remembered, by a hash.
const ENTRIES: usize = 1024;
/// How long a next hop is believed.
const BELIEVED: Duration = Duration::from_millis(300);
/// How long it is believed that there is none: about as long as an answer takes.
const MISSING: Duration = Duration::from_millis(5);
/// Questions to the kernel for one batch of packets; what they do not cover it routes itself. One takes about 5 us.
const QUESTIONS: u32 = 4;

/// The next hops that one worker has found.
#[derive(Debug)]
pub(crate) struct Hops {
    /// Whom to ask; `None` = what is known is all there is.
    routes: Option<Routes>,
    /// Names and indexes of our interfaces: packets leave by these alone.
    interfaces: Vec<(String, u32)>,
    entries: Box<[Option<Entry>]>,
    questions: u32,
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
        Ok(Hops { routes: Some(routes), interfaces: found, entries: vec![None; ENTRIES].into(), questions: 0 })
    }

    /// These, for good.
    pub(crate) fn fixed(known: &[(IpAddr, Hop)]) -> Self {
        let mut entries: Box<[Option<Entry>]> = vec![None; ENTRIES].into();
        for (to, hop) in known {
            entries[place(*to)] = Some(Entry { to: *to, until: Instant(u64::MAX), hop: Some(*hop) });
        }
        Hops { routes: None, interfaces: vec![], entries, questions: 0 }
    }

    /// Begins a batch of packets.
    pub(crate) fn begin(&mut self) {
        self.questions = QUESTIONS;
    }

    /// How packets to this address leave; `None` if that is the kernel's business, or not known yet.
    #[inline]
    pub(crate) fn find(&mut self, to: IpAddr, now: Instant) -> Option<&Hop> {
        let place = place(to);
        let known = matches!(&self.entries[place], Some(entry) if entry.to == to && now < entry.until);
        if !known && !self.ask(place, to, now) {
            return None;
        }
        self.entries[place].as_ref()?.hop.as_ref()
    }

    /// Asks the kernel; says whether a packet may leave as it says.
    #[cold]
    fn ask(&mut self, place: usize, to: IpAddr, now: Instant) -> bool {
        let Some(left) = self.questions.checked_sub(1) else { return false };
        self.questions = left;
        let found = self.resolve(to);
        let believed = if found.is_some() { BELIEVED } else { MISSING };
        self.entries[place] = Some(Entry { to, until: now + believed, hop: found.map(|(hop, _)| hop) });
        // one packet of a neighbour that the kernel should ask again goes its way
        found.is_some_and(|(_, stale)| !stale)
    }

    /// The next hop, and whether the kernel should ask for it again.
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
fn place(to: IpAddr) -> usize {
    let bits = match to {
        IpAddr::V4(v4) => u64::from(v4.to_bits()),
        IpAddr::V6(v6) => (v6.to_bits() >> 64) as u64 ^ v6.to_bits() as u64,
    };
    (bits.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 54) as usize % ENTRIES
}
