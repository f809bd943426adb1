//! URRs (TS 29.244 5.2.2): what they have counted, when they say so, and when nothing may pass any more.
//!
//! Volume is what records and meters of the datapath have carried. It is read when a request changes or ends them, when
//! a time is due ([`Urr::due_in`]), and when the datapath says that a threshold is near ([`Urr::volume_left`]): nothing is
//! read in vain. Volume quotas are held by the datapath to the packet. Time runs from the start of a measurement on,
//! with or without packets (as with ISTM), in whole seconds.

use super::compile::SessionEntries;
use super::persistence::{element, list, optional};
use super::rules::{Pdr, Refused, Rules};
use serde::{Deserialize, Serialize};
use smallvec::SmallVec;
use vireo_datapath::{Metered, Quota, Tables, Volume};
use vireo_wire::pfcp::*;

/// Volume of both directions.
pub(super) type Usage = Metered;

/// A URR and what it has counted.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Urr {
    pub(super) id: u32,
    #[serde(with = "element")]
    method: MeasurementMethod,
    #[serde(with = "element")]
    triggers: ReportingTriggers,
    /// Whether packets are reported beside octets.
    packets: bool,
    limits: Limits,
    /// URRs whose reports bring one of this too.
    #[serde(with = "list")]
    linked: SmallVec<[u32; 2]>,
    /// What is done with packets once a quota is used up; else they are dropped.
    quota_far: Option<u32>,
    /// The number of the next report.
    sequence: u32,
    /// Since when is counted, in seconds since 1900.
    since: u32,
    /// Counted since then, up to `base`.
    counted: Usage,
    /// What its records had carried when `counted` was last brought up to date. Those of another life begin with nothing.
    #[serde(skip)]
    base: Usage,
    /// Counted since the quota was given, and when that was.
    used: Usage,
    granted: u32,
    /// Of the packets since `since`.
    first_packet: Option<u32>,
    last_packet: Option<u32>,
    /// Whether there were any since then.
    passed: bool,
    /// When packets were last seen to have passed, or the measurement began; and when was last looked.
    active: u32,
    looked: u32,
    flowing: bool,
    /// A quota is used up, and no other was given.
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

