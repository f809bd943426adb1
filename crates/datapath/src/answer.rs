//! The datagrams that the UPF itself sends on N3: answers, End Markers, and what was buffered. All of it is rare.

use crate::ndp;
use crate::rule::{DownlinkRule, Tunnel};
use crate::tables::{DownlinkId, Tables};
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use vireo_types::Teid;
use vireo_wire::gtpu::{self, PduSession};

/// A buffer of this size holds any answer.
pub(crate) const LONGEST: usize = gtpu::G_PDU_HEADER + ndp::LONGEST;

/// What is to be answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    /// An Echo Request of this sequence number.
    Echo { sequence: u16 },
    /// A G-PDU for a tunnel that is not there.
    UnknownTunnel(Teid),
    /// An extension header that is not known here.
    ExtensionHeader,
    /// A question of a UE to its router.
    Router(DownlinkId, ndp::Solicitation),
}

/// Writes the answer to a datagram that came from `from` to our address `local`.
pub(crate) fn write<'b>(
    answer: Answer,
    tables: &Tables,
    from: SocketAddr,
    local: IpAddr,
    buffer: &'b mut [u8; LONGEST],
) -> Option<(SocketAddr, &'b [u8])> {
    // the response goes back to where the request came from, the others to the port of GTP-U (TS 29.281 4.4.2)
    let peer = SocketAddr::new(from.ip(), gtpu::PORT);
    match answer {
        Answer::Echo { sequence } => Some((from, gtpu::echo_response(buffer, sequence).ok()?)),
        Answer::UnknownTunnel(teid) => Some((peer, gtpu::error_indication_message(buffer, 0, teid, local).ok()?)),
        Answer::ExtensionHeader => Some((peer, gtpu::extension_headers_notification(buffer, 0).ok()?)),
        Answer::Router(id, ndp::Solicitation::Router { reply_to }) => {
            router_advertisement(tables, id, Some(reply_to), buffer)
        }
        Answer::Router(id, ndp::Solicitation::Neighbor { reply_to, solicited }) => {
            let length = ndp::neighbor_advertisement(&mut buffer[gtpu::G_PDU_HEADER..], reply_to, solicited);
            into_tunnel(tables, id, buffer, length)
        }
    }
}

/// Writes a router advertisement to the UE of a downlink record, `None` where it has no prefix or no tunnel.
pub(crate) fn router_advertisement<'b>(
    tables: &Tables,
    id: DownlinkId,
    destination: Option<Ipv6Addr>,
    buffer: &'b mut [u8; LONGEST],
) -> Option<(SocketAddr, &'b [u8])> {
    let prefix = tables.downlink_ue(id)?.ipv6_prefix?;
    let link = tables.link(prefix)?;
    let length = ndp::router_advertisement(&mut buffer[gtpu::G_PDU_HEADER..], destination, prefix, link);
    into_tunnel(tables, id, buffer, length)
}

fn into_tunnel<'b>(
    tables: &Tables,
    id: DownlinkId,
    buffer: &'b mut [u8; LONGEST],
    length: usize,
) -> Option<(SocketAddr, &'b [u8])> {
    let rule = &tables.downlink_rule(id)?;
    let tunnel = rule.tunnel?;
    let end = gtpu::G_PDU_HEADER + length;
    let start = gtpu::prepend_g_pdu(buffer, gtpu::G_PDU_HEADER, end, tunnel.teid, container(rule)).ok()?;
    Some((destination(tunnel), &buffer[start..end]))
}

/// The datagram of one packet that was buffered.
pub(crate) fn g_pdu(tunnel: Tunnel, marked: Option<PduSession>, packet: &[u8]) -> Option<(SocketAddr, Vec<u8>)> {
    let mut datagram = vec![0; gtpu::G_PDU_HEADER + packet.len()];
    datagram[gtpu::G_PDU_HEADER..].copy_from_slice(packet);
    let end = datagram.len();
    let start = gtpu::prepend_g_pdu(&mut datagram, gtpu::G_PDU_HEADER, end, tunnel.teid, marked).ok()?;
    datagram.drain(..start);
    Some((destination(tunnel), datagram))
}

pub(crate) fn end_marker(tunnel: Tunnel) -> Option<(SocketAddr, Vec<u8>)> {
    let mut buffer = [0; gtpu::SIGNALLING_OCTETS];
    Some((destination(tunnel), gtpu::end_marker(&mut buffer, tunnel.teid).ok()?.to_vec()))
}

#[inline]
pub(crate) fn container(rule: &DownlinkRule) -> Option<PduSession> {
    rule.qfi.map(|qfi| PduSession::Downlink { qfi, rqi: rule.rqi })
}

#[inline]
pub(crate) fn destination(tunnel: Tunnel) -> SocketAddr {
    SocketAddr::new(tunnel.address, gtpu::PORT)
}
