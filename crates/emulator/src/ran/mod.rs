//! Parts of RAN nodes that gNBs and eNBs share: connections, tunnels, PDUs to send.

mod connections;
mod error;
mod event;

pub(crate) use connections::{Connection, Connections, Mismatch};
pub(crate) use error::Fault;
pub use error::{SendError, Violation};
pub use event::InterfaceState;
pub(crate) use event::{ErrorReport, Event, Inbox};

use std::net::IpAddr;
use vireo_types::{RanNodeId, RanUeNgapId, Tai, Teid};
use vireo_wire::ngap::{BitString, Error};

/// RAN side's identifier of a UE's connection: RAN-UE-NGAP-ID, or eNB-UE-S1AP-ID (24 bits).
pub type ConnectionId = RanUeNgapId;

/// Owner in events of an abandoned connection.
pub const NOBODY: u32 = u32::MAX - 1;

/// Tunnel of one PDU session (N3) or of one E-RAB (S1-U).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tunnel {
    /// PDU session identity, or E-RAB ID.
    pub psi: u8,
    /// QoS flow of uplink packets; `None` on S1-U, whose packets have no extension header.
    pub qfi: Option<u8>,
    pub upf: IpAddr,
    pub uplink: Teid,
    pub downlink: Teid,
}

/// UE context that an Xn or X2 handover passes from source to target.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HandoverContext {
    pub owner: u32,
    pub core_id: u64,
    /// UE security capabilities of the source: octets of the ciphering and integrity algorithms in
    /// NAS.
    pub capability: (u8, u8),
    /// The same for E-UTRA, which a gNB passes on; zero for a UE without EPS.
    pub eutra_capability: (u8, u8),
    pub tunnels: Vec<Tunnel>,
}

/// Target of an N2 or S1 handover.
#[derive(Clone, Copy, Debug)]
pub(crate) struct HandoverOrder {
    pub(crate) target: RanNodeId,
    pub(crate) area: Tai,
    /// True if the target shall refuse.
    pub(crate) refused: bool,
    /// True if the source forwards packets to the target without the UPF.
    pub(crate) direct: bool,
}

/// Content of a source to target transparent container of this emulator.
pub(crate) struct SourceContainer {
    pub(crate) owner: u32,
    /// UE's connection at the source.
    pub(crate) source: ConnectionId,
    /// True if the target shall refuse the handover.
    pub(crate) refused: bool,
}

impl SourceContainer {
    /// Returns the content of a container; `None` if it is too short.
    pub(crate) fn read(octets: &[u8]) -> Option<Self> {
        let (&[a, b, c, d, e, f, g, h], rest) = octets.split_first_chunk::<8>()?;
        let (owner, source) = (u32::from_be_bytes([a, b, c, d]), u32::from_be_bytes([e, f, g, h]));
        Some(SourceContainer { owner, source: RanUeNgapId(source), refused: rest.first() == Some(&1) })
    }
}

/// Returns the octets of a source to target transparent container.
pub(crate) fn source_container(owner: u32, source: ConnectionId, refused: bool) -> Vec<u8> {
    let mut octets = [owner.to_be_bytes(), source.0.to_be_bytes()].concat();
    octets.push(u8::from(refused));
    octets
}

/// Returns the UE radio capability that a node reports of a UE: the largest that a core stores,
/// other octets for each UE.
pub(crate) fn radio_capability(owner: u32) -> Vec<u8> {
    let octet = |n: u32| (n ^ n >> 8 ^ owner) as u8;
    (0..vireo_types::limits::UE_CAPABILITY_OCTETS as u32).map(octet).collect()
}

/// Returns true if this is the capability of [`radio_capability`].
pub(crate) fn is_reported_capability(owner: u32, octets: &[u8]) -> bool {
    octets.len() == vireo_types::limits::UE_CAPABILITY_OCTETS && octets == radio_capability(owner)
}

/// Association and stream of a PDU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PduRoute {
    /// Index of the node's association.
    pub by: u8,
    /// SCTP stream of the association.
    pub stream: u16,
}

/// PDUs to send, in order, each with its association and SCTP stream. Reused, so that steps do not
/// allocate.
#[derive(Debug, Default)]
pub struct Outbox {
    octets: Vec<u8>,
    pdus: Vec<(PduRoute, usize)>,
}

