//! One PFCP session: its rules, its records in the datapath, and how the one follows the other.

use super::plan::{self, Records, Touched};
use super::rules::{Matching, Refused, Rules, TunnelEnd};
use super::state::{Plane, Settings};
use super::usage;
use std::net::IpAddr;
use vireo_wire::pfcp::*;

/// A session.
#[derive(Debug)]
pub(super) struct Session {
    /// What its owner calls it.
    pub(super) cp: FSeid,
    /// Whose it is.
    pub(super) node: NodeId,
    pub(super) rules: Rules,
    pub(super) records: Records,
}

impl Session {
    /// The session of a request, without records yet. `now` is in seconds since 1900.
    pub(super) fn new(request: &SessionEstablishmentRequest, now: u32) -> Result<Self, Refused> {
        let mut rules = Rules::default();
        request.create_fars.iter().try_for_each(|ie| rules.create_far(ie))?;
        request.create_qers.iter().try_for_each(|ie| rules.create_qer(ie))?;
        request.create_urrs.iter().try_for_each(|ie| rules.create_urr(ie, now))?;
        request.create_pdrs.iter().try_for_each(|ie| rules.create_pdr(ie))?;
        Ok(Session { cp: request.cp_f_seid, node: request.node_id.clone(), rules, records: Records::default() })
    }

    /// Makes the records.
    pub(super) fn install(&mut self, seid: u64, settings: &Settings, plane: &mut impl Plane) -> Result<(), Refused> {
        check_families(&self.rules, settings)?;
        let Session { rules, records, .. } = self;
        plane.change(|tables, released| plan::apply(tables, released, seid, rules, records, &Touched::default()))
    }

    /// Where reports about it go.
    pub(super) fn cp_address(&self) -> IpAddr {
        let v6 = self.cp.ipv6.map(IpAddr::V6);
        self.cp.ipv4.map(IpAddr::V4).or(v6).unwrap_or(IpAddr::V4(std::net::Ipv4Addr::UNSPECIFIED))
    }

    /// What the UPF chose for the PDRs that are not among `before`'s.
    pub(super) fn created<'a>(
        &'a self,
        before: &'a Rules,
        settings: &'a Settings,
    ) -> impl Iterator<Item = CreatedPdr> + 'a {
        self.rules.pdrs.iter().filter_map(move |pdr| {
            let Matching::Uplink { end: TunnelEnd::Ours { teid, ipv4, ipv6 }, .. } = pdr.matching else {
                return None;
            };
            if before.pdrs.iter().any(|old| old.id == pdr.id && old.matching == pdr.matching) {
                return None;
            }
            let f_teid =
                FTeid::Given { teid, ipv4: settings.n3_ipv4.filter(|_| ipv4), ipv6: settings.n3_ipv6.filter(|_| ipv6) };
            Some(CreatedPdr { pdr_id: PdrId(pdr.id), f_teid: Some(f_teid), ..CreatedPdr::default() })
        })
    }

    /// Changes the session as a whole or not at all.
    pub(super) fn modify(
        &mut self,
        seid: u64,
        request: &SessionModificationRequest,
        now: u32,
        settings: &Settings,
        plane: &mut impl Plane,
    ) -> Result<SessionModificationResponse, Refused> {
        let mut rules = self.rules.clone();
        let mut removed = change_rules(&mut rules, request, now)?;
        check_families(&rules, settings)?;
        let touched = touched(request);
        let flags = request.flags.unwrap_or_default();
        let (old, records) = (&self.rules, &mut self.records);
        plane.change(|tables, released| {
            for urr in rules.urrs.iter_mut().chain(&mut removed) {
                usage::settle(urr, tables, old, records);
            }
            plan::apply(tables, released, seid, &mut rules, records, &touched)?;
            usage::rebase(&mut rules, tables, records);
            if flags.contains(SmReqFlags::DROBU) {
                records.downlinks.iter().for_each(|(_, id)| tables.drop_buffered(*id, released));
            }
            Ok::<(), Refused>(())
        })?;
        let before = std::mem::replace(&mut self.rules, rules);
        self.cp = request.cp_f_seid.unwrap_or(self.cp);
        if let Some(node) = &request.node_id {
            self.node = node.clone();
        }
        let mut response = SessionModificationResponse::new(Cause::REQUEST_ACCEPTED);
        response.created_pdrs = self.created(&before, settings).collect();
        for urr in &mut removed {
            let report = usage::report(urr, UsageReportTrigger::TERMR, now);
            response.usage_reports.push(UsageReportInModification(report));
        }
        let all = flags.contains(SmReqFlags::QAURR);
        for urr in &mut self.rules.urrs {
            if all || request.query_urrs.iter().any(|query| query.urr_id.0 == urr.id) {
                let mut report = usage::report(urr, UsageReportTrigger::IMMER, now);
                report.query_urr_reference = request.query_urr_reference;
                response.usage_reports.push(UsageReportInModification(report));
            }
        }
        Ok(response)
    }

    /// Removes the records; gives the last reports.
    pub(super) fn end(mut self: Box<Self>, now: u32, plane: &mut impl Plane) -> Vec<UsageReport> {
        let (old, records) = (self.rules.clone(), std::mem::take(&mut self.records));
        let urrs = &mut self.rules.urrs;
        plane.change(|tables, released| {
            for urr in urrs.iter_mut() {
                usage::settle(urr, tables, &old, &records);
            }
            records.remove(tables, released);
        });
        urrs.iter_mut().map(|urr| usage::report(urr, UsageReportTrigger::TERMR, now)).collect()
    }

    /// Drops what is buffered for the UE.
    pub(super) fn drop_buffered(&self, plane: &mut impl Plane) {
        plane.change(|tables, released| {
            self.records.downlinks.iter().for_each(|(_, id)| tables.drop_buffered(*id, released));
        });
    }

    /// The reports of the URRs that have reached a threshold or period.
    pub(super) fn due_reports(&mut self, now: u32, plane: &mut impl Plane) -> Vec<UsageReport> {
        let (old, records) = (self.rules.clone(), &self.records);
        let urrs = &mut self.rules.urrs;
        plane.change(|tables, _| urrs.iter_mut().for_each(|urr| usage::settle(urr, tables, &old, records)));
        let due = urrs.iter_mut().filter_map(|urr| usage::due(urr, now).map(|why| (urr, why)));
        due.map(|(urr, why)| usage::report(urr, why, now)).collect()
    }
}

