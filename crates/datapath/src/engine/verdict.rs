//! Verdicts: results of classifying one packet, and the checks that need no entry.
//!
//! The fast path (`arrays::verdict`) uses the entry alone, with or without the lock of the tables.
//! The tables (`tables::verdict`) classify all other packets. They are the reference for all
//! drivers.

use crate::engine::answer::Answer;
use crate::engine::buffer::Pushed;
use crate::engine::counters::DropReason;
use crate::engine::event::Event;
use crate::engine::index::{AddressKey, DownlinkId};
use crate::engine::inner::Inner;
use crate::engine::ndp;
use crate::engine::rule::Tunnel;
use crate::engine::tunnel_target::TunnelTarget;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use vireo_types::{SessionAddress, Teid};
use vireo_wire::gtpu::PduSession;

/// Result of classifying a datagram from N3.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum UplinkVerdict<'a> {
    /// Send the user's packet to the data network.
    Forward(&'a [u8]),
    /// Send an answer to the sender.
    Answer(Answer),
    /// Notify the control side.
    Report(Event),
    /// The datagram is an Echo Response: notify the control side.
    Alive,
    /// Parsed; requires no action.
    Nothing,
    /// Forward the user's packet into another tunnel.
    Relay { tunnel: Tunnel, marked: Option<PduSession>, packet: &'a [u8], uplink: bool },
    /// Send an End Marker into the tunnel that follows the received one's.
    EndMarker(Tunnel),
    /// The packet waits for its UE.
    Buffered(BufferOutcome),
    /// Hold the datagram until its source address is known, or drop it.
    Hold(Teid),
    /// Drop the packet for this reason.
    Drop(DropReason),
}

/// Result for a packet that waits for its UE.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct BufferOutcome {
    pub(crate) id: DownlinkId,
    /// Whether the packet is stored, and for which packets of other sessions.
    pub(crate) pushed: Pushed,
    /// Report of the first packet. A packet without room is reported too.
    pub(crate) event: Option<Event>,
}

/// Result of classifying a packet from N6.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DownlinkVerdict {
    /// Send `octets` octets of user packet into the tunnel.
    Forward { target: TunnelTarget, octets: usize },
    /// The packet waits for its UE.
    Buffered(BufferOutcome),
    /// Drop the packet for this reason.
    Drop(DropReason),
}

/// Reason for not forwarding a packet directly.
pub(crate) enum NotForwarded<'a> {
    /// Drop the packet for this reason.
    Drop(DropReason),
    /// The packet stays on the link of the UE with this prefix.
    OnLink(Option<Ipv6Addr>, &'a [u8]),
    /// Buffer the packet.
    Wait { notify: bool },
}

/// Returns the packet if it may leave for the data network: its source is the UE's, or `also`
/// accepts it as behind the UE.
#[inline]
pub(crate) fn outward<'a>(
    ue: SessionAddress,
    inner: &Inner<'a>,
    also: impl Fn(IpAddr) -> bool,
) -> Result<&'a [u8], NotForwarded<'a>> {
    match *inner {
        Inner::V4 { source, packet, .. } => {
            let own = ue.ipv4.map(|own| own.to_bits()) == Some(source);
            let may = own || also(Ipv4Addr::from_bits(source).into());
            if may { Ok(packet) } else { Err(NotForwarded::Drop(DropReason::Spoofed)) }
        }
        Inner::V6 { source, destination, packet } => {
            let own = ue.ipv6_prefix.is_some_and(|own| own.to_bits() >> 64 == source >> 64)
                || also(Ipv6Addr::from_bits(source).into());
            if !own && !ndp::is_link_scope(source) {
                return Err(NotForwarded::Drop(DropReason::Spoofed));
            }
            if !own || ndp::is_link_scope(destination) {
                return Err(NotForwarded::OnLink(ue.ipv6_prefix, packet));
            }
            Ok(packet)
        }
    }
}

/// Parses a packet from N6. Returns it with the lookup key of its UE.
#[inline]
pub(crate) fn inward(packet: &[u8]) -> Result<(Inner<'_>, AddressKey), DropReason> {
    let inner = Inner::read(packet).ok_or(DropReason::InnerMalformed)?;
    match inner {
        // When two UEs communicate, the packet leaves by its receiving interface, so the kernel
        // sends an ICMP Redirect.
        Inner::V4 { packet, .. } if is_redirect(packet) => Err(DropReason::LinkLocal),
        Inner::V4 { destination, .. } => Ok((inner, AddressKey::V4(destination))),
        // Multicast that the kernel itself sends when the device comes up.
        Inner::V6 { destination, .. } if destination >> 120 == 0xff => Err(DropReason::LinkLocal),
        Inner::V6 { destination, .. } => Ok((inner, AddressKey::V6((destination >> 64) as u64))),
    }
}

/// Returns true for an ICMP Redirect (RFC 792), which has a meaning only among neighbours on one
/// link.
#[inline]
fn is_redirect(packet: &[u8]) -> bool {
    const ICMP: u8 = 1;
    packet[9] == ICMP && packet.get(usize::from(packet[0] & 0xf) * 4) == Some(&5)
}
