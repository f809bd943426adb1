//! Target of a classified packet, as the stages of the packet path pass it on.

use crate::engine::rule::Tunnel;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use vireo_types::Teid;
use vireo_wire::gtpu::{self, PduSession};

/// A tunnel and the marks of packets in it (TS 38.415 5.5.2). It consists of plain numbers, which
/// stay in registers. An enum would be written octet by octet and read in words, and the processor
/// stalls on each such read.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct TunnelTarget {
    teid: Teid,
    v6: bool,
    /// Address in network byte order. An IPv4 address uses the first four octets.
    address: [u64; 2],
    /// [`MARKED`], and 7 bits of a PDU Session Container with its type. 0 = none.
    mark: u32,
}

const MARKED: u32 = 1 << 31;
const UPLINK: u32 = 1 << 8;
const RQI: u32 = 1 << 6;
const QFI: u32 = 0x3f;

impl TunnelTarget {
    /// Returns an unmarked tunnel to an address in network byte order.
    #[inline(always)]
    pub(crate) fn from_words(teid: Teid, v6: bool, address: [u64; 2]) -> Self {
        TunnelTarget { teid, v6, address, mark: 0 }
    }

    /// Adds the marks of a downlink packet of the QoS flow `qfi`.
    #[inline(always)]
    pub(crate) fn with_flow(self, qfi: u32, rqi: bool) -> Self {
        TunnelTarget { mark: MARKED | qfi & QFI | if rqi { RQI } else { 0 }, ..self }
    }

    pub(crate) fn new(tunnel: Tunnel, marked: Option<PduSession>) -> Self {
        let (v6, octets) = match tunnel.address {
            IpAddr::V4(v4) => (false, u128::from(v4.to_bits()) << 96),
            IpAddr::V6(v6) => (true, v6.to_bits()),
        };
        let mark = match marked {
            None => 0,
            Some(PduSession::Downlink { qfi, rqi }) => {
                return TunnelTarget::from_words(tunnel.teid, v6, halves(octets)).with_flow(qfi.into(), rqi);
            }
            Some(PduSession::Uplink { qfi }) => MARKED | UPLINK | u32::from(qfi) & QFI,
        };
        TunnelTarget { teid: tunnel.teid, v6, address: halves(octets), mark }
    }

    #[inline(always)]
    pub(crate) fn teid(&self) -> Teid {
        self.teid
    }

    /// Returns the address if it is an IPv4 address.
    #[inline(always)]
    pub(crate) fn v4(&self) -> Option<Ipv4Addr> {
        (!self.v6).then(|| Ipv4Addr::from_bits(u32::from_be(self.address[0] as u32)))
    }

    #[inline]
    pub(crate) fn address(&self) -> IpAddr {
        let [first, second] = self.address.map(u64::from_be);
        let v6 = || Ipv6Addr::from_bits(u128::from(first) << 64 | u128::from(second));
        self.v4().map_or_else(|| v6().into(), IpAddr::V4)
    }

    /// Returns the destination of the datagrams: the address and the GTP-U port.
    #[inline]
    pub(crate) fn socket(&self) -> SocketAddr {
        SocketAddr::new(self.address(), gtpu::PORT)
    }

    /// Returns the PDU Session Container of the packets.
    #[inline(always)]
    pub(crate) fn marked(&self) -> Option<PduSession> {
        let qfi = (self.mark & QFI) as u8;
        (self.mark & MARKED != 0).then_some(match self.mark & UPLINK {
            0 => PduSession::Downlink { qfi, rqi: self.mark & RQI != 0 },
            _ => PduSession::Uplink { qfi },
        })
    }
}

/// Returns an address as two words in network byte order.
fn halves(octets: u128) -> [u64; 2] {
    [((octets >> 64) as u64).to_be(), (octets as u64).to_be()]
}

impl std::fmt::Debug for TunnelTarget {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TunnelTarget")
            .field("teid", &self.teid)
            .field("address", &self.address())
            .field("marked", &self.marked())
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tunnel_target_keeps_tunnel_and_marks() {
        let addresses = [IpAddr::from([192, 0, 2, 9]), "2001:db8::1:2".parse().expect("one"), IpAddr::from([0; 16])];
        let marks = [
            None,
            Some(PduSession::Downlink { qfi: 0, rqi: false }),
            Some(PduSession::Downlink { qfi: 63, rqi: true }),
            Some(PduSession::Uplink { qfi: 0 }),
            Some(PduSession::Uplink { qfi: 63 }),
        ];
        for address in addresses {
            for marked in marks {
                let target = TunnelTarget::new(Tunnel { teid: Teid(0x0102_0304), address }, marked);
                assert_eq!((target.teid(), target.address(), target.marked()), (Teid(0x0102_0304), address, marked));
                assert_eq!(target.v4().map(IpAddr::V4), Some(address).filter(IpAddr::is_ipv4));
                assert_eq!(target.socket(), SocketAddr::new(address, 2152));
            }
        }
    }
}
