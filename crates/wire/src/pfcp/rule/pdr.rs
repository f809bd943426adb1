use crate::pfcp::ie::{List, group};
use crate::pfcp::value::*;

group! {
    /// Create PDR (TS 29.244 table 7.5.2.2-1): a rule that detects packets.
    CreatePdr = 1 {
        pdr_id: PdrId,
        /// The PDR with the lowest value is matched first.
        precedence: Precedence,
        pdi: Pdi,
        /// Outer header to remove from the packets.
        outer_header_removal: Option<OuterHeaderRemoval>,
        /// FAR of the packets; absent only with predefined rules.
        far_id: Option<FarId>,
        /// URRs that measure the packets.
        urr_ids: List<UrrId, 4>,
        /// QERs that limit and mark the packets.
        qer_ids: List<QerId, 4>,
        /// Predefined rules to activate.
        activate_predefined_rules: Vec<ActivatePredefinedRules>,
        /// Time from which the rule is active.
        activation_time: Option<ActivationTime>,
        /// Time from which the rule is inactive.
        deactivation_time: Option<DeactivationTime>,
    }

    /// PDI (TS 29.244 table 7.5.2.2-2): the packets that a PDR matches.
    Pdi = 2 {
        /// Source of the packets.
        source_interface: SourceInterface,
        /// Tunnel of the packets.
        f_teid: Option<FTeid>,
        /// Data network of the packets.
        network_instance: Option<NetworkInstance>,
        ue_ip_addresses: List<UeIpAddress, 1>,
        /// Traffic endpoints of the packets, with PDI optimisation.
        traffic_endpoint_ids: List<TrafficEndpointId, 4>,
        /// Filters, any of which may match; empty matches all packets.
        sdf_filters: Vec<SdfFilter>,
        /// Application of the packets.
        application_id: Option<ApplicationId>,
        /// QoS flows of the packets; empty matches any.
        qfis: List<Qfi, 4>,
        /// IPv4 routes behind the UE.
        framed_routes: Vec<FramedRoute>,
        /// Announcement of the routes behind the UE.
        framed_routing: Option<FramedRouting>,
        /// IPv6 routes behind the UE.
        framed_ipv6_routes: Vec<FramedIpv6Route>,
        /// Reference point of the source interface.
        source_interface_type: Option<InterfaceType>,
    }

    /// Update PDR (TS 29.244 table 7.5.4.2-1). Absent elements are unchanged; a present list
    /// replaces the old one.
    UpdatePdr = 9 {
        pdr_id: PdrId,
        /// Outer header to remove from the packets.
        outer_header_removal: Option<OuterHeaderRemoval>,
        /// The PDR with the lowest value is matched first.
        precedence: Option<Precedence>,
        pdi: Option<Pdi>,
        /// FAR of the packets.
        far_id: Option<FarId>,
        /// URRs that measure the packets.
        urr_ids: List<UrrId, 4>,
        /// QERs that limit and mark the packets.
        qer_ids: List<QerId, 4>,
        /// Predefined rules to activate.
        activate_predefined_rules: Vec<ActivatePredefinedRules>,
        /// Predefined rules to deactivate.
        deactivate_predefined_rules: Vec<DeactivatePredefinedRules>,
        /// Time from which the rule is active.
        activation_time: Option<ActivationTime>,
        /// Time from which the rule is inactive.
        deactivation_time: Option<DeactivationTime>,
    }

    /// Remove PDR (TS 29.244 table 7.5.4.6-1).
    RemovePdr = 15 {
        pdr_id: PdrId,
    }

    /// Created PDR (TS 29.244 table 7.5.3.2-1): allocations of the UPF for a PDR.
    CreatedPdr = 8 {
        pdr_id: PdrId,
        /// The allocated tunnel end.
        f_teid: Option<FTeid>,
        /// The allocated UE addresses.
        ue_ip_addresses: List<UeIpAddress, 1>,
    }
}
