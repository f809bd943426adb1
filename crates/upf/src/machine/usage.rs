//! Usage reporting rules (URR, TS 29.244 5.2.2): measurement, reports and quotas.
//!
//! The entries and meters of the datapath count volume. The UPF reads the counters in three cases:
//!
//! - a request changes or ends the entries,
//! - a time is due ([`Urr::due_in`]),
//! - the datapath signals that a threshold is near ([`Urr::remaining_volume`]).
//!
//! The datapath enforces volume quotas to the packet. Time is measured in whole seconds from the
//! start of a measurement, with or without packets (as with ISTM).

use crate::machine::element_serde::{element, list, optional};
use crate::machine::entries::{SessionEntries, overlap};
use crate::machine::rules::{Matching, Pdr, Refused, Rules};
use serde::{Deserialize, Serialize};
use smallvec::SmallVec;
use vireo_datapath::{Metered, Quota, Tables, Volume};
use vireo_wire::pfcp::*;

/// Volume of both directions.
pub(crate) type Usage = Metered;

impl SessionEntries {
    /// Returns the volume of the packets that a URR measures.
    pub(crate) fn usage(&self, tables: &Tables, session: u64, pdrs: &[Pdr], urr: u32) -> Usage {
        if self.flows {
            return tables.metered(session, urr).unwrap_or_default();
        }
        let counts = |pdr: &&Pdr| pdr.urrs.contains(&urr);
        let mut usage = Usage::default();
        for teid in &self.uplinks {
            let comes_by =
                |pdr: &Pdr| matches!(pdr.detection.matching, Matching::Tunnel { end, .. } if end.teid() == Some(*teid));
            if pdrs.iter().filter(counts).any(comes_by) {
                add_volume(&mut usage.uplink, tables.uplink_volume(*teid));
            }
        }
        for (ue, id) in &self.downlinks {
            let goes_to = |pdr: &Pdr| pdr.detection.matching == Matching::Downlink && overlap(pdr.detection.ue, *ue);
            if pdrs.iter().filter(counts).any(goes_to) {
                add_volume(&mut usage.downlink, tables.downlink_volume(*id));
            }
        }
        usage
    }
}

fn add_volume(sum: &mut Volume, more: Volume) {
    sum.packets += more.packets;
    sum.octets += more.octets;
}

/// A URR and its measurement.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Urr {
    pub(crate) id: u32,
    #[serde(with = "element")]
    method: MeasurementMethod,
    #[serde(with = "element")]
    triggers: ReportingTriggers,
    /// If true, reports contain packet counts beside octets.
    packets: bool,
    limits: Limits,
    /// URRs whose reports trigger a report of this URR.
    #[serde(with = "list")]
    linked: SmallVec<[u32; 2]>,
    /// FAR for packets after a quota is exhausted; `None` drops them.
    quota_far: Option<u32>,
    /// UR-SEQN of the next report.
    sequence: u32,
    /// Start of the measurement, in seconds since 1900.
    since: u32,
    /// Volume since `since`, excluding what the entries have counted beyond `base`.
    counted: Usage,
    /// Counters of the entries at the last update of `counted`. Entries of a new incarnation start
    /// at zero.
    #[serde(skip)]
    base: Usage,
    /// Volume since the quota was granted, and the time of the grant in seconds since 1900.
    used: Usage,
    granted: u32,
    /// Times of packets since `since`, in seconds since 1900; `None` if not known to 2 s.
    first_packet: Option<u32>,
    last_packet: Option<u32>,
    /// True if packets have passed since `since`.
    passed: bool,
    /// Time of the last observed traffic, or the start of the measurement; and time of the last
    /// reading.
    active: u32,
    read_at: u32,
    flowing: bool,
    /// True if a quota is exhausted and none has been granted since.
    spent: bool,
}

/// Volumes in octets and times in seconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
struct Limits {
    period: Option<u32>,
    #[serde(with = "optional")]
    volume: Option<VolumeThreshold>,
    time: Option<u32>,
    #[serde(with = "optional")]
    volume_quota: Option<VolumeQuota>,
    time_quota: Option<u32>,
    validity: Option<u32>,
    holding: Option<u32>,
    inactivity: Option<u32>,
}

