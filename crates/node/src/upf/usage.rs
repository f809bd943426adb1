//! Usage reports (TS 29.244 5.2.2.2): what a URR has counted, and when it says so.

use super::plan::Records;
use super::rules::{Rules, Urr, Usage};
use vireo_datapath::{Tables, Volume};
use vireo_wire::pfcp::*;

/// Brings what `urr` has counted up to date. `rules` and `records` are those that held until now.
pub(super) fn settle(urr: &mut Urr, tables: &Tables, rules: &Rules, records: &Records) {
    let carried = records.usage(tables, rules, urr.id);
    let add = |counted: &mut Volume, carried: Volume, base: Volume| {
        counted.packets += carried.packets.saturating_sub(base.packets);
        counted.octets += carried.octets.saturating_sub(base.octets);
    };
    add(&mut urr.counted.uplink, carried.uplink, urr.base.uplink);
    add(&mut urr.counted.downlink, carried.downlink, urr.base.downlink);
    urr.base = carried;
}

/// Counting goes on from what the records have carried now.
pub(super) fn rebase(rules: &mut Rules, tables: &Tables, records: &Records) {
    for n in 0..rules.urrs.len() {
        rules.urrs[n].base = records.usage(tables, rules, rules.urrs[n].id);
    }
}

/// The report of a settled URR, which begins anew. `now` is in seconds since 1900.
pub(super) fn report(urr: &mut Urr, trigger: UsageReportTrigger, now: u32) -> UsageReport {
    let Usage { uplink, downlink } = std::mem::take(&mut urr.counted);
    let since = std::mem::replace(&mut urr.since, now);
    let sequence = urr.sequence;
    urr.sequence = sequence.wrapping_add(1);
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
        ..UsageReport::default()
    }
}

/// Why a settled URR must report now, if it must.
pub(super) fn due(urr: &Urr, now: u32) -> Option<UsageReportTrigger> {
    let Usage { uplink, downlink } = urr.counted;
    let reached = |limit: Option<u64>, octets: u64| limit.is_some_and(|limit| limit > 0 && octets >= limit);
    let volume = urr.triggers.contains(ReportingTriggers::VOLTH)
        && urr.threshold.is_some_and(|threshold| {
            reached(threshold.total, uplink.octets + downlink.octets)
                || reached(threshold.uplink, uplink.octets)
                || reached(threshold.downlink, downlink.octets)
        });
    if volume {
        return Some(UsageReportTrigger::VOLTH);
    }
    let period = urr.period.filter(|_| urr.triggers.contains(ReportingTriggers::PERIO))?;
    (now.wrapping_sub(urr.since) >= period).then_some(UsageReportTrigger::PERIO)
}

/// Whether a URR reports by itself.
pub(super) fn reports_by_itself(urr: &Urr) -> bool {
    urr.triggers.0 != 0
}
