//! The PFCP rules of one session (TS 29.244 5.2), parsed, checked and modified.
//!
//! `compile` translates them for the datapath.

use crate::machine::element_serde::{element, list, optional, optional_or_list};
use crate::machine::pdi::{Detection, detection};
use crate::machine::usage::Urr;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use smallvec::SmallVec;
use std::net::IpAddr;
use vireo_datapath::{Rate, Tunnel};
use vireo_types::{Teid, is_unicast};
use vireo_wire::pfcp::*;

/// Maximum number of rules of one kind in a session.
const RULES: usize = 32;

/// The reason to refuse a request, as the response contains it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Refused {
    pub(crate) error: Error,
    pub(crate) rule: Option<FailedRuleId>,
}

impl From<Error> for Refused {
    fn from(error: Error) -> Self {
        Refused { error, rule: None }
    }
}

impl Refused {
    pub(crate) const fn cause(cause: Cause) -> Self {
        Refused { error: Error { cause, offending_ie: None }, rule: None }
    }

    /// Returns the refusal of a rule that cannot be applied (TS 29.244 table 7.5.3.1-1).
    pub(crate) const fn rule(rule: FailedRuleId) -> Self {
        Refused { error: Error { cause: Cause::RULE_FAILURE, offending_ie: None }, rule: Some(rule) }
    }

    pub(crate) const fn unsupported(ie: u16) -> Self {
        Refused { error: Error { cause: Cause::SERVICE_NOT_SUPPORTED, offending_ie: Some(ie) }, rule: None }
    }

    /// Returns the refusal of a rule because of one of its elements.
    pub(crate) const fn named(cause: Cause, ie: u16, rule: FailedRuleId) -> Self {
        Refused { error: Error { cause, offending_ie: Some(ie) }, rule: Some(rule) }
    }
}

/// Source of the packets of a PDR.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Matching {
    /// From a tunnel, in these QoS flows (one bit each).
    Tunnel {
        end: TunnelEnd,
        flows: u64,
        #[serde(rename = "uplink")]
        packets: TunnelPackets,
    },
    /// From the data network, selected by the UE's address.
    Downlink,
}

/// Packets of a tunnel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TunnelPackets {
    /// True if they come from the access, false if from another UPF.
    pub(crate) from_access: bool,
    /// True if they lose their PDU Session Container (GTP-U Extension Header Deletion, TS 29.244
    /// 8.2.64).
    pub(crate) lose_container: bool,
}

/// Stored as a number of two bits. Release 0.2.0 has the boolean of the first bit, which has the
/// same octet in formats that are not readable.
impl Serialize for TunnelPackets {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        match self.lose_container {
            false => to.serialize_bool(self.from_access),
            true => to.serialize_u8(u8::from(self.from_access) | 2),
        }
    }
}

impl<'de> Deserialize<'de> for TunnelPackets {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(untagged)]
        enum Named {
            Boolean(bool),
            Bits(u8),
        }
        let bits = match from.is_human_readable() {
            true => Named::deserialize(from)?,
            false => Named::Bits(u8::deserialize(from)?),
        };
        let bits = match bits {
            Named::Boolean(from_access) => from_access.into(),
            Named::Bits(bits) => bits,
        };
        Ok(TunnelPackets { from_access: bits & 1 != 0, lose_container: bits & 2 != 0 })
    }
}

impl Matching {
    /// Sets how packets of a tunnel lose their headers.
    fn set_removal(&mut self, removal: OuterHeaderRemoval) {
        if let Matching::Tunnel { packets, .. } = self {
            let deletion = removal.extension_deletion.unwrap_or(0);
            packets.lose_container = deletion & OuterHeaderRemoval::PDU_SESSION_CONTAINER != 0;
        }
    }
}

/// The UPF's end of a tunnel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum TunnelEnd {
    /// To be allocated. The same CHOOSE ID selects the same end within one request.
    Choose { ipv4: bool, ipv6: bool, id: Option<u8> },
    /// Allocated by the control plane.
    ByControlPlane(Teid),
    /// Allocated by the UPF.
    Ours { teid: Teid, ipv4: bool, ipv6: bool },
}

