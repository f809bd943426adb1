//! Addresses of this machine according to the kernel.
//!
//! They are the addresses of the interfaces and the entries of the local routing table: prefixes,
//! broadcast, anycast and multicast too.

use super::netlink::Netlink;
use super::route::{address_of, attributes};
use super::{check, check_size};
use crate::network::Network;
use std::io;
use std::net::IpAddr;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

/// Buffer for one answer of a dump in bytes. The kernel fills up to 32 KiB.
const ANSWER: usize = 32 << 10;
const HEADER: usize = 16;
/// Sizes of `ifaddrmsg` and of `rtmsg` in bytes.
const ADDRESS_BODY: usize = 8;
const ROUTE_BODY: usize = 12;
/// Attempts of a dump that is interrupted by changes.
const ATTEMPTS: u32 = 8;
/// Maximum number of addresses, far above the number on real machines.
const MAX_ADDRESSES: usize = 1 << 16;

// Constants of linux/rtnetlink.h and linux/netlink.h.
const GROUP_IPV4_ADDRESSES: u32 = 0x10;
const GROUP_IPV6_ADDRESSES: u32 = 0x100;
const NLM_F_DUMP_INTERRUPTED: u16 = 0x10;

/// Socket that becomes readable when addresses change.
#[derive(Debug)]
pub(crate) struct AddressChanges(OwnedFd);

impl AddressChanges {
    /// Subscribes to changes.
    pub(crate) fn open() -> io::Result<Self> {
        let kind = libc::SOCK_RAW | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
        // SAFETY: no pointers; the result is checked and has no other owner.
        let fd =
            unsafe { OwnedFd::from_raw_fd(check(libc::socket(libc::AF_NETLINK, kind, libc::NETLINK_ROUTE))? as i32) };
        // SAFETY: the structure is plain data for which zeros are valid.
        let mut address: libc::sockaddr_nl = unsafe { std::mem::zeroed() };
        address.nl_family = libc::AF_NETLINK as libc::sa_family_t;
        address.nl_groups = GROUP_IPV4_ADDRESSES | GROUP_IPV6_ADDRESSES;
        let size = size_of::<libc::sockaddr_nl>() as libc::socklen_t;
        // SAFETY: the address is readable for its size.
        check(unsafe { libc::bind(fd.as_raw_fd(), (&raw const address).cast(), size) })?;
        Ok(AddressChanges(fd))
    }

    /// Reads all pending notifications. An overrun counts as a change.
    pub(crate) fn clear(&self) {
        let mut octets = [0_u8; 4096];
        loop {
            // SAFETY: the buffer is writable for its length.
            let read = unsafe { libc::recv(self.0.as_raw_fd(), octets.as_mut_ptr().cast(), octets.len(), 0) };
            let overrun = io::Error::last_os_error().raw_os_error() == Some(libc::ENOBUFS);
            if read < 0 && !overrun {
                return;
            }
        }
    }
}

impl AsFd for AddressChanges {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// Returns the addresses and prefixes whose packets the kernel delivers locally, sorted and without
/// duplicates.
pub(crate) fn addresses() -> io::Result<Vec<Network>> {
    let netlink = Netlink::open()?;
    netlink.filter_strictly();
    let mut found = vec![];
    for family in [libc::AF_INET, libc::AF_INET6] {
        let mut body = [0; ADDRESS_BODY];
        body[0] = family as u8;
        dump(&netlink, libc::RTM_GETADDR, &body, &mut |message| found.extend(interface_addresses(message)))?;
        let mut body = [0; ROUTE_BODY];
        (body[0], body[4]) = (family as u8, libc::RT_TABLE_LOCAL);
        dump(&netlink, libc::RTM_GETROUTE, &body, &mut |message| found.extend(local_route(message)))?;
        if found.len() > MAX_ADDRESSES {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "the machine has too many addresses"));
        }
    }
    found.sort_by_key(|network| (network.address, network.length));
    found.dedup();
    Ok(found)
}

/// Returns the local and broadcast address of an interface, without the peer address.
fn interface_addresses(body: &[u8]) -> Vec<Network> {
    let Some((_, rest)) = body.split_first_chunk::<ADDRESS_BODY>() else { return vec![] };
    let of = |wanted: u16| attributes(rest).find(|(kind, _)| *kind == wanted).and_then(|(_, value)| address_of(value));
    // On a point-to-point link, IFA_ADDRESS is the far end.
    let own = of(libc::IFA_LOCAL).or_else(|| of(libc::IFA_ADDRESS));
    own.into_iter().chain(of(libc::IFA_BROADCAST)).map(single).collect()
}

