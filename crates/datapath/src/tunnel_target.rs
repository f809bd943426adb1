//! Where a decided packet goes, as the parts of the path hand it on.

use crate::rule::Tunnel;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use vireo_types::Teid;
use vireo_wire::gtpu::{self, PduSession};

/// A tunnel and how packets are marked in it (TS 38.415 5.5.2), in numbers alone, which stay in registers: an enum is
/// written octet by octet and read in words, and the processor waits for each of those.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct TunnelTarget {
    teid: Teid,
    v6: bool,
    /// The octets of the address as on the wire; those of an IPv4 one are the first four.
    address: [u64; 2],
    /// [`MARKED`], and 7 bits of a PDU Session Container with its type; 0 = none.
    mark: u32,
}

const MARKED: u32 = 1 << 31;
const UPLINK: u32 = 1 << 8;
const RQI: u32 = 1 << 6;
const QFI: u32 = 0x3f;

impl TunnelTarget {
    /// A tunnel to the octets of an address as they lie in a packet.
    #[inline(always)]
    pub(crate) fn words(teid: Teid, v6: bool, address: [u64; 2]) -> Self {
        TunnelTarget { teid, v6, address, mark: 0 }
    }

    /// The same with packets marked as of a flow that the UPF sends.
    #[inline(always)]
    pub(crate) fn of_flow(self, qfi: u32, rqi: bool) -> Self {
        TunnelTarget { mark: MARKED | qfi & QFI | if rqi { RQI } else { 0 }, ..self }
    }

    /// A tunnel and its marks.
    pub(crate) fn new(tunnel: Tunnel, marked: Option<PduSession>) -> Self {
        let (v6, octets) = match tunnel.address {
            IpAddr::V4(v4) => (false, u128::from(v4.to_bits()) << 96),
            IpAddr::V6(v6) => (true, v6.to_bits()),
        };
        let mark = match marked {
            None => 0,
            Some(PduSession::Downlink { qfi, rqi }) => {
                return TunnelTarget::words(tunnel.teid, v6, halves(octets)).of_flow(qfi.into(), rqi);
            }
            Some(PduSession::Uplink { qfi }) => MARKED | UPLINK | u32::from(qfi) & QFI,
        };
        TunnelTarget { teid: tunnel.teid, v6, address: halves(octets), mark }
    }

    #[inline(always)]
    pub(crate) fn teid(&self) -> Teid {
        self.teid
    }

    /// The address, if it is an IPv4 one.
    #[inline(always)]
    pub(crate) fn v4(&self) -> Option<Ipv4Addr> {
        (!self.v6).then(|| Ipv4Addr::from_bits(u32::from_be(self.address[0] as u32)))
    }

    /// The address.
    #[inline]
    pub(crate) fn address(&self) -> IpAddr {
        let [first, second] = self.address.map(u64::from_be);
        let v6 = || Ipv6Addr::from_bits(u128::from(first) << 64 | u128::from(second));
        self.v4().map_or_else(|| v6().into(), IpAddr::V4)
    }

    /// Where the datagram is sent.
    #[inline]
    pub(crate) fn socket(&self) -> SocketAddr {
        SocketAddr::new(self.address(), gtpu::PORT)
    }

    /// The PDU Session Container that packets get.
    #[inline(always)]
    pub(crate) fn marked(&self) -> Option<PduSession> {
        let qfi = (self.mark & QFI) as u8;
        (self.mark & MARKED != 0).then_some(match self.mark & UPLINK {
            0 => PduSession::Downlink { qfi, rqi: self.mark & RQI != 0 },
            _ => PduSession::Uplink { qfi },
        })
    }
}

/// The octets of an address as words that have them in the order of the wire.
fn halves(octets: u128) -> [u64; 2] {
    [((octets >> 64) as u64).to_be(), (octets as u64).to_be()]
}

impl std::fmt::Debug for TunnelTarget {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Toward")
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
    fn what_is_handed_on_is_what_was_decided() {
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
                let toward = TunnelTarget::new(Tunnel { teid: Teid(0x0102_0304), address }, marked);
                assert_eq!((toward.teid(), toward.address(), toward.marked()), (Teid(0x0102_0304), address, marked));
                assert_eq!(toward.v4().map(IpAddr::V4), Some(address).filter(IpAddr::is_ipv4));
                assert_eq!(toward.socket(), SocketAddr::new(address, 2152));
            }
        }
    }
}
