//! One PFCP session: its rules, and the datapath entries that implement them.

mod record;
mod table;

pub(crate) use record::FoundSession;
pub(crate) use table::Sessions;

use crate::machine::address_checks;
use crate::machine::addresses::{Addresses, AllocatedAddresses};
use crate::machine::compile::{self, ModificationScope};
use crate::machine::entries::SessionEntries;
use crate::machine::pdi::AddressChoice;
use crate::machine::rules::{Matching, Refused, Rules, TunnelEnd, few};
use crate::machine::settings::Settings;
use crate::machine::tables_access::TablesAccess;
use crate::machine::timer_wheel::TimerDue;
use crate::machine::usage::{self, Urr};
use smallvec::SmallVec;
use std::net::IpAddr;
use vireo_types::{SessionAddress, Teid};
use vireo_wire::pfcp::*;

/// A PFCP session.
#[derive(Debug)]
pub(crate) struct Session {
    /// F-SEID of the control plane.
    pub(crate) cp: FSeid,
    /// Node ID of the control plane that owns the session.
    pub(crate) node: NodeId,
    pub(crate) rules: Rules,
    pub(crate) records: SessionEntries,
    /// Addresses that the UPF chose, and their data network.
    pub(crate) chosen: Option<AllocatedAddresses>,
    dnn: Option<Box<ApnDnn>>,
    /// Sets of sessions that include this one (FQ-CSID).
    pub(crate) sets: Box<[FqCsid]>,
    inactivity: Inactivity,
    /// Number of the worker that handles the packets.
    pub(crate) worker: u8,
    /// True in an IoT slice.
    pub(crate) simple: bool,
    /// When the session's timer fires.
    pub(crate) timer: TimerDue,
}

/// State of the User Plane Inactivity Timer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Inactivity {
    /// Limit in seconds; `None` = no supervision.
    limit: Option<u32>,
    since: u32,
    packets: u64,
    reported: bool,
}

impl Session {
    /// Creates the session of a request, without entries. `now` is in seconds since 1900.
    pub(crate) fn new(request: &SessionEstablishmentRequest, now: u32) -> Result<Self, Refused> {
        let mut rules = Rules::default();
        request.create_fars.iter().try_for_each(|ie| rules.create_far(ie))?;
        request.create_qers.iter().try_for_each(|ie| rules.create_qer(ie))?;
        request.create_urrs.iter().try_for_each(|ie| rules.create_urr(ie, now))?;
        request.create_bars.iter().try_for_each(|ie| rules.create_bar(ie))?;
        request.create_pdrs.iter().try_for_each(|ie| rules.create_pdr(ie))?;
        rules.check_bars()?;
        let limit = request.user_plane_inactivity_timer.map(|timer| timer.0).filter(|seconds| *seconds > 0);
        Ok(Session {
            cp: request.cp_f_seid,
            node: request.node_id.clone(),
            rules,
            records: SessionEntries::default(),
            chosen: None,
            dnn: request.apn_dnn.clone().map(Box::new),
            sets: few(&request.fq_csids)?.iter().cloned().collect(),
            inactivity: Inactivity { limit, since: now, ..Inactivity::default() },
            worker: 0,
            simple: false,
            timer: TimerDue::default(),
        })
    }

    /// Creates the datapath entries. A restored session gets the same TEIDs and addresses.
    pub(crate) fn install(
        &mut self,
        seid: u64,
        settings: &Settings,
        addresses: &mut Addresses,
        plane: &mut impl TablesAccess,
    ) -> Result<(), Refused> {
        address_checks::check_rules(&self.rules, settings.n3(seid), settings)?;
        let Session { rules, records, chosen, dnn, worker, simple, inactivity, .. } = self;
        let result = plane.change(|tables, released| {
            released.sources = settings.n3(seid).addresses();
            *chosen = choose(rules, *chosen, dnn.as_deref(), addresses, |ue| tables.is_free(ue))?;
            compile::apply(
                tables,
                released,
                (seid, settings.module(seid)),
                rules,
                records,
                &ModificationScope::default(),
            )?;
            records.watch(tables, seid, remaining_volume(&rules.urrs));
            records.set_lean(tables, *simple && rules.urrs.is_empty() && inactivity.limit.is_none());
            records.assign_worker(tables, *worker);
            Ok(())
        });
        match &result {
            Ok(()) => ues(rules).into_iter().for_each(|ue| plane.set_host_route(ue, true)),
            Err(_) => chosen.take().into_iter().for_each(|chosen| addresses.release(chosen)),
        }
        result
    }

