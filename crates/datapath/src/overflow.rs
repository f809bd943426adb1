//! Sessions whose rules one record does not hold: several filtered rules for one tunnel or one UE, packets that go on
//! into another tunnel, quotas, routes behind the UE. Their records are marked, and their packets are decided on here,
//! by the first rule that matches. A driver in the kernel leaves packets of marked records to user space.

use crate::answer;
use crate::counters::{DropReason, Volume};
use crate::filter::{Filter, Flow, Network};
use crate::inner::Inner;
use crate::rate::{Policer, Rate};
use crate::record::{DATA, UplinkRecord, watched};
use crate::rule::Tunnel;
use crate::tables::{DownlinkId, Released, Tables};
use crate::verdict::{DownlinkVerdict, Event, UplinkVerdict};
use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::Relaxed};
use vireo_types::{Instant, Teid};
use vireo_wire::gtpu::{Packet, PduSession};

/// Where the packets of a rule come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// By this tunnel.
    Tunnel(Teid),
    /// From the data network.
    DataNetwork,
}

/// What becomes of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target {
    /// Nothing.
    Drop,
    /// They go to the data network.
    DataNetwork,
    /// They go into a tunnel.
    Tunnel {
        /// The tunnel.
        tunnel: Tunnel,
        /// The PDU Session Container; `None` = the one they came with, if any.
        marked: Option<PduSession>,
    },
    /// They wait.
    Buffer {
        /// NOCP: the first is reported.
        notify: bool,
    },
}

/// One rule of a session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FlowRule {
    /// The PDR, for reports.
    pub pdr: u16,
    /// Where its packets come from.
    pub source: Source,
    /// Whether they are on their way to the data network: filters, rates and counts are of that direction.
    pub uplink: bool,
    /// The QoS flows of packets from tunnels, a bit each; [`crate::ALL_FLOWS`] also lets packets without a flow pass.
    pub flows: u64,
    /// Any of these matches; none = every packet.
    pub filters: Vec<Filter>,
    /// Whether the gates are open.
    pub gate_open: bool,
    /// What becomes of its packets.
    pub target: Target,
    /// Maximum bit rates, each shared by the rules of this direction that name the same QER.
    pub rates: Vec<(u32, Rate)>,
    /// The URRs that count its packets.
    pub meters: Vec<u32>,
}

/// Octets that may pass until a URR has new ones (TS 29.244 5.2.2.2); `None` = any number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Quota {
    /// Of both directions.
    pub total: Option<u64>,
    /// Uplink.
    pub uplink: Option<u64>,
    /// Downlink.
    pub downlink: Option<u64>,
}

/// What a URR has counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Metered {
    /// To the data network.
    pub uplink: Volume,
    /// To the UE.
    pub downlink: Volume,
}

/// All rules of a session.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SessionFlows {
    /// The rules, the one that is matched first in front.
    pub rules: Vec<FlowRule>,
    /// Each URR, and how much its count ([`Tables::metered`]) may grow to.
    pub meters: Vec<(u32, Quota)>,
    /// Networks behind the UE.
    pub framed: Vec<Network>,
}

#[derive(Debug, Default)]
struct Meter {
    urr: u32,
    quota: Quota,
    packets: [AtomicU64; 2],
    octets: [AtomicU64; 2],
    /// As that of records.
    watch: AtomicU32,
    /// The owner was told that the quota is used up.
    told: AtomicBool,
}

impl Meter {
    fn octets(&self, uplink: bool) -> u64 {
        self.octets[usize::from(uplink)].load(Relaxed)
    }

    fn spent(&self, uplink: bool) -> bool {
        let reached = |quota: Option<u64>, octets: u64| quota.is_some_and(|quota| octets >= quota);
        let own = if uplink { self.quota.uplink } else { self.quota.downlink };
        reached(self.quota.total, self.octets(false) + self.octets(true)) || reached(own, self.octets(uplink))
    }

    /// Counts a packet; says whether the owner must know.
    fn count(&self, uplink: bool, octets: usize) -> bool {
        self.packets[usize::from(uplink)].fetch_add(1, Relaxed);
        let before = self.octets[usize::from(uplink)].fetch_add(octets as u64, Relaxed);
        watched(self.watch.load(Relaxed), before, octets)
    }

