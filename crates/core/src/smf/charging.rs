//! Usage and quota of a PDU session, as reported by its UPFs (TS 29.244 5.2.2).
//!
//! Both are sums over all UPFs that the session has used. A slice without charging and quota
//! requests no reports.
//!
//! A UPF limits a session to its granted volume. When that is used up, the UPF reports it and is
//! granted the rest of the quota. A relocation divides the rest of the quota. One part remains for
//! packets in transit through the source, and the target gets the other part, so that both together
//! never exceed the quota.

use super::context::{N4State, SmContext, Stage};
use super::interface::Output;
use super::n4;
use crate::Env;
use crate::config::{Charging, CoreConfig};
use vireo_wire::pfcp::*;

/// URR ID of the only URR of a session.
pub(super) const URR: UrrId = UrrId(1);

/// Returns the charging settings of the session's slice, if any.
pub(super) fn settings(sm: &SmContext, config: &CoreConfig) -> Option<Charging> {
    config.charging(sm.terms.snssai).filter(Charging::is_on)
}

/// Returns the remaining quota in octets, as far as reported; `None` without a quota.
pub(super) fn quota_remaining(sm: &SmContext, config: &CoreConfig) -> Option<u64> {
    let quota = settings(sm, config)?.quota?;
    Some(quota.saturating_sub(sm.usage.uplink.saturating_add(sm.usage.downlink)))
}

/// Writes a Create URR that grants this volume.
pub(super) fn create(rule: &mut Builder<'_>, charging: &Charging, grant: Option<u64>) {
    let mut triggers = ReportingTriggers::default();
    rule.put(&URR).put(&MeasurementMethod::VOLUM);
    if charging.every_s > 0 {
        triggers = triggers | ReportingTriggers::PERIO;
    }
    if grant.is_some() {
        triggers = triggers | ReportingTriggers::VOLQU;
    }
    rule.put(&triggers);
    if charging.every_s > 0 {
        rule.put(&MeasurementPeriod(charging.every_s));
    }
    if let Some(octets) = grant {
        rule.put(&quota(octets));
    }
}

/// Returns a volume quota for both directions together.
pub(super) fn quota(octets: u64) -> VolumeQuota {
    VolumeQuota { total: Some(octets), uplink: None, downlink: None }
}

/// Adds the usage reports of a message to the session, and outputs the sum.
pub(super) fn add(sm: &mut SmContext, octets: &[u8], env: &Env<'_>, out: &mut Vec<Output>) {
    if settings(sm, env.config).is_none() {
        return;
    }
    let Ok(message) = Message::new(octets) else { return };
    let (mut uplink, mut downlink) = (0u64, 0u64);
    for ie in message.ies().map_while(Result::ok) {
        let report = match ie.id {
            UsageReport::ID | UsageReportInModification::ID | UsageReportInDeletion::ID => {
                ie.read::<UsageReport>().ok()
            }
            _ => None,
        };
        let Some(report) = report.filter(|report| report.urr_id == URR) else { continue };
        if let Some(volume) = report.volume {
            uplink = uplink.saturating_add(volume.uplink.unwrap_or(0));
            downlink = downlink.saturating_add(volume.downlink.unwrap_or(0));
        }
        sm.usage.spent |= report.trigger.contains(UsageReportTrigger::VOLQU);
    }
    if (uplink, downlink) != (0, 0) {
        sm.usage.uplink = sm.usage.uplink.saturating_add(uplink);
        sm.usage.downlink = sm.usage.downlink.saturating_add(downlink);
        out.push(Output::UsageReported { uplink, downlink });
    }
}

/// Grants the rest of the quota to a UPF that has used up its volume, once no other request is
/// outstanding.
pub(super) fn proceed(sm: &mut SmContext, env: &Env<'_>, out: &mut Vec<Output>) {
    if !sm.usage.spent || sm.n4 != N4State::Synced || sm.relocation.is_some() || sm.stage != Stage::Established {
        return;
    }
    sm.usage.spent = false;
    if let Some(octets) = quota_remaining(sm, env.config).filter(|octets| *octets > 0) {
        send_request(sm, n4::charging_request(sm, Some(octets)), out);
    }
}

/// Sends a charging request to the session's UPF.
pub(super) fn send_request(sm: &mut SmContext, request: Output, out: &mut Vec<Output>) {
    sm.n4 = N4State::Updating { stale: false };
    sm.usage.is_requested = true;
    out.push(request);
}
