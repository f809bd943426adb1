//! Classification by the locked tables: every packet that the fast path leaves.

use super::Tables;
use crate::engine::access::table::Bits;
use crate::engine::answer::{Answer, AnswerKind};
use crate::engine::counters::DropReason;
use crate::engine::entry::{DATA, TUNNEL_ERROR, UplinkEntry, passes_watched_multiple};
use crate::engine::event::{Event, PendingNotification};
use crate::engine::index::{AddressKey, DownlinkId, address_keys};
use crate::engine::inner::Inner;
use crate::engine::ndp;
use crate::engine::rule::{DownlinkRule, Tunnel};
use crate::engine::verdict::{BufferOutcome, DownlinkVerdict, NotForwarded, UplinkVerdict, inward, outward};
use std::net::{IpAddr, Ipv6Addr};
use vireo_types::{Instant, SessionAddress};
use vireo_wire::gtpu::{MessageType, Packet, ParseError, error_indication};

impl Tables {
    /// Classifies a datagram from N3 and counts it to its session. `notify` receives notifications
    /// about the count.
    #[inline]
    pub(crate) fn classify_uplink<'a>(
        &self,
        from: IpAddr,
        datagram: &'a [u8],
        now: Instant,
        notify: &mut impl FnMut(Event),
    ) -> UplinkVerdict<'a> {
        match Packet::usual(datagram) {
            Some(packet) => self.g_pdu(from, &packet, now, notify),
            None => self.classify_other(from, datagram, now, notify),
        }
    }

    /// Classifies the datagrams that the fast path leaves.
    fn classify_other<'a>(
        &self,
        from: IpAddr,
        datagram: &'a [u8],
        now: Instant,
        notify: &mut impl FnMut(Event),
    ) -> UplinkVerdict<'a> {
        match Packet::parse(datagram) {
            Ok(packet) => match packet.kind {
                MessageType::GPdu => self.g_pdu(from, &packet, now, notify),
                MessageType::EchoRequest => {
                    let answer = packet.sequence.map(|sequence| Answer::Echo { sequence });
                    self.limited(AnswerKind::Echo, from, answer, now)
                }
                MessageType::ErrorIndication => self.tunnel_error(from, packet.payload),
                MessageType::EchoResponse if self.may_answer(AnswerKind::Alive, from, now) => UplinkVerdict::Alive,
                MessageType::EndMarker => self.end_marker_by_flows(from, packet.teid),
                MessageType::EchoResponse | MessageType::SupportedExtensionHeadersNotification => {
                    UplinkVerdict::Nothing
                }
                MessageType::Other(_) => UplinkVerdict::Drop(DropReason::Unexpected),
            },
            Err(ParseError::Unsupported(_)) => {
                match self.limited(AnswerKind::Error, from, Some(Answer::ExtensionHeader), now) {
                    UplinkVerdict::Drop(_) => UplinkVerdict::Drop(DropReason::ExtensionHeader),
                    answer => answer,
                }
            }
            Err(_) => UplinkVerdict::Drop(DropReason::Malformed),
        }
    }

    #[inline]
    fn g_pdu<'a>(
        &self,
        from: IpAddr,
        packet: &Packet<'a>,
        now: Instant,
        notify: &mut impl FnMut(Event),
    ) -> UplinkVerdict<'a> {
        let Some(uplink) = self.find_uplink(packet.teid) else {
            if self.restoring {
                return UplinkVerdict::Drop(DropReason::UnknownTeid);
            }
            return match self.limited(AnswerKind::Error, from, Some(Answer::UnknownTunnel(packet.teid)), now) {
                UplinkVerdict::Drop(_) => UplinkVerdict::Drop(DropReason::UnknownTeid),
                answer => answer,
            };
        };
        let _section = uplink.begin_read(self.arrays().locking);
        if !self.accepts(from, packet.teid, uplink) {
            return self.verdict_on_unknown_sender(uplink, packet);
        }
        if uplink.overflows() {
            return self.uplink_by_flows(uplink, packet, now, notify);
        }
        let rule = uplink.rule();
        match self.arrays().apply_uplink_rule(uplink, &rule, packet, now) {
            Ok(packet) => {
                if !uplink.is_uncounted() && self.arrays().count_and_watch(&uplink.state, uplink.watch(), packet.len())
                {
                    self.notify_volume(rule.ue, notify);
                }
                UplinkVerdict::Forward(packet)
            }
            Err(stop) => self.stopped(stop, now),
        }
    }

    /// Handles a G-PDU from an unknown address. It is held if the session's UE may have sent it.
    #[cold]
    fn verdict_on_unknown_sender(&self, uplink: &UplinkEntry, packet: &Packet<'_>) -> UplinkVerdict<'static> {
        let ue = uplink.rule().ue;
        let framed = |source: IpAddr| {
            let behind = self.find_framed(source);
            behind.is_some() && address_keys(ue).any(|key| self.find_downlink(key) == behind)
        };
        // A session that relays packets to another UPF has no addresses.
        let is_relay = ue == SessionAddress::default();
        let may_be_the_ues =
            |inner: Inner<'_>| is_relay || !matches!(outward(ue, &inner, framed), Err(NotForwarded::Drop(_)));
        match Inner::read(packet.payload).is_some_and(may_be_the_ues) {
            true => UplinkVerdict::Hold(packet.teid),
            false => UplinkVerdict::Drop(DropReason::UnknownPeer),
        }
    }

    /// Returns the verdict for a UE's packet that does not pass.
    #[cold]
    pub(crate) fn stopped(&self, stop: NotForwarded<'_>, now: Instant) -> UplinkVerdict<'static> {
        match stop {
            NotForwarded::Drop(reason) => UplinkVerdict::Drop(reason),
            NotForwarded::OnLink(prefix, packet) => self.answer_solicitation(prefix, packet, now),
            // Not reached: no rule for packets from UEs buffers.
            NotForwarded::Wait { .. } => UplinkVerdict::Drop(DropReason::Action),
        }
    }

    /// Sends a notification that the fast path deferred.
    #[cold]
    pub(crate) fn notify_pending(&self, pending: PendingNotification, notify: &mut impl FnMut(Event)) {
        match pending {
            PendingNotification::Uplink(ue) => self.notify_volume(ue, notify),
            PendingNotification::Downlink(id) => {
                self.session_of(id).into_iter().for_each(|session| notify(Event::Volume { session }))
            }
        }
    }

    /// Notifies the control side that a count of the session with these addresses passed a watched
    /// multiple.
    #[cold]
    fn notify_volume(&self, ue: SessionAddress, notify: &mut impl FnMut(Event)) {
        let session = address_keys(ue).find_map(|key| self.find_downlink(key)).and_then(|id| self.session_of(id));
        session.into_iter().for_each(|session| notify(Event::Volume { session }));
    }

    /// Handles an IPv6 packet of link scope: answers solicitations to the router, drops all others.
    fn answer_solicitation(&self, prefix: Option<Ipv6Addr>, packet: &[u8], now: Instant) -> UplinkVerdict<'static> {
        let found = prefix.and_then(|prefix| self.find_downlink(AddressKey::V6((prefix.to_bits() >> 64) as u64)));
        match (ndp::solicitation(packet), found) {
            (Some(solicitation), Some(id)) if self.downlink(id).allow_advertisement(now) => {
                UplinkVerdict::Answer(Answer::Router(id, solicitation))
            }
            (Some(_), Some(_)) => UplinkVerdict::Drop(DropReason::AnswerLimit),
            _ => UplinkVerdict::Drop(DropReason::LinkLocal),
        }
    }

    /// Handles an Error Indication. Accepts it only from the peer of the tunnel. Others cannot know
    /// address and TEID, or forge them.
    fn tunnel_error(&self, from: IpAddr, payload: &[u8]) -> UplinkVerdict<'static> {
        let Some(error) = error_indication(payload) else {
            return UplinkVerdict::Drop(DropReason::Malformed);
        };
        let tunnel = Tunnel { teid: error.teid, address: error.peer };
        if from != tunnel.address {
            return UplinkVerdict::Drop(DropReason::UnknownPeer);
        }
        let session = match self.find_tunnel(tunnel) {
            Some((session, record)) => record.report_once(TUNNEL_ERROR).then_some(session),
            None => self.report_relay_error(tunnel),
        };
        session.map_or(UplinkVerdict::Nothing, |session| UplinkVerdict::Report(Event::TunnelError { session, tunnel }))
    }

    #[cold]
    fn may_answer(&self, kind: AnswerKind, to: IpAddr, now: Instant) -> bool {
        self.answer_limits.allow(kind, Bits::from_address(to), &self.arrays().checks.table, now)
    }

    #[cold]
    fn limited(&self, kind: AnswerKind, to: IpAddr, answer: Option<Answer>, now: Instant) -> UplinkVerdict<'static> {
        match answer {
            None => UplinkVerdict::Drop(DropReason::Malformed),
            Some(answer) if self.may_answer(kind, to, now) => UplinkVerdict::Answer(answer),
            Some(_) => UplinkVerdict::Drop(DropReason::AnswerLimit),
        }
    }

    /// Classifies a packet from N6, counts it to its session, and buffers it if the rule demands
    /// that.
    #[inline]
    pub(crate) fn classify_downlink(
        &self,
        packet: &[u8],
        now: Instant,
        notify: &mut impl FnMut(Event),
    ) -> DownlinkVerdict {
        let (inner, key) = match inward(packet) {
            Ok(found) => found,
            Err(reason) => return DownlinkVerdict::Drop(reason),
        };
        let Some(id) = self.find_downlink(key).or_else(|| self.find_framed(inner.destination())) else {
            return DownlinkVerdict::Drop(DropReason::UnknownUe);
        };
        let record = self.downlink(id);
        let _section = record.begin_read(self.arrays().locking);
        if record.overflows() {
            return self.downlink_by_flows(id, &inner, now, notify);
        }
        // Session and PDR lie elsewhere: reading them costs a second cache miss per packet, and
        // only reports need them.
        let rule = record.rule(0, 0);
        let octets = inner.packet().len();
        match self.arrays().apply_downlink_rule(record, &rule, record.tunnel_target(), octets, now) {
            Ok(target) => {
                if !record.is_uncounted() && self.arrays().count_and_watch(&record.state, record.watch(), octets) {
                    self.notify_pending(PendingNotification::Downlink(id), notify);
                }
                DownlinkVerdict::Forward { target, octets }
            }
            Err(NotForwarded::Wait { notify: nocp }) => match self.downlink_rule(id) {
                Some(rule) => self.buffer(id, &rule, nocp, inner.packet(), now, notify),
                None => DownlinkVerdict::Drop(DropReason::UnknownUe),
            },
            Err(NotForwarded::Drop(reason)) => DownlinkVerdict::Drop(reason),
            // Not reached: no rule for packets to UEs keeps them on the link.
            Err(NotForwarded::OnLink(..)) => DownlinkVerdict::Drop(DropReason::LinkLocal),
        }
    }

    fn buffer(
        &self,
        id: DownlinkId,
        rule: &DownlinkRule,
        nocp: bool,
        packet: &[u8],
        now: Instant,
        notify: &mut impl FnMut(Event),
    ) -> DownlinkVerdict {
        let record = self.downlink(id);
        if !record.conforms(rule.mbr, packet.len(), now) {
            return DownlinkVerdict::Drop(DropReason::RateExceeded);
        }
        let pushed = self.buffers().push(id.0, packet, now);
        if pushed.is_stored && !record.is_uncounted() {
            let before = record.state.count(packet.len());
            if passes_watched_multiple(record.watch(), before, packet.len()) {
                notify(Event::Volume { session: rule.session });
            }
        }
        let event =
            (nocp && record.report_once(DATA)).then_some(Event::DownlinkData { session: rule.session, pdr: rule.pdr });
        DownlinkVerdict::Buffered(BufferOutcome { id, pushed, event })
    }
}