/// A packet detection rule (PDR).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Pdr {
    pub(crate) id: u16,
    pub(crate) precedence: u32,
    pub(crate) detection: Detection,
    pub(crate) far: u32,
    #[serde(with = "list")]
    pub(crate) qers: SmallVec<[u32; 2]>,
    #[serde(with = "list")]
    pub(crate) urrs: SmallVec<[u32; 2]>,
}

/// A forwarding action rule (FAR).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Far {
    pub(crate) id: u32,
    #[serde(with = "element")]
    pub(crate) action: ApplyAction,
    #[serde(with = "optional")]
    pub(crate) destination: Option<DestinationInterface>,
    pub(crate) tunnel: Option<Tunnel>,
    pub(crate) bar: Option<u8>,
}

/// A QoS enforcement rule (QER). The GBR is not stored: the UPF never delays packets of other
/// sessions to guarantee a rate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Qer {
    pub(crate) id: u32,
    #[serde(with = "element")]
    pub(crate) gate: GateStatus,
    #[serde(with = "optional")]
    pub(crate) mbr: Option<Mbr>,
    pub(crate) qfi: Option<u8>,
    pub(crate) rqi: bool,
}

impl Far {
    pub(crate) fn forwards(&self) -> bool {
        self.action.contains(ApplyAction::FORW)
    }
}

impl Qer {
    /// Returns the maximum bit rate of a direction.
    pub(crate) fn rate(&self, uplink: bool) -> Rate {
        let kbps = |mbr: Mbr| if uplink { mbr.uplink_kbps } else { mbr.downlink_kbps };
        self.mbr.map_or(Rate::UNLIMITED, |mbr| Rate::from_kbps(kbps(mbr)))
    }
}

/// A buffering action rule (BAR).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Bar {
    pub(crate) id: u8,
    /// Delay of downlink data notifications, in units of 50 ms.
    pub(crate) delay: u8,
    /// Maximum number of buffered packets.
    pub(crate) packets: Option<u16>,
}

/// All rules of a session.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Rules {
    #[serde(with = "list")]
    pub(crate) pdrs: SmallVec<[Pdr; 2]>,
    #[serde(with = "list")]
    pub(crate) fars: SmallVec<[Far; 2]>,
    #[serde(with = "list")]
    pub(crate) qers: SmallVec<[Qer; 1]>,
    /// Allocated separately and exactly: a URR is as large as the rest of a session without URRs.
    #[serde(with = "list")]
    pub(crate) urrs: SmallVec<[Urr; 0]>,
    #[serde(rename = "bar", with = "optional_or_list")]
    pub(crate) bars: SmallVec<[Bar; 1]>,
}

impl Rules {
    pub(crate) fn far_by_id(&self, id: u32) -> Option<&Far> {
        self.fars.iter().find(|far| far.id == id)
    }

    pub(crate) fn qer(&self, id: u32) -> Option<&Qer> {
        self.qers.iter().find(|qer| qer.id == id)
    }

    pub(crate) fn bar(&self, id: u8) -> Option<&Bar> {
        self.bars.iter().find(|bar| bar.id == id)
    }

    /// Checks that each FAR names a BAR of the session, or none.
    pub(crate) fn check_bars(&self) -> Result<(), Refused> {
        let is_missing = |far: &&Far| far.bar.is_some_and(|id| self.bar(id).is_none());
        match self.fars.iter().find(is_missing) {
            None => Ok(()),
            Some(far) => Err(Refused::named(Cause::RULE_FAILURE, BarId::ID, FailedRuleId::Far(far.id))),
        }
    }

    pub(crate) fn create_pdr(&mut self, ie: &CreatePdr) -> Result<(), Refused> {
        let id = ie.pdr_id.0;
        let failed = Refused::rule(FailedRuleId::Pdr(id));
        if self.pdrs.iter().any(|pdr| pdr.id == id) {
            return Err(failed);
        }
        if !ie.activate_predefined_rules.is_empty() {
            return Err(Refused { error: Error { cause: Cause::UNKNOWN_PREDEFINED_RULE, ..failed.error }, ..failed });
        }
        check_times(ie.activation_time, ie.deactivation_time, ie.pdr_id)?;
        let mut detection = detection(&ie.pdi, self, failed)?;
        check_removal(ie.outer_header_removal, ie.pdr_id)?;
        if ie.outer_header_removal.is_none() && matches!(detection.matching, Matching::Tunnel { .. }) {
            return Err(Error::conditional_missing(OuterHeaderRemoval::ID).into());
        }
        ie.outer_header_removal.into_iter().for_each(|removal| detection.matching.set_removal(removal));
        let pdr = Pdr {
            id,
            precedence: ie.precedence.0,
            detection,
            far: ie.far_id.ok_or(Error::conditional_missing(FarId::ID))?.0,
            qers: few(&ie.qer_ids)?.iter().map(|id| id.0).collect(),
            urrs: few(&ie.urr_ids)?.iter().map(|id| id.0).collect(),
        };
        push(&mut self.pdrs, pdr)
    }

