//! Rule lists of a session for the kernel program: chains of matches in cells, each with the action
//! of its rule.
//!
//! See `bpf/entry.h` and `bpf/rules.h`. A rule with several filters, or a filter with several
//! ports, has several matches.

use super::cells::Cells;
use super::state::FlowState;
use super::types::{FlowRule, Marking, Source, Target};
use crate::engine::entry::{
    ACTION_BUFFER, ACTION_DROP, ACTION_FORWARD, DOWN_GATE, DOWN_IPV4, DOWN_IPV6, DOWN_QFI, DOWN_RQI,
};
use crate::engine::entry::{QFI_SHIFT, wire};
use crate::engine::filter::Filter;
use crate::engine::rate::Rate;
use crate::network::Network;
use std::net::IpAddr;
use std::ops::RangeInclusive;
use vireo_wire::gtpu::PduSession;

/// `LONGEST_LIST` of `bpf/rules.h`: matches that the program evaluates for a packet.
const MAX_LIST: usize = 64;
const METERS: usize = 4;
const RATES: usize = 2;

const LABEL: u32 = 0xf_ffff;
const IF_PROTOCOL: u32 = 1 << 20;
const IF_SOURCE_V4: u32 = 1 << 21;
const IF_SOURCE_V6: u32 = 1 << 22;
const IF_DESTINATION_V4: u32 = 1 << 23;
const IF_DESTINATION_V6: u32 = 1 << 24;
const IF_SOURCE_PORT: u32 = 1 << 25;
const IF_DESTINATION_PORT: u32 = 1 << 26;
const IF_SPI: u32 = 1 << 27;
const IF_LABEL: u32 = 1 << 28;

const FROM_UE_CONTAINER: u32 = 1 << 14;
const OUTWARD: u32 = 1 << 16;
const UPLINK: u32 = 1 << 17;
const KEEPS: u32 = 1 << 18;
const FRAMED: u32 = 1 << 19;

/// Returns a word of two halves, the first at the lower address.
fn pair(first: u32, second: u32) -> u64 {
    let mut octets = [0; 8];
    octets[..4].copy_from_slice(&first.to_ne_bytes());
    octets[4..].copy_from_slice(&second.to_ne_bytes());
    u64::from_ne_bytes(octets)
}

/// Condition on one end of a packet: network and port.
#[derive(Clone, Copy, Default)]
struct FilterEnd {
    /// In host byte order, with an IPv4 address in the upper half of the first word.
    network: [u64; 2],
    length: u8,
    /// IPv4 or IPv6; `None` = any.
    v4: Option<bool>,
    ports: Option<u32>,
}

impl FilterEnd {
    fn new(network: Option<Network>, ports: Option<&RangeInclusive<u16>>) -> Self {
        let ports = ports.map(|range| u32::from(*range.start()) << 16 | u32::from(*range.end()));
        let Some(Network { address, length }) = network else {
            return FilterEnd { ports, ..FilterEnd::default() };
        };
        match address {
            IpAddr::V4(v4) => {
                let network = [u64::from(v4.to_bits()) << 32, 0];
                FilterEnd { network, length: length.min(32), v4: Some(true), ports }
            }
            IpAddr::V6(v6) => {
                let network = [(v6.to_bits() >> 64) as u64, v6.to_bits() as u64];
                FilterEnd { network, length: length.min(128), v4: Some(false), ports }
            }
        }
    }
}

/// `struct match` without successor and action.
struct Match {
    flows: u64,
    source: FilterEnd,
    destination: FilterEnd,
    /// Protocol, traffic class and its mask.
    header: [u8; 3],
    conditions: u32,
    spi: Option<u32>,
}

impl Match {
    fn any(flows: u64) -> Self {
        let (source, destination) = (FilterEnd::default(), FilterEnd::default());
        Match { flows, source, destination, header: [0; 3], conditions: 0, spi: None }
    }

