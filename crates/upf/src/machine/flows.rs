//! Flow rules of sessions whose rules do not fit into entries.
//!
//! An entry has one or two cache lines for each direction. This Rust module decides whether a
//! session needs flow rules, and compiles them for the datapath.

use crate::machine::compile::{DownlinkPlan, Downlinks, Uplinks, downlink, in_order, quality};
use crate::machine::entries::overlap;
use crate::machine::rules::{Far, Matching, Pdr, Refused, Rules};
use crate::machine::usage::QuotaAction;
use smallvec::SmallVec;
use vireo_datapath::{ALL_FLOWS, Action, FlowRule, Marking, Quota, Rate, SessionFlows, Source, Target, UplinkRule};
use vireo_types::{SessionAddress, Teid};
use vireo_wire::gtpu::PduSession;
use vireo_wire::pfcp::*;

/// Returns true if a tunnel or UE address needs several treatments, or one that an entry cannot
/// express.
pub(crate) fn needs_flow_rules(rules: &Rules) -> bool {
    if rules.urrs.iter().any(|urr| urr.has_volume_quota() || matches!(urr.quota_action(), Some(QuotaAction::Far(_)))) {
        return true;
    }
    let mut tunnels: SmallVec<[(Teid, &Pdr, u64); 2]> = SmallVec::new();
    let mut ues: SmallVec<[&Pdr; 2]> = SmallVec::new();
    for pdr in in_order(rules) {
        if pdr.detection.further.as_ref().is_some_and(|f| !f.filters.is_empty() || !f.framed.is_empty()) {
            return true;
        }
        let alike = |other: &Pdr| (other.far, &other.qers, &other.urrs) == (pdr.far, &pdr.qers, &pdr.urrs);
        let Matching::Tunnel { end, flows, packets } = pdr.detection.matching else {
            // a PDR that counts the same URRs as the first has no effect
            let first = ues.iter().find(|first| overlap(first.detection.ue, pdr.detection.ue));
            match first {
                Some(first) if first.detection.ue != pdr.detection.ue && !alike(first) => return true,
                Some(_) => {}
                None => ues.push(pdr),
            }
            continue;
        };
        let plain = |far: &Far| {
            let outward = matches!(far.destination, Some(DestinationInterface::CORE | DestinationInterface::N6_LAN));
            !far.action.contains(ApplyAction::BUFF) && (!far.forwards() || outward && far.tunnel.is_none())
        };
        if !packets.from_access || !rules.far_by_id(pdr.far).is_some_and(plain) {
            return true;
        }
        let Some(teid) = end.teid() else { continue };
        match tunnels.iter_mut().find(|(other, ..)| *other == teid) {
            None => tunnels.push((teid, pdr, flows)),
            Some((_, first, all)) if alike(first) => *all |= flows,
            Some((.., all)) if flows & !*all == 0 => {}
            Some(_) => return true,
        }
    }
    false
}

/// Returns the entries of a session with flow rules. They affect only packets that the UPF
/// originates: router advertisements use the path of the last PDR, which most packets use.
pub(crate) fn records(rules: &Rules, ue: SessionAddress, session: u64) -> Result<(Uplinks, Downlinks), Refused> {
    let (mut uplinks, mut downlinks) = (Uplinks::new(), Downlinks::new());
    for pdr in in_order(rules) {
        match pdr.detection.matching {
            Matching::Tunnel { end, .. } => {
                let teid = end.teid().ok_or(Refused::rule(FailedRuleId::Pdr(pdr.id)))?;
                if !uplinks.iter().any(|(other, _)| *other == teid) {
                    let (flows, mbr) = (ALL_FLOWS, Rate::UNLIMITED);
                    uplinks.push((teid, UplinkRule { ue, flows, gate_open: true, forward: true, mbr }));
                }
            }
            Matching::Downlink => {
                let DownlinkPlan { ue, mut rule, far } = downlink(rules, pdr, session)?;
                // buffering follows the flow rules
                if matches!(rule.action, Action::Buffer { .. }) {
                    rule.action = Action::Buffer { notify: false };
                }
                match downlinks.iter_mut().find(|other| overlap(other.ue, ue)) {
                    Some(other) if other.ue == ue => *other = DownlinkPlan { ue, rule, far },
                    Some(_) => return Err(Refused::rule(FailedRuleId::Pdr(pdr.id))),
                    None => downlinks.push(DownlinkPlan { ue, rule, far }),
                }
            }
        }
    }
    Ok((uplinks, downlinks))
}

