//! Compilation of PFCP rules into datapath entries.
//!
//! A session has one entry for each tunnel and each UE address.

use crate::machine::entries::{SessionEntries, overlap};
use crate::machine::flows;
use crate::machine::rules::{Far, Matching, Pdr, Refused, Rules, TunnelEnd};
use crate::machine::usage::QuotaAction;
use smallvec::SmallVec;
use vireo_datapath::{
    Action, DownlinkId, DownlinkRule, PeerBinding, Rate, Released, SessionFlows, TableError, Tables, Tunnel, UplinkRule,
};
use vireo_types::{SessionAddress, Teid};
use vireo_wire::pfcp::*;

/// Parts of a modification that the resulting rules do not show.
#[derive(Clone, Debug, Default)]
pub(crate) struct ModificationScope {
    /// FARs that the request names. If one buffers, its first packet is reported again.
    pub(crate) fars: SmallVec<[u32; 2]>,
    /// FARs whose old tunnel, in the second element, receives an End Marker.
    pub(crate) end_markers: SmallVec<[(u32, Option<Tunnel>); 1]>,
    /// True if buffered packets are dropped before the rules apply (DROBU, TS 29.244 8.2.31).
    pub(crate) drops_buffered: bool,
}

/// A downlink entry to be set.
pub(crate) struct DownlinkPlan {
    pub(crate) ue: SessionAddress,
    pub(crate) rule: DownlinkRule,
    /// ID of the FAR that decides on the packets.
    pub(crate) far: u32,
}

/// Applies the rules of a session of a module to the tables, and writes the allocated tunnel ends
/// into the rules.
///
/// # Errors
///
/// Returns an error if a rule is refused. The tables are then unchanged, and the rules must be
/// discarded.
pub(crate) fn apply(
    tables: &mut Tables,
    released: &mut Released,
    (session, module): (u64, usize),
    rules: &mut Rules,
    records: &mut SessionEntries,
    touched: &ModificationScope,
) -> Result<(), Refused> {
    let mut new = SessionEntries::default();
    let plan = acquire(tables, (session, module), rules, records, &mut new);
    let CompiledRules { uplinks, downlinks, flows } = match plan {
        Ok(plan) => plan,
        Err(refused) => {
            new.remove(tables, session, released);
            return Err(refused);
        }
    };
    if touched.drops_buffered {
        records.downlinks.iter().for_each(|(_, id)| tables.drop_buffered(*id, released));
    }
    if flows.is_none() && records.flows {
        tables.set_flows(session, None, &records.uplinks, &records.ids(), released);
    }
    for (teid, rule) in &uplinks {
        tables.set_uplink(*teid, *rule);
    }
    let teids = uplinks.iter().map(|(teid, _)| *teid).collect();
    let mut kept = SessionEntries { uplinks: teids, flows: flows.is_some(), ..SessionEntries::default() };
    for downlink in downlinks {
        let Some((ue, id)) = records.find(&new, downlink.ue) else { continue };
        if touched.fars.contains(&downlink.far) || tables.downlink_rule(id) != Some(downlink.rule) {
            let end_marker = touched.end_markers.iter().any(|(far, _)| *far == downlink.far);
            tables.set_downlink(id, downlink.rule, end_marker, released);
        }
        tables.limit_buffer(id, buffer_limit(rules, ue));
        kept.downlinks.push((ue, id));
    }
    if let Some(mut flows) = flows {
        for (urr, quota) in &mut flows.meters {
            let metered = tables.metered(session, *urr).unwrap_or_default();
            if let Some(urr) = rules.urrs.iter().find(|other| other.id == *urr) {
                *quota = urr.quota(metered);
            }
        }
        tables.set_flows(session, Some(flows), &kept.uplinks, &kept.ids(), released);
        end_relays(tables, rules, touched, &kept, released);
    }
    let peer = peer_of(rules);
    kept.uplinks.iter().for_each(|teid| tables.bind_uplink(*teid, peer));
    records.uplinks.retain(|teid| !kept.uplinks.contains(teid));
    records.downlinks.retain(|(_, id)| !kept.downlinks.iter().any(|(_, kept)| kept == id));
    records.flows = false;
    std::mem::replace(records, kept).remove(tables, session, released);
    Ok(())
}