impl Outbox {
    /// Removes the content and keeps the memory.
    pub fn clear(&mut self) {
        self.octets.clear();
        self.pdus.clear();
    }

    /// Returns true if there is nothing to send.
    pub fn is_empty(&self) -> bool {
        self.pdus.is_empty()
    }

    /// Returns the PDUs with their streams, for a node with one association.
    pub fn pdus(&self) -> impl Iterator<Item = (u16, &[u8])> {
        self.routes().map(|(way, pdu)| (way.stream, pdu))
    }

    /// Returns the PDUs with their associations and streams.
    pub fn routes(&self) -> impl Iterator<Item = (PduRoute, &[u8])> {
        let starts = std::iter::once(0).chain(self.pdus.iter().map(|(_, end)| *end));
        starts.zip(&self.pdus).map(|(start, (way, end))| (*way, &self.octets[start..*end]))
    }

    /// Appends an encoded PDU for the first association.
    pub fn push(&mut self, stream: u16, pdu: &[u8]) {
        self.push_by(PduRoute { by: 0, stream }, pdu);
    }

    /// Appends an encoded PDU for a route.
    pub(crate) fn push_by(&mut self, way: PduRoute, pdu: &[u8]) {
        self.octets.extend_from_slice(pdu);
        self.pdus.push((way, self.octets.len()));
    }

    /// Appends the PDU that `encode` writes.
    pub(crate) fn encode_with(
        &mut self,
        way: PduRoute,
        encode: impl FnOnce(&mut Vec<u8>) -> Result<(), Error>,
    ) -> Result<(), Error> {
        encode(&mut self.octets)?;
        self.pdus.push((way, self.octets.len()));
        Ok(())
    }
}

/// Returns the stream of a UE's messages. UE-associated signalling avoids stream 0 (TS 38.412 7, TS
/// 36.412 7). One UE uses one stream, also over successive connections, since SCTP keeps no order
/// between streams. The INITIAL UE MESSAGE of a new connection must not overtake the UE CONTEXT
/// RELEASE COMPLETE of the previous one.
pub(crate) fn ue_stream(owner: u32, streams: u16) -> u16 {
    1 + owner.wrapping_rem(u32::from(streams.max(2)) - 1) as u16
}

/// Mark of the TEID of a tunnel for packets that the source of a handover forwards.
const FORWARDED: u32 = 1 << 27;
/// Owner in a TEID, after the PSI.
const OWNER: u32 = 0x007f_ffff;

/// Returns the node's TEID of a UE's tunnel: generation 4 | forwarded 1 | owner 23 | PSI 4 bits. A
/// caller derives the owner of a packet from it without a table, if owners are unique on one
/// address.
pub fn downlink_teid(owner: u32, psi: u8, generation: u8) -> Teid {
    Teid(u32::from(generation) << 28 | (owner & OWNER) << 4 | u32::from(psi & 0xf))
}

/// Returns the owner and the PDU session of a node's TEID.
pub fn downlink_owner(teid: Teid) -> (u32, u8) {
    (teid.0 >> 4 & OWNER, (teid.0 & 0xf) as u8)
}

/// Returns the node's TEID for packets that the source of a handover forwards, beside this tunnel.
pub(crate) fn forwarding_teid(downlink: Teid) -> Teid {
    Teid(downlink.0 | FORWARDED)
}

/// Returns the tunnel beside which the source of a handover forwards packets with this TEID.
pub(crate) fn forwarded_beside(teid: Teid) -> Option<Teid> {
    (teid.0 & FORWARDED != 0).then_some(Teid(teid.0 & !FORWARDED))
}

/// End of a tunnel by which the source of a handover forwards the packets of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ForwardingEnd {
    /// Tunnel of the session at the source.
    pub tunnel: Tunnel,
    pub to: IpAddr,
    pub teid: Teid,
}

/// Returns the IPv4 or IPv6 address of a Transport Layer Address (TS 38.413 9.3.2.4, TS 36.413
/// 9.2.2.1); the IPv4 address if there are both.
pub(crate) fn read_address(bits: &BitString<'_>) -> Option<IpAddr> {
    match *bits.as_octets() {
        [a, b, c, d, ..] if bits.len() == 32 || bits.len() == 160 => Some(IpAddr::from([a, b, c, d])),
        ref octets if bits.len() == 128 => Some(IpAddr::from(<[u8; 16]>::try_from(octets).ok()?)),
        _ => None,
    }
}
