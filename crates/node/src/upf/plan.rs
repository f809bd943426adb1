//! From PFCP rules to the records of the datapath: which tunnels and UE addresses a session has, and what holds for
//! the packets of each.

use super::rules::{Far, Matching, Pdr, Refused, Rules, TunnelEnd, Usage};
use smallvec::SmallVec;
use vireo_datapath::{Action, DownlinkId, DownlinkRule, Rate, Released, TableError, Tables, UplinkRule, Volume};
use vireo_types::{SessionAddress, Teid};
use vireo_wire::pfcp::*;

/// The records that a session has.
#[derive(Clone, Debug, Default)]
pub(super) struct Records {
    pub(super) uplinks: SmallVec<[Teid; 1]>,
    pub(super) downlinks: SmallVec<[(SessionAddress, DownlinkId); 1]>,
}

/// What a modification asks beyond what the rules then say.
#[derive(Clone, Debug, Default)]
pub(super) struct Touched {
    /// FARs that it names: buffering by them reports its first packet anew.
    pub(super) fars: SmallVec<[u32; 2]>,
    /// FARs whose old tunnel gets an end marker.
    pub(super) end_markers: SmallVec<[u32; 1]>,
}

/// One downlink record to be.
struct Downlink {
    ue: SessionAddress,
    rule: DownlinkRule,
    far: u32,
}

/// Makes the tables follow the rules and writes the tunnel ends that were chosen into the rules. On an error the tables
/// are as before, and the rules are of no use.
pub(super) fn apply(
    tables: &mut Tables,
    released: &mut Released,
    session: u64,
    rules: &mut Rules,
    records: &mut Records,
    touched: &Touched,
) -> Result<(), Refused> {
    let mut new = Records::default();
    let plan = acquire(tables, session, rules, records, &mut new);
    let (uplinks, downlinks) = match plan {
        Ok(plan) => plan,
        Err(refused) => {
            new.remove(tables, released);
            return Err(refused);
        }
    };
    for (teid, rule) in &uplinks {
        tables.set_uplink(*teid, *rule);
    }
    let mut kept = Records { uplinks: uplinks.iter().map(|(teid, _)| *teid).collect(), ..Records::default() };
    for downlink in downlinks {
        let Some((ue, id)) = records.find(&new, downlink.ue) else { continue };
        if touched.fars.contains(&downlink.far) || tables.downlink_rule(id) != Some(downlink.rule) {
            let end_marker = touched.end_markers.contains(&downlink.far);
            tables.set_downlink(id, downlink.rule, end_marker, released);
        }
        kept.downlinks.push((ue, id));
    }
    records.uplinks.retain(|teid| !kept.uplinks.contains(teid));
    records.downlinks.retain(|(_, id)| !kept.downlinks.iter().any(|(_, kept)| kept == id));
    std::mem::replace(records, kept).remove(tables, released);
    Ok(())
}

impl Records {
    /// Removes all of them from the tables.
    pub(super) fn remove(self, tables: &mut Tables, released: &mut Released) {
        for teid in self.uplinks {
            tables.remove_uplink(teid);
        }
        for (_, id) in self.downlinks {
            tables.remove_downlink(id, released);
        }
    }

    fn find(&self, new: &Records, ue: SessionAddress) -> Option<(SessionAddress, DownlinkId)> {
        self.downlinks.iter().chain(&new.downlinks).find(|(have, _)| *have == ue).copied()
    }

    /// What the records that a URR counts have carried.
    pub(super) fn usage(&self, tables: &Tables, rules: &Rules, urr: u32) -> Usage {
        let counts = |pdr: &&Pdr| pdr.urrs.contains(&urr);
        let mut usage = Usage::default();
        for teid in &self.uplinks {
            let comes_by =
                |pdr: &Pdr| matches!(pdr.matching, Matching::Uplink { end, .. } if end.teid() == Some(*teid));
            if rules.pdrs.iter().filter(counts).any(comes_by) {
                add(&mut usage.uplink, tables.uplink_volume(*teid));
            }
        }
        for (ue, id) in &self.downlinks {
            let goes_to = |pdr: &Pdr| pdr.matching == Matching::Downlink && overlap(pdr.ue, *ue);
            if rules.pdrs.iter().filter(counts).any(goes_to) {
                add(&mut usage.downlink, tables.downlink_volume(*id));
            }
        }
        usage
    }
}

fn add(sum: &mut Volume, more: Volume) {
    sum.packets += more.packets;
    sum.octets += more.octets;
}

impl TunnelEnd {
    fn teid(self) -> Option<Teid> {
        match self {
            TunnelEnd::Wanted { .. } => None,
            TunnelEnd::Given(teid) | TunnelEnd::Ours { teid, .. } => Some(teid),
        }
    }
}

