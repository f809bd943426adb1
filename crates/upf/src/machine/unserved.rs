//! Refusal of elements of features that the UPF does not announce (TS 29.244 8.2.25).
//!
//! The codecs skip the elements that they do not know, and so accept those of later releases. A
//! rule without such an element would do something else than the control plane expects. Requests
//! with one of the elements below are refused, and the response names the element and its rule.

use crate::machine::rules::Refused;
use vireo_wire::pfcp::*;

/// Types of elements without a codec (TS 29.244 table 8.1.2-1).
mod kind {
    pub(super) const DUPLICATING_PARAMETERS: u16 = 5;
    pub(super) const APPLICATION_ID: u16 = 24;
    pub(super) const REDIRECT_INFORMATION: u16 = 38;
    pub(super) const PACKET_RATE: u16 = 94;
    pub(super) const DL_FLOW_LEVEL_MARKING: u16 = 97;
    pub(super) const HEADER_ENRICHMENT: u16 = 98;
    pub(super) const UPDATE_DUPLICATING_PARAMETERS: u16 = 105;
    pub(super) const TIME_QUOTA_MECHANISM: u16 = 115;
    pub(super) const AGGREGATED_URRS: u16 = 118;
    pub(super) const CREATE_TRAFFIC_ENDPOINT: u16 = 127;
    pub(super) const UPDATE_TRAFFIC_ENDPOINT: u16 = 129;
    pub(super) const REMOVE_TRAFFIC_ENDPOINT: u16 = 130;
    pub(super) const ETHERNET_PACKET_FILTER: u16 = 132;
    pub(super) const PROXYING: u16 = 137;
    pub(super) const ETHERNET_PDU_SESSION_INFORMATION: u16 = 142;
    pub(super) const ETHERNET_INACTIVITY_TIMER: u16 = 146;
    pub(super) const ADDITIONAL_MONITORING_TIME: u16 = 147;
    pub(super) const EVENT_QUOTA: u16 = 148;
    pub(super) const EVENT_THRESHOLD: u16 = 149;
    pub(super) const TRACE_INFORMATION: u16 = 152;
    pub(super) const CREATE_MAR: u16 = 165;
    pub(super) const REMOVE_MAR: u16 = 168;
    pub(super) const UPDATE_MAR: u16 = 169;
    pub(super) const MAR_ID: u16 = 170;
    pub(super) const UE_IP_ADDRESS_POOL_IDENTITY: u16 = 177;
    pub(super) const PACKET_REPLICATION: u16 = 179;
    pub(super) const IP_MULTICAST_ADDRESSING: u16 = 188;
    pub(super) const CREATE_BRIDGE_INFO: u16 = 194;
    pub(super) const TSC_MANAGEMENT: u16 = 199;
    pub(super) const REMOVE_SRR: u16 = 211;
    pub(super) const CREATE_SRR: u16 = 212;
    pub(super) const UPDATE_SRR: u16 = 213;
    pub(super) const PROVIDE_ATSSS_CONTROL: u16 = 220;
    pub(super) const DATA_NETWORK_ACCESS_IDENTIFIER: u16 = 232;
    pub(super) const MT_EDT_CONTROL: u16 = 249;
    pub(super) const REDUNDANT_DETECTION: u16 = 255;
    pub(super) const PROVIDE_RDS_CONFIGURATION: u16 = 261;
    pub(super) const QUERY_PACKET_RATE_STATUS: u16 = 263;
    pub(super) const MPTCP_APPLICABLE: u16 = 265;
    pub(super) const REDUNDANT_FORWARDING: u16 = 270;
    pub(super) const TRANSPORT_DELAY_REPORTING: u16 = 271;
    pub(super) const L2TP_TUNNEL: u16 = 276;
    pub(super) const L2TP_SESSION: u16 = 277;
    pub(super) const ADDRESS_AND_PORT_REPLACEMENT: u16 = 293;
    pub(super) const MBS_SESSION_N4MB: u16 = 300;
    pub(super) const MBS_MULTICAST: u16 = 301;
    pub(super) const ADD_MBS_UNICAST: u16 = 302;
    pub(super) const MBS_SESSION_N4: u16 = 310;
    pub(super) const DSCP_TO_PPI: u16 = 316;
    pub(super) const QER_INDICATIONS: u16 = 319;
}

/// Unserved elements of requests outside of rules: traffic endpoints, multi-access rules (MAR),
/// session reporting rules (SRR), trace, TSC, ATSSS, RDS, L2TP, MBS.
const OUTSIDE_RULES: &[u16] = &[
    kind::CREATE_TRAFFIC_ENDPOINT,
    kind::UPDATE_TRAFFIC_ENDPOINT,
    kind::REMOVE_TRAFFIC_ENDPOINT,
    kind::TRACE_INFORMATION,
    kind::CREATE_MAR,
    kind::REMOVE_MAR,
    kind::UPDATE_MAR,
    kind::CREATE_BRIDGE_INFO,
    kind::TSC_MANAGEMENT,
    kind::REMOVE_SRR,
    kind::CREATE_SRR,
    kind::UPDATE_SRR,
    kind::PROVIDE_ATSSS_CONTROL,
    kind::PROVIDE_RDS_CONFIGURATION,
    kind::QUERY_PACKET_RATE_STATUS,
    kind::L2TP_TUNNEL,
    kind::L2TP_SESSION,
    kind::MBS_SESSION_N4MB,
    kind::MBS_SESSION_N4,
    kind::DSCP_TO_PPI,
];