    fn volume(&self, uplink: bool) -> Volume {
        Volume { packets: self.packets[usize::from(uplink)].load(Relaxed), octets: self.octets(uplink) }
    }
}

/// The rules of a session with the state that packets leave behind.
#[derive(Debug)]
struct FlowTable {
    session: u64,
    rules: Vec<FlowRule>,
    /// By QER and direction.
    policers: Vec<(u32, bool, Policer)>,
    meters: Vec<Meter>,
    framed: Vec<Network>,
    /// The records that lead here.
    tunnels: Vec<Teid>,
    downlinks: Vec<DownlinkId>,
}

impl FlowTable {
    fn new(session: u64, flows: SessionFlows, before: Option<&FlowTable>) -> Self {
        let SessionFlows { rules, meters, framed } = flows;
        let (tunnels, downlinks) = (vec![], vec![]);
        let mut table = FlowTable { session, rules, policers: vec![], meters: vec![], framed, tunnels, downlinks };
        for rule in &table.rules {
            for (qer, _) in &rule.rates {
                if !table.policers.iter().any(|(id, uplink, _)| (id, *uplink) == (qer, rule.uplink)) {
                    let policer = Policer::default();
                    let same = |(id, uplink, _): &&(u32, bool, Policer)| (id, *uplink) == (qer, rule.uplink);
                    if let Some((.., old)) = before.and_then(|before| before.policers.iter().find(same)) {
                        policer.set(old.get());
                    }
                    table.policers.push((*qer, rule.uplink, policer));
                }
            }
        }
        for (urr, quota) in meters {
            let meter = Meter { urr, quota, ..Meter::default() };
            if let Some(old) = before.and_then(|before| before.meters.iter().find(|old| old.urr == urr)) {
                for uplink in [false, true] {
                    let Volume { packets, octets } = old.volume(uplink);
                    meter.packets[usize::from(uplink)].store(packets, Relaxed);
                    meter.octets[usize::from(uplink)].store(octets, Relaxed);
                }
            }
            table.meters.push(meter);
        }
        table
    }

    fn find(&self, source: Source, flow: Option<u8>, inner: &Inner<'_>) -> Option<&FlowRule> {
        let mut read = None;
        self.rules.iter().find(|rule| {
            let of_flow = rule.flows == crate::ALL_FLOWS || flow.is_some_and(|qfi| rule.flows >> (qfi & 0x3f) & 1 == 1);
            rule.source == source
                && of_flow
                && (rule.filters.is_empty() || {
                    let flow = read.get_or_insert_with(|| Flow::read(inner));
                    rule.filters.iter().any(|filter| filter.matches(flow, rule.uplink))
                })
        })
    }

    /// Checks gate, quotas and rates, and counts the packet.
    fn admit(
        &self,
        rule: &FlowRule,
        octets: usize,
        now: Instant,
        tell: &mut impl FnMut(Event),
    ) -> Result<(), DropReason> {
        if !rule.gate_open {
            return Err(DropReason::GateClosed);
        }
        if rule.target == Target::Drop {
            return Err(DropReason::Action);
        }
        let meters = || self.meters.iter().filter(|meter| rule.meters.contains(&meter.urr));
        if let Some(spent) = meters().find(|meter| meter.spent(rule.uplink)) {
            if !spent.told.swap(true, Relaxed) {
                tell(Event::Volume { session: self.session });
            }
            return Err(DropReason::QuotaSpent);
        }
        for (qer, rate) in &rule.rates {
            let policer = self.policers.iter().find(|(id, uplink, _)| (id, *uplink) == (qer, rule.uplink));
            if policer.is_some_and(|(.., policer)| !policer.allow(*rate, octets, now)) {
                return Err(DropReason::RateExceeded);
            }
        }
        let mut due = false;
        meters().for_each(|meter| due |= meter.count(rule.uplink, octets));
        if due {
            tell(Event::Volume { session: self.session });
        }
        Ok(())
    }
}

