//! User data over NAS (control plane CIoT EPS optimisation, TS 23.401 5.3.4B, TS 24.301 6.6.4).
//!
//! The control plane takes the place of an eNB: it has the other end of the tunnel of the UPF
//! (S11-U, N4-u of TS 29.244 5.3). The UPF forwards to it while the UE is connected, and buffers
//! otherwise. G-PDUs are passed like the PFCP messages of the session; the N4 endpoint has a socket
//! for each.

use super::context::{RanState, SmContext, Stage, Tunnel};
use super::interface::Output;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use vireo_types::limits::USER_DATA_OCTETS;
use vireo_wire::gtpu::{self, MessageType, Packet};

/// Fault of a packet that is not delivered.
pub const DOWNLINK_FAULT: &str = "user-data-undeliverable";

/// Returns the end of the tunnel at the control plane. The N4 endpoint sets its own address.
pub(super) fn tunnel(sm: &SmContext) -> Option<Tunnel> {
    let teid = sm.pfcp.cp_seid.control_plane_teid()?;
    Some(Tunnel { address: IpAddr::V4(Ipv4Addr::UNSPECIFIED), teid })
}

/// Builds the G-PDU for the UPF of a packet of the UE. `None` if the UE has no usable session, or
/// the packet is empty or too long.
pub(super) fn uplink(sm: &SmContext, packet: &[u8]) -> Option<Output> {
    let is_usable = matches!(sm.stage, Stage::Accepted { .. } | Stage::Activating { .. } | Stage::Established);
    let to = sm.uplink.filter(|_| is_usable && (1..=USER_DATA_OCTETS).contains(&packet.len()))?;
    let header = gtpu::plain_g_pdu_header(to.teid, packet.len())?;
    let message = [&header[..], packet].concat();
    Some(Output::Pfcp { upf: SocketAddr::new(to.address, gtpu::PORT), message })
}

/// Returns the packet for the UE in a G-PDU of the UPF; `None` if it is not for this session, or
/// the session has no user plane.
pub fn downlink_packet<'p>(sm: &SmContext, g_pdu: &'p [u8]) -> Option<&'p [u8]> {
    let packet = Packet::parse(g_pdu).ok().filter(|packet| packet.kind == MessageType::GPdu)?;
    let is_own =
        sm.is_over_nas() && sm.ran == RanState::Up && sm.pfcp.cp_seid.control_plane_teid() == Some(packet.teid);
    let fits = (1..=USER_DATA_OCTETS).contains(&packet.payload.len());
    (is_own && fits).then_some(packet.payload)
}
