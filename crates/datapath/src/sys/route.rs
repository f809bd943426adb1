//! Queries of the kernel's routes, neighbours and interfaces.

use super::check;
use super::netlink::{ANSWER, Netlink, Request, family, octets};
use std::io;
use std::net::IpAddr;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

// Constant of linux/rtnetlink.h.
const RTAX_MTU: u16 = 2;
/// Requests the table entry instead of the resolved result.
const FIB_MATCH: u32 = 0x2000;
/// Sizes of `rtmsg` and `ndmsg` in bytes.
const BODY: usize = 12;

/// Route of the packets to a destination.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Route {
    /// Index of the outgoing interface.
    pub(crate) interface: u32,
    /// Address of the router, or the destination itself.
    pub(crate) next_hop: IpAddr,
    /// MTU of the route in octets, if it has one.
    pub(crate) mtu: Option<u32>,
}

/// A neighbour on an Ethernet link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Neighbour {
    pub(crate) mac: [u8; 6],
    /// True if the entry needs confirmation: the kernel probes the neighbour when it sends a packet
    /// itself.
    pub(crate) stale: bool,
}

/// Current state of an interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Interface {
    pub(crate) mac: [u8; 6],
    pub(crate) mtu: u32,
}

/// Read access to the kernel's routing and neighbour tables.
#[derive(Debug)]
pub(crate) struct Routes {
    netlink: Netlink,
    /// Any socket serves for interface queries.
    socket: OwnedFd,
}

impl Routes {
    pub(crate) fn open() -> io::Result<Self> {
        let kind = libc::SOCK_DGRAM | libc::SOCK_CLOEXEC;
        // SAFETY: no pointers; the result is checked and has no other owner.
        let socket = unsafe { OwnedFd::from_raw_fd(check(libc::socket(libc::AF_UNIX, kind, 0))? as i32) };
        Ok(Routes { netlink: Netlink::open()?, socket })
    }

    /// Returns the route to an address. `None` if it has no route, or the route has not one
    /// neighbour on an interface.
    pub(crate) fn route(&self, to: IpAddr) -> Option<Route> {
        let address = octets(to);
        let mut body = [0; BODY];
        (body[0], body[1]) = (family(to), address.len() as u8 * 8);
        let query = Request::query(libc::RTM_GETROUTE, &body).attribute(libc::RTA_DST, &address);
        let mut answer = [0; ANSWER];
        let (kind, body) = self.netlink.send(query, &mut answer).ok()?;
        let (header, rest) = body.split_first_chunk::<BODY>()?;
        if kind != libc::c_int::from(libc::RTM_NEWROUTE) || header[7] != libc::RTN_UNICAST {
            return None;
        }
        let (mut interface, mut next_hop, mut mtu) = (None, to, None);
        for (kind, value) in attributes(rest) {
            match kind {
                libc::RTA_OIF => interface = Some(u32::from_ne_bytes(*value.first_chunk()?)),
                libc::RTA_GATEWAY => next_hop = address_of(value)?,
                libc::RTA_METRICS => {
                    let found = attributes(value).find(|(kind, _)| *kind == RTAX_MTU);
                    mtu = found.and_then(|(_, value)| value.first_chunk()).map(|mtu| u32::from_ne_bytes(*mtu));
                }
                // A router of the other address family.
                libc::RTA_VIA => return None,
                _ => {}
            }
        }
        Some(Route { interface: interface?, next_hop, mtu })
    }