    pub(crate) fn update_pdr(&mut self, ie: &UpdatePdr) -> Result<(), Refused> {
        let failed = Refused::rule(FailedRuleId::Pdr(ie.pdr_id.0));
        if !ie.activate_predefined_rules.is_empty() || !ie.deactivate_predefined_rules.is_empty() {
            return Err(Refused { error: Error { cause: Cause::UNKNOWN_PREDEFINED_RULE, ..failed.error }, ..failed });
        }
        check_times(ie.activation_time, ie.deactivation_time, ie.pdr_id)?;
        check_removal(ie.outer_header_removal, ie.pdr_id)?;
        let new = ie.pdi.as_ref().map(|pdi| detection(pdi, self, failed)).transpose()?;
        let pdr = self.pdrs.iter_mut().find(|pdr| pdr.id == ie.pdr_id.0).ok_or(failed)?;
        if let Some(mut new) = new {
            if let Matching::Tunnel { packets: before, .. } = pdr.detection.matching
                && let Matching::Tunnel { packets, .. } = &mut new.matching
            {
                packets.lose_container = before.lose_container;
            }
            // the end that the UPF allocated stays unless the request contains another
            if let Matching::Tunnel { end: before @ TunnelEnd::Ours { teid, .. }, .. } = pdr.detection.matching
                && let Matching::Tunnel { end, .. } = &mut new.matching
                && (matches!(end, TunnelEnd::Choose { .. }) || *end == TunnelEnd::ByControlPlane(teid))
            {
                *end = before;
            }
            pdr.detection = new;
        }
        ie.outer_header_removal.into_iter().for_each(|removal| pdr.detection.matching.set_removal(removal));
        if let Some(precedence) = ie.precedence {
            pdr.precedence = precedence.0;
        }
        if let Some(far) = ie.far_id {
            pdr.far = far.0;
        }
        if !ie.qer_ids.is_empty() {
            pdr.qers = few(&ie.qer_ids)?.iter().map(|id| id.0).collect();
        }
        if !ie.urr_ids.is_empty() {
            pdr.urrs = few(&ie.urr_ids)?.iter().map(|id| id.0).collect();
        }
        Ok(())
    }

    pub(crate) fn remove_pdr(&mut self, ie: &RemovePdr) -> Result<(), Refused> {
        remove(&mut self.pdrs, |pdr| pdr.id == ie.pdr_id.0, FailedRuleId::Pdr(ie.pdr_id.0)).map(drop)
    }

    pub(crate) fn create_far(&mut self, ie: &CreateFar) -> Result<(), Refused> {
        let id = ie.far_id.0;
        if self.far_by_id(id).is_some() {
            return Err(Refused::rule(FailedRuleId::Far(id)));
        }
        let parameters = ie.forwarding_parameters.as_ref();
        let far = Far {
            id,
            action: action(ie.apply_action, id)?,
            destination: destination(parameters.map(|parameters| parameters.destination_interface), id)?,
            tunnel: tunnel(parameters.and_then(|p| p.outer_header_creation.as_ref()), id)?,
            bar: ie.bar_id.map(|bar| bar.0),
        };
        push(&mut self.fars, far)
    }

    pub(crate) fn update_far(&mut self, ie: &UpdateFar) -> Result<(), Refused> {
        let id = ie.far_id.0;
        let failed = Refused::rule(FailedRuleId::Far(id));
        let far = self.fars.iter_mut().find(|far| far.id == id).ok_or(failed)?;
        if let Some(apply) = ie.apply_action {
            far.action = action(apply, id)?;
        }
        far.bar = ie.bar_id.map(|bar| bar.0).or(far.bar);
        if let Some(parameters) = &ie.update_forwarding_parameters {
            far.destination = destination(parameters.destination_interface, id)?.or(far.destination);
            far.tunnel = tunnel(parameters.outer_header_creation.as_ref(), id)?.or(far.tunnel);
        }
        Ok(())
    }