/// The sessions of marked records.
#[derive(Debug, Default)]
pub(crate) struct Flows {
    sessions: HashMap<u64, Arc<FlowTable>>,
    tunnels: HashMap<Teid, Arc<FlowTable>>,
    downlinks: HashMap<u32, Arc<FlowTable>>,
    /// Networks behind UEs, with the records of these; the longest prefixes in front.
    framed: Vec<(Network, DownlinkId)>,
}

impl Tables {
    /// Gives a session rules of its own beside its records, which are `tunnels` and `downlinks`, or takes them away.
    /// What was counted stays. What waits is let go as far as the rules then say.
    pub fn set_flows(
        &mut self,
        session: u64,
        flows: Option<SessionFlows>,
        tunnels: &[Teid],
        downlinks: &[DownlinkId],
        released: &mut Released,
    ) {
        let before = self.flows.sessions.remove(&session);
        if before.is_none() && flows.is_none() {
            return;
        }
        if let Some(before) = &before {
            before.tunnels.iter().for_each(|teid| drop(self.flows.tunnels.remove(teid)));
            before.downlinks.iter().for_each(|id| drop(self.flows.downlinks.remove(&id.0)));
            if !before.framed.is_empty() {
                self.flows.framed.retain(|(_, id)| !before.downlinks.contains(id));
            }
        }
        tunnels.iter().for_each(|teid| self.mark_uplink(*teid, flows.is_some()));
        downlinks.iter().for_each(|id| self.mark_downlink(*id, flows.is_some()));
        let Some(flows) = flows else { return };
        let mut table = FlowTable::new(session, flows, before.as_deref());
        (table.tunnels, table.downlinks) = (tunnels.to_vec(), downlinks.to_vec());
        let table = Arc::new(table);
        self.flows.tunnels.extend(tunnels.iter().map(|teid| (*teid, Arc::clone(&table))));
        self.flows.downlinks.extend(downlinks.iter().map(|id| (id.0, Arc::clone(&table))));
        if let Some(id) = downlinks.first() {
            self.flows.framed.extend(table.framed.iter().map(|network| (*network, *id)));
            self.flows.framed.sort_by_key(|(network, _)| std::cmp::Reverse(network.length));
        }
        self.flows.sessions.insert(session, Arc::clone(&table));
        for id in downlinks {
            self.report_data_again(*id);
            self.release_by_flows(*id, &table, released);
        }
    }

    /// What a URR of a session with rules of its own has counted since it has had them.
    pub fn metered(&self, session: u64, urr: u32) -> Option<Metered> {
        let meter = self.flows.sessions.get(&session)?.meters.iter().find(|meter| meter.urr == urr)?;
        Some(Metered { uplink: meter.volume(true), downlink: meter.volume(false) })
    }

    /// As [`Tables::watch`], for the counts of a session's URRs.
    pub fn watch_meters(&self, session: u64, watch: u32) {
        if let Some(table) = self.flows.sessions.get(&session) {
            table.meters.iter().for_each(|meter| meter.watch.store(watch, Relaxed));
        }
    }

    /// Ends a tunnel that is not used any more.
    pub fn end_marker(tunnel: Tunnel, released: &mut Released) {
        released.datagrams.extend(answer::end_marker(tunnel));
    }

    /// The record of the UE that a network lies behind.
    pub(crate) fn find_framed(&self, address: IpAddr) -> Option<DownlinkId> {
        self.flows.framed.iter().find(|(network, _)| network.contains(address)).map(|(_, id)| *id)
    }

    fn release_by_flows(&self, id: DownlinkId, table: &FlowTable, released: &mut Released) {
        let Released { datagrams, dropped } = released;
        self.buffers().retain(id.0, |packet| {
            let target = Inner::read(packet)
                .and_then(|inner| table.find(Source::DataNetwork, None, &inner))
                .filter(|rule| rule.gate_open)
                .map_or(Target::Drop, |rule| rule.target);
            match target {
                Target::Buffer { .. } => return true,
                Target::Tunnel { tunnel, marked } => datagrams.extend(answer::g_pdu(tunnel, marked, packet)),
                Target::Drop | Target::DataNetwork => *dropped += 1,
            }
            false
        });
    }

