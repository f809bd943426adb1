//! What a session carries, as its UPFs report it (TS 29.244 5.2.2), and its quota: the sum over all UPFs that it has been
//! at. Nothing of it is asked for where the slice wants neither.
//!
//! A UPF holds a session to what it was granted. When that is used up it says so, and gets what is left of the quota. A
//! session that goes to another UPF divides what is left: a part stays for what is on its way through the source, and the
//! target gets the rest, so that both together never carry more.

use super::context::{N4State, SmContext, Stage};
use super::{Output, n4};
use crate::Env;
use crate::config::{Charging, CoreConfig};
use serde::{Deserialize, Serialize};
use vireo_wire::pfcp::*;

/// The only URR of a session.
pub(super) const URR: UrrId = UrrId(1);

/// What a session has carried, in octets of user packets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Usage {
    /// From the UE.
    pub uplink: u64,
    /// To the UE.
    pub downlink: u64,
    /// What the UPF was granted is used up.
    pub spent: bool,
    /// The request that is outstanding at the UPF is about charging and nothing else.
    pub asked: bool,
}

/// What is said of charging where a session is set up.
pub(super) fn of(sm: &SmContext, config: &CoreConfig) -> Option<Charging> {
    config.charging(sm.snssai).filter(Charging::is_on)
}

/// How much of the quota is left, as far as reported; `None` without one.
pub(super) fn quota_remaining(sm: &SmContext, config: &CoreConfig) -> Option<u64> {
    let quota = of(sm, config)?.quota?;
    Some(quota.saturating_sub(sm.usage.uplink.saturating_add(sm.usage.downlink)))
}

/// Create URR, granting this much.
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

/// A quota of both directions together.
pub(super) fn quota(octets: u64) -> VolumeQuota {
    VolumeQuota { total: Some(octets), uplink: None, downlink: None }
}

/// Adds up the usage reports of a message for the session; tells what they come to.
pub(super) fn add(sm: &mut SmContext, octets: &[u8], env: &Env<'_>, out: &mut Vec<Output>) {
    if of(sm, env.config).is_none() {
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

/// Grants what is left to a UPF that has used up what it had, as soon as nothing else is under way.
pub(super) fn proceed(sm: &mut SmContext, env: &Env<'_>, out: &mut Vec<Output>) {
    if !sm.usage.spent || sm.n4 != N4State::Told || sm.relocation.is_some() || sm.stage != Stage::Established {
        return;
    }
    sm.usage.spent = false;
    if let Some(octets) = quota_remaining(sm, env.config).filter(|octets| *octets > 0) {
        ask(sm, n4::charging_request(sm, Some(octets)), out);
    }
}

/// Sends a request about charging to the session's UPF.
pub(super) fn ask(sm: &mut SmContext, request: Output, out: &mut Vec<Output>) {
    sm.n4 = N4State::Telling { stale: false };
    sm.usage.asked = true;
    out.push(request);
}
