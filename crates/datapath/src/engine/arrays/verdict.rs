//! Classification on the fast path: the entry alone decides, without the lock of the tables.

use crate::engine::access::table::{Bits, SourceEntry};
use crate::engine::arrays::Arrays;
use crate::engine::arrays::lookup::DownlinkLookup;
use crate::engine::counters::DropReason;
use crate::engine::entry::{ANY_PEER, DownlinkEntry, EntryCounters, UplinkEntry, passes_watched_multiple};
use crate::engine::event::PendingNotification;
use crate::engine::index::AddressKey;
use crate::engine::inner::Inner;
use crate::engine::rule::{ALL_FLOWS, Action, DownlinkRule, UplinkRule};
use crate::engine::tunnel_target::TunnelTarget;
use crate::engine::verdict::{DownlinkVerdict, NotForwarded, UplinkVerdict, inward, outward};
use std::cell::Cell;
use std::net::IpAddr;
use vireo_types::Instant;
use vireo_wire::gtpu::{self, MessageType, Packet, PduSession};

impl Arrays {
    /// Checks the destination of a UE's packet.
    ///
    /// # Errors
    ///
    /// Returns an error if the destination is this machine, the core or the RAN, or a UE that
    /// isolation excludes.
    #[inline]
    pub(crate) fn check_destination(&self, inner: &Inner<'_>) -> Result<(), NotForwarded<'static>> {
        let to = match *inner {
            Inner::V4 { destination, .. } => Bits::v4(destination),
            Inner::V6 { destination, .. } => Bits::v6(destination),
        };
        if self.checks.table.is_protected(to) {
            return Err(NotForwarded::Drop(DropReason::Protected));
        }
        match self.isolates && self.is_isolated(inner) {
            true => Err(NotForwarded::Drop(DropReason::UeToUe)),
            false => Ok(()),
        }
    }

    /// Returns true if the packet is between UEs and the data network of either one isolates its
    /// UEs.
    #[cold]
    fn is_isolated(&self, inner: &Inner<'_>) -> bool {
        let pool_of = |address: IpAddr| self.pools.iter().find(|pool| pool.contains(address));
        let Some(to) = pool_of(inner.destination()) else { return false };
        to.isolated || pool_of(inner.source()).is_some_and(|from| from.isolated)
    }

    /// Returns `Some` if the address is known as a valid source for the entry. `None` = the tables
    /// must decide.
    #[inline]
    fn check_sender(&self, from: IpAddr, record: &UplinkEntry) -> Option<()> {
        match self.checks.table.source(Bits::from_address(from)) {
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
    pub(crate) fn count_and_watch(&self, state: &EntryCounters, watch: u32, octets: usize) -> bool {
        passes_watched_multiple(watch, self.count(state, octets), octets)
    }

    /// Applies a rule to a G-PDU. Returns the user's packet if it passes.
    #[inline]
    pub(crate) fn apply_uplink_rule<'a>(
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
        self.check_destination(&inner)?;
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
    pub(crate) fn apply_downlink_rule(
        &self,
        record: &DownlinkEntry,
        rule: &DownlinkRule,
        target: Option<TunnelTarget>,
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
        let target = target.ok_or(NotForwarded::Drop(DropReason::NoTunnel))?;
        if !record.conforms(rule.mbr, octets, now) {
            return Err(NotForwarded::Drop(DropReason::RateExceeded));
        }
        Ok(target)
    }

    /// Classifies a datagram from N3 without the lock of the tables. Returns `None` if the slow
    /// path must do it.
    #[inline]
    pub(crate) fn classify_uplink<'a>(
        &self,
        from: IpAddr,
        datagram: &'a [u8],
        now: Instant,
        pending: &Cell<Option<PendingNotification>>,
    ) -> Option<UplinkVerdict<'a>> {
        let packet = match Packet::usual(datagram) {
            Some(packet) => packet,
            None => Packet::parse(datagram).ok().filter(|packet| packet.kind == MessageType::GPdu)?,
        };
        let record = self.uplinks.get(packet.teid.index() as usize)?;
        let section = record.begin_read(self.locking)?;
        self.check_sender(from, record)?;
        let special = record.is_special();
        if special {
            if let (Some(own), Some(inner @ Inner::V4 { source, .. })) = (record.lean(), Inner::read(packet.payload)) {
                let holds = record.teid() == packet.teid && packet.teid != gtpu::NO_TEID && section.is_consistent();
                return holds.then_some(match (source == own, self.check_destination(&inner)) {
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
        if record.teid() != packet.teid || packet.teid == gtpu::NO_TEID || !section.is_consistent() {
            return None;
        }
        match self.apply_uplink_rule(record, &rule, &packet, now) {
            Ok(packet) => {
                // A lean entry that needs the full rule check is not counted.
                if !special && self.count_and_watch(&record.state, record.watch(), packet.len()) {
                    pending.set(Some(PendingNotification::Uplink(rule.ue)));
                }
                Some(UplinkVerdict::Forward(packet))
            }
            Err(NotForwarded::Drop(reason)) => Some(UplinkVerdict::Drop(reason)),
            Err(_) => None,
        }
    }

    /// Classifies a packet from N6; see [`Arrays::classify_uplink`].
    #[inline(always)]
    pub(crate) fn classify_downlink(
        &self,
        packet: &[u8],
        now: Instant,
        pending: &Cell<Option<PendingNotification>>,
    ) -> Option<DownlinkVerdict> {
        let (inner, key) = match inward(packet) {
            Ok(found) => found,
            Err(reason) => return Some(DownlinkVerdict::Drop(reason)),
        };
        // Separate calls: the compiler specializes both. Without a hot table nearly all of it is
        // known.
        match self.hot {
            None => self.classify_downlink_to(self.look_up_home(key)?, &inner, now, pending),
            Some(_) => self.classify_downlink_in_both(key, &inner, now, pending),
        }
    }

    // Inlined: a verdict returned from a call lies in memory.
    #[inline(always)]
    fn classify_downlink_in_both(
        &self,
        key: AddressKey,
        inner: &Inner<'_>,
        now: Instant,
        pending: &Cell<Option<PendingNotification>>,
    ) -> Option<DownlinkVerdict> {
        self.classify_downlink_to(self.look_up(key)?, inner, now, pending)
    }

    #[inline(always)]
    fn classify_downlink_to(
        &self,
        found: DownlinkLookup<'_>,
        inner: &Inner<'_>,
        now: Instant,
        pending: &Cell<Option<PendingNotification>>,
    ) -> Option<DownlinkVerdict> {
        let record = found.record;
        let section = record.begin_read(self.locking)?;
        let special = record.is_special();
        if special {
            if let Some(target) = record.lean() {
                let holds = found.matches(record.generation()) && section.is_consistent();
                return holds.then(|| DownlinkVerdict::Forward { target, octets: inner.packet().len() });
            }
            if record.overflows() {
                return None;
            }
        }
        let (rule, target) = (record.rule(0, 0), record.tunnel_target());
        // Another generation means that the entry belongs to another UE.
        if !found.matches(record.generation()) || !section.is_consistent() {
            return None;
        }
        let octets = inner.packet().len();
        match self.apply_downlink_rule(record, &rule, target, octets, now) {
            Ok(target) => {
                // A lean entry that needs the full rule check is not counted.
                if !special && self.count_and_watch(&record.state, record.watch(), octets) {
                    pending.set(Some(PendingNotification::Downlink(found.id(self))));
                }
                if let Some(hot) = found.cold {
                    hot.request_promotion(found.number);
                }
                Some(DownlinkVerdict::Forward { target, octets })
            }
            Err(NotForwarded::Drop(reason)) => Some(DownlinkVerdict::Drop(reason)),
            Err(_) => None,
        }
    }
}