/// The supported triggers, with the element that each needs; 0 = none.
const SUPPORTED_TRIGGERS: [(ReportingTriggers, u16); 10] = [
    (ReportingTriggers::PERIO, MeasurementPeriod::ID),
    (ReportingTriggers::VOLTH, VolumeThreshold::ID),
    (ReportingTriggers::TIMTH, TimeThreshold::ID),
    (ReportingTriggers::VOLQU, VolumeQuota::ID),
    (ReportingTriggers::TIMQU, TimeQuota::ID),
    (ReportingTriggers::QUVTI, QuotaValidityTime::ID),
    (ReportingTriggers::QUHTI, QuotaHoldingTime::ID),
    (ReportingTriggers::STOPT, InactivityDetectionTime::ID),
    (ReportingTriggers::LIUSA, LinkedUrrId::ID),
    (ReportingTriggers::START, 0),
];

impl Urr {
    /// Creates a URR. `now` is in seconds since 1900.
    ///
    /// # Errors
    ///
    /// Returns an error if the URR is unsupported or lacks an element that a trigger needs.
    pub(crate) fn new(ie: &CreateUrr, now: u32) -> Result<Self, Refused> {
        check_monitoring(ie.monitoring_time)?;
        check_information(ie.measurement_information, ie.urr_id)?;
        let information = ie.measurement_information.unwrap_or_default();
        let urr = Urr {
            id: ie.urr_id.0,
            method: ie.measurement_method,
            triggers: ie.reporting_triggers,
            packets: information.contains(MeasurementInformation::MNOP),
            limits: Limits {
                period: ie.measurement_period.map(|period| period.0),
                volume: ie.volume_threshold,
                time: ie.time_threshold.map(|time| time.0),
                volume_quota: ie.volume_quota,
                time_quota: ie.time_quota.map(|time| time.0),
                validity: ie.quota_validity_time.map(|time| time.0),
                holding: ie.quota_holding_time.map(|time| time.0),
                inactivity: ie.inactivity_detection_time.map(|time| time.0),
            },
            linked: ie.linked_urr_ids.iter().map(|id| id.0).collect(),
            quota_far: ie.far_id_for_quota_action.map(|far| far.0),
            since: now,
            granted: now,
            active: now,
            read_at: now,
            ..Urr::default()
        };
        urr.check().map(|()| urr)
    }

    pub(crate) fn update(&mut self, ie: &UpdateUrr, now: u32) -> Result<(), Refused> {
        check_monitoring(ie.monitoring_time)?;
        check_information(ie.measurement_information, ie.urr_id)?;
        let limits = &mut self.limits;
        self.method = ie.measurement_method.unwrap_or(self.method);
        self.triggers = ie.reporting_triggers.unwrap_or(self.triggers);
        if let Some(information) = ie.measurement_information {
            self.packets = information.contains(MeasurementInformation::MNOP);
        }
        limits.period = ie.measurement_period.map(|period| period.0).or(limits.period);
        limits.volume = ie.volume_threshold.or(limits.volume);
        limits.time = ie.time_threshold.map(|time| time.0).or(limits.time);
        limits.holding = ie.quota_holding_time.map(|time| time.0).or(limits.holding);
        limits.inactivity = ie.inactivity_detection_time.map(|time| time.0).or(limits.inactivity);
        if ie.volume_quota.is_some() || ie.time_quota.is_some() || ie.quota_validity_time.is_some() {
            // a new quota starts with nothing used
            limits.volume_quota = ie.volume_quota.or(limits.volume_quota);
            limits.time_quota = ie.time_quota.map(|time| time.0).or(limits.time_quota);
            limits.validity = ie.quota_validity_time.map(|time| time.0).or(limits.validity);
            (self.used, self.granted, self.spent) = (Usage::default(), now, false);
        }
        self.quota_far = ie.far_id_for_quota_action.map(|far| far.0).or(self.quota_far);
        if !ie.linked_urr_ids.is_empty() {
            self.linked = ie.linked_urr_ids.iter().map(|id| id.0).collect();
        }
        self.check()
    }

    /// Refuses a URR with an unsupported trigger or without a limit that a trigger needs. Its
    /// reports would be missing silently.
    fn check(&self) -> Result<(), Refused> {
        let limits = &self.limits;
        let known = SUPPORTED_TRIGGERS.iter().fold(0, |all, (trigger, _)| all | trigger.0);
        if self.triggers.0 & !known != 0 || self.method.contains(MeasurementMethod::EVENT) {
            return Err(Refused::rule(FailedRuleId::Urr(self.id)));
        }
        for (trigger, element) in SUPPORTED_TRIGGERS.iter().filter(|(trigger, _)| self.triggers.contains(*trigger)) {
            let there = match *trigger {
                ReportingTriggers::PERIO => limits.period.is_some_and(|seconds| seconds > 0),
                ReportingTriggers::VOLTH => limits.volume.is_some(),
                ReportingTriggers::TIMTH => limits.time.is_some(),
                ReportingTriggers::VOLQU => limits.volume_quota.is_some(),
                ReportingTriggers::TIMQU => limits.time_quota.is_some(),
                ReportingTriggers::QUVTI => limits.validity.is_some(),
                ReportingTriggers::QUHTI => limits.holding.is_some(),
                ReportingTriggers::STOPT => limits.inactivity.is_some(),
                ReportingTriggers::LIUSA => !self.linked.is_empty(),
                _ => true,
            };
            if !there {
                return Err(Error::conditional_missing(*element).into());
            }
        }
        Ok(())
    }