/// Compiles the flow rules, one for each PDR. The caller sets the quotas.
pub(crate) fn compile(rules: &Rules) -> Result<SessionFlows, Refused> {
    let mut flows = SessionFlows::default();
    for pdr in in_order(rules) {
        let failed = Refused::rule(FailedRuleId::Pdr(pdr.id));
        let mut far = rules.far_by_id(pdr.far).ok_or(failed)?;
        let (source, packets, of) = match pdr.detection.matching {
            Matching::Tunnel { end, flows, packets } => {
                (Source::Tunnel(end.teid().ok_or(failed)?), Some(packets), flows)
            }
            Matching::Downlink => (Source::DataNetwork, None, ALL_FLOWS),
        };
        let uplink = packets.is_some_and(|packets| packets.from_access) && !returns_to_access(far);
        let quality = quality(rules, pdr, uplink)?;
        for urr in rules.urrs.iter().filter(|urr| pdr.urrs.contains(&urr.id)) {
            if let Some(QuotaAction::Far(id)) = urr.quota_action() {
                far = rules.far_by_id(id).ok_or(Refused::rule(FailedRuleId::Urr(urr.id)))?;
            }
        }
        let loses_container = packets.is_some_and(|packets| packets.lose_container);
        let marking = match quality.qfi.filter(|_| !uplink) {
            Some(qfi) => Marking::Set(PduSession::Downlink { qfi, rqi: quality.rqi }),
            None if loses_container => Marking::Absent,
            None => Marking::Received,
        };
        let rates = pdr.qers.iter().filter_map(|id| rules.qer(*id)).map(|qer| (qer.id, qer.rate(uplink)));
        let mut rule = FlowRule {
            pdr: pdr.id,
            source,
            uplink,
            flows: of,
            filters: vec![],
            gate_open: quality.gate_open,
            target: target(far, source, uplink, marking)?,
            rates: rates.filter(|(_, rate)| *rate != Rate::UNLIMITED).collect(),
            meters: pdr.urrs.to_vec(),
        };
        if let Some(further) = &pdr.detection.further {
            rule.filters = further.filters.iter().map(|(_, filter)| filter.clone()).collect();
            for network in &further.framed {
                if !flows.framed.contains(network) {
                    flows.framed.push(*network);
                }
            }
        }
        flows.rules.push(rule);
    }
    flows.meters = rules.urrs.iter().map(|urr| (urr.id, Quota::default())).collect();
    Ok(flows)
}

/// Returns true if packets from the access go back there: the source of a handover forwards
/// downlink packets of the UE to the target (TS 23.502 4.9.1.3).
fn returns_to_access(far: &Far) -> bool {
    far.forwards() && far.destination == Some(DestinationInterface::ACCESS) && far.tunnel.is_some()
}

/// Returns the action of a FAR for packets from `source`.
fn target(far: &Far, source: Source, uplink: bool, marking: Marking) -> Result<Target, Refused> {
    if far.action.contains(ApplyAction::BUFF) {
        if uplink {
            // only packets to the UE can be buffered
            return Err(Refused::rule(FailedRuleId::Far(far.id)));
        }
        return Ok(Target::Buffer { notify: far.action.contains(ApplyAction::NOCP) });
    }
    if !far.forwards() {
        return Ok(Target::Drop);
    }
    let outward = matches!(far.destination, Some(DestinationInterface::CORE | DestinationInterface::N6_LAN));
    match far.tunnel {
        Some(tunnel) => Ok(Target::Tunnel { tunnel, marking }),
        None if outward && source != Source::DataNetwork => Ok(Target::DataNetwork),
        None if far.destination == Some(DestinationInterface::ACCESS) => {
            Err(Error::conditional_missing(OuterHeaderCreation::ID).into())
        }
        None => Err(Refused::rule(FailedRuleId::Far(far.id))),
    }
}
