//! Entry points of the packet path: from a packet to the action of the driver.
//!
//! Every driver calls [`uplink`] and [`downlink`]. The driver itself receives, sends and waits.

use crate::engine::answer::{self, Answer};
use crate::engine::classifier::Classifier;
use crate::engine::counters::{DropReason, Stats};
use crate::engine::datagram::Datagram;
use crate::engine::event::Event;
use crate::engine::tables::Tables;
use crate::engine::tunnel_target::TunnelTarget;
use crate::engine::verdict::{BufferOutcome, DownlinkVerdict, UplinkVerdict};
use std::net::SocketAddr;
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

/// Handles a datagram from N3. Returns the user's packet if it is to be forwarded.
#[inline]
pub(crate) fn uplink<'a>(
    by: &impl Classifier,
    datagram: Datagram<'a>,
    now: Instant,
    stats: &mut Stats,
    output: &mut impl SlowPath,
) -> PacketAction<&'a [u8]> {
    if by.arrays().is_in_pools(datagram.from.ip()) {
        stats.drop(DropReason::FromUe);
        return PacketAction::Done;
    }
    let mut notify = |event| {
        // A lost notification is repeated after the next multiple of the watch granularity.
        let _ = output.event(event);
    };
    match (by.uplink(datagram.from.ip(), datagram.octets, now, &mut notify), by.tables()) {
        (Some(UplinkVerdict::Forward(packet)), _) => return PacketAction::Send(packet),
        (Some(UplinkVerdict::Drop(reason)), _) => stats.drop(reason),
        (Some(UplinkVerdict::Hold(teid)), Some(tables)) => {
            if !tables.hold(teid, datagram, now) {
                stats.drop(DropReason::UnknownPeer);
            }
        }
        (Some(verdict), Some(tables)) => finish_uplink(tables, verdict, datagram, stats, output),
        (None, _) | (_, None) => return PacketAction::Punt,
    }
    PacketAction::Done
}

/// Handles the verdicts other than forward and drop.
#[cold]
fn finish_uplink(
    tables: &Tables,
    verdict: UplinkVerdict<'_>,
    datagram: Datagram<'_>,
    stats: &mut Stats,
    output: &mut impl SlowPath,
) {
    match verdict {
        UplinkVerdict::Forward(_) | UplinkVerdict::Drop(_) | UplinkVerdict::Hold(_) | UplinkVerdict::Nothing => {}
        UplinkVerdict::Alive => {
            let _ = output.event(Event::Alive { peer: datagram.from.ip() });
        }
        UplinkVerdict::Report(event) => {
            let _ = output.event(event);
        }
        UplinkVerdict::Buffered(outcome) => finish_buffered(tables, outcome, stats, output),
        UplinkVerdict::Relay { tunnel, marked, packet, uplink } => match answer::g_pdu(tunnel, marked, packet) {
            None => stats.drop(DropReason::InnerMalformed),
            Some((to, relayed)) if output.answer(to, &relayed) => {
                let volume = if uplink { &mut stats.uplink } else { &mut stats.downlink };
                volume.add(packet.len());
            }
            Some(_) => stats.drop(DropReason::N3Send),
        },
        UplinkVerdict::EndMarker(tunnel) => match answer::end_marker(tunnel) {
            Some((to, marker)) if output.answer(to, &marker) => stats.answers += 1,
            _ => stats.drop(DropReason::N3Send),
        },
        UplinkVerdict::Answer(reply) => {
            match reply {
                Answer::UnknownTunnel(_) => stats.drop(DropReason::UnknownTeid),
                Answer::ExtensionHeader => stats.drop(DropReason::ExtensionHeader),
                Answer::Echo { .. } | Answer::Router(..) => {}
            }
            let mut buffer = [0; answer::MAX_ANSWER_OCTETS];
            match tables.write_answer(reply, datagram.from, datagram.local, &mut buffer) {
                None => stats.drop(DropReason::NoTunnel),
                Some((to, octets)) if output.answer(to, octets) => stats.answers += 1,
                Some(_) => stats.drop(DropReason::N3Send),
            }
        }
    }
}

/// Counts a packet that waits for its UE, and reports the first one.
#[cold]
fn finish_buffered(tables: &Tables, outcome: BufferOutcome, stats: &mut Stats, output: &mut impl SlowPath) {
    match outcome.pushed.is_stored {
        true => stats.buffered += 1,
        false => stats.drop(DropReason::BufferFull),
    }
    stats.drops[DropReason::BufferFull as usize] += u64::from(outcome.pushed.evicted);
    if let Some(event) = outcome.event
        && !output.event(event)
    {
        tables.report_data_again(outcome.id);
    }
}

/// Datagram to send on N3.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Outgoing {
    pub(crate) target: TunnelTarget,
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
    output: &mut impl SlowPath,
) -> PacketAction<Outgoing> {
    let Some(packet) = buffer.get(HEADROOM..end) else {
        stats.drop(DropReason::InnerMalformed);
        return PacketAction::Done;
    };
    let mut notify = |event| {
        let _ = output.event(event);
    };
    match (by.downlink(packet, now, &mut notify), by.tables()) {
        (Some(DownlinkVerdict::Forward { target, octets }), _) => {
            let end = HEADROOM + octets;
            match gtpu::prepend_g_pdu(buffer, HEADROOM, end, target.teid(), target.marked()) {
                Ok(start) => return PacketAction::Send(Outgoing { target, start, end, octets }),
                Err(_) => stats.drop(DropReason::InnerMalformed),
            }
        }
        (Some(DownlinkVerdict::Drop(reason)), _) => stats.drop(reason),
        (Some(DownlinkVerdict::Buffered(outcome)), Some(tables)) => finish_buffered(tables, outcome, stats, output),
        (None, _) | (_, None) => return PacketAction::Punt,
    }
    PacketAction::Done
}
