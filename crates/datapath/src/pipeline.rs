//! Entry points of the packet path: from a packet to the action of the driver.
//!
//! Every driver calls [`uplink`] and [`downlink`]. The driver itself receives, sends and waits.

use crate::answer::{self, Answer};
use crate::counters::{DropReason, Stats};
use crate::fast::Classifier;
use crate::tables::Tables;
use crate::tunnel_target::TunnelTarget;
use crate::verdict::{DownlinkVerdict, Event, UplinkVerdict};
use std::net::{IpAddr, SocketAddr};
use vireo_types::Instant;
use vireo_wire::gtpu;

/// Output of a driver for the results that are neither a drop nor simple forwarding.
pub(crate) trait SlowPath {
    /// Sends a datagram on N3. Returns false if that failed.
    fn answer(&mut self, to: SocketAddr, datagram: &[u8]) -> bool;
    /// Notifies the control side. Returns false if its queue is full.
    fn event(&mut self, event: Event) -> bool;
}

/// Octets that a driver leaves free before a packet from N6.
pub(crate) const HEADROOM: usize = gtpu::G_PDU_HEADER;

/// Action of a driver for one packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PacketAction<T> {
    /// Send the packet. The driver counts it after sending.
    Send(T),
    /// No action: the packet has been dropped, buffered or answered.
    Done,
    /// Punt the packet to the locked tables.
    Punt,
}

/// Handles a datagram from N3 that was sent to our address `local`. Returns the user's packet if it
/// is to be forwarded.
#[inline]
pub(crate) fn uplink<'a>(
    by: &impl Classifier,
    from: SocketAddr,
    local: IpAddr,
    datagram: &'a [u8],
    now: Instant,
    stats: &mut Stats,
    unusual: &mut impl SlowPath,
) -> PacketAction<&'a [u8]> {
    if by.arrays().is_of_a_ue(from.ip()) {
        stats.drop(DropReason::FromUe);
        return PacketAction::Done;
    }
    let mut tell = |event| {
        // A lost notification is repeated after the next multiple of the watch granularity.
        let _ = unusual.event(event);
    };
    match (by.uplink(from.ip(), datagram, now, &mut tell), by.tables()) {
        (Some(UplinkVerdict::Forward(packet)), _) => return PacketAction::Send(packet),
        (Some(UplinkVerdict::Drop(reason)), _) => stats.drop(reason),
        (Some(UplinkVerdict::Hold(teid)), Some(tables)) => {
            if !tables.hold((from, local), teid, datagram, now) {
                stats.drop(DropReason::UnknownPeer);
            }
        }
        (Some(verdict), Some(tables)) => rare(tables, verdict, (from, local), stats, unusual),
        (None, _) | (_, None) => return PacketAction::Punt,
    }
    PacketAction::Done
}

/// Handles the verdicts other than forward and drop.
#[cold]
fn rare(
    tables: &Tables,
    verdict: UplinkVerdict<'_>,
    (from, local): (SocketAddr, IpAddr),
    stats: &mut Stats,
    unusual: &mut impl SlowPath,
) {
    match verdict {
        UplinkVerdict::Forward(_) | UplinkVerdict::Drop(_) | UplinkVerdict::Hold(_) | UplinkVerdict::Nothing => {}
        UplinkVerdict::Alive => {
            let _ = unusual.event(Event::Alive { peer: from.ip() });
        }
        UplinkVerdict::Report(event) => {
            let _ = unusual.event(event);
        }
        UplinkVerdict::Buffered(id, event) => {
            stats.buffered += 1;
            if let Some(event) = event
                && !unusual.event(event)
            {
                tables.report_data_again(id);
            }
        }
        UplinkVerdict::Relay { tunnel, marked, packet, uplink } => match answer::g_pdu(tunnel, marked, packet) {
            None => stats.drop(DropReason::InnerMalformed),
            Some((to, datagram)) if unusual.answer(to, &datagram) => {
                let volume = if uplink { &mut stats.uplink } else { &mut stats.downlink };
                volume.add(packet.len());
            }
            Some(_) => stats.drop(DropReason::N3Send),
        },
        UplinkVerdict::Answer(what) => {
            match what {
                Answer::UnknownTunnel(_) => stats.drop(DropReason::UnknownTeid),
                Answer::ExtensionHeader => stats.drop(DropReason::ExtensionHeader),
                Answer::Echo { .. } | Answer::Router(..) => {}
            }
            let mut buffer = [0; answer::LONGEST];
            match answer::write(what, tables, from, local, &mut buffer) {
                None => stats.drop(DropReason::NoTunnel),
                Some((to, octets)) if unusual.answer(to, octets) => stats.answers += 1,
                Some(_) => stats.drop(DropReason::N3Send),
            }
        }
    }
}

/// Datagram to send on N3.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Outgoing {
    pub(crate) toward: TunnelTarget,
    /// The datagram is `buffer[start..end]`.
    pub(crate) start: usize,
    pub(crate) end: usize,
    /// Length of the user's packet in the datagram, in octets.
    pub(crate) octets: usize,
}

/// Handles a packet from N6 in `buffer[HEADROOM..end]`. Writes its tunnel header directly before
/// it.
#[inline]
pub(crate) fn downlink(
    by: &impl Classifier,
    buffer: &mut [u8],
    end: usize,
    now: Instant,
    stats: &mut Stats,
    unusual: &mut impl SlowPath,
) -> PacketAction<Outgoing> {
    let Some(packet) = buffer.get(HEADROOM..end) else {
        stats.drop(DropReason::InnerMalformed);
        return PacketAction::Done;
    };
    let mut tell = |event| {
        let _ = unusual.event(event);
    };
    match (by.downlink(packet, now, &mut tell), by.tables()) {
        (Some(DownlinkVerdict::Forward { toward, octets }), _) => {
            let end = HEADROOM + octets;
            match gtpu::prepend_g_pdu(buffer, HEADROOM, end, toward.teid(), toward.marked()) {
                Ok(start) => return PacketAction::Send(Outgoing { toward, start, end, octets }),
                Err(_) => stats.drop(DropReason::InnerMalformed),
            }
        }
        (Some(DownlinkVerdict::Drop(reason)), _) => stats.drop(reason),
        (Some(DownlinkVerdict::Buffered(id, event)), Some(tables)) => {
            stats.buffered += 1;
            if let Some(event) = event
                && !unusual.event(event)
            {
                tables.report_data_again(id);
            }
        }
        (None, _) | (_, None) => return PacketAction::Punt,
    }
    PacketAction::Done
}
