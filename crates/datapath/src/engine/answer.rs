//! Datagrams that the UPF originates on N3: answers, End Markers and buffered packets.
//!
//! All of them are sent from the slow path.

use crate::engine::access::table::{self, AddressTable, Bits, SourceEntry};
use crate::engine::index::DownlinkId;
use crate::engine::ndp;
use crate::engine::rate::{Policer, Rate, conforms};
use crate::engine::rule::{DownlinkRule, Tunnel};
use crate::sys::shared::Shared;
use std::net::SocketAddr;
use std::sync::atomic::AtomicU64;
use vireo_types::{Instant, Teid};
use vireo_wire::gtpu::{self, PduSession};

/// Size of a buffer that holds any answer, in octets.
pub(crate) const MAX_ANSWER_OCTETS: usize = gtpu::G_PDU_HEADER + ndp::MAX_MESSAGE_OCTETS;

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

/// An answer counts as one octet, so this is one answer per millisecond, after a burst of 3,000.
const ANSWERS: Rate = Rate::from_kbps(8);

/// Kind of answers with a limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AnswerKind {
    /// Error Indications and Supported Extension Headers Notifications.
    Error,
    /// Echo Responses that we send.
    Echo,
    /// Echo Responses of peers, which the control side is notified of.
    Alive,
}

const KINDS: usize = 3;
/// Octets that an answer to an unknown address counts at the limit of this address.
const UNKNOWN_COST: usize = 8;

// Parts of `AnswerLimits::peers`.
const PREFIX: usize = table::PLACES;
const UNKNOWN: usize = PREFIX + table::BUCKETS;
const PEERS: usize = UNKNOWN + table::BUCKETS;

/// Limits of answers to peers, of each kind.
///
/// A known RAN address has 1,000 per second, whatever other addresses send; so has an address in a
/// RAN prefix. All other addresses together have 1,000 per second, and one of them 125. Addresses
/// without a slot in the address table share a limit if they have the same bucket, which no sender
/// can choose.
#[derive(Debug)]
pub(crate) struct AnswerLimits {
    /// By slot number in the address table, by bucket of addresses in RAN prefixes, and by bucket
    /// of unknown addresses.
    peers: Shared<[AtomicU64; KINDS]>,
    /// All unknown addresses together.
    unknown: [Policer; KINDS],
}

impl AnswerLimits {
    pub(crate) fn new() -> Self {
        AnswerLimits { peers: Shared::private(PEERS), unknown: Default::default() }
    }

    /// Returns true if an answer to the address is within the limits, and then counts it.
    pub(crate) fn allow(&self, kind: AnswerKind, to: Bits, table: &AddressTable, now: Instant) -> bool {
        let kind = kind as usize;
        let allow = |peer: usize, cost| conforms(&self.peers[peer][kind], ANSWERS, cost, now);
        match table.source(to) {
            SourceEntry::Node(place) => allow(place as usize, 1),
            SourceEntry::Prefix => allow(PREFIX + table.bucket(to), 1),
            SourceEntry::Unknown => {
                allow(UNKNOWN + table.bucket(to), UNKNOWN_COST) && self.unknown[kind].allow(ANSWERS, 1, now)
            }
        }
    }
}
