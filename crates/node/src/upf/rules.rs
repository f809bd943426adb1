//! The rules of one session as PFCP has them (TS 29.244 5.2), read, checked and changed. What they mean for packets is
//! in `plan`.

use smallvec::SmallVec;
use std::net::IpAddr;
use vireo_datapath::{ALL_FLOWS, Tunnel, Volume};
use vireo_types::{SessionAddress, Teid};
use vireo_wire::pfcp::*;

/// Rules of one kind that a session may have.
const RULES: usize = 32;

/// Why a request is refused: what the response says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Refused {
    pub(super) error: Error,
    pub(super) rule: Option<FailedRuleId>,
}

impl From<Error> for Refused {
    fn from(error: Error) -> Self {
        Refused { error, rule: None }
    }
}

impl Refused {
    pub(super) const fn cause(cause: Cause) -> Self {
        Refused { error: Error { cause, offending_ie: None }, rule: None }
    }

    /// A rule that cannot be had (TS 29.244 table 7.5.3.1-1).
    pub(super) const fn rule(rule: FailedRuleId) -> Self {
        Refused { error: Error { cause: Cause::RULE_FAILURE, offending_ie: None }, rule: Some(rule) }
    }

    const fn unsupported(ie: u16) -> Self {
        Refused { error: Error { cause: Cause::SERVICE_NOT_SUPPORTED, offending_ie: Some(ie) }, rule: None }
    }
}

/// Where the packets of a PDR come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Matching {
    /// Uplink, by a tunnel, in these QoS flows (a bit each).
    Uplink { end: TunnelEnd, flows: u64 },
    /// Downlink, by the UE's address.
    Downlink,
}

/// Our end of a tunnel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TunnelEnd {
    /// It is to be chosen; the same CHOOSE ID gives the same end within one request.
    Wanted { ipv4: bool, ipv6: bool, id: Option<u8> },
    /// The control plane chose it.
    Given(Teid),
    /// We have chosen it.
    Ours { teid: Teid, ipv4: bool, ipv6: bool },
}

/// A PDR.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Pdr {
    pub(super) id: u16,
    pub(super) precedence: u32,
    pub(super) matching: Matching,
    pub(super) ue: SessionAddress,
    pub(super) far: u32,
    pub(super) qers: SmallVec<[u32; 2]>,
    pub(super) urrs: SmallVec<[u32; 2]>,
}

/// A FAR.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Far {
    pub(super) id: u32,
    pub(super) action: ApplyAction,
    pub(super) destination: Option<DestinationInterface>,
    pub(super) tunnel: Option<Tunnel>,
}

/// A QER.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Qer {
    pub(super) id: u32,
    pub(super) gate: GateStatus,
    pub(super) mbr: Option<Mbr>,
    pub(super) qfi: Option<u8>,
    pub(super) rqi: bool,
}

/// A URR and what it has counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Urr {
    pub(super) id: u32,
    pub(super) method: MeasurementMethod,
    pub(super) triggers: ReportingTriggers,
    /// Whether packets are reported beside octets.
    pub(super) packets: bool,
    pub(super) threshold: Option<VolumeThreshold>,
    /// Seconds.
    pub(super) period: Option<u32>,
    /// The number of the next report.
    pub(super) sequence: u32,
    /// Since when is counted, in seconds since 1900.
    pub(super) since: u32,
    /// Counted since then, up to `base`.
    pub(super) counted: Usage,
    /// What its records had carried when `counted` was last brought up to date.
    pub(super) base: Usage,
}

/// Volume of both directions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Usage {
    pub(super) uplink: Volume,
    pub(super) downlink: Volume,
}

/// All rules of a session.
#[derive(Clone, Debug, Default)]
pub(super) struct Rules {
    pub(super) pdrs: SmallVec<[Pdr; 2]>,
    pub(super) fars: SmallVec<[Far; 2]>,
    pub(super) qers: SmallVec<[Qer; 1]>,
    pub(super) urrs: SmallVec<[Urr; 1]>,
}

impl Rules {
    pub(super) fn far(&self, id: u32) -> Option<&Far> {
        self.fars.iter().find(|far| far.id == id)
    }

    pub(super) fn qer(&self, id: u32) -> Option<&Qer> {
        self.qers.iter().find(|qer| qer.id == id)
    }