/// Returns the unserved members of a group.
fn members_unserved(group: u16) -> &'static [u16] {
    match group {
        CreatePdr::ID | UpdatePdr::ID => &[
            kind::MAR_ID,
            kind::UE_IP_ADDRESS_POOL_IDENTITY,
            kind::PACKET_REPLICATION,
            kind::IP_MULTICAST_ADDRESSING,
            kind::MPTCP_APPLICABLE,
            kind::TRANSPORT_DELAY_REPORTING,
        ],
        Pdi::ID => &[
            TrafficEndpointId::ID,
            kind::ETHERNET_PACKET_FILTER,
            kind::ETHERNET_PDU_SESSION_INFORMATION,
            kind::IP_MULTICAST_ADDRESSING,
            kind::REDUNDANT_DETECTION,
        ],
        CreateFar::ID | UpdateFar::ID => &[
            kind::DUPLICATING_PARAMETERS,
            kind::UPDATE_DUPLICATING_PARAMETERS,
            kind::REDUNDANT_FORWARDING,
            kind::MBS_MULTICAST,
            kind::ADD_MBS_UNICAST,
        ],
        ForwardingParameters::ID | UpdateForwardingParameters::ID => &[
            TransportLevelMarking::ID,
            kind::REDIRECT_INFORMATION,
            kind::HEADER_ENRICHMENT,
            TrafficEndpointId::ID,
            kind::PROXYING,
            kind::DATA_NETWORK_ACCESS_IDENTIFIER,
            kind::ADDRESS_AND_PORT_REPLACEMENT,
        ],
        CreateUrr::ID | UpdateUrr::ID => &[
            // exempted filters and applications of the quota action
            SdfFilter::ID,
            kind::APPLICATION_ID,
            kind::TIME_QUOTA_MECHANISM,
            kind::AGGREGATED_URRS,
            kind::ETHERNET_INACTIVITY_TIMER,
            kind::ADDITIONAL_MONITORING_TIME,
            kind::EVENT_QUOTA,
            kind::EVENT_THRESHOLD,
            NumberOfReports::ID,
        ],
        CreateQer::ID | UpdateQer::ID => &[
            QerCorrelationId::ID,
            kind::PACKET_RATE,
            kind::DL_FLOW_LEVEL_MARKING,
            PagingPolicyIndicator::ID,
            QerControlIndications::ID,
            kind::QER_INDICATIONS,
        ],
        CreateBar::ID | UpdateBar::ID => &[kind::MT_EDT_CONTROL],
        _ => &[],
    }
}

/// Checks a Session Establishment Request or Session Modification Request.
///
/// # Errors
///
/// Returns the refusal of the first element that the UPF does not serve.
pub(crate) fn check(message: &Message<'_>) -> Result<(), Refused> {
    for ie in message.ies() {
        let ie = ie?;
        let is_served = match ie.id {
            PdnType::ID => !matches!(ie.read::<PdnType>()?, PdnType::NON_IP | PdnType::ETHERNET),
            SeReqFlags::ID => ie.read::<SeReqFlags>()?.0 & !SeReqFlags::RESTI.0 == 0,
            SmReqFlags::ID => are_served(ie.read()?),
            id => !OUTSIDE_RULES.contains(&id),
        };
        if !is_served {
            return Err(Refused::unsupported(ie.id));
        }
        if let Some(rule) = rule_id(&ie) {
            check_members(&ie, rule)?;
        }
    }
    Ok(())
}

fn are_served(flags: SmReqFlags) -> bool {
    let served = SmReqFlags::DROBU | SmReqFlags::SNDEM | SmReqFlags::QAURR;
    served.contains(flags)
}

/// Checks the members of a rule, or of a group in it.
fn check_members(group: &Ie<'_>, rule: FailedRuleId) -> Result<(), Refused> {
    for ie in group.ies() {
        let ie = ie?;
        let is_served = match (group.id, ie.id) {
            (CreatePdr::ID | UpdatePdr::ID, Pdi::ID)
            | (CreateFar::ID, ForwardingParameters::ID)
            | (UpdateFar::ID, UpdateForwardingParameters::ID) => {
                check_members(&ie, rule)?;
                true
            }
            // no policy has a name here
            (_, ForwardingPolicy::ID) => {
                return Err(Refused::named(Cause::INVALID_FORWARDING_POLICY, ie.id, rule));
            }
            // packets leave with DSCP 0
            (_, TransportLevelMarking::ID) => ie.read::<TransportLevelMarking>()?.is_zero(),
            (_, SmReqFlags::ID) => are_served(ie.read()?),
            (group, id) => !members_unserved(group).contains(&id),
        };
        if !is_served {
            return Err(Refused::named(Cause::SERVICE_NOT_SUPPORTED, ie.id, rule));
        }
    }
    Ok(())
}

/// Returns the ID of the rule that the element creates or updates.
fn rule_id(ie: &Ie<'_>) -> Option<FailedRuleId> {
    fn member<T: Element>(ie: &Ie<'_>) -> Option<T> {
        ie.ies().flatten().find(|member| member.id == T::ID)?.read().ok()
    }
    match ie.id {
        CreatePdr::ID | UpdatePdr::ID => member::<PdrId>(ie).map(|id| FailedRuleId::Pdr(id.0)),
        CreateFar::ID | UpdateFar::ID => member::<FarId>(ie).map(|id| FailedRuleId::Far(id.0)),
        CreateUrr::ID | UpdateUrr::ID => member::<UrrId>(ie).map(|id| FailedRuleId::Urr(id.0)),
        CreateQer::ID | UpdateQer::ID => member::<QerId>(ie).map(|id| FailedRuleId::Qer(id.0)),
        CreateBar::ID | UpdateBar::ID => member::<BarId>(ie).map(|id| FailedRuleId::Bar(id.0)),
        _ => None,
    }
}