/// Returns the maximum number of buffered packets of a UE address: the largest of the BARs, if each
/// FAR that buffers its packets names one with a number.
pub(crate) fn buffer_limit(rules: &Rules, ue: SessionAddress) -> Option<usize> {
    let is_for_ue = |pdr: &&Pdr| pdr.detection.matching == Matching::Downlink && overlap(pdr.detection.ue, ue);
    let fars = rules.pdrs.iter().filter(is_for_ue).filter_map(|pdr| rules.far_by_id(pdr.far));
    let buffering = fars.filter(|far| far.action.contains(ApplyAction::BUFF));
    let counts = buffering.map(|far| rules.bar(far.bar?)?.packets);
    counts.collect::<Option<SmallVec<[u16; 2]>>>()?.into_iter().max().map(usize::from)
}

/// Returns the permitted source of the session's uplink packets: the destination of its downlink
/// packets.
fn peer_of(rules: &Rules) -> Option<PeerBinding> {
    use DestinationInterface as To;
    let is_towards_ue =
        |far: &&Far| far.forwards() && matches!(far.destination, None | Some(To::ACCESS | To::CP_FUNCTION));
    let mut peers = rules.fars.iter().filter(is_towards_ue).filter_map(|far| far.tunnel.map(|tunnel| tunnel.address));
    let first = peers.next()?;
    Some(if peers.all(|other| other == first) { PeerBinding::One(first) } else { PeerBinding::Known })
}

/// Sends End Markers to the old tunnels of FARs without an entry.
fn end_relays(
    tables: &Tables,
    rules: &Rules,
    touched: &ModificationScope,
    kept: &SessionEntries,
    released: &mut Released,
) {
    let of_record = |far: &Far| {
        let mut rules = kept.downlinks.iter().filter_map(|(_, id)| tables.downlink_rule(*id));
        rules.any(|rule| rule.tunnel.is_some() && rule.tunnel == far.tunnel)
    };
    for (id, old) in &touched.end_markers {
        let Some(far) = rules.far_by_id(*id).filter(|far| far.tunnel.is_some() && !of_record(far)) else { continue };
        if let Some(old) = old.filter(|old| far.tunnel != Some(*old)) {
            Tables::end_marker(old, released);
        }
    }
}

impl SessionEntries {
    fn find(&self, new: &SessionEntries, ue: SessionAddress) -> Option<(SessionAddress, DownlinkId)> {
        self.downlinks.iter().chain(&new.downlinks).find(|(have, _)| *have == ue).copied()
    }
}

impl TunnelEnd {
    pub(crate) fn teid(self) -> Option<Teid> {
        match self {
            TunnelEnd::Choose { .. } => None,
            TunnelEnd::ByControlPlane(teid) | TunnelEnd::Ours { teid, .. } => Some(teid),
        }
    }
}

pub(crate) type Uplinks = SmallVec<[(Teid, UplinkRule); 1]>;
pub(crate) type Downlinks = SmallVec<[DownlinkPlan; 1]>;

/// The compiled rules of a session.
struct CompiledRules {
    uplinks: Uplinks,
    downlinks: Downlinks,
    flows: Option<SessionFlows>,
}

/// Allocates the missing entries, into `new`, and compiles the rules.
fn acquire(
    tables: &mut Tables,
    (session, module): (u64, usize),
    rules: &mut Rules,
    records: &SessionEntries,
    new: &mut SessionEntries,
) -> Result<CompiledRules, Refused> {
    let ue = ue_of(rules)?;
    for far in &rules.fars {
        check_far(far)?;
        // no RAN node and no UPF has an address of a UE, or of a service of UEs
        let is_for_control_plane = far.destination == Some(DestinationInterface::CP_FUNCTION);
        let is_usable = |address| match is_for_control_plane {
            true => !tables.is_in_pools(address),
            false => tables.may_be_tunnel_end(address),
        };
        if let Some(tunnel) = far.tunnel.filter(|tunnel| !is_usable(tunnel.address)) {
            tracing::warn!(peer = %tunnel.address, "tunnel end refused; see upf.tunnel-ends");
            return Err(Refused {
                error: Error { cause: Cause::RULE_FAILURE, offending_ie: Some(OuterHeaderCreation::ID) },
                rule: Some(FailedRuleId::Far(far.id)),
            });
        }
    }
    choose_ends(tables, module, ue, rules, (records, new))?;
    let flows = flows::needs_flow_rules(rules).then(|| flows::compile(rules)).transpose()?;
    let (uplinks, downlinks) = match flows {
        None => (uplinks(rules, ue)?, downlinks(rules, session)?),
        Some(_) => flows::records(rules, ue, session)?,
    };
    for downlink in &downlinks {
        if records.find(new, downlink.ue).is_some() {
            continue;
        }
        // the address of a session never changes, so an address that is partly the session's is an
        // error
        let id = tables.add_downlink(downlink.ue, session).map_err(|error| match error {
            TableError::Full => Refused::cause(Cause::NO_RESOURCES),
            _ => Refused {
                error: Error { cause: Cause::RULE_FAILURE, offending_ie: Some(UeIpAddress::ID) },
                rule: Some(FailedRuleId::Pdr(downlink.rule.pdr)),
            },
        })?;
        new.downlinks.push((downlink.ue, id));
    }
    Ok(CompiledRules { uplinks, downlinks, flows })
}

