//! Classification of one packet: the reference for all drivers (memory, sockets and BPF).
//!
//! The fast path ([`Arrays`]) uses the entry alone, with or without the lock of the tables.
//! [`Tables`] classify all other packets.

use crate::access::table::{Bits, SourceEntry};
use crate::answer::Answer;
use crate::counters::DropReason;
use crate::entry::{ANY_PEER, DATA, DownlinkEntry, EntryCounters, TUNNEL_ERROR, UplinkEntry, watched};
use crate::fast::{Arrays, PendingNotification};
use crate::hot::HotLookup;
use crate::index::AddressKey;
use crate::inner::Inner;
use crate::ndp;
use crate::rule::{ALL_FLOWS, Action, DownlinkRule, Tunnel, UplinkRule};
use crate::tables::{ANSWERS, DownlinkId, Tables, keys};
use crate::tunnel_target::TunnelTarget;
use std::cell::Cell;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use vireo_types::{Instant, SessionAddress, Teid};
use vireo_wire::gtpu::{self, MessageType, Packet, ParseError, PduSession, error_indication};

/// Notification for the control side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// First packet for a UE whose packets are buffered with NOCP.
    DownlinkData {
        /// Session of the entry; see [`crate::DownlinkRule::session`].
        session: u64,
        /// PDR of the entry; see [`crate::DownlinkRule::pdr`].
        pdr: u16,
    },
    /// The RAN node reported that one of our tunnels does not exist (TS 23.527 5.3.3). Sent once
    /// for each tunnel.
    TunnelError {
        /// Session of the entry; see [`crate::DownlinkRule::session`].
        session: u64,
        /// Tunnel that the Error Indication names.
        tunnel: Tunnel,
    },
    /// A volume count of a session passed a watched multiple ([`Tables::watch`]).
    Volume {
        /// Session of the entry; see [`crate::DownlinkRule::session`].
        session: u64,
    },
    /// A GTP-U peer sent an Echo Response. The source address may be forged.
    Alive { peer: IpAddr },
}

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
    /// Stored in the buffer of the entry. The event reports the first packet.
    Buffered(DownlinkId, Option<Event>),
    /// Hold the datagram until its source address is known, or drop it.
    Hold(Teid),
    /// Drop the packet for this reason.
    Drop(DropReason),
}