    /// Returns the number of seconds until the earliest time-based action.
    pub(crate) fn due_in(&self, now: u32) -> Option<u32> {
        let wants = |trigger| self.triggers.contains(trigger);
        let left = |since: u32, limit: Option<u32>| limit.map(|limit| limit.saturating_sub(now.wrapping_sub(since)));
        // only a reading shows whether packets still pass
        let silent = |limit: Option<u32>| left(self.active, limit).map(|left| left.min(step(limit)));
        let quota = |at: Option<u32>| at.filter(|_| !self.spent);
        let all = [
            left(self.since, self.limits.period).filter(|_| wants(ReportingTriggers::PERIO)),
            left(self.since, self.limits.time.filter(|time| *time > 0)).filter(|_| wants(ReportingTriggers::TIMTH)),
            silent(self.limits.inactivity).filter(|_| wants(ReportingTriggers::STOPT) && self.flowing),
            quota(left(self.granted, self.limits.time_quota)),
            quota(left(self.granted, self.limits.validity)),
            quota(silent(self.limits.holding)),
            // the datapath sends an event; if it is lost, the reading is late but still happens
            self.remaining_volume().map(|_| MAX_UNREPORTED_S),
        ];
        all.into_iter().flatten().min()
    }

    /// Returns the number of octets, of both directions together, until the earliest volume-based
    /// action.
    pub(crate) fn remaining_volume(&self) -> Option<u64> {
        let left = |limits: Octets3, usage: Usage| {
            let (all, up, down) = limits;
            let left = |limit: Option<u64>, octets: u64| limit.map(|limit| limit.saturating_sub(octets).max(1));
            let each = [left(all, total(usage)), left(up, usage.uplink.octets), left(down, usage.downlink.octets)];
            each.into_iter().flatten().min()
        };
        let wants = |trigger| self.triggers.contains(trigger);
        let threshold = self.limits.volume.filter(|_| wants(ReportingTriggers::VOLTH));
        let quota = self.limits.volume_quota.filter(|_| !self.spent);
        let traffic = wants(ReportingTriggers::START) && !self.flowing;
        let some = |limit: Option<u64>| limit.filter(|limit| *limit > 0);
        let all = [
            threshold.and_then(|t| left((some(t.total), some(t.uplink), some(t.downlink)), self.counted)),
            quota.and_then(|q| left((q.total, q.uplink, q.downlink), self.used)),
            traffic.then_some(1),
        ];
        all.into_iter().flatten().min()
    }

    /// Returns true if the URR has a volume quota. Its packets are counted exactly, because they
    /// stop at an octet count.
    pub(crate) fn has_volume_quota(&self) -> bool {
        self.limits.volume_quota.is_some()
    }

    /// Returns the action for packets while a quota is exhausted.
    pub(crate) fn quota_action(&self) -> Option<QuotaAction> {
        self.spent.then_some(self.quota_far.map_or(QuotaAction::Drop, QuotaAction::Far))
    }

    /// Returns the limits of the datapath's meter, which shows `metered`.
    pub(crate) fn quota(&self, metered: Usage) -> Quota {
        let Some(quota) = self.limits.volume_quota.filter(|_| !self.spent) else {
            return Quota::default();
        };
        let until = |quota: Option<u64>, metered: u64, used: u64| {
            quota.map(|quota| metered.saturating_add(quota.saturating_sub(used)))
        };
        Quota {
            total: until(quota.total, total(metered), total(self.used)),
            uplink: until(quota.uplink, metered.uplink.octets, self.used.uplink.octets),
            downlink: until(quota.downlink, metered.downlink.octets, self.used.downlink.octets),
        }
    }