    /// Returns the lowest TEID of the UPF's tunnel ends. It determines the order in which sessions
    /// are restored.
    pub(crate) fn first_teid(&self) -> Option<Teid> {
        let end = |pdr: &crate::machine::rules::Pdr| match pdr.detection.matching {
            Matching::Tunnel { end, .. } => end.teid(),
            Matching::Downlink => None,
        };
        self.rules.pdrs.iter().filter_map(end).min()
    }

    /// Returns true if the session has this tunnel end.
    fn has_end(&self, teid: Teid) -> bool {
        let is_end = |pdr: &crate::machine::rules::Pdr| match pdr.detection.matching {
            Matching::Tunnel { end, .. } => end.teid() == Some(teid),
            Matching::Downlink => false,
        };
        self.rules.pdrs.iter().any(is_end)
    }

    /// Returns the destination of reports.
    pub(crate) fn cp_address(&self) -> IpAddr {
        let v6 = self.cp.ipv6.map(IpAddr::V6);
        self.cp.ipv4.map(IpAddr::V4).or(v6).unwrap_or(IpAddr::V4(std::net::Ipv4Addr::UNSPECIFIED))
    }

    /// Returns the allocations of the UPF for the PDRs that are not in `before`.
    pub(crate) fn created<'a>(
        &'a self,
        seid: u64,
        before: &'a Rules,
        settings: &Settings,
    ) -> impl Iterator<Item = CreatedPdr> + 'a {
        let n3 = settings.n3(seid);
        self.rules.pdrs.iter().filter_map(move |pdr| {
            if before.pdrs.iter().any(|old| old.id == pdr.id && old.detection == pdr.detection) {
                return None;
            }
            let mut created = CreatedPdr { pdr_id: PdrId(pdr.id), ..CreatedPdr::default() };
            if let Matching::Tunnel { end: TunnelEnd::Ours { teid, ipv4, ipv6 }, .. } = pdr.detection.matching {
                let (ipv4, ipv6) = (n3.ipv4.filter(|_| ipv4), n3.ipv6.filter(|_| ipv6));
                created.f_teid = Some(FTeid::Allocated { teid, ipv4, ipv6 });
            }
            if pdr.detection.choose != AddressChoice::default() {
                let ue = pdr.detection.ue;
                let destination = pdr.detection.matching == Matching::Downlink;
                let address = UeIpAddress { destination, ..UeIpAddress::source(ue.ipv4, ue.ipv6_prefix) };
                created.ue_ip_addresses.push(address);
            }
            (created.f_teid.is_some() || !created.ue_ip_addresses.is_empty()).then_some(created)
        })
    }

    /// Applies a modification completely or not at all.
    pub(crate) fn modify(
        &mut self,
        seid: u64,
        request: &SessionModificationRequest,
        now: u32,
        settings: &Settings,
        addresses: &mut Addresses,
        plane: &mut impl TablesAccess,
    ) -> Result<SessionModificationResponse, Refused> {
        let mut rules = self.rules.clone();
        let touched = modification_scope(request, &rules);
        let mut removed = change_rules(&mut rules, request, now)?;
        let updated = request.update_pdrs.iter().filter_map(|ie| Some((ie.pdr_id, ie.pdi.as_ref()?)));
        let pdis = request.create_pdrs.iter().map(|ie| (ie.pdr_id, &ie.pdi)).chain(updated);
        let is_new =
            |(_, pdi): &(PdrId, &Pdi)| pdi.f_teid.and_then(|end| end.teid()).is_none_or(|teid| !self.has_end(teid));
        address_checks::check_tunnel_ends(pdis.filter(is_new), settings)?;
        address_checks::check_rules(&rules, settings.n3(seid), settings)?;
        let octets = self.check_record_size(&rules, settings)?;
        self.check_room(octets, &rules, request, settings)?;
        let (old, records, dnn) = (&self.rules, &mut self.records, self.dnn.as_deref());
        let (before, worker) = (self.chosen, self.worker);
        // 0 stops the timer (TS 29.244 8.2.83)
        let limit = match request.user_plane_inactivity_timer {
            Some(timer) => Some(timer.0).filter(|seconds| *seconds > 0),
            None => self.inactivity.limit,
        };
        let simple = self.simple && limit.is_none();
        let mut chosen = before;
        let result = plane.change(|tables, released| {
            released.sources = settings.n3(seid).addresses();
            chosen = choose(&mut rules, before, dnn, addresses, |ue| tables.is_free(ue))?;
            if !rules.urrs.is_empty() || !removed.is_empty() {
                records.pause(tables);
            }
            for urr in rules.urrs.iter_mut().chain(&mut removed) {
                usage::settle(urr, tables, seid, &old.pdrs, records, now);
            }
            compile::apply(tables, released, (seid, settings.module(seid)), &mut rules, records, &touched)?;
            usage::rebase(&mut rules, tables, seid, records);
            records.watch(tables, seid, remaining_volume(&rules.urrs));
            records.set_lean(tables, simple && rules.urrs.is_empty());
            records.assign_worker(tables, worker);
            Ok::<(), Refused>(())
        });
        if let Err(refused) = result {
            if before.is_none() {
                chosen.into_iter().for_each(|chosen| addresses.release(chosen));
            }
            return Err(refused);
        }
        self.chosen = chosen;
        let before = std::mem::replace(&mut self.rules, rules);
        update_host_routes(&before, &self.rules, plane);
        self.cp = request.cp_f_seid.unwrap_or(self.cp);
        if let Some(node) = &request.node_id {
            self.node = node.clone();
        }
        if request.user_plane_inactivity_timer.is_some() {
            self.inactivity = Inactivity { limit, since: now, reported: false, ..self.inactivity };
        }
        let mut response = SessionModificationResponse::new(Cause::REQUEST_ACCEPTED);
        response.created_pdrs = self.created(seid, &before, settings).collect();
        response.usage_reports = self.requested_reports(request, removed, now);
        Ok(response)
    }

    /// Returns the last reports of removed URRs, and the reports that the control plane requests.
    fn requested_reports(
        &mut self,
        request: &SessionModificationRequest,
        mut removed: Vec<Urr>,
        now: u32,
    ) -> Vec<UsageReportInModification> {
        let last = removed.iter_mut().map(|urr| usage::report(urr, UsageReportTrigger::TERMR, now));
        let mut reports: Vec<_> = last.map(UsageReportInModification).collect();
        let all = request.flags.is_some_and(|flags| flags.contains(SmReqFlags::QAURR));
        for urr in &mut self.rules.urrs {
            if all || request.query_urrs.iter().any(|query| query.urr_id.0 == urr.id) {
                let mut report = usage::report(urr, UsageReportTrigger::IMMER, now);
                report.query_urr_reference = request.query_urr_reference;
                reports.push(UsageReportInModification(report));
            }
        }
        reports
    }

    /// Removes the entries and returns the last reports.
    pub(crate) fn end(mut self: Box<Self>, seid: u64, now: u32, plane: &mut impl TablesAccess) -> Vec<UsageReport> {
        let records = std::mem::take(&mut self.records);
        self.remove_host_routes(plane);
        let Rules { urrs, pdrs, .. } = &mut self.rules;
        plane.change(|tables, released| {
            records.pause(tables);
            for urr in urrs.iter_mut() {
                usage::settle(urr, tables, seid, pdrs, &records, now);
            }
            records.remove(tables, seid, released);
        });
        urrs.iter_mut().map(|urr| usage::report(urr, UsageReportTrigger::TERMR, now)).collect()
    }

    /// Returns the GTP-U peers of the downlink tunnels, one for each FAR.
    pub(crate) fn peers(&self) -> SmallVec<[IpAddr; 2]> {
        let forwarding = self.rules.fars.iter().filter(|far| far.forwards());
        forwarding.filter_map(|far| far.tunnel.map(|tunnel| tunnel.address)).collect()
    }

    /// Removes the host routes of the UE.
    pub(crate) fn remove_host_routes(&self, plane: &mut impl TablesAccess) {
        ues(&self.rules).into_iter().for_each(|ue| plane.set_host_route(ue, false));
    }

    /// Drops the buffered packets of the UE.
    pub(crate) fn drop_buffered(&self, plane: &mut impl TablesAccess) {
        plane.change(|tables, released| {
            self.records.downlinks.iter().for_each(|(_, id)| tables.drop_buffered(*id, released));
        });
    }

    /// Applies the buffering parameters in the response to a report.
    pub(crate) fn update_bar(&mut self, ie: &UpdateBarInReport, plane: &mut impl TablesAccess) -> Result<(), Refused> {
        self.rules.update_bar_in_report(ie)?;
        plane.change(|tables, _| {
            for (ue, id) in &self.records.downlinks {
                tables.limit_buffer(*id, compile::buffer_limit(&self.rules, *ue));
            }
        });
        Ok(())
    }

    /// Returns the delay of the downlink data report for this PDR, in units of 50 ms.
    pub(crate) fn report_delay(&self, pdr: u16) -> u8 {
        let far = self.rules.pdrs.iter().find(|other| other.id == pdr).and_then(|pdr| self.rules.far_by_id(pdr.far));
        far.and_then(|far| self.rules.bar(far.bar?)).map_or(0, |bar| bar.delay)
    }

    /// Returns the QoS flow of the packets that this PDR detects.
    pub(crate) fn flow(&self, pdr: u16) -> Option<u8> {
        let pdr = self.rules.pdrs.iter().find(|other| other.id == pdr)?;
        compile::quality(&self.rules, pdr, false).ok()?.qfi
    }

    /// Returns true if a packet of this PDR is to be reported: the rules have not been set since it
    /// was buffered. Flows share one mark, which a change of any flow ends: for them it counts that
    /// the PDR buffers.
    pub(crate) fn has_data_to_report(&self, pdr: u16, plane: &mut impl TablesAccess) -> bool {
        if self.records.flows {
            return self.buffers_packets(pdr);
        }
        plane.read(|tables| self.records.downlinks.iter().any(|(_, id)| tables.has_reported_data(*id)))
    }

    /// Returns true if this PDR still buffers packets.
    pub(crate) fn buffers_packets(&self, pdr: u16) -> bool {
        let far = self.rules.pdrs.iter().find(|other| other.id == pdr).and_then(|pdr| self.rules.far_by_id(pdr.far));
        far.is_some_and(|far| far.action.contains(ApplyAction::BUFF))
    }

    /// Returns the number of seconds until the earliest time-based action.
    pub(crate) fn due_in(&self, now: u32) -> Option<u32> {
        let Inactivity { limit, since, reported, .. } = self.inactivity;
        let inactivity = limit.map(|seconds| {
            let left = if reported { u32::MAX } else { seconds.saturating_sub(now.wrapping_sub(since)) };
            left.min(usage::step(limit))
        });
        self.rules.urrs.iter().filter_map(|urr| urr.due_in(now)).chain(inactivity).min()
    }

    /// Reads the counters of the entries. Returns the reports of the URRs that have reached a
    /// threshold or period. The second value is true if a quota has become exhausted, which stops
    /// packets.
    pub(crate) fn due_reports(
        &mut self,
        seid: u64,
        now: u32,
        settings: &Settings,
        plane: &mut impl TablesAccess,
    ) -> (Vec<UsageReport>, bool) {
        let Session { rules, records, .. } = self;
        if rules.urrs.is_empty() {
            return (vec![], false);
        }
        let (reports, spent) = plane.read(|tables| {
            let Rules { urrs, pdrs, .. } = &mut *rules;
            urrs.iter_mut().for_each(|urr| usage::settle(urr, tables, seid, pdrs, records, now));
            let due = usage::due_reports(urrs, now);
            records.watch(tables, seid, remaining_volume(urrs));
            due
        });
        if spent {
            plane.change(|tables, released| {
                let Rules { urrs, pdrs, .. } = &mut *rules;
                records.pause(tables);
                urrs.iter_mut().for_each(|urr| usage::settle(urr, tables, seid, pdrs, records, now));
                released.sources = settings.n3(seid).addresses();
                let of = (seid, settings.module(seid));
                // the rules were valid before, and an exhausted quota needs no resources
                if let Err(refused) =
                    compile::apply(tables, released, of, rules, records, &ModificationScope::default())
                {
                    tracing::warn!(error = ?refused.error, "quota exhausted, but its action not applied");
                }
                usage::rebase(rules, tables, seid, records);
                records.watch(tables, seid, remaining_volume(&rules.urrs));
            });
        }
        (reports, spent)
    }

    /// Returns true, once per period of inactivity, if no packets have passed for the User Plane
    /// Inactivity Timer.
    pub(crate) fn take_inactivity(&mut self, now: u32, plane: &mut impl TablesAccess) -> bool {
        let Some(limit) = self.inactivity.limit else { return false };
        let packets = plane.read(|tables| self.records.packets(tables));
        let state = &mut self.inactivity;
        if std::mem::replace(&mut state.packets, packets) != packets {
            (state.since, state.reported) = (now, false);
        }
        let inactive = now.wrapping_sub(state.since) >= limit;
        inactive && !std::mem::replace(&mut state.reported, true)
    }
}

