//! Flow rules of all sessions with their counters and policers.

use super::cells::{Cell, Cells};
use super::lists::{OffloadRefusal, RuleLists};
use super::state::FlowState;
use super::types::{FlowRule, Source, Target};
use crate::engine::counters::DropReason;
use crate::engine::event::Event;
use crate::engine::filter::Flow;
use crate::engine::index::DownlinkId;
use crate::engine::inner::Inner;
use crate::engine::rate;
use crate::engine::rule::{ALL_FLOWS, Tunnel};
use crate::network::Network;
use crate::sys::shared::Shared;
use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::atomic::AtomicBool;
use vireo_types::{Instant, Teid};

/// Flow rules of a session with their counters and policers.
#[derive(Debug)]
pub(crate) struct FlowTable {
    pub(crate) session: u64,
    pub(crate) rules: Vec<FlowRule>,
    pub(crate) state: FlowState,
    pub(crate) framed: Vec<Network>,
    /// Entries that point to these rules.
    pub(crate) tunnels: Vec<Teid>,
    pub(crate) downlinks: Vec<DownlinkId>,
    /// Rule lists of the kernel program.
    pub(crate) lists: Option<RuleLists>,
    /// True if an error of a tunnel was reported since the rules were set.
    pub(crate) is_error_reported: AtomicBool,
}

impl FlowTable {
    pub(crate) fn find(&self, source: Source, flow: Option<u8>, inner: &Inner<'_>) -> Option<&FlowRule> {
        let mut read = None;
        self.rules.iter().find(|rule| {
            let of_flow = rule.flows == ALL_FLOWS || flow.is_some_and(|qfi| rule.flows >> (qfi & 0x3f) & 1 == 1);
            rule.source == source
                && of_flow
                && (rule.filters.is_empty() || {
                    let flow = read.get_or_insert_with(|| Flow::read(inner));
                    rule.filters.iter().any(|filter| filter.matches(flow, rule.uplink))
                })
        })
    }

    /// Checks gate, quotas and rates, and counts the packet.
    ///
    /// # Errors
    ///
    /// Returns the reason if the packet must be dropped.
    pub(crate) fn admit(
        &self,
        rule: &FlowRule,
        octets: usize,
        now: Instant,
        cells: &Cells,
        notify: &mut impl FnMut(Event),
    ) -> Result<(), DropReason> {
        if !rule.gate_open {
            return Err(DropReason::GateClosed);
        }
        if rule.target == Target::Drop {
            return Err(DropReason::Action);
        }
        let counts = |(urr, meter)| rule.meters.contains(&urr).then_some(meter);
        let meters = || self.state.meters(cells).filter_map(counts);
        if let Some(spent) = meters().find(|meter| meter.spent(rule.uplink)) {
            if spent.mark_reported() {
                notify(Event::Volume { session: self.session });
            }
            return Err(DropReason::QuotaSpent);
        }
        for (qer, rate) in &rule.rates {
            let word = self.state.policer(*qer, rule.uplink, cells);
            if word.is_some_and(|word| !rate::conforms(word, *rate, octets, now)) {
                return Err(DropReason::RateExceeded);
            }
        }
        let mut due = false;
        meters().for_each(|meter| due |= meter.count(rule.uplink, octets));
        if due {
            notify(Event::Volume { session: self.session });
        }
        Ok(())
    }
}

/// Returns the tunnels into which packets of other tunnels are relayed.
pub(crate) fn relays(rules: &[FlowRule]) -> impl Iterator<Item = Tunnel> {
    rules.iter().filter_map(|rule| match rule.target {
        Target::Tunnel { tunnel, .. } if rule.source != Source::DataNetwork => Some(tunnel),
        _ => None,
    })
}

/// Returns the peers of the tunnels in the rules.
pub(crate) fn tunnels_of(rules: &[FlowRule]) -> Vec<IpAddr> {
    let address = |rule: &FlowRule| match rule.target {
        Target::Tunnel { tunnel, .. } => Some(tunnel.address),
        Target::DataNetwork | Target::Drop | Target::Buffer { .. } => None,
    };
    rules.iter().filter_map(address).collect()
}

/// Sessions with flow rules.
#[derive(Debug)]
pub(crate) struct Flows {
    pub(crate) cells: Cells,
    pub(crate) sessions: HashMap<u64, FlowTable>,
    pub(crate) tunnels: HashMap<Teid, u64>,
    pub(crate) downlinks: HashMap<u32, u64>,
    /// Sessions by the tunnels into which they relay packets, for the Error Indications about one.
    pub(crate) relays: HashMap<Tunnel, u64>,
    /// Framed routes with the entries of their UEs, the longest prefixes first.
    pub(crate) framed: Vec<(Network, DownlinkId)>,
    /// Sessions whose rules the kernel program does not hold although it exists.
    pub(crate) outside: HashMap<u64, OffloadRefusal>,
}

impl Flows {
    /// Creates an empty table with these cells, which a kernel program may share.
    pub(crate) fn new(cells: Shared<Cell>) -> Self {
        Flows {
            cells: Cells::new(cells),
            sessions: HashMap::new(),
            tunnels: HashMap::new(),
            downlinks: HashMap::new(),
            relays: HashMap::new(),
            framed: vec![],
            outside: HashMap::new(),
        }
    }
}