/// The triggers that are served, with the element that each needs.
const SERVED: [(ReportingTriggers, u16); 10] = [
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
    /// `now` is in seconds since 1900.
    pub(super) fn new(ie: &CreateUrr, now: u32) -> Result<Self, Refused> {
        check_monitoring(ie.monitoring_time)?;
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
            looked: now,
            ..Urr::default()
        };
        urr.check().map(|()| urr)
    }

    pub(super) fn update(&mut self, ie: &UpdateUrr, now: u32) -> Result<(), Refused> {
        check_monitoring(ie.monitoring_time)?;
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
            // a new quota begins with nothing used of it
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

    /// A URR that asks for reports that are not sent, or does not say of how much, is refused: they would be missing
    /// without a word.
    fn check(&self) -> Result<(), Refused> {
        let limits = &self.limits;
        let known = SERVED.iter().fold(0, |all, (trigger, _)| all | trigger.0);
        if self.triggers.0 & !known != 0 || self.method.contains(MeasurementMethod::EVENT) {
            return Err(Refused::rule(FailedRuleId::Urr(self.id)));
        }
        for (trigger, element) in SERVED.iter().filter(|(trigger, _)| self.triggers.contains(*trigger)) {
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

    /// In how many seconds something of it happens by time at the earliest.
    pub(super) fn due_in(&self, now: u32) -> Option<u32> {
        let wants = |trigger| self.triggers.contains(trigger);
        let left = |since: u32, limit: Option<u32>| limit.map(|limit| limit.saturating_sub(now.wrapping_sub(since)));
        // whether packets still pass shows only when it is looked
        let silent = |limit: Option<u32>| left(self.active, limit).map(|left| left.min(step(limit)));
        let quota = |at: Option<u32>| at.filter(|_| !self.spent);
        let all = [
            left(self.since, self.limits.period).filter(|_| wants(ReportingTriggers::PERIO)),
            left(self.since, self.limits.time.filter(|time| *time > 0)).filter(|_| wants(ReportingTriggers::TIMTH)),
            silent(self.limits.inactivity).filter(|_| wants(ReportingTriggers::STOPT) && self.flowing),
            quota(left(self.granted, self.limits.time_quota)),
            quota(left(self.granted, self.limits.validity)),
            quota(silent(self.limits.holding)),
            // the datapath tells; should that be lost, this is late and not never
            self.volume_left().map(|_| UNTOLD),
        ];
        all.into_iter().flatten().min()
    }

    /// After how many octets of either direction together something of it may happen at the earliest.
    pub(super) fn volume_left(&self) -> Option<u64> {
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

    /// Whether its packets are counted to the octet, because they stop at one.
    pub(super) fn has_volume_quota(&self) -> bool {
        self.limits.volume_quota.is_some()
    }

    /// What is done with its packets now that a quota is used up.
    pub(super) fn quota_action(&self) -> Option<QuotaAction> {
        self.spent.then_some(self.quota_far.map_or(QuotaAction::Drop, QuotaAction::Far))
    }

    /// How far the datapath's meter, which shows `metered`, may go.
    pub(super) fn quota(&self, metered: Usage) -> Quota {
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

    /// Why a settled URR must report now, if it must.
    fn due(&mut self, now: u32) -> UsageReportTrigger {
        let limits = self.limits;
        let mut why = UsageReportTrigger::default();
        let passed = |since: u32, limit: Option<u32>| limit.is_some_and(|limit| now.wrapping_sub(since) >= limit);
        let wants = |trigger| self.triggers.contains(trigger);
        let volume = limits.volume.map(|t| (t.total, t.uplink, t.downlink));
        if wants(ReportingTriggers::VOLTH) && reached(volume, self.counted) {
            why = why | UsageReportTrigger::VOLTH;
        }
        if wants(ReportingTriggers::TIMTH) && passed(self.since, limits.time.filter(|time| *time > 0)) {
            why = why | UsageReportTrigger::TIMTH;
        }
        if wants(ReportingTriggers::PERIO) && passed(self.since, limits.period) {
            why = why | UsageReportTrigger::PERIO;
        }
        if wants(ReportingTriggers::START) && !self.flowing && self.passed {
            why = why | UsageReportTrigger::START;
        }
        if wants(ReportingTriggers::STOPT) && self.flowing && passed(self.active, limits.inactivity) {
            why = why | UsageReportTrigger::STOPT;
        }
        if !self.spent {
            let quota = limits.volume_quota.map(|q| (q.total, q.uplink, q.downlink));
            let causes = [
                (spent(quota, self.used), ReportingTriggers::VOLQU, UsageReportTrigger::VOLQU),
                (passed(self.granted, limits.time_quota), ReportingTriggers::TIMQU, UsageReportTrigger::TIMQU),
                (passed(self.granted, limits.validity), ReportingTriggers::QUVTI, UsageReportTrigger::QUVTI),
                (passed(self.active, limits.holding), ReportingTriggers::QUHTI, UsageReportTrigger::QUHTI),
            ];
            for (happened, trigger, told) in causes {
                self.spent |= happened;
                if happened && self.triggers.contains(trigger) {
                    why = why | told;
                }
            }
        }
        self.flowing = !why.contains(UsageReportTrigger::STOPT) && (self.flowing || self.passed);
        why
    }
}

/// What is done with the packets of a URR whose quota is used up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum QuotaAction {
    /// They are dropped.
    Drop,
    /// What this FAR says (FAR ID for Quota Action).
    Far(u32),
}

/// How often it is looked at the latest where the datapath should have told: a report that comes late is not missed.
const UNTOLD: u32 = 60;

/// How often it is looked whether packets have passed, of a time after which it matters that none have: that much
/// later it may be noticed, in seconds.
pub(super) fn step(limit: Option<u32>) -> u32 {
    limit.map_or(u32::MAX, |limit| (limit / 8).max(1))
}

type Octets3 = (Option<u64>, Option<u64>, Option<u64>);

/// Whether one of these is reached; 0 is no threshold.
fn reached(limits: Option<Octets3>, usage: Usage) -> bool {
    limits.is_some_and(|(all, up, down)| {
        let over = |limit: Option<u64>, octets: u64| limit.is_some_and(|limit| limit > 0 && octets >= limit);
        over(all, total(usage)) || over(up, usage.uplink.octets) || over(down, usage.downlink.octets)
    })
}

/// The same of a quota, of which 0 is nothing.
fn spent(limits: Option<Octets3>, usage: Usage) -> bool {
    limits.is_some_and(|(all, up, down)| {
        let over = |limit: Option<u64>, octets: u64| limit.is_some_and(|limit| octets >= limit);
        over(all, total(usage)) || over(up, usage.uplink.octets) || over(down, usage.downlink.octets)
    })
}

fn total(usage: Usage) -> u64 {
    usage.uplink.octets + usage.downlink.octets
}

/// Thresholds that change in the middle of a measurement are not served.
fn check_monitoring(time: Option<MonitoringTime>) -> Result<(), Refused> {
    time.map_or(Ok(()), |_| Err(Refused::unsupported(MonitoringTime::ID)))
}

/// The time of a packet is told if it is known so well, in seconds.
const KNOWN: u32 = 2;

/// Brings what `urr` has counted up to date. `pdrs` and `records` are those that held until now.
pub(super) fn settle(urr: &mut Urr, tables: &Tables, session: u64, pdrs: &[Pdr], records: &SessionEntries, now: u32) {
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
        let known = now.wrapping_sub(urr.looked) <= KNOWN;
        if !urr.passed {
            urr.first_packet = known.then_some(now);
        }
        urr.last_packet = known.then_some(now);
        (urr.passed, urr.active) = (true, now);
    }
    (urr.base, urr.looked) = (carried, now);
}

/// Counting goes on from what the records have carried now.
pub(super) fn rebase(rules: &mut Rules, tables: &Tables, session: u64, records: &SessionEntries) {
    for n in 0..rules.urrs.len() {
        rules.urrs[n].base = records.usage(tables, session, &rules.pdrs, rules.urrs[n].id);
    }
}

/// The report of a settled URR, which begins anew. `now` is in seconds since 1900.
pub(super) fn report(urr: &mut Urr, trigger: UsageReportTrigger, now: u32) -> UsageReport {
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

/// The reports that settled URRs must give now, those of linked ones among them; and whether a quota has been used up,
/// so that other things become of packets.
pub(super) fn due_reports(urrs: &mut [Urr], now: u32) -> (Vec<UsageReport>, bool) {
    let before = urrs.iter().filter(|urr| urr.spent).count();
    let mut why: SmallVec<[UsageReportTrigger; 4]> = urrs.iter_mut().map(|urr| urr.due(now)).collect();
    let due: SmallVec<[u32; 4]> = urrs.iter().zip(&why).filter(|(_, why)| why.0 != 0).map(|(urr, _)| urr.id).collect();
    for (urr, why) in urrs.iter().zip(&mut why) {
        if urr.triggers.contains(ReportingTriggers::LIUSA) && urr.linked.iter().any(|id| due.contains(id)) {
            *why = *why | UsageReportTrigger::LIUSA;
        }
    }
    let spent = urrs.iter().filter(|urr| urr.spent).count() != before;
    let reporting = urrs.iter_mut().zip(why).filter(|(_, why)| why.0 != 0);
    (reporting.map(|(urr, why)| report(urr, why, now)).collect(), spent)
}