/// Returns the UE's downlink addresses, each once.
fn ues(rules: &Rules) -> SmallVec<[SessionAddress; 1]> {
    let mut ues = SmallVec::new();
    for pdr in rules.pdrs.iter().filter(|pdr| pdr.detection.matching == Matching::Downlink) {
        if pdr.detection.ue != SessionAddress::default() && !ues.contains(&pdr.detection.ue) {
            ues.push(pdr.detection.ue);
        }
    }
    ues
}

/// Adds host routes for new addresses, and removes those of removed addresses.
fn update_host_routes(before: &Rules, after: &Rules, plane: &mut impl TablesAccess) {
    let (before, after) = (ues(before), ues(after));
    after.iter().filter(|ue| !before.contains(ue)).for_each(|ue| plane.set_host_route(*ue, true));
    before.iter().filter(|ue| !after.contains(ue)).for_each(|ue| plane.set_host_route(*ue, false));
}

/// Returns the number of octets until the earliest volume-based action.
fn remaining_volume(urrs: &[Urr]) -> Option<u64> {
    urrs.iter().filter_map(Urr::remaining_volume).min()
}

/// Allocates addresses for the PDRs that request one. A session keeps the same addresses.
fn choose(
    rules: &mut Rules,
    before: Option<AllocatedAddresses>,
    dnn: Option<&ApnDnn>,
    addresses: &mut Addresses,
    free: impl Fn(vireo_types::SessionAddress) -> bool,
) -> Result<Option<AllocatedAddresses>, Refused> {
    let mut wanted = AddressChoice::default();
    let mut instance = None;
    for pdr in &rules.pdrs {
        let AddressChoice { ipv4, ipv6 } = pdr.detection.choose;
        wanted = AddressChoice { ipv4: wanted.ipv4 | ipv4, ipv6: wanted.ipv6 | ipv6 };
        if ipv4 || ipv6 {
            instance =
                instance.or(pdr.detection.further.as_ref().and_then(|further| further.network_instance.as_ref()));
        }
    }
    if wanted == AddressChoice::default() {
        return Ok(before);
    }
    let chosen = match before {
        Some(before) => before,
        None if addresses.is_empty() => return Err(Refused::unsupported(UeIpAddress::ID)),
        None => {
            let offending_ie = Some(NetworkInstance::ID);
            let unknown = Refused { error: Error { cause: Cause::REQUEST_REJECTED, offending_ie }, rule: None };
            let network = addresses.network(instance, dnn).ok_or(unknown)?;
            addresses.choose(network, wanted, free).ok_or(Refused::cause(Cause::ALL_ADDRESSES_OCCUPIED))?
        }
    };
    let lacks = wanted.ipv4 && chosen.ue.ipv4.is_none() || wanted.ipv6 && chosen.ue.ipv6_prefix.is_none();
    if lacks {
        return Err(Refused::unsupported(UeIpAddress::ID));
    }
    for pdr in rules.pdrs.iter_mut().filter(|pdr| pdr.detection.choose != AddressChoice::default()) {
        let AddressChoice { ipv4, ipv6 } = pdr.detection.choose;
        let ue = &mut pdr.detection.ue;
        ue.ipv4 = chosen.ue.ipv4.filter(|_| ipv4).or(ue.ipv4);
        ue.ipv6_prefix = chosen.ue.ipv6_prefix.filter(|_| ipv6).or(ue.ipv6_prefix);
    }
    Ok(Some(chosen))
}