/// Returns the destination of a route in the local table, if it is delivered locally.
fn local_route(body: &[u8]) -> Option<Network> {
    let (header, rest) = body.split_first_chunk::<ROUTE_BODY>()?;
    let table = attributes(rest).find(|(kind, _)| *kind == libc::RTA_TABLE);
    let table = table.and_then(|(_, value)| Some(u32::from_ne_bytes(*value.first_chunk()?)));
    let kinds = [libc::RTN_LOCAL, libc::RTN_BROADCAST, libc::RTN_ANYCAST, libc::RTN_MULTICAST];
    if table.unwrap_or(header[4].into()) != u32::from(libc::RT_TABLE_LOCAL) || !kinds.contains(&header[7]) {
        return None;
    }
    let (_, destination) = attributes(rest).find(|(kind, _)| *kind == libc::RTA_DST)?;
    Some(Network { address: address_of(destination)?, length: header[1] })
}

fn single(address: IpAddr) -> Network {
    Network { address, length: if address.is_ipv4() { 32 } else { 128 } }
}

/// Requests all objects of a kind, and reads the answers to their end. Repeats an interrupted dump.
fn dump(netlink: &Netlink, kind: u16, body: &[u8], take: &mut dyn FnMut(&[u8])) -> io::Result<()> {
    for _ in 0..ATTEMPTS {
        let mut messages: Vec<Vec<u8>> = vec![];
        if dump_once(netlink, kind, body, &mut messages)? {
            messages.iter().for_each(|message| take(message));
            return Ok(());
        }
    }
    Err(io::Error::new(io::ErrorKind::Interrupted, "the machine's addresses change all the time"))
}

/// Requests one dump. Returns false if the kernel reports a change during the dump.
fn dump_once(netlink: &Netlink, kind: u16, body: &[u8], messages: &mut Vec<Vec<u8>>) -> io::Result<bool> {
    let mut request = vec![0; HEADER];
    request[..4].copy_from_slice(&((HEADER + body.len()) as u32).to_ne_bytes());
    request[4..6].copy_from_slice(&kind.to_ne_bytes());
    request[6..8].copy_from_slice(&((libc::NLM_F_REQUEST | libc::NLM_F_DUMP) as u16).to_ne_bytes());
    request.extend(body);
    // SAFETY: the request is readable for its length.
    check_size(unsafe { libc::send(netlink.as_raw_fd(), request.as_ptr().cast(), request.len(), 0) })?;
    let (mut answer, mut whole) = (vec![0; ANSWER], true);
    loop {
        // SAFETY: the buffer is writable for its length.
        let read = unsafe { libc::recv(netlink.as_raw_fd(), answer.as_mut_ptr().cast(), answer.len(), 0) };
        let mut rest = &answer[..check_size(read)?];
        if rest.is_empty() {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        while let Some(header) = rest.first_chunk::<HEADER>() {
            let length = u32::from_ne_bytes([header[0], header[1], header[2], header[3]]) as usize;
            let kind = i32::from(u16::from_ne_bytes([header[4], header[5]]));
            whole &= u16::from_ne_bytes([header[6], header[7]]) & NLM_F_DUMP_INTERRUPTED == 0;
            let body = rest.get(HEADER..length).ok_or(io::ErrorKind::InvalidData)?;
            match kind {
                libc::NLMSG_DONE => return Ok(whole),
                libc::NLMSG_ERROR => {
                    let code = body.first_chunk().map_or(0, |octets| i32::from_ne_bytes(*octets));
                    // A kernel without the family has no addresses of it.
                    return match code.wrapping_neg() {
                        libc::EAFNOSUPPORT | libc::EOPNOTSUPP => Ok(true),
                        code => Err(io::Error::from_raw_os_error(code)),
                    };
                }
                _ => messages.push(body.to_vec()),
            }
            rest = rest.get(length.next_multiple_of(4)..).unwrap_or_default();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loopback_addresses_are_local() {
        let addresses = addresses().expect("the kernel tells");
        let has = |text: &str| {
            let address: IpAddr = text.parse().expect("an address");
            addresses.iter().any(|network| network.contains(address))
        };
        assert!(has("127.0.0.1") && has("127.0.0.77") && !has("192.0.2.77"), "{addresses:?}");
    }
}