type Uplinks = SmallVec<[(Teid, UplinkRule); 1]>;
type Downlinks = SmallVec<[Downlink; 1]>;

/// Takes the records that are missing, into `new`, and says what holds for all.
fn acquire(
    tables: &mut Tables,
    session: u64,
    rules: &mut Rules,
    records: &Records,
    new: &mut Records,
) -> Result<(Uplinks, Downlinks), Refused> {
    let ue = ue_of(rules)?;
    for far in &rules.fars {
        check_far(far)?;
    }
    choose_ends(tables, ue, rules, records, new)?;
    let uplinks = uplinks(rules, ue)?;
    let downlinks = downlinks(rules, session)?;
    for downlink in &downlinks {
        if records.find(new, downlink.ue).is_some() {
            continue;
        }
        // the address of a session does not change in its life, so one that is partly ours is a mistake
        let id = tables.add_downlink(downlink.ue, session).map_err(|error| match error {
            TableError::Full => Refused::cause(Cause::NO_RESOURCES),
            _ => Refused {
                error: Error { cause: Cause::RULE_FAILURE, offending_ie: Some(UeIpAddress::ID) },
                rule: Some(FailedRuleId::Pdr(downlink.rule.pdr)),
            },
        })?;
        new.downlinks.push((downlink.ue, id));
    }
    Ok((uplinks, downlinks))
}

/// All addresses of the session: uplink packets must come from one of them, whichever PDR names it.
fn ue_of(rules: &Rules) -> Result<SessionAddress, Refused> {
    let mut ue = SessionAddress::default();
    for pdr in &rules.pdrs {
        ue = SessionAddress { ipv4: pdr.ue.ipv4.or(ue.ipv4), ipv6_prefix: pdr.ue.ipv6_prefix.or(ue.ipv6_prefix) };
    }
    match ue == SessionAddress::default() && !rules.pdrs.is_empty() {
        true => Err(Error::conditional_missing(UeIpAddress::ID).into()),
        false => Ok(ue),
    }
}

fn check_far(far: &Far) -> Result<(), Refused> {
    match far.action.contains(ApplyAction::FORW) && far.destination.is_none() && far.tunnel.is_none() {
        true => Err(Error::conditional_missing(ForwardingParameters::ID).into()),
        false => Ok(()),
    }
}

