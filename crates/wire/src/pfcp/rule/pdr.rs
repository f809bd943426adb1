use crate::pfcp::ie::{List, group};
use crate::pfcp::value::*;

group! {
    /// Create PDR (TS 29.244 table 7.5.2.2-1): a rule that recognises packets.
    CreatePdr = 1 {
        /// The rule.
        pdr_id: PdrId,
        /// The lowest is matched first.
        precedence: Precedence,
        /// Which packets.
        pdi: Pdi,
        /// What is taken off them.
        outer_header_removal: Option<OuterHeaderRemoval>,
        /// What is done with them; absent only where predefined rules say it.
        far_id: Option<FarId>,
        /// What counts them.
        urr_ids: List<UrrId, 4>,
        /// What limits and marks them.
        qer_ids: List<QerId, 4>,
        /// Predefined rules in use.
        activate_predefined_rules: Vec<ActivatePredefinedRules>,
        /// When the rule begins to hold.
        activation_time: Option<ActivationTime>,
        /// When it ceases to.
        deactivation_time: Option<DeactivationTime>,
    }

    /// PDI (TS 29.244 table 7.5.2.2-2): which packets a PDR matches.
    Pdi = 2 {
        /// Where they come from.
        source_interface: SourceInterface,
        /// The tunnel they come in.
        f_teid: Option<FTeid>,
        /// The data network they come from or go to.
        network_instance: Option<NetworkInstance>,
        /// The UE's addresses.
        ue_ip_addresses: List<UeIpAddress, 1>,
        /// Traffic endpoints they belong to, where PDI optimisation is used.
        traffic_endpoint_ids: List<TrafficEndpointId, 4>,
        /// Filters on the packet, any of which may match; none = all packets.
        sdf_filters: Vec<SdfFilter>,
        /// The application they belong to.
        application_id: Option<ApplicationId>,
        /// QoS flows they belong to; none = any.
        qfis: List<Qfi, 4>,
        /// IPv4 routes behind the UE.
        framed_routes: Vec<FramedRoute>,
        /// How routes behind the UE are told on.
        framed_routing: Option<FramedRouting>,
        /// IPv6 routes behind the UE.
        framed_ipv6_routes: Vec<FramedIpv6Route>,
        /// The reference point of the source interface.
        source_interface_type: Option<InterfaceType>,
    }

    /// Update PDR (TS 29.244 table 7.5.4.2-1): what is absent stays; a list that is there replaces the old one.
    UpdatePdr = 9 {
        /// The rule.
        pdr_id: PdrId,
        /// What is taken off the packets.
        outer_header_removal: Option<OuterHeaderRemoval>,
        /// The lowest is matched first.
        precedence: Option<Precedence>,
        /// Which packets.
        pdi: Option<Pdi>,
        /// What is done with them.
        far_id: Option<FarId>,
        /// What counts them.
        urr_ids: List<UrrId, 4>,
        /// What limits and marks them.
        qer_ids: List<QerId, 4>,
        /// Predefined rules to use from now on.
        activate_predefined_rules: Vec<ActivatePredefinedRules>,
        /// Predefined rules not to use any more.
        deactivate_predefined_rules: Vec<DeactivatePredefinedRules>,
        /// When the rule begins to hold.
        activation_time: Option<ActivationTime>,
        /// When it ceases to.
        deactivation_time: Option<DeactivationTime>,
    }

    /// Remove PDR (TS 29.244 table 7.5.4.6-1).
    RemovePdr = 15 {
        /// The rule.
        pdr_id: PdrId,
    }

    /// Created PDR (TS 29.244 table 7.5.3.2-1): what the UPF chose for a PDR.
    CreatedPdr = 8 {
        /// The rule.
        pdr_id: PdrId,
        /// The tunnel end chosen.
        f_teid: Option<FTeid>,
        /// The UE addresses chosen.
        ue_ip_addresses: List<UeIpAddress, 1>,
    }
}
