//! What becomes of one packet: the reference that every driver follows, in memory, sockets and (later) BPF alike.

use crate::answer::{Answer, container};
use crate::counters::DropReason;
use crate::index::Key;
use crate::inner::Inner;
use crate::ndp;
use crate::record::{DATA, TUNNEL_ERROR, watched};
use crate::rule::{ALL_FLOWS, Action, DownlinkRule, Tunnel};
use crate::tables::{ANSWERS, DownlinkId, Tables, keys};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use vireo_types::{Instant, SessionAddress};
use vireo_wire::gtpu::{MessageType, Packet, ParseError, PduSession, error_indication};

/// Something that the owner of the sessions must know.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// The first packet for a UE whose packets are buffered with NOCP.
    DownlinkData {
        /// [`crate::DownlinkRule::session`].
        session: u64,
        /// [`crate::DownlinkRule::pdr`].
        pdr: u16,
    },
    /// The RAN says that a tunnel we send into is not there (TS 23.527 5.3.3). Reported once for a tunnel.
    TunnelError {
        /// [`crate::DownlinkRule::session`].
        session: u64,
        /// The tunnel.
        tunnel: Tunnel,
    },
    /// The packets of a session have come to where its owner wants to look at their volume ([`Tables::watch`]).
    Volume {
        /// [`crate::DownlinkRule::session`].
        session: u64,
    },
    /// A GTP-U peer has answered an Echo Request, or says so.
    Alive {
        /// The peer.
        peer: IpAddr,
    },
}

/// What becomes of a datagram from N3.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum UplinkVerdict<'a> {
    /// The user's packet goes to the data network.
    Forward(&'a [u8]),
    /// The sender gets an answer.
    Answer(Answer),
    /// The owner gets to know.
    Report(Event),
    /// Its sender is there.
    Alive,
    /// It was read and wants nothing.
    Nothing,
    /// The user's packet goes on into another tunnel.
    Relay { tunnel: Tunnel, marked: Option<PduSession>, packet: &'a [u8], uplink: bool },
    /// It was put into the buffer of the record; the owner gets to know the first.
    Buffered(DownlinkId, Option<Event>),
    /// It is dropped.
    Drop(DropReason),
}

/// What becomes of a packet from N6.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DownlinkVerdict {
    /// So many octets go into the tunnel, with this PDU Session Container.
    Forward { tunnel: Tunnel, marked: Option<PduSession>, octets: usize },
    /// It was put into the buffer of the record; the owner gets to know the first.
    Buffered(DownlinkId, Option<Event>),
    /// It is dropped.
    Drop(DropReason),
}