    pub(super) fn create_pdr(&mut self, ie: &CreatePdr) -> Result<(), Refused> {
        let id = ie.pdr_id.0;
        let failed = Refused::rule(FailedRuleId::Pdr(id));
        if self.pdrs.iter().any(|pdr| pdr.id == id) {
            return Err(failed);
        }
        if !ie.activate_predefined_rules.is_empty() {
            return Err(Refused { error: Error { cause: Cause::UNKNOWN_PREDEFINED_RULE, ..failed.error }, ..failed });
        }
        if ie.activation_time.is_some() || ie.deactivation_time.is_some() {
            return Err(failed);
        }
        let (matching, ue) = matching(&ie.pdi, failed)?;
        if matches!(matching, Matching::Uplink { .. }) && !ie.outer_header_removal.is_some_and(|r| r.is_gtpu()) {
            return Err(Error::conditional_missing(OuterHeaderRemoval::ID).into());
        }
        let pdr = Pdr {
            id,
            precedence: ie.precedence.0,
            matching,
            ue,
            far: ie.far_id.ok_or(Error::conditional_missing(FarId::ID))?.0,
            qers: ie.qer_ids.iter().map(|id| id.0).collect(),
            urrs: ie.urr_ids.iter().map(|id| id.0).collect(),
        };
        push(&mut self.pdrs, pdr)
    }

    pub(super) fn update_pdr(&mut self, ie: &UpdatePdr) -> Result<(), Refused> {
        let failed = Refused::rule(FailedRuleId::Pdr(ie.pdr_id.0));
        if !ie.activate_predefined_rules.is_empty() || ie.activation_time.is_some() || ie.deactivation_time.is_some() {
            return Err(failed);
        }
        let pdr = self.pdrs.iter_mut().find(|pdr| pdr.id == ie.pdr_id.0).ok_or(failed)?;
        if let Some(pdi) = &ie.pdi {
            let (new, ue) = matching(pdi, failed)?;
            // the end we chose stays unless another is given
            pdr.matching = match (new, pdr.matching) {
                (
                    Matching::Uplink { end: TunnelEnd::Wanted { .. }, flows },
                    Matching::Uplink { end: end @ TunnelEnd::Ours { .. }, .. },
                ) => Matching::Uplink { end, flows },
                (
                    Matching::Uplink { end: TunnelEnd::Given(given), flows },
                    Matching::Uplink { end: end @ TunnelEnd::Ours { teid, .. }, .. },
                ) if given == teid => Matching::Uplink { end, flows },
                (new, _) => new,
            };
            pdr.ue = ue;
        }
        if let Some(precedence) = ie.precedence {
            pdr.precedence = precedence.0;
        }
        if let Some(far) = ie.far_id {
            pdr.far = far.0;
        }
        if !ie.qer_ids.is_empty() {
            pdr.qers = ie.qer_ids.iter().map(|id| id.0).collect();
        }
        if !ie.urr_ids.is_empty() {
            pdr.urrs = ie.urr_ids.iter().map(|id| id.0).collect();
        }
        Ok(())
    }

    pub(super) fn remove_pdr(&mut self, ie: &RemovePdr) -> Result<(), Refused> {
        remove(&mut self.pdrs, |pdr| pdr.id == ie.pdr_id.0, FailedRuleId::Pdr(ie.pdr_id.0)).map(drop)
    }

    pub(super) fn create_far(&mut self, ie: &CreateFar) -> Result<(), Refused> {
        let id = ie.far_id.0;
        if self.far(id).is_some() {
            return Err(Refused::rule(FailedRuleId::Far(id)));
        }
        let parameters = ie.forwarding_parameters.as_ref();
        let far = Far {
            id,
            action: action(ie.apply_action, id)?,
            destination: parameters.map(|parameters| parameters.destination_interface),
            tunnel: tunnel(parameters.and_then(|p| p.outer_header_creation.as_ref()), id)?,
        };
        push(&mut self.fars, far)
    }

    pub(super) fn update_far(&mut self, ie: &UpdateFar) -> Result<(), Refused> {
        let id = ie.far_id.0;
        let failed = Refused::rule(FailedRuleId::Far(id));
        let far = self.fars.iter_mut().find(|far| far.id == id).ok_or(failed)?;
        if let Some(apply) = ie.apply_action {
            far.action = action(apply, id)?;
        }
        if let Some(parameters) = &ie.update_forwarding_parameters {
            far.destination = parameters.destination_interface.or(far.destination);
            far.tunnel = tunnel(parameters.outer_header_creation.as_ref(), id)?.or(far.tunnel);
        }
        Ok(())
    }

    pub(super) fn remove_far(&mut self, ie: &RemoveFar) -> Result<(), Refused> {
        remove(&mut self.fars, |far| far.id == ie.far_id.0, FailedRuleId::Far(ie.far_id.0)).map(drop)
    }