    /// Decides on a packet that came by a marked tunnel.
    pub(crate) fn uplink_by_flows<'a>(
        &self,
        record: &UplinkRecord,
        packet: &Packet<'a>,
        now: Instant,
        tell: &mut impl FnMut(Event),
    ) -> UplinkVerdict<'a> {
        let Some(table) = self.flows.tunnels.get(&packet.teid) else {
            return UplinkVerdict::Drop(DropReason::NoRule);
        };
        let Some(inner) = Inner::read(packet.payload) else {
            return UplinkVerdict::Drop(DropReason::InnerMalformed);
        };
        let rule = table.find(Source::Tunnel(packet.teid), packet.pdu_session.map(PduSession::qfi), &inner);
        let Some(rule) = rule else {
            return UplinkVerdict::Drop(DropReason::NoRule);
        };
        let octets = match rule.target {
            // the UPF that they go on to looks whose they are
            Target::Tunnel { .. } | Target::Buffer { .. } => inner.packet(),
            Target::Drop | Target::DataNetwork => {
                let framed = |source| table.framed.iter().any(|network| network.contains(source));
                match self.outward(record.rule().ue, &inner, framed, now) {
                    Ok(packet) => packet,
                    Err(verdict) => return verdict,
                }
            }
        };
        if let Err(reason) = table.admit(rule, octets.len(), now, tell) {
            return UplinkVerdict::Drop(reason);
        }
        record.state.count(octets.len());
        match (rule.target, table.downlinks.first().copied()) {
            (Target::DataNetwork, _) => UplinkVerdict::Forward(octets),
            (Target::Tunnel { tunnel, marked }, _) => UplinkVerdict::Relay {
                tunnel,
                marked: marked.or(packet.pdu_session),
                packet: octets,
                uplink: rule.uplink,
            },
            // what waits is let go towards the UE
            (Target::Buffer { notify }, Some(id)) if !rule.uplink => {
                match self.wait(id, table.session, rule.pdr, notify, octets, now) {
                    Ok(event) => UplinkVerdict::Buffered(id, event),
                    Err(reason) => UplinkVerdict::Drop(reason),
                }
            }
            _ => UplinkVerdict::Drop(DropReason::Action),
        }
    }

    /// Decides on a packet for the UE of a marked record, or for a network behind it.
    pub(crate) fn downlink_by_flows(
        &self,
        id: DownlinkId,
        inner: &Inner<'_>,
        now: Instant,
        tell: &mut impl FnMut(Event),
    ) -> DownlinkVerdict {
        let table = self.flows.downlinks.get(&id.0);
        let Some((table, rule)) = table.and_then(|t| Some((t, t.find(Source::DataNetwork, None, inner)?))) else {
            return DownlinkVerdict::Drop(DropReason::NoRule);
        };
        let packet = inner.packet();
        if let Err(reason) = table.admit(rule, packet.len(), now, tell) {
            return DownlinkVerdict::Drop(reason);
        }
        self.downlink(id).state.count(packet.len());
        match rule.target {
            Target::Tunnel { tunnel, marked } => DownlinkVerdict::Forward { tunnel, marked, octets: packet.len() },
            Target::Buffer { notify } => match self.wait(id, table.session, rule.pdr, notify, packet, now) {
                Ok(event) => DownlinkVerdict::Buffered(id, event),
                Err(reason) => DownlinkVerdict::Drop(reason),
            },
            Target::Drop | Target::DataNetwork => DownlinkVerdict::Drop(DropReason::Action),
        }
    }

    fn wait(
        &self,
        id: DownlinkId,
        session: u64,
        pdr: u16,
        notify: bool,
        packet: &[u8],
        now: Instant,
    ) -> Result<Option<Event>, DropReason> {
        if !self.buffers().push(id.0, packet, now) {
            return Err(DropReason::BufferFull);
        }
        let first = notify && self.downlink(id).report_once(DATA);
        Ok(first.then_some(Event::DownlinkData { session, pdr }))
    }
}