    fn words(&self, next: u32, action: u32) -> [u64; 8] {
        let Match { flows, source, destination, header: [protocol, class, mask], conditions, spi } = *self;
        let mut conditions = conditions;
        let family = |end: FilterEnd, v4: u32, v6: u32| end.v4.map_or(0, |is_v4| if is_v4 { v4 } else { v6 });
        conditions |= family(source, IF_SOURCE_V4, IF_SOURCE_V6);
        conditions |= family(destination, IF_DESTINATION_V4, IF_DESTINATION_V6);
        conditions |= source.ports.map_or(0, |_| IF_SOURCE_PORT) | destination.ports.map_or(0, |_| IF_DESTINATION_PORT);
        conditions |= spi.map_or(0, |_| IF_SPI);
        let header = u32::from_ne_bytes([protocol, class, mask, source.length]);
        [
            pair(next, action | u32::from(destination.length) << 24),
            flows,
            source.network[0],
            source.network[1],
            destination.network[0],
            destination.network[1],
            pair(conditions, header),
            pair(spi.or(source.ports).unwrap_or(0), destination.ports.unwrap_or(0)),
        ]
    }
}

/// Appends the matches of a filter for packets of this direction. Appends none if no packet can
/// match.
fn matches(filter: &Filter, uplink: bool, flows: u64, to: &mut Vec<Match>) {
    let Filter { protocol, traffic_class, spi, flow_label, .. } = filter;
    let with_ports = !filter.remote_ports.is_empty() || !filter.local_ports.is_empty();
    // No packet has ports and an SPI.
    if (spi.is_some() && with_ports) || flow_label.is_some_and(|label| label > LABEL) {
        return;
    }
    let (class, mask) = traffic_class.unwrap_or_default();
    let conditions = protocol.map_or(0, |_| IF_PROTOCOL) | flow_label.map_or(0, |label| IF_LABEL | label);
    let each = |ports: &[RangeInclusive<u16>]| match ports {
        [] => vec![None],
        ports => ports.iter().cloned().map(Some).collect(),
    };
    let locals = each(&filter.local_ports);
    for remote in each(&filter.remote_ports) {
        for local in &locals {
            let ends = [FilterEnd::new(filter.remote, remote.as_ref()), FilterEnd::new(filter.local, local.as_ref())];
            let [destination, source] = if uplink { ends } else { [ends[1], ends[0]] };
            let header = [protocol.unwrap_or(0), class, mask];
            to.push(Match { flows, source, destination, header, conditions, spi: *spi });
            if to.len() > MAX_LIST {
                return;
            }
        }
    }
}

/// Returns `struct action`, or `None` if the rule exceeds it. `framed` is the UE's address index
/// value if it has framed routes.
fn action(rule: &FlowRule, state: &FlowState, framed: Option<u32>) -> Option<[u64; 8]> {
    let from_tunnel = rule.source != Source::DataNetwork;
    let mut flags = if rule.gate_open { DOWN_GATE } else { 0 };
    flags |= if rule.uplink { UPLINK } else { 0 } | framed.map_or(0, |_| FRAMED);
    let (mut teid, mut address) = (0, [framed.unwrap_or(0), 0, 0, 0]);
    match rule.target {
        Target::Drop => flags |= ACTION_DROP | if from_tunnel { OUTWARD } else { 0 },
        Target::DataNetwork => flags |= ACTION_FORWARD | OUTWARD,
        Target::Buffer { .. } => flags |= ACTION_BUFFER,
        Target::Tunnel { tunnel, marking } => {
            flags |= ACTION_FORWARD;
            teid = tunnel.teid.0;
            match tunnel.address {
                IpAddr::V4(v4) => {
                    flags |= DOWN_IPV4;
                    address[0] = wire(v4);
                }
                IpAddr::V6(v6) => {
                    flags |= DOWN_IPV6;
                    for (to, octets) in address.iter_mut().zip(v6.octets().as_chunks::<4>().0) {
                        *to = u32::from_ne_bytes(*octets);
                    }
                }
            }
            flags |= match marking {
                Marking::Set(PduSession::Downlink { qfi, rqi }) => {
                    DOWN_QFI | u32::from(qfi & 0x3f) << QFI_SHIFT | if rqi { DOWN_RQI } else { 0 }
                }
                Marking::Set(PduSession::Uplink { qfi }) => {
                    DOWN_QFI | FROM_UE_CONTAINER | u32::from(qfi & 0x3f) << QFI_SHIFT
                }
                Marking::Received if from_tunnel => KEEPS,
                Marking::Received | Marking::Absent => 0,
            };
        }
    }
    let mut meters = [0; METERS];
    let cells = state.meter_cells(&rule.meters)?;
    meters.get_mut(..cells.len())?.copy_from_slice(&cells);
    let (mut words, mut costs) = ([0; RATES], [0; RATES]);
    for (n, (qer, rate)) in rule.rates.iter().filter(|(_, rate)| *rate != Rate::UNLIMITED).enumerate() {
        *words.get_mut(n)? = state.policer_word(*qer, rule.uplink)?;
        costs[n] = rate.cost();
    }
    Some([
        pair(flags, teid),
        pair(address[0], address[1]),
        pair(address[2], address[3]),
        pair(meters[0], meters[1]),
        pair(meters[2], meters[3]),
        pair(words[0], words[1]),
        costs[0],
        costs[1],
    ])
}

