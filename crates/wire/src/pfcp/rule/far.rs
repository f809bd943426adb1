use crate::pfcp::ie::group;
use crate::pfcp::value::*;

group! {
    /// Create FAR (TS 29.244 table 7.5.2.3-1): what is done with packets.
    CreateFar = 3 {
        /// The rule.
        far_id: FarId,
        /// What is done.
        apply_action: ApplyAction,
        /// Where they go, if they are forwarded.
        forwarding_parameters: Option<ForwardingParameters>,
        /// How they are buffered, if they are.
        bar_id: Option<BarId>,
    }

    /// Forwarding Parameters (TS 29.244 table 7.5.2.3-2).
    ForwardingParameters = 4 {
        /// Where the packets go.
        destination_interface: DestinationInterface,
        /// The data network they go to.
        network_instance: Option<NetworkInstance>,
        /// What is put around them.
        outer_header_creation: Option<OuterHeaderCreation>,
        /// The DSCP of the outer header.
        transport_level_marking: Option<TransportLevelMarking>,
        /// The policy they are forwarded by.
        forwarding_policy: Option<ForwardingPolicy>,
        /// The traffic endpoint that serves the other direction.
        linked_traffic_endpoint_id: Option<TrafficEndpointId>,
        /// The reference point of the destination interface.
        destination_interface_type: Option<InterfaceType>,
    }

    /// Update FAR (TS 29.244 table 7.5.4.3-1): what is absent stays.
    UpdateFar = 10 {
        /// The rule.
        far_id: FarId,
        /// What is done.
        apply_action: Option<ApplyAction>,
        /// Where the packets go.
        update_forwarding_parameters: Option<UpdateForwardingParameters>,
        /// How they are buffered.
        bar_id: Option<BarId>,
    }

    /// Update Forwarding Parameters (TS 29.244 table 7.5.4.3-2): what is absent stays.
    UpdateForwardingParameters = 11 {
        /// Where the packets go.
        destination_interface: Option<DestinationInterface>,
        /// The data network they go to.
        network_instance: Option<NetworkInstance>,
        /// What is put around them.
        outer_header_creation: Option<OuterHeaderCreation>,
        /// The DSCP of the outer header.
        transport_level_marking: Option<TransportLevelMarking>,
        /// The policy they are forwarded by.
        forwarding_policy: Option<ForwardingPolicy>,
        /// Whether an end marker goes out on the old path.
        flags: Option<SmReqFlags>,
        /// The traffic endpoint that serves the other direction.
        linked_traffic_endpoint_id: Option<TrafficEndpointId>,
        /// The reference point of the destination interface.
        destination_interface_type: Option<InterfaceType>,
    }

    /// Remove FAR (TS 29.244 table 7.5.4.7-1).
    RemoveFar = 16 {
        /// The rule.
        far_id: FarId,
    }
}
