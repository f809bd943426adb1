//! Datagrams that the UPF originates on N3: answers, End Markers and buffered packets.
//!
//! All of them are sent from the slow path.

use crate::engine::index::DownlinkId;
use crate::engine::ndp;
use crate::engine::rate::{Policer, Rate};
use crate::engine::rule::{DownlinkRule, Tunnel};
use std::net::SocketAddr;
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

/// An answer counts as one octet, so this is one answer per millisecond.
pub(crate) const ANSWERS: Rate = Rate::from_kbps(8);

/// Limits of unsolicited answers: 1,000 per second of each kind.
#[derive(Debug, Default)]
pub(crate) struct AnswerLimits {
    /// Error Indications and Supported Extension Headers Notifications.
    pub(crate) errors: Policer,
    /// Echo Responses that we send.
    pub(crate) echoes: Policer,
    /// Echo Responses of peers, which the control side is notified of.
    pub(crate) responses: Policer,
    /// Router and neighbor advertisements.
    pub(crate) solicitations: Policer,
}