/// Rule lists of a session in cells.
#[derive(Debug, Default)]
pub(crate) struct RuleLists {
    cells: Vec<u32>,
    heads: Vec<(Source, u32)>,
}

/// Reason why the kernel program does not hold the rules of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OffloadRefusal {
    /// The rules exceed the capabilities of the program.
    TooComplex,
    /// No cells are free at present.
    NoRoom,
}

impl RuleLists {
    /// Creates a list for each source of packets.
    ///
    /// # Errors
    ///
    /// Returns an error if the rules are too complex or no cells are free.
    pub(crate) fn new(
        rules: &[FlowRule],
        state: &FlowState,
        framed: Option<u32>,
        cells: &mut Cells,
    ) -> Result<Self, OffloadRefusal> {
        let mut lists = RuleLists::default();
        for rule in rules {
            if lists.heads.iter().any(|(source, _)| *source == rule.source) {
                continue;
            }
            let of_source = rules.iter().filter(|other| other.source == rule.source);
            match list(of_source, state, framed, cells) {
                Ok((head, taken)) => {
                    lists.cells.extend(taken);
                    lists.heads.push((rule.source, head));
                }
                Err(reason) => {
                    lists.end(cells);
                    return Err(reason);
                }
            }
        }
        Ok(lists)
    }

    /// Returns the first cell for packets from `source`. 0 = user space handles them.
    pub(crate) fn head(&self, source: Source) -> u32 {
        self.heads.iter().find(|(other, _)| *other == source).map_or(0, |(_, head)| *head)
    }

    pub(crate) fn end(self, cells: &mut Cells) {
        self.cells.into_iter().for_each(|cell| cells.release(cell));
    }
}

/// Creates one list. Returns its first cell and all its cells.
fn list<'a>(
    rules: impl Iterator<Item = &'a FlowRule>,
    state: &FlowState,
    framed: Option<u32>,
    cells: &mut Cells,
) -> Result<(u32, Vec<u32>), OffloadRefusal> {
    let (mut all, mut actions, mut numbers) = (vec![], vec![], vec![]);
    for rule in rules {
        match &rule.filters[..] {
            [] => all.push(Match::any(rule.flows)),
            filters => filters.iter().for_each(|filter| matches(filter, rule.uplink, rule.flows, &mut all)),
        }
        if all.len() > MAX_LIST {
            return Err(OffloadRefusal::TooComplex);
        }
        numbers.resize(all.len(), actions.len());
        actions.push(rule);
    }
    let actions: Option<Vec<_>> = actions.iter().map(|rule| action(rule, state, framed)).collect();
    let actions = match actions {
        Some(actions) => actions,
        // A counter has no shared cell. The same rules may fit later.
        None if !state.is_shared() => return Err(OffloadRefusal::NoRoom),
        None => return Err(OffloadRefusal::TooComplex),
    };
    if all.is_empty() {
        return Ok((0, vec![]));
    }
    let taken = cells.take_all(all.len() + actions.len()).ok_or(OffloadRefusal::NoRoom)?;
    let (of_matches, of_actions) = taken.split_at(all.len());
    for (n, one) in all.iter().enumerate() {
        let next = of_matches.get(n + 1).copied().unwrap_or(0);
        cells.write(of_matches[n], one.words(next, of_actions[numbers[n]]));
    }
    of_actions.iter().zip(actions).for_each(|(cell, words)| cells.write(*cell, words));
    Ok((of_matches[0], taken))
}
