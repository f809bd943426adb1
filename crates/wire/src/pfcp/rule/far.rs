use crate::pfcp::ie::group;
use crate::pfcp::value::*;

group! {
    /// Create FAR (TS 29.244 table 7.5.2.3-1): treatment of packets.
    CreateFar = 3 {
        far_id: FarId,
        apply_action: ApplyAction,
        /// Destination of forwarded packets.
        forwarding_parameters: Option<ForwardingParameters>,
        /// BAR for buffered packets.
        bar_id: Option<BarId>,
    }

    /// Forwarding Parameters (TS 29.244 table 7.5.2.3-2).
    ForwardingParameters = 4 {
        /// Destination of the packets.
        destination_interface: DestinationInterface,
        /// Data network of the packets.
        network_instance: Option<NetworkInstance>,
        /// Outer header to add to the packets.
        outer_header_creation: Option<OuterHeaderCreation>,
        /// The DSCP of the outer header.
        transport_level_marking: Option<TransportLevelMarking>,
        /// Policy that the packets follow.
        forwarding_policy: Option<ForwardingPolicy>,
        /// Traffic endpoint of the other direction.
        linked_traffic_endpoint_id: Option<TrafficEndpointId>,
        /// Reference point of the destination interface.
        destination_interface_type: Option<InterfaceType>,
    }

    /// Update FAR (TS 29.244 table 7.5.4.3-1). Absent elements are unchanged.
    UpdateFar = 10 {
        far_id: FarId,
        apply_action: Option<ApplyAction>,
        /// Destination of the packets.
        update_forwarding_parameters: Option<UpdateForwardingParameters>,
        /// BAR for buffered packets.
        bar_id: Option<BarId>,
    }

    /// Update Forwarding Parameters (TS 29.244 table 7.5.4.3-2). Absent elements are unchanged.
    UpdateForwardingParameters = 11 {
        /// Destination of the packets.
        destination_interface: Option<DestinationInterface>,
        /// Data network of the packets.
        network_instance: Option<NetworkInstance>,
        /// Outer header to add to the packets.
        outer_header_creation: Option<OuterHeaderCreation>,
        /// The DSCP of the outer header.
        transport_level_marking: Option<TransportLevelMarking>,
        /// Policy that the packets follow.
        forwarding_policy: Option<ForwardingPolicy>,
        /// Requests an End Marker on the old path.
        flags: Option<SmReqFlags>,
        /// Traffic endpoint of the other direction.
        linked_traffic_endpoint_id: Option<TrafficEndpointId>,
        /// Reference point of the destination interface.
        destination_interface_type: Option<InterfaceType>,
    }

    /// Remove FAR (TS 29.244 table 7.5.4.7-1).
    RemoveFar = 16 {
        far_id: FarId,
    }
}
