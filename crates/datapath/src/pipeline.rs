//! From a packet to what a driver must do with it. Every driver calls these two functions; what it does itself is
//! receiving, sending and waiting.

use crate::answer::{self, Answer};
use crate::counters::{DropReason, Stats};
use crate::fast::Classifier;
use crate::tables::Tables;
use crate::tunnel_target::TunnelTarget;
use crate::verdict::{DownlinkVerdict, Event, UplinkVerdict};
use std::net::{IpAddr, SocketAddr};
use vireo_types::Instant;
use vireo_wire::gtpu;

/// Where a driver takes what is neither dropped nor simply forwarded.
pub(crate) trait SlowPath {
    /// Sends a datagram on N3; `false` if it could not.
    fn answer(&mut self, to: SocketAddr, datagram: &[u8]) -> bool;
    /// Tells the owner of the sessions; `false` if it has too much to do already.
    fn event(&mut self, event: Event) -> bool;
}

/// Room that a driver leaves before a packet from N6.
pub(crate) const HEADROOM: usize = gtpu::G_PDU_HEADER;

/// What a driver does with a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PacketAction<T> {
    /// It leaves; the driver counts it when it has.
    Send(T),
    /// Nothing: it has been dropped, kept or answered.
    Done,
    /// Ask the locked tables.
    Punt,
}

/// Handles a datagram from N3 that came to our address `local`. Gives the user's packet if it is to be forwarded.
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
        // one that is not taken is told again when as much has passed once more
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

/// What is neither forwarded nor dropped.
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

/// What to send on N3.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Outgoing {
    pub(crate) toward: TunnelTarget,
    /// The datagram is `buffer[start..end]`.
    pub(crate) start: usize,
    pub(crate) end: usize,
    /// Octets of the user's packet in it.
    pub(crate) octets: usize,
}

/// Handles a packet from N6, which is `buffer[HEADROOM..end]`; its tunnel header is written right before it.
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