    pub(super) fn create_qer(&mut self, ie: &CreateQer) -> Result<(), Refused> {
        let id = ie.qer_id.0;
        if self.qer(id).is_some() {
            return Err(Refused::rule(FailedRuleId::Qer(id)));
        }
        let qer = Qer {
            id,
            gate: ie.gate_status,
            mbr: ie.mbr,
            qfi: ie.qfi.map(|qfi| qfi.0),
            rqi: ie.rqi.is_some_and(|rqi| rqi.0 != 0),
        };
        push(&mut self.qers, qer)
    }

    pub(super) fn update_qer(&mut self, ie: &UpdateQer) -> Result<(), Refused> {
        let failed = Refused::rule(FailedRuleId::Qer(ie.qer_id.0));
        let qer = self.qers.iter_mut().find(|qer| qer.id == ie.qer_id.0).ok_or(failed)?;
        qer.gate = ie.gate_status.unwrap_or(qer.gate);
        qer.mbr = ie.mbr.or(qer.mbr);
        qer.qfi = ie.qfi.map(|qfi| qfi.0).or(qer.qfi);
        qer.rqi = ie.rqi.map_or(qer.rqi, |rqi| rqi.0 != 0);
        Ok(())
    }

    pub(super) fn remove_qer(&mut self, ie: &RemoveQer) -> Result<(), Refused> {
        remove(&mut self.qers, |qer| qer.id == ie.qer_id.0, FailedRuleId::Qer(ie.qer_id.0)).map(drop)
    }

    /// `since` is the time now, in seconds since 1900.
    pub(super) fn create_urr(&mut self, ie: &CreateUrr, since: u32) -> Result<(), Refused> {
        let failed = Refused::rule(FailedRuleId::Urr(ie.urr_id.0));
        let quota = ie.volume_quota.is_some() || ie.time_quota.is_some() || ie.time_threshold.is_some();
        if quota || self.urrs.iter().any(|urr| urr.id == ie.urr_id.0) {
            return Err(failed);
        }
        let information = ie.measurement_information.unwrap_or_default();
        let urr = Urr {
            id: ie.urr_id.0,
            method: ie.measurement_method,
            triggers: ie.reporting_triggers,
            packets: information.contains(MeasurementInformation::MNOP),
            threshold: ie.volume_threshold,
            period: ie.measurement_period.map(|period| period.0),
            sequence: 0,
            since,
            counted: Usage::default(),
            base: Usage::default(),
        };
        push(&mut self.urrs, check_triggers(urr).ok_or(failed)?)
    }

    pub(super) fn update_urr(&mut self, ie: &UpdateUrr) -> Result<(), Refused> {
        let failed = Refused::rule(FailedRuleId::Urr(ie.urr_id.0));
        if ie.volume_quota.is_some() || ie.time_quota.is_some() || ie.time_threshold.is_some() {
            return Err(failed);
        }
        let urr = self.urrs.iter_mut().find(|urr| urr.id == ie.urr_id.0).ok_or(failed)?;
        urr.method = ie.measurement_method.unwrap_or(urr.method);
        urr.triggers = ie.reporting_triggers.unwrap_or(urr.triggers);
        urr.threshold = ie.volume_threshold.or(urr.threshold);
        urr.period = ie.measurement_period.map(|period| period.0).or(urr.period);
        if let Some(information) = ie.measurement_information {
            urr.packets = information.contains(MeasurementInformation::MNOP);
        }
        check_triggers(*urr).map(drop).ok_or(failed)
    }

    /// Takes the URR out; its last report is the caller's.
    pub(super) fn remove_urr(&mut self, ie: &RemoveUrr) -> Result<Urr, Refused> {
        remove(&mut self.urrs, |urr| urr.id == ie.urr_id.0, FailedRuleId::Urr(ie.urr_id.0))
    }
}

fn push<T, const N: usize>(rules: &mut SmallVec<[T; N]>, rule: T) -> Result<(), Refused>
where
    [T; N]: smallvec::Array<Item = T>,
{
    if rules.len() >= RULES {
        return Err(Refused::cause(Cause::NO_RESOURCES));
    }
    rules.push(rule);
    Ok(())
}

fn remove<T, const N: usize>(
    rules: &mut SmallVec<[T; N]>,
    is: impl Fn(&T) -> bool,
    id: FailedRuleId,
) -> Result<T, Refused>
where
    [T; N]: smallvec::Array<Item = T>,
{
    let position = rules.iter().position(is).ok_or(Refused::rule(id))?;
    Ok(rules.remove(position))
}