/// Returns all addresses of the session. Uplink packets must have one of them as source, whichever
/// PDR names it. A session that only forwards packets to another UPF needs none.
fn ue_of(rules: &Rules) -> Result<SessionAddress, Refused> {
    let mut ue = SessionAddress::default();
    for pdr in &rules.pdrs {
        let SessionAddress { ipv4, ipv6_prefix } = pdr.detection.ue;
        ue = SessionAddress { ipv4: ipv4.or(ue.ipv4), ipv6_prefix: ipv6_prefix.or(ue.ipv6_prefix) };
    }
    let leaves = |pdr: &Pdr| rules.far_by_id(pdr.far).is_some_and(|far| far.forwards() && far.tunnel.is_none());
    match ue == SessionAddress::default() && rules.pdrs.iter().any(leaves) {
        true => Err(Error::conditional_missing(UeIpAddress::ID).into()),
        false => Ok(ue),
    }
}

fn check_far(far: &Far) -> Result<(), Refused> {
    match far.forwards() && far.destination.is_none() && far.tunnel.is_none() {
        true => Err(Error::conditional_missing(ForwardingParameters::ID).into()),
        false => Ok(()),
    }
}

/// Allocates a tunnel end in the tables for every uplink PDR. New ends drop all packets until their
/// rule is set.
fn choose_ends(
    tables: &mut Tables,
    module: usize,
    ue: SessionAddress,
    rules: &mut Rules,
    (records, new): (&SessionEntries, &mut SessionEntries),
) -> Result<(), Refused> {
    let closed = UplinkRule { ue, flows: 0, gate_open: false, forward: false, mbr: Rate::UNLIMITED };
    let mut by_id: SmallVec<[(u8, Teid); 2]> = SmallVec::new();
    for pdr in &mut rules.pdrs {
        let Matching::Tunnel { end, .. } = &mut pdr.detection.matching else { continue };
        match *end {
            TunnelEnd::Ours { teid, .. } => {
                // missing only in a restored session
                if !records.uplinks.contains(&teid) && !new.uplinks.contains(&teid) {
                    new.uplinks.push(tables.restore_uplink(teid, closed).map_err(|e| full_or_failed(e, pdr.id))?);
                }
            }
            TunnelEnd::ByControlPlane(teid) => {
                if !records.uplinks.contains(&teid) && !new.uplinks.contains(&teid) {
                    new.uplinks.push(tables.add_uplink(Some(teid), closed).map_err(|e| full_or_failed(e, pdr.id))?);
                }
            }
            TunnelEnd::Choose { ipv4, ipv6, id } => {
                let same = id.and_then(|id| by_id.iter().find(|(other, _)| *other == id)).map(|(_, teid)| *teid);
                let teid = match same {
                    Some(teid) => teid,
                    None => {
                        let teid = tables.add_uplink_in(module, None, closed);
                        let teid = teid.map_err(|e| full_or_failed(e, pdr.id))?;
                        new.uplinks.push(teid);
                        by_id.extend(id.map(|id| (id, teid)));
                        teid
                    }
                };
                *end = TunnelEnd::Ours { teid, ipv4, ipv6 };
            }
        }
    }
    Ok(())
}

fn full_or_failed(error: TableError, pdr: u16) -> Refused {
    match error {
        TableError::Full => Refused::cause(Cause::NO_RESOURCES),
        _ => Refused {
            error: Error { cause: Cause::INVALID_F_TEID_ALLOCATION, offending_ie: Some(FTeid::ID) },
            rule: Some(FailedRuleId::Pdr(pdr)),
        },
    }
}

/// Returns the PDRs in the order in which they are matched.
pub(crate) fn in_order(rules: &Rules) -> SmallVec<[&Pdr; 4]> {
    let mut pdrs: SmallVec<[&Pdr; 4]> = rules.pdrs.iter().collect();
    pdrs.sort_by_key(|pdr| pdr.precedence);
    pdrs
}

/// The combined QERs of a PDR: every gate must be open, and the lowest rate applies.
pub(crate) struct EffectiveQos {
    pub(crate) gate_open: bool,
    pub(crate) mbr: Rate,
    pub(crate) qfi: Option<u8>,
    pub(crate) rqi: bool,
}