    /// Returns the triggers that require a report of a settled URR; none if zero.
    fn due(&mut self, now: u32) -> UsageReportTrigger {
        let limits = self.limits;
        let mut reason = UsageReportTrigger::default();
        let passed = |since: u32, limit: Option<u32>| limit.is_some_and(|limit| now.wrapping_sub(since) >= limit);
        let wants = |trigger| self.triggers.contains(trigger);
        let volume = limits.volume.map(|t| (t.total, t.uplink, t.downlink));
        if wants(ReportingTriggers::VOLTH) && is_threshold_reached(volume, self.counted) {
            reason = reason | UsageReportTrigger::VOLTH;
        }
        if wants(ReportingTriggers::TIMTH) && passed(self.since, limits.time.filter(|time| *time > 0)) {
            reason = reason | UsageReportTrigger::TIMTH;
        }
        if wants(ReportingTriggers::PERIO) && passed(self.since, limits.period) {
            reason = reason | UsageReportTrigger::PERIO;
        }
        if wants(ReportingTriggers::START) && !self.flowing && self.passed {
            reason = reason | UsageReportTrigger::START;
        }
        if wants(ReportingTriggers::STOPT) && self.flowing && passed(self.active, limits.inactivity) {
            reason = reason | UsageReportTrigger::STOPT;
        }
        if !self.spent {
            let quota = limits.volume_quota.map(|q| (q.total, q.uplink, q.downlink));
            let causes = [
                (is_quota_exhausted(quota, self.used), ReportingTriggers::VOLQU, UsageReportTrigger::VOLQU),
                (passed(self.granted, limits.time_quota), ReportingTriggers::TIMQU, UsageReportTrigger::TIMQU),
                (passed(self.granted, limits.validity), ReportingTriggers::QUVTI, UsageReportTrigger::QUVTI),
                (passed(self.active, limits.holding), ReportingTriggers::QUHTI, UsageReportTrigger::QUHTI),
            ];
            for (happened, trigger, told) in causes {
                self.spent |= happened;
                if happened && self.triggers.contains(trigger) {
                    reason = reason | told;
                }
            }
        }
        self.flowing = !reason.contains(UsageReportTrigger::STOPT) && (self.flowing || self.passed);
        reason
    }
}

/// Action for the packets of a URR whose quota is exhausted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum QuotaAction {
    Drop,
    /// Apply this FAR (FAR ID for Quota Action).
    Far(u32),
}

/// Maximum time between readings in seconds, in case an event of the datapath is lost.
const MAX_UNREPORTED_S: u32 = 60;

/// Returns the interval of readings that detect the absence of packets for `limit`, in seconds.
/// Detection may be late by that much.
pub(crate) fn step(limit: Option<u32>) -> u32 {
    limit.map_or(u32::MAX, |limit| (limit / 8).max(1))
}

type Octets3 = (Option<u64>, Option<u64>, Option<u64>);

/// Returns true if one of the thresholds is reached; 0 is no threshold.
fn is_threshold_reached(limits: Option<Octets3>, usage: Usage) -> bool {
    limits.is_some_and(|(all, up, down)| {
        let over = |limit: Option<u64>, octets: u64| limit.is_some_and(|limit| limit > 0 && octets >= limit);
        over(all, total(usage)) || over(up, usage.uplink.octets) || over(down, usage.downlink.octets)
    })
}

/// Returns true if one of the quotas is exhausted; 0 is an empty quota.
fn is_quota_exhausted(limits: Option<Octets3>, usage: Usage) -> bool {
    limits.is_some_and(|(all, up, down)| {
        let over = |limit: Option<u64>, octets: u64| limit.is_some_and(|limit| octets >= limit);
        over(all, total(usage)) || over(up, usage.uplink.octets) || over(down, usage.downlink.octets)
    })
}

fn total(usage: Usage) -> u64 {
    usage.uplink.octets + usage.downlink.octets
}

/// Refuses a monitoring time: thresholds that change within a measurement are unsupported.
fn check_monitoring(time: Option<MonitoringTime>) -> Result<(), Refused> {
    time.map_or(Ok(()), |_| Err(Refused::unsupported(MonitoringTime::ID)))
}

/// Refuses a measurement that is inactive at times (INAM, TS 29.244 8.2.68), and flags of later
/// releases. MBQE has no effect: packets are measured after QoS enforcement.
fn check_information(information: Option<MeasurementInformation>, urr: UrrId) -> Result<(), Refused> {
    use MeasurementInformation as Flag;
    let accepted = Flag::MBQE | Flag::RADI | Flag::ISTM | Flag::MNOP;
    match information.is_none_or(|flags| accepted.contains(flags)) {
        true => Ok(()),
        false => Err(Refused::named(Cause::SERVICE_NOT_SUPPORTED, Flag::ID, FailedRuleId::Urr(urr.0))),
    }
}

