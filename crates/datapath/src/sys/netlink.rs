//! RTNETLINK requests for a TUN device: link state, addresses and routes.
//!
//! All settings disappear with the device.

use super::{check, check_size};
use std::io;
use std::net::IpAddr;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};

const HEADER: usize = 16;
/// Longest answer that is read, in bytes.
pub(super) const ANSWER: usize = 4096;
/// Packets that may wait between the kernel and a queue of the device.
const QUEUE_PACKETS: u32 = 4096;

// Constants of linux/if_link.h, missing in libc.
const IFLA_INET6_ADDR_GEN_MODE: u16 = 8;
const IN6_ADDR_GEN_MODE_NONE: u8 = 1;
// Constant of linux/if_addr.h.
const IFA_F_NODAD: u8 = 0x02;
// Constants of linux/rtnetlink.h.
const RTAX_MTU: u16 = 2;
const NESTED: u16 = 1 << 15;

/// A connection to the kernel's routing tables. Every change needs CAP_NET_ADMIN.
#[derive(Debug)]
pub(crate) struct Netlink(OwnedFd);

/// A request under construction.
pub(super) struct Request(Vec<u8>);

impl Request {
    /// Creates a query, whose answer replaces the acknowledgement.
    pub(super) fn query(kind: u16, body: &[u8]) -> Self {
        let mut request = Request::new(kind, 0, body);
        request.0[6..8].copy_from_slice(&(libc::NLM_F_REQUEST as u16).to_ne_bytes());
        request
    }

    fn new(kind: u16, flags: libc::c_int, body: &[u8]) -> Self {
        let mut octets = vec![0; HEADER];
        octets[4..6].copy_from_slice(&kind.to_ne_bytes());
        let flags = (flags | libc::NLM_F_REQUEST | libc::NLM_F_ACK) as u16;
        octets[6..8].copy_from_slice(&flags.to_ne_bytes());
        octets.extend(body);
        Request(octets)
    }

    pub(super) fn attribute(mut self, kind: u16, value: &[u8]) -> Self {
        self.0.extend(attribute(kind, value));
        self
    }
}

fn attribute(kind: u16, value: &[u8]) -> Vec<u8> {
    let length = 4 + value.len();
    let mut octets = Vec::with_capacity(length + 3);
    octets.extend((length as u16).to_ne_bytes());
    octets.extend(kind.to_ne_bytes());
    octets.extend(value);
    octets.resize(length.next_multiple_of(4), 0);
    octets
}

pub(super) fn octets(address: IpAddr) -> Vec<u8> {
    match address {
        IpAddr::V4(v4) => v4.octets().to_vec(),
        IpAddr::V6(v6) => v6.octets().to_vec(),
    }
}

pub(super) fn family(address: IpAddr) -> u8 {
    (if address.is_ipv4() { libc::AF_INET } else { libc::AF_INET6 }) as u8
}

/// Returns the index of an interface.
pub(crate) fn index_of(name: &str) -> io::Result<u32> {
    let name = std::ffi::CString::new(name)?;
    // SAFETY: the name ends with a zero.
    match unsafe { libc::if_nametoindex(name.as_ptr()) } {
        0 => Err(io::Error::last_os_error()),
        index => Ok(index),
    }
}

impl Netlink {
    pub(crate) fn open() -> io::Result<Self> {
        let kind = libc::SOCK_RAW | libc::SOCK_CLOEXEC;
        // SAFETY: no pointers; the result is checked and has no other owner.
        let fd =
            unsafe { OwnedFd::from_raw_fd(check(libc::socket(libc::AF_NETLINK, kind, libc::NETLINK_ROUTE))? as i32) };
        Ok(Netlink(fd))
    }

    /// Restricts dumps to the objects that the request header selects, for example one of many
    /// routing tables. Kernels before 4.20 return all objects.
    pub(super) fn filter_strictly(&self) {
        let on: libc::c_int = 1;
        let size = size_of::<libc::c_int>() as libc::socklen_t;
        // SAFETY: the option is an int, which outlives the call.
        let _ = unsafe {
            libc::setsockopt(
                self.0.as_raw_fd(),
                libc::SOL_NETLINK,
                libc::NETLINK_GET_STRICT_CHK,
                (&raw const on).cast(),
                size,
            )
        };
    }

    /// Sets an interface up with this MTU. It gets no IPv6 link-local address, because it stands
    /// for many links.
    pub(crate) fn up(&self, index: u32, mtu: u32) -> io::Result<()> {
        let mut body = [0; 16];
        body[4..8].copy_from_slice(&(index as i32).to_ne_bytes());
        let mode = attribute(IFLA_INET6_ADDR_GEN_MODE, &[IN6_ADDR_GEN_MODE_NONE]);
        let specific = attribute(libc::AF_INET6 as u16 | NESTED, &mode);
        let quiet = Request::new(libc::RTM_NEWLINK, 0, &body).attribute(libc::IFLA_AF_SPEC | NESTED, &specific);
        // A kernel without IPv6 has no such mode and needs none.
        let _ = self.request(quiet);
        let up = (libc::IFF_UP as u32).to_ne_bytes();
        body[8..12].copy_from_slice(&up);
        body[12..16].copy_from_slice(&up);
        self.request(
            Request::new(libc::RTM_NEWLINK, 0, &body)
                .attribute(libc::IFLA_MTU, &mtu.to_ne_bytes())
                .attribute(libc::IFLA_TXQLEN, &QUEUE_PACKETS.to_ne_bytes()),
        )
    }