    /// Returns the neighbour with this address. `None` if its MAC address is unknown.
    pub(crate) fn neighbour(&self, interface: u32, address: IpAddr) -> Option<Neighbour> {
        let mut body = [0; BODY];
        body[0] = family(address);
        body[4..8].copy_from_slice(&interface.to_ne_bytes());
        let query = Request::query(libc::RTM_GETNEIGH, &body).attribute(libc::NDA_DST, &octets(address));
        let mut answer = [0; ANSWER];
        let (kind, body) = self.netlink.send(query, &mut answer).ok()?;
        let (header, rest) = body.split_first_chunk::<BODY>()?;
        if kind != libc::c_int::from(libc::RTM_NEWNEIGH) {
            return None;
        }
        let state = u16::from_ne_bytes([header[8], header[9]]);
        let sure = state & (libc::NUD_PERMANENT | libc::NUD_REACHABLE | libc::NUD_NOARP) != 0;
        let stale = state & (libc::NUD_STALE | libc::NUD_DELAY | libc::NUD_PROBE) != 0;
        if !sure && !stale {
            return None;
        }
        let mac = attributes(rest).find(|(kind, _)| *kind == libc::NDA_LLADDR)?.1;
        Some(Neighbour { mac: mac.try_into().ok()?, stale: state & libc::NUD_STALE != 0 })
    }

    /// Returns the current state of an Ethernet interface.
    pub(crate) fn interface(&self, name: &str) -> io::Result<Interface> {
        let query_interface = |what| {
            // SAFETY: an ifreq is plain data for which zeros are valid.
            let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
            for (to, from) in request.ifr_name.iter_mut().zip(name.bytes().take(libc::IFNAMSIZ - 1)) {
                *to = from as libc::c_char;
            }
            // SAFETY: both requests take a pointer to an ifreq, which outlives the call.
            check(unsafe { libc::ioctl(self.socket.as_raw_fd(), what as libc::Ioctl, &mut request) })?;
            Ok::<_, io::Error>(request)
        };
        // SAFETY: the kernel has written this member of the union.
        let mac = unsafe { query_interface(libc::SIOCGIFHWADDR)?.ifr_ifru.ifru_hwaddr };
        if mac.sa_family != libc::ARPHRD_ETHER {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "it is no Ethernet interface"));
        }
        // SAFETY: the kernel has written this member of the union.
        let mtu = unsafe { query_interface(libc::SIOCGIFMTU)?.ifr_ifru.ifru_mtu };
        let mut address = [0; 6];
        for (to, from) in address.iter_mut().zip(mac.sa_data) {
            *to = from as u8;
        }
        Ok(Interface { mac: address, mtu: u32::try_from(mtu).unwrap_or(0) })
    }
}

impl Netlink {
    /// Returns the metric of the best route to exactly this network, if there is one.
    pub(crate) fn metric(&self, (network, length): (IpAddr, u8)) -> Option<u32> {
        let address = octets(network);
        let mut body = [0; BODY];
        (body[0], body[1]) = (family(network), address.len() as u8 * 8);
        body[8..].copy_from_slice(&FIB_MATCH.to_ne_bytes());
        let query = Request::query(libc::RTM_GETROUTE, &body).attribute(libc::RTA_DST, &address);
        let mut answer = [0; ANSWER];
        let (_, body) = self.send(query, &mut answer).ok()?;
        let (header, rest) = body.split_first_chunk::<BODY>()?;
        let (_, metric) = attributes(rest).find(|(kind, _)| *kind == libc::RTA_PRIORITY)?;
        (header[1] == length).then(|| metric.first_chunk().map(|metric| u32::from_ne_bytes(*metric))).flatten()
    }
}

pub(super) fn address_of(octets: &[u8]) -> Option<IpAddr> {
    match octets.len() {
        4 => octets.first_chunk::<4>().map(|v4| IpAddr::from(*v4)),
        16 => octets.first_chunk::<16>().map(|v6| IpAddr::from(*v6)),
        _ => None,
    }
}

/// Iterates over types and values of an attribute list.
pub(super) fn attributes(mut list: &[u8]) -> impl Iterator<Item = (u16, &[u8])> {
    std::iter::from_fn(move || {
        let header: &[u8; 4] = list.first_chunk()?;
        let length = usize::from(u16::from_ne_bytes([header[0], header[1]]));
        let kind = u16::from_ne_bytes([header[2], header[3]]) & 0x3fff;
        let value = list.get(4..length)?;
        list = list.get(length.next_multiple_of(4)..).unwrap_or_default();
        Some((kind, value))
    })
}
