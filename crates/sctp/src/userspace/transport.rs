//! Transports of the library's packets: raw IP (protocol 132) or UDP (RFC 6951).

use crate::config::{BindError, Config, Driver};
use crate::sys::{Received, socket};
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::ops::RangeInclusive;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};

/// One socket, bound to an address of this machine or to all of one family.
#[derive(Debug)]
pub(super) struct Transport {
    fd: OwnedFd,
    pub(super) local: IpAddr,
    udp: bool,
}

/// A received packet, without the headers before that of SCTP.
#[derive(Debug)]
pub(super) struct Incoming<'a> {
    pub(super) packet: &'a mut [u8],
    /// IP address and UDP port (0 over raw IP).
    pub(super) from: SocketAddr,
    /// Destination address, if the transport is bound to all addresses.
    pub(super) to: Option<IpAddr>,
}

/// Opens the configured transports, one for each address.
pub(super) fn open(config: &Config) -> Result<Vec<Transport>, BindError> {
    let udp = config.driver == Driver::UserspaceUdp;
    if !config.addresses.is_empty() {
        return config.addresses.iter().map(|local| Transport::open(*local, udp, config.udp_local_port)).collect();
    }
    let all = [IpAddr::from(Ipv4Addr::UNSPECIFIED), IpAddr::from(Ipv6Addr::UNSPECIFIED)];
    let v4 = Transport::open(all[0], udp, config.udp_local_port)?;
    // Without IPv6 in the system, "every address" means every IPv4 address.
    let v6 = match Transport::open(all[1], udp, config.udp_local_port) {
        Err(BindError::System { .. } | BindError::NoSuchAddress(_)) => None,
        other => Some(other?),
    };
    Ok(std::iter::once(v4).chain(v6).collect())
}

impl Transport {
    fn open(local: IpAddr, udp: bool, udp_port: u16) -> Result<Self, BindError> {
        let (kind, protocol) = if udp { (libc::SOCK_DGRAM, 0) } else { (libc::SOCK_RAW, libc::IPPROTO_SCTP) };
        let fd = socket::open(local, kind, protocol).map_err(|error| match error.kind() {
            io::ErrorKind::PermissionDenied => BindError::NoRawSockets,
            _ => BindError::System { operation: "opening a socket for SCTP packets", error },
        })?;
        let transport = Self { fd, local, udp };
        transport.set_options().map_err(BindError::system("setting up the socket for SCTP packets"))?;
        let port = if udp { udp_port } else { 0 };
        socket::bind(&transport.fd, SocketAddr::new(local, port)).map_err(|error| match error.kind() {
            io::ErrorKind::AddrInUse => BindError::UdpPortInUse { address: local, port },
            io::ErrorKind::AddrNotAvailable => BindError::NoSuchAddress(local),
            _ => BindError::System { operation: "binding the socket for SCTP packets", error },
        })?;
        if !udp && !local.is_unspecified() {
            socket::discard(&transport.fd);
        }
        Ok(transport)
    }

    fn set_options(&self) -> io::Result<()> {
        socket::set_buffers(&self.fd, 4 << 20);
        let all = self.local.is_unspecified();
        match self.local {
            IpAddr::V4(_) if all && self.udp => socket::set(&self.fd, libc::IPPROTO_IP, libc::IP_PKTINFO, &1_i32),
            IpAddr::V4(_) => Ok(()),
            IpAddr::V6(_) => {
                if self.udp {
                    socket::set(&self.fd, libc::IPPROTO_IPV6, libc::IPV6_V6ONLY, &1_i32)?;
                }
                let tell = i32::from(all);
                socket::set(&self.fd, libc::IPPROTO_IPV6, libc::IPV6_RECVPKTINFO, &tell)
            }
        }
    }

    /// Filters out packets for other ports.
    ///
    /// Every raw socket of an address receives every packet to it, including those for other
    /// processes.
    pub(super) fn filter(&self, ports: RangeInclusive<u16>) {
        if !self.udp
            && let Err(error) = socket::filter_ports(&self.fd, self.local.is_ipv4(), ports)
        {
            // Without the filter such packets are read and dropped, which costs time but is
            // correct.
            tracing::debug!(%error, "no packet filter on a raw socket");
        }
    }

    pub(super) fn fd(&self) -> RawFd {
        self.fd.as_raw_fd()
    }

    /// Returns the bytes of an SCTP packet after its 12-byte common header, in an IP packet of
    /// `path_mtu`.
    pub(super) fn mtu(&self, path_mtu: u16) -> u32 {
        let ip = if self.local.is_ipv4() { 20 } else { 40 };
        let udp = if self.udp { 8 } else { 0 };
        u32::from(path_mtu) - ip - udp - 12
    }

    /// Returns the SCTP packet of a datagram.
    pub(super) fn parse<'a>(&self, datagram: Received<'a>) -> Option<Incoming<'a>> {
        if self.udp || self.local.is_ipv6() {
            let to = datagram.to.filter(|_| self.local.is_unspecified());
            let mut from = datagram.from?;
            if !self.udp {
                from.set_port(0);
            }
            return Some(Incoming { packet: datagram.data, from, to });
        }
        parse_ipv4(datagram.data, self.local.is_unspecified())
    }
}

/// Parses the IP header that a raw IPv4 socket returns (`raw(7)`).
///
/// The kernel has verified its length and checksum.
fn parse_ipv4(data: &mut [u8], want_to: bool) -> Option<Incoming<'_>> {
    let header = usize::from(data.first()? & 0xf) * 4;
    let octets = |at: usize| data.get(at..at + 4)?.first_chunk::<4>().copied().map(Ipv4Addr::from);
    let (from, to) = (octets(12)?, octets(16)?);
    let from = SocketAddr::new(from.into(), 0);
    let to = want_to.then_some(IpAddr::from(to));
    Some(Incoming { packet: data.get_mut(header..)?, from, to })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ipv4_header_is_skipped_with_its_options() {
        let mut datagram = vec![0x46, 0, 0, 28, 0, 0, 0, 0, 64, 132, 0, 0, 192, 0, 2, 1, 192, 0, 2, 2, 1, 1, 1, 1];
        datagram.extend_from_slice(b"sctp");
        let incoming = parse_ipv4(&mut datagram, true).expect("a packet");
        assert_eq!(incoming.packet, b"sctp");
        assert_eq!(incoming.from, "192.0.2.1:0".parse().expect("an address"));
        assert_eq!(incoming.to, Some(Ipv4Addr::new(192, 0, 2, 2).into()));
    }

    #[test]
    fn header_longer_than_datagram_is_refused() {
        for length in 0..20 {
            assert!(parse_ipv4(&mut vec![0x4f; length], false).is_none(), "{length}");
        }
        assert!(parse_ipv4(&mut [0x4f; 59], false).is_none());
    }
}