/// A tunnel end is wanted only with addresses that we have (TS 29.244 8.2.3).
fn check_families(rules: &Rules, settings: &Settings) -> Result<(), Refused> {
    let had = |pdr: &super::rules::Pdr| match pdr.matching {
        Matching::Uplink { end: TunnelEnd::Wanted { ipv4, ipv6, .. }, .. } => {
            ipv4 && settings.n3_ipv4.is_some() || ipv6 && settings.n3_ipv6.is_some()
        }
        _ => true,
    };
    match rules.pdrs.iter().find(|pdr| !had(pdr)) {
        None => Ok(()),
        Some(pdr) => Err(Refused {
            error: Error { cause: Cause::INVALID_F_TEID_ALLOCATION, offending_ie: Some(FTeid::ID) },
            rule: Some(FailedRuleId::Pdr(pdr.id)),
        }),
    }
}

/// Removals, then new rules, then changes; gives the URRs that are gone.
fn change_rules(
    rules: &mut Rules,
    request: &SessionModificationRequest,
    now: u32,
) -> Result<Vec<super::rules::Urr>, Refused> {
    request.remove_pdrs.iter().try_for_each(|ie| rules.remove_pdr(ie))?;
    request.remove_fars.iter().try_for_each(|ie| rules.remove_far(ie))?;
    request.remove_qers.iter().try_for_each(|ie| rules.remove_qer(ie))?;
    let removed = request.remove_urrs.iter().map(|ie| rules.remove_urr(ie)).collect::<Result<Vec<_>, _>>()?;
    // a removed URR counts for no PDR any more
    for pdr in &mut rules.pdrs {
        pdr.urrs.retain(|id| !removed.iter().any(|urr| urr.id == *id));
    }
    request.create_fars.iter().try_for_each(|ie| rules.create_far(ie))?;
    request.create_qers.iter().try_for_each(|ie| rules.create_qer(ie))?;
    request.create_urrs.iter().try_for_each(|ie| rules.create_urr(ie, now))?;
    request.create_pdrs.iter().try_for_each(|ie| rules.create_pdr(ie))?;
    request.update_fars.iter().try_for_each(|ie| rules.update_far(ie))?;
    request.update_qers.iter().try_for_each(|ie| rules.update_qer(ie))?;
    request.update_urrs.iter().try_for_each(|ie| rules.update_urr(ie))?;
    request.update_pdrs.iter().try_for_each(|ie| rules.update_pdr(ie))?;
    Ok(removed)
}

fn touched(request: &SessionModificationRequest) -> Touched {
    let ends = |far: &&UpdateFar| {
        let parameters = far.update_forwarding_parameters.as_ref();
        parameters.and_then(|p| p.flags).is_some_and(|flags| flags.contains(SmReqFlags::SNDEM))
    };
    Touched {
        fars: request.update_fars.iter().map(|far| far.far_id.0).collect(),
        end_markers: request.update_fars.iter().filter(ends).map(|far| far.far_id.0).collect(),
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn a_session_is_small() {
        // of the 2 KiB that one may have in all (DESIGN, numbers to reach)
        assert!(size_of::<super::Session>() <= 1024, "{} octets", size_of::<super::Session>());
    }
}