impl Tables {
    /// Decides on a datagram from N3 and counts it to its session. `tell` gets what the owner must know of the count.
    #[inline]
    pub(crate) fn decide_uplink<'a>(
        &self,
        datagram: &'a [u8],
        now: Instant,
        tell: &mut impl FnMut(Event),
    ) -> UplinkVerdict<'a> {
        match Packet::usual(datagram) {
            Some(packet) => self.g_pdu(&packet, now, tell),
            None => self.decide_on_any(datagram, now, tell),
        }
    }

    /// The same for what is rarer.
    fn decide_on_any<'a>(&self, datagram: &'a [u8], now: Instant, tell: &mut impl FnMut(Event)) -> UplinkVerdict<'a> {
        match Packet::parse(datagram) {
            Ok(packet) => match packet.kind {
                MessageType::GPdu => self.g_pdu(&packet, now, tell),
                MessageType::EchoRequest => {
                    let answer = packet.sequence.map(|sequence| Answer::Echo { sequence });
                    self.limited(&self.echoes, answer, now)
                }
                MessageType::ErrorIndication => self.tunnel_error(packet.payload),
                MessageType::EchoResponse if self.responses.allow(ANSWERS, 1, now) => UplinkVerdict::Alive,
                MessageType::EchoResponse
                | MessageType::EndMarker
                | MessageType::SupportedExtensionHeadersNotification => UplinkVerdict::Nothing,
                MessageType::Other(_) => UplinkVerdict::Drop(DropReason::Unexpected),
            },
            Err(ParseError::Unsupported(_)) => match self.limited(&self.errors, Some(Answer::ExtensionHeader), now) {
                UplinkVerdict::Drop(_) => UplinkVerdict::Drop(DropReason::ExtensionHeader),
                answer => answer,
            },
            Err(_) => UplinkVerdict::Drop(DropReason::Malformed),
        }
    }

    #[inline]
    fn g_pdu<'a>(&self, packet: &Packet<'a>, now: Instant, tell: &mut impl FnMut(Event)) -> UplinkVerdict<'a> {
        let Some(uplink) = self.find_uplink(packet.teid) else {
            return match self.limited(&self.errors, Some(Answer::UnknownTunnel(packet.teid)), now) {
                UplinkVerdict::Drop(_) => UplinkVerdict::Drop(DropReason::UnknownTeid),
                answer => answer,
            };
        };
        if uplink.overflows() {
            return self.uplink_by_flows(uplink, packet, now, tell);
        }
        let rule = uplink.rule();
        if rule.flows != ALL_FLOWS {
            match packet.pdu_session {
                Some(PduSession::Uplink { qfi }) if rule.flows >> qfi & 1 == 1 => {}
                _ => return UplinkVerdict::Drop(DropReason::WrongFlow),
            }
        }
        let inner = match Inner::read(packet.payload).map(|inner| self.outward(rule.ue, &inner, |_| false, now)) {
            None => return UplinkVerdict::Drop(DropReason::InnerMalformed),
            Some(Err(verdict)) => return verdict,
            Some(Ok(packet)) => packet,
        };
        if !rule.gate_open {
            return UplinkVerdict::Drop(DropReason::GateClosed);
        }
        if !rule.forward {
            return UplinkVerdict::Drop(DropReason::Action);
        }
        if !uplink.conforms(rule.mbr, inner.len(), now) {
            return UplinkVerdict::Drop(DropReason::RateExceeded);
        }
        let before = self.count(&uplink.state, inner.len());
        if watched(uplink.watch(), before, inner.len()) {
            self.tell_volume(rule.ue, tell);
        }
        UplinkVerdict::Forward(inner)
    }

    /// Tells the owner of the session that has these addresses to look at its volume.
    #[cold]
    fn tell_volume(&self, ue: SessionAddress, tell: &mut impl FnMut(Event)) {
        let session = keys(ue).find_map(|key| self.find_downlink(key)).and_then(|id| self.session_of(id));
        session.into_iter().for_each(|session| tell(Event::Volume { session }));
    }

    /// The packet, if it may leave for the data network: its source is the UE's or, by `also`, behind the UE.
    #[inline]
    pub(crate) fn outward<'a>(
        &self,
        ue: SessionAddress,
        inner: &Inner<'a>,
        also: impl Fn(IpAddr) -> bool,
        now: Instant,
    ) -> Result<&'a [u8], UplinkVerdict<'a>> {
        match *inner {
            Inner::V4 { source, packet, .. } => {
                let own = ue.ipv4.map(|own| own.to_bits()) == Some(source);
                let may = own || also(Ipv4Addr::from_bits(source).into());
                if may { Ok(packet) } else { Err(UplinkVerdict::Drop(DropReason::Spoofed)) }
            }
            Inner::V6 { source, destination, packet } => {
                let own = ue.ipv6_prefix.is_some_and(|own| own.to_bits() >> 64 == source >> 64)
                    || also(Ipv6Addr::from_bits(source).into());
                if !own && !ndp::is_link_scope(source) {
                    return Err(UplinkVerdict::Drop(DropReason::Spoofed));
                }
                if !own || ndp::is_link_scope(destination) {
                    return Err(self.to_the_router(ue.ipv6_prefix, packet, now));
                }
                Ok(packet)
            }
        }
    }

    /// An IPv6 packet that stays on its link: a question to the router, or nothing that concerns anybody.
    #[cold]
    fn to_the_router(&self, prefix: Option<Ipv6Addr>, packet: &[u8], now: Instant) -> UplinkVerdict<'static> {
        let found = prefix.and_then(|prefix| self.find_downlink(Key::V6((prefix.to_bits() >> 64) as u64)));
        match (ndp::solicitation(packet), found) {
            (Some(solicitation), Some(id)) => {
                self.limited(&self.solicitations, Some(Answer::Router(id, solicitation)), now)
            }
            _ => UplinkVerdict::Drop(DropReason::LinkLocal),
        }
    }

    fn tunnel_error(&self, payload: &[u8]) -> UplinkVerdict<'static> {
        let Some(error) = error_indication(payload) else {
            return UplinkVerdict::Drop(DropReason::Malformed);
        };
        let tunnel = Tunnel { teid: error.teid, address: error.peer };
        match self.find_tunnel(tunnel) {
            Some((session, record)) if record.report_once(TUNNEL_ERROR) => {
                UplinkVerdict::Report(Event::TunnelError { session, tunnel })
            }
            _ => UplinkVerdict::Nothing,
        }
    }

    #[cold]
    fn limited(&self, limit: &crate::rate::Policer, answer: Option<Answer>, now: Instant) -> UplinkVerdict<'static> {
        match answer {
            None => UplinkVerdict::Drop(DropReason::Malformed),
            Some(answer) if limit.allow(ANSWERS, 1, now) => UplinkVerdict::Answer(answer),
            Some(_) => UplinkVerdict::Drop(DropReason::AnswerLimit),
        }
    }

    /// Decides on a packet from N6, counts it to its session and buffers it where the rule says so.
    #[inline]
    pub(crate) fn decide_downlink(&self, packet: &[u8], now: Instant, tell: &mut impl FnMut(Event)) -> DownlinkVerdict {
        let Some(inner) = Inner::read(packet) else {
            return DownlinkVerdict::Drop(DropReason::InnerMalformed);
        };
        let (key, address) = match inner {
            // when UEs talk to each other the kernel sees a packet leave where it came in, and advises a shorter way
            Inner::V4 { packet, .. } if is_redirect(packet) => return DownlinkVerdict::Drop(DropReason::LinkLocal),
            Inner::V4 { destination, .. } => (Key::V4(destination), Ipv4Addr::from_bits(destination).into()),
            // the kernel's own, as the device comes up
            Inner::V6 { destination, .. } if destination >> 120 == 0xff => {
                return DownlinkVerdict::Drop(DropReason::LinkLocal);
            }
            Inner::V6 { destination, .. } => {
                (Key::V6((destination >> 64) as u64), Ipv6Addr::from_bits(destination).into())
            }
        };
        let Some(id) = self.find_downlink(key).or_else(|| self.find_framed(address)) else {
            return DownlinkVerdict::Drop(DropReason::UnknownUe);
        };
        if self.downlink(id).overflows() {
            return self.downlink_by_flows(id, &inner, now, tell);
        }
        // session and PDR lie elsewhere, a second miss for every packet, and reports alone need them
        let rule = self.downlink(id).rule(0, 0);
        let inner = inner.packet();
        if !rule.gate_open {
            return DownlinkVerdict::Drop(DropReason::GateClosed);
        }
        match rule.action {
            Action::Drop => DownlinkVerdict::Drop(DropReason::Action),
            Action::Buffer { notify } => match self.downlink_rule(id) {
                Some(rule) => self.keep(id, &rule, notify, inner, now, tell),
                None => DownlinkVerdict::Drop(DropReason::UnknownUe),
            },
            Action::Forward => {
                let Some(tunnel) = rule.tunnel else {
                    return DownlinkVerdict::Drop(DropReason::NoTunnel);
                };
                let record = self.downlink(id);
                if !record.conforms(rule.mbr, inner.len(), now) {
                    return DownlinkVerdict::Drop(DropReason::RateExceeded);
                }
                let before = self.count(&record.state, inner.len());
                if watched(record.watch(), before, inner.len())
                    && let Some(DownlinkRule { session, .. }) = self.downlink_rule(id)
                {
                    tell(Event::Volume { session });
                }
                DownlinkVerdict::Forward { tunnel, marked: container(&rule), octets: inner.len() }
            }
        }
    }

    fn keep(
        &self,
        id: DownlinkId,
        rule: &DownlinkRule,
        notify: bool,
        packet: &[u8],
        now: Instant,
        tell: &mut impl FnMut(Event),
    ) -> DownlinkVerdict {
        let record = self.downlink(id);
        if !record.conforms(rule.mbr, packet.len(), now) {
            return DownlinkVerdict::Drop(DropReason::RateExceeded);
        }
        if !self.buffers().push(id.0, packet, now) {
            return DownlinkVerdict::Drop(DropReason::BufferFull);
        }
        let before = record.state.count(packet.len());
        if watched(record.watch(), before, packet.len()) {
            tell(Event::Volume { session: rule.session });
        }
        let event = (notify && record.report_once(DATA))
            .then_some(Event::DownlinkData { session: rule.session, pdr: rule.pdr });
        DownlinkVerdict::Buffered(id, event)
    }
}

/// ICMP Redirect (RFC 792), which has a meaning among neighbours on one link only.
#[inline]
fn is_redirect(packet: &[u8]) -> bool {
    const ICMP: u8 = 1;
    packet[9] == ICMP && packet.get(usize::from(packet[0] & 0xf) * 4) == Some(&5)
}