/// Maximum uncertainty of a packet time that is reported, in seconds.
const KNOWN: u32 = 2;

/// Brings the measurement of `urr` up to date. `pdrs` and `records` are those in effect until
/// `now`.
pub(crate) fn settle(urr: &mut Urr, tables: &Tables, session: u64, pdrs: &[Pdr], records: &SessionEntries, now: u32) {
    let carried = records.usage(tables, session, pdrs, urr.id);
    let add = |counted: &mut Volume, carried: Volume, base: Volume| {
        counted.packets += carried.packets.saturating_sub(base.packets);
        counted.octets += carried.octets.saturating_sub(base.octets);
    };
    for sum in [&mut urr.counted, &mut urr.used] {
        add(&mut sum.uplink, carried.uplink, urr.base.uplink);
        add(&mut sum.downlink, carried.downlink, urr.base.downlink);
    }
    if carried != urr.base {
        let known = now.wrapping_sub(urr.read_at) <= KNOWN;
        if !urr.passed {
            urr.first_packet = known.then_some(now);
        }
        urr.last_packet = known.then_some(now);
        (urr.passed, urr.active) = (true, now);
    }
    (urr.base, urr.read_at) = (carried, now);
}

/// Continues counting from the present counters of the entries.
pub(crate) fn rebase(rules: &mut Rules, tables: &Tables, session: u64, records: &SessionEntries) {
    for n in 0..rules.urrs.len() {
        rules.urrs[n].base = records.usage(tables, session, &rules.pdrs, rules.urrs[n].id);
    }
}

/// Returns the report of a settled URR and starts a new measurement. `now` is in seconds since
/// 1900.
pub(crate) fn report(urr: &mut Urr, trigger: UsageReportTrigger, now: u32) -> UsageReport {
    let Usage { uplink, downlink } = std::mem::take(&mut urr.counted);
    let since = std::mem::replace(&mut urr.since, now);
    let sequence = urr.sequence;
    urr.sequence = sequence.wrapping_add(1);
    urr.passed = false;
    let packets = |n: u64| urr.packets.then_some(n);
    let volume = urr.method.contains(MeasurementMethod::VOLUM).then(|| VolumeMeasurement {
        total: Some(uplink.octets + downlink.octets),
        uplink: Some(uplink.octets),
        downlink: Some(downlink.octets),
        total_packets: packets(uplink.packets + downlink.packets),
        uplink_packets: packets(uplink.packets),
        downlink_packets: packets(downlink.packets),
    });
    let duration = urr.method.contains(MeasurementMethod::DURAT);
    UsageReport {
        urr_id: UrrId(urr.id),
        ur_seqn: UrSeqn(sequence),
        trigger,
        start_time: Some(StartTime(since)),
        end_time: Some(EndTime(now)),
        volume,
        duration: duration.then(|| DurationMeasurement(now.wrapping_sub(since))),
        time_of_first_packet: urr.first_packet.take().map(TimeOfFirstPacket),
        time_of_last_packet: urr.last_packet.take().map(TimeOfLastPacket),
        ..UsageReport::default()
    }
}

/// Returns the due reports of settled URRs, including those of linked URRs. The second value is
/// true if a quota has become exhausted, which changes the treatment of packets.
pub(crate) fn due_reports(urrs: &mut [Urr], now: u32) -> (Vec<UsageReport>, bool) {
    let before = urrs.iter().filter(|urr| urr.spent).count();
    let mut reason: SmallVec<[UsageReportTrigger; 4]> = urrs.iter_mut().map(|urr| urr.due(now)).collect();
    let due: SmallVec<[u32; 4]> =
        urrs.iter().zip(&reason).filter(|(_, reason)| reason.0 != 0).map(|(urr, _)| urr.id).collect();
    for (urr, reason) in urrs.iter().zip(&mut reason) {
        if urr.triggers.contains(ReportingTriggers::LIUSA) && urr.linked.iter().any(|id| due.contains(id)) {
            *reason = *reason | UsageReportTrigger::LIUSA;
        }
    }
    let spent = urrs.iter().filter(|urr| urr.spent).count() != before;
    let reporting = urrs.iter_mut().zip(reason).filter(|(_, reason)| reason.0 != 0);
    (reporting.map(|(urr, reason)| report(urr, reason, now)).collect(), spent)
}