/// Reads a PDI as far as this UPF serves it; what it does not serve refuses the rule, because a rule read in part would
/// match what it should not.
fn matching(pdi: &Pdi, failed: Refused) -> Result<(Matching, SessionAddress), Refused> {
    if pdi.application_id.is_some() {
        return Err(Refused { error: Error { cause: Cause::UNKNOWN_APPLICATION, ..failed.error }, ..failed });
    }
    if !pdi.traffic_endpoint_ids.is_empty() {
        return Err(Refused::unsupported(TrafficEndpointId::ID));
    }
    let framed = !pdi.framed_routes.is_empty() || !pdi.framed_ipv6_routes.is_empty();
    if framed || !pdi.sdf_filters.iter().all(matches_everything) {
        return Err(failed);
    }
    let ue = ue_address(&pdi.ue_ip_addresses)?;
    match pdi.source_interface {
        SourceInterface::ACCESS => {
            let end = match pdi.f_teid.ok_or(Error::conditional_missing(FTeid::ID))? {
                FTeid::Choose { ipv4, ipv6, id } => TunnelEnd::Wanted { ipv4, ipv6, id },
                FTeid::Given { teid, .. } => TunnelEnd::Given(teid),
            };
            let flows = pdi.qfis.iter().fold(0, |flows, qfi| flows | 1_u64 << (qfi.0 & 0x3f));
            let flows = if pdi.qfis.is_empty() { ALL_FLOWS } else { flows };
            Ok((Matching::Uplink { end, flows }, ue))
        }
        SourceInterface::CORE | SourceInterface::N6_LAN if pdi.f_teid.is_none() => {
            if ue == SessionAddress::default() {
                return Err(Error::conditional_missing(UeIpAddress::ID).into());
            }
            Ok((Matching::Downlink, ue))
        }
        _ => Err(failed),
    }
}

fn ue_address(ies: &[UeIpAddress]) -> Result<SessionAddress, Refused> {
    let mut ue = SessionAddress::default();
    for ie in ies {
        // none of these was announced in the UP Function Features
        if ie.choose_ipv4 || ie.choose_ipv6 || ie.delegation_bits.is_some() || ie.prefix_length.is_some_and(|l| l != 64)
        {
            return Err(Refused::unsupported(UeIpAddress::ID));
        }
        let prefix = ie.ipv6.map(|v6| std::net::Ipv6Addr::from_bits(v6.to_bits() >> 64 << 64));
        ue = SessionAddress { ipv4: ie.ipv4.or(ue.ipv4), ipv6_prefix: prefix.or(ue.ipv6_prefix) };
    }
    Ok(ue)
}

/// Whether a filter is the one that every packet passes (TS 29.212 5.4.2).
fn matches_everything(filter: &SdfFilter) -> bool {
    let Some(description) = filter.flow_description.as_ref().and_then(|text| text.as_str()) else {
        return false;
    };
    let only = filter.traffic_class.is_none() && filter.spi.is_none() && filter.flow_label.is_none();
    let words: SmallVec<[&str; 8]> = description.split_ascii_whitespace().collect();
    only && matches!(words[..], ["permit", "out" | "in", "ip", "from", "any", "to", "assigned" | "any"])
}

/// What a FAR may say here: exactly one of drop, forward and buffer.
fn action(action: ApplyAction, far: u32) -> Result<ApplyAction, Refused> {
    let kinds = [ApplyAction::DROP, ApplyAction::FORW, ApplyAction::BUFF];
    let one = kinds.into_iter().filter(|kind| action.contains(*kind)).count() == 1;
    if one && !action.contains(ApplyAction::DUPL) { Ok(action) } else { Err(Refused::rule(FailedRuleId::Far(far))) }
}

fn tunnel(ie: Option<&OuterHeaderCreation>, far: u32) -> Result<Option<Tunnel>, Refused> {
    let Some(ie) = ie else { return Ok(None) };
    let usable = ie.teid.zip(ie.peer()).filter(|(_, address): &(Teid, IpAddr)| !address.is_unspecified());
    let (teid, address) = usable.ok_or(Refused::rule(FailedRuleId::Far(far)))?;
    Ok(Some(Tunnel { teid, address }))
}

/// Reports are sent when a volume or a period is reached, on demand and at the end; a URR that asks for others, or does
/// not say how much, is refused: its reports would be missing without a word.
fn check_triggers(urr: Urr) -> Option<Urr> {
    let served = ReportingTriggers::VOLTH | ReportingTriggers::PERIO;
    let volume = !urr.triggers.contains(ReportingTriggers::VOLTH) || urr.threshold.is_some();
    let period = !urr.triggers.contains(ReportingTriggers::PERIO) || urr.period.is_some_and(|seconds| seconds > 0);
    (urr.triggers.0 & !served.0 == 0 && volume && period).then_some(urr)
}