pub(crate) fn quality(rules: &Rules, pdr: &Pdr, uplink: bool) -> Result<EffectiveQos, Refused> {
    let failed = Refused::rule(FailedRuleId::Pdr(pdr.id));
    let mut quality = EffectiveQos { gate_open: true, mbr: Rate::UNLIMITED, qfi: None, rqi: false };
    for id in &pdr.qers {
        let qer = rules.qer(*id).ok_or(failed)?;
        let closed = if uplink { qer.gate.uplink_closed } else { qer.gate.downlink_closed };
        quality.gate_open &= !closed;
        quality.mbr = quality.mbr.min(qer.rate(uplink));
        quality.qfi = quality.qfi.or(qer.qfi);
        quality.rqi |= qer.rqi;
    }
    // a control plane without QERs may still name the QoS flow of the packets in the PDI
    quality.qfi = quality.qfi.or(pdr.detection.qfi.filter(|_| !uplink));
    for id in &pdr.urrs {
        let urr = rules.urrs.iter().find(|urr| urr.id == *id).ok_or(failed)?;
        quality.gate_open &= urr.quota_action() != Some(QuotaAction::Drop);
    }
    Ok(quality)
}

/// Returns one uplink rule for each tunnel.
fn uplinks(rules: &Rules, ue: SessionAddress) -> Result<Uplinks, Refused> {
    let mut uplinks = Uplinks::new();
    for pdr in in_order(rules) {
        let Matching::Tunnel { end, flows, .. } = pdr.detection.matching else { continue };
        let failed = Refused::rule(FailedRuleId::Pdr(pdr.id));
        let teid = end.teid().ok_or(failed)?;
        let far = rules.far_by_id(pdr.far).ok_or(failed)?;
        let quality = quality(rules, pdr, true)?;
        let forward = far.action.contains(ApplyAction::FORW);
        let rule = UplinkRule { ue, flows, gate_open: quality.gate_open, forward, mbr: quality.mbr };
        match uplinks.iter_mut().find(|(other, _)| *other == teid) {
            None => uplinks.push((teid, rule)),
            // they have the same treatment, or the first PDR matches all packets
            // (`flows::needs_flow_rules`)
            Some((_, first)) => first.flows |= flows,
        }
    }
    Ok(uplinks)
}

/// Returns one downlink rule for each UE address. Without filters the first PDR of an address
/// matches all packets.
fn downlinks(rules: &Rules, session: u64) -> Result<Downlinks, Refused> {
    let mut downlinks = Downlinks::new();
    for pdr in in_order(rules) {
        if pdr.detection.matching != Matching::Downlink {
            continue;
        }
        // all PDRs must be valid, also those that never match
        let downlink = downlink(rules, pdr, session)?;
        match downlinks.iter().find(|first| overlap(first.ue, downlink.ue)) {
            Some(first) if first.ue == downlink.ue => {}
            Some(_) => return Err(Refused::rule(FailedRuleId::Pdr(pdr.id))),
            None => downlinks.push(downlink),
        }
    }
    Ok(downlinks)
}

/// Returns the downlink entry of a PDR for packets from the data network.
pub(crate) fn downlink(rules: &Rules, pdr: &Pdr, session: u64) -> Result<DownlinkPlan, Refused> {
    let far = rules.far_by_id(pdr.far).ok_or(Refused::rule(FailedRuleId::Pdr(pdr.id)))?;
    let quality = quality(rules, pdr, false)?;
    let action = match far.action {
        action if action.contains(ApplyAction::FORW) => Action::Forward,
        action if action.contains(ApplyAction::BUFF) => Action::Buffer { notify: action.contains(ApplyAction::NOCP) },
        _ => Action::Drop,
    };
    if action == Action::Forward && far.tunnel.is_none() {
        return match far.destination.is_some_and(|to| to != DestinationInterface::ACCESS) {
            true => Err(Refused::rule(FailedRuleId::Far(far.id))),
            false => Err(Error::conditional_missing(OuterHeaderCreation::ID).into()),
        };
    }
    let rule = DownlinkRule {
        session,
        pdr: pdr.id,
        qfi: quality.qfi,
        rqi: quality.rqi,
        gate_open: quality.gate_open,
        action,
        // while packets are buffered or dropped, neither Error Indications nor End Markers apply to
        // a tunnel
        tunnel: far.tunnel.filter(|_| action == Action::Forward),
        mbr: quality.mbr,
    };
    Ok(DownlinkPlan { ue: pdr.detection.ue, rule, far: far.id })
}