    /// Adds an address without a network to an interface.
    pub(crate) fn address(&self, index: u32, address: IpAddr) -> io::Result<()> {
        let octets = octets(address);
        let nodad = if address.is_ipv6() { IFA_F_NODAD } else { 0 };
        let mut body = vec![family(address), octets.len() as u8 * 8, nodad, libc::RT_SCOPE_UNIVERSE];
        body.extend(index.to_ne_bytes());
        self.request(
            Request::new(libc::RTM_NEWADDR, libc::NLM_F_CREATE | libc::NLM_F_EXCL, &body)
                .attribute(libc::IFA_LOCAL, &octets)
                .attribute(libc::IFA_ADDRESS, &octets),
        )
    }

    /// Adds a route for a network to an interface, with the MTU of its packets.
    pub(crate) fn route(&self, index: u32, network: IpAddr, length: u8, mtu: u32) -> io::Result<()> {
        self.request(
            network_route(libc::RTM_NEWROUTE, libc::NLM_F_CREATE | libc::NLM_F_EXCL, index, (network, length))
                .attribute(libc::RTA_METRICS | NESTED, &attribute(RTAX_MTU, &mtu.to_ne_bytes())),
        )
    }

    /// Adds a route for a network to an interface with a metric. Routes with lower metrics take
    /// precedence.
    pub(crate) fn add_metric_route(&self, index: u32, network: (IpAddr, u8), mtu: u32, metric: u32) -> io::Result<()> {
        self.request(
            network_route(libc::RTM_NEWROUTE, libc::NLM_F_CREATE, index, network)
                .attribute(libc::RTA_PRIORITY, &metric.to_ne_bytes())
                .attribute(libc::RTA_METRICS | NESTED, &attribute(RTAX_MTU, &mtu.to_ne_bytes())),
        )
    }

    /// Removes the route of a network to an interface, regardless of its metric.
    pub(crate) fn remove_route(&self, index: u32, network: (IpAddr, u8)) -> io::Result<()> {
        self.request(network_route(libc::RTM_DELROUTE, 0, index, network))
    }

    /// Makes the kernel resolve a neighbour and cache it for a while.
    pub(crate) fn use_neighbour(&self, interface: u32, address: IpAddr) -> io::Result<()> {
        let mut body = [0; 12];
        body[0] = family(address);
        body[4..8].copy_from_slice(&interface.to_ne_bytes());
        body[10] = libc::NTF_USE;
        let request = Request::new(libc::RTM_NEWNEIGH, libc::NLM_F_CREATE, &body);
        self.request(request.attribute(libc::NDA_DST, &octets(address)))
    }

    /// Sends a request and waits for the acknowledgement.
    fn request(&self, request: Request) -> io::Result<()> {
        let mut answer = [0; ANSWER];
        match self.send(request, &mut answer)? {
            (libc::NLMSG_ERROR, _) => Ok(()),
            _ => Err(unexpected()),
        }
    }

    /// Sends a request. Returns the type and the body of the answer.
    pub(super) fn send<'a>(
        &self,
        Request(mut request): Request,
        answer: &'a mut [u8; ANSWER],
    ) -> io::Result<(libc::c_int, &'a [u8])> {
        let length = request.len() as u32;
        request[..4].copy_from_slice(&length.to_ne_bytes());
        // SAFETY: the request is readable for its length.
        check_size(unsafe { libc::send(self.0.as_raw_fd(), request.as_ptr().cast(), request.len(), 0) })?;
        // SAFETY: the buffer is writable for its length.
        let length =
            check_size(unsafe { libc::recv(self.0.as_raw_fd(), answer.as_mut_ptr().cast(), answer.len(), 0) })?;
        let (header, body) = answer[..length].split_first_chunk::<HEADER>().ok_or_else(unexpected)?;
        let kind = libc::c_int::from(u16::from_ne_bytes([header[4], header[5]]));
        if kind == libc::NLMSG_ERROR {
            // `nlmsgerr`: the first field is 0 or a negative errno.
            match body.first_chunk().map(|octets| i32::from_ne_bytes(*octets)) {
                Some(0) => {}
                Some(code) => return Err(io::Error::from_raw_os_error(code.wrapping_neg())),
                None => return Err(unexpected()),
            }
        }
        Ok((kind, body))
    }
}

impl AsRawFd for Netlink {
    fn as_raw_fd(&self) -> RawFd {
        self.0.as_raw_fd()
    }
}

/// Creates a request about the route of a network to an interface.
fn network_route(kind: u16, flags: libc::c_int, index: u32, (network, length): (IpAddr, u8)) -> Request {
    let scope = if network.is_ipv4() { libc::RT_SCOPE_LINK } else { libc::RT_SCOPE_UNIVERSE };
    let table = libc::RT_TABLE_MAIN;
    let mut body = vec![family(network), length, 0, 0, table, libc::RTPROT_STATIC, scope, libc::RTN_UNICAST];
    body.extend([0; 4]);
    Request::new(kind, flags, &body)
        .attribute(libc::RTA_DST, &octets(network))
        .attribute(libc::RTA_OIF, &index.to_ne_bytes())
}

fn unexpected() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "an unexpected answer of the kernel")
}