/// Applies removals, then new rules, then changes. Returns the removed URRs.
fn change_rules(rules: &mut Rules, request: &SessionModificationRequest, now: u32) -> Result<Vec<Urr>, Refused> {
    request.remove_pdrs.iter().try_for_each(|ie| rules.remove_pdr(ie))?;
    request.remove_fars.iter().try_for_each(|ie| rules.remove_far(ie))?;
    request.remove_qers.iter().try_for_each(|ie| rules.remove_qer(ie))?;
    let removed = request.remove_urrs.iter().map(|ie| rules.remove_urr(ie)).collect::<Result<Vec<_>, _>>()?;
    request.remove_bars.iter().try_for_each(|ie| rules.remove_bar(ie))?;
    // a removed URR measures no PDR
    for pdr in &mut rules.pdrs {
        pdr.urrs.retain(|id| !removed.iter().any(|urr| urr.id == *id));
    }
    request.create_fars.iter().try_for_each(|ie| rules.create_far(ie))?;
    request.create_qers.iter().try_for_each(|ie| rules.create_qer(ie))?;
    request.create_urrs.iter().try_for_each(|ie| rules.create_urr(ie, now))?;
    request.create_bars.iter().try_for_each(|ie| rules.create_bar(ie))?;
    request.create_pdrs.iter().try_for_each(|ie| rules.create_pdr(ie))?;
    request.update_fars.iter().try_for_each(|ie| rules.update_far(ie))?;
    request.update_qers.iter().try_for_each(|ie| rules.update_qer(ie))?;
    request.update_urrs.iter().try_for_each(|ie| rules.update_urr(ie, now))?;
    request.update_bars.iter().try_for_each(|ie| rules.update_bar(ie))?;
    request.update_pdrs.iter().try_for_each(|ie| rules.update_pdr(ie))?;
    rules.check_bars()?;
    Ok(removed)
}

fn modification_scope(request: &SessionModificationRequest, before: &Rules) -> ModificationScope {
    let ends = |far: &&UpdateFar| {
        let parameters = far.update_forwarding_parameters.as_ref();
        parameters.and_then(|p| p.flags).is_some_and(|flags| flags.contains(SmReqFlags::SNDEM))
    };
    ModificationScope {
        fars: request.update_fars.iter().map(|far| far.far_id.0).collect(),
        end_markers: request
            .update_fars
            .iter()
            .filter(ends)
            .map(|far| (far.far_id.0, before.far_by_id(far.far_id.0).and_then(|far| far.tunnel)))
            .collect(),
        drops_buffered: request.flags.is_some_and(|flags| flags.contains(SmReqFlags::DROBU)),
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn session_is_at_most_1_kib() {
        // a share of the limit of 2 KiB per session
        assert!(size_of::<super::Session>() <= 1024, "{} octets", size_of::<super::Session>());
    }
}