/// Gives every uplink PDR a tunnel end that is in the tables; new ones drop everything until they get their rule.
fn choose_ends(
    tables: &mut Tables,
    ue: SessionAddress,
    rules: &mut Rules,
    records: &Records,
    new: &mut Records,
) -> Result<(), Refused> {
    let closed = UplinkRule { ue, flows: 0, gate_open: false, forward: false, mbr: Rate::UNLIMITED };
    let mut by_id: SmallVec<[(u8, Teid); 2]> = SmallVec::new();
    for pdr in &mut rules.pdrs {
        let Matching::Uplink { end, .. } = &mut pdr.matching else { continue };
        match *end {
            TunnelEnd::Ours { .. } => {}
            TunnelEnd::Given(teid) => {
                if !records.uplinks.contains(&teid) && !new.uplinks.contains(&teid) {
                    new.uplinks.push(tables.add_uplink(Some(teid), closed).map_err(|e| full_or_failed(e, pdr.id))?);
                }
            }
            TunnelEnd::Wanted { ipv4, ipv6, id } => {
                let same = id.and_then(|id| by_id.iter().find(|(other, _)| *other == id)).map(|(_, teid)| *teid);
                let teid = match same {
                    Some(teid) => teid,
                    None => {
                        let teid = tables.add_uplink(None, closed).map_err(|e| full_or_failed(e, pdr.id))?;
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

/// The PDRs, the one that is matched first in front.
fn in_order(rules: &Rules) -> SmallVec<[&Pdr; 4]> {
    let mut pdrs: SmallVec<[&Pdr; 4]> = rules.pdrs.iter().collect();
    pdrs.sort_by_key(|pdr| pdr.precedence);
    pdrs
}

/// What the QERs of a PDR say together: every gate must be open, the lowest rate holds.
struct Quality {
    gate_open: bool,
    mbr: Rate,
    qfi: Option<u8>,
    rqi: bool,
}

fn quality(rules: &Rules, pdr: &Pdr, uplink: bool) -> Result<Quality, Refused> {
    let failed = Refused::rule(FailedRuleId::Pdr(pdr.id));
    let mut quality = Quality { gate_open: true, mbr: Rate::UNLIMITED, qfi: None, rqi: false };
    for id in &pdr.qers {
        let qer = rules.qer(*id).ok_or(failed)?;
        let closed = if uplink { qer.gate.uplink_closed } else { qer.gate.downlink_closed };
        quality.gate_open &= !closed;
        if let Some(mbr) = qer.mbr {
            let kbps = if uplink { mbr.uplink_kbps } else { mbr.downlink_kbps };
            quality.mbr = quality.mbr.min(Rate::from_kbps(kbps));
        }
        quality.qfi = quality.qfi.or(qer.qfi);
        quality.rqi |= qer.rqi;
    }
    if pdr.urrs.iter().any(|id| !rules.urrs.iter().any(|urr| urr.id == *id)) {
        return Err(failed);
    }
    Ok(quality)
}

/// One rule per tunnel. PDRs that share a tunnel but not its treatment need more than one record holds and are refused,
/// unless the first of them leaves nothing to the later.
fn uplinks(rules: &Rules, ue: SessionAddress) -> Result<Uplinks, Refused> {
    let mut uplinks: SmallVec<[(Teid, UplinkRule, &Pdr); 1]> = SmallVec::new();
    for pdr in in_order(rules) {
        let Matching::Uplink { end, flows } = pdr.matching else { continue };
        let failed = Refused::rule(FailedRuleId::Pdr(pdr.id));
        let teid = end.teid().ok_or(failed)?;
        let far = rules.far(pdr.far).ok_or(failed)?;
        let quality = quality(rules, pdr, true)?;
        let forward = far.action.contains(ApplyAction::FORW);
        let outward = matches!(far.destination, Some(DestinationInterface::CORE | DestinationInterface::N6_LAN));
        // forwarding to another UPF and uplink buffering are not served
        if far.action.contains(ApplyAction::BUFF) || forward && (!outward || far.tunnel.is_some()) {
            return Err(Refused::rule(FailedRuleId::Far(far.id)));
        }
        let rule = UplinkRule { ue, flows, gate_open: quality.gate_open, forward, mbr: quality.mbr };
        match uplinks.iter_mut().find(|(other, ..)| *other == teid) {
            None => uplinks.push((teid, rule, pdr)),
            Some((_, first, by)) if (by.far, &by.qers) == (pdr.far, &pdr.qers) => first.flows |= flows,
            Some((_, first, _)) if flows & !first.flows == 0 => {}
            Some(_) => return Err(failed),
        }
    }
    Ok(uplinks.into_iter().map(|(teid, rule, _)| (teid, rule)).collect())
}

fn overlap(a: SessionAddress, b: SessionAddress) -> bool {
    a.ipv4.is_some() && a.ipv4 == b.ipv4 || a.ipv6_prefix.is_some() && a.ipv6_prefix == b.ipv6_prefix
}

/// One rule per UE address. Without filters the first PDR for an address leaves nothing to the later.
fn downlinks(rules: &Rules, session: u64) -> Result<Downlinks, Refused> {
    let mut downlinks = Downlinks::new();
    for pdr in in_order(rules) {
        if pdr.matching != Matching::Downlink {
            continue;
        }
        let far = rules.far(pdr.far).ok_or(Refused::rule(FailedRuleId::Pdr(pdr.id)))?;
        let quality = quality(rules, pdr, false)?;
        if let Some(first) = downlinks.iter().find(|first| overlap(first.ue, pdr.ue)) {
            if first.ue == pdr.ue {
                continue;
            }
            return Err(Refused::rule(FailedRuleId::Pdr(pdr.id)));
        }
        let action = match far.action {
            action if action.contains(ApplyAction::FORW) => Action::Forward,
            action if action.contains(ApplyAction::BUFF) => {
                Action::Buffer { notify: action.contains(ApplyAction::NOCP) }
            }
            _ => Action::Drop,
        };
        if action == Action::Forward {
            if far.destination.is_some_and(|to| to != DestinationInterface::ACCESS) {
                return Err(Refused::rule(FailedRuleId::Far(far.id)));
            }
            if far.tunnel.is_none() {
                return Err(Error::conditional_missing(OuterHeaderCreation::ID).into());
            }
        }
        // while packets wait or are dropped there is no tunnel that an Error Indication or an end marker could be for
        let tunnel = far.tunnel.filter(|_| action == Action::Forward);
        let rule = DownlinkRule {
            session,
            pdr: pdr.id,
            qfi: quality.qfi,
            rqi: quality.rqi,
            gate_open: quality.gate_open,
            action,
            tunnel,
            mbr: quality.mbr,
        };
        downlinks.push(Downlink { ue: pdr.ue, rule, far: far.id });
    }
    Ok(downlinks)
}
