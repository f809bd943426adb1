//! Answers that need the tables.

use super::Tables;
use crate::engine::answer::{self, Answer};
use crate::engine::index::DownlinkId;
use crate::engine::ndp;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use vireo_wire::gtpu;

impl Tables {
    /// Writes the answer to a datagram that came from `from` to our address `local`.
    pub(crate) fn write_answer<'b>(
        &self,
        reply: Answer,
        from: SocketAddr,
        local: IpAddr,
        buffer: &'b mut [u8; answer::MAX_ANSWER_OCTETS],
    ) -> Option<(SocketAddr, &'b [u8])> {
        // The response returns to the source of the request, the others go to the GTP-U port (TS
        // 29.281 4.4.2).
        let peer = SocketAddr::new(from.ip(), gtpu::PORT);
        match reply {
            Answer::Echo { sequence } => Some((from, gtpu::echo_response(buffer, sequence).ok()?)),
            Answer::UnknownTunnel(teid) => Some((peer, gtpu::error_indication_message(buffer, 0, teid, local).ok()?)),
            Answer::ExtensionHeader => Some((peer, gtpu::extension_headers_notification(buffer, 0).ok()?)),
            Answer::Router(id, ndp::Solicitation::Router { reply_to }) => {
                self.router_advertisement(id, Some(reply_to), buffer)
            }
            Answer::Router(id, ndp::Solicitation::Neighbor { reply_to, solicited }) => {
                let length = ndp::neighbor_advertisement(&mut buffer[gtpu::G_PDU_HEADER..], reply_to, solicited);
                self.wrap_for_tunnel(id, buffer, length)
            }
        }
    }

    /// Writes a router advertisement to the UE of a downlink entry. Returns `None` if it has no
    /// prefix or no tunnel.
    pub(crate) fn router_advertisement<'b>(
        &self,
        id: DownlinkId,
        destination: Option<Ipv6Addr>,
        buffer: &'b mut [u8; answer::MAX_ANSWER_OCTETS],
    ) -> Option<(SocketAddr, &'b [u8])> {
        let prefix = self.downlink_ue(id)?.ipv6_prefix?;
        let link = self.link(prefix)?;
        let length = ndp::router_advertisement(&mut buffer[gtpu::G_PDU_HEADER..], destination, prefix, link);
        self.wrap_for_tunnel(id, buffer, length)
    }

    fn wrap_for_tunnel<'b>(
        &self,
        id: DownlinkId,
        buffer: &'b mut [u8; answer::MAX_ANSWER_OCTETS],
        length: usize,
    ) -> Option<(SocketAddr, &'b [u8])> {
        let rule = &self.downlink_rule(id)?;
        let tunnel = rule.tunnel?;
        let end = gtpu::G_PDU_HEADER + length;
        let start = gtpu::prepend_g_pdu(buffer, gtpu::G_PDU_HEADER, end, tunnel.teid, answer::container(rule)).ok()?;
        Some((answer::destination(tunnel), &buffer[start..end]))
    }
}