/// Result of classifying a packet from N6.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DownlinkVerdict {
    /// Send `octets` octets of user packet into the tunnel.
    Forward { toward: TunnelTarget, octets: usize },
    /// Stored in the buffer of the entry. The event reports the first packet.
    Buffered(DownlinkId, Option<Event>),
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
fn inward(packet: &[u8]) -> Result<(Inner<'_>, AddressKey), DropReason> {
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

impl Arrays {
    /// Checks the destination of a UE's packet.
    ///
    /// # Errors
    ///
    /// Returns an error if the destination is this machine, the core or the RAN, or a UE that
    /// isolation excludes.
    #[inline]
    pub(crate) fn may_reach(&self, inner: &Inner<'_>) -> Result<(), NotForwarded<'static>> {
        let to = match *inner {
            Inner::V4 { destination, .. } => Bits::v4(destination),
            Inner::V6 { destination, .. } => Bits::v6(destination),
        };
        if self.checks.table.is_protected(to) {
            return Err(NotForwarded::Drop(DropReason::Protected));
        }
        match self.isolates && self.is_kept_apart(inner) {
            true => Err(NotForwarded::Drop(DropReason::UeToUe)),
            false => Ok(()),
        }
    }

    /// Returns true if the packet is between UEs and the data network of either one isolates its
    /// UEs.
    #[cold]
    fn is_kept_apart(&self, inner: &Inner<'_>) -> bool {
        let pool_of = |address: IpAddr| self.pools.iter().find(|pool| pool.contains(address));
        let Some(to) = pool_of(inner.destination()) else { return false };
        to.isolated || pool_of(inner.source()).is_some_and(|from| from.isolated)
    }

    /// Returns `Some` if the address is known as a valid source for the entry. `None` = the tables
    /// must decide.
    #[inline]
    fn is_sender(&self, from: IpAddr, record: &UplinkEntry) -> Option<()> {
        match self.checks.table.source(Bits::of(from)) {
            SourceEntry::Unknown => None,
            SourceEntry::Node(place) if self.checks.own_peer_only => {
                let own = record.peer();
                (own == place || own == ANY_PEER).then_some(())
            }
            SourceEntry::Node(_) | SourceEntry::Prefix => Some(()),
        }
    }

    /// Counts a packet to an entry. Returns true if the count passes a watched multiple.
    #[inline]
    fn count_and_watch(&self, state: &EntryCounters, watch: u32, octets: usize) -> bool {
        watched(watch, self.count(state, octets), octets)
    }

    /// Applies a rule to a G-PDU. Returns the user's packet if it passes.
    #[inline]
    fn leave<'a>(
        &self,
        record: &UplinkEntry,
        rule: &UplinkRule,
        packet: &Packet<'a>,
        now: Instant,
    ) -> Result<&'a [u8], NotForwarded<'a>> {
        if rule.flows != ALL_FLOWS {
            match packet.pdu_session {
                Some(PduSession::Uplink { qfi }) if rule.flows >> qfi & 1 == 1 => {}
                _ => return Err(NotForwarded::Drop(DropReason::WrongFlow)),
            }
        }
        let inner = Inner::read(packet.payload).ok_or(NotForwarded::Drop(DropReason::InnerMalformed))?;
        let packet = outward(rule.ue, &inner, |_| false)?;
        self.may_reach(&inner)?;
        if !rule.gate_open {
            return Err(NotForwarded::Drop(DropReason::GateClosed));
        }
        if !rule.forward {
            return Err(NotForwarded::Drop(DropReason::Action));
        }
        if !record.conforms(rule.mbr, packet.len(), now) {
            return Err(NotForwarded::Drop(DropReason::RateExceeded));
        }
        Ok(packet)
    }

    /// Applies a rule to a packet from N6. Returns the tunnel, which is that of the entry, if the
    /// packet passes.
    // Inlined: a separate function would get the rule and return the verdict in memory.
    #[inline(always)]
    fn enter(
        &self,
        record: &DownlinkEntry,
        rule: &DownlinkRule,
        toward: Option<TunnelTarget>,
        octets: usize,
        now: Instant,
    ) -> Result<TunnelTarget, NotForwarded<'static>> {
        if !rule.gate_open {
            return Err(NotForwarded::Drop(DropReason::GateClosed));
        }
        match rule.action {
            Action::Drop => return Err(NotForwarded::Drop(DropReason::Action)),
            Action::Buffer { notify } => return Err(NotForwarded::Wait { notify }),
            Action::Forward => {}
        }
        let toward = toward.ok_or(NotForwarded::Drop(DropReason::NoTunnel))?;
        if !record.conforms(rule.mbr, octets, now) {
            return Err(NotForwarded::Drop(DropReason::RateExceeded));
        }
        Ok(toward)
    }

    /// Classifies a datagram from N3 without the lock of the tables. Returns `None` if the slow
    /// path must do it.
    #[inline]
    pub(crate) fn usual_uplink<'a>(
        &self,
        from: IpAddr,
        datagram: &'a [u8],
        now: Instant,
        owed: &Cell<Option<PendingNotification>>,
    ) -> Option<UplinkVerdict<'a>> {
        let packet = match Packet::usual(datagram) {
            Some(packet) => packet,
            None => Packet::parse(datagram).ok().filter(|packet| packet.kind == MessageType::GPdu)?,
        };
        let record = self.uplinks.get(packet.teid.index() as usize)?;
        let look = record.begin_read(self.locking)?;
        self.is_sender(from, record)?;
        let special = record.is_special();
        if special {
            if let (Some(own), Some(inner @ Inner::V4 { source, .. })) = (record.lean(), Inner::read(packet.payload)) {
                let holds = record.teid() == packet.teid && packet.teid != gtpu::NO_TEID && look.is_consistent();
                return holds.then_some(match (source == own, self.may_reach(&inner)) {
                    (true, Ok(())) => UplinkVerdict::Forward(inner.packet()),
                    (true, Err(NotForwarded::Drop(reason))) => UplinkVerdict::Drop(reason),
                    _ => UplinkVerdict::Drop(DropReason::Spoofed),
                });
            }
            if record.overflows() {
                return None;
            }
        }
        let rule = record.rule();
        if record.teid() != packet.teid || packet.teid == gtpu::NO_TEID || !look.is_consistent() {
            return None;
        }
        match self.leave(record, &rule, &packet, now) {
            Ok(packet) => {
                // A lean entry that needs the full rule check is not counted.
                if !special && self.count_and_watch(&record.state, record.watch(), packet.len()) {
                    owed.set(Some(PendingNotification::Uplink(rule.ue)));
                }
                Some(UplinkVerdict::Forward(packet))
            }
            Err(NotForwarded::Drop(reason)) => Some(UplinkVerdict::Drop(reason)),
            Err(_) => None,
        }
    }

    /// Classifies a packet from N6; see [`Arrays::usual_uplink`].
    #[inline(always)]
    pub(crate) fn usual_downlink(
        &self,
        packet: &[u8],
        now: Instant,
        owed: &Cell<Option<PendingNotification>>,
    ) -> Option<DownlinkVerdict> {
        let (inner, key) = match inward(packet) {
            Ok(found) => found,
            Err(reason) => return Some(DownlinkVerdict::Drop(reason)),
        };
        // Separate calls: the compiler specializes both. Without a hot table nearly all of it is
        // known.
        match self.hot {
            None => self.usual_downlink_to(self.look_up_home(key)?, &inner, now, owed),
            Some(_) => self.usual_downlink_by_levels(key, &inner, now, owed),
        }
    }

    // Inlined: a verdict returned from a call lies in memory.
    #[inline(always)]
    fn usual_downlink_by_levels(
        &self,
        key: AddressKey,
        inner: &Inner<'_>,
        now: Instant,
        owed: &Cell<Option<PendingNotification>>,
    ) -> Option<DownlinkVerdict> {
        self.usual_downlink_to(self.look_up(key)?, inner, now, owed)
    }

    #[inline(always)]
    fn usual_downlink_to(
        &self,
        found: HotLookup<'_>,
        inner: &Inner<'_>,
        now: Instant,
        owed: &Cell<Option<PendingNotification>>,
    ) -> Option<DownlinkVerdict> {
        let record = found.record;
        let look = record.look(self.locking)?;
        let special = record.is_special();
        if special {
            if let Some(toward) = record.lean() {
                let holds = found.is(record.generation()) && look.is_consistent();
                return holds.then(|| DownlinkVerdict::Forward { toward, octets: inner.packet().len() });
            }
            if record.overflows() {
                return None;
            }
        }
        let (rule, toward) = (record.rule(0, 0), record.toward());
        // Another generation means that the entry belongs to another UE.
        if !found.is(record.generation()) || !look.is_consistent() {
            return None;
        }
        let octets = inner.packet().len();
        match self.enter(record, &rule, toward, octets, now) {
            Ok(toward) => {
                // A lean entry that needs the full rule check is not counted.
                if !special && self.count_and_watch(&record.state, record.watch(), octets) {
                    owed.set(Some(PendingNotification::Downlink(found.id(self))));
                }
                if let Some(hot) = found.cold {
                    hot.wish(found.number);
                }
                Some(DownlinkVerdict::Forward { toward, octets })
            }
            Err(NotForwarded::Drop(reason)) => Some(DownlinkVerdict::Drop(reason)),
            Err(_) => None,
        }
    }
}