    pub(crate) fn remove_far(&mut self, ie: &RemoveFar) -> Result<(), Refused> {
        remove(&mut self.fars, |far| far.id == ie.far_id.0, FailedRuleId::Far(ie.far_id.0)).map(drop)
    }

    pub(crate) fn create_qer(&mut self, ie: &CreateQer) -> Result<(), Refused> {
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

    pub(crate) fn update_qer(&mut self, ie: &UpdateQer) -> Result<(), Refused> {
        let failed = Refused::rule(FailedRuleId::Qer(ie.qer_id.0));
        let qer = self.qers.iter_mut().find(|qer| qer.id == ie.qer_id.0).ok_or(failed)?;
        qer.gate = ie.gate_status.unwrap_or(qer.gate);
        qer.mbr = ie.mbr.or(qer.mbr);
        qer.qfi = ie.qfi.map(|qfi| qfi.0).or(qer.qfi);
        qer.rqi = ie.rqi.map_or(qer.rqi, |rqi| rqi.0 != 0);
        Ok(())
    }

    pub(crate) fn remove_qer(&mut self, ie: &RemoveQer) -> Result<(), Refused> {
        remove(&mut self.qers, |qer| qer.id == ie.qer_id.0, FailedRuleId::Qer(ie.qer_id.0)).map(drop)
    }

    /// Creates a URR. `now` is in seconds since 1900.
    pub(crate) fn create_urr(&mut self, ie: &CreateUrr, now: u32) -> Result<(), Refused> {
        if self.urrs.iter().any(|urr| urr.id == ie.urr_id.0) {
            return Err(Refused::rule(FailedRuleId::Urr(ie.urr_id.0)));
        }
        push(&mut self.urrs, Urr::new(ie, now)?)
    }

    pub(crate) fn update_urr(&mut self, ie: &UpdateUrr, now: u32) -> Result<(), Refused> {
        let urr = self.urrs.iter_mut().find(|urr| urr.id == ie.urr_id.0);
        urr.ok_or(Refused::rule(FailedRuleId::Urr(ie.urr_id.0)))?.update(ie, now)
    }

    /// Removes the URR. The caller sends its last report.
    pub(crate) fn remove_urr(&mut self, ie: &RemoveUrr) -> Result<Urr, Refused> {
        remove(&mut self.urrs, |urr| urr.id == ie.urr_id.0, FailedRuleId::Urr(ie.urr_id.0))
    }
}

impl Rules {
    pub(crate) fn create_bar(&mut self, ie: &CreateBar) -> Result<(), Refused> {
        if self.bar(ie.bar_id.0).is_some() {
            return Err(Refused::rule(FailedRuleId::Bar(ie.bar_id.0)));
        }
        let bar = Bar {
            id: ie.bar_id.0,
            delay: ie.downlink_data_notification_delay.map_or(0, |delay| delay.0),
            packets: ie.suggested_buffering_packets_count.map(|count| count.0.into()),
        };
        push(&mut self.bars, bar)
    }

    pub(crate) fn update_bar(&mut self, ie: &UpdateBar) -> Result<(), Refused> {
        let count = ie.suggested_buffering_packets_count.map(|count| count.0.into());
        self.change_bar(ie.bar_id, ie.downlink_data_notification_delay, count)
    }

    /// Applies the buffering parameters in the response to a report.
    pub(crate) fn update_bar_in_report(&mut self, ie: &UpdateBarInReport) -> Result<(), Refused> {
        let suggested = ie.dl_buffering_suggested_packet_count.map(|count| count.0);
        let count = ie.suggested_buffering_packets_count.map(|count| count.0.into());
        self.change_bar(ie.bar_id, ie.downlink_data_notification_delay, suggested.or(count))
    }

    fn change_bar(
        &mut self,
        id: BarId,
        delay: Option<DownlinkDataNotificationDelay>,
        packets: Option<u16>,
    ) -> Result<(), Refused> {
        let bar = self.bars.iter_mut().find(|bar| bar.id == id.0).ok_or(Refused::rule(FailedRuleId::Bar(id.0)))?;
        bar.delay = delay.map_or(bar.delay, |delay| delay.0);
        bar.packets = packets.or(bar.packets);
        Ok(())
    }

