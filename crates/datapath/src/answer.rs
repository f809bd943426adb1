//! Datagrams that the UPF originates on N3: answers, End Markers and buffered packets.
//!
//! All of them are sent from the slow path.

use crate::ndp;
use crate::rule::{DownlinkRule, Tunnel};
use crate::tables::{DownlinkId, Tables};
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use vireo_types::Teid;
use vireo_wire::gtpu::{self, PduSession};

/// Size of a buffer that holds any answer, in octets.
pub(crate) const LONGEST: usize = gtpu::G_PDU_HEADER + ndp::LONGEST;

/// Answer that the UPF owes to a peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    /// Echo Response with this sequence number.
    Echo { sequence: u16 },
    /// Error Indication for a G-PDU to an unknown tunnel.
    UnknownTunnel(Teid),
    /// Supported Extension Headers Notification for an unknown extension header.
    ExtensionHeader,
    /// Router or neighbor advertisement for a UE.
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
    // The response returns to the source of the request, the others go to the GTP-U port (TS 29.281
    // 4.4.2).
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

/// Writes a router advertisement to the UE of a downlink entry. Returns `None` if it has no prefix
/// or no tunnel.
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

/// Returns the datagram of one buffered packet.
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