impl Tables {
    /// Classifies a datagram from N3 and counts it to its session. `tell` receives notifications
    /// about the count.
    #[inline]
    pub(crate) fn decide_uplink<'a>(
        &self,
        from: IpAddr,
        datagram: &'a [u8],
        now: Instant,
        tell: &mut impl FnMut(Event),
    ) -> UplinkVerdict<'a> {
        match Packet::usual(datagram) {
            Some(packet) => self.g_pdu(from, &packet, now, tell),
            None => self.decide_on_any(from, datagram, now, tell),
        }
    }

    /// Classifies the datagrams that the fast path leaves.
    fn decide_on_any<'a>(
        &self,
        from: IpAddr,
        datagram: &'a [u8],
        now: Instant,
        tell: &mut impl FnMut(Event),
    ) -> UplinkVerdict<'a> {
        match Packet::parse(datagram) {
            Ok(packet) => match packet.kind {
                MessageType::GPdu => self.g_pdu(from, &packet, now, tell),
                MessageType::EchoRequest => {
                    let answer = packet.sequence.map(|sequence| Answer::Echo { sequence });
                    self.limited(&self.echoes, answer, now)
                }
                MessageType::ErrorIndication => self.tunnel_error(from, packet.payload),
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
    fn g_pdu<'a>(
        &self,
        from: IpAddr,
        packet: &Packet<'a>,
        now: Instant,
        tell: &mut impl FnMut(Event),
    ) -> UplinkVerdict<'a> {
        let Some(uplink) = self.find_uplink(packet.teid) else {
            if self.restoring {
                return UplinkVerdict::Drop(DropReason::UnknownTeid);
            }
            return match self.limited(&self.errors, Some(Answer::UnknownTunnel(packet.teid)), now) {
                UplinkVerdict::Drop(_) => UplinkVerdict::Drop(DropReason::UnknownTeid),
                answer => answer,
            };
        };
        let _look = uplink.begin_read(self.arrays().locking);
        if !self.accepts(from, packet.teid, uplink) {
            return self.unknown_sender(uplink, packet);
        }
        if uplink.overflows() {
            return self.uplink_by_flows(uplink, packet, now, tell);
        }
        let rule = uplink.rule();
        match self.arrays().leave(uplink, &rule, packet, now) {
            Ok(packet) => {
                if !uplink.is_uncounted() && self.arrays().count_and_watch(&uplink.state, uplink.watch(), packet.len())
                {
                    self.tell_volume(rule.ue, tell);
                }
                UplinkVerdict::Forward(packet)
            }
            Err(stop) => self.stopped(stop, now),
        }
    }

    /// Handles a G-PDU from an unknown address. It is held if the session's UE may have sent it.
    #[cold]
    fn unknown_sender(&self, uplink: &UplinkEntry, packet: &Packet<'_>) -> UplinkVerdict<'static> {
        let ue = uplink.rule().ue;
        let framed = |source: IpAddr| {
            let behind = self.find_framed(source);
            behind.is_some() && keys(ue).any(|key| self.find_downlink(key) == behind)
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
            NotForwarded::OnLink(prefix, packet) => self.to_the_router(prefix, packet, now),
            // Not reached: no rule for packets from UEs buffers.
            NotForwarded::Wait { .. } => UplinkVerdict::Drop(DropReason::Action),
        }
    }

    /// Sends a notification that the fast path deferred.
    #[cold]
    pub(crate) fn tell_owed(&self, owed: PendingNotification, tell: &mut impl FnMut(Event)) {
        match owed {
            PendingNotification::Uplink(ue) => self.tell_volume(ue, tell),
            PendingNotification::Downlink(id) => {
                self.session_of(id).into_iter().for_each(|session| tell(Event::Volume { session }))
            }
        }
    }

    /// Notifies the control side that a count of the session with these addresses passed a watched
    /// multiple.
    #[cold]
    fn tell_volume(&self, ue: SessionAddress, tell: &mut impl FnMut(Event)) {
        let session = keys(ue).find_map(|key| self.find_downlink(key)).and_then(|id| self.session_of(id));
        session.into_iter().for_each(|session| tell(Event::Volume { session }));
    }

    /// Handles an IPv6 packet of link scope: answers solicitations to the router, drops all others.
    fn to_the_router(&self, prefix: Option<Ipv6Addr>, packet: &[u8], now: Instant) -> UplinkVerdict<'static> {
        let found = prefix.and_then(|prefix| self.find_downlink(AddressKey::V6((prefix.to_bits() >> 64) as u64)));
        match (ndp::solicitation(packet), found) {
            (Some(solicitation), Some(id)) => {
                self.limited(&self.solicitations, Some(Answer::Router(id, solicitation)), now)
            }
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

    /// Classifies a packet from N6, counts it to its session, and buffers it if the rule demands
    /// that.
    #[inline]
    pub(crate) fn decide_downlink(&self, packet: &[u8], now: Instant, tell: &mut impl FnMut(Event)) -> DownlinkVerdict {
        let (inner, key) = match inward(packet) {
            Ok(found) => found,
            Err(reason) => return DownlinkVerdict::Drop(reason),
        };
        let Some(id) = self.find_downlink(key).or_else(|| self.find_framed(inner.destination())) else {
            return DownlinkVerdict::Drop(DropReason::UnknownUe);
        };
        let record = self.downlink(id);
        let _look = record.look(self.arrays().locking);
        if record.overflows() {
            return self.downlink_by_flows(id, &inner, now, tell);
        }
        // Session and PDR lie elsewhere: reading them costs a second cache miss per packet, and
        // only reports need them.
        let rule = record.rule(0, 0);
        let octets = inner.packet().len();
        match self.arrays().enter(record, &rule, record.toward(), octets, now) {
            Ok(toward) => {
                if !record.is_uncounted() && self.arrays().count_and_watch(&record.state, record.watch(), octets) {
                    self.tell_owed(PendingNotification::Downlink(id), tell);
                }
                DownlinkVerdict::Forward { toward, octets }
            }
            Err(NotForwarded::Wait { notify }) => match self.downlink_rule(id) {
                Some(rule) => self.keep(id, &rule, notify, inner.packet(), now, tell),
                None => DownlinkVerdict::Drop(DropReason::UnknownUe),
            },
            Err(NotForwarded::Drop(reason)) => DownlinkVerdict::Drop(reason),
            // Not reached: no rule for packets to UEs keeps them on the link.
            Err(NotForwarded::OnLink(..)) => DownlinkVerdict::Drop(DropReason::LinkLocal),
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
        if !record.is_uncounted() {
            let before = record.state.count(packet.len());
            if watched(record.watch(), before, packet.len()) {
                tell(Event::Volume { session: rule.session });
            }
        }
        let event = (notify && record.report_once(DATA))
            .then_some(Event::DownlinkData { session: rule.session, pdr: rule.pdr });
        DownlinkVerdict::Buffered(id, event)
    }
}

/// Returns true for an ICMP Redirect (RFC 792), which has a meaning only among neighbours on one
/// link.
#[inline]
fn is_redirect(packet: &[u8]) -> bool {
    const ICMP: u8 = 1;
    packet[9] == ICMP && packet.get(usize::from(packet[0] & 0xf) * 4) == Some(&5)
}