    /// Removes a BAR. Its FARs have none then.
    pub(crate) fn remove_bar(&mut self, ie: &RemoveBar) -> Result<(), Refused> {
        let id = ie.bar_id.0;
        remove(&mut self.bars, |bar| bar.id == id, FailedRuleId::Bar(id))?;
        self.fars.iter_mut().filter(|far| far.bar == Some(id)).for_each(|far| far.bar = None);
        Ok(())
    }
}

/// Refuses a PDR that is active at times only (DPDRA, TS 29.244 8.2.25).
fn check_times(from: Option<ActivationTime>, to: Option<DeactivationTime>, pdr: PdrId) -> Result<(), Refused> {
    let offending_ie = match (from, to) {
        (None, None) => return Ok(()),
        (Some(_), _) => ActivationTime::ID,
        (None, Some(_)) => DeactivationTime::ID,
    };
    Err(Refused::named(Cause::SERVICE_NOT_SUPPORTED, offending_ie, FailedRuleId::Pdr(pdr.0)))
}

/// Refuses the removal of headers other than GTP-U.
fn check_removal(ie: Option<OuterHeaderRemoval>, pdr: PdrId) -> Result<(), Refused> {
    match ie {
        Some(removal) if !removal.is_gtpu() => {
            let (cause, rule) = (Cause::SERVICE_NOT_SUPPORTED, FailedRuleId::Pdr(pdr.0));
            Err(Refused::named(cause, OuterHeaderRemoval::ID, rule))
        }
        _ => Ok(()),
    }
}

/// Returns the IDs that a rule names, or an error if there are more than a session may have.
pub(crate) fn few<T>(named: &[T]) -> Result<&[T], Refused> {
    if named.len() > RULES { Err(Refused::cause(Cause::NO_RESOURCES)) } else { Ok(named) }
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

/// Checks the action of a FAR (TS 29.244 8.2.26): exactly one of DROP, FORW and BUFF, and NOCP with
/// BUFF only. Other flags belong to features that the UPF does not announce.
fn action(action: ApplyAction, far: u32) -> Result<ApplyAction, Refused> {
    let kinds = [ApplyAction::DROP, ApplyAction::FORW, ApplyAction::BUFF];
    let served = kinds.into_iter().fold(ApplyAction::NOCP, |all, kind| all | kind);
    let is_one = kinds.into_iter().filter(|kind| action.contains(*kind)).count() == 1;
    let notifies_in_vain = action.contains(ApplyAction::NOCP) && !action.contains(ApplyAction::BUFF);
    let cause = match action.0 & !served.0 {
        0 if is_one && !notifies_in_vain => return Ok(action),
        0 => Cause::RULE_FAILURE,
        _ => Cause::SERVICE_NOT_SUPPORTED,
    };
    Err(Refused::named(cause, ApplyAction::ID, FailedRuleId::Far(far)))
}

fn destination(ie: Option<DestinationInterface>, far: u32) -> Result<Option<DestinationInterface>, Refused> {
    use DestinationInterface as To;
    match ie {
        None | Some(To::ACCESS | To::CORE | To::N6_LAN | To::CP_FUNCTION) => Ok(ie),
        Some(_) => Err(Refused::named(Cause::SERVICE_NOT_SUPPORTED, To::ID, FailedRuleId::Far(far))),
    }
}

fn tunnel(ie: Option<&OuterHeaderCreation>, far: u32) -> Result<Option<Tunnel>, Refused> {
    let Some(ie) = ie else { return Ok(None) };
    let has_more = ie.teid.is_none() || ie.c_tag.is_some() || ie.s_tag.is_some() || ie.indications != 0;
    if has_more {
        let (cause, rule) = (Cause::SERVICE_NOT_SUPPORTED, FailedRuleId::Far(far));
        return Err(Refused::named(cause, OuterHeaderCreation::ID, rule));
    }
    let usable = ie.teid.zip(ie.peer()).filter(|(_, address): &(Teid, IpAddr)| is_unicast(*address));
    let (teid, address) = usable.ok_or(Refused::rule(FailedRuleId::Far(far)))?;
    Ok(Some(Tunnel { teid, address }))
}
